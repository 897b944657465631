//! Durable, long-running tool calls for MCP servers and clients.

#[cfg(feature = "client")]
pub mod client;
pub mod store;
pub mod task;
pub mod wire;
