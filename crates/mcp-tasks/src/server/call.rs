//! `tools/call`: as a task, or waited for behind an ordinary call (the shim).

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use serde_json::{json, value::RawValue};

use super::{
    outlet::Outlet,
    plane::{Carrier, Pending, Plane, Verdict, shut_down_error},
    session::Session,
};
use crate::{
    receiver::read_error,
    runtime::{Call, CreateError, ReadError, TaskSupport, ToolEntry},
    store::Access,
    task::{ErrorObject, Generation, Outcome, RawJson, State, TaskId, TaskRecord},
    wire::{
        envelope,
        error::METHOD_NOT_FOUND,
        field,
        v2025_11_25::{self as g1, TaskAsk, ToolCall},
    },
};

/// What rejoins a shimmed call whose stream was dropped: 2025-11-25 `basic/transports`, Resumability.
#[derive(Debug, Clone)]
pub(crate) struct Rejoin {
    pub(crate) task: TaskId,
    /// The request's id, as it came.
    pub(crate) request: Box<RawValue>,
}

pub(crate) async fn call(
    plane: &Arc<Plane>,
    session: &Arc<Session>,
    id: &RawValue,
    params: Option<&RawValue>,
    carrier: &Carrier<'_>,
) -> Verdict {
    let Some(call) = g1::tool_call(params) else {
        return Verdict::Pass;
    };
    let current = session.generation() == Generation::V2025_11_25;
    let refuse = |error: ErrorObject| Verdict::Reply(envelope::error(Some(id), &error));
    plane.augmented.resolve(&plane.runtime).await;
    let Some(tool) = plane.runtime.tool(&call.name) else {
        if current && call.task.is_some() && plane.forbids_task(&call.name) {
            return refuse(not_as_task(&call.name));
        }
        return Verdict::Pass;
    };
    let task = call.task.filter(|_| current);
    match (tool.support, task) {
        (TaskSupport::Forbidden, Some(_)) => refuse(not_as_task(&call.name)),
        (TaskSupport::Required, None) if current => refuse(ErrorObject::new(
            METHOD_NOT_FOUND,
            format!(
                "Tool {:?} requires task augmentation (taskSupport: 'required')",
                call.name
            ),
        )),
        (_, Some(task)) => {
            let asked = match TaskAsk::parse(task) {
                Ok(asked) => asked,
                Err(error) => return refuse(error),
            };
            let wanted = match wanted(session, &tool, &call, carrier) {
                Ok(wanted) => Call {
                    ttl: asked.ttl,
                    ..wanted
                },
                Err(error) => return refuse(error),
            };
            if tool.before.is_some() {
                return stage_then_task(plane, session, id, wanted, carrier);
            }
            match create(plane, session, &tool, wanted).await {
                Ok(record) => Verdict::Reply(g1::created(id, &record)),
                Err(error) => refuse(error.into_rpc()),
            }
        }
        (_, None) => match wanted(session, &tool, &call, carrier) {
            Ok(wanted) => shim(plane, session, id, &tool, wanted, carrier).await,
            Err(error) => Verdict::Reply(plain_refusal(id, &error.message)),
        },
    }
}

fn not_as_task(name: &str) -> ErrorObject {
    ErrorObject::new(
        METHOD_NOT_FOUND,
        format!("Tool {name:?} does not support task augmentation"),
    )
}

/// The refusal of a plain call, in the tool's own terms: models read those.
fn plain_refusal(id: &RawValue, why: &str) -> Vec<u8> {
    envelope::result(
        id,
        &json!({"content": [{"type": "text", "text": why}], "isError": true}),
    )
}

fn wanted(
    session: &Session,
    tool: &ToolEntry,
    call: &ToolCall<'_>,
    carrier: &Carrier<'_>,
) -> Result<Call, ErrorObject> {
    #[derive(serde::Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, default, rename = "progressToken")]
        progress_token: Option<&'a RawValue>,
    }
    let arguments = field::optional_object("params.arguments", call.arguments)?;
    let meta = field::optional_object("params._meta", call.meta)?;
    let token = meta.and_then(|meta| {
        serde_json::from_str::<Meta<'_>>(meta.get())
            .ok()?
            .progress_token
    });
    let mut wanted = Call::new(tool.name.clone(), session.requestor());
    wanted.quota_key = session.quota_key();
    wanted.extensions = carrier.extensions(tool, Some(session));
    wanted.arguments = arguments.map(RawJson::from_raw);
    wanted.meta = meta.map(RawJson::from_raw);
    wanted.progress_token = token
        .filter(|token| token.get() != "null")
        .map(RawJson::from_raw);
    Ok(wanted)
}

/// Creates a task with its route to this session in place, so that nothing it says is lost.
async fn create(
    plane: &Arc<Plane>,
    session: &Arc<Session>,
    tool: &ToolEntry,
    mut wanted: Call,
) -> Result<Arc<TaskRecord>, CreateError> {
    let id = TaskId::random();
    let poll = tool
        .options
        .poll_interval
        .unwrap_or(plane.runtime.limits().poll_interval);
    plane.delivery.creating(&plane.runtime, &id, session, poll);
    let route = Unborn(plane, &id);
    wanted.id = Some(id.clone());
    let record = plane.runtime.create(wanted).await?;
    if record.id == id && !record.is_terminal() {
        route.keep();
    } else if !record.is_terminal() {
        // A `.create` handler may have proposed another id; a short body may have ended.
        let poll = Duration::from_millis(record.poll_interval_ms);
        plane
            .delivery
            .creating(&plane.runtime, &record.id, session, poll);
        plane.runtime.refresh(&record.id).await;
    }
    Ok(record)
}

/// The route of a task that is being made: forgotten if none came of it, or if the request is dropped half-way. The
/// task is made all the same then, but nobody was told its id.
struct Unborn<'a>(&'a Plane, &'a TaskId);

impl Unborn<'_> {
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unborn<'_> {
    fn drop(&mut self) {
        self.0.delivery.forget(self.1);
    }
}

/// Runs the stage before the task exists, on the call's own stream, and then creates the task.
fn stage_then_task(
    plane: &Arc<Plane>,
    session: &Arc<Session>,
    id: &RawValue,
    wanted: Call,
    carrier: &Carrier<'_>,
) -> Verdict {
    let (outlet, messages, own_stream) = carrier.outlet(&session.key);
    let stage = Call {
        before: true,
        hidden: true,
        ttl: None,
        ..wanted.clone()
    };
    let (plane, session, id) = (plane.clone(), session.clone(), id.to_owned());
    let pending = session.begin(id.get());
    let answer = async move {
        let run = Hidden {
            plane: &plane,
            session: &session,
            outlet,
            own_stream,
        };
        let ended = tokio::select! {
            ended = run.to_end(stage) => ended,
            () = pending.token.cancelled() => return None,
            () = plane.runtime.stopped() => {
                return Some(envelope::error(Some(&id), &shut_down_error()));
            }
        };
        let refuse = |error: &ErrorObject| Some(envelope::error(Some(&id), error));
        let record = match ended {
            Ok(record) => record,
            Err(error) => return refuse(&error.rpc()),
        };
        plane.runtime.remove(&record.id).await;
        let arguments = match &record.state {
            State::Finished(Outcome::Result {
                json,
                is_error: false,
            }) => json.clone(),
            // A stage that fails in the tool's own terms is a failed call: there is no task to carry its result.
            _ => return g1::outcome(&id, &record, false),
        };
        let Some(tool) = plane.runtime.tool(&wanted.tool) else {
            return refuse(&CreateError::UnknownTool(wanted.tool.to_string()).into_rpc());
        };
        let wanted = Call {
            arguments: Some(arguments),
            checked: true,
            ..wanted
        };
        match create(&plane, &session, &tool, wanted).await {
            Ok(record) => Some(g1::created(&id, &record)),
            Err(error) => refuse(&error.into_rpc()),
        }
    };
    Verdict::Pending(Pending {
        messages,
        answer: Box::pin(answer),
        is_call: true,
        rejoin: None,
    })
}

/// Runs the body as a hidden task and answers with its outcome. The stream going away cancels nothing;
/// `notifications/cancelled` for the call does.
async fn shim(
    plane: &Arc<Plane>,
    session: &Arc<Session>,
    id: &RawValue,
    tool: &Arc<ToolEntry>,
    wanted: Call,
    carrier: &Carrier<'_>,
) -> Verdict {
    let (outlet, messages, own_stream) = carrier.outlet(&session.key);
    let task = TaskId::random();
    let mut wanted = Call {
        hidden: true,
        id: Some(task.clone()),
        ..wanted
    };
    let staged = tool.before.is_some();
    wanted.before = staged;
    plane
        .delivery
        .calling(&plane.runtime, &task, session, outlet.clone());
    let route = Unborn(plane, &task);
    let record = match plane.runtime.create(wanted.clone()).await {
        Ok(record) => record,
        Err(error) => {
            let reply = match error {
                CreateError::Arguments(why) => plain_refusal(id, &why),
                error => envelope::error(Some(id), &error.into_rpc()),
            };
            return Verdict::Reply(reply);
        }
    };
    if record.id == task {
        route.keep();
    } else {
        drop(route);
        plane
            .delivery
            .calling(&plane.runtime, &record.id, session, outlet.clone());
        plane.runtime.refresh(&record.id).await;
    }
    if staged {
        return shim_staged(
            plane, session, id, wanted, record, outlet, messages, own_stream,
        );
    }
    let rejoin = Rejoin {
        task: record.id.clone(),
        request: id.to_owned(),
    };
    let answer = follow(plane, session, &rejoin, outlet, own_stream);
    Verdict::Pending(Pending {
        messages,
        answer,
        is_call: true,
        rejoin: Some(rejoin),
    })
}

/// Follows a hidden task to its end and answers the call with its outcome.
pub(crate) fn follow(
    plane: &Arc<Plane>,
    session: &Arc<Session>,
    rejoin: &Rejoin,
    outlet: Arc<Outlet>,
    own_stream: bool,
) -> futures_util::future::BoxFuture<'static, Option<Vec<u8>>> {
    let (plane, id, task) = (plane.clone(), rejoin.request.clone(), rejoin.task.clone());
    let pending = session.begin(id.get());
    let guard = CallStream {
        plane: plane.clone(),
        outlet,
        own_stream,
    };
    Box::pin(async move {
        let ended = tokio::select! {
            biased;
            ended = plane.runtime.wait(&task, &Access::System, None) => ended,
            () = pending.token.cancelled() => {
                let _ = plane.runtime.cancel(&task, &Access::System, "The call was cancelled.").await;
                plane.runtime.remove(&task).await;
                return None;
            }
            () = plane.runtime.stopped() => {
                return Some(envelope::error(Some(&id), &shut_down_error()));
            }
        };
        drop(guard);
        Some(match ended {
            Ok(record) => {
                let reply = g1::outcome(&id, &record, false);
                reply.unwrap_or_else(|| {
                    envelope::error(Some(&id), &ErrorObject::internal("the call has not ended"))
                })
            }
            Err(error) => envelope::error(Some(&id), &lost(error)),
        })
    })
}

/// A hidden task that is gone took too long.
pub(super) fn lost(error: ReadError) -> ErrorObject {
    match error {
        ReadError::NotFound => ErrorObject::internal("the call took longer than its task may live"),
        other => read_error(other),
    }
}

/// The stage before, and then the body, behind one plain call.
#[allow(clippy::too_many_arguments)]
fn shim_staged(
    plane: &Arc<Plane>,
    session: &Arc<Session>,
    id: &RawValue,
    wanted: Call,
    stage: Arc<TaskRecord>,
    outlet: Arc<Outlet>,
    messages: Option<tokio::sync::mpsc::Receiver<Vec<u8>>>,
    own_stream: bool,
) -> Verdict {
    let (plane, session, id) = (plane.clone(), session.clone(), id.to_owned());
    let pending = session.begin(id.get());
    let answer = async move {
        let run = Hidden {
            plane: &plane,
            session: &session,
            outlet,
            own_stream,
        };
        let body: OnceLock<TaskId> = OnceLock::new();
        let both = async {
            let before = run.wait(&stage.id).await?;
            plane.runtime.remove(&before.id).await;
            match &before.state {
                State::Finished(Outcome::Result {
                    json,
                    is_error: false,
                }) => {
                    let arguments = Some(json.clone());
                    let record = run
                        .create(Call {
                            arguments,
                            checked: true,
                            before: false,
                            ..wanted
                        })
                        .await?;
                    let task = body.get_or_init(|| record.id.clone());
                    // From here on the stream going away cancels nothing.
                    plane
                        .runtime
                        .wait(task, &Access::System, None)
                        .await
                        .map_err(HiddenError::Read)
                }
                _ => Ok(before),
            }
        };
        let ended = tokio::select! {
            ended = both => ended,
            () = pending.token.cancelled() => {
                if let Some(task) = body.get() {
                    let _ = plane.runtime.cancel(task, &Access::System, "The call was cancelled.").await;
                    plane.runtime.remove(task).await;
                }
                return None;
            }
            () = plane.runtime.stopped() => {
                return Some(envelope::error(Some(&id), &shut_down_error()));
            }
        };
        match ended {
            Ok(record) => {
                plane.runtime.remove(&record.id).await;
                g1::outcome(&id, &record, false)
            }
            Err(HiddenError::Create(CreateError::Arguments(why))) => Some(plain_refusal(&id, &why)),
            Err(error) => Some(envelope::error(Some(&id), &error.rpc())),
        }
    };
    Verdict::Pending(Pending {
        messages,
        answer: Box::pin(answer),
        is_call: true,
        rejoin: None,
    })
}

/// Hidden tasks of one call, on its stream.
struct Hidden<'a> {
    plane: &'a Arc<Plane>,
    session: &'a Arc<Session>,
    outlet: Arc<Outlet>,
    own_stream: bool,
}

enum HiddenError {
    Create(CreateError),
    Read(ReadError),
}

impl HiddenError {
    fn rpc(self) -> ErrorObject {
        match self {
            Self::Create(error) => error.into_rpc(),
            Self::Read(error) => lost(error),
        }
    }
}

impl Hidden<'_> {
    /// Runs one to its end.
    async fn to_end(&self, wanted: Call) -> Result<Arc<TaskRecord>, HiddenError> {
        let record = self.create(wanted).await?;
        self.wait(&record.id).await
    }

    async fn create(&self, mut wanted: Call) -> Result<Arc<TaskRecord>, HiddenError> {
        let task = TaskId::random();
        wanted.hidden = true;
        wanted.id = Some(task.clone());
        let (plane, session) = (self.plane, self.session);
        plane
            .delivery
            .calling(&plane.runtime, &task, session, self.outlet.clone());
        let route = Unborn(plane, &task);
        let record = plane
            .runtime
            .create(wanted)
            .await
            .map_err(HiddenError::Create)?;
        if record.id == task {
            route.keep();
        } else {
            drop(route);
            plane
                .delivery
                .calling(&plane.runtime, &record.id, session, self.outlet.clone());
            plane.runtime.refresh(&record.id).await;
        }
        Ok(record)
    }

    /// Waits for a stage. If the call is given up meanwhile, so is the stage: nobody can come back to it.
    async fn wait(&self, task: &TaskId) -> Result<Arc<TaskRecord>, HiddenError> {
        let abandoned = Abandon {
            plane: self.plane,
            task,
            armed: true,
        };
        let ended = self.plane.runtime.wait(task, &Access::System, None).await;
        abandoned.disarm();
        ended.map_err(HiddenError::Read)
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        if self.own_stream {
            self.plane.delivery.closed(&self.outlet);
        }
    }
}

/// Cancels a hidden task nobody can come back to.
struct Abandon<'a> {
    plane: &'a Arc<Plane>,
    task: &'a TaskId,
    armed: bool,
}

impl Abandon<'_> {
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        let Ok(handle) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if self.armed && !self.plane.runtime.is_shutting_down() {
            let (runtime, task) = (self.plane.runtime.clone(), self.task.clone());
            handle.spawn(async move {
                let _ = runtime
                    .cancel(&task, &Access::System, "The call was given up.")
                    .await;
                runtime.remove(&task).await;
            });
        }
    }
}

/// The stream of a shimmed call, while somebody reads it.
struct CallStream {
    plane: Arc<Plane>,
    outlet: Arc<Outlet>,
    own_stream: bool,
}

impl Drop for CallStream {
    fn drop(&mut self) {
        if self.own_stream {
            self.plane.delivery.closed(&self.outlet);
        }
    }
}
