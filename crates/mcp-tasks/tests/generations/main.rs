//! Both generations on one endpoint, and clients without tasks: real servers over HTTP and pipes, and every message of
//! 2026-07-28 checked against its schema.
#![allow(clippy::unwrap_used, unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;

mod across;
mod augmented;
mod augmented_faults;
mod bytes;
mod cases;
mod four;
mod headers;
mod listen;
mod mrtr;
mod once;
mod pipe;
mod refusals;
mod schema;
mod tasks;

use mcp_tasks::{Tasks, TasksBuilder};
use support::{
    Greeter,
    http::Served,
    tools::{self, Gates},
};

/// A server whose bearer tokens are its owners.
fn owners(builder: TasksBuilder) -> Tasks {
    builder
        .owner(|parts| {
            let token = parts.headers.get("authorization")?.to_str().ok()?;
            token.strip_prefix("Bearer ").map(str::to_owned)
        })
        .build()
        .unwrap()
}

struct World {
    tasks: Tasks,
    gates: Gates,
    served: Served,
}

impl World {
    async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    async fn with(more: impl FnOnce(TasksBuilder) -> TasksBuilder) -> Self {
        Self::over(Greeter, more).await
    }

    /// In front of another inner server.
    async fn over<H: rmcp::ServerHandler + Clone + Sync>(
        inner: H,
        more: impl FnOnce(TasksBuilder) -> TasksBuilder,
    ) -> Self {
        let gates = Gates::default();
        let tasks = owners(more(tools::all(&gates)));
        let served = Served::start(&tasks, inner).await;
        Self {
            tasks,
            gates,
            served,
        }
    }

    /// A client of 2026-07-28 that declares the extension.
    fn once(&self) -> once::Once {
        once::Once::new(&self.served.url, "alice")
    }

    /// One that does not.
    fn plain(&self) -> once::Once {
        once::Once::plain(&self.served.url, "alice")
    }

    /// A client with a session.
    async fn session(&self, version: &str) -> support::http::Client {
        let mut client = support::http::Client::with_token(&self.served.url, "alice");
        client.initialize(version).await;
        client
    }
}
