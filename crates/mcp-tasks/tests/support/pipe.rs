//! A client on a pipe: lines of JSON, nothing hidden.

use std::collections::VecDeque;

use mcp_tasks::Tasks;
use rmcp::ServerHandler;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf},
    task::JoinHandle,
};

use super::PATIENCE;

pub struct Pipe {
    write: WriteHalf<DuplexStream>,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    /// What arrived while something else was waited for.
    pub other: VecDeque<Value>,
    pub server: JoinHandle<Result<(), mcp_tasks::ServeError>>,
    next: u64,
}

impl Pipe {
    /// A server on the other end, not initialized.
    pub fn open<H: ServerHandler>(tasks: &Tasks, handler: H) -> Self {
        let (client, server) = tokio::io::duplex(1 << 20);
        let (read, write) = tokio::io::split(server);
        let tasks = tasks.clone();
        let server = tokio::spawn(async move { tasks.serve(handler, (read, write)).await });
        let (read, write) = tokio::io::split(client);
        Self {
            write,
            lines: BufReader::new(read).lines(),
            other: VecDeque::new(),
            server,
            next: 0,
        }
    }

    /// The same, initialized at a revision.
    pub async fn at<H: ServerHandler>(version: &str, tasks: &Tasks, handler: H) -> (Self, Value) {
        Self::with(tasks, handler, super::initialize(version)).await
    }

    pub async fn with<H: ServerHandler>(
        tasks: &Tasks,
        handler: H,
        initialize: Value,
    ) -> (Self, Value) {
        let mut pipe = Self::open(tasks, handler);
        let answer = pipe.request("initialize", initialize).await;
        pipe.notify("notifications/initialized", json!({})).await;
        (pipe, answer["result"].clone())
    }

    pub async fn raw(&mut self, bytes: &[u8]) {
        self.write.write_all(bytes).await.unwrap();
    }

    pub async fn send(&mut self, message: &Value) {
        self.raw(format!("{message}\n").as_bytes()).await;
    }

    pub async fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
            .await;
    }

    /// Sends a request; its id.
    pub async fn begin(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        id
    }

    /// The next message, whatever it is.
    pub async fn next(&mut self) -> Value {
        if let Some(message) = self.other.pop_front() {
            return message;
        }
        self.read().await
    }

    async fn read(&mut self) -> Value {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        let line = line
            .expect("a message in time")
            .unwrap()
            .expect("an open pipe");
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }

    /// Waits for the message that `wanted` accepts; others are kept.
    pub async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.other.iter().position(&wanted) {
            return self.other.remove(at).unwrap();
        }
        loop {
            let message = self.read().await;
            if wanted(&message) {
                return message;
            }
            self.other.push_back(message);
        }
    }

    /// The response to a request.
    pub async fn answer(&mut self, id: u64) -> Value {
        self.until(|message| message["id"] == id && message.get("method").is_none())
            .await
    }

    /// The next message with this method.
    pub async fn method(&mut self, method: &str) -> Value {
        self.until(|message| message["method"] == method).await
    }

    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params).await;
        self.answer(id).await
    }

    pub async fn create(&mut self, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments, "task": {"ttl": 60000}});
        let answer = self.request("tools/call", params).await;
        let task = answer["result"]["task"].clone();
        assert!(task["taskId"].is_string(), "no task: {answer}");
        task
    }

    /// Answers a question that was put.
    pub async fn reply(&mut self, question: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}))
            .await;
    }

    pub async fn accept(&mut self, question: &Value, name: &str) {
        self.reply(
            question,
            json!({"action": "accept", "content": {"name": name}}),
        )
        .await;
    }

    /// Everything that was sent before this comes back after it: what arrived meanwhile.
    pub async fn fence(&mut self) -> Vec<Value> {
        let id = self.begin("ping", json!({})).await;
        let mut seen: Vec<Value> = self.other.drain(..).collect();
        loop {
            let message = self.read().await;
            if message["id"] == id {
                return seen;
            }
            seen.push(message);
        }
    }

    /// Nothing more will be sent.
    pub async fn end_input(&mut self) {
        self.write.shutdown().await.unwrap();
    }

    /// Closes the client's end and waits for the server to end.
    pub async fn close(self) -> Result<(), mcp_tasks::ServeError> {
        drop(self.write);
        drop(self.lines);
        tokio::time::timeout(PATIENCE, self.server)
            .await
            .expect("the server ends")
            .unwrap()
    }
}
