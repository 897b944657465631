//! What the original request would have returned.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// A JSON value kept as the text it came in; cloning shares it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(Arc<RawValue>);

impl RawJson {
    /// `value` as JSON text.
    ///
    /// # Errors
    /// What `serde_json` says of a value that has no JSON form.
    pub fn from_serialize(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(|raw| Self(raw.into()))
    }

    /// JSON text, checked to be one value.
    ///
    /// # Errors
    /// What `serde_json` says of text that is not one JSON value.
    pub fn from_text(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text.into()).map(|raw| Self(raw.into()))
    }

    /// A copy of borrowed JSON.
    pub fn from_raw(raw: &RawValue) -> Self {
        Self(raw.to_owned().into())
    }

    /// The JSON text.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// The JSON text, as `serde_json` borrows it.
    pub fn as_raw(&self) -> &RawValue {
        &self.0
    }

    /// Reads the text as `T`.
    ///
    /// # Errors
    /// What `serde_json` says when the text is not a `T`.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.get())
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for RawJson {}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

/// Reads an optional member that is there, `null` included: a stored `null` is not the same as nothing.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    d: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(d).map(Some)
}

/// A JSON-RPC error object, kept as it was raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorObject {
    /// The error code.
    pub code: i64,
    /// One sentence for a person.
    pub message: String,
    /// Anything else the sender had to say.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub data: Option<RawJson>,
}

impl ErrorObject {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// The error -32603 (internal error).
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(-32603, message)
    }
}

/// How the original request ended: what it would have returned had it not been a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// A result.
    Result {
        /// The result as JSON.
        json: RawJson,
        /// Whether the result says of itself that it is an error (`isError: true` of a tool result).
        is_error: bool,
    },
    /// A JSON-RPC error.
    Error(ErrorObject),
}
