//! What can go wrong, told apart.

use std::{borrow::Cow, time::Duration};

#[allow(deprecated)]
use rmcp::model::CreateMessageResult;
use rmcp::{
    model::{CallToolResult, ElicitResult, ErrorCode, ErrorData},
    service::ClientInitializeError,
};
use serde_json::{Value, value::RawValue};

use super::link::{Lost, LostKind};

/// Why a call, or a request about a task, gave no result.
///
/// The *peer* is who has the task: a client's server, or the client that hosts one for its server.
///
/// A tool result with `isError: true` is *not* an error here: it is what the tool answered, as in rmcp's `call_tool`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskClientError {
    /// The task was cancelled, by us or by someone else (2025-11-25 `basic/utilities/tasks`, status `cancelled`).
    #[error("task {task_id} was cancelled{}", message.as_ref().map(|m| format!(": {m}")).unwrap_or_default())]
    Cancelled {
        /// The task.
        task_id: String,
        /// The task's last status message.
        message: Option<String>,
    },
    /// The peer no longer knows a task that existed: its time to live has passed.
    #[error("task {task_id} no longer exists: its time to live has passed")]
    Expired {
        /// The task.
        task_id: String,
    },
    /// The peer answered with a JSON-RPC error; also what `tasks/result` of a failed task gave.
    #[error("the peer answered with error {}: {}", .0.code.0, .0.message)]
    Rpc(ErrorData),
    /// The connection failed. A `tools/call` of which bytes may have reached the server is never sent again (unless the
    /// server says that it knows no such session: then it has not looked at the call).
    #[error("the connection was lost: {why}")]
    TransportLost {
        /// The task that was followed; it may still run, and can be followed again by its id.
        task_id: Option<String>,
        /// Whether the request may have reached the server.
        sent: bool,
        /// What happened.
        why: String,
    },
    /// The server refused our credentials (HTTP 401 or 403).
    #[error("the server refused our credentials (HTTP {status})")]
    Unauthorized {
        /// The HTTP status.
        status: u16,
    },
    /// The server refused a request on the HTTP level, with a status that another try would not change.
    #[error("the server refused the request: {why}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The status and the beginning of what came with it.
        why: String,
    },
    /// One ordinary request (a poll, a list, a cancel) was not answered in time.
    #[error("{method} was not answered within {after:?}")]
    Timeout {
        /// The method.
        method: &'static str,
        /// How long we waited.
        after: Duration,
    },
    /// The overall deadline of the call ([`CallOptions::deadline`](super::CallOptions::deadline)) has passed.
    #[error("the deadline of the call has passed")]
    Deadline {
        /// The task, if there was one already; it runs on unless `cancel_on_drop` was set.
        task_id: Option<String>,
    },
    /// A task was insisted on, but the server or the tool has none.
    #[error("no task here: {0}")]
    TasksUnsupported(String),
    /// A task was insisted on, but the server answered at once with the result, which is this.
    #[error("the result came instead of a task")]
    Immediate(Box<CallToolResult>),
    /// The same for a question that the client was to answer in a task: it answered at once.
    #[error("the answer came instead of a task")]
    ImmediateElicitation(Box<ElicitResult>),
    /// The same for a sampling request.
    #[error("the message came instead of a task")]
    #[allow(deprecated)] // by rmcp, for revisions after 2026-07-28
    ImmediateMessage(Box<CreateMessageResult>),
    /// A message of the peer has more bytes than we take
    /// ([`TaskClientBuilder::max_message_size`](super::TaskClientBuilder::max_message_size)).
    #[error("the peer sent more than {limit} bytes in one message")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// A [`Ticket`](super::Ticket) cannot be read, or is for another server.
    #[error("the ticket is of no use: {0}")]
    Ticket(String),
    /// The peer said something that the protocol does not allow.
    #[error("the peer broke the protocol: {0}")]
    Protocol(String),
    /// The client was closed or dropped.
    #[error("the client is closed")]
    Closed,
    /// The handshake failed.
    #[error("initialize failed: {0}")]
    Initialize(#[source] Box<ClientInitializeError>),
    /// The server speaks no protocol revision that this client speaks, or may speak
    /// ([`TaskClientBuilder::protocol`](super::TaskClientBuilder::protocol)).
    #[error("the server speaks no protocol revision of ours, only {}", supported.join(", "))]
    UnsupportedVersion {
        /// The revisions that the server named.
        supported: Vec<String>,
    },
    /// The task asks for something that cannot be given or declined (2026-07-28: there is no way to answer a sampling or
    /// roots request with an error). The task was cancelled, where there was one.
    #[error("the question {key:?} cannot be answered: {}", error.message)]
    Unanswerable {
        /// The task, if there was one.
        task_id: Option<String>,
        /// The key of the question.
        key: String,
        /// Why: what the handler said, or what was never declared.
        error: ErrorData,
    },
    /// A setting of the builder is unusable.
    #[error("bad setting: {0}")]
    Config(String),
    /// The server's process could not be started.
    #[error("the server process could not be started: {0}")]
    Spawn(#[source] std::io::Error),
}

impl TaskClientError {
    /// The task this is about, where there is one: it can be followed again with
    /// [`TaskClient::task`](super::TaskClient::task).
    pub fn task_id(&self) -> Option<&str> {
        match self {
            Self::Cancelled { task_id, .. } | Self::Expired { task_id } => Some(task_id),
            Self::TransportLost { task_id, .. }
            | Self::Deadline { task_id }
            | Self::Unanswerable { task_id, .. } => task_id.as_deref(),
            _ => None,
        }
    }

    /// The error for a request that got lost.
    pub(super) fn lost(lost: Lost, task_id: Option<&str>) -> Self {
        match lost.kind {
            LostKind::Unauthorized(status) => Self::Unauthorized { status },
            LostKind::Protocol => Self::Protocol(lost.why),
            LostKind::TooLarge(limit) => Self::TooLarge { limit },
            LostKind::Refused(status) => Self::Refused {
                status,
                why: lost.why,
            },
            LostKind::Transient | LostKind::Closed => Self::TransportLost {
                task_id: task_id.map(str::to_owned),
                sent: lost.sent,
                why: lost.why,
            },
        }
    }
}

/// Reads an error object whatever its shape; never fails.
pub(super) fn error_data(raw: &RawValue) -> ErrorData {
    let Ok(Value::Object(mut error)) = serde_json::from_str(raw.get()) else {
        return ErrorData::new(
            ErrorCode::INTERNAL_ERROR,
            format!("an error that is no object: {}", raw.get()),
            None,
        );
    };
    let code = error.get("code").and_then(Value::as_i64);
    let message = match error.remove("message") {
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
        None => "no message".to_owned(),
    };
    ErrorData::new(
        ErrorCode(
            code.and_then(|code| i32::try_from(code).ok())
                .unwrap_or(ErrorCode::INTERNAL_ERROR.0),
        ),
        Cow::Owned(message),
        error.remove("data"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_objects_of_any_shape_are_read() {
        let read = |text: &str| error_data(&RawValue::from_string(text.to_owned()).unwrap());
        let error = read(r#"{"code":-32602,"message":"no","data":{"a":1}}"#);
        assert_eq!((error.code.0, &*error.message), (-32602, "no"));
        assert_eq!(error.data, Some(serde_json::json!({"a": 1})));
        assert_eq!(read(r#"{"code":99999999999,"message":7}"#).code.0, -32603);
        assert_eq!(&*read(r#"{"code":1}"#).message, "no message");
        assert!(read("\"boom\"").message.contains("boom"));
    }
}
