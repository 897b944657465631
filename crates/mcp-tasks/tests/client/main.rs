//! The client against servers that follow a script, over lines and over HTTP.
#![cfg(all(feature = "client", feature = "http"))]
#![allow(clippy::unwrap_used)]

mod ends;
mod features;
mod http;
mod lies;
mod lines;
mod modern;
mod modern_calls;
mod modern_http;
mod modern_lies;
mod modern_probe;
mod questions;
mod script;
mod seed;
#[path = "../support/mod.rs"]
mod support;
mod tickets;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use mcp_tasks::client::{TaskEvent, TaskStream};
use rmcp::{
    ClientHandler,
    model::{
        CallToolRequestParams, CallToolResult, ClientConfig, ContentBlock, ElicitRequestParams,
        ElicitResult, ElicitationAction, ErrorData, MetaObject,
    },
    service::{RequestContext, RoleClient},
};
use serde_json::json;
use tokio::sync::Notify;

/// Answers every question with its number, when it is let.
#[derive(Clone, Default)]
struct Person {
    asked: Arc<AtomicUsize>,
    cancelled: Arc<Notify>,
    /// Whether the person thinks until somebody says otherwise.
    thinks: Option<Arc<Notify>>,
    /// Whether the number is written as a text.
    writes: bool,
}

impl Person {
    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// A client that declares elicitation, and nothing else.
fn elicits() -> ClientConfig {
    let mut config = ClientConfig::default();
    config.capabilities = serde_json::from_value(json!({"elicitation": {}})).unwrap();
    config
}

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        elicits()
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(thinks) = &self.thinks {
            tokio::select! {
                () = thinks.notified() => {}
                () = context.ct.cancelled() => self.cancelled.notify_one(),
            }
        }
        let mut answer = ElicitResult::new(ElicitationAction::Accept);
        answer.content = Some(match self.writes {
            true => json!({ "name": number.to_string() }),
            false => json!({ "name": number }),
        });
        answer.meta = serde_json::from_value::<MetaObject>(json!({"mine": true})).ok();
        Ok(answer)
    }
}

fn call(tool: &'static str) -> CallToolRequestParams {
    CallToolRequestParams::new(tool)
}

fn text_of(result: &CallToolResult) -> &str {
    match &result.content[..] {
        [ContentBlock::Text(text)] => &text.text,
        other => panic!("{other:?}"),
    }
}

/// The names of all events, up to the end.
async fn names(mut events: TaskStream) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(event) = events.next().await {
        names.push(match event {
            TaskEvent::Created(task) => format!("created {}", task.task_id),
            TaskEvent::Status(task) => format!("status {}", task.status),
            TaskEvent::Progress(step) => format!("progress {}", step.progress),
            TaskEvent::Result(result) => format!("result {}", text_of(&result)),
            TaskEvent::Error(error) => format!("error {error}"),
            other => panic!("{other:?}"),
        });
    }
    names
}
