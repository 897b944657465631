//! Many tasks, many waiters, many clients, and what is limited so that there are not too many.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use mcp_tasks::{
    Runtime, TaskContext, TaskError, TaskSupport, TaskTool, TasksBuilder,
    runtime::{Call, Requestor},
    store::{Access, ListKey, MemoryStore, SqliteStore, TaskStore},
    task::{Clock, Generation, Owner, RawJson, TaskId, Timestamp},
};
use serde_json::{Value, json};
use support::{
    Greeter, PATIENCE, code,
    http::{Client, Served},
    pipe::Pipe,
    text,
    tools::{self, Gates},
};
use tokio::task::JoinSet;

const G1: &str = "2025-11-25";

fn of(task: &Value) -> Value {
    json!({"taskId": task["taskId"]})
}

fn by_token(builder: TasksBuilder) -> TasksBuilder {
    builder.owner(|parts| {
        let token = parts.headers.get("authorization")?.to_str().ok()?;
        Some(token.strip_prefix("Bearer ")?.to_owned())
    })
}

fn ann() -> Owner {
    Owner::principal("ann")
}

/// Creates many tasks of one tool, a few hundred at a time.
async fn create_many(runtime: &Runtime, tool: &'static str, count: usize) -> HashSet<TaskId> {
    let mut ids = HashSet::with_capacity(count);
    let mut creations = JoinSet::new();
    for n in 0..count {
        if creations.len() == 512 {
            ids.insert(creations.join_next().await.unwrap().unwrap());
        }
        let runtime = runtime.clone();
        creations.spawn(async move {
            let requestor = Requestor::new(ann(), Generation::V2025_11_25);
            let mut call = Call::new(tool, requestor);
            call.arguments = Some(RawJson::from_text(format!(r#"{{"text":"{n}"}}"#)).unwrap());
            runtime.create(call).await.unwrap().id.clone()
        });
    }
    while let Some(id) = creations.join_next().await {
        ids.insert(id.unwrap());
    }
    assert_eq!(ids.len(), count);
    ids
}

/// Walks all pages of `tasks/list`; how often each task was on one.
async fn walk(client: &Client) -> HashSet<TaskId> {
    let mut seen = HashSet::new();
    let mut params = json!({});
    loop {
        let page = client.request("tasks/list", params).await["result"].take();
        for task in page["tasks"].as_array().unwrap() {
            let id = TaskId::from_stored(task["taskId"].as_str().unwrap());
            assert!(seen.insert(id), "listed twice: {task}");
        }
        match page["nextCursor"].as_str() {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => return seen,
        }
    }
}

async fn lists_each_of_ten_thousand_once(store: Arc<dyn TaskStore>) {
    const TASKS: usize = 10_000;
    let mut limits = tools::limits();
    limits.tasks_per_owner = 100_000;
    let tasks = by_token(tools::all(&Gates::default()))
        .limits(limits)
        .shared_store(store)
        .build()
        .unwrap();
    let served = Served::start(&tasks, Greeter).await;
    let mut client = Client::with_token(&served.url, "ann");
    client.initialize(G1).await;
    let there = create_many(tasks.runtime(), "echo", TASKS).await;
    let stop = Arc::new(AtomicBool::new(false));
    let others = tokio::spawn({
        let (runtime, stop) = (tasks.runtime().clone(), stop.clone());
        async move {
            let mut others = HashSet::new();
            while !stop.load(Ordering::Acquire) {
                others.extend(create_many(&runtime, "echo", 20).await);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            others
        }
    });
    let seen = walk(&client).await;
    stop.store(true, Ordering::Release);
    let others = others.await.unwrap();
    assert!(
        there.is_subset(&seen),
        "{} missing",
        there.difference(&seen).count()
    );
    assert!(!others.is_empty(), "others were created meanwhile");
    let strangers: Vec<_> = seen
        .iter()
        .filter(|id| !there.contains(*id) && !others.contains(*id))
        .collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    assert_eq!(walk(&client).await.len(), there.len() + others.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_has_each_of_ten_thousand_tasks_once_in_memory() {
    lists_each_of_ten_thousand_once(Arc::new(MemoryStore::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_has_each_of_ten_thousand_tasks_once_in_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("tasks.db")).unwrap();
    lists_each_of_ten_thousand_once(Arc::new(store)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_on_one_task_are_all_answered() {
    const WAITERS: usize = 10_000;
    let gates = Gates::default();
    let tasks = tools::all(&gates).build().unwrap();
    let runtime = tasks.runtime();
    let requestor = Requestor::new(ann(), Generation::V2025_11_25);
    let task = runtime.create(Call::new("held", requestor)).await.unwrap();
    gates.wait_started().await;
    let mut waiters = JoinSet::new();
    let mut leavers = JoinSet::new();
    for n in 0..WAITERS + 1000 {
        let (runtime, id) = (runtime.clone(), task.id.clone());
        let set = if n % 11 == 10 {
            &mut leavers
        } else {
            &mut waiters
        };
        set.spawn(async move {
            runtime
                .wait(&id, &Access::Owner(ann()), None)
                .await
                .unwrap()
        });
    }
    // Some leave: that is nothing to the others, nor to the task.
    leavers.shutdown().await;
    gates.go.add_permits(1);
    let mut answered = 0;
    while let Some(record) = tokio::time::timeout(PATIENCE, waiters.join_next())
        .await
        .unwrap()
    {
        assert!(record.unwrap().is_terminal());
        answered += 1;
    }
    assert_eq!(answered, WAITERS);
}

/// Clients that fit into what the process may have open: each takes a socket here and one at the server.
fn clients_that_fit(wanted: usize) -> usize {
    let soft = std::fs::read_to_string("/proc/self/limits")
        .ok()
        .and_then(|limits| {
            let line = limits
                .lines()
                .find(|line| line.starts_with("Max open files"))?;
            line.split_whitespace().nth(3)?.parse::<usize>().ok()
        });
    soft.map_or(wanted, |soft| wanted.min(soft.saturating_sub(200) / 2))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_clients_in_tasks_result_are_all_answered() {
    let gates = Gates::default();
    let tasks = by_token(tools::all(&gates)).build().unwrap();
    let served = Served::start(&tasks, Greeter).await;
    let mut client = Client::with_token(&served.url, "ann");
    client.initialize(G1).await;
    let task = client.create("held", json!({})).await;
    gates.wait_started().await;
    let client = Arc::new(client);
    let count = clients_that_fit(500);
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(client.open("tasks/result", of(&task)).await);
    }
    // None of them is in the way of anybody else.
    let begun = Instant::now();
    let got = client.request("tasks/get", of(&task)).await;
    assert_eq!(got["result"]["status"], "working");
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    gates.go.add_permits(1);
    let mut answers = JoinSet::new();
    for mut stream in streams {
        answers.spawn(async move { stream.response().await });
    }
    let mut answered = 0;
    while let Some(answer) = answers.join_next().await {
        assert_eq!(text(&answer.unwrap()["result"]), "held {}");
        answered += 1;
    }
    assert_eq!(answered, count);
}

// The inner server brings a session back for the first request that names it; what comes at the same time waits for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_at_once_bring_a_session_back() {
    let store = MemoryStore::new();
    let serve = || {
        by_token(tools::all(&Gates::default()))
            .store(store.clone())
            .build()
            .unwrap()
    };
    let tasks = serve();
    let served = Served::start(&tasks, Greeter).await;
    let mut first = Client::with_token(&served.url, "ann");
    first.initialize(G1).await;
    drop((served, tasks));
    for _ in 0..5 {
        // A server that was started again, or another replica.
        let tasks = serve();
        let served = Served::start(&tasks, Greeter).await;
        let mut client = Client::with_token(&served.url, "ann");
        client.session = first.session.clone();
        let client = Arc::new(client);
        let mut requests = JoinSet::new();
        for n in 0..60 {
            let client = client.clone();
            requests.spawn(async move {
                match n % 6 {
                    // Some clients leave at once; that must not leave the session half-way back.
                    0 => {
                        let request = client.request("ping", json!({}));
                        let _ = tokio::time::timeout(Duration::from_millis(2), request).await;
                    }
                    1 => assert_eq!(client.listen().await.status, 200),
                    2 => {
                        client.create("echo", json!({})).await;
                    }
                    3 => {
                        let greet = json!({"name": "greet", "arguments": {"name": "Ada"}});
                        let answer = client.request("tools/call", greet).await;
                        assert_eq!(text(&answer["result"]), "Hello, Ada!");
                    }
                    4 => {
                        let answer = client.request("tasks/list", json!({})).await;
                        assert!(answer["result"]["tasks"].is_array(), "{answer}");
                    }
                    _ => assert_eq!(client.request("ping", json!({})).await["result"], json!({})),
                }
            });
        }
        while let Some(done) = requests.join_next().await {
            done.unwrap();
        }
    }
}

/// Creates until it is allowed; how it was refused before.
async fn create_when_free(client: &Client) -> Value {
    let params = json!({"name": "echo", "arguments": {}, "task": {"ttl": 60000}});
    let begun = Instant::now();
    loop {
        let answer = client.request("tools/call", params.clone()).await;
        if answer["result"]["task"]["taskId"].is_string() {
            return answer;
        }
        assert_eq!(code(&answer), -32000, "{answer}");
        assert!(
            begun.elapsed() < PATIENCE,
            "the limit does not free again: {answer}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn limits_are_named_and_free_again_when_tasks_expire() {
    let mut limits = tools::limits();
    limits.tasks_per_owner = 3;
    limits.tasks = 5;
    let gates = Gates::default();
    let tasks = by_token(tools::all(&gates)).limits(limits).build().unwrap();
    let served = Served::start(&tasks, Greeter).await;
    let mut clients = Vec::new();
    for owner in ["ann", "bob"] {
        let mut client = Client::with_token(&served.url, owner);
        client.initialize(G1).await;
        clients.push(client);
    }
    let [ann, bob] = &clients[..] else {
        unreachable!()
    };
    let call = json!({"name": "held", "arguments": {}, "task": {"ttl": 1000}});
    let create = async |client: &Client| client.request("tools/call", call.clone()).await;
    let refused = |answer: &Value, limit: &str| {
        assert_eq!(code(answer), -32000, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(limit), "{message}");
    };
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(create(ann).await["result"]["task"].clone());
    }
    refused(&create(ann).await, "limit of 3 tasks per owner");
    // A plain call is a task too, for as long as it lasts; it is refused in the same words.
    let plain = json!({"name": "held_optional", "arguments": {}});
    refused(
        &ann.request("tools/call", plain).await,
        "limit of 3 tasks per owner",
    );
    made.push(create(bob).await["result"]["task"].clone());
    made.push(create(bob).await["result"]["task"].clone());
    refused(&create(bob).await, "limit of 5 tasks in all");
    // What reads is never refused.
    for (client, task) in [(ann, &made[0]), (bob, &made[4])] {
        assert_eq!(
            client.request("tasks/get", of(task)).await["result"]["status"],
            "working"
        );
    }
    create_when_free(bob).await;
    create_when_free(ann).await;
    assert_eq!(code(&ann.request("tasks/get", of(&made[0])).await), -32602);
}

// B77
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_from_one_session_without_an_owner_takes_only_that_sessions_share() {
    const SHARE: usize = 50;
    let mut limits = tools::limits();
    limits.tasks_per_owner = SHARE as u64;
    let tasks = tools::all(&Gates::default())
        .limits(limits)
        .bearer_ids()
        .build()
        .unwrap();
    let served = Served::start(&tasks, Greeter).await;
    let mut flooding = Client::new(&served.url);
    flooding.initialize(G1).await;
    let mut other = Client::new(&served.url);
    other.initialize(G1).await;
    let flooding = Arc::new(flooding);
    let mut creations = JoinSet::new();
    for _ in 0..4 * SHARE {
        let client = flooding.clone();
        creations.spawn(async move {
            let params = json!({"name": "held", "arguments": {}, "task": {}});
            client.request("tools/call", params).await
        });
    }
    let mut made = 0;
    while let Some(answer) = creations.join_next().await {
        let answer = answer.unwrap();
        if answer["result"]["task"].is_object() {
            made += 1;
        } else {
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains("limit of 50 tasks per owner"), "{answer}");
        }
    }
    assert_eq!(made, SHARE);
    other.create("held", json!({})).await;
}

// B74: a hundred thousand of them, without optimization a fifth of that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_tasks_leave_nothing_behind() {
    const ROUNDS: usize = if cfg!(debug_assertions) { 2 } else { 10 };
    let offset = Arc::new(AtomicU64::new(0));
    let moved = offset.clone();
    let clock = Clock::from_fn(move || Timestamp::now().plus_millis(moved.load(Ordering::Acquire)));
    let store = MemoryStore::new();
    let mut limits = tools::limits();
    limits.tasks_per_owner = 1_000_000;
    let tasks = by_token(tools::all(&Gates::default()))
        .limits(limits)
        .clock(clock)
        .store(store.clone())
        .build()
        .unwrap();
    let served = Served::start(&tasks, Greeter).await;
    let mut client = Client::with_token(&served.url, "ann");
    client.initialize(G1).await;
    for _ in 0..ROUNDS {
        create_many(tasks.runtime(), "echo", 9_900).await;
        for _ in 0..100 {
            client.create("echo", json!({})).await;
        }
        offset.fetch_add(2 * 3600 * 1000, Ordering::AcqRel);
    }
    let begun = Instant::now();
    while store.next_expiry().await.unwrap().is_some() {
        assert!(begun.elapsed() < PATIENCE, "expired tasks are not removed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(store.list(&ann(), None, 1).await.unwrap().is_empty());
    assert!(walk(&client).await.is_empty());
    // The whole quota is free again.
    let quota = mcp_tasks::store::Quota {
        total: 1,
        per_key: 1,
    };
    let other = MemoryStore::new();
    let copy = by_token(tools::all(&Gates::default()))
        .store(other.clone())
        .build()
        .unwrap();
    let requestor = Requestor::new(ann(), Generation::V2025_11_25);
    let record = copy
        .runtime()
        .create(Call::new("echo", requestor))
        .await
        .unwrap();
    store.insert(record, quota).await.unwrap();
}

// Of two processes that find many tasks of a third that died, each task is taken over by one, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_left_tasks_are_each_taken_over_once() {
    const TASKS: usize = 2000;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tasks.db");
    let process = |lease| {
        let mut limits = tools::limits();
        limits.lease = lease;
        limits.heartbeat = Duration::from_millis(100);
        let gates = Gates::default();
        let store = SqliteStore::open(&file).unwrap();
        let tasks = tools::all(&gates)
            .limits(limits)
            .store(store)
            .build()
            .unwrap();
        (tasks, gates)
    };
    let (dies, gates) = process(Duration::from_millis(500));
    create_many(dies.runtime(), "held", TASKS).await;
    for _ in 0..TASKS {
        gates.wait_started().await;
    }
    drop(dies);
    let living = [process(PATIENCE), process(PATIENCE)];
    for (tasks, _) in &living {
        tasks.runtime().start_worker().await.unwrap();
    }
    let all_run = async {
        for _ in 0..TASKS {
            tokio::select! {
                () = living[0].1.wait_started() => {}
                () = living[1].1.wait_started() => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, all_run)
        .await
        .expect("all of them run again");
    for (_, gates) in &living {
        gates.go.add_permits(TASKS);
    }
    let runtime = living[0].0.runtime();
    let mut after = None;
    let mut seen = 0;
    loop {
        let (page, more) = runtime.list(&ann(), after.as_ref()).await.unwrap();
        for record in &page {
            let access = Access::System;
            let ended = runtime.wait(&record.id, &access, None).await.unwrap();
            assert_eq!(ended.attempt, 2, "{ended:?}");
            seen += 1;
        }
        after = page.last().map(|last| ListKey {
            created_at: last.created_at,
            id: last.id.clone(),
        });
        if !more {
            break;
        }
    }
    assert_eq!(seen, TASKS);
    let runs = living
        .iter()
        .map(|(_, gates)| gates.runs.load(Ordering::Acquire));
    assert_eq!(runs.sum::<u64>(), TASKS as u64);
}

/// Says how far it is, over and over, in messages of a kilobyte; until it has or is cancelled.
fn flood() -> TaskTool {
    TaskTool::new("flood").support(TaskSupport::Optional).run(
        async |cx: TaskContext, args: Value| {
            let message = "m".repeat(1024);
            let steps = args["steps"].as_u64().unwrap_or(u64::MAX);
            for step in 0..steps {
                #[allow(clippy::cast_precision_loss)]
                cx.progress(step as f64, None, Some(&message));
                if step % 64 == 0 {
                    tokio::task::yield_now().await;
                    if cx.cancellation_token().is_cancelled() {
                        break;
                    }
                }
            }
            Ok::<_, TaskError>("said all")
        },
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_progress_to_a_client_that_does_not_read_is_dropped() {
    const STEPS: usize = 100_000;
    let tasks = by_token(tools::all(&Gates::default()).tool(flood()))
        .build()
        .unwrap();
    let served = Served::start(&tasks, Greeter).await;
    let mut client = Client::with_token(&served.url, "ann");
    client.initialize(G1).await;
    let mut general = client.listen().await;
    let params = json!({
        "name": "flood", "arguments": {"steps": STEPS}, "task": {}, "_meta": {"progressToken": 7},
    });
    let task = client.request("tools/call", params).await["result"]["task"].clone();
    let handle = tasks
        .handle(task["taskId"].as_str().unwrap())
        .await
        .unwrap()
        .unwrap();
    tokio::time::timeout(PATIENCE, handle.ended())
        .await
        .expect("the body is not held up")
        .unwrap();
    // What arrives is what the sockets hold and the last few: the rest of the 100 MB was kept nowhere. And the stream
    // takes something again as soon as it is read.
    let mut last = -1.0;
    let mut arrived = 0;
    let mut again = tokio::time::interval(Duration::from_millis(50));
    loop {
        let message = tokio::select! {
            message = general.next() => message.expect("an open stream"),
            _ = again.tick() => {
                let fence = TaskTool::new("fence").run(async |_: TaskContext, _: Value| Ok::<_, TaskError>(()));
                tasks.add_tool(fence).unwrap();
                tasks.remove_tool("fence");
                continue;
            }
        };
        if message["method"] == "notifications/tools/list_changed" {
            break;
        }
        if message["method"] == "notifications/tasks/status" {
            continue;
        }
        assert_eq!(message["method"], "notifications/progress");
        let value = message["params"]["progress"].as_f64().unwrap();
        assert!(value > last, "{value} after {last}");
        last = value;
        arrived += 1;
    }
    assert!(arrived > 0 && arrived < STEPS / 2, "{arrived}");
    let result = client.request("tasks/result", of(&task)).await;
    assert_eq!(text(&result["result"]), "said all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_progress_does_not_keep_answers_from_a_pipe() {
    let tasks = tools::all(&Gates::default()).tool(flood()).build().unwrap();
    let (mut pipe, _) = Pipe::at(G1, &tasks, Greeter).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        let params =
            json!({"name": "flood", "arguments": {}, "task": {}, "_meta": {"progressToken": 7}});
        let id = pipe.begin("tools/call", params).await;
        ids.push(answer(&mut pipe, id).await["result"]["task"].clone());
    }
    for _ in 0..20 {
        let id = pipe.begin("tasks/get", of(&ids[0])).await;
        assert_eq!(answer(&mut pipe, id).await["result"]["status"], "working");
    }
    for task in &ids {
        let id = pipe.begin("tasks/cancel", of(task)).await;
        assert_eq!(answer(&mut pipe, id).await["result"]["status"], "cancelled");
    }
}

/// The response to a request; what comes before it is dropped, unlike by [`Pipe::answer`].
async fn answer(pipe: &mut Pipe, id: u64) -> Value {
    let begun = Instant::now();
    loop {
        let message = pipe.next().await;
        if message["id"] == id && message.get("method").is_none() {
            return message;
        }
        assert!(begun.elapsed() < PATIENCE, "a flood keeps the answer away");
    }
}
