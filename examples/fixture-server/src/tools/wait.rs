//! Tools that take their time.

use std::time::Duration;

use mcp_tasks::{TaskContext, TaskError, TaskTool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::{Nothing, ask::ask_for_name, optional, required};

#[derive(Deserialize, JsonSchema)]
struct SlowEcho {
    #[serde(default = "hi")]
    text: String,
    #[serde(default = "three_hundred")]
    ms: u64,
}

/// What `slow_echo` has to echo once its first stage is over.
#[derive(Serialize, Deserialize)]
struct Staged {
    text: String,
    ms: u64,
    name: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct SleepEcho {
    ms: u64,
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct SlowCompute {
    #[schemars(range(min = 0))]
    seconds: f64,
    #[serde(default)]
    label: String,
}

#[derive(Deserialize, JsonSchema)]
struct Big {
    /// At most 64 MiB.
    #[schemars(range(max = 67_108_864))]
    bytes: usize,
}

fn hi() -> String {
    "hi".into()
}

pub(super) fn three_hundred() -> u64 {
    300
}

pub(super) fn tools() -> Vec<TaskTool> {
    vec![
        optional("slow_echo")
            .description("Echoes a text after a while and tells how far it is; asks a name first if the text is mrtr")
            .input::<SlowEcho>()
            .before_task(async |cx: TaskContext, SlowEcho { text, ms }| {
                let name = match text.as_str() {
                    "mrtr" => Some(ask_for_name(&cx, "Whose echo shall it be?").await?),
                    _ => None,
                };
                Ok::<_, TaskError>(Staged { text, ms, name })
            })
            .run(slow_echo),
        optional("sleep_echo")
            .description("Echoes a text after a while")
            .input::<SleepEcho>()
            .run(sleep_echo),
        required("sleep_required")
            .description("Echoes a text after a while, as a task only")
            .input::<SleepEcho>()
            .run(sleep_echo),
        optional("slow_compute")
            .description("Computes for some seconds")
            .input::<SlowCompute>()
            .run(slow_compute),
        TaskTool::new("forever")
            .description("Runs until it is cancelled")
            .input::<Nothing>()
            .run(async |cx: TaskContext, Nothing {}| {
                cx.cancelled().await;
                Ok::<_, TaskError>("cancelled")
            }),
        optional("big")
            .description("A text of that many bytes")
            .input::<Big>()
            .run(async |_: TaskContext, Big { bytes }| Ok::<_, TaskError>("x".repeat(bytes))),
    ]
}

async fn slow_echo(
    cx: TaskContext,
    Staged { text, ms, name }: Staged,
) -> Result<String, TaskError> {
    const STEPS: u32 = 4;
    for step in 1..=STEPS {
        sleep(Duration::from_millis(ms) / STEPS).await;
        cx.progress(f64::from(step), Some(f64::from(STEPS)), Some("echoing"));
    }
    Ok(match name {
        Some(name) => format!("{text} for {name}"),
        None => text,
    })
}

async fn sleep_echo(
    _: TaskContext,
    SleepEcho { ms, text }: SleepEcho,
) -> Result<String, TaskError> {
    sleep(Duration::from_millis(ms)).await;
    Ok(text)
}

async fn slow_compute(
    cx: TaskContext,
    SlowCompute { seconds, label }: SlowCompute,
) -> Result<String, TaskError> {
    let time = Duration::try_from_secs_f64(seconds)
        .map_err(|e| TaskError::invalid_params(format!("seconds: {e}")))?;
    tokio::select! {
        () = cx.cancelled() => Err(TaskError::tool("cancelled")),
        () = sleep(time) => Ok(format!("{label}: computed for {seconds} s")),
    }
}
