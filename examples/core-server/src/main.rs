//! The conformance suite's core fixture on plain rmcp, alone (`--plain`) or with tasks in front (`--plane`): nothing that
//! is not about tasks may change. `interop/conformance` runs the suite against both.
#![forbid(unsafe_code)]

mod inputs;
mod server;

use std::{error::Error, process::ExitCode, sync::Arc};

use axum::Router;
use mcp_tasks::{TaskContext, TaskError, TaskTool, Tasks};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};
use serde_json::Value;
use tokio::net::TcpListener;
use tracing_subscriber::filter::LevelFilter;

use server::CoreServer;

const USAGE: &str = "core-server --http ADDRESS:PORT --plain | --plane";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (["--http", address, mode] | [mode, "--http", address]) = arguments[..] else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(LevelFilter::WARN)
        .init();
    let app = match mode {
        "--plain" => plain(),
        "--plane" => plane(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match serve(address, app).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("core-server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn plain() -> Result<Router, Box<dyn Error>> {
    let server = CoreServer::default();
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    Ok(Router::new().nest_service("/mcp", service))
}

fn plane() -> Result<Router, Box<dyn Error>> {
    let server = CoreServer::default();
    let tool = TaskTool::new("count_slowly")
        .description("A task, which the suite's core knows nothing of")
        .run(async |_: TaskContext, _: Value| Ok::<_, TaskError>("one, two, three"));
    let tasks = Tasks::builder().tool(tool).bearer_ids().build()?;
    let config = StreamableHttpServerConfig::default();
    let service = tasks.streamable_http(move || Ok(server.clone()), config)?;
    Ok(Router::new().nest_service("/mcp", service))
}

async fn serve(address: &str, app: Result<Router, Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(address).await?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    tokio::select! {
        ended = axum::serve(listener, app?).into_future() => Ok(ended?),
        ended = tokio::signal::ctrl_c() => Ok(ended?),
    }
}
