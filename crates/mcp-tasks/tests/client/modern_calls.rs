//! Calls that are answered with questions (2026-07-28 `basic/patterns/mrtr`), over lines.

use std::{sync::Arc, time::Duration};

use mcp_tasks::client::{CallOptions, TaskClient, TaskClientError, TaskEvent};
use serde_json::{Value, json};

use crate::{Person, call, lines::play, names, script::*, text_of};

/// A text that an echo must not change.
const STATE: &str = "v1.é\u{2028}\"\\/ =?base64?";

#[tokio::test(start_paused = true)]
async fn questions_before_the_result_are_answered_and_the_call_made_again() {
    let (mut script, io) = Script::modern_pair();
    let person = Person::default();
    let server = async {
        script.discover().await;
        let asks = json!({"inputRequests": {"a": asked(), "b": asked()}, "requestState": STATE});
        let first = script.serve("tools/call", input_required(asks)).await;
        assert_eq!(first["params"].get("requestState"), None);
        assert_eq!(first["params"].get("inputResponses"), None);
        let asks = input_required(json!({"inputRequests": {"c": asked()}}));
        let second = script.serve("tools/call", asks).await;
        assert_ne!(second["id"], first["id"]);
        assert_eq!(second["params"]["requestState"], STATE);
        let answers = second["params"]["inputResponses"].as_object().unwrap();
        assert_eq!(answers.keys().collect::<Vec<_>>(), ["a", "b"]);
        // It wants time only.
        let state = input_required(json!({"requestState": "later"}));
        let third = script.serve("tools/call", state).await;
        assert_eq!(third["params"].get("requestState"), None);
        assert_eq!(
            third["params"]["inputResponses"]["c"]["content"],
            json!({"name": 3})
        );
        let fourth = script.serve("tools/call", handle()).await;
        assert_eq!(fourth["params"]["requestState"], "later");
        assert_eq!(fourth["params"].get("inputResponses"), None);
        for request in [&second, &third, &fourth] {
            for member in ["name", "arguments"] {
                assert_eq!(request["params"][member], first["params"][member]);
            }
        }
        // The state is for the call alone.
        let get = script.serve("tasks/get", completed("done")).await;
        assert_eq!(get["params"].get("requestState"), None);
    };
    let client = async {
        let builder = TaskClient::builder(person.clone()).subscribe(false);
        let client = builder.connect(io).await.unwrap();
        let params = call("slow").with_arguments(json!({"n": 1}).as_object().unwrap().clone());
        let events = names(client.call_tool_stream(params, CallOptions::new())).await;
        assert_eq!(events, ["created T", "status completed", "result done"]);
    };
    play(server, client).await;
    assert_eq!(person.asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn questions_without_end_and_results_of_no_known_type_are_refused() {
    let cases: [(Value, &str, usize); 6] = [
        (
            input_required(json!({"inputRequests": {"a": asked()}})),
            "100 times",
            100,
        ),
        (
            input_required(json!({"requestState": "again"})),
            "100 times",
            100,
        ),
        (input_required(json!({})), "neither", 1),
        (
            input_required(json!({"requestState": 7})),
            "requestState",
            1,
        ),
        (json!({"resultType": "promise"}), "promise", 1),
        (
            json!({"resultType": "task", "status": "working"}),
            "taskId",
            1,
        ),
    ];
    for (reply, what, calls) in cases {
        let (mut script, io) = Script::modern_pair();
        let server = async {
            script.discover().await;
            for _ in 0..calls {
                script.serve("tools/call", reply.clone()).await;
            }
            assert_eq!(script.next().await, None);
        };
        let client = async {
            let client = TaskClient::connect(Person::default(), io).await.unwrap();
            let error = client.call_tool(call("slow")).await.unwrap_err();
            assert!(
                matches!(&error, TaskClientError::Protocol(why) if why.contains(what)),
                "{error}"
            );
        };
        play(server, client).await;
    }
    // Only calls of tools become tasks.
    let (mut script, io) = Script::modern_pair();
    let server = async {
        script.discover().await;
        script.serve("tasks/cancel", handle()).await;
        script
            .serve("tasks/get", json!({"resultType": "input_required"}))
            .await;
    };
    let client = async {
        let client = TaskClient::connect((), io).await.unwrap();
        let task = client.task("T");
        for error in [
            task.cancel().await.unwrap_err(),
            task.get().await.unwrap_err(),
        ] {
            assert!(matches!(error, TaskClientError::Protocol(_)), "{error}");
        }
    };
    play(server, client).await;
}

#[tokio::test(start_paused = true)]
async fn a_question_that_cannot_be_answered_ends_the_call() {
    let (mut script, io) = Script::modern_pair();
    let server = async {
        script.discover().await;
        let sampling =
            json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}});
        let asks = json!({"inputRequests": {"s": sampling}});
        script.serve("tools/call", input_required(asks)).await;
        assert_eq!(script.next().await, None);
    };
    let client = async {
        let client = TaskClient::connect(Person::default(), io).await.unwrap();
        let error = client.call_tool(call("slow")).await.unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Unanswerable { key, task_id: None, .. } if key == "s"),
            "{error}"
        );
    };
    play(server, client).await;
}

// B53
#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_a_person_thinks_tells_the_person() {
    for cancels in [false, true] {
        let (mut script, io) = Script::modern_pair();
        let person = Person {
            thinks: Some(Arc::default()),
            ..Person::default()
        };
        let server = async {
            script.discover().await;
            let asks = json!({"inputRequests": {"a": asked()}, "requestState": "s"});
            script.serve("tools/call", input_required(asks)).await;
            assert_eq!(script.next().await, None, "nothing is made again");
        };
        let client = async {
            let client = TaskClient::connect(person.clone(), io).await.unwrap();
            let options = CallOptions::new()
                .deadline(Duration::from_secs(5))
                .cancel_on_drop(cancels);
            let error = client
                .call_tool_with(call("slow"), options)
                .await
                .unwrap_err();
            assert!(
                matches!(error, TaskClientError::Deadline { task_id: None }),
                "{error}"
            );
            person.cancelled.notified().await;
            tokio::time::sleep(Duration::from_secs(100)).await;
            client.close().await;
        };
        play(server, client).await;
        assert_eq!(person.asked(), 1);
    }
}

// B67: the handle comes when nobody wants it any more
#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_before_its_handle_is_withdrawn_or_cancelled() {
    for cancels in [false, true] {
        let (mut script, io) = Script::modern_pair();
        let server = async {
            script.discover().await;
            let request = script.expect("tools/call").await;
            if cancels {
                tokio::time::sleep(Duration::from_secs(10)).await;
                script.send(answer(&request, &handle())).await;
                script.serve("tasks/cancel", json!({})).await;
            } else {
                let told = script.expect("notifications/cancelled").await;
                assert_eq!(told["params"]["requestId"], request["id"]);
            }
            assert_eq!(script.next().await, None);
        };
        let client = async {
            let client = TaskClient::connect((), io).await.unwrap();
            let options = CallOptions::new().cancel_on_drop(cancels);
            let mut events = client.call_tool_stream(call("slow"), options);
            let first = tokio::time::timeout(Duration::from_secs(1), events.next()).await;
            assert!(first.is_err());
            drop(events);
            tokio::time::sleep(Duration::from_secs(30)).await;
            client.close().await;
        };
        play(server, client).await;
    }
}

#[tokio::test(start_paused = true)]
async fn progress_of_a_call_without_a_task_is_told() {
    let (mut script, io) = Script::modern_pair();
    let server = async {
        script.discover().await;
        let request = script.expect("tools/call").await;
        let token = &request["params"]["_meta"]["progressToken"];
        script
            .send(json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": token, "progress": 1}}))
            .await;
        script.send(answer(&request, &text("done"))).await;
    };
    let client = async {
        let client = TaskClient::connect((), io).await.unwrap();
        let mut events = client.call_tool_stream(call("slow"), CallOptions::new());
        assert!(matches!(events.next().await, Some(TaskEvent::Progress(_))));
        assert_eq!(text_of(&events.result().await.unwrap()), "done");
    };
    play(server, client).await;
}
