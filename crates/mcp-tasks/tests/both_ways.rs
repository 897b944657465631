//! A server as the requestor of tasks that its client hosts, both ends ours, over real transports. // F-37, F-41
#![cfg(all(feature = "client", feature = "http"))]
#![allow(clippy::unwrap_used, deprecated)]

#[path = "client/script.rs"]
#[allow(dead_code, unreachable_pub)]
mod script;
mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mcp_tasks::{
    ClientTasks, Limits, TaskContext, TaskError, TaskSupport, TaskTool, Tasks,
    client::{
        CallOptions, ProtocolChoice, TaskClient, TaskClientBuilder, TaskClientError, TaskEvent,
        TaskPreference, TaskStatus,
    },
    store::MemoryStore,
};
use rmcp::{
    ClientHandler, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientInfo,
        ContentBlock, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
        ElicitResult, ElicitationAction, ElicitationSchema, ErrorCode, ErrorData, Implementation,
        SamplingMessage, ServerCapabilities, ServerConfig,
    },
    service::{RequestContext, RoleClient, RoleServer},
};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use script::{Script, refusal};
use support::{Bare, PATIENCE, RELATED, http::Served};

/// A person (and a model) whose answers the question's text tells.
#[derive(Clone, Default)]
struct Hands {
    capabilities: Option<Value>,
    asked: Arc<AtomicUsize>,
    thinking: Arc<Notify>,
    cancelled: Arc<Notify>,
}

impl Hands {
    fn declaring(capabilities: Value) -> Self {
        Self {
            capabilities: Some(capabilities),
            ..Self::default()
        }
    }

    async fn think(&self, context: &RequestContext<RoleClient>) {
        self.thinking.notify_one();
        context.ct.cancelled().await;
        self.cancelled.notify_one();
    }
}

impl ClientHandler for Hands {
    fn get_info(&self) -> ClientInfo {
        let declared = self.capabilities.clone();
        let declared = declared.unwrap_or_else(|| json!({"elicitation": {}, "sampling": {}}));
        let capabilities: ClientCapabilities = serde_json::from_value(declared).unwrap();
        ClientInfo::new(capabilities, Implementation::new("hands", "1"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let ElicitRequestParams::FormElicitationParams { message, .. } = request else {
            return Ok(ElicitResult::new(ElicitationAction::Accept));
        };
        match message.as_str() {
            "decline" => return Ok(ElicitResult::new(ElicitationAction::Decline)),
            "error" => return Err(ErrorData::new(ErrorCode(1042), "no hands", None)),
            "panic" => panic!("told to"),
            "think" => self.think(&context).await,
            _ => {}
        }
        let mut answer = ElicitResult::new(ElicitationAction::Accept);
        answer.content = Some(json!({"name": message}));
        Ok(answer)
    }

    async fn create_message(
        &self,
        request: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let prompt = serde_json::to_string(&request.messages).unwrap();
        if prompt.contains("think") {
            self.think(&context).await;
        }
        let text = SamplingMessage::assistant_text("sampled");
        Ok(CreateMessageResult::new(text, "mock".into()))
    }
}

fn form(message: &str) -> ElicitRequestParams {
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message.to_owned(),
        requested_schema: ElicitationSchema::builder()
            .required_string("name")
            .build()
            .unwrap(),
    }
}

fn prompt(text: &str) -> CreateMessageRequestParams {
    CreateMessageRequestParams::new(vec![SamplingMessage::user_text(text)], 10)
}

/// The names of the events of a stream, and what was in the last.
async fn told<R: serde::Serialize>(
    mut stream: mcp_tasks::client::TaskStream<R>,
) -> (Vec<String>, Value) {
    let mut names = Vec::new();
    let mut last = Value::Null;
    while let Some(event) = stream.next().await {
        names.push(match event {
            TaskEvent::Created(_) => "created".to_owned(),
            TaskEvent::Status(task) => task.status.to_string(),
            TaskEvent::Progress(_) => "progress".to_owned(),
            TaskEvent::Result(result) => {
                last = serde_json::to_value(result).unwrap();
                "result".to_owned()
            }
            TaskEvent::Error(error) => {
                last = json!({"error": error.to_string()});
                kind(&error).to_owned()
            }
            _ => "other".to_owned(),
        });
    }
    (names, last)
}

fn kind(error: &TaskClientError) -> &'static str {
    match error {
        TaskClientError::Cancelled { .. } => "cancelled task",
        TaskClientError::Expired { .. } => "expired task",
        TaskClientError::Rpc(_) => "rpc",
        TaskClientError::TransportLost { .. } => "lost",
        TaskClientError::TasksUnsupported(_) => "unsupported",
        TaskClientError::Deadline { .. } => "deadline",
        _ => "another error",
    }
}

/// Does what a test wants of the client's tasks, and says what came of it.
async fn act(tasks: &ClientTasks, args: &Value) -> Result<Value, TaskError> {
    let text = args["text"].as_str().unwrap_or("Ada");
    let mut options = CallOptions::new();
    if let Some(ttl) = args["ttl"].as_u64() {
        options = options.ttl(Duration::from_millis(ttl));
    }
    let stream = |text: &str| tasks.create_elicitation_stream(form(text), options.clone());
    Ok(match args["do"].as_str().unwrap_or_default() {
        "elicit" => json!(told(stream(text)).await),
        "sample" => json!(told(tasks.create_message_stream(prompt(text), options)).await),
        "two" => {
            let both = tokio::join!(told(stream("left")), told(stream("right")));
            json!([both.0.1["content"]["name"], both.1.1["content"]["name"]])
        }
        "make" => match args["sample"].as_bool() {
            Some(true) => match tasks.create_message_task(prompt(text), options).await {
                Err(TaskClientError::ImmediateMessage(result)) => json!({"immediate": result}),
                other => json!(format!("{other:?}")),
            },
            _ => match tasks.create_elicitation_task(form(text), options).await {
                Err(TaskClientError::ImmediateElicitation(result)) => json!({"immediate": result}),
                other => json!(format!("{other:?}")),
            },
        },
        "url" => {
            let url = ElicitRequestParams::UrlElicitationParams {
                meta: None,
                message: "go".into(),
                url: "https://example.com".into(),
                elicitation_id: "e".into(),
            };
            json!(told(tasks.create_elicitation_stream(url, options)).await)
        }
        "by hand" => {
            let made = tasks.create_elicitation_task(form(text), options).await?;
            let got = tasks.get(&made.task_id).await?;
            let listed = tasks.list().await?;
            let answer: ElicitResult = tasks.result(&made.task_id).await?;
            let again: ElicitResult = tasks.result(&made.task_id).await?;
            assert_eq!(answer.content, again.content);
            let after = tasks.cancel(&made.task_id).await?;
            json!({
                "same": got.task_id == made.task_id,
                "listed": listed.iter().any(|task| task.task_id == made.task_id),
                "answer": answer,
                "after": after.status,
                "unknown": kind(&tasks.get("nope").await.unwrap_err()),
            })
        }
        "cancel" => {
            let id = match args["sample"].as_bool() {
                Some(true) => tasks.create_message_task(prompt("think"), options).await?,
                _ => {
                    tasks
                        .create_elicitation_task(form("think"), options)
                        .await?
                }
            };
            let id = id.task_id;
            assert_eq!(tasks.get(&id).await?.status, TaskStatus::Working);
            let cancelled = tasks.cancel(&id).await?;
            let result = tasks.result::<ElicitResult>(&id).await.unwrap_err();
            json!([cancelled.status, kind(&result)])
        }
        other => panic!("{other:?}"),
    })
}

/// A server whose one tool acts, and what its bodies reported.
fn server() -> (Tasks, mpsc::UnboundedReceiver<Value>) {
    let (report, reports) = mpsc::unbounded_channel();
    let tool = TaskTool::new("act").support(TaskSupport::Optional).run(
        move |cx: TaskContext, args: Value| {
            let report = report.clone();
            async move {
                let done = act(&cx.client_tasks(), &args).await;
                let _ = report.send(match &done {
                    Ok(done) => done.clone(),
                    Err(error) => json!(format!("{error:?}")),
                });
                Ok::<_, TaskError>(done?.to_string())
            }
        },
    );
    let mut limits = Limits::default();
    limits.poll_interval = Duration::from_millis(100);
    let tasks = Tasks::builder().limits(limits).tool(tool).bearer_ids();
    (tasks.build().unwrap(), reports)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Pipe,
    Http,
    /// Without a general stream.
    HttpNoGet,
}

const WAYS: [Way; 3] = [Way::Pipe, Way::Http, Way::HttpNoGet];

/// Keeps what serves.
struct Ends {
    client: TaskClient,
    reports: mpsc::UnboundedReceiver<Value>,
    _served: Option<Served>,
}

async fn no_get(
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> axum::response::Response {
    if request.method() == axum::http::Method::GET {
        return axum::response::IntoResponse::into_response(
            axum::http::StatusCode::METHOD_NOT_ALLOWED,
        );
    }
    next.run(request).await
}

fn hosting_limits() -> Limits {
    let mut limits = Limits::default();
    limits.poll_interval = Duration::from_millis(100);
    limits.min_result_retention = Duration::ZERO;
    limits.cancel_grace = Duration::from_millis(100);
    limits
}

async fn connect(way: Way, client: TaskClientBuilder<Hands>) -> Ends {
    let (tasks, reports) = server();
    let client = client.poll_floor(Duration::from_millis(20));
    if way == Way::Pipe {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move { tasks.serve(Bare, tokio::io::split(theirs)).await });
        return Ends {
            client: client.connect(tokio::io::split(ours)).await.unwrap(),
            reports,
            _served: None,
        };
    }
    let service = tasks
        .streamable_http(
            || Ok(Bare),
            rmcp::transport::StreamableHttpServerConfig::default(),
        )
        .unwrap();
    let served = match way {
        Way::HttpNoGet => {
            let app = axum::Router::new()
                .route_service("/mcp", service)
                .layer(axum::middleware::from_fn(no_get));
            Served::app(app).await
        }
        _ => Served::service(service).await,
    };
    Ends {
        client: client.http(&served.url).await.unwrap(),
        reports,
        _served: Some(served),
    }
}

async fn hosting(way: Way, hands: &Hands) -> Ends {
    let client = TaskClient::builder(hands.clone())
        .protocol(ProtocolChoice::V2025_11_25)
        .host_with(Arc::new(MemoryStore::new()), hosting_limits());
    connect(way, client).await
}

impl Ends {
    async fn act(&self, task: bool, args: Value) -> Result<Value, TaskClientError> {
        let options = CallOptions::new().task(match task {
            true => TaskPreference::Always,
            false => TaskPreference::Never,
        });
        let mut call = CallToolRequestParams::new("act");
        call.arguments = args.as_object().cloned();
        let result = tokio::time::timeout(PATIENCE, self.client.call_tool_with(call, options))
            .await
            .expect("an answer in time")?;
        let [ContentBlock::Text(text)] = &result.content[..] else {
            panic!("{result:?}")
        };
        Ok(serde_json::from_str(&text.text).unwrap())
    }
}

// F-41: the streams.
#[tokio::test]
async fn questions_are_driven_to_their_answers_from_plain_calls_and_tasks_on_every_transport() {
    for way in WAYS {
        let hands = Hands::default();
        let ends = hosting(way, &hands).await;
        for task in [false, true] {
            let (kind, of) = (if task { "task" } else { "plain" }, way);
            let told = ends.act(task, json!({"do": "elicit"})).await.unwrap();
            let (names, last) = (&told[0], &told[1]);
            assert_eq!(names[0], "created", "{of:?} {kind} {told}");
            assert_eq!(last["content"]["name"], "Ada", "{of:?} {kind} {told}");
            assert!(last["_meta"][RELATED]["taskId"].is_string(), "{told}");
            let told = ends.act(task, json!({"do": "sample"})).await.unwrap();
            assert_eq!(told[0][0], "created", "{of:?} {kind} {told}");
            assert_eq!(
                told[1]["content"]["text"], "sampled",
                "{of:?} {kind} {told}"
            );
        }
        assert_eq!(hands.asked.load(Ordering::SeqCst), 4, "{way:?}");
    }
}

// F-37, F-41: get, result, list and cancel.
#[tokio::test]
async fn get_list_result_and_a_late_cancel_by_hand() {
    for way in WAYS {
        for task in [false, true] {
            let ends = hosting(way, &Hands::default()).await;
            let told = ends.act(task, json!({"do": "by hand"})).await.unwrap();
            assert_eq!(
                (
                    &told["same"],
                    &told["listed"],
                    &told["after"],
                    &told["unknown"]
                ),
                (
                    &json!(true),
                    &json!(true),
                    &json!("completed"),
                    &json!("rpc")
                ),
                "{way:?} {told}"
            );
            assert_eq!(told["answer"]["content"]["name"], "Ada");
        }
    }
}

// F-37, F-41
#[tokio::test]
async fn a_cancel_reaches_the_handler() {
    for (way, sample) in [(Way::Pipe, false), (Way::Http, true)] {
        let hands = Hands::default();
        let ends = hosting(way, &hands).await;
        let args = json!({"do": "cancel", "sample": sample});
        let told = ends.act(false, args).await.unwrap();
        assert_eq!(told, json!(["cancelled", "cancelled task"]), "{way:?}");
        // It may have been cancelled before it was asked at all.
        if hands.asked.load(Ordering::SeqCst) > 0 {
            let gone = tokio::time::timeout(PATIENCE, hands.cancelled.notified()).await;
            gone.expect("the handler is told");
        }
    }
}

// F-41
#[tokio::test]
async fn declined_failed_and_panicking_answers_are_told_apart() {
    let ends = hosting(Way::Pipe, &Hands::default()).await;
    let ask = |text: &'static str| ends.act(false, json!({"do": "elicit", "text": text}));
    let declined = ask("decline").await.unwrap();
    assert_eq!(declined[1]["action"], "decline");
    let failed = ask("error").await.unwrap();
    assert_eq!(failed[0].as_array().unwrap().last().unwrap(), "rpc");
    let why = failed[1]["error"].as_str().unwrap();
    assert!(why.contains("1042") && why.contains("no hands"), "{why}");
    let panicked = ask("panic").await.unwrap();
    let why = panicked[1]["error"].as_str().unwrap();
    assert!(why.contains("-32603"), "{why}");
    // And it still works.
    assert_eq!(ask("Ada").await.unwrap()[1]["content"]["name"], "Ada");
}

// F-37
#[tokio::test]
async fn a_question_that_nobody_answers_expires_and_its_handler_is_told() {
    let hands = Hands::default();
    let ends = hosting(Way::Pipe, &hands).await;
    let args = json!({"do": "elicit", "text": "think", "ttl": 1000});
    let told = ends.act(false, args).await.unwrap();
    assert_eq!(
        told[0].as_array().unwrap().last().unwrap(),
        "expired task",
        "{told}"
    );
    let gone = tokio::time::timeout(PATIENCE, hands.cancelled.notified()).await;
    gone.expect("the handler is told");
}

#[tokio::test]
async fn two_at_once_get_their_own_answers() {
    for way in WAYS {
        let ends = hosting(way, &Hands::default()).await;
        for task in [false, true] {
            let told = ends.act(task, json!({"do": "two"})).await.unwrap();
            assert_eq!(told, json!(["left", "right"]), "{way:?}");
        }
    }
}

// F-37, F-38 the other way
#[tokio::test]
async fn a_status_notification_wakes_the_one_who_waits() {
    for way in [Way::Pipe, Way::Http] {
        let mut limits = hosting_limits();
        limits.poll_interval = Duration::from_secs(3600);
        let client = TaskClient::builder(Hands::default())
            .protocol(ProtocolChoice::V2025_11_25)
            .host_with(Arc::new(MemoryStore::new()), limits);
        let ends = connect(way, client).await;
        // By polls alone it would take an hour.
        let told = ends.act(false, json!({"do": "elicit"})).await.unwrap();
        assert_eq!(
            told[0],
            json!(["created", "completed", "result"]),
            "{way:?}"
        );
    }
}

// F-41: capability checks.
#[tokio::test]
async fn what_the_client_does_not_declare_is_refused_by_name() {
    let refused = async |hands: Hands, hosts: bool, args: Value| {
        let client = TaskClient::builder(hands.clone()).protocol(ProtocolChoice::V2025_11_25);
        let client = match hosts {
            true => client.host(MemoryStore::new()),
            false => client,
        };
        let ends = connect(Way::Pipe, client).await;
        let told = ends.act(false, args).await.unwrap();
        assert_eq!(told[0], json!(["unsupported"]), "{told}");
        assert_eq!(hands.asked.load(Ordering::SeqCst), 0);
        told[1]["error"].as_str().unwrap().to_owned()
    };
    let elicit = || json!({"do": "elicit"});
    let why = refused(Hands::default(), false, elicit()).await;
    assert!(
        why.contains("does not declare the capability tasks"),
        "{why}"
    );
    let why = refused(Hands::declaring(json!({})), true, elicit()).await;
    assert!(
        why.contains("does not declare the capability tasks"),
        "{why}"
    );
    let why = refused(Hands::declaring(json!({"sampling": {}})), true, elicit()).await;
    assert!(why.contains("tasks.requests.elicitation.create"), "{why}");
    let hands = Hands::declaring(json!({"elicitation": {}}));
    let why = refused(hands.clone(), true, json!({"do": "sample"})).await;
    assert!(
        why.contains("tasks.requests.sampling.createMessage"),
        "{why}"
    );
    let why = refused(hands, true, json!({"do": "url"})).await;
    assert!(why.contains("elicitation.url"), "{why}");
}

#[tokio::test]
async fn a_client_that_goes_mid_way_is_an_error_at_once() {
    for task in [false, true] {
        let hands = Hands::default();
        let mut ends = hosting(Way::Pipe, &hands).await;
        let client = ends.client.clone();
        let call = tokio::spawn(async move {
            let mut call = CallToolRequestParams::new("act");
            call.arguments = json!({"do": "elicit", "text": "think"})
                .as_object()
                .cloned();
            let options = CallOptions::new().task(match task {
                true => TaskPreference::Always,
                false => TaskPreference::Never,
            });
            client.call_tool_with(call, options).await
        });
        tokio::time::timeout(PATIENCE, hands.thinking.notified())
            .await
            .unwrap();
        ends.client.close().await;
        assert!(call.await.unwrap().is_err());
        let report = tokio::time::timeout(PATIENCE, ends.reports.recv()).await;
        let report = report.expect("the body hears of it").unwrap();
        assert_eq!(
            report[0].as_array().unwrap().last().unwrap(),
            "lost",
            "{report}"
        );
    }
}

#[tokio::test]
async fn a_stream_that_breaks_is_no_end_the_answer_comes_and_the_rest_is_asked_on_the_next() {
    let (tasks, _reports) = server();
    let served = Served::start(&tasks, Bare).await;
    let mut client = support::http::Client::new(&served.url);
    let hosted = json!({"elicitation": {}, "tasks": {"requests": {"elicitation": {"create": {}}}}});
    client
        .initialize_with(support::initialize_with("2025-11-25", hosted))
        .await;
    let params = json!({"name": "act", "arguments": {"do": "elicit"}});
    let mut stream = client.open("tools/call", params).await;
    let created = stream.method("elicitation/create").await;
    assert_eq!(created["params"]["task"], json!({}));
    assert_eq!(
        created["params"]["_meta"].get(RELATED),
        None,
        "a plain call is no task"
    );
    assert!(created["id"].is_string());
    let event = stream.last_event_id.clone();
    drop(stream);
    // Another session cannot answer for this one.
    let mut other = support::http::Client::new(&served.url);
    other.initialize("2025-11-25").await;
    let forged = json!({"jsonrpc": "2.0", "id": created["id"], "result": {"action": "cancel"}});
    other.post(&forged).await;
    client
        .reply(&created, json!({"task": script::task("working")}))
        .await;
    let mut stream = client.listen_from(event.as_deref()).await;
    let get = stream.method("tasks/get").await;
    assert_eq!(get["params"], json!({"taskId": "T"}));
    client.reply(&get, script::task("completed")).await;
    let result = stream.method("tasks/result").await;
    drop(stream);
    let mut stream = client.listen_from(event.as_deref()).await;
    let again = stream.method("tasks/result").await;
    assert_ne!(result["id"], again["id"]);
    // Late, but its own time has passed: the second is waited for.
    client.reply(&result, json!({"action": "decline"})).await;
    client.accept(&again, "Ada").await;
    let answer = stream.response().await;
    assert!(support::text(&answer["result"]).contains("Ada"), "{answer}");
}

#[tokio::test]
async fn a_task_of_the_server_is_named_and_asks_for_a_stream_where_there_is_none() {
    let (tasks, _reports) = server();
    let served = Served::start(&tasks, Bare).await;
    let mut client = support::http::Client::new(&served.url);
    let hosted = json!({"elicitation": {}, "tasks": {"requests": {"elicitation": {"create": {}}}}});
    client
        .initialize_with(support::initialize_with("2025-11-25", hosted))
        .await;
    let task = client.create("act", json!({"do": "elicit"})).await;
    let id = task["taskId"].clone();
    let status = async || {
        let told = client.request("tasks/get", json!({"taskId": id})).await;
        told["result"]["status"].as_str().unwrap().to_owned()
    };
    for _ in 0..200 {
        if status().await == "input_required" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(status().await, "input_required");
    let mut stream = client.open("tasks/result", json!({"taskId": id})).await;
    let created = stream.method("elicitation/create").await;
    assert_eq!(created["params"]["_meta"][RELATED]["taskId"], id);
    assert_eq!(status().await, "working");
    client
        .reply(&created, json!({"task": script::task("completed")}))
        .await;
    let result = stream.method("tasks/result").await;
    assert_eq!(result["params"], json!({"taskId": "T"}));
    client.accept(&result, "Ada").await;
    assert!(support::text(&stream.response().await["result"]).contains("Ada"));
}

/// A server whose own tool asks the client, through the task plane in front of it.
#[derive(Clone, Default)]
struct Asks(Arc<std::sync::OnceLock<Tasks>>);

impl ServerHandler for Asks {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tasks = self.0.get().unwrap().client_tasks_of(&context);
        let done = act(&tasks, &json!({"do": "elicit"})).await.unwrap();
        Ok(CallToolResult::success(vec![ContentBlock::text(done.to_string())]).into())
    }
}

#[tokio::test]
async fn a_tool_of_the_inner_server_asks_too() {
    let (tasks, _reports) = server();
    let inner = Asks::default();
    let _ = inner.0.set(tasks.clone());
    let host = || {
        TaskClient::builder(Hands::default())
            .protocol(ProtocolChoice::V2025_11_25)
            .host_with(Arc::new(MemoryStore::new()), hosting_limits())
    };
    let served = Served::start(&tasks, inner.clone()).await;
    let over_http = host().http(&served.url).await.unwrap();
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move { tasks.serve(inner, tokio::io::split(theirs)).await });
    let over_pipe = host().connect(tokio::io::split(ours)).await.unwrap();
    for client in [over_http, over_pipe] {
        let options = CallOptions::new().task(TaskPreference::Never);
        let call = client.call_tool_with(CallToolRequestParams::new("own"), options);
        let result = tokio::time::timeout(PATIENCE, call).await.unwrap().unwrap();
        let text = serde_json::to_string(&result.content).unwrap();
        assert!(text.contains("Ada"), "{text}");
    }
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn elicitation(task: Value) -> Value {
    json!({"mode": "form", "message": "Ada", "task": task,
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}})
}

// F-37
#[tokio::test]
async fn hosting_on_the_wire() {
    let (mut script, io) = Script::pair();
    let client = TaskClient::builder(Hands::default())
        .protocol(ProtocolChoice::V2025_11_25)
        .host_with(Arc::new(MemoryStore::new()), hosting_limits());
    let (client, hello) = tokio::join!(client.connect(io), script.handshake(json!({})));
    let _client = client.unwrap();
    assert_eq!(
        hello["params"]["capabilities"]["tasks"],
        json!({"list": {}, "cancel": {}, "requests": {
            "elicitation": {"create": {}}, "sampling": {"createMessage": {}}}})
    );
    // Without `task` it is an ordinary question.
    let mut plain = elicitation(Value::Null);
    plain.as_object_mut().unwrap().remove("task");
    script.send(request(1, "elicitation/create", plain)).await;
    assert_eq!(script.expect_answer().await["result"]["action"], "accept");
    // A question of a task of the server: the creation answer names that, the result its own.
    let mut asked = elicitation(json!({"ttl": 60000}));
    asked["_meta"] = json!({RELATED: {"taskId": "theirs"}});
    script.send(request(2, "elicitation/create", asked)).await;
    let created = script.expect_answer().await["result"].clone();
    assert_eq!(created["_meta"][RELATED]["taskId"], "theirs");
    let task = &created["task"];
    assert_eq!(
        (&task["status"], &task["ttl"]),
        (&json!("working"), &json!(60000))
    );
    let status = script.expect("notifications/tasks/status").await;
    assert_eq!(status["params"]["status"], "completed");
    assert_eq!(status["params"].get("_meta"), None);
    let id = json!({"taskId": task["taskId"]});
    script.send(request(3, "tasks/result", id.clone())).await;
    let result = script.expect_answer().await["result"].clone();
    assert_eq!(result["_meta"][RELATED]["taskId"], task["taskId"]);
    assert_eq!(result["content"]["name"], "Ada");
    script.send(request(4, "tasks/get", id.clone())).await;
    let got = script.expect_answer().await["result"].clone();
    assert_eq!(
        (&got["status"], got.get("_meta")),
        (&json!("completed"), None)
    );
    script.send(request(5, "tasks/list", json!({}))).await;
    assert_eq!(
        script.expect_answer().await["result"]["tasks"],
        json!([got])
    );
    script.send(request(6, "tasks/cancel", id)).await;
    assert_eq!(script.expect_answer().await["error"]["code"], -32602);
    // A waiter that gives up gets no answer, and the task goes on.
    let mut think = elicitation(json!({}));
    think["message"] = json!("think");
    script.send(request(7, "elicitation/create", think)).await;
    let task = script.expect_answer().await["result"]["task"].clone();
    let id = json!({"taskId": task["taskId"]});
    script.send(request(8, "tasks/result", id.clone())).await;
    script.send(request(9, "tasks/get", id.clone())).await;
    assert_eq!(script.expect_answer().await["id"], 9);
    script
        .send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 8}}))
        .await;
    script.send(request(10, "tasks/cancel", id)).await;
    let mut answers = [script.next().await.unwrap(), script.next().await.unwrap()];
    answers.sort_by_key(|message| message["id"].is_number());
    assert_eq!(answers[0]["params"]["status"], "cancelled");
    assert_eq!(
        (&answers[1]["id"], &answers[1]["result"]["status"]),
        (&json!(10), &json!("cancelled"))
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_named() {
    let (mut script, io) = Script::pair();
    let client = TaskClient::builder(Hands::declaring(json!({"elicitation": {}})))
        .protocol(ProtocolChoice::V2025_11_25)
        .host(MemoryStore::new());
    let (client, hello) = tokio::join!(client.connect(io), script.handshake(json!({})));
    let _client = client.unwrap();
    let requests = &hello["params"]["capabilities"]["tasks"]["requests"];
    assert_eq!(requests, &json!({"elicitation": {"create": {}}}));
    let mut url = elicitation(json!({}));
    url["mode"] = json!("url");
    url["url"] = json!("https://example.com");
    for (method, params, named) in [
        ("tasks/get", json!({}), "params.taskId"),
        ("tasks/result", json!({"taskId": 7}), "params.taskId"),
        ("tasks/cancel", json!({"taskId": null}), "params.taskId"),
        ("tasks/list", json!({"cursor": 7}), "params.cursor"),
        ("tasks/get", json!({"taskId": "nope"}), "Task not found"),
        ("tasks/result", json!({"taskId": "nope"}), "Task not found"),
        ("elicitation/create", elicitation(json!(7)), "params.task"),
        (
            "elicitation/create",
            elicitation(json!({"ttl": -1})),
            "params.task.ttl",
        ),
        (
            "elicitation/create",
            json!({"task": {}, "message": "x"}),
            "params",
        ),
        ("elicitation/create", url, "elicitation.url"),
    ] {
        script.send(request(1, method, params)).await;
        let error = script.expect_answer().await["error"].clone();
        assert_eq!(error["code"], -32602, "{method} {error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(named), "{method}: {message}");
    }
    script.send(request(2, "tasks/pause", json!({}))).await;
    assert_eq!(script.expect_answer().await["error"]["code"], -32601);
}

// F-37: declared only then.
#[tokio::test]
async fn a_client_that_hosts_nothing_declares_nothing_and_knows_no_tasks() {
    let (mut script, io) = Script::pair();
    let client = TaskClient::builder(Hands::default()).protocol(ProtocolChoice::V2025_11_25);
    let (client, hello) = tokio::join!(client.connect(io), script.handshake(json!({})));
    let _client = client.unwrap();
    assert_eq!(hello["params"]["capabilities"].get("tasks"), None);
    for method in ["tasks/get", "tasks/result", "tasks/cancel", "tasks/list"] {
        script
            .send(request(1, method, json!({"taskId": "T"})))
            .await;
        let answer = script.expect_answer().await;
        assert_eq!(answer["error"]["code"], -32601, "{method} {answer}");
    }
    // The augmentation of a request whose kind is not declared means nothing.
    script
        .send(request(2, "elicitation/create", elicitation(json!({}))))
        .await;
    assert_eq!(script.expect_answer().await["result"]["action"], "accept");
}

#[tokio::test]
async fn the_driver_copes_with_a_client_that_refuses_or_answers_at_once() {
    let (tasks, _reports) = server();
    let hosted = json!({"elicitation": {}, "tasks": {"requests": {"elicitation": {"create": {}}}}});
    let hello = support::initialize_with("2025-11-25", hosted);
    let (mut pipe, _) = support::pipe::Pipe::with(&tasks, Bare, hello).await;
    let call = json!({"name": "act", "arguments": {"do": "elicit"}});
    let id = pipe.begin("tools/call", call.clone()).await;
    let asked = pipe.method("elicitation/create").await;
    pipe.send(&refusal(&asked, -32000, "not now")).await;
    let answer = pipe.answer(id).await;
    assert!(
        support::text(&answer["result"]).contains("not now"),
        "{answer}"
    );
    // A plain result where a task was asked for is a result.
    let id = pipe.begin("tools/call", call.clone()).await;
    let asked = pipe.method("elicitation/create").await;
    pipe.accept(&asked, "Ada").await;
    assert!(support::text(&pipe.answer(id).await["result"]).contains("Ada"));
    // Where the task itself was wanted, what came is in the error.
    let make = json!({"name": "act", "arguments": {"do": "make"}});
    let id = pipe.begin("tools/call", make).await;
    let asked = pipe.method("elicitation/create").await;
    pipe.accept(&asked, "Ada").await;
    let told = pipe.answer(id).await;
    let told: Value = serde_json::from_str(support::text(&told["result"])).unwrap();
    assert_eq!(told["immediate"]["content"]["name"], "Ada", "{told}");
    // By hand: neither list nor cancel is declared.
    let by_hand = json!({"name": "act", "arguments": {"do": "by hand"}});
    let id = pipe.begin("tools/call", by_hand).await;
    let asked = pipe.method("elicitation/create").await;
    pipe.reply(&asked, json!({"task": script::task("working")}))
        .await;
    let get = pipe.method("tasks/get").await;
    pipe.reply(&get, script::task("working")).await;
    let answer = pipe.answer(id).await;
    let why = answer["error"]["message"].as_str().unwrap();
    assert!(why.contains("tasks.list"), "{answer}");
    pipe.close().await.unwrap();
    let hosted =
        json!({"sampling": {}, "tasks": {"requests": {"sampling": {"createMessage": {}}}}});
    let hello = support::initialize_with("2025-11-25", hosted);
    let (mut pipe, _) = support::pipe::Pipe::with(&tasks, Bare, hello).await;
    let make = json!({"name": "act", "arguments": {"do": "make", "sample": true}});
    let id = pipe.begin("tools/call", make).await;
    let asked = pipe.method("sampling/createMessage").await;
    let message =
        json!({"model": "m", "role": "assistant", "content": {"type": "text", "text": "s"}});
    pipe.reply(&asked, message).await;
    let told = pipe.answer(id).await;
    let told: Value = serde_json::from_str(support::text(&told["result"])).unwrap();
    assert_eq!(told["immediate"]["content"]["text"], "s", "{told}");
    pipe.close().await.unwrap();
}
