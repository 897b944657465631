//! What can go wrong when a server is built, and how a body says that its work failed.

use std::borrow::Cow;

use rmcp::{ErrorData, model::CallToolResult};
use serde::Serialize;

use crate::{
    store::StoreError,
    task::{ErrorObject, RawJson},
};

/// A mistake found when a runtime or server is built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A limit is zero or contradicts another.
    #[error("limit {name}: {why}")]
    Limit {
        /// The field of [`Limits`](super::Limits).
        name: &'static str,
        /// What is wrong.
        why: String,
    },
    /// Two tools have one name.
    #[error("the tool {0:?} is defined twice")]
    DuplicateTool(String),
    /// A tool's definition is wrong.
    #[error("tool {tool:?}: {why}")]
    Tool {
        /// The tool.
        tool: String,
        /// What is wrong.
        why: String,
    },
    /// HTTP was asked for without a rule that tells whom tasks belong to.
    #[error(
        "over HTTP tasks need an owner rule: call .owner(…) to bind them to a principal, or .bearer_ids() to let \
         whoever holds the unguessable id use them"
    )]
    NoOwnerRule,
    /// A tool that is to become a task is not one of the inner server's.
    #[error("the inner server has no tool {0:?} to augment")]
    UnknownTool(String),
    /// Tools are to become tasks of a server that is only known as an HTTP service.
    #[error(
        "tools can be augmented where the handler is known: serve it with .serve(…) or .streamable_http(…)"
    )]
    NoHandler,
    /// The key for request states is too short to be one.
    #[error("the key for request states has {0} bytes, it must have at least 32")]
    StateKey(usize),
}

/// An error code that a body may not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the error code {0} is reserved by JSON-RPC or MCP; use one above -32000, or another below -32768"
)]
pub struct ReservedCode(pub i64);

/// How a body says that its work failed.
#[derive(Debug, Clone)]
pub struct TaskError(pub(crate) Failure);

#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// The tool's own word: a result with `isError: true`.
    Tool(Box<CallToolResult>),
    /// A JSON-RPC error.
    Rpc(ErrorObject),
}

impl TaskError {
    /// The tool failed in its own terms: a result with `isError: true` and this text.
    pub fn tool(message: impl Into<String>) -> Self {
        let content = vec![rmcp::model::ContentBlock::text(message)];
        Self(Failure::Tool(Box::new(CallToolResult::error(content))))
    }

    /// The same, with a result of your making (`isError` is set).
    pub fn tool_result(mut result: CallToolResult) -> Self {
        result.is_error = Some(true);
        Self(Failure::Tool(Box::new(result)))
    }

    /// A JSON-RPC error.
    ///
    /// # Errors
    /// [`ReservedCode`] for -32099 to -32020 (-32042 among them) and -32002: MCP gives these a meaning of its own.
    pub fn rpc(code: i64, message: impl Into<String>) -> Result<Self, ReservedCode> {
        if is_reserved(code) {
            return Err(ReservedCode(code));
        }
        Ok(Self(Failure::Rpc(ErrorObject::new(code, message))))
    }

    /// The JSON-RPC error -32603 (internal error).
    pub fn internal(message: impl Into<String>) -> Self {
        Self(Failure::Rpc(ErrorObject::internal(message)))
    }

    /// Any other error, as the tool's own: a result with `isError: true` and its text.
    pub fn from_error(error: impl std::error::Error) -> Self {
        Self::tool(error.to_string())
    }

    /// The JSON-RPC error -32602 (invalid params).
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self(Failure::Rpc(ErrorObject::new(-32602, message)))
    }

    /// Adds `data` to a JSON-RPC error, or structured content to the tool's own error.
    #[must_use]
    pub fn with_data(mut self, data: &impl Serialize) -> Self {
        match &mut self.0 {
            Failure::Rpc(error) => error.data = RawJson::from_serialize(data).ok(),
            Failure::Tool(result) => result.structured_content = serde_json::to_value(data).ok(),
        }
        self
    }

    /// The task is no longer the caller's to change. As an outcome of that task it is refused; a body that fails of
    /// another task's end fails with it.
    pub(crate) fn gone() -> Self {
        Self::internal("the task has ended")
    }

    /// The requestor cannot be asked: 2026-07-28's error for a client capability that is missing, which names it.
    pub(crate) fn unsupported(capability: &str) -> Self {
        let mut required = serde_json::json!({});
        for name in capability.rsplit('.') {
            required = serde_json::json!({ name: required });
        }
        let data = serde_json::json!({"requiredCapabilities": required});
        Self(Failure::Rpc(ErrorObject {
            code: -32021,
            message: format!("the requestor does not support {capability}"),
            data: RawJson::from_serialize(&data).ok(),
        }))
    }

    /// An error that came from elsewhere and is passed on. A reserved code becomes -32603 with `data.originalCode`.
    pub(crate) fn relayed(error: ErrorObject) -> Self {
        if !is_reserved(error.code) {
            return Self(Failure::Rpc(error));
        }
        let data = serde_json::json!({"originalCode": error.code, "originalData": error.data});
        Self(Failure::Rpc(ErrorObject {
            code: -32603,
            message: error.message,
            data: RawJson::from_serialize(&data).ok(),
        }))
    }

    /// The JSON-RPC error this is to whoever waits for it now.
    pub(crate) fn into_rpc(self) -> ErrorObject {
        match self.0 {
            Failure::Rpc(error) => error,
            Failure::Tool(result) => {
                ErrorObject::internal(super::run::text_of(&result).unwrap_or_default())
            }
        }
    }
}

impl std::fmt::Display for TaskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Failure::Rpc(error) => write!(f, "{} (code {})", error.message, error.code),
            Failure::Tool(result) => {
                let text = super::run::text_of(result);
                f.write_str(text.as_deref().unwrap_or("the tool reported an error"))
            }
        }
    }
}

impl std::error::Error for TaskError {}

fn is_reserved(code: i64) -> bool {
    matches!(code, -32099..=-32020 | -32002)
}

/// An error passed on from a peer or library of rmcp's.
impl From<ErrorData> for TaskError {
    fn from(error: ErrorData) -> Self {
        Self::relayed(ErrorObject {
            code: i64::from(error.code.0),
            message: Cow::into_owned(error.message),
            data: error
                .data
                .as_ref()
                .and_then(|data| RawJson::from_serialize(data).ok()),
        })
    }
}

impl From<ReservedCode> for TaskError {
    fn from(error: ReservedCode) -> Self {
        Self::internal(error.to_string())
    }
}

impl From<StoreError> for TaskError {
    fn from(error: StoreError) -> Self {
        Self(Failure::Rpc(ErrorObject::from(&error)))
    }
}

impl From<serde_json::Error> for TaskError {
    fn from(error: serde_json::Error) -> Self {
        Self::internal(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_capability_is_named_by_its_path() {
        let error = TaskError::unsupported("elicitation.url").into_rpc();
        assert_eq!(error.code, -32021);
        assert_eq!(
            error.data.unwrap().get(),
            r#"{"requiredCapabilities":{"elicitation":{"url":{}}}}"#
        );
    }

    #[test]
    fn reserved_codes_are_refused_and_relayed_ones_rewritten() {
        for code in [-32099, -32050, -32020, -32021, -32002, -32042] {
            assert_eq!(TaskError::rpc(code, "x").unwrap_err(), ReservedCode(code));
        }
        for code in [-32000, -32001, -32602, -32603, 1042, -32100] {
            assert!(TaskError::rpc(code, "x").is_ok(), "{code}");
        }
        let relayed =
            TaskError::from(ErrorData::new(rmcp::model::ErrorCode(-32042), "go", None)).into_rpc();
        assert_eq!((relayed.code, relayed.message.as_str()), (-32603, "go"));
        assert!(relayed.data.unwrap().get().contains("-32042"));
    }
}
