//! A server on Streamable HTTP, and a client of it: one connection a message, which is all that these tests need.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    process::{Command, Stdio as Pipe},
    sync::mpsc::channel,
    time::Instant,
};

use serde_json::Value;

use crate::{
    Client, PATIENCE, Process,
    body::Body,
    client::{Ids, answer_to, answers, notification},
};

/// The process of a server that says on stderr where it listens: `listening on http://HOST:PORT/PATH`.
#[derive(Debug)]
pub struct HttpServer {
    process: Process,
    authority: String,
    path: String,
}

impl HttpServer {
    /// Starts it and waits until it listens.
    pub fn start(command: &mut Command) -> Self {
        let mut process = Process::start(
            command
                .stdin(Pipe::null())
                .stdout(Pipe::null())
                .stderr(Pipe::piped()),
        );
        let Some(stderr) = process.child().stderr.take() else {
            panic!("the server has no stderr");
        };
        let (found, listening) = channel();
        std::thread::spawn(move || {
            // To the end, so that the server never waits for a reader.
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                match line.strip_prefix("listening on http://") {
                    Some(url) => drop(found.send(url.to_owned())),
                    None => eprintln!("server: {line}"),
                }
            }
        });
        let url = match listening.recv_timeout(PATIENCE) {
            Ok(url) => url,
            Err(error) => panic!("the server does not say where it listens: {error}"),
        };
        let (authority, path) = match url.split_once('/') {
            Some((authority, path)) => (authority.to_owned(), format!("/{path}")),
            None => (url, "/".to_owned()),
        };
        Self {
            process,
            authority,
            path,
        }
    }

    /// A client that has yet to [`initialize`](Client::initialize).
    pub fn client(&self) -> Http {
        Http {
            authority: self.authority.clone(),
            path: self.path.clone(),
            bearer: None,
            session: None,
            ids: Ids::default(),
        }
    }

    /// Kills the server, as a crash would.
    pub fn kill(self) {
        self.process.kill();
    }
}

/// A client.
#[derive(Debug)]
pub struct Http {
    authority: String,
    path: String,
    bearer: Option<String>,
    session: Option<String>,
    ids: Ids,
}

/// An answer of which the body has not been read.
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: BufReader<Body>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(have, _)| have == name)
            .map(|(_, value)| value.as_str())
    }

    fn is(&self, media_type: &str) -> bool {
        self.header("content-type")
            .is_some_and(|value| value.starts_with(media_type))
    }

    fn text(mut self) -> String {
        let mut text = String::new();
        if let Err(error) = std::io::Read::read_to_string(&mut self.body, &mut text) {
            panic!("the answer broke off: {error}");
        }
        text
    }

    /// The next event's data; `None` at the end of the stream.
    fn event(&mut self) -> Option<String> {
        let mut data = String::new();
        loop {
            let mut line = String::new();
            match self.body.read_line(&mut line) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => panic!("the stream broke off: {error}"),
            }
            let line = line.trim_end_matches(['\r', '\n']);
            match line.strip_prefix("data:") {
                Some(more) => data.push_str(more.trim_start()),
                None if line.is_empty() && !data.is_empty() => return Some(data),
                None => {}
            }
        }
    }
}

impl Http {
    /// The same client, with a bearer token on every message.
    #[must_use]
    pub fn bearer(mut self, token: &str) -> Self {
        self.bearer = Some(token.to_owned());
        self
    }

    /// The HTTP status of a POST of this message.
    pub fn status_of(&self, message: &Value) -> u16 {
        self.post(message).status
    }

    fn post(&self, message: &Value) -> Answer {
        match self.try_post(message) {
            Ok(answer) => answer,
            Err(error) => panic!("POST to {}: {error}", self.authority),
        }
    }

    fn try_post(&self, message: &Value) -> std::io::Result<Answer> {
        let body = message.to_string();
        let mut head = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\ncontent-length: {}\r\n",
            self.path,
            self.authority,
            body.len()
        );
        if let Some(token) = &self.bearer {
            head += &format!("authorization: Bearer {token}\r\n");
        }
        if message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28" {
            head += &once_headers(message);
        } else if let Some(session) = &self.session {
            head += &format!("mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n");
        }
        let mut stream = TcpStream::connect(&self.authority)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
        let mut read = BufReader::new(stream);
        let status = read_line(&mut read)?
            .split_whitespace()
            .nth(1)
            .and_then(|code| code.parse().ok())
            .ok_or_else(|| std::io::Error::other("not an HTTP answer"))?;
        let mut headers = Vec::new();
        loop {
            let line = read_line(&mut read)?;
            match line.split_once(':') {
                Some((name, value)) => {
                    headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
                }
                None => break,
            }
        }
        let body = BufReader::new(Body::new(&headers, read));
        Ok(Answer {
            status,
            headers,
            body,
        })
    }
}

/// What a message of 2026-07-28 repeats in its headers.
fn once_headers(message: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let params = &message["params"];
    let mut headers = format!(
        "mcp-protocol-version: 2026-07-28\r\nmcp-method: {}\r\n",
        text(&message["method"])
    );
    if let Some(name) = params.get("name").or(params.get("taskId")) {
        headers += &format!("mcp-name: {}\r\n", text(name));
    }
    headers
}

fn read_line(read: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    read.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

fn parse(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(message) => message,
        Err(error) => panic!("{text:?} is no message: {error}"),
    }
}

impl Client for Http {
    fn exchange(
        &mut self,
        method: &str,
        params: Value,
        seen: &mut dyn FnMut(&Value) -> Option<Value>,
    ) -> Value {
        let (id, request) = self.ids.request(method, params);
        let mut answer = self.post(&request);
        if let Some(session) = answer.header("mcp-session-id") {
            self.session = Some(session.to_owned());
        }
        if !answer.is("text/event-stream") {
            let status = answer.status;
            let is_json = answer.is("application/json");
            let text = answer.text();
            assert!(is_json, "{method}: HTTP {status}: {text}");
            return parse(&text);
        }
        let until = Instant::now() + PATIENCE;
        while let Some(event) = answer.event() {
            assert!(
                Instant::now() < until,
                "{method}: no answer in {PATIENCE:?}"
            );
            let message = parse(&event);
            if answers(&message, &id) {
                return message;
            }
            if let Some(reply) = answer_to(&message, seen) {
                assert_eq!(self.post(&reply).status, 202, "answer to {message}");
            }
        }
        panic!("{method}: the stream ended without an answer");
    }

    fn notify(&mut self, method: &str, params: Value) {
        let status = self.post(&notification(method, params)).status;
        assert_eq!(status, 202, "{method}");
    }
}
