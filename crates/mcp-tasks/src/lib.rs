//! Durable, long-running tool calls for MCP servers and clients.

pub mod store;
pub mod task;
pub mod wire;
