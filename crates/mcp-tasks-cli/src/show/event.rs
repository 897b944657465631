//! What happens during a command, as `--json` prints it. `docs/cli.md` shows each; scripts read the names: add, never
//! rename.

use mcp_tasks::client::{TaskInfo, TaskStatus};
use serde::Serialize;
use serde_json::Value;

/// One line of `--json`. The last line of a command has another shape only where there is no event: a document.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event<'a> {
    /// The handshake is done.
    Connected {
        server: &'a str,
        protocol: &'a str,
        /// The generation of tasks, `G1` or `G2`; null if the server has no tasks.
        generation: Option<&'a str>,
    },
    /// The server made a task of the call.
    Created { tool: &'a str, task: Task },
    /// The task's status, its message or its times changed.
    Status { task: Task },
    /// The tool reported progress.
    Progress {
        progress: f64,
        total: Option<f64>,
        message: Option<&'a str>,
    },
    /// The server asks.
    Question {
        task: Option<&'a str>,
        /// `form`, `url` or `sampling`.
        kind: &'a str,
        message: &'a str,
        /// What the answer has to look like (form), the address to visit (url), or the request (sampling).
        #[serde(skip_serializing_if = "Option::is_none")]
        schema: Option<&'a Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        url: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        request: Option<&'a Value>,
    },
    /// What was answered.
    Answer {
        task: Option<&'a str>,
        /// `accept`, `decline` or `cancel`.
        action: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<&'a Value>,
        /// Why it was not answered, if nobody said so.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
    },
    /// The task was left running.
    Detached { task: &'a str, resume: &'a str },
    /// The tool's result.
    Result {
        tool: Option<&'a str>,
        task: Option<&'a str>,
        /// False if the tool says that it failed.
        ok: bool,
        result: &'a Value,
    },
}

/// A task, as all commands print it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) status: TaskStatus,
    pub(crate) message: Option<String>,
    pub(crate) created_at: Option<String>,
    pub(crate) updated_at: Option<String>,
    /// None is unlimited, or not told.
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) poll_interval_ms: Option<u64>,
}

impl From<&TaskInfo> for Task {
    fn from(info: &TaskInfo) -> Self {
        let ms = |span: std::time::Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self {
            id: info.task_id.clone(),
            status: info.status,
            message: info.status_message.clone(),
            created_at: info.created_at.map(|at| at.to_string()),
            updated_at: info.last_updated_at.map(|at| at.to_string()),
            ttl_ms: info.ttl.map(ms),
            poll_interval_ms: info.poll_interval.map(ms),
        }
    }
}
