//! A counter on standard input and output, with a tool that takes its time.
#![forbid(unsafe_code)]

use std::{
    error::Error,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use mcp_tasks::{TaskSupport, Tasks, store::SqliteStore};
use rmcp::{
    RoleServer, handler::server::wrapper::Parameters, model::ProgressNotificationParam,
    service::RequestContext, tool, tool_router,
};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Default)]
struct Counter(AtomicU32);

#[derive(Deserialize, JsonSchema)]
struct Steps {
    /// How far to count.
    steps: u32,
}

#[tool_router(server_handler)]
impl Counter {
    #[tool(description = "Where the counter stands")]
    async fn value(&self) -> String {
        self.0.load(Ordering::Relaxed).to_string()
    }

    #[tool(description = "Counts on, slowly")]
    async fn count(
        &self,
        Parameters(Steps { steps }): Parameters<Steps>,
        context: RequestContext<RoleServer>,
    ) -> String {
        for step in 1..=steps {
            tokio::time::sleep(Duration::from_millis(100)).await; // the work
            self.0.fetch_add(1, Ordering::Relaxed);
            if let Some(token) = context.meta.get_progress_token() {
                let step = ProgressNotificationParam::new(token, step.into());
                let _ = context.peer.notify_progress(step).await;
            }
        }
        format!("counted to {}", self.0.load(Ordering::Relaxed))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let tasks = Tasks::builder()
        .store(SqliteStore::open("counter.db")?)
        .augment("count", TaskSupport::Optional)
        .build()?;
    tasks.serve_stdio(Counter::default()).await?;
    Ok(())
}
