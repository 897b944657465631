//! `subscriptions/listen`: what becomes of tasks, told as it happens (2026-07-28 `basic/patterns/subscriptions`;
//! ext-tasks, Task Status Notifications).

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::stream::{self, Stream};
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::{Caller, Incoming};
use crate::{
    receiver::read_error,
    runtime::{LogEvent, Observer, ProgressEvent, ReadError, Runtime, Watch},
    server::plane::Plane,
    task::{ErrorObject, TaskId, TaskRecord},
    wire::v2026_07_28 as g2,
};

/// How many changes wait for a client that reads slowly; beyond that only the newest of each task does.
const WAITING: usize = 256;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One open subscription.
pub(crate) struct Subscription {
    /// The id of its request.
    pub(crate) id: Box<RawValue>,
    /// The tasks it may hear of, where it asked for some.
    pub(crate) tasks: Option<Vec<TaskId>>,
    /// Whether it hears of changes of the list of tools.
    pub(crate) tools_changed: bool,
    queue: Mutex<Queue>,
    more: Notify,
    registry: Weak<Subscriptions>,
}

#[derive(Default)]
struct Queue {
    records: VecDeque<Arc<TaskRecord>>,
    /// The newest that was offered of each task.
    newest: HashMap<TaskId, Arc<TaskRecord>>,
    tools_changed: bool,
    /// So that changes in other processes are heard of.
    watches: HashMap<TaskId, Watch>,
}

/// Whether `tasks/get` says something else of the task than before.
fn differs(record: &TaskRecord, before: &TaskRecord) -> bool {
    let open = |record: &TaskRecord| -> Vec<Arc<str>> {
        record
            .open_inputs()
            .map(|input| input.key.clone())
            .collect()
    };
    record.tells_more_than(before) || record.ttl_ms != before.ttl_ms || open(record) != open(before)
}

impl Subscription {
    fn offer(&self, record: &Arc<TaskRecord>) {
        let mut queue = lock(&self.queue);
        if let Some(newest) = queue.newest.get(&record.id) {
            if newest.revision >= record.revision {
                return;
            }
            if !differs(record, newest) {
                queue.newest.insert(record.id.clone(), record.clone());
                return;
            }
        }
        queue.newest.insert(record.id.clone(), record.clone());
        if queue.records.len() >= WAITING {
            queue.records.retain(|waiting| waiting.id != record.id);
        }
        queue.records.push_back(record.clone());
        if record.is_terminal() {
            queue.watches.remove(&record.id);
        }
        drop(queue);
        self.more.notify_one();
    }

    fn next_now(&self) -> Option<Vec<u8>> {
        let mut queue = lock(&self.queue);
        if std::mem::take(&mut queue.tools_changed) {
            return Some(g2::tools_changed(&self.id));
        }
        let record = queue.records.pop_front();
        drop(queue);
        record.map(|record| g2::task_changed(&self.id, &record))
    }

    /// What there is to say, until the server shuts down; then the response that ends it, and on a pipe what follows
    /// that.
    pub(crate) fn messages(
        self: Arc<Self>,
        runtime: Runtime,
        pipe: bool,
    ) -> impl Stream<Item = Vec<u8>> + Send {
        enum Step {
            Open,
            Ended,
            Over,
        }
        let begin = (self, runtime, Step::Open);
        stream::unfold(begin, move |(this, runtime, step)| async move {
            match step {
                Step::Open => loop {
                    if let Some(message) = this.next_now() {
                        return Some((message, (this, runtime, Step::Open)));
                    }
                    tokio::select! {
                        biased;
                        () = this.more.notified() => {}
                        () = runtime.stopped() => {
                            let ended = g2::subscription_ended(&this.id);
                            let step = if pipe { Step::Ended } else { Step::Over };
                            return Some((ended, (this, runtime, step)));
                        }
                    }
                },
                Step::Ended => {
                    let message = g2::subscription_cancelled(&this.id);
                    Some((message, (this, runtime, Step::Over)))
                }
                Step::Over => None,
            }
        })
    }

    /// The acknowledgement, added to the inner server's own where there is one.
    pub(crate) fn acknowledgement(&self, inner: Option<&RawValue>) -> Vec<u8> {
        let tasks = self.tasks.as_deref();
        g2::subscription_acknowledged(&self.id, inner, tasks, self.tools_changed)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            registry.forget(self.tasks.as_deref().unwrap_or_default());
        }
    }
}

/// The open subscriptions, by what they want to hear of.
#[derive(Default)]
pub(crate) struct Subscriptions {
    tasks: Mutex<HashMap<TaskId, Vec<Weak<Subscription>>>>,
    /// How many tasks somebody listens to: most of the time none.
    listened: AtomicUsize,
    tools: Mutex<Vec<Weak<Subscription>>>,
}

impl Subscriptions {
    fn add(&self, subscription: &Arc<Subscription>) {
        let mut tasks = lock(&self.tasks);
        for task in subscription.tasks.iter().flatten() {
            let those = tasks.entry(task.clone()).or_default();
            those.push(Arc::downgrade(subscription));
        }
        self.listened.store(tasks.len(), Ordering::Release);
        drop(tasks);
        if subscription.tools_changed {
            let mut tools = lock(&self.tools);
            tools.retain(|one| one.strong_count() > 0);
            tools.push(Arc::downgrade(subscription));
        }
    }

    /// Sweeps out those that are gone and heard of these tasks.
    fn forget(&self, ids: &[TaskId]) {
        let mut tasks = lock(&self.tasks);
        for id in ids {
            if let Some(those) = tasks.get_mut(id) {
                those.retain(|one| one.strong_count() > 0);
                if those.is_empty() {
                    tasks.remove(id);
                }
            }
        }
        self.listened.store(tasks.len(), Ordering::Release);
    }

    pub(crate) fn tools_changed(&self) {
        let those = lock(&self.tools).clone();
        for subscription in those.iter().filter_map(Weak::upgrade) {
            lock(&subscription.queue).tools_changed = true;
            subscription.more.notify_one();
        }
    }
}

impl Observer for Subscriptions {
    fn changed(&self, record: &Arc<TaskRecord>) {
        if self.listened.load(Ordering::Acquire) == 0 {
            return;
        }
        let those = lock(&self.tasks).get(&record.id).cloned();
        for subscription in those.into_iter().flatten() {
            if let Some(subscription) = subscription.upgrade() {
                subscription.offer(record);
            }
        }
    }

    fn removed(&self, _: &TaskId) {}

    fn progress(&self, _: &Arc<TaskRecord>, _: &ProgressEvent) {}

    fn log(&self, _: &Arc<TaskRecord>, _: &LogEvent) {}
}

impl Plane {
    /// Begins a subscription: its tasks are those of the ones asked for that this requestor may read.
    pub(super) async fn subscribe(
        self: &Arc<Self>,
        request: &Incoming<'_>,
        caller: &Caller<'_>,
    ) -> Result<Arc<Subscription>, ErrorObject> {
        let wanted = g2::listen(request.params)?;
        if wanted.tasks.is_some() && !caller.declares_tasks {
            return Err(g2::tasks_undeclared());
        }
        if wanted.tasks.is_some()
            && let Err(error) = self.runtime.start_worker().await
        {
            return Err(ErrorObject::from(&error));
        }
        let (access, requestor) = (caller.access(), caller.requestor());
        let mut allowed = HashSet::new();
        for task in wanted.tasks.iter().flatten() {
            match self.runtime.get(task, &access, Some(&requestor)).await {
                Ok(_) => drop(allowed.insert(task.clone())),
                // A tool that cannot say how its job is doing is a task all the same.
                Err(ReadError::Tool(_)) => drop(allowed.insert(task.clone())),
                Err(ReadError::NotFound | ReadError::Terminal(_)) => {}
                Err(error) => return Err(read_error(error)),
            }
        }
        let tasks = wanted.tasks.map(|mut tasks| {
            tasks.retain(|task| allowed.contains(task));
            tasks
        });
        let subscription = Arc::new(Subscription {
            id: request.id.to_owned(),
            tasks,
            tools_changed: wanted.tools_changed,
            queue: Mutex::default(),
            more: Notify::new(),
            registry: Arc::downgrade(&self.subscriptions),
        });
        self.subscriptions.add(&subscription);
        for task in subscription.tasks.iter().flatten() {
            let watch = self.runtime.follow(task);
            lock(&subscription.queue)
                .watches
                .insert(task.clone(), watch);
            // From here on no change is missed; this is the state it begins with.
            if let Ok(record) = self.runtime.stored(task, &access).await {
                subscription.offer(&record);
            }
        }
        Ok(subscription)
    }
}
