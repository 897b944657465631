//! Which revision a server speaks, over lines and over HTTP.

use std::time::Duration;

use axum::{body::Body, http::Response};
use mcp_tasks::{
    client::{ProtocolChoice, TaskClient, TaskClientError, Ticket},
    task::Generation,
};
use serde_json::{Value, json};
use tokio::io::{DuplexStream, ReadHalf, WriteHalf};

use crate::{call, lines::play, script::*, text_of};

type Io = (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>);

fn unsupported(request: &Value, versions: &[&str]) -> Value {
    let mut refusal = refusal(request, -32022, "Unsupported protocol version");
    refusal["error"]["data"] = json!({"supported": versions, "requested": "2026-07-28"});
    refusal
}

async fn auto(io: Io) -> Result<TaskClient, TaskClientError> {
    TaskClient::connect((), io).await
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_discover_is_modern_for_us_and_for_rmcp() {
    let (mut script, io) = Script::modern_pair();
    let server = async {
        let hello = script.discover().await;
        let meta = &hello["params"]["_meta"];
        assert_eq!(
            meta["io.modelcontextprotocol/protocolVersion"],
            "2026-07-28"
        );
        assert!(meta["io.modelcontextprotocol/clientInfo"]["name"].is_string());
        let declared = &meta["io.modelcontextprotocol/clientCapabilities"];
        assert_eq!(declared["extensions"], json!({EXTENSION: {}}));
        // rmcp begins with what we found out; its requests carry the same, and the extension.
        let list = script.expect("tools/list").await;
        let meta = &list["params"]["_meta"];
        assert_eq!(
            meta["io.modelcontextprotocol/protocolVersion"],
            "2026-07-28"
        );
        let declared = &meta["io.modelcontextprotocol/clientCapabilities"];
        assert_eq!(declared["extensions"], json!({EXTENSION: {}}));
        assert!(list["id"].is_number());
        script.send(answer(&list, &tools())).await;
        let request = script.serve("tools/call", text("plain")).await;
        assert!(request["params"].get("task").is_none());
        assert_eq!(script.next().await, None);
    };
    let client = async {
        let client = auto(io).await.unwrap();
        assert_eq!(client.protocol_version(), "2026-07-28");
        assert_eq!(client.generation(), Generation::V2026_07_28);
        assert!(client.supports_tasks());
        let info = client.peer().peer_info().unwrap();
        assert!(info.capabilities.tools.is_some());
        assert_eq!(client.peer().list_tools(None).await.unwrap().tools.len(), 2);
        let result = client.call_tool(call("plain")).await.unwrap();
        assert_eq!(text_of(&result), "plain");
        let error = client.list_tasks().await.unwrap_err();
        assert!(
            matches!(error, TaskClientError::TasksUnsupported(_)),
            "{error}"
        );
        client.close().await;
    };
    play(server, client).await;
}

#[tokio::test(start_paused = true)]
async fn whatever_is_no_modern_answer_falls_back_to_initialize() {
    let id_less = |_: &Value| json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "?"}});
    let answers: [&dyn Fn(&Value) -> Value; 6] = [
        &|request| refusal(request, -32601, "Method not found"),
        &|request| refusal(request, -32602, "before initialization"),
        &|request| refusal(request, 0, "hm"),
        &|request| answer(request, &json!({})),
        &|request| unsupported(request, &["2025-06-18", "2025-11-25"]),
        &id_less,
    ];
    for reply in answers {
        let (mut script, io) = Script::modern_pair();
        let server = async {
            let asked = script.expect("server/discover").await;
            script.send(reply(&asked)).await;
            script.handshake(with_tasks()).await;
            script.serve("tools/list", tools()).await;
            script.serve("tools/call", text("plain")).await;
        };
        let client = async {
            let client = auto(io).await.unwrap();
            assert_eq!(client.generation(), Generation::V2025_11_25);
            let result = client.call_tool(call("plain")).await.unwrap();
            assert_eq!(text_of(&result), "plain");
        };
        play(server, client).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_mute_server_gets_initialize_and_its_late_answer_is_dropped() {
    let (mut script, io) = Script::modern_pair();
    let server = async {
        let asked = script.expect("server/discover").await;
        let hello = script.expect("initialize").await;
        script.send(answer(&asked, &discovered())).await;
        script
            .send(answer(&hello, &initialized(&with_tasks())))
            .await;
        script.expect("notifications/initialized").await;
        script.serve("tools/list", tools()).await;
        let request = script.serve("tools/call", text("now")).await;
        assert!(request["params"]["task"].is_object());
    };
    let client = async {
        let builder = TaskClient::builder(()).probe_timeout(Duration::from_secs(2));
        let client = builder.connect(io).await.unwrap();
        assert_eq!(client.protocol_version(), "2025-11-25");
        let result = client.call_tool(call("slow")).await.unwrap();
        assert_eq!(text_of(&result), "now");
    };
    play(server, client).await;
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_stays_one_whatever_it_refuses() {
    // It names the revision that it has just refused: asked once more.
    let (mut script, io) = Script::modern_pair();
    let server = async {
        let asked = script.expect("server/discover").await;
        script.send(unsupported(&asked, &["2026-07-28"])).await;
        let again = script.discover().await;
        assert_ne!(again["id"], asked["id"]);
        assert_eq!(script.next().await, None);
    };
    let client = async {
        let client = auto(io).await.unwrap();
        assert_eq!(client.generation(), Generation::V2026_07_28);
        client.close().await;
    };
    play(server, client).await;
    // Nothing in common; and an error that is about something else.
    type Reply = fn(&Value) -> Value;
    let cases: [(Reply, &str); 3] = [
        (|asked| unsupported(asked, &["2027-01-01"]), "2027-01-01"),
        (
            |asked| {
                answer(
                    asked,
                    &json!({"supportedVersions": ["2028-02-02"], "capabilities": {}}),
                )
            },
            "2028-02-02",
        ),
        (|asked| refusal(asked, -32020, "Header mismatch"), "-32020"),
    ];
    for (reply, what) in cases {
        let (mut script, io) = Script::modern_pair();
        let server = async {
            let asked = script.expect("server/discover").await;
            script.send(reply(&asked)).await;
            assert_eq!(script.next().await, None, "no initialize");
        };
        let client = async {
            let error = auto(io).await.unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
            match error {
                TaskClientError::UnsupportedVersion { supported } => assert_eq!(supported, [what]),
                TaskClientError::Rpc(error) => assert_eq!(error.code.0, -32020),
                other => panic!("{other}"),
            }
        };
        play(server, client).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_revision_can_be_insisted_on() {
    let (mut script, io) = Script::modern_pair();
    let server = async { drop(script.handshake(with_tasks()).await) };
    let client = async {
        let builder = TaskClient::builder(()).protocol(ProtocolChoice::V2025_11_25);
        let client = builder.connect(io).await.unwrap();
        assert_eq!(client.generation(), Generation::V2025_11_25);
        client.close().await;
    };
    play(server, client).await;
    for mute in [false, true] {
        let (mut script, io) = Script::modern_pair();
        let server = async {
            let asked = script.expect("server/discover").await;
            if !mute {
                script.send(refusal(&asked, -32601, "no")).await;
            }
            assert_eq!(script.next().await, None, "no initialize");
        };
        let client = async {
            let builder = TaskClient::builder(()).protocol(ProtocolChoice::V2026_07_28);
            builder.connect(io).await.unwrap_err()
        };
        match (play(server, client).await, mute) {
            (TaskClientError::Timeout { .. }, true) => {}
            (TaskClientError::Rpc(error), false) => assert_eq!(error.code.0, -32601),
            (other, _) => panic!("{other}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_ticket_says_what_to_speak() {
    let ticket = |protocol: &str| {
        let ticket = json!({"version": 1, "endpoint": "streams", "server": "script", "protocol": protocol, "task": "T"});
        Ticket::from_json(&ticket.to_string()).unwrap()
    };
    let old = ticket("2025-11-25");
    let (mut script, io) = Script::modern_pair();
    let server = async { drop(script.handshake(with_tasks()).await) };
    let client = async {
        let builder = TaskClient::builder(()).for_ticket(&old);
        let client = builder.connect(io).await.unwrap();
        assert!(client.resume(&old).is_ok());
    };
    play(server, client).await;
    let new = ticket("2026-07-28");
    let (mut script, io) = Script::modern_pair();
    let server = async {
        script.discover().await;
        script.serve("tasks/get", completed("kept")).await;
    };
    let client = async {
        let builder = TaskClient::builder(()).for_ticket(&new).subscribe(false);
        let client = builder.connect(io).await.unwrap();
        let error = client.resume(&old).unwrap_err();
        assert!(matches!(error, TaskClientError::Ticket(_)), "{error}");
        let result = client.resume(&new).unwrap().result().await.unwrap();
        assert_eq!(text_of(&result), "kept");
    };
    play(server, client).await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_child_that_ends_at_the_question_is_started_again_and_not_asked() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        echo started >> starts
        read hello
        case "$hello" in *server/discover*) exit 1;; esac
        echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}}'
        while read more; do :; done
    "#;
    let command = || {
        let mut command = tokio::process::Command::new("sh");
        command.arg("-c").arg(script).current_dir(folder.path());
        command
    };
    let client = TaskClient::child((), command()).await.unwrap();
    assert_eq!(client.protocol_version(), "2025-11-25");
    client.close().await;
    let starts = std::fs::read_to_string(folder.path().join("starts")).unwrap();
    assert_eq!(starts.lines().count(), 2);
    let builder = TaskClient::builder(()).protocol(ProtocolChoice::V2026_07_28);
    let error = builder.child(command()).await.unwrap_err();
    assert!(
        matches!(error, TaskClientError::TransportLost { .. }),
        "{error}"
    );
}

fn status(status: u16, body: impl Into<Body>) -> Response<Body> {
    let response = Response::builder()
        .status(status)
        .header("content-type", "application/json");
    response.body(body.into()).unwrap()
}

#[tokio::test]
async fn over_http_the_body_of_a_refusal_decides() {
    type Reply = fn(Exchange);
    let legacy: [Reply; 8] = [
        |asked| asked.status(400),
        |asked| asked.status(404),
        |asked| asked.status(405),
        |asked| asked.status(500),
        |asked| {
            let refusal = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "Bad Request"}});
            asked.reply(status(400, refusal.to_string()));
        },
        |asked| {
            let refusal = json!({"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "Bad Request"}});
            asked.reply(status(400, refusal.to_string()));
        },
        |asked| {
            let refusal = refusal(&asked.body, -32601, "Method not found");
            asked.reply(status(200, refusal.to_string()));
        },
        |asked| {
            let refusal = unsupported(&asked.body, &["2025-11-25"]);
            asked.reply(status(400, refusal.to_string()));
        },
    ];
    for reply in legacy {
        let mut script = HttpScript::modern().await;
        let url = script.url();
        let server = async {
            let asked = script.expect("server/discover").await;
            assert_eq!(asked.header("mcp-protocol-version"), Some("2026-07-28"));
            assert_eq!(asked.header("mcp-method"), Some("server/discover"));
            reply(asked);
            let hello = script.expect("initialize").await;
            assert_eq!(hello.header("mcp-method"), None);
            assert_eq!(hello.header("mcp-protocol-version"), None);
            hello.result(&initialized(&with_tasks()));
            let told = script.expect("notifications/initialized").await;
            assert_eq!(told.header("mcp-session-id"), Some("s1"));
            told.status(202);
        };
        let client = async {
            let client = TaskClient::http((), url).await.unwrap();
            assert_eq!(client.protocol_version(), "2025-11-25");
        };
        play(server, client).await;
    }
    let modern: [(Reply, &str); 4] = [
        (
            |asked| {
                let refusal = unsupported(&asked.body, &["2030-01-01"]);
                asked.reply(status(400, refusal.to_string()));
            },
            "2030-01-01",
        ),
        (
            |asked| {
                let refusal = refusal(&asked.body, -32020, "Header mismatch");
                asked.reply(status(400, refusal.to_string()));
            },
            "-32020",
        ),
        (|asked| asked.status(401), "401"),
        (|asked| asked.status(403), "403"),
    ];
    for (reply, what) in modern {
        let mut script = HttpScript::modern().await;
        let url = script.url();
        let server = async { reply(script.expect("server/discover").await) };
        let client = async {
            let error = TaskClient::http((), url).await.unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
        };
        play(server, client).await;
        assert!(script.posts.try_recv().is_err(), "no initialize");
    }
}
