//! Requests of ours to a client, from their sending to their answer. They live in this process: whoever made one waits
//! for it, and makes it again where that is allowed.
#![cfg_attr(not(feature = "client"), allow(dead_code))]

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::value::RawValue;

use super::{delivery::Delivery, outlet::Outlet, session::Session};
use crate::{task::TaskId, wire::envelope::Message};

/// How long a request that may not be repeated still waits for its answer when the stream it went out on is gone: the
/// answer comes on a connection of its own.
const GRACE: Duration = Duration::from_secs(5);

/// Whoever makes requests of a client.
pub(crate) trait Asking: Send + Sync {
    /// Whether anybody is still there.
    fn is_alive(&self) -> bool;

    /// The answer to a request.
    fn answered(&self, message: &Message<'_>);

    /// There will be no answer to the request with this id (JSON text).
    fn lost(&self, id: &str, why: &str);

    /// The client said something that may be about its tasks; whether it was.
    fn told(&self, method: &str, params: Option<&RawValue>) -> bool;
}

type Asks = Vec<Arc<dyn Asking>>;

/// A request to be made.
pub(crate) struct Asked {
    pub(crate) asking: Arc<dyn Asking>,
    pub(crate) session: Arc<str>,
    /// The task of ours on whose behalf it is made.
    pub(crate) task: Option<TaskId>,
    pub(crate) message: Vec<u8>,
    /// Whether it may be made again when its stream is gone.
    pub(crate) repeatable: bool,
}

struct Entry {
    asked: Asked,
    /// The stream it went out on.
    sent: Option<Arc<Outlet>>,
}

/// The requests that are under way, by their ids (JSON text), and who may make some.
#[derive(Default)]
pub(crate) struct Requests {
    entries: Mutex<HashMap<Arc<str>, Entry>>,
    /// How many of them have not been sent: most of the time none.
    unsent: AtomicUsize,
    asking: Mutex<HashMap<Arc<str>, Asks>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Requests {
    /// `asking` is to hear what the client of `session` says of its tasks.
    pub(crate) fn listen(&self, session: &Arc<str>, asking: Arc<dyn Asking>) {
        let mut all = lock(&self.asking);
        if !all.contains_key(session) {
            // Now and then, what is left of sessions that have ended is swept out.
            all.retain(|_, those| {
                those.retain(|one| one.is_alive());
                !those.is_empty()
            });
        }
        let those = all.entry(session.clone()).or_default();
        those.retain(|one| one.is_alive());
        those.push(asking);
    }

    /// Takes note of a request that is to be sent.
    pub(crate) fn add(&self, id: Arc<str>, asked: Asked) {
        let mut entries = lock(&self.entries);
        self.unsent.fetch_add(1, Ordering::AcqRel);
        entries.insert(id, Entry { asked, sent: None });
    }

    /// Those that wait for a stream.
    pub(super) fn unsent(&self) -> Vec<(Arc<str>, Arc<str>, Option<TaskId>)> {
        if self.unsent.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let entries = lock(&self.entries);
        let waiting = entries.iter().filter(|(_, entry)| entry.sent.is_none());
        waiting
            .map(|(id, entry)| {
                let asked = &entry.asked;
                (id.clone(), asked.session.clone(), asked.task.clone())
            })
            .collect()
    }

    /// Whether one on behalf of `task` waits for a stream.
    pub(super) fn wants_stream(&self, task: &TaskId) -> bool {
        self.unsent.load(Ordering::Acquire) > 0
            && lock(&self.entries)
                .values()
                .any(|entry| entry.sent.is_none() && entry.asked.task.as_ref() == Some(task))
    }

    /// Sends one on a stream, unless that was done; `false` if the stream has just closed.
    pub(super) fn send_on(&self, id: &str, outlet: &Arc<Outlet>) -> bool {
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.get_mut(id).filter(|entry| entry.sent.is_none()) else {
            return true;
        };
        // Under this lock: a stream that closes from here on finds it.
        if !outlet.send_surely(std::mem::take(&mut entry.asked.message)) {
            return false;
        }
        entry.sent = Some(outlet.clone());
        self.unsent.fetch_sub(1, Ordering::AcqRel);
        true
    }

    /// Nobody waits for the answer any more, or it has come.
    pub(crate) fn remove(&self, id: &str) -> Option<Arc<dyn Asking>> {
        let entry = lock(&self.entries).remove(id)?;
        if entry.sent.is_none() {
            self.unsent.fetch_sub(1, Ordering::AcqRel);
        }
        Some(entry.asked.asking)
    }

    /// A response of the client; whether it answers one of these.
    pub(super) fn answered(&self, session: &Session, id: &RawValue, message: &Message<'_>) -> bool {
        let theirs = lock(&self.entries)
            .get(id.get())
            .is_some_and(|entry| entry.asked.session == session.key && entry.sent.is_some());
        match theirs.then(|| self.remove(id.get())).flatten() {
            Some(asking) => {
                asking.answered(message);
                true
            }
            None => false,
        }
    }

    /// A notification of the client; whether somebody who asks it took it.
    pub(super) fn told(&self, session: &Session, method: &str, params: Option<&RawValue>) -> bool {
        if !matches!(
            method,
            "notifications/tasks/status" | "notifications/progress"
        ) {
            return false;
        }
        let those = lock(&self.asking).get(&session.key).cloned();
        let mut taken = false;
        for one in those.into_iter().flatten() {
            taken |= one.told(method, params);
        }
        taken
    }

    /// A stream is gone. What may be repeated is lost at once; for the rest an answer may still come.
    pub(super) fn stream_closed(&self, outlet: &Arc<Outlet>, delivery: &Weak<Delivery>) {
        let on_it: Vec<(Arc<str>, bool)> = lock(&self.entries)
            .iter()
            .filter(|(_, entry)| {
                entry
                    .sent
                    .as_ref()
                    .is_some_and(|sent| sent.id() == outlet.id())
            })
            .map(|(id, entry)| (id.clone(), entry.asked.repeatable))
            .collect();
        for (id, repeatable) in on_it {
            if repeatable {
                self.lose(&id);
                continue;
            }
            let (Ok(handle), delivery) = (tokio::runtime::Handle::try_current(), delivery.clone())
            else {
                self.lose(&id);
                continue;
            };
            handle.spawn(async move {
                tokio::time::sleep(GRACE).await;
                if let Some(delivery) = delivery.upgrade() {
                    delivery.requests.lose(&id);
                }
            });
        }
    }

    fn lose(&self, id: &str) {
        if let Some(asking) = self.remove(id) {
            asking.lost(id, "the stream that carried the request is gone");
        }
    }
}
