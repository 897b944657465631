//! Nothing that comes from outside ends the server, or is answered twice.

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use serde_json::{Value, json};

use crate::{
    once::{capabilities, meta},
    support::{Greeter, pipe::Pipe},
    tools::{self, Gates},
};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        Just(json!("tasks/get")),
        Just(json!("2026-07-28")),
        Just(json!("2025-11-25")),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((any_name(), inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn any_name() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "taskId",
        "task",
        "ttl",
        "name",
        "arguments",
        "_meta",
        "inputResponses",
        "requestState",
        "notifications",
        "taskIds",
        "toolsListChanged",
        "requestId",
        "cursor",
        "level",
        "progressToken",
        "action",
        "content",
        "capabilities",
        "protocolVersion",
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientCapabilities",
        "io.modelcontextprotocol/related-task",
        "x",
    ])
    .prop_map(str::to_owned)
}

fn any_method() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "tasks/get",
        "tasks/result",
        "tasks/list",
        "tasks/cancel",
        "tasks/update",
        "tools/call",
        "tools/list",
        "server/discover",
        "subscriptions/listen",
        "logging/setLevel",
        "notifications/cancelled",
        "notifications/progress",
        "notifications/tasks/status",
        "nonsense",
        "",
    ])
    .prop_map(str::to_owned)
}

/// A message that is nearly right: of either generation, with some of it replaced.
fn any_message() -> impl Strategy<Value = Value> {
    let tool = prop::sample::select(vec!["echo", "ask_two", "square", "staged", "greet", "none"]);
    (any_method(), tool, any_json(), 0..6_u8).prop_map(|(method, tool, junk, kind)| {
        let mut params = json!({"taskId": "nope", "name": tool, "arguments": {}});
        match kind {
            0 => params = junk,
            1 => params["_meta"] = junk,
            2 => params["arguments"] = junk,
            3 => params["task"] = junk,
            4 => {
                params["_meta"] = meta(&capabilities(true));
                params["inputResponses"] = junk.clone();
                params["requestState"] = junk.clone();
                params["notifications"] = junk;
            }
            _ => {
                params["_meta"] = meta(&junk);
            }
        }
        json!({"jsonrpc": "2.0", "method": method, "params": params})
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_comes_the_server_goes_on() {
    let tasks = tools::all(&Gates::default()).build().unwrap();
    let (mut pipe, _) = Pipe::at("2025-11-25", &tasks, Greeter).await;
    let mut runner = TestRunner::default();
    let (messages, junk) = (any_message(), any_json());
    let mut answered = std::collections::HashSet::new();
    for round in 0..40 {
        for number in 0..25 {
            let mut message = messages.new_tree(&mut runner).unwrap().current();
            let is_note = message["method"]
                .as_str()
                .unwrap()
                .starts_with("notifications/");
            if !is_note {
                message["id"] = json!(format!("r{round}.{number}"));
            }
            pipe.send(&message).await;
            if number % 5 == 0 {
                // Not even a message.
                let value = junk.new_tree(&mut runner).unwrap().current();
                pipe.send(&value).await;
                let text = value.to_string();
                let half = text.char_indices().nth(text.chars().count() / 2);
                let half = &text[..half.map_or(0, |(at, _)| at)];
                pipe.raw(format!("{half}\n").as_bytes()).await;
            }
        }
        for seen in pipe.fence().await {
            if let (Some(id), None) = (seen["id"].as_str(), seen.get("method")) {
                assert!(answered.insert(id.to_owned()), "answered twice: {seen}");
            }
        }
    }
    assert!(
        answered.len() > 300,
        "most are answered: {}",
        answered.len()
    );
    let task = pipe.create("echo", json!({"text": "still here"})).await;
    let ended = pipe
        .request("tasks/result", json!({"taskId": task["taskId"]}))
        .await;
    assert_eq!(crate::support::text(&ended["result"]), "still here");
}
