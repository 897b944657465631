//! Durable, long-running tool calls ([MCP Tasks]) for servers and clients on rmcp.
//!
//! A tool that takes minutes is written once, as a [`TaskTool`] on a [`Tasks`] in front of any rmcp server:
//!
//! ```no_run
//! use mcp_tasks::{TaskContext, TaskError, TaskTool, Tasks};
//!
//! # #[derive(Clone)] struct Inner;
//! # impl rmcp::ServerHandler for Inner {}
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let slow = TaskTool::new("slow").run(async |cx: TaskContext, _: serde_json::Value| {
//!     cx.progress(1.0, Some(2.0), Some("half way"));
//!     Ok::<_, TaskError>("done")
//! });
//! let tasks = Tasks::builder().tool(slow).build()?;
//! tasks.serve(Inner, tokio::io::split(tokio::io::duplex(64).0)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it is for |
//! |---|---|
//! | [`server`] | the edges: stdio and HTTP in front of any rmcp server |
//! | [`client`] | drives remote tasks |
//! | [`runtime`] | tools, bodies, waiting, asking, cancelling, expiring |
//! | [`store`] | where tasks are kept: memory, SQLite, or yours |
//! | [`task`] | the pure state machine |
//! | [`wire`] | JSON-RPC and the protocol revisions |
//!
//! [MCP Tasks]: https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks

#[cfg(feature = "client")]
pub mod client;
mod receiver;
pub mod runtime;
pub mod server;
pub mod store;
pub mod task;
pub mod wire;

/// rmcp's configuration of the inner HTTP service.
#[cfg(feature = "http")]
pub use rmcp::transport::StreamableHttpServerConfig;
pub use runtime::{
    BuildError, CreateContext, CreatedTask, Elicitation, InputError, Json, Limits, LogLevel,
    PollContext, Question, Recovery, Runtime, TaskContext, TaskError, TaskHandle, TaskOptions,
    TaskSupport, TaskTool,
};
#[cfg(feature = "client")]
pub use server::ClientTasks;
pub use server::{Augment, ServeError, Tasks, TasksBuilder};
#[cfg(feature = "http")]
pub use server::{BodyError, HttpOptions, McpBody, TasksHttp, TasksLayer};

/// The code in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The code in the documents beside it compiles too.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/generations.md")]
struct Generations;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/migrating.md")]
struct Migrating;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/adopting.md")]
struct Adopting;
