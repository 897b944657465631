//! Records to try a store with.

use std::sync::Arc;

use crate::{
    store::Quota,
    task::{
        Change, Generation, NewTask, Origin, Owner, RawJson, TaskId, TaskRecord, Timestamp,
        WorkerId,
    },
};

pub(super) const NO_LIMIT: Quota = Quota {
    total: u64::MAX,
    per_key: u64::MAX,
};

/// A time `ms` after some day in 2027.
pub(super) fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + ms)
}

/// Later than every [`at`] in this suite.
pub(super) static END: std::sync::LazyLock<Timestamp> = std::sync::LazyLock::new(|| at(1 << 40));

/// A record in the making.
pub(super) struct Sample {
    new: NewTask,
    created_at: Timestamp,
}

pub(super) fn json(text: &str) -> RawJson {
    RawJson::from_text(text).expect("a sample is JSON")
}

/// A task of whoever holds its id, with a ttl of 1000 ms.
pub(super) fn bearer() -> Sample {
    Sample {
        new: NewTask {
            id: TaskId::random(),
            owner: Owner::Bearer,
            quota_key: None,
            hidden: false,
            ttl_ms: Some(1000),
            poll_interval_ms: 500,
            status_message: None,
            worker: None,
            external_id: None,
            immediate_response: None,
            origin: Arc::new(Origin {
                tool: "build".into(),
                arguments: json("{}"),
                meta: None,
                generation: Generation::V2025_11_25,
                capabilities: None,
                client_info: None,
                progress_token: None,
                session: None,
                before: false,
                requested_ttl: None,
            }),
        },
        created_at: at(0),
    }
}

/// A task of the principal `name`, counted under that name.
pub(super) fn owned(name: &str) -> Sample {
    let mut sample = bearer();
    sample.new.owner = Owner::principal(name);
    sample.new.quota_key = Some(name.into());
    sample
}

impl Sample {
    pub(super) fn id(mut self, id: &TaskId) -> Self {
        self.new.id = id.clone();
        self
    }

    pub(super) fn external(mut self, id: &str) -> Self {
        self.new.external_id = Some(id.into());
        self
    }

    pub(super) fn quota_key(mut self, key: &str) -> Self {
        self.new.quota_key = Some(key.into());
        self
    }

    pub(super) fn hidden(mut self) -> Self {
        self.new.hidden = true;
        self
    }

    pub(super) fn ttl(mut self, ms: Option<u64>) -> Self {
        self.new.ttl_ms = ms;
        self
    }

    pub(super) fn worker(mut self, worker: &WorkerId) -> Self {
        self.new.worker = Some(worker.clone());
        self
    }

    pub(super) fn created(mut self, ms: u64) -> Self {
        self.created_at = at(ms);
        self
    }

    pub(super) fn origin(mut self, edit: impl FnOnce(&mut Origin)) -> Self {
        edit(Arc::make_mut(&mut self.new.origin));
        self
    }

    pub(super) fn with(mut self, edit: impl FnOnce(&mut NewTask)) -> Self {
        edit(&mut self.new);
        self
    }

    pub(super) fn into_record(self) -> Arc<TaskRecord> {
        Arc::new(TaskRecord::create(self.new, self.created_at))
    }
}

/// The record after `change`.
pub(super) fn next(record: &TaskRecord, change: Change) -> Arc<TaskRecord> {
    let changed = record.apply(change, at(10), None);
    Arc::new(changed.expect("a sample change is allowed"))
}

/// The record with another status message.
pub(super) fn said(record: &TaskRecord, text: &str) -> Arc<TaskRecord> {
    next(record, Change::Status(Some(text.into())))
}

/// The record, cancelled.
pub(super) fn cancelled(record: &TaskRecord) -> Arc<TaskRecord> {
    next(record, Change::Cancel { message: None })
}
