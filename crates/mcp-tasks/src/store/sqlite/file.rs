//! The file: opening connections to it, and errors that name it.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::{SqliteOptions, Synchronous, schema};
use crate::store::StoreError;

/// What went wrong with which file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", .path.display())]
struct FileError {
    path: PathBuf,
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// Where the database is and how it is opened.
#[derive(Debug, Clone)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) options: SqliteOptions,
}

impl File {
    /// # Errors
    /// For a path that is no place for a database several connections can share.
    pub(super) fn new(path: &Path, options: SqliteOptions) -> Result<Self, StoreError> {
        let refuse = |why: &str| {
            let path = path.to_path_buf();
            Err(StoreError::new(
                "opening",
                FileError {
                    path,
                    source: why.into(),
                },
            ))
        };
        // To SQLite both are a database of one connection alone.
        if path.as_os_str().is_empty() || path.as_os_str() == ":memory:" {
            return refuse("not the path of a file (for a store in memory use MemoryStore)");
        }
        if path.is_dir() {
            return refuse("is a directory");
        }
        // Connections are opened later too, when the working directory may be another.
        match std::path::absolute(path) {
            Ok(path) => Ok(Self { path, options }),
            Err(error) => refuse(&error.to_string()),
        }
    }

    pub(super) fn error(
        &self,
        doing: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> StoreError {
        let path = self.path.clone();
        StoreError::new(
            doing,
            FileError {
                path,
                source: source.into(),
            },
        )
    }

    /// The first connection: checks the file, makes or migrates the tables, and is the writer's from here on.
    pub(super) fn open_writer(&self) -> Result<Connection, StoreError> {
        let doing = "opening";
        let conn = self
            .connect(OpenFlags::SQLITE_OPEN_CREATE)
            .map_err(|error| self.error(doing, error))?;
        match conn.is_readonly("main") {
            Ok(true) => {
                return Err(self.error(doing, "the file or its file system is not writable"));
            }
            Ok(false) => {}
            Err(error) => return Err(self.error(doing, error)),
        }
        // A file that is not ours is left exactly as it is.
        schema::check(&conn).map_err(|error| self.error(doing, error))?;
        let patience = Patience::new(self.options.busy_timeout);
        let mode = patience
            .retry(|| {
                conn.pragma_update_and_check(None, "journal_mode", "wal", |row| {
                    row.get::<_, String>(0)
                })
            })
            .map_err(|error| self.error(doing, error))?;
        if mode != "wal" {
            let why = format!("the file system does not support SQLite's WAL mode (got {mode:?})");
            return Err(self.error(doing, why));
        }
        schema::migrate(&conn, &patience).map_err(|error| self.error(doing, error))?;
        // From here on the writer waits by itself: SQLite's own waiting sleeps up to 100 ms at a time.
        let configured = conn
            .busy_timeout(Duration::ZERO)
            .and_then(|()| conn.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024));
        configured.map_err(|error| self.error(doing, error))?;
        Ok(conn)
    }

    /// A connection that only reads.
    pub(super) fn open_reader(&self) -> rusqlite::Result<Connection> {
        let conn = self.connect(OpenFlags::empty())?;
        conn.pragma_update(None, "query_only", true)?;
        Ok(conn)
    }

    fn connect(&self, more: OpenFlags) -> rusqlite::Result<Connection> {
        // No URI flag: a path is a path, whatever it begins with.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more;
        let conn = Connection::open_with_flags(&self.path, flags)?;
        conn.busy_timeout(self.options.busy_timeout)?;
        let synchronous = match self.options.synchronous {
            Synchronous::Full => "full",
            Synchronous::Normal => "normal",
        };
        conn.pragma_update(None, "synchronous", synchronous)?;
        conn.set_prepared_statement_cache_capacity(64);
        Ok(conn)
    }
}

/// How long to go on trying while another process holds a lock.
pub(super) struct Patience {
    until: Option<Instant>,
}

impl Patience {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            until: Instant::now().checked_add(timeout),
        }
    }

    /// Runs `step` until it does anything but meet a lock, or the time is over.
    pub(super) fn retry<T>(
        &self,
        mut step: impl FnMut() -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let mut pause = Duration::from_micros(200);
        loop {
            match step() {
                Err(error)
                    if is_busy(&error) && self.until.is_none_or(|until| Instant::now() < until) =>
                {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(2));
                }
                other => return other,
            }
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}
