//! Tools for one property of the runtime each.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use mcp_tasks::{
    CreateContext, LogLevel, TaskContext, TaskError, TaskOptions, TaskSupport, TaskTool,
};
use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{interval, sleep};

use super::{Nothing, optional};

#[derive(Deserialize, JsonSchema)]
struct Count {
    ms: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Checkpointed {
    steps: u32,
    ms: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Structured {
    n: i64,
}

/// What `structured` promises.
#[derive(Serialize, JsonSchema)]
struct Square {
    n: i64,
    square: i64,
}

#[derive(Deserialize, JsonSchema)]
struct ProposeId {
    id: String,
}

pub(super) fn tools(counter: Arc<AtomicU64>) -> Vec<TaskTool> {
    vec![
        fail("count_side_effects")
            .description("Adds 1 to this process's counter every 10 ms")
            .input::<Count>()
            .run(move |cx: TaskContext, Count { ms }| count(cx, counter.clone(), ms)),
        optional("checkpointed")
            .description("Works in steps and saves each")
            .input::<Checkpointed>()
            .run(checkpointed),
        optional("structured")
            .description("A number's square; 13 breaks the output schema")
            .input::<Structured>()
            .output::<Square>()
            .run(async |_: TaskContext, Structured { n }| {
                let square = match n {
                    13 => json!("unlucky"),
                    n => json!(n.saturating_mul(n)),
                };
                let content = json!({"n": n, "square": square});
                Ok::<_, TaskError>(CallToolResult::structured(content))
            }),
        TaskTool::new("propose_id")
            .description("Proposes its task's id, and is done")
            .input::<ProposeId>()
            .create(async |cx: CreateContext, ProposeId { id }| {
                let task = cx.create_task(TaskOptions::new().proposed_id(id)).await?;
                task.handle().complete("done").await?;
                Ok::<_, TaskError>(task)
            }),
        TaskTool::new("immediate")
            .description("Tells the model something at once")
            .input::<Nothing>()
            .immediate_response("working on it")
            .run(async |_: TaskContext, Nothing {}| Ok::<_, TaskError>("done")),
        fail("logs")
            .description("Logs three times and tells three times how far it is")
            .input::<Nothing>()
            .run(logs),
        fail("fake_related")
            .description("Claims in its result to be of another task")
            .input::<Nothing>()
            .run(async |_: TaskContext, Nothing {}| {
                let mut meta = MetaObject::default();
                let related = json!({"taskId": "another-task"});
                meta.0
                    .insert("io.modelcontextprotocol/related-task".into(), related);
                let mut result = CallToolResult::success(vec![ContentBlock::text("done")]);
                result.meta = Some(meta);
                Ok::<_, TaskError>(result)
            }),
    ]
}

/// A tool that may be called as a task, and fails when its worker stopped.
fn fail(name: &str) -> TaskTool {
    TaskTool::new(name).support(TaskSupport::Optional)
}

async fn count(cx: TaskContext, counter: Arc<AtomicU64>, ms: u64) -> Result<String, TaskError> {
    let mut tick = interval(Duration::from_millis(10));
    tick.tick().await; // the first is at once
    let counting = async {
        loop {
            tick.tick().await;
            counter.fetch_add(1, Ordering::Relaxed);
        }
    };
    tokio::select! {
        () = cx.cancelled() => Err(TaskError::tool("cancelled")),
        () = sleep(Duration::from_millis(ms)) => Ok(format!("counted for {ms} ms")),
        never = counting => never,
    }
}

async fn checkpointed(
    cx: TaskContext,
    Checkpointed { steps, ms }: Checkpointed,
) -> Result<String, TaskError> {
    let done: u32 = cx.restored()?.unwrap_or(0);
    let mut ran = 0;
    for step in done..steps {
        sleep(Duration::from_millis(ms)).await;
        cx.checkpoint(&(step + 1)).await?;
        ran += 1;
    }
    let attempts = cx.attempt();
    Ok(format!("steps={steps} attempts={attempts} ran={ran}"))
}

async fn logs(cx: TaskContext, Nothing {}: Nothing) -> Result<String, TaskError> {
    let levels = [LogLevel::Debug, LogLevel::Info, LogLevel::Error];
    for (level, done) in levels.into_iter().zip(1_u32..) {
        sleep(Duration::from_millis(100)).await;
        cx.log(level, format!("message {done}"));
        cx.progress(f64::from(done), Some(3.0), None);
    }
    Ok("logged".into())
}
