//! The edges: stdio and HTTP in front of any rmcp server.
//!
//! A [`Tasks`] reads raw JSON-RPC, answers what concerns tasks itself and hands everything else to the inner server
//! untouched. `plane` decides what a message is and answers it, `delivery` decides where questions and notifications
//! go, `requests` puts requests of ours to a client (`client_tasks`), `session` knows who is connected;
//! `augment` makes tasks of the inner server's own tools; `v2026_07_28` answers the requests of that revision, which know no sessions; `stdio` and `http` are the two transports.

// What only HTTP uses is part of the machine all the same.
#![cfg_attr(not(feature = "http"), allow(dead_code))]

mod augment;
mod builder;
mod call;
#[cfg(feature = "client")]
mod client_tasks;
mod delivery;
#[cfg(feature = "http")]
mod http;
mod outlet;
mod patch;
mod plane;
mod requests;
mod session;
mod stdio;
mod v2026_07_28;

pub use augment::Augment;
pub use builder::{Tasks, TasksBuilder};
#[cfg(feature = "client")]
pub use client_tasks::ClientTasks;
#[cfg(feature = "http")]
pub use http::{BodyError, HttpOptions, McpBody, TasksHttp, TasksLayer};
pub use stdio::ServeError;
