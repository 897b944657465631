//! The server as a process that can be killed, and a client that copes with that.
#![allow(dead_code, clippy::unwrap_used)]

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

/// No wait is longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A fixture-server over HTTP on a SQLite file, with owners. It dies with this value.
pub(crate) struct Server {
    child: Child,
    pub(crate) file: PathBuf,
    pub(crate) url: String,
    /// What it said on stderr.
    log: Arc<Mutex<String>>,
}

impl Server {
    pub(crate) async fn start(file: &Path, lease_ms: u64) -> Self {
        let mut store = std::ffi::OsString::from("sqlite:");
        store.push(file);
        let mut child = Command::new(env!("CARGO_BIN_EXE_fixture-server"))
            .args(["--http", "127.0.0.1:0", "--owner-from-bearer", "--store"])
            .arg(store)
            .args(["--lease-ms", &lease_ms.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the server starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
        let log: Arc<Mutex<String>> = Arc::default();
        let said = log.clone();
        let (found, listening) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let mut found = Some(found);
            while let Ok(Some(line)) = lines.next_line().await {
                if let (Some(url), true) = (line.strip_prefix("listening on "), found.is_some()) {
                    let _ = found.take().map(|found| found.send(url.to_owned()));
                }
                let mut said = said.lock().unwrap();
                said.push_str(&line);
                said.push('\n');
            }
        });
        let url = tokio::time::timeout(PATIENCE, listening)
            .await
            .expect("it listens in time")
            .unwrap_or_else(|_| panic!("it does not listen: {}", log.lock().unwrap()));
        Self {
            child,
            file: file.to_owned(),
            url,
            log,
        }
    }

    /// SIGKILL: nothing of it runs any more when this returns.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it can be killed");
    }

    /// Stops it in its tracks, or lets it go on.
    #[cfg(unix)]
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs").to_string();
        let sent = std::process::Command::new("kill")
            .args(["-s", name, &id])
            .status()
            .expect("kill(1) is there");
        assert!(sent.success());
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }
}

/// The connection was cut: whether the request was carried out is not known.
#[derive(Debug)]
pub(crate) struct Cut;

impl From<reqwest::Error> for Cut {
    fn from(error: reqwest::Error) -> Self {
        assert!(!error.is_timeout(), "no answer in time: {error:?}");
        Self
    }
}

/// One principal at one server; in a session, once it has one.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    token: &'static str,
    pub(crate) session: Option<String>,
}

impl Client {
    /// A client with a session of its own.
    pub(crate) async fn initialize(server: &Server, token: &'static str) -> Result<Self, Cut> {
        let mut client = Self {
            http: reqwest::Client::new(),
            url: server.url.clone(),
            token,
            session: None,
        };
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let response = client.post(&message).send().await?;
        assert_eq!(response.status(), 200);
        let session = response.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned();
        response.bytes().await?;
        client.session = Some(session);
        let notification = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(client.post(&notification).send().await?.status(), 202);
        Ok(client)
    }

    /// The same session at another server.
    pub(crate) fn at(&self, server: &Server) -> Self {
        Self {
            http: reqwest::Client::new(),
            url: server.url.clone(),
            ..self.clone()
        }
    }

    fn request(&self, method: Method) -> RequestBuilder {
        let mut request = self
            .http
            .request(method, &self.url)
            .bearer_auth(self.token)
            .header("accept", "application/json, text/event-stream")
            .timeout(PATIENCE);
        if let Some(session) = &self.session {
            request = request
                .header("mcp-session-id", session)
                .header("mcp-protocol-version", "2025-11-25");
        }
        request
    }

    fn post(&self, message: &Value) -> RequestBuilder {
        self.request(Method::POST)
            .header("content-type", "application/json")
            .body(message.to_string())
    }

    /// A request, its messages to be read one by one; the response is the last.
    pub(crate) async fn open(&self, method: &str, params: Value) -> Result<Messages, Cut> {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let response = self.post(&message).send().await?;
        assert_eq!(response.status(), 200, "{message}");
        Ok(Messages::new(response, message.to_string()))
    }

    /// The general stream.
    pub(crate) async fn listen(&self) -> Result<Messages, Cut> {
        let response = self.request(Method::GET).send().await?;
        assert_eq!(response.status(), 200);
        Ok(Messages::new(response, "the general stream".to_owned()))
    }

    /// A request and its response.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Result<Value, Cut> {
        self.open(method, params).await?.response().await
    }

    /// Creates a task; its first state.
    pub(crate) async fn create(&self, tool: &str, arguments: Value) -> Result<Value, Cut> {
        let params = json!({"name": tool, "arguments": arguments, "task": {"ttl": 600_000}});
        let mut answer = self.call("tools/call", params).await?;
        let task = answer["result"]["task"].take();
        assert!(task["taskId"].is_string(), "no task of {tool}: {answer}");
        Ok(task)
    }

    /// Answers a question; done when the answer is acknowledged.
    pub(crate) async fn accept(&self, question: &Value, name: &str) -> Result<(), Cut> {
        let result = json!({"action": "accept", "content": {"name": name}});
        let message = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
        let response = self.post(&message).send().await?;
        assert_eq!(response.status(), 202);
        Ok(())
    }
}

/// The messages of a response.
pub(crate) struct Messages {
    /// To what.
    request: String,
    response: Response,
    is_stream: bool,
    buffer: String,
}

impl Messages {
    fn new(response: Response, request: String) -> Self {
        let content_type = response.headers()["content-type"].to_str().unwrap();
        Self {
            request,
            is_stream: content_type.starts_with("text/event-stream"),
            response,
            buffer: String::new(),
        }
    }

    /// The next one; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, Cut> {
        loop {
            if self.is_stream {
                while let Some(end) = self.buffer.find("\n\n") {
                    let event: String = self.buffer.drain(..end + 2).collect();
                    let data = event.lines().find_map(|line| line.strip_prefix("data: "));
                    if let Some(data) = data.filter(|data| !data.is_empty()) {
                        return Ok(Some(serde_json::from_str(data).unwrap()));
                    }
                }
            }
            let chunk = self.response.chunk().await;
            if chunk.as_ref().is_err_and(reqwest::Error::is_timeout) {
                panic!("no answer in time to {}", self.request);
            }
            match chunk? {
                Some(chunk) => self.buffer.push_str(std::str::from_utf8(&chunk).unwrap()),
                // A body of known length that is cut is an error; a stream may just end.
                None if self.is_stream || self.buffer.is_empty() => return Ok(None),
                None => {
                    let body = std::mem::take(&mut self.buffer);
                    return Ok(Some(serde_json::from_str(&body).unwrap()));
                }
            }
        }
    }

    /// The response at the end.
    pub(crate) async fn response(&mut self) -> Result<Value, Cut> {
        loop {
            let message = self.next().await?.ok_or(Cut)?;
            if message.get("method").is_none() {
                return Ok(message);
            }
        }
    }

    /// The next question.
    pub(crate) async fn question(&mut self) -> Result<Value, Cut> {
        loop {
            let message = self.next().await?.ok_or(Cut)?;
            if message["method"] == "elicitation/create" {
                return Ok(message);
            }
            assert!(
                message.get("method").is_some(),
                "no question came before {message}"
            );
        }
    }
}

pub(crate) fn text(response: &Value) -> &str {
    response["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {response}"))
}

/// The parameters that name a task.
pub(crate) fn of(id: &str) -> Value {
    json!({ "taskId": id })
}
