//! Shutting down.

use std::{sync::Arc, time::Duration};

use mcp_tasks::{
    Limits, Recovery, Runtime, TaskContext, TaskError, TaskTool,
    runtime::CreateError,
    store::{Access, TaskStore},
    task::{Clock, Phase},
};
use serde_json::Value;
use tokio::sync::Notify;

use crate::support::{
    Dropped, TestStore, by_alice, call, clock, ended, error, forever, idle, quick, runtime_on,
    soon, text,
};

fn on(store: &TestStore, clock: &Clock, tools: impl IntoIterator<Item = TaskTool>) -> Runtime {
    runtime_on(Arc::new(store.clone()), Limits::default(), clock, tools)
}

fn slow(name: &str, seconds: u64) -> TaskTool {
    TaskTool::new(name).run(move |_: TaskContext, _: Value| async move {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok::<_, TaskError>("in time")
    })
}

// F-26
#[tokio::test(start_paused = true)]
async fn bodies_are_given_time_and_creations_refused() {
    let store = TestStore::default();
    let runtime = on(&store, &clock(), [slow("slow", 8), quick("quick")]);
    let id = runtime.create(call("slow")).await.unwrap().id.clone();
    let waiter = tokio::spawn({
        let (runtime, id) = (runtime.clone(), id.clone());
        async move { runtime.wait(&id, &by_alice(), None).await }
    });
    let begun = tokio::time::Instant::now();
    let down = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.shutdown(Duration::from_secs(30)).await }
    });
    tokio::task::yield_now().await;
    assert!(runtime.is_shutting_down());
    let refused = runtime.create(call("quick")).await.unwrap_err();
    assert!(matches!(refused, CreateError::ShuttingDown));
    assert_eq!(refused.into_rpc().message, "the server is shutting down");
    // Reading goes on.
    assert_eq!(
        runtime.get(&id, &by_alice(), None).await.unwrap().phase(),
        Phase::Working
    );
    soon(down).await.unwrap();
    // As long as it took, not as long as there was.
    assert_eq!(begun.elapsed().as_secs(), 8);
    assert_eq!(text(&soon(waiter).await.unwrap().unwrap()), "in time");
    assert_eq!(runtime.held(), [0, 0, 0]);
}

// F-26: nothing acknowledged is lost; another takes over at its next look, not when the lease would have lapsed
#[tokio::test(start_paused = true)]
async fn what_is_not_done_in_time_is_taken_over_at_once() {
    let (store, clock) = (TestStore::default(), clock());
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let failing = || forever("fails", &started, &dropped);
    let again = |wait: bool| {
        let started = started.clone();
        TaskTool::new("again")
            .recovery(Recovery::Rerun)
            .run(move |cx: TaskContext, _: Value| {
                let started = started.clone();
                async move {
                    started.notify_one();
                    if wait {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, TaskError>(cx.attempt().to_string())
                }
            })
    };
    let first = on(&store, &clock, [failing(), again(true)]);
    let second = on(&store, &clock, [failing(), again(false)]);
    second.start_worker().await.unwrap();
    let fails = first.create(call("fails")).await.unwrap().id.clone();
    soon(started.notified()).await;
    let again = first.create(call("again")).await.unwrap().id.clone();
    soon(started.notified()).await;
    // Somebody waits in the process that ends: woken by the one that goes on.
    let waiter = tokio::spawn({
        let (first, again) = (first.clone(), again.clone());
        async move { first.wait(&again, &by_alice(), None).await }
    });
    let begun = tokio::time::Instant::now();
    soon(first.shutdown(Duration::from_secs(3))).await;
    assert_eq!((begun.elapsed().as_secs(), dropped.count()), (3, 1));
    let released = tokio::time::Instant::now();
    assert_eq!(error(&ended(&second, &fails).await).code, -32603);
    assert_eq!(text(&ended(&second, &again).await), "2");
    assert!(released.elapsed() <= Limits::default().heartbeat);
    assert_eq!(text(&soon(waiter).await.unwrap().unwrap()), "2");
}

// F-26: a renewal that was under way does not bring the lease back
#[tokio::test(start_paused = true)]
async fn a_released_lease_stays_released() {
    let (store, clock) = (TestStore::default(), clock());
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let runtime = on(&store, &clock, [forever("f", &started, &dropped)]);
    let id = runtime.create(call("f")).await.unwrap().id.clone();
    started.notified().await;
    store.faults.heartbeat.close();
    store.faults.heartbeat.reached().await;
    let down = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.shutdown(Duration::ZERO).await }
    });
    dropped.reaches(1).await;
    // Everything else that shutting down does has been done by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    store.faults.heartbeat.open();
    soon(down).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let left = store.orphans(clock.now(), 10).await.unwrap();
    assert_eq!(
        left.iter().map(|record| &record.id).collect::<Vec<_>>(),
        [&id]
    );
}

// F-26: who is shutting down takes nothing over
#[tokio::test(start_paused = true)]
async fn a_process_that_ends_takes_nothing_over() {
    let (store, clock) = (TestStore::default(), clock());
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let left = || forever("left", &started, &dropped).recovery(Recovery::Rerun);
    let gone = on(&store, &clock, [left()]);
    let id = gone.create(call("left")).await.unwrap().id.clone();
    started.notified().await;
    let ending = on(&store, &clock, [left(), slow("slow", 40)]);
    ending.create(call("slow")).await.unwrap();
    let down = tokio::spawn({
        let ending = ending.clone();
        async move { ending.shutdown(Duration::from_secs(60)).await }
    });
    tokio::task::yield_now().await;
    drop(gone);
    soon(down).await.unwrap();
    let record = store
        .get(id.as_str(), &Access::System)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((record.attempt, record.phase()), (1, Phase::Working));
}

// F-26: where nothing ran there is nothing to wait for, and it may be asked twice
#[tokio::test(start_paused = true)]
async fn shutting_down_twice_and_idle_is_fine() {
    let (store, clock) = (TestStore::default(), clock());
    let runtime = on(&store, &clock, [quick("quick")]);
    let begun = tokio::time::Instant::now();
    let patience = Duration::from_secs(60);
    soon(runtime.shutdown(patience)).await;
    soon(async { tokio::join!(runtime.shutdown(patience), runtime.shutdown(patience)) }).await;
    let used = on(&store, &clock, [quick("quick")]);
    let id = used.create(call("quick")).await.unwrap().id.clone();
    ended(&used, &id).await;
    soon(used.shutdown(patience)).await;
    soon(used.shutdown(patience)).await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    idle(&used).await;
    // What is done is readable to the end.
    assert_eq!(
        text(&used.get(&id, &by_alice(), None).await.unwrap()),
        "done"
    );
}
