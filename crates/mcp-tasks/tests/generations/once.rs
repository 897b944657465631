//! A client of 2026-07-28: every request for itself, and every answer checked against the schema.

use serde_json::{Value, json};

use crate::{
    schema,
    support::{
        http::{Answer, Client, Events},
        pipe::Pipe,
    },
};

pub const TASKS: &str = "io.modelcontextprotocol/tasks";
pub const VERSION: &str = "2026-07-28";

/// What clients of these tests can do besides tasks.
pub fn capabilities(tasks: bool) -> Value {
    let mut can = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}});
    if tasks {
        can["extensions"] = json!({TASKS: {}});
    }
    can
}

pub fn meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

pub struct Once {
    client: Client,
    pub capabilities: Value,
    next: std::sync::atomic::AtomicU64,
}

/// The headers that belong to a request.
pub fn headers(method: &str, params: &Value) -> Vec<(String, String)> {
    let mut headers = vec![
        ("mcp-protocol-version".to_owned(), VERSION.to_owned()),
        ("mcp-method".to_owned(), method.to_owned()),
    ];
    let name = ["name", "taskId", "uri"]
        .iter()
        .find_map(|member| params[member].as_str());
    if let Some(name) = name {
        headers.push(("mcp-name".to_owned(), name.to_owned()));
    }
    headers
}

impl Once {
    /// One that declares the tasks extension.
    pub fn new(url: &str, token: &str) -> Self {
        Self {
            client: Client::with_token(url, token),
            capabilities: capabilities(true),
            next: Default::default(),
        }
    }

    /// One that does not.
    pub fn plain(url: &str, token: &str) -> Self {
        Self {
            capabilities: capabilities(false),
            ..Self::new(url, token)
        }
    }

    pub fn message(&self, method: &str, params: &Value) -> Value {
        let id = self.next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let mut params = params.clone();
        let mut all = meta(&self.capabilities);
        if let Some(more) = params["_meta"].as_object() {
            for (name, value) in more {
                all[name] = value.clone();
            }
        }
        params["_meta"] = all;
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    pub fn builder(
        &self,
        message: &Value,
        headers: &[(String, String)],
    ) -> reqwest::RequestBuilder {
        let mut request = self
            .client
            .request_builder(reqwest::Method::POST)
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.body(message.to_string())
    }

    /// Sends a message with these headers; the answer, read whole.
    pub async fn send(&self, message: &Value, headers: &[(String, String)]) -> Answer {
        let response = self.builder(message, headers).send().await.unwrap();
        crate::support::http::read(response).await
    }

    pub async fn answer(&self, method: &str, params: Value) -> Answer {
        let message = self.message(method, &params);
        let answer = self.send(&message, &headers(method, &params)).await;
        if answer.headers["content-type"].starts_with("text/event-stream") {
            for message in answer.messages() {
                schema::check(method, &message);
            }
        } else {
            schema::check(method, &answer.json());
        }
        assert!(!answer.headers.contains_key("mcp-session-id"));
        answer
    }

    /// A request's response.
    pub async fn request(&self, method: &str, params: Value) -> Value {
        self.answer(method, params).await.json()
    }

    /// A request whose answer is read as a stream.
    pub async fn open(&self, method: &str, params: Value) -> Events {
        let message = self.message(method, &params);
        let request = self.builder(&message, &headers(method, &params));
        Events::new(request.send().await.unwrap())
    }

    pub async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
            .await
    }

    /// A call that has to make a task; the handle.
    pub async fn create(&self, tool: &str, arguments: Value) -> Value {
        let answer = self.call(tool, arguments).await;
        assert_eq!(answer["result"]["resultType"], "task", "{answer}");
        answer["result"].clone()
    }

    pub async fn get(&self, task: &Value) -> Value {
        let answer = self
            .request("tasks/get", json!({"taskId": task["taskId"]}))
            .await;
        answer["result"].clone()
    }

    /// Polls until the task is in this status.
    pub async fn until(&self, task: &Value, status: &str) -> Value {
        until(async || self.get(task).await, status).await
    }

    pub async fn update(&self, task: &Value, responses: Value) -> Value {
        let params = json!({"taskId": task["taskId"], "inputResponses": responses});
        self.request("tasks/update", params).await
    }

    pub async fn cancel(&self, task: &Value) -> Value {
        self.request("tasks/cancel", json!({"taskId": task["taskId"]}))
            .await
    }

    /// The same call again, with answers and the state that came with the questions.
    pub async fn retry(&self, call: Value, asked: &Value, responses: Value) -> Value {
        self.request("tools/call", retried(call, asked, responses))
            .await
    }
}

/// A call that brings back answers and state.
pub fn retried(mut call: Value, asked: &Value, responses: Value) -> Value {
    call["requestState"] = asked["result"]["requestState"].clone();
    call["inputResponses"] = responses;
    call
}

/// Polls until the task is in this status.
pub async fn until(get: impl AsyncFn() -> Value, status: &str) -> Value {
    let began = std::time::Instant::now();
    loop {
        let task = get().await;
        if task["status"] == status {
            return task;
        }
        assert!(
            began.elapsed() < crate::support::PATIENCE,
            "never {status}: {task}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// The same answer to every open question.
pub fn accept_all(requests: &Value, name: &str) -> Value {
    let keys = requests.as_object().expect("questions").keys();
    keys.map(|key| (key.clone(), accepted(name))).collect()
}

pub fn accepted(name: &str) -> Value {
    json!({"action": "accept", "content": {"name": name}})
}

/// A request of 2026-07-28 on a pipe.
pub async fn on_pipe(pipe: &mut Pipe, method: &str, mut params: Value, tasks: bool) -> Value {
    params["_meta"] = meta(&capabilities(tasks));
    let answer = pipe.request(method, params).await;
    schema::check(method, &answer);
    answer
}
