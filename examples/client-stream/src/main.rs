//! Calls one tool of an MCP server and prints what happens, task or not; answers its questions at the terminal:
//! `client-stream TOOL '{"json": "arguments"}' URL`, or `… -- COMMAND ARGUMENT…` for a server on stdio.
use std::{error::Error, io};

use mcp_tasks::client::{CallOptions, TaskClient, TaskEvent};
use rmcp::{ClientHandler, model::*, service::RequestContext, service::RoleClient};

struct Terminal;

impl ClientHandler for Terminal {
    fn get_info(&self) -> ClientConfig {
        let form = ElicitationCapability::new().with_form(FormElicitationCapability::default());
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(form);
        ClientConfig::new(capabilities, Implementation::new("client-stream", "0.1.0"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        println!("question: {request:?}\ntype the answer as JSON, or nothing to decline:");
        let read = tokio::task::spawn_blocking(|| io::stdin().lines().next());
        let line = read
            .await
            .ok()
            .flatten()
            .and_then(Result::ok)
            .unwrap_or_default();
        Ok(match serde_json::from_str(&line) {
            Ok(content) => ElicitResult::new(ElicitationAction::Accept).with_content(content),
            Err(_) => ElicitResult::new(ElicitationAction::Decline),
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || {
        arguments
            .next()
            .ok_or("usage: client-stream TOOL JSON URL | -- COMMAND…")
    };
    let (tool, json, server) = (next()?, next()?, next()?);
    let client = if server == "--" {
        let mut command = tokio::process::Command::new(next()?);
        command.args(arguments);
        TaskClient::child(Terminal, command).await?
    } else {
        TaskClient::http(Terminal, server).await?
    };
    let call = CallToolRequestParams::new(tool).with_arguments(serde_json::from_str(&json)?);
    let mut events = client.call_tool_stream(call, CallOptions::new());
    while let Some(event) = events.next().await {
        match event {
            TaskEvent::Created(task) => println!("created: {}", task.task_id),
            TaskEvent::Status(task) => {
                println!("status: {} {:?}", task.status, task.status_message)
            }
            TaskEvent::Progress(step) => {
                println!("progress: {} of {:?}", step.progress, step.total)
            }
            TaskEvent::Result(result) => println!("result: {}", serde_json::to_string(&result)?),
            TaskEvent::Error(error) => return Err(error.into()),
            _ => {}
        }
    }
    client.close().await;
    Ok(())
}
