//! What every request says of itself in `params._meta` (2026-07-28 `basic`, `_meta`).

use rmcp::model::ClientConfig;
use serde_json::{Value, json};

use crate::wire::v2026_07_28::{
    CLIENT_CAPABILITIES_META, CLIENT_INFO_META, EXTENSION, PROTOCOL_VERSION_META, VERSION,
};

/// Who we are and what we can do, once with the tasks extension and once without.
pub(super) struct Stamp {
    info: Value,
    with_tasks: Value,
    without_tasks: Value,
}

impl Stamp {
    pub(super) fn of(client: &ClientConfig) -> Self {
        let info = serde_json::to_value(&client.client_info).unwrap_or_default();
        let mut without_tasks = serde_json::to_value(&client.capabilities).unwrap_or_default();
        if !without_tasks.is_object() {
            without_tasks = json!({});
        }
        let mut with_tasks = without_tasks.clone();
        declare(&mut with_tasks);
        if let Some(Value::Object(extensions)) = without_tasks.get_mut("extensions") {
            extensions.remove(EXTENSION);
        }
        Self {
            info,
            with_tasks,
            without_tasks,
        }
    }

    /// The capabilities, without the extension.
    pub(super) fn capabilities(&self) -> &Value {
        &self.without_tasks
    }

    /// Puts it into a request of ours, beside the metadata of the caller's own.
    pub(super) fn put(&self, params: &mut Value, tasks: bool) {
        let capabilities = match tasks {
            true => &self.with_tasks,
            false => &self.without_tasks,
        };
        let meta = meta_of(params);
        meta[PROTOCOL_VERSION_META] = json!(VERSION);
        meta[CLIENT_INFO_META] = self.info.clone();
        meta[CLIENT_CAPABILITIES_META] = capabilities.clone();
    }

    /// Puts what is missing into a request of rmcp's: it knows its own, but not the extension.
    pub(super) fn complete(&self, params: &mut Value) {
        let meta = meta_of(params);
        meta[PROTOCOL_VERSION_META] = json!(VERSION);
        if !meta[CLIENT_INFO_META].is_object() {
            meta[CLIENT_INFO_META] = self.info.clone();
        }
        match &mut meta[CLIENT_CAPABILITIES_META] {
            capabilities @ Value::Object(_) => declare(capabilities),
            capabilities => *capabilities = self.with_tasks.clone(),
        }
    }
}

fn declare(capabilities: &mut Value) {
    let extensions = &mut capabilities["extensions"];
    if !extensions.is_object() {
        *extensions = json!({});
    }
    if !extensions[EXTENSION].is_object() {
        extensions[EXTENSION] = json!({});
    }
}

fn meta_of(params: &mut Value) -> &mut Value {
    if !params.is_object() {
        *params = json!({});
    }
    let meta = &mut params["_meta"];
    if !meta.is_object() {
        *meta = json!({});
    }
    meta
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_says_all_of_it() {
        let mut client = ClientConfig::default();
        client.capabilities = serde_json::from_value(json!({"elicitation": {}})).unwrap();
        let stamp = Stamp::of(&client);
        let mut params = json!({"taskId": "t", "_meta": {"progressToken": 7}});
        stamp.put(&mut params, true);
        let meta = &params["_meta"];
        assert_eq!(
            (&meta["progressToken"], &meta[PROTOCOL_VERSION_META]),
            (&json!(7), &json!("2026-07-28"))
        );
        assert_eq!(
            meta[CLIENT_CAPABILITIES_META],
            json!({"elicitation": {}, "extensions": {EXTENSION: {}}})
        );
        assert!(meta[CLIENT_INFO_META]["name"].is_string());
        stamp.put(&mut params, false);
        assert_eq!(
            params["_meta"][CLIENT_CAPABILITIES_META],
            json!({"elicitation": {}})
        );
    }

    #[test]
    fn what_rmcp_says_is_kept_and_completed() {
        let stamp = Stamp::of(&ClientConfig::default());
        let mut params = Value::Null;
        stamp.complete(&mut params);
        assert!(params["_meta"][CLIENT_CAPABILITIES_META]["extensions"][EXTENSION].is_object());
        let mut params = json!({"_meta": {
            CLIENT_INFO_META: {"name": "other"},
            CLIENT_CAPABILITIES_META: {"roots": {}, "extensions": {"x": {}}},
        }});
        stamp.complete(&mut params);
        assert_eq!(params["_meta"][CLIENT_INFO_META]["name"], "other");
        assert_eq!(
            params["_meta"][CLIENT_CAPABILITIES_META],
            json!({"roots": {}, "extensions": {"x": {}, EXTENSION: {}}})
        );
    }
}
