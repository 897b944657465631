//! What a store keeps of a task.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Input, Outcome, Owner, RawJson, TaskId, Timestamp, WorkerId, outcome::present};

/// The protocol generation a task was requested in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Generation {
    /// No tasks: a revision before 2025-11-25, or a requestor that declared none.
    Legacy,
    /// Core Tasks of protocol 2025-11-25 (SEP-1686).
    V2025_11_25,
    /// The Tasks extension of protocol 2026-07-28 (SEP-2663).
    V2026_07_28,
}

/// Where a task came from: everything about the original request that is needed to run its body here or elsewhere.
/// It never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The tool that was called.
    pub tool: Arc<str>,
    /// The call's arguments (a JSON object).
    pub arguments: RawJson,
    /// The request's `_meta`, if it had one.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub meta: Option<RawJson>,
    /// The protocol generation of the requestor.
    pub generation: Generation,
    /// The capabilities the requestor declared (a JSON object).
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub capabilities: Option<RawJson>,
    /// The requestor's `clientInfo`.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub client_info: Option<RawJson>,
    /// The progress token of the request, as it came.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub progress_token: Option<RawJson>,
    /// The session the request came in, if there is one: where its notifications go. No right follows from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Arc<str>>,
    /// Runs the tool's stage before a task exists, not its body.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub before: bool,
    /// The ttl that was asked for, in milliseconds: `None` nothing, `Some(None)` unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "asked_ttl")]
    pub requested_ttl: Option<Option<u64>>,
}

/// `Option<Option<u64>>` where an absent member and `null` differ.
mod asked_ttl {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[allow(clippy::ref_option)]
    pub(super) fn serialize<S: Serializer>(
        ttl: &Option<Option<u64>>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        ttl.flatten().serialize(s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<Option<u64>>, D::Error> {
        Option::<u64>::deserialize(d).map(Some)
    }
}

/// The stored part of a task's state. Whether it waits for input is derived: [`TaskRecord::phase`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Not ended.
    Active,
    /// Ended with an outcome.
    Finished(Outcome),
    /// Ended by a cancel.
    Cancelled,
}

/// What a task is doing, as both generations tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Running, or waiting to run.
    Working,
    /// At least one question is open.
    InputRequired,
    /// Ended with an outcome.
    Finished,
    /// Ended by a cancel.
    Cancelled,
}

/// The durable state of one task. Copy on write: [`apply`](TaskRecord::apply) makes the next one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// The id.
    pub id: TaskId,
    /// Whom the task is bound to.
    pub owner: Owner,
    /// Whose share of the per-owner limit the task takes (an owner's name, or a session for bearer tasks).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_key: Option<Arc<str>>,
    /// Runs behind an ordinary call (the shim): not listed, not gettable, not cancellable by id.
    #[serde(default)]
    pub hidden: bool,
    /// The number of this record: 1 at creation, one more with every change.
    pub revision: u64,
    /// When the task was created; never changes.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// Lifetime from creation in milliseconds; `None` is unlimited.
    pub ttl_ms: Option<u64>,
    /// How often a requestor should ask, in milliseconds.
    pub poll_interval_ms: u64,
    /// Whether and how it ended.
    pub state: State,
    /// What a person is told about the present state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_message: Option<Arc<str>>,
    /// The questions asked so far, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Arc<Input>>,
    /// What the body last saved for a later attempt.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub checkpoint: Option<RawJson>,
    /// The worker that runs the body; `None` when the work is done outside (`.create` tools).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerId>,
    /// How many workers have had it, this one included; 0 for outside work.
    #[serde(default)]
    pub attempt: u32,
    /// The job's name in an outside system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<Arc<str>>,
    /// The text a host may give its model at once (2025-11-25 `model-immediate-response`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub immediate_response: Option<Arc<str>>,
    /// The original request.
    pub origin: Arc<Origin>,
}

/// What the creator of a task decides; the rest of the first record follows.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// The id.
    pub id: TaskId,
    /// See [`TaskRecord::owner`].
    pub owner: Owner,
    /// See [`TaskRecord::quota_key`].
    pub quota_key: Option<Arc<str>>,
    /// See [`TaskRecord::hidden`].
    pub hidden: bool,
    /// See [`TaskRecord::ttl_ms`].
    pub ttl_ms: Option<u64>,
    /// See [`TaskRecord::poll_interval_ms`].
    pub poll_interval_ms: u64,
    /// See [`TaskRecord::status_message`].
    pub status_message: Option<Arc<str>>,
    /// See [`TaskRecord::worker`].
    pub worker: Option<WorkerId>,
    /// See [`TaskRecord::external_id`].
    pub external_id: Option<Arc<str>>,
    /// See [`TaskRecord::immediate_response`].
    pub immediate_response: Option<Arc<str>>,
    /// See [`TaskRecord::origin`].
    pub origin: Arc<Origin>,
}

impl TaskRecord {
    /// The first record of a task created at `now`: revision 1, working.
    pub fn create(new: NewTask, now: Timestamp) -> Self {
        Self {
            id: new.id,
            owner: new.owner,
            quota_key: new.quota_key,
            hidden: new.hidden,
            revision: 1,
            created_at: now,
            updated_at: now,
            ttl_ms: new.ttl_ms,
            poll_interval_ms: new.poll_interval_ms,
            state: State::Active,
            status_message: new.status_message,
            inputs: Vec::new(),
            checkpoint: None,
            attempt: u32::from(new.worker.is_some()),
            worker: new.worker,
            external_id: new.external_id,
            immediate_response: new.immediate_response,
            origin: new.origin,
        }
    }

    /// What the task is doing. `InputRequired` is derived from the open questions, never stored.
    pub fn phase(&self) -> Phase {
        match &self.state {
            State::Active if self.open_inputs().next().is_some() => Phase::InputRequired,
            State::Active => Phase::Working,
            State::Finished(_) => Phase::Finished,
            State::Cancelled => Phase::Cancelled,
        }
    }

    /// Whether the task has ended. An ended task never changes again.
    pub fn is_terminal(&self) -> bool {
        !matches!(self.state, State::Active)
    }

    /// The outcome, if the task ended with one.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.state {
            State::Finished(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// The questions that wait for an answer.
    pub fn open_inputs(&self) -> impl Iterator<Item = &Arc<Input>> {
        self.inputs.iter().filter(|input| input.is_open())
    }

    /// The question with this key.
    pub fn input(&self, key: &str) -> Option<&Arc<Input>> {
        self.inputs.iter().find(|input| &*input.key == key)
    }

    /// When the task ceases to exist; `None` is never.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.ttl_ms.map(|ttl| self.created_at.plus_millis(ttl))
    }

    /// Whether the task has ceased to exist at `now`.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at().is_some_and(|at| at <= now)
    }

    /// The time left at `now`; `None` is unlimited.
    pub fn remaining(&self, now: Timestamp) -> Option<Duration> {
        self.expires_at().map(|at| now.until(at))
    }
}
