//! Drives the binary over HTTP, as two users: whichever way it is called, the tool sees who called it.

use std::process::Command;

use serde_json::{Value, json};
use testkit::{Client, HttpServer, Modern};

fn server() -> HttpServer {
    HttpServer::start(Command::new(env!("CARGO_BIN_EXE_adopted-auth")).arg("127.0.0.1:0"))
}

/// What a result says, without what belongs to its generation.
fn said(result: &Value) -> (bool, &str) {
    let text = result["content"][0]["text"].as_str();
    (
        result["isError"] == true,
        text.unwrap_or_else(|| panic!("no text in {result}")),
    )
}

/// The tool called in every way there is.
fn in_every_way(server: &HttpServer, token: &str) -> Vec<Value> {
    let http = || server.client().bearer(token);
    let folder = || json!({"folder": "maps"});
    let mut session = http();
    session.initialize(json!({}));
    let plain = session.call("export", folder());
    let task = session.call_as_task("export", folder());
    let of_task = session.task_result(&task);
    let mut modern = Modern::with_tasks(http(), json!({}));
    let task = modern.call_as_task("export", folder());
    let of_modern_task = modern.task_result(&task);
    let modern_plain = Modern::new(http(), json!({})).call("export", folder());
    vec![plain, of_task, modern_plain, of_modern_task]
}

#[test]
fn the_tool_sees_who_calls_as_a_task_and_plainly() {
    let server = server();
    for result in in_every_way(&server, "alice-secret") {
        assert_eq!(said(&result), (false, "maps was exported for alice"));
    }
    for result in in_every_way(&server, "bob-secret") {
        assert_eq!(said(&result), (true, "bob may not export"));
    }
}

#[test]
fn a_task_is_its_callers_alone() {
    let server = server();
    let (mut alice, mut bob) = (
        Modern::with_tasks(server.client().bearer("alice-secret"), json!({})),
        Modern::with_tasks(server.client().bearer("bob-secret"), json!({})),
    );
    let task = alice.call_as_task("export", json!({"folder": "maps"}));
    let foreign = bob.request("tasks/get", json!({"taskId": task}));
    let unknown = bob.request("tasks/get", json!({"taskId": "no-such-task"}));
    assert_eq!(foreign["error"]["code"], -32602, "{foreign}");
    assert_eq!(foreign["error"], unknown["error"]);
    let result = alice.task_result(&task);
    assert_eq!(said(&result), (false, "maps was exported for alice"));
    let stranger = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(server.client().status_of(&stranger), 401);
}
