//! The client of the README.

use crate::{fixture::Listening, soon};

async fn readme(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    use mcp_tasks::client::{CallOptions, TaskClient, TaskEvent};
    use rmcp::model::CallToolRequestParams;

    let client = TaskClient::http((), url).await?;
    let call = CallToolRequestParams::new("slow_echo");
    let mut events = client.call_tool_stream(call, CallOptions::new());
    while let Some(event) = events.next().await {
        match event {
            TaskEvent::Progress(step) => println!("{} of {:?}", step.progress, step.total),
            TaskEvent::Result(result) => println!("{:?}", result.content),
            TaskEvent::Error(error) => return Err(error.into()),
            other => println!("{other:?}"),
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_readmes_client_works() {
    let server = Listening::start("127.0.0.1:0", &[]).await;
    soon(readme(&server.url)).await.unwrap();
}
