//! A server as the requestor: task-augmented requests to a client that hosts tasks
//! (2025-11-25 `basic/utilities/tasks`, Client Capabilities).

use std::sync::{Arc, Weak};

use async_trait::async_trait;
#[allow(deprecated)] // by rmcp, for revisions after 2026-07-28
use rmcp::model::{CreateMessageRequestParams, CreateMessageResult};
use rmcp::{
    model::{ElicitRequestParams, ElicitResult},
    service::{RequestContext, RoleServer},
};
use serde_json::{Value, json, value::RawValue};
use tokio_util::sync::CancellationToken;

use super::{
    Tasks,
    delivery::Delivery,
    plane::Plane,
    requests::{Asked, Asking},
    session::CameIn,
};
use crate::{
    client::{
        CallOptions, Link, Lost, LostKind, Outgoing, RemotePeer, RemotePeerRef, TaskClientError,
        TaskInfo, TaskOutcome, TaskStream, refused,
    },
    runtime::{Requestor, TaskContext, TaskError},
    task::{Generation, InputKind, Permissions, RawJson, TaskId},
    wire::{
        envelope::Message,
        v2025_11_25::{self as g1, ClientTaskSupport, RELATED_TASK},
    },
};

/// The tasks that a client hosts for this server: task-augmented elicitation and sampling, driven as
/// [`TaskClient`](crate::client::TaskClient) drives the tasks of a server.
///
/// Requests go out on the stream of the call they are made in, else on the newest `tasks/result` of the task, else on the
/// general stream of the client's session; where there is none of these, they wait for one, and `tasks/get` tells the
/// task as `input_required`, so that its requestor opens `tasks/result`. They do not survive this
/// process: a body that runs again asks again. What was created keeps running at the client, and
/// [`events`](Self::events) follows it by its id.
///
/// Of the options the task preference is not used: these requests are always tasks. Where an error's text speaks of the
/// server, the client is meant: the driver is the client's; as a [`TaskError`] it says so.
///
/// ```
/// use mcp_tasks::{TaskContext, TaskError, TaskTool, client::{CallOptions, TaskEvent}};
/// use rmcp::model::{ElicitRequestParams, ElicitationSchema};
///
/// let tool = TaskTool::new("approve").run(async |cx: TaskContext, _: serde_json::Value| {
///     let schema = ElicitationSchema::builder().required_bool("approved").build().map_err(TaskError::tool)?;
///     let form = ElicitRequestParams::FormElicitationParams {
///         meta: None,
///         message: "Approve?".into(),
///         requested_schema: schema,
///     };
///     let mut events = cx.client_tasks().create_elicitation_stream(form, CallOptions::new());
///     while let Some(event) = events.next().await {
///         match event {
///             TaskEvent::Status(task) => cx.status(format!("the client's task is {}", task.status)).await?,
///             TaskEvent::Result(answer) => return Ok(format!("{:?}", answer.action)),
///             TaskEvent::Error(error) => return Err(error.into()),
///             _ => {}
///         }
///     }
///     Err(TaskError::internal("the stream ended without a result"))
/// });
/// ```
#[derive(Clone)]
pub struct ClientTasks {
    peer: Result<RemotePeer, &'static str>,
    support: ClientTaskSupport,
    permissions: Permissions,
    /// The task of ours that needs what is asked; none for a plain call.
    related: Option<TaskId>,
}

impl TaskContext {
    /// The tasks that the requestor's client hosts for this server, and can be asked to make.
    pub fn client_tasks(&self) -> ClientTasks {
        let requestor = self.requestor();
        match self.edge::<Plane>() {
            Some(plane) => {
                ClientTasks::new(&plane, &requestor, Some((self.task_id(), self.is_hidden())))
            }
            None => ClientTasks::none("the server is gone"),
        }
    }
}

impl Tasks {
    /// The tasks that a client hosts for this server, for use outside a task's body: `requestor` is of any request of the
    /// client's session.
    pub fn client_tasks(&self, requestor: &Requestor) -> ClientTasks {
        ClientTasks::new(&self.plane, requestor, None)
    }
}

impl Tasks {
    /// The same for a request that the inner server handles, such as a call of a tool of its own. What is asked goes out
    /// on the general stream of the client's session.
    pub fn client_tasks_of(&self, context: &RequestContext<RoleServer>) -> ClientTasks {
        let came_in = context.extensions.get::<CameIn>().cloned();
        #[cfg(feature = "http")]
        let came_in = came_in.or_else(|| {
            let parts = context.extensions.get::<http::request::Parts>()?;
            parts.extensions.get::<CameIn>().cloned()
        });
        match came_in.and_then(|CameIn(key)| self.plane.sessions.get(&key)) {
            Some(session) => self.client_tasks(&session.requestor()),
            None => ClientTasks::none("its request came without a session"),
        }
    }
}

impl ClientTasks {
    fn none(why: &'static str) -> Self {
        Self {
            peer: Err(why),
            support: ClientTaskSupport::default(),
            permissions: Permissions::default(),
            related: None,
        }
    }

    fn new(plane: &Plane, requestor: &Requestor, body: Option<(&TaskId, bool)>) -> Self {
        if requestor.generation != Generation::V2025_11_25 {
            return Self::none("its session is not of protocol 2025-11-25");
        }
        let Some(session) = requestor.session.clone() else {
            return Self::none("its request came without a session");
        };
        let delivery = &plane.delivery;
        let support = ClientTaskSupport::of(requestor.capabilities.as_ref());
        let known = delivery.sessions.get(&session);
        let ended = known.map_or_else(CancellationToken::new, |session| session.ended.clone());
        let link = |me: RemotePeerRef| -> Box<dyn Link> {
            let asking: Arc<dyn Asking> = Arc::new(Peer(me));
            delivery.requests.listen(&session, asking.clone());
            Box::new(SessionLink {
                delivery: Arc::downgrade(delivery),
                session: session.clone(),
                task: body.map(|(task, _)| task.clone()),
                asking,
            })
        };
        Self {
            peer: Ok(RemotePeer::new(link, support.list, support.cancel, ended)),
            support,
            permissions: requestor.permissions(),
            related: body
                .filter(|(_, hidden)| !hidden)
                .map(|(task, _)| task.clone()),
        }
    }

    /// Whether the client hosts tasks for `elicitation/create`.
    pub fn supports_elicitation(&self) -> bool {
        self.peer.is_ok() && self.support.elicit
    }

    /// Whether the client hosts tasks for `sampling/createMessage`.
    pub fn supports_sampling(&self) -> bool {
        self.peer.is_ok() && self.support.sample
    }

    /// Asks for an elicitation as a task; the task that was made.
    ///
    /// # Errors
    /// `TasksUnsupported` if the client does not declare `tasks.requests.elicitation.create` or what the question
    /// needs, `Protocol` if it answers with the result instead (the stream accepts that), `Rpc` if it refuses,
    /// `TransportLost` if the request may have reached it: it is never sent again.
    pub async fn create_elicitation_task(
        &self,
        params: ElicitRequestParams,
        options: CallOptions,
    ) -> Result<TaskInfo, TaskClientError> {
        let (peer, params) = self.elicitation(&params, &options)?;
        peer.create::<ElicitResult>(ELICIT, params, &options).await
    }

    /// Asks for an elicitation as a task and tells what happens; the last event is the answer or an error.
    pub fn create_elicitation_stream(
        &self,
        params: ElicitRequestParams,
        options: CallOptions,
    ) -> TaskStream<ElicitResult> {
        match self.elicitation(&params, &options) {
            Ok((peer, params)) => peer.stream(ELICIT, params, options),
            Err(error) => refused(error),
        }
    }

    /// Asks for a sampling as a task; the task that was made.
    ///
    /// # Errors
    /// As [`create_elicitation_task`](Self::create_elicitation_task), with `tasks.requests.sampling.createMessage`.
    #[allow(deprecated)]
    pub async fn create_message_task(
        &self,
        params: CreateMessageRequestParams,
        options: CallOptions,
    ) -> Result<TaskInfo, TaskClientError> {
        let (peer, params) = self.message(&params, &options)?;
        peer.create::<CreateMessageResult>(SAMPLE, params, &options)
            .await
    }

    /// Asks for a sampling as a task and tells what happens; the last event is the message or an error.
    #[allow(deprecated)]
    pub fn create_message_stream(
        &self,
        params: CreateMessageRequestParams,
        options: CallOptions,
    ) -> TaskStream<CreateMessageResult> {
        match self.message(&params, &options) {
            Ok((peer, params)) => peer.stream(SAMPLE, params, options),
            Err(error) => refused(error),
        }
    }

    /// A task as the client tells it (`tasks/get`).
    ///
    /// # Errors
    /// `Rpc` (-32602) if the client does not know it, else what failed on the way.
    pub async fn get(&self, task_id: &str) -> Result<TaskInfo, TaskClientError> {
        self.peer()?.get(task_id).await
    }

    /// Follows a task to its end and gives its result: an `ElicitResult` or a `CreateMessageResult`.
    ///
    /// # Errors
    /// `Cancelled`, `Expired`, `Rpc` (what a failed task gave), or what failed on the way.
    pub async fn result<R: TaskOutcome>(&self, task_id: &str) -> Result<R, TaskClientError> {
        self.events(task_id, CallOptions::new()).result().await
    }

    /// Follows a task to its end.
    pub fn events<R: TaskOutcome>(&self, task_id: &str, options: CallOptions) -> TaskStream<R> {
        match self.peer() {
            Ok(peer) => peer.events(task_id, options),
            Err(error) => refused(error),
        }
    }

    /// All tasks that the client lists for this server (`tasks/list`, every page).
    ///
    /// # Errors
    /// `TasksUnsupported` if the client does not declare `tasks.list`, `Protocol` for pages that never end.
    pub async fn list(&self) -> Result<Vec<TaskInfo>, TaskClientError> {
        let peer = self.peer()?;
        if !self.support.list {
            return Err(undeclared("tasks.list"));
        }
        peer.list().await
    }

    /// Cancels a task (`tasks/cancel`). If it has ended already, how it ended is returned: see its status.
    ///
    /// # Errors
    /// `TasksUnsupported` if the client does not declare `tasks.cancel`, `Rpc`, or what failed on the way.
    pub async fn cancel(&self, task_id: &str) -> Result<TaskInfo, TaskClientError> {
        let peer = self.peer()?;
        if !self.support.cancel {
            return Err(undeclared("tasks.cancel"));
        }
        peer.cancel(task_id).await
    }

    fn peer(&self) -> Result<&RemotePeer, TaskClientError> {
        match &self.peer {
            Ok(peer) if self.support.any() => Ok(peer),
            Ok(_) => Err(unsupported("it does not declare the capability tasks")),
            Err(why) => Err(unsupported(why)),
        }
    }

    fn elicitation(
        &self,
        params: &ElicitRequestParams,
        options: &CallOptions,
    ) -> Result<(&RemotePeer, Value), TaskClientError> {
        let kind = match params {
            ElicitRequestParams::UrlElicitationParams { .. } => InputKind::ElicitUrl,
            _ => InputKind::ElicitForm,
        };
        let peer = self.peer()?;
        if !self.support.elicit {
            return Err(undeclared("tasks.requests.elicitation.create"));
        }
        Ok((peer, self.params(kind, params, options)?))
    }

    #[allow(deprecated)]
    fn message(
        &self,
        params: &CreateMessageRequestParams,
        options: &CallOptions,
    ) -> Result<(&RemotePeer, Value), TaskClientError> {
        let peer = self.peer()?;
        if !self.support.sample {
            return Err(undeclared("tasks.requests.sampling.createMessage"));
        }
        Ok((peer, self.params(InputKind::Sample, params, options)?))
    }

    fn params(
        &self,
        kind: InputKind,
        params: &impl serde::Serialize,
        options: &CallOptions,
    ) -> Result<Value, TaskClientError> {
        let config = |error: serde_json::Error| {
            TaskClientError::Config(format!("the request has no JSON form: {error}"))
        };
        let raw = RawJson::from_serialize(params).map_err(config)?;
        self.permissions.allow(kind, &raw).map_err(undeclared)?;
        let mut params: Value = raw.parse().map_err(config)?;
        params["task"] = options.task_member();
        if let Some(task) = &self.related {
            if !params["_meta"].is_object() {
                params["_meta"] = json!({});
            }
            params["_meta"][RELATED_TASK] = json!({ "taskId": task });
        }
        Ok(params)
    }
}

const ELICIT: &str = g1::question_method(InputKind::ElicitForm);
const SAMPLE: &str = g1::question_method(InputKind::Sample);

fn unsupported(why: &str) -> TaskClientError {
    TaskClientError::TasksUnsupported(format!("the client cannot be asked: {why}"))
}

fn undeclared(capability: &str) -> TaskClientError {
    unsupported(&format!("it does not declare the capability {capability}"))
}

impl std::fmt::Debug for ClientTasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientTasks")
            .field("support", &self.support)
            .finish_non_exhaustive()
    }
}

/// What a body that asked its client in vain fails with.
impl From<TaskClientError> for TaskError {
    fn from(error: TaskClientError) -> Self {
        Self::internal(match error {
            TaskClientError::Rpc(error) => return error.into(),
            TaskClientError::Cancelled { task_id, .. } => {
                format!("the client's task {task_id} was cancelled")
            }
            TaskClientError::Expired { task_id } => {
                format!("the client's task {task_id} no longer exists: its time to live has passed")
            }
            TaskClientError::TransportLost { why, .. } => {
                format!("the connection to the client was lost: {why}")
            }
            TaskClientError::Protocol(what) => format!("the client broke the protocol: {what}"),
            TaskClientError::TasksUnsupported(why) => why,
            other => other.to_string(),
        })
    }
}

/// The driver's connection, as the one who asks.
struct Peer(RemotePeerRef);

impl Asking for Peer {
    fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    fn answered(&self, message: &Message<'_>) {
        self.0.respond(message);
    }

    fn lost(&self, id: &str, why: &str) {
        self.0.lost(id, why);
    }

    fn told(&self, method: &str, params: Option<&RawValue>) -> bool {
        self.0.notified(method, params)
    }
}

/// The streams of one session, as the driver's link.
struct SessionLink {
    delivery: Weak<Delivery>,
    session: Arc<str>,
    task: Option<TaskId>,
    asking: Arc<dyn Asking>,
}

#[async_trait]
impl Link for SessionLink {
    async fn send(&self, message: Outgoing) -> Result<(), Lost> {
        let Some(delivery) = self.delivery.upgrade() else {
            return Err(Lost::new(LostKind::Closed, false, "the server is gone"));
        };
        let Some(id) = message.kind.id().cloned() else {
            self.send_best_effort(message);
            return Ok(());
        };
        let method = Message::parse(&message.bytes);
        let repeatable = method
            .ok()
            .is_some_and(|message| message.method().is_some_and(|m| m.starts_with("tasks/")));
        let asked = Asked {
            asking: self.asking.clone(),
            session: self.session.clone(),
            task: self.task.clone(),
            message: message.bytes.into(),
            repeatable,
        };
        delivery.requests.add(id.clone(), asked);
        delivery.send_request(&id, &self.session, self.task.as_ref());
        Ok(())
    }

    fn send_best_effort(&self, message: Outgoing) {
        if let Some(delivery) = self.delivery.upgrade() {
            delivery.tell(&self.session, self.task.as_ref(), message.bytes.into());
        }
    }

    fn abort(&self, id: &str) {
        if let Some(delivery) = self.delivery.upgrade() {
            delivery.requests.remove(id);
        }
    }

    async fn finished(&self) {}
}
