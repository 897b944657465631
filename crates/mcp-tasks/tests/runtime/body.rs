//! Bodies: what they are given, and what becomes of what they return.

use std::{pin::Pin, sync::Arc, time::Duration};

use mcp_tasks::{
    Json, LogLevel, TaskContext, TaskError, TaskTool,
    runtime::CreateError,
    task::{Phase, RawJson},
};
use rmcp::model::{CallToolResult, ContentBlock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{
    Dropped, Heard, alice, by_alice, call, call_with, ended, error, idle, quick, result, run,
    runtime, soon, text,
};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Sum {
    a: i64,
    b: i64,
}

// F-03
#[tokio::test(start_paused = true)]
async fn what_a_body_returns_is_the_outcome() {
    let tools = [
        TaskTool::new("string").run(async |_: TaskContext, args: Sum| {
            Ok::<_, TaskError>((args.a + args.b).to_string())
        }),
        TaskTool::new("unit").run(async |_: TaskContext, _: Value| Ok::<_, TaskError>(())),
        TaskTool::new("json").run(async |_: TaskContext, sum: Sum| Ok::<_, TaskError>(Json(sum))),
        TaskTool::new("whole").run(async |_: TaskContext, _: Value| {
            Ok::<_, TaskError>(CallToolResult::error(vec![ContentBlock::text("no luck")]))
        }),
    ];
    let (runtime, _store) = runtime(tools);
    let sum = run(&runtime, call_with("string", r#"{"a":2,"b":40}"#)).await;
    assert_eq!((text(&sum).as_str(), sum.phase()), ("42", Phase::Finished));
    assert_eq!(
        result(&run(&runtime, call("unit")).await).0["content"],
        json!([])
    );
    let structured = run(&runtime, call_with("json", r#"{"a":1,"b":2}"#)).await;
    assert_eq!(
        result(&structured).0["structuredContent"],
        json!({"a": 1, "b": 2})
    );
    // A result that says of itself that it is an error is a result, and its text the status message.
    let whole = run(&runtime, call("whole")).await;
    assert!(result(&whole).1);
    assert_eq!(whole.status_message.as_deref(), Some("no luck"));
    // Neutral: neither generation's marks are stored.
    assert!(result(&whole).0.get("resultType").is_none());
}

// F-03
#[tokio::test(start_paused = true)]
async fn what_a_body_errors_with_is_the_outcome() {
    let tools = [
        TaskTool::new("tool").run(async |_: TaskContext, _: Value| {
            Err::<(), _>(TaskError::tool("disk full").with_data(&json!({"free": 0})))
        }),
        TaskTool::new("rpc").run(async |_: TaskContext, _: Value| {
            Err::<(), _>(TaskError::rpc(1042, "quota")?.with_data(&json!({"left": 3})))
        }),
        TaskTool::new("reserved").run(async |_: TaskContext, _: Value| {
            Err::<(), TaskError>(TaskError::rpc(-32042, "go there")?)
        }),
    ];
    let (runtime, _store) = runtime(tools);
    let tool = run(&runtime, call("tool")).await;
    let (value, is_error) = result(&tool);
    assert!(is_error);
    assert_eq!(value["isError"], true);
    assert_eq!(value["structuredContent"], json!({"free": 0}));
    assert_eq!(tool.status_message.as_deref(), Some("disk full"));

    let rpc = run(&runtime, call("rpc")).await;
    assert_eq!(
        (error(&rpc).code, error(&rpc).message.as_str()),
        (1042, "quota")
    );
    assert_eq!(
        error(&rpc).data.unwrap().parse::<Value>().unwrap(),
        json!({"left": 3})
    );
    assert_eq!(rpc.status_message.as_deref(), Some("quota"));

    assert_eq!(error(&run(&runtime, call("reserved")).await).code, -32603);
}

// F-03: "a panicking body leaving its task `working`"
#[tokio::test(start_paused = true)]
async fn a_panic_fails_the_task_and_nothing_else() {
    type Never = Pin<Box<dyn Future<Output = Result<(), TaskError>> + Send>>;
    let tools = [
        TaskTool::new("at once").run(|_: TaskContext, _: Value| -> Never { panic!("no future") }),
        TaskTool::new("before an await").run(async |_: TaskContext, args: Value| {
            assert!(args["there"].is_string(), "argument {args}");
            Ok::<_, TaskError>(())
        }),
        TaskTool::new("after an await").run(async |cx: TaskContext, _: Value| {
            cx.status("on my way").await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            std::panic::panic_any(17_u8);
            #[allow(unreachable_code)]
            Ok::<_, TaskError>(())
        }),
        quick("quick"),
    ];
    let (runtime, _store) = runtime(tools);
    for tool in ["at once", "before an await", "after an await"] {
        let record = run(&runtime, call(tool)).await;
        let error = error(&record);
        assert_eq!(
            (error.code, error.message.as_str()),
            (-32603, "the tool panicked"),
            "{tool}"
        );
        assert_eq!(
            record.status_message.as_deref(),
            Some("the tool panicked"),
            "{tool}"
        );
    }
    assert_eq!(text(&run(&runtime, call("quick")).await), "done");
    idle(&runtime).await;
}

// F-03, F-26: a body that panics while it is dropped is not counted for ever
#[tokio::test(start_paused = true)]
async fn a_panic_while_a_body_is_dropped_leaves_nothing_behind() {
    struct Loud(#[allow(dead_code)] crate::support::DropGuard);
    impl Drop for Loud {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "dropped");
        }
    }
    let dropped = Dropped::default();
    let tool = {
        let dropped = dropped.clone();
        TaskTool::new("loud").run(move |_: TaskContext, _: Value| {
            let loud = Loud(dropped.guard());
            async move {
                let _loud = loud;
                std::future::pending::<()>().await;
                Ok::<_, TaskError>(())
            }
        })
    };
    let (runtime, _store) = runtime([tool]);
    let record = runtime.create(call("loud")).await.unwrap();
    tokio::task::yield_now().await;
    runtime
        .cancel(&record.id, &by_alice(), "enough")
        .await
        .unwrap();
    dropped.reaches(1).await;
    idle(&runtime).await;
    soon(runtime.shutdown(Duration::ZERO)).await;
}

// F-03: an error that is about another task ends this one like any error
#[tokio::test(start_paused = true)]
async fn a_body_that_fails_of_another_tasks_end_fails() {
    let tool = TaskTool::new("gone")
        .run(async |_: TaskContext, _: Value| Err::<(), _>(mcp_tasks::InputError::TaskEnded));
    let (runtime, _store) = runtime([tool]);
    let record = run(&runtime, call("gone")).await;
    assert_eq!(error(&record).code, -32603);
}

// F-07
#[tokio::test(start_paused = true)]
async fn arguments_are_checked_before_a_task_exists() {
    let tool = TaskTool::new("sum")
        .input::<Sum>()
        .run(async |_: TaskContext, sum: Sum| Ok::<_, TaskError>(Json(sum)));
    let plain =
        TaskTool::new("plain").run(async |_: TaskContext, sum: Sum| Ok::<_, TaskError>(Json(sum)));
    let (runtime, store) = runtime([tool, plain]);
    for (tool, arguments, place) in [
        ("sum", r#"{"a":"x","b":1}"#, "arguments.a"),
        ("sum", r#"{"a":1}"#, "\"b\""),
        ("sum", "[]", "arguments"),
        ("plain", "[1]", "arguments"),
        ("plain", "null", "arguments"),
    ] {
        let refused = runtime
            .create(call_with(tool, arguments))
            .await
            .unwrap_err();
        assert!(matches!(refused, CreateError::Arguments(_)), "{refused}");
        assert!(refused.to_string().contains(place), "{place}: {refused}");
        assert_eq!(refused.into_rpc().code, -32602);
    }
    assert_eq!((store.len(), store.index_entries()), (0, 0));
    // What only the type refuses fails the task, and says where.
    let failed = run(&runtime, call_with("plain", r#"{"a":1}"#)).await;
    assert_eq!(error(&failed).code, -32602);
    assert!(
        error(&failed).message.contains('b'),
        "{}",
        error(&failed).message
    );
}

// F-07
#[tokio::test(start_paused = true)]
async fn structured_output_that_breaks_its_schema_is_an_internal_error() {
    let tool = TaskTool::new("out")
        .output::<Sum>()
        .run(
            async |_: TaskContext, args: Value| match args["give"].as_str() {
                Some("good") => Json(json!({"a": 1, "b": 2})).into_ok(),
                Some("bad") => Json(json!({"a": 1, "b": "two"})).into_ok(),
                Some("error") => Err(TaskError::tool("could not")),
                _ => Ok(CallToolResult::success(vec![])),
            },
        );
    let (runtime, _store) = runtime([tool]);
    let good = run(&runtime, call_with("out", r#"{"give":"good"}"#)).await;
    assert_eq!(result(&good).0["structuredContent"]["b"], 2);
    let bad = error(&run(&runtime, call_with("out", r#"{"give":"bad"}"#)).await);
    assert_eq!(bad.code, -32603);
    assert!(
        bad.message.contains("structuredContent.b"),
        "{}",
        bad.message
    );
    let none = error(&run(&runtime, call("out")).await);
    assert_eq!(none.code, -32603);
    // The tool's own error owes no structured output.
    assert!(result(&run(&runtime, call_with("out", r#"{"give":"error"}"#)).await).1);
}

trait IntoOk {
    fn into_ok(self) -> Result<CallToolResult, TaskError>;
}

impl IntoOk for Json<Value> {
    fn into_ok(self) -> Result<CallToolResult, TaskError> {
        mcp_tasks::runtime::IntoTaskResult::into_task_result(self)
    }
}

// F-08
#[tokio::test(start_paused = true)]
async fn the_context_tells_all_of_the_request() {
    let tool = TaskTool::new("who").run(async |cx: TaskContext, args: Value| {
        let (requestor, request) = (cx.requestor(), cx.request());
        let meta: Value = request
            .meta
            .as_ref()
            .map(RawJson::parse)
            .transpose()?
            .unwrap();
        Ok::<_, TaskError>(Json(json!({
            "task": cx.task_id().as_str(),
            "owner": cx.owner().name(),
            "client": requestor.client_info().map(|info| info.name),
            "roots": requestor.permissions().roots,
            "elicits": requestor.client_capabilities().elicitation.is_some(),
            "session": requestor.session.as_deref(),
            "tool": &*request.tool,
            "arguments": args,
            "raw": request.arguments.get(),
            "meta": meta,
            "token": request.progress_token.as_ref().map(RawJson::get),
            "asked": request.requested_ttl,
            "ttl": cx.ttl_ms(),
            "attempt": cx.attempt(),
            "restored": cx.restored::<Value>()?,
        })))
    });
    let (runtime, _store) = runtime([tool]);
    let mut call = call_with("who", r#"{"n": 1.50}"#);
    call.meta = Some(crate::support::json(r#"{"com.example/x":true}"#));
    call.progress_token = Some(crate::support::json("7"));
    call.ttl = Some(Some(90_000));
    call.requestor.session = Some("s-1".into());
    call.requestor.client_info = Some(crate::support::json(r#"{"name":"c","version":"1"}"#));
    let record = run(&runtime, call).await;
    let (value, _) = result(&record);
    assert_eq!(
        value["structuredContent"],
        json!({
            "task": record.id.as_str(), "owner": alice().name(), "client": "c", "roots": true, "elicits": true,
            "session": "s-1", "tool": "who", "arguments": {"n": 1.5}, "raw": r#"{"n": 1.50}"#,
            "meta": {"com.example/x": true}, "token": "7", "asked": 90_000, "ttl": 90_000, "attempt": 1,
            "restored": null,
        })
    );
}

// F-08
#[tokio::test(start_paused = true)]
async fn the_stage_before_gives_the_body_its_arguments() {
    let tool = TaskTool::new("staged")
        .before_task(async |cx: TaskContext, args: Value| {
            assert!(cx.request().before);
            Ok::<_, TaskError>(json!({"a": args["n"], "b": 1}))
        })
        .run(async |_: TaskContext, sum: Sum| Ok::<_, TaskError>((sum.a + sum.b).to_string()));
    let (runtime, _store) = runtime([tool]);
    let mut stage = call_with("staged", r#"{"n":41}"#);
    (stage.before, stage.hidden) = (true, true);
    let record = runtime.create(stage).await.unwrap();
    let access = mcp_tasks::store::Access::System;
    let record = soon(runtime.wait(&record.id, &access, None)).await.unwrap();
    let (next, _) = result(&record);
    let mut body = call_with("staged", &next.to_string());
    body.checked = true;
    assert_eq!(text(&run(&runtime, body).await), "42");
}

// F-08, F-17
#[tokio::test(start_paused = true)]
async fn progress_rises_and_ends_with_the_task() {
    let kept = Arc::new(std::sync::Mutex::new(None));
    let tool = {
        let kept = kept.clone();
        TaskTool::new("steps").run(move |cx: TaskContext, _: Value| {
            *kept.lock().unwrap() = Some(cx.clone());
            async move {
                for done in [1.0, 2.0, 2.0, 1.5, f64::NAN, 3.0] {
                    cx.progress(done, Some(3.0), Some("step"));
                }
                cx.log(LogLevel::Warning, json!({"disk": "low"}));
                Ok::<_, TaskError>(())
            }
        })
    };
    let (runtime, _store) = runtime([tool]);
    let heard = Heard::of(&runtime);
    let record = runtime.create(call("steps")).await.unwrap();
    ended(&runtime, &record.id).await;
    let late = kept.lock().unwrap().take().unwrap();
    late.progress(9.0, None, None);
    late.log(LogLevel::Info, "late");
    assert!(late.status("late").await.is_err());
    let done: Vec<f64> = heard
        .progress
        .lock()
        .unwrap()
        .iter()
        .map(|event| event.done)
        .collect();
    assert_eq!(done, [1.0, 2.0, 3.0]);
    let logs = heard.logs.lock().unwrap();
    assert_eq!(logs.len(), 1);
    assert_eq!(
        (logs[0].level, &logs[0].data),
        (LogLevel::Warning, &json!({"disk": "low"}))
    );
    assert_eq!(logs[0].logger.as_deref(), Some("steps"));
}
