//! What a task asks, over lines.

use std::{sync::Arc, time::Duration};

use mcp_tasks::client::{TaskClient, TaskClientError};
use serde_json::json;
use tokio::{sync::Notify, time::Instant};

use crate::{Person, call, lines::play, script::*, text_of};

// F-34, F-39
#[tokio::test(start_paused = true)]
async fn a_question_is_answered_on_tasks_result_however_its_id_looks() {
    let (mut script, io) = Script::pair();
    let person = Person::default();
    let server = async {
        script.until_created().await;
        script.serve("tasks/get", task("input_required")).await;
        let waiting = script.expect("tasks/result").await;
        // The question's id is that of the request that waits.
        script.send(question(waiting["id"].clone(), None)).await;
        let answered = script.expect_answer().await;
        assert_eq!(answered["id"], waiting["id"]);
        assert_eq!(answered["result"]["content"], json!({"name": 1}));
        assert_eq!(
            answered["result"]["_meta"],
            json!({"mine": true, RELATED: {"taskId": "T"}})
        );
        script.serve("tasks/get", task("working")).await;
        // The same again on the same stream is a new question.
        script.send(question(json!(0), None)).await;
        assert_eq!(
            script.expect_answer().await["result"]["content"],
            json!({"name": 2})
        );
        script.send(answer(&waiting, &text("done"))).await;
    };
    let client = async {
        let client = TaskClient::connect(person.clone(), io).await.unwrap();
        assert_eq!(
            text_of(&client.call_tool(call("slow")).await.unwrap()),
            "done"
        );
    };
    play(server, client).await;
    assert_eq!(person.asked(), 2);
}

// F-34
#[tokio::test(start_paused = true)]
async fn a_repeated_question_is_asked_once_and_a_slow_person_is_waited_for() {
    let (mut script, io) = Script::pair();
    let person = Person {
        thinks: Some(Arc::new(Notify::new())),
        ..Person::default()
    };
    let server = async {
        script.until_created().await;
        script.serve("tasks/get", task("input_required")).await;
        let waiting = script.expect("tasks/result").await;
        script.send(question(json!("q1"), Some("k"))).await;
        script.send(question(json!("q2"), Some("k"))).await;
        // Ten minutes of polls.
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(600) {
            script.serve("tasks/get", task("input_required")).await;
        }
        person.thinks.as_ref().unwrap().notify_one();
        let mut answers = Vec::new();
        while answers.len() < 2 {
            let message = script.next().await.unwrap();
            match message.get("method") {
                Some(_) => script.send(answer(&message, &task("input_required"))).await,
                None => answers.push(message["id"].clone()),
            }
        }
        assert_eq!(answers, ["q1", "q2"]);
        script.send(question(json!("q3"), Some("k"))).await;
        loop {
            let message = script.next().await.unwrap();
            match message.get("method") {
                Some(_) => script.send(answer(&message, &task("input_required"))).await,
                None => break assert_eq!(message["result"]["content"], json!({"name": 1})),
            }
        }
        script.send(answer(&waiting, &text("done"))).await;
    };
    let client = async {
        let client = TaskClient::connect(person.clone(), io).await.unwrap();
        assert_eq!(
            text_of(&client.call_tool(call("slow")).await.unwrap()),
            "done"
        );
    };
    play(server, client).await;
    assert_eq!(person.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_question_cancels_the_handler_and_gets_no_answer() {
    let (mut script, io) = Script::pair();
    let person = Person {
        thinks: Some(Arc::new(Notify::new())),
        ..Person::default()
    };
    let server = async {
        script.until_created().await;
        script.serve("tasks/get", task("input_required")).await;
        let waiting = script.expect("tasks/result").await;
        script.send(question(json!("q1"), Some("k"))).await;
        script.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "q1"}})).await;
        person.cancelled.notified().await;
        script
            .send(refusal(&waiting, -32800, "task was cancelled"))
            .await;
        script.serve("tasks/get", task("cancelled")).await;
        assert_eq!(script.next().await, None);
    };
    let client = async {
        let client = TaskClient::connect(person.clone(), io).await.unwrap();
        let error = client.call_tool(call("slow")).await.unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Cancelled { task_id, .. } if task_id == "T"),
            "{error}"
        );
    };
    play(server, client).await;
    assert_eq!(person.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_question_without_a_task_goes_to_rmcp() {
    let (mut script, io) = Script::pair();
    let go_on = Notify::new();
    let server = async {
        script.handshake(with_tasks()).await;
        let mut plain = question(json!(7), None);
        plain["params"].as_object_mut().unwrap().remove("_meta");
        script.send(plain).await;
        let answered = script.expect_answer().await;
        assert_eq!(
            (&answered["id"], &answered["result"]["content"]),
            (&json!(7), &json!({"name": 1}))
        );
        assert_eq!(answered["result"]["_meta"], json!({"mine": true}));
        // And rmcp's own requests pass.
        go_on.notify_one();
        let request = script.serve("ping", json!({})).await;
        assert!(request["id"].is_number());
    };
    let client = async {
        let client = TaskClient::connect(Person::default(), io).await.unwrap();
        go_on.notified().await;
        let ping = rmcp::model::ClientRequest::PingRequest(Default::default());
        client.peer().send_request(ping).await.unwrap();
    };
    play(server, client).await;
}

// A server may have a task of an earlier connection that asks at once.
#[tokio::test(start_paused = true)]
async fn a_question_before_the_handshake_is_over_is_its_tasks_too() {
    let (mut script, io) = Script::pair();
    let person = Person::default();
    let server = async {
        let hello = script.expect("initialize").await;
        script.send(question(json!("early"), Some("k"))).await;
        script
            .send(answer(&hello, &initialized(&with_tasks())))
            .await;
        script.expect("notifications/initialized").await;
        let answered = script.expect_answer().await;
        assert_eq!(
            (&answered["id"], &answered["result"]["_meta"]),
            (
                &json!("early"),
                &json!({"mine": true, RELATED: {"taskId": "T"}})
            )
        );
        script.send(question(json!("again"), Some("k"))).await;
        let answered = script.expect_answer().await;
        assert_eq!(answered["result"]["content"], json!({"name": 1}));
    };
    let client = async { TaskClient::connect(person.clone(), io).await.unwrap() };
    let _client = play(server, client).await;
    assert_eq!(person.asked(), 1);
}
