//! What all clients can do, whatever carries their messages.

use serde_json::{Value, json};

/// A client of protocol revision 2025-11-25, or of another one where it says so.
pub trait Client {
    /// Sends a request and reads messages until its answer comes, which is returned whole. Every other message is
    /// given to `seen` before; what that returns for a request of the server is sent as the result of it.
    fn exchange(
        &mut self,
        method: &str,
        params: Value,
        seen: &mut dyn FnMut(&Value) -> Option<Value>,
    ) -> Value;

    /// Sends a notification.
    fn notify(&mut self, method: &str, params: Value);

    /// The answer to a request, for which the server has nothing to ask.
    fn request(&mut self, method: &str, params: Value) -> Value {
        self.exchange(method, params, &mut |_| None)
    }

    /// Begins the session, with these capabilities; returns what the server says of itself.
    fn initialize(&mut self, capabilities: Value) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "testkit", "version": "0"},
        });
        let answer = self.request("initialize", params);
        self.notify("notifications/initialized", json!({}));
        result(answer)
    }

    /// Calls a tool and waits for its result.
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        result(self.request("tools/call", json!({"name": tool, "arguments": arguments})))
    }

    /// Calls a tool as a task, and wants to hear of its progress; the task's id.
    fn call_as_task(&mut self, tool: &str, arguments: Value) -> String {
        let params = json!({
            "name": tool,
            "arguments": arguments,
            "task": {"ttl": 60_000},
            "_meta": {"progressToken": tool},
        });
        let created = result(self.request("tools/call", params));
        assert_eq!(created["task"]["status"], "working", "{created}");
        match created["task"]["taskId"].as_str() {
            Some(id) => id.to_owned(),
            None => panic!("no task id in {created}"),
        }
    }

    /// Waits for a task's result.
    fn task_result(&mut self, id: &str) -> Value {
        result(self.request("tasks/result", json!({"taskId": id})))
    }
}

/// The `result` of an answer.
fn result(answer: Value) -> Value {
    match answer.get("result") {
        Some(result) => result.clone(),
        None => panic!("not a result: {answer}"),
    }
}

/// Numbers requests.
#[derive(Debug, Default)]
pub(crate) struct Ids(u64);

impl Ids {
    pub(crate) fn request(&mut self, method: &str, params: Value) -> (Value, Value) {
        self.0 += 1;
        let id = Value::from(self.0);
        let message = json!({"jsonrpc": "2.0", "id": &id, "method": method, "params": params});
        (id, message)
    }
}

/// Whether `message` answers the request `id`.
pub(crate) fn answers(message: &Value, id: &Value) -> bool {
    message.get("method").is_none() && message.get("id") == Some(id)
}

/// A notification.
pub(crate) fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// The answer to a request of the server, if it is one and `seen` has a result for it.
pub(crate) fn answer_to(
    message: &Value,
    seen: &mut dyn FnMut(&Value) -> Option<Value>,
) -> Option<Value> {
    let result = seen(message)?;
    let id = message.get("id")?;
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}
