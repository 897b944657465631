//! A form as its JSON schema describes it (2025-11-25 `client/elicitation`, Requested Schema): no terminal here.

use std::sync::Arc;

use serde_json::{Map, Value};

/// One field of a form.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    /// What it is called for a person.
    pub(super) label: String,
    pub(super) description: Option<String>,
    pub(super) required: bool,
    pub(super) default: Option<Value>,
    pub(super) kind: Kind,
    schema: Value,
    validator: Option<jsonschema::Validator>,
}

/// How a field is filled in.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Text,
    Number,
    Integer,
    Boolean,
    /// One of these values, each with its label.
    One(Vec<(Value, String)>),
    /// Any of these.
    Many(Vec<(Value, String)>),
    /// Something that a form should not have: typed as JSON.
    Json,
}

/// The fields of a form. What cannot be understood is typed as JSON: the server will say whether it fits.
pub(super) fn fields(schema: &Value) -> Vec<Arc<Field>> {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let properties = schema.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flatten()
        .map(|(name, schema)| Arc::new(Field::new(name, schema, required.contains(&name.as_str()))))
        .collect()
}

impl Field {
    fn new(name: &str, schema: &Value, required: bool) -> Self {
        let text = |member: &str| schema.get(member).and_then(Value::as_str);
        let validator = jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .should_validate_formats(true)
            .build(schema)
            .ok();
        let mut field = Self {
            name: name.to_owned(),
            label: crate::text::line(text("title").unwrap_or(name)),
            description: text("description").map(crate::text::line),
            required,
            default: None,
            kind: kind(schema),
            schema: schema.clone(),
            validator,
        };
        let default = schema.get("default").filter(|value| !value.is_null());
        field.default = default.filter(|value| field.check(value).is_ok()).cloned();
        field
    }

    /// Whether a value fits; else what it should be.
    pub(super) fn check(&self, value: &Value) -> Result<(), String> {
        let Some(validator) = &self.validator else {
            return Ok(());
        };
        match validator.iter_errors(value).next() {
            None => Ok(()),
            Some(error) => Err(crate::text::line(&error.to_string())),
        }
    }

    /// Reads what was typed.
    pub(super) fn parse(&self, typed: &str) -> Result<Value, String> {
        let typed = match self.kind {
            Kind::Text | Kind::One(_) => typed,
            _ => typed.trim(),
        };
        let value = match self.kind {
            Kind::Text => typed.into(),
            Kind::Integer => match typed.parse::<i64>() {
                Ok(number) => number.into(),
                Err(_) => return Err("expected a whole number".to_owned()),
            },
            Kind::Number => match serde_json::from_str::<Value>(typed) {
                Ok(number @ Value::Number(_)) => number,
                _ => return Err("expected a number".to_owned()),
            },
            _ => serde_json::from_str(typed).map_err(|error| format!("expected JSON: {error}"))?,
        };
        self.check(&value)?;
        Ok(value)
    }

    /// The limits that its schema sets, for a person.
    pub(super) fn hint(&self) -> Option<String> {
        let number = |member: &str| self.schema.get(member).filter(|value| value.is_number());
        let range = |low: &str, high: &str, what: &str| match (number(low), number(high)) {
            (Some(low), Some(high)) => Some(format!("{low} to {high}{what}")),
            (Some(low), None) => Some(format!("at least {low}{what}")),
            (None, Some(high)) => Some(format!("at most {high}{what}")),
            (None, None) => None,
        };
        let text = |member: &str| self.schema.get(member).and_then(Value::as_str);
        let mut hints = Vec::new();
        hints.extend(range("minLength", "maxLength", " characters"));
        hints.extend(range("minItems", "maxItems", " of them"));
        hints.extend(range("minimum", "maximum", ""));
        hints.extend(text("format").map(|format| format!("a {format}")));
        hints.extend(text("pattern").map(|pattern| format!("like {pattern}")));
        (!hints.is_empty()).then(|| crate::text::line(&hints.join(", ")))
    }
}

fn kind(schema: &Value) -> Kind {
    if let Some(choices) = choices(schema) {
        return Kind::One(choices);
    }
    let name = match schema.get("type") {
        Some(Value::Array(types)) => types
            .iter()
            .filter_map(Value::as_str)
            .find(|name| *name != "null"),
        other => other.and_then(Value::as_str),
    };
    match name {
        Some("string") => Kind::Text,
        Some("number") => Kind::Number,
        Some("integer") => Kind::Integer,
        Some("boolean") => Kind::Boolean,
        Some("array") => match schema.get("items").and_then(choices) {
            Some(choices) => Kind::Many(choices),
            None => Kind::Json,
        },
        _ => Kind::Json,
    }
}

/// The values a schema lists: `enum` (with `enumNames`), or `oneOf`/`anyOf` of `const` with `title`.
fn choices(schema: &Value) -> Option<Vec<(Value, String)>> {
    let plain = |value: &Value| match value {
        Value::String(text) => crate::text::line(text),
        other => other.to_string(),
    };
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let names = schema.get("enumNames").and_then(Value::as_array);
        let name = |at: usize| {
            names
                .and_then(|names| names.get(at))
                .and_then(Value::as_str)
        };
        let choices = values.iter().enumerate().map(|(at, value)| {
            let label = name(at).map_or_else(|| plain(value), crate::text::line);
            (value.clone(), label)
        });
        return Some(choices.collect()).filter(|choices: &Vec<_>| !choices.is_empty());
    }
    let listed = ["oneOf", "anyOf"]
        .into_iter()
        .find_map(|name| schema.get(name)?.as_array())?;
    let choices: Option<Vec<_>> = listed
        .iter()
        .map(|choice| {
            let value = choice.get("const")?;
            let title = choice.get("title").and_then(Value::as_str);
            Some((
                value.clone(),
                title.map_or_else(|| plain(value), crate::text::line),
            ))
        })
        .collect();
    choices.filter(|choices| !choices.is_empty())
}

/// What `given` leaves to ask: the defaults fill it, and the names of required fields without one are told.
pub(super) fn complete(
    fields: &[Arc<Field>],
    mut given: Map<String, Value>,
) -> Result<Map<String, Value>, String> {
    let mut missing = Vec::new();
    for field in fields {
        match (&field.default, given.contains_key(&field.name)) {
            (_, true) => {}
            (Some(default), false) => drop(given.insert(field.name.clone(), default.clone())),
            (None, false) if field.required => missing.push(format!("{:?}", field.name)),
            (None, false) => {}
        }
    }
    match missing.is_empty() {
        true => Ok(given),
        false => Err(format!("there is no answer for {}", missing.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn one(schema: Value) -> Arc<Field> {
        let schema = json!({"properties": {"f": schema}, "required": ["f"]});
        fields(&schema).pop().unwrap()
    }

    #[test]
    fn every_kind_of_field_is_known() {
        let choice = |value: &str, label: &str| (json!(value), label.to_owned());
        for (schema, kind) in [
            (json!({"type": "string"}), Kind::Text),
            (json!({"type": "integer"}), Kind::Integer),
            (json!({"type": ["null", "number"]}), Kind::Number),
            (json!({"type": "boolean"}), Kind::Boolean),
            (
                json!({"type": "string", "enum": ["a", "b"], "enumNames": ["A"]}),
                Kind::One(vec![choice("a", "A"), choice("b", "b")]),
            ),
            (
                json!({"type": "string", "oneOf": [{"const": "a", "title": "An\u{1b}a"}]}),
                Kind::One(vec![choice("a", "An\\u{1b}a")]),
            ),
            (
                json!({"type": "array", "items": {"type": "string", "enum": ["a"]}}),
                Kind::Many(vec![choice("a", "a")]),
            ),
            (
                json!({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}),
                Kind::Many(vec![choice("a", "A")]),
            ),
            (
                json!({"type": "array", "items": {"type": "string"}}),
                Kind::Json,
            ),
            (json!({"type": "string", "enum": []}), Kind::Text),
            (json!({"type": "object"}), Kind::Json),
            (json!(7), Kind::Json),
        ] {
            assert_eq!(one(schema.clone()).kind, kind, "{schema}");
        }
        assert!(fields(&json!(null)).is_empty() && fields(&json!({"properties": []})).is_empty());
    }

    #[test]
    fn what_is_typed_is_read_and_checked() {
        for (schema, typed, value) in [
            (json!({"type": "string"}), " 5 ", json!(" 5 ")),
            (json!({"type": "integer", "minimum": 1}), " 5 ", json!(5)),
            (json!({"type": "number"}), "0.5", json!(0.5)),
            (
                json!({"type": "string", "format": "email"}),
                "a@b.c",
                json!("a@b.c"),
            ),
            (
                json!({"type": "string", "format": "date"}),
                "2026-02-28",
                json!("2026-02-28"),
            ),
        ] {
            assert_eq!(one(schema.clone()).parse(typed), Ok(value), "{schema}");
        }
        for (schema, typed) in [
            (json!({"type": "string", "minLength": 2}), "a"),
            (json!({"type": "string", "maxLength": 2}), "abc"),
            (json!({"type": "string", "pattern": "^a+$"}), "b"),
            (json!({"type": "string", "format": "email"}), "b"),
            (json!({"type": "string", "format": "date"}), "2026-02-30"),
            (json!({"type": "string", "format": "uri"}), "b c"),
            (json!({"type": "integer"}), "1.5"),
            (json!({"type": "integer", "minimum": 1}), "0"),
            (json!({"type": "number", "maximum": 1}), "1.5"),
            (json!({"type": "number"}), "x"),
            (json!({"type": "object"}), "{"),
        ] {
            assert!(one(schema.clone()).parse(typed).is_err(), "{schema}");
        }
        let field = one(json!({"type": "integer", "minimum": 1, "maximum": 5, "default": 9}));
        assert_eq!(field.hint().as_deref(), Some("1 to 5"));
        assert_eq!(field.default, None);
    }

    #[test]
    fn defaults_complete_what_is_given() {
        let schema = json!({"required": ["a", "b"], "properties": {
            "a": {"type": "string"}, "b": {"type": "integer", "default": 3}, "c": {"type": "string"}}});
        let fields = fields(&schema);
        let given = json!({"a": "x"}).as_object().cloned().unwrap();
        assert_eq!(
            complete(&fields, given).map(Value::Object),
            Ok(json!({"a": "x", "b": 3}))
        );
        let missing = complete(&fields, Map::new()).unwrap_err();
        assert!(
            missing.contains("\"a\"") && !missing.contains("\"b\""),
            "{missing}"
        );
    }
}
