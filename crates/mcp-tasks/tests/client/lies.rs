//! Servers that lie: a typed error, bounded memory, no panic, no busy loop.

use std::{cell::RefCell, collections::HashMap, sync::Arc, time::Duration};

use axum::{body::Body, http::Response};
use mcp_tasks::client::{CallOptions, TaskClient, TaskClientError};
use rmcp::model::CallToolResult;
use serde_json::{Value, json};
use tokio::io::{DuplexStream, ReadHalf, WriteHalf};

use crate::{Person, call, lines::play, script::*, text_of};

/// What a liar sends when it gets this message, the nth of its method; `None` for what an honest server would.
type Lie = dyn Fn(&str, &Value, usize) -> Option<Vec<Value>>;

/// Serves until the client is gone; how many messages of each method came.
async fn liar(mut script: Script, lie: &Lie) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    while let Some(message) = script.next().await {
        let method = message["method"].as_str().unwrap_or("answer").to_owned();
        let count: &mut usize = counts.entry(method.clone()).or_default();
        *count += 1;
        let messages = lie(&method, &message, *count).unwrap_or_else(|| honest(&method, &message));
        for message in messages {
            if script.try_send(&message).await.is_err() {
                return counts;
            }
        }
    }
    counts
}

fn honest(method: &str, message: &Value) -> Vec<Value> {
    let result = match method {
        "initialize" => initialized(&with_tasks()),
        "tools/list" => tools(),
        "tools/call" => json!({"task": task("working")}),
        "tasks/get" => task("working"),
        "tasks/result" => text("done"),
        "tasks/cancel" => task("cancelled"),
        _ => return Vec::new(),
    };
    vec![answer(message, &result)]
}

type Io = (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>);

/// Plays a liar against a client; what the client got, and the counts.
async fn against<T>(lie: &Lie, client: impl AsyncFnOnce(Io) -> T) -> (T, HashMap<String, usize>) {
    let (script, io) = Script::pair();
    let counts = RefCell::default();
    let server = async { *counts.borrow_mut() = liar(script, lie).await };
    let got = play(server, client(io)).await;
    (got, counts.into_inner())
}

/// One call with ten minutes' time.
async fn one_call(io: Io) -> Result<CallToolResult, TaskClientError> {
    let client = TaskClient::connect(Person::default(), io).await.unwrap();
    let options = CallOptions::new().deadline(Duration::from_secs(600));
    client.call_tool_with(call("slow"), options).await
}

fn is(error: &TaskClientError, kind: &str) -> bool {
    match error {
        TaskClientError::Protocol(_) => kind == "protocol",
        TaskClientError::Rpc(_) => kind == "rpc",
        TaskClientError::Deadline { .. } => kind == "deadline",
        TaskClientError::TooLarge { .. } => kind == "too large",
        TaskClientError::Expired { .. } => kind == "expired",
        _ => false,
    }
}

fn other(status: &str) -> Value {
    let mut other = task(status);
    other["taskId"] = json!("U");
    other
}

#[tokio::test(start_paused = true)]
async fn lies_end_in_typed_errors_after_few_requests() {
    type One = fn(&str, &Value, usize) -> Option<Vec<Value>>;
    let cases: &[(&str, One, &str, usize)] = &[
        (
            "the call is answered under another id",
            |method, message, _| {
                let id = |id| json!({"jsonrpc": "2.0", "id": id, "result": text("stray")});
                (method == "tools/call").then(|| {
                    vec![
                        id(json!("tc:999")),
                        id(json!(4)),
                        id(message["id"].as_str().unwrap().replace("tc:", "").into()),
                    ]
                })
            },
            "deadline",
            5,
        ),
        (
            "polls are answered under another id",
            |method, _, _| {
                (method == "tasks/get").then(|| {
                    vec![json!({"jsonrpc": "2.0", "id": "tc:1", "result": task("working")})]
                })
            },
            "deadline",
            30,
        ),
        (
            "polls tell of another task",
            |method, message, _| {
                (method == "tasks/get").then(|| vec![answer(message, &other("working"))])
            },
            "protocol",
            6,
        ),
        (
            "the result is another task's",
            |method, message, _| match method {
                "tasks/get" => Some(vec![answer(message, &task("completed"))]),
                "tasks/result" => {
                    let mut result = text("stray");
                    result["_meta"] = json!({RELATED: {"taskId": "U"}});
                    Some(vec![answer(message, &result)])
                }
                _ => None,
            },
            "protocol",
            7,
        ),
        (
            "from the end back to work",
            |method, message, count| match (method, count) {
                ("tasks/get", 1) => Some(vec![answer(message, &task("completed"))]),
                ("tasks/result", _) => Some(vec![refusal(message, -32603, "not yet")]),
                _ => None,
            },
            "protocol",
            20,
        ),
        (
            "from one end to the other and back, for ever",
            |method, message, count| match method {
                "tasks/get" => Some(vec![answer(
                    message,
                    &task(["completed", "working"][count % 2]),
                )]),
                "tasks/result" => Some(vec![refusal(message, -32603, "not yet")]),
                _ => None,
            },
            "protocol",
            20,
        ),
        (
            "a status that is none",
            |method, message, _| {
                (method == "tasks/get").then(|| vec![answer(message, &task("paused"))])
            },
            "protocol",
            6,
        ),
        (
            "a task without a status",
            |method, message, _| {
                (method == "tasks/get").then(|| vec![answer(message, &json!({"taskId": "T"}))])
            },
            "protocol",
            6,
        ),
        (
            "a task without an id",
            |method, message, _| {
                (method == "tasks/get")
                    .then(|| vec![answer(message, &json!({"status": "working"}))])
            },
            "protocol",
            6,
        ),
        (
            "a task that is a number",
            |method, message, _| (method == "tasks/get").then(|| vec![answer(message, &json!(7))]),
            "protocol",
            6,
        ),
        (
            "a created task without an id",
            |method, message, _| {
                (method == "tools/call")
                    .then(|| vec![answer(message, &json!({"task": {"status": "working"}}))])
            },
            "protocol",
            5,
        ),
        (
            "a result that is a list",
            |method, message, _| match method {
                "tasks/get" => Some(vec![answer(message, &task("completed"))]),
                "tasks/result" => Some(vec![answer(message, &json!([]))]),
                _ => None,
            },
            "protocol",
            7,
        ),
        (
            "a result and an error",
            |method, message, _| {
                (method == "tasks/get").then(|| {
                    let mut both = answer(message, &task("working"));
                    both["error"] = json!({"code": 1, "message": "and"});
                    vec![both]
                })
            },
            "protocol",
            6,
        ),
        (
            "an answer that says nothing",
            |method, message, _| {
                (method == "tasks/get")
                    .then(|| vec![json!({"jsonrpc": "2.0", "id": message["id"]})])
            },
            "protocol",
            6,
        ),
        (
            "it completed, but has no result",
            |method, message, _| match method {
                "tasks/get" => Some(vec![answer(message, &task("completed"))]),
                "tasks/result" => Some(vec![refusal(message, -32603, "lost it")]),
                _ => None,
            },
            "rpc",
            12,
        ),
        (
            "it wants input, but its result is refused",
            |method, message, _| match method {
                "tasks/get" => Some(vec![answer(message, &task("input_required"))]),
                "tasks/result" => Some(vec![refusal(message, -32603, "no")]),
                _ => None,
            },
            "rpc",
            400,
        ),
        (
            "an error that is a text",
            |method, message, _| {
                (method == "tasks/get")
                    .then(|| vec![json!({"jsonrpc": "2.0", "id": message["id"], "error": "no"})])
            },
            "rpc",
            15,
        ),
        (
            "tools without end",
            |method, message, count| {
                (method == "tools/list").then(|| {
                    vec![answer(
                        message,
                        &json!({"tools": [], "nextCursor": count.to_string()}),
                    )]
                })
            },
            "protocol",
            1003,
        ),
    ];
    for (name, lie, kind, most) in cases {
        let (got, counts) = against(lie, one_call).await;
        let error = got.expect_err(name);
        assert!(is(&error, kind), "{name}: {error}");
        let requests: usize = counts.values().sum();
        assert!(requests <= *most, "{name}: {counts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn odd_poll_intervals_make_no_busy_loop() {
    for (interval, most) in [
        (json!(0), 6000),
        (json!(-5), 600),
        (json!("soon"), 600),
        (json!(1e-9), 6000),
        (json!(1e308), 1),
        (json!(null), 600),
    ] {
        let odd = move |method: &str, message: &Value, _: usize| {
            let mut task = task("working");
            task["pollInterval"] = interval.clone();
            match method {
                "tasks/get" => Some(vec![answer(message, &task)]),
                "tools/call" => Some(vec![answer(message, &json!({ "task": task }))]),
                _ => None,
            }
        };
        let (got, counts) = against(&odd, one_call).await;
        assert!(is(&got.unwrap_err(), "deadline"));
        assert!(
            counts.get("tasks/get").is_none_or(|count| *count <= most),
            "{counts:?}"
        );
    }
    // Nor does a floor of nothing.
    let hasty = |method: &str, message: &Value, _: usize| {
        let mut task = task("working");
        task["pollInterval"] = json!(0);
        (method == "tasks/get").then(|| vec![answer(message, &task)])
    };
    let (got, counts) = against(&hasty, async |io| {
        let builder = TaskClient::builder(()).poll_floor(Duration::ZERO);
        let client = builder.connect(io).await.unwrap();
        let options = CallOptions::new().deadline(Duration::from_secs(10));
        client.call_tool_with(call("slow"), options).await
    })
    .await;
    assert!(is(&got.unwrap_err(), "deadline"));
    assert!(counts["tasks/get"] <= 1000, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn announcements_without_end_make_no_requests_without_end() {
    let flood = |method: &str, message: &Value, _: usize| {
        let announce = |status| json!({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": task(status)});
        (method == "tasks/get").then(|| {
            let mut messages = vec![answer(message, &task("working"))];
            for _ in 0..100 {
                messages.extend([
                    announce("input_required"),
                    announce("working"),
                    announce("cancelled"),
                ]);
            }
            messages
        })
    };
    let deaf = move |method: &str, message: &Value, count: usize| match method {
        // `tasks/result` waits.
        "tasks/result" => Some(Vec::new()),
        _ => flood(method, message, count),
    };
    let (got, counts) = against(&deaf, async |io| {
        let client = TaskClient::connect((), io).await.unwrap();
        let options = CallOptions::new().deadline(Duration::from_secs(20));
        client.call_tool_with(call("slow"), options).await
    })
    .await;
    assert!(is(&got.unwrap_err(), "deadline"));
    assert!(
        counts["tasks/result"] == 1 && counts["tasks/get"] <= 400,
        "{counts:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_never_declared_is_refused_and_the_call_goes_on() {
    let ask = |id: &str, method: &str, params: Value| {
        let mut params = params;
        params["_meta"] = json!({RELATED: {"taskId": "T"}});
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    };
    let form = json!({"message": "m", "requestedSchema": {"type": "object", "properties": {}}});
    let lie = move |method: &str, message: &Value, count: usize| match (method, count) {
        ("tasks/get", 1) => Some(vec![answer(message, &task("input_required"))]),
        ("tasks/get", _) => Some(vec![answer(message, &task("completed"))]),
        ("tasks/result", 1) => Some(vec![
            ask(
                "sampling",
                "sampling/createMessage",
                json!({"messages": [], "maxTokens": 1}),
            ),
            ask("roots", "roots/list", json!({})),
            ask("unknown", "kitchen/cook", json!({})),
            ask(
                "url",
                "elicitation/create",
                json!({"mode": "url", "url": "https://example.com", "message": "m", "elicitationId": "e"}),
            ),
            ask("form", "elicitation/create", form.clone()),
            ask(
                "bad",
                "elicitation/create",
                json!({"mode": "form", "message": 7}),
            ),
            json!({"jsonrpc": "2.0", "id": "none", "method": "elicitation/create"}),
            answer(message, &text("done")),
        ]),
        _ => None,
    };
    let answers = RefCell::new(HashMap::new());
    let person = Person::default();
    let answers_of = Arc::new(std::sync::Mutex::new(HashMap::new()));
    let keep = answers_of.clone();
    let spy = move |method: &str, message: &Value, count: usize| {
        if method == "answer" {
            let code = message["error"]["code"].as_i64().unwrap_or(0);
            let id = message["id"].as_str().unwrap().to_owned();
            keep.lock().unwrap().insert(id, code);
        }
        lie(method, message, count)
    };
    let (got, _) = against(&spy, async |io| {
        let client = TaskClient::connect(person.clone(), io).await.unwrap();
        let result = client.call_tool(call("slow")).await;
        // The answers are on their way.
        tokio::time::sleep(Duration::from_secs(1)).await;
        result
    })
    .await;
    assert_eq!(text_of(&got.unwrap()), "done");
    answers
        .borrow_mut()
        .extend(answers_of.lock().unwrap().drain());
    let answers = answers.into_inner();
    for (id, code) in [
        ("sampling", -32601),
        ("roots", -32601),
        ("unknown", -32601),
        ("url", -32602),
    ] {
        assert_eq!(answers.get(id), Some(&code), "{answers:?}");
    }
    // The task had ended before a person could have been asked the rest; whatever was answered is no panic.
    assert!(person.asked() <= 1);
}

#[tokio::test(start_paused = true)]
async fn the_same_question_without_end_ends_the_call() {
    for key in [None, Some("k")] {
        let endless = move |method: &str, message: &Value, count: usize| match method {
            "tasks/get" => Some(vec![answer(message, &task("input_required"))]),
            "tasks/result" | "answer" => {
                Some(vec![question(json!(format!("{method}{count}")), key)])
            }
            _ => None,
        };
        let person = Person::default();
        let (got, counts) = against(&endless, async |io| {
            let client = TaskClient::connect(person.clone(), io).await.unwrap();
            client.call_tool(call("slow")).await
        })
        .await;
        let error = got.unwrap_err();
        assert!(
            is(&error, "protocol") && error.to_string().contains("again and again"),
            "{error}"
        );
        assert!(counts["answer"] <= 1010, "{counts:?}");
        match key {
            Some(_) => assert_eq!(person.asked(), 1),
            None => assert!(person.asked() <= 1000),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lists_without_end_and_tasks_that_are_others_are_refused() {
    let pages = |method: &str, message: &Value, count: usize| {
        (method == "tasks/list").then(|| {
            let page = json!({"tasks": vec![task("working"); 10], "nextCursor": count.to_string()});
            vec![answer(message, &page)]
        })
    };
    let (got, counts) = against(&pages, async |io| {
        TaskClient::connect((), io)
            .await
            .unwrap()
            .list_tasks()
            .await
    })
    .await;
    assert!(is(&got.unwrap_err(), "protocol"));
    assert_eq!(counts["tasks/list"], 1000);
    let (got, counts) = against(&pages, async |io| {
        let builder = TaskClient::builder(()).max_message_size(100_000);
        builder.connect(io).await.unwrap().list_tasks().await
    })
    .await;
    assert!(is(&got.unwrap_err(), "too large"));
    assert!(counts["tasks/list"] < 100, "{counts:?}");

    let others = |method: &str, message: &Value, _: usize| {
        matches!(method, "tasks/get" | "tasks/cancel")
            .then(|| vec![answer(message, &other("working"))])
    };
    let (got, _) = against(&others, async |io| {
        let client = TaskClient::connect((), io).await.unwrap();
        let task = client.task("T");
        [
            task.get().await.unwrap_err(),
            task.cancel().await.unwrap_err(),
        ]
    })
    .await;
    assert!(got.iter().all(|error| is(error, "protocol")), "{got:?}");
}

/// The most memory that this process ever had, in KiB.
fn most_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

const MEGABYTE: usize = 1 << 20;

#[tokio::test]
async fn a_hundred_megabytes_are_not_kept() {
    let before = most_memory();
    let chunk = bytes::Bytes::from(vec![b'x'; MEGABYTE]);
    let head = r#"{"jsonrpc":"2.0","result":{"content":[{"type":"text","text":""#;
    let tail = |id: &Value| format!(r#""}}]}},"id":{id}}}"#);

    // Over lines: the id comes last, and what comes after it is read.
    let (mut script, io) = Script::pair();
    let server = async {
        script.until_created().await;
        script.serve("tasks/get", task("completed")).await;
        let request = script.expect("tasks/result").await;
        script.raw(head.as_bytes()).await;
        for _ in 0..100 {
            script.raw(&chunk).await;
        }
        script.raw(tail(&request["id"]).as_bytes()).await;
        // A question of that size is refused.
        script
            .raw(
                br#"
{"jsonrpc":"2.0","id":"big","method":"elicitation/create","params":{"message":""#,
            )
            .await;
        for _ in 0..2 {
            script.raw(&chunk).await;
        }
        script.raw(b"\"}}\n").await;
        let mut refused = 0;
        while let Some(message) = script.next().await {
            if message["method"] == "tasks/get" {
                script.send(answer(&message, &task("working"))).await;
            } else {
                assert_eq!(
                    (&message["id"], &message["error"]["code"]),
                    (&json!("big"), &json!(-32601))
                );
                refused += 1;
            }
        }
        assert_eq!(refused, 1);
    };
    let client = async {
        let builder = TaskClient::builder(Person::default()).max_message_size(MEGABYTE);
        let client = builder.connect(io).await.unwrap();
        let error = client.call_tool(call("slow")).await.unwrap_err();
        assert!(
            matches!(error, TaskClientError::TooLarge { limit: MEGABYTE }),
            "{error}"
        );
        client.task("T").get().await.unwrap();
    };
    play(server, client).await;

    // Over HTTP, as JSON and as an event.
    let mut script = HttpScript::start().await;
    let url = script.url();
    let server = async {
        script.handshake().await;
        script.gets.recv().await.unwrap().status(405);
        script.serve("tools/list", tools()).await;
        for (kind, start) in [("application/json", ""), ("text/event-stream", "data: ")] {
            let created = json!({"task": task("working")});
            script.serve("tools/call", created).await;
            script.serve("tasks/get", task("completed")).await;
            let request = script.expect("tasks/result").await;
            let id = request.body["id"].clone();
            let begin = bytes::Bytes::from(format!("{start}{head}"));
            let end = bytes::Bytes::from(format!("{}\n\n", tail(&id)));
            let parts = std::iter::once(begin)
                .chain(std::iter::repeat_n(chunk.clone(), 100))
                .chain(std::iter::once(end))
                .map(Ok::<_, std::io::Error>);
            let body = Body::from_stream(futures_util::stream::iter(parts));
            request.reply(
                Response::builder()
                    .header("content-type", kind)
                    .body(body)
                    .unwrap(),
            );
        }
        script.serve("tools/call", text("still there")).await;
    };
    let client = async {
        let builder = TaskClient::builder(()).max_message_size(MEGABYTE);
        let client = builder.http(url).await.unwrap();
        for _ in 0..2 {
            let error = client.call_tool(call("slow")).await.unwrap_err();
            assert!(
                matches!(error, TaskClientError::TooLarge { limit: MEGABYTE }),
                "{error}"
            );
        }
        let result = client.call_tool(call("plain")).await.unwrap();
        assert_eq!(text_of(&result), "still there");
    };
    play(server, client).await;
    if let (Some(before), Some(after)) = (before, most_memory()) {
        assert!(
            after - before < 64 << 10,
            "{before} KiB grew to {after} KiB"
        );
    }
}

#[tokio::test]
async fn over_http_lies_end_in_typed_errors_too() {
    type One = fn(Exchange);
    let cases: &[(&str, One, &str)] = &[
        (
            "another id, as JSON",
            |request| {
                request.json(&json!({"jsonrpc": "2.0", "id": "tc:1", "result": task("working")}));
            },
            "protocol",
        ),
        (
            "accepted, and nothing else",
            |request| request.status(202),
            "protocol",
        ),
        ("nothing at all", |request| request.status(204), "protocol"),
        (
            "a page",
            |request| {
                let page = Response::builder().header("content-type", "text/html");
                request.reply(page.body(Body::from("<p>")).unwrap());
            },
            "protocol",
        ),
        (
            "not even JSON",
            |request| {
                let page = Response::builder().header("content-type", "application/json");
                request.reply(page.body(Body::from("{{{")).unwrap());
            },
            "protocol",
        ),
        (
            "another task",
            |request| request.result(&other("working")),
            "protocol",
        ),
        (
            "broken streams for ever",
            |request| drop(request.stream()),
            "deadline",
        ),
        (
            "another id on the stream, for ever",
            |request| {
                let stray =
                    event(&json!({"jsonrpc": "2.0", "id": "tc:1", "result": task("working")}));
                let _ = request.stream().send(format!("retry: 0\n{stray}"));
            },
            "deadline",
        ),
        (
            "a stream to be taken up again, for ever",
            |request| {
                let noise = event(
                    &json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}),
                );
                let _ = request.stream().send(format!("retry: 0\nid: 1\n{noise}"));
            },
            "deadline",
        ),
    ];
    for (name, lie, kind) in cases {
        let mut script = HttpScript::start().await;
        let url = script.url();
        let mut count = 0;
        let server = async {
            script.handshake().await;
            script.serve("tools/list", tools()).await;
            script
                .serve("tools/call", json!({"task": task("working")}))
                .await;
            loop {
                // Streams that are taken up again come with GET.
                let request = tokio::select! {
                    request = script.posts.recv() => request,
                    request = script.gets.recv() => request,
                };
                let Some(request) = request else { return };
                match request.body["method"].as_str() {
                    None if request.method == "DELETE" => return request.status(200),
                    None if request.header("last-event-id").is_none() => request.status(405),
                    _ => {
                        count += 1;
                        lie(request);
                    }
                }
            }
        };
        let client = async {
            let client = TaskClient::http((), url).await.unwrap();
            let options = CallOptions::new().deadline(Duration::from_secs(2));
            let error = client
                .call_tool_with(call("slow"), options)
                .await
                .unwrap_err();
            assert!(is(&error, kind), "{name}: {error}");
            client.close().await;
        };
        play(server, client).await;
        assert!(count <= 25, "{name}: {count} requests in two seconds");
    }
}

// B10: whatever else is wrong with a handle, its id is kept, and the task can be cancelled.
#[tokio::test]
async fn the_id_of_a_handle_is_kept_whatever_the_rest() {
    let odd = || {
        json!({
            "task": {"taskId": "T", "status": "queued", "createdAt": 7, "ttl": [], "pollInterval": "soon"},
            "content": {"not": "a list"}, "isError": "maybe", "_meta": 7,
        })
    };
    let drive = async |client: Result<TaskClient, TaskClientError>| {
        let client = client.unwrap();
        let made = client.call_tool_task(call("slow"), CallOptions::new());
        let task = made.await.unwrap();
        assert_eq!(task.id(), "T");
        assert_eq!(task.cancel().await.unwrap().status.to_string(), "cancelled");
        // And it is followed.
        let result = client.call_tool(call("slow")).await.unwrap();
        assert_eq!(text_of(&result), "done");
    };

    let (mut script, io) = Script::pair();
    let server = async {
        script.handshake(with_tasks()).await;
        script.serve("tools/list", tools()).await;
        script.serve("tools/call", odd()).await;
        script.serve("tasks/cancel", task("cancelled")).await;
        script.serve("tools/call", odd()).await;
        script.serve("tasks/get", task("completed")).await;
        script.serve("tasks/result", text("done")).await;
    };
    let client = async { drive(TaskClient::connect((), io).await).await };
    play(server, client).await;

    let mut script = HttpScript::start().await;
    let url = script.url();
    let server = async {
        script.handshake().await;
        script.gets.recv().await.unwrap().status(405);
        script.serve("tools/list", tools()).await;
        script.serve("tools/call", odd()).await;
        script.serve("tasks/cancel", task("cancelled")).await;
        script.serve("tools/call", odd()).await;
        script.serve("tasks/get", task("completed")).await;
        script.serve("tasks/result", text("done")).await;
    };
    let client = async { drive(TaskClient::http((), url).await).await };
    play(server, client).await;
}

#[tokio::test(start_paused = true)]
async fn a_handshake_of_lies_ends_in_a_typed_error_or_without_tasks() {
    for (hello, connects) in [
        (json!(7), false),
        (json!({}), false),
        (
            json!({"protocolVersion": 7, "capabilities": [], "serverInfo": "me"}),
            false,
        ),
        (
            json!({"protocolVersion": "1999-01-01", "capabilities": with_tasks(),
            "serverInfo": {"name": "old", "version": "0"}}),
            true,
        ),
        (
            json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "tasks": 7},
            "serverInfo": {"name": "odd", "version": "0"}}),
            true,
        ),
        (
            json!({"protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}, "tasks": {"requests": {"tools": {"call": true}}}},
            "serverInfo": {"name": "odd", "version": "0"}}),
            true,
        ),
    ] {
        let told = hello.clone();
        let lie = move |method: &str, message: &Value, _: usize| {
            (method == "initialize").then(|| vec![answer(message, &told)])
        };
        let (got, _) = against(&lie, async |io| {
            TaskClient::connect((), io)
                .await
                .map(|client| client.supports_tasks())
        })
        .await;
        match got {
            Ok(tasks) => assert!(connects && !tasks, "{hello}"),
            Err(error) => assert!(
                !connects && matches!(error, TaskClientError::Initialize(_)),
                "{hello}: {error}"
            ),
        }
    }
}
