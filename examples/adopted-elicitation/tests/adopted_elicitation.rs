//! Drives the binary over its pipes, as clients that are asked in different ways.

use std::process::Command;

use serde_json::{Value, json};
use testkit::{Client, Modern, Stdio};

fn server() -> Stdio {
    Stdio::start(&mut Command::new(env!("CARGO_BIN_EXE_adopted-elicitation")))
}

/// What the client can be asked.
fn forms() -> Value {
    json!({"elicitation": {"form": {}}})
}

fn ada() -> Value {
    json!({"action": "accept", "content": {"name": "Ada"}})
}

fn two() -> Value {
    json!({"people": 2})
}

fn check_question(params: &Value) {
    assert_eq!(params["message"], "A table for 2: in whose name?");
    let name = &params["requestedSchema"]["properties"]["name"];
    assert_eq!(name["type"], "string", "{params}");
}

fn said(result: &Value) -> (bool, &Value) {
    (result["isError"] == true, &result["content"][0]["text"])
}

/// An exchange whose answer comes after one question, which is answered like this.
fn asked(client: &mut Stdio, method: &str, params: Value, reply: &Value) -> Value {
    let mut questions = 0;
    let answer = client.exchange(method, params, &mut |message| {
        (message["method"] == "elicitation/create").then(|| {
            check_question(&message["params"]);
            questions += 1;
            reply.clone()
        })
    });
    assert_eq!(questions, 1, "{answer}");
    answer["result"].clone()
}

#[test]
fn a_task_of_2025_11_25_asks_on_its_result() {
    let mut client = server();
    client.initialize(forms());
    let booked = json!("Ada has a table for 2");
    let task = client.call_as_task("book", two());
    let result = asked(&mut client, "tasks/result", json!({"taskId": task}), &ada());
    assert_eq!(said(&result), (false, &booked));
    // Again: the answer is kept, nobody is asked twice.
    assert_eq!(said(&client.task_result(&task)), (false, &booked));

    let task = client.call_as_task("book", two());
    let no = json!({"action": "decline"});
    let result = asked(&mut client, "tasks/result", json!({"taskId": task}), &no);
    assert_eq!(said(&result), (true, &json!("no table was booked")));

    let call = json!({"name": "book", "arguments": two()});
    let result = asked(&mut client, "tools/call", call, &ada());
    assert_eq!(said(&result), (false, &booked));
    assert!(client.close().success());
}

#[test]
fn a_task_of_2026_07_28_is_answered_by_update() {
    let mut client = Modern::with_tasks(server(), forms());
    let task = client.call_as_task("book", two());
    let open = client.poll_until(&task, |task| task["status"] == "input_required");
    let (key, request) = open["inputRequests"]
        .as_object()
        .and_then(|requests| requests.iter().next())
        .unwrap_or_else(|| panic!("no question in {open}"));
    assert_eq!(request["method"], "elicitation/create");
    check_question(&request["params"]);
    let mut responses = json!({});
    responses[key] = ada();
    let update = json!({"taskId": task, "inputResponses": responses});
    let taken = client.request("tasks/update", update);
    assert_eq!(taken["result"]["resultType"], "complete", "{taken}");
    let booked = json!("Ada has a table for 2");
    assert_eq!(said(&client.task_result(&task)), (false, &booked));
    assert!(client.into_inner().close().success());
}

#[test]
fn without_the_extension_the_question_is_an_answer() {
    let mut client = Modern::new(server(), forms());
    let call = json!({"name": "book", "arguments": two()});
    let answer = client.request("tools/call", call.clone())["result"].clone();
    assert_eq!(answer["resultType"], "input_required", "{answer}");
    let mut retry = call;
    retry["requestState"] = answer["requestState"].clone();
    for (key, request) in answer["inputRequests"].as_object().unwrap() {
        check_question(&request["params"]);
        retry["inputResponses"][key] = ada();
    }
    let result = client.request("tools/call", retry)["result"].clone();
    assert_eq!(result["resultType"], "complete", "{result}");
    let booked = json!("Ada has a table for 2");
    assert_eq!(said(&result), (false, &booked));
    assert!(client.into_inner().close().success());
}

#[test]
fn who_cannot_be_asked_gets_the_tools_own_word_for_it() {
    let mut client = server();
    client.initialize(json!({}));
    let plain = client.call("book", two());
    let task = client.call_as_task("book", two());
    let result = client.task_result(&task);
    assert_eq!(said(&plain), said(&result));
    let text = plain["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("nobody could be asked: "), "{plain}");
    assert!(client.close().success());
}
