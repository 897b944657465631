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
/// How long to wait before changed tasks are read again that could not be read.
const READ_AGAIN: Duration = Duration::from_millis(100);
/// Of a lagging feed: more than any record has, less than a removal.
const UNKNOWN_REVISION: u64 = u64::MAX - 1;

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

type Watches = HashMap<TaskId, watch::Sender<Seen>>;

pub(crate) struct Hub {
    shards: Vec<Mutex<Watches>>,
    hasher: RandomState,
    watches: AtomicUsize,
    listening: Mutex<bool>,
    runs: papaya::HashMap<TaskId, RunSignals>,
    /// Bodies that run here: exact, and of one task there may be two for a moment (taken over by its own worker).
    running: AtomicUsize,
    run_ended: Notify,
    observers: ArcSwap<Vec<Weak<dyn Observer>>>,
}

/// Holds a task's watch open. Dropping it is leaving: the task is not touched.
pub(crate) struct Watch {
    hub: Arc<Hub>,
    id: TaskId,
    seen: Option<watch::Receiver<Seen>>,
}

/// A body that runs here. Dropping it says that it has ended, however it did.
pub(crate) struct Running {
    hub: Arc<Hub>,
    id: TaskId,
    attempt: u32,
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
            running: AtomicUsize::new(0),
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
        self.watches.fetch_add(1, Ordering::AcqRel);
        self.listen(engine);
        let seen = self
            .shard(id)
            .entry(id.clone())
            .or_insert_with(|| watch::Sender::new(Seen::Nothing))
            .subscribe();
        Watch {
            hub: self.clone(),
            id: id.clone(),
            seen: Some(seen),
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
            // Whether a change was heard of that could not be read.
            let mut behind = false;
            loop {
                let event = if behind {
                    tokio::time::sleep(READ_AGAIN).await;
                    Ok(Some(ChangeEvent::Lagged))
                } else {
                    tokio::time::timeout(LINGER, feed.next()).await
                };
                let (Some(hub), Some(engine)) = (hub.upgrade(), engine.upgrade()) else {
                    return;
                };
                match event {
                    Ok(Some(ChangeEvent::Task { id, revision })) => {
                        behind = !hub.heard(&engine, &id, revision).await;
                    }
                    Ok(Some(ChangeEvent::Lagged)) => {
                        behind = false;
                        for id in hub.watched() {
                            behind |= !hub.heard(&engine, &id, UNKNOWN_REVISION).await;
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

    /// The store says that a task has at least this revision. Whether it could be read.
    async fn heard(&self, engine: &Engine, id: &TaskId, revision: u64) -> bool {
        let known = self
            .shard(id)
            .get(id)
            .map(|sender| sender.borrow().revision());
        let Some(known) = known.filter(|known| *known < revision) else {
            return true;
        };
        match engine.store.get(id.as_str(), &Access::System).await {
            Ok(Some(record)) if record.revision > known => self.publish(&record),
            Ok(Some(_)) => {}
            // Followed before it exists, or gone: whoever waits has to look.
            Ok(None) if known == 0 && revision == UNKNOWN_REVISION => self.look_again(id),
            Ok(None) => self.publish_removed(id),
            Err(error) => {
                tracing::warn!(task = %id, %error, "a changed task could not be read");
                return false;
            }
        }
        true
    }

    /// Tells everybody here of a record.
    pub(crate) fn publish(&self, record: &Arc<TaskRecord>) {
        // Records may be told late: one of an attempt before this one says nothing about this one.
        if let Some(run) = self.runs.pin().get(&record.id)
            && record.attempt >= run.attempt
        {
            if record.attempt > run.attempt {
                run.stop.cancel();
            } else if matches!(record.state, State::Cancelled) {
                run.cancel.cancel();
            } else if record.is_terminal() {
                run.stop.cancel();
            }
        }
        // Observers first: what they send about a state goes out before a waiter's answer.
        self.each_observer(|observer| observer.changed(record));
        if let Some(sender) = self.shard(&record.id).get(&record.id) {
            sender.send_if_modified(|seen| {
                let newer = seen.revision() < record.revision;
                if newer {
                    *seen = Seen::Record(record.clone());
                }
                newer
            });
        }
    }

    /// Tells everybody here that a record is gone.
    pub(crate) fn publish_removed(&self, id: &TaskId) {
        self.cancel_run(id);
        self.each_observer(|observer| observer.removed(id));
        // Out of the map: an id that was proposed may come again, and is another task then.
        if let Some(sender) = self.shard(id).remove(id) {
            sender.send_replace(Seen::Removed);
        }
    }

    /// Wakes whoever waits for a task of which nothing has been seen and that is not there.
    fn look_again(&self, id: &TaskId) {
        self.cancel_run(id);
        if let Some(sender) = self.shard(id).get(id) {
            sender.send_modify(|_nothing| {});
        }
    }

    /// The task of a body is gone. It has its grace to end by itself, like after a cancel.
    fn cancel_run(&self, id: &TaskId) {
        if let Some(run) = self.runs.pin().get(id) {
            run.cancel.cancel();
        }
    }

    pub(crate) fn run_started(self: &Arc<Self>, id: &TaskId, signals: &RunSignals) -> Running {
        self.running.fetch_add(1, Ordering::SeqCst);
        self.runs.pin().update_or_insert_with(
            id.clone(),
            |have| {
                let newest = if have.attempt > signals.attempt {
                    have
                } else {
                    signals
                };
                newest.clone()
            },
            || signals.clone(),
        );
        Running {
            hub: self.clone(),
            id: id.clone(),
            attempt: signals.attempt,
        }
    }

    pub(crate) fn is_running(&self, id: &TaskId) -> bool {
        self.runs.pin().contains_key(id)
    }

    /// Completes when no body runs here.
    pub(crate) async fn runs_ended(&self) {
        loop {
            let ended = self.run_ended.notified();
            if self.running.load(Ordering::SeqCst) == 0 {
                return;
            }
            ended.await;
        }
    }

    /// What is kept of tasks: bodies that run, their signals, and watched tasks.
    pub(crate) fn held(&self) -> [usize; 3] {
        [
            self.running.load(Ordering::SeqCst),
            self.runs.len(),
            self.shards.iter().map(|shard| lock(shard).len()).sum(),
        ]
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
            // The sender goes when the task is removed; nothing comes after that.
            Some(seen) => {
                if seen.changed().await.is_err() {
                    std::future::pending().await
                }
            }
            None => std::future::pending().await,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mine = |_: &TaskId, run: &RunSignals| run.attempt == self.attempt;
        let _ = self.hub.runs.pin().remove_if(&self.id, mine);
        if self.hub.running.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.hub.run_ended.notify_waiters();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut shard = self.hub.shard(&self.id);
        self.seen = None;
        if shard
            .get(&self.id)
            .is_some_and(|sender| sender.receiver_count() == 0)
        {
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

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
