//! Waiting: any number, any time, and nobody who leaves is missed by the task.

use std::{sync::Arc, time::Duration};

use mcp_tasks::{
    Limits, TaskContext, TaskError, TaskTool,
    runtime::ReadError,
    store::{Access, MemoryStore, TaskStore},
    task::{Clock, Outcome, Phase, TaskId},
};
use serde_json::Value;
use tokio::sync::Notify;

use crate::support::{
    Dropped, alice, by_alice, call, clock, ended, forever, idle, json, quick, run, runtime,
    runtime_on, soon, text, within_a_minute,
};

/// A tool that goes on when it is told to.
fn gated(go: &Arc<Notify>) -> TaskTool {
    let go = go.clone();
    TaskTool::new("gated").run(move |_: TaskContext, _: Value| {
        let go = go.clone();
        async move {
            go.notified().await;
            Ok::<_, TaskError>("done")
        }
    })
}

// F-11 at this level: every waiter is answered, reads are repeatable (B29)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_are_all_answered() {
    let go = Arc::new(Notify::new());
    let store = Arc::new(MemoryStore::new());
    let runtime = runtime_on(store, Limits::default(), &Clock::system(), [gated(&go)]);
    let id = runtime.create(call("gated")).await.unwrap().id.clone();
    let waiters: Vec<_> = (0..10_000)
        .map(|n| {
            let (runtime, id) = (runtime.clone(), id.clone());
            let waiter =
                tokio::spawn(async move { runtime.wait(&id, &by_alice(), None).await.unwrap() });
            if n % 10 == 0 {
                waiter.abort();
            }
            waiter
        })
        .collect();
    go.notify_one();
    let mut answered = 0;
    for waiter in waiters {
        match within_a_minute(waiter).await {
            Ok(record) => {
                assert_eq!(text(&record), "done");
                answered += 1;
            }
            Err(left) => assert!(left.is_cancelled()),
        }
    }
    assert!(answered >= 9000, "{answered}");
    // Later, and again.
    for _ in 0..2 {
        assert_eq!(text(&ended(&runtime, &id).await), "done");
    }
    idle(&runtime).await;
}

// A waiter leaving never touches the task
#[tokio::test(start_paused = true)]
async fn who_leaves_changes_nothing() {
    let go = Arc::new(Notify::new());
    let (runtime, _store) = runtime([gated(&go)]);
    let record = runtime.create(call("gated")).await.unwrap();
    for _ in 0..3 {
        let mine = by_alice();
        let wait = runtime.wait(&record.id, &mine, None);
        let left = tokio::time::timeout(Duration::from_secs(5), wait).await;
        assert!(left.is_err());
    }
    assert_eq!(
        runtime.get(&record.id, &by_alice(), None).await.unwrap(),
        record
    );
    // The body's own watch is all that is left.
    assert_eq!(runtime.held(), [1, 1, 1]);
    go.notify_one();
    assert_eq!(text(&ended(&runtime, &record.id).await), "done");
    idle(&runtime).await;
}

// A task ended by another process on the store wakes who waits here
#[tokio::test(start_paused = true)]
async fn who_waits_hears_of_other_processes() {
    let (store, clock, go) = (MemoryStore::new(), clock(), Arc::new(Notify::new()));
    let at = |tools: Vec<TaskTool>| {
        runtime_on(Arc::new(store.clone()), Limits::default(), &clock, tools)
    };
    let (one, two) = (at(vec![gated(&go)]), at(vec![]));
    let id = one.create(call("gated")).await.unwrap().id.clone();
    let (told, ()) = tokio::join!(ended(&two, &id), async { go.notify_one() });
    assert_eq!(text(&told), "done");
    // Where nobody waits, nothing is kept.
    idle(&one).await;
    idle(&two).await;
}

// A feed that lost events makes up for them
#[tokio::test(start_paused = true)]
async fn who_waits_is_woken_by_a_feed_that_lagged() {
    let (store, clock) = (MemoryStore::new(), clock());
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let runtime = runtime_on(
        Arc::new(store.clone()),
        Limits::default(),
        &clock,
        [forever("f", &started, &dropped), quick("quick")],
    );
    let id = runtime.create(call("f")).await.unwrap().id.clone();
    started.notified().await;
    let noise = run(&runtime, call("quick")).await;
    let waiter = tokio::spawn({
        let (runtime, id) = (runtime.clone(), id.clone());
        async move { runtime.wait(&id, &by_alice(), None).await }
    });
    tokio::task::yield_now().await;
    // Another process ends the task, and so much happens at once that the event is lost.
    let record = store
        .get(id.as_str(), &Access::System)
        .await
        .unwrap()
        .unwrap();
    let finish = mcp_tasks::task::Change::Finish {
        outcome: Outcome::Result {
            json: json("{}"),
            is_error: false,
        },
        message: None,
        retain_ms: 0,
    };
    let next = Arc::new(record.apply(finish, clock.now(), None).unwrap());
    store
        .replace(next.clone(), record.revision, &Access::System)
        .await
        .unwrap();
    let mut noise = noise;
    for _ in 0..5000 {
        let mut louder = (*noise).clone();
        louder.revision += 1;
        let louder = Arc::new(louder);
        store
            .replace(louder.clone(), noise.revision, &Access::System)
            .await
            .unwrap();
        noise = louder;
    }
    assert_eq!(soon(waiter).await.unwrap().unwrap(), next);
    // The body's task is no longer its own.
    dropped.reaches(1).await;
    idle(&runtime).await;
}

// "unknown id answered as working"
#[tokio::test(start_paused = true)]
async fn who_asks_for_what_is_not_there_is_told_so() {
    let (runtime, _store) = runtime([quick("quick")]);
    let unknown = TaskId::random();
    let mine = by_alice();
    assert!(matches!(
        runtime.get(&unknown, &mine, None).await,
        Err(ReadError::NotFound)
    ));
    assert!(matches!(
        runtime.wait(&unknown, &mine, None).await,
        Err(ReadError::NotFound)
    ));
    assert!(matches!(
        runtime.cancel(&unknown, &mine, "x").await,
        Err(ReadError::NotFound)
    ));
    let answer = crate::support::accept("{}");
    assert!(matches!(
        runtime.answer(&unknown, &mine, "k", answer).await,
        Err(ReadError::NotFound)
    ));
    assert_eq!(runtime.held(), [0, 0, 0]);
}

// F-11, F-18: pages of one owner, newest first, each task once
#[tokio::test(start_paused = true)]
async fn a_list_has_every_task_of_its_owner_once() {
    let mut limits = Limits::default();
    limits.page = 3;
    let (runtime, _store) = crate::support::limited(limits, [quick("quick")]);
    let mut made = Vec::new();
    for _ in 0..8 {
        made.push(run(&runtime, call("quick")).await.id.clone());
        tokio::time::advance(Duration::from_millis(1)).await;
        let mut foreign = call("quick");
        foreign.requestor = crate::support::requestor(mcp_tasks::task::Owner::principal("bob"));
        runtime.create(foreign).await.unwrap();
    }
    made.reverse();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let (page, more) = runtime.list(&alice(), after.as_ref()).await.unwrap();
        assert!(page.len() == 3 || !more);
        seen.extend(page.iter().map(|record| record.id.clone()));
        after = page.last().map(|last| mcp_tasks::store::ListKey {
            created_at: last.created_at,
            id: last.id.clone(),
        });
        if !more {
            break;
        }
    }
    assert_eq!(seen, made);
    assert_eq!(
        runtime
            .get(&made[0], &by_alice(), None)
            .await
            .unwrap()
            .phase(),
        Phase::Finished
    );
}
