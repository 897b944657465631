//! Durable, long-running tool calls for MCP servers and clients.

#[cfg(feature = "client")]
pub mod client;
pub mod runtime;
pub mod server;
pub mod store;
pub mod task;
pub mod wire;

pub use runtime::{
    BuildError, CreateContext, CreatedTask, Elicitation, InputError, Json, Limits, LogLevel,
    PollContext, Question, Recovery, Runtime, TaskContext, TaskError, TaskHandle, TaskOptions,
    TaskSupport, TaskTool,
};
#[cfg(feature = "http")]
pub use server::{BodyError, HttpOptions, McpBody, TasksHttp, TasksLayer};
pub use server::{ServeError, Tasks, TasksBuilder};
