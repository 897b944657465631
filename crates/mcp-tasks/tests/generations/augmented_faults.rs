//! Tools and rules that are wrong, and servers that cannot say at once which tools they have.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use mcp_tasks::{BuildError, HttpOptions, TaskSupport, Tasks};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CreateTaskResult,
        ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities,
        ServerConfig, Tool,
    },
    service::RequestContext,
    transport::StreamableHttpServerConfig,
};
use serde_json::{Value, json};

use crate::{
    World,
    augmented::{Ordinary, augmented, form, world},
    once::{TASKS, until},
    owners,
    support::{Greeter, code, pipe::Pipe, text},
    tools,
};

#[tokio::test]
async fn names_that_are_no_tools_are_refused_where_that_is_known() {
    let wrong =
        |tool: &str| owners(Tasks::builder().augment(tool.to_owned(), TaskSupport::Optional));
    let error = wrong("grete")
        .streamable_http(|| Ok(Greeter), StreamableHttpServerConfig::default())
        .unwrap_err();
    assert!(
        matches!(&error, BuildError::UnknownTool(name) if name == "grete"),
        "{error}"
    );
    assert!(error.to_string().contains("grete"));
    let io = tokio::io::split(tokio::io::duplex(64).0);
    let error = wrong("grete").serve(Greeter, io).await.unwrap_err();
    assert!(error.to_string().contains("grete"), "{error}");
    let layer = wrong("greet").layer(HttpOptions::default());
    assert!(matches!(layer.err(), Some(BuildError::NoHandler)));
}

/// A server that has to wait before it knows its tools.
#[derive(Clone, Default)]
struct Slow {
    ready: Arc<AtomicBool>,
}

fn tool(name: &'static str) -> Tool {
    let schema = json!({"type": "object"}).as_object().unwrap().clone();
    let mut tool = Tool::new(name, name, Arc::new(schema));
    tool.meta = serde_json::from_value(json!({"example.com/slow": name == "marked"})).unwrap();
    tool
}

impl ServerHandler for Slow {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        tokio::task::yield_now().await;
        let first = page.and_then(|page| page.cursor).is_none();
        self.ready.store(true, Ordering::SeqCst);
        let mut listed = ListToolsResult::with_all_items(vec![tool(match first {
            true => "plain",
            false => "marked",
        })]);
        listed.next_cursor = first.then(|| "2".to_owned());
        Ok(listed)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let _ = context;
        if request
            .arguments
            .is_some_and(|args| args.contains_key("task"))
        {
            let task = json!({
                "resultType": "task", "taskId": "theirs", "status": "working",
                "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": null,
            });
            let task: CreateTaskResult = serde_json::from_value(task).unwrap();
            return Ok(CallToolResponse::Task(task));
        }
        Ok(CallToolResult::success(vec![ContentBlock::text(request.name.to_string())]).into())
    }
}

// By `_meta`, on any page, before anybody listed anything.
#[tokio::test]
async fn a_server_that_must_be_waited_for_is_asked_before_the_first_call() {
    let inner = Slow::default();
    let world = World::over(inner.clone(), |_| {
        Tasks::builder()
            .limits(tools::limits())
            .augment("nobody", TaskSupport::Required)
            .augment_where(
                |tool| {
                    let meta = serde_json::to_value(&tool.meta).unwrap();
                    meta["example.com/slow"] == true
                },
                TaskSupport::Required,
            )
    })
    .await;
    assert!(!inner.ready.load(Ordering::SeqCst));
    let session = world.session("2025-11-25").await;
    let plain = session
        .request("tools/call", json!({"name": "marked", "arguments": {}}))
        .await;
    assert_eq!(code(&plain), -32601, "required: {plain}");
    let task = session.create("marked", json!({})).await;
    let ended = session
        .request("tasks/result", json!({"taskId": task["taskId"]}))
        .await;
    assert_eq!(text(&ended["result"]), "marked");
    let other = session
        .request("tools/call", json!({"name": "plain", "arguments": {}}))
        .await;
    assert_eq!(text(&other["result"]), "plain");
    let handle = world.once().create("marked", json!({})).await;
    world.once().until(&handle, "completed").await;
    // A tool that makes tasks of its own is not one that can be a task.
    let own = world.once().create("marked", json!({"task": 1})).await;
    assert_eq!(
        world.once().until(&own, "failed").await["error"]["code"],
        -32603
    );
}

/// A server whose one tool does everything wrong.
#[derive(Clone)]
struct Rude {
    outlived: Arc<tokio::sync::Semaphore>,
    go: Arc<tokio::sync::Semaphore>,
}

impl Rude {
    fn new() -> Self {
        Self {
            outlived: Arc::new(tokio::sync::Semaphore::new(0)),
            go: Arc::new(tokio::sync::Semaphore::new(0)),
        }
    }
}

impl ServerHandler for Rude {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![tool("rude")]))
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let this = self.clone();
        // Work that outlives the call: it goes on with its peer.
        tokio::spawn(async move {
            this.go.acquire().await.unwrap().forget();
            if let Some(token) = context.meta.get_progress_token() {
                let late = ProgressNotificationParam::new(token, 9.0);
                let _ = context.peer.notify_progress(late).await;
            }
            let asked = context.peer.create_elicitation(form()).await;
            assert!(asked.is_err(), "nobody is there any more");
            this.outlived.add_permits(1);
        });
        Ok(CallToolResult::success(vec![ContentBlock::text("left")]).into())
    }
}

#[tokio::test]
async fn what_outlives_a_task_reaches_nobody() {
    let inner = Rude::new();
    let tasks = Tasks::builder()
        .limits(tools::limits())
        .augment("rude", TaskSupport::Optional)
        .build()
        .unwrap();
    let (mut pipe, _) = Pipe::at("2025-11-25", &tasks, inner.clone()).await;
    let params =
        json!({"name": "rude", "arguments": {}, "task": {}, "_meta": {"progressToken": "p"}});
    let created = pipe.request("tools/call", params).await;
    let id = json!({"taskId": created["result"]["task"]["taskId"]});
    let ended = pipe.request("tasks/result", id.clone()).await;
    assert_eq!(text(&ended["result"]), "left");
    inner.go.add_permits(1);
    inner.outlived.acquire().await.unwrap().forget();
    let seen = pipe.fence().await;
    let loud: Vec<&Value> = seen
        .iter()
        .filter(|message| message["method"] != "notifications/tasks/status")
        .collect();
    assert!(loud.is_empty(), "{loud:?}");
    let again = pipe.request("tasks/result", id).await;
    assert_eq!(again["result"], ended["result"]);
}

// A kind that this requestor never declared is refused to the tool at once.
#[tokio::test]
async fn an_undeclared_question_is_an_error_to_the_tool() {
    let (world, _) = world().await;
    let mut client = world.once();
    client.capabilities = json!({"extensions": {TASKS: {}}});
    let task = client.create("ask", json!({})).await;
    let failed = client.until(&task, "failed").await;
    assert_eq!(failed["error"]["code"], -32603);
    let mrtr = client.create("mrtr", json!({})).await;
    let failed = client.until(&mrtr, "failed").await;
    assert_eq!(failed["error"]["code"], -32021, "{failed}");
    assert_eq!(
        failed["error"]["data"]["requiredCapabilities"],
        json!({"elicitation": {}})
    );
    until(
        async || json!({"status": format!("{:?}", world.tasks.runtime().held())}),
        "[0, 0, 0]",
    )
    .await;
}

// A decline is the tool's to understand; a cancelled task takes its question with it.
#[tokio::test]
async fn declines_reach_the_tool_and_a_cancel_takes_the_question_back() {
    let (world, _) = world().await;
    let client = world.once();
    let task = client.create("ask", json!({})).await;
    let asked = client.until(&task, "input_required").await;
    let key = asked["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap()
        .clone();
    client
        .update(&task, json!({key: {"action": "decline"}}))
        .await;
    let done = client.until(&task, "completed").await;
    assert_eq!(text(&done["result"]), "Hello nobody");
    let other = client.create("ask", json!({})).await;
    client.until(&other, "input_required").await;
    client.cancel(&other).await;
    let cancelled = client.until(&other, "cancelled").await;
    assert!(cancelled.get("inputRequests").is_none());
}

// Two pipes to one server: each serves the same tools.
#[tokio::test]
async fn a_second_connection_is_no_duplicate() {
    let tasks = augmented(Tasks::builder().limits(tools::limits()))
        .build()
        .unwrap();
    let inner = Ordinary::default();
    for _ in 0..2 {
        let (mut pipe, _) = Pipe::at("2025-11-25", &tasks, inner.clone()).await;
        let task = pipe.create("is_error", json!({})).await;
        let id = json!({"taskId": task["taskId"]});
        let ended = pipe.request("tasks/result", id).await;
        assert_eq!(ended["result"]["structuredContent"], json!({"code": 7}));
        pipe.close().await.unwrap();
    }
}
