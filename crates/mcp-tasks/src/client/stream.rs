//! What happens during a call, as a stream of events.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use futures_util::{Stream, StreamExt};
use rmcp::model::CallToolResult;
use tokio::sync::mpsc;

use super::{RemoteTask, TaskClientError, TaskInfo, TaskProgress};

/// One event of a call. The last one is [`Result`](Self::Result) or [`Error`](Self::Error), and only that.
#[derive(Debug)]
#[non_exhaustive]
pub enum TaskEvent<R = CallToolResult> {
    /// The receiver made a task of the request. Never comes for a plain call, nor for a task that was there before.
    Created(TaskInfo),
    /// The task's status, its message or another member changed.
    Status(TaskInfo),
    /// Progress was reported. Steps may be missed, by the receiver or by a slow reader.
    Progress(TaskProgress),
    /// The result: a tool's may say `isError: true` of itself.
    Result(R),
    /// There is no result.
    Error(TaskClientError),
}

impl<R> TaskEvent<R> {
    /// Whether this is the last event.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Result(_) | Self::Error(_))
    }
}

/// The events of one call, or of one task.
///
/// The call is driven in the background, whether the stream is read or not (up to a few events ahead). Dropping the
/// stream ends that; the task itself runs on unless [`CallOptions::cancel_on_drop`](super::CallOptions::cancel_on_drop)
/// is set, a plain call is withdrawn with `notifications/cancelled`.
#[derive(Debug)]
pub struct TaskStream<R = CallToolResult> {
    events: mpsc::Receiver<TaskEvent<R>>,
    task: Arc<OnceLock<RemoteTask>>,
    ended: bool,
}

impl<R> TaskStream<R> {
    pub(super) fn new(
        events: mpsc::Receiver<TaskEvent<R>>,
        task: Arc<OnceLock<RemoteTask>>,
    ) -> Self {
        Self {
            events,
            task,
            ended: false,
        }
    }

    /// The next event; `None` after the last one.
    pub async fn next(&mut self) -> Option<TaskEvent<R>> {
        StreamExt::next(self).await
    }

    /// Reads to the end, for callers that only want the result.
    ///
    /// # Errors
    /// What [`TaskEvent::Error`] says.
    pub async fn result(mut self) -> Result<R, TaskClientError> {
        while let Some(event) = self.next().await {
            match event {
                TaskEvent::Result(result) => return Ok(result),
                TaskEvent::Error(error) => return Err(error),
                TaskEvent::Created(_) | TaskEvent::Status(_) | TaskEvent::Progress(_) => {}
            }
        }
        Err(TaskClientError::Closed)
    }
}

impl TaskStream {
    /// The task of this call, once there is one: to cancel it, or for its [ticket](RemoteTask::ticket).
    pub fn task(&self) -> Option<RemoteTask> {
        self.task.get().cloned()
    }
}

impl<R> Stream for TaskStream<R> {
    type Item = TaskEvent<R>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<TaskEvent<R>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let event = match self.events.poll_recv(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(event)) => event,
            // The driver is gone without a word: its runtime is shutting down.
            Poll::Ready(None) => TaskEvent::Error(TaskClientError::Closed),
        };
        self.ended = event.is_last();
        Poll::Ready(Some(event))
    }
}
