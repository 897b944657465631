//! A task made under one generation, used under the other by its owner.

use serde_json::json;

use crate::{
    World,
    once::{Once, accept_all},
    schema,
    support::text,
};

// F-22
#[tokio::test]
async fn a_task_of_2025_11_25_is_read_answered_and_cancelled_in_2026_07_28() {
    let world = World::new().await;
    let (old, new) = (world.session("2025-11-25").await, world.once());
    let task = old.create("ask", json!({})).await;
    let mut stream = old
        .open("tasks/result", json!({"taskId": task["taskId"]}))
        .await;
    let question = stream.method("elicitation/create").await;
    let asked = new.until(&task, "input_required").await;
    new.update(&task, accept_all(&asked["inputRequests"], "Ada"))
        .await;
    // The question is taken back where it was asked, or answered for: one answer counts.
    let ended = stream.response().await;
    schema::check_old("tasks/result", &ended);
    assert_eq!(text(&ended["result"]), "accept Ada");
    old.accept(&question, "Eve").await;
    let done = new.until(&task, "completed").await;
    assert_eq!(text(&done["result"]), "accept Ada");
    let held = old.create("held", json!({})).await;
    assert!(new.cancel(&held).await.get("error").is_none());
    let told = old
        .request("tasks/get", json!({"taskId": held["taskId"]}))
        .await;
    schema::check_old("tasks/get", &told);
    assert_eq!(told["result"]["status"], "cancelled");
}

// F-22
#[tokio::test]
async fn a_task_of_2026_07_28_is_read_answered_and_cancelled_in_2025_11_25() {
    let world = World::new().await;
    let (old, new) = (world.session("2025-11-25").await, world.once());
    let mut general = old.listen().await;
    let task = new.create("ask", json!({})).await;
    new.until(&task, "input_required").await;
    let id = json!({"taskId": task["taskId"]});
    // It asks nobody on a stream until a session of its owner names it.
    let told = old.request("tasks/get", id.clone()).await;
    schema::check_old("tasks/get", &told);
    assert_eq!(told["result"]["status"], "input_required");
    let question = general.method("elicitation/create").await;
    old.accept(&question, "Ada").await;
    let ended = old.request("tasks/result", id.clone()).await;
    assert_eq!(text(&ended["result"]), "accept Ada");
    assert_eq!(
        ended["result"]["_meta"]["io.modelcontextprotocol/related-task"]["taskId"],
        task["taskId"]
    );
    assert_eq!(text(&new.get(&task).await["result"]), "accept Ada");
    let listed = old.request("tasks/list", json!({})).await;
    schema::check_old("tasks/list", &listed);
    let tasks = listed["result"]["tasks"].as_array().unwrap();
    assert!(tasks.iter().any(|one| one["taskId"] == task["taskId"]));
    let held = new.create("held", json!({})).await;
    let cancelled = old
        .request("tasks/cancel", json!({"taskId": held["taskId"]}))
        .await;
    assert_eq!(cancelled["result"]["status"], "cancelled");
    assert_eq!(new.get(&held).await["status"], "cancelled");
}

// One table: `isError` is failed in the one and completed in the other.
#[tokio::test]
async fn statuses_and_outcomes_are_mapped_by_one_table() {
    let world = World::new().await;
    let (old, new) = (world.session("2025-11-25").await, world.once());
    for (tool, new_status, old_status, code) in [
        ("echo", "completed", "completed", None),
        ("is_error", "completed", "failed", None),
        ("fails", "failed", "failed", Some(1042)),
        ("panics", "failed", "failed", Some(-32603)),
    ] {
        let task = new.create(tool, json!({})).await;
        let told = new.until(&task, new_status).await;
        let id = json!({"taskId": task["taskId"]});
        let old_told = old.request("tasks/get", id.clone()).await["result"].clone();
        assert_eq!(old_told["status"], old_status, "{tool}");
        assert_eq!(old_told["createdAt"], told["createdAt"]);
        assert_eq!(old_told["ttl"], told["ttlMs"]);
        let ended = old.request("tasks/result", id).await;
        schema::check_old("tasks/result", &ended);
        match code {
            Some(code) => {
                assert_eq!(ended["error"]["code"], code);
                assert_eq!(ended["error"], told["error"]);
            }
            None => assert_eq!(ended["result"]["content"], told["result"]["content"]),
        }
    }
}

// Isolation holds across generations, and for hidden tasks in both.
#[tokio::test]
async fn nobody_else_sees_them_in_either() {
    let world = World::new().await;
    let task = world.once().create("held", json!({})).await;
    let mut bob = crate::support::http::Client::with_token(&world.served.url, "bob");
    bob.initialize("2025-11-25").await;
    let id = json!({"taskId": task["taskId"]});
    for method in ["tasks/get", "tasks/cancel", "tasks/result"] {
        assert_eq!(
            bob.request(method, id.clone()).await["error"]["code"],
            -32602
        );
    }
    let new_bob = Once::new(&world.served.url, "bob");
    assert_eq!(new_bob.cancel(&task).await["error"]["code"], -32602);
    assert_eq!(world.once().get(&task).await["status"], "working");
}
