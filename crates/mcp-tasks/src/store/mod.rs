//! Where task records are kept.
//!
//! [`TaskStore`] is the one trait a backend implements; [`MemoryStore`] and [`SqliteStore`] are ours, and
//! `store::contract` (feature `contract`) is the test-suite that any backend runs. Stores know no status rules: they
//! compare and swap whole records, and they enforce the caller's [`Access`] in the query itself.

#[cfg(feature = "contract")]
pub mod contract;
mod feed;
mod memory;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::sync::Arc;

use async_trait::async_trait;

pub use feed::{ChangeEvent, ChangeFeed, ChangeSender};
pub use memory::MemoryStore;
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteOptions, SqliteStore, Synchronous, WriteStats};

use crate::task::{Owner, TaskId, TaskRecord, Timestamp, WorkerId};

/// On whose behalf a store is asked. A record that the access does not cover is, to the caller, not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// The runtime itself, or code that was handed a task on purpose: every record.
    System,
    /// The tasks of one owner: for [`Owner::Bearer`] those bound to nobody, whoever asks by id.
    Owner(Owner),
}

impl Access {
    /// Whether `record` is visible under this access.
    pub fn covers(&self, record: &TaskRecord) -> bool {
        match self {
            Self::System => true,
            Self::Owner(owner) => record.owner == *owner,
        }
    }
}

/// How many tasks may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// In all.
    pub total: u64,
    /// For one `quota_key`.
    pub per_key: u64,
}

/// Which bound of a [`Quota`] an insert would have broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaScope {
    /// The bound on all tasks.
    Total,
    /// The bound on one key's tasks.
    PerKey,
}

/// Why an insert was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InsertError {
    /// A task with that id, or with that external id, exists.
    #[error("a task with this {0} already exists")]
    Conflict(&'static str),
    /// A bound of the quota is reached.
    #[error("the limit of {limit} tasks {} is reached", match .scope { QuotaScope::Total => "in all", QuotaScope::PerKey => "per owner" })]
    Quota {
        /// Which bound.
        scope: QuotaScope,
        /// Its value.
        limit: u64,
    },
    /// The store itself failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What became of a compare-and-swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swap {
    /// The new record is in place.
    Done,
    /// The stored record has another revision: read again and decide anew.
    Stale,
    /// There is no such record for this access.
    Missing,
}

/// A failure of the store itself: I/O, corruption, a backend that is gone.
#[derive(Debug, Clone, thiserror::Error)]
#[error("task store: {doing}: {source}")]
pub struct StoreError {
    doing: &'static str,
    #[source]
    source: Arc<dyn std::error::Error + Send + Sync>,
}

impl StoreError {
    /// An error that happened while `doing` something.
    pub fn new(
        doing: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            doing,
            source: Arc::from(source.into()),
        }
    }
}

/// The place in a list after which the next page begins: newest first, by creation time, then id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListKey {
    /// When the last task of the page before was created.
    pub created_at: Timestamp,
    /// Its id.
    pub id: TaskId,
}

/// A session or a secret that has to outlive a process: a small document under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The content.
    pub body: Vec<u8>,
    /// When it may be forgotten; `None` is never.
    pub expires_at: Option<Timestamp>,
}

/// A store of task records.
///
/// Every method may be called at the same moment from any number of tasks and, where the backend is shared, of
/// processes. "Atomic" below means: with respect to every other call on the same data, from whatever process.
///
/// A call that returned `Ok` is durable to the degree the store promises in its own docs; a call whose future was
/// dropped may or may not have happened, but never by half.
#[async_trait]
pub trait TaskStore: Send + Sync + 'static {
    /// Adds a record. Atomic: of two racing inserts with one id (or one `external_id`) exactly one succeeds, and no
    /// interleaving lets the number of records exceed the quota. A refused insert leaves nothing behind. Hidden and
    /// ended tasks count until they are removed.
    ///
    /// # Errors
    /// [`InsertError::Conflict`] when the id or the external id is taken (also by a record that has expired but was
    /// not removed yet), [`InsertError::Quota`] when a bound is reached.
    async fn insert(&self, record: Arc<TaskRecord>, quota: Quota) -> Result<(), InsertError>;

    /// The record with this id, if `access` covers it. Sees every insert and swap that returned before the call,
    /// from whatever process. Expired records are returned until they are removed: the caller decides by its clock.
    async fn get(&self, id: &str, access: &Access) -> Result<Option<Arc<TaskRecord>>, StoreError>;

    /// The record with this external id, if `access` covers it.
    async fn find_external(
        &self,
        external_id: &str,
        access: &Access,
    ) -> Result<Option<Arc<TaskRecord>>, StoreError>;

    /// Puts `next` in the place of the stored record with the same id, if that has exactly `revision` and `access`
    /// covers it. Atomic: of any number of racing swaps from one revision exactly one is [`Swap::Done`]. The id,
    /// owner, quota key, external id, creation time and origin of a record never change; a backend may rely on it.
    async fn replace(
        &self,
        next: Arc<TaskRecord>,
        revision: u64,
        access: &Access,
    ) -> Result<Swap, StoreError>;

    /// Up to `limit` records of `owner` that are not hidden, newest first, after `after`. A record that is there for
    /// the whole of a walk over all pages is returned exactly once; one created meanwhile at most once. For
    /// [`Owner::Bearer`] always empty.
    async fn list(
        &self,
        owner: &Owner,
        after: Option<&ListKey>,
        limit: usize,
    ) -> Result<Vec<Arc<TaskRecord>>, StoreError>;

    /// Removes the record, if `access` covers it; whether it was there. Frees its quota atomically with it.
    async fn remove(&self, id: &str, access: &Access) -> Result<bool, StoreError>;

    /// Up to `limit` ids of records whose lifetime has passed at `now`, the longest expired first. The cost depends
    /// on the number returned, not on the number kept.
    async fn expired(&self, now: Timestamp, limit: usize) -> Result<Vec<TaskId>, StoreError>;

    /// The end of the lifetime that passes next, if any record has one.
    async fn next_expiry(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Renews the lease of `worker` until `until`: one write, however many tasks it runs.
    async fn heartbeat(&self, worker: &WorkerId, until: Timestamp) -> Result<(), StoreError>;

    /// Gives the lease up: from here on the worker counts as lapsed. Unknown workers are ignored.
    async fn release(&self, worker: &WorkerId) -> Result<(), StoreError>;

    /// Up to `limit` records that have not ended and whose worker's lease has passed at `now` (or was released, or
    /// never existed). Two processes may be given the same record: they race for it with [`replace`](Self::replace),
    /// and exactly one wins. Lapsed workers without such records may be forgotten.
    async fn orphans(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<Arc<TaskRecord>>, StoreError>;

    /// Keeps a document (a session, a key). The last writer wins.
    async fn put_document(&self, key: &str, document: Document) -> Result<(), StoreError>;

    /// Keeps a document unless the key is taken, and returns the one that is kept then. Atomic: all racing callers
    /// get the same document.
    async fn put_document_if_absent(
        &self,
        key: &str,
        document: Document,
    ) -> Result<Document, StoreError>;

    /// The document under `key`. One whose time has passed may or may not still be there.
    async fn get_document(&self, key: &str) -> Result<Option<Document>, StoreError>;

    /// Removes the document under `key`, if there.
    async fn remove_document(&self, key: &str) -> Result<(), StoreError>;

    /// Removes the documents whose time has passed at `now`.
    async fn remove_expired_documents(&self, now: Timestamp) -> Result<(), StoreError>;

    /// Follows the changes: after this returns, every insert, swap and removal — in this process or, where the
    /// backend is shared, in another — shows up on the feed, or as [`ChangeEvent::Lagged`]. A change of this process
    /// shows up at once; one of another as soon as the backend can tell (its docs say how soon). Work that a backend
    /// has to do for it (polling, a connection) is done only while a feed is held.
    fn changes(&self) -> ChangeFeed;

    /// Finishes what was begun and stops background work. Calls after it may fail.
    async fn close(&self) -> Result<(), StoreError>;
}
