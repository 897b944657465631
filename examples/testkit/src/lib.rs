//! Starts the example servers and talks to them in raw JSON-RPC, as a client in any language would.
//!
//! For tests: whatever goes wrong panics, and every wait ends after [`PATIENCE`]. [`Stdio`] is a client that owns its
//! server's process; [`HttpServer`] is a server's process, [`Http`] a client of it. Both speak 2025-11-25; within
//! [`Modern`] they speak 2026-07-28.
#![forbid(unsafe_code)]

mod body;
mod client;
mod http;
mod modern;
mod process;
mod stdio;

use std::time::Duration;

pub use client::Client;
pub use http::{Http, HttpServer};
pub use modern::{Modern, TASKS};
pub use process::Process;
pub use stdio::Stdio;

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(30);
