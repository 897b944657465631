//! Cases from the field, as a server of 2026-07-28 meets them, that no other file here shows.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use mcp_tasks::{
    BuildError, CreateContext, CreatedTask, TaskContext, TaskError, TaskOptions, TaskSupport,
    TaskTool, Tasks, store::MemoryStore,
};
use rmcp::model::{CallToolResult, ContentBlock, ResultType};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    Greeter, World,
    once::{Once, TASKS, accept_all, on_pipe, retried, until},
    schema,
    support::{RELATED, code, http::Served, pipe::Pipe, text},
    tools::{self, Gates},
};

async fn pass(gate: &Semaphore) {
    gate.acquire().await.unwrap().forget();
}

/// Waits until nothing is kept in the process of any task.
async fn nothing_held(tasks: &Tasks) {
    let held = async || json!({"status": format!("{:?}", tasks.runtime().held())});
    until(held, "[0, 0, 0]").await;
}

// B28: what could not run its tasks is refused when it is built, and a server that is about to go says so.
#[tokio::test]
async fn a_server_that_cannot_run_tasks_says_so_before_a_call() {
    let empty = Tasks::builder().tool(TaskTool::new("empty")).build();
    assert!(empty.unwrap_err().to_string().contains("neither"));
    let nobodys = Tasks::builder().build().unwrap();
    let served = nobodys.streamable_http(|| Ok(Greeter), Default::default());
    assert!(matches!(served, Err(BuildError::NoOwnerRule)));
    let world = World::new().await;
    world.tasks.shutdown(Duration::ZERO).await;
    let answer = world
        .once()
        .answer("tools/call", json!({"name": "ask"}))
        .await;
    assert_eq!(answer.status, 200);
    let error = &answer.json()["error"];
    assert_eq!(error["code"], -32000);
    assert!(error["message"].as_str().unwrap().contains("shutting down"));
}

// B38: a handler that gives something else than its own task is an error, never an empty success; a body cannot call
// its result a handle.
#[tokio::test]
async fn nothing_but_the_calls_own_task_is_a_handle() {
    let kept: Arc<Mutex<Option<CreatedTask>>> = Arc::default();
    let world = World::with(|builder| {
        let first = kept.clone();
        builder
            .tool(
                TaskTool::new("lends").create(move |cx: CreateContext, _: Value| {
                    let first = first.clone();
                    async move {
                        if let Some(lent) = first.lock().unwrap().clone() {
                            return Ok(lent);
                        }
                        let made = cx.create_task(TaskOptions::new()).await?;
                        *first.lock().unwrap() = Some(made.clone());
                        Ok::<_, TaskError>(made)
                    }
                }),
            )
            .tool(TaskTool::new("claims").support(TaskSupport::Optional).run(
                async |_: TaskContext, _: Value| {
                    let mut result = CallToolResult::success(vec![ContentBlock::text("done")]);
                    result.result_type = Some(ResultType::TASK);
                    Ok::<_, TaskError>(result)
                },
            ))
    })
    .await;
    let client = world.once();
    client.create("lends", json!({})).await;
    let lent = client.call("lends", json!({})).await;
    assert_eq!(lent["error"]["code"], -32603, "{lent}");
    let claims = client.create("claims", json!({})).await;
    let claims = client.until(&claims, "completed").await;
    assert_eq!(claims["result"]["resultType"], "complete");
    let plain = world.plain().call("claims", json!({})).await;
    assert_eq!(plain["result"]["resultType"], "complete");
    assert_eq!(text(&plain["result"]), "done");
}

// B41: the message of a state does not outlive it, nor does progress that was about to be told.
#[tokio::test]
async fn an_old_status_message_goes_with_its_state() {
    let gate = Arc::new(Semaphore::new(0));
    let world = World::with(|builder| {
        let gate = gate.clone();
        builder.tool(
            TaskTool::new("tells").run(move |cx: TaskContext, _: Value| {
                let gate = gate.clone();
                async move {
                    cx.status("half way").await?;
                    pass(&gate).await;
                    cx.progress(9.0, Some(10.0), Some("nearly"));
                    cx.progress(10.0, Some(10.0), Some("very nearly"));
                    Ok::<_, TaskError>("done")
                }
            }),
        )
    })
    .await;
    let client = world.once();
    let task = client.create("tells", json!({})).await;
    let said = async || json!({"status": client.get(&task).await["statusMessage"]});
    until(said, "half way").await;
    gate.add_permits(1);
    let done = client.until(&task, "completed").await;
    assert!(done.get("statusMessage").is_none(), "{done}");
    // One poll interval later progress would be told.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(client.get(&task).await, done);
}

// B47: who opens `tasks/result` on a task of the other generation is asked there, and gets the result on the same call.
#[tokio::test]
async fn a_task_of_2026_07_28_asks_on_tasks_result_too() {
    let world = World::new().await;
    let (old, new) = (world.session("2025-11-25").await, world.once());
    let task = new.create("ask", json!({})).await;
    let id = json!({"taskId": task["taskId"]});
    let mut stream = old.open("tasks/result", id).await;
    let question = stream.method("elicitation/create").await;
    assert_eq!(
        question["params"]["_meta"][RELATED]["taskId"],
        task["taskId"]
    );
    assert_eq!(new.get(&task).await["status"], "input_required");
    old.accept(&question, "Ada").await;
    let ended = stream.response().await;
    schema::check_old("tasks/result", &ended);
    assert_eq!(text(&ended["result"]), "accept Ada");
    assert_eq!(ended["result"]["_meta"][RELATED]["taskId"], task["taskId"]);
}

// B61: the acknowledgement does not wait for the body, and what the body says afterwards is too late.
#[tokio::test]
async fn a_cancel_does_not_wait_for_a_body_that_does_not_listen() {
    let (begun, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let world = World::with(|builder| {
        let mut limits = tools::limits();
        limits.cancel_grace = Duration::from_secs(60);
        let (begun, gate) = (begun.clone(), gate.clone());
        builder
            .limits(limits)
            .tool(TaskTool::new("deaf").run(move |_: TaskContext, _: Value| {
                let (begun, gate) = (begun.clone(), gate.clone());
                async move {
                    begun.add_permits(1);
                    pass(&gate).await;
                    Ok::<_, TaskError>("done all the same")
                }
            }))
    })
    .await;
    let client = world.once();
    let task = client.create("deaf", json!({})).await;
    pass(&begun).await;
    let ack = client.cancel(&task).await;
    assert_eq!(ack["result"]["resultType"], "complete");
    let cancelled = client.get(&task).await;
    assert_eq!(cancelled["status"], "cancelled");
    assert_ne!(
        world.tasks.runtime().held(),
        [0, 0, 0],
        "the body still runs"
    );
    gate.add_permits(1);
    nothing_held(&world.tasks).await;
    assert_eq!(client.get(&task).await, cancelled);
}

// B64: of a cancel and an end at the same moment exactly one counts, and that stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_and_an_end_at_once_leave_one_of_them() {
    let world = World::new().await;
    let client = world.once();
    for _ in 0..20 {
        let task = client.create("held", json!({})).await;
        world.gates.wait_started().await;
        let (ack, ()) = tokio::join!(client.cancel(&task), async {
            world.gates.go.add_permits(1);
        });
        assert!(ack.get("error").is_none(), "{ack}");
        let first = client.get(&task).await;
        match first["status"].as_str() {
            Some("completed") => assert!(text(&first["result"]).starts_with("held")),
            Some("cancelled") => assert!(first.get("result").is_none()),
            _ => panic!("{first}"),
        }
        nothing_held(&world.tasks).await;
        assert_eq!(client.get(&task).await, first);
        // A permit that the cancelled body did not take.
        let _ = world.gates.go.try_acquire().map(|left| left.forget());
    }
}

// B73: a lifetime that passes stops the work, takes the question back and frees what was held; it can be set.
#[tokio::test]
async fn expiry_stops_the_work_and_wakes_who_waits() {
    let world = World::with(|builder| {
        let mut limits = tools::limits();
        limits.default_ttl = Duration::from_millis(500);
        builder.limits(limits)
    })
    .await;
    let client = world.once();
    let held = client.create("held", json!({})).await;
    let asks = client.create("ask", json!({})).await;
    assert_eq!(held["ttlMs"], 500);
    let asked = client.until(&asks, "input_required").await;
    world.gates.wait_cancelled().await;
    nothing_held(&world.tasks).await;
    for (method, task) in [
        ("tasks/get", &held),
        ("tasks/cancel", &held),
        ("tasks/get", &asks),
    ] {
        let params = json!({"taskId": task["taskId"]});
        assert_eq!(
            client.request(method, params).await["error"]["code"],
            -32602
        );
    }
    let late = client
        .update(&asks, accept_all(&asked["inputRequests"], "Ada"))
        .await;
    assert_eq!(late["error"]["code"], -32602);
}

// B77: a flood is the flooder's own limit, and those who have no name do not share one.
#[tokio::test]
async fn a_flood_meets_its_owners_limit() {
    let mut limits = tools::limits();
    limits.tasks_per_owner = 3;
    let world = World::with(|builder| builder.limits(limits.clone())).await;
    let client = world.once();
    for _ in 0..3 {
        client.create("held", json!({})).await;
    }
    let answer = client.answer("tools/call", json!({"name": "held"})).await;
    assert_eq!(answer.status, 200);
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], -32000);
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("3 tasks per owner")
    );
    // A hidden task is one too.
    let plain = world.plain().call("echo", json!({"text": "x"})).await;
    assert_eq!(plain["error"]["code"], -32000);
    Once::new(&world.served.url, "bob")
        .create("held", json!({}))
        .await;
    let builder = tools::all(&Gates::default()).limits(limits);
    let bearer = builder.bearer_ids().build().unwrap();
    let served = Served::start(&bearer, Greeter).await;
    for _ in 0..4 {
        Once::new(&served.url, "anyone")
            .create("held", json!({}))
            .await;
    }
}

// B77: a creation that fails leaves nothing, and one whose request is gone before the handle leaves nothing that works.
#[tokio::test]
async fn a_creation_that_nobody_hears_of_leaves_no_work() {
    let (begun, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let store = Arc::new(MemoryStore::new());
    let world = World::with(|builder| {
        let (begun, gate) = (begun.clone(), gate.clone());
        builder
            .shared_store(store)
            .tool(
                TaskTool::new("slow_to_create").create(move |cx: CreateContext, _: Value| {
                    let (begun, gate) = (begun.clone(), gate.clone());
                    async move {
                        let task = cx.create_task(TaskOptions::new()).await?;
                        begun.add_permits(1);
                        pass(&gate).await;
                        Ok::<_, TaskError>(task)
                    }
                }),
            )
            .tool(
                TaskTool::new("fails_to_create").create(async |cx: CreateContext, _: Value| {
                    cx.create_task(TaskOptions::new()).await?;
                    Err::<CreatedTask, _>(TaskError::internal("no such job"))
                }),
            )
    })
    .await;
    let old = world.session("2025-11-25").await;
    let listed = async || {
        let listed = old.request("tasks/list", json!({})).await;
        schema::check_old("tasks/list", &listed);
        listed["result"]["tasks"].as_array().unwrap().clone()
    };
    let failed = world.once().call("fails_to_create", json!({})).await;
    assert_eq!(failed["error"]["code"], -32603);
    assert_eq!(listed().await, Vec::<Value>::new());
    let client = world.once();
    let call = tokio::spawn(async move { client.call("slow_to_create", json!({})).await });
    pass(&begun).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    // The server hears of it when the connection is closed; the creation goes on to its end.
    tokio::time::sleep(Duration::from_millis(100)).await;
    gate.add_permits(1);
    until(async || listed().await[0].clone(), "cancelled").await;
    assert_eq!(listed().await.len(), 1);
}

// B85: each generation's word counts where that generation puts it.
#[tokio::test]
async fn capabilities_and_tokens_are_looked_for_where_their_generation_has_them() {
    let world = World::new().await;
    let old = world.session("2025-11-25").await;
    // The extension in a request's metadata enables nothing in a session of 2025-11-25.
    let declared =
        json!({"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}});
    let params = json!({"name": "echo", "arguments": {"text": "x"}, "_meta": declared});
    let plain = old.request("tools/call", params).await;
    schema::check_old("tools/call", &plain);
    assert_eq!(text(&plain["result"]), "x");
    assert!(plain["result"].get("resultType").is_none(), "{plain}");
    // Nor does a `task` there give the flat handle; its progress has the call's own token.
    let params =
        json!({"name": "chatty", "arguments": {}, "task": {}, "_meta": {"progressToken": 7}});
    let mut general = old.listen().await;
    let made = old.request("tools/call", params).await;
    schema::check_old("tools/call", &made);
    assert!(made["result"]["task"]["taskId"].is_string(), "{made}");
    let progress = general.method("notifications/progress").await;
    assert_eq!(progress["params"]["progressToken"], 7);
}

// The hidden task of a call that asked is kept for a minute after its end: the same state gives the same answer, and
// after that it is a state that nobody knows.
#[tokio::test(start_paused = true)]
async fn the_same_state_gives_the_same_answer_for_a_minute() {
    let tasks = tools::all(&Gates::default()).build().unwrap();
    let mut pipe = Pipe::open(&tasks, Greeter);
    let call = json!({"name": "ask_optional", "arguments": {}});
    let asked = on_pipe(&mut pipe, "tools/call", call.clone(), false).await;
    let retry = |name: &str| {
        let responses = accept_all(&asked["result"]["inputRequests"], name);
        retried(call.clone(), &asked, responses)
    };
    let done = on_pipe(&mut pipe, "tools/call", retry("Ada"), false).await;
    assert_eq!(text(&done["result"]), "accept Ada");
    tokio::time::sleep(Duration::from_secs(55)).await;
    let again = on_pipe(&mut pipe, "tools/call", retry("Eve"), false).await;
    assert_eq!(again["result"], done["result"]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let late = on_pipe(&mut pipe, "tools/call", retry("Ada"), false).await;
    assert_eq!(code(&late), -32602, "{late}");
}
