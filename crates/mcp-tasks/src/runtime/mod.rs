//! Creating, running, waiting, asking, cancelling, expiring: what happens to tasks, whatever protocol asked for it.
//!
//! [`Runtime`] holds the registered [`TaskTool`]s on one [`TaskStore`]. It knows no JSON-RPC
//! method: the edges in [`crate::server`] turn messages into its calls, and an [`Observer`] turns what happens into
//! messages. Nothing here polls; all waiting is on one watch per task that exists only while somebody waits.

mod ask;
mod context;
mod create;
mod engine;
mod error;
mod handle;
mod hub;
mod limits;
mod observer;
mod run;
mod schema;
mod tool;
mod worker;

use std::{
    any::Any,
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::sync::{OnceCell, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use ask::{Elicitation, InputError, Question};
pub use context::{CreateContext, CreatedTask, PollContext, Requestor, TaskContext};
pub use create::{Call, CreateError};
pub use engine::ReadError;
pub use error::{BuildError, ReservedCode, TaskError};
pub use handle::TaskHandle;
pub use limits::Limits;
pub use observer::{LogEvent, LogLevel, Observer, ProgressEvent};
pub use tool::{IntoTaskResult, Json, Recovery, TaskOptions, TaskSupport, TaskTool};

pub(crate) use engine::Engine;
pub(crate) use hub::Watch;
pub(crate) use tool::{BeforeFn, ToolEntry, before_fn};
pub(crate) use worker::STOPPED as WORKER_STOPPED;

use crate::{
    store::{Access, ListKey, StoreError, TaskStore},
    task::{Clock, ErrorObject, Owner, Phase, TaskId, TaskRecord, WorkerId},
};

/// Task tools on a store. Cloning shares it; when the last clone is dropped, its background work ends.
#[derive(Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
    _owner: Arc<DropGuard>,
}

pub(crate) struct Inner {
    pub(crate) engine: Arc<Engine>,
    /// Copy on write, in the order of registration.
    tools: ArcSwap<Vec<Arc<ToolEntry>>>,
    by_name: ArcSwap<BTreeMap<Arc<str>, Arc<ToolEntry>>>,
    edit_tools: Mutex<()>,
    worker: WorkerId,
    worker_started: OnceCell<()>,
    /// Nobody renews the lease any more.
    lease_left: CancellationToken,
    permits: Semaphore,
    /// No new tasks.
    closing: CancellationToken,
    /// No background work any more.
    stop: CancellationToken,
    /// The edge that serves it, for what bodies want of that and the runtime knows nothing of.
    edge: OnceLock<Weak<dyn Any + Send + Sync>>,
}

impl Runtime {
    /// A runtime without tools. Nothing is read or claimed until the first task traffic.
    ///
    /// # Errors
    /// [`BuildError::Limit`] for a limit that is zero or contradicts another.
    pub fn new(
        store: Arc<dyn TaskStore>,
        limits: Limits,
        clock: Clock,
    ) -> Result<Self, BuildError> {
        limits.check()?;
        let stop = CancellationToken::new();
        let permits = Semaphore::new(limits.concurrent_runs.min(Semaphore::MAX_PERMITS));
        let inner = Arc::new(Inner {
            engine: Arc::new(Engine::new(store, limits, clock)),
            tools: ArcSwap::default(),
            by_name: ArcSwap::default(),
            edit_tools: Mutex::new(()),
            worker: WorkerId::random(),
            worker_started: OnceCell::new(),
            lease_left: CancellationToken::new(),
            permits,
            closing: CancellationToken::new(),
            stop: stop.clone(),
            edge: OnceLock::new(),
        });
        Ok(Self {
            inner,
            _owner: Arc::new(stop.drop_guard()),
        })
    }

    /// Adds a tool; tasks of it that a lapsed worker left can be recovered from now on.
    ///
    /// # Errors
    /// [`BuildError::DuplicateTool`] if the name is taken, or what is wrong with the tool's definition.
    pub fn add_tool(&self, tool: TaskTool) -> Result<(), BuildError> {
        let entry = Arc::new(tool.build(&self.inner.engine.limits)?);
        let _editing = self
            .inner
            .edit_tools
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut tools = Vec::clone(&self.inner.tools.load());
        if tools.iter().any(|have| have.name == entry.name) {
            return Err(BuildError::DuplicateTool(entry.name.to_string()));
        }
        tools.push(entry);
        self.inner.set_tools(tools);
        Ok(())
    }

    /// Removes a tool; whether it was there. Tasks of it that run go on.
    pub fn remove_tool(&self, name: &str) -> bool {
        let _editing = self
            .inner
            .edit_tools
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut tools = Vec::clone(&self.inner.tools.load());
        let before = tools.len();
        tools.retain(|have| &*have.name != name);
        let removed = tools.len() != before;
        if removed {
            self.inner.set_tools(tools);
        }
        removed
    }

    /// The tool of that name.
    pub(crate) fn tool(&self, name: &str) -> Option<Arc<ToolEntry>> {
        self.inner.tool(name)
    }

    /// All tools, in the order of registration.
    pub(crate) fn tools(&self) -> Arc<Vec<Arc<ToolEntry>>> {
        self.inner.tools.load_full()
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.inner.engine.limits
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn TaskStore> {
        &self.inner.engine.store
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.inner.engine.clock
    }

    /// Tells `observer` of everything that happens from now on, for as long as it exists.
    pub fn observe(&self, observer: &Arc<dyn Observer>) {
        self.inner.engine.hub.observe(observer);
    }

    /// Lets bodies reach the edge that serves this runtime. The first one stays.
    pub(crate) fn set_edge(&self, edge: Weak<dyn Any + Send + Sync>) {
        let _ = self.inner.edge.set(edge);
    }

    /// Follows a task that others may change, so that observers hear of it, until the guard is dropped.
    pub(crate) fn follow(&self, id: &TaskId) -> Watch {
        self.inner.engine.hub.watch(&self.inner.engine, id)
    }

    /// Tells the observers of the task as it is in the store.
    pub(crate) async fn refresh(&self, id: &TaskId) {
        let engine = &self.inner.engine;
        match engine.store.get(id.as_str(), &Access::System).await {
            Ok(Some(record)) => engine.hub.publish(&record),
            Ok(None) => engine.hub.publish_removed(id),
            Err(error) => tracing::warn!(task = %id, %error, "a task could not be read"),
        }
    }

    /// The hidden task of a shimmed call.
    pub(crate) async fn hidden(&self, id: &TaskId, access: &Access) -> Option<Arc<TaskRecord>> {
        self.inner
            .engine
            .get(id, access)
            .await
            .ok()
            .filter(|record| record.hidden)
    }

    /// Removes a hidden task whose call has been answered.
    pub(crate) async fn remove(&self, id: &TaskId) {
        if let Err(error) = self.inner.engine.remove(id).await {
            tracing::warn!(task = %id, %error, "an answered call's task could not be removed; it will expire");
        }
    }

    /// The first task traffic starts the worker: its lease, the sweeper, and the recovery of what lapsed workers left.
    ///
    /// # Errors
    /// The store's, if the lease cannot be written.
    pub async fn start_worker(&self) -> Result<(), StoreError> {
        self.inner.ensure_worker().await
    }

    /// Creates a task for `call`, or runs it hidden behind an ordinary call, and returns its first record. The work
    /// goes on even if the caller is dropped.
    ///
    /// # Errors
    /// See [`CreateError`]; nothing is left behind then.
    pub async fn create(&self, call: Call) -> Result<Arc<TaskRecord>, CreateError> {
        create::create(&self.inner, call).await
    }

    /// The task as it is, as `access` sees it. A tool with `.on_get` is asked first, on behalf of `requestor`.
    ///
    /// # Errors
    /// [`ReadError::NotFound`] for unknown, expired, hidden and foreign ids alike.
    pub async fn get(
        &self,
        id: &TaskId,
        access: &Access,
        requestor: Option<&Requestor>,
    ) -> Result<Arc<TaskRecord>, ReadError> {
        self.get_for(id, access, || requestor.cloned()).await
    }

    /// The same; who asks is worked out only for a tool that wants to know.
    pub(crate) async fn get_for(
        &self,
        id: &TaskId,
        access: &Access,
        requestor: impl FnOnce() -> Option<Requestor>,
    ) -> Result<Arc<TaskRecord>, ReadError> {
        let record = self.inner.engine.get_visible(id, access).await?;
        if record.is_terminal() {
            return Ok(record);
        }
        match self.inner.tool(&record.origin.tool) {
            Some(tool) if tool.on_get.is_some() => {
                let requestor = requestor();
                let ask = tool.on_get.as_ref();
                let polled = context::poll(&self.inner, ask, &record, requestor.as_ref());
                Box::pin(polled).await?;
                self.inner.engine.get_visible(id, access).await
            }
            _ => Ok(record),
        }
    }

    /// The task as it is in the store, as `access` sees it.
    pub(crate) async fn stored(
        &self,
        id: &TaskId,
        access: &Access,
    ) -> Result<Arc<TaskRecord>, ReadError> {
        self.inner.engine.get_visible(id, access).await
    }

    /// Waits until the task has ended, and returns its last record. Reads are repeatable; any number may wait.
    ///
    /// # Errors
    /// [`ReadError::NotFound`], also when the task's lifetime passes while waiting.
    pub async fn wait(
        &self,
        id: &TaskId,
        access: &Access,
        requestor: Option<&Requestor>,
    ) -> Result<Arc<TaskRecord>, ReadError> {
        let record = self.inner.engine.get_visible(id, access).await?;
        self.wait_from(record, access, requestor, TaskRecord::is_terminal)
            .await
    }

    /// Waits until a hidden task has ended or has something to ask, and returns the record that says so.
    pub(crate) async fn wait_for_turn(
        &self,
        id: &TaskId,
        access: &Access,
        requestor: &Requestor,
    ) -> Result<Arc<TaskRecord>, ReadError> {
        let record = self.inner.engine.get(id, access).await?;
        self.wait_from(record, access, Some(requestor), |record| {
            record.phase() != Phase::Working
        })
        .await
    }

    /// Completes when no question of the task is being put in this process.
    pub(crate) async fn questions_put(&self, id: &TaskId) {
        self.inner.engine.asking.settled(id).await;
    }

    async fn wait_from(
        &self,
        mut record: Arc<TaskRecord>,
        access: &Access,
        requestor: Option<&Requestor>,
        done: impl Fn(&TaskRecord) -> bool + Copy,
    ) -> Result<Arc<TaskRecord>, ReadError> {
        let engine = &self.inner.engine;
        let id = record.id.clone();
        let until = || {
            engine.wait_until(&id, access, move |record| {
                done(record).then(|| record.clone())
            })
        };
        let lazy = self
            .inner
            .tool(&record.origin.tool)
            .filter(|tool| tool.on_result.is_some() || tool.on_get.is_some())
            // Its job begins after the stage before it.
            .filter(|_| !record.origin.before);
        let Some(tool) = lazy else {
            return if done(&record) {
                Ok(record)
            } else {
                until().await
            };
        };
        let ask = tool.on_result.as_ref().or(tool.on_get.as_ref());
        loop {
            if done(&record) {
                return Ok(record);
            }
            context::poll(&self.inner, ask, &record, requestor).await?;
            let pause = Duration::from_millis(record.poll_interval_ms);
            match tokio::time::timeout(pause, until()).await {
                Ok(ended) => return ended,
                Err(_elapsed) => record = engine.get(&id, access).await?,
            }
        }
    }

    /// One page of an owner's tasks, newest first, and whether there are more.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(
        &self,
        owner: &Owner,
        after: Option<&ListKey>,
    ) -> Result<(Vec<Arc<TaskRecord>>, bool), StoreError> {
        let engine = &self.inner.engine;
        let (page, now) = (engine.limits.page, engine.clock.now());
        let mut records: Vec<Arc<TaskRecord>> = Vec::new();
        let mut after = after.cloned();
        while records.len() <= page {
            let wanted = page + 1 - records.len();
            let found = engine.store.list(owner, after.as_ref(), wanted).await?;
            let exhausted = found.len() < wanted;
            after = found.last().map(|last| ListKey {
                created_at: last.created_at,
                id: last.id.clone(),
            });
            // What `get` does not answer any more is not listed either.
            records.extend(found.into_iter().filter(|record| !record.is_expired(now)));
            if exhausted {
                break;
            }
        }
        let more = records.len() > page;
        records.truncate(page);
        Ok((records, more))
    }

    /// Cancels the task: stored first, then signalled.
    ///
    /// # Errors
    /// [`ReadError::NotFound`], or [`ReadError::Terminal`] with the record of a task that has ended.
    pub async fn cancel(
        &self,
        id: &TaskId,
        access: &Access,
        message: &str,
    ) -> Result<Arc<TaskRecord>, ReadError> {
        self.inner.engine.cancel(id, access, message).await
    }

    /// Takes an answer to a question of a task. Answers to unknown or answered questions change nothing; whether this
    /// one counted.
    ///
    /// # Errors
    /// [`ReadError::NotFound`], or the store's.
    pub async fn answer(
        &self,
        id: &TaskId,
        access: &Access,
        key: &str,
        answer: crate::task::Answer,
    ) -> Result<bool, ReadError> {
        let change = crate::task::Change::Answer {
            key: key.into(),
            answer,
        };
        match self
            .inner
            .engine
            .update(id, access, None, None, &change)
            .await
        {
            Ok(_) => Ok(true),
            Err(engine::UpdateError::Refused(refusal, _)) => {
                tracing::debug!(task = %id, key, %refusal, "an answer changed nothing");
                Ok(false)
            }
            Err(engine::UpdateError::NotFound) => Err(ReadError::NotFound),
            Err(engine::UpdateError::Store(e)) => Err(e.into()),
        }
    }

    /// A handle on a task, with which anyone may update or end it. `None` if there is no such task.
    ///
    /// # Errors
    /// The store's.
    pub async fn handle(&self, id: &TaskId) -> Result<Option<TaskHandle>, StoreError> {
        TaskHandle::open(&self.inner.engine, id).await
    }

    /// Ends gracefully: no new tasks, running bodies get up to `patience` to end, then they are dropped, and the
    /// lease is released, so that another process takes their tasks over at once. Nothing acknowledged is lost.
    pub async fn shutdown(&self, patience: Duration) {
        let inner = &self.inner;
        inner.closing.cancel();
        let _ = tokio::time::timeout(patience, inner.engine.hub.runs_ended()).await;
        inner.stop.cancel();
        if inner.worker_started.initialized() {
            // A renewal under way would bring the lease back.
            inner.lease_left.cancelled().await;
        }
        inner.engine.hub.runs_ended().await;
        if inner.worker_started.initialized()
            && let Err(error) = inner.engine.store.release(&inner.worker).await
        {
            tracing::warn!(%error, "the lease could not be released; it will lapse");
        }
    }

    /// What is kept in this process of tasks: bodies that run, their signals, watched tasks. All zero when nothing
    /// runs and nobody waits.
    #[doc(hidden)]
    pub fn held(&self) -> [usize; 3] {
        self.inner.engine.hub.held()
    }

    /// Whether [`shutdown`](Self::shutdown) was called.
    pub fn is_shutting_down(&self) -> bool {
        self.inner.closing.is_cancelled()
    }

    /// Completes when no body can end here any more.
    pub(crate) async fn stopped(&self) {
        self.inner.stop.cancelled().await;
    }
}

impl Inner {
    /// The edge, if it is an `E` and still there.
    #[cfg(feature = "client")]
    pub(crate) fn edge<E: Any + Send + Sync>(&self) -> Option<Arc<E>> {
        self.edge.get()?.upgrade()?.downcast().ok()
    }

    pub(crate) fn tool(&self, name: &str) -> Option<Arc<ToolEntry>> {
        self.by_name.load().get(name).cloned()
    }

    fn set_tools(&self, tools: Vec<Arc<ToolEntry>>) {
        let by_name = tools
            .iter()
            .map(|tool| (tool.name.clone(), tool.clone()))
            .collect();
        self.by_name.store(Arc::new(by_name));
        self.tools.store(Arc::new(tools));
    }
}

/// The error a store failure becomes for a requestor: that it was ours, not how.
impl From<&StoreError> for ErrorObject {
    fn from(error: &StoreError) -> Self {
        tracing::error!(%error, "the task store failed");
        ErrorObject::internal("the task store failed")
    }
}
