//! Drives the binary over its pipes.

use std::{path::Path, process::Command};

use serde_json::{Value, json};
use testkit::{Client, Stdio};

fn server(store: &Path) -> Stdio {
    Stdio::start(Command::new(env!("CARGO_BIN_EXE_stdio-server")).arg(store))
}

#[test]
fn plain_tools_and_plain_calls_of_task_tools() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = server(&dir.path().join("tasks.db"));
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
            (&json!("frames"), &Value::Null),
            (&json!("render"), &json!("optional"))
        ]
    );
    let frames = client.call("frames", json!({"seconds": 2}));
    assert_eq!(frames["content"][0]["text"], "48");
    let film = client.call("render", json!({"frames": 2}));
    assert_eq!(
        film["content"][0]["text"],
        "rendered 2 frames, 0 of them earlier"
    );
    assert!(client.close().success());
}

#[test]
fn a_client_that_comes_back_gets_the_result_of_an_interrupted_task() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("tasks.db");
    let mut client = server(&store);
    client.initialize(json!({}));
    let task = client.call_as_task("render", json!({"frames": 50}));
    client.read_until(|message| message["method"] == "notifications/progress");
    assert!(client.close().success());

    let mut client = server(&store);
    client.initialize(json!({}));
    let film = client.task_result(&task);
    let text = film["content"][0]["text"].as_str().unwrap();
    let earlier: u32 = text
        .strip_prefix("rendered 50 frames, ")
        .and_then(|rest| rest.split(' ').next())
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{text}"));
    assert!((1..50).contains(&earlier), "{text}");
    assert!(client.close().success());
}
