//! Both generations on one pipe: judged message by message.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    once::{accept_all, capabilities, meta, on_pipe, retried},
    schema,
    support::{Bare, Greeter, code, pipe::Pipe, text},
    tools::{self, Gates},
};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

fn server() -> (mcp_tasks::Tasks, Gates) {
    let gates = Gates::default();
    (tools::all(&gates).build().unwrap(), gates)
}

#[tokio::test]
async fn both_generations_take_turns() {
    let (tasks, _) = server();
    let (mut pipe, _) = Pipe::at("2025-11-25", &tasks, Greeter).await;
    for round in 0..3 {
        let name = format!("Ada {round}");
        let old = pipe.create("echo", json!({"text": name})).await;
        let new = on_pipe(
            &mut pipe,
            "tools/call",
            json!({"name": "echo", "arguments": {"text": name}}),
            true,
        )
        .await;
        assert_eq!(new["result"]["resultType"], "task");
        let old_result = pipe
            .request("tasks/result", json!({"taskId": new["result"]["taskId"]}))
            .await;
        assert_eq!(text(&old_result["result"]), name);
        let id = json!({"taskId": old["taskId"]});
        pipe.request("tasks/result", id.clone()).await;
        let read = on_pipe(&mut pipe, "tasks/get", id, true).await;
        assert_eq!(text(&read["result"]["result"]), name);
        // Undeclared in the middle, and what only the older one has.
        let undeclared = on_pipe(
            &mut pipe,
            "tasks/get",
            json!({"taskId": old["taskId"]}),
            false,
        )
        .await;
        assert_eq!(code(&undeclared), -32021);
        let removed = on_pipe(&mut pipe, "tasks/list", json!({}), true).await;
        assert_eq!(code(&removed), -32601);
        let listed = pipe.request("tasks/list", json!({})).await;
        assert!(listed["result"]["tasks"].as_array().unwrap().len() >= 2);
        let plain = on_pipe(
            &mut pipe,
            "tools/call",
            json!({"name": "greet", "arguments": {"name": name}}),
            true,
        )
        .await;
        assert_eq!(text(&plain["result"]), format!("Hello, {name}!"));
    }
    let unknown = {
        let mut params = json!({"taskId": "x", "_meta": meta(&capabilities(true))});
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("1900-01-01");
        pipe.request("tasks/get", params).await
    };
    assert_eq!(code(&unknown), -32022);
    assert!(pipe.close().await.is_ok());
}

#[tokio::test]
async fn a_client_that_never_initializes_has_everything() {
    let (tasks, _) = server();
    let mut pipe = Pipe::open(&tasks, Greeter);
    let discovered = on_pipe(&mut pipe, "server/discover", json!({}), true).await;
    assert!(discovered["result"]["capabilities"]["extensions"].is_object());
    let listed = on_pipe(&mut pipe, "tools/list", json!({}), true).await;
    let listed = listed["result"]["tools"].as_array().unwrap().clone();
    assert!(listed.iter().any(|tool| tool["name"] == "greet"));
    assert!(listed.iter().any(|tool| tool["name"] == "ask"));
    let call = json!({"name": "ask_optional", "arguments": {}});
    let asked = on_pipe(&mut pipe, "tools/call", call.clone(), false).await;
    assert_eq!(asked["result"]["resultType"], "input_required");
    let responses = accept_all(&asked["result"]["inputRequests"], "Ada");
    let retry = retried(call, &asked, responses);
    let done = on_pipe(&mut pipe, "tools/call", retry, false).await;
    assert_eq!(text(&done["result"]), "accept Ada");
    // Nobody has begun a session: nobody is told of anything that was not asked for.
    tasks.remove_tool("echo");
    let told = fence(&mut pipe).await;
    assert!(told.is_empty(), "{told:?}");
}

async fn fence(pipe: &mut Pipe) -> Vec<Value> {
    let answer = on_pipe(pipe, "tasks/get", json!({"taskId": "nope"}), true).await;
    assert_eq!(code(&answer), -32602);
    pipe.other.drain(..).collect()
}

async fn begin(pipe: &mut Pipe, method: &str, mut params: Value) -> u64 {
    params["_meta"] = meta(&capabilities(true));
    pipe.begin(method, params).await
}

#[tokio::test]
async fn subscriptions_share_the_pipe() {
    let (tasks, gates) = server();
    let mut pipe = Pipe::open(&tasks, Bare);
    let call = json!({"name": "held", "arguments": {}});
    let task = on_pipe(&mut pipe, "tools/call", call, true).await["result"]["taskId"].clone();
    let filter = json!({"notifications": {"taskIds": [task], "toolsListChanged": true}});
    let first = begin(&mut pipe, "subscriptions/listen", filter.clone()).await;
    let second = begin(&mut pipe, "subscriptions/listen", filter).await;
    for id in [first, second] {
        let of = |message: &Value| message["params"]["_meta"][SUBSCRIPTION] == id;
        let acknowledged = pipe.until(of).await;
        assert_eq!(
            acknowledged["method"],
            "notifications/subscriptions/acknowledged"
        );
        schema::check("subscriptions/listen", &acknowledged);
        let now = pipe.until(of).await;
        assert_eq!(now["params"]["status"], "working");
    }
    // One is cancelled: it hears nothing more.
    pipe.notify("notifications/cancelled", json!({"requestId": first}))
        .await;
    fence(&mut pipe).await;
    gates.go.add_permits(1);
    let done = pipe.method("notifications/tasks").await;
    assert_eq!(done["params"]["_meta"][SUBSCRIPTION], second);
    assert_eq!(done["params"]["status"], "completed");
    tasks.remove_tool("echo");
    let changed = pipe.method("notifications/tools/list_changed").await;
    assert_eq!(changed["params"]["_meta"][SUBSCRIPTION], second);
    // The end is graceful: the response, and then what says that the subscription is over.
    tasks.shutdown(Duration::ZERO).await;
    let end = pipe.answer(second).await;
    schema::check("subscriptions/listen", &end);
    assert_eq!(end["result"]["_meta"][SUBSCRIPTION], second);
    let over = pipe.method("notifications/cancelled").await;
    assert_eq!(over["params"]["requestId"], second);
    assert!(pipe.other.iter().all(|message| message["id"] != first));
}

// On a pipe a plain call is cancelled by its id.
#[tokio::test]
async fn a_cancelled_plain_call_is_given_up() {
    let (tasks, gates) = server();
    let mut pipe = Pipe::open(&tasks, Greeter);
    let call = json!({"name": "held_optional", "arguments": {}});
    let params =
        json!({"name": call["name"], "arguments": {}, "_meta": meta(&capabilities(false))});
    let id = pipe.begin("tools/call", params).await;
    gates.wait_started().await;
    pipe.notify("notifications/cancelled", json!({"requestId": id}))
        .await;
    gates.wait_cancelled().await;
    // A task is not: not even by the id of the call that made it.
    let id = begin(
        &mut pipe,
        "tools/call",
        json!({"name": "held", "arguments": {}}),
    )
    .await;
    let task = pipe.answer(id).await["result"]["taskId"].clone();
    gates.wait_started().await;
    pipe.notify("notifications/cancelled", json!({"requestId": id}))
        .await;
    let now = on_pipe(&mut pipe, "tasks/get", json!({"taskId": task}), true).await;
    assert_eq!(now["result"]["status"], "working");
}

// A request that names an older revision for itself has no tasks, as over HTTP.
#[tokio::test]
async fn who_names_an_older_revision_is_the_inner_servers() {
    let (tasks, _) = server();
    let (mut pipe, _) = Pipe::at("2025-11-25", &tasks, Greeter).await;
    let older = json!({"io.modelcontextprotocol/protocolVersion": "2025-06-18"});
    let params = json!({"name": "echo", "arguments": {}, "task": {}, "_meta": older});
    let answer = pipe.request("tools/call", params).await;
    assert!(answer["error"].is_object(), "{answer}");
    let listed = pipe.request("tools/list", json!({"_meta": older})).await;
    let text = listed.to_string();
    assert!(!text.contains("\"echo\""), "{text}");
    let task = pipe.create("echo", json!({})).await;
    assert!(task["taskId"].is_string());
}
