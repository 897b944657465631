//! JSON-RPC and the two task generations: JSON to domain and back. Knows no transport.
//!
//! [`envelope`] splits a message into borrowed parts, [`object`] patches objects without touching the members it does
//! not know, [`status`] is the one table that maps a record to each generation's status. What one protocol revision
//! says is a file (or folder) that bears its name, so that the next revision is one more file.

pub mod envelope;
pub mod error;
pub mod field;
pub mod object;
pub mod status;
pub mod v2025_11_25;
pub mod v2026_07_28;
