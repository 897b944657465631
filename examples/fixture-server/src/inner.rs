//! The wrapped server: tools that know nothing of tasks.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use rmcp::{
    ServerHandler,
    handler::server::wrapper::Parameters,
    model::{Implementation, ServerCapabilities, ServerConfig},
    tool, tool_handler, tool_router,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// A plain rmcp server. Clones share the counter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inner {
    counter: Arc<AtomicU64>,
}

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[tool_router]
impl Inner {
    /// What `count_side_effects` counts.
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        self.counter.clone()
    }

    #[tool(description = "Greets somebody")]
    async fn greet(&self, Parameters(Name { name }): Parameters<Name>) -> String {
        format!("Hello, {name}!")
    }

    #[tool(description = "Says what it was told")]
    async fn plain_echo(&self, Parameters(Text { text }): Parameters<Text>) -> String {
        text
    }

    #[tool(description = "How far count_side_effects has counted in this process")]
    async fn read_counter(&self) -> String {
        self.counter.load(Ordering::Relaxed).to_string()
    }
}

#[tool_handler]
impl ServerHandler for Inner {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build()).with_server_info(
            Implementation::new("fixture-server", env!("CARGO_PKG_VERSION")),
        )
    }
}
