//! Clients of protocol revision 2026-07-28.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Client, PATIENCE};

/// The extension by which a client gets tasks.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// A client of 2026-07-28 on top of another one's transport: it has no session, and says in every request what it is.
#[derive(Debug)]
pub struct Modern<C> {
    client: C,
    capabilities: Value,
}

impl<C: Client> Modern<C> {
    /// One with these capabilities. With the extension [`TASKS`] among its `extensions` it gets handles.
    pub fn new(client: C, capabilities: Value) -> Self {
        Self {
            client,
            capabilities,
        }
    }

    /// One that has tasks, besides these capabilities.
    pub fn with_tasks(client: C, mut capabilities: Value) -> Self {
        capabilities["extensions"][TASKS] = json!({});
        Self::new(client, capabilities)
    }

    /// The transport, for another client.
    pub fn into_inner(self) -> C {
        self.client
    }

    /// Asks for a task until it is as wanted; the task.
    pub fn poll_until(&mut self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let task = self.get(id);
            if wanted(&task) {
                return task;
            }
            assert!(Instant::now() < until, "it stays like this: {task}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn get(&mut self, id: &str) -> Value {
        self.request("tasks/get", json!({"taskId": id}))["result"].clone()
    }

    fn with_meta(&self, mut params: Value) -> Value {
        let meta = &mut params["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "testkit", "version": "0"});
        meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
        params
    }
}

impl<C: Client> Client for Modern<C> {
    fn exchange(
        &mut self,
        method: &str,
        params: Value,
        seen: &mut dyn FnMut(&Value) -> Option<Value>,
    ) -> Value {
        let params = self.with_meta(params);
        self.client.exchange(method, params, seen)
    }

    fn notify(&mut self, method: &str, params: Value) {
        let params = self.with_meta(params);
        self.client.notify(method, params);
    }

    fn call_as_task(&mut self, tool: &str, arguments: Value) -> String {
        let created = self.call(tool, arguments);
        assert_eq!(created["resultType"], "task", "{created}");
        match created["taskId"].as_str() {
            Some(id) => id.to_owned(),
            None => panic!("no task id in {created}"),
        }
    }

    fn task_result(&mut self, id: &str) -> Value {
        let ended = self.poll_until(id, |task| {
            !matches!(task["status"].as_str(), Some("working" | "input_required"))
        });
        assert_eq!(ended["status"], "completed", "{ended}");
        ended["result"].clone()
    }
}
