//! Drives the binary over HTTP.

use std::process::Command;

use serde_json::json;
use testkit::{Client, HttpServer};

fn server() -> HttpServer {
    HttpServer::start(Command::new(env!("CARGO_BIN_EXE_http-server")).arg("127.0.0.1:0"))
}

#[test]
fn a_task_asks_on_the_stream_that_waits_for_its_result() {
    let server = server();
    let mut client = server.client();
    client.initialize(json!({"elicitation": {}}));
    let task = client.call_as_task("book", json!({"city": "Ulm"}));
    let mut asked = Vec::new();
    let answer = client.exchange("tasks/result", json!({"taskId": task}), &mut |message| {
        (message["method"] == "elicitation/create").then(|| {
            asked.push(message["params"]["message"].clone());
            json!({"action": "accept", "content": {"class": 2}})
        })
    });
    assert_eq!(asked, ["There are seats to Ulm. Which class?"]);
    let text = &answer["result"]["content"][0]["text"];
    assert_eq!(text, "Booked to Ulm, class 2.", "{answer}");
    // Reads are repeatable, and the id is all that another session needs.
    let mut other = server.client();
    other.initialize(json!({}));
    assert_eq!(&other.task_result(&task)["content"][0]["text"], text);
    // Nobody can list what belongs to nobody.
    let listed = other.request("tasks/list", json!({}));
    assert_eq!(listed["error"]["code"], -32601, "{listed}");
}

#[test]
fn the_inner_server_is_still_there() {
    let server = server();
    let mut client = server.client();
    client.initialize(json!({}));
    let told = client.call("serves", json!({"city": "Ulm"}));
    assert_eq!(told["content"][0]["text"], "We go to Ulm.");
}

#[test]
fn a_question_that_nobody_can_answer_fails_the_task() {
    let server = server();
    let mut client = server.client();
    client.initialize(json!({}));
    let task = client.call_as_task("book", json!({"city": "Ulm"}));
    let answer = client.request("tasks/result", json!({"taskId": task}));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("elicitation"), "{answer}");
}
