//! Tasks that the client hosts for its server (2025-11-25 `basic/utilities/tasks`, Client Capabilities): task-augmented
//! questions, on the same runtime as the tasks of a server.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use rmcp::{
    model::{ElicitRequestParams, RequestId},
    service::RequestContext,
};
use serde_json::{Map, Value, json, value::RawValue};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{
    Endpoint, TaskClientError,
    connection::Connection,
    link::{Kind as LinkKind, Outgoing},
    questions::{Answer, Kind, Question},
};
use crate::{
    receiver,
    runtime::{
        Call, Limits, LogEvent, Observer, ProgressEvent, Requestor, Runtime, TaskContext,
        TaskError, TaskTool,
    },
    store::{Access, TaskStore},
    task::{
        Clock, ErrorObject, Generation, InputKind, Owner, Permissions, Phase, RawJson, TaskId,
        TaskRecord,
    },
    wire::{
        envelope,
        error::{INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND},
        object::RawObject,
        v2025_11_25::{self as g1, RELATED_TASK, TaskAsk},
    },
};

/// How many `tasks/result` of the server may wait at a time.
const MAX_WAITING: usize = 1024;
/// How many of its requests are worked on at a time, those among them.
const MAX_SERVED: usize = 2048;

/// What a client needs to host tasks.
pub(super) struct Hosting {
    runtime: Runtime,
    owner: Owner,
    /// What `initialize` declared.
    declared: OnceLock<Declared>,
    /// Requests of the server that wait for a result, by their ids (JSON text).
    waiting: Mutex<HashMap<Arc<str>, CancellationToken>>,
    serving: Arc<Semaphore>,
    teller: Arc<Teller>,
}

struct Declared {
    elicit: bool,
    sample: bool,
    permissions: Permissions,
}

/// Tells the server what becomes of its tasks.
struct Teller {
    connection: Weak<Connection>,
    /// The tasks that run and whose handles the server has, as it knows them.
    known: Mutex<HashMap<TaskId, Arc<TaskRecord>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hosting {
    pub(super) fn new(
        store: Arc<dyn TaskStore>,
        limits: Limits,
        connection: &Arc<Connection>,
    ) -> Result<Self, TaskClientError> {
        // The one server: by what it is reached at, or else for as long as this connection lasts.
        let server = match &connection.settings.endpoint {
            Endpoint::Streams => uuid::Uuid::new_v4().to_string(),
            lasting => lasting.to_string(),
        };
        let config = |error: crate::BuildError| TaskClientError::Config(error.to_string());
        let runtime = Runtime::new(store, limits, Clock::system()).map_err(config)?;
        for kind in [Kind::Elicit, Kind::Sample] {
            let connection = Arc::downgrade(connection);
            let tool = TaskTool::new(tool(kind)).run_raw(move |cx, params| {
                let connection = connection.clone();
                async move { ask(&connection, kind, cx, &params).await }
            });
            runtime.add_tool(tool).map_err(config)?;
        }
        let teller = Arc::new(Teller {
            connection: Arc::downgrade(connection),
            known: Mutex::default(),
        });
        let observer: Arc<dyn Observer> = teller.clone();
        runtime.observe(&observer);
        Ok(Self {
            runtime,
            owner: Owner::principal(format!("server:{server}")),
            declared: OnceLock::new(),
            waiting: Mutex::default(),
            serving: Arc::new(Semaphore::new(MAX_SERVED)),
            teller,
        })
    }

    /// Adds what is hosted to the capabilities that the handler declares: tasks for the questions it answers.
    pub(super) fn declare(&self, capabilities: &mut Value) {
        let has = |name: &str| capabilities.get(name).is_some_and(Value::is_object);
        let (elicit, sample) = (has("elicitation"), has("sampling"));
        let raw = RawJson::from_serialize(capabilities).ok();
        let _ = self.declared.set(Declared {
            elicit,
            sample,
            permissions: Permissions::of(raw.as_ref()),
        });
        if let (Some(tasks), Some(capabilities)) = (
            g1::client_tasks(elicit, sample),
            capabilities.as_object_mut(),
        ) {
            capabilities.insert("tasks".to_owned(), tasks);
        }
    }

    /// What was declared, if that was anything.
    fn declared(&self) -> Option<&Declared> {
        self.declared
            .get()
            .filter(|declared| declared.elicit || declared.sample)
    }

    /// The server no longer waits for the answer to its request (JSON text of the id); whether it did.
    pub(super) fn withdrawn(&self, id: &str) -> bool {
        let waiting = lock(&self.waiting).get(id).cloned();
        waiting.inspect(CancellationToken::cancel).is_some()
    }

    /// Ends what runs. What is in the store stays there.
    pub(super) fn end(&self) {
        let runtime = self.runtime.clone();
        if let Ok(handle) = tokio::runtime::Handle::try_current() {
            handle.spawn(async move { runtime.shutdown(Duration::ZERO).await });
        }
    }

    fn access(&self) -> Access {
        Access::Owner(self.owner.clone())
    }

    async fn create(
        &self,
        kind: Kind,
        declared: &Declared,
        id: &RawValue,
        params: Option<&RawValue>,
    ) -> Result<(Vec<u8>, TaskId), ErrorObject> {
        let task = params.and_then(RawObject::parse);
        let task = task.as_ref().and_then(|params| params.get("task"));
        let asked = task.map(TaskAsk::parse).transpose()?;
        let mut question = Question::read(kind, params);
        question.params.remove("task");
        let params = check(kind, declared, &question.params)?;
        let requestor = Requestor::new(self.owner.clone(), Generation::V2025_11_25);
        let mut call = Call::new(tool(kind), requestor);
        call.arguments = Some(params);
        call.meta = RawJson::from_serialize(&question.meta).ok();
        call.ttl = asked.and_then(|asked| asked.ttl);
        let created = self.runtime.create(call).await;
        let record = created.map_err(|error| error.into_rpc())?;
        let answer = g1::created(id, &record);
        let answer = match &question.related {
            Some(task) => related(&answer, task).unwrap_or(answer),
            None => answer,
        };
        Ok((answer, record.id.clone()))
    }

    async fn result(
        &self,
        id: &RawValue,
        params: Option<&RawValue>,
    ) -> Result<Option<Vec<u8>>, ErrorObject> {
        let task = g1::task_id(params)?;
        let token = CancellationToken::new();
        let key: Arc<str> = id.get().into();
        {
            let mut waiting = lock(&self.waiting);
            if waiting.len() >= MAX_WAITING {
                let why = "too many requests wait for a result";
                return Err(ErrorObject::new(INTERNAL_ERROR, why));
            }
            waiting.insert(key.clone(), token.clone());
        }
        let access = self.access();
        let ended = tokio::select! {
            biased;
            ended = self.runtime.wait(&task, &access, None) => Some(ended),
            () = token.cancelled() => None,
        };
        lock(&self.waiting).remove(&key);
        match ended {
            Some(Ok(record)) => Ok(g1::outcome(id, &record, true)),
            Some(Err(error)) => Err(receiver::read_error(error)),
            None => Ok(None),
        }
    }
}

/// The name under which the runtime runs questions of this kind.
fn tool(kind: Kind) -> &'static str {
    g1::question_method(match kind {
        Kind::Elicit => InputKind::ElicitForm,
        Kind::Sample => InputKind::Sample,
        Kind::ListRoots => InputKind::ListRoots,
    })
}

/// What can be told of a question before it is asked: its form, and whether the handler declared to answer such.
fn check(
    kind: Kind,
    declared: &Declared,
    params: &Map<String, Value>,
) -> Result<RawJson, ErrorObject> {
    let invalid =
        |error: serde_json::Error| ErrorObject::new(INVALID_PARAMS, format!("params: {error}"));
    let value = Value::Object(params.clone());
    #[allow(deprecated)]
    let input = match kind {
        Kind::Sample => {
            serde_json::from_value::<rmcp::model::CreateMessageRequestParams>(value)
                .map_err(invalid)?;
            InputKind::Sample
        }
        Kind::Elicit | Kind::ListRoots => {
            match serde_json::from_value::<ElicitRequestParams>(value).map_err(invalid)? {
                ElicitRequestParams::UrlElicitationParams { .. } => InputKind::ElicitUrl,
                _ => InputKind::ElicitForm,
            }
        }
    };
    let params = RawJson::from_serialize(params).map_err(invalid)?;
    match declared.permissions.allow(input, &params) {
        Ok(()) => Ok(params),
        Err(capability) => Err(ErrorObject::new(
            INVALID_PARAMS,
            format!("params: the client does not declare the capability {capability}"),
        )),
    }
}

/// The creation answer of a question that a task of the server asks, tied to that task.
fn related(answer: &[u8], task: &str) -> Option<Vec<u8>> {
    let Ok(envelope::Message::Result { id, result }) = envelope::Message::parse(answer) else {
        return None;
    };
    let mut result = RawObject::parse(result)?;
    let mut meta = result.object("_meta");
    meta.set(RELATED_TASK, &json!({ "taskId": task }));
    let meta = serde_json::value::to_raw_value(&meta).ok()?;
    result.set("_meta", &meta);
    Some(envelope::result(id, &result))
}

/// The body of a hosted task: asks the handler.
async fn ask(
    connection: &Weak<Connection>,
    kind: Kind,
    cx: TaskContext,
    params: &RawJson,
) -> Result<RawJson, TaskError> {
    let closed = || TaskError::internal("the client is closed");
    let connection = connection.upgrade().ok_or_else(closed)?;
    // A server may ask as soon as the handshake is over for it.
    let peer = tokio::select! {
        peer = connection.peer.wait() => peer.clone(),
        () = connection.stop.cancelled() => return Err(closed()),
    };
    let answerer = connection.answerer.clone();
    drop(connection);
    let meta = cx.request().meta.as_ref();
    let question = Question {
        kind,
        params: params.parse()?,
        meta: meta.and_then(|meta| meta.parse().ok()).unwrap_or_default(),
        // The result is tied to the hosted task, when it is fetched.
        related: None,
    };
    let id = RequestId::String(cx.task_id().as_str().into());
    let mut context = RequestContext::new(id, peer);
    context.ct = cx.cancellation_token();
    match answerer.answer(question, context).await {
        Answer::Result(result) => Ok(RawJson::from_serialize(&result)?),
        Answer::Error(error) => Err(error.into()),
    }
}

impl Connection {
    /// Takes a request about a task that is hosted here, or is to be; `false` leaves it to others.
    pub(super) fn hosted(
        self: &Arc<Self>,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
    ) -> bool {
        let Some(hosting) = self.hosting.get() else {
            return false;
        };
        let current = self.declares(|server| server.version == g1::VERSION);
        let Some(declared) = hosting.declared().filter(|_| current) else {
            return false;
        };
        let augmented = || {
            let params = params.and_then(RawObject::parse);
            params.is_some_and(|params| params.get("task").is_some_and(|t| t.get() != "null"))
        };
        let kind = match Kind::of(method) {
            Some(Kind::Elicit) if declared.elicit && augmented() => Some(Kind::Elicit),
            Some(Kind::Sample) if declared.sample && augmented() => Some(Kind::Sample),
            None if method.starts_with("tasks/") => None,
            _ => return false,
        };
        let Ok(served) = hosting.serving.clone().try_acquire_owned() else {
            let busy = ErrorObject::new(INTERNAL_ERROR, "too many requests at a time");
            let busy = envelope::error(Some(id), &busy);
            self.link
                .send_best_effort(Outgoing::new(busy, LinkKind::Other));
            return true;
        };
        let (connection, id) = (self.clone(), id.to_owned());
        let (method, params) = (method.to_owned(), params.map(ToOwned::to_owned));
        tokio::spawn(async move {
            let _served = served;
            let stop = connection.stop.clone();
            let serving = connection.serve_hosted(&id, &method, params.as_deref(), kind);
            tokio::select! { () = serving => {}, () = stop.cancelled() => {} }
        });
        true
    }

    async fn serve_hosted(
        self: &Arc<Self>,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
        kind: Option<Kind>,
    ) {
        let Some(hosting) = self.hosting.get() else {
            return;
        };
        let mut created = None;
        let answer = match (kind, hosting.declared()) {
            (Some(kind), Some(declared)) => {
                match hosting.create(kind, declared, id, params).await {
                    Ok((answer, task)) => {
                        created = Some(task);
                        Ok(Some(answer))
                    }
                    Err(error) => Err(error),
                }
            }
            _ => hosting.about(id, method, params).await,
        };
        let answer = answer.unwrap_or_else(|error| Some(envelope::error(Some(id), &error)));
        if let Some(answer) = answer {
            self.deliver(answer.into()).await;
        }
        if let Some(task) = created {
            // Only now does the server know what a status would be of.
            hosting.teller.begin(&hosting.runtime, &task).await;
        }
    }
}

impl Hosting {
    /// The response to a `tasks/*`; `None` if nobody waits for it any more.
    async fn about(
        &self,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<Option<Vec<u8>>, ErrorObject> {
        if let Err(error) = self.runtime.start_worker().await {
            return Err(ErrorObject::from(&error));
        }
        match method {
            "tasks/get" => {
                let task = g1::task_id(params)?;
                let record = self.runtime.get(&task, &self.access(), None).await;
                let record = record.map_err(receiver::read_error)?;
                Ok(Some(envelope::result(id, &g1::TaskView::of(&record))))
            }
            "tasks/list" => receiver::list(&self.runtime, &self.owner, id, params)
                .await
                .map(Some),
            "tasks/cancel" => receiver::cancel(&self.runtime, &self.owner, id, params)
                .await
                .map(Some),
            "tasks/result" => self.result(id, params).await,
            _ => Err(ErrorObject::new(
                METHOD_NOT_FOUND,
                format!("Method not found: {method}"),
            )),
        }
    }
}

impl Teller {
    /// From here on the server hears of this task.
    async fn begin(&self, runtime: &Runtime, task: &TaskId) {
        let Ok(record) = runtime.get(task, &Access::System, None).await else {
            return;
        };
        if !record.is_terminal() {
            lock(&self.known).insert(task.clone(), record.clone());
            // What was written between the reading and this.
            runtime.refresh(task).await;
        } else {
            self.tell(&record);
        }
    }

    fn tell(&self, record: &TaskRecord) {
        if let Some(connection) = self.connection.upgrade()
            && let Ok(params) = serde_json::to_value(g1::TaskView::of(record))
        {
            connection.notify("notifications/tasks/status", &params);
        }
    }
}

impl Observer for Teller {
    fn changed(&self, record: &Arc<TaskRecord>) {
        let mut known = lock(&self.known);
        let Some(before) = known.get_mut(&record.id) else {
            return;
        };
        if before.revision >= record.revision {
            return;
        }
        let tells = record.tells_more_than(before);
        *before = record.clone();
        if !matches!(record.phase(), Phase::Working | Phase::InputRequired) {
            known.remove(&record.id);
        }
        drop(known);
        if tells {
            self.tell(record);
        }
    }

    fn removed(&self, id: &TaskId) {
        lock(&self.known).remove(id);
    }

    fn progress(&self, _: &Arc<TaskRecord>, _: &ProgressEvent) {}

    fn log(&self, _: &Arc<TaskRecord>, _: &LogEvent) {}
}
