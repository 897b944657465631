//! Requests of 2026-07-28: each stands for itself and says who sends it and what that client can do.
//!
//! `call` answers `tools/call` with a handle, a result or questions (multi round-trip requests), `state` seals what a
//! retry has to bring back, `listen` is `subscriptions/listen`. What is not about tasks is the inner server's.

mod call;
mod listen;
mod state;

use std::sync::{Arc, OnceLock};

use serde_json::value::RawValue;

pub(crate) use listen::{Subscription, Subscriptions};
pub(crate) use state::StateKey;

use super::{
    plane::{Carrier, Plane, Verdict},
    session::Session,
};
use crate::{
    receiver::read_error,
    runtime::{LogLevel, ReadError, Requestor, ToolEntry},
    store::Access,
    task::{Answer, ErrorObject, Generation, InputKind, Owner, RawJson, TaskRecord},
    wire::{
        envelope::{self, string_of},
        error::{INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CLIENT_CAPABILITY},
        object::RawObject,
        v2026_07_28::{self as g2, RequestMeta, ServerMeta},
    },
};

/// What is known of the inner server without a session of it.
#[derive(Default)]
pub(crate) struct InnerFacts {
    /// Its name and version.
    pub(crate) server_info: OnceLock<RawJson>,
    /// The revisions it speaks.
    pub(crate) versions: OnceLock<Vec<String>>,
}

impl InnerFacts {
    /// What an rmcp handler says of itself.
    pub(crate) fn learn<H: rmcp::ServerHandler>(&self, handler: &H) {
        if let Ok(info) = RawJson::from_serialize(&handler.get_info().server_info) {
            let _ = self.server_info.set(info);
        }
        let versions = handler.supported_protocol_versions();
        let _ = self
            .versions
            .set(versions.iter().map(|v| v.as_str().to_owned()).collect());
    }

    /// The revisions it speaks, as far as that is known.
    pub(crate) fn versions(&self) -> Vec<String> {
        self.versions.get().cloned().unwrap_or_else(|| {
            let legacy = g2::LEGACY_VERSIONS.iter().map(|v| (*v).to_owned());
            legacy.chain([g2::VERSION.to_owned()]).collect()
        })
    }
}

/// Why a request is refused, as far as a transport has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The request itself is not one of this revision.
    Malformed,
    /// Nobody has the method.
    UnknownMethod,
    /// It is one; the answer says what is wrong.
    InBand,
}

impl Fault {
    /// By the code of an error that is no fault of the request's form.
    pub(crate) fn of(code: i64) -> Self {
        match code {
            METHOD_NOT_FOUND => Self::UnknownMethod,
            -32022..=-32020 => Self::Malformed,
            _ => Self::InBand,
        }
    }
}

/// Who sends a request, as it says itself.
pub(crate) struct Caller<'a> {
    owner: &'a Owner,
    meta: RequestMeta<'a>,
    declares_tasks: bool,
}

impl<'a> Caller<'a> {
    fn new(owner: &'a Owner, meta: RequestMeta<'a>) -> Self {
        Self {
            owner,
            meta,
            declares_tasks: meta.declares_tasks(),
        }
    }

    fn access(&self) -> Access {
        Access::Owner(self.owner.clone())
    }

    fn requestor(&self) -> Requestor {
        let mut requestor = Requestor::new(self.owner.clone(), Generation::V2026_07_28);
        requestor.capabilities = self.meta.capabilities.map(RawJson::from_raw);
        let info = self.meta.client_info;
        requestor.client_info = info
            .filter(|raw| raw.get().starts_with('{'))
            .map(RawJson::from_raw);
        requestor
    }

    /// The least level of the log messages it wants on its stream; none unless it says so.
    fn log_level(&self) -> Option<LogLevel> {
        LogLevel::parse(&string_of(self.meta.log_level?)?)
    }
}

/// One request, and where it came from.
pub(crate) struct Incoming<'a> {
    pub(crate) id: &'a RawValue,
    pub(crate) method: &'a str,
    pub(crate) params: Option<&'a RawValue>,
    pub(crate) meta: RequestMeta<'a>,
    pub(crate) owner: &'a Owner,
    pub(crate) carrier: &'a Carrier<'a>,
    /// The pipe, where it came through one: requests are cancelled on it by their ids.
    pub(crate) pipe: Option<&'a Arc<Session>>,
}

/// What of a request concerns us.
pub(crate) enum Ours {
    /// Nothing: it is the inner server's.
    No,
    /// A `tasks/*` request.
    Tasks,
    /// A call of a task tool.
    Call(Arc<ToolEntry>),
    /// A subscription to what we know of; the inner server has its share in it.
    Listen,
}

impl Plane {
    /// What of a request of 2026-07-28 concerns us.
    pub(crate) async fn concern(&self, method: &str, params: Option<&RawValue>) -> Ours {
        if method == "tools/call" {
            self.augmented.resolve(&self.runtime).await;
        }
        match method {
            "tools/call" => g2::tool_call(params)
                .and_then(|call| self.runtime.tool(&call.name))
                .map_or(Ours::No, Ours::Call),
            // A filter of the wrong type is refused by us, not passed on without it.
            "subscriptions/listen" => match g2::listen(params) {
                Ok(wanted) if wanted == g2::Listen::default() => Ours::No,
                Ok(_) | Err(_) => Ours::Listen,
            },
            _ if method.starts_with("tasks/") => Ours::Tasks,
            _ => Ours::No,
        }
    }

    pub(crate) fn server_meta(&self) -> ServerMeta<'_> {
        ServerMeta(
            self.tells_server
                .then(|| self.inner.server_info.get())
                .flatten(),
        )
    }

    fn refuse(id: &RawValue, error: &ErrorObject) -> Verdict {
        Verdict::Refused(envelope::error(Some(id), error), Fault::of(error.code))
    }

    /// Answers a request that [concerns us](Self::concern). Subscriptions are only begun here: see
    /// [`subscribe`](Self::subscribe).
    pub(crate) async fn answer_once(
        self: &Arc<Self>,
        request: &Incoming<'_>,
        ours: Ours,
    ) -> Verdict {
        let meta = request.meta;
        if let Err(error) = meta.check(|| self.inner.versions()) {
            let reply = envelope::error(Some(request.id), &error);
            return Verdict::Refused(reply, Fault::Malformed);
        }
        let caller = Caller::new(request.owner, meta);
        match ours {
            Ours::No => Verdict::Pass,
            Ours::Tasks => self.tasks_once(request, &caller).await,
            Ours::Call(tool) => Box::pin(call::call(self, request, &caller, &tool)).await,
            Ours::Listen => match Box::pin(self.subscribe(request, &caller)).await {
                Ok(subscription) => Verdict::Listen(subscription),
                Err(error) => Self::refuse(request.id, &error),
            },
        }
    }

    async fn tasks_once(self: &Arc<Self>, request: &Incoming<'_>, caller: &Caller<'_>) -> Verdict {
        let known = matches!(
            request.method,
            "tasks/get" | "tasks/update" | "tasks/cancel"
        );
        if !known {
            return Self::refuse(request.id, &g2::unknown_method(request.method));
        }
        if !caller.declares_tasks {
            return Self::refuse(request.id, &g2::tasks_undeclared());
        }
        if let Err(error) = self.runtime.start_worker().await {
            return Self::refuse(request.id, &ErrorObject::from(&error));
        }
        let answered = match request.method {
            "tasks/get" => self.get_once(request, caller).await,
            "tasks/update" => Box::pin(self.update_once(request, caller)).await,
            _ => Box::pin(self.cancel_once(request, caller)).await,
        };
        match answered {
            Ok(reply) => Verdict::Reply(reply),
            Err(error) => Self::refuse(request.id, &error),
        }
    }

    async fn get_once(
        &self,
        request: &Incoming<'_>,
        caller: &Caller<'_>,
    ) -> Result<Vec<u8>, ErrorObject> {
        let task = request.meta.task_id()?;
        let record = self
            .runtime
            .get_for(&task, &caller.access(), || Some(caller.requestor()))
            .await
            .map_err(read_error)?;
        Ok(g2::got(request.id, &record, self.server_meta()))
    }

    async fn update_once(
        &self,
        request: &Incoming<'_>,
        caller: &Caller<'_>,
    ) -> Result<Vec<u8>, ErrorObject> {
        let update = g2::update(request.params)?;
        let access = caller.access();
        let record = self
            .runtime
            .stored(&update.task, &access)
            .await
            .map_err(read_error)?;
        self.take_responses(&record, &access, &update.responses)
            .await?;
        Ok(g2::acknowledged(request.id, self.server_meta()))
    }

    /// Gives a task the answers to its open questions. Other keys are ignored; an answer of the wrong shape is refused
    /// before any is taken.
    async fn take_responses(
        &self,
        record: &Arc<TaskRecord>,
        access: &Access,
        responses: &RawObject<'_>,
    ) -> Result<(), ErrorObject> {
        let mut answers = Vec::new();
        for input in record.open_inputs() {
            let Some(response) = responses.get(&input.key) else {
                continue;
            };
            g2::check_response(input.question.kind, response).map_err(|why| {
                let kind = match input.question.kind {
                    InputKind::ElicitForm | InputKind::ElicitUrl => "ElicitResult",
                    InputKind::Sample => "CreateMessageResult",
                    InputKind::ListRoots => "ListRootsResult",
                };
                let key = &input.key;
                let what = format!("params.inputResponses[{key:?}]: expected a {kind}: {why}");
                ErrorObject::new(INVALID_PARAMS, what)
            })?;
            answers.push((
                input.key.clone(),
                Answer::Result(RawJson::from_raw(response)),
            ));
        }
        for (key, answer) in answers {
            match self.runtime.answer(&record.id, access, &key, answer).await {
                // Answered by somebody else meanwhile, or the task has ended: as if it had come too late.
                Ok(_) | Err(ReadError::NotFound | ReadError::Terminal(_)) => {}
                Err(error) => return Err(read_error(error)),
            }
        }
        Ok(())
    }

    async fn cancel_once(
        &self,
        request: &Incoming<'_>,
        caller: &Caller<'_>,
    ) -> Result<Vec<u8>, ErrorObject> {
        let task = request.meta.task_id()?;
        let why = "The task was cancelled by request.";
        match self.runtime.cancel(&task, &caller.access(), why).await {
            Ok(_) | Err(ReadError::Terminal(_)) => {
                Ok(g2::acknowledged(request.id, self.server_meta()))
            }
            Err(error) => Err(read_error(error)),
        }
    }
}

/// Whether an answer says that the client lacks a capability: known by then, a transport may say so too.
pub(crate) fn fault_of_answer(reply: &[u8]) -> Fault {
    // Most answers are results; only an error is looked at closely.
    match envelope::Message::parse(reply) {
        Ok(envelope::Message::Error { error, .. }) => {
            let code = serde_json::from_str::<ErrorObject>(error.get()).map_or(0, |e| e.code);
            match code {
                MISSING_CLIENT_CAPABILITY => Fault::Malformed,
                _ => Fault::InBand,
            }
        }
        _ => Fault::InBand,
    }
}
