//! The headers that repeat what a request says (2026-07-28 `basic/transports/streamable-http`, Request Metadata).

use std::collections::HashSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use crate::wire::v2026_07_28::VERSION;

const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The member of a parameter's schema that has its value repeated.
const ANNOTATION: &str = "x-mcp-header";

/// The headers of a request or notification, but for those of a tool's parameters.
pub(super) fn of(method: &str, params: Option<&Value>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(VERSION));
    if let Some(value) = encoded(method) {
        headers.insert(METHOD, value);
    }
    let name = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return headers,
    };
    let name = params.and_then(|params| params.get(name)?.as_str());
    if let Some(value) = name.and_then(encoded) {
        headers.insert(NAME, value);
    }
    headers
}

/// A text as a header can carry it: as it is, or in Base64 between `=?base64?` and `?=`.
fn encoded(text: &str) -> Option<HeaderValue> {
    let marked = text.starts_with("=?base64?") && text.ends_with("?=");
    let padded = text.starts_with(' ') || text.ends_with(' ');
    let visible = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    match visible && !padded && !marked {
        true => HeaderValue::from_str(text).ok(),
        false => HeaderValue::try_from(format!("=?base64?{}?=", STANDARD.encode(text))).ok(),
    }
}

/// The parameters of a tool that are repeated in headers `Mcp-Param-*`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ToolHeaders(Vec<(Vec<String>, HeaderName)>);

impl ToolHeaders {
    /// Reads a tool's input schema.
    ///
    /// # Errors
    /// What is wrong with an annotation: the tool must not be used over HTTP then.
    pub(super) fn read(schema: &Value) -> Result<Self, String> {
        let (mut found, mut seen) = (Self::default(), HashSet::new());
        found.walk(schema, &mut Vec::new(), &mut seen)?;
        Ok(found)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `path` are the names from the root to `schema`, properties of properties.
    fn walk(
        &mut self,
        schema: &Value,
        path: &mut Vec<String>,
        seen: &mut HashSet<String>,
    ) -> Result<(), String> {
        let Value::Object(members) = schema else {
            return Ok(());
        };
        for (keyword, value) in members {
            match (keyword.as_str(), value) {
                (ANNOTATION, _) => self.annotated(value, schema, path, seen)?,
                ("properties", Value::Object(properties)) => {
                    for (name, schema) in properties {
                        path.push(name.clone());
                        self.walk(schema, path, seen)?;
                        path.pop();
                    }
                }
                // Values, not schemas.
                ("default" | "const" | "enum" | "examples" | "required", _) => {}
                _ if has_annotation(value) => {
                    return Err(format!(
                        "{ANNOTATION} below {keyword:?}, where no parameter can be found"
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn annotated(
        &mut self,
        value: &Value,
        schema: &Value,
        path: &[String],
        seen: &mut HashSet<String>,
    ) -> Result<(), String> {
        let parameter = path.join(".");
        let wrong = |what: &str| Err(format!("{ANNOTATION} of {parameter:?} {what}"));
        if path.is_empty() {
            return Err(format!("{ANNOTATION} on the schema itself"));
        }
        let Some(name) = value.as_str() else {
            return wrong("is no text");
        };
        // What `HeaderName` takes is a token of RFC 9110, and not empty.
        let Ok(header) = HeaderName::try_from(format!("mcp-param-{name}")) else {
            return wrong("is no header name");
        };
        if name.is_empty() {
            return wrong("is empty");
        }
        if !seen.insert(name.to_ascii_lowercase()) {
            return wrong("is used twice");
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("string" | "integer" | "boolean") => {}
            _ => return wrong("is not on a string, an integer or a boolean"),
        }
        self.0.push((path.to_vec(), header));
        Ok(())
    }

    /// Adds what these arguments have of them.
    pub(super) fn put(&self, arguments: Option<&Value>, headers: &mut HeaderMap) {
        let Some(arguments) = arguments else { return };
        for (path, name) in &self.0 {
            let value = path
                .iter()
                .try_fold(arguments, |value, step| value.get(step));
            let value = match value {
                Some(Value::String(text)) => encoded(text),
                Some(value @ (Value::Bool(_) | Value::Number(_))) => encoded(&value.to_string()),
                _ => None,
            };
            if let Some(value) = value {
                headers.insert(name.clone(), value);
            }
        }
    }
}

fn has_annotation(value: &Value) -> bool {
    match value {
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| name == ANNOTATION || has_annotation(value)),
        Value::Array(items) => items.iter().any(has_annotation),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_that_no_header_can_carry_are_encoded() {
        for (text, value) in [
            ("us-west1", "us-west1"),
            ("", ""),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(encoded(text).unwrap(), value, "{text:?}");
        }
    }

    #[test]
    fn each_method_names_what_it_is_about() {
        let name = |method: &str, params: Value| {
            let headers = of(method, Some(&params));
            assert_eq!(headers["mcp-method"], method);
            assert_eq!(headers["mcp-protocol-version"], "2026-07-28");
            headers
                .get("mcp-name")
                .map(|name| name.to_str().unwrap().to_owned())
        };
        let all = json!({"name": "n", "uri": "u", "taskId": "t"});
        for (method, expected) in [
            ("tools/call", Some("n")),
            ("prompts/get", Some("n")),
            ("resources/read", Some("u")),
            ("tasks/update", Some("t")),
            ("tools/list", None),
        ] {
            assert_eq!(name(method, all.clone()).as_deref(), expected, "{method}");
        }
        assert_eq!(name("tools/call", json!({})), None);
    }

    #[test]
    fn annotated_parameters_are_found_where_they_stand() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "x-mcp-header": {"type": "string"},
            "deep": {"type": "object", "default": {"x-mcp-header": 1}, "properties": {
                "n": {"type": "integer", "x-mcp-header": "N"},
                "b": {"type": "boolean", "x-mcp-header": "b"},
            }},
        }});
        let headers = ToolHeaders::read(&schema);
        let headers = headers.unwrap();
        let mut map = HeaderMap::new();
        let arguments = json!({"region": "ä", "deep": {"n": -7, "b": null}});
        headers.put(Some(&arguments), &mut map);
        assert_eq!(map.len(), 2);
        assert_eq!(map["mcp-param-region"], "=?base64?w6Q=?=");
        assert_eq!(map["mcp-param-n"], "-7");
        assert!(ToolHeaders::read(&json!({})).unwrap().is_empty());
    }

    #[test]
    fn annotations_that_are_wrong_say_why() {
        let of = |parameter: Value| json!({"properties": {"p": parameter}});
        for (schema, why) in [
            (of(json!({"type": "string", "x-mcp-header": ""})), "empty"),
            (
                of(json!({"type": "string", "x-mcp-header": "a b"})),
                "no header name",
            ),
            (
                of(json!({"type": "string", "x-mcp-header": "a\r\nb"})),
                "no header name",
            ),
            (of(json!({"type": "string", "x-mcp-header": 7})), "no text"),
            (
                of(json!({"type": "number", "x-mcp-header": "A"})),
                "not on a string",
            ),
            (
                of(json!({"type": "array", "items": {"type": "string", "x-mcp-header": "A"}})),
                "below \"items\"",
            ),
            (json!({"x-mcp-header": "A"}), "schema itself"),
            (
                json!({"anyOf": [of(json!({"type": "string", "x-mcp-header": "A"}))]}),
                "below \"anyOf\"",
            ),
            (
                json!({"properties": {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}}),
                "twice",
            ),
        ] {
            let error = ToolHeaders::read(&schema).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
