//! A server that does no work itself: it hands every task to whatever works off the directory of jobs, and returns at
//! once. Server and worker share the store and the directory, and start and stop as they like.
//!
//!     cargo run -p external-worker --bin shout-server -- tasks.db jobs
#![forbid(unsafe_code)]

use std::{
    error::Error,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use mcp_tasks::{
    CreateContext, CreatedTask, TaskError, TaskOptions, TaskTool, Tasks, store::SqliteStore,
};
use rmcp::ServerHandler;
use schemars::JsonSchema;
use serde::Deserialize;

/// The server as it is without tasks; this one has nothing of its own.
struct Nothing;

impl ServerHandler for Nothing {}

#[derive(Deserialize, JsonSchema)]
struct Shout {
    text: String,
}

/// Creates the task and writes down what is to be done, under the task's id. That is all that the worker has to know.
async fn shout(
    cx: CreateContext,
    Shout { text }: Shout,
    jobs: &Path,
) -> Result<CreatedTask, TaskError> {
    let options = TaskOptions::new().status_message("waiting for a worker");
    let task = cx.create_task(options).await?;
    let job = jobs.join(task.id().as_str());
    // If this fails there is no task: what the handler created is removed again.
    put(&job, &text)
        .await
        .map_err(|e| TaskError::internal(format!("the job could not be written: {e}")))?;
    Ok(task)
}

/// Writes a file that is not there before it is whole.
async fn put(job: &Path, text: &str) -> std::io::Result<()> {
    let unfinished = job.with_extension("part");
    tokio::fs::write(&unfinished, text).await?;
    tokio::fs::rename(&unfinished, job).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let store = SqliteStore::open(arguments.next().unwrap_or("tasks.db".into()))?;
    let jobs: Arc<PathBuf> = Arc::new(arguments.next().unwrap_or("jobs".into()).into());
    std::fs::create_dir_all(&*jobs)?;
    let tool = TaskTool::new("shout")
        .description("Says it louder")
        .input::<Shout>()
        .create(move |cx, arguments| {
            let jobs = jobs.clone();
            async move { shout(cx, arguments, &jobs).await }
        });
    let tasks = Tasks::builder().store(store).tool(tool).build()?;
    tasks.serve_stdio(Nothing).await?;
    tasks.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
