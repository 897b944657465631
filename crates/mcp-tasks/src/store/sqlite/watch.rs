//! What other processes wrote: looked for only while somebody listens.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    thread,
    time::Duration,
};

use rusqlite::{Connection, OptionalExtension, params};

use super::{file::File, writer::Progress};
use crate::{store::ChangeFeed, store::ChangeSender, task::TaskId};

/// More changes than this at once are told as [`Lagged`](crate::store::ChangeEvent::Lagged): a feed holds no more.
const MOST_AT_ONCE: i64 = 2048;

/// How long to wait after an error before looking again.
const AFTER_ERROR: Duration = Duration::from_millis(250);

/// What the listeners and the watching thread share.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    listeners: usize,
    /// The first listener came: look for all that is newer than this.
    start_after: Option<i64>,
    started: bool,
    stop: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held by a feed.
struct Listener(Arc<Shared>);

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.listeners = state.listeners.saturating_sub(1);
    }
}

/// Starts, stops and ends the watching thread.
#[derive(Debug)]
pub(super) struct Watch {
    shared: Arc<Shared>,
    file: Arc<File>,
    me: i64,
    progress: Arc<Progress>,
    feed: ChangeSender,
}

impl Watch {
    pub(super) fn new(
        file: Arc<File>,
        me: i64,
        progress: Arc<Progress>,
        feed: ChangeSender,
    ) -> Self {
        Self {
            shared: Arc::default(),
            file,
            me,
            progress,
            feed,
        }
    }

    pub(super) fn subscribe(&self) -> ChangeFeed {
        {
            let mut state = self.shared.lock();
            state.listeners += 1;
            if state.listeners == 1 {
                // All that another process commits from here on is newer than what this one knows of now.
                state.start_after = Some(self.progress.seq.load(Ordering::Acquire));
                if !state.started && !state.stop {
                    state.started = self.start();
                }
                self.shared.wake.notify_all();
            }
        }
        self.feed.subscribe_with(Listener(self.shared.clone()))
    }

    fn start(&self) -> bool {
        let watcher = Watcher {
            shared: self.shared.clone(),
            file: self.file.clone(),
            me: self.me,
            progress: self.progress.clone(),
            feed: self.feed.clone(),
        };
        let started = thread::Builder::new()
            .name("mcp-tasks-watch".to_owned())
            .spawn(move || watcher.run());
        if let Err(error) = &started {
            tracing::error!(file = %self.file.path.display(), %error, "cannot watch for changes of other processes");
        }
        started.is_ok()
    }

    pub(super) fn stop(&self) {
        self.shared.lock().stop = true;
        self.shared.wake.notify_all();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Watcher {
    shared: Arc<Shared>,
    file: Arc<File>,
    me: i64,
    progress: Arc<Progress>,
    feed: ChangeSender,
}

impl Watcher {
    fn run(self) {
        let mut conn = None;
        let mut last = 0;
        let mut version = None;
        let mut failed = false;
        while let Some(start) = self.wait(if failed {
            AFTER_ERROR
        } else {
            self.file.options.watch_interval
        }) {
            if let Some(after) = start {
                (last, version) = (after, None);
            }
            match self.look(&mut conn, &mut version, &mut last) {
                Ok(()) => failed = false,
                Err(error) => {
                    if !failed {
                        tracing::warn!(file = %self.file.path.display(), %error, "watching for changes failed; trying on");
                    }
                    (conn, version, failed) = (None, None, true);
                }
            }
        }
    }

    /// Waits for the time to look again; with the place to start from if listening begins anew. `None` is the end.
    fn wait(&self, interval: Duration) -> Option<Option<i64>> {
        let mut state = self.shared.lock();
        if state.start_after.is_none() && state.listeners > 0 && !state.stop {
            let waited = self.shared.wake.wait_timeout(state, interval);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        while state.listeners == 0 && !state.stop {
            state = self
                .shared
                .wake
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        (!state.stop).then(|| state.start_after.take())
    }

    fn look(
        &self,
        conn: &mut Option<Connection>,
        version: &mut Option<i64>,
        last: &mut i64,
    ) -> rusqlite::Result<()> {
        let conn = match conn {
            Some(conn) => conn,
            None => conn.insert(self.file.open_reader()?),
        };
        let now: i64 = conn
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get(0))?;
        if *version == Some(now) {
            return Ok(());
        }
        let newest = newest_change(conn)?;
        if newest - *last > MOST_AT_ONCE {
            self.skip_to(newest, last);
        }
        let mut select = conn.prepare_cached(
            "SELECT seq, task, revision, writer FROM changes WHERE seq > ?1 ORDER BY seq",
        )?;
        let mut found = select.query(params![*last])?;
        while let Some(row) = found.next()? {
            let seq: i64 = row.get(0)?;
            // The rows between were pruned already.
            if seq != *last + 1 {
                self.feed.send_lagged();
            }
            *last = seq;
            if row.get::<_, i64>(3)? != self.me {
                let revision: Option<i64> = row.get(2)?;
                let revision = revision
                    .and_then(|revision| u64::try_from(revision).ok())
                    .unwrap_or(u64::MAX);
                self.feed
                    .send(&TaskId::from_stored(row.get_ref(1)?.as_str()?), revision);
            }
        }
        self.progress.seq.fetch_max(*last, Ordering::AcqRel);
        // Only now: after an error above, all of it is looked for again.
        *version = Some(now);
        Ok(())
    }

    fn skip_to(&self, newest: i64, last: &mut i64) {
        self.feed.send_lagged();
        *last = newest;
    }
}

/// The newest row of the change log, 0 if there is none.
pub(super) fn newest_change(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached("SELECT seq FROM changes ORDER BY seq DESC LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()
        .map(|seq| seq.unwrap_or(0))
}
