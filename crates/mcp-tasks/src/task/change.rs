//! The transitions: `(record, change, now) -> record | refusal`.

use std::sync::Arc;

use super::{
    Answer, Input, InputState, Outcome, Question, RawJson, State, TaskRecord, Timestamp, WorkerId,
};

/// The longest status message that is kept, in bytes of UTF-8 (longer ones are cut at a character).
pub(crate) const MAX_STATUS_MESSAGE: usize = 1024;

/// What can happen to a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Tell a person something else about the present state; `None` removes the text.
    Status(Option<Arc<str>>),
    /// Ask the requestor something.
    Ask {
        /// The key: new in this task.
        key: Arc<str>,
        /// What is asked.
        question: Question,
    },
    /// Take the answer to an open question.
    Answer {
        /// The question's key.
        key: Arc<str>,
        /// The answer.
        answer: Answer,
    },
    /// Give up on an open question.
    Withdraw {
        /// The question's key.
        key: Arc<str>,
    },
    /// Save something for a later attempt.
    Checkpoint(RawJson),
    /// End with an outcome.
    Finish {
        /// The outcome.
        outcome: Outcome,
        /// What a person is told about it; an older text does not outlive its state.
        message: Option<Arc<str>>,
        /// How long from now the outcome has to stay readable at the least, in milliseconds. Lengthens the ttl
        /// where that would end earlier.
        retain_ms: u64,
    },
    /// End by a cancel.
    Cancel {
        /// What a person is told about it.
        message: Option<Arc<str>>,
    },
    /// Another worker takes the body over: the attempt rises by one.
    TakeOver {
        /// The new worker.
        worker: WorkerId,
    },
}

/// Who a body writes as. A change under a fence is refused once another worker has taken the task over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The writer.
    pub worker: WorkerId,
    /// The attempt it runs.
    pub attempt: u32,
}

/// Why a change was not made. The record stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The task has ended; terminal is final.
    #[error("the task has already ended")]
    Terminal,
    /// Another worker has taken the task over.
    #[error("another worker has taken the task over")]
    Fenced,
    /// The key was used before in this task.
    #[error("the input key {0:?} was already used in this task")]
    KeyUsed(Arc<str>),
    /// The task never asked a question with this key.
    #[error("the task has no input with the key {0:?}")]
    UnknownKey(Arc<str>),
    /// The question was answered or withdrawn before.
    #[error("the input {0:?} is no longer open")]
    NotOpen(Arc<str>),
    /// The change would change nothing.
    #[error("nothing would change")]
    Unchanged,
}

impl TaskRecord {
    /// The record after `change` at `now`, or why there is none. Pure: the present record is not touched.
    ///
    /// # Errors
    /// A [`Refusal`]; see there.
    pub fn apply(
        &self,
        change: Change,
        now: Timestamp,
        fence: Option<&Fence>,
    ) -> Result<TaskRecord, Refusal> {
        if self.is_terminal() {
            return Err(Refusal::Terminal);
        }
        if let Some(fence) = fence
            && (self.worker.as_ref() != Some(&fence.worker) || self.attempt != fence.attempt)
        {
            return Err(Refusal::Fenced);
        }
        let mut next = self.clone();
        match change {
            Change::Status(message) => {
                let message = message.map(cut_message);
                if message == self.status_message {
                    return Err(Refusal::Unchanged);
                }
                next.status_message = message;
            }
            Change::Ask { key, question } => {
                if self.input(&key).is_some() {
                    return Err(Refusal::KeyUsed(key));
                }
                next.inputs.push(Arc::new(Input {
                    key,
                    question,
                    state: InputState::Open,
                    asked_at: now,
                }));
            }
            Change::Answer { key, answer } => next.settle(&key, InputState::Answered(answer))?,
            Change::Withdraw { key } => next.settle(&key, InputState::Withdrawn)?,
            Change::Checkpoint(saved) => next.checkpoint = Some(saved),
            Change::Finish {
                outcome,
                message,
                retain_ms,
            } => {
                next.state = State::Finished(outcome);
                next.status_message = message.map(cut_message);
                next.ttl_ms = self.ttl_ms.map(|ttl| {
                    ttl.max(now.millis_since(self.created_at).saturating_add(retain_ms))
                });
                next.checkpoint = None;
            }
            Change::Cancel { message } => {
                next.state = State::Cancelled;
                next.status_message = message.map(cut_message);
                next.checkpoint = None;
            }
            Change::TakeOver { worker } => {
                next.worker = Some(worker);
                next.attempt = self.attempt.saturating_add(1);
            }
        }
        // A text said about one state does not outlive it.
        if next.phase() != self.phase()
            && next.status_message == self.status_message
            && !next.is_terminal()
        {
            next.status_message = None;
        }
        next.revision = self.revision + 1;
        next.updated_at = now.max(self.updated_at);
        Ok(next)
    }

    fn settle(&mut self, key: &Arc<str>, state: InputState) -> Result<(), Refusal> {
        let input = self
            .inputs
            .iter_mut()
            .find(|input| input.key == *key)
            .ok_or_else(|| Refusal::UnknownKey(key.clone()))?;
        if !input.is_open() {
            return Err(Refusal::NotOpen(key.clone()));
        }
        *input = Arc::new(Input {
            state,
            ..(**input).clone()
        });
        Ok(())
    }

    /// Whether the step from `before` to this record is one a requestor is told about: another phase or text.
    pub fn tells_more_than(&self, before: &TaskRecord) -> bool {
        self.phase() != before.phase() || self.status_message != before.status_message
    }
}

/// `message`, at most [`MAX_STATUS_MESSAGE`] bytes of it, cut at a character.
fn cut_message(message: Arc<str>) -> Arc<str> {
    if message.len() <= MAX_STATUS_MESSAGE {
        return message;
    }
    let mut end = MAX_STATUS_MESSAGE;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message[..end].into()
}
