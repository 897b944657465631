//! Members of a JSON object, read with errors that name them.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{
    envelope::{excerpt, string_of},
    error::INVALID_PARAMS,
};
use crate::task::{ErrorObject, TaskId};

/// The error -32602 for the member at `path`.
pub fn invalid(path: &str, expected: &str, got: Option<&RawValue>) -> ErrorObject {
    let got = got.map_or(Cow::Borrowed("nothing"), |raw| excerpt(raw.get()));
    ErrorObject::new(
        INVALID_PARAMS,
        format!("{path}: expected {expected}, got {got}"),
    )
}

/// A member that has to be a string.
///
/// # Errors
/// -32602 naming the member.
pub fn string<'a>(path: &str, raw: Option<&'a RawValue>) -> Result<Cow<'a, str>, ErrorObject> {
    raw.and_then(string_of)
        .ok_or_else(|| invalid(path, "a string", raw))
}

/// A member that, where it is there and not `null`, has to be a JSON object.
///
/// # Errors
/// -32602 naming the member.
pub fn optional_object<'a>(
    path: &str,
    raw: Option<&'a RawValue>,
) -> Result<Option<&'a RawValue>, ErrorObject> {
    match raw {
        None => Ok(None),
        Some(raw) if raw.get() == "null" => Ok(None),
        Some(raw) if raw.get().starts_with('{') => Ok(Some(raw)),
        Some(raw) => Err(invalid(path, "an object", Some(raw))),
    }
}

/// An object as `T`, a struct of borrowed members. A struct can be read from a list too, member by member: that is not
/// what anybody means here.
pub fn object<'a, T: serde::Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    raw.get()
        .starts_with('{')
        .then(|| serde_json::from_str(raw.get()).ok())
        .flatten()
}

/// The parameters as `T`, a struct of borrowed members.
///
/// # Errors
/// -32602 if there are none or they are no object.
pub fn params<'a, T: serde::Deserialize<'a>>(raw: Option<&'a RawValue>) -> Result<T, ErrorObject> {
    let object = raw.filter(|raw| raw.get().starts_with('{'));
    let object = object.ok_or_else(|| invalid("params", "an object", raw))?;
    serde_json::from_str(object.get())
        .map_err(|e| ErrorObject::new(INVALID_PARAMS, format!("params: {e}")))
}

/// `params.taskId` of the `tasks/*` requests of either generation. Anything else in the parameters is ignored.
///
/// # Errors
/// -32602 if it is missing or no string.
pub fn task_id(raw: Option<&RawValue>) -> Result<TaskId, ErrorObject> {
    #[derive(serde::Deserialize)]
    struct Params<'a> {
        #[serde(borrow, default, rename = "taskId")]
        task_id: Option<&'a RawValue>,
    }
    let given: Params<'_> = params(raw)?;
    string("params.taskId", given.task_id).map(|id| TaskId::from_stored(&id))
}
