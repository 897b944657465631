//! One call from its start to its end: made as a task or plainly, then followed (wire notes: "Reading as a client").

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use rmcp::model::{CallToolRequestParams, CallToolResult};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    CallOptions, RemoteTask, TaskClientError, TaskEvent, TaskInfo, TaskPreference,
    backoff::Backoff,
    connection::Connection,
    follow::Follow,
    info::{TaskOutcome, protocol},
    link::LostKind,
    server::ToolSupport,
    v2026_07_28 as modern,
    waiting::{Abandon, ProgressFeed, Reply},
};

/// How often a call that never left this machine is tried.
pub(super) const CALL_TRIES: u32 = 4;
/// How long an abandoned call waits for the handle that it has to cancel.
const HANDLE_GRACE: Duration = Duration::from_secs(60);

/// What a call begins with.
pub(super) enum Start {
    Call(Box<CallToolRequestParams>),
    /// Another request, with its task augmentation in place.
    Request {
        method: &'static str,
        params: Value,
    },
    /// A task that exists; whether it is known to, and the token (JSON text) of its progress.
    Task {
        id: String,
        existed: bool,
        token: Option<String>,
    },
}

/// What a request gave.
pub(super) enum Begun<R> {
    Task(TaskInfo),
    Done(Box<R>),
}

/// Drives a call to its end, which is the last event. Ends early when nobody listens any more.
pub(super) async fn drive<R: TaskOutcome>(
    connection: Arc<Connection>,
    start: Start,
    options: CallOptions,
    events: mpsc::Sender<TaskEvent<R>>,
    handle: Arc<OnceLock<RemoteTask>>,
) {
    let deadline = options
        .deadline
        .and_then(|after| Instant::now().checked_add(after));
    let mut task = None;
    let ended = guarded(&connection, &events, deadline, async {
        run(&connection, start, &options, &events, &mut task, &handle).await
    })
    .await;
    let last = match ended {
        Ended::With(Ok(result)) => TaskEvent::Result(*result),
        Ended::With(Err(error)) => TaskEvent::Error(error),
        Ended::Closed => TaskEvent::Error(connection.closed_error(task.as_deref())),
        Ended::Deadline => TaskEvent::Error(TaskClientError::Deadline {
            task_id: task.clone(),
        }),
        Ended::Abandoned => {
            cancel_abandoned(&connection, task, &options).await;
            return;
        }
    };
    let deadline = matches!(&last, TaskEvent::Error(TaskClientError::Deadline { .. }));
    let _ = events.send(last).await;
    if deadline {
        cancel_abandoned(&connection, task, &options).await;
    }
}

async fn cancel_abandoned(
    connection: &Arc<Connection>,
    task: Option<String>,
    options: &CallOptions,
) {
    if let (true, Some(task)) = (options.cancel_on_drop, task)
        && let Err(error) = connection.cancel_only(&task).await
    {
        tracing::warn!(%task, %error, "an abandoned task could not be cancelled");
    }
}

type Outcome<R> = Result<Box<R>, TaskClientError>;

enum Ended<R> {
    With(Outcome<R>),
    Closed,
    Deadline,
    Abandoned,
}

async fn guarded<R>(
    connection: &Connection,
    events: &mpsc::Sender<TaskEvent<R>>,
    deadline: Option<Instant>,
    work: impl Future<Output = Outcome<R>>,
) -> Ended<R> {
    tokio::select! {
        biased;
        outcome = work => Ended::With(outcome),
        () = events.closed() => Ended::Abandoned,
        () = at(deadline) => Ended::Deadline,
        () = connection.stop.cancelled() => Ended::Closed,
    }
}

/// Until `when`; for ever if there is none.
pub(super) async fn at(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

async fn run<R: TaskOutcome>(
    connection: &Arc<Connection>,
    start: Start,
    options: &CallOptions,
    events: &mpsc::Sender<TaskEvent<R>>,
    task: &mut Option<String>,
    handle: &OnceLock<RemoteTask>,
) -> Outcome<R> {
    let mut tool = None;
    let (method, params, augmented, mut feed) = match start {
        Start::Task { id, existed, token } => {
            *task = Some(id.clone());
            let feed = token.map(|token| connection.follow_progress(token));
            return follow(connection, Err(id), existed, options, events, feed).await;
        }
        Start::Request { method, params } => {
            let (params, feed) = prepare(connection, params);
            (method, params, true, feed)
        }
        Start::Call(params) => {
            tool = Some(params.name.to_string());
            let params = serde_json::to_value(params).unwrap_or_default();
            let (mut params, feed) = prepare(connection, params);
            let augmented = augment(connection, &mut params, options).await?;
            ("tools/call", params, augmented, feed)
        }
    };
    let mut begun = begin_detached(connection, method, params, augmented, options);
    let begun = loop {
        tokio::select! {
            biased;
            step = feed.next() => drop(events.send(TaskEvent::Progress(step)).await),
            begun = &mut begun => break begun.unwrap_or(Err(TaskClientError::Closed)),
        }
    };
    let info = match begun? {
        Begun::Done(result) => return Ok(result),
        Begun::Task(info) => info,
    };
    *task = Some(info.task_id.clone());
    if let Some(tool) = tool {
        let remote = RemoteTask::new(connection.clone(), &info.task_id, options.clone()).made(
            Some(info.clone()),
            Some(&tool),
            Some(&feed.token),
        );
        let _ = handle.set(remote);
    }
    let _ = events.send(TaskEvent::Created(info.clone())).await;
    follow(connection, Ok(info), true, options, events, Some(feed)).await
}

/// Follows a task as the revision that is spoken has it.
async fn follow<R: TaskOutcome>(
    connection: &Arc<Connection>,
    info: Result<TaskInfo, String>,
    existed: bool,
    options: &CallOptions,
    events: &mpsc::Sender<TaskEvent<R>>,
    feed: Option<ProgressFeed>,
) -> Outcome<R> {
    match connection.modern.get() {
        Some(modern) => {
            modern::Follow::new(connection, modern, info, existed, options, events, feed)
                .run()
                .await
        }
        None => {
            Follow::new(connection, info, existed, options, events, feed)
                .run()
                .await
        }
    }
}

/// The parameters with a progress token, and what is reported under it. A token of the caller's own is kept.
fn prepare(connection: &Arc<Connection>, mut params: Value) -> (Value, ProgressFeed) {
    if !params["_meta"].is_object() {
        params["_meta"] = json!({});
    }
    let token = &mut params["_meta"]["progressToken"];
    if token.is_null() {
        *token = json!(format!("tc:{}:{}", connection.nonce, connection.number()));
    }
    let feed = connection.follow_progress(token.to_string());
    (params, feed)
}

/// Makes the call a task where it should be one; whether it is.
async fn augment(
    connection: &Arc<Connection>,
    params: &mut Value,
    options: &CallOptions,
) -> Result<bool, TaskClientError> {
    let declared = connection.declares(|server| server.call);
    let modern = connection.modern.get().is_some();
    let augmented = match options.task {
        TaskPreference::Never => false,
        TaskPreference::Always if !declared => {
            let what = match modern {
                true => "the server does not declare the tasks extension",
                false => "the server does not declare tasks.requests.tools.call",
            };
            return Err(TaskClientError::TasksUnsupported(what.to_owned()));
        }
        TaskPreference::Always => true,
        // The server decides.
        TaskPreference::Auto if modern => true,
        TaskPreference::Auto if !declared => false,
        TaskPreference::Auto => {
            let tool = params["name"].as_str().unwrap_or_default();
            connection.tool_support(tool).await? != ToolSupport::Forbidden
        }
    };
    if augmented && !modern {
        params["task"] = options.task_member();
    }
    Ok(augmented)
}

/// `tools/call` as a task that is insisted on: its handle, and the token (JSON text) of its progress.
///
/// # Errors
/// `TasksUnsupported` if the tool or the server has no tasks, `Immediate` if the result came instead.
pub(super) async fn create(
    connection: &Arc<Connection>,
    params: CallToolRequestParams,
    options: &CallOptions,
) -> Result<(TaskInfo, String), TaskClientError> {
    let deadline = options
        .deadline
        .and_then(|after| Instant::now().checked_add(after));
    let work = async {
        let tool = params.name.to_string();
        if options.task == TaskPreference::Auto
            && connection.modern.get().is_none()
            && connection.declares(|server| server.call)
            && connection.tool_support(&tool).await? == ToolSupport::Forbidden
        {
            let what = format!("the tool {tool:?} does not run as a task");
            return Err(TaskClientError::TasksUnsupported(what));
        }
        let always = options.clone().task(TaskPreference::Always);
        let params = serde_json::to_value(params).unwrap_or_default();
        let (mut params, feed) = prepare(connection, params);
        augment(connection, &mut params, &always).await?;
        let begun = begin_detached(connection, "tools/call", params, true, &always);
        match begun.await.unwrap_or(Err(TaskClientError::Closed))? {
            Begun::Task(info) => Ok((info, feed.token.clone())),
            Begun::Done(result) => Err(CallToolResult::immediate(*result)),
        }
    };
    tokio::select! {
        biased;
        created = work => created,
        () = at(deadline) => Err(TaskClientError::Deadline { task_id: None }),
        () = connection.stop.cancelled() => Err(connection.closed_error(None)),
    }
}

/// Another request as a task: its handle, or the result if that came instead.
pub(super) async fn create_request<R: TaskOutcome>(
    connection: &Arc<Connection>,
    method: &'static str,
    params: Value,
    options: &CallOptions,
) -> Result<Begun<R>, TaskClientError> {
    let deadline = options
        .deadline
        .and_then(|after| Instant::now().checked_add(after));
    let begun = begin_detached(connection, method, params, true, options);
    tokio::select! {
        biased;
        begun = begun => begun.unwrap_or(Err(TaskClientError::Closed)),
        () = at(deadline) => Err(TaskClientError::Deadline { task_id: None }),
        () = connection.stop.cancelled() => Err(connection.closed_error(None)),
    }
}

/// Sends the call from a task of its own, which lives on when nobody waits for the handle any more but the task would
/// have to be cancelled: then the handle is waited for and cancelled.
fn begin_detached<R: TaskOutcome>(
    connection: &Arc<Connection>,
    method: &'static str,
    params: Value,
    augmented: bool,
    options: &CallOptions,
) -> oneshot::Receiver<Result<Begun<R>, TaskClientError>> {
    let (mut sender, begun) = oneshot::channel();
    let (connection, options) = (connection.clone(), options.clone());
    tokio::spawn(async move {
        let abandoned = CancellationToken::new();
        let work = begin(connection.clone(), method, params, augmented, &abandoned);
        tokio::pin!(work);
        let outcome = tokio::select! {
            biased;
            outcome = &mut work => outcome,
            () = sender.closed() => match augmented && options.cancel_on_drop {
                true => {
                    abandoned.cancel();
                    match tokio::time::timeout(HANDLE_GRACE, work).await {
                        Ok(outcome) => outcome,
                        Err(_) => return,
                    }
                }
                false => return,
            },
        };
        if let Err(Ok(Begun::Task(info))) = sender.send(outcome) {
            cancel_abandoned(&connection, Some(info.task_id), &options).await;
        }
    });
    begun
}

/// Sends the request, again only if it never left; reads the answer.
async fn begin<R: TaskOutcome>(
    connection: Arc<Connection>,
    method: &'static str,
    params: Value,
    augmented: bool,
    abandoned: &CancellationToken,
) -> Result<Begun<R>, TaskClientError> {
    if connection.modern.get().is_some() {
        return modern::begin(&connection, method, params, augmented, abandoned).await;
    }
    let abandon = if augmented {
        Abandon::Silently
    } else {
        Abandon::Notify
    };
    let mut backoff = Backoff::usual();
    loop {
        let mut call = connection.request(method, &params, None, abandon).await;
        let lost = match call.reply().await {
            Reply::Result(result) => {
                // A handle that was not asked for is followed all the same: the result is what was wanted.
                return match TaskInfo::read_created(result.as_raw())? {
                    Some(info) => Ok(Begun::Task(info)),
                    None => R::read(result.as_raw()).map(|result| Begun::Done(Box::new(result))),
                };
            }
            Reply::Error(error) => return Err(TaskClientError::Rpc(error)),
            Reply::Lost(lost) => lost,
        };
        if lost.kind == LostKind::Closed && connection.stop.is_cancelled() {
            return Err(connection.closed_error(None));
        }
        if lost.sent || lost.kind != LostKind::Transient || backoff.tries() + 1 >= CALL_TRIES {
            return Err(TaskClientError::lost(lost, None));
        }
        tokio::time::sleep(backoff.next().max(lost.retry_after.unwrap_or_default())).await;
    }
}

/// The error for a task that gave no result because it was cancelled.
pub(super) fn cancelled(info: &TaskInfo) -> TaskClientError {
    TaskClientError::Cancelled {
        task_id: info.task_id.clone(),
        message: info.status_message.clone(),
    }
}

/// The error for an answer that is no task.
pub(super) fn other_task(asked: &str, got: &str) -> TaskClientError {
    protocol(format!("asked for task {asked}, and was told of {got}"))
}
