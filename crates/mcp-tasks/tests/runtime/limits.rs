//! Lifetimes and limits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use mcp_tasks::{
    Limits, TaskContext, TaskError, TaskTool,
    runtime::{Call, CreateError, ReadError},
    store::{MemoryStore, TaskStore},
    task::{Clock, Owner, Phase, Timestamp},
};
use serde_json::Value;
use tokio::sync::Notify;

use crate::support::{
    Dropped, Heard, accept, alice, by_alice, call, call_with, ended, error, forever, idle, limited,
    quick, requestor, run, runtime, runtime_on, soon, text, until,
};

fn limits(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

// F-19: "ttl above the maximum rejected or hanging", "`ttl` missing"
#[tokio::test(start_paused = true)]
async fn a_ttl_is_clamped_and_always_told() {
    let limits = limits(|l| l.max_ttl = Duration::from_secs(7200));
    let (runtime, _store) = limited(
        limits,
        [quick("plain"), quick("short").ttl(Duration::from_secs(5))],
    );
    for (tool, asked, given) in [
        ("plain", None, 3_600_000),
        ("short", None, 5000),
        ("short", Some(Some(60_000)), 60_000),
        ("plain", Some(None), 7_200_000),
        ("plain", Some(Some(u64::MAX)), 7_200_000),
        ("plain", Some(Some(0)), 1000),
    ] {
        let mut wanted = call(tool);
        wanted.ttl = asked;
        let record = runtime.create(wanted).await.unwrap();
        assert_eq!(record.ttl_ms, Some(given), "{tool} {asked:?}");
        assert_eq!(record.origin.requested_ttl, asked);
    }
}

// F-19: enforced on read, whether or not anybody has swept
#[tokio::test(start_paused = true)]
async fn an_expired_task_is_gone_for_every_reader() {
    let time = Arc::new(AtomicU64::new(1_000_000));
    let clock = {
        let time = time.clone();
        Clock::from_fn(move || Timestamp::from_millis(time.load(Ordering::SeqCst)))
    };
    let store = MemoryStore::new();
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let tool = forever("f", &started, &dropped);
    let runtime = runtime_on(Arc::new(store.clone()), Limits::default(), &clock, [tool]);
    let mut wanted = call("f");
    wanted.ttl = Some(Some(60_000));
    let id = runtime.create(wanted).await.unwrap().id.clone();
    let handle = runtime.handle(&id).await.unwrap().unwrap();
    time.fetch_add(59_999, Ordering::SeqCst);
    assert!(runtime.get(&id, &by_alice(), None).await.is_ok());
    assert_eq!(runtime.list(&alice(), None).await.unwrap().0.len(), 1);
    time.fetch_add(1, Ordering::SeqCst);
    assert_eq!(store.len(), 1);
    let mine = by_alice();
    assert!(matches!(
        runtime.get(&id, &mine, None).await,
        Err(ReadError::NotFound)
    ));
    assert!(matches!(
        runtime.wait(&id, &mine, None).await,
        Err(ReadError::NotFound)
    ));
    assert!(matches!(
        runtime.cancel(&id, &mine, "x").await,
        Err(ReadError::NotFound)
    ));
    let late = runtime.answer(&id, &mine, "k", accept("{}")).await;
    assert!(matches!(late, Err(ReadError::NotFound)));
    assert_eq!(runtime.list(&alice(), None).await.unwrap(), (vec![], false));
    assert!(!handle.complete("late").await.unwrap());
    assert!(handle.record().await.unwrap().is_none());
    assert!(runtime.handle(&id).await.unwrap().is_none());
    // The sweeper reclaims it and stops the work.
    dropped.reaches(1).await;
    idle(&runtime).await;
    assert_eq!((store.len(), store.index_entries()), (0, 0));
}

// F-19: expired tasks do not make a page short
#[tokio::test(start_paused = true)]
async fn a_page_is_full_whatever_has_expired() {
    let time = Arc::new(AtomicU64::new(1_000_000));
    let clock = {
        let time = time.clone();
        Clock::from_fn(move || Timestamp::from_millis(time.fetch_add(1, Ordering::SeqCst)))
    };
    let limits = limits(|l| {
        l.page = 4;
        l.min_result_retention = Duration::ZERO;
    });
    let store = Arc::new(MemoryStore::new());
    let runtime = runtime_on(store, limits, &clock, [quick("quick")]);
    let mut lasting = Vec::new();
    for n in 0..20 {
        let mut wanted = call("quick");
        let short = n % 5 != 0;
        wanted.ttl = Some(Some(if short { 10_000 } else { 600_000 }));
        let record = runtime.create(wanted).await.unwrap();
        ended(&runtime, &record.id).await;
        if !short {
            lasting.push(record.id.clone());
        }
    }
    lasting.reverse();
    time.fetch_add(60_000, Ordering::SeqCst);
    let (page, more) = runtime.list(&alice(), None).await.unwrap();
    let ids: Vec<_> = page.iter().map(|record| record.id.clone()).collect();
    assert_eq!((ids, more), (lasting, false));
}

// F-19 (B71, B73, B76)
#[tokio::test(start_paused = true)]
async fn expiry_stops_the_work_wakes_the_waiters_and_frees_everything() {
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let tools = [forever("f", &started, &dropped), asking()];
    let (runtime, store) = limited(limits(|l| l.tasks_per_owner = 2), tools);
    let heard = Heard::of(&runtime);
    let mut ids = Vec::new();
    for tool in ["f", "asking"] {
        let mut wanted = call(tool);
        wanted.ttl = Some(Some(60_000));
        ids.push(runtime.create(wanted).await.unwrap().id.clone());
    }
    until(&store, &ids[1], |record| {
        record.phase() == Phase::InputRequired
    })
    .await;
    let full = runtime.create(call("f")).await.unwrap_err();
    assert_eq!(
        full.to_string(),
        "the limit of 2 tasks per owner is reached"
    );

    let begun = tokio::time::Instant::now();
    for id in &ids {
        let waited = soon(runtime.wait(id, &by_alice(), None)).await;
        assert!(matches!(waited, Err(ReadError::NotFound)));
    }
    assert_eq!(begun.elapsed().as_secs(), 60);
    dropped.reaches(1).await;
    idle(&runtime).await;
    soon(async {
        while !store.is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert_eq!(store.index_entries(), 0);
    assert!(
        ids.iter()
            .all(|id| heard.removed.lock().unwrap().contains(id))
    );
    // Their places are free.
    runtime.create(call("f")).await.unwrap();
}

fn asking() -> TaskTool {
    TaskTool::new("asking").run(async |cx: TaskContext, _: Value| {
        cx.list_roots().await?;
        Ok::<_, TaskError>("asked")
    })
}

// F-19: a token holder has the same grace as after a cancel
#[tokio::test(start_paused = true)]
async fn expiry_fires_the_bodys_token() {
    let ended = Arc::new(Notify::new());
    let tool = {
        let ended = ended.clone();
        TaskTool::new("obedient").run(move |cx: TaskContext, _: Value| {
            let ended = ended.clone();
            async move {
                cx.cancelled().await;
                ended.notify_one();
                Ok::<_, TaskError>("late")
            }
        })
    };
    let (runtime, _store) = runtime([tool.ttl(Duration::from_secs(30))]);
    let begun = tokio::time::Instant::now();
    let id = runtime.create(call("obedient")).await.unwrap().id.clone();
    soon(ended.notified()).await;
    assert_eq!(begun.elapsed().as_secs(), 30);
    assert!(matches!(
        runtime.get(&id, &by_alice(), None).await,
        Err(ReadError::NotFound)
    ));
}

// F-19
#[tokio::test(start_paused = true)]
async fn a_result_stays_readable_for_a_while() {
    let tool = TaskTool::new("slow").run(async |_: TaskContext, _: Value| {
        tokio::time::sleep(Duration::from_secs(9)).await;
        Ok::<_, TaskError>("just in time")
    });
    let (runtime, _store) = runtime([tool, quick("quick")]);
    let mut wanted = call("slow");
    wanted.ttl = Some(Some(10_000));
    let record = run(&runtime, wanted).await;
    // 9 s of work, and 60 s from then on; the ttl that is told is the one in force.
    assert_eq!(record.ttl_ms, Some(69_000));
    assert_eq!(run(&runtime, call("quick")).await.ttl_ms, Some(3_600_000));
    tokio::time::sleep(Duration::from_millis(59_900)).await;
    assert_eq!(
        text(&runtime.get(&record.id, &by_alice(), None).await.unwrap()),
        "just in time"
    );
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(matches!(
        runtime.get(&record.id, &by_alice(), None).await,
        Err(ReadError::NotFound)
    ));
}

// F-19: "ttl timer overflow above 2^31 ms"
#[tokio::test(start_paused = true)]
async fn a_ttl_of_more_than_two_to_the_31_milliseconds_works() {
    const TTL: u64 = (1 << 31) + 60_000;
    let go = Arc::new(Notify::new());
    let tool = {
        let go = go.clone();
        TaskTool::new("month").run(move |_: TaskContext, _: Value| {
            let go = go.clone();
            async move {
                go.notified().await;
                Ok::<_, TaskError>("still here")
            }
        })
    };
    let (runtime, _store) = limited(limits(|l| l.max_ttl = Duration::from_millis(TTL)), [tool]);
    let mut wanted = call("month");
    wanted.ttl = Some(Some(TTL));
    let record = runtime.create(wanted.clone()).await.unwrap();
    let other = runtime.create(wanted).await.unwrap();
    assert_eq!(record.ttl_ms, Some(TTL));
    let waiter = tokio::spawn({
        let (runtime, id) = (runtime.clone(), record.id.clone());
        async move { runtime.wait(&id, &by_alice(), None).await }
    });
    tokio::task::yield_now().await;
    tokio::time::advance(Duration::from_millis(1 << 31)).await;
    assert!(runtime.get(&record.id, &by_alice(), None).await.is_ok());
    go.notify_one();
    assert_eq!(text(&soon(waiter).await.unwrap().unwrap()), "still here");
    let late = soon(runtime.wait(&other.id, &by_alice(), None)).await;
    assert!(matches!(late, Err(ReadError::NotFound)));
}

// F-20
#[tokio::test(start_paused = true)]
async fn the_number_of_tasks_is_limited_per_owner_and_in_all() {
    let limits = limits(|l| {
        l.tasks_per_owner = 2;
        l.tasks = 3;
    });
    let (runtime, store) = limited(limits, [quick("quick")]);
    let by = |name: &str| Call::new("quick", requestor(Owner::principal(name)));
    runtime.create(by("alice")).await.unwrap();
    runtime.create(by("alice")).await.unwrap();
    let refused = runtime.create(by("alice")).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the limit of 2 tasks per owner is reached"
    );
    assert_eq!(refused.into_rpc().code, -32000);
    runtime.create(by("bob")).await.unwrap();
    let refused = runtime.create(by("bob")).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the limit of 3 tasks in all is reached"
    );
    // Tasks of nobody count in all, and per session where their call says so.
    let mut bearer = Call::new("quick", requestor(Owner::Bearer));
    bearer.quota_key = Some("session:1".into());
    assert!(matches!(
        runtime.create(bearer).await,
        Err(CreateError::Limit(_))
    ));
    assert_eq!(store.len(), 3);
}

// F-20: what exceeds the concurrent runs waits as `working`
#[tokio::test(start_paused = true)]
async fn bodies_wait_for_their_turn() {
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let tools = [forever("f", &started, &dropped), quick("quick")];
    let (runtime, _store) = limited(limits(|l| l.concurrent_runs = 1), tools);
    let first = runtime.create(call("f")).await.unwrap().id.clone();
    started.notified().await;
    let second = runtime.create(call("f")).await.unwrap().id.clone();
    let third = runtime.create(call("quick")).await.unwrap().id.clone();
    tokio::time::sleep(Duration::from_secs(60)).await;
    for id in [&first, &second, &third] {
        let record = runtime.get(id, &by_alice(), None).await.unwrap();
        assert_eq!(record.phase(), Phase::Working);
    }
    // One that waits can be cancelled: its body never runs.
    runtime
        .cancel(&second, &by_alice(), "enough")
        .await
        .unwrap();
    let begun = tokio::time::Instant::now();
    runtime.cancel(&first, &by_alice(), "enough").await.unwrap();
    assert_eq!(text(&ended(&runtime, &third).await), "done");
    assert_eq!(begun.elapsed(), Limits::default().cancel_grace);
    assert_eq!(dropped.count(), 1);
    idle(&runtime).await;
}

// F-20
#[tokio::test(start_paused = true)]
async fn sizes_are_limited() {
    let tool = TaskTool::new("echo").run(async |_: TaskContext, args: Value| {
        let size = usize::try_from(args["size"].as_u64().unwrap()).unwrap();
        let text = "x".repeat(size);
        if args["fail"] == true {
            return Err(TaskError::rpc(1042, "long").unwrap().with_data(&text));
        }
        Ok::<_, TaskError>(text)
    });
    let limits = limits(|l| {
        l.arguments = 100;
        l.result = 1000;
    });
    let (runtime, store) = limited(limits, [tool]);
    let long = format!(r#"{{"size":1,"pad":"{}"}}"#, "y".repeat(100));
    let refused = runtime.create(call_with("echo", &long)).await.unwrap_err();
    assert!(
        refused.to_string().contains("limit of 100 bytes"),
        "{refused}"
    );
    assert_eq!((store.len(), refused.into_rpc().code), (0, -32602));
    assert_eq!(
        text(&run(&runtime, call_with("echo", r#"{"size":800}"#)).await).len(),
        800
    );
    for arguments in [r#"{"size":2000}"#, r#"{"size":2000,"fail":true}"#] {
        let error = error(&run(&runtime, call_with("echo", arguments)).await);
        assert_eq!(error.code, -32603);
        assert!(
            error.message.contains("limit of 1000 bytes"),
            "{}",
            error.message
        );
    }
    assert_eq!(
        error(&run(&runtime, call_with("echo", r#"{"size":9,"fail":true}"#)).await).code,
        1042
    );
}

// F-20 (B74)
#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_short_tasks_leave_nothing_behind() {
    let limits = limits(|l| {
        l.tasks_per_owner = 1000;
        l.default_ttl = Duration::from_secs(120);
    });
    let (runtime, store) = limited(limits, [quick("quick")]);
    for batch in 0..100 {
        let owner = Owner::principal(format!("owner-{batch}"));
        let mut last = None;
        for _ in 0..1000 {
            let call = Call::new("quick", requestor(owner.clone()));
            last = Some(runtime.create(call).await.unwrap().id.clone());
        }
        let access = mcp_tasks::store::Access::Owner(owner);
        soon(runtime.wait(&last.unwrap(), &access, None))
            .await
            .unwrap();
    }
    assert_eq!(store.len(), 100_000);
    idle(&runtime).await;
    tokio::time::advance(Duration::from_secs(121)).await;
    soon(async {
        while !store.is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
    .await;
    assert_eq!(store.index_entries(), 0);
    assert_eq!(runtime.held(), [0, 0, 0]);
    assert_eq!(store.next_expiry().await.unwrap(), None);
}
