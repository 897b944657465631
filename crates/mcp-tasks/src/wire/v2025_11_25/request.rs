//! What a requestor sends.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::{
    envelope::string_of,
    error::INVALID_PARAMS,
    field::{self, invalid},
};
use crate::{
    store::ListKey,
    task::{ErrorObject, TaskId, Timestamp},
};

/// The members of a `tools/call`, borrowed and unchecked but for the name.
#[derive(Debug, Clone)]
pub struct ToolCall<'a> {
    /// The tool.
    pub name: String,
    /// The arguments as they came.
    pub arguments: Option<&'a RawValue>,
    /// The task augmentation as it came.
    pub task: Option<&'a RawValue>,
    /// The request's `_meta`.
    pub meta: Option<&'a RawValue>,
}

/// Reads the parameters of a `tools/call` in one pass; `None` if they do not even name a tool (then they are the
/// inner server's to refuse).
pub fn tool_call(params: Option<&RawValue>) -> Option<ToolCall<'_>> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, default)]
        name: Option<&'a RawValue>,
        #[serde(borrow, default)]
        arguments: Option<&'a RawValue>,
        #[serde(borrow, default)]
        task: Option<&'a RawValue>,
        #[serde(borrow, default, rename = "_meta")]
        meta: Option<&'a RawValue>,
    }
    let params: Params<'_> = field::params(params).ok()?;
    Some(ToolCall {
        name: string_of(params.name?)?.into_owned(),
        arguments: params.arguments,
        task: params.task,
        meta: params.meta,
    })
}

/// What a requestor wants of its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskAsk {
    /// Milliseconds; `None` nothing, `Some(None)` unlimited.
    pub ttl: Option<Option<u64>>,
}

impl TaskAsk {
    /// Reads `params.task`.
    ///
    /// # Errors
    /// -32602 if it is no object, or its ttl is neither a whole number ≥ 0 nor `null`.
    pub fn parse(task: &RawValue) -> Result<Self, ErrorObject> {
        #[derive(Deserialize)]
        struct Task<'a> {
            #[serde(borrow, default, deserialize_with = "present")]
            ttl: Option<&'a RawValue>,
        }
        fn present<'de, D: serde::Deserializer<'de>>(
            d: D,
        ) -> Result<Option<&'de RawValue>, D::Error> {
            <&RawValue>::deserialize(d).map(Some)
        }
        if !task.get().starts_with('{') {
            return Err(invalid("params.task", "an object", Some(task)));
        }
        let asked: Task<'_> = serde_json::from_str(task.get())
            .map_err(|e| ErrorObject::new(INVALID_PARAMS, format!("params.task: {e}")))?;
        let ttl = match asked.ttl {
            None => None,
            Some(raw) if raw.get() == "null" => Some(None),
            Some(raw) => Some(Some(whole_millis(raw).ok_or_else(|| {
                invalid(
                    "params.task.ttl",
                    "a whole number of milliseconds ≥ 0, or null",
                    Some(raw),
                )
            })?)),
        };
        Ok(Self { ttl })
    }
}

/// A whole number ≥ 0; one beyond `u64` is the largest, since it will be clamped anyway.
fn whole_millis(raw: &RawValue) -> Option<u64> {
    let text = raw.get();
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        // 60000.0 and 6e4 are whole numbers too, to JSON.
        let number: f64 = text.parse().ok().filter(|_| !text.starts_with('"'))?;
        let whole = number >= 0.0 && number.fract() == 0.0 && number < 9_007_199_254_740_992.0;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        return whole.then_some(number as u64);
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

/// A cursor of `tasks/list`: opaque to the client, the key of the last task of its page to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub ListKey);

impl Cursor {
    /// The text handed to the client.
    pub fn encode(&self) -> String {
        format!("v1.{:x}.{}", self.0.created_at.as_millis(), self.0.id)
    }

    /// Reads a text of ours.
    pub fn decode(text: &str) -> Option<Self> {
        let (millis, id) = text.strip_prefix("v1.")?.split_once('.')?;
        let created_at = u64::from_str_radix(millis, 16)
            .ok()
            .map(Timestamp::from_millis)?;
        (!id.is_empty()).then(|| {
            Self(ListKey {
                created_at,
                id: TaskId::from_stored(id),
            })
        })
    }
}

/// `params.cursor` of `tasks/list`, if there is one.
///
/// # Errors
/// -32602 if it is not one that we gave.
pub fn cursor(params: Option<&RawValue>) -> Result<Option<Cursor>, ErrorObject> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, default)]
        cursor: Option<&'a RawValue>,
    }
    let Some(params) = field::optional_object("params", params)? else {
        return Ok(None);
    };
    let params: Params<'_> = field::params(Some(params))?;
    let Some(raw) = params.cursor else {
        return Ok(None);
    };
    string_of(raw)
        .and_then(|text| Cursor::decode(&text))
        .map(Some)
        .ok_or_else(|| {
            invalid(
                "params.cursor",
                "a nextCursor of an earlier page",
                Some(raw),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn ttl_as_the_choices_say() {
        let ttl = |text: &str| TaskAsk::parse(&raw(text)).map(|ask| ask.ttl);
        assert_eq!(ttl("{}"), Ok(None));
        assert_eq!(ttl(r#"{"ttl":null}"#), Ok(Some(None)));
        assert_eq!(ttl(r#"{"ttl":0}"#), Ok(Some(Some(0))));
        assert_eq!(ttl(r#"{"ttl":60000.0}"#), Ok(Some(Some(60_000))));
        assert_eq!(
            ttl(r#"{"ttl":99999999999999999999999}"#),
            Ok(Some(Some(u64::MAX)))
        );
        for wrong in ["-1", "1.5", "\"abc\"", "\"5\"", "true", "[]", "-0.5"] {
            let error = ttl(&format!(r#"{{"ttl":{wrong}}}"#)).unwrap_err();
            assert_eq!(error.code, INVALID_PARAMS);
            assert!(
                error.message.contains("params.task.ttl"),
                "{}",
                error.message
            );
        }
        for wrong in ["true", "null", "[]", "3"] {
            assert!(
                ttl(wrong)
                    .unwrap_err()
                    .message
                    .contains("params.task: expected an object")
            );
        }
    }

    #[test]
    fn cursors_round_trip_and_foreign_ones_are_refused() {
        let key = Cursor(ListKey {
            created_at: Timestamp::from_millis(1_764_066_600_123),
            id: TaskId::from_stored("a.b.c"),
        });
        assert_eq!(Cursor::decode(&key.encode()), Some(key));
        for bad in ["nope", "", "v1.", "v1.zz.id", "v1.12", "v1.12.", "v2.12.id"] {
            assert_eq!(Cursor::decode(bad), None, "{bad}");
        }
        assert_eq!(cursor(None), Ok(None));
        assert_eq!(
            cursor(Some(&raw("{\"cursor\":7}"))).unwrap_err().code,
            INVALID_PARAMS
        );
    }

    #[test]
    fn a_missing_or_wrong_task_id_is_named() {
        for params in ["{}", r#"{"taskId":7}"#, r#"{"taskId":null}"#] {
            let error = field::task_id(Some(&raw(params))).unwrap_err();
            assert_eq!(error.code, INVALID_PARAMS);
            assert!(
                error.message.contains("params.taskId: expected a string"),
                "{}",
                error.message
            );
        }
        assert!(
            field::task_id(None)
                .unwrap_err()
                .message
                .contains("params: expected an object")
        );
    }
}
