//! How one call is to be made.

use std::time::Duration;

use serde_json::{Value, json};

/// Whether a call is made as a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TaskPreference {
    /// As a task where the server declares `tasks.requests.tools.call` and the tool says `optional` or `required`.
    /// Under 2026-07-28 the server decides.
    #[default]
    Auto,
    /// As a task wherever the server declares it, whatever the tool says; else
    /// [`TasksUnsupported`](super::TaskClientError::TasksUnsupported). Under 2026-07-28 the server still decides: a
    /// result that comes at once is accepted.
    Always,
    /// As a plain call, always. Under 2026-07-28 the call does not declare the tasks extension.
    Never,
}

/// How one call is to be made. Unset members follow the client's defaults.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CallOptions {
    pub(super) task: TaskPreference,
    pub(super) ttl: Option<Option<Duration>>,
    pub(super) deadline: Option<Duration>,
    pub(super) poll_floor: Option<Duration>,
    pub(super) max_outage: Option<Option<Duration>>,
    pub(super) cancel_on_drop: bool,
}

impl CallOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether to make the call as a task.
    #[must_use]
    pub fn task(mut self, preference: TaskPreference) -> Self {
        self.task = preference;
        self
    }

    /// The time to live to ask for, counted from the task's creation; sent in whole milliseconds
    /// (2025-11-25 `basic/utilities/tasks`, `params.task.ttl`). The server may give another one. 2026-07-28 has nothing
    /// like it: there it is left out.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(Some(ttl));
        self
    }

    /// Ask for a task that never expires (`ttl: null`).
    #[must_use]
    pub fn ttl_unlimited(mut self) -> Self {
        self.ttl = Some(None);
        self
    }

    /// How long the whole call may take, from its start to its result. None unless set.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The shortest time between two polls of this task, whatever interval the server asks for.
    #[must_use]
    pub fn poll_floor(mut self, floor: Duration) -> Self {
        self.poll_floor = Some(floor);
        self
    }

    /// How long a server may stay out of reach before a followed task is given up with
    /// [`TransportLost`](super::TaskClientError::TransportLost); `None` tries until the deadline.
    #[must_use]
    pub fn max_outage(mut self, outage: Option<Duration>) -> Self {
        self.max_outage = Some(outage);
        self
    }

    /// Send `tasks/cancel` when the call's future or stream is dropped, or its deadline passes, before the result is
    /// there. Off by default: a task is durable, and somebody else may want its result.
    #[must_use]
    pub fn cancel_on_drop(mut self, cancel: bool) -> Self {
        self.cancel_on_drop = cancel;
        self
    }

    /// `params.task`.
    pub(crate) fn task_member(&self) -> Value {
        match self.ttl {
            None => json!({}),
            Some(None) => json!({ "ttl": null }),
            Some(Some(ttl)) => json!({ "ttl": u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttl_is_absent_null_or_milliseconds() {
        let member = |options: CallOptions| options.task_member().to_string();
        assert_eq!(member(CallOptions::new()), "{}");
        assert_eq!(
            member(CallOptions::new().ttl_unlimited()),
            r#"{"ttl":null}"#
        );
        assert_eq!(
            member(CallOptions::new().ttl(Duration::from_secs(60))),
            r#"{"ttl":60000}"#
        );
    }
}
