//! One watch per task that exists only while somebody waits, fed by local writes and by the store's change feed.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{Engine, Observer};
use crate::{
    store::{Access, ChangeEvent},
    task::{State, TaskId, TaskRecord},
};

const SHARDS: usize = 64;
/// How long the change feed is held after the last watch is gone.
const LINGER: Duration = Duration::from_secs(1);

/// The newest that is known of a watched task.
#[derive(Debug, Clone, Default)]
pub(crate) enum Seen {
    /// Nothing yet: read the store.
    #[default]
    Nothing,
    Record(Arc<TaskRecord>),
    Removed,
}

impl Seen {
    fn revision(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Record(record) => record.revision,
            Self::Removed => u64::MAX,
        }
    }
}

/// The signals of a body that runs here.
#[derive(Debug, Clone)]
pub(crate) struct RunSignals {
    pub(crate) attempt: u32,
    /// The body's own token: it should end.
    pub(crate) cancel: CancellationToken,
    /// The body is dropped: the task is gone or another worker's.
    pub(crate) stop: CancellationToken,
}

/// What is kept of a task while somebody watches it.
#[derive(Default)]
struct Watched {
    /// How many do.
    watches: usize,
    /// The newest revision that everybody here was told of.
    known: u64,
    /// Made for the first that waits: most only follow, and a channel is larger than all else that is kept of a task.
    channel: Option<watch::Sender<Seen>>,
}

impl Watched {
    /// Takes note of a newer revision, and wakes who waits.
    fn tell(&mut self, seen: Seen) {
        let revision = seen.revision();
        if self.known >= revision {
            return;
        }
        self.known = revision;
        if let Some(channel) = &self.channel {
            channel.send_replace(seen);
        }
    }
}

type Watches = HashMap<TaskId, Watched>;

pub(crate) struct Hub {
    shards: Vec<Mutex<Watches>>,
    hasher: RandomState,
    watches: AtomicUsize,
    listening: Mutex<bool>,
    runs: papaya::HashMap<TaskId, RunSignals>,
    run_ended: Notify,
    observers: ArcSwap<Vec<Weak<dyn Observer>>>,
}

/// Holds a task's watch open. Dropping it is leaving: the task is not touched.
pub(crate) struct Watch {
    hub: Arc<Hub>,
    id: TaskId,
    seen: Option<watch::Receiver<Seen>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            watches: AtomicUsize::new(0),
            listening: Mutex::new(false),
            runs: papaya::HashMap::new(),
            run_ended: Notify::new(),
            observers: ArcSwap::default(),
        })
    }

    fn shard(&self, id: &TaskId) -> MutexGuard<'_, Watches> {
        let shard = self.hasher.hash_one(id.as_str()) % SHARDS as u64;
        lock(&self.shards[usize::try_from(shard).unwrap_or(0)])
    }

    pub(crate) fn observe(&self, observer: &Arc<dyn Observer>) {
        self.observers.rcu(|have| {
            let mut next: Vec<_> = have
                .iter()
                .filter(|weak| weak.strong_count() > 0)
                .cloned()
                .collect();
            next.push(Arc::downgrade(observer));
            next
        });
    }

    pub(crate) fn each_observer(&self, tell: impl Fn(&dyn Observer)) {
        for observer in self.observers.load().iter().filter_map(Weak::upgrade) {
            tell(&*observer);
        }
    }

    /// Opens a watch. Every change after this call is seen; read the store after it, not before.
    pub(crate) fn watch(self: &Arc<Self>, engine: &Arc<Engine>, id: &TaskId) -> Watch {
        self.open(engine, id, true)
    }

    /// Opens a watch that nobody waits on: observers and a body hear of changes by other processes.
    pub(crate) fn follow(self: &Arc<Self>, engine: &Arc<Engine>, id: &TaskId) -> Watch {
        self.open(engine, id, false)
    }

    fn open(self: &Arc<Self>, engine: &Arc<Engine>, id: &TaskId, waits: bool) -> Watch {
        self.watches.fetch_add(1, Ordering::AcqRel);
        self.listen(engine);
        let mut shard = self.shard(id);
        let watched = shard.entry(id.clone()).or_default();
        watched.watches += 1;
        let seen = waits.then(|| {
            let channel = watched.channel.get_or_insert_with(watch::Sender::default);
            channel.subscribe()
        });
        drop(shard);
        Watch {
            hub: self.clone(),
            id: id.clone(),
            seen,
        }
    }

    /// Follows the store's change feed while there are watches.
    fn listen(self: &Arc<Self>, engine: &Arc<Engine>) {
        let mut listening = lock(&self.listening);
        if std::mem::replace(&mut *listening, true) {
            return;
        }
        let mut feed = engine.store.changes();
        let (hub, engine) = (Arc::downgrade(self), Arc::downgrade(engine));
        tokio::spawn(async move {
            loop {
                let event = tokio::time::timeout(LINGER, feed.next()).await;
                let (Some(hub), Some(engine)) = (hub.upgrade(), engine.upgrade()) else {
                    return;
                };
                match event {
                    Ok(Some(ChangeEvent::Task { id, revision })) => {
                        hub.heard(&engine, &id, revision).await
                    }
                    Ok(Some(ChangeEvent::Lagged)) => {
                        for id in hub.watched() {
                            hub.heard(&engine, &id, u64::MAX - 1).await;
                        }
                    }
                    Ok(None) => {
                        *lock(&hub.listening) = false;
                        return;
                    }
                    Err(_quiet) => {
                        let mut listening = lock(&hub.listening);
                        if hub.watches.load(Ordering::Acquire) == 0 {
                            *listening = false;
                            return;
                        }
                    }
                }
            }
        });
    }

    fn watched(&self) -> Vec<TaskId> {
        self.shards
            .iter()
            .flat_map(|shard| lock(shard).keys().cloned().collect::<Vec<_>>())
            .collect()
    }

    /// The store says that a task has at least this revision.
    async fn heard(&self, engine: &Engine, id: &TaskId, revision: u64) {
        let known = self.shard(id).get(id).map(|watched| watched.known);
        if known.is_none_or(|known| known >= revision) {
            return;
        }
        match engine.store.get(id.as_str(), &Access::System).await {
            Ok(Some(record)) => self.publish(&record),
            Ok(None) => self.publish_removed(id),
            Err(error) => tracing::warn!(task = %id, %error, "a changed task could not be read"),
        }
    }

    /// Tells everybody here of a record.
    pub(crate) fn publish(&self, record: &Arc<TaskRecord>) {
        if let Some(run) = self.runs.pin().get(&record.id) {
            if record.attempt != run.attempt {
                run.stop.cancel();
            } else if matches!(record.state, State::Cancelled) {
                run.cancel.cancel();
            } else if record.is_terminal() {
                run.stop.cancel();
            }
        }
        // Observers first: what they send about a state goes out before a waiter's answer.
        self.each_observer(|observer| observer.changed(record));
        if let Some(watched) = self.shard(&record.id).get_mut(&record.id) {
            watched.tell(Seen::Record(record.clone()));
        }
    }

    /// Tells everybody here that a record is gone.
    pub(crate) fn publish_removed(&self, id: &TaskId) {
        if let Some(run) = self.runs.pin().get(id) {
            // It has its grace to end by itself, like after a cancel.
            run.cancel.cancel();
        }
        self.each_observer(|observer| observer.removed(id));
        if let Some(watched) = self.shard(id).get_mut(id) {
            watched.tell(Seen::Removed);
        }
    }

    pub(crate) fn run_started(&self, id: &TaskId, signals: RunSignals) {
        self.runs.pin().insert(id.clone(), signals);
    }

    pub(crate) fn run_ended(&self, id: &TaskId, attempt: u32) {
        let _ = self
            .runs
            .pin()
            .remove_if(id, |_, run| run.attempt == attempt);
        if self.runs.is_empty() {
            self.run_ended.notify_waiters();
        }
    }

    pub(crate) fn is_running(&self, id: &TaskId) -> bool {
        self.runs.pin().contains_key(id)
    }

    /// Completes when no body runs here.
    pub(crate) async fn runs_ended(&self) {
        loop {
            let ended = self.run_ended.notified();
            if self.runs.is_empty() {
                return;
            }
            ended.await;
        }
    }
}

impl Watch {
    /// The newest that was published since the watch was opened.
    pub(crate) fn seen(&mut self) -> Seen {
        match &mut self.seen {
            Some(seen) => seen.borrow_and_update().clone(),
            None => Seen::Removed,
        }
    }

    /// Waits for the next change.
    pub(crate) async fn changed(&mut self) {
        match &mut self.seen {
            // The sender stays in the hub for as long as a receiver exists.
            Some(seen) => {
                let _ = seen.changed().await;
            }
            None => std::future::pending().await,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut shard = self.hub.shard(&self.id);
        let waited = self.seen.take().is_some();
        let mut last = false;
        if let Some(watched) = shard.get_mut(&self.id) {
            watched.watches -= 1;
            last = watched.watches == 0;
            if waited
                && let Some(channel) = &watched.channel
                && channel.receiver_count() == 0
            {
                watched.channel = None;
            }
        }
        if last {
            shard.remove(&self.id);
            if shard.capacity() > 256 && shard.len() * 4 < shard.capacity() {
                let keep = shard.len() * 2;
                shard.shrink_to(keep);
            }
        }
        drop(shard);
        self.hub.watches.fetch_sub(1, Ordering::AcqRel);
    }
}
