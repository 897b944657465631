//! Tools that fail, each in its own way.

use std::time::Duration;

use mcp_tasks::{TaskContext, TaskError, TaskSupport, TaskTool};
use serde_json::json;

use super::Nothing;

/// What they say.
const BROKE: &str = "it broke";

pub(super) fn tools() -> Vec<TaskTool> {
    vec![
        failing("fail_task", || match TaskError::rpc(1042, BROKE) {
            Ok(error) => error.with_data(&json!({"step": 3})),
            Err(reserved) => reserved.into(),
        })
        .support(TaskSupport::Required),
        failing("fail", || TaskError::internal(BROKE)),
        failing("protocol_error_job", || TaskError::internal(BROKE)),
        failing("protocol_fail", || {
            TaskError::invalid_params("bad input seen late").with_data(&json!({"field": "x"}))
        }),
        TaskTool::new("failing_job")
            .description("Fails in its own terms after a second")
            .input::<Nothing>()
            .run(async |_: TaskContext, Nothing {}| {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Err::<(), _>(TaskError::tool("job failed"))
            }),
        failing("tool_error", tools_own),
        failing("is_error", tools_own),
        TaskTool::new("panics")
            .description("Panics")
            .support(TaskSupport::Optional)
            .input::<Nothing>()
            .run(
                async |_: TaskContext, Nothing {}| -> Result<(), TaskError> {
                    panic!("this tool panics")
                },
            ),
    ]
}

/// A tool that fails at once with this error.
fn failing(name: &str, error: fn() -> TaskError) -> TaskTool {
    TaskTool::new(name)
        .description("Fails")
        .support(TaskSupport::Optional)
        .input::<Nothing>()
        .run(move |_: TaskContext, Nothing {}| async move { Err::<(), _>(error()) })
}

/// The tool's own word, not a JSON-RPC error.
fn tools_own() -> TaskError {
    TaskError::tool(BROKE).with_data(&json!({"code": 7}))
}
