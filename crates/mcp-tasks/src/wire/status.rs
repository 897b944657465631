//! The one table from a record to each generation's status.

use crate::task::{Outcome, State, TaskRecord};

/// A status as either generation spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// Running, or waiting to run.
    Working,
    /// Waits for an answer of its requestor.
    InputRequired,
    /// Ended well.
    Completed,
    /// Ended badly.
    Failed,
    /// Ended by a cancel.
    Cancelled,
}

impl Status {
    /// Whether no other status can follow.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What 2025-11-25 says: a result with `isError: true` is a failed task.
pub fn v2025_11_25(record: &TaskRecord) -> Status {
    match &record.state {
        State::Finished(Outcome::Result { is_error: true, .. }) => Status::Failed,
        _ => v2026_07_28(record),
    }
}

/// What 2026-07-28 says: a result is a completed task, whatever it says of itself.
pub fn v2026_07_28(record: &TaskRecord) -> Status {
    match &record.state {
        State::Active if record.open_inputs().next().is_some() => Status::InputRequired,
        State::Active => Status::Working,
        State::Finished(Outcome::Result { .. }) => Status::Completed,
        State::Finished(Outcome::Error(_)) => Status::Failed,
        State::Cancelled => Status::Cancelled,
    }
}
