//! Four kinds of clients at once, one tool: whatever a client speaks, it gets the same result and is asked once.

use serde_json::{Value, json};

use crate::{
    World,
    once::{Once, accept_all},
    schema,
    support::{http::Client, text},
};

const MANY: usize = 3;

/// A client of 2025-11-25: a task, and its question on `tasks/result`.
async fn with_core_tasks(client: Client, tool: &str, name: &str) -> (Value, usize) {
    let task = client.create(tool, json!({})).await;
    let mut stream = client
        .open("tasks/result", json!({"taskId": task["taskId"]}))
        .await;
    let mut asked = 0;
    loop {
        let message = stream.next().await.expect("a result");
        match message["method"].as_str() {
            Some("elicitation/create") => {
                asked += 1;
                client.accept(&message, name).await;
            }
            Some(_) => {}
            None => {
                schema::check_old("tasks/result", &message);
                return (message["result"].clone(), asked);
            }
        }
    }
}

/// The same, for a tool that asks before its task: on the call's own stream.
async fn with_core_tasks_before(client: Client, tool: &str, name: &str) -> (Value, usize) {
    let params = json!({"name": tool, "arguments": {}, "task": {}});
    let mut stream = client.open("tools/call", params).await;
    let mut asked = 0;
    let created = loop {
        let message = stream.next().await.expect("a handle");
        match message["method"].as_str() {
            Some("elicitation/create") => {
                asked += 1;
                client.accept(&message, name).await;
            }
            Some(_) => {}
            None => break message,
        }
    };
    schema::check_old("tools/call", &created);
    let task = &created["result"]["task"]["taskId"];
    let ended = client
        .request("tasks/result", json!({"taskId": task}))
        .await;
    schema::check_old("tasks/result", &ended);
    (ended["result"].clone(), asked)
}

/// A client of an older revision: a plain call that asks on its own stream.
async fn without_tasks(client: Client, tool: &str, name: &str) -> (Value, usize) {
    let params = json!({"name": tool, "arguments": {}});
    let mut stream = client.open("tools/call", params).await;
    let mut asked = 0;
    loop {
        let message = stream.next().await.expect("a result");
        match message["method"].as_str() {
            Some("elicitation/create") => {
                asked += 1;
                client.accept(&message, name).await;
            }
            Some(_) => {}
            None => return (message["result"].clone(), asked),
        }
    }
}

/// A client of 2026-07-28 with the extension: a handle (after questions, if the tool asks before), then polls.
async fn with_extension(client: Once, tool: &str, name: &str) -> (Value, usize) {
    let call = json!({"name": tool, "arguments": {}});
    let mut asked = 0;
    let mut answer = client.request("tools/call", call.clone()).await;
    while answer["result"]["resultType"] == "input_required" {
        let responses = accept_all(&answer["result"]["inputRequests"], name);
        asked += responses.as_object().map_or(0, serde_json::Map::len);
        answer = client.retry(call.clone(), &answer, responses).await;
    }
    assert_eq!(answer["result"]["resultType"], "task", "{answer}");
    let task = answer["result"].clone();
    let mut seen = std::collections::HashSet::new();
    loop {
        let now = client.get(&task).await;
        match now["status"].as_str() {
            Some("completed") => return (now["result"].clone(), asked),
            Some("input_required") => {
                let keys: Vec<String> = now["inputRequests"]
                    .as_object()
                    .unwrap()
                    .keys()
                    .filter(|key| seen.insert((*key).clone()))
                    .cloned()
                    .collect();
                asked += keys.len();
                client
                    .update(&task, accept_all(&now["inputRequests"], name))
                    .await;
            }
            Some("working") => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
            _ => panic!("{now}"),
        }
    }
}

/// One without it: questions are answers to the call.
async fn without_extension(client: Once, tool: &str, name: &str) -> (Value, usize) {
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

/// The test for a tool of this world that asks once, for a name, and says it.
pub async fn all_four(world: &World, tool: &'static str, before: bool) {
    for round in 0..MANY {
        let name = format!("Ada {round}");
        let (current, old) = (
            world.session("2025-11-25").await,
            world.session("2025-06-18").await,
        );
        let core = async {
            match before {
                true => with_core_tasks_before(current, tool, &name).await,
                false => with_core_tasks(current, tool, &name).await,
            }
        };
        let ends = tokio::join!(
            core,
            without_tasks(old, tool, &name),
            with_extension(world.once(), tool, &name),
            without_extension(world.plain(), tool, &name),
        );
        let (core, old, extension, plain) = ends;
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
    all_four(&World::new().await, "ask_optional", false).await;
}

// F-22
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_from_one_that_asks_before_its_task() {
    all_four(&World::new().await, "staged_optional", true).await;
}
