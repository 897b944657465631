//! Over lines, with a clock that moves when everybody waits.

use std::time::Duration;

use mcp_tasks::client::{CallOptions, TaskClient, TaskClientError, TaskPreference, TaskStatus};
use serde_json::{Value, json};
use tokio::{sync::Notify, time::Instant};

use crate::{call, names, script::*, text_of};

/// Runs a script beside a client's work; both have to end.
pub(crate) async fn play<T>(
    server: impl Future<Output = ()>,
    client: impl Future<Output = T>,
) -> T {
    let both = async { tokio::join!(server, client).1 };
    tokio::time::timeout(Duration::from_secs(3600), both)
        .await
        .expect("one of them waits for ever")
}

/// A paused clock leaps to the next timer when nobody has work, sockets or not: from here on never far, and never before
/// the sockets had time for what is on them (it stands still while a blocking task runs).
pub(crate) fn sockets_have_time() {
    tokio::spawn(async {
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let real = || std::thread::sleep(Duration::from_millis(4));
            tokio::task::spawn_blocking(real).await.unwrap();
        }
    });
}

// F-33, B44, B85, B91: the augmentation of `tools/call`, a progress token, and the first poll after one interval.
#[tokio::test(start_paused = true)]
async fn a_call_is_made_as_a_task_and_driven_to_its_result() {
    let (mut script, io) = Script::pair();
    let server = async {
        let hello = script.handshake(with_tasks()).await;
        assert_eq!(hello["params"]["protocolVersion"], "2025-11-25");
        script
            .serve("tools/list", json!({"tools": [], "nextCursor": "2"}))
            .await;
        let page = script.serve("tools/list", tools()).await;
        assert_eq!(page["params"]["cursor"], "2");
        let before = Instant::now();
        let request = script
            .serve("tools/call", json!({"task": task("working")}))
            .await;
        assert_eq!(request["params"]["task"], json!({"ttl": 60000}));
        assert!(
            request["id"]
                .as_str()
                .is_some_and(|id| id.starts_with("tc:"))
        );
        let token = request["params"]["_meta"]["progressToken"].clone();
        script
            .send(json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": token, "progress": 1}}))
            .await;
        script.serve("tasks/get", task("working")).await;
        assert!(
            before.elapsed() >= Duration::from_millis(200),
            "the first poll comes after one interval"
        );
        script.serve("tasks/get", task("completed")).await;
        let request = script.serve("tasks/result", text("done")).await;
        assert_eq!(request["params"], json!({"taskId": "T"}));
        assert_eq!(script.next().await, None);
    };
    let client = async {
        let client = TaskClient::connect((), io).await.unwrap();
        assert!(client.supports_tasks());
        assert_eq!(client.protocol_version(), "2025-11-25");
        let options = CallOptions::new().ttl(Duration::from_secs(60));
        let mut names = names(client.call_tool_stream(call("slow"), options)).await;
        // Progress and the first poll race; each is there once.
        names.retain(|name| name != "progress 1");
        assert_eq!(names, ["created T", "status completed", "result done"]);
        client.close().await;
    };
    play(server, client).await;
}

// F-33, B85: tasks are looked up where `initialize` puts them.
#[tokio::test(start_paused = true)]
async fn without_tasks_it_is_a_plain_call() {
    for (capabilities, list) in [
        (json!({"tools": {}}), false),
        (json!({"tools": {}, "tasks": null}), false),
        (
            json!({"tools": {}, "tasks": {"requests": {"tools": {}}}}),
            false,
        ),
        (with_tasks(), true),
    ] {
        let (mut script, io) = Script::pair();
        let server = async {
            script.handshake(capabilities).await;
            if list {
                script.serve("tools/list", tools()).await;
            }
            let request = script.serve("tools/call", text("plain")).await;
            assert_eq!(request["params"].get("task"), None);
        };
        let client = async {
            let client = TaskClient::connect((), io).await.unwrap();
            assert_eq!(
                text_of(&client.call_tool(call("plain")).await.unwrap()),
                "plain"
            );
            let always = CallOptions::new().task(TaskPreference::Always);
            if !list {
                let error = client
                    .call_tool_with(call("plain"), always)
                    .await
                    .unwrap_err();
                assert!(
                    matches!(error, TaskClientError::TasksUnsupported(_)),
                    "{error}"
                );
            }
            let error = client
                .call_tool_task(call("plain"), CallOptions::new())
                .await
                .unwrap_err();
            assert!(
                matches!(error, TaskClientError::TasksUnsupported(_)),
                "{error}"
            );
        };
        play(server, client).await;
    }
}

fn failed_because(message: &str) -> Value {
    let mut task = task("failed");
    task["statusMessage"] = json!(message);
    task
}

// F-31, F-35, B86
#[tokio::test(start_paused = true)]
async fn ends_are_told_apart() {
    type Steps = &'static [(&'static str, fn(&Value) -> Value)];
    let cases: [(Steps, &str); 10] = [
        (
            &[
                ("tasks/get", |r| answer(r, &task("failed"))),
                ("tasks/result", |r| answer(r, &text("isError"))),
            ],
            "result isError",
        ),
        (
            &[
                ("tasks/get", |r| answer(r, &task("failed"))),
                ("tasks/result", |r| refusal(r, -32603, "boom")),
                ("tasks/get", |r| answer(r, &task("failed"))),
            ],
            "error the peer answered with error -32603: boom",
        ),
        // An error that could also mean "no such task" is the task's own if the status says the same …
        (
            &[
                ("tasks/get", |r| answer(r, &failed_because("bad x"))),
                ("tasks/result", |r| refusal(r, -32602, "bad x")),
                ("tasks/get", |r| answer(r, &failed_because("bad x"))),
            ],
            "error the peer answered with error -32602: bad x",
        ),
        // … or if it is given again and again.
        (
            &[
                ("tasks/get", |r| answer(r, &task("failed"))),
                ("tasks/result", |r| refusal(r, -32602, "bad x")),
                ("tasks/get", |r| answer(r, &task("failed"))),
                ("tasks/result", |r| refusal(r, -32602, "bad x")),
                ("tasks/get", |r| answer(r, &task("failed"))),
                ("tasks/result", |r| refusal(r, -32602, "bad x")),
                ("tasks/get", |r| answer(r, &task("failed"))),
            ],
            "error the peer answered with error -32602: bad x",
        ),
        (
            &[("tasks/get", |r| answer(r, &task("cancelled")))],
            "error task T was cancelled",
        ),
        // One miss may be a replica that is behind, two are none.
        (
            &[
                ("tasks/get", |r| refusal(r, -32602, "no")),
                ("tasks/get", |r| answer(r, &task("working"))),
                ("tasks/get", |r| refusal(r, -32602, "no")),
            ],
            "error task T no longer exists: its time to live has passed",
        ),
        (
            &[
                ("tasks/get", |r| refusal(r, -32602, "no")),
                ("tasks/get", |r| refusal(r, -32602, "no")),
            ],
            "error task T no longer exists: its time to live has passed",
        ),
        (
            &[("tasks/get", |r| answer(r, &task("paused")))],
            "error the peer broke the protocol: unknown task status \"paused\"",
        ),
        (
            &[("tasks/get", |r| refusal(r, -32601, "what?"))],
            "error the peer answered with error -32601: what?",
        ),
        // Trouble on the way is none of the task's.
        (
            &[
                ("tasks/get", |r| refusal(r, -32603, "busy")),
                ("tasks/get", |r| answer(r, &task("completed"))),
                ("tasks/result", |r| refusal(r, -32000, "again")),
                ("tasks/get", |r| answer(r, &task("completed"))),
                ("tasks/result", |r| answer(r, &text("done"))),
            ],
            "result done",
        ),
    ];
    for (steps, last) in cases {
        let (mut script, io) = Script::pair();
        let server = async {
            script.until_created().await;
            for (method, step) in steps {
                let request = script.expect(method).await;
                script.send(step(&request)).await;
            }
        };
        let client = async {
            let client = TaskClient::connect((), io).await.unwrap();
            names(client.call_tool_stream(call("slow"), CallOptions::new())).await
        };
        let names = play(server, client).await;
        assert_eq!(names.last().map(String::as_str), Some(last), "{names:?}");
        let ends = names
            .iter()
            .filter(|name| name.starts_with("error") || name.starts_with("result"));
        assert_eq!(ends.count(), 1, "{names:?}");
    }
}

// Some servers keep an empty result of what failed: that is no success.
#[tokio::test(start_paused = true)]
async fn an_empty_result_of_a_failed_task_is_an_error_with_its_message() {
    for (result, said) in [(json!({}), "boom"), (text("bang"), "bang")] {
        let (mut script, io) = Script::pair();
        let server = async {
            script.until_created().await;
            let mut failed = task("failed");
            failed["statusMessage"] = json!("boom");
            script.serve("tasks/get", failed).await;
            script.serve("tasks/result", result).await;
        };
        let client = async {
            let client = TaskClient::connect((), io).await.unwrap();
            let result = client.call_tool(call("slow")).await.unwrap();
            assert_eq!((result.is_error, text_of(&result)), (Some(true), said));
        };
        play(server, client).await;
    }
}

// F-38
#[tokio::test(start_paused = true)]
async fn a_status_notification_wakes_the_poller() {
    let (mut script, io) = Script::pair();
    let (sender, mut announced) = tokio::sync::mpsc::unbounded_channel();
    let server = async {
        script.handshake(with_tasks()).await;
        script.serve("tools/list", tools()).await;
        let mut slow = task("working");
        slow["pollInterval"] = json!(3_600_000);
        script.serve("tools/call", json!({"task": slow})).await;
        let start = Instant::now();
        script.send(json!({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": task("completed")})).await;
        script.serve("tasks/result", text("done")).await;
        assert!(start.elapsed() < Duration::from_secs(1));
    };
    let client = async {
        let client = TaskClient::builder(())
            .on_status(move |info| sender.send(info.status).unwrap())
            .connect(io)
            .await
            .unwrap();
        assert_eq!(
            text_of(&client.call_tool(call("slow")).await.unwrap()),
            "done"
        );
    };
    play(server, client).await;
    assert_eq!(announced.recv().await, Some(TaskStatus::Completed));
}

#[tokio::test(start_paused = true)]
async fn a_poll_without_an_answer_is_repeated_and_the_deadline_holds() {
    let (mut script, io) = Script::pair();
    let cancelled = Notify::new();
    let server = async {
        script.until_created().await;
        let start = Instant::now();
        script.expect("tasks/get").await;
        script.serve("tasks/get", task("working")).await;
        assert!(start.elapsed() >= Duration::from_secs(5));
        script.expect("tasks/get").await;
        script.serve("tasks/cancel", task("cancelled")).await;
        cancelled.notify_one();
    };
    let client = async {
        let client = TaskClient::builder(())
            .request_timeout(Duration::from_secs(5))
            .connect(io)
            .await
            .unwrap();
        let options = CallOptions::new()
            .deadline(Duration::from_secs(8))
            .cancel_on_drop(true);
        let start = Instant::now();
        let error = client
            .call_tool_with(call("slow"), options)
            .await
            .unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Deadline { .. }),
            "{error}"
        );
        assert_eq!(error.task_id(), Some("T"));
        assert_eq!(start.elapsed().as_secs(), 8);
        // Cancelling goes on behind it.
        cancelled.notified().await;
    };
    play(server, client).await;
}

// B67: the handle that comes when its caller is gone is cancelled.
#[tokio::test(start_paused = true)]
async fn dropping_a_call_cancels_only_where_asked() {
    for cancel in [true, false] {
        let (mut script, io) = Script::pair();
        let server = async {
            script.handshake(with_tasks()).await;
            script.serve("tools/list", tools()).await;
            let request = script.expect("tools/call").await;
            // The caller is gone before the handle is there.
            tokio::time::sleep(Duration::from_secs(2)).await;
            script
                .send(answer(&request, &json!({"task": {"taskId": "T"}})))
                .await;
            if cancel {
                script.serve("tasks/cancel", task("cancelled")).await;
            }
            script.serve("ping", json!({})).await;
        };
        let client = async {
            let client = TaskClient::connect((), io).await.unwrap();
            let options = CallOptions::new().cancel_on_drop(cancel);
            let call = client.call_tool_with(call("slow"), options);
            assert!(
                tokio::time::timeout(Duration::from_secs(1), call)
                    .await
                    .is_err()
            );
            tokio::time::sleep(Duration::from_secs(10)).await;
            let ping = rmcp::model::ClientRequest::PingRequest(Default::default());
            client.peer().send_request(ping).await.unwrap();
        };
        play(server, client).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_plain_call_is_withdrawn() {
    let (mut script, io) = Script::pair();
    let server = async {
        script.handshake(json!({"tools": {}})).await;
        let request = script.expect("tools/call").await;
        let cancelled = script.expect("notifications/cancelled").await;
        assert_eq!(cancelled["params"]["requestId"], request["id"]);
    };
    let client = async {
        let client = TaskClient::connect((), io).await.unwrap();
        assert!(
            tokio::time::timeout(Duration::from_secs(1), client.call_tool(call("plain")))
                .await
                .is_err()
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    play(server, client).await;
}

// F-32
#[tokio::test(start_paused = true)]
async fn a_remote_task_gets_cancels_and_gives_its_result_again() {
    let (mut script, io) = Script::pair();
    let server = async {
        script.until_created().await;
        script.serve("tasks/get", task("working")).await;
        for _ in 0..2 {
            script.serve("tasks/get", task("completed")).await;
            script.serve("tasks/result", text("done")).await;
        }
        let request = script.expect("tasks/cancel").await;
        script
            .send(refusal(&request, -32602, "already in terminal status"))
            .await;
        script.serve("tasks/get", task("completed")).await;
        let request = script.expect("tasks/get").await;
        script.send(refusal(&request, -32602, "unknown task")).await;
    };
    let client = async {
        let client = TaskClient::connect((), io).await.unwrap();
        let remote = client
            .call_tool_task(call("slow"), CallOptions::new())
            .await
            .unwrap();
        assert_eq!(remote.id(), "T");
        assert_eq!(remote.get().await.unwrap().status, TaskStatus::Working);
        for _ in 0..2 {
            assert_eq!(text_of(&remote.result().await.unwrap()), "done");
        }
        assert_eq!(remote.cancel().await.unwrap().status, TaskStatus::Completed);
        let error = client.task("other").get().await.unwrap_err();
        assert!(matches!(error, TaskClientError::Rpc(_)), "{error}");
    };
    play(server, client).await;
}

// F-32
#[tokio::test(start_paused = true)]
async fn lists_are_read_to_their_end_and_endless_ones_are_refused() {
    let (mut script, io) = Script::pair();
    let server = async {
        script.handshake(with_tasks()).await;
        script
            .serve(
                "tasks/list",
                json!({"tasks": [task("working")], "nextCursor": "2"}),
            )
            .await;
        script
            .serve(
                "tasks/list",
                json!({"tasks": [task("completed")], "nextCursor": null}),
            )
            .await;
        script
            .serve("tasks/list", json!({"tasks": [], "nextCursor": "x"}))
            .await;
        script
            .serve("tasks/list", json!({"tasks": [], "nextCursor": "x"}))
            .await;
    };
    let client = async {
        let client = TaskClient::connect((), io).await.unwrap();
        assert_eq!(client.list_tasks().await.unwrap().len(), 2);
        let error = client.list_tasks().await.unwrap_err();
        assert!(error.to_string().contains("came twice"), "{error}");
    };
    play(server, client).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_ends_everything_and_a_call_is_not_repeated() {
    let (mut script, io) = Script::pair();
    let server = async move {
        script.handshake(json!({"tools": {}})).await;
        script.expect("tools/call").await;
        drop(script);
    };
    let client = async {
        let client = TaskClient::connect((), io).await.unwrap();
        let error = client.call_tool(call("plain")).await.unwrap_err();
        assert!(
            matches!(error, TaskClientError::TransportLost { sent: true, .. }),
            "{error}"
        );
        let error = client.task("T").get().await.unwrap_err();
        assert!(
            matches!(error, TaskClientError::TransportLost { .. }),
            "{error}"
        );
        assert!(client.peer().list_all_tools().await.is_err());
    };
    play(server, client).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_client_ends_its_streams() {
    let (mut script, io) = Script::pair();
    let server = async {
        script.until_created().await;
        while script.next().await.is_some() {}
    };
    let client = async {
        let client = TaskClient::connect((), io).await.unwrap();
        let mut events = client.call_tool_stream(call("slow"), CallOptions::new());
        events.next().await.unwrap();
        drop(client);
        let names = names(events).await;
        assert_eq!(
            names.last().map(String::as_str),
            Some("error the client is closed")
        );
    };
    play(server, client).await;
}

#[tokio::test(start_paused = true)]
async fn a_result_where_a_task_was_asked_for_is_taken_and_noise_is_skipped() {
    let (mut script, io) = Script::pair();
    let server = async {
        script.handshake(with_tasks()).await;
        script.serve("tools/list", tools()).await;
        script.send(json!("noise")).await;
        script
            .send(json!({"jsonrpc": "2.0", "id": "tc:99", "result": {}}))
            .await;
        script.serve("tools/call", text("at once")).await;
        script.serve("tools/call", text("at once")).await;
        let request = script.expect("tools/call").await;
        script
            .send(json!({"jsonrpc": "2.0", "id": request["id"], "result": 1, "error": {}}))
            .await;
    };
    let client = async {
        let client = TaskClient::connect((), io).await.unwrap();
        assert_eq!(
            text_of(&client.call_tool(call("slow")).await.unwrap()),
            "at once"
        );
        let error = client
            .call_tool_task(call("slow"), CallOptions::new())
            .await
            .unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Immediate(result) if text_of(result) == "at once")
        );
        let error = client.call_tool(call("slow")).await.unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Protocol(what) if what.contains("not both")),
            "{error}"
        );
    };
    play(server, client).await;
}

#[tokio::test(start_paused = true)]
async fn what_overtakes_the_handle_is_not_missed() {
    let (mut script, io) = Script::pair();
    let server = async {
        script.handshake(with_tasks()).await;
        script.serve("tools/list", tools()).await;
        let mut slow = task("working");
        slow["pollInterval"] = json!(3_600_000);
        let request = script.expect("tools/call").await;
        script
            .send(json!({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": task("completed")}))
            .await;
        script.send(answer(&request, &json!({"task": slow}))).await;
        // No poll: that the task has completed is known.
        let waiting = script.expect("tasks/result").await;
        let token = &request["params"]["_meta"]["progressToken"];
        script
            .send(json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": token, "progress": 0.5}}))
            .await;
        script.send(answer(&waiting, &text("done"))).await;
    };
    let client = async {
        let client = TaskClient::connect((), io).await.unwrap();
        let remote = client
            .call_tool_task(call("slow"), CallOptions::new())
            .await
            .unwrap();
        let names = names(remote.events()).await;
        assert!(names.contains(&"progress 0.5".to_owned()), "{names:?}");
        assert_eq!(names.last().map(String::as_str), Some("result done"));
    };
    play(server, client).await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_child_process_is_a_server_and_ends_with_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        read discover
        echo '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"not yet"}}'
        read hello
        echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}}'
        read initialized
        read call
        id=$(printf %s "$call" | sed 's/.*"id":\("[^"]*"\).*/\1/')
        echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"sh\"}]}}"
        while read more; do :; done
        echo gone > end
    "#;
    let mut command = tokio::process::Command::new("sh");
    command.arg("-c").arg(script).current_dir(folder.path());
    let client = TaskClient::child((), command).await.unwrap();
    assert_eq!(
        text_of(&client.call_tool(call("plain")).await.unwrap()),
        "sh"
    );
    client.close().await;
    assert_eq!(
        std::fs::read_to_string(folder.path().join("end")).unwrap(),
        "gone\n"
    );
}

// B68, B92: each task has its own interval and its own fate, and what has been told is not asked for again.
#[tokio::test(start_paused = true)]
async fn tasks_of_one_client_keep_to_themselves() {
    let (mut script, io) = Script::pair();
    let mut counts = std::collections::HashMap::<(String, String), usize>::new();
    let server = async {
        script.handshake(with_tasks()).await;
        let start = Instant::now();
        while let Some(request) = script.next().await {
            let method = request["method"].as_str().unwrap().to_owned();
            let id = request["params"]["taskId"].as_str().unwrap_or_default();
            let count = counts.entry((method.clone(), id.to_owned())).or_default();
            *count += 1;
            let mut told = task("working");
            told["taskId"] = json!(id);
            told["pollInterval"] = json!(if id == "slow" { 10_000 } else { 1000 });
            let reply = match (&*method, id) {
                ("notifications/cancelled", _) | ("tasks/cancel", "silent") => continue,
                ("tasks/get", "broken") => refusal(&request, -32603, "broken"),
                ("tasks/cancel", "stubborn") => refusal(&request, -32603, "no"),
                ("tasks/result", _) => answer(&request, &text("done")),
                _ => {
                    if method == "tasks/cancel" {
                        told["status"] = json!("cancelled");
                    } else if id == "done" || start.elapsed() >= Duration::from_secs(100) {
                        told["status"] = json!("completed");
                    }
                    answer(&request, &told)
                }
            };
            script.send(reply).await;
        }
    };
    let client = async {
        let builder = TaskClient::builder(()).request_timeout(Duration::from_secs(30));
        let client = builder.connect(io).await.unwrap();
        let follow = |id: &str| {
            let options = CallOptions::new();
            let options = match id {
                "unhurried" => options.poll_floor(Duration::from_secs(2)),
                _ => options,
            };
            let task = client.task(id).with_options(options);
            tokio::spawn(async move { task.result().await })
        };
        let [fast, slow, unhurried, done, broken] =
            ["fast", "slow", "unhurried", "done", "broken"].map(follow);
        let cancel = |id: &str| {
            let task = client.task(id);
            tokio::spawn(async move { task.cancel().await })
        };
        let [willing, stubborn, silent] = ["willing", "stubborn", "silent"].map(cancel);
        let told = willing.await.unwrap().unwrap();
        assert_eq!(told.status, TaskStatus::Cancelled);
        let error = stubborn.await.unwrap().unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Rpc(error) if error.message == "no"),
            "{error}"
        );
        let error = silent.await.unwrap().unwrap_err();
        assert!(
            matches!(
                error,
                TaskClientError::Timeout {
                    method: "tasks/cancel",
                    ..
                }
            ),
            "{error}"
        );
        let error = broken.await.unwrap().unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Rpc(error) if error.message == "broken"),
            "{error}"
        );
        for task in [fast, slow, unhurried, done] {
            assert_eq!(text_of(&task.await.unwrap().unwrap()), "done");
        }
    };
    play(server, client).await;
    let count = |method: &str, id: &str| {
        let key = (method.to_owned(), id.to_owned());
        counts.get(&key).copied().unwrap_or_default()
    };
    for (id, polls) in [
        ("fast", 100..=102),
        ("slow", 11..=11),
        ("unhurried", 50..=52),
        ("done", 1..=1),
    ] {
        let polled = count("tasks/get", id);
        assert!(polls.contains(&polled), "{id}: {polled} polls");
        assert_eq!(count("tasks/result", id), 1, "{id}");
    }
}
