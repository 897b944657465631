//! A task tool beside a plain one, on standard input and output. What it keeps survives it: a client that comes back
//! finds its tasks again, and a render that was interrupted goes on from the last frame that was saved.
//!
//!     cargo run -p stdio-server -- tasks.db
#![forbid(unsafe_code)]

use std::{error::Error, time::Duration};

use mcp_tasks::{
    Recovery, TaskContext, TaskError, TaskSupport, TaskTool, Tasks, store::SqliteStore,
};
use rmcp::{handler::server::wrapper::Parameters, tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;

/// The server as it is without tasks: plain rmcp. All that is no task goes to it.
struct Studio;

#[derive(Deserialize, JsonSchema)]
struct Length {
    seconds: u32,
}

#[tool_router(server_handler)]
impl Studio {
    #[tool(description = "How many frames a film of that length has")]
    async fn frames(&self, Parameters(Length { seconds }): Parameters<Length>) -> String {
        (24 * seconds).to_string()
    }
}

#[derive(Deserialize, JsonSchema)]
struct Film {
    /// How many frames to render.
    frames: u32,
}

/// Takes long. It may be dropped at any `await` and begun again by another process, so it saves how far it is.
async fn render(cx: TaskContext, Film { frames }: Film) -> Result<String, TaskError> {
    let first = cx.restored()?.unwrap_or(0);
    for frame in first..frames {
        tokio::time::sleep(Duration::from_millis(20)).await; // the work
        cx.checkpoint(&(frame + 1)).await?;
        cx.progress(f64::from(frame + 1), Some(f64::from(frames)), None);
    }
    Ok(format!("rendered {frames} frames, {first} of them earlier"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).unwrap_or("tasks.db".into());
    let tasks = Tasks::builder()
        .store(SqliteStore::open(file)?)
        .tool(
            TaskTool::new("render")
                .description("Renders a film")
                // As a task for clients that know those, else as a plain call that takes its time.
                .support(TaskSupport::Optional)
                // If this process stops, the next one runs the body again.
                .recovery(Recovery::Rerun)
                .input::<Film>()
                .run(render),
        )
        .build()?;
    tasks.serve_stdio(Studio).await?; // until the client closes our input
    tasks.shutdown(Duration::from_millis(100)).await; // what still runs is the next process's
    Ok(())
}
