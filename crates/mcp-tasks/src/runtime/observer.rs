//! What happens, told to whoever turns it into messages.

use std::sync::Arc;

use serde_json::Value;

use crate::task::{TaskId, TaskRecord};

/// A step of a running body.
#[derive(Debug, Clone)]
pub struct ProgressEvent {
    /// How far; rises with every event of a task.
    pub done: f64,
    /// How far it is in all, if that is known.
    pub total: Option<f64>,
    /// What is going on.
    pub message: Option<String>,
}

/// How grave a log message is, in rising order (2025-11-25 `server/utilities/logging`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    const NAMES: [(&'static str, Self); 8] = [
        ("debug", Self::Debug),
        ("info", Self::Info),
        ("notice", Self::Notice),
        ("warning", Self::Warning),
        ("error", Self::Error),
        ("critical", Self::Critical),
        ("alert", Self::Alert),
        ("emergency", Self::Emergency),
    ];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(_, level)| *level == self)
            .map_or("info", |(name, _)| name)
    }

    /// Reads a name on the wire.
    pub fn parse(name: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(have, _)| *have == name)
            .map(|(_, level)| *level)
    }
}

/// A log message of a running body.
#[derive(Debug, Clone)]
pub struct LogEvent {
    /// The level.
    pub level: LogLevel,
    /// Which part of the program says it.
    pub logger: Option<String>,
    /// What it says.
    pub data: Value,
}

/// Hears of everything that happens to tasks in this process, and of changes by other processes to tasks that
/// somebody here follows. Calls must not block: they are made from where the change was made.
pub trait Observer: Send + Sync {
    /// A record was written. Records of one task may arrive out of order: compare revisions.
    fn changed(&self, record: &Arc<TaskRecord>);

    /// A record was removed.
    fn removed(&self, id: &TaskId);

    /// A body that runs here got further.
    fn progress(&self, record: &Arc<TaskRecord>, event: &ProgressEvent);

    /// A body that runs here logged something.
    fn log(&self, record: &Arc<TaskRecord>, event: &LogEvent);
}
