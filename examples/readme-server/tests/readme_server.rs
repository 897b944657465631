//! Drives the binary over its pipes.

use std::process::Command;

use serde_json::json;
use testkit::{Client, Stdio};

#[test]
fn it_counts() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_readme-server"));
    let mut client = Stdio::start(server.current_dir(dir.path()));
    client.initialize(json!({}));
    let task = client.call_as_task("count", json!({"to": 3}));
    let mut steps = Vec::new();
    let answer = client.exchange("tasks/result", json!({"taskId": task}), &mut |message| {
        if message["method"] == "notifications/progress" {
            steps.push(message["params"]["progress"].clone());
        }
        None
    });
    assert_eq!(answer["result"]["content"][0]["text"], "counted to 3");
    assert_eq!(steps, [1, 2, 3]);
    assert!(client.close().success());
}
