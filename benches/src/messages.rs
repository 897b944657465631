//! The requests that are sent, in both generations, and what their answers look like.

use std::{io, net::SocketAddr};

use crate::{
    Fallible,
    load::{Conn, Head, Work, next_id},
    measure::Numbers,
};

/// Where a request's id goes. All ids have ten digits, so that all requests and answers of a kind have one size.
const ID: &str = "0000000000";
/// Where a task's id goes.
const TASK: &str = "00000000-0000-0000-0000-000000000000";
const FIRST_ID: u64 = 1_000_000_000;

/// How a client speaks.
#[derive(Debug, Clone)]
pub(crate) enum Speech {
    /// 2025-11-25, in the session of this id.
    Session(String),
    /// 2026-07-28: no session, everything in every request.
    Stateless,
}

const META: &str = concat!(
    r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"#,
    r#""io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#
);

const PLAIN_META: &str = concat!(
    r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"#,
    r#""io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}"#
);

/// The headers of a request of 2026-07-28.
fn once_headers(method: &str, name: &str) -> String {
    let name = match name {
        "" => String::new(),
        name => format!("mcp-name: {name}\r\n"),
    };
    format!("mcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n{name}")
}

/// A request with places for its id and its task's id.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    text: Vec<u8>,
    id_at: usize,
    task_at: Vec<usize>,
}

impl Template {
    fn new(speech: &Speech, method: &str, name: &str, params: &str) -> Self {
        let (headers, meta) = match speech {
            Speech::Session(session) => (
                format!("mcp-protocol-version: 2025-11-25\r\nmcp-session-id: {session}\r\n"),
                "",
            ),
            Speech::Stateless => (once_headers(method, name), META),
        };
        Self::with(&headers, meta, method, params)
    }

    fn with(headers: &str, meta: &str, method: &str, params: &str) -> Self {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{ID},"method":"{method}","params":{{{params}{meta}}}}}"#
        );
        let text = format!(
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: application/json, text/event-stream\r\n\
             content-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        // The id is the only such run of digits after the head but for that of the task.
        let id_at = text.find(&format!("\"id\":{ID}")).unwrap_or(0) + "\"id\":".len();
        let task_at = text.match_indices(TASK).map(|(at, _)| at).collect();
        Self {
            text: text.into_bytes(),
            id_at,
            task_at,
        }
    }

    /// A call of `tool` by a client of 2026-07-28 without the extension.
    pub(crate) fn plain(tool: &str, more: &str) -> Self {
        let params = format!(r#""name":"{tool}","arguments":{{}}{more}"#);
        Self::with(
            &once_headers("tools/call", tool),
            PLAIN_META,
            "tools/call",
            &params,
        )
    }

    /// The same by a client of 2025-11-25, in its session.
    pub(crate) fn plain_in(speech: &Speech, tool: &str) -> Self {
        let params = format!(r#""name":"{tool}","arguments":{{}}"#);
        Self::new(speech, "tools/call", tool, &params)
    }

    /// A subscription to some task.
    pub(crate) fn listen() -> Self {
        let params = format!(r#""notifications":{{"taskIds":["{TASK}"]}}"#);
        let method = "subscriptions/listen";
        Self::with(&once_headers(method, ""), META, method, &params)
    }

    /// `tasks/get` of some task.
    pub(crate) fn get(speech: &Speech) -> Self {
        let params = format!(r#""taskId":"{TASK}""#);
        Self::new(speech, "tasks/get", TASK, &params)
    }

    /// `tasks/result` of some task.
    pub(crate) fn result(speech: &Speech) -> Self {
        let params = format!(r#""taskId":"{TASK}""#);
        Self::new(speech, "tasks/result", TASK, &params)
    }

    /// A call of `tool` as a task.
    pub(crate) fn call(speech: &Speech, tool: &str) -> Self {
        let task = match speech {
            Speech::Session(_) => r#","task":{"ttl":3600000}"#,
            Speech::Stateless => "",
        };
        let params = format!(r#""name":"{tool}","arguments":{{}}{task}"#);
        Self::new(speech, "tools/call", tool, &params)
    }

    /// Writes the request.
    pub(crate) fn write(&self, id: u64, task: &str, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.text);
        let request = &mut out[start..];
        put(request, self.id_at, digits(id).as_bytes());
        for at in &self.task_at {
            put(request, *at, task.as_bytes());
        }
    }
}

fn put(request: &mut [u8], at: usize, text: &[u8]) {
    if let Some(place) = request.get_mut(at..at + text.len()) {
        place.copy_from_slice(text);
    }
}

fn digits(id: u64) -> String {
    (FIRST_ID + id).to_string()
}

/// Whether `body` holds the answer to request `id`.
pub(crate) fn answers(body: &[u8], id: u64) -> bool {
    has(body, format!("\"id\":{}", digits(id)).as_bytes())
}

pub(crate) fn has(body: &[u8], wanted: &[u8]) -> bool {
    let first = wanted.first().copied().unwrap_or(0);
    let mut rest = body;
    while let Some(at) = rest.iter().position(|byte| *byte == first) {
        rest = &rest[at..];
        if rest.starts_with(wanted) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

/// Begins a session of 2025-11-25.
pub(crate) async fn initialize(conn: &mut Conn) -> Fallible<Speech> {
    let body = concat!(
        r#"{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","#,
        r#""clientInfo":{"name":"bench","version":"1"},"capabilities":{"elicitation":{}}}}"#
    );
    let (head, answer) = conn.ask(post("", body).as_bytes()).await?;
    let answer = String::from_utf8_lossy(answer).into_owned();
    let session = head
        .session
        .ok_or_else(|| format!("no session: {} {answer}", head.status))?;
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let headers = format!("mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n");
    conn.ask(post(&headers, note).as_bytes()).await?;
    Ok(Speech::Session(session))
}

fn post(headers: &str, body: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: application/json, text/event-stream\r\n\
         content-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Calls `tool` as a task; the task's id. `None` if what comes back is no task.
pub(crate) async fn create(
    conn: &mut Conn,
    speech: &Speech,
    tool: &str,
) -> io::Result<Option<String>> {
    let mut request = Vec::new();
    Template::call(speech, tool).write(next_id(), "", &mut request);
    let (_, body) = conn.ask(&request).await?;
    let text = String::from_utf8_lossy(body);
    let id = text
        .split_once(r#""taskId":""#)
        .and_then(|(_, rest)| rest.split_once('"'));
    Ok(id.map(|(id, _)| id.to_owned()))
}

/// One connection to `to`, and how it speaks there.
pub(crate) async fn connect(to: SocketAddr, stateless: bool) -> Fallible<(Conn, Speech)> {
    let mut conn = Conn::open(to).await?;
    let speech = if stateless {
        Speech::Stateless
    } else {
        initialize(&mut conn).await?
    };
    Ok((conn, speech))
}

/// `tasks/get` of any of the tasks that a connection has, over and over.
pub(crate) struct Gets {
    /// By connection.
    pub(crate) clients: Vec<Template>,
    /// By connection, or one for all.
    pub(crate) tasks: Vec<Vec<String>>,
    /// What every answer says of its task.
    pub(crate) status: &'static str,
}

impl Gets {
    fn tasks(&self, conn: usize) -> &[String] {
        &self.tasks[conn % self.tasks.len()]
    }
}

impl Work for Gets {
    fn request(&self, conn: usize, id: u64, out: &mut Vec<u8>) -> usize {
        let tasks = self.tasks(conn);
        let at = Numbers::new(usize::try_from(id).unwrap_or(0)).below(tasks.len());
        self.clients[conn].write(id, &tasks[at], out);
        at
    }

    fn check(&self, conn: usize, id: u64, what: usize, head: &Head, body: &[u8]) -> bool {
        head.status == 200
            && answers(body, id)
            && has(body, self.tasks(conn)[what].as_bytes())
            && has(body, self.status.as_bytes())
    }
}

/// A task-augmented call, over and over.
pub(crate) struct Calls(pub(crate) Vec<Template>);

impl Work for Calls {
    fn request(&self, conn: usize, id: u64, out: &mut Vec<u8>) -> usize {
        self.0[conn].write(id, "", out);
        0
    }

    fn check(&self, _: usize, id: u64, _: usize, head: &Head, body: &[u8]) -> bool {
        head.status == 200 && answers(body, id) && has(body, br#""taskId":""#)
    }
}

/// A plain call, over and over.
pub(crate) struct PlainCalls(pub(crate) Vec<Template>);

impl Work for PlainCalls {
    fn request(&self, conn: usize, id: u64, out: &mut Vec<u8>) -> usize {
        self.0[conn].write(id, "", out);
        0
    }

    fn check(&self, _: usize, id: u64, _: usize, head: &Head, body: &[u8]) -> bool {
        head.status == 200 && answers(body, id) && has(body, br#""text":"done""#)
    }
}

/// The same requests as those of another server, to one that always answers the same.
pub(crate) struct Constant {
    pub(crate) asked: Gets,
    pub(crate) size: usize,
}

impl Work for Constant {
    fn request(&self, conn: usize, id: u64, out: &mut Vec<u8>) -> usize {
        self.asked.request(conn, id, out)
    }

    fn check(&self, _: usize, _: u64, _: usize, head: &Head, body: &[u8]) -> bool {
        head.status == 200 && body.len() == self.size
    }
}
