//! Reading and changing records: compare and swap on the store, then tell everybody.

use std::sync::Arc;

use super::{
    ask::Askings,
    hub::{Hub, Seen},
    limits::{Limits, millis},
};
use crate::{
    store::{Access, StoreError, Swap, TaskStore},
    task::{Change, Clock, Fence, Refusal, TaskId, TaskRecord},
};

/// The store, the clock, the limits and the hub: all that is needed to work on tasks without running any.
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn TaskStore>,
    pub(crate) limits: Limits,
    pub(crate) clock: Clock,
    pub(crate) hub: Arc<Hub>,
    pub(crate) asking: Askings,
}

/// Why a task could not be read or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Unknown, expired, hidden or somebody else's: there is no telling which.
    #[error("task not found")]
    NotFound,
    /// The task has ended, and what was asked needs one that has not.
    #[error("the task has already ended")]
    Terminal(Arc<TaskRecord>),
    /// The tool's `.on_get` or `.on_result` said so.
    #[error("{}", .0.message)]
    Tool(crate::task::ErrorObject),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a change was not made.
#[derive(Debug)]
pub(crate) enum UpdateError {
    NotFound,
    /// The state machine refused; with the record it refused on.
    Refused(Refusal, Arc<TaskRecord>),
    Store(StoreError),
}

impl From<StoreError> for UpdateError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Engine {
    pub(crate) fn new(store: Arc<dyn TaskStore>, limits: Limits, clock: Clock) -> Self {
        Self {
            store,
            limits,
            clock,
            hub: Hub::new(),
            asking: Askings::default(),
        }
    }

    /// The record, hidden or not, unless its lifetime has passed.
    pub(crate) async fn get(
        &self,
        id: &TaskId,
        access: &Access,
    ) -> Result<Arc<TaskRecord>, ReadError> {
        match self.store.get(id.as_str(), access).await? {
            Some(record) if !record.is_expired(self.clock.now()) => Ok(record),
            _ => Err(ReadError::NotFound),
        }
    }

    /// The record as a requestor sees it: hidden tasks are not there.
    pub(crate) async fn get_visible(
        &self,
        id: &TaskId,
        access: &Access,
    ) -> Result<Arc<TaskRecord>, ReadError> {
        let record = self.get(id, access).await?;
        if record.hidden && *access != Access::System {
            return Err(ReadError::NotFound);
        }
        Ok(record)
    }

    /// Makes a change: `get`, the pure transition, compare and swap; again if another write came between.
    /// `hint` is a record that is probably the present one.
    pub(crate) async fn update(
        &self,
        id: &TaskId,
        access: &Access,
        fence: Option<&Fence>,
        hint: Option<Arc<TaskRecord>>,
        change: &Change,
    ) -> Result<Arc<TaskRecord>, UpdateError> {
        let mut present = hint.filter(|record| access.covers(record));
        loop {
            let record = match present.take() {
                Some(record) => record,
                None => match self.store.get(id.as_str(), access).await? {
                    Some(record) => record,
                    None => return Err(UpdateError::NotFound),
                },
            };
            let now = self.clock.now();
            if record.is_expired(now) {
                return Err(UpdateError::NotFound);
            }
            let next = match record.apply(change.clone(), now, fence) {
                Ok(next) => Arc::new(next),
                Err(refusal) => return Err(UpdateError::Refused(refusal, record)),
            };
            match self
                .store
                .replace(next.clone(), record.revision, access)
                .await?
            {
                Swap::Done => {
                    self.hub.publish(&next);
                    return Ok(next);
                }
                Swap::Stale => {}
                Swap::Missing => return Err(UpdateError::NotFound),
            }
        }
    }

    pub(crate) async fn cancel(
        &self,
        id: &TaskId,
        access: &Access,
        message: &str,
    ) -> Result<Arc<TaskRecord>, ReadError> {
        self.get_visible(id, access).await?;
        let change = Change::Cancel {
            message: Some(message.into()),
        };
        match self.update(id, access, None, None, &change).await {
            Ok(record) => {
                tracing::info!(task = %id, "task cancelled");
                Ok(record)
            }
            Err(UpdateError::Refused(_, record)) => Err(ReadError::Terminal(record)),
            Err(UpdateError::NotFound) => Err(ReadError::NotFound),
            Err(UpdateError::Store(error)) => Err(error.into()),
        }
    }

    /// Waits until `done` says so of the record, or the task is gone.
    pub(crate) async fn wait_until<T>(
        self: &Arc<Self>,
        id: &TaskId,
        access: &Access,
        mut done: impl FnMut(&Arc<TaskRecord>) -> Option<T>,
    ) -> Result<T, ReadError> {
        let mut watch = self.hub.watch(self, id);
        let mut record = self.get(id, access).await?;
        loop {
            if let Some(found) = done(&record) {
                return Ok(found);
            }
            let left = record.remaining(self.clock.now());
            tokio::select! {
                () = watch.changed() => {}
                () = sleep_or_forever(left) => {}
            }
            match watch.seen() {
                Seen::Record(newer) if access.covers(&newer) => {
                    if newer.is_expired(self.clock.now()) {
                        return Err(ReadError::NotFound);
                    }
                    if newer.revision >= record.revision {
                        record = newer;
                    }
                }
                Seen::Record(_) | Seen::Removed => return Err(ReadError::NotFound),
                Seen::Nothing => record = self.get(id, access).await?,
            }
        }
    }

    pub(crate) async fn wait_terminal(
        self: &Arc<Self>,
        id: &TaskId,
        access: &Access,
    ) -> Result<Arc<TaskRecord>, ReadError> {
        self.wait_until(id, access, |record| {
            record.is_terminal().then(|| record.clone())
        })
        .await
    }

    /// Removes a task and tells everybody; its work stops, its waiters wake.
    pub(crate) async fn remove(&self, id: &TaskId) -> Result<bool, StoreError> {
        let removed = self.store.remove(id.as_str(), &Access::System).await?;
        self.hub.publish_removed(id);
        Ok(removed)
    }

    /// The change that ends a task with this outcome.
    pub(crate) fn finish(
        &self,
        outcome: crate::task::Outcome,
        message: Option<Arc<str>>,
    ) -> Change {
        Change::Finish {
            outcome,
            message,
            retain_ms: millis(self.limits.min_result_retention),
        }
    }
}

/// Sleeps for `left`, or for ever.
pub(crate) async fn sleep_or_forever(left: Option<std::time::Duration>) {
    match left {
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}
