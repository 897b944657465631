//! What becomes of tasks whose worker stopped: two runtimes on one store stand for two processes.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mcp_tasks::{
    InputError, Limits, Question, Recovery, Runtime, TaskContext, TaskError, TaskTool,
    store::{Access, MemoryStore, TaskStore},
    task::{Answer, Clock, InputState, Phase, TaskId},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::{
    Dropped, TestStore, accept, asked, by_alice, call, clock, ended, error, forever, idle,
    json as raw, quick, run, runtime_on, soon, text, until,
};

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// Two processes on one store.
struct Two {
    store: MemoryStore,
    clock: Clock,
}

impl Two {
    fn new() -> Self {
        Self {
            store: MemoryStore::new(),
            clock: clock(),
        }
    }

    fn process(&self, tools: impl IntoIterator<Item = TaskTool>) -> Runtime {
        runtime_on(
            Arc::new(self.store.clone()),
            Limits::default(),
            &self.clock,
            tools,
        )
    }

    async fn stored(&self, id: &TaskId) -> Arc<mcp_tasks::task::TaskRecord> {
        self.store
            .get(id.as_str(), &Access::System)
            .await
            .unwrap()
            .unwrap()
    }
}

// F-24: `Recovery::Fail`, the default
#[tokio::test(start_paused = true)]
async fn a_left_task_fails_when_the_lease_has_lapsed() {
    let two = Two::new();
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let tool = || forever("f", &started, &dropped);
    let first = two.process([tool()]);
    let id = first.create(call("f")).await.unwrap().id.clone();
    started.notified().await;
    drop(first);
    dropped.reaches(1).await;

    let second = two.process([tool()]);
    second.start_worker().await.unwrap();
    let begun = tokio::time::Instant::now();
    let record = ended(&second, &id).await;
    let error = error(&record);
    assert_eq!(
        (error.code, error.message.as_str()),
        (-32603, "the worker running this task stopped")
    );
    assert_eq!(
        record.status_message.as_deref(),
        Some("the worker running this task stopped")
    );
    // Not before the lease had lapsed, and at the next look after that.
    let limits = Limits::default();
    assert!(begun.elapsed() >= limits.lease, "{:?}", begun.elapsed());
    assert!(begun.elapsed() <= limits.lease + limits.heartbeat);
    assert_eq!(dropped.count(), 1);
}

// F-24: while its lease is renewed a task is nobody else's
#[tokio::test(start_paused = true)]
async fn a_task_whose_worker_lives_is_not_taken() {
    let two = Two::new();
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let tool = || forever("f", &started, &dropped).recovery(Recovery::Rerun);
    let (first, second) = (two.process([tool()]), two.process([tool()]));
    let id = first.create(call("f")).await.unwrap().id.clone();
    second.start_worker().await.unwrap();
    let begun = two.stored(&id).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(two.stored(&id).await, begun);
    // However long it lives, running costs its record no write.
    assert_eq!((begun.revision, begun.attempt), (1, 1));
}

// "recovery at process start by a throw-away sibling process"
#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_before_the_first_traffic() {
    let two = Two::new();
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let tool = || forever("f", &started, &dropped);
    let first = two.process([tool(), quick("quick")]);
    let id = first.create(call("f")).await.unwrap().id.clone();
    drop(first);
    let second = two.process([tool(), quick("quick")]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(two.stored(&id).await.phase(), Phase::Working);
    assert_eq!(two.stored(&id).await.revision, 1);
    run(&second, call("quick")).await;
    assert_eq!(error(&ended(&second, &id).await).code, -32603);
}

/// Asks for a name, saves it, asks for another, and says all it knows of its attempts.
fn interview(dead_at: Option<usize>, reached: &Arc<Notify>) -> TaskTool {
    let reached = reached.clone();
    TaskTool::new("interview")
        .recovery(Recovery::Rerun)
        .run(move |cx: TaskContext, _: Value| {
            let reached = reached.clone();
            async move {
                let restored: Option<Value> = cx.restored()?;
                let first = cx.elicit::<Name>("First name?").await?.accepted().unwrap();
                cx.checkpoint(&json!({"first": first.name, "attempt": cx.attempt()}))
                    .await?;
                reached.notify_one();
                if dead_at == Some(1) {
                    std::future::pending::<()>().await;
                }
                let last = cx.elicit::<Name>("Last name?").await?.accepted().unwrap();
                let attempt = cx.attempt();
                let restored = restored.unwrap_or_default();
                Ok::<_, TaskError>(format!("{} {} {attempt} {restored}", first.name, last.name))
            }
        })
}

// F-23, F-24
#[tokio::test(start_paused = true)]
async fn a_body_that_runs_again_gets_what_it_had() {
    let two = Two::new();
    let reached = Arc::new(Notify::new());
    let first = two.process([interview(Some(1), &reached)]);
    let id = first.create(call("interview")).await.unwrap().id.clone();
    let input = asked(&two.store, &id).await;
    let answer = accept(r#"{"name":"Ada"}"#);
    assert!(
        first
            .answer(&id, &by_alice(), &input.key, answer)
            .await
            .unwrap()
    );
    soon(reached.notified()).await;
    drop(first);

    let second = two.process([interview(None, &reached)]);
    second.start_worker().await.unwrap();
    // The answer that was given is not asked for again; the next question is.
    let next = asked(&two.store, &id).await;
    let record = two.stored(&id).await;
    assert_eq!((record.inputs.len(), record.attempt), (2, 2));
    assert_ne!(next.key, input.key);
    let answer = accept(r#"{"name":"Lovelace"}"#);
    assert!(
        second
            .answer(&id, &by_alice(), &next.key, answer)
            .await
            .unwrap()
    );
    let done = ended(&second, &id).await;
    assert_eq!(text(&done), r#"Ada Lovelace 2 {"attempt":1,"first":"Ada"}"#);
    // What was saved is of no use any more.
    assert_eq!((done.checkpoint.clone(), done.attempt), (None, 2));
}

// F-23: an open question survives its process, and is answered once
#[tokio::test(start_paused = true)]
async fn an_open_question_outlives_its_process() {
    let two = Two::new();
    let reached = Arc::new(Notify::new());
    let first = two.process([interview(None, &reached)]);
    let id = first.create(call("interview")).await.unwrap().id.clone();
    let input = asked(&two.store, &id).await;
    drop(first);

    let second = two.process([interview(None, &reached)]);
    second.start_worker().await.unwrap();
    let taken = until(&two.store, &id, |record| record.attempt == 2).await;
    assert_eq!(taken.open_inputs().collect::<Vec<_>>(), [&input]);
    assert_eq!(taken.phase(), Phase::InputRequired);
    let answer = |name: &str| accept(&format!(r#"{{"name":"{name}"}}"#));
    assert!(
        second
            .answer(&id, &by_alice(), &input.key, answer("Ada"))
            .await
            .unwrap()
    );
    assert!(
        !second
            .answer(&id, &by_alice(), &input.key, answer("Eve"))
            .await
            .unwrap()
    );
    soon(reached.notified()).await;
    let last = asked(&two.store, &id).await;
    assert!(
        second
            .answer(&id, &by_alice(), &last.key, answer("L"))
            .await
            .unwrap()
    );
    let done = ended(&second, &id).await;
    assert_eq!(text(&done), "Ada L 2 null");
    assert_eq!(done.inputs.len(), 2);
}

// F-23: an answer that comes while nobody runs the body counts
#[tokio::test(start_paused = true)]
async fn an_answer_may_come_while_no_worker_has_the_task() {
    let two = Two::new();
    let reached = Arc::new(Notify::new());
    let first = two.process([interview(None, &reached)]);
    let id = first.create(call("interview")).await.unwrap().id.clone();
    let input = asked(&two.store, &id).await;
    drop(first);
    let second = two.process([interview(None, &reached)]);
    let answer = accept(r#"{"name":"Ada"}"#);
    assert!(
        second
            .answer(&id, &by_alice(), &input.key, answer)
            .await
            .unwrap()
    );
    assert_eq!(two.stored(&id).await.attempt, 1);
    second.start_worker().await.unwrap();
    soon(reached.notified()).await;
    let record = two.stored(&id).await;
    assert_eq!(record.attempt, 2);
    let saved: Value = record.checkpoint.as_ref().unwrap().parse().unwrap();
    assert_eq!(saved, json!({"first": "Ada", "attempt": 2}));
}

// F-23: a question that was given up in one attempt is a new one in the next
#[tokio::test(start_paused = true)]
async fn a_withdrawn_question_is_asked_again_under_a_new_key() {
    let two = Two::new();
    let gave_up = Arc::new(Notify::new());
    let tool = |gave_up: &Arc<Notify>| {
        let gave_up = gave_up.clone();
        TaskTool::new("t")
            .recovery(Recovery::Rerun)
            .run(move |cx: TaskContext, _: Value| {
                let gave_up = gave_up.clone();
                async move {
                    let patience = Duration::from_secs(if cx.attempt() == 1 { 1 } else { 1000 });
                    match tokio::time::timeout(patience, cx.elicit::<Name>("Name?")).await {
                        Ok(name) => Ok::<_, TaskError>(name?.accepted().unwrap().name),
                        Err(_) => {
                            gave_up.notify_one();
                            std::future::pending().await
                        }
                    }
                }
            })
    };
    let first = two.process([tool(&gave_up)]);
    let id = first.create(call("t")).await.unwrap().id.clone();
    soon(gave_up.notified()).await;
    until(&two.store, &id, |record| {
        record.inputs[0].state == InputState::Withdrawn
    })
    .await;
    drop(first);
    let second = two.process([tool(&gave_up)]);
    second.start_worker().await.unwrap();
    let input = asked(&two.store, &id).await;
    assert_eq!(&*input.key, "input-1~2");
    let answer = accept(r#"{"name":"Ada"}"#);
    assert!(
        second
            .answer(&id, &by_alice(), &input.key, answer)
            .await
            .unwrap()
    );
    assert_eq!(text(&ended(&second, &id).await), "Ada");
}

// F-24: a worker that was taken over can no longer write
#[tokio::test(start_paused = true)]
async fn a_worker_that_was_taken_over_is_fenced_out() {
    let store = TestStore::default();
    let clock = clock();
    let kept: Arc<Mutex<Vec<TaskContext>>> = Arc::default();
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let tool = || {
        let (kept, started, dropped) = (kept.clone(), started.clone(), dropped.clone());
        TaskTool::new("t")
            .recovery(Recovery::Rerun)
            .run(move |cx: TaskContext, _: Value| {
                kept.lock().unwrap().push(cx.clone());
                let (started, guard) = (started.clone(), dropped.guard());
                async move {
                    let _guard = guard;
                    started.notify_one();
                    if cx.attempt() == 1 {
                        std::future::pending::<()>().await;
                    }
                    cx.cancelled().await;
                    Ok::<_, TaskError>(())
                }
            })
    };
    let first = runtime_on(Arc::new(store.clone()), Limits::default(), &clock, [tool()]);
    let second = runtime_on(
        Arc::new(store.memory.clone()),
        Limits::default(),
        &clock,
        [tool()],
    );
    let id = first.create(call("t")).await.unwrap().id.clone();
    soon(started.notified()).await;
    second.start_worker().await.unwrap();
    // The first process lives, but cannot renew its lease.
    store.faults.heartbeats.store(true, Ordering::SeqCst);
    until(&store, &id, |record| record.attempt == 2).await;
    soon(started.notified()).await;
    // Its body is stopped as soon as it hears of it,
    dropped.reaches(1).await;
    idle(&first).await;
    // and whatever of it still runs changes nothing.
    let before = store
        .get(id.as_str(), &Access::System)
        .await
        .unwrap()
        .unwrap();
    let stale = kept.lock().unwrap()[0].clone();
    assert_eq!(stale.attempt(), 1);
    assert!(stale.status("mine").await.is_err());
    assert!(stale.checkpoint(&1).await.is_err());
    assert!(!stale.handle().complete("mine").await.unwrap());
    assert!(matches!(
        stale.ask(Question::roots()).await,
        Err(InputError::TaskEnded)
    ));
    let after = store
        .get(id.as_str(), &Access::System)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(after, before);
    // The new worker's can.
    let fresh = kept.lock().unwrap()[1].clone();
    fresh.status("mine").await.unwrap();
    assert!(fresh.handle().complete("second").await.unwrap());
    assert_eq!(text(&ended(&second, &id).await), "second");
}

// F-24: of any number of processes one takes it
#[tokio::test(start_paused = true)]
async fn a_left_task_is_taken_by_one_process() {
    let two = Two::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let tool = || {
        let runs = runs.clone();
        TaskTool::new("t")
            .recovery(Recovery::Rerun)
            .run(move |cx: TaskContext, _: Value| {
                runs.fetch_add(1, Ordering::SeqCst);
                async move {
                    if cx.attempt() == 1 {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, TaskError>(cx.attempt().to_string())
                }
            })
    };
    let first = two.process([tool()]);
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(first.create(call("t")).await.unwrap().id.clone());
    }
    tokio::task::yield_now().await;
    drop(first);
    let others: Vec<Runtime> = (0..4).map(|_| two.process([tool()])).collect();
    for other in &others {
        other.start_worker().await.unwrap();
    }
    for id in &ids {
        assert_eq!(text(&ended(&others[0], id).await), "2");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 40);
}

// F-24: a store that takes its time over what was left does not cost the worker its own lease
#[tokio::test(start_paused = true)]
async fn a_worker_keeps_its_lease_while_it_takes_over() {
    let (slow, clock) = (TestStore::default(), clock());
    let quick_store = TestStore {
        memory: slow.memory.clone(),
        ..TestStore::default()
    };
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let reached = Arc::new(Notify::new());
    let process = |store: &TestStore| {
        let own = forever("own", &started, &dropped).recovery(Recovery::Rerun);
        let tools = [interview(None, &reached), own];
        runtime_on(Arc::new(store.clone()), Limits::default(), &clock, tools)
    };
    let first = process(&slow);
    let left = first.create(call("interview")).await.unwrap().id.clone();
    asked(&slow, &left).await;
    let second = process(&slow);
    let own = second.create(call("own")).await.unwrap().id.clone();
    slow.faults.asking.close();
    drop(first);
    // The second hangs in the middle of its take-over, for many times a lease, while a third looks for left tasks.
    slow.faults.asking.reached().await;
    let third = process(&quick_store);
    third.start_worker().await.unwrap();
    until(&slow, &left, |record| record.attempt == 2).await;
    tokio::time::sleep(10 * Limits::default().lease).await;
    slow.faults.asking.open();
    tokio::time::sleep(10 * Limits::default().lease).await;
    for (id, attempt) in [(&own, 1), (&left, 2)] {
        let record = slow.get(id.as_str(), &Access::System).await.unwrap();
        assert_eq!(record.unwrap().attempt, attempt);
    }
}

// F-24: what nobody here can run does not keep the rest waiting
#[tokio::test(start_paused = true)]
async fn left_tasks_of_unknown_tools_do_not_hold_up_others() {
    let two = Two::new();
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let known = || forever("known", &started, &dropped);
    let first = two.process([forever("unknown", &started, &dropped), known()]);
    let mut ids = Vec::new();
    for n in 0..1500 {
        let tool = if n % 3 == 0 { "known" } else { "unknown" };
        ids.push(first.create(call(tool)).await.unwrap().id.clone());
    }
    drop(first);
    let second = two.process([known()]);
    tokio::time::sleep(Limits::default().lease).await;
    second.start_worker().await.unwrap();
    let begun = tokio::time::Instant::now();
    for (n, id) in ids.iter().enumerate() {
        if n % 3 == 0 {
            assert_eq!(error(&ended(&second, id).await).code, -32603);
        } else {
            assert_eq!(two.stored(id).await.phase(), Phase::Working);
        }
    }
    // All of them in one go.
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

// F-24: a cancelled or expired task is nobody's to recover
#[tokio::test(start_paused = true)]
async fn an_ended_task_is_not_run_again() {
    let two = Two::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let tool = || {
        let runs = runs.clone();
        TaskTool::new("t")
            .recovery(Recovery::Rerun)
            .run(move |_: TaskContext, _: Value| {
                runs.fetch_add(1, Ordering::SeqCst);
                async move {
                    std::future::pending::<()>().await;
                    Ok::<_, TaskError>(())
                }
            })
    };
    let first = two.process([tool()]);
    let cancelled = first.create(call("t")).await.unwrap().id.clone();
    let mut short = call("t");
    short.ttl = Some(Some(10_000));
    first.create(short).await.unwrap();
    tokio::task::yield_now().await;
    let second = two.process([tool()]);
    drop(first);
    second
        .cancel(&cancelled, &by_alice(), "enough")
        .await
        .unwrap();
    second.start_worker().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert_eq!(two.stored(&cancelled).await.phase(), Phase::Cancelled);
    assert_eq!(two.store.len(), 1);
}

// F-23: an answer given in one process reaches the body in another
#[tokio::test(start_paused = true)]
async fn an_answer_elsewhere_reaches_the_body_here() {
    let two = Two::new();
    let tool = TaskTool::new("roots").run(async |cx: TaskContext, _: Value| {
        let roots = cx.ask(Question::roots()).await?;
        Ok::<_, TaskError>(roots.get().to_owned())
    });
    let (here, elsewhere) = (two.process([tool]), two.process([]));
    let id = here.create(call("roots")).await.unwrap().id.clone();
    let input = asked(&two.store, &id).await;
    let answer = Answer::Result(raw(r#"{"roots":[]}"#));
    assert!(
        elsewhere
            .answer(&id, &by_alice(), &input.key, answer)
            .await
            .unwrap()
    );
    assert_eq!(text(&ended(&elsewhere, &id).await), r#"{"roots":[]}"#);
}
