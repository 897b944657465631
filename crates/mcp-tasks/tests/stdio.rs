//! The server on a pipe, driven by raw lines.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use mcp_tasks::Tasks;
use serde_json::{Value, json};
use support::{
    Bare, Greeter, RELATED, code,
    pipe::Pipe,
    text,
    tools::{self, Gates},
};

const G1: &str = "2025-11-25";

fn server() -> (Tasks, Gates) {
    let gates = Gates::default();
    (tools::all(&gates).build().unwrap(), gates)
}

async fn pipe() -> (Pipe, Gates, Tasks) {
    let (tasks, gates) = server();
    let (pipe, _) = Pipe::at(G1, &tasks, Greeter).await;
    (pipe, gates, tasks)
}

// F-11, B01, B02, B04
#[tokio::test]
async fn capabilities_are_declared_where_2025_11_25_puts_them() {
    let (tasks, _) = server();
    let (_pipe, answer) = Pipe::at(G1, &tasks, Greeter).await;
    assert_eq!(answer["protocolVersion"], G1);
    let capabilities = &answer["capabilities"];
    let declared = json!({"cancel": {}, "list": {}, "requests": {"tools": {"call": {}}}});
    assert_eq!(capabilities["tasks"], declared);
    assert_eq!(capabilities["tools"]["listChanged"], true);
    assert_eq!(capabilities["logging"], json!({}));
    assert!(capabilities.get("experimental").is_none() && capabilities.get("extensions").is_none());
    assert!(!answer.to_string().contains("null"), "{answer}");
}

// F-16, wire.md 1 and 3: an older revision has no tasks, and every tool is served plainly.
#[tokio::test]
async fn an_older_revision_gets_plain_results_whatever_the_tool_wants() {
    let (tasks, gates) = server();
    let (mut pipe, answer) = Pipe::at("2025-06-18", &tasks, Greeter).await;
    assert_eq!(answer["protocolVersion"], "2025-06-18");
    assert!(answer["capabilities"].get("tasks").is_none());
    let tools = pipe.request("tools/list", json!({})).await;
    assert!(!tools.to_string().contains("execution"), "{tools}");
    gates.go.add_permits(1);
    let params = json!({"name": "held", "arguments": {"a": 1}, "task": {"ttl": 5}});
    let answer = pipe.request("tools/call", params).await;
    assert_eq!(text(&answer["result"]), r#"held {"a":1}"#);
    for method in ["tasks/get", "tasks/result", "tasks/cancel", "tasks/list"] {
        assert_eq!(
            code(&pipe.request(method, json!({"taskId": "x"})).await),
            -32601
        );
    }
}

// F-01, F-02
#[tokio::test]
async fn tools_are_listed_after_the_inner_servers_with_their_support() {
    let (mut pipe, ..) = pipe().await;
    let answer = pipe.request("tools/list", json!({})).await;
    let tools = answer["result"]["tools"].as_array().unwrap();
    assert_eq!(tools[0]["name"], "greet");
    assert!(tools[0].get("execution").is_none());
    let support = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        assert_eq!(tool["inputSchema"]["type"], "object");
        assert!(!tool.to_string().contains("null"), "{tool}");
        tool["execution"]["taskSupport"].clone()
    };
    assert_eq!(support("held"), "required");
    assert_eq!(support("held_optional"), "optional");
    assert_eq!(support("held_plain"), "forbidden");
    let held = tools.iter().find(|tool| tool["name"] == "held").unwrap();
    assert_eq!(held["description"], "held");
}

#[tokio::test]
async fn a_server_without_tools_gets_a_list_of_ours() {
    let (tasks, _) = server();
    let (mut pipe, answer) = Pipe::at(G1, &tasks, Bare).await;
    assert_eq!(
        answer["capabilities"]["tools"],
        json!({"listChanged": true})
    );
    let answer = pipe.request("tools/list", json!({})).await;
    assert!(answer["result"]["tools"].as_array().unwrap().len() > 10);
    assert_eq!(
        pipe.request("logging/setLevel", json!({"level": "error"}))
            .await["result"],
        json!({})
    );
    let wrong = pipe
        .request("logging/setLevel", json!({"level": "loud"}))
        .await;
    assert_eq!(code(&wrong), -32602);
    assert!(
        wrong["error"]["message"]
            .as_str()
            .unwrap()
            .contains("params.level"),
        "{wrong}"
    );
}

// What is no task passes through.
#[tokio::test]
async fn inner_tools_are_the_inner_servers() {
    let (mut pipe, ..) = pipe().await;
    let answer = pipe
        .request(
            "tools/call",
            json!({"name": "greet", "arguments": {"name": "Ada"}}),
        )
        .await;
    assert_eq!(text(&answer["result"]), "Hello, Ada!");
    assert!(answer["result"].get("_meta").is_none());
    // F-02: known by its list or by its router, and refused before its arguments are looked at.
    let refused = pipe
        .request(
            "tools/call",
            json!({"name": "greet", "arguments": 7, "task": {}}),
        )
        .await;
    assert_eq!(code(&refused), -32601);
    let unknown = pipe
        .request("tools/call", json!({"name": "nobody", "arguments": {}}))
        .await;
    let with_task = pipe
        .request(
            "tools/call",
            json!({"name": "nobody", "arguments": {}, "task": {}}),
        )
        .await;
    assert_eq!(unknown["error"], with_task["error"]);
    assert_eq!(pipe.request("ping", json!({})).await["result"], json!({}));
}

// F-02, B05, B08
#[tokio::test]
async fn support_is_enforced_on_every_path() {
    let (mut pipe, gates, _tasks) = pipe().await;
    let plain = pipe
        .request("tools/call", json!({"name": "held", "arguments": {}}))
        .await;
    assert_eq!(code(&plain), -32601);
    assert!(
        plain["error"]["message"]
            .as_str()
            .unwrap()
            .contains("requires task"),
        "{plain}"
    );
    let task = pipe
        .request(
            "tools/call",
            json!({"name": "held_plain", "arguments": 3, "task": {}}),
        )
        .await;
    assert_eq!(code(&task), -32601);
    gates.go.add_permits(2);
    for name in ["held_optional", "held_plain"] {
        let answer = pipe
            .request("tools/call", json!({"name": name, "arguments": {}}))
            .await;
        assert_eq!(text(&answer["result"]), "held {}");
        assert!(answer["result"].get("task").is_none() && answer["result"].get("_meta").is_none());
    }
}

// F-11, F-03, B29, B31, B32
#[tokio::test]
async fn a_task_from_creation_to_its_repeatable_result() {
    let (mut pipe, gates, _tasks) = pipe().await;
    let answer = pipe
        .request(
            "tools/call",
            json!({"name": "held", "arguments": {"a": [1, 2]}, "task": {"ttl": 60000}}),
        )
        .await;
    let task = &answer["result"]["task"];
    assert_eq!(task["status"], "working");
    assert_eq!(
        (&task["ttl"], &task["pollInterval"]),
        (&json!(60000), &json!(200))
    );
    assert_eq!(task["createdAt"], task["lastUpdatedAt"]);
    assert!(answer["result"].get("_meta").is_none());
    let id = task["taskId"].clone();
    let got = pipe.request("tasks/get", json!({"taskId": id})).await;
    assert_eq!(got["result"], *task);
    let waiting = pipe.begin("tasks/result", json!({"taskId": id})).await;
    let beside = pipe.begin("tasks/result", json!({"taskId": id})).await;
    gates.go.add_permits(1);
    let first = pipe.answer(waiting).await;
    assert_eq!(text(&first["result"]), r#"held {"a":[1,2]}"#);
    assert_eq!(first["result"]["_meta"][RELATED], json!({"taskId": id}));
    assert_eq!(pipe.answer(beside).await["result"], first["result"]);
    assert_eq!(
        pipe.request("tasks/result", json!({"taskId": id})).await["result"],
        first["result"]
    );
    let done = pipe.request("tasks/get", json!({"taskId": id})).await;
    assert_eq!(done["result"]["status"], "completed");
    assert_eq!(done["result"]["createdAt"], task["createdAt"]);
    assert!(done["result"].get("_meta").is_none() && done["result"].get("statusMessage").is_none());
    let late = pipe.request("tasks/cancel", json!({"taskId": id})).await;
    assert_eq!(code(&late), -32602);
    assert_eq!(
        late["error"]["message"],
        "Cannot cancel task: already in terminal status 'completed'"
    );
}

// wire.md 4: the table, as 2025-11-25 has it. B37's counterpart, B40, B41.
#[tokio::test]
async fn each_outcome_has_its_status_message_and_result() {
    let (mut pipe, ..) = pipe().await;
    // Tool, status, statusMessage, error code of tasks/result (0: a result).
    let table: [(&str, Value, &str, &str, i64); 6] = [
        ("echo", json!({"text": "hi"}), "completed", "", 0),
        ("empty", json!({}), "completed", "", 0),
        ("is_error", json!({}), "failed", "it broke", 0),
        ("fails", json!({}), "failed", "it broke", 1042),
        ("panics", json!({}), "failed", "the tool panicked", -32603),
        (
            "square",
            json!({"n": 13}),
            "failed",
            "the tool broke its output schema",
            -32603,
        ),
    ];
    for (tool, arguments, status, message, error) in table {
        let id = pipe.create(tool, arguments).await["taskId"].clone();
        let result = pipe.request("tasks/result", json!({"taskId": id})).await;
        let task = pipe.request("tasks/get", json!({"taskId": id})).await["result"].clone();
        assert_eq!(task["status"], status, "{tool}");
        assert!(
            task["statusMessage"]
                .as_str()
                .unwrap_or_default()
                .starts_with(message),
            "{tool}: {task}"
        );
        if error == 0 {
            assert_eq!(result["result"]["_meta"][RELATED]["taskId"], id, "{tool}");
            assert!(result["result"].get("resultType").is_none(), "{tool}");
            assert!(result["result"]["content"].is_array(), "{tool}");
        } else {
            assert_eq!(code(&result), error, "{tool}");
        }
        match tool {
            "is_error" => {
                assert_eq!(result["result"]["isError"], true);
                assert_eq!(result["result"]["structuredContent"], json!({"code": 7}));
            }
            "fails" => assert_eq!(result["error"]["data"], json!({"step": 3})),
            _ => {}
        }
    }
    // The process lives on, and so does the connection.
    assert_eq!(pipe.request("ping", json!({})).await["result"], json!({}));
}

// F-07
#[tokio::test]
async fn arguments_are_checked_before_a_task_exists() {
    let (mut pipe, ..) = pipe().await;
    let before = pipe.request("tasks/list", json!({})).await["result"]["tasks"].clone();
    let params = json!({"name": "square", "arguments": {"n": "x"}, "task": {}});
    let refused = pipe.request("tools/call", params).await;
    assert_eq!(code(&refused), -32602);
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("arguments.n"),
        "{refused}"
    );
    let plain = pipe
        .request("tools/call", json!({"name": "square", "arguments": {}}))
        .await;
    assert_eq!(plain["result"]["isError"], true);
    assert!(text(&plain["result"]).contains("\"n\""), "{plain}");
    let no_object = pipe
        .request(
            "tools/call",
            json!({"name": "square", "arguments": [1], "task": {}}),
        )
        .await;
    assert!(
        no_object["error"]["message"]
            .as_str()
            .unwrap()
            .contains("params.arguments"),
        "{no_object}"
    );
    assert_eq!(
        pipe.request("tasks/list", json!({})).await["result"]["tasks"],
        before
    );
    let good = pipe
        .request(
            "tools/call",
            json!({"name": "square", "arguments": {"n": 4}}),
        )
        .await;
    assert_eq!(
        good["result"]["structuredContent"],
        json!({"n": 4, "square": 16})
    );
}

// F-19, B65
#[tokio::test]
async fn a_wrong_ttl_is_refused_and_a_large_one_clamped() {
    let (mut pipe, ..) = pipe().await;
    for wrong in [json!(-1), json!(1.5), json!("abc"), json!(true), json!({})] {
        let params = json!({"name": "echo", "arguments": {}, "task": {"ttl": wrong}});
        let refused = pipe.request("tools/call", params).await;
        assert_eq!(code(&refused), -32602, "{wrong}");
        assert!(
            refused["error"]["message"]
                .as_str()
                .unwrap()
                .contains("params.task.ttl"),
            "{refused}"
        );
    }
    let refused = pipe
        .request(
            "tools/call",
            json!({"name": "echo", "arguments": {}, "task": 3}),
        )
        .await;
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("params.task"),
        "{refused}"
    );
    let week = 7 * 24 * 3600 * 1000;
    for (asked, granted) in [
        (json!({}), json!(3_600_000)),
        (json!({"ttl": null}), json!(week)),
        (json!({"ttl": 99_999_999_999_999_u64}), json!(week)),
        (json!({"ttl": 0}), json!(1000)),
    ] {
        let params = json!({"name": "echo", "arguments": {}, "task": asked});
        let answer = pipe.request("tools/call", params).await;
        assert_eq!(answer["result"]["task"]["ttl"], granted, "{asked}");
    }
    assert_eq!(
        pipe.request("tasks/list", json!({})).await["result"]["tasks"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
}

// F-12, F-13, F-14, B47
#[tokio::test]
async fn one_waiting_result_carries_all_questions() {
    let (mut pipe, gates, _tasks) = pipe().await;
    let id = pipe.create("interview", json!({})).await["taskId"].clone();
    let waiting = pipe.begin("tasks/result", json!({"taskId": id})).await;
    let status = |answer: Value| answer["result"]["status"].as_str().unwrap().to_owned();
    assert_eq!(
        status(pipe.request("tasks/get", json!({"taskId": id})).await),
        "working"
    );
    gates.go.add_permits(1);
    let first = pipe.method("elicitation/create").await;
    assert_eq!(first["params"]["message"], "First?");
    assert_eq!(first["params"]["_meta"][RELATED]["taskId"], id);
    assert!(first["id"].is_string());
    assert_eq!(
        status(pipe.request("tasks/get", json!({"taskId": id})).await),
        "input_required"
    );
    pipe.accept(&first, "Ada").await;
    let told = pipe
        .until(|m| {
            m["method"] == "notifications/tasks/status" && m["params"]["status"] == "working"
        })
        .await;
    assert!(told["params"].get("_meta").is_none());
    assert_eq!(
        status(pipe.request("tasks/get", json!({"taskId": id})).await),
        "working"
    );
    gates.go.add_permits(1);
    let second = pipe.method("elicitation/create").await;
    assert_eq!(second["params"]["message"], "Second?");
    assert_ne!(second["id"], first["id"]);
    pipe.reply(&second, json!({"action": "decline"})).await;
    let sampled = pipe.method("sampling/createMessage").await;
    assert_eq!(sampled["params"]["_meta"][RELATED]["taskId"], id);
    pipe.reply(
        &sampled,
        json!({"model": "m", "role": "assistant", "content": {"type": "text", "text": "s"}}),
    )
    .await;
    let result = pipe.answer(waiting).await;
    assert!(
        text(&result["result"]).starts_with("accept Ada; decline; "),
        "{result}"
    );
}

// F-14: what a client can answer, and that the body sees which.
#[tokio::test]
async fn the_body_sees_what_was_answered() {
    let (mut pipe, ..) = pipe().await;
    let cases: [(Value, &str); 6] = [
        (
            json!({"result": {"action": "accept", "content": {"name": "Ada"}}}),
            "accept Ada",
        ),
        (json!({"result": {"action": "decline"}}), "decline"),
        (json!({"result": {"action": "cancel"}}), "cancel"),
        (
            json!({"error": {"code": -1, "message": "no user"}}),
            "Rejected(ErrorObject { code: -1",
        ),
        (
            json!({"result": {"action": "accept", "content": {"name": 7}}}),
            "InvalidAnswer",
        ),
        (json!({"result": {"action": "shrug"}}), "InvalidAnswer"),
    ];
    for (answer, expected) in cases {
        let id = pipe.create("ask_error", json!({})).await["taskId"].clone();
        let waiting = pipe.begin("tasks/result", json!({"taskId": id})).await;
        let question = pipe.method("elicitation/create").await;
        let mut message = answer.clone();
        message["jsonrpc"] = json!("2.0");
        message["id"] = question["id"].clone();
        pipe.send(&message).await;
        // A second answer to the same question changes nothing.
        pipe.accept(&question, "Mallory").await;
        let result = pipe.answer(waiting).await;
        assert!(
            text(&result["result"]).starts_with(expected),
            "{answer}: {result}"
        );
    }
}

// wire.md 5: only kinds and modes the session declared.
#[tokio::test]
async fn undeclared_questions_fail_in_the_body_at_once() {
    let (tasks, _) = server();
    let initialize = support::initialize_with(G1, json!({"elicitation": {}}));
    let (mut pipe, _) = Pipe::with(&tasks, Greeter, initialize).await;
    for tool in ["url", "roots"] {
        let id = pipe.create(tool, json!({})).await["taskId"].clone();
        let result = pipe.request("tasks/result", json!({"taskId": id})).await;
        assert_eq!(code(&result), -32603);
        assert!(
            result["error"]["message"]
                .as_str()
                .unwrap()
                .contains("does not support"),
            "{result}"
        );
    }
    let id = pipe.create("ask", json!({})).await["taskId"].clone();
    let waiting = pipe.begin("tasks/result", json!({"taskId": id})).await;
    let question = pipe.method("elicitation/create").await;
    assert_eq!(question["params"]["mode"], "form");
    pipe.accept(&question, "Ada").await;
    assert_eq!(text(&pipe.answer(waiting).await["result"]), "accept Ada");
}

#[tokio::test]
async fn url_questions_and_roots_reach_a_client_that_declared_them() {
    let (mut pipe, ..) = pipe().await;
    let id = pipe.create("url", json!({})).await["taskId"].clone();
    let waiting = pipe.begin("tasks/result", json!({"taskId": id})).await;
    let question = pipe.method("elicitation/create").await;
    assert_eq!(question["params"]["url"], "https://example.com/x");
    assert!(question["params"]["elicitationId"].is_string());
    pipe.reply(&question, json!({"action": "accept"})).await;
    assert_eq!(text(&pipe.answer(waiting).await["result"]), "Accept(())");
    let id = pipe.create("roots", json!({})).await["taskId"].clone();
    let waiting = pipe.begin("tasks/result", json!({"taskId": id})).await;
    let question = pipe.method("roots/list").await;
    pipe.reply(&question, json!({"roots": []})).await;
    assert_eq!(
        text(&pipe.answer(waiting).await["result"]),
        r#"{"roots":[]}"#
    );
}

// F-13: a client on a pipe that reads question and handle in one gulp; and one that polls and never waits.
#[tokio::test]
async fn a_question_waits_until_the_client_knows_the_task() {
    let (mut pipe, ..) = pipe().await;
    let started = std::time::Instant::now();
    let id = pipe.create("ask", json!({})).await["taskId"].clone();
    // Nothing is put before the client has named the task or one poll interval has passed.
    let early = pipe.fence().await;
    let asked = |m: &Value| m["method"] == "elicitation/create";
    if started.elapsed() < std::time::Duration::from_millis(150) {
        assert!(!early.iter().any(asked), "{early:?}");
    }
    pipe.other.extend(early);
    let question = pipe.until(asked).await;
    let task = pipe.request("tasks/get", json!({"taskId": id})).await;
    assert_eq!(task["result"]["status"], "input_required");
    pipe.accept(&question, "Ada").await;
    pipe.until(|m| {
        m["method"] == "notifications/tasks/status" && m["params"]["status"] == "completed"
    })
    .await;
    let result = pipe.request("tasks/result", json!({"taskId": id})).await;
    assert_eq!(text(&result["result"]), "accept Ada");
    assert!(!pipe.fence().await.iter().any(asked), "asked twice");
}

// F-15, B40, B56, B62
#[tokio::test]
async fn cancel_stops_the_body_and_answers_every_waiter() {
    let (mut pipe, gates, _tasks) = pipe().await;
    let id = pipe.create("held", json!({})).await["taskId"].clone();
    let other = pipe.create("held", json!({"other": true})).await["taskId"].clone();
    gates.wait_started().await;
    gates.wait_started().await;
    let waiting = pipe.begin("tasks/result", json!({"taskId": id})).await;
    let cancelled = pipe.request("tasks/cancel", json!({"taskId": id})).await;
    assert_eq!(cancelled["result"]["status"], "cancelled");
    assert_eq!(cancelled["result"]["taskId"], id);
    let answer = pipe.answer(waiting).await;
    assert_eq!(code(&answer), -32800);
    assert_eq!(
        answer["error"]["data"],
        json!({"taskId": id, "status": "cancelled"})
    );
    gates.wait_cancelled().await;
    assert_eq!(
        code(&pipe.request("tasks/cancel", json!({"taskId": id})).await),
        -32602
    );
    assert_eq!(
        pipe.request("tasks/get", json!({"taskId": id})).await["result"]["status"],
        "cancelled"
    );
    assert_eq!(
        pipe.request("tasks/get", json!({"taskId": other})).await["result"]["status"],
        "working"
    );
    gates.go.add_permits(1);
    let done = pipe.request("tasks/result", json!({"taskId": other})).await;
    assert_eq!(text(&done["result"]), r#"held {"other":true}"#);
}

// F-15: a cancel wakes an open question, and its request is taken back.
#[tokio::test]
async fn cancel_takes_an_open_question_back() {
    let (mut pipe, ..) = pipe().await;
    let id = pipe.create("ask", json!({})).await["taskId"].clone();
    let waiting = pipe.begin("tasks/result", json!({"taskId": id})).await;
    let question = pipe.method("elicitation/create").await;
    pipe.request("tasks/cancel", json!({"taskId": id})).await;
    let taken_back = pipe.method("notifications/cancelled").await;
    assert_eq!(taken_back["params"]["requestId"], question["id"]);
    assert_eq!(code(&pipe.answer(waiting).await), -32800);
    // A late answer changes nothing.
    pipe.accept(&question, "Ada").await;
    assert_eq!(
        pipe.request("tasks/get", json!({"taskId": id})).await["result"]["status"],
        "cancelled"
    );
}

// wire.md 5: giving up a wait is not giving up the task.
#[tokio::test]
async fn cancelling_the_wait_does_not_cancel_the_task() {
    let (mut pipe, gates, _tasks) = pipe().await;
    let id = pipe.create("held", json!({})).await["taskId"].clone();
    let waiting = pipe.begin("tasks/result", json!({"taskId": id})).await;
    pipe.notify(
        "notifications/cancelled",
        json!({"requestId": waiting, "reason": "bored"}),
    )
    .await;
    assert_eq!(
        pipe.request("tasks/get", json!({"taskId": id})).await["result"]["status"],
        "working"
    );
    gates.go.add_permits(1);
    let result = pipe.request("tasks/result", json!({"taskId": id})).await;
    assert_eq!(text(&result["result"]), "held {}");
    let seen = pipe.fence().await;
    assert!(
        !seen.iter().any(|m| m["id"] == waiting),
        "a given-up request was answered: {seen:?}"
    );
}

// F-16, B59
#[tokio::test]
async fn a_plain_call_of_an_optional_tool_waits_asks_and_can_be_cancelled() {
    let (mut pipe, gates, _tasks) = pipe().await;
    let call = pipe
        .begin(
            "tools/call",
            json!({"name": "ask_optional", "arguments": {}}),
        )
        .await;
    let question = pipe.method("elicitation/create").await;
    assert!(question["params"].get("_meta").is_none(), "{question}");
    pipe.accept(&question, "Ada").await;
    let answer = pipe.answer(call).await;
    assert_eq!(text(&answer["result"]), "accept Ada");
    let call = pipe
        .begin(
            "tools/call",
            json!({"name": "held_optional", "arguments": {}}),
        )
        .await;
    gates.wait_started().await;
    // Hidden: nobody sees it.
    let listed = pipe.request("tasks/list", json!({})).await;
    assert_eq!(listed["result"]["tasks"], json!([]));
    pipe.notify("notifications/cancelled", json!({"requestId": call}))
        .await;
    gates.wait_cancelled().await;
    assert!(!pipe.fence().await.iter().any(|m| m["id"] == call));
    // A failing shim is the tool's failure, not an unknown tool.
    let failed = pipe
        .request("tools/call", json!({"name": "fails", "arguments": {}}))
        .await;
    assert_eq!(
        (code(&failed), &failed["error"]["data"]),
        (1042, &json!({"step": 3}))
    );
    let is_error = pipe
        .request("tools/call", json!({"name": "is_error", "arguments": {}}))
        .await;
    assert_eq!(is_error["result"]["isError"], true);
    let panicked = pipe
        .request("tools/call", json!({"name": "panics", "arguments": {}}))
        .await;
    assert_eq!(code(&panicked), -32603);
}

// F-17
#[tokio::test]
async fn progress_and_logs_go_to_the_call_or_the_creating_session() {
    let (mut pipe, ..) = pipe().await;
    pipe.request("logging/setLevel", json!({"level": "info"}))
        .await;
    let meta = json!({"progressToken": "p-1"});
    let params = json!({"name": "chatty", "arguments": {}, "task": {}, "_meta": meta});
    let id = pipe.request("tools/call", params).await["result"]["task"]["taskId"].clone();
    pipe.request("tasks/result", json!({"taskId": id})).await;
    let seen = pipe.fence().await;
    let of = |method: &str| -> Vec<&Value> {
        seen.iter()
            .filter(|m| m["method"] == method)
            .map(|m| &m["params"])
            .collect()
    };
    let progress = of("notifications/progress");
    let values: Vec<_> = progress.iter().map(|p| p["progress"].clone()).collect();
    assert_eq!(values, [json!(1), json!(2), json!(3)], "{seen:?}");
    assert!(
        progress
            .iter()
            .all(|p| p["progressToken"] == "p-1" && p["total"] == 3)
    );
    assert!(progress.iter().all(|p| p["_meta"][RELATED]["taskId"] == id));
    let levels: Vec<_> = of("notifications/message")
        .iter()
        .map(|p| p["level"].clone())
        .collect();
    assert_eq!(levels, [json!("info"), json!("error")]);
    // The same behind a plain call: without the metadata, before the response.
    let params = json!({"name": "chatty", "arguments": {}, "_meta": {"progressToken": 7}});
    let call = pipe.begin("tools/call", params).await;
    pipe.answer(call).await;
    let seen: Vec<Value> = pipe.other.drain(..).collect();
    let progress: Vec<_> = seen
        .iter()
        .filter(|m| m["method"] == "notifications/progress")
        .collect();
    assert_eq!(progress.len(), 3, "{seen:?}");
    assert!(
        progress
            .iter()
            .all(|m| m["params"]["progressToken"] == 7 && m["params"].get("_meta").is_none())
    );
}

// wire.md 5: related-task is always ours.
#[tokio::test]
async fn a_body_cannot_fake_the_related_task() {
    let (mut pipe, ..) = pipe().await;
    let id = pipe.create("fake_related", json!({})).await["taskId"].clone();
    let result = pipe.request("tasks/result", json!({"taskId": id})).await;
    assert_eq!(
        result["result"]["_meta"],
        json!({RELATED: {"taskId": id}, "kept": 1})
    );
    let plain = pipe
        .request(
            "tools/call",
            json!({"name": "fake_related", "arguments": {}}),
        )
        .await;
    assert_eq!(plain["result"]["_meta"], json!({"kept": 1}));
}

// F-21
#[tokio::test]
async fn a_model_immediate_response_is_in_the_creation_answer() {
    let (mut pipe, ..) = pipe().await;
    let answer = pipe
        .request(
            "tools/call",
            json!({"name": "immediate", "arguments": {}, "task": {}}),
        )
        .await;
    let key = "io.modelcontextprotocol/model-immediate-response";
    assert_eq!(answer["result"]["_meta"], json!({key: "working on it"}));
    assert_eq!(answer["result"]["task"]["status"], "working");
}

// F-04
#[tokio::test]
async fn proposed_ids_are_checked_and_never_overwrite() {
    let (mut pipe, ..) = pipe().await;
    let id = "job-0123456789-abcdefghijkl";
    let task = pipe.create("proposes", json!({"id": id})).await;
    // What the handler has done already does not show: a creation answer is always working.
    assert_eq!(
        (&task["taskId"], &task["status"]),
        (&json!(id), &json!("working"))
    );
    assert_eq!(
        text(&pipe.request("tasks/result", json!({"taskId": id})).await["result"]),
        "proposed"
    );
    let params = |id: &str| json!({"name": "proposes", "arguments": {"id": id}, "task": {}});
    let again = pipe.request("tools/call", params(id)).await;
    assert_eq!(code(&again), -32602);
    assert!(
        again["error"]["message"]
            .as_str()
            .unwrap()
            .contains("already exists"),
        "{again}"
    );
    let short = pipe.request("tools/call", params("job-1")).await;
    assert!(
        short["error"]["message"]
            .as_str()
            .unwrap()
            .contains("22 to 128"),
        "{short}"
    );
    assert_eq!(
        pipe.request("tasks/list", json!({})).await["result"]["tasks"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

// F-05
#[tokio::test]
async fn work_outside_completes_through_a_handle() {
    let (mut pipe, gates, tasks) = pipe().await;
    let task = pipe.create("outside", json!({})).await;
    assert_eq!(task["statusMessage"], "queued");
    let handle = tasks
        .handle(task["taskId"].as_str().unwrap())
        .await
        .unwrap()
        .unwrap();
    handle.status("half way").await.unwrap();
    let told = pipe.method("notifications/tasks/status").await;
    assert_eq!(told["params"]["statusMessage"], "half way");
    gates.go.add_permits(1);
    let result = pipe
        .request("tasks/result", json!({"taskId": task["taskId"]}))
        .await;
    assert_eq!(text(&result["result"]), "from outside");
    let done = pipe
        .request("tasks/get", json!({"taskId": task["taskId"]}))
        .await;
    assert!(done["result"].get("statusMessage").is_none(), "{done}");
}

// The stage before a task asks on the call's own stream.
#[tokio::test]
async fn a_stage_before_the_task_asks_first() {
    let (mut pipe, ..) = pipe().await;
    let params = json!({"name": "staged", "arguments": {}, "task": {"ttl": 60000}});
    let call = pipe.begin("tools/call", params).await;
    let question = pipe.method("elicitation/create").await;
    assert!(question["params"].get("_meta").is_none());
    assert_eq!(
        pipe.request("tasks/list", json!({})).await["result"]["tasks"],
        json!([])
    );
    pipe.accept(&question, "Ada").await;
    let created = pipe.answer(call).await;
    let id = created["result"]["task"]["taskId"].clone();
    let result = pipe.request("tasks/result", json!({"taskId": id})).await;
    assert_eq!(text(&result["result"]), "staged accept Ada");
    let call = pipe
        .begin(
            "tools/call",
            json!({"name": "staged_optional", "arguments": {}}),
        )
        .await;
    let question = pipe.method("elicitation/create").await;
    pipe.reply(&question, json!({"action": "decline"})).await;
    assert_eq!(text(&pipe.answer(call).await["result"]), "staged decline");
    let refused = pipe
        .request("tools/call", json!({"name": "staged", "arguments": {}}))
        .await;
    assert_eq!(code(&refused), -32601);
}

// F-09
#[tokio::test]
async fn tools_come_and_go_at_run_time() {
    let (mut pipe, _gates, tasks) = pipe().await;
    tasks
        .add_tool(
            mcp_tasks::TaskTool::new("late").run(async |_: mcp_tasks::TaskContext, _: Value| {
                Ok::<_, mcp_tasks::TaskError>("late")
            }),
        )
        .unwrap();
    pipe.method("notifications/tools/list_changed").await;
    assert!(
        pipe.request("tools/list", json!({}))
            .await
            .to_string()
            .contains("\"late\"")
    );
    let id = pipe.create("late", json!({})).await["taskId"].clone();
    assert_eq!(
        text(&pipe.request("tasks/result", json!({"taskId": id})).await["result"]),
        "late"
    );
    assert!(tasks.remove_tool("late"));
    pipe.method("notifications/tools/list_changed").await;
    assert!(
        !pipe
            .request("tools/list", json!({}))
            .await
            .to_string()
            .contains("\"late\"")
    );
    assert_eq!(
        text(&pipe.request("tasks/result", json!({"taskId": id})).await["result"]),
        "late"
    );
}

// F-11: unknown and bad parameters, one answer each.
#[tokio::test]
async fn unknown_tasks_and_wrong_parameters() {
    let (mut pipe, ..) = pipe().await;
    let mut messages = Vec::new();
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let unknown = pipe.request(method, json!({"taskId": "nope"})).await;
        assert_eq!(code(&unknown), -32602);
        messages.push(unknown["error"]["message"].clone());
        for wrong in [
            json!({}),
            json!({"taskId": 7}),
            json!({"taskId": null}),
            json!([1]),
        ] {
            let refused = pipe.request(method, wrong.clone()).await;
            assert_eq!(code(&refused), -32602, "{wrong}");
            assert!(
                refused["error"]["message"]
                    .as_str()
                    .unwrap()
                    .starts_with("params"),
                "{refused}"
            );
        }
    }
    messages.dedup();
    assert_eq!(messages.len(), 1, "one and the same message: {messages:?}");
    for wrong in [
        json!({"cursor": "nope"}),
        json!({"cursor": 7}),
        json!({"cursor": ""}),
    ] {
        assert_eq!(code(&pipe.request("tasks/list", wrong).await), -32602);
    }
    assert_eq!(
        code(&pipe.request("tasks/update", json!({"taskId": "x"})).await),
        -32601
    );
    // What public clients leak on polls is ignored.
    let id = pipe.create("echo", json!({"text": "hi"})).await["taskId"].clone();
    let leaky = json!({"taskId": id, "task": {"ttl": 3}, "_meta": {RELATED: {"taskId": "other"}, "progressToken": 1}});
    assert_eq!(
        pipe.request("tasks/get", leaky).await["result"]["taskId"],
        id
    );
}

// Wrong input: the right error, no task left behind, and the next message works.
#[tokio::test]
async fn nothing_that_comes_in_breaks_the_connection() {
    let (mut pipe, ..) = pipe().await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let nested = format!(
        r#"{{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{{"name":"square","arguments":{{"n":{deep}}},"task":{{}}}}}}"#
    );
    let long = "x".repeat(1 << 20);
    let wrong: Vec<(Vec<u8>, Option<i64>)> = vec![
        (b"{\"jsonrpc\":\"2.0\",\"id\":907,".to_vec(), Some(-32700)),
        (b"not json".to_vec(), Some(-32700)),
        (vec![b'{', 0xff, 0xfe, b'}'], Some(-32700)),
        (b"[]".to_vec(), Some(-32600)),
        (b"{\"jsonrpc\":\"1.0\",\"id\":905,\"method\":\"tasks/list\"}".to_vec(), Some(-32600)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"tasks/list\"}".to_vec(), Some(-32600)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":906}".to_vec(), Some(-32600)),
        (nested.into_bytes(), Some(-32602)),
        (format!(r#"{{"jsonrpc":"2.0","id":901,"method":"tasks/get","params":{{"taskId":"{long}"}}}}"#).into_bytes(), Some(-32602)),
        (format!(r#"{{"jsonrpc":"2.0","id":902,"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"{long}"}},"task":{{}}}}}}"#).into_bytes(), Some(-32602)),
        // Answers to questions nobody asked.
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"mcp-tasks/x/y/z\",\"result\":{}}".to_vec(), None),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"mcp-tasks/x\",\"result\":{}}".to_vec(), None),
        (b"{\"jsonrpc\":\"2.0\",\"id\":12345,\"result\":{}}".to_vec(), None),
        (b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":1,\"message\":\"m\"}}".to_vec(), None),
        (b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":7}".to_vec(), None),
        (b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":999}}".to_vec(), None),
        (b"   ".to_vec(), None),
        (b"".to_vec(), None),
    ];
    for (bytes, expected) in wrong {
        pipe.raw(&bytes).await;
        pipe.raw(b"\n").await;
        let seen = pipe.fence().await;
        let codes: Vec<i64> = seen
            .iter()
            .filter(|m| m.get("error").is_some())
            .map(code)
            .collect();
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
        assert_eq!(codes, expected.into_iter().collect::<Vec<_>>(), "{shown}");
        if expected == Some(-32700) {
            assert!(seen[0].get("id").is_none(), "{seen:?}");
        }
    }
    assert_eq!(
        pipe.request("tasks/list", json!({})).await["result"]["tasks"],
        json!([])
    );
}

// A pipe that closes in the middle of a line; and what the server does then.
#[tokio::test]
async fn the_server_ends_with_its_input() {
    let (mut pipe, gates, tasks) = pipe().await;
    let id = pipe.create("held", json!({})).await["taskId"].clone();
    pipe.begin("tasks/result", json!({"taskId": id})).await;
    pipe.raw(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"meth").await;
    pipe.close().await.unwrap();
    // The task is its owner's, not the connection's: a new connection of the same owner goes on with it.
    let (mut again, _) = Pipe::at(G1, &tasks, Greeter).await;
    assert_eq!(
        again.request("tasks/get", json!({"taskId": id})).await["result"]["status"],
        "working"
    );
    gates.go.add_permits(1);
    assert_eq!(
        text(&again.request("tasks/result", json!({"taskId": id})).await["result"]),
        "held {}"
    );
}

// `printf … | server`: what was begun is answered, by us as by the inner server.
#[tokio::test]
async fn plain_calls_are_finished_when_the_input_ends() {
    let (mut pipe, gates, _tasks) = pipe().await;
    let greet = pipe
        .begin(
            "tools/call",
            json!({"name": "greet", "arguments": {"name": "Ada"}}),
        )
        .await;
    let held = pipe
        .begin(
            "tools/call",
            json!({"name": "held_optional", "arguments": {}}),
        )
        .await;
    gates.wait_started().await;
    pipe.end_input().await;
    gates.go.add_permits(1);
    assert_eq!(text(&pipe.answer(greet).await["result"]), "Hello, Ada!");
    assert_eq!(text(&pipe.answer(held).await["result"]), "held {}");
}

// F-18, F-23 on one process: an open question is put to the connection that comes next.
#[tokio::test]
async fn an_open_question_follows_its_owner_to_a_new_connection() {
    let (mut pipe, _gates, tasks) = pipe().await;
    let id = pipe.create("ask", json!({})).await["taskId"].clone();
    pipe.request("tasks/get", json!({"taskId": id})).await;
    let lost = pipe.method("elicitation/create").await;
    pipe.close().await.unwrap();
    let (mut again, _) = Pipe::at(G1, &tasks, Greeter).await;
    assert_eq!(
        again.request("tasks/get", json!({"taskId": id})).await["result"]["status"],
        "input_required"
    );
    let question = again.method("elicitation/create").await;
    assert_ne!(question["id"], lost["id"]);
    assert_eq!(
        question["params"]["mcp-tasks/input"],
        lost["params"]["mcp-tasks/input"]
    );
    // Every sending stays answerable.
    again.accept(&lost, "Ada").await;
    assert_eq!(
        text(&again.request("tasks/result", json!({"taskId": id})).await["result"]),
        "accept Ada"
    );
}

// Both eras on one pipe: 2026-07-28 requests pass to the inner server, and neither disturbs the other.
#[tokio::test]
async fn requests_of_2026_07_28_pass_to_the_inner_server() {
    let (mut pipe, ..) = pipe().await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let discovered = pipe
        .request("server/discover", json!({"_meta": meta}))
        .await;
    assert!(
        discovered["result"]["supportedVersions"]
            .to_string()
            .contains("2026-07-28"),
        "{discovered}"
    );
    let params = json!({"name": "greet", "arguments": {"name": "Ada"}, "_meta": meta});
    let greeted = pipe.request("tools/call", params).await;
    assert_eq!(text(&greeted["result"]), "Hello, Ada!");
    assert_eq!(greeted["result"]["resultType"], "complete");
    let legacy = pipe
        .request(
            "tools/call",
            json!({"name": "greet", "arguments": {"name": "Bob"}}),
        )
        .await;
    assert_eq!(text(&legacy["result"]), "Hello, Bob!");
}
