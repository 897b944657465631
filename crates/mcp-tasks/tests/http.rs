//! The server over Streamable HTTP, driven by raw requests.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::sync::atomic::Ordering;

use mcp_tasks::{HttpOptions, Tasks, store::MemoryStore};
use rmcp::transport::{
    StreamableHttpServerConfig, StreamableHttpService,
    streamable_http_server::session::local::LocalSessionManager,
};
use serde_json::{Value, json};
use support::{
    Greeter, RELATED, code,
    http::{Client, Served},
    text,
    tools::{self, Gates},
};

const G1: &str = "2025-11-25";

fn bearer_token(parts: &http::request::Parts) -> Option<String> {
    let value = parts.headers.get("authorization")?.to_str().ok()?;
    value.strip_prefix("Bearer ").map(str::to_owned)
}

async fn owned() -> (Served, Gates, Tasks) {
    let gates = Gates::default();
    let tasks = tools::all(&gates).owner(bearer_token).build().unwrap();
    (Served::start(&tasks, Greeter).await, gates, tasks)
}

async fn bearer() -> (Served, Client, Gates) {
    let gates = Gates::default();
    let tasks = tools::all(&gates).bearer_ids().build().unwrap();
    let served = Served::start(&tasks, Greeter).await;
    let mut client = Client::new(&served.url);
    client.initialize(G1).await;
    (served, client, gates)
}

async fn user(served: &Served, token: &str) -> Client {
    let mut client = Client::with_token(&served.url, token);
    client.initialize(G1).await;
    client
}

// F-10
#[tokio::test]
async fn http_without_an_owner_rule_is_a_build_error() {
    let tasks = tools::all(&Gates::default()).build().unwrap();
    let error = tasks
        .streamable_http(|| Ok(Greeter), StreamableHttpServerConfig::default())
        .unwrap_err();
    assert!(
        error.to_string().contains(".owner(") && error.to_string().contains(".bearer_ids()"),
        "{error}"
    );
}

// F-01: a duplicate of a tool the inner server is known to have.
#[tokio::test]
async fn a_task_tool_with_an_inner_tools_name_is_refused() {
    let tool = mcp_tasks::TaskTool::new("greet")
        .run(async |_: mcp_tasks::TaskContext, _: Value| Ok::<_, mcp_tasks::TaskError>("x"));
    let tasks = Tasks::builder().tool(tool).bearer_ids().build().unwrap();
    let error = tasks
        .streamable_http(|| Ok(Greeter), StreamableHttpServerConfig::default())
        .unwrap_err();
    assert!(error.to_string().contains("\"greet\""), "{error}");
}

// Wire.md 2: list only where requestors can be told apart.
#[tokio::test]
async fn list_is_offered_only_to_known_owners() {
    let (served, _gates, _tasks) = owned().await;
    let mut ada = Client::with_token(&served.url, "ada");
    assert!(
        ada.initialize(G1).await["capabilities"]["tasks"]
            .get("list")
            .is_some()
    );
    let (served, client, _gates) = bearer().await;
    let mut other = Client::new(&served.url);
    assert!(
        other.initialize(G1).await["capabilities"]["tasks"]
            .get("list")
            .is_none()
    );
    assert_eq!(code(&client.request("tasks/list", json!({})).await), -32601);
}

// F-11, F-16
#[tokio::test]
async fn what_is_answered_at_once_is_json_and_errors_are_200() {
    let (_served, client, gates) = bearer().await;
    let task = client.create("held", json!({})).await;
    for (method, params, expected) in [
        ("tasks/get", json!({"taskId": task["taskId"]}), None),
        ("tasks/get", json!({"taskId": "nope"}), Some(-32602)),
        ("tasks/result", json!({"taskId": "nope"}), Some(-32602)),
        ("tasks/cancel", json!({}), Some(-32602)),
        ("tasks/update", json!({"taskId": "x"}), Some(-32601)),
        (
            "tools/call",
            json!({"name": "held", "arguments": {}}),
            Some(-32601),
        ),
        (
            "tools/call",
            json!({"name": "echo", "arguments": {"text": "hi"}}),
            None,
        ),
    ] {
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": method, "params": params});
        let answer = client.post(&message).await;
        assert_eq!(answer.status, 200, "{method}: {answer:?}");
        assert_eq!(
            answer.headers["content-type"], "application/json",
            "{method}"
        );
        let answer = answer.json();
        assert_eq!(answer["id"], 0);
        assert_eq!(answer["error"]["code"].as_i64(), expected, "{method}");
    }
    gates.go.add_permits(1);
    let mut events = client
        .open("tasks/result", json!({"taskId": task["taskId"]}))
        .await;
    assert_eq!(text(&events.response().await["result"]), "held {}");
    // Terminal now: one JSON body.
    let again = client
        .open("tasks/result", json!({"taskId": task["taskId"]}))
        .await;
    assert_eq!(again.content_type, "application/json");
}

// F-12 over HTTP; the stream of tasks/result has no event ids.
#[tokio::test]
async fn questions_come_on_the_waiting_result() {
    let (_served, client, gates) = bearer().await;
    let id = client.create("interview", json!({})).await["taskId"].clone();
    let mut events = client.open("tasks/result", json!({"taskId": id})).await;
    assert_eq!(events.content_type, "text/event-stream");
    gates.go.add_permits(2);
    let first = events.method("elicitation/create").await;
    assert_eq!(first["params"]["_meta"][RELATED]["taskId"], id);
    client.accept(&first, "Ada").await;
    let second = events.method("elicitation/create").await;
    client.reply(&second, json!({"action": "cancel"})).await;
    let sampled = events.method("sampling/createMessage").await;
    client
        .reply(
            &sampled,
            json!({"model": "m", "role": "assistant", "content": {"type": "text", "text": "s"}}),
        )
        .await;
    let result = events.response().await;
    assert!(
        text(&result["result"]).starts_with("accept Ada; cancel; "),
        "{result}"
    );
    assert!(events.next().await.is_none());
    assert_eq!(events.last_event_id, None);
}

// F-18, B80, B82, B83
#[tokio::test]
async fn tasks_belong_to_their_owner_not_to_a_session() {
    let (served, gates, _tasks) = owned().await;
    let (ada, bob) = (user(&served, "ada").await, user(&served, "bob").await);
    let id = ada.create("held", json!({})).await["taskId"].clone();
    let ada_again = user(&served, "ada").await;
    assert_eq!(
        ada_again.request("tasks/get", json!({"taskId": id})).await["result"]["status"],
        "working"
    );
    let unknown = |method: &'static str| {
        let bob = &bob;
        async move {
            bob.request(
                method,
                json!({"taskId": "0d9f0f2e-6f5e-4d06-9a80-4a4d6d2f7a11"}),
            )
            .await["error"]
                .clone()
        }
    };
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let foreign = bob.request(method, json!({"taskId": id})).await;
        assert_eq!(foreign["error"], unknown(method).await, "{method}");
    }
    let listed = |answer: Value| answer["result"]["tasks"].as_array().unwrap().len();
    assert_eq!(listed(ada_again.request("tasks/list", json!({})).await), 1);
    assert_eq!(listed(bob.request("tasks/list", json!({})).await), 0);
    // A session is its owner's too.
    let mut thief = Client::with_token(&served.url, "bob");
    thief.session = ada.session.clone();
    assert_eq!(
        thief
            .post(&json!({"jsonrpc":"2.0","id":1,"method":"tasks/list"}))
            .await
            .status,
        404
    );
    assert_eq!(thief.delete().await.status, 404);
    let nobody = Client::new(&served.url);
    let answer = nobody
        .post(
            &json!({"jsonrpc":"2.0","id":1,"method":"initialize","params":support::initialize(G1)}),
        )
        .await;
    assert_eq!(
        (answer.status, answer.headers["www-authenticate"].as_str()),
        (401, "Bearer")
    );
    gates.go.add_permits(1);
    let mut events = ada_again.open("tasks/result", json!({"taskId": id})).await;
    assert_eq!(text(&events.response().await["result"]), "held {}");
}

// Bearer tasks: whoever holds the id, in any session.
#[tokio::test]
async fn a_bearer_task_is_whoevers_who_holds_its_id() {
    let (served, client, _gates) = bearer().await;
    let id = client.create("held", json!({})).await["taskId"].clone();
    let mut other = Client::new(&served.url);
    other.initialize(G1).await;
    assert_eq!(
        other.request("tasks/cancel", json!({"taskId": id})).await["result"]["status"],
        "cancelled"
    );
}

// DELETE ends the session but not its owner's tasks; an unknown session is 404, none is 400.
#[tokio::test]
async fn delete_ends_the_session_and_leaves_the_tasks() {
    let (served, _gates, _tasks) = owned().await;
    let ada = user(&served, "ada").await;
    let id = ada.create("held", json!({})).await["taskId"].clone();
    let mut stream = ada.listen().await;
    assert_eq!(ada.delete().await.status, 202);
    assert!(
        stream.next().await.is_none(),
        "the general stream ends with its session"
    );
    let get = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": id}});
    assert_eq!(ada.post(&get).await.status, 404);
    let again = user(&served, "ada").await;
    assert_eq!(again.post(&get).await.json()["result"]["status"], "working");
    let mut lost = Client::with_token(&served.url, "ada");
    assert_eq!(lost.post(&get).await.status, 400, "no session");
    lost.session = Some("no-such-session".into());
    assert_eq!(lost.post(&get).await.status, 404);
    assert_eq!(lost.get().await.status, 404);
}

// A restart keeps sessions: they are in the store.
#[tokio::test]
async fn a_session_is_found_again_by_another_process_on_the_same_store() {
    let store = MemoryStore::new();
    let gates = Gates::default();
    let replica = || {
        tools::all(&gates)
            .store(store.clone())
            .owner(bearer_token)
            .build()
            .unwrap()
    };
    let (first, second) = (replica(), replica());
    let served = Served::start(&first, Greeter).await;
    let ada = user(&served, "ada").await;
    let id = ada.create("outside", json!({})).await["taskId"].clone();
    let other = Served::start(&second, Greeter).await;
    let mut moved = Client::with_token(&other.url, "ada");
    moved.session = ada.session.clone();
    assert_eq!(
        moved.request("tasks/get", json!({"taskId": id})).await["result"]["status"],
        "working"
    );
    let greeted = moved
        .request(
            "tools/call",
            json!({"name": "greet", "arguments": {"name": "Ada"}}),
        )
        .await;
    assert_eq!(text(&greeted["result"]), "Hello, Ada!");
    // What it declared is known too: the replica may ask it.
    let asked = moved.create("ask", json!({})).await["taskId"].clone();
    let mut events = moved.open("tasks/result", json!({"taskId": asked})).await;
    let question = events.method("elicitation/create").await;
    // The answer may come in at the other replica.
    ada.accept(&question, "Ada").await;
    assert_eq!(text(&events.response().await["result"]), "accept Ada");
    let mut thief = Client::with_token(&other.url, "bob");
    thief.session = ada.session.clone();
    assert_eq!(
        thief
            .post(&json!({"jsonrpc":"2.0","id":1,"method":"ping"}))
            .await
            .status,
        404
    );
}

// Statuses of wire.md 5, also for what we answer ourselves.
#[tokio::test]
async fn statuses_for_wrong_requests() {
    let (served, client, _gates) = bearer().await;
    let get = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": "x"}});
    for (body, status, error) in [
        ("{\"jsonrpc\":\"2.0\",\"id\":1,", 400, Some(-32700)),
        ("nonsense", 400, Some(-32700)),
        ("[]", 400, Some(-32600)),
        (
            "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"tasks/get\"}",
            400,
            Some(-32600),
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":\"mcp-tasks/a/b/c\",\"result\":{}}",
            202,
            None,
        ),
        ("{\"jsonrpc\":\"2.0\",\"id\":987,\"result\":{}}", 202, None),
    ] {
        let answer = client.post_raw(body).await;
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        match error {
            Some(error) => {
                assert_eq!(code(&answer.json()), error, "{body}");
                assert_eq!(
                    answer.json().get("id").is_none(),
                    error == -32700 || body == "[]",
                    "{body}"
                );
            }
            None => assert_eq!(answer.body, "", "{body}"),
        }
    }
    let invalid = client.post_raw(vec![b'"', 0xff, b'"']).await;
    assert_eq!((invalid.status, code(&invalid.json())), (400, -32700));
    let send = |change: &dyn Fn(reqwest::RequestBuilder) -> reqwest::RequestBuilder| {
        let request = client
            .http
            .post(&served.url)
            .header("mcp-session-id", client.session.clone().unwrap());
        change(request).body(get.to_string()).send()
    };
    let both = "application/json, text/event-stream";
    let response = send(&|r| {
        r.header("accept", "application/json")
            .header("content-type", "application/json")
    });
    assert_eq!(response.await.unwrap().status(), 406);
    let response = send(&|r| {
        r.header("accept", both)
            .header("content-type", "text/plain")
    });
    assert_eq!(response.await.unwrap().status(), 415);
    let json_type = |r: reqwest::RequestBuilder| {
        r.header("accept", both)
            .header("content-type", "application/json")
    };
    let response = send(&|r| json_type(r).header("mcp-protocol-version", "2019-01-01"))
        .await
        .unwrap();
    assert_eq!(response.status(), 400);
    let response = send(&|r| json_type(r).header("mcp-protocol-version", G1))
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    // The connection and the session are still good.
    assert_eq!(
        code(&client.request("tasks/get", json!({"taskId": "x"})).await),
        -32602
    );
}

#[tokio::test]
async fn a_body_above_the_limit_is_413_however_it_comes() {
    let gates = Gates::default();
    let tasks = tools::all(&gates).bearer_ids().build().unwrap();
    let config = StreamableHttpServerConfig::default().with_max_request_body_bytes(10_000);
    let service = tasks.streamable_http(|| Ok(Greeter), config).unwrap();
    let served = Served::service(service).await;
    let mut client = Client::new(&served.url);
    client.initialize(G1).await;
    let large = json!({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x".repeat(20_000)},"task":{}}});
    let declared = client.post(&large).await;
    assert_eq!(declared.status, 413);
    assert!(declared.body.contains("10000"), "{declared:?}");
    let pieces: Vec<Result<bytes::Bytes, std::io::Error>> = large
        .to_string()
        .into_bytes()
        .chunks(1000)
        .map(|chunk| Ok(chunk.to_vec().into()))
        .collect();
    let chunked = client
        .post_raw(reqwest::Body::wrap_stream(futures_util::stream::iter(
            pieces,
        )))
        .await;
    assert_eq!(chunked.status, 413);
    assert_eq!(gates.runs.load(Ordering::SeqCst), 0);
    assert_eq!(
        client.create("echo", json!({"text": "small"})).await["status"],
        "working"
    );
}

// Host and Origin: on every method, also for what we answer ourselves.
#[tokio::test]
async fn foreign_hosts_and_origins_are_refused_on_every_method() {
    let (served, client, _gates) = bearer().await;
    let get = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": "x"}})
        .to_string();
    for method in [
        reqwest::Method::POST,
        reqwest::Method::GET,
        reqwest::Method::DELETE,
    ] {
        for (header, value) in [
            ("host", "evil.example"),
            ("origin", "http://evil.example"),
            ("origin", "null"),
        ] {
            let request = client
                .request_builder(method.clone())
                .header("content-type", "application/json")
                .header(header, value)
                .body(get.clone());
            assert_eq!(
                request.send().await.unwrap().status(),
                403,
                "{method} {header}: {value}"
            );
        }
    }
    let local = client
        .request_builder(reqwest::Method::POST)
        .header("content-type", "application/json")
        .header("origin", "http://localhost:6274")
        .body(get);
    assert_eq!(local.send().await.unwrap().status(), 200);
    // rmcp's own switch to refuse every origin is kept.
    let tasks = tools::all(&Gates::default()).bearer_ids().build().unwrap();
    let config = StreamableHttpServerConfig::default().enforce_origin_validation();
    let strict = Served::service(tasks.streamable_http(|| Ok(Greeter), config).unwrap()).await;
    let mut client = Client::new(&strict.url);
    client.initialize(G1).await;
    let refused = client
        .request_builder(reqwest::Method::POST)
        .header("origin", "http://localhost:6274")
        .send();
    assert_eq!(refused.await.unwrap().status(), 403);
    drop(served);
}

// F-16: a short call is JSON; one that talks first is a stream; a cut stream is rejoined.
#[tokio::test]
async fn a_shimmed_call_can_be_rejoined() {
    let (_served, client, _gates) = bearer().await;
    let call = json!({"name": "ask_optional", "arguments": {}});
    let mut events = client.open("tools/call", call).await;
    assert_eq!(events.content_type, "text/event-stream");
    let question = events.method("elicitation/create").await;
    assert!(question["params"].get("_meta").is_none(), "{question}");
    let last = events.last_event_id.clone().unwrap();
    drop(events);
    // Dropping the stream cancels nothing: the question is asked again where the client comes back.
    let mut again = client.listen_from(Some(&last)).await;
    let asked = again.method("elicitation/create").await;
    assert_ne!(asked["id"], question["id"]);
    assert_eq!(asked["params"], question["params"]);
    client.accept(&question, "Ada").await;
    let answer = again.response().await;
    assert_eq!(text(&answer["result"]), "accept Ada");
    assert!(answer["id"].is_number());
    assert!(again.next().await.is_none());
    // Read to its end, it is gone; and no other session can ask for it.
    assert!(client.listen_from(Some(&last)).await.next().await.is_none());
}

#[tokio::test]
async fn a_rejoined_call_is_its_sessions_only() {
    let (served, gates, _tasks) = owned().await;
    let (ada, bob) = (user(&served, "ada").await, user(&served, "bob").await);
    let mut events = ada
        .open(
            "tools/call",
            json!({"name": "ask_optional", "arguments": {}}),
        )
        .await;
    events.method("elicitation/create").await;
    let last = events.last_event_id.clone().unwrap();
    drop(events);
    assert!(bob.listen_from(Some(&last)).await.next().await.is_none());
    let other = user(&served, "ada").await;
    assert!(other.listen_from(Some(&last)).await.next().await.is_none());
    let mut again = ada.listen_from(Some(&last)).await;
    let question = again.method("elicitation/create").await;
    ada.accept(&question, "Ada").await;
    assert_eq!(text(&again.response().await["result"]), "accept Ada");
    drop(gates);
}

// F-16: only notifications/cancelled cancels a shimmed call.
#[tokio::test]
async fn a_shimmed_call_is_cancelled_by_notification_only() {
    let (_served, client, gates) = bearer().await;
    let message = json!({"jsonrpc":"2.0","id":"call-1","method":"tools/call","params":{"name":"held_optional","arguments":{}}});
    let request = client
        .request_builder(reqwest::Method::POST)
        .header("content-type", "application/json")
        .body(message.to_string());
    let pending = tokio::spawn(async move { request.send().await.unwrap().text().await.unwrap() });
    gates.wait_started().await;
    let cancelled =
        json!({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"call-1"}});
    assert_eq!(client.post(&cancelled).await.status, 202);
    gates.wait_cancelled().await;
    let body = pending.await.unwrap();
    assert!(
        !body.contains("\"result\"") && !body.contains("\"error\""),
        "{body}"
    );
}

// wire.md 5: dropping the stream of tasks/result is leaving, no more.
#[tokio::test]
async fn a_dropped_result_stream_leaves_the_task_alone() {
    let (_served, client, gates) = bearer().await;
    let id = client.create("held", json!({})).await["taskId"].clone();
    for _ in 0..3 {
        let events = client.open("tasks/result", json!({"taskId": id})).await;
        assert_eq!(events.status, 200);
        drop(events);
    }
    assert_eq!(
        client.request("tasks/get", json!({"taskId": id})).await["result"]["status"],
        "working"
    );
    gates.go.add_permits(1);
    assert_eq!(
        text(
            &client
                .open("tasks/result", json!({"taskId": id}))
                .await
                .response()
                .await["result"]
        ),
        "held {}"
    );
}

// B-kind: the body does not end with the request that created it.
#[tokio::test]
async fn the_body_outlives_the_request_that_created_it() {
    let (served, client, gates) = bearer().await;
    let message = json!({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"held","arguments":{},"task":{}}});
    // A client that sends its request and hangs up without reading.
    let session = client.session.clone().unwrap();
    let body = message.to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\nmcp-session-id: {session}\r\ncontent-length: {}\r\n\r\n{body}",
        served.addr,
        body.len()
    );
    let mut socket = tokio::net::TcpStream::connect(served.addr).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut socket, request.as_bytes())
        .await
        .unwrap();
    drop(socket);
    gates.wait_started().await;
    gates.go.add_permits(1);
    // It ran to its end: the gate was passed.
    while gates.go.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
}

// F-17: progress goes to the session that made the task and no other.
#[tokio::test]
async fn notifications_go_to_one_session() {
    let (served, _gates, _tasks) = owned().await;
    let (ada, bob) = (user(&served, "ada").await, user(&served, "bob").await);
    let (mut to_ada, mut to_bob) = (ada.listen().await, bob.listen().await);
    let params =
        json!({"name": "chatty", "arguments": {}, "task": {}, "_meta": {"progressToken": "t"}});
    let id = ada.request("tools/call", params).await["result"]["task"]["taskId"].clone();
    let progress = to_ada.method("notifications/progress").await;
    assert_eq!(progress["params"]["progressToken"], "t");
    let status = to_ada.method("notifications/tasks/status").await;
    assert_eq!(
        (&status["params"]["taskId"], &status["params"]["status"]),
        (&id, &json!("completed"))
    );
    let own = bob.create("echo", json!({"text": "x"})).await["taskId"].clone();
    // The first thing bob hears of is his own.
    let first = to_bob.method("notifications/tasks/status").await;
    assert_eq!(first["params"]["taskId"], own);
}

// 2026-07-28 and unknown messages are the inner server's, with the bytes that came.
#[tokio::test]
async fn requests_of_2026_07_28_pass_to_the_inner_server() {
    let (served, _client, _gates) = bearer().await;
    let stranger = Client::new(&served.url);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let message = json!({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ada"},"_meta":meta}});
    let request = stranger
        .request_builder(reqwest::Method::POST)
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "greet")
        .body(message.to_string());
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.headers().get("mcp-session-id").is_none());
    assert!(response.text().await.unwrap().contains("Hello, Ada!"));
}

// A tower layer, for whoever already has an MCP HTTP service.
#[tokio::test]
async fn the_layer_goes_in_front_of_any_service() {
    let gates = Gates::default();
    let tasks = tools::all(&gates).bearer_ids().build().unwrap();
    let inner = StreamableHttpService::new(
        || Ok(Greeter),
        std::sync::Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let layer = tasks.layer(HttpOptions::default()).unwrap();
    let served = Served::service(tower_layer::Layer::layer(&layer, inner)).await;
    let mut client = Client::new(&served.url);
    assert!(client.initialize(G1).await["capabilities"]["tasks"].is_object());
    assert!(
        client
            .request("tools/list", json!({}))
            .await
            .to_string()
            .contains("\"taskSupport\":\"required\"")
    );
    let id = client.create("echo", json!({"text": "hi"})).await["taskId"].clone();
    assert_eq!(
        text(&client.request("tasks/result", json!({"taskId": id})).await["result"]),
        "hi"
    );
    let greeted = client
        .request(
            "tools/call",
            json!({"name": "greet", "arguments": {"name": "Ada"}}),
        )
        .await;
    assert_eq!(text(&greeted["result"]), "Hello, Ada!");
    assert_eq!(client.delete().await.status, 202);
}

// wire.md 1: an inner server without sessions. Tasks by id; nothing that needs a stream of the session.
#[tokio::test]
async fn a_stateless_inner_server_has_tasks_by_id() {
    let gates = Gates::default();
    let tasks = tools::all(&gates).bearer_ids().build().unwrap();
    let config = StreamableHttpServerConfig::default().with_legacy_session_mode(false);
    let served = Served::service(tasks.streamable_http(|| Ok(Greeter), config).unwrap()).await;
    let mut client = Client::new(&served.url);
    assert!(client.initialize(G1).await["capabilities"]["tasks"].is_object());
    assert_eq!(client.session, None);
    let send = |method: &str, params: Value| {
        let message = json!({"jsonrpc": "2.0", "id": 3, "method": method, "params": params});
        client
            .request_builder(reqwest::Method::POST)
            .header("content-type", "application/json")
            .header("mcp-protocol-version", G1)
            .body(message.to_string())
            .send()
    };
    let created = send(
        "tools/call",
        json!({"name": "held", "arguments": {}, "task": {}}),
    )
    .await
    .unwrap();
    let created: Value = serde_json::from_str(&created.text().await.unwrap()).unwrap();
    let id = created["result"]["task"]["taskId"].clone();
    let got = send("tasks/get", json!({"taskId": id}))
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(got.contains("\"working\""), "{got}");
    gates.go.add_permits(1);
    let result = send("tasks/result", json!({"taskId": id}))
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(result.contains("held {}"), "{result}");
    assert_eq!(client.get().await.status, 405);
}

// F-26
#[tokio::test]
async fn shutdown_answers_the_waiting_and_refuses_the_new() {
    let gates = Gates::default();
    let tasks = tools::all(&gates).bearer_ids().build().unwrap();
    let served = Served::start(&tasks, Greeter).await;
    let mut client = Client::new(&served.url);
    client.initialize(G1).await;
    let id = client.create("held", json!({})).await["taskId"].clone();
    gates.wait_started().await;
    let mut events = client.open("tasks/result", json!({"taskId": id})).await;
    let mut call = client
        .open(
            "tools/call",
            json!({"name": "held_optional", "arguments": {}}),
        )
        .await;
    let mut staged = client
        .open(
            "tools/call",
            json!({"name": "staged", "arguments": {}, "task": {}}),
        )
        .await;
    staged.method("elicitation/create").await;
    gates.wait_started().await;
    tasks.shutdown(std::time::Duration::ZERO).await;
    for waiting in [&mut call, &mut staged] {
        assert_eq!(code(&waiting.response().await), -32603);
    }
    let answer = events.response().await;
    assert_eq!(code(&answer), -32603);
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("shutting down"),
        "{answer}"
    );
    let refused = client
        .request(
            "tools/call",
            json!({"name": "held", "arguments": {}, "task": {}}),
        )
        .await;
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("shutting down"),
        "{refused}"
    );
    // Reads go on, and the task waits for the next worker.
    assert_eq!(
        client.request("tasks/get", json!({"taskId": id})).await["result"]["status"],
        "working"
    );
}
