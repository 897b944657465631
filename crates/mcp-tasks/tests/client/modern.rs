//! Tasks of 2026-07-28 over lines, with a clock that moves when everybody waits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mcp_tasks::client::{
    CallOptions, TaskClient, TaskClientError, TaskEvent, TaskPreference, TaskStatus, Ticket,
};
use rmcp::{ClientHandler, model::ClientConfig};
use serde_json::{Value, json};
use tokio::{
    io::{DuplexStream, ReadHalf, WriteHalf},
    sync::Notify,
    time::Instant,
};

use crate::{Person, call, lines::play, names, script::*, text_of};

type Io = (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>);

/// A client that polls only.
async fn polling(handler: impl ClientHandler, io: Io) -> TaskClient {
    let builder = TaskClient::builder(handler).subscribe(false);
    builder.connect(io).await.unwrap()
}

// F-33, B50, B85, B88, B91
#[tokio::test(start_paused = true)]
async fn a_task_of_the_server_is_driven_to_its_result() {
    let (mut script, io) = Script::modern_pair();
    let person = Person::default();
    let server = async {
        let request = script.until_handle().await;
        let made = Instant::now();
        assert_eq!(request["params"].get("task"), None);
        let declared = &request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        assert_eq!(
            *declared,
            json!({"elicitation": {}, "extensions": {EXTENSION: {}}})
        );
        let get = script.serve("tasks/get", handle()).await;
        assert!(made.elapsed() >= Duration::from_millis(200), "a poll waits");
        assert_eq!(get["params"]["taskId"], "T");
        assert_eq!(get["params"]["_meta"], {
            let mut meta = request["params"]["_meta"].clone();
            meta.as_object_mut().unwrap().remove("progressToken");
            meta
        });
        script.serve("tasks/get", asking(&["a"])).await;
        let update = script
            .serve("tasks/update", json!({"resultType": "complete"}))
            .await;
        assert_eq!(update["params"]["taskId"], "T");
        assert_eq!(
            update["params"]["inputResponses"],
            json!({"a": {"action": "accept", "content": {"name": 1}, "_meta": {"mine": true}}})
        );
        // The acknowledgement runs ahead of the state.
        script.serve("tasks/get", asking(&["a"])).await;
        let mut working = detailed("working", json!({"statusMessage": "half"}));
        working["pollIntervalMs"] = json!(5000);
        script.serve("tasks/get", working).await;
        let before = Instant::now();
        script.serve("tasks/get", completed("done")).await;
        assert!(before.elapsed() >= Duration::from_secs(5));
        assert_eq!(script.next().await, None);
    };
    let client = async {
        let client = polling(person.clone(), io).await;
        let events = names(client.call_tool_stream(call("slow"), CallOptions::new())).await;
        assert_eq!(
            events,
            [
                "created T",
                "status input_required",
                "status working",
                "status completed",
                "result done"
            ]
        );
        client.close().await;
    };
    play(server, client).await;
    assert_eq!(person.asked(), 1);
}

// B55: several at once, several rounds; each key once
#[tokio::test(start_paused = true)]
async fn every_key_is_asked_once_however_often_it_is_listed() {
    let (mut script, io) = Script::modern_pair();
    let person = Person::default();
    let server = async {
        script.until_handle().await;
        script.serve("tasks/get", asking(&["a", "b"])).await;
        let update = script.serve("tasks/update", json!({})).await;
        let answers = &update["params"]["inputResponses"];
        assert_eq!(answers.as_object().unwrap().len(), 2, "{answers}");
        // Only one of them was taken, it seems: after a while the other one is sent again, as it was.
        let again = loop {
            let message = script.next().await.unwrap();
            if message["method"] == "tasks/update" {
                break message;
            }
            script.send(answer(&message, &asking(&["b"]))).await;
        };
        assert_eq!(
            again["params"]["inputResponses"],
            json!({"b": answers["b"]})
        );
        script.send(answer(&again, &json!({}))).await;
        script.serve("tasks/get", asking(&["c"])).await;
        let update = script.serve("tasks/update", json!({})).await;
        let third = &update["params"]["inputResponses"];
        assert_eq!(third["c"]["content"]["name"], 3);
        assert_eq!(third.as_object().unwrap().len(), 1);
        script.serve("tasks/get", completed("done")).await;
    };
    let client = async {
        let client = polling(person.clone(), io).await;
        let result = client.call_tool(call("slow")).await.unwrap();
        assert_eq!(text_of(&result), "done");
    };
    play(server, client).await;
    assert_eq!(person.asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_slow_person_holds_up_nobody_elses_answer_and_polls_go_on() {
    let (mut script, io) = Script::modern_pair();
    let slow = Arc::new(Notify::new());
    let person = Person {
        thinks: Some(slow.clone()),
        ..Person::default()
    };
    let server = async {
        script.until_handle().await;
        script.serve("tasks/get", asking(&["a", "b"])).await;
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(600) {
            script.serve("tasks/get", asking(&["a", "b"])).await;
        }
        assert_eq!(person.asked(), 2);
        // One of the two answers.
        slow.notify_one();
        let update = loop {
            let message = script.next().await.unwrap();
            if message["method"] == "tasks/update" {
                break message;
            }
            script.send(answer(&message, &asking(&["a", "b"]))).await;
        };
        let answers = update["params"]["inputResponses"].as_object().unwrap();
        assert_eq!(answers.len(), 1);
        script.send(answer(&update, &json!({}))).await;
        slow.notify_one();
        loop {
            let message = script.next().await.unwrap();
            let other = !answers.contains_key("a");
            let left = asking(&[if other { "a" } else { "b" }]);
            let update = message["method"] == "tasks/update";
            script
                .send(answer(&message, &if update { json!({}) } else { left }))
                .await;
            if update {
                break;
            }
        }
        script.serve("tasks/get", completed("done")).await;
    };
    let client = async {
        let client = polling(person.clone(), io).await;
        let result = client.call_tool(call("slow")).await.unwrap();
        assert_eq!(text_of(&result), "done");
    };
    play(server, client).await;
    assert_eq!(person.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_gets_lost_is_sent_again_and_not_asked_again() {
    let (mut script, io) = Script::modern_pair();
    let person = Person::default();
    let server = async {
        script.until_handle().await;
        script.serve("tasks/get", asking(&["a"])).await;
        let first = script.expect("tasks/update").await;
        script.send(refusal(&first, -32603, "not now")).await;
        // And one that is never answered.
        let mut updates = vec![first["params"]["inputResponses"].clone()];
        while updates.len() < 3 {
            let message = script.next().await.unwrap();
            match message["method"].as_str() {
                Some("tasks/update") => {
                    updates.push(message["params"]["inputResponses"].clone());
                    if updates.len() == 3 {
                        script.send(answer(&message, &json!({}))).await;
                    }
                }
                _ => script.send(answer(&message, &asking(&["a"]))).await,
            }
        }
        assert!(updates.iter().all(|update| *update == updates[0]));
        script.serve("tasks/get", completed("done")).await;
    };
    let client = async {
        let client = polling(person.clone(), io).await;
        let result = client.call_tool(call("slow")).await.unwrap();
        assert_eq!(text_of(&result), "done");
    };
    play(server, client).await;
    assert_eq!(person.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_refused_ends_the_call_and_nobody_is_asked_again() {
    let (mut script, io) = Script::modern_pair();
    let person = Person::default();
    let server = async {
        script.until_handle().await;
        script.serve("tasks/get", asking(&["a"])).await;
        let update = script.expect("tasks/update").await;
        script
            .send(refusal(&update, -32602, "name is no number"))
            .await;
        script.serve("tasks/get", asking(&["a"])).await;
        assert_eq!(script.next().await, None);
    };
    let client = async {
        let client = polling(person.clone(), io).await;
        let error = client.call_tool(call("slow")).await.unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Rpc(error) if error.message.contains("no number")),
            "{error}"
        );
    };
    play(server, client).await;
    assert_eq!(person.asked(), 1);
}

// F-35, B85: the same errors as with 2025-11-25
#[tokio::test(start_paused = true)]
async fn ends_are_told_apart() {
    type Check = fn(Result<rmcp::model::CallToolResult, TaskClientError>) -> bool;
    let error = json!({"code": -32050, "message": "boom", "data": {"why": 1}});
    let cases: [(Value, &str, Check); 6] = [
        (
            detailed("failed", json!({"error": error, "statusMessage": "boom"})),
            "failed",
            |got| matches!(got, Err(TaskClientError::Rpc(error)) if error.code.0 == -32050 && error.data == Some(json!({"why": 1}))),
        ),
        (
            detailed("failed", json!({"statusMessage": "it broke"})),
            "failed",
            |got| matches!(got, Err(TaskClientError::Rpc(error)) if error.message == "it broke"),
        ),
        (
            detailed("cancelled", json!({"statusMessage": "enough"})),
            "cancelled",
            |got| matches!(got, Err(TaskClientError::Cancelled { task_id, message }) if task_id == "T" && message.as_deref() == Some("enough")),
        ),
        (
            detailed(
                "completed",
                json!({"result": {"content": [], "isError": true}}),
            ),
            "failed",
            |got| matches!(got, Ok(result) if result.is_error == Some(true)),
        ),
        (
            detailed(
                "completed",
                json!({"result": {"resultType": "complete", "content": []}}),
            ),
            "completed",
            |got| matches!(got, Ok(result) if result.is_error.is_none()),
        ),
        // Some servers call the answer to `tasks/get` a task.
        (
            detailed(
                "completed",
                json!({"resultType": "task", "result": {"content": []}}),
            ),
            "completed",
            |got| got.is_ok(),
        ),
    ];
    for (told, status, check) in cases {
        let (mut script, io) = Script::modern_pair();
        let server = async {
            script.until_handle().await;
            script.serve("tasks/get", told.clone()).await;
        };
        let client = async {
            let client = polling((), io).await;
            let mut events = client.call_tool_stream(call("slow"), CallOptions::new());
            let (mut last, mut end) = (None, None);
            while let Some(event) = events.next().await {
                match event {
                    TaskEvent::Status(info) => last = Some(info.status.to_string()),
                    TaskEvent::Result(result) => end = Some(Ok(result)),
                    TaskEvent::Error(error) => end = Some(Err(error)),
                    _ => {}
                }
            }
            assert_eq!(last.as_deref(), Some(status), "{told}");
            let end = end.unwrap();
            let shown = format!("{end:?}");
            assert!(check(end), "{told}: {shown}");
        };
        play(server, client).await;
    }
    // Expired: not at the first miss, which may be a replica that is behind.
    let (mut script, io) = Script::modern_pair();
    let server = async {
        script.until_handle().await;
        for _ in 0..2 {
            let get = script.expect("tasks/get").await;
            script.send(refusal(&get, -32602, "Task not found")).await;
        }
        for _ in 0..2 {
            let get = script.expect("tasks/get").await;
            script.send(refusal(&get, -32602, "Task not found")).await;
        }
    };
    let client = async {
        let client = polling((), io).await;
        let error = client.call_tool(call("slow")).await.unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Expired { task_id } if task_id == "T"),
            "{error}"
        );
        // One that was never seen is simply unknown.
        for error in [
            client.task("U").result().await.unwrap_err(),
            client.task("U").get().await.unwrap_err(),
        ] {
            assert!(matches!(error, TaskClientError::Rpc(_)), "{error}");
        }
    };
    play(server, client).await;
}

#[tokio::test(start_paused = true)]
async fn a_remote_task_gets_cancels_and_gives_its_result_again() {
    let (mut script, io) = Script::modern_pair();
    let server = async {
        script.until_handle().await;
        script.serve("tasks/get", handle()).await;
        // It obeys a moment later.
        let cancel = script
            .serve("tasks/cancel", json!({"resultType": "complete"}))
            .await;
        assert_eq!(cancel["params"]["taskId"], "T");
        script.serve("tasks/get", handle()).await;
        script
            .serve("tasks/get", detailed("cancelled", json!({})))
            .await;
        // One that has ended says so by its answer, or by an error.
        script.serve("tasks/cancel", json!({})).await;
        script.serve("tasks/get", completed("late")).await;
        let cancel = script.expect("tasks/cancel").await;
        script.send(refusal(&cancel, -32602, "it is over")).await;
        script.serve("tasks/get", completed("late")).await;
        // And one may be forgotten with its cancel.
        script.serve("tasks/cancel", json!({})).await;
        let get = script.expect("tasks/get").await;
        script.send(refusal(&get, -32602, "Task not found")).await;
    };
    let client = async {
        let client = polling((), io).await;
        let options = CallOptions::new().ttl(Duration::from_secs(9));
        let task = client.call_tool_task(call("slow"), options).await.unwrap();
        assert_eq!(task.get().await.unwrap().status, TaskStatus::Working);
        for status in [
            TaskStatus::Cancelled,
            TaskStatus::Completed,
            TaskStatus::Completed,
            TaskStatus::Cancelled,
        ] {
            assert_eq!(task.cancel().await.unwrap().status, status);
        }
    };
    play(server, client).await;
}

// B53: cancelled while a person thinks
#[tokio::test(start_paused = true)]
async fn a_cancel_while_a_person_thinks_is_a_cancelled_outcome() {
    for obeys in [true, false] {
        let (mut script, io) = Script::modern_pair();
        let person = Person {
            thinks: Some(Arc::default()),
            ..Person::default()
        };
        let asked = Notify::new();
        let server = async {
            script.until_handle().await;
            script.serve("tasks/get", asking(&["a"])).await;
            asked.notify_one();
            let mut cancels = 0;
            while let Some(message) = script.next().await {
                let told = match message["method"].as_str().unwrap() {
                    "tasks/cancel" => {
                        cancels += 1;
                        json!({"resultType": "complete"})
                    }
                    "tasks/get" if cancels > 0 && obeys => detailed("cancelled", json!({})),
                    "tasks/get" => asking(&["a"]),
                    other => panic!("{other}"),
                };
                script.send(answer(&message, &told)).await;
            }
            assert_eq!(cancels, 1);
        };
        let client = async {
            let client = polling(person.clone(), io).await;
            let options = CallOptions::new();
            let task = client.call_tool_task(call("slow"), options).await.unwrap();
            let waiting = task.clone();
            let waiting = tokio::spawn(async move { waiting.result().await });
            asked.notified().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            task.cancel().await.unwrap();
            let error = waiting.await.unwrap().unwrap_err();
            assert!(
                matches!(error, TaskClientError::Cancelled { .. }),
                "{error}"
            );
            person.cancelled.notified().await;
        };
        play(server, client).await;
        assert_eq!(person.asked(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_cancels_its_task_only_where_asked() {
    for cancels in [false, true] {
        let (mut script, io) = Script::modern_pair();
        let server = async {
            script.until_handle().await;
            if cancels {
                script.serve("tasks/cancel", json!({})).await;
            }
            // Nothing about the task, and never this notification for it.
            while let Some(message) = script.next().await {
                assert_eq!(message["method"], "tasks/get", "{message}");
            }
        };
        let client = async {
            let client = polling((), io).await;
            let options = CallOptions::new().cancel_on_drop(cancels);
            let mut events = client.call_tool_stream(call("slow"), options);
            assert!(matches!(events.next().await, Some(TaskEvent::Created(_))));
            drop(events);
            tokio::time::sleep(Duration::from_secs(1)).await;
        };
        play(server, client).await;
    }
}

// B89
#[tokio::test(start_paused = true)]
async fn an_announcement_wakes_and_says_it_all() {
    let (mut script, io) = Script::modern_pair();
    let heard = Arc::new(AtomicUsize::new(0));
    let person = Person::default();
    let server = async {
        script.discover().await;
        let mut slow = handle();
        slow["pollIntervalMs"] = json!(3_600_000);
        script.serve("tools/call", slow).await;
        let listen = script.expect("subscriptions/listen").await;
        assert_eq!(listen["params"]["notifications"], json!({"taskIds": ["T"]}));
        let note = |id: &Value, method: &str, params: Value| {
            let mut params = params;
            params["_meta"] = json!({ SUBSCRIPTION: id });
            json!({"jsonrpc": "2.0", "method": method, "params": params})
        };
        let mine = |status: Value| note(&listen["id"], "notifications/tasks", status);
        script
            .send(note(
                &listen["id"],
                "notifications/subscriptions/acknowledged",
                json!({"notifications": {"taskIds": ["T"]}}),
            ))
            .await;
        // Somebody else's, and one that makes no sense.
        script
            .send(note(&json!(7), "notifications/tasks", completed("stray")))
            .await;
        script
            .send(note(
                &json!("tc:999"),
                "notifications/tasks",
                completed("stray"),
            ))
            .await;
        script.send(mine(json!({"taskId": "T"}))).await;
        let mut other = completed("stray");
        other["taskId"] = json!("U");
        script.send(mine(other)).await;
        script.send(mine(asking(&["a"]))).await;
        let update = script.serve("tasks/update", json!({})).await;
        assert_eq!(update["params"]["inputResponses"]["a"]["action"], "accept");
        script.send(mine(completed("told"))).await;
        let cancelled = script.expect("notifications/cancelled").await;
        assert_eq!(cancelled["params"]["requestId"], listen["id"]);
        assert_eq!(script.next().await, None);
    };
    let client = async {
        let count = heard.clone();
        let builder = TaskClient::builder(person.clone()).on_status(move |info| {
            assert_eq!(info.task_id, "T");
            count.fetch_add(1, Ordering::SeqCst);
        });
        let client = builder.connect(io).await.unwrap();
        let start = Instant::now();
        let result = client.call_tool(call("slow")).await.unwrap();
        assert_eq!(text_of(&result), "told");
        assert!(start.elapsed() < Duration::from_secs(3600));
        // The subscription is withdrawn.
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.close().await;
    };
    play(server, client).await;
    assert_eq!(heard.load(Ordering::SeqCst), 2);
    assert_eq!(person.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_announcements_it_is_polled() {
    // How a server may not give them: it refuses, leaves the task out, ends the stream, says nothing.
    for way in ["refused", "left out", "ended", "mute"] {
        let (mut script, io) = Script::modern_pair();
        let listens = AtomicUsize::new(0);
        let server = async {
            script.discover().await;
            let mut gets = 0;
            while let Some(message) = script.next().await {
                let id = message["id"].clone();
                let note = |method: &str, mut params: Value| {
                    params["_meta"] = json!({ SUBSCRIPTION: id });
                    json!({"jsonrpc": "2.0", "method": method, "params": params})
                };
                match message["method"].as_str().unwrap() {
                    "tools/call" => {
                        gets = 0;
                        script.send(answer(&message, &handle())).await;
                    }
                    "tasks/get" => {
                        gets += 1;
                        let told = if gets < 3 {
                            handle()
                        } else {
                            completed("polled")
                        };
                        script.send(answer(&message, &told)).await;
                    }
                    "subscriptions/listen" => {
                        listens.fetch_add(1, Ordering::SeqCst);
                        let acknowledged = "notifications/subscriptions/acknowledged";
                        match way {
                            "refused" => script.send(refusal(&message, -32601, "no")).await,
                            "left out" => {
                                let none = json!({"notifications": {}});
                                script.send(note(acknowledged, none)).await;
                            }
                            "ended" => {
                                let all = json!({"notifications": {"taskIds": ["T"]}});
                                script.send(note(acknowledged, all)).await;
                                let end =
                                    json!({"resultType": "complete", "_meta": {SUBSCRIPTION: id}});
                                script.send(answer(&message, &end)).await;
                            }
                            _ => {}
                        }
                    }
                    "notifications/cancelled" => {}
                    other => panic!("{other}"),
                }
            }
        };
        let client = async {
            let client = TaskClient::connect((), io).await.unwrap();
            for _ in 0..2 {
                let result = client.call_tool(call("slow")).await.unwrap();
                assert_eq!(text_of(&result), "polled", "{way}");
            }
        };
        play(server, client).await;
        let (least, most) = match way {
            "refused" | "left out" => (1, 1),
            "mute" => (2, 2),
            // One that was granted is begun again after a while.
            _ => (2, 4),
        };
        let listens = listens.load(Ordering::SeqCst);
        assert!(least <= listens && listens <= most, "{way}: {listens}");
    }
}

struct Undeclared;

impl ClientHandler for Undeclared {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::default()
    }
}

// B52
#[tokio::test(start_paused = true)]
async fn what_was_never_declared_is_declined_or_ends_the_task() {
    let (mut script, io) = Script::modern_pair();
    let server = async {
        script.until_handle().await;
        script.serve("tasks/get", asking(&["a"])).await;
        let update = script.serve("tasks/update", json!({})).await;
        assert_eq!(
            update["params"]["inputResponses"],
            json!({"a": {"action": "decline"}})
        );
        script.serve("tasks/get", completed("without")).await;
    };
    let client = async {
        let client = polling(Undeclared, io).await;
        let result = client.call_tool(call("slow")).await.unwrap();
        assert_eq!(text_of(&result), "without");
    };
    play(server, client).await;
    let sampling =
        json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}});
    for question in [
        sampling,
        json!({"method": "roots/list"}),
        json!({"method": "kitchen/cook"}),
    ] {
        let (mut script, io) = Script::modern_pair();
        let server = async {
            script.until_handle().await;
            let asks = json!({"inputRequests": {"k": question}});
            script
                .serve("tasks/get", detailed("input_required", asks))
                .await;
            script.serve("tasks/cancel", json!({})).await;
            assert_eq!(script.next().await, None);
        };
        let client = async {
            let client = polling(Person::default(), io).await;
            let error = client.call_tool(call("slow")).await.unwrap_err();
            assert!(
                matches!(&error, TaskClientError::Unanswerable { key, task_id, .. } if key == "k" && task_id.as_deref() == Some("T")),
                "{error}"
            );
            assert_eq!(error.task_id(), Some("T"));
        };
        play(server, client).await;
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_answered_that_the_server_asks_by_itself() {
    let (mut script, io) = Script::modern_pair();
    let person = Person::default();
    let server = async {
        script.until_handle().await;
        script.send(question(json!("q"), Some("k"))).await;
        script
            .send(json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
            .await;
        script.serve("tasks/get", completed("done")).await;
        assert_eq!(script.next().await, None, "no response");
    };
    let client = async {
        let client = polling(person.clone(), io).await;
        let result = client.call_tool(call("slow")).await.unwrap();
        assert_eq!(text_of(&result), "done");
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.close().await;
    };
    play(server, client).await;
    assert_eq!(person.asked(), 0);
}

// F-36
#[tokio::test(start_paused = true)]
async fn a_ticket_goes_on_elsewhere_and_asks_nothing_again() {
    let (mut script, io) = Script::modern_pair();
    let ada = Person::default();
    let server = async move {
        script.until_handle().await;
        script.serve("tasks/get", asking(&["a"])).await;
        script.serve("tasks/update", json!({})).await;
        script.serve("tasks/get", handle()).await;
        // It goes away in the middle.
        drop(script);
    };
    let client = async {
        let client = polling(ada.clone(), io).await;
        let mut events = client.call_tool_stream(call("slow"), CallOptions::new());
        while let Some(event) = events.next().await {
            if matches!(event, TaskEvent::Error(_)) {
                break;
            }
        }
        events.task().unwrap().ticket().to_json()
    };
    let text = play(server, client).await;
    assert_eq!(ada.asked(), 1);
    let ticket = Ticket::from_json(&text).unwrap();
    assert_eq!(
        (ticket.answered(), ticket.protocol_version()),
        (1, "2026-07-28")
    );
    let (mut script, io) = Script::modern_pair();
    let bob = Person::default();
    let server = async {
        script.discover().await;
        // It never got the first answer.
        script.serve("tasks/get", asking(&["a", "b"])).await;
        let update = script.serve("tasks/update", json!({})).await;
        let answers = &update["params"]["inputResponses"];
        assert_eq!(
            (&answers["a"]["content"], &answers["b"]["content"]),
            (&json!({"name": 1}), &json!({"name": 1}))
        );
        script.serve("tasks/get", completed("both")).await;
    };
    let client = async {
        let client = polling(bob.clone(), io).await;
        let task = client.resume(&ticket).unwrap();
        assert_eq!(text_of(&task.result().await.unwrap()), "both");
    };
    play(server, client).await;
    assert_eq!(bob.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn preferences_say_what_is_declared() {
    let (mut script, io) = Script::modern_pair();
    let server = async {
        script.discover().await;
        let capabilities = |request: &Value| {
            request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone()
        };
        let request = script.serve("tools/call", text("plain")).await;
        assert_eq!(capabilities(&request).get("extensions"), Some(&json!({})));
        let request = script.expect("tools/call").await;
        assert_eq!(capabilities(&request)["extensions"], json!({}));
        // What drafts called -32021.
        let mut refused = refusal(&request, -32003, "Missing required client capability");
        refused["error"]["data"] = json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}});
        script.send(refused).await;
        let request = script.serve("tools/call", text("at once")).await;
        assert_eq!(capabilities(&request)["extensions"], json!({EXTENSION: {}}));
        script.serve("tools/call", text("at once")).await;
    };
    let client = async {
        struct Extended;
        impl ClientHandler for Extended {
            fn get_info(&self) -> ClientConfig {
                let mut config = ClientConfig::default();
                config.capabilities =
                    serde_json::from_value(json!({"extensions": {EXTENSION: {}}})).unwrap();
                config
            }
        }
        let client = polling(Extended, io).await;
        let never = CallOptions::new().task(TaskPreference::Never);
        let result = client.call_tool_with(call("slow"), never.clone()).await;
        assert_eq!(text_of(&result.unwrap()), "plain");
        let error = client
            .call_tool_with(call("slow"), never)
            .await
            .unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Rpc(error) if error.code.0 == -32021),
            "{error}"
        );
        let always = CallOptions::new().task(TaskPreference::Always);
        let result = client.call_tool_with(call("slow"), always.clone()).await;
        assert_eq!(text_of(&result.unwrap()), "at once");
        let error = client
            .call_tool_task(call("slow"), always)
            .await
            .unwrap_err();
        assert!(matches!(error, TaskClientError::Immediate(_)), "{error}");
    };
    play(server, client).await;
    // A server without the extension.
    let (mut script, io) = Script::modern_pair();
    let server = async {
        let mut none = discovered();
        none["capabilities"] = json!({"tools": {}});
        script.serve("server/discover", none).await;
        script.serve("tools/call", text("plain")).await;
    };
    let client = async {
        let client = polling((), io).await;
        assert!(!client.supports_tasks());
        let always = CallOptions::new().task(TaskPreference::Always);
        for error in [
            client
                .call_tool_with(call("slow"), always.clone())
                .await
                .unwrap_err(),
            client
                .call_tool_task(call("slow"), always)
                .await
                .unwrap_err(),
        ] {
            assert!(
                matches!(error, TaskClientError::TasksUnsupported(_)),
                "{error}"
            );
        }
        assert_eq!(
            text_of(&client.call_tool(call("slow")).await.unwrap()),
            "plain"
        );
    };
    play(server, client).await;
}
