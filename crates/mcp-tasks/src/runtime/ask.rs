//! Asking the requestor: the question waits in the store, not in a connection.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::model::ElicitationSchema;
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{Engine, ReadError, TaskError, engine::UpdateError};
use crate::{
    store::{Access, StoreError},
    task::{
        self, Answer, Change, ErrorObject, Fence, InputKind, InputState, Permissions, RawJson,
        Refusal, TaskId,
    },
};

/// What a person did with a form or a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Elicitation<T> {
    /// Filled it in.
    Accept(T),
    /// Refused.
    Decline,
    /// Dismissed it without a choice.
    Cancel,
}

impl<T> Elicitation<T> {
    /// What was filled in.
    pub fn accepted(self) -> Option<T> {
        match self {
            Self::Accept(content) => Some(content),
            Self::Decline | Self::Cancel => None,
        }
    }
}

/// Why there is no answer to a question.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The requestor did not declare the capability it takes.
    #[error("the requestor does not support {0}")]
    Unsupported(&'static str),
    /// The requestor answered with a JSON-RPC error.
    #[error("the requestor answered with error {}: {}", .0.code, .0.message)]
    Rejected(ErrorObject),
    /// The requestor's answer has the wrong shape.
    #[error("the requestor's answer has the wrong shape: {0}")]
    InvalidAnswer(String),
    /// The question has no JSON form, or its schema is not one MCP allows.
    #[error("the question cannot be put: {0}")]
    InvalidQuestion(String),
    /// The key was used for another kind of question.
    #[error("the input key {0:?} was already used for another question")]
    KeyInUse(String),
    /// The task was cancelled, has expired, or was taken over while it waited.
    #[error("the task has ended")]
    TaskEnded,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<InputError> for TaskError {
    fn from(error: InputError) -> Self {
        match error {
            InputError::Rejected(error) => Self::relayed(error),
            InputError::TaskEnded => Self::gone(),
            InputError::Store(error) => error.into(),
            InputError::Unsupported(capability) => Self::unsupported(capability),
            other => Self::internal(other.to_string()),
        }
    }
}

/// Something to ask a requestor.
#[derive(Debug, Clone)]
pub struct Question {
    pub(crate) kind: InputKind,
    pub(crate) params: Value,
    pub(crate) key: Option<String>,
}

impl Question {
    pub(crate) fn of(kind: InputKind, params: Value) -> Self {
        Self {
            kind,
            params,
            key: None,
        }
    }

    /// A form with the fields of `T` (flat, of primitive types: 2025-11-25 `client/elicitation`).
    ///
    /// # Errors
    /// [`InputError::InvalidQuestion`] if `T` is not such a type.
    pub fn form<T: JsonSchema>(message: impl Into<String>) -> Result<Self, InputError> {
        let schema = ElicitationSchema::from_type::<T>()
            .map_err(|e| InputError::InvalidQuestion(e.to_string()))?;
        Ok(Self::form_schema(message, &schema))
    }

    /// A form with a schema of your making.
    pub fn form_schema(message: impl Into<String>, schema: &ElicitationSchema) -> Self {
        Self::of(
            InputKind::ElicitForm,
            json!({"mode": "form", "message": message.into(), "requestedSchema": schema}),
        )
    }

    /// A URL to visit, for what must not pass through the client (2025-11-25 `client/elicitation`, URL mode).
    pub fn url(message: impl Into<String>, url: impl Into<String>) -> Self {
        Self::of(
            InputKind::ElicitUrl,
            json!({
                "mode": "url", "message": message.into(), "url": url.into(),
                "elicitationId": uuid::Uuid::new_v4().to_string(),
            }),
        )
    }

    /// A completion by the requestor's model.
    ///
    /// # Errors
    /// [`InputError::InvalidQuestion`] if the parameters have no JSON form.
    #[allow(deprecated)]
    pub fn sample(params: &rmcp::model::CreateMessageRequestParams) -> Result<Self, InputError> {
        let params =
            serde_json::to_value(params).map_err(|e| InputError::InvalidQuestion(e.to_string()))?;
        Ok(Self::of(InputKind::Sample, params))
    }

    /// The requestor's roots.
    pub fn roots() -> Self {
        Self::of(InputKind::ListRoots, json!({}))
    }

    /// A key of your own instead of one by the order of questions: unique in the task, and the same on every attempt.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }
}

/// Who asks: which task, under which fence, and what tells that the asker itself was stopped.
#[derive(Clone)]
pub(crate) struct Asker {
    pub(crate) engine: Arc<Engine>,
    pub(crate) task: TaskId,
    pub(crate) fence: Option<Fence>,
    pub(crate) stopped: Option<CancellationToken>,
}

impl Asker {
    /// Puts the question, waits for its answer, and returns that. On a later attempt a recorded answer is returned at
    /// once, and a question that is still open is waited for, not asked anew.
    pub(crate) async fn ask(
        &self,
        capabilities: Option<&RawJson>,
        key: String,
        question: Question,
    ) -> Result<RawJson, InputError> {
        let params = RawJson::from_serialize(&question.params)
            .map_err(|e| InputError::InvalidQuestion(e.to_string()))?;
        Permissions::of(capabilities)
            .allow(question.kind, &params)
            .map_err(InputError::Unsupported)?;
        let question = task::Question {
            kind: question.kind,
            params,
        };
        let answer = loop {
            let asking = self.engine.asking.begin(&self.task);
            let mut withdraw = Withdraw::new(self, key.clone(), question.clone());
            let name = withdraw.put().await?;
            drop(asking);
            let answer = self.await_answer(&name).await;
            withdraw.put = None;
            match answer? {
                Some(answer) => break answer,
                // Withdrawn for somebody who asked under the same key before: it is a new question now.
                None => continue,
            }
        };
        match answer {
            Answer::Result(json) => Ok(json),
            Answer::Error(error) => Err(InputError::Rejected(error)),
        }
    }

    /// Sees to it that the question is in the record; under which key.
    async fn put(&self, key: String, question: task::Question) -> Result<Arc<str>, InputError> {
        let mut again = 1;
        let mut name: Arc<str> = key.as_str().into();
        loop {
            let record = match self.engine.get(&self.task, &Access::System).await {
                Ok(record) => record,
                Err(ReadError::Store(error)) => return Err(error.into()),
                Err(_) => return Err(InputError::TaskEnded),
            };
            match record.input(&name) {
                Some(input) if input.question.kind != question.kind => {
                    return Err(InputError::KeyInUse(name.to_string()));
                }
                // Given up on before: ask again, under a key of its own.
                Some(input) if input.state == InputState::Withdrawn => {
                    again += 1;
                    name = format!("{key}~{again}").into();
                }
                Some(_) => return Ok(name),
                None => {
                    let change = Change::Ask {
                        key: name.clone(),
                        question: question.clone(),
                    };
                    match self.change(Some(record), &change).await {
                        Ok(_) => {
                            tracing::debug!(task = %self.task, key = &*name, "input required");
                            return Ok(name);
                        }
                        Err(UpdateError::Refused(Refusal::KeyUsed(_), _)) => {}
                        Err(UpdateError::Store(error)) => return Err(error.into()),
                        Err(_) => return Err(InputError::TaskEnded),
                    }
                }
            }
        }
    }

    /// The answer; `None` if the question was withdrawn.
    async fn await_answer(&self, key: &str) -> Result<Option<Answer>, InputError> {
        enum Found {
            Answered(Answer),
            Withdrawn,
            Ended,
        }
        let fenced = |record: &task::TaskRecord| {
            self.fence.as_ref().is_some_and(|fence| {
                record.attempt != fence.attempt || record.worker.as_ref() != Some(&fence.worker)
            })
        };
        let found = self
            .engine
            .wait_until(&self.task, &Access::System, |record| {
                match record.input(key).map(|input| &input.state) {
                    _ if fenced(record) => Some(Found::Ended),
                    Some(InputState::Answered(answer)) => Some(Found::Answered(answer.clone())),
                    _ if record.is_terminal() => Some(Found::Ended),
                    Some(InputState::Open) => None,
                    Some(InputState::Withdrawn) => Some(Found::Withdrawn),
                    None => Some(Found::Ended),
                }
            })
            .await;
        match found {
            Ok(Found::Answered(answer)) => Ok(Some(answer)),
            Ok(Found::Withdrawn) => Ok(None),
            Err(ReadError::Store(error)) => Err(error.into()),
            Ok(Found::Ended) | Err(_) => Err(InputError::TaskEnded),
        }
    }

    async fn change(
        &self,
        hint: Option<Arc<task::TaskRecord>>,
        change: &Change,
    ) -> Result<Arc<task::TaskRecord>, UpdateError> {
        let fence = self.fence.as_ref();
        self.engine
            .update(&self.task, &Access::System, fence, hint, change)
            .await
    }
}

/// The questions that are being put in this process, so that those asked together can be told together.
#[derive(Default)]
pub(crate) struct Askings {
    tasks: Mutex<HashMap<TaskId, usize>>,
    put: Notify,
}

/// A question that is being put.
pub(crate) struct AskingGuard<'a> {
    askings: &'a Askings,
    task: &'a TaskId,
}

impl Askings {
    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, usize>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin<'a>(&'a self, task: &'a TaskId) -> AskingGuard<'a> {
        *self.lock().entry(task.clone()).or_default() += 1;
        AskingGuard {
            askings: self,
            task,
        }
    }

    /// Completes when no question of the task is being put.
    pub(crate) async fn settled(&self, task: &TaskId) {
        loop {
            let mut put = std::pin::pin!(self.put.notified());
            put.as_mut().enable();
            if !self.lock().contains_key(task) {
                return;
            }
            put.await;
        }
    }
}

impl Drop for AskingGuard<'_> {
    fn drop(&mut self) {
        let mut tasks = self.askings.lock();
        if let Some(count) = tasks.get_mut(self.task) {
            *count -= 1;
            if *count == 0 {
                tasks.remove(self.task);
            }
        }
        drop(tasks);
        self.askings.put.notify_waiters();
    }
}

/// Withdraws the question when the body gives up on it (a timeout of its own): nobody is to be asked it later. Not
/// when the body was stopped from outside: then it is still open, for the next attempt.
struct Withdraw<'a> {
    asker: &'a Asker,
    put: Option<Put>,
}

/// Putting the question is a task of its own: the body may give up on it half-way.
enum Put {
    Going(JoinHandle<Result<Arc<str>, InputError>>),
    Done(Arc<str>),
}

impl<'a> Withdraw<'a> {
    fn new(asker: &'a Asker, key: String, question: task::Question) -> Self {
        let own = asker.clone();
        let going = tokio::spawn(async move { own.put(key, question).await });
        Self {
            asker,
            put: Some(Put::Going(going)),
        }
    }

    async fn put(&mut self) -> Result<Arc<str>, InputError> {
        let put = match &mut self.put {
            Some(Put::Going(going)) => going.await.unwrap_or(Err(InputError::TaskEnded)),
            Some(Put::Done(key)) => Ok(key.clone()),
            None => Err(InputError::TaskEnded),
        };
        self.put = put.as_ref().ok().cloned().map(Put::Done);
        put
    }
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        let Some(put) = self.put.take() else { return };
        let stopped = self.asker.stopped.as_ref();
        if stopped.is_some_and(CancellationToken::is_cancelled) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let asker = self.asker.clone();
        runtime.spawn(async move {
            let key = match put {
                Put::Done(key) => key,
                Put::Going(going) => match going.await {
                    Ok(Ok(key)) => key,
                    Ok(Err(_)) | Err(_) => return,
                },
            };
            let change = Change::Withdraw { key };
            if let Err(UpdateError::Store(error)) = asker.change(None, &change).await {
                tracing::warn!(task = %asker.task, %error, "a question could not be withdrawn");
            }
        });
    }
}

/// Reads the answer to an elicitation.
pub(crate) fn read_elicitation<T: DeserializeOwned>(
    answer: &RawJson,
) -> Result<Elicitation<T>, InputError> {
    #[derive(Deserialize)]
    struct Given {
        action: String,
        #[serde(default)]
        content: Option<Value>,
    }
    let wrong = |e: String| InputError::InvalidAnswer(e);
    // A list would be read as the members in their order.
    if !answer.get().starts_with('{') {
        return Err(wrong("expected an object".to_owned()));
    }
    let given: Given = answer.parse().map_err(|e| wrong(e.to_string()))?;
    match given.action.as_str() {
        "accept" => {
            let content = given.content.unwrap_or(Value::Null);
            serde_json::from_value(content)
                .map(Elicitation::Accept)
                .map_err(|e| wrong(format!("content: {e}")))
        }
        "decline" => Ok(Elicitation::Decline),
        "cancel" => Ok(Elicitation::Cancel),
        other => Err(wrong(format!(
            "action: expected accept, decline or cancel, got {other:?}"
        ))),
    }
}

/// Reads any other answer.
pub(crate) fn read_answer<T: DeserializeOwned>(answer: &RawJson) -> Result<T, InputError> {
    answer
        .parse()
        .map_err(|e| InputError::InvalidAnswer(e.to_string()))
}
