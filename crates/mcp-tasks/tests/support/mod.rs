//! What the transport tests share: an inner rmcp server, task tools, and clients that speak raw JSON.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, missing_docs)]

pub mod http;
pub mod pipe;
pub mod tools;

use std::time::Duration;

use rmcp::{
    ServerHandler,
    handler::server::wrapper::Parameters,
    model::{ServerCapabilities, ServerConfig},
    schemars, tool, tool_handler, tool_router,
};
use serde_json::{Value, json};

/// No wait in a test is longer.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A finished server that knows nothing of tasks.
#[derive(Clone, Default)]
pub struct Greeter;

#[derive(serde::Deserialize, schemars::JsonSchema)]
pub struct Greet {
    pub name: String,
}

#[tool_router]
impl Greeter {
    #[tool(description = "Greets")]
    async fn greet(&self, Parameters(Greet { name }): Parameters<Greet>) -> String {
        format!("Hello, {name}!")
    }
}

#[tool_handler]
impl ServerHandler for Greeter {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

/// A server without any tools.
#[derive(Clone, Default)]
pub struct Bare;

impl ServerHandler for Bare {}

pub fn initialize(version: &str) -> Value {
    initialize_with(
        version,
        json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}),
    )
}

pub fn initialize_with(version: &str, capabilities: Value) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": capabilities,
        "clientInfo": {"name": "test", "version": "1"},
    })
}

pub fn text(result: &Value) -> &str {
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {result}"))
}

pub fn code(response: &Value) -> i64 {
    response["error"]["code"]
        .as_i64()
        .unwrap_or_else(|| panic!("no error in {response}"))
}
