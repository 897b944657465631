//! Values on the command line: `--arg NAME=VALUE` and `--answer NAME=VALUE`, read as a JSON schema says.

use serde_json::{Map, Value};

/// How deep `$ref`s and alternatives of a schema are followed.
const DEPTH: u32 = 8;

/// One `NAME=VALUE`, or `NAME:=JSON`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pair {
    pub(crate) name: String,
    value: Given,
}

#[derive(Debug, Clone, PartialEq)]
enum Given {
    Text(String),
    Json(Value),
}

/// Reads one.
pub(crate) fn pair(text: &str) -> Result<Pair, String> {
    let (name, value) = match text.split_once('=') {
        Some((name, json)) if name.ends_with(':') => {
            let name = &name[..name.len() - 1];
            let value = serde_json::from_str(json)
                .map_err(|error| format!("{name:?}: {json:?} is no JSON: {error}"))?;
            (name, Given::Json(value))
        }
        Some((name, text)) => (name, Given::Text(text.to_owned())),
        None => return Err("expected NAME=VALUE, or NAME:=JSON".to_owned()),
    };
    match name {
        "" => Err("expected NAME=VALUE: the name is missing".to_owned()),
        name => Ok(Pair {
            name: name.to_owned(),
            value,
        }),
    }
}

/// A JSON object.
pub(crate) fn object(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("expected a JSON object such as {\"name\": \"value\"}".to_owned()),
        Err(error) => Err(format!("expected a JSON object: {error}")),
    }
}

impl Pair {
    /// Its value for a property of `root`, an object's schema; a name that the schema does not have may be anything.
    pub(crate) fn typed(&self, root: &Value) -> Result<Value, String> {
        let text = match &self.value {
            Given::Json(value) => return Ok(value.clone()),
            Given::Text(text) => text,
        };
        let mut types = Vec::new();
        if let Some(schema) = root.get("properties").and_then(|all| all.get(&self.name)) {
            collect(schema, root, DEPTH, &mut types);
        }
        typed(text, &types)
    }
}

fn typed(text: &str, types: &[String]) -> Result<Value, String> {
    let allowed = |name: &str| types.iter().any(|allowed| allowed == name);
    if let Ok(value) = serde_json::from_str::<Value>(text)
        && !value.is_string()
        && names(&value).iter().any(|name| allowed(name))
    {
        return Ok(value);
    }
    if types.is_empty() || allowed("string") {
        return Ok(text.into());
    }
    let wanted: Vec<&str> = types.iter().map(String::as_str).collect();
    let json = match wanted
        .iter()
        .any(|name| matches!(*name, "array" | "object"))
    {
        true => " as JSON",
        false => "",
    };
    Err(format!(
        "expected {}{json}, got {text:?}",
        wanted.join(" or ")
    ))
}

/// The type names of JSON Schema that a value has.
fn names(value: &Value) -> &'static [&'static str] {
    match value {
        Value::Null => &["null"],
        Value::Bool(_) => &["boolean"],
        Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => {
            &["integer", "number"]
        }
        Value::Number(_) => &["number"],
        Value::String(_) => &["string"],
        Value::Array(_) => &["array"],
        Value::Object(_) => &["object"],
    }
}

/// The types that a schema allows; none if it does not say.
fn collect(schema: &Value, root: &Value, depth: u32, types: &mut Vec<String>) {
    if depth == 0 {
        return;
    }
    let mut add = |name: &str| {
        if !types.iter().any(|known| known == name) {
            types.push(name.to_owned());
        }
    };
    match schema.get("type") {
        Some(Value::String(name)) => return add(name),
        Some(Value::Array(several)) => {
            return several.iter().filter_map(Value::as_str).for_each(add);
        }
        _ => {}
    }
    let listed = schema
        .get("enum")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for value in listed.chain(schema.get("const")) {
        names(value).iter().for_each(|name| add(name));
    }
    if let Some(place) = schema.get("$ref").and_then(Value::as_str)
        && let Some(target) = place
            .strip_prefix('#')
            .and_then(|place| root.pointer(place))
    {
        collect(target, root, depth - 1, types);
    }
    for name in ["anyOf", "oneOf", "allOf"] {
        for schema in schema
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            collect(schema, root, depth - 1, types);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "properties": {
                "text": {"type": "string"}, "ms": {"type": "integer"}, "part": {"type": "number"},
                "sure": {"type": "boolean"}, "list": {"type": "array"}, "map": {"type": "object"},
                "maybe": {"type": ["integer", "null"]}, "either": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/s"}]},
                "level": {"enum": ["low", 3]}, "any": {}, "loop": {"$ref": "#/properties/loop"}
            },
            "$defs": {"s": {"type": "string"}}
        })
    }

    #[test]
    fn the_schema_gives_the_type() {
        for (text, value) in [
            ("text=5", json!("5")),
            ("text=", json!("")),
            ("text=a=b", json!("a=b")),
            ("ms=5", json!(5)),
            ("part=0.5", json!(0.5)),
            ("sure=true", json!(true)),
            ("list=[1]", json!([1])),
            ("map={\"a\":1}", json!({"a": 1})),
            ("maybe=null", json!(null)),
            ("either=5", json!(5)),
            ("either=five", json!("five")),
            ("level=3", json!(3)),
            ("level=low", json!("low")),
            ("any=5", json!("5")),
            ("other=5", json!("5")),
            ("other:=5", json!(5)),
            ("loop=x", json!("x")),
        ] {
            assert_eq!(pair(text).unwrap().typed(&schema()), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (text, what) in [
            ("ms=five", "expected integer, got \"five\""),
            ("ms=1.5", "expected integer"),
            ("sure=yes", "expected boolean, got \"yes\""),
            ("list=a", "expected array as JSON"),
            ("maybe=x", "integer or null"),
        ] {
            let error = pair(text).unwrap().typed(&schema()).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
        for text in ["name", "=5", ":=5", "a:=x"] {
            assert!(pair(text).is_err(), "{text}");
        }
        assert!(object("[1]").is_err() && object("{").is_err());
    }
}
