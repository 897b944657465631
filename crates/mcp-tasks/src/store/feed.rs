//! The change feed: which tasks changed.

use std::any::Any;

use tokio::sync::broadcast;

use crate::task::TaskId;

/// One event of a [`ChangeFeed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeEvent {
    /// The task has at least this revision now, or is gone.
    Task {
        /// Which task.
        id: TaskId,
        /// The revision that was written; `u64::MAX` when the record was removed.
        revision: u64,
    },
    /// Events were lost: read everything again that matters.
    Lagged,
}

/// The sending end that a store keeps. Sending never blocks and costs next to nothing while nobody listens.
#[derive(Debug, Clone)]
pub struct ChangeSender(broadcast::Sender<ChangeEvent>);

/// A subscription to the changes of a store. Dropping it ends it.
pub struct ChangeFeed {
    events: broadcast::Receiver<ChangeEvent>,
    // Whatever the store keeps alive while somebody listens.
    _guard: Option<Box<dyn Any + Send + Sync>>,
}

impl Default for ChangeSender {
    fn default() -> Self {
        Self::new()
    }
}

impl ChangeSender {
    /// A feed nobody listens to yet.
    pub fn new() -> Self {
        Self(broadcast::channel(4096).0)
    }

    /// Tells every listener.
    pub fn send(&self, id: &TaskId, revision: u64) {
        if self.0.receiver_count() > 0 {
            let _ = self.0.send(ChangeEvent::Task {
                id: id.clone(),
                revision,
            });
        }
    }

    /// Tells every listener that events were lost.
    pub fn send_lagged(&self) {
        let _ = self.0.send(ChangeEvent::Lagged);
    }

    /// A new subscription.
    pub fn subscribe(&self) -> ChangeFeed {
        ChangeFeed {
            events: self.0.subscribe(),
            _guard: None,
        }
    }

    /// A new subscription that keeps `guard` until it is dropped.
    pub fn subscribe_with(&self, guard: impl Any + Send + Sync) -> ChangeFeed {
        ChangeFeed {
            events: self.0.subscribe(),
            _guard: Some(Box::new(guard)),
        }
    }
}

impl ChangeFeed {
    /// The next event; `None` when the store is gone.
    pub async fn next(&mut self) -> Option<ChangeEvent> {
        match self.events.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(ChangeEvent::Lagged),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

impl std::fmt::Debug for ChangeFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChangeFeed")
    }
}
