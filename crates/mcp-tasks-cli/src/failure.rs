//! How a command ends when it does not end well.

use std::{fmt::Display, process::ExitCode};

use mcp_tasks::client::TaskClientError;
use rmcp::model::ErrorData;
use serde::Serialize;

use crate::{
    exit::Exit,
    text::{self, json_line},
};

/// What is said on stderr, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    exit: Exit,
    task: Option<String>,
    error: Option<ErrorData>,
}

impl Failure {
    /// Something failed: exit code 1.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::exit(Exit::Failed, message)
    }

    /// It was called wrongly: exit code 2.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::exit(Exit::Usage, message)
    }

    /// A signal ended it: exit code 128 and the signal's number.
    pub(crate) fn signal(name: &str, number: u8) -> Self {
        Self::exit(Exit::Signal(number), format!("stopped by {name}"))
    }

    pub(crate) fn exit(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            exit,
            task: None,
            error: None,
        }
    }

    /// Says what was being done: `doing: error`.
    pub(crate) fn at(doing: &str) -> impl Fn(&dyn Display) -> Self {
        move |error| Self::new(format!("{doing}: {error}"))
    }

    /// The task it is about, which the message names.
    pub(crate) fn about(mut self, task: &str) -> Self {
        self.task.get_or_insert_with(|| task.to_owned());
        if !self.message.contains(task) {
            self.message = format!("task {task}: {}", self.message);
        }
        self
    }

    /// Says in front of it what was being done.
    pub(crate) fn within(mut self, doing: &str) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }

    /// With something more to say.
    pub(crate) fn and(mut self, more: &str) -> Self {
        self.message = format!("{}\n{more}", self.message);
        self
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn kind(&self) -> Exit {
        self.exit
    }

    /// Tells it: on stderr, and with `--json` as the last line of stdout too.
    pub(crate) fn report(self, json: bool) -> ExitCode {
        if json {
            let line = Line {
                event: "error",
                kind: self.exit.name(),
                exit: self.exit.code(),
                message: &self.message,
                task: self.task.as_deref(),
                error: self.error.as_ref(),
            };
            text::out(&json_line(&line));
        }
        // Messages have words of servers in them.
        text::err(&format!("mcp-tasks: {}", text::clean(&self.message)));
        self.exit.into()
    }
}

/// The last line of `--json` when something went wrong.
#[derive(Serialize)]
struct Line<'a> {
    event: &'static str,
    kind: &'static str,
    exit: u8,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<&'a str>,
    /// The JSON-RPC error.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a ErrorData>,
}

impl From<TaskClientError> for Failure {
    fn from(error: TaskClientError) -> Self {
        let exit = match &error {
            TaskClientError::Cancelled { .. } => Exit::Cancelled,
            TaskClientError::Expired { .. } => Exit::Expired,
            TaskClientError::Rpc(_) | TaskClientError::Ticket(_) => Exit::Failed,
            TaskClientError::Timeout { .. } | TaskClientError::Deadline { .. } => Exit::Deadline,
            TaskClientError::TasksUnsupported(_) => Exit::NoTasks,
            TaskClientError::Config(_) => Exit::Usage,
            _ => Exit::Lost,
        };
        let task = error.task_id().map(str::to_owned);
        let message = match &error {
            TaskClientError::Rpc(error) => {
                format!(
                    "the server answered with error {}: {}",
                    error.code.0, error.message
                )
            }
            error => error.to_string(),
        };
        let error = match error {
            TaskClientError::Rpc(error) => Some(error),
            _ => None,
        };
        Self {
            message,
            exit,
            task,
            error,
        }
    }
}
