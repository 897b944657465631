//! Who is connected. A session has no rights of its own: those are its owner's.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use arc_swap::ArcSwapOption;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::outlet::Outlet;
use crate::{
    runtime::{LogLevel, Requestor},
    task::{Generation, Owner, RawJson, TaskId},
};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known of a session: what `initialize` agreed on. Kept in the store too, so that any replica has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SessionFacts {
    pub(crate) owner: Owner,
    /// The revision of the `initialize` answer.
    pub(crate) version: String,
    pub(crate) capabilities: Option<RawJson>,
    pub(crate) client_info: Option<RawJson>,
    /// Whether the inner server has tools of its own.
    pub(crate) inner_tools: bool,
    /// Whether the inner server answers `logging/setLevel`.
    pub(crate) inner_logging: bool,
}

/// Put into the extensions of what goes on to the inner server: the session it came in.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "client"), allow(dead_code))]
pub(crate) struct CameIn(pub(crate) Arc<str>);

/// One client connection.
pub(crate) struct Session {
    pub(crate) key: Arc<str>,
    pub(crate) facts: ArcSwapOption<SessionFacts>,
    owner: Owner,
    /// Whether there is anything like a session at all: without, there are no general streams and no quota of its own.
    pub(crate) is_real: bool,
    log_level: Mutex<Option<LogLevel>>,
    /// The general streams, the newest last.
    general: Mutex<Vec<Arc<Outlet>>>,
    /// Tasks with a question that had no stream to go to.
    pub(super) waiting: Mutex<HashSet<TaskId>>,
    /// Requests of the client that are being answered, by the text of their id.
    pending: Mutex<HashMap<String, CancellationToken>>,
    /// Cancelled when it ends.
    pub(crate) ended: CancellationToken,
    /// Bodies of this session that are open.
    pub(crate) open: AtomicUsize,
    used: Mutex<Instant>,
    touched: Mutex<Instant>,
    #[cfg(feature = "http")]
    renewed: Mutex<Instant>,
    /// The headers of a request of its client, for touching it in the inner server.
    #[cfg(feature = "http")]
    remembered: Mutex<Option<http::request::Parts>>,
}

impl Session {
    pub(crate) fn new(
        key: Arc<str>,
        owner: Owner,
        is_real: bool,
        facts: Option<SessionFacts>,
    ) -> Arc<Self> {
        Arc::new(Self {
            key,
            facts: ArcSwapOption::from_pointee(facts),
            owner,
            is_real,
            log_level: Mutex::new(None),
            general: Mutex::default(),
            waiting: Mutex::default(),
            pending: Mutex::default(),
            ended: CancellationToken::new(),
            open: AtomicUsize::new(0),
            used: Mutex::new(Instant::now()),
            touched: Mutex::new(Instant::now()),
            #[cfg(feature = "http")]
            renewed: Mutex::new(Instant::now()),
            #[cfg(feature = "http")]
            remembered: Mutex::default(),
        })
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Which generation its requests are of.
    pub(crate) fn generation(&self) -> Generation {
        match self.facts.load().as_deref() {
            Some(facts) if facts.version == crate::wire::v2025_11_25::VERSION => {
                Generation::V2025_11_25
            }
            _ => Generation::Legacy,
        }
    }

    /// Who asks, as the runtime wants to know it.
    pub(crate) fn requestor(&self) -> Requestor {
        let mut requestor = Requestor::new(self.owner.clone(), self.generation());
        requestor.session = self.is_real.then(|| self.key.clone());
        if let Some(facts) = self.facts.load().as_deref() {
            requestor.capabilities = facts.capabilities.clone();
            requestor.client_info = facts.client_info.clone();
        }
        requestor
    }

    /// Whose share of the per-owner limit its tasks take.
    pub(crate) fn quota_key(&self) -> Option<Arc<str>> {
        match &self.owner {
            Owner::Principal(name) => Some(format!("owner:{name}").into()),
            Owner::Bearer if self.is_real => Some(format!("session:{}", self.key).into()),
            Owner::Bearer => None,
        }
    }

    pub(crate) fn set_log_level(&self, level: LogLevel) {
        *lock(&self.log_level) = Some(level);
    }

    /// Whether a message of this level is wanted. Until the client says otherwise, all are.
    pub(crate) fn wants_log(&self, level: LogLevel) -> bool {
        lock(&self.log_level).is_none_or(|least| level >= least)
    }

    pub(crate) fn add_general(&self, outlet: Arc<Outlet>) -> HashSet<TaskId> {
        let mut general = lock(&self.general);
        general.push(outlet);
        std::mem::take(&mut *lock(&self.waiting))
    }

    pub(crate) fn remove_general(&self, outlet: &Outlet) {
        lock(&self.general).retain(|have| have.id() != outlet.id());
    }

    /// The newest general stream that is open.
    pub(crate) fn general(&self) -> Option<Arc<Outlet>> {
        lock(&self.general)
            .iter()
            .rev()
            .find(|outlet| outlet.is_open())
            .cloned()
    }

    /// The same for a question of `task`, which waits for the next general stream if there is none.
    pub(crate) fn general_or_wait(&self, task: &TaskId) -> Option<Arc<Outlet>> {
        // Under this lock no stream can be opened between the look and the wait.
        let general = lock(&self.general);
        let newest = general.iter().rev().find(|outlet| outlet.is_open());
        if newest.is_none() {
            lock(&self.waiting).insert(task.clone());
        }
        newest.cloned()
    }

    pub(crate) fn stop_waiting(&self, task: &TaskId) {
        lock(&self.waiting).remove(task);
    }

    /// Remembers that a request is being answered, so that `notifications/cancelled` finds it.
    pub(crate) fn begin(self: &Arc<Self>, request: &str) -> PendingGuard {
        let token = CancellationToken::new();
        lock(&self.pending).insert(request.to_owned(), token.clone());
        PendingGuard {
            session: self.clone(),
            request: request.to_owned(),
            token,
        }
    }

    /// Cancels a request of ours; whether there is one with that id.
    pub(crate) fn cancel_request(&self, request: &str) -> bool {
        let token = lock(&self.pending).get(request).cloned();
        token.inspect(CancellationToken::cancel).is_some()
    }

    pub(crate) fn touch(&self) {
        self.touch_at(Instant::now());
    }

    pub(crate) fn touch_at(&self, now: Instant) {
        *lock(&self.used) = now;
    }

    pub(crate) fn idle(&self) -> std::time::Duration {
        if self.open.load(Ordering::Acquire) > 0 {
            return std::time::Duration::ZERO;
        }
        lock(&self.used).elapsed()
    }

    /// Whether it is time to touch it again; if so, it counts as touched.
    pub(crate) fn needs_touch(&self, now: Instant, every: std::time::Duration) -> bool {
        let mut touched = lock(&self.touched);
        let due = now.saturating_duration_since(*touched) >= every;
        if due {
            *touched = now;
        }
        due
    }

    /// Whether it is time to store it anew; if so, it counts as stored.
    #[cfg(feature = "http")]
    pub(crate) fn needs_renewal(&self, every: std::time::Duration) -> bool {
        let mut renewed = lock(&self.renewed);
        let due = renewed.elapsed() >= every;
        if due {
            *renewed = Instant::now();
        }
        due
    }

    #[cfg(feature = "http")]
    pub(crate) fn remember(&self, parts: http::request::Parts) {
        *lock(&self.remembered) = Some(parts);
    }

    #[cfg(feature = "http")]
    pub(crate) fn remembered(&self) -> Option<http::request::Parts> {
        lock(&self.remembered).clone()
    }

    #[cfg(feature = "http")]
    pub(crate) fn is_http(&self) -> bool {
        !self.key.starts_with("pipe-")
    }

    /// Ends it: its general streams close. Its owner's tasks stay.
    fn close(&self) -> Vec<Arc<Outlet>> {
        self.ended.cancel();
        std::mem::take(&mut *lock(&self.general))
    }
}

/// Forgets a request when it has been answered or given up.
pub(crate) struct PendingGuard {
    session: Arc<Session>,
    request: String,
    pub(crate) token: CancellationToken,
}

impl Drop for PendingGuard {
    fn drop(&mut self) {
        lock(&self.session.pending).remove(&self.request);
    }
}

/// The sessions of one endpoint.
#[derive(Default)]
pub(crate) struct Sessions(papaya::HashMap<Arc<str>, Arc<Session>>);

impl Sessions {
    pub(crate) fn get(&self, key: &str) -> Option<Arc<Session>> {
        self.0.pin().get(key).cloned()
    }

    /// Adds it, unless it is there: then that one is returned.
    pub(crate) fn add(&self, session: Arc<Session>) -> Arc<Session> {
        self.0
            .pin()
            .get_or_insert(session.key.clone(), session)
            .clone()
    }

    /// Removes and closes it; the streams it had.
    pub(crate) fn remove(&self, key: &str) -> Vec<Arc<Outlet>> {
        let removed = self.0.pin().remove(key).cloned();
        removed.map(|session| session.close()).unwrap_or_default()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.0.pin().values().cloned().collect()
    }
}
