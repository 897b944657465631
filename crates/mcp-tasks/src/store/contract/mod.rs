//! The test-suite of a [`TaskStore`]: every promise in the trait's docs, checked from outside.
//!
//! ```no_run
//! # async fn example() {
//! use mcp_tasks::store::{MemoryStore, contract::Contract};
//!
//! Contract::new(async || MemoryStore::new()).run().await;
//! # }
//! ```
//!
//! For a backend that several processes share, [`Contract::reopen`] gives the suite a second handle to the same data,
//! and every check then goes through both. Run it on a multi-threaded Tokio runtime with time enabled, or races are
//! not races. A broken promise is a panic that says which one.

mod documents;
mod feed;
mod inserts;
mod leases;
mod lists;
mod roundtrip;
mod samples;
mod swaps;

use std::{pin::Pin, sync::Arc};

use super::{Access, Quota, TaskStore};
use crate::task::{Owner, TaskRecord};

type Reopen<S> = Box<dyn Fn(&S) -> Pin<Box<dyn Future<Output = S>>>>;

/// The suite for one backend.
pub struct Contract<S, F> {
    make: F,
    reopen: Option<Reopen<S>>,
}

impl<S, F> std::fmt::Debug for Contract<S, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contract")
            .field("second_handle", &self.reopen.is_some())
            .finish()
    }
}

/// Runs the whole suite; `make` gives a fresh, empty store at every call.
///
/// # Panics
/// When the store breaks a promise of [`TaskStore`].
pub async fn run<S, F>(make: F)
where
    S: TaskStore,
    F: AsyncFn() -> S,
{
    Contract::new(make).run().await;
}

impl<S, F> Contract<S, F>
where
    S: TaskStore,
    F: AsyncFn() -> S,
{
    /// A suite for the stores that `make` gives: a fresh, empty one at every call.
    pub fn new(make: F) -> Self {
        Self { make, reopen: None }
    }

    /// Opens a second handle to the data of a store, as another process would.
    #[must_use]
    pub fn reopen<R, Fut>(mut self, reopen: R) -> Self
    where
        R: Fn(&S) -> Fut + 'static,
        Fut: Future<Output = S> + 'static,
    {
        self.reopen = Some(Box::new(move |store| Box::pin(reopen(store))));
        self
    }

    /// Runs all checks, one after the other, each on a fresh store.
    ///
    /// # Panics
    /// When the store breaks a promise of [`TaskStore`].
    pub async fn run(&self) {
        inserts::conflicts(&self.fresh().await).await;
        inserts::racing_for_one_id(&self.fresh().await).await;
        inserts::quota_in_all(&self.fresh().await).await;
        inserts::quota_per_key(&self.fresh().await).await;
        inserts::racing_for_the_last_places(&self.fresh().await).await;
        inserts::remove_frees(&self.fresh().await).await;
        inserts::isolation(&self.fresh().await).await;
        swaps::revisions(&self.fresh().await).await;
        swaps::races(&self.fresh().await).await;
        swaps::counter(&self.fresh().await).await;
        swaps::against_removal(&self.fresh().await).await;
        lists::order_and_pages(&self.fresh().await).await;
        lists::what_is_not_listed(&self.fresh().await).await;
        lists::walk_among_writers(&self.fresh().await).await;
        lists::expiry(&self.fresh().await).await;
        leases::orphans_of(&self.fresh().await).await;
        leases::takeover_race(&self.fresh().await).await;
        documents::keep_and_forget(&self.fresh().await).await;
        documents::race(&self.fresh().await).await;
        roundtrip::every_field(&self.fresh().await).await;
        roundtrip::large(&self.fresh().await).await;
        feed::tells_of_changes(&self.fresh().await).await;
        feed::follows_many(&self.fresh().await).await;
        feed::ends_with_the_store(self.fresh().await).await;
        self.fresh().await.close().await;
    }

    async fn fresh(&self) -> Handles {
        let one = (self.make)().await;
        let two = match &self.reopen {
            Some(reopen) => Some(reopen(&one).await),
            None => None,
        };
        let one: Arc<dyn TaskStore> = Arc::new(one);
        let two: Arc<dyn TaskStore> = match two {
            Some(two) => Arc::new(two),
            None => one.clone(),
        };
        Handles { one, two }
    }
}

/// Two handles to the same data; one handle twice where the backend is not shared.
struct Handles {
    one: Arc<dyn TaskStore>,
    two: Arc<dyn TaskStore>,
}

impl Handles {
    /// One handle or the other, in turn.
    fn nth(&self, n: usize) -> Arc<dyn TaskStore> {
        if n.is_multiple_of(2) {
            self.one.clone()
        } else {
            self.two.clone()
        }
    }

    async fn close(self) {
        self.one
            .insert(samples::bearer().into_record(), samples::NO_LIMIT)
            .await
            .expect("insert");
        self.one.close().await.expect("close() after an insert");
        if !Arc::ptr_eq(&self.one, &self.two) {
            let left = self
                .two
                .expired(*samples::END, 10)
                .await
                .expect("expired() of the other handle");
            assert_eq!(left.len(), 1, "another handle goes on after a close()");
            self.two.close().await.expect("close() of the other handle");
        }
    }
}

/// Runs `n` tasks at once and gives what each returned.
async fn at_once<T, Fut>(n: usize, task: impl Fn(usize) -> Fut) -> Vec<T>
where
    T: Send + 'static,
    Fut: Future<Output = T> + Send + 'static,
{
    let barrier = Arc::new(tokio::sync::Barrier::new(n));
    let mut running = Vec::with_capacity(n);
    for i in 0..n {
        let (barrier, task) = (barrier.clone(), task(i));
        running.push(tokio::spawn(async move {
            barrier.wait().await;
            task.await
        }));
    }
    let mut returned = Vec::with_capacity(n);
    for task in running {
        returned.push(task.await.expect("a racing task panicked"));
    }
    returned
}

/// What `get` sees as the system.
async fn stored(store: &dyn TaskStore, record: &TaskRecord) -> Option<Arc<TaskRecord>> {
    store
        .get(record.id.as_str(), &Access::System)
        .await
        .expect("get")
}

/// Inserts without a limit.
async fn insert(store: &dyn TaskStore, record: &Arc<TaskRecord>) {
    let inserted = store.insert(record.clone(), samples::NO_LIMIT).await;
    inserted.expect("an insert without conflict or quota");
}

fn access(name: &str) -> Access {
    Access::Owner(Owner::principal(name))
}

fn bearer() -> Access {
    Access::Owner(Owner::Bearer)
}

fn quota(total: u64, per_key: u64) -> Quota {
    Quota { total, per_key }
}
