//! The server in the project's README.
use mcp_tasks::{TaskContext, TaskError, TaskSupport, TaskTool, Tasks, store::SqliteStore};

/// Your rmcp server: it answers everything that is no task.
struct Server;
impl rmcp::ServerHandler for Server {}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Count {
    to: u32,
}

async fn count(cx: TaskContext, Count { to }: Count) -> Result<String, TaskError> {
    for step in 1..=to {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        cx.progress(step.into(), Some(to.into()), None);
    }
    Ok(format!("counted to {to}"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tool = TaskTool::new("count")
        .support(TaskSupport::Optional)
        .input::<Count>()
        .run(count);
    let store = SqliteStore::open("tasks.db")?;
    let tasks = Tasks::builder().store(store).tool(tool).build()?;
    Ok(tasks.serve_stdio(Server).await?)
}
