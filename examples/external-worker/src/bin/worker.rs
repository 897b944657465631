//! The worker: a program that knows nothing of MCP. It works off the directory of jobs, and ends each job's task through
//! a handle on it.
//!
//!     cargo run -p external-worker --bin shout-worker -- tasks.db jobs
#![forbid(unsafe_code)]

use std::{error::Error, path::Path, sync::Arc, time::Duration};

use mcp_tasks::{
    TaskError, TaskHandle,
    store::{SqliteStore, TaskStore},
};
use tokio::time::sleep;

/// The work.
async fn shout(job: &Path) -> Result<String, TaskError> {
    let text = tokio::fs::read_to_string(job)
        .await
        .map_err(|e| TaskError::tool(format!("The job cannot be read: {e}")))?;
    sleep(Duration::from_millis(100)).await;
    Ok(text.to_uppercase())
}

/// Does one job, unless nobody wants its result any more.
async fn perform(job: &Path, task: &TaskHandle) -> Result<(), TaskError> {
    task.status("being worked on").await?;
    tokio::select! {
        biased;
        ended = task.ended() => { ended?; } // cancelled, or its lifetime has passed
        done = shout(job) => {
            match done {
                Ok(text) => task.complete(text).await?,
                Err(error) => task.fail(error).await?,
            };
        }
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let store = SqliteStore::open(arguments.next().unwrap_or("tasks.db".into()))?;
    let store: Arc<dyn TaskStore> = Arc::new(store);
    let jobs = arguments.next().unwrap_or("jobs".into());
    std::fs::create_dir_all(&jobs)?;
    loop {
        for entry in std::fs::read_dir(&jobs)? {
            let job = entry?.path();
            let Some(id) = job.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            if job.extension().is_some() {
                continue; // not written to the end yet
            }
            if let Some(task) = TaskHandle::attach(store.clone(), id).await? {
                perform(&job, &task)
                    .await
                    .map_err(|e| format!("{id}: {e:?}"))?;
            }
            // Only now: a worker that is killed before begins this job again.
            std::fs::remove_file(&job)?;
        }
        sleep(Duration::from_millis(100)).await;
    }
}
