//! Core Tasks of protocol 2025-11-25 (SEP-1686).
//!
//! `request` reads what a requestor sends, `answer` writes what it gets, `question` is what a running task sends to
//! its requestor. Writers are strict, readers tolerant.

mod answer;
mod capability;
mod question;
mod request;

pub use answer::{CancelledOutcome, TaskView, created, listed, outcome, related_task};
pub use capability::{ClientTaskSupport, client_tasks, server_tasks};
pub use question::{
    INPUT_META, QuestionId, cancelled, log_message, progress, question, question_method,
    status_changed,
};
pub use request::{Cursor, TaskAsk, ToolCall, cursor, tool_call};

pub(super) use answer::Time;

pub use super::field::task_id;

/// The revision this module speaks.
pub const VERSION: &str = "2025-11-25";

/// The `_meta` key that ties a message to its task.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The `_meta` key of a creation answer for a host that goes on at once.
pub const IMMEDIATE_RESPONSE: &str = "io.modelcontextprotocol/model-immediate-response";
