//! Multi round-trip requests: questions as answers to the call, and a state that the retry brings back.

use std::sync::Arc;

use mcp_tasks::store::SqliteStore;
use serde_json::{Value, json};

use crate::{
    Served, World,
    once::{Once, accept_all, accepted, retried},
    owners, schema,
    support::text,
    tools::{self, Gates},
};

fn call(tool: &str) -> Value {
    json!({"name": tool, "arguments": {"a": 1, "b": [1, {"c": 2}]}})
}

async fn ask(client: &Once, call: &Value) -> Value {
    let asked = client.request("tools/call", call.clone()).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    assert!(asked["result"]["requestState"].is_string());
    for request in asked["result"]["inputRequests"]
        .as_object()
        .unwrap()
        .values()
    {
        let mut members: Vec<&String> = request.as_object().unwrap().keys().collect();
        members.sort();
        assert_eq!(members, ["method", "params"]);
        assert!(request["params"].get("_meta").is_none());
    }
    // Questions are for now: nothing says that they may be cached.
    assert!(asked["result"].get("ttlMs").is_none());
    asked
}

#[tokio::test]
async fn a_plain_call_that_asks_goes_on_with_the_answer() {
    let world = World::new().await;
    let client = world.plain();
    let (call, asked) = (
        call("ask_optional"),
        ask(&client, &call("ask_optional")).await,
    );
    let responses = accept_all(&asked["result"]["inputRequests"], "Ada");
    // The order of the arguments' members does not matter.
    let reordered = json!({"arguments": {"b": [1, {"c": 2}], "a": 1}, "name": "ask_optional"});
    let done = client.retry(reordered, &asked, responses.clone()).await;
    assert_eq!(text(&done["result"]), "accept Ada");
    assert_eq!(done["result"]["resultType"], "complete");
    // The same state again: the same call, not another one, whatever is answered now.
    let again = client
        .retry(
            call.clone(),
            &asked,
            accept_all(&asked["result"]["inputRequests"], "Eve"),
        )
        .await;
    assert_eq!(again["result"], done["result"]);
}

#[tokio::test]
async fn several_rounds_partial_answers_and_unknown_keys() {
    let world = World::new().await;
    let client = world.plain();
    let call = call("ask_two");
    let asked = ask(&client, &call).await;
    let requests = asked["result"]["inputRequests"].as_object().unwrap();
    assert_eq!(requests.len(), 2, "both at once");
    let keys: Vec<&String> = requests.keys().collect();
    // Nothing answered: asked again.
    let same = client
        .retry(call.clone(), &asked, json!({"nobody": 1}))
        .await;
    assert_eq!(
        same["result"]["inputRequests"],
        asked["result"]["inputRequests"]
    );
    // The wrong shape: refused, and nothing taken.
    let wrong = json!({keys[0]: accepted("no"), keys[1]: 7});
    let refused = client.retry(call.clone(), &asked, wrong).await;
    assert_eq!(refused["error"]["code"], -32602);
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains(&**keys[1])
    );
    // Half of it: the other half is asked again.
    let half = client
        .retry(call.clone(), &same, json!({keys[0]: accepted("one")}))
        .await;
    let left: Vec<&String> = half["result"]["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .collect();
    assert_eq!(left, [keys[1]]);
    let done = client
        .retry(call, &half, json!({keys[1]: accepted("two")}))
        .await;
    let said = text(&done["result"]);
    assert!(
        said.contains("one") && said.contains("two") && !said.contains("no"),
        "{said}"
    );
}

#[tokio::test]
async fn a_state_is_good_for_its_owner_tool_and_arguments_only() {
    let world = World::new().await;
    let client = world.plain();
    let good = call("ask_optional");
    let asked = ask(&client, &good).await;
    let responses = accept_all(&asked["result"]["inputRequests"], "Eve");
    let refused = async |client: &Once, call: Value, asked: &Value, responses: &Value| {
        let params = retried(call, asked, responses.clone());
        let answer = client.answer("tools/call", params).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["error"]["code"], -32602, "{answer:?}");
    };
    let bob = Once::plain(&world.served.url, "bob");
    refused(&bob, good.clone(), &asked, &responses).await;
    refused(&client, call("ask_two"), &asked, &responses).await;
    let mut other = good.clone();
    other["arguments"]["a"] = json!(2);
    refused(&client, other, &asked, &responses).await;
    let state = asked["result"]["requestState"].as_str().unwrap();
    let mut tampered = state.to_owned();
    let at = tampered.len() / 2;
    let changed = if tampered.as_bytes()[at] == b'A' {
        "B"
    } else {
        "A"
    };
    tampered.replace_range(at..=at, changed);
    let elsewhere = World::new().await;
    let foreign = ask(&elsewhere.plain(), &good).await;
    for wrong in [
        json!(tampered),
        json!(""),
        json!("rs2.azE.x.y"),
        json!(7),
        json!({}),
        foreign["result"]["requestState"].clone(),
    ] {
        let mut asked = asked.clone();
        asked["result"]["requestState"] = wrong;
        refused(&client, good.clone(), &asked, &responses).await;
    }
    refused(&client, good.clone(), &asked, &json!([])).await;
    // Nothing was taken of all that.
    let done = client
        .retry(
            good,
            &asked,
            accept_all(&asked["result"]["inputRequests"], "Ada"),
        )
        .await;
    assert_eq!(text(&done["result"]), "accept Ada");
}

// B35
#[tokio::test]
async fn a_stage_asks_before_the_task_and_the_retry_makes_it() {
    let world = World::new().await;
    let client = world.once();
    let call = call("staged");
    let asked = ask(&client, &call).await;
    let responses = accept_all(&asked["result"]["inputRequests"], "Ada");
    let made = client.retry(call.clone(), &asked, responses.clone()).await;
    assert_eq!(made["result"]["resultType"], "task", "{made}");
    assert!(made["result"].get("requestState").is_none());
    // The same state again gives the same handle, never a second task; also both at once.
    let (one, two) = tokio::join!(
        client.retry(call.clone(), &asked, responses.clone()),
        client.retry(call.clone(), &asked, json!({})),
    );
    for again in [&one, &two] {
        assert_eq!(again["result"]["taskId"], made["result"]["taskId"]);
    }
    let done = client.until(&made["result"], "completed").await;
    assert_eq!(text(&done["result"]), "staged accept Ada");
}

#[tokio::test]
async fn two_retries_at_once_make_one_task() {
    let world = World::new().await;
    let client = world.once();
    let call = call("staged");
    for _ in 0..10 {
        let asked = ask(&client, &call).await;
        let responses = accept_all(&asked["result"]["inputRequests"], "Ada");
        let retry = || client.retry(call.clone(), &asked, responses.clone());
        let (one, two, three) = tokio::join!(retry(), retry(), retry());
        for other in [&two, &three] {
            assert_eq!(
                other["result"]["taskId"], one["result"]["taskId"],
                "{other}"
            );
        }
    }
}

// A question that this very request does not allow.
#[tokio::test]
async fn only_declared_kinds_are_asked() {
    let world = World::new().await;
    let mut client = world.plain();
    client.capabilities = json!({"elicitation": {"form": {}}});
    let answer = client.answer("tools/call", call("url")).await;
    assert_eq!(answer.status, 400);
    let error = &answer.json()["error"];
    assert_eq!(error["code"], -32021);
    assert_eq!(
        error["data"]["requiredCapabilities"],
        json!({"elicitation": {"url": {}}})
    );
    client.capabilities = json!({});
    let answer = client.answer("tools/call", call("staged_optional")).await;
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].clone()),
        (400, json!(-32021))
    );
    // One that the body handles is no error.
    let answer = client.request("tools/call", call("ask_error")).await;
    assert!(text(&answer["result"]).contains("Unsupported"));
}

// B59: a dropped POST of a plain call is its cancel; a task's is not.
#[tokio::test]
async fn a_dropped_plain_call_is_given_up() {
    let world = World::new().await;
    let client = world.plain();
    let stream = client
        .open(
            "tools/call",
            json!({"name": "held_optional", "arguments": {}}),
        )
        .await;
    world.gates.wait_started().await;
    drop(stream);
    world.gates.wait_cancelled().await;
    crate::once::until(
        async || json!({"status": format!("{:?}", world.tasks.runtime().held())}),
        "[0, 0, 0]",
    )
    .await;
}

// Progress and logs go on the stream of a plain call, if it wants them.
#[tokio::test]
async fn progress_and_logs_of_a_plain_call_are_its_own() {
    let world = World::new().await;
    let client = world.plain();
    let params = json!({"name": "chatty", "arguments": {},
        "_meta": {"progressToken": "p", "io.modelcontextprotocol/logLevel": "info"}});
    let mut events = client.open("tools/call", params).await;
    let (mut progress, mut logs) = (Vec::new(), Vec::new());
    let result = loop {
        let message = events.next().await.unwrap();
        schema::check("tools/call", &message);
        match message["method"].as_str() {
            Some("notifications/progress") => {
                assert_eq!(message["params"]["progressToken"], "p");
                progress.push(message["params"]["progress"].as_f64().unwrap());
            }
            Some("notifications/message") => {
                logs.push(message["params"]["level"].as_str().unwrap().to_owned());
            }
            _ => break message,
        }
    };
    assert_eq!(text(&result["result"]), "chatted");
    assert_eq!(progress, [1.0, 2.0, 3.0]);
    assert_eq!(logs, ["info", "error"]);
    // Without a word about them there are none.
    let quiet = client
        .answer("tools/call", json!({"name": "chatty", "arguments": {}}))
        .await;
    assert!(quiet.headers["content-type"].starts_with("application/json"));
}

// Any replica goes on with any round, also after a restart.
#[tokio::test]
async fn another_replica_opens_the_state() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tasks.db");
    let gates = Gates::default();
    let replica = |key: Option<&[u8]>| {
        let store = Arc::new(SqliteStore::open(&path).unwrap());
        let builder = tools::all(&gates).shared_store(store);
        owners(match key {
            Some(key) => builder.request_state_key(key),
            None => builder,
        })
    };
    for key in [None, Some(&[7_u8; 32][..])] {
        let (one, two) = (replica(key), replica(key));
        let (here, there) = (
            Served::start(&one, crate::Greeter).await,
            Served::start(&two, crate::Greeter).await,
        );
        let client = Once::plain(&here.url, "alice");
        let call = call("ask_optional");
        let asked = ask(&client, &call).await;
        let responses = accept_all(&asked["result"]["inputRequests"], "Ada");
        let done = Once::plain(&there.url, "alice")
            .retry(call, &asked, responses)
            .await;
        assert_eq!(text(&done["result"]), "accept Ada");
    }
    let short = tools::all(&gates)
        .request_state_key([1_u8; 31])
        .bearer_ids()
        .build();
    assert!(short.unwrap_err().to_string().contains("31"));
}

// A client that never comes back leaves nothing behind after the lifetime.
#[tokio::test]
async fn who_never_comes_back_leaves_nothing() {
    let world = World::with(|builder| {
        let mut limits = tools::limits();
        limits.default_ttl = std::time::Duration::from_millis(300);
        builder.limits(limits)
    })
    .await;
    let client = world.plain();
    let call = call("ask_optional");
    let asked = ask(&client, &call).await;
    let id = |asked: &Value| accept_all(&asked["result"]["inputRequests"], "Ada");
    crate::once::until(
        async || json!({"status": format!("{:?}", world.tasks.runtime().held())}),
        "[0, 0, 0]",
    )
    .await;
    let late = client.retry(call, &asked, id(&asked)).await;
    assert_eq!(late["error"]["code"], -32602, "{late}");
}

// What a retry does not declare is not asked of it, whatever the first request declared; the call is not lost by that.
#[tokio::test]
async fn a_retry_is_asked_only_what_it_declares() {
    let world = World::new().await;
    let mut client = world.plain();
    let call = call("url");
    let asked = ask(&client, &call).await;
    let request = asked["result"]["inputRequests"]
        .as_object()
        .unwrap()
        .values()
        .next()
        .unwrap();
    assert!(
        request["params"].get("elicitationId").is_none(),
        "the key names it: {request}"
    );
    let all = client.capabilities.clone();
    for less in [json!({"elicitation": {"form": {}}}), json!({})] {
        client.capabilities = less;
        let answer = client
            .answer("tools/call", retried(call.clone(), &asked, json!({})))
            .await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.json()["error"]["code"], -32021);
    }
    client.capabilities = all;
    let responses = json!({"input-1": {"action": "accept"}});
    let done = client.retry(call, &asked, responses).await;
    assert_eq!(text(&done["result"]), "Accept(())");
}

// A handler that gives its tasks ids of its own: one state, one task, however many retries come at once.
#[tokio::test]
async fn one_state_makes_one_task_whatever_its_id() {
    use mcp_tasks::{CreateContext, TaskContext, TaskError, TaskOptions, TaskTool};
    let made = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = made.clone();
    let world = World::with(move |builder| {
        builder.tool(
            TaskTool::new("numbered")
                .before_task(async |cx: TaskContext, args: Value| {
                    cx.elicit::<crate::tools::Name>("Before?").await?;
                    Ok::<_, TaskError>(args)
                })
                .create(move |cx: CreateContext, _: Value| {
                    let count = count.clone();
                    async move {
                        let number = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        let id = format!("job-of-somebody-else-{number:04}");
                        cx.create_task(TaskOptions::new().proposed_id(id)).await
                    }
                }),
        )
    })
    .await;
    let client = world.once();
    let call = call("numbered");
    for round in 1..=5 {
        let asked = ask(&client, &call).await;
        let responses = accept_all(&asked["result"]["inputRequests"], "Ada");
        let retry = || client.retry(call.clone(), &asked, responses.clone());
        let (one, two, three) = tokio::join!(retry(), retry(), retry());
        let again = retry().await;
        for other in [&two, &three, &again] {
            assert_eq!(
                other["result"]["taskId"], one["result"]["taskId"],
                "{other}"
            );
        }
        assert_eq!(made.load(std::sync::atomic::Ordering::SeqCst), round);
    }
}

// A client that declares the extension only on the retry goes on with the call that is there: no second body runs.
#[tokio::test]
async fn a_state_goes_on_with_its_call_whatever_the_retry_declares() {
    let world = World::new().await;
    let (plain, declared) = (world.plain(), world.once());
    let call = call("ask_optional");
    let asked = ask(&plain, &call).await;
    let responses = accept_all(&asked["result"]["inputRequests"], "Ada");
    let done = declared.retry(call.clone(), &asked, responses).await;
    assert_eq!(done["result"]["resultType"], "complete", "{done}");
    assert_eq!(text(&done["result"]), "accept Ada");
    let mut wrong = asked;
    wrong["result"]["requestState"] = json!("made up");
    let refused = declared.retry(call, &wrong, json!({})).await;
    assert_eq!(refused["error"]["code"], -32602);
}
