//! The servers that are compared, each in a process of its own: a bare handler, the task plane, rmcp's task manager.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{Read, Write},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    http::header::CONTENT_TYPE,
    routing::post,
    serve::{Listener, ListenerExt},
};
use mcp_tasks::{
    CreateContext, Limits, Question, TaskContext, TaskError, TaskHandle, TaskOptions, TaskSupport,
    TaskTool, Tasks,
    runtime::{Call, Requestor, Runtime},
    store::{Access, MemoryStore, TaskStore},
    task::{Generation, Owner, TaskId},
};
use rmcp::{
    ErrorData, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams,
        CreateTaskResult, ElicitationSchema, GetTaskParams, GetTaskResult, ServerCapabilities,
        ServerConfig, UpdateTaskParams,
    },
    service::{RequestContext, RoleServer},
    task_manager::{TaskManager, TaskOptions as ManagerOptions},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde_json::Value;

use crate::{Fallible, augmented};

/// How many tasks of `turn` are kept.
const TURN: usize = 512;
/// How many ids of its tasks a server that was filled tells.
const TOLD: usize = 100_000;
const TTL: Duration = Duration::from_secs(7 * 24 * 3600);

pub(crate) fn main(args: &[String]) -> Fallible<()> {
    let number = |name: &str| -> Fallible<usize> {
        match args.iter().position(|arg| arg == name) {
            Some(at) => Ok(args.get(at + 1).ok_or("a value is missing")?.parse()?),
            None => Ok(0),
        }
    };
    let (size, retained) = (number("--size")?, number("--retain")?);
    let kind = args.first().cloned().unwrap_or_default();
    std::thread::spawn(|| {
        // Whoever started this has ended, or wants it to end.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(async move {
            let (app, tasks) = match kind.as_str() {
                "bare" => (bare(size), Vec::new()),
                "plane" => {
                    let tasks = tasks(Arc::new(MemoryStore::new()))?;
                    let ids = fill(tasks.runtime(), retained).await?;
                    (plane(&tasks)?, ids)
                }
                "rmcp" | "rmcp-json" => {
                    let demo = Managed::default();
                    let ids = demo.fill(retained).await;
                    (demo.app(kind == "rmcp-json"), ids)
                }
                "ordinary" | "ordinary-json" => {
                    (augmented::alone(kind == "ordinary-json"), Vec::new())
                }
                "augmented" => (augmented::in_front()?, Vec::new()),
                other => return Err(format!("serve {other:?}: unknown").into()),
            };
            let listener = listen().await?;
            {
                let mut out = std::io::stdout().lock();
                let step = tasks.len().div_ceil(TOLD).max(1);
                for id in tasks.iter().step_by(step) {
                    writeln!(out, "task {id}")?;
                }
                writeln!(out, "port {}", listener.local_addr()?.port())?;
            }
            drop(tasks);
            Ok(axum::serve(nodelay(listener), app).await?)
        })
}

pub(crate) async fn listen() -> std::io::Result<tokio::net::TcpListener> {
    tokio::net::TcpListener::bind(("127.0.0.1", 0)).await
}

/// Small messages both ways: waiting to fill a packet would cost 40 ms each.
pub(crate) fn nodelay(
    listener: tokio::net::TcpListener,
) -> impl Listener<Io = tokio::net::TcpStream, Addr = std::net::SocketAddr> {
    listener.tap_io(|tcp| {
        if let Err(error) = tcp.set_nodelay(true) {
            eprintln!("TCP_NODELAY: {error}");
        }
    })
}

/// Reads a request to its end and answers with constant bytes.
fn bare(size: usize) -> Router {
    let answer = Bytes::from(vec![b'x'; size]);
    Router::new().route(
        "/mcp",
        post(move |body: Bytes| {
            let answer = answer.clone();
            std::hint::black_box(&body);
            async move { ([(CONTENT_TYPE, "application/json")], answer) }
        }),
    )
}

/// A server with nothing of its own.
#[derive(Debug, Clone)]
struct Nothing;

impl ServerHandler for Nothing {}

/// The task plane with the tools that are measured.
pub(crate) fn tasks(store: Arc<dyn TaskStore>) -> Fallible<Tasks> {
    let mut limits = Limits::default();
    limits.tasks = 8_000_000;
    limits.tasks_per_owner = 8_000_000;
    limits.concurrent_runs = 8_000_000;
    limits.default_ttl = TTL;
    let turning: Arc<Mutex<VecDeque<TaskId>>> = Arc::default();
    let kept = store.clone();
    let tasks = Tasks::builder()
        .shared_store(store)
        .limits(limits)
        .bearer_ids()
        // Its work is done elsewhere.
        .tool(
            TaskTool::new("hold").create(async |cx: CreateContext, _: Value| {
                cx.create_task(TaskOptions::new()).await
            }),
        )
        // The same, but the oldest goes when a new one comes: their number stays.
        .tool(
            TaskTool::new("turn").create(move |cx: CreateContext, _: Value| {
                let (turning, kept) = (turning.clone(), kept.clone());
                async move {
                    let task = cx.create_task(TaskOptions::new()).await?;
                    let oldest = {
                        let mut turning = turning.lock().unwrap_or_else(PoisonError::into_inner);
                        turning.push_back(task.id().clone());
                        (turning.len() > TURN)
                            .then(|| turning.pop_front())
                            .flatten()
                    };
                    if let Some(oldest) = oldest {
                        kept.remove(oldest.as_str(), &Access::System).await?;
                    }
                    Ok::<_, TaskError>(task)
                }
            }),
        )
        // A body that has nothing to do.
        .tool(TaskTool::new("empty").run(async |_: TaskContext, _: Value| Ok::<_, TaskError>(())))
        // Plain calls: one is answered, the other asks first.
        .tool(
            TaskTool::new("quick")
                .support(TaskSupport::Optional)
                .run(async |_: TaskContext, _: Value| Ok::<_, TaskError>(())),
        )
        .tool(TaskTool::new("curious").support(TaskSupport::Optional).run(
            async |cx: TaskContext, _: Value| {
                let form = Question::form_schema("?", &ElicitationSchema::new(BTreeMap::new()));
                cx.ask(form).await?;
                Ok::<_, TaskError>(())
            },
        ))
        // A body that waits.
        .tool(
            TaskTool::new("wait").run(async |cx: TaskContext, _: Value| {
                cx.cancelled().await;
                Ok::<_, TaskError>(())
            }),
        )
        .build()?;
    Ok(tasks)
}

/// Serves them as a program would.
pub(crate) fn plane(tasks: &Tasks) -> Fallible<Router> {
    let service = tasks.streamable_http(|| Ok(Nothing), StreamableHttpServerConfig::default())?;
    Ok(Router::new().route_service("/mcp", service))
}

/// A call of `tool` by whoever holds the id.
pub(crate) fn call(tool: &str, owner: Owner) -> Call {
    Call::new(tool, Requestor::new(owner, Generation::V2025_11_25))
}

/// Ends a task; whether it had not ended before.
pub(crate) async fn complete(handle: &TaskHandle) -> Fallible<bool> {
    // These errors are for requestors, not for callers.
    let ended = handle.complete("done").await;
    ended.map_err(|error| format!("a task was not completed: {error:?}").into())
}

/// Makes `count` tasks and ends them; their ids.
pub(crate) async fn fill(runtime: &Runtime, count: usize) -> Fallible<Vec<TaskId>> {
    let mut ids = Vec::with_capacity(count);
    for _ in 0..count {
        let record = runtime.create(call("hold", Owner::Bearer)).await?;
        let handle = runtime.handle(&record.id).await?.ok_or("a task is gone")?;
        complete(&handle).await?;
        ids.push(record.id.clone());
    }
    Ok(ids)
}

/// rmcp's own tasks of 2026-07-28.
#[derive(Clone, Default)]
struct Managed {
    tasks: TaskManager,
}

impl Managed {
    fn spawn(&self, ends: bool) -> rmcp::model::Task {
        let options = ManagerOptions::default().with_ttl_ms(7 * 24 * 3_600_000);
        self.tasks.spawn(options, move |_| {
            Box::pin(async move {
                if !ends {
                    std::future::pending::<()>().await;
                }
                Ok(CallToolResult::success(vec![
                    rmcp::model::ContentBlock::text("done"),
                ]))
            })
        })
    }

    async fn fill(&self, count: usize) -> Vec<TaskId> {
        let mut ids = Vec::with_capacity(count);
        for _ in 0..count {
            ids.push(TaskId::from_stored(&self.spawn(true).task_id));
        }
        while count > 0 && self.tasks.running_task_count() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        ids
    }

    fn app(self, json: bool) -> Router {
        let config = StreamableHttpServerConfig::default().with_json_response(json);
        let sessions = Arc::new(LocalSessionManager::default());
        let service = StreamableHttpService::new(move || Ok(self.clone()), sessions, config);
        Router::new().route_service("/mcp", service)
    }
}

impl ServerHandler for Managed {
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let task = self.spawn(request.name == "empty");
        Ok(CallToolResponse::Task(CreateTaskResult::new(task)))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.tasks.get_task(&request.task_id)?))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks
            .update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_tasks()
                .build(),
        )
    }
}
