//! A store that fails.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use mcp_tasks::{
    Limits, Runtime, TaskContext, TaskError, TaskTool,
    runtime::{CreateError, ReadError},
    store::{Access, TaskStore},
    task::Phase,
};
use serde_json::Value;
use tokio::sync::Notify;

use crate::support::{
    Dropped, TestStore, by_alice, call, clock, ended, forever, idle, quick, runtime_on, soon, text,
    until,
};

fn on(store: &TestStore, tools: impl IntoIterator<Item = TaskTool>) -> Runtime {
    runtime_on(Arc::new(store.clone()), Limits::default(), &clock(), tools)
}

// Outcomes are stored however long the store fails, while the task lives ("SQLite `database is locked` losing results")
#[tokio::test(start_paused = true)]
async fn an_outcome_outlasts_a_failing_store() {
    for failures in [1, 3, 50] {
        let store = TestStore::default();
        let runtime = on(&store, [quick("quick")]);
        store.faults.writes.store(failures, Ordering::SeqCst);
        let record = runtime.create(call("quick")).await.unwrap();
        assert_eq!(
            text(&ended(&runtime, &record.id).await),
            "done",
            "{failures}"
        );
        assert_eq!(store.faults.writes.load(Ordering::SeqCst), 0);
        idle(&runtime).await;
    }
}

// A write that was made although it failed is told all the same
#[tokio::test(start_paused = true)]
async fn a_write_that_failed_and_was_made_wakes_who_waits() {
    let store = TestStore::default();
    let tool = TaskTool::new("slow").run(async |_: TaskContext, _: Value| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok::<_, TaskError>("done")
    });
    let runtime = on(&store, [tool]);
    // Not even the feed tells of it.
    store.faults.mute.store(true, Ordering::SeqCst);
    store.faults.writes.store(1, Ordering::SeqCst);
    store.faults.writes_happen.store(true, Ordering::SeqCst);
    let record = runtime.create(call("slow")).await.unwrap();
    let begun = tokio::time::Instant::now();
    assert_eq!(text(&ended(&runtime, &record.id).await), "done");
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    idle(&runtime).await;
}

// A store that fails until the task expires holds nothing
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_ever_keeps_no_body() {
    let store = TestStore::default();
    let runtime = on(&store, [quick("quick").ttl(Duration::from_secs(60))]);
    store.faults.writes.store(usize::MAX, Ordering::SeqCst);
    let record = runtime.create(call("quick")).await.unwrap();
    let waited = soon(runtime.wait(&record.id, &by_alice(), None)).await;
    assert!(matches!(waited, Err(ReadError::NotFound)));
    idle(&runtime).await;
}

// A change elsewhere that cannot be read when it is heard of is read later
#[tokio::test(start_paused = true)]
async fn a_change_that_cannot_be_read_is_not_missed() {
    let store = TestStore::default();
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let here = on(&store, [forever("f", &started, &dropped)]);
    let elsewhere = runtime_on(
        Arc::new(store.memory.clone()),
        Limits::default(),
        here.clock(),
        [],
    );
    let id = here.create(call("f")).await.unwrap().id.clone();
    started.notified().await;
    let waiter = tokio::spawn({
        let (here, id) = (here.clone(), id.clone());
        async move { here.wait(&id, &by_alice(), None).await }
    });
    tokio::task::yield_now().await;
    store.faults.reads.store(5, Ordering::SeqCst);
    let cancelled = elsewhere
        .cancel(&id, &by_alice(), "from there")
        .await
        .unwrap();
    assert_eq!(soon(waiter).await.unwrap().unwrap(), cancelled);
    assert_eq!(store.faults.reads.load(Ordering::SeqCst), 0);
    dropped.reaches(1).await;
}

// What a requestor is told of a store's failure is that, and not how
#[tokio::test(start_paused = true)]
async fn a_failing_store_is_an_error_of_ours() {
    let store = TestStore::default();
    let runtime = on(&store, [quick("quick")]);
    let record = runtime.create(call("quick")).await.unwrap();
    ended(&runtime, &record.id).await;
    store.faults.reads.store(1, Ordering::SeqCst);
    let error = runtime
        .get(&record.id, &by_alice(), None)
        .await
        .unwrap_err();
    assert!(matches!(error, ReadError::Store(_)), "{error}");
    store.faults.heartbeats.store(true, Ordering::SeqCst);
    let fresh = on(&store, [quick("quick")]);
    let refused = fresh.create(call("quick")).await.unwrap_err();
    assert!(matches!(refused, CreateError::Store(_)));
    let told = refused.into_rpc();
    assert_eq!(
        (told.code, told.message.as_str()),
        (-32603, "the task store failed")
    );
    // It was refused before anything was written, and the next one is not.
    assert_eq!(store.memory.len(), 1);
    store.faults.heartbeats.store(false, Ordering::SeqCst);
    fresh.create(call("quick")).await.unwrap();
}

// A body sees the failure of what it wrote, and goes on if it likes
#[tokio::test(start_paused = true)]
async fn a_body_sees_what_could_not_be_stored() {
    let store = TestStore::default();
    let tool = TaskTool::new("status").run(async |cx: TaskContext, _: Value| {
        let failed = cx.status("one").await.is_err();
        cx.status("two").await?;
        Ok::<_, TaskError>(format!("failed: {failed}"))
    });
    let runtime = on(&store, [tool]);
    store.faults.writes.store(1, Ordering::SeqCst);
    let record = runtime.create(call("status")).await.unwrap();
    assert_eq!(text(&ended(&runtime, &record.id).await), "failed: true");
}

// A removal by another process stops the work here
#[tokio::test(start_paused = true)]
async fn a_task_removed_elsewhere_stops_here() {
    let store = TestStore::default();
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let runtime = on(&store, [forever("f", &started, &dropped)]);
    let id = runtime.create(call("f")).await.unwrap().id.clone();
    started.notified().await;
    until(&store, &id, |record| record.phase() == Phase::Working).await;
    assert!(
        store
            .memory
            .remove(id.as_str(), &Access::System)
            .await
            .unwrap()
    );
    dropped.reaches(1).await;
    idle(&runtime).await;
}
