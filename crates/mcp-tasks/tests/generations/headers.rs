//! The headers that repeat what the body says (2026-07-28 `basic/transports/streamable-http`).

use mcp_tasks::{TaskContext, TaskError, TaskTool};
use serde_json::{Value, json};

use crate::{
    World,
    once::{Once, headers},
    schema,
    support::text,
};

async fn refused(client: &Once, method: &str, params: &Value, headers: &[(String, String)]) {
    let message = client.message(method, params);
    let answer = client.send(&message, headers).await;
    assert_eq!(answer.status, 400, "{headers:?}: {answer:?}");
    let body = answer.json();
    schema::check(method, &body);
    assert_eq!(body["error"]["code"], -32020, "{headers:?}: {body}");
    assert_eq!(body["id"], message["id"]);
}

async fn accepted(
    client: &Once,
    method: &str,
    params: &Value,
    headers: &[(String, String)],
) -> Value {
    let message = client.message(method, params);
    let answer = client.send(&message, headers).await;
    assert_eq!(answer.status, 200, "{headers:?}: {answer:?}");
    let body = answer.json();
    assert!(body.get("result").is_some(), "{body}");
    body["result"].clone()
}

fn with(mut headers: Vec<(String, String)>, name: &str, value: &str) -> Vec<(String, String)> {
    headers.retain(|(have, _)| have != name);
    headers.push((name.to_owned(), value.to_owned()));
    headers
}

fn without(mut headers: Vec<(String, String)>, name: &str) -> Vec<(String, String)> {
    headers.retain(|(have, _)| have != name);
    headers
}

// B17
#[tokio::test]
async fn missing_doubled_different_and_broken_headers_are_refused() {
    let world = World::new().await;
    let client = world.once();
    let task = client.create("held", json!({})).await;
    let get = json!({"taskId": task["taskId"]});
    let call = json!({"name": "echo", "arguments": {"text": "x"}});
    for (method, params) in [
        ("tasks/get", &get),
        ("tasks/cancel", &get),
        ("tools/call", &call),
    ] {
        let good = headers(method, params);
        for name in ["mcp-protocol-version", "mcp-method"] {
            refused(&client, method, params, &without(good.clone(), name)).await;
        }
        for (name, wrong) in [
            ("mcp-protocol-version", "2025-11-25"),
            ("mcp-method", "tasks/update"),
            ("mcp-method", ""),
            ("mcp-method", "TASKS/GET"),
            ("mcp-name", "other"),
            ("mcp-name", "=?base64?not base64!?="),
            ("mcp-name", "=?base64?/w==?="),
        ] {
            refused(&client, method, params, &with(good.clone(), name, wrong)).await;
        }
        for name in ["mcp-protocol-version", "mcp-method", "mcp-name"] {
            let value = good
                .iter()
                .find(|(have, _)| have == name)
                .unwrap()
                .1
                .clone();
            let mut doubled = good.clone();
            doubled.push((name.to_owned(), value));
            refused(&client, method, params, &doubled).await;
        }
    }
    // Missing on tasks/* alone is tolerated, unless the server is strict.
    let unnamed = without(headers("tasks/get", &get), "mcp-name");
    assert_eq!(
        accepted(&client, "tasks/get", &get, &unnamed).await["status"],
        "working"
    );
    let strict = World::with(|builder| builder.strict_mcp_name(true)).await;
    let task = strict.once().create("held", json!({})).await;
    let get = json!({"taskId": task["taskId"]});
    let unnamed = without(headers("tasks/get", &get), "mcp-name");
    refused(&strict.once(), "tasks/get", &get, &unnamed).await;
    let unnamed = without(headers("tools/call", &call), "mcp-name");
    refused(&client, "tools/call", &call, &unnamed).await;
    // A header that is no text at all.
    let message = client.message("tasks/get", &get);
    let request = client
        .builder(&message, &without(headers("tasks/get", &get), "mcp-name"))
        .header(
            "mcp-name",
            reqwest::header::HeaderValue::from_bytes(b"\xff\xfe").unwrap(),
        );
    assert_eq!(request.send().await.unwrap().status(), 400);
}

#[tokio::test]
async fn names_may_be_base64_and_a_session_id_means_nothing() {
    let world = World::new().await;
    let client = world.once();
    let call = json!({"name": "echo", "arguments": {"text": "x"}});
    let coded = with(
        headers("tools/call", &call),
        "mcp-name",
        "=?base64?ZWNobw==?=",
    );
    assert_eq!(
        accepted(&client, "tools/call", &call, &coded).await["resultType"],
        "task"
    );
    let with_session = with(headers("tools/call", &call), "mcp-session-id", "anything");
    let message = client.message("tools/call", &call);
    let answer = client.send(&message, &with_session).await;
    assert_eq!(answer.status, 200);
    assert!(!answer.headers.contains_key("mcp-session-id"));
}

#[tokio::test]
async fn parameters_in_headers_are_the_ones_in_the_body() {
    let world = World::with(|builder| {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"type": "object", "properties": {
                "n": {"type": "integer", "x-mcp-header": "N"},
                "yes": {"type": "boolean", "x-mcp-header": "Yes"},
            }},
        }});
        builder.tool(
            TaskTool::new("routed")
                .support(mcp_tasks::TaskSupport::Optional)
                .input_schema(schema)
                .run(async |_: TaskContext, args: Value| Ok::<_, TaskError>(args.to_string())),
        )
    })
    .await;
    let client = world.plain();
    let call = json!({"name": "routed", "arguments": {
        "region": "Zürich ", "deep": {"n": 42, "yes": true}}});
    let base = headers("tools/call", &call);
    let region = ("mcp-param-region", "=?base64?WsO8cmljaCA=?=");
    let all = |n: &str, yes: &str| {
        let headers = with(base.clone(), region.0, region.1);
        with(with(headers, "mcp-param-n", n), "mcp-param-yes", yes)
    };
    for n in ["42", "42.0"] {
        let result = accepted(&client, "tools/call", &call, &all(n, "true")).await;
        assert!(text(&result).contains("Zürich"));
    }
    refused(&client, "tools/call", &call, &all("43", "true")).await;
    refused(&client, "tools/call", &call, &all("x", "true")).await;
    refused(&client, "tools/call", &call, &all("42", "True")).await;
    for name in ["mcp-param-region", "mcp-param-n", "mcp-param-yes"] {
        refused(
            &client,
            "tools/call",
            &call,
            &without(all("42", "true"), name),
        )
        .await;
    }
    let plain = with(all("42", "true"), region.0, "Zurich");
    refused(&client, "tools/call", &call, &plain).await;
    // Absent and null are the same: no header then.
    for arguments in [json!({}), json!({"region": null, "deep": {}})] {
        let bare = json!({"name": "routed", "arguments": arguments});
        let answer = client
            .send(&client.message("tools/call", &bare), &base)
            .await;
        assert_eq!(answer.status, 200);
        refused(
            &client,
            "tools/call",
            &bare,
            &with(base.clone(), region.0, region.1),
        )
        .await;
    }
    // Headers that no schema knows are nobody's business.
    let more = with(all("42", "true"), "mcp-param-other", "x");
    accepted(&client, "tools/call", &call, &more).await;
}
