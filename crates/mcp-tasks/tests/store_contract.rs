//! The stores of this crate pass the public contract suite.

#![allow(clippy::unwrap_used)]

use std::{cell::Cell, time::Duration};

use mcp_tasks::store::{MemoryStore, SqliteOptions, SqliteStore, Synchronous, contract::Contract};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory() {
    Contract::new(async || MemoryStore::new()).run().await;
}

/// The second handle is what another process has: it shares nothing with the first but the file.
async fn sqlite(options: SqliteOptions) {
    let dir = tempfile::tempdir().unwrap();
    let made = Cell::new(0);
    let open = options.clone();
    Contract::new(async || {
        made.set(made.get() + 1);
        SqliteStore::open_with(
            dir.path().join(format!("{}.db", made.get())),
            options.clone(),
        )
        .unwrap()
    })
    .reopen(move |store: &SqliteStore| {
        let (path, options) = (store.path().to_owned(), open.clone());
        async move { SqliteStore::open_with(path, options).unwrap() }
    })
    .run()
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_by_two_handles() {
    sqlite(SqliteOptions::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_with_one_reader() {
    let options = SqliteOptions::new()
        .synchronous(Synchronous::Normal)
        .readers(0)
        .watch_interval(Duration::from_millis(2));
    sqlite(options).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_by_one_handle() {
    let dir = tempfile::tempdir().unwrap();
    let made = Cell::new(0);
    Contract::new(async || {
        made.set(made.get() + 1);
        SqliteStore::open(dir.path().join(format!("{}.db", made.get()))).unwrap()
    })
    .run()
    .await;
}
