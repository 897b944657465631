//! `tasks/get`, `tasks/update`, `tasks/cancel` and handles of 2026-07-28.

use serde_json::{Value, json};

use crate::{
    World,
    once::{Once, TASKS, accepted, until},
    support::text,
};

// B11, B13, B14: creation is the server's decision, and the handle is flat.
#[tokio::test]
async fn a_declared_call_of_a_task_tool_gets_a_flat_handle() {
    let world = World::new().await;
    let client = world.once();
    let task = client.create("echo", json!({"text": "hi"})).await;
    assert_eq!(task["status"], "working");
    assert!(
        task["ttlMs"].is_u64() && task["pollIntervalMs"] == 200,
        "{task}"
    );
    for absent in [
        "task",
        "ttl",
        "pollInterval",
        "result",
        "error",
        "inputRequests",
        "requestState",
    ] {
        assert!(task.get(absent).is_none(), "{absent} in {task}");
    }
    let done = client.until(&task, "completed").await;
    assert_eq!(text(&done["result"]), "hi");
    assert_eq!(done["result"]["resultType"], "complete");
    assert!(done.get("error").is_none() && done.get("inputRequests").is_none());
    // B29: reads are repeatable, B43: there is nothing else to fetch.
    let again = client.get(&task).await;
    assert_eq!(again["result"], done["result"]);
    assert_eq!(again["createdAt"], task["createdAt"]);
}

// B16: `params.task` means nothing here.
#[tokio::test]
async fn the_hint_of_the_older_revision_is_ignored() {
    let world = World::new().await;
    for hint in [json!({"ttl": 1000}), json!(7), json!({"ttl": -1})] {
        let params = json!({"name": "echo", "arguments": {"text": "x"}, "task": hint});
        let declared = world.once().request("tools/call", params.clone()).await;
        assert_eq!(declared["result"]["resultType"], "task");
        assert_eq!(declared["result"]["ttlMs"], 3_600_000);
        let plain = world.plain().request("tools/call", params).await;
        assert_eq!(text(&plain["result"]), "x");
    }
    let params = json!({"name": "greet", "arguments": {"name": "Bob"}, "task": {"ttl": 1}});
    let inner = world.once().request("tools/call", params).await;
    assert_eq!(text(&inner["result"]), "Hello, Bob!");
}

// B20, B07: without the declaration an optional tool is an ordinary one; a required one names what is missing, before
// any question.
#[tokio::test]
async fn without_the_extension_a_plain_result_or_the_missing_capability() {
    let world = World::new().await;
    let client = world.plain();
    let answer = client.call("echo", json!({"text": "x"})).await;
    assert_eq!(answer["result"]["resultType"], "complete");
    assert_eq!(text(&answer["result"]), "x");
    for tool in ["ask", "staged"] {
        let answer = client
            .answer("tools/call", json!({"name": tool, "arguments": {}}))
            .await;
        assert_eq!(answer.status, 400);
        let error = &answer.json()["error"];
        assert_eq!(error["code"], -32021);
        assert_eq!(
            error["data"]["requiredCapabilities"]["extensions"][TASKS],
            json!({})
        );
    }
    // A forbidden tool never makes a handle, whoever calls it.
    world.gates.go.add_permits(2);
    for client in [world.once(), world.plain()] {
        let answer = client.call("held_plain", json!({})).await;
        assert!(text(&answer["result"]).starts_with("held"), "{answer}");
    }
}

// B19: undeclared task requests name the extension, even for an unknown id, and change nothing. A G1 declaration, or one
// outside the capabilities, is none.
#[tokio::test]
async fn undeclared_requests_change_nothing() {
    let world = World::new().await;
    let client = world.once();
    let task = client.create("held", json!({})).await;
    let mut undeclared = world.plain();
    for capabilities in [
        json!({}),
        json!({"tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}),
        json!({"extensions": {TASKS: null}}),
        json!({"extensions": {"io.modelcontextprotocol/ui": {}}}),
        json!({TASKS: {}}),
    ] {
        undeclared.capabilities = capabilities;
        for id in [task["taskId"].clone(), json!("nope")] {
            for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
                let params = json!({"taskId": id, "inputResponses": {}, "_meta": {TASKS: {}}});
                let answer = undeclared.answer(method, params).await;
                assert_eq!(answer.status, 400);
                assert_eq!(answer.json()["error"]["code"], -32021, "{answer:?}");
            }
        }
    }
    assert_eq!(client.get(&task).await["status"], "working");
    // On the same connection: one request declares, the next does not.
    assert_eq!(
        client.cancel(&task).await["result"]["resultType"],
        "complete"
    );
}

#[tokio::test]
async fn unknown_foreign_and_malformed_ids_look_alike() {
    let world = World::new().await;
    let client = world.once();
    let task = client.create("held", json!({})).await;
    let bob = Once::new(&world.served.url, "bob");
    let mut told = Vec::new();
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        for (client, id) in [(&client, json!("nope")), (&bob, task["taskId"].clone())] {
            let params = json!({"taskId": id, "inputResponses": {}});
            let answer = client.answer(method, params).await;
            assert_eq!(answer.status, 200);
            told.push(answer.json()["error"].clone());
        }
    }
    assert!(told.iter().all(|error| *error == told[0]), "{told:?}");
    assert_eq!(told[0]["code"], -32602);
    for wrong in [json!({}), json!({"taskId": 7}), json!({"taskId": null})] {
        let error = client.request("tasks/get", wrong).await;
        assert_eq!(error["error"]["code"], -32602);
        assert!(
            error["error"]["message"]
                .as_str()
                .unwrap()
                .contains("taskId")
        );
    }
    assert_eq!(client.get(&task).await["status"], "working");
}

// B37: how each end is told.
#[tokio::test]
async fn every_end_is_told_as_the_table_says() {
    let world = World::new().await;
    let client = world.once();
    let failed = client.create("fails", json!({})).await;
    let failed = client.until(&failed, "failed").await;
    assert_eq!(failed["error"]["code"], 1042);
    assert_eq!(failed["error"]["data"], json!({"step": 3}));
    assert_eq!(failed["statusMessage"], "it broke");
    assert!(failed.get("result").is_none());
    let tool = client.create("is_error", json!({})).await;
    let tool = client.until(&tool, "completed").await;
    assert_eq!(tool["result"]["isError"], true);
    assert_eq!(tool["result"]["structuredContent"], json!({"code": 7}));
    let panicked = client.create("panics", json!({})).await;
    let panicked = client.until(&panicked, "failed").await;
    assert_eq!(panicked["error"]["code"], -32603);
    assert!(panicked["statusMessage"].is_string());
    // A result that breaks its schema is no result.
    let broken = client.create("square", json!({"n": 13})).await;
    assert_eq!(
        client.until(&broken, "failed").await["error"]["code"],
        -32603
    );
    // The handle is not checked against the output schema (B25); the result is (B23).
    let square = client.create("square", json!({"n": 3})).await;
    let square = client.until(&square, "completed").await;
    assert_eq!(square["result"]["structuredContent"]["square"], 9);
    // The related-task metadata of 2025-11-25 has no place here, not even a body's own.
    let fake = client.create("fake_related", json!({})).await;
    let fake = client.until(&fake, "completed").await;
    assert_eq!(fake["result"]["_meta"], json!({"kept": 1}));
}

// B61, B34: a cancel is acknowledged at once, of an ended task too; an ended task never changes.
#[tokio::test]
async fn cancels_are_acknowledged_and_terminal_is_final() {
    let world = World::new().await;
    let client = world.once();
    let task = client.create("held", json!({})).await;
    world.gates.wait_started().await;
    let ack = client.cancel(&task).await["result"].clone();
    let mut members: Vec<&String> = ack.as_object().unwrap().keys().collect();
    members.sort();
    assert_eq!(members, ["_meta", "resultType"], "nothing else: {ack}");
    world.gates.wait_cancelled().await;
    let cancelled = client.until(&task, "cancelled").await;
    assert!(cancelled.get("result").is_none() && cancelled.get("error").is_none());
    assert!(client.cancel(&task).await.get("error").is_none());
    let done = client.create("echo", json!({"text": "x"})).await;
    let done = client.until(&done, "completed").await;
    assert!(client.cancel(&done).await.get("error").is_none());
    assert_eq!(client.get(&done).await, done);
}

// B49, B55: each key waits for its own answer; partial, late and unknown ones change nothing else.
#[tokio::test]
async fn answers_go_to_their_own_questions() {
    let world = World::new().await;
    let client = world.once();
    let task = client.create("ask_two", json!({})).await;
    let asked = until(
        async || {
            let task = client.get(&task).await;
            match task["inputRequests"]
                .as_object()
                .map_or(0, serde_json::Map::len)
            {
                2 => json!({"status": "both", "task": task}),
                _ => json!({"status": "not yet"}),
            }
        },
        "both",
    )
    .await["task"]
        .clone();
    assert_eq!(asked["status"], "input_required");
    let requests = asked["inputRequests"].as_object().unwrap();
    for request in requests.values() {
        assert_eq!(request["method"], "elicitation/create");
        assert!(request.get("jsonrpc").is_none() && request.get("id").is_none());
    }
    let keys: Vec<&String> = requests.keys().collect();
    // An answer of the wrong shape names its key, and the right one beside it is not taken.
    let answer = client
        .update(
            &task,
            json!({keys[0]: accepted("A"), keys[1]: {"action": "maybe"}}),
        )
        .await;
    assert_eq!(answer["error"]["code"], -32602);
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains(&**keys[1])
    );
    assert_eq!(
        client.get(&task).await["inputRequests"],
        asked["inputRequests"]
    );
    // Partial, with keys that nobody asked for.
    let answer = client
        .update(
            &task,
            json!({keys[0]: accepted("first"), "nobody": {"x": 1}, "": null}),
        )
        .await;
    assert_eq!(answer["result"]["resultType"], "complete");
    let left = client.get(&task).await;
    assert_eq!(left["status"], "input_required");
    let open: Vec<&String> = left["inputRequests"].as_object().unwrap().keys().collect();
    assert_eq!(open, [keys[1]]);
    // The first again: acknowledged, and not heard.
    client
        .update(&task, json!({keys[0]: accepted("second")}))
        .await;
    client
        .update(&task, json!({keys[1]: accepted("other")}))
        .await;
    let done = client.until(&task, "completed").await;
    let said = text(&done["result"]).to_owned();
    assert!(
        said.contains("first") && said.contains("other") && !said.contains("second"),
        "{said}"
    );
    // Too late for any.
    let late = client
        .update(&task, json!({keys[1]: accepted("late")}))
        .await;
    assert_eq!(late["result"]["resultType"], "complete");
    assert_eq!(client.get(&task).await, done);
}

// Keys are unique in a task and never used again, over several rounds.
#[tokio::test]
async fn keys_are_never_used_again() {
    let world = World::new().await;
    let client = world.once();
    let task = client.create("interview", json!({})).await;
    let mut seen = std::collections::HashSet::new();
    world.gates.go.add_permits(2);
    for round in 0..3 {
        let asked = client.until(&task, "input_required").await;
        let requests = asked["inputRequests"].as_object().unwrap();
        assert_eq!(requests.len(), 1);
        let (key, request) = requests.iter().next().unwrap();
        assert!(seen.insert(key.clone()), "{key} again");
        let answer = if request["method"] == "sampling/createMessage" {
            json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "yes"}})
        } else {
            accepted(&format!("round {round}"))
        };
        // The status is another one once it is answered.
        client.update(&task, json!({key: answer})).await;
    }
    let done = client.until(&task, "completed").await;
    let said = text(&done["result"]);
    assert!(
        said.contains("round 0") && said.contains("round 1") && said.contains("yes"),
        "{said}"
    );
}

#[tokio::test]
async fn an_update_with_ten_thousand_keys_takes_those_that_were_asked() {
    let world = World::new().await;
    let client = world.once();
    let task = client.create("ask", json!({})).await;
    let asked = client.until(&task, "input_required").await;
    let key = asked["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap();
    let mut responses: Value = (0..10_000)
        .map(|n| (format!("k{n}"), accepted("no")))
        .collect();
    responses[key] = accepted("Ada");
    let answer = client.update(&task, responses).await;
    assert_eq!(answer["result"]["resultType"], "complete");
    let done = client.until(&task, "completed").await;
    assert_eq!(text(&done["result"]), "accept Ada");
}

// A question that this client cannot answer ends the task with the capability that is missing; a body may handle it.
#[tokio::test]
async fn a_question_that_cannot_be_put_names_the_capability() {
    let world = World::new().await;
    let mut client = world.once();
    client.capabilities = json!({"extensions": {TASKS: {}}, "elicitation": {"form": {}}});
    let url = client.create("url", json!({})).await;
    let url = client.until(&url, "failed").await;
    assert_eq!(url["error"]["code"], -32021);
    let required = &url["error"]["data"]["requiredCapabilities"];
    assert_eq!(*required, json!({"elicitation": {"url": {}}}));
    client.capabilities = json!({"extensions": {TASKS: {}}});
    let handled = client.create("ask_error", json!({})).await;
    let handled = client.until(&handled, "completed").await;
    assert!(text(&handled["result"]).contains("Unsupported"));
}

// Wrong arguments: an error where a handle is due, the tool's own refusal where a result is.
#[tokio::test]
async fn wrong_arguments_are_named() {
    let world = World::new().await;
    for arguments in [json!({"n": "x"}), json!({}), json!(7)] {
        let answer = world.once().call("square", arguments.clone()).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        let answer = world.plain().call("square", arguments).await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
    }
    let answer = world.once().call("square", json!({"n": "x"})).await;
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("arguments.n")
    );
}

#[tokio::test]
async fn lists_and_discovery_show_the_extension_and_the_tools() {
    let world = World::new().await;
    let client = world.once();
    let discovered = client.request("server/discover", json!({})).await["result"].clone();
    assert_eq!(discovered["capabilities"]["extensions"][TASKS], json!({}));
    assert!(discovered["capabilities"].get("tasks").is_none());
    assert_eq!(discovered["capabilities"]["tools"]["listChanged"], true);
    let listed = client.request("tools/list", json!({})).await["result"].clone();
    let tools = listed["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert!(
        names.contains(&"greet") && names.contains(&"ask"),
        "{names:?}"
    );
    assert!(tools.iter().all(|tool| tool.get("execution").is_none()));
    assert_eq!(listed["ttlMs"], 0);
    // One server info in every result.
    let task = client.create("echo", json!({})).await;
    let info = &task["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert!(
        info["name"].is_string()
            && *info == discovered["_meta"]["io.modelcontextprotocol/serverInfo"]
    );
    let quiet = World::with(|builder| builder.server_info_in_results(false)).await;
    let task = quiet.once().create("echo", json!({})).await;
    assert_eq!(task["_meta"], json!({}));
}

// An inner server without tools of its own.
#[tokio::test]
async fn our_tools_are_listed_where_the_inner_server_has_none() {
    let gates = crate::Gates::default();
    let tasks = crate::owners(crate::tools::all(&gates));
    let served = crate::Served::start(&tasks, crate::support::Bare).await;
    let client = Once::new(&served.url, "alice");
    let listed = client.answer("tools/list", json!({})).await;
    assert_eq!(listed.status, 200);
    let listed = listed.json();
    assert!(listed["result"]["tools"].as_array().unwrap().len() > 10);
    assert_eq!(listed["result"]["cacheScope"], "private");
}

// B61, spec: what was given up before its handle was written is cancelled; afterwards never.
#[tokio::test]
async fn a_task_goes_on_when_its_request_is_long_gone() {
    let world = World::new().await;
    let client = world.once();
    let task = client.create("held", json!({})).await;
    world.gates.wait_started().await;
    drop(client);
    world.gates.go.add_permits(1);
    let again = world.once();
    let done = again.until(&task, "completed").await;
    assert!(text(&done["result"]).starts_with("held"));
}

// Progress shows in the status message; no progress or log goes on a stream of a task.
#[tokio::test]
async fn progress_is_the_status_message() {
    let world = World::with(|builder| {
        builder.tool(mcp_tasks::TaskTool::new("steps").run(
            async |cx: mcp_tasks::TaskContext, _: Value| {
                cx.progress(1.0, Some(4.0), Some("first"));
                cx.progress(2.0, Some(4.0), None);
                cx.cancelled().await;
                Ok::<_, mcp_tasks::TaskError>("never")
            },
        ))
    })
    .await;
    let client = world.once();
    let task = client.create("steps", json!({})).await;
    let said = until(
        async || {
            let task = client.get(&task).await;
            json!({"status": task["statusMessage"], "task": task})
        },
        "2 of 4",
    )
    .await;
    assert_eq!(said["task"]["status"], "working");
    client.cancel(&task).await;
}
