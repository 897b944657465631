//! Cancelling.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use mcp_tasks::{
    CreateContext, InputError, Limits, TaskContext, TaskError, TaskOptions, TaskTool,
    runtime::ReadError,
    store::{Access, MemoryStore},
    task::{Clock, Owner, Phase},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{Notify, mpsc};

use crate::support::{
    Dropped, TestStore, accept, asked, by_alice, call, clock, ended, forever, idle, quick, runtime,
    runtime_on, soon, text, within_a_minute,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[allow(dead_code)] // only its schema is used
struct Name {
    name: String,
}

/// A body that ends when it is told to, says so, and tries to complete all the same.
fn obedient(told: mpsc::UnboundedSender<&'static str>, started: &Arc<Notify>) -> TaskTool {
    let started = started.clone();
    TaskTool::new("obedient").run(move |cx: TaskContext, _: Value| {
        let (told, started) = (told.clone(), started.clone());
        async move {
            started.notify_one();
            cx.cancellation_token().cancelled().await;
            told.send("token").unwrap();
            // Late: refused, and the task stays as it is.
            assert!(cx.status("late").await.is_err());
            assert!(!cx.handle().complete("late").await.unwrap());
            told.send("refused").unwrap();
            Ok::<_, TaskError>("late")
        }
    })
}

// F-15
#[tokio::test(start_paused = true)]
async fn a_cancel_stops_the_body_and_wakes_everybody() {
    let (told, mut said) = mpsc::unbounded_channel();
    let (started, other) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let dropped = Dropped::default();
    let (runtime, _store) = runtime([obedient(told, &started), forever("other", &other, &dropped)]);
    let id = runtime.create(call("obedient")).await.unwrap().id.clone();
    let bystander = runtime.create(call("other")).await.unwrap().id.clone();
    started.notified().await;
    other.notified().await;
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let (runtime, id) = (runtime.clone(), id.clone());
            tokio::spawn(async move { runtime.wait(&id, &by_alice(), None).await.unwrap() })
        })
        .collect();
    tokio::task::yield_now().await;

    let record = runtime
        .cancel(&id, &by_alice(), "by request")
        .await
        .unwrap();
    assert_eq!(record.phase(), Phase::Cancelled);
    assert_eq!(record.status_message.as_deref(), Some("by request"));
    for waiter in waiters {
        assert_eq!(soon(waiter).await.unwrap(), record);
    }
    assert_eq!(soon(said.recv()).await, Some("token"));
    assert_eq!(soon(said.recv()).await, Some("refused"));
    // Terminal is final: another cancel is told what it is.
    match runtime.cancel(&id, &by_alice(), "again").await {
        Err(ReadError::Terminal(same)) => assert_eq!(same, record),
        other => panic!("{other:?}"),
    }
    let bystander = runtime.get(&bystander, &by_alice(), None).await.unwrap();
    assert_eq!((bystander.phase(), dropped.count()), (Phase::Working, 0));
}

// F-15
#[tokio::test(start_paused = true)]
async fn a_cancel_wakes_an_open_question() {
    let (told, mut said) = mpsc::unbounded_channel();
    let tool = TaskTool::new("ask").run(move |cx: TaskContext, _: Value| {
        let told = told.clone();
        async move {
            let answer = cx.elicit::<Name>("Name?").await;
            told.send(matches!(answer, Err(InputError::TaskEnded)))
                .unwrap();
            answer.map(|_| ())
        }
    });
    let (runtime, store) = runtime([tool]);
    let id = runtime.create(call("ask")).await.unwrap().id.clone();
    let input = asked(&store, &id).await;
    let cancelled = runtime.cancel(&id, &by_alice(), "enough").await.unwrap();
    assert_eq!(soon(said.recv()).await, Some(true));
    let late = accept(r#"{"name":"late"}"#);
    assert!(
        !runtime
            .answer(&id, &by_alice(), &input.key, late)
            .await
            .unwrap()
    );
    idle(&runtime).await;
    assert_eq!(
        runtime.get(&id, &by_alice(), None).await.unwrap(),
        cancelled
    );
}

// F-15: "cancel that does not stop the work" (B56)
#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_listen_is_dropped_after_the_grace_period() {
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let (runtime, _store) = runtime([forever("deaf", &started, &dropped)]);
    let id = runtime.create(call("deaf")).await.unwrap().id.clone();
    started.notified().await;
    let begun = tokio::time::Instant::now();
    runtime.cancel(&id, &by_alice(), "enough").await.unwrap();
    assert_eq!((begun.elapsed(), dropped.count()), (Duration::ZERO, 0));
    dropped.reaches(1).await;
    assert_eq!(begun.elapsed(), Limits::default().cancel_grace);
    idle(&runtime).await;
}

// F-15, F-18: nobody else's, and nobody can tell it from one that is not there
#[tokio::test(start_paused = true)]
async fn another_owner_cannot_cancel() {
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let (runtime, _store) = runtime([forever("mine", &started, &dropped)]);
    let id = runtime.create(call("mine")).await.unwrap().id.clone();
    for other in [Owner::principal("bob"), Owner::Bearer] {
        let access = Access::Owner(other);
        let refused = runtime
            .cancel(&id, &access, "x")
            .await
            .unwrap_err()
            .to_string();
        let unknown = mcp_tasks::task::TaskId::random();
        let nowhere = runtime
            .cancel(&unknown, &access, "x")
            .await
            .unwrap_err()
            .to_string();
        assert_eq!(refused, nowhere);
        assert!(matches!(
            runtime.get(&id, &access, None).await,
            Err(ReadError::NotFound)
        ));
        assert!(matches!(
            runtime.wait(&id, &access, None).await,
            Err(ReadError::NotFound)
        ));
    }
    let record = runtime.get(&id, &by_alice(), None).await.unwrap();
    assert_eq!(record.phase(), Phase::Working);
}

// F-16, at this level: a hidden task is nobody's to name
#[tokio::test(start_paused = true)]
async fn a_hidden_task_is_only_the_runtimes() {
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let (runtime, _store) = runtime([forever("hidden", &started, &dropped)]);
    let mut hidden = call("hidden");
    hidden.hidden = true;
    let id = runtime.create(hidden).await.unwrap().id.clone();
    assert!(matches!(
        runtime.get(&id, &by_alice(), None).await,
        Err(ReadError::NotFound)
    ));
    let cancelled = runtime.cancel(&id, &by_alice(), "x").await;
    assert!(matches!(cancelled, Err(ReadError::NotFound)));
    assert!(
        runtime
            .list(&Owner::principal("alice"), None)
            .await
            .unwrap()
            .0
            .is_empty()
    );
    let record = runtime.cancel(&id, &Access::System, "x").await.unwrap();
    assert_eq!(record.phase(), Phase::Cancelled);
}

// F-15: from any replica (B58)
#[tokio::test(start_paused = true)]
async fn a_cancel_elsewhere_reaches_the_body_here() {
    let (told, mut said) = mpsc::unbounded_channel();
    let started = Arc::new(Notify::new());
    let (store, clock) = (MemoryStore::new(), clock());
    let here = runtime_on(
        Arc::new(store.clone()),
        Limits::default(),
        &clock,
        [obedient(told, &started)],
    );
    let elsewhere = runtime_on(Arc::new(store), Limits::default(), &clock, []);
    let id = here.create(call("obedient")).await.unwrap().id.clone();
    started.notified().await;
    let begun = tokio::time::Instant::now();
    let mine = by_alice();
    let (cancelled, waited) = tokio::join!(
        elsewhere.cancel(&id, &mine, "from there"),
        ended(&here, &id)
    );
    assert_eq!(cancelled.unwrap(), waited);
    assert_eq!(soon(said.recv()).await, Some("token"));
    assert_eq!(soon(said.recv()).await, Some("refused"));
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

// F-15: even when the id was known, and the cancel came, before the body had begun to listen
#[tokio::test(start_paused = true)]
async fn a_cancel_that_comes_with_the_creation_is_not_missed() {
    let store = TestStore::default();
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let runtime = runtime_on(
        Arc::new(store.clone()),
        Limits::default(),
        &clock(),
        [forever("deaf", &started, &dropped)],
    );
    store.faults.cancel_inserted.store(true, Ordering::SeqCst);
    let id = runtime.create(call("deaf")).await.unwrap().id.clone();
    idle(&runtime).await;
    let record = runtime.get(&id, &by_alice(), None).await.unwrap();
    assert_eq!(record.phase(), Phase::Cancelled);
}

// F-15: outside work hears of it through its handle; late completion is ignored
#[tokio::test(start_paused = true)]
async fn outside_work_is_cancelled_too() {
    let handles = Arc::new(std::sync::Mutex::new(None));
    let tool = {
        let handles = handles.clone();
        TaskTool::new("job").create(move |cx: CreateContext, _: Value| {
            let handles = handles.clone();
            async move {
                let task = cx.create_task(TaskOptions::new()).await?;
                *handles.lock().unwrap() = Some(task.handle().clone());
                Ok::<_, TaskError>(task)
            }
        })
    };
    let (runtime, _store) = runtime([tool]);
    let id = runtime.create(call("job")).await.unwrap().id.clone();
    let handle = handles.lock().unwrap().take().unwrap();
    let mine = by_alice();
    let (told, _) = tokio::join!(soon(handle.ended()), runtime.cancel(&id, &mine, "x"));
    assert_eq!(told.unwrap().unwrap().phase(), Phase::Cancelled);
    assert!(!handle.complete("late").await.unwrap());
    let record = runtime.get(&id, &by_alice(), None).await.unwrap();
    assert_eq!(record.phase(), Phase::Cancelled);
}

// F-15: exactly one terminal state, and it stays (B64)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn finish_and_cancel_at_once_end_in_one_state() {
    let go = Arc::new(Notify::new());
    let tool = {
        let go = go.clone();
        TaskTool::new("race").run(move |_: TaskContext, _: Value| {
            let go = go.clone();
            async move {
                go.notified().await;
                Ok::<_, TaskError>("finished")
            }
        })
    };
    let store = MemoryStore::new();
    let runtime = runtime_on(
        Arc::new(store),
        Limits::default(),
        &Clock::system(),
        [tool, quick("quick")],
    );
    let (mut finished, mut cancelled) = (0, 0);
    let rounds = 2000;
    for round in 0..rounds {
        let id = runtime.create(call("race")).await.unwrap().id.clone();
        let wait = || {
            let (runtime, id) = (runtime.clone(), id.clone());
            tokio::spawn(async move { runtime.wait(&id, &by_alice(), None).await.unwrap() })
        };
        let waiters = [wait(), wait()];
        let cancel = {
            let (runtime, id) = (runtime.clone(), id.clone());
            tokio::spawn(async move {
                for _ in 0..round % 7 {
                    tokio::task::yield_now().await;
                }
                runtime.cancel(&id, &by_alice(), "cancelled").await
            })
        };
        go.notify_one();
        let answer = within_a_minute(cancel).await.unwrap();
        let record = runtime.get(&id, &by_alice(), None).await.unwrap();
        match (answer, record.phase()) {
            (Ok(told), Phase::Cancelled) => {
                assert_eq!(told, record);
                cancelled += 1;
            }
            (Err(ReadError::Terminal(told)), Phase::Finished) => {
                assert_eq!(told, record);
                assert_eq!(text(&record), "finished");
                finished += 1;
            }
            other => panic!("{other:?}"),
        }
        for waiter in waiters {
            assert_eq!(within_a_minute(waiter).await.unwrap(), record);
        }
        assert_eq!(runtime.get(&id, &by_alice(), None).await.unwrap(), record);
    }
    assert_eq!(finished + cancelled, rounds);
}
