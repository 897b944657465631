//! A Streamable HTTP client: requests and event streams, nothing hidden.

use std::{collections::HashMap, net::SocketAddr};

use futures_util::StreamExt;
use mcp_tasks::{Tasks, TasksHttp};
use rmcp::{ServerHandler, transport::StreamableHttpServerConfig};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

use super::PATIENCE;

/// A real server on a real port; it ends when this is dropped.
pub struct Served {
    pub url: String,
    pub addr: SocketAddr,
    server: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Served {
    pub async fn start<H: ServerHandler + Clone + Sync>(tasks: &Tasks, handler: H) -> Self {
        let service = tasks
            .streamable_http(
                move || Ok(handler.clone()),
                StreamableHttpServerConfig::default(),
            )
            .unwrap();
        Self::service(service).await
    }

    pub async fn service(service: TasksHttp) -> Self {
        Self::app(axum::Router::new().route_service("/mcp", service)).await
    }

    /// The same for a whole application.
    pub async fn app(app: axum::Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            url: format!("http://{addr}/mcp"),
            addr,
            server,
        }
    }
}

/// One answer, read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HashMap<String, String>,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        if self.headers["content-type"].starts_with("text/event-stream") {
            return self
                .messages()
                .pop()
                .unwrap_or_else(|| panic!("no message in {self:?}"));
        }
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The messages of an event stream.
    pub fn messages(&self) -> Vec<Value> {
        self.body
            .lines()
            .filter_map(|line| line.strip_prefix("data: ").filter(|data| !data.is_empty()))
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }
}

pub struct Client {
    pub http: reqwest::Client,
    pub url: String,
    pub session: Option<String>,
    pub token: Option<String>,
    /// The revision it names where it has no session.
    pub version: Option<&'static str>,
    next: std::sync::atomic::AtomicU64,
}

impl Client {
    pub fn new(url: &str) -> Self {
        Self {
            http: reqwest::Client::new(),
            url: url.to_owned(),
            session: None,
            token: None,
            version: None,
            next: std::sync::atomic::AtomicU64::new(0),
        }
    }

    pub fn with_token(url: &str, token: &str) -> Self {
        Self {
            token: Some(token.to_owned()),
            ..Self::new(url)
        }
    }

    /// Initializes; the result.
    pub async fn initialize(&mut self, version: &str) -> Value {
        self.initialize_with(super::initialize(version)).await
    }

    pub async fn initialize_with(&mut self, params: Value) -> Value {
        let answer = self
            .post(&json!({"jsonrpc":"2.0","id":"init","method":"initialize","params":params}))
            .await;
        assert_eq!(answer.status, 200, "{answer:?}");
        self.session = answer.headers.get("mcp-session-id").cloned();
        let accepted = self
            .post(&json!({"jsonrpc":"2.0","method":"notifications/initialized"}))
            .await;
        assert_eq!((accepted.status, accepted.body.as_str()), (202, ""));
        answer.json()["result"].clone()
    }

    pub fn request_builder(&self, method: reqwest::Method) -> reqwest::RequestBuilder {
        let mut request = self
            .http
            .request(method, &self.url)
            .header("accept", "application/json, text/event-stream")
            .timeout(PATIENCE);
        if let Some(session) = &self.session {
            request = request
                .header("mcp-session-id", session)
                .header("mcp-protocol-version", "2025-11-25");
        }
        if let (None, Some(version)) = (&self.session, self.version) {
            request = request.header("mcp-protocol-version", version);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request
    }

    pub async fn post_raw(&self, body: impl Into<reqwest::Body>) -> Answer {
        let request = self
            .request_builder(reqwest::Method::POST)
            .header("content-type", "application/json")
            .body(body);
        read(request.send().await.unwrap()).await
    }

    pub async fn post(&self, message: &Value) -> Answer {
        self.post_raw(message.to_string()).await
    }

    pub async fn get(&self) -> Answer {
        read(
            self.request_builder(reqwest::Method::GET)
                .send()
                .await
                .unwrap(),
        )
        .await
    }

    pub async fn delete(&self) -> Answer {
        read(
            self.request_builder(reqwest::Method::DELETE)
                .send()
                .await
                .unwrap(),
        )
        .await
    }

    fn message(&self, method: &str, params: Value) -> Value {
        let id = self.next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    pub async fn request(&self, method: &str, params: Value) -> Value {
        self.post(&self.message(method, params)).await.json()
    }

    pub async fn create(&self, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments, "task": {"ttl": 60000}});
        let answer = self.request("tools/call", params).await;
        let task = answer["result"]["task"].clone();
        assert!(task["taskId"].is_string(), "no task: {answer}");
        task
    }

    /// A request whose answer is read as a stream.
    pub async fn open(&self, method: &str, params: Value) -> Events {
        let request = self
            .request_builder(reqwest::Method::POST)
            .header("content-type", "application/json")
            .body(self.message(method, params).to_string());
        Events::new(request.send().await.unwrap())
    }

    /// The session's general stream.
    pub async fn listen(&self) -> Events {
        self.listen_from(None).await
    }

    pub async fn listen_from(&self, event: Option<&str>) -> Events {
        let mut request = self
            .request_builder(reqwest::Method::GET)
            .header("accept", "text/event-stream");
        if let Some(event) = event {
            request = request.header("last-event-id", event);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        Events::new(response)
    }

    pub async fn reply(&self, question: &Value, result: Value) {
        let answer = self
            .post(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}))
            .await;
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (202, ""),
            "{answer:?}"
        );
    }

    pub async fn accept(&self, question: &Value, name: &str) {
        self.reply(
            question,
            json!({"action": "accept", "content": {"name": name}}),
        )
        .await;
    }
}

pub async fn read(response: reqwest::Response) -> Answer {
    let status = response.status().as_u16();
    let headers = response
        .headers()
        .iter()
        .map(|(name, value)| {
            (
                name.to_string(),
                value.to_str().unwrap_or_default().to_owned(),
            )
        })
        .collect();
    Answer {
        status,
        headers,
        body: response.text().await.unwrap(),
    }
}

/// A response that is read event by event. Dropping it closes the stream.
pub struct Events {
    pub status: u16,
    pub content_type: String,
    stream:
        std::pin::Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<bytes::Bytes>> + Send>>,
    buffer: String,
    pub last_event_id: Option<String>,
}

impl Events {
    pub fn new(response: reqwest::Response) -> Self {
        let content_type = response
            .headers()
            .get("content-type")
            .map(|v| v.to_str().unwrap().to_owned())
            .unwrap_or_default();
        Self {
            status: response.status().as_u16(),
            content_type,
            stream: Box::pin(response.bytes_stream()),
            buffer: String::new(),
            last_event_id: None,
        }
    }

    /// The next message; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Value> {
        if self.content_type.starts_with("application/json") {
            let mut body = String::new();
            while let Some(chunk) = self.stream.next().await {
                body.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
            }
            return (!body.is_empty()).then(|| serde_json::from_str(&body).unwrap());
        }
        loop {
            while let Some(end) = self.buffer.find("\n\n") {
                let event: String = self.buffer.drain(..end + 2).collect();
                let mut data = None;
                for line in event.lines() {
                    if let Some(id) = line.strip_prefix("id: ") {
                        self.last_event_id = Some(id.to_owned());
                    }
                    if let Some(text) = line.strip_prefix("data: ").filter(|text| !text.is_empty())
                    {
                        data = Some(serde_json::from_str(text).unwrap());
                    }
                }
                if data.is_some() {
                    return data;
                }
            }
            let chunk = tokio::time::timeout(PATIENCE, self.stream.next())
                .await
                .expect("an event in time");
            self.buffer
                .push_str(std::str::from_utf8(&chunk?.ok()?).unwrap());
        }
    }

    /// The next message with this method; what came before it is dropped.
    pub async fn method(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await.expect("an open stream");
            if message["method"] == method {
                return message;
            }
        }
    }

    /// The response at the end.
    pub async fn response(&mut self) -> Value {
        loop {
            let message = self.next().await.expect("a response");
            if message.get("method").is_none() {
                return message;
            }
        }
    }
}
