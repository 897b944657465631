//! A handle with which anyone on the same store updates or ends a task.

use std::sync::Arc;

use rmcp::model::CallToolResult;

use super::{
    Engine, InputError, IntoTaskResult, Limits, Question, ReadError, TaskError,
    ask::{self, Asker, Elicitation},
    engine::UpdateError,
    run,
};
use crate::{
    store::{Access, StoreError, TaskStore},
    task::{Change, Clock, Fence, RawJson, TaskId, TaskRecord},
};

/// Completes, fails, updates or asks for a task, from any process on the same store. Cloning it is cheap.
#[derive(Clone)]
pub struct TaskHandle {
    engine: Arc<Engine>,
    id: TaskId,
    fence: Option<Fence>,
}

impl TaskHandle {
    pub(crate) fn new(engine: Arc<Engine>, id: TaskId, fence: Option<Fence>) -> Self {
        Self { engine, id, fence }
    }

    pub(crate) async fn open(
        engine: &Arc<Engine>,
        id: &TaskId,
    ) -> Result<Option<Self>, StoreError> {
        match engine.get(id, &Access::System).await {
            Ok(record) => Ok(Some(Self::new(engine.clone(), record.id.clone(), None))),
            Err(ReadError::Store(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// The task `id` on `store`, for a process that runs no server: a worker of its own, a webhook. `None` if there
    /// is no such task. The default [`Limits`] apply.
    ///
    /// # Errors
    /// The store's.
    pub async fn attach(store: Arc<dyn TaskStore>, id: &str) -> Result<Option<Self>, StoreError> {
        Self::attach_with(store, Limits::default(), id).await
    }

    /// The same under the limits of the server that made the task: its result size and retention apply.
    ///
    /// # Errors
    /// The store's.
    pub async fn attach_with(
        store: Arc<dyn TaskStore>,
        limits: Limits,
        id: &str,
    ) -> Result<Option<Self>, StoreError> {
        let engine = Arc::new(Engine::new(store, limits, Clock::system()));
        Self::open(&engine, &TaskId::from_stored(id)).await
    }

    /// The same by the name the job has outside ([`TaskOptions::external_id`](super::TaskOptions::external_id)).
    ///
    /// # Errors
    /// The store's.
    pub async fn attach_external(
        store: Arc<dyn TaskStore>,
        external_id: &str,
    ) -> Result<Option<Self>, StoreError> {
        match store.find_external(external_id, &Access::System).await? {
            Some(record) => Self::attach(store, record.id.as_str()).await,
            None => Ok(None),
        }
    }

    /// The task's id.
    pub fn id(&self) -> &TaskId {
        &self.id
    }

    /// The task as it is; `None` once it has expired.
    ///
    /// # Errors
    /// The store's.
    pub async fn record(&self) -> Result<Option<Arc<TaskRecord>>, StoreError> {
        match self.engine.get(&self.id, &Access::System).await {
            Ok(record) => Ok(Some(record)),
            Err(ReadError::Store(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Ends the task with a result. Whether that counted: a task that has ended stays as it is.
    ///
    /// # Errors
    /// The store's, or that the result has no JSON form.
    pub async fn complete(&self, result: impl IntoTaskResult) -> Result<bool, TaskError> {
        let result = result.into_task_result()?;
        self.finish(Ok(result)).await
    }

    /// Ends the task with an error: the tool's own ([`TaskError::tool`]) or a JSON-RPC one.
    ///
    /// # Errors
    /// The store's.
    pub async fn fail(&self, error: impl Into<TaskError>) -> Result<bool, TaskError> {
        self.finish(Err(error.into())).await
    }

    async fn finish(&self, result: Result<CallToolResult, TaskError>) -> Result<bool, TaskError> {
        let (outcome, message) = run::outcome_of(result, None, self.engine.limits.result);
        let change = self.engine.finish(outcome, message);
        self.apply(change).await
    }

    /// Tells a person what is going on.
    ///
    /// # Errors
    /// The store's.
    pub async fn status(&self, message: impl Into<String>) -> Result<bool, TaskError> {
        self.apply(Change::Status(Some(message.into().into())))
            .await
    }

    pub(crate) async fn apply(&self, change: Change) -> Result<bool, TaskError> {
        match self
            .engine
            .update(
                &self.id,
                &Access::System,
                self.fence.as_ref(),
                None,
                &change,
            )
            .await
        {
            Ok(_) => Ok(true),
            Err(UpdateError::Refused(refusal, _)) => {
                tracing::debug!(task = %self.id, %refusal, "a change was refused");
                Ok(false)
            }
            Err(UpdateError::NotFound) => Ok(false),
            Err(UpdateError::Store(error)) => Err(error.into()),
        }
    }

    /// Whether the task has been cancelled, has expired, or ended otherwise.
    ///
    /// # Errors
    /// The store's.
    pub async fn has_ended(&self) -> Result<bool, StoreError> {
        Ok(self
            .record()
            .await?
            .is_none_or(|record| record.is_terminal()))
    }

    /// Waits until the task has ended: by a cancel, by somebody else, or by its ttl (`None`).
    ///
    /// # Errors
    /// The store's.
    pub async fn ended(&self) -> Result<Option<Arc<TaskRecord>>, StoreError> {
        match self.engine.wait_terminal(&self.id, &Access::System).await {
            Ok(record) => Ok(Some(record)),
            Err(ReadError::Store(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Asks the requestor to fill in a form with the fields of `T`, and waits for the answer.
    ///
    /// # Errors
    /// See [`InputError`].
    pub async fn elicit<T>(&self, message: impl Into<String>) -> Result<Elicitation<T>, InputError>
    where
        T: schemars::JsonSchema + serde::de::DeserializeOwned,
    {
        let answer = self.ask(Question::form::<T>(message)?).await?;
        ask::read_elicitation(&answer)
    }

    /// Asks any question and waits for the answer, as it came. Without a key of its own it is a new question every
    /// time; with one, whoever asks it again waits for the same answer.
    ///
    /// # Errors
    /// See [`InputError`].
    pub async fn ask(&self, question: Question) -> Result<RawJson, InputError> {
        let Some(record) = self.record().await? else {
            return Err(InputError::TaskEnded);
        };
        // Random: other handles, in other processes, may ask at the same moment.
        let key = question
            .key
            .clone()
            .unwrap_or_else(|| format!("outside-{}", uuid::Uuid::new_v4().simple()));
        let asker = Asker {
            engine: self.engine.clone(),
            task: self.id.clone(),
            fence: self.fence.clone(),
            stopped: None,
        };
        asker
            .ask(record.origin.capabilities.as_ref(), key, question)
            .await
    }
}

impl std::fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskHandle")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
