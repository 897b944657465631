//! Drives the binary over its pipes, and compares its source with the one before.

mod difference;

use std::{path::Path, process::Command};

use serde_json::{Value, json};
use testkit::{Client, Modern, Stdio};

fn server(dir: &Path) -> Stdio {
    Stdio::start(Command::new(env!("CARGO_BIN_EXE_counter-after")).current_dir(dir))
}

fn text(result: &Value) -> &str {
    match result["content"][0]["text"].as_str() {
        Some(text) => text,
        None => panic!("no text in {result}"),
    }
}

#[test]
fn called_plainly_it_is_what_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = server(dir.path());
    let told = client.initialize(json!({}));
    assert_eq!(
        told["capabilities"]["tasks"]["requests"],
        json!({"tools": {"call": {}}})
    );
    let listed = client.request("tools/list", json!({}));
    let support: Vec<_> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| (&tool["name"], &tool["execution"]["taskSupport"]))
        .collect();
    assert_eq!(
        support,
        [
            (&json!("count"), &json!("optional")),
            (&json!("value"), &Value::Null)
        ]
    );
    let mut steps = Vec::new();
    let call = json!({"name": "count", "arguments": {"steps": 2}, "_meta": {"progressToken": "p"}});
    let answer = client.exchange("tools/call", call, &mut |message| {
        steps.push(message["params"]["progress"].as_f64());
        None
    });
    assert_eq!(text(&answer["result"]), "counted to 2");
    assert_eq!(steps, [Some(1.0), Some(2.0)]);
    assert_eq!(text(&client.call("value", json!({}))), "2");
    assert!(client.close().success());
}

#[test]
fn both_generations_get_tasks_of_one_counter() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = server(dir.path());
    client.initialize(json!({}));
    let task = client.call_as_task("count", json!({"steps": 2}));
    let mut last = Value::Null;
    let answer = client.exchange("tasks/result", json!({"taskId": task}), &mut |message| {
        if message["method"] == "notifications/progress" {
            last = message["params"]["progress"].clone();
        }
        None
    });
    assert_eq!(text(&answer["result"]), "counted to 2");
    assert_eq!(last.as_f64(), Some(2.0));

    let mut client = Modern::with_tasks(client, json!({}));
    let task = client.call_as_task("count", json!({"steps": 1}));
    assert_eq!(text(&client.task_result(&task)), "counted to 3");

    // A client that does not ask for tasks gets none.
    let mut client = Modern::new(client.into_inner(), json!({}));
    let plain = client.call("count", json!({"steps": 1}));
    assert_eq!(plain["resultType"], "complete");
    assert_eq!(text(&plain), "counted to 4");
    assert!(client.into_inner().close().success());
}

#[test]
fn the_result_outlives_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = server(dir.path());
    client.initialize(json!({}));
    let task = client.call_as_task("count", json!({"steps": 1}));
    assert_eq!(text(&client.task_result(&task)), "counted to 1");
    client.kill();

    let mut client = server(dir.path());
    client.initialize(json!({}));
    assert_eq!(text(&client.task_result(&task)), "counted to 1");
    assert!(client.close().success());
}
