//! How a command ends when it does not end well.

use std::{fmt::Display, process::ExitCode};

/// What is said on stderr, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// Something failed: exit code 1.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: 1,
        }
    }

    /// It was called wrongly: exit code 2.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: 2,
        }
    }

    /// A signal ended it: exit code 128 and the signal's number.
    pub(crate) fn signal(name: &str, number: u8) -> Self {
        Self {
            message: format!("stopped by {name}"),
            code: 128 + number,
        }
    }

    /// Says what was being done: `doing: error`.
    pub(crate) fn at(doing: &str) -> impl Fn(&dyn Display) -> Self {
        move |error| Self::new(format!("{doing}: {error}"))
    }

    pub(crate) fn report(self) -> ExitCode {
        eprintln!("mcp-tasks: {}", self.message);
        ExitCode::from(self.code)
    }
}
