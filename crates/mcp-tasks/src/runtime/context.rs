//! What bodies and handlers are given.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use rmcp::model::{ClientCapabilities, Extensions, Implementation};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    Inner, InputError, LogEvent, LogLevel, ProgressEvent, Question, ReadError, TaskError,
    TaskHandle, TaskOptions,
    ask::{self, Asker, Elicitation},
    create::Draft,
    engine::UpdateError,
    hub::RunSignals,
    tool::PollFn,
};
use crate::{
    store::Access,
    task::{Change, Fence, Generation, Origin, Owner, Permissions, RawJson, TaskId, TaskRecord},
};

/// Who asked: everything a server knows of the other end of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Requestor {
    /// The principal.
    pub owner: Owner,
    /// The protocol generation.
    pub generation: Generation,
    /// The declared capabilities, as they came.
    pub capabilities: Option<RawJson>,
    /// The client's name and version, as they came.
    pub client_info: Option<RawJson>,
    /// The session, where there is one.
    pub session: Option<Arc<str>>,
}

impl Requestor {
    /// A requestor of whom nothing is known but whom it stands for.
    pub fn new(owner: Owner, generation: Generation) -> Self {
        Self {
            owner,
            generation,
            capabilities: None,
            client_info: None,
            session: None,
        }
    }

    fn of(record: &TaskRecord) -> Self {
        let origin = &record.origin;
        Self {
            owner: record.owner.clone(),
            generation: origin.generation,
            capabilities: origin.capabilities.clone(),
            client_info: origin.client_info.clone(),
            session: origin.session.clone(),
        }
    }

    /// The client's name and version, read as rmcp's type.
    pub fn client_info(&self) -> Option<Implementation> {
        self.client_info.as_ref().and_then(|raw| raw.parse().ok())
    }

    /// The declared capabilities, read as rmcp's type (which drops what it does not know).
    pub fn client_capabilities(&self) -> ClientCapabilities {
        self.capabilities
            .as_ref()
            .and_then(|raw| raw.parse().ok())
            .unwrap_or_default()
    }

    /// Which questions it can be asked.
    pub fn permissions(&self) -> Permissions {
        Permissions::of(self.capabilities.as_ref())
    }
}

/// What a running body is given. Cloning it is cheap; clones are the same context.
#[derive(Clone)]
pub struct TaskContext(Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) inner: Arc<Inner>,
    /// The record the body was started with.
    pub(crate) started: Arc<TaskRecord>,
    pub(crate) fence: Fence,
    pub(crate) signals: RunSignals,
    pub(crate) ended: AtomicBool,
    extensions: Extensions,
    next_key: AtomicU32,
    progress: Mutex<f64>,
    /// For a requestor of 2026-07-28, which gets progress as the status message.
    telling: Mutex<Telling>,
}

/// When a status message was last written, and what waits for the next time.
#[derive(Default)]
struct Telling {
    last: Option<Instant>,
    waiting: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TaskContext {
    pub(crate) fn new(
        inner: Arc<Inner>,
        started: Arc<TaskRecord>,
        fence: Fence,
        signals: RunSignals,
        extensions: Extensions,
    ) -> Self {
        Self(Arc::new(Shared {
            extensions,
            inner,
            started,
            fence,
            signals,
            ended: AtomicBool::new(false),
            next_key: AtomicU32::new(0),
            progress: Mutex::new(f64::NEG_INFINITY),
            telling: Mutex::default(),
        }))
    }

    pub(crate) fn end(&self) {
        self.0.ended.store(true, Ordering::Release);
    }

    /// What the transport and the layers in front of it knew of the request; empty after a restart.
    pub(crate) fn extensions(&self) -> &Extensions {
        &self.0.extensions
    }

    /// The edge that serves the runtime.
    #[cfg(feature = "client")]
    pub(crate) fn edge<E: std::any::Any + Send + Sync>(&self) -> Option<Arc<E>> {
        self.0.inner.edge()
    }

    /// Whether it runs behind an ordinary call.
    #[cfg(feature = "client")]
    pub(crate) fn is_hidden(&self) -> bool {
        self.0.started.hidden
    }

    /// The task's id.
    pub fn task_id(&self) -> &TaskId {
        &self.0.started.id
    }

    /// Whom the task is bound to.
    pub fn owner(&self) -> &Owner {
        &self.0.started.owner
    }

    /// Who asked for it.
    pub fn requestor(&self) -> Requestor {
        Requestor::of(&self.0.started)
    }

    /// The original request: tool, arguments, `_meta`, progress token, the ttl that was asked for.
    pub fn request(&self) -> &Origin {
        &self.0.started.origin
    }

    /// The ttl in force when the body was started, in milliseconds from creation; `None` is unlimited.
    pub fn ttl_ms(&self) -> Option<u64> {
        self.0.started.ttl_ms
    }

    pub(crate) fn poll_interval(&self) -> Duration {
        Duration::from_millis(self.0.started.poll_interval_ms)
    }

    /// Which attempt this is: 1 at first, one more each time another worker takes the task over.
    pub fn attempt(&self) -> u32 {
        self.0.fence.attempt
    }

    /// Says how far the work is. Best effort: told to a requestor that listens and gave a progress token. Values
    /// that do not rise are dropped, as is everything after the end.
    pub fn progress(&self, done: f64, total: Option<f64>, message: Option<&str>) {
        if self.is_over() || !done.is_finite() {
            return;
        }
        {
            let mut last = lock(&self.0.progress);
            if done <= *last {
                return;
            }
            *last = done;
        }
        let total = total.filter(|total| total.is_finite());
        let event = ProgressEvent {
            done,
            total,
            message: message.map(str::to_owned),
        };
        self.0
            .inner
            .engine
            .hub
            .each_observer(|observer| observer.progress(&self.0.started, &event));
        let started = &self.0.started;
        if started.origin.generation == Generation::V2026_07_28 && !started.hidden {
            self.tell(&event);
        }
    }

    /// Progress as a status message, at most once per poll interval: tasks of 2026-07-28 have no other way to show it.
    fn tell(&self, event: &ProgressEvent) {
        let text = match (&event.message, event.total) {
            (Some(message), _) => message.clone(),
            (None, Some(total)) => format!("{} of {total}", event.done),
            (None, None) => event.done.to_string(),
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let every = self.poll_interval();
        let due = {
            let mut telling = lock(&self.0.telling);
            if telling.waiting.replace(text).is_some() {
                // Somebody is about to write the newest.
                return;
            }
            let last = telling.last.filter(|last| last.elapsed() < every);
            last.map(|last| last + every)
        };
        let context = self.clone();
        runtime.spawn(async move {
            if let Some(due) = due {
                tokio::select! {
                    () = tokio::time::sleep_until(due.into()) => {}
                    () = context.0.signals.stop.cancelled() => return,
                    () = context.0.signals.cancel.cancelled() => return,
                }
            }
            let text = {
                let mut telling = lock(&context.0.telling);
                telling.last = Some(Instant::now());
                telling.waiting.take()
            };
            if let Some(text) = text.filter(|_| !context.is_over())
                && let Err(error) = context.status(text).await
            {
                tracing::debug!(task = %context.task_id(), %error, "progress was not stored");
            }
        });
    }

    /// Logs to the requestor, best effort.
    pub fn log(&self, level: LogLevel, data: impl Into<Value>) {
        self.log_as(level, Some(&self.0.started.origin.tool), data.into());
    }

    /// The same in somebody's name, or in nobody's.
    pub(crate) fn log_as(&self, level: LogLevel, logger: Option<&str>, data: Value) {
        if self.is_over() {
            return;
        }
        let event = LogEvent {
            level,
            logger: logger.map(str::to_owned),
            data,
        };
        self.0
            .inner
            .engine
            .hub
            .each_observer(|observer| observer.log(&self.0.started, &event));
    }

    fn is_over(&self) -> bool {
        self.0.ended.load(Ordering::Acquire) || self.0.signals.cancel.is_cancelled()
    }

    /// Tells a person what is going on. Stored with the task.
    ///
    /// # Errors
    /// The store's, or that the task is no longer this body's.
    pub async fn status(&self, message: impl Into<String>) -> Result<(), TaskError> {
        self.change(Change::Status(Some(message.into().into())))
            .await
    }

    /// Saves something for a later attempt ([`Recovery::Rerun`](super::Recovery::Rerun)); replaces what was saved
    /// before.
    ///
    /// # Errors
    /// The store's, that it has no JSON form, or that the task is no longer this body's.
    pub async fn checkpoint(&self, saved: &impl Serialize) -> Result<(), TaskError> {
        self.change(Change::Checkpoint(RawJson::from_serialize(saved)?))
            .await
    }

    /// What an earlier attempt saved last.
    ///
    /// # Errors
    /// That it is not a `T`.
    pub fn restored<T: DeserializeOwned>(&self) -> Result<Option<T>, TaskError> {
        let saved = self.0.started.checkpoint.as_ref();
        Ok(saved.map(|saved| saved.parse()).transpose()?)
    }

    async fn change(&self, change: Change) -> Result<(), TaskError> {
        let shared = &self.0;
        let engine = &shared.inner.engine;
        match engine
            .update(
                self.task_id(),
                &Access::System,
                Some(&shared.fence),
                None,
                &change,
            )
            .await
        {
            Ok(_) | Err(UpdateError::Refused(crate::task::Refusal::Unchanged, _)) => Ok(()),
            Err(UpdateError::Refused(..) | UpdateError::NotFound) => Err(TaskError::gone()),
            Err(UpdateError::Store(error)) => Err(error.into()),
        }
    }

    /// Asks the requestor to fill in a form with the fields of `T`, and waits for the answer.
    ///
    /// # Errors
    /// See [`InputError`].
    pub async fn elicit<T>(&self, message: impl Into<String>) -> Result<Elicitation<T>, InputError>
    where
        T: JsonSchema + DeserializeOwned,
    {
        ask::read_elicitation(&self.ask(Question::form::<T>(message)?).await?)
    }

    /// Asks the requestor to visit a URL, and waits until that was accepted, declined or cancelled.
    ///
    /// # Errors
    /// See [`InputError`].
    pub async fn elicit_url(
        &self,
        message: impl Into<String>,
        url: impl Into<String>,
    ) -> Result<Elicitation<()>, InputError> {
        let answer = self.ask(Question::url(message, url)).await?;
        // Whatever content a client gives with it means nothing.
        Ok(match ask::read_elicitation::<Option<Value>>(&answer)? {
            Elicitation::Accept(_) => Elicitation::Accept(()),
            Elicitation::Decline => Elicitation::Decline,
            Elicitation::Cancel => Elicitation::Cancel,
        })
    }

    /// Asks the requestor's model.
    ///
    /// # Errors
    /// See [`InputError`].
    #[allow(deprecated)]
    pub async fn sample(
        &self,
        params: rmcp::model::CreateMessageRequestParams,
    ) -> Result<rmcp::model::CreateMessageResult, InputError> {
        ask::read_answer(&self.ask(Question::sample(&params)?).await?)
    }

    /// Asks for the requestor's roots.
    ///
    /// # Errors
    /// See [`InputError`].
    #[allow(deprecated)]
    pub async fn list_roots(&self) -> Result<rmcp::model::ListRootsResult, InputError> {
        ask::read_answer(&self.ask(Question::roots()).await?)
    }

    /// Asks any question and waits for the answer, as it came. Without a key of its own a question's key is its place
    /// in the order in which this body asks: a later attempt that asks in the same order gets the recorded answers.
    pub fn ask(
        &self,
        question: Question,
    ) -> impl Future<Output = Result<RawJson, InputError>> + Send + use<'_> {
        // The key is taken when the question is put, not when its future is first polled.
        let key = question.key.clone().unwrap_or_else(|| self.next_key());
        async move {
            let shared = &*self.0;
            let asker = Asker {
                engine: shared.inner.engine.clone(),
                task: shared.started.id.clone(),
                fence: Some(shared.fence.clone()),
                stopped: Some(shared.signals.stop.clone()),
            };
            let capabilities = shared.started.origin.capabilities.as_ref();
            asker.ask(capabilities, key, question).await
        }
    }

    /// The key of the next question, by its place in the order.
    pub(crate) fn next_key(&self) -> String {
        let before = self.0.next_key.fetch_add(1, Ordering::Relaxed);
        format!("input-{}", before + 1)
    }

    /// Completes when the task has been cancelled or has expired. The body then has
    /// [`Limits::cancel_grace`](super::Limits::cancel_grace) to end before it is dropped.
    pub async fn cancelled(&self) {
        self.0.signals.cancel.cancelled().await;
    }

    /// The token behind [`cancelled`](Self::cancelled).
    pub fn cancellation_token(&self) -> CancellationToken {
        self.0.signals.cancel.clone()
    }

    /// A handle on the task, fenced like this body.
    pub fn handle(&self) -> TaskHandle {
        let shared = &self.0;
        TaskHandle::new(
            shared.inner.engine.clone(),
            shared.started.id.clone(),
            Some(shared.fence.clone()),
        )
    }
}

impl std::fmt::Debug for TaskContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskContext")
            .field("task", self.task_id())
            .finish_non_exhaustive()
    }
}

/// What a `.create` handler is given.
#[derive(Clone)]
pub struct CreateContext {
    inner: Arc<Inner>,
    draft: Arc<Mutex<DraftState>>,
    requestor: Requestor,
    origin: Arc<Origin>,
}

enum DraftState {
    Waiting(Box<Draft>),
    Creating,
    Created(Arc<TaskRecord>),
    /// The call has been answered: what is created now is nobody's.
    Over,
}

/// The proof that a `.create` handler created its task, and the handle on it.
#[derive(Debug, Clone)]
pub struct CreatedTask(TaskHandle);

impl CreatedTask {
    /// The task's id.
    pub fn id(&self) -> &TaskId {
        self.0.id()
    }

    /// The handle, for whoever ends the task.
    pub fn handle(&self) -> &TaskHandle {
        &self.0
    }
}

impl CreateContext {
    pub(crate) fn new(inner: Arc<Inner>, draft: Draft) -> Self {
        let (requestor, origin) = (draft.requestor.clone(), draft.origin.clone());
        Self {
            inner,
            draft: Arc::new(Mutex::new(DraftState::Waiting(Box::new(draft)))),
            requestor,
            origin,
        }
    }

    /// Whom the task will be bound to.
    pub fn owner(&self) -> &Owner {
        &self.requestor.owner
    }

    /// Who asks for it.
    pub fn requestor(&self) -> &Requestor {
        &self.requestor
    }

    /// The original request.
    pub fn request(&self) -> &Origin {
        &self.origin
    }

    /// Creates the task; once a call, while its handler runs. One that was begun is not left half-way if the future
    /// is dropped; one that failed may be tried again.
    ///
    /// # Errors
    /// A proposed id that is taken or not allowed, a limit that is reached, the store's, or a second call.
    pub async fn create_task(&self, options: TaskOptions) -> Result<CreatedTask, TaskError> {
        let draft = {
            let mut state = self.state();
            match std::mem::replace(&mut *state, DraftState::Creating) {
                DraftState::Waiting(draft) => draft,
                before => {
                    *state = before;
                    return Err(TaskError::internal("a call creates one task, not two"));
                }
            }
        };
        let context = self.clone();
        let created = tokio::spawn(async move { context.insert(draft, options).await });
        match created.await {
            Ok(created) => created,
            Err(_panic_or_abort) => Err(TaskError::internal("the task could not be created")),
        }
    }

    async fn insert(
        &self,
        draft: Box<Draft>,
        options: TaskOptions,
    ) -> Result<CreatedTask, TaskError> {
        let inserted = draft.insert(&self.inner, options).await;
        let left = {
            let mut state = self.state();
            match (&*state, &inserted) {
                (DraftState::Over, Ok(record)) => Some(record.id.clone()),
                (DraftState::Over, Err(_)) => None,
                (_, Ok(record)) => {
                    *state = DraftState::Created(record.clone());
                    None
                }
                (_, Err(_)) => {
                    *state = DraftState::Waiting(draft);
                    None
                }
            }
        };
        if let Some(id) = left {
            self.inner.engine.remove(&id).await?;
            return Err(TaskError::internal("the call was answered without it"));
        }
        let record = inserted.map_err(|e| TaskError::relayed(e.into_rpc()))?;
        let handle = TaskHandle::new(self.inner.engine.clone(), record.id.clone(), None);
        Ok(CreatedTask(handle))
    }

    fn state(&self) -> MutexGuard<'_, DraftState> {
        self.draft.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handler is done: the record, if it created one. No other can be created from here on.
    pub(crate) fn close(&self) -> Option<Arc<TaskRecord>> {
        match std::mem::replace(&mut *self.state(), DraftState::Over) {
            DraftState::Created(record) => Some(record),
            DraftState::Waiting(_) | DraftState::Creating | DraftState::Over => None,
        }
    }
}

impl std::fmt::Debug for CreateContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreateContext")
            .field("tool", &self.origin.tool)
            .finish_non_exhaustive()
    }
}

/// What `.on_get` and `.on_result` are given.
#[derive(Debug, Clone)]
pub struct PollContext {
    handle: TaskHandle,
    record: Arc<TaskRecord>,
    requestor: Requestor,
}

impl PollContext {
    /// The task's id.
    pub fn task_id(&self) -> &TaskId {
        &self.record.id
    }

    /// The job's name in the outside system, if it was given one.
    pub fn external_id(&self) -> Option<&str> {
        self.record.external_id.as_deref()
    }

    /// The task as it is stored.
    pub fn record(&self) -> &TaskRecord {
        &self.record
    }

    /// The original request.
    pub fn request(&self) -> &Origin {
        &self.record.origin
    }

    /// Who asks now, which need not be the session that created the task.
    pub fn requestor(&self) -> &Requestor {
        &self.requestor
    }

    /// The handle through which the state is brought up to date.
    pub fn handle(&self) -> &TaskHandle {
        &self.handle
    }
}

/// Lets the tool bring a record up to date.
pub(crate) async fn poll(
    inner: &Arc<Inner>,
    ask: Option<&PollFn>,
    record: &Arc<TaskRecord>,
    requestor: Option<&Requestor>,
) -> Result<(), ReadError> {
    let Some(ask) = ask else {
        return Ok(());
    };
    let context = PollContext {
        handle: TaskHandle::new(inner.engine.clone(), record.id.clone(), None),
        record: record.clone(),
        requestor: requestor.cloned().unwrap_or_else(|| Requestor::of(record)),
    };
    let asked = super::run::contained(|| ask(context)).await;
    asked.map_err(|error| ReadError::Tool(error.into_rpc()))
}
