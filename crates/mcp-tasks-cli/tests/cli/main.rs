//! The program `mcp-tasks` as it is built, against `fixture-server` as it is built, over pipes, HTTP and pseudo-terminals.
#![allow(clippy::unwrap_used)]

mod asking;
mod detach;
#[cfg(unix)]
mod docs;
mod fixture;
mod json;
mod program;
#[cfg(unix)]
mod prompts;
mod protocol;
#[cfg(unix)]
mod signals;
mod state;
#[cfg(unix)]
mod terminal;
mod wrong;
