//! The runtime's promises, through its public interface alone; each test names the one it holds to (`F-03`).
//!
//! Time is tokio's, paused, and the runtime's clock reads it ([`support::clock`]): an hour passes in no time, and
//! nothing sleeps to give something else a chance.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "runtime/body.rs"]
mod body;
#[path = "runtime/cancel.rs"]
mod cancel;
#[path = "runtime/create.rs"]
mod create;
#[path = "runtime/faults.rs"]
mod faults;
#[path = "runtime/handle.rs"]
mod handle;
#[path = "runtime/limits.rs"]
mod limits;
#[path = "runtime/questions.rs"]
mod questions;
#[path = "runtime/recovery.rs"]
mod recovery;
#[path = "runtime/shutdown.rs"]
mod shutdown;
#[path = "runtime/support.rs"]
mod support;
#[path = "runtime/tools.rs"]
mod tools;
#[path = "runtime/waiting.rs"]
mod waiting;
