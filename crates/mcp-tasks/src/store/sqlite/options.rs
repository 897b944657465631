//! How a [`SqliteStore`](super::SqliteStore) is opened.

use std::time::Duration;

/// When a write counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// When it is on the disk: an acknowledged write survives the loss of power. One `fsync` a group of writes.
    #[default]
    Full,
    /// When the operating system has it: an acknowledged write survives the end of the process, and the file stays
    /// whole whatever happens, but the last writes before a loss of power may be missing.
    Normal,
}

/// Settings of a [`SqliteStore`](super::SqliteStore). All have defaults that suit a server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// When a write counts as done. Default: [`Synchronous::Full`].
    pub synchronous: Synchronous,
    /// How long to go on trying while another process holds the file's write lock; after that the call fails.
    /// Default: 30 s.
    pub busy_timeout: Duration,
    /// How many reads may run at the same time, at least 1. Each has a connection of its own, opened when first
    /// needed. Default: 4.
    pub readers: usize,
    /// How often the writes of other processes are looked for while a change feed is held. Default: 10 ms.
    pub watch_interval: Duration,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::default(),
            busy_timeout: Duration::from_secs(30),
            readers: 4,
            watch_interval: Duration::from_millis(10),
        }
    }
}

impl SqliteOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`synchronous`](Self::synchronous).
    #[must_use]
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Sets [`busy_timeout`](Self::busy_timeout).
    #[must_use]
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// Sets [`readers`](Self::readers); 0 counts as 1.
    #[must_use]
    pub fn readers(mut self, readers: usize) -> Self {
        self.readers = readers.max(1);
        self
    }

    /// Sets [`watch_interval`](Self::watch_interval); less than 1 ms counts as 1 ms.
    #[must_use]
    pub fn watch_interval(mut self, interval: Duration) -> Self {
        self.watch_interval = interval.max(Duration::from_millis(1));
        self
    }
}
