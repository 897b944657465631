//! Over HTTP.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{body::Body, http::Response};
use mcp_tasks::client::{CallOptions, TaskClient, TaskClientError};
use serde_json::json;

use crate::{Person, call, names, script::*, text_of};

async fn play<T>(server: impl Future<Output = ()>, client: impl Future<Output = T>) -> T {
    let both = async { tokio::join!(server, client).1 };
    tokio::time::timeout(Duration::from_secs(60), both)
        .await
        .expect("one of them waits for ever")
}

#[tokio::test]
async fn session_version_headers_and_token_are_sent_and_the_session_is_ended() {
    let mut script = HttpScript::start().await;
    let client = TaskClient::builder(())
        .header("x-tenant", "a")
        .bearer("secret")
        .http(script.url());
    let server = async {
        let hello = script.expect("initialize").await;
        assert_eq!(
            (
                hello.header("mcp-session-id"),
                hello.header("mcp-protocol-version")
            ),
            (None, None)
        );
        assert_eq!(
            hello.header("accept"),
            Some("application/json, text/event-stream")
        );
        hello.result(&initialized(&with_tasks()));
        let told = script.expect("notifications/initialized").await;
        assert_eq!(told.header("mcp-session-id"), Some("s1"));
        assert_eq!(told.header("mcp-protocol-version"), Some("2025-11-25"));
        // Accepted is accepted, whatever comes with it.
        let odd = Response::builder()
            .status(202)
            .header("content-type", "text/html")
            .body(Body::from("<p>ok"));
        told.reply(odd.unwrap());
        let get = script.gets.recv().await.unwrap();
        assert_eq!(
            (get.header("mcp-session-id"), get.header("authorization")),
            (Some("s1"), Some("Bearer secret"))
        );
        get.status(405);
        script.serve("tools/list", tools()).await;
        let request = script.expect("tools/call").await;
        assert_eq!(
            (request.header("x-tenant"), request.header("authorization")),
            (Some("a"), Some("Bearer secret"))
        );
        request.result(&text("plain"));
        let goodbye = script.posts.recv().await.unwrap();
        assert_eq!(
            (goodbye.method.as_str(), goodbye.header("mcp-session-id")),
            ("DELETE", Some("s1"))
        );
        goodbye.status(405);
        assert!(
            script.gets.try_recv().is_err(),
            "405 means that there is no such stream"
        );
    };
    let client = async {
        let client = client.await.unwrap();
        assert_eq!(
            text_of(&client.call_tool(call("plain")).await.unwrap()),
            "plain"
        );
        client.close().await;
    };
    play(server, client).await;
}

// F-34, F-36
#[tokio::test]
async fn questions_on_the_stream_of_tasks_result_and_again_when_it_broke() {
    let mut script = HttpScript::start().await;
    let (url, person) = (script.url(), Person::default());
    let server = async {
        script.handshake().await;
        script.gets.recv().await.unwrap().status(405);
        script.serve("tools/list", tools()).await;
        script
            .serve("tools/call", json!({"task": task("working")}))
            .await;
        script.serve("tasks/get", task("input_required")).await;
        let stream = script.expect("tasks/result").await.stream();
        stream
            .send(": hello\n\nid: 1\ndata:\n\n".replace("id: 1\n", ""))
            .unwrap();
        stream.send(event(&question(json!("q1"), None))).unwrap();
        let answered = script.posts.recv().await.unwrap();
        assert_eq!(answered.body["id"], "q1");
        // Not taken, and the stream breaks: the same question comes again, and is not asked again.
        answered.status(400);
        drop(stream);
        let (stream, waiting) = loop {
            let request = script.posts.recv().await.unwrap();
            match request.body["method"].as_str() {
                Some("tasks/get") => request.result(&task("input_required")),
                Some("tasks/result") => {
                    let body = request.body.clone();
                    break (request.stream(), body);
                }
                other => panic!("{other:?}"),
            }
        };
        stream.send(event(&question(json!("q2"), None))).unwrap();
        loop {
            let request = script.posts.recv().await.unwrap();
            if request.body["method"] == "tasks/get" {
                request.result(&task("input_required"));
                continue;
            }
            assert_eq!(
                (&request.body["id"], &request.body["result"]["content"]),
                (&json!("q2"), &json!({"name": 1}))
            );
            break request.status(202);
        }
        stream
            .send(event(&answer(&waiting, &text("done"))))
            .unwrap();
    };
    let client = async {
        let client = TaskClient::http(person.clone(), url).await.unwrap();
        assert_eq!(
            text_of(&client.call_tool(call("slow")).await.unwrap()),
            "done"
        );
    };
    play(server, client).await;
    assert_eq!(person.asked(), 1);
}

// F-34, F-36
#[tokio::test]
async fn the_general_stream_carries_questions_and_is_taken_up_again() {
    let mut script = HttpScript::start().await;
    let go_on = tokio::sync::Notify::new();
    let (url, person) = (script.url(), Person::default());
    let server = async {
        script.handshake().await;
        let stream = script.gets.recv().await.unwrap().stream();
        stream
            .send(format!(
                "id: 7\nretry: 10\n{}",
                event(&question(json!("q1"), None))
            ))
            .unwrap();
        let answered = script.posts.recv().await.unwrap();
        assert_eq!(answered.body["result"]["_meta"][RELATED]["taskId"], "T");
        answered.status(202);
        drop(stream);
        let again = script.gets.recv().await.unwrap();
        assert_eq!(again.header("last-event-id"), Some("7"));
        // Resumed streams of some servers begin with the event that we have.
        let stream = again.stream();
        stream
            .send(format!("id: 7\n{}", event(&question(json!("q1"), None))))
            .unwrap();
        stream
            .send(event(
                &json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}),
            ))
            .unwrap();
        let answered = script.posts.recv().await.unwrap();
        assert_eq!(answered.body["id"], "p");
        answered.status(202);
        go_on.notify_one();
        script.serve("tools/list", tools()).await;
        script.serve("tools/call", text("plain")).await;
    };
    let client = async {
        let client = TaskClient::http(person.clone(), url).await.unwrap();
        go_on.notified().await;
        assert_eq!(
            text_of(&client.call_tool(call("plain")).await.unwrap()),
            "plain"
        );
    };
    play(server, client).await;
    assert_eq!(person.asked(), 1);
}

// F-36
#[tokio::test]
async fn a_forgotten_session_is_begun_anew_and_the_task_followed_on() {
    let mut script = HttpScript::start().await;
    let url = script.url();
    let server = async {
        script.handshake().await;
        script.gets.recv().await.unwrap().status(405);
        script.serve("tools/list", tools()).await;
        script
            .serve("tools/call", json!({"task": task("working")}))
            .await;
        let poll = script.expect("tasks/get").await;
        assert_eq!(poll.header("mcp-session-id"), Some("s1"));
        poll.status(404);
        let hello = script.expect("initialize").await;
        assert_eq!(hello.header("mcp-session-id"), None);
        assert_eq!(hello.body["params"]["protocolVersion"], "2025-11-25");
        let message = answer(&hello.body, &initialized(&with_tasks()));
        let response = Response::builder()
            .header("content-type", "application/json")
            .header("mcp-session-id", "s2")
            .body(Body::from(message.to_string()));
        hello.reply(response.unwrap());
        script.expect("notifications/initialized").await.status(202);
        let get = script.gets.recv().await.unwrap();
        assert_eq!(get.header("mcp-session-id"), Some("s2"));
        get.status(405);
        let poll = script.expect("tasks/get").await;
        assert_eq!(poll.header("mcp-session-id"), Some("s2"));
        poll.result(&task("completed"));
        script.serve("tasks/result", text("done")).await;
    };
    let client = async {
        let client = TaskClient::http((), url).await.unwrap();
        assert_eq!(
            text_of(&client.call_tool(call("slow")).await.unwrap()),
            "done"
        );
    };
    play(server, client).await;
}

// F-36
#[tokio::test]
async fn failed_polls_are_repeated_and_a_refused_token_is_renewed() {
    let mut script = HttpScript::start().await;
    let (url, asked) = (script.url(), Arc::new(AtomicUsize::new(0)));
    let server = async {
        script.handshake().await;
        script.gets.recv().await.unwrap().status(405);
        script.serve("tools/list", tools()).await;
        script
            .serve("tools/call", json!({"task": task("working")}))
            .await;
        script.expect("tasks/get").await.status(503);
        script.expect("tasks/get").await.stream();
        let refused = script.expect("tasks/get").await;
        assert_eq!(refused.header("authorization"), Some("Bearer old"));
        refused.status(401);
        let renewed = script.expect("tasks/get").await;
        assert_eq!(renewed.header("authorization"), Some("Bearer new"));
        renewed.result(&task("completed"));
        script.serve("tasks/result", text("done")).await;
        script.expect("tools/call").await.status(401);
        script.expect("tools/call").await.status(401);
    };
    let client = async {
        let counter = asked.clone();
        let client = TaskClient::builder(())
            .bearer_with(move |refused| {
                counter.fetch_add(usize::from(refused), Ordering::SeqCst);
                std::future::ready(Some(if refused { "new" } else { "old" }.to_owned()))
            })
            .http(url)
            .await
            .unwrap();
        let names = names(client.call_tool_stream(call("slow"), CallOptions::new())).await;
        assert_eq!(
            names.last().map(String::as_str),
            Some("result done"),
            "{names:?}"
        );
        let error = client.call_tool(call("plain")).await.unwrap_err();
        assert!(
            matches!(error, TaskClientError::Unauthorized { status: 401 }),
            "{error}"
        );
    };
    play(server, client).await;
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_call_that_broke_off_is_lost_and_not_sent_again() {
    let mut script = HttpScript::start().await;
    let url = script.url();
    let server = async {
        script.handshake().await;
        script.serve("tools/list", tools()).await;
        drop(script.expect("tools/call").await.stream());
        // An error that could not name its request still is the answer to the one it came for.
        let request = script.expect("tools/call").await;
        request.json(
            &json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "odd"}}),
        );
        script.expect("tools/call").await.status(202);
        assert!(script.posts.try_recv().is_err());
    };
    let client = async {
        let client = TaskClient::http((), url).await.unwrap();
        let error = client.call_tool(call("slow")).await.unwrap_err();
        assert!(
            matches!(error, TaskClientError::TransportLost { sent: true, .. }),
            "{error}"
        );
        let error = client.call_tool(call("slow")).await.unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Rpc(error) if error.message == "odd"),
            "{error}"
        );
        let error = client.call_tool(call("slow")).await.unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Protocol(what) if what.contains("202")),
            "{error}"
        );
    };
    play(server, client).await;
}

// F-36
#[tokio::test]
async fn a_broken_stream_with_event_ids_is_taken_up_again() {
    a_broken_stream_goes_on_with("a-2").await;
}

#[tokio::test]
async fn an_answer_under_the_id_of_another_event_is_an_answer() {
    a_broken_stream_goes_on_with("a-1").await;
}

async fn a_broken_stream_goes_on_with(id: &str) {
    let mut script = HttpScript::start().await;
    let url = script.url();
    let server = async {
        script.handshake().await;
        script.gets.recv().await.unwrap().status(405);
        script.serve("tools/list", tools()).await;
        let request = script.expect("tools/call").await;
        let body = request.body.clone();
        let stream = request.stream();
        stream
            .send("id: a-1\nretry: 20\ndata: \n\n".to_owned())
            .unwrap();
        drop(stream);
        let resumed = script.gets.recv().await.unwrap();
        assert_eq!(resumed.header("last-event-id"), Some("a-1"));
        resumed
            .stream()
            .send(format!(
                "id: {id}\n{}",
                event(&answer(&body, &text("late")))
            ))
            .unwrap();
    };
    let client = async {
        let client = TaskClient::http((), url).await.unwrap();
        assert_eq!(
            text_of(&client.call_tool(call("slow")).await.unwrap()),
            "late"
        );
    };
    play(server, client).await;
}

#[tokio::test]
async fn a_server_out_of_reach_or_a_setting_that_is_none_is_told_when_connecting() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let error = TaskClient::http((), url).await.unwrap_err();
    assert!(
        matches!(error, TaskClientError::TransportLost { sent: false, .. }),
        "{error}"
    );
    let error = TaskClient::http((), "stdio:").await.unwrap_err();
    assert!(matches!(error, TaskClientError::Config(_)), "{error}");
    let error = TaskClient::builder(())
        .header("a b", "c")
        .http("http://localhost/")
        .await
        .unwrap_err();
    assert!(matches!(error, TaskClientError::Config(_)), "{error}");
    let error = TaskClient::child((), tokio::process::Command::new("/no/such/program"))
        .await
        .unwrap_err();
    assert!(matches!(error, TaskClientError::Spawn(_)), "{error}");
}

#[tokio::test]
async fn a_new_session_that_fails_is_tried_again() {
    let mut script = HttpScript::start().await;
    let url = script.url();
    let server = async {
        script.handshake().await;
        script.gets.recv().await.unwrap().status(405);
        script.serve("tools/list", tools()).await;
        script
            .serve("tools/call", json!({"task": task("working")}))
            .await;
        for trouble in [503, 500] {
            script.expect("tasks/get").await.status(404);
            script.expect("initialize").await.status(trouble);
        }
        let poll = script.expect("tasks/get").await;
        assert_eq!(poll.header("mcp-session-id"), Some("s1"));
        poll.status(404);
        script.serve("initialize", initialized(&with_tasks())).await;
        script.expect("notifications/initialized").await.status(202);
        script.serve("tasks/get", task("completed")).await;
        script.serve("tasks/result", text("done")).await;
        // Another session, maybe another release with other tools.
        script.serve("tools/list", tools()).await;
        // A call that met a forgotten session was not looked at: it may be sent again.
        script.expect("tools/call").await.status(404);
        script.serve("initialize", initialized(&with_tasks())).await;
        script.expect("notifications/initialized").await.status(202);
        script.serve("tools/call", text("plain")).await;
    };
    let client = async {
        let client = TaskClient::http((), url).await.unwrap();
        assert_eq!(
            text_of(&client.call_tool(call("slow")).await.unwrap()),
            "done"
        );
        assert_eq!(
            text_of(&client.call_tool(call("plain")).await.unwrap()),
            "plain"
        );
    };
    play(server, client).await;
}

#[tokio::test]
async fn a_new_session_may_be_with_a_server_that_declares_something_else() {
    let mut script = HttpScript::start().await;
    let url = script.url();
    let (without, with) = (json!({"tools": {}}), with_tasks());
    let server = async {
        script.handshake().await;
        script.gets.recv().await.unwrap().status(405);
        script.serve("tools/list", tools()).await;
        for capabilities in [&without, &with] {
            script.expect("tools/call").await.status(404);
            script.serve("initialize", initialized(capabilities)).await;
            script.expect("notifications/initialized").await.status(202);
            // It was made for what was known then.
            script.serve("tools/call", text("done")).await;
        }
        // What tools say of tasks is asked of the new one.
        let renamed = json!({"tools": [{"name": "plain", "inputSchema": {"type": "object"},
            "execution": {"taskSupport": "required"}}]});
        script.serve("tools/list", renamed).await;
        let request = script.expect("tools/call").await;
        assert_eq!(request.body["params"]["task"], json!({}));
        request.result(&text("done"));
    };
    let client = async {
        let client = TaskClient::http((), url).await.unwrap();
        for supports in [true, false] {
            assert_eq!(client.supports_tasks(), supports);
            client.call_tool(call("slow")).await.unwrap();
        }
        assert!(client.supports_tasks());
        client.call_tool(call("plain")).await.unwrap();
    };
    play(server, client).await;
}

// B53: the server says when to come again.
#[tokio::test(start_paused = true)]
async fn the_asked_time_is_waited_in_seconds_or_until_a_date() {
    crate::lines::sockets_have_time();
    let mut script = HttpScript::start().await;
    let url = script.url();
    let server = async {
        script.handshake().await;
        script.gets.recv().await.unwrap().status(405);
        script.serve("tools/list", tools()).await;
        let created = json!({"task": task("working")});
        script.serve("tools/call", created).await;
        for retry in ["120", "Sun, 06 Nov 1994 08:51:37 GMT"] {
            let busy = Response::builder()
                .status(429)
                .header("date", "Sun, 06 Nov 1994 08:49:37 GMT")
                .header("retry-after", retry);
            let poll = script.expect("tasks/get").await;
            poll.reply(busy.body(Body::empty()).unwrap());
            let refused = tokio::time::Instant::now();
            let poll = script.expect("tasks/get").await;
            assert!(refused.elapsed() >= Duration::from_secs(120), "{retry}");
            poll.result(&task("working"));
        }
        script.serve("tasks/get", task("completed")).await;
        script.serve("tasks/result", text("done")).await;
    };
    let client = async {
        let client = TaskClient::http((), url).await.unwrap();
        let result = client.call_tool(call("slow")).await.unwrap();
        assert_eq!(text_of(&result), "done");
    };
    crate::lines::play(server, client).await;
}
