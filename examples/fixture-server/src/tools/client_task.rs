//! Tools that have their client do the work.

use std::time::Duration;

use mcp_tasks::{
    TaskContext, TaskError, TaskSupport, TaskTool,
    client::{CallOptions, TaskEvent, TaskInfo},
};
use rmcp::model::{ElicitRequestParams, ElicitationSchema};
use serde_json::{Value, json};

use super::Nothing;

pub(super) fn tools() -> Vec<TaskTool> {
    vec![
        TaskTool::new("ask_client_task")
            .description("Has the client ask for a name in a task that the client hosts")
            .support(TaskSupport::Forbidden)
            .input::<Nothing>()
            .run(async |cx: TaskContext, Nothing {}| ask_client_task(cx).await),
    ]
}

/// Drives the client's task and returns all of its events as JSON.
async fn ask_client_task(cx: TaskContext) -> Result<String, TaskError> {
    let requested_schema = ElicitationSchema::builder()
        .required_string("name")
        .build()
        .map_err(TaskError::internal)?;
    let form = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: "What is your name?".into(),
        requested_schema,
    };
    let options = CallOptions::new()
        .ttl(Duration::from_secs(30))
        .deadline(Duration::from_secs(60));
    let mut stream = cx.client_tasks().create_elicitation_stream(form, options);
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(match event {
            TaskEvent::Created(task) => json!({"type": "taskCreated", "task": task_json(&task)}),
            TaskEvent::Status(task) => json!({"type": "taskStatus", "task": task_json(&task)}),
            TaskEvent::Progress(step) => json!({"type": "progress", "progress": step.progress}),
            TaskEvent::Result(result) => json!({"type": "result", "result": result}),
            TaskEvent::Error(error) => return Err(TaskError::tool(error.to_string())),
            other => json!({"type": format!("{other:?}")}),
        });
    }
    Ok(Value::Array(events).to_string())
}

fn task_json(task: &TaskInfo) -> Value {
    json!({
        "taskId": task.task_id,
        "status": task.status,
        "statusMessage": task.status_message,
        "ttl": task.ttl.map(|ttl| ttl.as_millis()),
        "pollInterval": task.poll_interval.map(|interval| interval.as_millis()),
    })
}
