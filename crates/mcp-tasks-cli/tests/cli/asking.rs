//! A server without tasks whose tools ask whatever the test wants, with schemas that no type of ours would give: a few
//! raw JSON-RPC messages over HTTP. The result of a tool is the answer, as JSON text.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::any,
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// The server; it ends with the test's process.
pub(crate) struct Asking {
    pub(crate) url: String,
    /// The headers of the last request.
    pub(crate) headers: Arc<Mutex<HeaderMap>>,
}

#[derive(Clone)]
struct Server {
    /// Tool name to the question's method and parameters.
    questions: Arc<HashMap<&'static str, (&'static str, Value)>>,
    waiting: Arc<Mutex<HashMap<String, oneshot::Sender<Value>>>>,
    headers: Arc<Mutex<HeaderMap>>,
}

impl Asking {
    /// One tool for each question.
    pub(crate) fn start(questions: Vec<(&'static str, &'static str, Value)>) -> Self {
        let questions = questions
            .into_iter()
            .map(|(tool, method, params)| (tool, (method, params)));
        let server = Server {
            questions: Arc::new(questions.collect()),
            waiting: Arc::default(),
            headers: Arc::default(),
        };
        let headers = server.headers.clone();
        let (sender, addr) = std::sync::mpsc::channel::<SocketAddr>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                let post = move |headers: HeaderMap, body: Bytes| {
                    let server = server.clone();
                    async move { server.post(headers, &body) }
                };
                axum::serve(listener, Router::new().route("/mcp", any(post)))
                    .await
                    .unwrap();
            });
        });
        let addr = addr.recv().unwrap();
        Self {
            url: format!("http://{addr}/mcp"),
            headers,
        }
    }

    /// A form with these fields, all of them required.
    pub(crate) fn form(
        tool: &'static str,
        properties: Value,
    ) -> (&'static str, &'static str, Value) {
        let required: Vec<String> = properties.as_object().unwrap().keys().cloned().collect();
        Self::form_with(
            tool,
            json!({"type": "object", "properties": properties, "required": required}),
        )
    }

    pub(crate) fn form_with(
        tool: &'static str,
        schema: Value,
    ) -> (&'static str, &'static str, Value) {
        let params = json!({"mode": "form", "message": format!("This is {tool}."), "requestedSchema": schema});
        (tool, "elicitation/create", params)
    }
}

impl Server {
    fn post(&self, headers: HeaderMap, body: &[u8]) -> Response {
        let Ok(message) = serde_json::from_slice::<Value>(body) else {
            return StatusCode::METHOD_NOT_ALLOWED.into_response();
        };
        *self.headers.lock().unwrap() = headers;
        let id = message["id"].clone();
        let result = match message["method"].as_str() {
            None => {
                let waiting = self
                    .waiting
                    .lock()
                    .unwrap()
                    .remove(id.as_str().unwrap_or_default());
                if let Some(waiting) = waiting {
                    let _ = waiting.send(message);
                }
                return StatusCode::ACCEPTED.into_response();
            }
            Some("initialize") => json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "asking\u{1b}[31m", "version": "1"}
            }),
            Some("tools/list") => {
                let tools = self
                    .questions
                    .keys()
                    .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
                json!({"tools": tools.collect::<Vec<_>>()})
            }
            Some("tools/call") => return self.call(&id, &message["params"]),
            Some("ping") => json!({}),
            Some(_) => return StatusCode::ACCEPTED.into_response(),
        };
        reply(&id, &result)
    }

    fn call(&self, id: &Value, params: &Value) -> Response {
        let tool = params["name"].as_str().unwrap();
        let (method, question) = self.questions[tool].clone();
        let key = format!("q-{tool}");
        let (sender, answer) = oneshot::channel();
        self.waiting.lock().unwrap().insert(key.clone(), sender);
        let question =
            event(&json!({"jsonrpc": "2.0", "id": key, "method": method, "params": question}));
        let id = id.clone();
        let last = async move {
            let message = answer.await.unwrap_or_default();
            let answer = match message.get("result") {
                Some(result) => result.clone(),
                None => json!({"error": message["error"]}),
            };
            let mut answer = answer;
            if let Some(answer) = answer.as_object_mut() {
                answer.remove("_meta");
            }
            let result = json!({"content": [{"type": "text", "text": answer.to_string()}]});
            event(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
        };
        let events = stream::once(async { question }).chain(stream::once(last));
        let body = Body::from_stream(events.map(Ok::<_, std::convert::Infallible>));
        ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
    }
}

fn event(message: &Value) -> String {
    format!("data: {message}\n\n")
}

fn reply(id: &Value, result: &Value) -> Response {
    let message = json!({"jsonrpc": "2.0", "id": id, "result": result});
    (
        [(header::CONTENT_TYPE, "application/json")],
        message.to_string(),
    )
        .into_response()
}
