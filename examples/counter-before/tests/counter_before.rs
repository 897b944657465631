//! Drives the binary over its pipes.

use std::process::Command;

use serde_json::json;
use testkit::{Client, Stdio};

#[test]
fn it_counts_and_knows_no_tasks() {
    let mut client = Stdio::start(&mut Command::new(env!("CARGO_BIN_EXE_counter-before")));
    let told = client.initialize(json!({}));
    assert_eq!(told["capabilities"]["tasks"], json!(null));
    let mut steps = Vec::new();
    let call = json!({"name": "count", "arguments": {"steps": 2}, "_meta": {"progressToken": "p"}});
    let answer = client.exchange("tools/call", call, &mut |message| {
        steps.push(message["params"]["progress"].as_f64());
        None
    });
    assert_eq!(answer["result"]["content"][0]["text"], "counted to 2");
    assert_eq!(steps, [Some(1.0), Some(2.0)]);
    let value = client.call("value", json!({}));
    assert_eq!(value["content"][0]["text"], "2");
    assert!(client.close().success());
}
