//! The headers that repeat what a request of 2026-07-28 says (`basic/transports/streamable-http`, Request Metadata):
//! whoever routes by them must see what is executed.

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::HeaderMap;
use serde_json::{Value, value::RawValue};

use super::PROTOCOL_VERSION;
use crate::{
    runtime::ToolEntry,
    server::v2026_07_28::Ours,
    task::ErrorObject,
    wire::{
        envelope::string_of,
        error::HEADER_MISMATCH,
        v2026_07_28::{self as g2, RequestMeta},
    },
};

const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// Checks the headers of a request that concerns us.
///
/// # Errors
/// -32020, naming the header that is doubled, broken, missing or says something else than the body.
pub(super) fn check(
    headers: &HeaderMap,
    method: &str,
    params: Option<&RawValue>,
    meta: &RequestMeta<'_>,
    ours: &Ours,
    strict_names: bool,
) -> Result<(), ErrorObject> {
    let version = one(headers, PROTOCOL_VERSION)?;
    // Where the body names none, that is what is wrong with it.
    if let Some(named) = meta.version() {
        same(PROTOCOL_VERSION, version, &named)?;
    }
    same(METHOD, one(headers, METHOD)?, method)?;
    let name = decoded(NAME, one(headers, NAME)?)?;
    match ours {
        Ours::Call(tool) => {
            same(NAME, name.as_deref(), &tool.name)?;
            check_params(headers, tool, params)
        }
        Ours::Tasks => match meta.task_id.and_then(string_of) {
            Some(task) if name.is_some() || strict_names => same(NAME, name.as_deref(), &task),
            _ => Ok(()),
        },
        Ours::Listen | Ours::No => Ok(()),
    }
}

fn mismatch(why: String) -> ErrorObject {
    ErrorObject::new(HEADER_MISMATCH, format!("Header mismatch: {why}"))
}

/// The one value of a header.
fn one<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, ErrorObject> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(mismatch(format!("{name} is there more than once")));
    }
    let text = value
        .to_str()
        .map_err(|_| mismatch(format!("{name} has characters that a header cannot have")))?;
    Ok(Some(text))
}

fn same(name: &str, got: Option<&str>, expected: &str) -> Result<(), ErrorObject> {
    match got {
        Some(got) if got == expected => Ok(()),
        Some(got) => Err(mismatch(format!(
            "{name} is {got:?}, the body says {expected:?}"
        ))),
        None => Err(mismatch(format!(
            "{name} is missing, the body says {expected:?}"
        ))),
    }
}

/// Undoes the Base64 form of values that are no plain text.
fn decoded<'h>(name: &str, value: Option<&'h str>) -> Result<Option<Cow<'h, str>>, ErrorObject> {
    let Some(value) = value else { return Ok(None) };
    let coded = value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    let Some(coded) = coded else {
        return Ok(Some(Cow::Borrowed(value)));
    };
    let text = STANDARD
        .decode(coded)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    text.map(|text| Some(Cow::Owned(text)))
        .ok_or_else(|| mismatch(format!("{name} is not Base64 of UTF-8 text")))
}

/// `Mcp-Param-*`: there exactly where the argument is, and the same.
fn check_params(
    headers: &HeaderMap,
    tool: &ToolEntry,
    params: Option<&RawValue>,
) -> Result<(), ErrorObject> {
    if tool.param_headers.is_empty() {
        return Ok(());
    }
    let arguments = g2::tool_call(params)
        .and_then(|call| serde_json::from_str::<Value>(call.arguments?.get()).ok())
        .unwrap_or_default();
    for param in &tool.param_headers {
        let header = &*param.header;
        let got = decoded(header, one(headers, header)?)?;
        let mut value = Some(&arguments);
        for step in &param.path {
            value = value.and_then(|value| value.get(step));
        }
        let expected = match value {
            None | Some(Value::Null) => {
                if got.is_some() {
                    let why = format!("{header} is there, the argument is not");
                    return Err(mismatch(why));
                }
                continue;
            }
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let equal_numbers = || {
            let got: f64 = got.as_deref()?.trim().parse().ok()?;
            Some(got == value?.as_f64()?)
        };
        if !(param.is_integer && equal_numbers() == Some(true)) {
            same(header, got.as_deref(), &expected)?;
        }
    }
    Ok(())
}
