//! Finished rmcp tools that become tasks: nothing in them knows of it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use mcp_tasks::{Augment, Recovery, TaskSupport, Tasks, TasksBuilder, store::SqliteStore};
use rmcp::{
    ErrorData, Peer, RoleServer, ServerHandler,
    handler::server::{
        common::Extension,
        tool::{InputResponses, RequestState},
        wrapper::Parameters,
    },
    model::{
        CallToolResponse, CallToolResult, ContentBlock, ElicitRequest, ElicitRequestParams,
        InputRequest, InputRequiredResult, ProgressNotificationParam, ServerCapabilities,
        ServerConfig,
    },
    schemars,
    service::RequestContext,
    tool, tool_handler, tool_router,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde_json::{Value, json};

use crate::{
    World,
    four::all_four,
    once::{Once, accept_all, accepted, on_pipe},
    owners, schema,
    support::{
        http::{Client, Served},
        pipe::Pipe,
        text,
    },
    tools::{self, Gates},
};

/// An ordinary rmcp server.
#[derive(Clone, Default)]
pub struct Ordinary {
    pub gates: Gates,
    /// How often `mrtr` was called.
    pub calls: Arc<AtomicU64>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
pub struct Text {
    #[serde(default)]
    text: String,
}

pub fn form() -> ElicitRequestParams {
    serde_json::from_value(json!({
        "mode": "form", "message": "Your name?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    }))
    .unwrap()
}

#[tool_router]
impl Ordinary {
    #[tool(description = "Holds", annotations(idempotent_hint = true))]
    async fn hold(
        &self,
        Parameters(Text { text }): Parameters<Text>,
        context: RequestContext<RoleServer>,
    ) -> String {
        self.gates.started.add_permits(1);
        tokio::select! {
            () = self.gates.pass() => format!("held {text}"),
            () = context.ct.cancelled() => {
                self.gates.cancelled.add_permits(1);
                "cancelled".into()
            }
        }
    }

    #[tool(description = "Goes on whatever happens")]
    async fn stubborn(&self) -> String {
        self.gates.started.add_permits(1);
        std::future::pending().await
    }

    #[tool(description = "Asks")]
    async fn ask(&self, peer: Peer<RoleServer>) -> Result<String, ErrorData> {
        let answer = peer
            .create_elicitation(form())
            .await
            .map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
        let name = answer.content.unwrap_or_default()["name"].clone();
        Ok(format!("Hello {}", name.as_str().unwrap_or("nobody")))
    }

    #[tool(description = "Asks in rounds")]
    async fn mrtr(&self, state: RequestState, answers: InputResponses) -> CallToolResponse {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let given = |key: &str| Some(answers.0.as_ref()?.get(key)?["content"]["name"].to_string());
        let ask = |state: &str| {
            let request = InputRequest::Elicitation(ElicitRequest::new(form()));
            // The same key in every round.
            let asked = BTreeMap::from([("name".to_owned(), request)]);
            InputRequiredResult::new(Some(asked), Some(state.to_owned())).into()
        };
        match (state.0.as_deref(), given("name")) {
            (None, _) => ask("first"),
            (Some("first"), Some(first)) => ask(&format!("second {first}")),
            (Some(state), Some(second)) => {
                let text = format!("{state} {second}");
                CallToolResult::success(vec![ContentBlock::text(text)]).into()
            }
            other => panic!("{other:?}"),
        }
    }

    #[tool(description = "Panics")]
    async fn panics(&self) -> String {
        panic!("on purpose")
    }

    #[tool(description = "Fails with an error of JSON-RPC")]
    async fn fails(&self) -> Result<String, ErrorData> {
        Err(ErrorData::new(
            rmcp::model::ErrorCode(1042),
            "it broke",
            Some(json!({"step": 3})),
        ))
    }

    #[tool(description = "Fails in its own terms")]
    async fn is_error(&self) -> CallToolResult {
        CallToolResult::structured_error(json!({"code": 7}))
    }

    #[tool(description = "Everything a result can have")]
    async fn rich(&self, context: RequestContext<RoleServer>) -> CallToolResult {
        let mut result = CallToolResult::structured(json!({"n": 1}));
        result.meta = serde_json::from_value(json!({
            "example.com/kept": true,
            "token": context.meta.get_progress_token().is_some(),
            "asked": context.meta.0.get("example.com/asked").cloned(),
        }))
        .unwrap();
        if let Some(token) = context.meta.get_progress_token() {
            let step = ProgressNotificationParam::new(token, 1.0).with_message("on the way");
            context.peer.notify_progress(step).await.unwrap();
        }
        result
    }

    #[tool(description = "Who is there")]
    async fn whoami(&self, Extension(parts): Extension<http::request::Parts>) -> String {
        parts.headers["authorization"].to_str().unwrap().to_owned()
    }

    #[tool(description = "What the client says of itself")]
    async fn client(&self, peer: Peer<RoleServer>) -> String {
        let info = peer.peer_info().unwrap();
        let can = &info.capabilities;
        format!(
            "{} {} {}",
            info.client_info.name,
            can.elicitation.is_some(),
            can.roots.is_some()
        )
    }
}

#[tool_handler]
impl ServerHandler for Ordinary {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

pub const TOOLS: [&str; 10] = [
    "hold", "stubborn", "ask", "mrtr", "panics", "fails", "is_error", "rich", "whoami", "client",
];

/// The one line a tool.
pub fn augmented(mut builder: TasksBuilder) -> TasksBuilder {
    for tool in TOOLS {
        builder = builder.augment(tool, TaskSupport::Optional);
    }
    builder
}

pub async fn world() -> (World, Ordinary) {
    let inner = Ordinary::default();
    let builder = |_: TasksBuilder| augmented(Tasks::builder().limits(tools::limits()));
    (World::over(inner.clone(), builder).await, inner)
}

// F-22
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_kinds_of_clients_get_the_same_from_a_finished_tool() {
    let inner = Ordinary::default();
    // One name each with the tools of the plane.
    let builder = |_: TasksBuilder| augmented(Tasks::builder().limits(tools::limits()));
    let world = World::over(inner, builder).await;
    all_four(&world, "ask").await;
}

#[tokio::test]
async fn lists_show_the_tool_as_it_was_with_its_support() {
    let inner = Ordinary::default();
    let bare = World::over(inner.clone(), |_| Tasks::builder()).await;
    let world = World::over(inner, |_| augmented(Tasks::builder())).await;
    let (before, after) = (
        bare.session("2025-11-25")
            .await
            .request("tools/list", json!({}))
            .await,
        world
            .session("2025-11-25")
            .await
            .request("tools/list", json!({}))
            .await,
    );
    schema::check_old("tools/list", &after);
    let mut expected = before["result"]["tools"].clone();
    for tool in expected.as_array_mut().unwrap() {
        tool["execution"] = json!({"taskSupport": "optional"});
    }
    assert_eq!(after["result"]["tools"], expected, "in their places");
    let modern = world.once().request("tools/list", json!({})).await;
    let tools = modern["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), TOOLS.len());
    assert!(tools.iter().all(|tool| tool.get("execution").is_none()));
    let old = world
        .session("2025-06-18")
        .await
        .request("tools/list", json!({}))
        .await;
    assert_eq!(old["result"]["tools"], before["result"]["tools"]);
}

/// An outcome without what is ours in it.
fn theirs(answer: &Value) -> Value {
    let mut outcome = json!({"result": answer["result"], "error": answer["error"]});
    if let Some(result) = outcome["result"].as_object_mut() {
        result.remove("resultType");
        if let Some(meta) = result.get_mut("_meta").and_then(Value::as_object_mut) {
            meta.retain(|name, _| !name.starts_with("io.modelcontextprotocol/"));
            if meta.is_empty() {
                result.remove("_meta");
            }
        }
    }
    outcome
}

fn asking(tool: &str) -> Value {
    let meta = json!({"example.com/asked": 5, "progressToken": "p"});
    json!({"name": tool, "arguments": {}, "_meta": meta})
}

fn as_task(tool: &str) -> Value {
    let mut call = asking(tool);
    call["task"] = json!({});
    call
}

/// What a call gives as a task and plainly, in both generations.
async fn four_ways(world: &World, session: &Client, tool: &str) -> [Value; 4] {
    let (once, plain) = (world.once(), world.plain());
    let created = session.request("tools/call", as_task(tool)).await;
    let id = json!({"taskId": created["result"]["task"]["taskId"]});
    let task = session.request("tasks/result", id).await;
    let handle = once.request("tools/call", asking(tool)).await["result"].clone();
    let ended = loop {
        let now = once.get(&handle).await;
        match now["status"].as_str() {
            Some("completed") => break json!({"result": now["result"]}),
            Some("failed") => break json!({"error": now["error"]}),
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    let plainly = session.request("tools/call", asking(tool)).await;
    let once_plainly = plain.request("tools/call", asking(tool)).await;
    [task, plainly, ended, once_plainly].map(|answer| theirs(&answer))
}

/// What each of these tools gives, whoever calls it however.
fn check(tool: &str, outcome: &Value) {
    match tool {
        "rich" => {
            assert_eq!(outcome["result"]["structuredContent"], json!({"n": 1}));
            let meta = &outcome["result"]["_meta"];
            let kept = json!({"example.com/kept": true, "token": true, "asked": 5});
            assert_eq!(*meta, kept);
        }
        "fails" => assert_eq!(outcome["error"]["code"], 1042),
        "panics" => assert_eq!(outcome["error"]["code"], -32603),
        "whoami" => assert_eq!(text(&outcome["result"]), "Bearer alice"),
        "client" => assert!(text(&outcome["result"]).ends_with("true true"), "{outcome}"),
        _ => assert_eq!(outcome["result"]["isError"], true),
    }
}

#[tokio::test]
async fn a_task_gives_what_the_plain_call_gives() {
    for stateless in [false, true] {
        let inner = Ordinary::default();
        let gates = Gates::default();
        let tasks = owners(augmented(Tasks::builder().limits(tools::limits())));
        let made = inner.clone();
        let config = StreamableHttpServerConfig::default().with_legacy_session_mode(!stateless);
        let service = tasks
            .streamable_http(move || Ok(made.clone()), config)
            .unwrap();
        let served = Served::service(service).await;
        let world = World {
            tasks,
            gates,
            served,
        };
        let mut session = Client::with_token(&world.served.url, "alice");
        match stateless {
            true => session.version = Some("2025-11-25"),
            false => drop(session.initialize("2025-11-25").await),
        }
        for tool in ["rich", "fails", "is_error", "panics", "whoami", "client"] {
            if stateless && tool == "client" {
                // Without a session nobody knows what a client of 2025-11-25 can do.
                continue;
            }
            let [first, others @ ..] = four_ways(&world, &session, tool).await;
            for other in others {
                assert_eq!(other, first, "{tool}, stateless: {stateless}");
            }
            check(tool, &first);
        }
    }
}

#[tokio::test]
async fn so_it_does_on_a_pipe() {
    let tasks = augmented(Tasks::builder().limits(tools::limits()))
        .build()
        .unwrap();
    let (mut pipe, _) = Pipe::at("2025-11-25", &tasks, Ordinary::default()).await;
    for tool in ["rich", "fails", "is_error", "panics", "client"] {
        let created = pipe.request("tools/call", as_task(tool)).await;
        let id = json!({"taskId": created["result"]["task"]["taskId"]});
        let task = theirs(&pipe.request("tasks/result", id).await);
        check(tool, &task);
        let plainly = pipe.request("tools/call", asking(tool)).await;
        assert_eq!(theirs(&plainly), task, "{tool}");
        let mut once = asking(tool);
        let all = crate::once::meta(&crate::once::capabilities(false));
        for (name, value) in all.as_object().unwrap() {
            once["_meta"][name] = value.clone();
        }
        let once = pipe.request("tools/call", once).await;
        schema::check("tools/call", &once);
        assert_eq!(theirs(&once), task, "{tool}");
    }
}

// rmcp ends a session that is idle; a task that it made is not the session's.
#[tokio::test]
async fn the_expiry_of_its_session_is_not_the_tasks() {
    let inner = Ordinary::default();
    let tasks = owners(augmented(Tasks::builder().limits(tools::limits())));
    let made = inner.clone();
    let config = StreamableHttpServerConfig::default();
    tasks
        .streamable_http(move || Ok(made.clone()), config)
        .unwrap();
    // The same handler, in a service of our own making whose sessions are short.
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(Duration::from_millis(100));
    let made = inner.clone();
    let service = StreamableHttpService::new(
        move || Ok(made.clone()),
        Arc::new(sessions),
        StreamableHttpServerConfig::default(),
    );
    let layer = tasks.layer(mcp_tasks::HttpOptions::default()).unwrap();
    let served = Served::service(tower_layer::Layer::layer(&layer, service)).await;
    let mut session = Client::with_token(&served.url, "alice");
    session.initialize("2025-11-25").await;
    let task = session.create("hold", json!({"text": "on"})).await;
    inner.gates.wait_started().await;
    let ping = json!({"jsonrpc": "2.0", "id": "p", "method": "ping"});
    crate::once::until(
        async || {
            // Slower than its timer: every answer of its is a sign of life.
            tokio::time::sleep(Duration::from_millis(200)).await;
            json!({"status": session.post(&ping).await.status.to_string()})
        },
        "404",
    )
    .await;
    inner.gates.go.add_permits(1);
    let mut other = Client::with_token(&served.url, "alice");
    other.initialize("2025-11-25").await;
    let id = json!({"taskId": task["taskId"]});
    let ended = other.request("tasks/result", id).await;
    assert_eq!(text(&ended["result"]), "held on");
}

#[tokio::test]
async fn a_pipe_has_the_same() {
    let tasks = augmented(Tasks::builder().limits(tools::limits()))
        .build()
        .unwrap();
    let (mut pipe, _) = Pipe::at("2025-11-25", &tasks, Ordinary::default()).await;
    let task = pipe.create("ask", json!({})).await;
    let id = pipe
        .begin("tasks/result", json!({"taskId": task["taskId"]}))
        .await;
    let question = pipe.method("elicitation/create").await;
    pipe.accept(&question, "Ada").await;
    assert_eq!(text(&pipe.answer(id).await["result"]), "Hello Ada");
    let call = json!({"name": "ask", "arguments": {}});
    let asked = on_pipe(&mut pipe, "tools/call", call.clone(), false).await;
    let responses = accept_all(&asked["result"]["inputRequests"], "Eve");
    let retry = crate::once::retried(call, &asked, responses);
    let done = on_pipe(&mut pipe, "tools/call", retry, false).await;
    assert_eq!(text(&done["result"]), "Hello Eve");
}

#[tokio::test]
async fn progress_and_logs_are_the_tasks() {
    let (world, _) = world().await;
    let session = world.session("2025-11-25").await;
    let mut general = session.listen().await;
    let params =
        json!({"name": "rich", "arguments": {}, "task": {}, "_meta": {"progressToken": "p"}});
    session.request("tools/call", params).await;
    let step = general.method("notifications/progress").await;
    assert_eq!(step["params"]["progressToken"], "p");
    assert_eq!(step["params"]["message"], "on the way");
}

// The session that made a task ends; the task does not.
#[tokio::test]
async fn the_end_of_its_session_is_not_the_tasks() {
    let (world, inner) = world().await;
    let session = world.session("2025-11-25").await;
    let task = session.create("hold", json!({"text": "on"})).await;
    inner.gates.wait_started().await;
    assert!(session.delete().await.status < 300);
    inner.gates.go.add_permits(1);
    let other = world.session("2025-11-25").await;
    let ended = other
        .request("tasks/result", json!({"taskId": task["taskId"]}))
        .await;
    assert_eq!(text(&ended["result"]), "held on");
}

#[tokio::test]
async fn a_cancel_reaches_the_tool_and_one_that_ignores_it_is_dropped() {
    let (world, inner) = world().await;
    let client = world.once();
    let task = client.create("hold", json!({})).await;
    inner.gates.wait_started().await;
    client.cancel(&task).await;
    inner.gates.wait_cancelled().await;
    client.until(&task, "cancelled").await;
    let stubborn = client.create("stubborn", json!({})).await;
    inner.gates.wait_started().await;
    client.cancel(&stubborn).await;
    crate::once::until(
        async || json!({"status": format!("{:?}", world.tasks.runtime().held())}),
        "[0, 0, 0]",
    )
    .await;
}

#[tokio::test]
async fn a_tool_that_asks_in_rounds_is_driven_for_everybody() {
    let (world, inner) = world().await;
    // In 2025-11-25 its questions are the task's.
    let session = world.session("2025-11-25").await;
    let task = session.create("mrtr", json!({})).await;
    let mut stream = session
        .open("tasks/result", json!({"taskId": task["taskId"]}))
        .await;
    for name in ["one", "two"] {
        let question = stream.method("elicitation/create").await;
        session.accept(&question, name).await;
    }
    let ended = stream.response().await;
    assert_eq!(text(&ended["result"]), "second \"one\" \"two\"");
    // In 2026-07-28 too; keys are never used again, though the tool uses its own twice.
    let client = world.once();
    let task = client.create("mrtr", json!({})).await;
    let mut keys = std::collections::HashSet::new();
    for name in ["one", "two"] {
        let asked = client.until(&task, "input_required").await;
        let key = asked["inputRequests"]
            .as_object()
            .unwrap()
            .keys()
            .next()
            .unwrap();
        assert!(keys.insert(key.clone()));
        client.update(&task, json!({key: accepted(name)})).await;
    }
    let done = client.until(&task, "completed").await;
    assert_eq!(text(&done["result"]), "second \"one\" \"two\"");
    assert_eq!(inner.calls.load(Ordering::SeqCst), 6, "three rounds each");
}

/// A server on this store, whose lease lapses soon after it is gone.
fn replica(path: &std::path::Path, augment: impl FnOnce(TasksBuilder) -> TasksBuilder) -> Tasks {
    let mut limits = tools::limits();
    limits.lease = Duration::from_millis(600);
    limits.heartbeat = Duration::from_millis(200);
    let store = Arc::new(SqliteStore::open(path).unwrap());
    owners(augment(Tasks::builder().limits(limits).shared_store(store)))
}

// What was asked in rounds before a restart is not asked again, and the tool's first round is not run again.
#[tokio::test]
async fn rounds_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tasks.db");
    let inner = Ordinary::default();
    let first = replica(&path, augmented);
    let served = Served::start(&first, inner.clone()).await;
    let client = Once::new(&served.url, "alice");
    let task = client.create("mrtr", json!({})).await;
    let asked = client.until(&task, "input_required").await;
    let key = asked["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap()
        .clone();
    client.update(&task, json!({key: accepted("one")})).await;
    client.until(&task, "input_required").await;
    assert_eq!(inner.calls.load(Ordering::SeqCst), 2);
    // No farewell: as if it had been killed.
    drop(served);
    drop(first);
    let second = replica(&path, augmented);
    let served = Served::start(&second, inner.clone()).await;
    let client = Once::new(&served.url, "alice");
    let asked = client.until(&task, "input_required").await;
    client
        .update(&task, accept_all(&asked["inputRequests"], "two"))
        .await;
    let done = client.until(&task, "completed").await;
    assert_eq!(text(&done["result"]), "second \"one\" \"two\"");
    assert_eq!(inner.calls.load(Ordering::SeqCst), 3, "only the last round");
}

// Recovery: as the annotations or the author say.
#[tokio::test]
async fn a_tool_that_was_running_fails_or_runs_again() {
    for (tool, recovery, again) in [
        ("hold", None, true),
        ("stubborn", None, false),
        ("hold", Some(Recovery::Fail), false),
        ("stubborn", Some(Recovery::Rerun), true),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tasks.db");
        let inner = Ordinary::default();
        let how = || {
            let augment = Augment::new(TaskSupport::Optional);
            match recovery {
                Some(recovery) => augment.recovery(recovery),
                None => augment,
            }
        };
        let first = replica(&path, |builder| builder.augment(tool, how()));
        let served = Served::start(&first, inner.clone()).await;
        let client = Once::new(&served.url, "alice");
        let task = client.create(tool, json!({})).await;
        inner.gates.wait_started().await;
        drop(served);
        drop(first);
        let second = replica(&path, |builder| builder.augment(tool, how()));
        let served = Served::start(&second, inner.clone()).await;
        let client = Once::new(&served.url, "alice");
        client.get(&task).await;
        if again {
            inner.gates.wait_started().await;
            assert_eq!(client.get(&task).await["status"], "working");
        } else {
            let failed = client.until(&task, "failed").await;
            assert_eq!(
                failed["error"]["message"],
                "the worker running this task stopped"
            );
        }
    }
}

// A thousand parked at once, and all are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_at_once() {
    let (world, _) = world().await;
    let client = Arc::new(world.once());
    let mut tasks = Vec::new();
    for _ in 0..1000 {
        tasks.push(client.create("ask", json!({})).await);
    }
    for (number, task) in tasks.iter().enumerate() {
        let asked = client.until(task, "input_required").await;
        let name = format!("number {number}");
        client
            .update(task, accept_all(&asked["inputRequests"], &name))
            .await;
    }
    for (number, task) in tasks.iter().enumerate() {
        let done = client.until(task, "completed").await;
        assert_eq!(text(&done["result"]), format!("Hello number {number}"));
    }
}

#[tokio::test]
async fn hooks_before_and_after() {
    let world = World::over(Ordinary::default(), |_| {
        let how = Augment::new(TaskSupport::Required)
            .ttl(Duration::from_secs(77))
            .poll_interval(Duration::from_millis(150))
            .immediate_response("working on it")
            .before_task(async |_: mcp_tasks::TaskContext, mut args: Value| {
                args["text"] = json!(format!("before {}", args["text"].as_str().unwrap_or("")));
                Ok::<_, mcp_tasks::TaskError>(args)
            })
            .after(
                async |_: mcp_tasks::TaskContext, mut result: CallToolResult| {
                    result.content.push(ContentBlock::text("after"));
                    Ok::<_, mcp_tasks::TaskError>(result)
                },
            );
        Tasks::builder()
            .limits(tools::limits())
            .augment("hold", how)
    })
    .await;
    let session = world.session("2025-11-25").await;
    let call = json!({"name": "hold", "arguments": {"text": "x"}});
    let refused = session.request("tools/call", call.clone()).await;
    assert_eq!(refused["error"]["code"], -32601, "required now: {refused}");
    let mut task = call;
    task["task"] = json!({});
    let created = session.request("tools/call", task).await["result"].clone();
    assert_eq!(created["task"]["ttl"], 77_000);
    assert_eq!(created["task"]["pollInterval"], 150);
    assert_eq!(
        created["_meta"]["io.modelcontextprotocol/model-immediate-response"],
        "working on it"
    );
    session
        .request("tasks/cancel", json!({"taskId": created["task"]["taskId"]}))
        .await;
}
