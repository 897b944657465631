//! What happens in the demo, as `--json` prints it.

use mcp_tasks::client::TaskStatus;
use serde::Serialize;
use serde_json::{Map, Value};

/// One event. The names of members are what scripts read: add, never rename.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event<'a> {
    /// The server made a task of the call.
    Created {
        tool: &'a str,
        task: &'a str,
        status: TaskStatus,
    },
    /// The task's status or its message changed.
    Status {
        tool: &'a str,
        task: &'a str,
        status: TaskStatus,
        message: Option<&'a str>,
    },
    /// The tool reported progress.
    Progress {
        tool: &'a str,
        task: &'a str,
        progress: f64,
        total: Option<f64>,
        message: Option<&'a str>,
    },
    /// The task asks its requestor.
    Question {
        task: Option<&'a str>,
        message: &'a str,
    },
    /// What was answered.
    Answer {
        task: Option<&'a str>,
        action: &'a str,
        content: &'a Map<String, Value>,
    },
    /// The server was killed while the task worked; `step` is the last one known to be saved.
    ServerKilled { pid: u32, task: &'a str, step: u32 },
    /// A new process serves the same file on the same address.
    ServerRestarted { pid: u32, url: &'a str, db: &'a str },
    /// The tool's result.
    Result {
        tool: &'a str,
        task: &'a str,
        text: &'a str,
        attempts: u32,
        resumed_from: u32,
    },
}
