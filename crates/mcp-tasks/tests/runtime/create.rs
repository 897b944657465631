//! `.create` handlers, and the tools that are asked lazily.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mcp_tasks::{
    CreateContext, CreatedTask, Limits, PollContext, TaskError, TaskOptions, TaskTool,
    runtime::{CreateError, ReadError},
    store::TaskStore,
    task::{Phase, TaskId},
};
use serde_json::Value;

use crate::support::{
    TestStore, alice, by_alice, call, call_with, clock, ended, error, limited, requestor, runtime,
    runtime_on, soon, text,
};

const ID: &str = "job-0123456789abcdefghij";

fn outside(name: &str, options: TaskOptions) -> TaskTool {
    TaskTool::new(name).create(move |cx: CreateContext, _: Value| {
        let options = options.clone();
        async move { cx.create_task(options).await }
    })
}

// F-04, F-21
#[tokio::test(start_paused = true)]
async fn every_option_of_a_created_task_counts() {
    let options = TaskOptions::new()
        .ttl(Duration::from_secs(90))
        .poll_interval(Duration::from_millis(10))
        .proposed_id(ID)
        .external_id("17")
        .status_message("queued")
        .immediate_response("It is on its way.");
    let (runtime, store) = runtime([outside("job", options)]);
    let record = runtime.create(call("job")).await.unwrap();
    assert_eq!(record.id.as_str(), ID);
    assert_eq!(record.ttl_ms, Some(90_000));
    assert_eq!(record.poll_interval_ms, 100); // the floor
    assert_eq!(record.external_id.as_deref(), Some("17"));
    assert_eq!(record.status_message.as_deref(), Some("queued"));
    assert_eq!(
        record.immediate_response.as_deref(),
        Some("It is on its way.")
    );
    assert_eq!(
        (record.phase(), record.worker.clone(), record.attempt),
        (Phase::Working, None, 0)
    );
    assert_eq!(record.owner, alice());
    let found = store
        .find_external("17", &by_alice())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.id, record.id);
    // Outside work is nobody's lease: it is not taken for left.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        runtime
            .get(&record.id, &by_alice(), None)
            .await
            .unwrap()
            .phase(),
        Phase::Working
    );
}

// F-04
#[tokio::test(start_paused = true)]
async fn what_the_requestor_asks_comes_before_the_options() {
    let options = TaskOptions::new().ttl(Duration::from_secs(90));
    let (runtime, _store) = runtime([outside("job", options)]);
    let mut wanted = call("job");
    wanted.ttl = Some(Some(5000));
    assert_eq!(runtime.create(wanted).await.unwrap().ttl_ms, Some(5000));
}

// F-04: "id collision overwrites"
#[tokio::test(start_paused = true)]
async fn a_proposed_id_is_checked_and_never_taken_twice() {
    let tool = TaskTool::new("job").create(async |cx: CreateContext, args: Value| {
        let mut options = TaskOptions::new();
        if let Some(id) = args["id"].as_str() {
            options = options.proposed_id(id);
        }
        if let Some(id) = args["external"].as_str() {
            options = options.external_id(id);
        }
        cx.create_task(options).await
    });
    let (runtime, store) = runtime([tool]);
    for bad in [
        "17",
        "short",
        "a/bcdefghijklmnopqrstuvwxyz",
        "ü-0123456789abcdefghijklm",
    ] {
        let refused = runtime
            .create(call_with("job", &format!(r#"{{"id":"{bad}"}}"#)))
            .await;
        let error = refused.unwrap_err().into_rpc();
        assert_eq!(error.code, -32602, "{bad}");
        assert!(error.message.contains("22 to 128"), "{}", error.message);
    }
    assert_eq!(store.len(), 0);
    let first = runtime
        .create(call_with(
            "job",
            &format!(r#"{{"id":"{ID}","external":"x"}}"#),
        ))
        .await
        .unwrap();
    for again in [
        format!(r#"{{"id":"{ID}"}}"#),
        r#"{"external":"x"}"#.to_owned(),
    ] {
        // Another owner's call, which must not learn more than that the id is taken.
        let mut call = call_with("job", &again);
        call.requestor = requestor(mcp_tasks::task::Owner::principal("bob"));
        let error = runtime.create(call).await.unwrap_err().into_rpc();
        assert_eq!(error.code, -32602);
        assert!(
            error.message.contains("already exists"),
            "{}",
            error.message
        );
    }
    assert_eq!(store.len(), 1);
    let stored = store.get(ID, &by_alice()).await.unwrap().unwrap();
    assert_eq!(stored, first);
    // Refused creations gave their place back.
    let entries = store.index_entries();
    store.remove(ID, &by_alice()).await.unwrap();
    assert!(entries > 0);
    assert_eq!(store.index_entries(), 0);
}

// F-04
#[tokio::test(start_paused = true)]
async fn after_a_conflict_the_handler_may_try_another_id() {
    let tool = TaskTool::new("job").create(async |cx: CreateContext, _: Value| {
        match cx.create_task(TaskOptions::new().proposed_id(ID)).await {
            Ok(task) => Ok(task),
            Err(_taken) => cx.create_task(TaskOptions::new()).await,
        }
    });
    let (runtime, store) = runtime([tool]);
    let first = runtime.create(call("job")).await.unwrap();
    let second = runtime.create(call("job")).await.unwrap();
    assert_eq!(first.id.as_str(), ID);
    assert_ne!(second.id, first.id);
    assert_eq!(store.len(), 2);
}

// F-04: "failed creation leaves nothing" (B77)
#[tokio::test(start_paused = true)]
async fn a_handler_that_fails_leaves_nothing() {
    let made = Arc::new(Mutex::new(Vec::new()));
    let tool = {
        let made = made.clone();
        TaskTool::new("job").create(move |cx: CreateContext, args: Value| {
            let made = made.clone();
            async move {
                let task = cx.create_task(TaskOptions::new().external_id("x")).await?;
                made.lock().unwrap().push(task.handle().clone());
                match args["how"].as_str() {
                    Some("panic") => panic!("no"),
                    Some("two") => cx.create_task(TaskOptions::new()).await,
                    _ => Err(TaskError::rpc(1042, "the job system is down")?),
                }
            }
        })
    };
    let (runtime, store) = runtime([tool]);
    for (arguments, code, message) in [
        ("{}", 1042, "the job system is down"),
        (r#"{"how":"panic"}"#, -32603, "the tool panicked"),
        (r#"{"how":"two"}"#, -32603, "one task, not two"),
    ] {
        let error = runtime
            .create(call_with("job", arguments))
            .await
            .unwrap_err()
            .into_rpc();
        assert_eq!(error.code, code, "{}", error.message);
        assert!(error.message.contains(message), "{}", error.message);
        let handle = made.lock().unwrap().pop().unwrap();
        assert!(handle.record().await.unwrap().is_none());
        assert!(!handle.complete("late").await.unwrap());
        assert_eq!((store.len(), store.index_entries()), (0, 0));
    }
}

// F-04: a handler answers with its own call's task or not at all
#[tokio::test(start_paused = true)]
async fn a_handler_that_creates_none_is_an_error() {
    let kept: Arc<Mutex<Option<CreatedTask>>> = Arc::default();
    let tool = {
        let kept = kept.clone();
        TaskTool::new("job").create(move |cx: CreateContext, _: Value| {
            let kept = kept.clone();
            async move {
                let earlier = kept.lock().unwrap().clone();
                if let Some(earlier) = earlier {
                    return Ok(earlier);
                }
                let task = cx.create_task(TaskOptions::new()).await?;
                *kept.lock().unwrap() = Some(task.clone());
                Ok::<_, TaskError>(task)
            }
        })
    };
    let (runtime, store) = runtime([tool]);
    runtime.create(call("job")).await.unwrap();
    let error = runtime.create(call("job")).await.unwrap_err();
    assert!(matches!(error, CreateError::Handler(_)), "{error}");
    assert!(error.to_string().contains("not this call's"), "{error}");
    assert_eq!(store.len(), 1);
}

// F-04: a creation that its handler gave up on half-way is undone
#[tokio::test(start_paused = true)]
async fn a_creation_given_up_half_way_leaves_nothing() {
    let store = TestStore::default();
    let tool = TaskTool::new("job").create(async |cx: CreateContext, _: Value| {
        tokio::time::timeout(Duration::from_secs(1), cx.create_task(TaskOptions::new()))
            .await
            .map_err(|_| TaskError::internal("too slow"))?
    });
    let runtime = runtime_on(Arc::new(store.clone()), Limits::default(), &clock(), [tool]);
    store.faults.insert.close();
    let creating = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.create(call("job")).await }
    });
    store.faults.insert.reached().await;
    let error = soon(creating).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "too slow");
    let mut feed = store.changes();
    store.faults.insert.open();
    // Inserted, and removed again.
    soon(feed.next()).await.unwrap();
    soon(feed.next()).await.unwrap();
    assert_eq!((store.memory.len(), store.memory.index_entries()), (0, 0));
}

// F-04: a request that goes away does not undo what was begun
#[tokio::test(start_paused = true)]
async fn a_creation_whose_caller_leaves_goes_on() {
    let store = TestStore::default();
    let runtime = runtime_on(
        Arc::new(store.clone()),
        Limits::default(),
        &clock(),
        [crate::support::quick("quick")],
    );
    store.faults.insert.close();
    let mut wanted = call("quick");
    let id = TaskId::from_stored("known-beforehand-0123456789");
    wanted.id = Some(id.clone());
    let creating = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.create(wanted).await }
    });
    store.faults.insert.reached().await;
    creating.abort();
    store.faults.insert.open();
    let record = crate::support::until(&store, &id, |record| record.is_terminal()).await;
    assert_eq!(text(&record), "done");
}

// F-10: a ttl of zero names itself
#[tokio::test(start_paused = true)]
async fn a_created_task_cannot_be_born_expired() {
    let tool = outside("job", TaskOptions::new().ttl(Duration::ZERO));
    let (runtime, store) = runtime([tool]);
    let error = runtime.create(call("job")).await.unwrap_err();
    assert!(error.to_string().contains("ttl"), "{error}");
    assert_eq!(store.len(), 0);
}

/// A tool whose job is asked lazily; the calls of `.on_get` and `.on_result` are counted.
fn lazy(gets: &Arc<AtomicUsize>, results: &Arc<AtomicUsize>, after: usize) -> TaskTool {
    let (gets, results) = (gets.clone(), results.clone());
    outside(
        "job",
        TaskOptions::new()
            .external_id("job-7")
            .poll_interval(Duration::from_secs(2)),
    )
    .on_get(move |cx: PollContext| {
        let gets = gets.clone();
        async move {
            let who = cx.requestor().session.clone().unwrap_or_default();
            if &*who == "broken" {
                return Err(TaskError::rpc(1042, "the job system is down")?);
            }
            let count = gets.fetch_add(1, Ordering::SeqCst) + 1;
            let job = cx.external_id().unwrap_or_default().to_owned();
            cx.handle()
                .status(format!("{job} asked {count} times by {who}"))
                .await?;
            Ok::<_, TaskError>(())
        }
    })
    .on_result(move |cx: PollContext| {
        let results = results.clone();
        async move {
            if results.fetch_add(1, Ordering::SeqCst) + 1 == after {
                cx.handle()
                    .complete(format!("job of {}", cx.request().tool))
                    .await?;
            }
            Ok::<_, TaskError>(())
        }
    })
}

// F-06: "custom get/result handlers never called or their errors swallowed"
#[tokio::test(start_paused = true)]
async fn a_lazy_tool_is_asked_on_behalf_of_who_asks() {
    let (gets, results) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let (runtime, _store) = runtime([lazy(&gets, &results, 3)]);
    let record = runtime.create(call("job")).await.unwrap();
    assert_eq!(
        (gets.load(Ordering::SeqCst), results.load(Ordering::SeqCst)),
        (0, 0)
    );
    let mut asking = requestor(alice());
    asking.session = Some("tab-2".into());
    let seen = runtime
        .get(&record.id, &by_alice(), Some(&asking))
        .await
        .unwrap();
    assert_eq!(
        seen.status_message.as_deref(),
        Some("job-7 asked 1 times by tab-2")
    );

    asking.session = Some("broken".into());
    match runtime.get(&record.id, &by_alice(), Some(&asking)).await {
        Err(ReadError::Tool(error)) => {
            assert_eq!(
                (error.code, error.message.as_str()),
                (1042, "the job system is down")
            );
        }
        other => panic!("{other:?}"),
    }
    // The task is as it was.
    let seen = runtime.get(&record.id, &by_alice(), None).await.unwrap();
    assert_eq!(seen.phase(), Phase::Working);

    // Asked at once, and then once a poll interval, until it has ended.
    let begun = tokio::time::Instant::now();
    let done = ended(&runtime, &record.id).await;
    assert_eq!(text(&done), "job of job");
    assert_eq!(results.load(Ordering::SeqCst), 3);
    assert_eq!(begun.elapsed().as_secs(), 4);
    // An ended task is not asked about.
    let before = gets.load(Ordering::SeqCst);
    runtime.get(&record.id, &by_alice(), None).await.unwrap();
    assert_eq!(gets.load(Ordering::SeqCst), before);
}

// F-06
#[tokio::test(start_paused = true)]
async fn a_lazy_tools_errors_and_panics_reach_who_waits() {
    let tool = outside("job", TaskOptions::new()).on_result(async |cx: PollContext| {
        match cx.requestor().session.as_deref() {
            Some("panic") => panic!("no"),
            _ => Err::<(), _>(TaskError::internal("gone fishing")),
        }
    });
    let (runtime, _store) = runtime([tool]);
    let record = runtime.create(call("job")).await.unwrap();
    for (session, message) in [("panic", "the tool panicked"), ("x", "gone fishing")] {
        let mut asking = requestor(alice());
        asking.session = Some(session.into());
        match soon(runtime.wait(&record.id, &by_alice(), Some(&asking))).await {
            Err(ReadError::Tool(error)) => assert_eq!(error.message, message),
            other => panic!("{other:?}"),
        }
    }
}

// F-06: others' changes wake who waits on a lazy tool before the next poll
#[tokio::test(start_paused = true)]
async fn a_lazy_tools_waiter_is_woken_early() {
    let (gets, results) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let (runtime, _store) = limited(Limits::default(), [lazy(&gets, &results, usize::MAX)]);
    let record = runtime.create(call("job")).await.unwrap();
    let begun = tokio::time::Instant::now();
    let (done, ()) = tokio::join!(ended(&runtime, &record.id), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let handle = runtime.handle(&record.id).await.unwrap().unwrap();
        assert!(handle.fail(TaskError::internal("broken")).await.unwrap());
    });
    assert_eq!(error(&done).message, "broken");
    assert_eq!(begun.elapsed().as_millis(), 500);
}
