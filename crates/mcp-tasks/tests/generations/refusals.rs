//! The order of refusal: of two faults at once the earlier one is told.

use std::sync::Arc;

use mcp_tasks::store::{SqliteStore, TaskStore};
use serde_json::{Value, json};

use crate::{
    World,
    once::{TASKS, VERSION},
};

/// The faults, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Origin,
    Json,
    Header,
    VersionMissing,
    VersionUnknown,
    Capabilities,
    Method,
    Undeclared,
    UnknownId,
}

use Fault::*;

const ORDER: [Fault; 9] = [
    Origin,
    Json,
    Header,
    VersionMissing,
    VersionUnknown,
    Capabilities,
    Method,
    Undeclared,
    UnknownId,
];

/// What each is answered with: the status and the code.
fn expected(fault: Fault) -> (u16, Option<i64>) {
    match fault {
        Origin => (403, None),
        Json => (400, Some(-32700)),
        Header => (400, Some(-32020)),
        VersionMissing | Capabilities => (400, Some(-32602)),
        VersionUnknown => (400, Some(-32022)),
        Method => (404, Some(-32601)),
        Undeclared => (400, Some(-32021)),
        UnknownId => (200, Some(-32602)),
    }
}

async fn send(world: &World, method: &str, task: &Value, faults: &[Fault]) -> (u16, String) {
    let has = |fault| faults.contains(&fault);
    let version = if has(VersionUnknown) {
        "2999-01-01"
    } else {
        VERSION
    };
    let method = if has(Method) { "tasks/list" } else { method };
    let mut meta = json!({"io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"}});
    if !has(VersionMissing) {
        meta["io.modelcontextprotocol/protocolVersion"] = json!(version);
    }
    if !has(Capabilities) {
        let extensions = if has(Undeclared) {
            json!({})
        } else {
            json!({TASKS: {}})
        };
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({"extensions": extensions});
    }
    let id = if has(UnknownId) {
        json!("nope")
    } else {
        task.clone()
    };
    let mut params = json!({"taskId": id, "_meta": meta});
    if method == "tasks/update" {
        params["inputResponses"] = json!({});
    }
    let mut body =
        json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string();
    if has(Json) {
        body.pop();
    }
    let mut request = reqwest::Client::new()
        .post(&world.served.url)
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("authorization", "Bearer alice")
        .header("mcp-protocol-version", version)
        .header(
            "mcp-method",
            if has(Header) { "tools/call" } else { method },
        )
        .header("mcp-name", id.as_str().unwrap());
    if has(Origin) {
        request = request.header("origin", "https://evil.example");
    }
    let answer = request.body(body).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

fn check(faults: &[Fault], (status, body): (u16, String)) {
    let (wanted, code) = expected(faults[0]);
    assert_eq!(status, wanted, "{faults:?}: {body}");
    let Some(code) = code else { return };
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["error"]["code"], code, "{faults:?}: {body}");
    if faults[0] == Json {
        assert!(body.get("id").is_none(), "{body}");
    } else {
        assert_eq!(body["id"], 7);
        crate::schema::check("tasks/get", &body);
    }
}

#[tokio::test]
async fn of_two_faults_at_once_the_earlier_is_told() {
    let world = World::new().await;
    let task = world.once().create("held", json!({})).await;
    let task = &task["taskId"];
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        for (at, first) in ORDER.iter().enumerate() {
            check(&[*first], send(&world, method, task, &[*first]).await);
            for second in &ORDER[at + 1..] {
                // A method has one name; a revision is missing or unknown.
                let both = [*first, *second];
                check(&both, send(&world, method, task, &both).await);
            }
        }
    }
    // Nothing changed meanwhile.
    let now = world.once().get(&json!({"taskId": task})).await;
    assert_eq!(now["status"], "working");
    let data = send(&world, "tasks/get", task, &[VersionUnknown]).await.1;
    let data: Value = serde_json::from_str(&data).unwrap();
    assert_eq!(data["error"]["data"]["requested"], "2999-01-01");
    let supported = data["error"]["data"]["supported"].as_array().unwrap();
    assert!(supported.contains(&json!(VERSION)) && supported.contains(&json!("2025-11-25")));
    let data = send(&world, "tasks/get", task, &[Undeclared]).await.1;
    let data: Value = serde_json::from_str(&data).unwrap();
    assert_eq!(
        data["error"]["data"],
        json!({"requiredCapabilities": {"extensions": {TASKS: {}}}})
    );
}

#[tokio::test]
async fn a_store_that_fails_comes_last() {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn TaskStore> =
        Arc::new(SqliteStore::open(directory.path().join("tasks.db")).unwrap());
    let closing = store.clone();
    let world = World::with(|builder| builder.shared_store(store)).await;
    let task = world.once().create("held", json!({})).await;
    closing.close().await.unwrap();
    let (status, body) = send(&world, "tasks/get", &task["taskId"], &[]).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["error"]["code"]), (200, &json!(-32603)));
    // Wrong parameters are told before it is asked.
    let client = world.once();
    let answer = client.answer("tasks/get", json!({"taskId": 7})).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["error"]["code"], -32602);
}

// B11, B13: methods of 2025-11-25 are unknown here.
#[tokio::test]
async fn removed_methods_are_unknown() {
    let world = World::new().await;
    let client = world.once();
    let task = client.create("echo", json!({"text": "x"})).await;
    for method in ["tasks/result", "tasks/list", "tasks/create"] {
        let answer = client
            .answer(method, json!({"taskId": task["taskId"]}))
            .await;
        assert_eq!(answer.status, 404, "{method}");
        assert_eq!(answer.json()["error"]["code"], -32601);
    }
}
