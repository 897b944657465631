//! What a caller holds while it waits for the connection: an answer, a task's announcements, its progress.
//!
//! Each cleans up behind itself when dropped.

use std::sync::Arc;

use rmcp::model::ErrorData;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    TaskInfo,
    connection::Connection,
    link::{Lost, LostKind},
};
use crate::task::RawJson;

/// What became of one request.
#[derive(Debug)]
pub(super) enum Reply {
    Result(RawJson),
    Error(ErrorData),
    Lost(Lost),
}

/// What to tell the server when nobody waits for an answer any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Abandon {
    /// `notifications/cancelled`: it ends a plain request, or the waiting of `tasks/result`.
    Notify,
    /// Nothing: a poll will be over soon, and a task is cancelled with `tasks/cancel` only.
    Silently,
}

/// A step of a task's work, as `notifications/progress` told it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TaskProgress {
    /// How much is done; grows from step to step.
    pub progress: f64,
    /// How much there is to do, if known.
    pub total: Option<f64>,
    /// What is being done, for a person.
    pub message: Option<String>,
}

/// A request of ours that is under way. Dropping it tells the server as [`Abandon`] says.
pub(super) struct InFlight {
    pub(super) connection: Arc<Connection>,
    pub(super) number: u64,
    pub(super) answer: oneshot::Receiver<Reply>,
    /// None as long as it has not been sent.
    pub(super) abandon: Option<Abandon>,
}

impl InFlight {
    pub(super) fn id(&self) -> Arc<str> {
        format!("\"tc:{}\"", self.number).into()
    }

    /// The answer. May be awaited in pieces; call it once only after it has given one.
    pub(super) async fn reply(&mut self) -> Reply {
        match (&mut self.answer).await {
            Ok(reply) => reply,
            Err(_) => Reply::Lost(Lost::new(
                LostKind::Closed,
                true,
                "the connection is closed",
            )),
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self
            .connection
            .tables()
            .pending
            .remove(&self.number)
            .is_none()
        {
            return;
        }
        let Some(abandon) = self.abandon else { return };
        // Where the request has a stream of its own, closing that says it (2026-07-28).
        let closing_says_it =
            self.connection.modern.get().is_some() && self.connection.link.has_streams();
        if abandon == Abandon::Notify && !closing_says_it {
            let params = serde_json::json!({
                "requestId": format!("tc:{}", self.number),
                "reason": "the caller no longer waits",
            });
            self.connection.notify("notifications/cancelled", &params);
        }
        self.connection.link.abort(&self.id());
    }
}

/// The status notifications of one task, for as long as this lives.
pub(super) struct Watch {
    pub(super) connection: Arc<Connection>,
    pub(super) task: String,
    pub(super) changes: watch::Receiver<Option<TaskInfo>>,
}

impl Watch {
    /// The next status that the server announces.
    pub(super) async fn next(&mut self) -> TaskInfo {
        loop {
            if self.changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            if let Some(info) = self.changes.borrow_and_update().clone() {
                return info;
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut tables = self.connection.tables();
        if tables
            .watched
            .get(&self.task)
            .is_some_and(|watched| watched.receiver_count() <= 1)
        {
            tables.watched.remove(&self.task);
        }
    }
}

/// The progress reported under one token, for as long as this lives.
pub(super) struct ProgressFeed {
    pub(super) connection: Arc<Connection>,
    pub(super) token: String,
    pub(super) number: u64,
    pub(super) steps: mpsc::Receiver<TaskProgress>,
}

impl ProgressFeed {
    /// The next step.
    pub(super) async fn next(&mut self) -> TaskProgress {
        match self.steps.recv().await {
            Some(step) => step,
            None => std::future::pending().await,
        }
    }
}

impl Drop for ProgressFeed {
    fn drop(&mut self) {
        let mut tables = self.connection.tables();
        if let Some(feeds) = tables.progress.get_mut(&self.token) {
            feeds.retain(|(number, _)| *number != self.number);
            if feeds.is_empty() {
                tables.progress.remove(&self.token);
            }
        }
    }
}
