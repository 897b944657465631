//! What the tests share: a clock, runtimes on a store, a store that can be made to fail, ways to wait for events.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use mcp_tasks::{
    Limits, Runtime, TaskContext, TaskError, TaskTool,
    runtime::{Call, Observer, ProgressEvent, Requestor},
    store::{
        Access, ChangeFeed, ChangeSender, Document, InsertError, ListKey, MemoryStore, Quota,
        StoreError, Swap, TaskStore,
    },
    task::{
        Answer, Change, Clock, ErrorObject, Generation, Input, Outcome, Owner, RawJson, State,
        TaskId, TaskRecord, Timestamp, WorkerId,
    },
};
use serde_json::Value;
use tokio::sync::Notify;

pub(crate) fn alice() -> Owner {
    Owner::principal("alice")
}

pub(crate) fn by_alice() -> Access {
    Access::Owner(alice())
}

/// Somebody who can be asked everything.
pub(crate) fn requestor(owner: Owner) -> Requestor {
    let mut requestor = Requestor::new(owner, Generation::V2025_11_25);
    let all = r#"{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}"#;
    requestor.capabilities = Some(json(all));
    requestor
}

pub(crate) fn call(tool: &str) -> Call {
    Call::new(tool, requestor(alice()))
}

pub(crate) fn call_with(tool: &str, arguments: &str) -> Call {
    let mut call = call(tool);
    call.arguments = Some(json(arguments));
    call
}

pub(crate) fn json(text: &str) -> RawJson {
    RawJson::from_text(text).unwrap()
}

/// Tokio's clock, which a paused test moves.
pub(crate) fn clock() -> Clock {
    let start = tokio::time::Instant::now();
    Clock::from_fn(move || {
        let passed = u64::try_from(start.elapsed().as_millis()).unwrap();
        Timestamp::from_millis(1_764_000_000_000 + passed)
    })
}

pub(crate) fn runtime_on(
    store: Arc<dyn TaskStore>,
    limits: Limits,
    clock: &Clock,
    tools: impl IntoIterator<Item = TaskTool>,
) -> Runtime {
    let runtime = Runtime::new(store, limits, clock.clone()).unwrap();
    for tool in tools {
        runtime.add_tool(tool).unwrap();
    }
    runtime
}

/// A runtime with these tools on a memory store of its own.
pub(crate) fn runtime(tools: impl IntoIterator<Item = TaskTool>) -> (Runtime, MemoryStore) {
    limited(Limits::default(), tools)
}

pub(crate) fn limited(
    limits: Limits,
    tools: impl IntoIterator<Item = TaskTool>,
) -> (Runtime, MemoryStore) {
    let store = MemoryStore::new();
    let runtime = runtime_on(Arc::new(store.clone()), limits, &clock(), tools);
    (runtime, store)
}

/// A tool whose body says so when it runs and then waits for ever; the counter is of bodies that were dropped.
pub(crate) fn forever(name: &str, started: &Arc<Notify>, dropped: &Dropped) -> TaskTool {
    let (started, dropped) = (started.clone(), dropped.clone());
    TaskTool::new(name).run(move |_: TaskContext, _: Value| {
        let (started, guard) = (started.clone(), dropped.guard());
        async move {
            let _guard = guard;
            started.notify_one();
            std::future::pending::<()>().await;
            Ok::<_, TaskError>("never")
        }
    })
}

/// A tool that answers at once.
pub(crate) fn quick(name: &str) -> TaskTool {
    TaskTool::new(name).run(async |_: TaskContext, _: Value| Ok::<_, TaskError>("done"))
}

/// Counts what was dropped, and tells of it.
#[derive(Clone, Default)]
pub(crate) struct Dropped(Arc<(AtomicUsize, Notify)>);

pub(crate) struct DropGuard(Dropped);

impl Dropped {
    pub(crate) fn guard(&self) -> DropGuard {
        DropGuard(self.clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.0.load(Ordering::SeqCst)
    }

    pub(crate) async fn reaches(&self, count: usize) {
        soon(async {
            loop {
                let told = self.0.1.notified();
                if self.count() >= count {
                    return;
                }
                told.await;
            }
        })
        .await;
    }
}

impl Drop for DropGuard {
    fn drop(&mut self) {
        self.0.0.0.fetch_add(1, Ordering::SeqCst);
        self.0.0.1.notify_waiters();
    }
}

/// Two hours of the test's clock, after which what should have happened has not.
pub(crate) async fn soon<F: Future>(event: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(7200), event)
        .await
        .expect("it did not happen")
}

/// The same for a test whose time is not paused.
pub(crate) async fn within_a_minute<F: Future>(event: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), event)
        .await
        .expect("it did not happen")
}

/// The record once it is as `what` says.
pub(crate) async fn until(
    store: &dyn TaskStore,
    id: &TaskId,
    what: impl Fn(&TaskRecord) -> bool,
) -> Arc<TaskRecord> {
    let mut feed = store.changes();
    soon(async {
        loop {
            let record = store.get(id.as_str(), &Access::System).await.unwrap();
            if let Some(record) = record.filter(|record| what(record)) {
                return record;
            }
            feed.next().await.unwrap();
        }
    })
    .await
}

/// The open question of a task, once it has one.
pub(crate) async fn asked(store: &dyn TaskStore, id: &TaskId) -> Arc<Input> {
    let record = until(store, id, |record| record.open_inputs().next().is_some()).await;
    record.open_inputs().next().unwrap().clone()
}

/// Completes when nothing runs here and nobody waits.
pub(crate) async fn idle(runtime: &Runtime) {
    soon(async {
        while runtime.held() != [0, 0, 0] {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

pub(crate) async fn ended(runtime: &Runtime, id: &TaskId) -> Arc<TaskRecord> {
    soon(runtime.wait(id, &by_alice(), None)).await.unwrap()
}

/// Calls the tool and waits for its end.
pub(crate) async fn run(runtime: &Runtime, call: Call) -> Arc<TaskRecord> {
    let record = runtime.create(call).await.unwrap();
    ended(runtime, &record.id).await
}

pub(crate) fn accept(content: &str) -> Answer {
    Answer::Result(json(&format!(
        r#"{{"action":"accept","content":{content}}}"#
    )))
}

/// The result of a finished task, and whether it says that it is an error.
pub(crate) fn result(record: &Arc<TaskRecord>) -> (Value, bool) {
    match &record.state {
        State::Finished(Outcome::Result { json, is_error }) => (json.parse().unwrap(), *is_error),
        other => panic!("no result: {other:?}"),
    }
}

pub(crate) fn text(record: &Arc<TaskRecord>) -> String {
    let (value, _) = result(record);
    value["content"][0]["text"].as_str().unwrap().to_owned()
}

pub(crate) fn error(record: &Arc<TaskRecord>) -> ErrorObject {
    match &record.state {
        State::Finished(Outcome::Error(error)) => error.clone(),
        other => panic!("no error: {other:?}"),
    }
}

/// Keeps all it hears.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) records: Mutex<Vec<Arc<TaskRecord>>>,
    pub(crate) removed: Mutex<Vec<TaskId>>,
    pub(crate) progress: Mutex<Vec<ProgressEvent>>,
    pub(crate) logs: Mutex<Vec<mcp_tasks::runtime::LogEvent>>,
}

impl Heard {
    pub(crate) fn of(runtime: &Runtime) -> Arc<Self> {
        let heard = Arc::new(Self::default());
        let observer: Arc<dyn Observer> = heard.clone();
        runtime.observe(&observer);
        heard
    }
}

impl Observer for Heard {
    fn changed(&self, record: &Arc<TaskRecord>) {
        self.records.lock().unwrap().push(record.clone());
    }

    fn removed(&self, id: &TaskId) {
        self.removed.lock().unwrap().push(id.clone());
    }

    fn progress(&self, _: &Arc<TaskRecord>, event: &ProgressEvent) {
        self.progress.lock().unwrap().push(event.clone());
    }

    fn log(&self, _: &Arc<TaskRecord>, event: &mcp_tasks::runtime::LogEvent) {
        self.logs.lock().unwrap().push(event.clone());
    }
}

/// A memory store that fails, or stops for a while, when it is told to. Clones are one store.
#[derive(Clone, Default)]
pub(crate) struct TestStore {
    pub(crate) memory: MemoryStore,
    pub(crate) faults: Arc<Faults>,
}

#[derive(Default)]
pub(crate) struct Faults {
    /// How many more writes fail.
    pub(crate) writes: AtomicUsize,
    /// The failing writes are made all the same.
    pub(crate) writes_happen: AtomicBool,
    /// How many more reads fail.
    pub(crate) reads: AtomicUsize,
    /// The change feed says nothing.
    pub(crate) mute: AtomicBool,
    silence: ChangeSender,
    /// Heartbeats fail.
    pub(crate) heartbeats: AtomicBool,
    /// A write of an open question waits here.
    pub(crate) asking: Gate,
    pub(crate) heartbeat: Gate,
    pub(crate) insert: Gate,
    /// Whatever is inserted is cancelled before the insert returns: by somebody who knew its id.
    pub(crate) cancel_inserted: AtomicBool,
}

/// A place where a call waits while the gate is closed.
#[derive(Default)]
pub(crate) struct Gate {
    closed: AtomicBool,
    reached: Notify,
    opened: Notify,
}

impl Gate {
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
        self.opened.notify_waiters();
    }

    /// Completes when somebody waits at the gate.
    pub(crate) async fn reached(&self) {
        soon(self.reached.notified()).await;
    }

    async fn pass(&self) {
        loop {
            let opened = self.opened.notified();
            if !self.closed.load(Ordering::SeqCst) {
                return;
            }
            self.reached.notify_one();
            opened.await;
        }
    }
}

fn fails(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
        .is_ok()
}

fn fault() -> StoreError {
    StoreError::new("testing", "told to fail")
}

#[async_trait]
impl TaskStore for TestStore {
    async fn insert(&self, record: Arc<TaskRecord>, quota: Quota) -> Result<(), InsertError> {
        self.faults.insert.pass().await;
        self.memory.insert(record.clone(), quota).await?;
        if self.faults.cancel_inserted.load(Ordering::SeqCst) {
            let cancel = Change::Cancel { message: None };
            let next = record.apply(cancel, record.created_at, None).unwrap();
            let swap = self
                .memory
                .replace(Arc::new(next), record.revision, &Access::System)
                .await?;
            assert_eq!(swap, Swap::Done);
        }
        Ok(())
    }

    async fn get(&self, id: &str, access: &Access) -> Result<Option<Arc<TaskRecord>>, StoreError> {
        if fails(&self.faults.reads) {
            return Err(fault());
        }
        self.memory.get(id, access).await
    }

    async fn find_external(
        &self,
        external_id: &str,
        access: &Access,
    ) -> Result<Option<Arc<TaskRecord>>, StoreError> {
        self.memory.find_external(external_id, access).await
    }

    async fn replace(
        &self,
        next: Arc<TaskRecord>,
        revision: u64,
        access: &Access,
    ) -> Result<Swap, StoreError> {
        if next.open_inputs().next().is_some() {
            self.faults.asking.pass().await;
        }
        if fails(&self.faults.writes) {
            if self.faults.writes_happen.load(Ordering::SeqCst) {
                self.memory.replace(next, revision, access).await?;
            }
            return Err(fault());
        }
        self.memory.replace(next, revision, access).await
    }

    async fn list(
        &self,
        owner: &Owner,
        after: Option<&ListKey>,
        limit: usize,
    ) -> Result<Vec<Arc<TaskRecord>>, StoreError> {
        self.memory.list(owner, after, limit).await
    }

    async fn remove(&self, id: &str, access: &Access) -> Result<bool, StoreError> {
        self.memory.remove(id, access).await
    }

    async fn expired(&self, now: Timestamp, limit: usize) -> Result<Vec<TaskId>, StoreError> {
        self.memory.expired(now, limit).await
    }

    async fn next_expiry(&self) -> Result<Option<Timestamp>, StoreError> {
        self.memory.next_expiry().await
    }

    async fn heartbeat(&self, worker: &WorkerId, until: Timestamp) -> Result<(), StoreError> {
        self.faults.heartbeat.pass().await;
        if self.faults.heartbeats.load(Ordering::SeqCst) {
            return Err(fault());
        }
        self.memory.heartbeat(worker, until).await
    }

    async fn release(&self, worker: &WorkerId) -> Result<(), StoreError> {
        self.memory.release(worker).await
    }

    async fn orphans(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<Arc<TaskRecord>>, StoreError> {
        self.memory.orphans(now, limit).await
    }

    async fn put_document(&self, key: &str, document: Document) -> Result<(), StoreError> {
        self.memory.put_document(key, document).await
    }

    async fn put_document_if_absent(
        &self,
        key: &str,
        document: Document,
    ) -> Result<Document, StoreError> {
        self.memory.put_document_if_absent(key, document).await
    }

    async fn get_document(&self, key: &str) -> Result<Option<Document>, StoreError> {
        self.memory.get_document(key).await
    }

    async fn remove_document(&self, key: &str) -> Result<(), StoreError> {
        self.memory.remove_document(key).await
    }

    async fn remove_expired_documents(&self, now: Timestamp) -> Result<(), StoreError> {
        self.memory.remove_expired_documents(now).await
    }

    fn changes(&self) -> ChangeFeed {
        if self.faults.mute.load(Ordering::SeqCst) {
            return self.faults.silence.subscribe();
        }
        self.memory.changes()
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.memory.close().await
    }
}
