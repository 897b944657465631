//! Task tools on Streamable HTTP with axum. There are no users here: whoever holds a task's unguessable id may use it.
//! `http-server-auth` shows how tasks belong to somebody.
//!
//!     cargo run -p http-server -- 127.0.0.1:8080
#![forbid(unsafe_code)]

use std::{error::Error, time::Duration};

use axum::{Router, serve::ListenerExt};
use mcp_tasks::{Elicitation, TaskContext, TaskError, TaskTool, Tasks};
use rmcp::{
    handler::server::wrapper::Parameters, tool, tool_router,
    transport::streamable_http_server::StreamableHttpServerConfig,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// The server as it is without tasks: plain rmcp. All that is no task goes to it.
#[derive(Clone)]
struct Travel;

#[derive(Deserialize, JsonSchema)]
struct Trip {
    /// Where to.
    city: String,
}

#[tool_router(server_handler)]
impl Travel {
    #[tool(description = "Whether we go there")]
    async fn serves(&self, Parameters(Trip { city }): Parameters<Trip>) -> String {
        format!("We go to {city}.")
    }
}

#[derive(Deserialize, JsonSchema)]
struct Choice {
    /// First or second class.
    class: u8,
}

/// Takes as long as it takes, and asks in between. The question waits in the store, not in a connection.
async fn book(cx: TaskContext, Trip { city }: Trip) -> Result<String, TaskError> {
    cx.status("looking for seats").await?;
    tokio::time::sleep(Duration::from_millis(300)).await; // the work
    let question = format!("There are seats to {city}. Which class?");
    match cx.elicit::<Choice>(question).await? {
        Elicitation::Accept(Choice { class }) => Ok(format!("Booked to {city}, class {class}.")),
        Elicitation::Decline | Elicitation::Cancel => Err(TaskError::tool("Nothing was booked.")),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let tasks = Tasks::builder() // in memory, unless .store(…) says otherwise
        .tool(
            TaskTool::new("book")
                .description("Books a trip")
                .input::<Trip>()
                .run(book),
        )
        .bearer_ids()
        .build()?;
    let mcp = tasks.streamable_http(|| Ok(Travel), StreamableHttpServerConfig::default())?;

    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    // Messages are small; without this they would wait for each other.
    let listener = listener.tap_io(|tcp| drop(tcp.set_nodelay(true)));
    let app = Router::new().nest_service("/mcp", mcp);
    tokio::select! {
        ended = axum::serve(listener, app) => ended?,
        _ = tokio::signal::ctrl_c() => tasks.shutdown(Duration::from_secs(5)).await,
    }
    Ok(())
}
