//! A peer that cannot be reached for a time while a task of it is followed.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    CallOptions, TaskClientError,
    backoff::Backoff,
    connection::Connection,
    link::{Lost, LostKind},
};

/// Since when nothing got through, and how long that may last.
pub(super) struct Outage {
    connection: Arc<Connection>,
    task: String,
    since: Option<Instant>,
    longest: Option<Duration>,
}

impl Outage {
    pub(super) fn new(connection: &Arc<Connection>, task: &str, options: &CallOptions) -> Self {
        let usual = connection.settings.max_outage;
        Self {
            connection: connection.clone(),
            task: task.to_owned(),
            since: None,
            longest: options.max_outage.unwrap_or(usual),
        }
    }

    /// Something got through.
    pub(super) fn over(&mut self) {
        self.since = None;
    }

    /// A request was lost, on the way or for good: when the next try is due, not before `floor` from now.
    ///
    /// # Errors
    /// There is no next try: the connection is closed, or the peer has been out of reach for too long.
    pub(super) fn try_again(
        &mut self,
        lost: &Lost,
        backoff: &mut Backoff,
        floor: Duration,
    ) -> Result<Instant, TaskClientError> {
        self.lasts(lost)?;
        tracing::debug!(
            task = self.task,
            why = lost.why,
            "a request was lost, trying again"
        );
        let asked = lost.retry_after.unwrap_or_default();
        Ok(Instant::now() + backoff.next().max(asked).max(floor))
    }

    /// The same where the next try is for the caller to say.
    ///
    /// # Errors
    /// As [`try_again`](Self::try_again).
    pub(super) fn lasts(&mut self, lost: &Lost) -> Result<(), TaskClientError> {
        if lost.kind != LostKind::Transient {
            return Err(match lost.kind {
                LostKind::Closed => self.connection.closed_error(Some(&self.task)),
                _ => TaskClientError::lost(lost.clone(), Some(&self.task)),
            });
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        match self.longest {
            Some(longest) if since.elapsed() >= longest => {
                Err(TaskClientError::lost(lost.clone(), Some(&self.task)))
            }
            _ => Ok(()),
        }
    }
}
