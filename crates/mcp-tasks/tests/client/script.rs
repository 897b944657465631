//! Servers that follow a script: over lines, and over HTTP.

use std::net::SocketAddr;

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, Method, Request, Response},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf},
    sync::{mpsc, oneshot},
};

pub(crate) const RELATED: &str = "io.modelcontextprotocol/related-task";

/// `capabilities` of a server with everything.
pub(crate) fn with_tasks() -> Value {
    json!({"tools": {"listChanged": true}, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}})
}

pub(crate) fn initialized(capabilities: &Value) -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
        "serverInfo": {"name": "script", "version": "1"}})
}

pub(crate) fn task(status: &str) -> Value {
    json!({"taskId": "T", "status": status, "createdAt": "2025-11-25T10:30:00Z",
        "lastUpdatedAt": "2025-11-25T10:30:00Z", "ttl": 60000, "pollInterval": 200})
}

pub(crate) fn tools() -> Value {
    json!({"tools": [
        {"name": "slow", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}},
        {"name": "plain", "inputSchema": {"type": "object"}},
    ]})
}

pub(crate) fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

pub(crate) fn answer(request: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": request["id"], "result": result})
}

pub(crate) fn refusal(request: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}})
}

/// A question of the task `T`.
pub(crate) fn question(id: Value, key: Option<&str>) -> Value {
    let mut meta = json!({RELATED: {"taskId": "T"}});
    if let Some(key) = key {
        meta["mcp-tasks/input"] = json!(key);
    }
    json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {
        "mode": "form", "message": "Who?", "_meta": meta,
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}})
}

pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/tasks";
pub(crate) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// What a server of 2026-07-28 with tasks says of itself.
pub(crate) fn discovered() -> Value {
    json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private",
        "capabilities": {"tools": {"listChanged": true}, "extensions": {EXTENSION: {}}},
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "script", "version": "1"}}})
}

/// The task `T` as 2026-07-28 tells it, with what hangs on its status.
pub(crate) fn detailed(status: &str, more: Value) -> Value {
    let mut task = json!({"resultType": "complete", "taskId": "T", "status": status,
        "createdAt": "2026-07-28T10:30:00Z", "lastUpdatedAt": "2026-07-28T10:30:00Z",
        "ttlMs": 60000, "pollIntervalMs": 200});
    for (name, value) in more.as_object().unwrap() {
        task[name] = value.clone();
    }
    task
}

/// The handle of `T`.
pub(crate) fn handle() -> Value {
    detailed("working", json!({"resultType": "task"}))
}

/// `T` with its result.
pub(crate) fn completed(result: &str) -> Value {
    detailed("completed", json!({"result": text(result)}))
}

/// `T` with a question under each key.
pub(crate) fn asking(keys: &[&str]) -> Value {
    let mut requests = json!({});
    for key in keys {
        requests[key] = asked();
    }
    detailed("input_required", json!({"inputRequests": requests}))
}

/// A question inside a result.
pub(crate) fn asked() -> Value {
    json!({"method": "elicitation/create", "params": {"mode": "form", "message": "Who?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}})
}

/// The answer that asks first.
pub(crate) fn input_required(more: Value) -> Value {
    let mut result = json!({"resultType": "input_required"});
    for (name, value) in more.as_object().unwrap() {
        result[name] = value.clone();
    }
    result
}

/// The server's end of a line connection.
pub(crate) struct Script {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    out: WriteHalf<DuplexStream>,
    /// Whether it gets `server/discover` to see; else that is refused without a word.
    pub(crate) modern: bool,
}

impl Script {
    /// A script and the client's end.
    pub(crate) fn pair() -> (Self, (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>)) {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (read, out) = tokio::io::split(ours);
        (
            Self {
                lines: BufReader::new(read).lines(),
                out,
                modern: false,
            },
            tokio::io::split(theirs),
        )
    }

    /// The same, of 2026-07-28.
    pub(crate) fn modern_pair() -> (Self, (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>)) {
        let (script, io) = Self::pair();
        let modern = true;
        (Self { modern, ..script }, io)
    }

    /// Answers `server/discover`, and nothing else.
    pub(crate) async fn discover(&mut self) -> Value {
        self.serve("server/discover", discovered()).await
    }

    /// `server/discover`, and the creation of `T`.
    pub(crate) async fn until_handle(&mut self) -> Value {
        self.discover().await;
        self.serve("tools/call", handle()).await
    }

    /// The next message of the client; `None` when it is gone.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            let line = self.lines.next_line().await.unwrap()?;
            let message: Value = serde_json::from_str(&line).unwrap();
            if self.modern || message["method"] != "server/discover" {
                return Some(message);
            }
            self.send(refusal(&message, -32601, "what is that?")).await;
        }
    }

    /// The next message, which has to be this method.
    pub(crate) async fn expect(&mut self, method: &str) -> Value {
        let message = self.next().await.expect("the client is gone");
        assert_eq!(message["method"], method, "{message}");
        message
    }

    /// The next message, which has to be a response.
    pub(crate) async fn expect_answer(&mut self) -> Value {
        let message = self.next().await.expect("the client is gone");
        assert!(message.get("method").is_none(), "{message}");
        message
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.out
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    /// Sends a message to a client that may be gone.
    pub(crate) async fn try_send(&mut self, message: &Value) -> std::io::Result<()> {
        self.out.write_all(format!("{message}\n").as_bytes()).await
    }

    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        self.out.write_all(bytes).await.unwrap();
    }

    /// Expects a request and answers it.
    pub(crate) async fn serve(&mut self, method: &str, result: Value) -> Value {
        let request = self.expect(method).await;
        self.send(answer(&request, &result)).await;
        request
    }

    pub(crate) async fn handshake(&mut self, capabilities: Value) -> Value {
        let request = self.serve("initialize", initialized(&capabilities)).await;
        self.expect("notifications/initialized").await;
        request
    }

    /// Handshake, list of tools, and the creation of `T`.
    pub(crate) async fn until_created(&mut self) -> Value {
        self.handshake(with_tasks()).await;
        self.serve("tools/list", tools()).await;
        self.serve("tools/call", json!({"task": task("working")}))
            .await
    }
}

/// One HTTP request, waiting for its reply.
pub(crate) struct Exchange {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    reply: oneshot::Sender<Response<Body>>,
}

impl Exchange {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn reply(self, response: Response<Body>) {
        let _ = self.reply.send(response);
    }

    pub(crate) fn status(self, status: u16) {
        self.reply(
            Response::builder()
                .status(status)
                .body(Body::empty())
                .unwrap(),
        );
    }

    pub(crate) fn json(self, message: &Value) {
        self.reply(
            Response::builder()
                .header("content-type", "application/json")
                .header("mcp-session-id", "s1")
                .body(Body::from(message.to_string()))
                .unwrap(),
        );
    }

    /// Answers the request with a result, as JSON.
    pub(crate) fn result(self, result: &Value) {
        let message = answer(&self.body, result);
        self.json(&message);
    }

    /// Opens a stream of events.
    pub(crate) fn stream(self) -> mpsc::UnboundedSender<String> {
        let (sender, events) = mpsc::unbounded_channel::<String>();
        let events = futures_util::stream::unfold(events, |mut events| async move {
            let event = events.recv().await?;
            Some((Ok::<_, std::io::Error>(Bytes::from(event)), events))
        });
        self.reply(
            Response::builder()
                .header("content-type", "text/event-stream; charset=utf-8")
                .body(Body::from_stream(events))
                .unwrap(),
        );
        sender
    }
}

/// The server's end of an HTTP endpoint; GETs wait in a queue of their own.
pub(crate) struct HttpScript {
    pub(crate) address: SocketAddr,
    pub(crate) posts: mpsc::UnboundedReceiver<Exchange>,
    pub(crate) gets: mpsc::UnboundedReceiver<Exchange>,
}

impl HttpScript {
    /// One that knows no `server/discover`.
    pub(crate) async fn start() -> Self {
        Self::begin(false).await
    }

    /// One that gets everything to see.
    pub(crate) async fn modern() -> Self {
        Self::begin(true).await
    }

    async fn begin(modern: bool) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (to_posts, posts) = mpsc::unbounded_channel();
        let (to_gets, gets) = mpsc::unbounded_channel();
        let service = axum::routing::any(move |request: Request<Body>| {
            let (to_posts, to_gets) = (to_posts.clone(), to_gets.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                if !modern && body["method"] == "server/discover" {
                    let what = "Bad Request: no session";
                    return Response::builder()
                        .status(400)
                        .body(Body::from(what))
                        .unwrap();
                }
                let (reply, response) = oneshot::channel();
                let queue = if parts.method == Method::GET {
                    to_gets
                } else {
                    to_posts
                };
                let _ = queue.send(Exchange {
                    method: parts.method,
                    headers: parts.headers,
                    body,
                    reply,
                });
                response.await.unwrap_or_else(|_| {
                    Response::builder().status(500).body(Body::empty()).unwrap()
                })
            }
        });
        let app = axum::Router::new().route("/mcp", service);
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            posts,
            gets,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The next POST (or DELETE), which has to carry this method.
    pub(crate) async fn expect(&mut self, method: &str) -> Exchange {
        let exchange = self.posts.recv().await.unwrap();
        assert_eq!(exchange.body["method"], method, "{}", exchange.body);
        exchange
    }

    pub(crate) async fn serve(&mut self, method: &str, result: Value) {
        self.expect(method).await.result(&result);
    }

    pub(crate) async fn handshake(&mut self) {
        self.serve("initialize", initialized(&with_tasks())).await;
        self.expect("notifications/initialized").await.status(202);
    }
}

/// One SSE event with this message.
pub(crate) fn event(message: &Value) -> String {
    format!("data: {message}\n\n")
}
