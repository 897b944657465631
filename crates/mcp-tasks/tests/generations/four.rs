//! Four kinds of clients at once, one tool: whatever a client speaks, it gets the same result and is asked once.

use serde_json::{Value, json};

use crate::{
    World,
    once::{Once, accept_all},
    schema,
    support::{
        http::{Client, Events},
        text,
    },
};

const MANY: usize = 3;

/// Reads a stream to its response and answers what is asked on it; how often that was.
async fn answered(client: &Client, mut stream: Events, name: &str) -> (Value, usize) {
    let mut asked = 0;
    loop {
        let message = stream.next().await.expect("a response");
        match message["method"].as_str() {
            Some("elicitation/create") => {
                asked += 1;
                client.accept(&message, name).await;
            }
            Some(_) => {}
            None => return (message, asked),
        }
    }
}

/// A client of 2025-11-25: a task, and its question on `tasks/result`; or before the task, on the call's own stream.
async fn with_core_tasks(client: Client, tool: &str, name: &str) -> (Value, usize) {
    let params = json!({"name": tool, "arguments": {}, "task": {}});
    let call = client.open("tools/call", params).await;
    let (created, before) = answered(&client, call, name).await;
    schema::check_old("tools/call", &created);
    let id = json!({"taskId": created["result"]["task"]["taskId"]});
    let waiting = client.open("tasks/result", id).await;
    let (ended, after) = answered(&client, waiting, name).await;
    schema::check_old("tasks/result", &ended);
    (ended["result"].clone(), before + after)
}

/// A client of an older revision: a plain call that asks on its own stream.
async fn without_tasks(client: Client, tool: &str, name: &str) -> (Value, usize) {
    let params = json!({"name": tool, "arguments": {}});
    let call = client.open("tools/call", params).await;
    let (ended, asked) = answered(&client, call, name).await;
    (ended["result"].clone(), asked)
}

/// A call of 2026-07-28, over as many rounds as it takes.
async fn in_rounds(client: &Once, tool: &str, name: &str) -> (Value, usize) {
    let call = json!({"name": tool, "arguments": {}});
    let mut asked = 0;
    let mut answer = client.request("tools/call", call.clone()).await;
    while answer["result"]["resultType"] == "input_required" {
        let responses = accept_all(&answer["result"]["inputRequests"], name);
        asked += responses.as_object().map_or(0, serde_json::Map::len);
        answer = client.retry(call.clone(), &answer, responses).await;
    }
    (answer["result"].clone(), asked)
}

/// With the extension: a handle (after questions, if the tool asks before), then polls.
async fn with_extension(client: Once, tool: &str, name: &str) -> (Value, usize) {
    let (task, mut asked) = in_rounds(&client, tool, name).await;
    assert_eq!(task["resultType"], "task", "{task}");
    let mut seen = std::collections::HashSet::new();
    loop {
        let now = client.get(&task).await;
        match now["status"].as_str() {
            Some("completed") => return (now["result"].clone(), asked),
            Some("input_required") => {
                let keys = now["inputRequests"].as_object().unwrap().keys();
                asked += keys.filter(|key| seen.insert((*key).clone())).count();
                client
                    .update(&task, accept_all(&now["inputRequests"], name))
                    .await;
            }
            Some("working") => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
            _ => panic!("{now}"),
        }
    }
}

/// The test for a tool of this world that asks once, for a name, and says it.
pub async fn all_four(world: &World, tool: &str) {
    for round in 0..MANY {
        let name = format!("Ada {round}");
        let (current, old) = (
            world.session("2025-11-25").await,
            world.session("2025-06-18").await,
        );
        let (once, plain) = (world.once(), world.plain());
        let (core, old, extension, plain) = tokio::join!(
            with_core_tasks(current, tool, &name),
            without_tasks(old, tool, &name),
            with_extension(once, tool, &name),
            in_rounds(&plain, tool, &name),
        );
        for (result, asked) in [&core, &old, &extension, &plain] {
            assert_eq!(*asked, 1, "asked once: {result}");
            assert!(text(result).contains(&name), "{result}");
            assert_eq!(result["content"], core.0["content"]);
        }
    }
}

// F-22
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_kinds_of_clients_get_the_same_from_one_tool() {
    all_four(&World::new().await, "ask_optional").await;
}

// F-22
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_from_one_that_asks_before_its_task() {
    all_four(&World::new().await, "staged_optional").await;
}
