//! The task tools, by what they do: [`wait`], [`ask`], [`fail`], [`special`], work done [`outside`], and by the
//! [`client`](client_task).

mod ask;
mod client_task;
mod fail;
mod outside;
mod special;
mod wait;

use std::sync::{Arc, atomic::AtomicU64};

use mcp_tasks::{Recovery, TaskSupport, TaskTool};
use schemars::JsonSchema;
use serde::Deserialize;

pub(crate) use outside::Jobs;

/// Every task tool of the server.
pub(crate) fn all(counter: Arc<AtomicU64>, jobs: &Jobs) -> Vec<TaskTool> {
    [
        wait::tools(),
        ask::tools(),
        fail::tools(),
        special::tools(counter),
        outside::tools(jobs),
        client_task::tools(),
    ]
    .concat()
}

/// Arguments of a tool that takes none.
#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// A tool that may be called as a task, and runs again when its worker stopped.
fn optional(name: &str) -> TaskTool {
    TaskTool::new(name)
        .support(TaskSupport::Optional)
        .recovery(Recovery::Rerun)
}

/// A tool that is always a task, and runs again when its worker stopped.
fn required(name: &str) -> TaskTool {
    TaskTool::new(name).recovery(Recovery::Rerun)
}
