//! The example, and the client it is built on, against `fixture-server` over HTTP and stdio.
#![allow(clippy::unwrap_used)]

mod binary;
mod fixture;
mod person;
mod restart;
mod snippet;
mod tools;

use std::time::Duration;

use mcp_tasks::client::{TaskEvent, TaskStream};
use rmcp::model::{CallToolRequestParams, CallToolResult};
use serde_json::Value;

/// Fails if it takes suspiciously long.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what)
        .await
        .expect("one side waits for ever")
}

fn call(tool: &'static str, arguments: Value) -> CallToolRequestParams {
    let Value::Object(arguments) = arguments else {
        panic!("{arguments}")
    };
    CallToolRequestParams::new(tool).with_arguments(arguments)
}

fn text_of(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

/// All events up to the end, each as a few words.
async fn words(mut events: TaskStream) -> Vec<String> {
    let mut words = Vec::new();
    while let Some(event) = soon(events.next()).await {
        words.push(word(&event));
    }
    words
}

fn word(event: &TaskEvent) -> String {
    match event {
        TaskEvent::Created(_) => "created".to_owned(),
        TaskEvent::Status(task) => format!("status {}", task.status),
        TaskEvent::Progress(step) => format!("progress {}", step.progress),
        TaskEvent::Result(result) => format!("result {}", text_of(result)),
        TaskEvent::Error(error) => format!("error {error}"),
        other => panic!("{other:?}"),
    }
}
