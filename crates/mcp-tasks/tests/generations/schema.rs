//! Every message of ours is checked against the schema of its revision.

use std::{collections::HashMap, sync::LazyLock};

use jsonschema::{Draft, Validator};
use serde_json::{Value, json};

/// One published schema, and the validators of its definitions that were asked for.
pub struct Schema {
    definitions: Value,
    compiled: std::sync::Mutex<HashMap<String, &'static Validator>>,
}

fn load(text: &str) -> Schema {
    let schema: Value = serde_json::from_str(text).unwrap();
    Schema {
        definitions: schema["$defs"].clone(),
        compiled: Default::default(),
    }
}

pub static CORE: LazyLock<Schema> = LazyLock::new(|| load(include_str!("schema/2026-07-28.json")));
pub static TASKS: LazyLock<Schema> = LazyLock::new(|| load(include_str!("schema/ext-tasks.json")));
pub static OLD: LazyLock<Schema> = LazyLock::new(|| load(include_str!("schema/2025-11-25.json")));

impl Schema {
    #[track_caller]
    pub fn check(&self, name: &str, value: &Value) {
        let validator = *self
            .compiled
            .lock()
            .unwrap()
            .entry(name.to_owned())
            .or_insert_with(|| {
                assert!(self.definitions.get(name).is_some(), "no definition {name}");
                let schema = json!({"$ref": format!("#/$defs/{name}"), "$defs": self.definitions});
                let compiled = jsonschema::options()
                    .with_draft(Draft::Draft202012)
                    .build(&schema)
                    .unwrap();
                Box::leak(Box::new(compiled))
            });
        let errors: Vec<String> = validator
            .iter_errors(value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}\n{value}");
    }
}

/// Checks a message of 2026-07-28; `method` is that of the request it answers, or its own.
#[track_caller]
pub fn check(method: &str, message: &Value) {
    assert_eq!(message["jsonrpc"], "2.0", "{message}");
    if message.get("error").is_some() {
        return CORE.check("JSONRPCErrorResponse", message);
    }
    let Some(result) = message.get("result") else {
        return match message["method"].as_str().expect("a notification") {
            "notifications/tasks" => TASKS.check("TaskStatusNotification", message),
            "notifications/subscriptions/acknowledged" => {
                CORE.check("SubscriptionsAcknowledgedNotification", message);
            }
            "notifications/progress" => CORE.check("ProgressNotification", message),
            "notifications/message" => CORE.check("LoggingMessageNotification", message),
            "notifications/tools/list_changed" => {
                CORE.check("ToolListChangedNotification", message);
            }
            "notifications/cancelled" => CORE.check("CancelledNotification", message),
            other => panic!("an unexpected {other}: {message}"),
        };
    };
    CORE.check("JSONRPCResultResponse", message);
    match (method, result["resultType"].as_str()) {
        ("tools/call", Some("complete")) => CORE.check("CallToolResult", result),
        ("tools/call", Some("input_required")) => CORE.check("InputRequiredResult", result),
        ("tools/call", Some("task")) => TASKS.check("CreateTaskResult", result),
        ("tasks/get", Some("complete")) => TASKS.check("GetTaskResult", result),
        ("tasks/update", Some("complete")) => TASKS.check("UpdateTaskResult", result),
        ("tasks/cancel", Some("complete")) => TASKS.check("CancelTaskResult", result),
        ("tools/list", Some("complete")) => CORE.check("ListToolsResult", result),
        ("server/discover", Some("complete")) => CORE.check("DiscoverResult", result),
        ("subscriptions/listen", Some("complete")) => {
            CORE.check("SubscriptionsListenResult", result);
        }
        other => panic!("an unexpected {other:?}: {message}"),
    }
}

/// Checks an answer of 2025-11-25.
#[track_caller]
pub fn check_old(method: &str, message: &Value) {
    let Some(result) = message.get("result") else {
        return OLD.check("JSONRPCErrorResponse", message);
    };
    OLD.check("JSONRPCResultResponse", message);
    match method {
        "tools/call" if result.get("task").is_some() => OLD.check("CreateTaskResult", result),
        "tools/call" | "tasks/result" => OLD.check("CallToolResult", result),
        "tasks/get" => OLD.check("GetTaskResult", result),
        "tasks/cancel" => OLD.check("CancelTaskResult", result),
        "tasks/list" => OLD.check("ListTasksResult", result),
        "tools/list" => OLD.check("ListToolsResult", result),
        "initialize" => OLD.check("InitializeResult", result),
        other => panic!("an unexpected {other}: {message}"),
    }
}
