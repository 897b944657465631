//! `subscriptions/listen` with tasks.

use std::{sync::Arc, time::Duration};

use mcp_tasks::{TaskTool, store::SqliteStore};
use rmcp::{
    ServerHandler,
    model::{ServerCapabilities, ServerConfig, SubscriptionFilter},
};
use serde_json::{Value, json};

use crate::{
    Served, World,
    once::{Once, accepted},
    owners, schema,
    support::{http::Events, text},
    tools::{self, Gates},
};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

async fn listen(client: &Once, filter: Value) -> (Events, Value) {
    let mut events = client
        .open("subscriptions/listen", json!({"notifications": filter}))
        .await;
    assert_eq!(events.status, 200);
    let first = events.next().await.unwrap();
    schema::check("subscriptions/listen", &first);
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    (events, first["params"].clone())
}

async fn told(events: &mut Events) -> Value {
    let message = events.next().await.expect("an open stream");
    schema::check("subscriptions/listen", &message);
    message
}

// B89, F-38
#[tokio::test]
async fn each_change_is_told_as_tasks_get_would_tell_it() {
    let world = World::new().await;
    let client = world.once();
    let task = client.create("interview", json!({})).await;
    let foreign = Once::new(&world.served.url, "bob")
        .create("held", json!({}))
        .await;
    let wanted = json!({"taskIds": [task["taskId"], "nope", foreign["taskId"]]});
    let (mut events, acknowledged) = listen(&client, wanted).await;
    assert_eq!(
        acknowledged["notifications"]["taskIds"],
        json!([task["taskId"]])
    );
    let id = acknowledged["_meta"][SUBSCRIPTION].clone();
    assert!(id.is_u64(), "the type of the request's id: {id}");
    let now = told(&mut events).await;
    assert_eq!(now["method"], "notifications/tasks");
    assert_eq!(now["params"]["status"], "working");
    world.gates.go.add_permits(1);
    let asked = told(&mut events).await["params"].clone();
    assert_eq!(asked["status"], "input_required");
    assert_eq!(asked["_meta"][SUBSCRIPTION], id);
    let mut same = client.get(&task).await;
    let mut without_meta = asked.clone();
    for members in [&mut same, &mut without_meta] {
        let members = members.as_object_mut().unwrap();
        members.remove("_meta");
        members.remove("resultType");
    }
    assert_eq!(same, without_meta, "exactly what tasks/get says");
    let key = asked["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap()
        .clone();
    client.update(&task, json!({key: accepted("Ada")})).await;
    assert_eq!(told(&mut events).await["params"]["status"], "working");
    client.cancel(&task).await;
    assert_eq!(told(&mut events).await["params"]["status"], "cancelled");
    // It stays open when all have ended, and says nothing more of them.
    world.tasks.shutdown(Duration::ZERO).await;
    let end = told(&mut events).await;
    assert_eq!(end["id"], id);
    assert_eq!(end["result"]["_meta"][SUBSCRIPTION], id);
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn the_end_carries_the_result() {
    let world = World::new().await;
    let client = world.once();
    let task = client.create("held", json!({})).await;
    let (mut events, _) = listen(&client, json!({"taskIds": [task["taskId"]]})).await;
    told(&mut events).await;
    world.gates.go.add_permits(1);
    let done = told(&mut events).await;
    assert_eq!(done["params"]["status"], "completed");
    assert!(text(&done["params"]["result"]).starts_with("held"));
    // One that has ended before is told once, as it is.
    let (mut late, _) = listen(&client, json!({"taskIds": [task["taskId"]]})).await;
    assert_eq!(told(&mut late).await["params"]["status"], "completed");
}

// Progress and logs never go on the stream of a task.
#[tokio::test]
async fn nothing_but_changes_is_told() {
    let world = World::new().await;
    let client = world.once();
    let params = json!({"name": "chatty", "arguments": {},
        "_meta": {"progressToken": "p", "io.modelcontextprotocol/logLevel": "debug"}});
    let task = client.request("tools/call", params).await["result"].clone();
    let (mut events, _) = listen(&client, json!({"taskIds": [task["taskId"]]})).await;
    loop {
        let message = told(&mut events).await;
        assert_eq!(message["method"], "notifications/tasks");
        if message["params"]["status"] == "completed" {
            break;
        }
    }
}

#[tokio::test]
async fn without_the_extension_it_is_refused() {
    let world = World::new().await;
    let client = world.plain();
    for ids in [json!([]), json!(["nope"])] {
        let params = json!({"notifications": {"taskIds": ids}});
        let answer = client.answer("subscriptions/listen", params).await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.json()["error"]["code"], -32021);
    }
    let wrong = json!({"notifications": {"taskIds": "nope"}});
    let answer = world.once().answer("subscriptions/listen", wrong).await;
    assert_eq!(answer.json()["error"]["code"], -32602);
    // What concerns nothing of ours is the inner server's, which has no subscriptions.
    let inner = json!({"notifications": {"promptsListChanged": true}});
    let answer = client.answer("subscriptions/listen", inner).await;
    assert_eq!(answer.json()["error"]["code"], -32601);
}

#[tokio::test]
async fn changes_of_the_tools_are_told_to_who_asked() {
    let world = World::new().await;
    let client = world.plain();
    let (mut events, acknowledged) = listen(&client, json!({"toolsListChanged": true})).await;
    assert_eq!(
        acknowledged["notifications"],
        json!({"toolsListChanged": true})
    );
    world
        .tasks
        .add_tool(
            TaskTool::new("new").run(async |_: mcp_tasks::TaskContext, _: Value| {
                Ok::<_, mcp_tasks::TaskError>("x")
            }),
        )
        .unwrap();
    let changed = told(&mut events).await;
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    assert!(changed["params"]["_meta"][SUBSCRIPTION].is_u64());
}

/// An inner server with subscriptions of its own.
#[derive(Clone, Default)]
struct Subscribing;

impl ServerHandler for Subscribing {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_prompts()
            .enable_prompts_list_changed()
            .build();
        ServerConfig::new(capabilities)
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::default();
        accepted.prompts_list_changed = requested.prompts_list_changed;
        Some(accepted)
    }
}

#[tokio::test]
async fn the_inner_servers_share_is_kept() {
    let gates = Gates::default();
    let tasks = owners(tools::all(&gates));
    let served = Served::start(&tasks, Subscribing).await;
    let client = Once::new(&served.url, "alice");
    let task = client.create("held", json!({})).await;
    let wanted = json!({"taskIds": [task["taskId"]], "promptsListChanged": true});
    let (mut events, acknowledged) = listen(&client, wanted).await;
    let accepted = &acknowledged["notifications"];
    assert_eq!(
        *accepted,
        json!({"taskIds": [task["taskId"]], "promptsListChanged": true})
    );
    assert_eq!(told(&mut events).await["params"]["status"], "working");
    gates.go.add_permits(1);
    assert_eq!(told(&mut events).await["params"]["status"], "completed");
}

// Another process changes the task.
#[tokio::test]
async fn changes_on_another_replica_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tasks.db");
    let gates = Gates::default();
    let replica = || {
        let store = Arc::new(SqliteStore::open(&path).unwrap());
        owners(tools::all(&gates).shared_store(store))
    };
    let (one, two) = (replica(), replica());
    let (here, there) = (
        Served::start(&one, crate::Greeter).await,
        Served::start(&two, crate::Greeter).await,
    );
    let (client, other) = (
        Once::new(&here.url, "alice"),
        Once::new(&there.url, "alice"),
    );
    let task = client.create("held", json!({})).await;
    let (mut events, _) = listen(&other, json!({"taskIds": [task["taskId"]]})).await;
    assert_eq!(told(&mut events).await["params"]["status"], "working");
    gates.go.add_permits(1);
    assert_eq!(told(&mut events).await["params"]["status"], "completed");
}

// A public client says that it stops listening, besides closing the stream, and sends no headers with it.
#[tokio::test]
async fn a_cancel_of_a_subscription_is_taken_over_http_too() {
    let world = World::new().await;
    let message =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    let headers = [("mcp-protocol-version".to_owned(), "2026-07-28".to_owned())];
    let answer = world.once().send(&message, &headers).await;
    assert_eq!((answer.status, answer.body.as_str()), (202, ""));
}
