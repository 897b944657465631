//! `tools/call` of a task tool: a handle, a result, or questions (2026-07-28 `basic/patterns/mrtr`; ext-tasks, Task
//! Creation).
//!
//! A client that declares the extension gets a handle. One that does not gets the result of a hidden task; when that
//! asks, the answer is its questions with a sealed state, and the retry that brings the state back goes on with the
//! same hidden task. The stage before a task (`.before_task`) asks either client that way.

use std::{sync::Arc, time::Duration};

use serde_json::value::RawValue;

use super::{
    Caller, Incoming,
    state::{self, Binding, State},
};
use crate::{
    runtime::{Call, CreateError, Requestor, TaskError, TaskSupport, ToolEntry},
    server::{
        call::lost,
        delivery::Once,
        outlet::Outlet,
        plane::{Pending, Plane, Verdict, shut_down_error},
    },
    store::{Access, Document},
    task::{ErrorObject, Outcome, Owner, Phase, RawJson, State as TaskState, TaskId, TaskRecord},
    wire::{
        envelope::{self, string_of},
        field::{self, invalid},
        v2026_07_28 as g2,
    },
};

/// How soon after its first question a body has to ask the next for both to be told together.
const TOGETHER: Duration = Duration::from_millis(1);
/// How long the outcome of a call that asked stays there for a retry whose answer was lost.
const KEPT: Duration = Duration::from_secs(60);

/// How long a request may take to make a task that others wait for: after that it is taken to be gone.
const CLAIMED: Duration = Duration::from_secs(30);
/// How often they look.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How a note begins that says that a task is being made. No task id does.
const CLAIM: &str = "?";

pub(super) async fn call(
    plane: &Arc<Plane>,
    request: &Incoming<'_>,
    caller: &Caller<'_>,
    tool: &Arc<ToolEntry>,
) -> Verdict {
    let Some(call) = g2::tool_call(request.params) else {
        return Verdict::Pass;
    };
    if tool.support == TaskSupport::Required && !caller.declares_tasks {
        return Plane::refuse(request.id, &g2::tasks_undeclared());
    }
    let as_task = caller.declares_tasks && tool.support != TaskSupport::Forbidden;
    let wanted = match wanted(request, caller, tool, call.arguments) {
        Ok(wanted) => wanted,
        Err(error) if as_task => return Plane::refuse(request.id, &error),
        Err(error) => {
            let reply = g2::refused_plainly(request.id, &error.message, plane.server_meta());
            return Verdict::Reply(reply);
        }
    };
    // A state that is brought back goes on with what is there, whatever is declared now.
    if as_task && tool.before.is_none() && call.request_state.is_none() {
        return match create(plane, wanted).await {
            Ok(record) => Verdict::Reply(g2::created(request.id, &record, plane.server_meta())),
            Err(error) => Plane::refuse(request.id, &error.into_rpc()),
        };
    }
    let binding = Binding::new(request.owner, &tool.name, wanted.arguments.as_ref());
    let again = match again(plane, caller, &call, &binding).await {
        Ok(again) => again,
        Err(error) => return Plane::refuse(request.id, &error),
    };
    // There is no session: nothing else goes on this stream.
    let (outlet, messages, own_stream) = request.carrier.outlet(&g2::VERSION.into());
    let round = Round {
        plane: plane.clone(),
        id: request.id.to_owned(),
        requestor: caller.requestor(),
        once: Once {
            progress_token: wanted.progress_token.clone(),
            logs: caller.log_level(),
        },
        outlet,
        own_stream,
        staged: tool.before.is_some(),
        own_ids: tool.makes_own_ids(),
        as_task,
        binding,
        kept: again.is_some(),
        hidden: None,
    };
    let pending = request.pipe.map(|pipe| pipe.begin(request.id.get()));
    let runtime = plane.runtime.clone();
    let id = request.id.to_owned();
    let answer = async move {
        tokio::select! {
            answered = round.go(wanted, again) => Some(answered),
            () = async {
                match &pending {
                    Some(pending) => pending.token.cancelled().await,
                    None => std::future::pending().await,
                }
            } => None,
            () = runtime.stopped() => Some(envelope::error(Some(&id), &shut_down_error())),
        }
    };
    Verdict::Pending(Pending {
        messages,
        answer: Box::pin(answer),
        is_call: true,
        rejoin: None,
    })
}

fn wanted(
    request: &Incoming<'_>,
    caller: &Caller<'_>,
    tool: &ToolEntry,
    arguments: Option<&RawValue>,
) -> Result<Call, ErrorObject> {
    let arguments = field::optional_object("params.arguments", arguments)?;
    let mut wanted = Call::new(tool.name.clone(), caller.requestor());
    if *caller.owner == Owner::Bearer {
        wanted.quota_key = None;
    }
    wanted.extensions = request.carrier.extensions(tool, None);
    wanted.arguments = arguments.map(RawJson::from_raw);
    wanted.meta = caller.meta.raw.map(RawJson::from_raw);
    let token = caller.meta.progress_token;
    wanted.progress_token = token
        .filter(|token| token.get() != "null")
        .map(RawJson::from_raw);
    Ok(wanted)
}

/// The state that a retry brings back, with the answers it brings given to the hidden task.
async fn again(
    plane: &Arc<Plane>,
    caller: &Caller<'_>,
    call: &g2::ToolCall<'_>,
    binding: &Binding,
) -> Result<Option<State>, ErrorObject> {
    let Some(sealed) = call.request_state else {
        return Ok(None);
    };
    let sealed = string_of(sealed)
        .ok_or_else(|| invalid("params.requestState", "a string", Some(sealed)))?;
    let responses = call
        .input_responses
        .map(|raw| g2::responses(Some(raw)))
        .transpose()?;
    let state = plane
        .state_key
        .open(&plane.runtime, &sealed, binding)
        .await?;
    if let Err(error) = plane.runtime.start_worker().await {
        return Err(ErrorObject::from(&error));
    }
    let access = caller.access();
    let record = plane.runtime.hidden(&state.task, &access).await;
    // It has ended and was kept for long enough.
    let record = record.ok_or_else(state::bad_state)?;
    if let Some(responses) = &responses {
        plane.take_responses(&record, &access, responses).await?;
    }
    Ok(Some(state))
}

/// Creates a task whose handle goes to the requestor. If the request is dropped before that, the task is cancelled:
/// nobody knows it.
async fn create(plane: &Arc<Plane>, wanted: Call) -> Result<Arc<TaskRecord>, CreateError> {
    struct Unknown<'a> {
        plane: &'a Arc<Plane>,
        creation: Option<tokio::task::JoinHandle<Result<Arc<TaskRecord>, CreateError>>>,
    }
    impl Drop for Unknown<'_> {
        fn drop(&mut self) {
            let (Some(creation), Ok(handle)) =
                (self.creation.take(), tokio::runtime::Handle::try_current())
            else {
                return;
            };
            let runtime = self.plane.runtime.clone();
            handle.spawn(async move {
                if let Ok(Ok(record)) = creation.await {
                    let why = "The request was dropped before its answer.";
                    let _ = runtime.cancel(&record.id, &Access::System, why).await;
                }
            });
        }
    }
    let runtime = plane.runtime.clone();
    let creation = tokio::spawn(async move { runtime.create(wanted).await });
    let mut unknown = Unknown {
        plane,
        creation: Some(creation),
    };
    let created = match &mut unknown.creation {
        Some(creation) => creation.await,
        None => return Err(CreateError::ShuttingDown),
    };
    unknown.creation = None;
    created.unwrap_or_else(|_| {
        let error = ErrorObject::internal("the task could not be created");
        Err(CreateError::Handler(error))
    })
}

/// One round of a call: from its request to a result, a handle or questions.
struct Round {
    plane: Arc<Plane>,
    id: Box<RawValue>,
    requestor: Requestor,
    once: Once,
    outlet: Arc<Outlet>,
    own_stream: bool,
    /// The tool has a stage before its task.
    staged: bool,
    /// The tool may give its task an id of its own.
    own_ids: bool,
    as_task: bool,
    binding: Binding,
    /// A state for it is out, and may come again.
    kept: bool,
    /// The hidden task that is running for this request: cancelled if the request is dropped.
    hidden: Option<TaskId>,
}

impl Drop for Round {
    fn drop(&mut self) {
        if self.own_stream {
            self.plane.delivery.closed(&self.outlet);
        }
        let (Some(task), Ok(handle)) = (self.hidden.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        if self.plane.runtime.is_shutting_down() {
            return;
        }
        let runtime = self.plane.runtime.clone();
        handle.spawn(async move {
            let why = "The call was given up.";
            let _ = runtime.cancel(&task, &Access::System, why).await;
            runtime.remove(&task).await;
        });
    }
}

/// What a hidden task that has been waited for wants.
enum Refused {
    Create(CreateError),
    Rpc(ErrorObject),
}

impl From<ErrorObject> for Refused {
    fn from(error: ErrorObject) -> Self {
        Self::Rpc(error)
    }
}

impl Round {
    async fn go(mut self, wanted: Call, again: Option<State>) -> Vec<u8> {
        let answered = self.answer(wanted, again).await;
        let server = self.plane.server_meta();
        match answered {
            Ok(reply) => reply,
            Err(Refused::Create(CreateError::Arguments(why))) if !self.as_task => {
                g2::refused_plainly(&self.id, &why, server)
            }
            Err(Refused::Create(error)) => envelope::error(Some(&self.id), &error.into_rpc()),
            Err(Refused::Rpc(error)) => envelope::error(Some(&self.id), &error),
        }
    }

    async fn answer(&mut self, wanted: Call, again: Option<State>) -> Result<Vec<u8>, Refused> {
        let (mut task, mut next) = match again {
            Some(state) => {
                self.rejoin(&state.task);
                (state.task, state.next)
            }
            None => {
                let stage = Call {
                    before: self.staged,
                    ..wanted.clone()
                };
                let next = self.staged.then(TaskId::random);
                (self.start(stage, TaskId::random()).await?, next)
            }
        };
        loop {
            let record = self.turn(&task).await?;
            if record.phase() == Phase::InputRequired {
                return self.ask(&record, State { task, next }).await;
            }
            let arguments = match &record.state {
                TaskState::Finished(Outcome::Result {
                    json,
                    is_error: false,
                }) => next.is_some().then(|| json.clone()),
                _ => None,
            };
            self.done(&record.id).await;
            let (Some(arguments), Some(id)) = (arguments, next.take()) else {
                let server = self.plane.server_meta();
                return g2::outcome(&self.id, &record, server)
                    .ok_or_else(|| ErrorObject::internal("the call has not ended").into());
            };
            // The stage is over: what it returns are the body's arguments.
            let body = Call {
                arguments: Some(arguments),
                checked: true,
                before: false,
                ..wanted.clone()
            };
            if self.as_task {
                let record = self.make(body, id).await?;
                return Ok(g2::created(&self.id, &record, self.plane.server_meta()));
            }
            task = self.start(body, id).await?;
        }
    }

    /// Waits until the hidden task asks something or has ended.
    async fn turn(&mut self, task: &TaskId) -> Result<Arc<TaskRecord>, ErrorObject> {
        let runtime = &self.plane.runtime;
        let wait = runtime.wait_for_turn(task, &Access::System, &self.requestor);
        let record = wait.await.map_err(lost)?;
        if record.phase() != Phase::InputRequired {
            return Ok(record);
        }
        // One that asks two things at once is answered with both.
        tokio::time::sleep(TOGETHER).await;
        runtime.questions_put(task).await;
        let wait = runtime.wait_for_turn(task, &Access::System, &self.requestor);
        wait.await.map_err(lost)
    }

    /// Answers with the open questions. From here on only the lifetime of the hidden task ends it.
    async fn ask(&mut self, record: &TaskRecord, state: State) -> Result<Vec<u8>, Refused> {
        // The body asked by what the first request declared; this one may declare less. The call can be tried again.
        let permitted = self.requestor.permissions();
        for input in record.open_inputs() {
            let question = &input.question;
            if let Err(missing) = permitted.allow(question.kind, &question.params) {
                self.hidden = None;
                return Err(TaskError::unsupported(missing).into_rpc().into());
            }
        }
        let plane = &self.plane;
        let sealed = plane
            .state_key
            .seal(&plane.runtime, record, &state, &self.binding)
            .await?;
        self.hidden = None;
        let server = plane.server_meta();
        Ok(g2::input_required(&self.id, record, &sealed, server))
    }

    /// Runs a hidden task.
    async fn start(&mut self, call: Call, id: TaskId) -> Result<TaskId, Refused> {
        let plane = self.plane.clone();
        let call = Call {
            hidden: true,
            ..call
        };
        self.hidden = Some(id.clone());
        self.listen(&id, false);
        match self.make(call, id.clone()).await {
            Ok(record) => {
                if record.id != id || record.is_terminal() {
                    plane.delivery.forget(&id);
                }
                self.rejoin(&record.id);
                Ok(record.id.clone())
            }
            Err(error) => {
                self.hidden = None;
                plane.delivery.forget(&id);
                Err(error)
            }
        }
    }

    /// Makes the task `id`, or finds it where this very round has made it before.
    async fn make(&self, call: Call, id: TaskId) -> Result<Arc<TaskRecord>, Refused> {
        let plane = &self.plane;
        if self.kept
            && let Some(made) = self.made_before(&id).await?
        {
            return Ok(made);
        }
        // A handler may give its task an id of its own: then only a note tells whether it was made.
        let noted = self.kept && self.own_ids;
        if noted && let Some(made) = self.claim(&id).await? {
            return Ok(made);
        }
        let hidden = call.hidden;
        let call = Call {
            id: Some(id.clone()),
            ..call
        };
        let created = if hidden {
            plane.runtime.create(call).await
        } else {
            create(plane, call).await
        };
        match created {
            Ok(record) => {
                if noted {
                    let document = Document {
                        body: record.id.as_str().as_bytes().to_vec(),
                        expires_at: record.expires_at(),
                    };
                    let key = made_key(&id);
                    let kept = plane.runtime.store().put_document(&key, document);
                    kept.await.map_err(|error| ErrorObject::from(&error))?;
                }
                Ok(record)
            }
            Err(error) => {
                if noted && let Err(e) = plane.runtime.store().remove_document(&made_key(&id)).await
                {
                    tracing::warn!(error = %e, "a note could not be removed; it will be forgotten");
                }
                match error {
                    CreateError::Id(why) => match self.made_before(&id).await? {
                        Some(made) => Ok(made),
                        None => Err(Refused::Create(CreateError::Id(why))),
                    },
                    error => Err(Refused::Create(error)),
                }
            }
        }
    }

    /// Notes that this request makes the task `id`; or waits for the one that does, and returns what it made.
    async fn claim(&self, id: &TaskId) -> Result<Option<Arc<TaskRecord>>, ErrorObject> {
        let runtime = &self.plane.runtime;
        let patience = u64::try_from(CLAIMED.as_millis()).unwrap_or(u64::MAX);
        let mine = Document {
            body: format!("{CLAIM}{}", uuid::Uuid::new_v4()).into_bytes(),
            expires_at: Some(runtime.clock().now().plus_millis(patience)),
        };
        let key = made_key(id);
        loop {
            let kept = runtime
                .store()
                .put_document_if_absent(&key, mine.clone())
                .await
                .map_err(|error| ErrorObject::from(&error))?;
            if kept.body == mine.body {
                return Ok(None);
            }
            if let Some(made) = self.made_before(id).await? {
                return Ok(Some(made));
            }
            let now = runtime.clock().now();
            if kept.expires_at.is_some_and(|at| at <= now) {
                // Whoever made it is gone, and nothing came of it.
                let removed = runtime.store().remove_document(&key).await;
                removed.map_err(|error| ErrorObject::from(&error))?;
            } else {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
    }

    async fn made_before(&self, id: &TaskId) -> Result<Option<Arc<TaskRecord>>, ErrorObject> {
        let store = self.plane.runtime.store();
        let access = Access::Owner(self.requestor.owner.clone());
        let found = async {
            if let Some(record) = store.get(id.as_str(), &access).await? {
                return Ok(Some(record));
            }
            let Some(document) = store.get_document(&made_key(id)).await? else {
                return Ok(None);
            };
            let id = String::from_utf8_lossy(&document.body).into_owned();
            if id.starts_with(CLAIM) {
                return Ok(None);
            }
            store.get(&id, &access).await
        };
        let found: Result<_, crate::store::StoreError> = found.await;
        found.map_err(|error| ErrorObject::from(&error))
    }

    /// Hears from a hidden task that was there before.
    fn rejoin(&mut self, id: &TaskId) {
        self.hidden = Some(id.clone());
        self.listen(id, true);
    }

    fn listen(&self, id: &TaskId, again: bool) {
        let (plane, outlet) = (&self.plane, self.outlet.clone());
        let once = self.once.clone();
        plane
            .delivery
            .calling_once(&plane.runtime, id, outlet, once, again);
    }

    /// A hidden task has ended. Where a state for it is out, that may come again.
    async fn done(&mut self, id: &TaskId) {
        self.hidden = None;
        let runtime = self.plane.runtime.clone();
        if !self.kept {
            return runtime.remove(id).await;
        }
        let (id, kept) = (id.clone(), KEPT.max(runtime.limits().min_result_retention));
        // Not held: where the server has gone meanwhile, its lifetime ends it.
        let plane = Arc::downgrade(&self.plane);
        tokio::spawn(async move {
            tokio::time::sleep(kept).await;
            if let Some(plane) = plane.upgrade() {
                plane.runtime.remove(&id).await;
            }
        });
    }
}

fn made_key(id: &TaskId) -> String {
    format!("request-state/{id}")
}
