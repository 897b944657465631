//! What happens, one step after the other. Every step has a deadline that names it.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use mcp_tasks::client::{
    CallOptions, ProtocolChoice, TaskClient, TaskEvent, TaskStatus, TaskStream,
};
use rmcp::model::{CallToolRequestParams, CallToolResult, JsonObject};
use serde_json::json;

use super::{
    child::Server,
    event::Event,
    person::Person,
    printer::Printer,
    server::{IMPORT, Imported, REPORT},
};
use crate::failure::Failure;

/// How long a step may take, or the next event of a task let wait for itself.
const DEADLINE: Duration = Duration::from_secs(60);
/// The steps of the second task.
const STEPS: u32 = 12;
/// The server is killed when the client has seen that this many are done and saved.
const KILL_AFTER: u32 = 4;

pub(super) struct Story {
    db: PathBuf,
    person: Person,
    printer: Printer,
    server: Option<Server>,
}

/// A call that is followed.
struct Call {
    tool: &'static str,
    task: String,
    events: TaskStream,
    /// The last status that was told, and its message.
    told: Option<(TaskStatus, Option<String>)>,
}

impl Story {
    pub(super) fn new(db: PathBuf, person: Person, printer: Printer) -> Self {
        Self {
            db,
            person,
            printer,
            server: None,
        }
    }

    /// Tells it to the end.
    pub(super) async fn tell(&mut self) -> Result<(), Failure> {
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = self.start(anywhere).await?;
        let (url, addr) = (server.url(), server.addr());
        let started = format!(
            "server: started as process {}, {url}, tasks in {}",
            server.pid(),
            self.db.display()
        );
        self.printer.note(started);
        // The story counts steps of progress, which are no events of 2026-07-28.
        let connecting = TaskClient::builder(self.person.clone())
            .protocol(ProtocolChoice::V2025_11_25)
            .http(&url);
        let client = within("connecting to the server", connecting)
            .await?
            .map_err(|e| Failure::at("connecting to the server")(&e))?;

        let mut report = call(&client, REPORT, JsonObject::new());
        let result = self.follow(&mut report, |_| false).await?;
        self.first_result(&report, &result.ok_or_else(unfinished)?)?;

        let arguments = JsonObject::from_iter([("steps".to_owned(), json!(STEPS))]);
        let mut import = call(&client, IMPORT, arguments);
        let mut saved = 0;
        let reached = |step| {
            saved = step;
            step >= KILL_AFTER
        };
        if self.follow(&mut import, reached).await?.is_some() {
            return Err(Failure::new(
                "the second task was over before the server could be killed",
            ));
        }
        self.kill(&import, saved).await?;
        let server = self.start(addr).await?;
        let (pid, url) = (server.pid(), server.url());
        self.printer.event(&Event::ServerRestarted {
            pid,
            url: &url,
            db: &self.db.display().to_string(),
        });
        // The same client goes on: it has tried to reach the server all the time.
        let result = self.follow(&mut import, |_| false).await?;
        self.second_result(&import, &result.ok_or_else(unfinished)?, saved)?;

        within("leaving the server", client.close()).await?;
        within("stopping the server", self.clean_up()).await?;
        self.printer
            .note("done: the second task survived the death of its server".into());
        Ok(())
    }

    /// Ends the server if there is one.
    pub(super) async fn clean_up(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop().await;
        }
    }

    async fn start(&mut self, addr: SocketAddr) -> Result<&Server, Failure> {
        let doing = match addr.port() {
            0 => "starting the server",
            _ => "restarting the server on the same port",
        };
        let server = within(doing, Server::start(&self.db, addr)).await??;
        Ok(self.server.insert(server))
    }

    async fn kill(&mut self, call: &Call, saved: u32) -> Result<(), Failure> {
        let Some(mut server) = self.server.take() else {
            return Err(Failure::new("there is no server to kill"));
        };
        within("killing the server", server.kill()).await??;
        self.printer.event(&Event::ServerKilled {
            pid: server.pid(),
            task: &call.task,
            step: saved,
        });
        Ok(())
    }

    /// Tells what happens until the result is there, or until `reached` says so of the steps done.
    async fn follow(
        &mut self,
        call: &mut Call,
        mut reached: impl FnMut(u32) -> bool,
    ) -> Result<Option<CallToolResult>, Failure> {
        let tool = call.tool;
        loop {
            let Some(server) = &mut self.server else {
                return Err(Failure::new("there is no server"));
            };
            let event = tokio::select! {
                event = call.events.next() => event,
                failure = server.ended() => return Err(failure),
                () = tokio::time::sleep(DEADLINE) => {
                    // A person takes their time.
                    if self.person.is_thinking() {
                        continue;
                    }
                    return Err(Failure::new(format!(
                        "waiting for {tool}: nothing happened for {} s", DEADLINE.as_secs()
                    )));
                }
            };
            match event {
                Some(TaskEvent::Created(info)) => {
                    call.task = info.task_id;
                    self.printer.event(&Event::Created {
                        tool,
                        task: &call.task,
                        status: info.status,
                    });
                }
                Some(TaskEvent::Status(info)) => {
                    // Every saved step moves the time of the last change; that is not worth a line.
                    let told = Some((info.status, info.status_message));
                    if call.told == told {
                        continue;
                    }
                    call.told = told;
                    let message = call
                        .told
                        .as_ref()
                        .and_then(|(_, message)| message.as_deref());
                    self.printer.event(&Event::Status {
                        tool,
                        task: &call.task,
                        status: info.status,
                        message,
                    });
                }
                Some(TaskEvent::Progress(step)) => {
                    self.printer.event(&Event::Progress {
                        tool,
                        task: &call.task,
                        progress: step.progress,
                        total: step.total,
                        message: step.message.as_deref(),
                    });
                    if reached(step.progress as u32) {
                        return Ok(None);
                    }
                }
                Some(TaskEvent::Result(result)) => return Ok(Some(result)),
                Some(TaskEvent::Error(error)) => return Err(Failure::at(tool)(&error)),
                Some(other) => self.printer.note(format!("{tool}: {other:?}")),
                None => return Err(unfinished()),
            }
        }
    }

    fn first_result(&self, call: &Call, result: &CallToolResult) -> Result<(), Failure> {
        let text = text_of(call, result)?;
        self.printer.event(&Event::Result {
            tool: call.tool,
            task: &call.task,
            text: &text,
            attempts: 1,
            resumed_from: 0,
        });
        Ok(())
    }

    /// The task has to have gone on in the new process, and not from its start.
    fn second_result(
        &self,
        call: &Call,
        result: &CallToolResult,
        saved: u32,
    ) -> Result<(), Failure> {
        let text = text_of(call, result)?;
        let content = result.structured_content.clone().unwrap_or_default();
        let imported: Imported = serde_json::from_value(content)
            .map_err(|e| Failure::at("the second task's result cannot be read")(&e))?;
        self.printer.event(&Event::Result {
            tool: call.tool,
            task: &call.task,
            text: &text,
            attempts: imported.attempts,
            resumed_from: imported.resumed_from,
        });
        if imported.attempts < 2 || imported.resumed_from < saved || imported.steps != STEPS {
            return Err(Failure::new(format!(
                "the second task was to go on from step {saved} or later, but says {imported:?}"
            )));
        }
        Ok(())
    }
}

fn call(client: &TaskClient, tool: &'static str, arguments: JsonObject) -> Call {
    let params = CallToolRequestParams::new(tool).with_arguments(arguments);
    Call {
        tool,
        task: String::new(),
        events: client.call_tool_stream(params, CallOptions::new()),
        told: None,
    }
}

/// The first text of a result; an error if the tool says that it failed, or never was a task.
fn text_of(call: &Call, result: &CallToolResult) -> Result<String, Failure> {
    let text = result.content.iter().find_map(|block| block.as_text());
    let text = text.map(|text| text.text.clone()).unwrap_or_default();
    match (result.is_error, call.task.is_empty()) {
        (Some(true), _) => Err(Failure::at(call.tool)(&text)),
        (_, true) => Err(Failure::at(call.tool)(
            &"the server made no task of the call",
        )),
        (_, false) => Ok(text),
    }
}

fn unfinished() -> Failure {
    Failure::new("the events of a call ended without its result")
}

/// Runs one step, for [`DEADLINE`] at the longest.
async fn within<T>(doing: &str, step: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::time::timeout(DEADLINE, step)
        .await
        .map_err(|_| Failure::new(format!("{doing}: not done within {} s", DEADLINE.as_secs())))
}
