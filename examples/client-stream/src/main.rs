//! Calls one tool of an MCP server and prints what happens, task or not; answers its questions at the terminal.
//! `client-stream TOOL '{"json": "arguments"}' URL`, or `… -- COMMAND ARGUMENT…` for a server on stdio.
use mcp_tasks::client::{CallOptions, TaskClient, TaskEvent};
use rmcp::{ClientHandler, model::*, service::RequestContext, service::RoleClient};
use std::{error::Error, io};
use tokio::{process::Command, task::block_in_place};

struct Terminal;

impl ClientHandler for Terminal {
    fn get_info(&self) -> ClientConfig {
        let mut config = ClientConfig::default();
        config.capabilities.elicitation = Some(ElicitationCapability::default());
        config
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        if let ElicitRequestParams::FormElicitationParams { message, .. } = request {
            println!("question: {message} (answer with JSON, or nothing to decline)");
        }
        let mut line = String::new();
        block_in_place(|| io::stdin().read_line(&mut line)).unwrap_or_default();
        Ok(match serde_json::from_str(&line) {
            Ok(content) => ElicitResult::new(ElicitationAction::Accept).with_content(content),
            Err(_) => ElicitResult::new(ElicitationAction::Decline),
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let mut word = || words.next().ok_or("arguments: TOOL JSON URL|-- COMMAND…");
    let (tool, json, server) = (word()?, word()?, word()?);
    let client = if server == "--" {
        let mut command = Command::new(word()?);
        command.args(words);
        TaskClient::child(Terminal, command).await?
    } else {
        TaskClient::http(Terminal, server).await?
    };
    let call = CallToolRequestParams::new(tool).with_arguments(serde_json::from_str(&json)?);
    let mut events = client.call_tool_stream(call, CallOptions::new());
    while let Some(event) = events.next().await {
        match event {
            TaskEvent::Created(task) => println!("created: {}", task.task_id),
            TaskEvent::Status(task) => println!("status: {}", task.status),
            TaskEvent::Progress(step) => println!("progress: {}", step.progress),
            TaskEvent::Result(result) => println!("result: {}", serde_json::to_string(&result)?),
            TaskEvent::Error(error) => Err(error)?,
            _ => {}
        }
    }
    client.close().await;
    Ok(())
}
