//! Task tools whose steps a test controls.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use mcp_tasks::{
    Elicitation, Json, Limits, LogLevel, Question, Recovery, TaskContext, TaskError, TaskOptions,
    TaskSupport, TaskTool, Tasks, TasksBuilder,
};
use rmcp::model::{CallToolResult, ContentBlock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// Gates that hold bodies until the test lets them go, and counters of what they did.
#[derive(Clone)]
pub struct Gates {
    pub go: Arc<Semaphore>,
    pub started: Arc<Semaphore>,
    pub cancelled: Arc<Semaphore>,
    pub runs: Arc<AtomicU64>,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            go: Arc::new(Semaphore::new(0)),
            started: Arc::new(Semaphore::new(0)),
            cancelled: Arc::new(Semaphore::new(0)),
            runs: Arc::default(),
        }
    }
}

impl Gates {
    pub async fn pass(&self) {
        self.go.acquire().await.unwrap().forget();
    }

    pub async fn wait_started(&self) {
        self.started.acquire().await.unwrap().forget();
    }

    pub async fn wait_cancelled(&self) {
        self.cancelled.acquire().await.unwrap().forget();
    }
}

#[derive(Deserialize, JsonSchema, Serialize)]
pub struct Name {
    pub name: String,
}

#[derive(Deserialize, JsonSchema, Serialize)]
pub struct Square {
    pub n: i64,
    pub square: i64,
}

#[derive(Deserialize, JsonSchema)]
pub struct N {
    pub n: i64,
}

fn asked(answer: Elicitation<Name>) -> String {
    match answer {
        Elicitation::Accept(Name { name }) => format!("accept {name}"),
        Elicitation::Decline => "decline".into(),
        Elicitation::Cancel => "cancel".into(),
    }
}

pub fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.poll_interval = std::time::Duration::from_millis(200);
    limits.min_result_retention = std::time::Duration::ZERO;
    limits.cancel_grace = std::time::Duration::from_millis(200);
    limits
}

/// All of them, on a server under construction.
pub fn all(gates: &Gates) -> TasksBuilder {
    Tasks::builder().limits(limits()).tools(tools(gates))
}

pub fn tools(gates: &Gates) -> Vec<TaskTool> {
    let optional = TaskSupport::Optional;
    let mut tools = Vec::new();
    let held = gates.clone();
    for (name, support) in [
        ("held", TaskSupport::Required),
        ("held_optional", optional),
        ("held_plain", TaskSupport::Forbidden),
    ] {
        let held = held.clone();
        tools.push(
            TaskTool::new(name)
                .support(support)
                .recovery(Recovery::Rerun)
                .run(move |cx: TaskContext, args: Value| {
                    let held = held.clone();
                    async move {
                        held.runs.fetch_add(1, Ordering::SeqCst);
                        held.started.add_permits(1);
                        tokio::select! {
                            () = held.pass() => Ok::<_, TaskError>(format!("held {args}")),
                            () = cx.cancelled() => {
                                held.cancelled.add_permits(1);
                                Err(TaskError::internal("cancelled"))
                            }
                        }
                    }
                }),
        );
    }
    tools.push(
        TaskTool::new("echo")
            .support(optional)
            .run(async |_: TaskContext, args: Value| {
                Ok::<_, TaskError>(args["text"].as_str().unwrap_or("nothing").to_owned())
            }),
    );
    for (name, support) in [("ask", TaskSupport::Required), ("ask_optional", optional)] {
        tools.push(
            TaskTool::new(name)
                .support(support)
                .run(async |cx: TaskContext, _: Value| {
                    Ok::<_, TaskError>(asked(cx.elicit::<Name>("Your name?").await?))
                }),
        );
    }
    // Waits at the gate before it asks, twice, and then samples.
    let gated = gates.clone();
    tools.push(
        TaskTool::new("interview").run(move |cx: TaskContext, _: Value| {
            let gated = gated.clone();
            async move {
                gated.pass().await;
                let first = asked(cx.elicit::<Name>("First?").await?);
                gated.pass().await;
                let second = asked(cx.elicit::<Name>("Second?").await?);
                let sampled = cx.ask(Question::sample(&sampling("hello"))?).await?;
                Ok::<_, TaskError>(format!("{first}; {second}; {}", sampled.get()))
            }
        }),
    );
    tools.push(TaskTool::new("ask_two").support(optional).run(
        async |cx: TaskContext, _: Value| {
            let (a, b) = tokio::join!(cx.elicit::<Name>("A?"), cx.elicit::<Name>("B?"));
            Ok::<_, TaskError>(format!("{}; {}", asked(a?), asked(b?)))
        },
    ));
    tools.push(TaskTool::new("ask_error").support(optional).run(
        async |cx: TaskContext, _: Value| {
            Ok::<_, TaskError>(match cx.elicit::<Name>("Your name?").await {
                Ok(answer) => asked(answer),
                Err(error) => format!("{error:?}"),
            })
        },
    ));
    tools.push(
        TaskTool::new("roots")
            .support(optional)
            .run(async |cx: TaskContext, _: Value| {
                Ok::<_, TaskError>(cx.ask(Question::roots()).await?.get().to_owned())
            }),
    );
    tools.push(
        TaskTool::new("url")
            .support(optional)
            .run(async |cx: TaskContext, _: Value| {
                Ok::<_, TaskError>(format!(
                    "{:?}",
                    cx.elicit_url("Go there", "https://example.com/x").await?
                ))
            }),
    );
    tools.push(
        TaskTool::new("fails")
            .support(optional)
            .run(async |_: TaskContext, _: Value| {
                Err::<String, _>(TaskError::rpc(1042, "it broke")?.with_data(&json!({"step": 3})))
            }),
    );
    tools.push(TaskTool::new("is_error").support(optional).run(
        async |_: TaskContext, _: Value| {
            Err::<String, _>(TaskError::tool("it broke").with_data(&json!({"code": 7})))
        },
    ));
    tools.push(TaskTool::new("panics").support(optional).run(
        async |_: TaskContext, args: Value| {
            assert!(args.is_null(), "on purpose");
            Ok::<_, TaskError>("no")
        },
    ));
    tools.push(
        TaskTool::new("empty")
            .support(optional)
            .run(async |_: TaskContext, _: Value| Ok::<_, TaskError>(())),
    );
    tools.push(
        TaskTool::new("square")
            .support(optional)
            .input::<N>()
            .output::<Square>()
            .run(async |_: TaskContext, N { n }: N| {
                Ok::<_, TaskError>(if n == 13 {
                    Json(json!({"n": "thirteen"}))
                } else {
                    Json(json!({"n": n, "square": n * n}))
                })
            }),
    );
    tools.push(
        TaskTool::new("chatty")
            .support(optional)
            .run(async |cx: TaskContext, _: Value| {
                for step in 1..=3 {
                    cx.log(
                        [LogLevel::Debug, LogLevel::Info, LogLevel::Error][step - 1],
                        format!("step {step}"),
                    );
                    #[allow(clippy::cast_precision_loss)]
                    cx.progress(step as f64, Some(3.0), Some("stepping"));
                    cx.progress(0.5, None, None);
                }
                Ok::<_, TaskError>("chatted")
            }),
    );
    tools.push(TaskTool::new("fake_related").support(optional).run(
        async |_: TaskContext, _: Value| {
            let result = CallToolResult::success(vec![ContentBlock::text("x")]);
            let mut value = serde_json::to_value(result)?;
            value["_meta"] = json!({super::RELATED: {"taskId": "someone-elses"}, "kept": 1});
            Ok::<CallToolResult, TaskError>(serde_json::from_value(value)?)
        },
    ));
    tools.push(
        TaskTool::new("immediate")
            .immediate_response("working on it")
            .run(async |_: TaskContext, _: Value| Ok::<_, TaskError>("done")),
    );
    tools.push(TaskTool::new("proposes").create(
        async |cx: mcp_tasks::CreateContext, args: Value| {
            let id = args["id"].as_str().unwrap_or_default().to_owned();
            let task = cx.create_task(TaskOptions::new().proposed_id(id)).await?;
            task.handle().complete("proposed").await?;
            Ok::<_, TaskError>(task)
        },
    ));
    let outside = gates.clone();
    tools.push(
        TaskTool::new("outside").create(move |cx: mcp_tasks::CreateContext, _: Value| {
            let outside = outside.clone();
            async move {
                let options = TaskOptions::new()
                    .status_message("queued")
                    .external_id("job-1");
                let task = cx.create_task(options).await?;
                let handle = task.handle().clone();
                tokio::spawn(async move {
                    outside.pass().await;
                    let _ = handle.complete("from outside").await;
                });
                Ok::<_, TaskError>(task)
            }
        }),
    );
    for (name, support) in [
        ("staged", TaskSupport::Required),
        ("staged_optional", optional),
    ] {
        tools.push(
            TaskTool::new(name)
                .support(support)
                .before_task(async |cx: TaskContext, _: Value| {
                    let name = asked(cx.elicit::<Name>("Before?").await?);
                    Ok::<_, TaskError>(json!({"name": name}))
                })
                .run(async |_: TaskContext, args: Value| {
                    Ok::<_, TaskError>(format!("staged {}", args["name"].as_str().unwrap_or("?")))
                }),
        );
    }
    tools
}

#[allow(deprecated)]
pub fn sampling(text: &str) -> rmcp::model::CreateMessageRequestParams {
    rmcp::model::CreateMessageRequestParams::new(
        vec![rmcp::model::SamplingMessage::user_text(text)],
        16,
    )
}
