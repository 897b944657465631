//! The one thread that writes: it takes whatever is queued, runs all of it in one transaction, commits once, and only
//! then answers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::{
    batch::{Batch, Written},
    file::{File, Patience},
};
use crate::store::{ChangeSender, StoreError};

/// How many writes share a transaction at the most.
const GROUP: usize = 512;

/// How many bytes of records a transaction takes before it is committed.
const GROUP_BYTES: usize = 16 * 1024 * 1024;

/// How many rows of the change log are kept, and how often older ones are looked for.
const LOG_ROWS: i64 = 8192;
const LOG_PRUNE_EVERY: i64 = 1024;

/// After another process wrote, how long to leave it a gap between our transactions, and how large a gap.
const SHARED_FOR: Duration = Duration::from_secs(1);
const GAP: Duration = Duration::from_millis(1);

/// What the writer tells the rest of the store.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The newest row of the change log that this store object knows of.
    pub(super) seq: AtomicI64,
    pub(super) commits: AtomicU64,
    pub(super) writes: AtomicU64,
}

/// A queued write.
trait Job: Send {
    /// Does it. May be called again after a rollback.
    fn run(&mut self, batch: &mut Batch<'_>) -> rusqlite::Result<()>;
    /// Tells the caller what became of it, once that is certain.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
    fn doing(&self) -> &'static str;
    fn bytes(&self) -> usize;
}

struct Write<T, F> {
    doing: &'static str,
    bytes: usize,
    step: F,
    done: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Write<T, F>
where
    T: Send,
    F: FnMut(&mut Batch<'_>) -> rusqlite::Result<T> + Send,
{
    fn run(&mut self, batch: &mut Batch<'_>) -> rusqlite::Result<()> {
        self.done = Some((self.step)(batch)?);
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let answer = match (committed, self.done) {
            (Err(error), _) => Err(error),
            (Ok(()), Some(done)) => Ok(done),
            (Ok(()), None) => Err(StoreError::new(self.doing, "the write was not run")),
        };
        // A caller that left does not want to know.
        let _ = self.reply.send(answer);
    }

    fn doing(&self) -> &'static str {
        self.doing
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

enum Message {
    Write(Box<dyn Job>),
    Close(oneshot::Sender<Result<(), StoreError>>),
}

/// The queue to the writer thread. The thread ends when the last of these is gone, or after a close.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    queue: mpsc::Sender<Message>,
    file: Arc<File>,
}

impl Writer {
    pub(super) fn start(
        conn: Connection,
        file: Arc<File>,
        me: i64,
        progress: Arc<Progress>,
        feed: ChangeSender,
    ) -> Result<Self, StoreError> {
        let (queue, messages) = mpsc::channel(4 * GROUP);
        let mut thread = WriterThread {
            conn,
            file: file.clone(),
            me,
            progress,
            feed,
            data_version: None,
            shared_until: None,
        };
        thread.note_other_writers();
        let started = thread::Builder::new()
            .name("mcp-tasks-write".to_owned())
            .spawn(move || thread.run(messages));
        match started {
            Ok(_) => Ok(Self { queue, file }),
            Err(error) => Err(file.error("starting the writer thread", error)),
        }
    }

    /// Queues `step` and waits until it is committed. `bytes` is about how much it writes.
    pub(super) async fn write<T, F>(
        &self,
        doing: &'static str,
        bytes: usize,
        step: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&mut Batch<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Write {
            doing,
            bytes,
            step,
            done: None,
            reply,
        });
        let closed = || self.file.error(doing, "the store is closed");
        self.queue
            .send(Message::Write(job))
            .await
            .map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Waits until all that is queued is committed and copied from the log into the database; nothing is taken after.
    pub(super) async fn close(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        // A queue that is gone was closed before.
        if self.queue.send(Message::Close(reply)).await.is_ok()
            && let Ok(answer) = answer.await
        {
            return answer;
        }
        Ok(())
    }
}

/// Why a transaction came to nothing.
enum Failure {
    /// The transaction as a whole could not be had.
    Transaction(rusqlite::Error),
    /// One of the writes failed.
    Write(rusqlite::Error),
}

struct WriterThread {
    conn: Connection,
    file: Arc<File>,
    me: i64,
    progress: Arc<Progress>,
    feed: ChangeSender,
    data_version: Option<i64>,
    /// Another process writes too: leave it gaps until then.
    shared_until: Option<Instant>,
}

impl WriterThread {
    fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        let mut closers = Vec::new();
        let mut jobs = Vec::new();
        while let Some(message) = messages.blocking_recv() {
            let mut next = Some(message);
            let mut bytes = 0;
            while let Some(message) = next.take() {
                match message {
                    Message::Write(job) => {
                        bytes += job.bytes();
                        jobs.push(job);
                    }
                    Message::Close(reply) => {
                        // What is queued already is still done.
                        messages.close();
                        closers.push(reply);
                    }
                }
                if jobs.len() < GROUP && bytes < GROUP_BYTES {
                    next = messages.try_recv().ok();
                }
            }
            self.commit(std::mem::take(&mut jobs));
            if self
                .shared_until
                .is_some_and(|until| Instant::now() < until)
            {
                thread::sleep(GAP);
            }
        }
        let closed = self
            .conn
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .map_err(|error| self.file.error("closing", error));
        drop(self);
        for reply in closers {
            let _ = reply.send(closed.clone());
        }
    }

    fn commit(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        if jobs.is_empty() {
            return;
        }
        match self.transaction(&mut jobs) {
            Ok(()) => {
                for job in jobs {
                    job.answer(Ok(()));
                }
            }
            // One of them is at fault; the others must not suffer for it.
            Err(Failure::Write(_)) if jobs.len() > 1 => {
                for job in jobs {
                    self.commit(vec![job]);
                }
            }
            Err(Failure::Write(error) | Failure::Transaction(error)) => {
                let error = Arc::new(error);
                for job in jobs {
                    let failed = self.file.error(job.doing(), error.clone());
                    job.answer(Err(failed));
                }
            }
        }
    }

    /// Runs the jobs in one transaction: all of them or, after a failure, none.
    fn transaction(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), Failure> {
        let patience = Patience::new(self.file.options.busy_timeout);
        patience
            .retry(|| self.execute("BEGIN IMMEDIATE"))
            .map_err(Failure::Transaction)?;
        let written = self
            .run_all(jobs)
            .map_err(Failure::Write)
            .and_then(|written| {
                let committed = patience.retry(|| self.execute("COMMIT"));
                committed.map(|()| written).map_err(Failure::Transaction)
            });
        let written = written.inspect_err(|_| {
            if !self.conn.is_autocommit() {
                // The first error is the one to tell of.
                let _ = self.execute("ROLLBACK");
            }
        })?;
        self.progress.commits.fetch_add(1, Ordering::Relaxed);
        self.progress
            .writes
            .fetch_add(jobs.len() as u64, Ordering::Relaxed);
        if let Some(seq) = written.seq {
            self.progress.seq.fetch_max(seq, Ordering::AcqRel);
        }
        for (id, revision) in written.events {
            self.feed.send(&id, revision);
        }
        self.note_other_writers();
        Ok(())
    }

    fn run_all(&self, jobs: &mut [Box<dyn Job>]) -> rusqlite::Result<Written> {
        let mut batch = Batch::new(&self.conn, self.me);
        for job in jobs {
            job.run(&mut batch)?;
        }
        let written = batch.finish()?;
        if let Some(seq) = written.seq
            // The transaction went past a multiple.
            && usize::try_from(seq % LOG_PRUNE_EVERY).is_ok_and(|past| past < written.events.len())
        {
            self.conn
                .prepare_cached("DELETE FROM changes WHERE seq <= ?1")?
                .execute([seq - LOG_ROWS])?;
        }
        Ok(written)
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.conn.prepare_cached(sql)?.execute([]).map(drop)
    }

    /// SQLite's file lock is not fair: a process that commits without a pause starves the others.
    fn note_other_writers(&mut self) {
        let version = self
            .conn
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut pragma| pragma.query_row([], |row| row.get(0)))
            .ok();
        if self.data_version.is_some() && version != self.data_version {
            self.shared_until = Instant::now().checked_add(SHARED_FOR);
        }
        self.data_version = version;
    }
}
