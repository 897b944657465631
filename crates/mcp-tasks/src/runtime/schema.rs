//! JSON schemas of tools: checked when a tool is built, applied when it is called.

use std::collections::BTreeSet;

use jsonschema::{Draft, Validator};
use serde_json::{Map, Value};

use crate::task::RawJson;

/// A compiled schema (2020-12 unless it names another dialect; nothing is ever fetched).
#[derive(Debug)]
pub(crate) struct Schema {
    /// `None` when the schema accepts every object: then nothing is parsed either.
    validator: Option<Validator>,
}

impl Schema {
    pub(crate) fn compile(schema: &Map<String, Value>) -> Result<Self, String> {
        if schema.len() == 1 && schema.get("type").is_some_and(|t| t == "object") {
            return Ok(Self { validator: None });
        }
        let validator = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .build(&Value::Object(schema.clone()))
            .map_err(|e| e.to_string())?;
        Ok(Self {
            validator: Some(validator),
        })
    }

    /// Checks a value under the name `root`; the error names the place in it.
    pub(crate) fn check(&self, root: &str, value: &Value) -> Result<(), String> {
        let Some(validator) = &self.validator else {
            return if value.is_object() {
                Ok(())
            } else {
                Err(format!("{root}: expected an object"))
            };
        };
        match validator.iter_errors(value).next() {
            None => Ok(()),
            Some(error) => {
                let path: String = error.instance_path().as_str().replace('/', ".");
                Err(format!("{root}{path}: {error}"))
            }
        }
    }

    /// Checks JSON text that has to be an object.
    pub(crate) fn check_raw(&self, root: &str, raw: &RawJson) -> Result<(), String> {
        if self.validator.is_none() {
            return if raw.get().starts_with('{') {
                Ok(())
            } else {
                Err(format!("{root}: expected an object"))
            };
        }
        let value: Value = raw.parse().map_err(|e| format!("{root}: {e}"))?;
        self.check(root, &value)
    }
}

/// A parameter that clients of 2026-07-28 repeat in a header (`Mcp-Param-{name}`).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(not(feature = "http"), allow(dead_code))]
pub(crate) struct ParamHeader {
    /// The header's whole name, in lower case.
    pub(crate) header: String,
    /// Where the value is in the arguments.
    pub(crate) path: Vec<String>,
    /// Compared as numbers.
    pub(crate) is_integer: bool,
}

/// The `x-mcp-header` annotations of an input schema that [`check_input`] has passed.
pub(crate) fn param_headers(schema: &Map<String, Value>) -> Vec<ParamHeader> {
    fn walk(schema: &Map<String, Value>, path: &mut Vec<String>, found: &mut Vec<ParamHeader>) {
        if let Some(name) = schema.get("x-mcp-header").and_then(Value::as_str) {
            found.push(ParamHeader {
                header: format!("mcp-param-{}", name.to_ascii_lowercase()),
                path: path.clone(),
                is_integer: schema.get("type").is_some_and(|kind| kind == "integer"),
            });
        }
        let children = schema.get("properties").and_then(Value::as_object);
        for (name, child) in children.into_iter().flatten() {
            if let Some(child) = child.as_object() {
                path.push(name.clone());
                walk(child, path, found);
                path.pop();
            }
        }
    }
    let mut found = Vec::new();
    walk(schema, &mut Vec::new(), &mut found);
    found
}

/// An input schema describes an object, and its `x-mcp-header` annotations are valid (2026-07-28
/// `basic/transports/streamable-http`, Schema Extension).
pub(crate) fn check_input(schema: &Map<String, Value>) -> Result<(), String> {
    if schema.get("type").is_none_or(|t| t != "object") {
        return Err("the input schema must have \"type\": \"object\" at its root".into());
    }
    let mut names = BTreeSet::new();
    check_headers(schema, "inputSchema", true, false, &mut names)
}

fn check_headers(
    schema: &Map<String, Value>,
    path: &str,
    reachable: bool,
    is_property: bool,
    names: &mut BTreeSet<String>,
) -> Result<(), String> {
    if let Some(header) = schema.get("x-mcp-header") {
        let tchar = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        let wrong = |why: &str| Err(format!("x-mcp-header at {path}: {why}"));
        match header.as_str() {
            None => return wrong("it must be a string"),
            Some("") => return wrong("it must not be empty"),
            Some(name) if !name.bytes().all(tchar) => return wrong("it must be an HTTP token"),
            Some(name) if !names.insert(name.to_ascii_lowercase()) => {
                return wrong("another parameter has the same header");
            }
            Some(_) => {}
        }
        if !(reachable && is_property) {
            return wrong("it must be on a property that is reached through `properties` alone");
        }
        let kind = schema.get("type").and_then(Value::as_str);
        if !matches!(kind, Some("string" | "integer" | "boolean")) {
            return wrong("its parameter must be a string, an integer or a boolean");
        }
    }
    for (key, value) in schema {
        match value {
            Value::Object(children) if key == "properties" => {
                for (name, child) in children {
                    if let Value::Object(child) = child {
                        check_headers(child, &format!("{path}.{name}"), reachable, true, names)?;
                    }
                }
            }
            // Data, not schemas.
            _ if matches!(
                key.as_str(),
                "default" | "const" | "enum" | "examples" | "x-mcp-header"
            ) => {}
            Value::Object(child) => {
                check_headers(child, &format!("{path}.{key}"), false, false, names)?
            }
            Value::Array(items) => {
                for item in items.iter().filter_map(Value::as_object) {
                    check_headers(item, &format!("{path}.{key}"), false, false, names)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn an_error_names_the_argument() {
        let schema = Schema::compile(&object(json!({
            "type": "object", "properties": {"ms": {"type": "integer", "minimum": 0}}, "required": ["ms"]
        })))
        .unwrap();
        assert!(schema.check("arguments", &json!({"ms": 3})).is_ok());
        let wrong = schema.check("arguments", &json!({"ms": "x"})).unwrap_err();
        assert!(wrong.starts_with("arguments.ms: "), "{wrong}");
        let missing = schema.check("arguments", &json!({})).unwrap_err();
        assert!(missing.contains("\"ms\""), "{missing}");
    }

    #[test]
    fn a_schema_elsewhere_is_refused() {
        let remote = object(
            json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/x.json"}}}),
        );
        assert!(Schema::compile(&remote).is_err());
        assert!(Schema::compile(&object(json!({"type": 7}))).is_err());
    }

    #[test]
    fn headers_are_checked() {
        let with = |property: Value| {
            check_input(&object(
                json!({"type": "object", "properties": {"a": property}}),
            ))
        };
        assert!(with(json!({"type": "string", "x-mcp-header": "Region"})).is_ok());
        for (property, why) in [
            (json!({"type": "string", "x-mcp-header": ""}), "empty"),
            (json!({"type": "string", "x-mcp-header": "a b"}), "token"),
            (json!({"type": "string", "x-mcp-header": 3}), "string"),
            (json!({"type": "number", "x-mcp-header": "A"}), "integer"),
            (
                json!({"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}),
                "reached",
            ),
        ] {
            let error = with(property).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let twice = json!({"type": "object", "properties": {
            "a": {"type": "string", "x-mcp-header": "R"}, "b": {"type": "string", "x-mcp-header": "r"}}});
        assert!(
            check_input(&object(twice))
                .unwrap_err()
                .contains("same header")
        );
        assert!(
            check_input(&object(json!({"type": "string"})))
                .unwrap_err()
                .contains("\"object\"")
        );
    }
}
