//! Drives the binary over HTTP, as two users.

use std::process::Command;

use serde_json::{Value, json};
use testkit::{Client, Http, HttpServer};

fn server() -> HttpServer {
    HttpServer::start(Command::new(env!("CARGO_BIN_EXE_http-server-auth")).arg("127.0.0.1:0"))
}

fn user(server: &HttpServer, token: &str) -> Http {
    let mut client = server.client().bearer(token);
    client.initialize(json!({}));
    client
}

fn listed(client: &mut Http) -> Vec<Value> {
    let page = client.request("tasks/list", json!({}));
    let tasks = page["result"]["tasks"].as_array();
    let ids = tasks.unwrap_or_else(|| panic!("{page}")).iter();
    ids.map(|task| task["taskId"].clone()).collect()
}

#[test]
fn two_users_cannot_tell_that_each_others_tasks_exist() {
    let server = server();
    let (mut alice, mut bob) = (user(&server, "alice-secret"), user(&server, "bob-secret"));
    let task = alice.call_as_task("report", json!({"about": "Ulm"}));
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let foreign = bob.request(method, json!({"taskId": task}));
        let unknown = bob.request(method, json!({"taskId": "no-such-task"}));
        assert_eq!(foreign["error"]["code"], -32602, "{method}: {foreign}");
        assert_eq!(foreign["error"], unknown["error"], "{method}");
    }
    assert!(listed(&mut bob).is_empty());
    let text = &alice.task_result(&task)["content"][0]["text"];
    assert_eq!(text, "All about Ulm, for alice only.");
    // A task belongs to the user, not to the session that made it.
    let mut again = user(&server, "alice-secret");
    assert_eq!(listed(&mut again), [json!(task)]);
    assert_eq!(&again.task_result(&task)["content"][0]["text"], text);
}

#[test]
fn without_a_known_token_there_is_nothing() {
    let server = server();
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(server.client().status_of(&ping), 401);
    assert_eq!(server.client().bearer("guessed").status_of(&ping), 401);
}
