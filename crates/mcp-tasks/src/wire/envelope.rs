//! The JSON-RPC 2.0 envelope, borrowed from the bytes it came in.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::error::{INVALID_REQUEST, PARSE_ERROR};
use crate::task::ErrorObject;

/// One JSON-RPC message. Everything but the method borrows from the text.
#[derive(Debug, Clone)]
pub enum Message<'a> {
    /// A request: it wants one response with the same id.
    Request {
        /// The id: a string or an integer, as it came.
        id: &'a RawValue,
        /// The method.
        method: Cow<'a, str>,
        /// The parameters, if any.
        params: Option<&'a RawValue>,
    },
    /// A notification.
    Notification {
        /// The method.
        method: Cow<'a, str>,
        /// The parameters, if any.
        params: Option<&'a RawValue>,
    },
    /// A response with a result.
    Result {
        /// The id of the request it answers.
        id: &'a RawValue,
        /// The result.
        result: &'a RawValue,
    },
    /// A response with an error.
    Error {
        /// The id of the request it answers; `None` if the sender could not tell.
        id: Option<&'a RawValue>,
        /// The error object.
        error: &'a RawValue,
    },
}

/// Bytes that are no JSON-RPC message.
#[derive(Debug, Clone)]
pub struct Malformed<'a> {
    /// The id of the request they were meant to be, where it can be told.
    pub id: Option<&'a RawValue>,
    /// -32700 or -32600, naming what was wrong.
    pub error: ErrorObject,
}

#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Tells `null` from absent.
fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Message<'a> {
    /// Reads one message.
    ///
    /// # Errors
    /// [`Malformed`] with -32700 for bytes that are not JSON, -32600 for JSON that is no JSON-RPC 2.0 message (a
    /// batch among them: no revision with tasks has batches).
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed<'a>> {
        let text = std::str::from_utf8(bytes).map_err(|e| Malformed {
            id: None,
            error: ErrorObject::new(
                PARSE_ERROR,
                format!("the message is not UTF-8 at byte {}", e.valid_up_to()),
            ),
        })?;
        // A struct can be read from a list too, member by member.
        let is_list = text.trim_start().starts_with('[');
        let parts: Result<Parts<'a>, _> = match is_list {
            true => serde_json::from_str::<&RawValue>(text)
                .and_then(|_| Err(serde::de::Error::custom("expected an object, got a list"))),
            false => serde_json::from_str(text),
        };
        let parts = parts.map_err(|e| {
            let (code, what) = if e.is_data() {
                (INVALID_REQUEST, "the message is not a JSON-RPC object")
            } else {
                (PARSE_ERROR, "the message is not JSON")
            };
            Malformed {
                id: None,
                error: ErrorObject::new(code, format!("{what}: {e}")),
            }
        })?;
        let id = parts.id.filter(|id| is_id(id));
        let invalid = |what: String| Malformed {
            id,
            error: ErrorObject::new(INVALID_REQUEST, what),
        };
        match parts.jsonrpc.map(RawValue::get) {
            Some("\"2.0\"") => {}
            Some(other) => {
                return Err(invalid(format!(
                    "jsonrpc must be \"2.0\", got {}",
                    excerpt(other)
                )));
            }
            None => return Err(invalid("jsonrpc is missing, it must be \"2.0\"".into())),
        }
        if let (Some(raw), None) = (parts.id, id)
            && !(raw.get() == "null" && parts.error.is_some())
        {
            return Err(invalid(format!(
                "id must be a string or an integer, got {}",
                excerpt(raw.get())
            )));
        }
        if let Some(method) = parts.method {
            let method = serde_json::from_str::<CowStr<'a>>(method.get())
                .map_err(|_| {
                    invalid(format!(
                        "method must be a string, got {}",
                        excerpt(method.get())
                    ))
                })?
                .0;
            return Ok(match id {
                Some(id) => Self::Request {
                    id,
                    method,
                    params: parts.params,
                },
                None => Self::Notification {
                    method,
                    params: parts.params,
                },
            });
        }
        match (parts.result, parts.error, id) {
            (Some(result), None, Some(id)) => Ok(Self::Result { id, result }),
            (None, Some(error), id) => Ok(Self::Error { id, error }),
            (Some(_), None, None) => Err(invalid("a response needs the id of its request".into())),
            (Some(_), Some(_), _) => Err(invalid(
                "a response has either a result or an error, not both".into(),
            )),
            (None, None, _) => Err(invalid(
                "a message needs a method, a result or an error".into(),
            )),
        }
    }

    /// The method of a request or notification.
    pub fn method(&self) -> Option<&str> {
        match self {
            Self::Request { method, .. } | Self::Notification { method, .. } => Some(method),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct CowStr<'a>(#[serde(borrow)] Cow<'a, str>);

fn is_id(raw: &RawValue) -> bool {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'"') => true,
        Some(b'-' | b'0'..=b'9') => !text.contains(['.', 'e', 'E']),
        _ => false,
    }
}

/// The beginning of a JSON text, for an error message.
pub(crate) fn excerpt(text: &str) -> Cow<'_, str> {
    const SHOWN: usize = 60;
    match text.char_indices().nth(SHOWN) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
    }
}

/// A JSON string's text, if `raw` is one.
pub fn string_of(raw: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str::<CowStr<'_>>(raw.get())
        .ok()
        .map(|text| text.0)
}

/// A message of ours to be written.
#[derive(Serialize)]
struct Outgoing<'a, P: Serialize, R: Serialize> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<P>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<R>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a ErrorObject>,
}

fn write<P: Serialize, R: Serialize>(message: &Outgoing<'_, P, R>) -> Vec<u8> {
    // Room for a task; a buffer that begins small is copied twice on the way there.
    let mut text = Vec::with_capacity(512);
    // Our own types have JSON forms; should one ever fail, its sender is told instead of being left waiting.
    match serde_json::to_writer(&mut text, message) {
        Ok(()) => text,
        Err(e) => {
            tracing::error!(error = %e, "a message of ours has no JSON form");
            error(
                message.id,
                &ErrorObject::internal("the answer could not be written"),
            )
        }
    }
}

/// A response with a result.
pub fn result(id: &RawValue, result: &impl Serialize) -> Vec<u8> {
    write(&Outgoing::<(), _> {
        jsonrpc: "2.0",
        id: Some(id),
        method: None,
        params: None,
        result: Some(result),
        error: None,
    })
}

/// A response with an error; without `id` when the request's could not be read.
pub fn error(id: Option<&RawValue>, error: &ErrorObject) -> Vec<u8> {
    serde_json::to_vec(&Outgoing::<(), ()> {
        jsonrpc: "2.0",
        id,
        method: None,
        params: None,
        result: None,
        error: Some(error),
    })
    .unwrap_or_else(|_| {
        br#"{"jsonrpc":"2.0","error":{"code":-32603,"message":"internal error"}}"#.to_vec()
    })
}

/// A request with a string id.
pub fn request(id: &str, method: &str, params: &impl Serialize) -> Vec<u8> {
    let id = serde_json::value::to_raw_value(id).unwrap_or_default();
    write(&Outgoing::<_, ()> {
        jsonrpc: "2.0",
        id: Some(&id),
        method: Some(method),
        params: Some(params),
        result: None,
        error: None,
    })
}

/// A notification.
pub fn notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    write(&Outgoing::<_, ()> {
        jsonrpc: "2.0",
        id: None,
        method: Some(method),
        params: Some(params),
        result: None,
        error: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &[u8]) -> (i64, String, Option<String>) {
        let refused = Message::parse(bytes).unwrap_err();
        (
            refused.error.code,
            refused.error.message,
            refused.id.map(|id| id.get().to_owned()),
        )
    }

    #[test]
    fn each_kind_of_message() {
        let request = Message::parse(
            br#"{"jsonrpc":"2.0","id":0,"method":"tasks\/get","params":{"taskId":"x"}}"#,
        );
        assert!(
            matches!(request, Ok(Message::Request { id, method, params: Some(_) })
            if id.get() == "0" && method == "tasks/get")
        );
        let note = Message::parse(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        assert!(matches!(
            note,
            Ok(Message::Notification { params: None, .. })
        ));
        let result = Message::parse(br#"{"result":null,"id":"a","jsonrpc":"2.0"}"#);
        assert!(matches!(result, Ok(Message::Result { result, .. }) if result.get() == "null"));
        let error =
            Message::parse(br#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#);
        assert!(matches!(error, Ok(Message::Error { id: None, .. })));
    }

    #[test]
    fn wrong_messages_name_what_is_wrong() {
        let (code, message, id) = refused(br#"{"jsonrpc":"2.0","id":1,"method""#);
        assert_eq!((code, id), (-32700, None));
        assert!(message.contains("not JSON"), "{message}");
        assert_eq!(refused(&[b'{', 0xff, b'}']).0, -32700);
        let (code, message, id) = refused(br#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#);
        assert_eq!((code, id.as_deref()), (-32600, Some("1")));
        assert!(
            message.contains("jsonrpc") && message.contains("1.0"),
            "{message}"
        );
        let (code, message, _) = refused(br#"{"id":1,"method":"ping"}"#);
        assert_eq!(code, -32600);
        assert!(message.contains("jsonrpc is missing"), "{message}");
        for id in ["null", "1.5", "1e3", "{}", "true", "[1]"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            let (code, message, _) = refused(text.as_bytes());
            assert_eq!(code, -32600);
            assert!(
                message.contains("id must be") && message.contains(id),
                "{message}"
            );
        }
        assert!(
            refused(br#"{"jsonrpc":"2.0","id":1,"method":7}"#)
                .1
                .contains("method must be a string")
        );
        assert!(
            refused(br#"{"jsonrpc":"2.0","id":1}"#)
                .1
                .contains("needs a method")
        );
        assert!(
            refused(br#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#)
                .1
                .contains("not both")
        );
        assert_eq!(refused(b"[]").0, -32600);
        // A list whose items would be the members in their order is no message either.
        let list = br#" ["2.0", 1, "tasks/get", {"taskId": "x"}]"#;
        assert_eq!((refused(list).0, refused(list).2), (-32600, None));
        assert_eq!(refused(br#"["2.0", 1"#).0, -32700);
        assert_eq!(
            refused(br#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#).0,
            -32600
        );
    }

    #[test]
    fn nesting_of_any_depth_is_skipped_not_recursed_into() {
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{}{}}}"#,
            "[".repeat(200_000),
            "]".repeat(200_000)
        );
        assert!(matches!(
            Message::parse(deep.as_bytes()),
            Ok(Message::Request { .. })
        ));
    }
}
