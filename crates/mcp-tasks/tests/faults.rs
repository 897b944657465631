//! Faults seen in other implementations, each with the right answer. `docs/faults.md` says which test is where.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{sync::Arc, time::Duration};

use mcp_tasks::{
    Recovery, TaskContext, TaskError, TaskTool, Tasks,
    runtime::{Call, Requestor},
    store::{Access, MemoryStore, TaskStore},
    task::{Generation, Owner, TaskRecord},
};
use rmcp::transport::StreamableHttpServerConfig;
use serde_json::{Value, json};
use support::{
    Greeter, PATIENCE, code,
    http::{Client, Served},
    pipe::Pipe,
    text,
    tools::{self, Gates},
};

const G1: &str = "2025-11-25";

// B34: terminal is immutable, for whoever asks and however often.
#[tokio::test]
async fn a_late_cancel_changes_nothing_of_a_finished_task() {
    let tasks = tools::all(&Gates::default()).build().unwrap();
    let (mut pipe, _) = Pipe::at(G1, &tasks, Greeter).await;
    let id = pipe.create("echo", json!({"text": "x"})).await["taskId"].clone();
    let result = pipe.request("tasks/result", json!({"taskId": id})).await["result"].clone();
    let before = pipe.request("tasks/get", json!({"taskId": id})).await["result"].clone();
    for _ in 0..3 {
        assert_eq!(
            code(&pipe.request("tasks/cancel", json!({"taskId": id})).await),
            -32602
        );
        assert_eq!(
            pipe.request("tasks/get", json!({"taskId": id})).await["result"],
            before
        );
        assert_eq!(
            pipe.request("tasks/result", json!({"taskId": id})).await["result"],
            result
        );
    }
}

// B26: mounted inside another application it works as when it stands alone.
#[tokio::test]
async fn mounted_inside_another_application() {
    let tasks = tools::all(&Gates::default()).bearer_ids().build().unwrap();
    let service = tasks
        .streamable_http(|| Ok(Greeter), StreamableHttpServerConfig::default())
        .unwrap();
    let inner = axum::Router::new().nest_service("/mcp", service);
    let app = axum::Router::new().nest("/apps/one", inner);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/apps/one/mcp", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let mut client = Client::new(&url);
    client.initialize(G1).await;
    let id = client.create("ask", json!({})).await["taskId"].clone();
    let mut events = client.open("tasks/result", json!({"taskId": id})).await;
    let question = events.method("elicitation/create").await;
    client.accept(&question, "Ada").await;
    assert_eq!(text(&events.response().await["result"]), "accept Ada");
    server.abort();
}

// B79: servers start and stop, and nothing of them goes on.
#[tokio::test]
async fn background_work_ends_with_its_owner() {
    let handle = tokio::runtime::Handle::current();
    let before = handle.metrics().num_alive_tasks();
    for _ in 0..20 {
        let tasks = tools::all(&Gates::default()).build().unwrap();
        let (mut pipe, _) = Pipe::at(G1, &tasks, Greeter).await;
        pipe.create("held", json!({})).await;
        let id = pipe.create("ask", json!({})).await["taskId"].clone();
        pipe.begin("tasks/result", json!({"taskId": id})).await;
        pipe.method("elicitation/create").await;
        assert_eq!(
            code(
                &pipe
                    .request("tools/call", json!({"name": "panics", "arguments": {}}))
                    .await
            ),
            -32603
        );
        pipe.close().await.unwrap();
        drop(tasks);
    }
    let quiet = async {
        while handle.metrics().num_alive_tasks() > before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let left = || handle.metrics().num_alive_tasks() - before;
    assert!(
        tokio::time::timeout(PATIENCE, quiet).await.is_ok(),
        "{} tasks still run",
        left()
    );
}

// "Session-less tasks gettable but not listable"; B76: and no shared bucket of nobody's tasks.
#[tokio::test]
async fn what_a_sessionless_owner_can_get_it_can_list() {
    let gates = Gates::default();
    let owner = |parts: &http::request::Parts| {
        Some(
            parts
                .headers
                .get("authorization")?
                .to_str()
                .ok()?
                .to_owned(),
        )
    };
    let tasks = tools::all(&gates).owner(owner).build().unwrap();
    let config = StreamableHttpServerConfig::default().with_legacy_session_mode(false);
    let served = Served::service(tasks.streamable_http(|| Ok(Greeter), config).unwrap()).await;
    let send = async |token: &str, method: &str, params: Value| -> Value {
        let client = Client::with_token(&served.url, token);
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = client
            .request_builder(reqwest::Method::POST)
            .header("content-type", "application/json")
            .header("mcp-protocol-version", G1)
            .body(message.to_string());
        serde_json::from_str(&request.send().await.unwrap().text().await.unwrap()).unwrap()
    };
    let call = json!({"name": "held", "arguments": {}, "task": {}});
    let id = send("ada", "tools/call", call).await["result"]["task"]["taskId"].clone();
    assert_eq!(
        send("ada", "tasks/get", json!({"taskId": id})).await["result"]["taskId"],
        id
    );
    assert_eq!(
        send("ada", "tasks/list", json!({})).await["result"]["tasks"][0]["taskId"],
        id
    );
    assert_eq!(
        send("bob", "tasks/list", json!({})).await["result"]["tasks"],
        json!([])
    );
    assert_eq!(
        code(&send("bob", "tasks/get", json!({"taskId": id})).await),
        -32602
    );
}

/// A server on `store` whose worker lapses fast, with one tool that waits for the gate.
fn replica(store: &MemoryStore, gates: &Gates) -> Tasks {
    let mut limits = tools::limits();
    limits.lease = Duration::from_millis(300);
    limits.heartbeat = Duration::from_millis(50);
    let gates = gates.clone();
    let tool =
        TaskTool::new("work")
            .recovery(Recovery::Rerun)
            .run(move |cx: TaskContext, _: Value| {
                let gates = gates.clone();
                async move {
                    gates.started.add_permits(1);
                    gates.pass().await;
                    Ok::<_, TaskError>(format!("attempt {}", cx.attempt()))
                }
            });
    Tasks::builder()
        .store(store.clone())
        .limits(limits)
        .tool(tool)
        .build()
        .unwrap()
}

async fn stored(store: &MemoryStore, id: &str) -> Arc<TaskRecord> {
    store.get(id, &Access::System).await.unwrap().unwrap()
}

// "Recovery at process start by a throw-away sibling process": clients start siblings of a stdio server just to look.
#[tokio::test]
async fn a_sibling_that_only_looks_claims_nothing() {
    let store = MemoryStore::new();
    let gates = Gates::default();
    let first = replica(&store, &gates);
    let requestor = Requestor::new(Owner::principal("local"), Generation::V2025_11_25);
    let record = first
        .runtime()
        .create(Call::new("work", requestor))
        .await
        .unwrap();
    gates.wait_started().await;
    // The first process dies, and its lease lapses.
    drop(first);
    let clock = mcp_tasks::task::Clock::system();
    while store.orphans(clock.now(), 1).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let sibling = replica(&store, &gates);
    let (mut pipe, _) = Pipe::at(G1, &sibling, Greeter).await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    pipe.request("server/discover", json!({"_meta": meta}))
        .await;
    pipe.request("tools/list", json!({})).await;
    pipe.request(
        "tools/call",
        json!({"name": "greet", "arguments": {"name": "Ada"}}),
    )
    .await;
    assert_eq!(
        stored(&store, record.id.as_str()).await.revision,
        record.revision
    );
    // The first real task traffic starts the worker, which takes the task over.
    let status = pipe
        .request("tasks/get", json!({"taskId": record.id}))
        .await;
    assert_eq!(status["result"]["status"], "working");
    gates.wait_started().await;
    gates.go.add_permits(1);
    let result = pipe
        .request("tasks/result", json!({"taskId": record.id}))
        .await;
    assert_eq!(text(&result["result"]), "attempt 2");
}

// "An answer taken on one replica corrupting the task live on another", "per-process waiters hanging on a shared store".
#[tokio::test]
async fn two_replicas_share_one_live_task() {
    let store = MemoryStore::new();
    let gates = Gates::default();
    let build = || tools::all(&gates).store(store.clone()).build().unwrap();
    let (one, two) = (build(), build());
    let (mut here, _) = Pipe::at(G1, &one, Greeter).await;
    let (mut there, _) = Pipe::at(G1, &two, Greeter).await;
    let id = here.create("interview", json!({})).await["taskId"].clone();
    let waiting = there.begin("tasks/result", json!({"taskId": id})).await;
    gates.go.add_permits(2);
    for name in ["Ada", "Grace"] {
        // Where a result is waited for, there the question goes; where its body runs does not matter.
        let question = there.method("elicitation/create").await;
        there.accept(&question, name).await;
    }
    let sampled = there.method("sampling/createMessage").await;
    there
        .reply(
            &sampled,
            json!({"model": "m", "role": "assistant", "content": {"type": "text", "text": "s"}}),
        )
        .await;
    let result = there.answer(waiting).await;
    assert!(
        text(&result["result"]).starts_with("accept Ada; accept Grace; "),
        "{result}"
    );
    assert_eq!(
        here.request("tasks/result", json!({"taskId": id})).await["result"],
        result["result"]
    );
    // A cancel there stops the body here (B58).
    let id = here.create("held", json!({})).await["taskId"].clone();
    gates.wait_started().await;
    assert_eq!(
        there.request("tasks/cancel", json!({"taskId": id})).await["result"]["status"],
        "cancelled"
    );
    gates.wait_cancelled().await;
}

// B10, B85, B07: what each kind of client is told of one and the same required tool, and where it looks for it.
#[tokio::test]
async fn each_revision_finds_things_where_it_looks_for_them() {
    let gates = Gates::default();
    let tasks = tools::all(&gates).build().unwrap();
    let (mut old, _) = Pipe::at("2025-06-18", &tasks, Greeter).await;
    // A legacy call has its progress token in its own `_meta`, and its question on its own stream.
    let params = json!({"name": "chatty", "arguments": {}, "_meta": {"progressToken": 0}});
    let call = old.begin("tools/call", params).await;
    let answer = old.answer(call).await;
    assert_eq!(text(&answer["result"]), "chatted");
    let progress = old
        .other
        .iter()
        .filter(|m| m["method"] == "notifications/progress")
        .count();
    assert_eq!(progress, 3, "{:?}", old.other);
    let call = old
        .begin("tools/call", json!({"name": "ask", "arguments": {}}))
        .await;
    let question = old.method("elicitation/create").await;
    old.accept(&question, "Ada").await;
    assert_eq!(text(&old.answer(call).await["result"]), "accept Ada");
}
