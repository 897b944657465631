//! Questions of a running task to its requestor.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ErrorObject, RawJson, Timestamp};

/// What kind of thing a task asks of its requestor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum InputKind {
    /// Ask the user to fill in a form.
    ElicitForm,
    /// Ask the user to visit a URL.
    ElicitUrl,
    /// Ask the requestor's model for a completion.
    Sample,
    /// Ask for the requestor's roots.
    ListRoots,
}

/// A question to put: its kind and the parameters of the request that carries it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The kind.
    pub kind: InputKind,
    /// The parameters, without protocol metadata.
    pub params: RawJson,
}

/// What came back for a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The result the requestor gave, as it came.
    Result(RawJson),
    /// The JSON-RPC error the requestor gave.
    Error(ErrorObject),
}

/// Where a question stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputState {
    /// Nobody has answered yet.
    Open,
    /// Answered; it stays answered.
    Answered(Answer),
    /// The body gave up on it (a timeout of its own, say); answers are ignored from here on.
    Withdrawn,
}

/// One question of a task, with a key unique in the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// The key; never used again in this task.
    pub key: Arc<str>,
    /// What is asked.
    pub question: Question,
    /// Where it stands.
    pub state: InputState,
    /// When it was asked.
    pub asked_at: Timestamp,
}

impl Input {
    /// Whether an answer would still be taken.
    pub fn is_open(&self) -> bool {
        self.state == InputState::Open
    }
}
