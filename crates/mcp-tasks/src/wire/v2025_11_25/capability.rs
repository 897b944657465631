//! Who declared what.

use serde_json::{Value, json};

/// `capabilities.tasks` of a server (2025-11-25 `basic/utilities/tasks`, Server Capabilities). `list` is offered only
/// where requestors can be told apart.
pub fn server_tasks(list: bool) -> Value {
    let mut tasks = json!({"cancel": {}, "requests": {"tools": {"call": {}}}});
    if list {
        tasks["list"] = json!({});
    }
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_never_hold_null() {
        let text = server_tasks(true).to_string() + &server_tasks(false).to_string();
        assert!(!text.contains("null"));
        assert!(server_tasks(true).pointer("/requests/tools/call").is_some());
        assert!(server_tasks(false).get("list").is_none());
    }
}
