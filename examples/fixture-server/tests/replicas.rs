//! Two server processes on one SQLite file: a task is its owner's, not a process's.
#![allow(clippy::unwrap_used, missing_docs)]

mod process;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use process::{Client, PATIENCE, Server, of, text};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

const STOPPED: &str = "the worker running this task stopped";
const LEASE_MS: u64 = 600;

struct World {
    a: Server,
    b: Server,
    /// One session, made at A, at both.
    at_a: Client,
    at_b: Client,
    _directory: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tasks.db");
        let a = Server::start(&file, LEASE_MS).await;
        let b = Server::start(&file, LEASE_MS).await;
        let at_a = Client::initialize(&a, "ann").await.unwrap();
        let at_b = at_a.at(&b);
        Self {
            a,
            b,
            at_a,
            at_b,
            _directory: directory,
        }
    }
}

async fn create(client: &Client, tool: &str, arguments: Value) -> String {
    let task = client.create(tool, arguments).await.unwrap();
    task["taskId"].as_str().unwrap().to_owned()
}

async fn call(client: &Client, method: &str, id: &str) -> Value {
    client.call(method, of(id)).await.unwrap()
}

/// Until a tool of the inner server counts as wanted.
async fn counted(client: &Client, mut wanted: impl FnMut(u64) -> bool) {
    let params = json!({"name": "read_counter", "arguments": {}});
    let counting = async {
        loop {
            let answer = client.call("tools/call", params.clone()).await.unwrap();
            if wanted(text(&answer).parse().unwrap()) {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, counting)
        .await
        .expect("it counts as expected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_made_at_one_is_waited_for_at_the_other() {
    let World { at_a, at_b, b, .. } = &World::new().await;
    let other = Client::initialize(b, "ann").await.unwrap();
    let id = create(
        at_a,
        "sleep_required",
        json!({"ms": 300, "text": "done at A"}),
    )
    .await;
    let working = call(at_b, "tasks/get", &id).await;
    assert_eq!(working["result"]["status"], "working");
    for client in [at_b, &other, at_a] {
        let result = call(client, "tasks/result", &id).await;
        assert_eq!(text(&result), "done at A");
        let listed = client.call("tasks/list", json!({})).await.unwrap();
        assert_eq!(listed["result"]["tasks"][0]["taskId"], *id);
    }
    let eve = Client::initialize(b, "eve").await.unwrap();
    assert_eq!(call(&eve, "tasks/get", &id).await["error"]["code"], -32602);
    let listed = eve.call("tasks/list", json!({})).await.unwrap();
    assert_eq!(listed["result"]["tasks"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_of_a_body_at_one_is_asked_and_answered_at_the_other() {
    let World { at_a, at_b, .. } = &World::new().await;
    let mut general = at_a.listen().await.unwrap();
    let id = create(at_a, "ask", json!({})).await;
    call(at_a, "tasks/get", &id).await;
    let lost = general.question().await.unwrap();
    // Its stream at A is gone without an answer; the client goes on at B.
    drop(general);
    let mut result = at_b.open("tasks/result", of(&id)).await.unwrap();
    let question = result.question().await.unwrap();
    assert_ne!(question["id"], lost["id"]);
    assert_eq!(question["params"], lost["params"]);
    at_b.accept(&question, "Ada").await.unwrap();
    // The answer to the first sending comes late, and at the other process.
    at_a.accept(&lost, "Eve").await.unwrap();
    let response = result.response().await.unwrap();
    assert_eq!(text(&response), "action=accept name=Ada");
    let response = call(at_a, "tasks/result", &id).await;
    assert_eq!(text(&response), "action=accept name=Ada");
    // And the other way round: asked at A, answered at B by the id that A gave.
    let id = create(at_a, "ask", json!({})).await;
    let mut result = at_a.open("tasks/result", of(&id)).await.unwrap();
    let question = result.question().await.unwrap();
    at_b.accept(&question, "Bob").await.unwrap();
    let response = result.response().await.unwrap();
    assert_eq!(text(&response), "action=accept name=Bob");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_at_one_stops_the_body_at_the_other() {
    let World { at_a, at_b, .. } = &World::new().await;
    let id = create(at_a, "count_side_effects", json!({"ms": 60_000})).await;
    counted(at_a, |count| count > 0).await;
    let mut waiting = at_a.open("tasks/result", of(&id)).await.unwrap();
    let cancelled = call(at_b, "tasks/cancel", &id).await;
    assert_eq!(cancelled["result"]["status"], "cancelled");
    assert_eq!(waiting.response().await.unwrap()["error"]["code"], -32800);
    assert_eq!(
        call(at_a, "tasks/get", &id).await["result"]["status"],
        "cancelled"
    );
    // It counts every 10 ms: the same number twice is a body that has stopped.
    let mut last = None;
    counted(at_a, |count| last.replace(count) == Some(count)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_takes_over_from_the_other_and_serves_all_the_while() {
    let World {
        a,
        b,
        at_a,
        at_b,
        _directory,
    } = World::new().await;
    let mut rerun = Vec::new();
    for n in 0..8 {
        let said = format!("rerun {n}");
        let arguments = json!({"ms": 1000 + 50 * n, "text": said});
        rerun.push((create(&at_a, "sleep_required", arguments).await, said));
    }
    let steps = create(&at_a, "checkpointed", json!({"steps": 20, "ms": 50})).await;
    let external = create(&at_a, "external", json!({"job": "lathe", "ms": 800})).await;
    let unanswered = create(&at_a, "ask", json!({})).await;
    let answered = create(&at_a, "ask_two", json!({})).await;
    let mut lost = Vec::new();
    for tool in ["forever", "count_side_effects"] {
        lost.push(create(&at_a, tool, json!({"ms": 60_000})).await);
    }
    let finished = create(&at_a, "fail_task", json!({})).await;
    let failed = call(&at_a, "tasks/result", &finished).await;
    // Two of the three answers are given at A, the third will be given at B.
    let mut names = Vec::new();
    let mut result = at_a.open("tasks/result", of(&answered)).await.unwrap();
    for name in ["Ada", "Bob"] {
        let question = result.question().await.unwrap();
        let which = question["params"]["message"].as_str().unwrap().to_owned();
        at_a.accept(&question, name).await.unwrap();
        names.push((which, name));
    }
    names.sort();
    // B has a task of its own, and clients that wait there for tasks of A.
    let own = create(&at_b, "forever", json!({})).await;
    let mut waiting = JoinSet::new();
    for (id, said) in rerun.clone() {
        let client = at_b.clone();
        waiting.spawn(async move {
            let response = call(&client, "tasks/result", &id).await;
            assert_eq!(text(&response), said);
        });
    }
    // A step was saved: that is what moves it.
    let saved = async {
        loop {
            let task = call(&at_b, "tasks/get", &steps).await["result"].take();
            if task["createdAt"] != task["lastUpdatedAt"] {
                return;
            }
        }
    };
    timeout(PATIENCE, saved).await.expect("a step is saved");

    let served = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn({
        let (client, served, stop, own) = (at_b.clone(), served.clone(), stop.clone(), own.clone());
        async move {
            while !stop.load(Ordering::Acquire) {
                let greet = json!({"name": "greet", "arguments": {"name": "Ada"}});
                let answer = client.call("tools/call", greet).await.unwrap();
                assert_eq!(text(&answer), "Hello, Ada!");
                let id = create(&client, "sleep_echo", json!({"ms": 1, "text": "quick"})).await;
                assert_eq!(text(&call(&client, "tasks/result", &id).await), "quick");
                let own = call(&client, "tasks/get", &own).await;
                assert_eq!(own["result"]["status"], "working", "a task of its own");
                served.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    a.kill().await;
    let before = served.load(Ordering::Relaxed);

    while let Some(done) = timeout(PATIENCE, waiting.join_next()).await.unwrap() {
        done.unwrap();
    }
    let response = call(&at_b, "tasks/result", &steps).await;
    let said = text(&response);
    assert!(said.starts_with("steps=20 attempts=2 ran="), "{said}");
    assert!(!said.ends_with("ran=20"), "it had saved a step: {said}");
    assert_eq!(
        text(&call(&at_b, "tasks/result", &external).await),
        "lathe is done"
    );
    for id in lost {
        let response = call(&at_b, "tasks/result", &id).await;
        assert_eq!(response["error"]["message"], STOPPED, "{response}");
        assert_eq!(response["error"]["code"], -32603);
        let task = call(&at_b, "tasks/get", &id).await;
        assert_eq!(task["result"]["status"], "failed");
        assert_eq!(task["result"]["statusMessage"], STOPPED);
    }
    let again = call(&at_b, "tasks/result", &finished).await;
    assert_eq!(again["error"], failed["error"]);
    let mut result = at_b.open("tasks/result", of(&unanswered)).await.unwrap();
    let question = result.question().await.unwrap();
    at_b.accept(&question, "Eve").await.unwrap();
    let response = result.response().await.unwrap();
    assert_eq!(text(&response), "action=accept name=Eve");
    let mut result = at_b.open("tasks/result", of(&answered)).await.unwrap();
    let question = result.question().await.unwrap();
    assert_eq!(
        question["params"]["message"], "What is the third name?",
        "the others were answered"
    );
    at_b.accept(&question, "Eve").await.unwrap();
    let response = result.response().await.unwrap();
    let expected = format!("first={} second={} third=Eve", names[0].1, names[1].1);
    assert_eq!(text(&response), expected);
    stop.store(true, Ordering::Release);
    load.await.unwrap();
    assert!(
        served.load(Ordering::Relaxed) > before,
        "B served while it took over"
    );

    // A comes back, and everything is there.
    let a = Server::start(&b.file, LEASE_MS).await;
    let at_a = at_a.at(&a);
    for (id, said) in rerun {
        assert_eq!(text(&call(&at_a, "tasks/result", &id).await), said);
    }
    let cancelled = call(&at_a, "tasks/cancel", &own).await;
    assert_eq!(cancelled["result"]["status"], "cancelled");
    assert_eq!(
        call(&at_b, "tasks/get", &own).await["result"]["status"],
        "cancelled"
    );
    for server in [&a, &b] {
        let log = server.log();
        assert_eq!(log, format!("listening on {}\n", server.url), "warnings");
    }
}

// A process that stalls longer than its lease comes back to tasks that are another's by then, and writes no more to them.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_stalled_is_fenced_when_it_goes_on() {
    let World {
        a, b, at_a, at_b, ..
    } = &World::new().await;
    let count = create(at_a, "count_side_effects", json!({"ms": 60_000})).await;
    counted(at_a, |count| count > 0).await;
    let steps = create(at_a, "checkpointed", json!({"steps": 30, "ms": 50})).await;
    let slow = create(at_a, "sleep_required", json!({"ms": 1500, "text": "slept"})).await;
    a.signal("STOP");
    // The first task traffic makes B a worker; it waits out A's lease.
    let failed = call(at_b, "tasks/result", &count).await;
    assert_eq!(failed["error"]["message"], STOPPED);
    a.signal("CONT");
    let mut last = None;
    counted(at_a, |count| last.replace(count) == Some(count)).await;
    for client in [at_a, at_b] {
        assert_eq!(text(&call(client, "tasks/result", &slow).await), "slept");
        let response = call(client, "tasks/result", &steps).await;
        let said = text(&response);
        assert!(said.starts_with("steps=30 attempts=2 "), "{said}");
        let again = call(client, "tasks/result", &count).await;
        assert_eq!(again["error"], failed["error"]);
    }
    let id = create(
        at_a,
        "sleep_required",
        json!({"ms": 1, "text": "fit again"}),
    )
    .await;
    assert_eq!(text(&call(at_b, "tasks/result", &id).await), "fit again");
    assert_eq!(b.log(), format!("listening on {}\n", b.url), "warnings");
}
