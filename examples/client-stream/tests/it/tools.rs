//! Each behaviour of a tool, as a client sees it; the same over HTTP and stdio.

use std::time::Duration;

use mcp_tasks::client::{
    CallOptions, ProtocolChoice, TaskClient, TaskClientError, TaskEvent, TaskPreference, TaskStatus,
};
use serde_json::{Value, json};

use crate::{
    call,
    fixture::{Listening, on_stdio},
    person::Person,
    soon, text_of, words,
};

/// A client of each transport, with 2025-11-25, and the server that one of them needs.
async fn clients() -> (Listening, Person, [TaskClient; 2]) {
    clients_with(ProtocolChoice::V2025_11_25).await
}

async fn clients_with(choice: ProtocolChoice) -> (Listening, Person, [TaskClient; 2]) {
    let server = Listening::start("127.0.0.1:0", &[]).await;
    let (person, _) = Person::new();
    let builder = || TaskClient::builder(person.clone()).protocol(choice);
    let http = soon(builder().http(&server.url)).await.unwrap();
    let stdio = soon(builder().child(on_stdio(&[]))).await.unwrap();
    (server, person, [http, stdio])
}

async fn result(client: &TaskClient, tool: &'static str, arguments: Value) -> String {
    let result = soon(client.call_tool(call(tool, arguments))).await;
    match result {
        Ok(result) if result.is_error == Some(true) => format!("isError {}", text_of(&result)),
        Ok(result) => text_of(&result).to_owned(),
        Err(TaskClientError::Rpc(error)) => format!("rpc {} {}", error.code.0, error.message),
        Err(error) => format!("{error:?}"),
    }
}

#[tokio::test]
async fn every_tool_gives_its_result() {
    for choice in [ProtocolChoice::V2025_11_25, ProtocolChoice::V2026_07_28] {
        every_result(choice).await;
    }
}

async fn every_result(choice: ProtocolChoice) {
    let (_server, person, clients) = clients_with(choice).await;
    let cases = [
        ("slow_echo", json!({"text": "a"}), "a"),
        (
            "slow_echo",
            json!({"text": "mrtr", "ms": 10}),
            "mrtr for it",
        ),
        ("sleep_required", json!({"text": "b", "ms": 50}), "b"),
        ("ask_name", json!({}), "Hello your"),
        ("ask_name", json!({"ms": 0}), "Hello your"),
        ("ask", json!({}), "action=accept name=your"),
        (
            "ask_two",
            json!({}),
            "first=first second=second third=third",
        ),
        ("confirm_delete", json!({"filename": "f"}), "f was deleted"),
        ("test_tool_with_task", json!({}), "Hello your"),
        ("sample", json!({"prompt": "cats"}), "about cats"),
        ("structured", json!({"n": 4}), "{\"n\":4,\"square\":16}"),
        ("logs", json!({}), "logged"),
        (
            "checkpointed",
            json!({"steps": 3, "ms": 1}),
            "steps=3 attempts=1 ran=3",
        ),
        ("external", json!({"job": "j", "ms": 50}), "j is done"),
        (
            "external_polled",
            json!({"job": "k", "ms": 50}),
            "k is done",
        ),
        ("immediate", json!({}), "done"),
        ("plain_echo", json!({"text": "plain"}), "plain"),
        ("tool_error", json!({}), "isError it broke"),
        ("failing_job", json!({}), "isError job failed"),
        ("fail_task", json!({}), "rpc 1042 it broke"),
        ("fail", json!({}), "rpc -32603 it broke"),
        ("protocol_fail", json!({}), "rpc -32602 bad input seen late"),
        ("panics", json!({}), "rpc -32603 the tool panicked"),
        ("nothing_like_it", json!({}), "rpc -32602 tool not found"),
    ];
    for (number, client) in clients.iter().enumerate() {
        for (tool, arguments, expected) in &cases {
            let got = result(client, tool, arguments.clone()).await;
            assert_eq!(&got, expected, "{tool} {arguments}, client {number}");
        }
        let got = result(client, "structured", json!({"n": 13})).await;
        assert!(
            got.starts_with("rpc -32603 the tool broke its output schema"),
            "{got}"
        );
        let got = result(client, "slow_echo", json!({"ms": "soon"})).await;
        assert!(got.contains("ms"), "{got}");
        let big = result(client, "big", json!({"bytes": 3_000_000})).await;
        assert_eq!(big.len(), 3_000_000);
    }
    // 9 questions on each connection, none of them twice.
    assert_eq!(person.asked().len(), 2 * 9, "{:?}", person.asked());
}

// F-31
#[tokio::test]
async fn events_come_in_order() {
    let (_server, _, clients) = clients().await;
    for client in &clients {
        let stream =
            |tool, arguments| client.call_tool_stream(call(tool, arguments), CallOptions::new());
        let got = words(stream("slow_echo", json!({"text": "a", "ms": 800}))).await;
        let got: Vec<_> = got
            .iter()
            .map(String::as_str)
            .filter(|word| !word.starts_with("status"))
            .collect();
        let expected = [
            "created",
            "progress 1",
            "progress 2",
            "progress 3",
            "progress 4",
            "result a",
        ];
        assert_eq!(got, expected);
        let got = words(stream("logs", json!({}))).await;
        assert!(got.contains(&"progress 2".to_owned()), "{got:?}");
        let got = words(stream("plain_echo", json!({"text": "p"}))).await;
        assert_eq!(got, ["result p"]);
        let got = words(stream("ask_name", json!({"ms": 300}))).await;
        assert_eq!(got[0], "created");
        assert!(got.contains(&"status input_required".to_owned()), "{got:?}");
        assert_eq!(got.last().unwrap(), "result Hello your");
    }
}

#[tokio::test]
async fn plain_calls_of_task_tools_wait_for_the_same_body() {
    let (_server, _, clients) = clients().await;
    let plainly = CallOptions::new().task(TaskPreference::Never);
    for client in &clients {
        for (tool, arguments, expected) in [
            ("slow_echo", json!({"text": "a"}), "a"),
            ("confirm_delete", json!({"filename": "f"}), "f was deleted"),
            ("multi_input", json!({}), "left=the right=the"),
            ("sample", json!({"prompt": "cats"}), "about cats"),
        ] {
            let call = call(tool, arguments);
            let result = soon(client.call_tool_with(call, plainly.clone()))
                .await
                .unwrap();
            assert_eq!(text_of(&result), expected);
        }
        let refused = client.call_tool_with(call("ask_name", json!({})), plainly.clone());
        let error = soon(refused).await.unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Rpc(error) if error.code.0 == -32601),
            "{error:?}"
        );
        let got = words(client.call_tool_stream(call("logs", json!({})), plainly.clone())).await;
        assert_eq!(
            got,
            ["progress 1", "progress 2", "progress 3", "result logged"]
        );
    }
}

#[tokio::test]
async fn tasks_are_cancelled_by_handle_by_dropping_and_by_deadline() {
    let (_server, _, clients) = clients().await;
    for client in &clients {
        let forever = || call("forever", json!({}));
        let task = soon(client.call_tool_task(forever(), CallOptions::new()))
            .await
            .unwrap();
        assert_eq!(soon(task.get()).await.unwrap().status, TaskStatus::Working);
        let (events, cancelled) = (task.events(), soon(task.cancel()).await.unwrap());
        assert_eq!(cancelled.status, TaskStatus::Cancelled);
        let got = words(events).await;
        assert!(got.last().unwrap().contains("cancelled"), "{got:?}");
        let error = soon(task.result()).await.unwrap_err();
        assert!(
            matches!(error, TaskClientError::Cancelled { .. }),
            "{error:?}"
        );

        let options = CallOptions::new().cancel_on_drop(true);
        let mut events = client.call_tool_stream(forever(), options.clone());
        let Some(TaskEvent::Created(info)) = soon(events.next()).await else {
            panic!("it was not created")
        };
        let task = client.task(&info.task_id);
        let followed = task.events();
        drop(events);
        let got = words(followed).await;
        assert!(got.last().unwrap().contains("cancelled"), "{got:?}");

        let options = options.deadline(Duration::from_millis(300));
        let error = soon(client.call_tool_with(forever(), options))
            .await
            .unwrap_err();
        let TaskClientError::Deadline { task_id: Some(id) } = &error else {
            panic!("{error:?}")
        };
        let got = words(client.task(id).events()).await;
        assert!(got.last().unwrap().contains("cancelled"), "{got:?}");
    }
}

#[tokio::test]
async fn many_calls_at_once_keep_apart() {
    let (_server, person, clients) = clients().await;
    for client in &clients {
        let calls: Vec<_> = (0..24)
            .map(|n| {
                let client = client.clone();
                tokio::spawn(async move {
                    match n % 3 {
                        0 => assert_eq!(
                            result(&client, "ask_name", json!({"ms": n})).await,
                            "Hello your"
                        ),
                        1 => assert_eq!(
                            result(&client, "ask_two", json!({})).await,
                            "first=first second=second third=third"
                        ),
                        _ => {
                            let text = n.to_string();
                            let arguments = json!({"text": text, "ms": 100});
                            assert_eq!(result(&client, "slow_echo", arguments).await, text);
                        }
                    }
                })
            })
            .collect();
        for call in calls {
            soon(call).await.unwrap();
        }
    }
    assert_eq!(person.asked().len(), 2 * (8 + 8 * 3));
}
