//! 2026-07-28 over HTTP: headers, statuses, streams.

use std::time::Duration;

use axum::{body::Body, http::Response};
use mcp_tasks::client::{CallOptions, TaskClient, TaskClientError};
use rmcp::model::CallToolRequestParams;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    Person, call,
    lines::{play, sockets_have_time},
    names,
    script::*,
    text_of,
};

fn refused(exchange: Exchange, status: u16, refusal: &Value) {
    let response = Response::builder()
        .status(status)
        .header("content-type", "application/json");
    exchange.reply(response.body(Body::from(refusal.to_string())).unwrap());
}

/// The headers that have to be there, and those that must not.
fn check(exchange: &Exchange, method: &str, name: Option<&str>) {
    assert_eq!(exchange.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(exchange.header("mcp-method"), Some(method));
    assert_eq!(exchange.header("mcp-name"), name, "{method}");
    assert_eq!(exchange.header("mcp-session-id"), None);
    assert_eq!(
        exchange.header("accept"),
        Some("application/json, text/event-stream")
    );
}

impl HttpScript {
    async fn checked(&mut self, method: &str, name: Option<&str>) -> Exchange {
        let exchange = self.expect(method).await;
        check(&exchange, method, name);
        exchange
    }
}

// B85
#[tokio::test]
async fn every_request_has_its_headers_and_there_is_no_session() {
    let mut script = HttpScript::modern().await;
    let url = script.url();
    let person = Person::default();
    let server = async {
        let asked = script.checked("server/discover", None).await;
        // A session that nobody asked for is none.
        asked.result(&discovered());
        script.checked("tools/list", None).await.result(&tools());
        let name = "=?base64?c8OkZ2U=?=";
        script
            .checked("tools/call", Some(name))
            .await
            .result(&handle());
        let listen = script.checked("subscriptions/listen", None).await;
        listen.status(405);
        script
            .checked("tasks/get", Some("T"))
            .await
            .result(&asking(&["a"]));
        // The answer got lost on the way, twice.
        let first = script.checked("tasks/update", Some("T")).await;
        let answers = first.body["params"]["inputResponses"].clone();
        first.status(503);
        loop {
            let exchange = script.posts.recv().await.unwrap();
            if exchange.body["method"] == "tasks/get" {
                exchange.result(&asking(&["a"]));
                continue;
            }
            check(&exchange, "tasks/update", Some("T"));
            assert_eq!(exchange.body["params"]["inputResponses"], answers);
            break exchange.result(&json!({}));
        }
        script
            .checked("tasks/get", Some("T"))
            .await
            .result(&handle());
        script
            .checked("tasks/cancel", Some("T"))
            .await
            .result(&json!({}));
        // Its follower may look once more than `cancel` does.
        loop {
            let exchange = script.checked("tasks/get", Some("T")).await;
            exchange.result(&detailed("cancelled", json!({})));
        }
    };
    let client = async {
        let client = TaskClient::http(person.clone(), url).await.unwrap();
        let mut events = client.call_tool_stream(call("säge"), CallOptions::new());
        let mut statuses = Vec::new();
        loop {
            match events.next().await {
                Some(mcp_tasks::client::TaskEvent::Status(info)) => {
                    statuses.push(info.status.to_string());
                    if statuses.len() == 2 {
                        events.task().unwrap().cancel().await.unwrap();
                    }
                }
                Some(mcp_tasks::client::TaskEvent::Error(error)) => {
                    assert!(
                        matches!(error, TaskClientError::Cancelled { .. }),
                        "{error}"
                    );
                    break;
                }
                Some(_) => {}
                None => panic!("{statuses:?}"),
            }
        }
    };
    tokio::select! {
        () = server => {}
        () = play(std::future::ready(()), client) => {}
    }
    assert_eq!(person.asked(), 1);
    assert!(script.gets.try_recv().is_err(), "no general stream");
}

fn annotated(header: &str) -> Value {
    json!({"tools": [
        {"name": "sql", "inputSchema": {"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": header},
            "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
            "query": {"type": "string"}}}},
        {"name": "broken", "inputSchema": {"type": "object", "properties": {
            "p": {"type": "number", "x-mcp-header": "P"}}}},
    ]})
}

fn sql() -> CallToolRequestParams {
    let arguments = json!({"region": "us-west1", "deep": {"n": 42}, "query": "SELECT"});
    call("sql").with_arguments(arguments.as_object().unwrap().clone())
}

#[tokio::test]
async fn parameters_are_repeated_and_a_mismatch_lists_again_once() {
    let mut script = HttpScript::modern().await;
    let url = script.url();
    let server = async {
        script.serve("server/discover", discovered()).await;
        script.serve("tools/list", annotated("Region")).await;
        let request = script.expect("tools/call").await;
        assert_eq!(request.header("mcp-param-region"), Some("us-west1"));
        assert_eq!(request.header("mcp-param-n"), Some("42"));
        assert_eq!(request.header("mcp-param-query"), None);
        let mismatch = refusal(&request.body, -32020, "Header mismatch");
        let id = request.body["id"].clone();
        refused(request, 400, &mismatch);
        script.serve("tools/list", annotated("Area")).await;
        let request = script.expect("tools/call").await;
        assert_ne!(request.body["id"], id);
        assert_eq!(request.header("mcp-param-area"), Some("us-west1"));
        assert_eq!(request.header("mcp-param-region"), None);
        request.result(&text("rows"));
        // Once more, and it is told.
        let request = script.expect("tools/call").await;
        let mismatch = refusal(&request.body, -32020, "Header mismatch");
        refused(request, 400, &mismatch);
        script.serve("tools/list", annotated("Area")).await;
        let request = script.expect("tools/call").await;
        let mismatch = refusal(&request.body, -32020, "Header mismatch");
        refused(request, 400, &mismatch);
        // rmcp's call does the same.
        let request = script.expect("tools/call").await;
        assert_eq!(request.header("mcp-param-area"), Some("us-west1"));
        let mismatch = refusal(&request.body, -32020, "Header mismatch");
        refused(request, 400, &mismatch);
        script.serve("tools/list", annotated("Zone")).await;
        let request = script.expect("tools/call").await;
        assert_eq!(request.header("mcp-param-zone"), Some("us-west1"));
        let declared =
            &request.body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        assert_eq!(declared["extensions"], json!({EXTENSION: {}}));
        request.result(&text("rmcp"));
        // And does not see the tool whose headers make no sense.
        let list = script.expect("tools/list").await;
        check(&list, "tools/list", None);
        list.result(&annotated("Zone"));
        let read = script.expect("resources/read").await;
        check(&read, "resources/read", Some("file:///a"));
        read.result(
            &json!({"contents": [], "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}),
        );
    };
    let client = async {
        let client = TaskClient::http((), url).await.unwrap();
        assert_eq!(text_of(&client.call_tool(sql()).await.unwrap()), "rows");
        let error = client.call_tool(sql()).await.unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Rpc(error) if error.code.0 == -32020),
            "{error}"
        );
        let result = client.peer().call_tool(sql()).await.unwrap();
        assert_eq!(text_of(&result), "rmcp");
        let listed = client.peer().list_tools(None).await.unwrap().tools;
        assert_eq!(
            listed.iter().map(|tool| &*tool.name).collect::<Vec<_>>(),
            ["sql"]
        );
        let error = client.call_tool(call("broken")).await.unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Protocol(why) if why.contains("broken")),
            "{error}"
        );
        let read = rmcp::model::ReadResourceRequestParams::new("file:///a");
        client.peer().read_resource(read).await.unwrap();
    };
    play(server, client).await;
}

// B53: 429 with Retry-After on a poll, with a body that would be an answer
#[tokio::test(start_paused = true)]
async fn a_poll_that_came_too_often_waits_as_it_was_told() {
    let mut script = HttpScript::modern().await;
    let url = script.url();
    sockets_have_time();
    let server = async {
        script.serve("server/discover", discovered()).await;
        script.serve("tools/list", tools()).await;
        script.serve("tools/call", handle()).await;
        let poll = script.expect("tasks/get").await;
        let body = refusal(&poll.body, -32000, "slow down").to_string();
        let response = Response::builder()
            .status(429)
            .header("content-type", "application/json")
            .header("retry-after", "30");
        poll.reply(response.body(Body::from(body)).unwrap());
        let told = Instant::now();
        let poll = script.expect("tasks/get").await;
        assert!(told.elapsed() >= Duration::from_secs(30));
        poll.result(&completed("done"));
    };
    let client = async {
        let builder = TaskClient::builder(()).subscribe(false);
        let client = builder.http(url).await.unwrap();
        let result = client.call_tool(call("slow")).await.unwrap();
        assert_eq!(text_of(&result), "done");
    };
    play(server, client).await;
}

// B89
#[tokio::test]
async fn announcements_come_on_a_stream_of_their_own() {
    let mut script = HttpScript::modern().await;
    let url = script.url();
    let server = async {
        script.serve("server/discover", discovered()).await;
        script.serve("tools/list", tools()).await;
        let mut slow = handle();
        slow["pollIntervalMs"] = json!(3_600_000);
        script.serve("tools/call", slow).await;
        let listen = script.expect("subscriptions/listen").await;
        check(&listen, "subscriptions/listen", None);
        let id = listen.body["id"].clone();
        let note = |method: &str, mut params: Value| {
            params["_meta"] = json!({ SUBSCRIPTION: id });
            event(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
        };
        let stream = listen.stream();
        let granted = json!({"notifications": {"taskIds": ["T"]}});
        let acknowledged = "notifications/subscriptions/acknowledged";
        stream.send(note(acknowledged, granted)).unwrap();
        stream.send(":\n\n".to_owned()).unwrap();
        stream.send(note("notifications/tasks", handle())).unwrap();
        stream
            .send(note("notifications/tasks", completed("told")))
            .unwrap();
        // Closing it is how it is withdrawn.
        stream.closed().await;
    };
    let client = async {
        let client = TaskClient::http((), url).await.unwrap();
        let events = names(client.call_tool_stream(call("slow"), CallOptions::new())).await;
        assert_eq!(events.last().unwrap(), "result told");
        client
    };
    drop(play(server, client).await);
    assert!(script.posts.try_recv().is_err(), "no poll, no notification");
}

#[tokio::test]
async fn a_dropped_call_closes_its_stream_and_says_nothing_else() {
    let mut script = HttpScript::modern().await;
    let url = script.url();
    let server = async {
        script.serve("server/discover", discovered()).await;
        script.serve("tools/list", tools()).await;
        let stream = script.expect("tools/call").await.stream();
        stream.closed().await;
    };
    let client = async {
        let client = TaskClient::http((), url).await.unwrap();
        let options = CallOptions::new().deadline(Duration::from_millis(300));
        let error = client
            .call_tool_with(call("slow"), options)
            .await
            .unwrap_err();
        assert!(
            matches!(error, TaskClientError::Deadline { task_id: None }),
            "{error}"
        );
        client
    };
    drop(play(server, client).await);
    assert!(script.posts.try_recv().is_err());
}

#[tokio::test]
async fn a_broken_stream_of_a_call_is_not_taken_up_again() {
    let mut script = HttpScript::modern().await;
    let url = script.url();
    let server = async {
        script.serve("server/discover", discovered()).await;
        script.serve("tools/list", tools()).await;
        let stream = script.expect("tools/call").await.stream();
        let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}});
        stream.send(format!("id: 1\n{}", event(&note))).unwrap();
    };
    let client = async {
        let client = TaskClient::http((), url).await.unwrap();
        let error = client.call_tool(call("slow")).await.unwrap_err();
        assert!(
            matches!(error, TaskClientError::TransportLost { sent: true, .. }),
            "{error}"
        );
    };
    play(server, client).await;
    assert!(script.gets.try_recv().is_err() && script.posts.try_recv().is_err());
}
