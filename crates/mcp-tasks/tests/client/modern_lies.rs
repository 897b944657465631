//! Servers of 2026-07-28 that lie: a typed error, bounded memory, no panic, no busy loop.

use std::{cell::RefCell, collections::HashMap, time::Duration};

use mcp_tasks::client::{CallOptions, TaskClient, TaskClientError};
use rmcp::model::CallToolResult;
use serde_json::{Value, json};
use tokio::io::{DuplexStream, ReadHalf, WriteHalf};

use crate::{Person, call, lines::play, script::*};

/// What a liar sends when it gets this message, the nth of its method; `None` for what an honest server would.
type Lie = dyn Fn(&str, &Value, usize) -> Option<Vec<Value>>;

async fn liar(mut script: Script, lie: &Lie) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    while let Some(message) = script.next().await {
        let method = message["method"].as_str().unwrap_or("answer").to_owned();
        let count: &mut usize = counts.entry(method.clone()).or_default();
        *count += 1;
        let honest = || match &*method {
            "server/discover" => vec![answer(&message, &discovered())],
            "tools/call" => vec![answer(&message, &handle())],
            "tasks/get" => vec![answer(&message, &handle())],
            "tasks/update" | "tasks/cancel" => {
                vec![answer(&message, &json!({"resultType": "complete"}))]
            }
            "subscriptions/listen" => vec![refusal(&message, -32601, "no")],
            _ => Vec::new(),
        };
        for message in lie(&method, &message, *count).unwrap_or_else(honest) {
            if script.try_send(&message).await.is_err() {
                return counts;
            }
        }
    }
    counts
}

type Io = (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>);

async fn against<T>(lie: &Lie, client: impl AsyncFnOnce(Io) -> T) -> (T, HashMap<String, usize>) {
    let (script, io) = Script::modern_pair();
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
    let mut other = completed("stray");
    other["status"] = json!(status);
    other["taskId"] = json!("U");
    other
}

#[tokio::test(start_paused = true)]
async fn lies_end_in_typed_errors_after_few_requests() {
    type One = fn(&str, &Value, usize) -> Option<Vec<Value>>;
    macro_rules! polls {
        ($told:expr) => {
            |method, message, _| (method == "tasks/get").then(|| vec![answer(message, &$told)])
        };
    }
    let cases: &[(&str, One, &str, usize)] = &[
        (
            "polls tell of another task",
            polls!(other("working")),
            "protocol",
            4,
        ),
        (
            "the end of another task",
            polls!(other("completed")),
            "protocol",
            4,
        ),
        (
            "the result is another task's",
            polls!({
                let mut result = text("stray");
                result["_meta"] = json!({RELATED: {"taskId": "U"}});
                detailed("completed", json!({"result": result}))
            }),
            "protocol",
            4,
        ),
        (
            "a status that is none",
            polls!(detailed("paused", json!({}))),
            "protocol",
            4,
        ),
        ("no status", polls!(json!({"taskId": "T"})), "protocol", 4),
        ("no id", polls!(json!({"status": "working"})), "protocol", 4),
        ("a number", polls!(json!(7)), "protocol", 4),
        (
            "completed without a result",
            polls!(detailed("completed", json!({}))),
            "protocol",
            4,
        ),
        (
            "a result that is a list",
            polls!(detailed("completed", json!({"result": []}))),
            "protocol",
            4,
        ),
        (
            "a result that wants input",
            polls!(detailed(
                "completed",
                json!({"result": {"resultType": "input_required"}})
            )),
            "protocol",
            4,
        ),
        (
            "an error that is a text",
            polls!(detailed("failed", json!({"error": "no"}))),
            "rpc",
            4,
        ),
        (
            "questions that are a list",
            polls!(detailed("input_required", json!({"inputRequests": [1]}))),
            "protocol",
            4,
        ),
        (
            "a question that is a number",
            polls!(detailed(
                "input_required",
                json!({"inputRequests": {"a": 1}})
            )),
            "protocol",
            4,
        ),
        (
            "it wants input and asks nothing",
            polls!(detailed("input_required", json!({}))),
            "deadline",
            3100,
        ),
        (
            "ten thousand questions",
            polls!({
                let keys: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
                asking(&keys.iter().map(|key| &**key).collect::<Vec<_>>())
            }),
            "protocol",
            4,
        ),
        (
            "a key of a megabyte",
            polls!(asking(&[&"k".repeat(1 << 20)])),
            "protocol",
            4,
        ),
        (
            "new questions without end",
            |method, message, count| {
                (method == "tasks/get")
                    .then(|| vec![answer(message, &asking(&[&count.to_string()]))])
            },
            "protocol",
            2100,
        ),
        (
            "the same question without end",
            polls!(asking(&["a"])),
            "deadline",
            3300,
        ),
        (
            "an answer that is never taken",
            |method, message, _| match method {
                "tasks/get" => Some(vec![answer(message, &asking(&["a"]))]),
                "tasks/update" => Some(vec![refusal(message, -32603, "no")]),
                _ => None,
            },
            "rpc",
            300,
        ),
        (
            "an update that becomes a task",
            |method, message, _| match method {
                "tasks/get" => Some(vec![answer(message, &asking(&["a"]))]),
                "tasks/update" => Some(vec![answer(message, &handle())]),
                _ => None,
            },
            "protocol",
            6,
        ),
        (
            "errors without end",
            |method, message, _| {
                (method == "tasks/get").then(|| vec![refusal(message, -32603, "no")])
            },
            "rpc",
            12,
        ),
        (
            "it forgets what was declared",
            |method, message, _| {
                (method == "tasks/get").then(|| vec![refusal(message, -32003, "no tasks")])
            },
            "rpc",
            4,
        ),
        (
            "the handle has no id",
            |method, message, _| {
                (method == "tools/call").then(|| {
                    vec![answer(
                        message,
                        &json!({"resultType": "task", "taskId": ""}),
                    )]
                })
            },
            "protocol",
            2,
        ),
        (
            "a result and an error",
            |method, message, _| {
                (method == "tasks/get").then(|| {
                    let mut both = answer(message, &handle());
                    both["error"] = json!({"code": 1, "message": "and"});
                    vec![both]
                })
            },
            "protocol",
            4,
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
            let mut task = handle();
            task["pollIntervalMs"] = interval.clone();
            matches!(method, "tasks/get" | "tools/call").then(|| vec![answer(message, &task)])
        };
        let (got, counts) = against(&odd, one_call).await;
        assert!(is(&got.unwrap_err(), "deadline"));
        assert!(
            counts.get("tasks/get").is_none_or(|count| *count <= most),
            "{counts:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn announcements_without_end_make_no_requests_without_end() {
    let flood = |method: &str, message: &Value, count: usize| {
        let id = json!("tc:3");
        let note = |mut params: Value| {
            params["_meta"] = json!({ SUBSCRIPTION: id });
            json!({"jsonrpc": "2.0", "method": "notifications/tasks", "params": params})
        };
        match method {
            "subscriptions/listen" => Some(vec![json!({"jsonrpc": "2.0",
                "method": "notifications/subscriptions/acknowledged",
                "params": {"_meta": {SUBSCRIPTION: message["id"]}, "notifications": {"taskIds": ["T"]}}})]),
            "tasks/get" => {
                let mut messages = vec![answer(message, &handle())];
                for n in 0..100 {
                    let status = json!({"statusMessage": format!("{count} {n}")});
                    messages.push(note(detailed("working", status)));
                    messages.push(note(asking(&["a"])));
                    messages.push(note(detailed(
                        "cancelled",
                        json!({"lastUpdatedAt": "2020-01-01T00:00:00Z"}),
                    )));
                }
                Some(messages)
            }
            _ => None,
        }
    };
    let (got, counts) = against(&flood, async |io| {
        let client = TaskClient::connect(Person::default(), io).await.unwrap();
        let options = CallOptions::new().deadline(Duration::from_secs(20));
        client.call_tool_with(call("slow"), options).await
    })
    .await;
    assert!(is(&got.unwrap_err(), "deadline"));
    assert!(
        counts["tasks/get"] <= 110 && counts["subscriptions/listen"] == 1,
        "{counts:?}"
    );
    assert!(
        counts.get("tasks/update").is_none_or(|n| *n <= 110),
        "{counts:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn subscriptions_that_end_at_once_are_not_begun_without_end() {
    let short = |method: &str, message: &Value, _: usize| {
        (method == "subscriptions/listen").then(|| {
            let id = &message["id"];
            vec![
                json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                    "params": {"_meta": {SUBSCRIPTION: id}, "notifications": {"taskIds": ["T"]}}}),
                answer(message, &json!({"resultType": "complete"})),
            ]
        })
    };
    let (got, counts) = against(&short, one_call).await;
    assert!(is(&got.unwrap_err(), "deadline"));
    assert!(counts["subscriptions/listen"] <= 25, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_too_large_is_not_kept() {
    let big = |method: &str, message: &Value, _: usize| {
        (method == "tasks/get").then(|| vec![answer(message, &completed(&"x".repeat(200_000)))])
    };
    let (got, _) = against(&big, async |io| {
        let builder = TaskClient::builder(()).max_message_size(100_000);
        let client = builder.connect(io).await.unwrap();
        client.call_tool(call("slow")).await
    })
    .await;
    assert!(is(&got.unwrap_err(), "too large"));
}
