//! The store in one SQLite file: [`SqliteStore`].
//!
//! One thread writes ([`writer`], with group commit; the SQL is in [`batch`]), a few connections read ([`reader`]), one
//! thread looks for other processes' changes while somebody listens ([`watch`]). The tables are in [`schema`].

mod batch;
mod file;
mod options;
mod reader;
mod rows;
mod schema;
mod watch;
mod writer;

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use async_trait::async_trait;

pub use self::options::{SqliteOptions, Synchronous};
use self::{
    batch::Inserted,
    file::File,
    reader::Readers,
    watch::{Watch, newest_change},
    writer::{Progress, Writer},
};
use super::{
    Access, ChangeFeed, ChangeSender, Document, InsertError, ListKey, Quota, StoreError, Swap,
    TaskStore,
};
use crate::task::{Owner, TaskId, TaskRecord, Timestamp, WorkerId};

/// Tasks in one SQLite file: they survive the process, and several processes may open the file at once.
///
/// ```no_run
/// # fn main() -> Result<(), mcp_tasks::store::StoreError> {
/// use mcp_tasks::store::SqliteStore;
///
/// let store = SqliteStore::open("tasks.db")?;
/// # Ok(()) }
/// ```
///
/// # What is durable when
/// A write that returned `Ok` is committed and, with [`Synchronous::Full`] (the default), on the disk: it survives a
/// crash of the process and the loss of power. With [`Synchronous::Normal`] it survives a crash of the process, but
/// a loss of power may take the last writes with it; the file stays whole in both. A write whose future was dropped
/// is still made, unless the process ends first. What a process that was killed had not committed is not there at
/// all.
///
/// # Several processes
/// One process writes at a time; the others wait, up to [`SqliteOptions::busy_timeout`], and nothing is lost to a
/// "database is locked". All see each other's writes at once. A change feed tells of another process's change within
/// about [`SqliteOptions::watch_interval`] (10 ms), which is looked for by one thread, only while a feed is held.
/// The file has to be on a local disk: SQLite's WAL mode does not work over a network file system.
///
/// # Cost
/// Writes that come in while another is being synced to the disk share the next commit, so the rate rises with the
/// number of concurrent writers. Reads do not wait for writes. Async threads never wait for the disk.
///
/// Shared by clones. When the last is dropped, the threads end; [`close`](TaskStore::close) waits for it.
#[derive(Debug, Clone)]
pub struct SqliteStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    // In the order in which they go: the writer's connection is the last.
    watch: Watch,
    readers: Arc<Readers>,
    writer: Writer,
    progress: Arc<Progress>,
    file: Arc<File>,
}

/// How much a [`SqliteStore`] has written: [`SqliteStore::write_stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteStats {
    /// Writes that were committed.
    pub writes: u64,
    /// Transactions they were committed in.
    pub commits: u64,
}

impl SqliteStore {
    /// Opens the file, or makes it. Blocks for a moment; meant for the start of a program.
    ///
    /// # Errors
    /// When the path is a directory, cannot be written, or is not on a file system with locks and shared memory;
    /// when the file is not a database, is that of another application, or was written by a newer version of this
    /// crate. Such a file is left as it is.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, SqliteOptions::default())
    }

    /// Opens the file with other settings than the defaults.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        let file = Arc::new(File::new(path.as_ref(), options)?);
        let conn = file.open_writer()?;
        let progress = Arc::new(Progress::default());
        let newest = newest_change(&conn).map_err(|error| file.error("opening", error))?;
        progress.seq.store(newest, Ordering::Release);
        // Which rows of the change log are this object's own.
        let (me, _) = uuid::Uuid::new_v4().as_u64_pair();
        let me = i64::from_ne_bytes(me.to_ne_bytes());
        let feed = ChangeSender::new();
        Ok(Self(Arc::new(Inner {
            watch: Watch::new(file.clone(), me, progress.clone(), feed.clone()),
            readers: Readers::new(file.clone()),
            writer: Writer::start(conn, file.clone(), me, progress.clone(), feed)?,
            progress,
            file,
        })))
    }

    /// Where the file is (absolute).
    pub fn path(&self) -> &Path {
        &self.0.file.path
    }

    /// How much this object has written since it was opened.
    pub fn write_stats(&self) -> WriteStats {
        WriteStats {
            writes: self.0.progress.writes.load(Ordering::Relaxed),
            commits: self.0.progress.commits.load(Ordering::Relaxed),
        }
    }
}

#[async_trait]
impl TaskStore for SqliteStore {
    async fn insert(&self, record: Arc<TaskRecord>, quota: Quota) -> Result<(), InsertError> {
        let doing = "inserting a task";
        let encode = |error| self.0.file.error(doing, error);
        let state = rows::state_json(&record).map_err(encode)?;
        let origin = serde_json::to_string(&record.origin).map_err(encode)?;
        let bytes = state.len() + origin.len();
        let inserted = self
            .0
            .writer
            .write(doing, bytes, move |batch| {
                batch.insert(&record, &state, &origin, quota)
            })
            .await?;
        match inserted {
            Inserted::Done => Ok(()),
            Inserted::Conflict(what) => Err(InsertError::Conflict(what)),
            Inserted::Quota { scope, limit } => Err(InsertError::Quota { scope, limit }),
        }
    }

    async fn get(&self, id: &str, access: &Access) -> Result<Option<Arc<TaskRecord>>, StoreError> {
        let (id, access) = (id.to_owned(), access.clone());
        let query = move |conn: &_| reader::one(conn, "id", &id, &access);
        self.0.readers.read("reading a task", query).await
    }

    async fn find_external(
        &self,
        external_id: &str,
        access: &Access,
    ) -> Result<Option<Arc<TaskRecord>>, StoreError> {
        let (id, access) = (external_id.to_owned(), access.clone());
        let query = move |conn: &_| reader::one(conn, "external_id", &id, &access);
        self.0.readers.read("reading a task", query).await
    }

    async fn replace(
        &self,
        next: Arc<TaskRecord>,
        revision: u64,
        access: &Access,
    ) -> Result<Swap, StoreError> {
        let doing = "changing a task";
        let state = rows::state_json(&next).map_err(|error| self.0.file.error(doing, error))?;
        let access = access.clone();
        self.0
            .writer
            .write(doing, state.len(), move |batch| {
                batch.replace(&next, &state, revision, &access)
            })
            .await
    }

    async fn list(
        &self,
        owner: &Owner,
        after: Option<&ListKey>,
        limit: usize,
    ) -> Result<Vec<Arc<TaskRecord>>, StoreError> {
        let Owner::Principal(name) = owner else {
            return Ok(Vec::new());
        };
        let (name, after) = (name.clone(), after.cloned());
        let query = move |conn: &_| reader::list(conn, &name, after.as_ref(), limit);
        self.0.readers.read("listing tasks", query).await
    }

    async fn remove(&self, id: &str, access: &Access) -> Result<bool, StoreError> {
        let (id, access) = (TaskId::from_stored(id), access.clone());
        self.0
            .writer
            .write("removing a task", 0, move |batch| {
                batch.remove(&id, &access)
            })
            .await
    }

    async fn expired(&self, now: Timestamp, limit: usize) -> Result<Vec<TaskId>, StoreError> {
        let query = move |conn: &_| reader::expired(conn, now, limit);
        self.0
            .readers
            .read("looking for expired tasks", query)
            .await
    }

    async fn next_expiry(&self) -> Result<Option<Timestamp>, StoreError> {
        self.0
            .readers
            .read("looking for the next expiry", reader::next_expiry)
            .await
    }

    async fn heartbeat(&self, worker: &WorkerId, until: Timestamp) -> Result<(), StoreError> {
        let worker = worker.clone();
        self.0
            .writer
            .write("renewing a lease", 0, move |batch| {
                batch.heartbeat(&worker, until)
            })
            .await
    }

    async fn release(&self, worker: &WorkerId) -> Result<(), StoreError> {
        let worker = worker.clone();
        self.0
            .writer
            .write("releasing a lease", 0, move |batch| batch.release(&worker))
            .await
    }

    async fn orphans(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<Arc<TaskRecord>>, StoreError> {
        let query = move |conn: &_| reader::orphans(conn, now, limit);
        self.0
            .readers
            .read("looking for orphaned tasks", query)
            .await
    }

    async fn put_document(&self, key: &str, document: Document) -> Result<(), StoreError> {
        let (key, bytes) = (key.to_owned(), document.body.len());
        self.0
            .writer
            .write("writing a document", bytes, move |batch| {
                batch.put_document(&key, &document)
            })
            .await
    }

    async fn put_document_if_absent(
        &self,
        key: &str,
        document: Document,
    ) -> Result<Document, StoreError> {
        let (key, bytes) = (key.to_owned(), document.body.len());
        let document = Arc::new(document);
        let offered = document.clone();
        let kept = self
            .0
            .writer
            .write("writing a document", bytes, move |batch| {
                batch.put_document_if_absent(&key, &offered)
            })
            .await?;
        Ok(kept.unwrap_or_else(|| Arc::unwrap_or_clone(document)))
    }

    async fn get_document(&self, key: &str) -> Result<Option<Document>, StoreError> {
        let key = key.to_owned();
        let query = move |conn: &_| batch::get_document(conn, &key);
        self.0.readers.read("reading a document", query).await
    }

    async fn remove_document(&self, key: &str) -> Result<(), StoreError> {
        let key = key.to_owned();
        self.0
            .writer
            .write("removing a document", 0, move |batch| {
                batch.remove_document(&key)
            })
            .await
    }

    async fn remove_expired_documents(&self, now: Timestamp) -> Result<(), StoreError> {
        self.0
            .writer
            .write("removing expired documents", 0, move |batch| {
                batch.remove_expired_documents(now)
            })
            .await
    }

    fn changes(&self) -> ChangeFeed {
        self.0.watch.subscribe()
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.0.watch.stop();
        self.0.readers.close();
        self.0.writer.close().await
    }
}
