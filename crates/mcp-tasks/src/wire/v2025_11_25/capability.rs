//! Who declared what.

use serde_json::{Value, json};

use crate::task::RawJson;

/// `capabilities.tasks` of a server (2025-11-25 `basic/utilities/tasks`, Server Capabilities). `list` is offered only
/// where requestors can be told apart.
pub fn server_tasks(list: bool) -> Value {
    let mut tasks = json!({"cancel": {}, "requests": {"tools": {"call": {}}}});
    if list {
        tasks["list"] = json!({});
    }
    tasks
}

/// What a client declares of tasks that it hosts (`capabilities.tasks`, Client Capabilities).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientTaskSupport {
    /// `tasks.requests.elicitation.create`.
    pub elicit: bool,
    /// `tasks.requests.sampling.createMessage`.
    pub sample: bool,
    /// `tasks.list`.
    pub list: bool,
    /// `tasks.cancel`.
    pub cancel: bool,
}

impl ClientTaskSupport {
    /// Reads a client's declared capabilities. `null` members count as absent.
    pub fn of(capabilities: Option<&RawJson>) -> Self {
        let declared = capabilities
            .and_then(|raw| raw.parse::<Value>().ok())
            .unwrap_or_default();
        let has = |path: &str| declared.pointer(path).is_some_and(Value::is_object);
        Self {
            elicit: has("/tasks/requests/elicitation/create"),
            sample: has("/tasks/requests/sampling/createMessage"),
            list: has("/tasks/list"),
            cancel: has("/tasks/cancel"),
        }
    }

    /// Whether there is anything.
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

/// `capabilities.tasks` of a client that hosts tasks of these kinds; `None` if it hosts none.
pub fn client_tasks(elicit: bool, sample: bool) -> Option<Value> {
    let mut requests = json!({});
    if elicit {
        requests["elicitation"] = json!({"create": {}});
    }
    if sample {
        requests["sampling"] = json!({"createMessage": {}});
    }
    (elicit || sample).then(|| json!({"list": {}, "cancel": {}, "requests": requests}))
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

    #[test]
    fn what_a_client_hosts_is_read_as_it_is_written() {
        let of =
            |value: &Value| ClientTaskSupport::of(RawJson::from_serialize(value).ok().as_ref());
        for (elicit, sample) in [(true, false), (false, true), (true, true)] {
            let support = of(&json!({ "tasks": client_tasks(elicit, sample) }));
            assert_eq!((support.elicit, support.sample), (elicit, sample));
            assert!(support.list && support.cancel);
        }
        assert_eq!(client_tasks(false, false), None);
        for none in [
            json!({}),
            json!({"tasks": null}),
            json!({"tasks": {"list": null, "requests": {"elicitation": {"create": null}}}}),
            json!({"tasks": {"requests": {"elicitation": true, "sampling": {}}}}),
        ] {
            assert!(!of(&none).any(), "{none}");
        }
    }
}
