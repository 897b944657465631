//! Defining tools, and mistakes in that.

use std::{sync::Arc, time::Duration};

use mcp_tasks::{
    BuildError, Limits, PollContext, Runtime, TaskContext, TaskError, TaskTool,
    runtime::CreateError, store::MemoryStore, task::Clock,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::{Dropped, call, ended, forever, quick, run, runtime, text};

fn refused(tool: TaskTool) -> String {
    let (runtime, _store) = runtime([]);
    runtime.add_tool(tool).unwrap_err().to_string()
}

// F-01, F-10
#[tokio::test(start_paused = true)]
async fn a_wrong_definition_is_refused_and_its_mistake_named() {
    let property = |schema: Value| json!({"type": "object", "properties": {"a": schema}});
    let cases = [
        (quick(""), "needs a name"),
        (quick(" \t"), "needs a name"),
        (TaskTool::new("t"), "neither .run nor .create"),
        (
            quick("t").input_schema(json!(true)),
            "must be a JSON object",
        ),
        (
            quick("t").input_schema(json!({"type": "string"})),
            "\"object\"",
        ),
        (quick("t").input_schema(json!({})), "\"object\""),
        (
            quick("t").input_schema(property(json!({"type": 7}))),
            "input schema is not valid",
        ),
        (
            quick("t").input_schema(property(json!({"$ref": "https://example.com/s.json"}))),
            "input schema is not valid",
        ),
        (
            quick("t").input_schema(property(json!({"type": "string", "x-mcp-header": "a b"}))),
            "x-mcp-header",
        ),
        (quick("t").output_schema(json!([])), "output schema must be"),
        (
            quick("t").output_schema(json!({"type": 7})),
            "output schema is not valid",
        ),
        (quick("t").ttl(Duration::ZERO), "ttl"),
        (
            quick("t").poll_interval(Duration::from_millis(99)),
            "poll interval",
        ),
        (
            quick("t").on_get(async |_: PollContext| Ok::<_, TaskError>(())),
            ".create tools",
        ),
    ];
    for (tool, why) in cases {
        let error = refused(tool);
        assert!(error.contains(why), "{why}: {error}");
        assert!(error.starts_with("tool \""), "names no tool: {error}");
    }
}

// F-01
#[tokio::test(start_paused = true)]
async fn a_name_is_given_once() {
    let (runtime, _store) = runtime([quick("a"), quick("b")]);
    let error = runtime.add_tool(quick("a")).unwrap_err();
    assert!(
        matches!(&error, BuildError::DuplicateTool(name) if name == "a"),
        "{error}"
    );
    assert_eq!(text(&run(&runtime, call("a")).await), "done");
}

// F-10
#[tokio::test]
async fn limits_that_make_no_sense_are_refused_by_name() {
    type Mistake = (&'static str, fn(&mut Limits));
    let cases: [Mistake; 9] = [
        ("default_ttl", |l| l.default_ttl = Duration::ZERO),
        ("max_ttl", |l| l.max_ttl = Duration::ZERO),
        ("lease", |l| l.lease = Duration::ZERO),
        ("cancel_grace", |l| l.cancel_grace = Duration::ZERO),
        ("heartbeat", |l| l.heartbeat = Duration::from_secs(15)),
        ("concurrent_runs", |l| l.concurrent_runs = 0),
        ("arguments", |l| l.arguments = 0),
        ("result", |l| l.result = 0),
        ("tasks_per_owner", |l| l.tasks_per_owner = 0),
    ];
    for (name, change) in cases {
        let mut limits = Limits::default();
        change(&mut limits);
        let built = Runtime::new(Arc::new(MemoryStore::new()), limits, Clock::system());
        let Err(error) = built else {
            panic!("{name} was accepted");
        };
        assert!(error.to_string().contains(name), "{name}: {error}");
    }
}

// F-09
#[tokio::test(start_paused = true)]
async fn tools_come_and_go_while_their_tasks_run() {
    let (started, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let slow = {
        let (started, go) = (started.clone(), go.clone());
        TaskTool::new("slow").run(move |_: TaskContext, _: Value| {
            let (started, go) = (started.clone(), go.clone());
            async move {
                started.notify_one();
                go.notified().await;
                Ok::<_, TaskError>("went on")
            }
        })
    };
    let (runtime, _store) = runtime([]);
    assert!(matches!(
        runtime.create(call("slow")).await,
        Err(CreateError::UnknownTool(name)) if name == "slow"
    ));
    runtime.add_tool(slow).unwrap();
    let record = runtime.create(call("slow")).await.unwrap();
    started.notified().await;

    assert!(runtime.remove_tool("slow"));
    assert!(!runtime.remove_tool("slow"));
    let refused = runtime.create(call("slow")).await.unwrap_err();
    assert_eq!(refused.to_string(), "unknown tool: slow");
    assert_eq!(refused.into_rpc().code, -32602);

    go.notify_one();
    assert_eq!(text(&ended(&runtime, &record.id).await), "went on");

    // The name is free again.
    runtime.add_tool(quick("slow")).unwrap();
    assert_eq!(text(&run(&runtime, call("slow")).await), "done");
}

// F-09
#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_gone_leaves_no_body_behind() {
    let (started, dropped) = (Arc::new(Notify::new()), Dropped::default());
    let (runtime, _store) = runtime([forever("f", &started, &dropped)]);
    runtime.create(call("f")).await.unwrap();
    started.notified().await;
    let other = runtime.clone();
    drop(runtime);
    tokio::task::yield_now().await;
    assert_eq!(dropped.count(), 0);
    drop(other);
    dropped.reaches(1).await;
}
