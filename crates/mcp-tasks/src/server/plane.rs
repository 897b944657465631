//! What a message is, and what is answered to it. Knows no transport.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use futures_util::future::BoxFuture;
use rmcp::model::Extensions;
use serde_json::{json, value::RawValue};
use tokio::sync::mpsc;

use super::{
    augment::{Augmented, Rule},
    call,
    delivery::Delivery,
    outlet::Outlet,
    session::{CameIn, Session, Sessions},
    v2026_07_28::{Fault, InnerFacts, StateKey, Subscription, Subscriptions},
};
use crate::{
    receiver::{self, read_error},
    runtime::{LogLevel, Observer, ReadError, Runtime, ToolEntry},
    store::Access,
    task::{Answer, ErrorObject, Generation, Owner, RawJson},
    wire::{
        envelope::{self, Message, string_of},
        error::METHOD_NOT_FOUND,
        field,
        v2025_11_25::{self as g1, QuestionId},
    },
};

/// Whether the inner server has a tool of that name.
pub(crate) type HasTool = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The part of a server that both transports share.
pub(crate) struct Plane {
    pub(crate) runtime: Runtime,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) delivery: Arc<Delivery>,
    /// The names of the inner server's tools, as far as its lists have shown.
    inner_tools: papaya::HashSet<String>,
    inner_tools_known: AtomicBool,
    /// Asks the inner server for a tool of that name, where it can be asked.
    pub(crate) inner_tool: OnceLock<HasTool>,
    /// What is known of the inner server without a session of it.
    pub(crate) inner: InnerFacts,
    pub(crate) subscriptions: Arc<Subscriptions>,
    /// The inner server's tools that become tasks.
    pub(crate) augmented: Augmented,
    pub(crate) state_key: StateKey,
    /// Results of 2026-07-28 say who answers.
    pub(crate) tells_server: bool,
}

/// What to do with a message.
pub(crate) enum Verdict {
    /// It is the inner server's, as it came.
    Pass,
    /// Answered.
    Reply(Vec<u8>),
    /// Taken; there is nothing to answer.
    Taken,
    /// Refused, and as far as a transport has to know why.
    Refused(Vec<u8>, Fault),
    /// Answered later, with messages of its own before that.
    Pending(Pending),
    /// A subscription of 2026-07-28, begun.
    Listen(Arc<Subscription>),
}

/// An answer that takes its time.
pub(crate) struct Pending {
    /// What is sent before the answer; `None` if that goes out on the connection itself.
    pub(crate) messages: Option<mpsc::Receiver<Vec<u8>>>,
    /// The answer; `None` if the request was given up.
    pub(crate) answer: BoxFuture<'static, Option<Vec<u8>>>,
    /// Whether it is a plain call, which nobody can come back to over a pipe.
    pub(crate) is_call: bool,
    /// Set for a shimmed call: its stream can be rejoined.
    pub(crate) rejoin: Option<call::Rejoin>,
}

/// What a transport knows of a request besides its bytes, for an inner tool that wants to know it.
pub(crate) trait Attach: Send + Sync {
    fn attach(&self, to: &mut Extensions);
}

/// A transport that knows nothing more.
#[cfg(test)]
pub(crate) struct NothingMore;

#[cfg(test)]
impl Attach for NothingMore {
    fn attach(&self, _: &mut Extensions) {}
}

/// Where the messages of one request go: the connection itself (stdio), or a stream of its own (HTTP).
pub(crate) enum Carrier<'a> {
    Connection(Arc<Outlet>),
    Own(&'a dyn Attach),
}

impl Carrier<'_> {
    /// What is known of the request for a tool: only an inner one can want it.
    pub(crate) fn extensions(&self, tool: &ToolEntry, session: Option<&Session>) -> Extensions {
        let mut known = Extensions::default();
        if tool.augmented {
            if let Some(session) = session.filter(|session| session.is_real) {
                known.insert(CameIn(session.key.clone()));
            }
            if let Self::Own(transport) = self {
                transport.attach(&mut known);
            }
        }
        known
    }

    /// The stream for a request of the session with this key.
    pub(crate) fn outlet(
        &self,
        session: &Arc<str>,
    ) -> (Arc<Outlet>, Option<mpsc::Receiver<Vec<u8>>>, bool) {
        match self {
            Self::Connection(outlet) => (outlet.clone(), None, false),
            Self::Own(_) => {
                let (outlet, messages) = Outlet::new(session.clone());
                (outlet, Some(messages), true)
            }
        }
    }
}

impl Plane {
    pub(crate) fn new(
        runtime: Runtime,
        rules: Vec<Rule>,
        state_key: StateKey,
        tells_server: bool,
    ) -> Arc<Self> {
        let sessions = Arc::new(Sessions::default());
        let delivery = Delivery::new(sessions.clone());
        let observer: Arc<dyn Observer> = delivery.clone();
        runtime.observe(&observer);
        let subscriptions = Arc::new(Subscriptions::default());
        let observer: Arc<dyn Observer> = subscriptions.clone();
        runtime.observe(&observer);
        let plane = Arc::new(Self {
            runtime,
            sessions,
            delivery,
            inner_tools: papaya::HashSet::new(),
            inner_tools_known: AtomicBool::new(false),
            inner_tool: OnceLock::new(),
            inner: InnerFacts::default(),
            subscriptions,
            augmented: Augmented::new(rules),
            state_key,
            tells_server,
        });
        let edge: std::sync::Weak<Self> = Arc::downgrade(&plane);
        plane.runtime.set_edge(edge);
        plane
    }

    pub(crate) fn learn_inner_tool(&self, name: &str) {
        self.inner_tools.pin().insert(name.to_owned());
    }

    pub(crate) fn inner_list_seen(&self) {
        self.inner_tools_known.store(true, Ordering::Release);
    }

    fn is_inner_tool(&self, name: &str) -> bool {
        self.inner_tools.pin().contains(name) || self.inner_tool.get().is_some_and(|ask| ask(name))
    }

    /// Tells every connected client that the list of tools changed.
    pub(crate) fn tools_changed(&self) {
        self.subscriptions.tools_changed();
        for session in self.sessions.all() {
            // A pipe on which nobody has begun a session has nobody who expects it.
            if session.facts.load().is_some()
                && let Some(outlet) = session.general()
            {
                outlet.send(envelope::notification(
                    "notifications/tools/list_changed",
                    &json!({}),
                ));
            }
        }
    }

    /// Refuses a task tool whose name the inner server is known to use.
    pub(crate) fn check_names(
        &self,
        inner: impl Fn(&str) -> bool,
    ) -> Result<(), crate::runtime::BuildError> {
        let tools = self.runtime.tools();
        let mut own = tools.iter().filter(|tool| !tool.augmented);
        match own.find(|tool| inner(&tool.name)) {
            Some(tool) => Err(crate::runtime::BuildError::DuplicateTool(
                tool.name.to_string(),
            )),
            None => Ok(()),
        }
    }

    /// Handles one message of `session`. `initialize` never comes here.
    pub(crate) async fn handle(
        self: &Arc<Self>,
        session: &Arc<Session>,
        message: &Message<'_>,
        carrier: &Carrier<'_>,
    ) -> Verdict {
        match message {
            Message::Request { id, method, params } => {
                self.request(session, id, method, *params, carrier).await
            }
            Message::Notification { method, params } => self.notification(session, method, *params),
            Message::Result { id, .. } | Message::Error { id: Some(id), .. }
                if self.delivery.requests.answered(session, id, message) =>
            {
                Verdict::Taken
            }
            Message::Result { id, result } => {
                self.answer(session, Some(id), || {
                    Ok(Answer::Result(RawJson::from_raw(result)))
                })
                .await
            }
            Message::Error { id, error } => {
                self.answer(session, *id, || {
                    RawJson::from_raw(error)
                        .parse()
                        .map(Answer::Error)
                        .map_err(|e| e.to_string())
                })
                .await
            }
        }
    }

    async fn request(
        self: &Arc<Self>,
        session: &Arc<Session>,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
        carrier: &Carrier<'_>,
    ) -> Verdict {
        if method == "tools/call" {
            return Box::pin(call::call(self, session, id, params, carrier)).await;
        }
        if method == "logging/setLevel" {
            return set_level(session, id, params);
        }
        if !method.starts_with("tasks/") {
            return Verdict::Pass;
        }
        let unknown = || {
            let error = ErrorObject::new(METHOD_NOT_FOUND, format!("Method not found: {method}"));
            Verdict::Reply(envelope::error(Some(id), &error))
        };
        if session.generation() != Generation::V2025_11_25 {
            return unknown();
        }
        if let Err(error) = self.runtime.start_worker().await {
            return Verdict::Reply(envelope::error(Some(id), &ErrorObject::from(&error)));
        }
        let answered = match method {
            "tasks/get" => self.get(session, id, params).await,
            "tasks/list" if *session.owner() != Owner::Bearer => {
                Box::pin(receiver::list(&self.runtime, session.owner(), id, params))
                    .await
                    .map(Verdict::Reply)
            }
            "tasks/cancel" => {
                Box::pin(receiver::cancel(&self.runtime, session.owner(), id, params))
                    .await
                    .map(Verdict::Reply)
            }
            "tasks/result" => Box::pin(self.result(session, id, params, carrier)).await,
            _ => return unknown(),
        };
        answered.unwrap_or_else(|error| Verdict::Reply(envelope::error(Some(id), &error)))
    }

    async fn get(
        self: &Arc<Self>,
        session: &Arc<Session>,
        id: &RawValue,
        params: Option<&RawValue>,
    ) -> Result<Verdict, ErrorObject> {
        let task = g1::task_id(params)?;
        let access = Access::Owner(session.owner().clone());
        let record = self
            .runtime
            .get_for(&task, &access, || Some(session.requestor()))
            .await
            .map_err(read_error)?;
        self.delivery.named(&self.runtime, session, &record);
        let view = g1::TaskView::of(&record);
        let view = match self.delivery.requests.wants_stream(&task) {
            true => view.asking(),
            false => view,
        };
        Ok(Verdict::Reply(envelope::result(id, &view)))
    }

    async fn result(
        self: &Arc<Self>,
        session: &Arc<Session>,
        id: &RawValue,
        params: Option<&RawValue>,
        carrier: &Carrier<'_>,
    ) -> Result<Verdict, ErrorObject> {
        let task = g1::task_id(params)?;
        let access = Access::Owner(session.owner().clone());
        let requestor = session.requestor();
        // As it is stored: a tool that is asked lazily is asked for the result, not for its state first.
        let record = self
            .runtime
            .stored(&task, &access)
            .await
            .map_err(read_error)?;
        if let Some(reply) = g1::outcome(id, &record, true) {
            return Ok(Verdict::Reply(reply));
        }
        let (outlet, messages, own_stream) = carrier.outlet(&session.key);
        let open = self
            .delivery
            .result_opened(&self.runtime, session, &record, outlet, own_stream);
        let pending = session.begin(id.get());
        let (plane, id) = (self.clone(), id.to_owned());
        let answer = async move {
            let ended = tokio::select! {
                biased;
                ended = plane.runtime.wait(&task, &access, Some(&requestor)) => ended,
                () = pending.token.cancelled() => return None,
                // Bodies may still end while the server shuts down; then their waiters are told so.
                () = plane.runtime.stopped() => {
                    return Some(envelope::error(Some(&id), &shut_down_error()));
                }
            };
            if matches!(ended, Err(ReadError::NotFound)) {
                // It has expired under the waiter, before anything was removed: its question is taken back here.
                plane.delivery.removed(&task);
            }
            drop(open);
            Some(match ended {
                Ok(record) => g1::outcome(&id, &record, true).unwrap_or_else(|| {
                    envelope::error(Some(&id), &ErrorObject::internal("the task has not ended"))
                }),
                Err(error) => envelope::error(Some(&id), &read_error(error)),
            })
        };
        Ok(Verdict::Pending(Pending {
            messages,
            answer: Box::pin(answer),
            is_call: false,
            rejoin: None,
        }))
    }

    fn notification(
        &self,
        session: &Arc<Session>,
        method: &str,
        params: Option<&RawValue>,
    ) -> Verdict {
        #[derive(serde::Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow, default, rename = "requestId")]
            request: Option<&'a RawValue>,
        }
        if method == "notifications/cancelled"
            && let Ok(Cancelled {
                request: Some(request),
            }) = field::params(params)
            && session.cancel_request(request.get())
        {
            return Verdict::Taken;
        }
        match self.delivery.requests.told(session, method, params) {
            true => Verdict::Taken,
            false => Verdict::Pass,
        }
    }

    async fn answer(
        &self,
        session: &Arc<Session>,
        id: Option<&RawValue>,
        answer: impl FnOnce() -> Result<Answer, String>,
    ) -> Verdict {
        let Some(text) = id.and_then(string_of) else {
            return Verdict::Pass;
        };
        if !QuestionId::is_ours(&text) {
            return Verdict::Pass;
        }
        let Some(question) = QuestionId::parse(&text) else {
            tracing::debug!(id = &*text, "an answer to a question that was never asked");
            return Verdict::Taken;
        };
        let answer = match answer() {
            Ok(answer) => answer,
            Err(e) => Answer::Error(ErrorObject::new(
                -32603,
                format!("the client's error has the wrong shape: {e}"),
            )),
        };
        let access = Access::Owner(session.owner().clone());
        match self
            .runtime
            .answer(&question.task, &access, &question.key, answer)
            .await
        {
            Ok(_) => {}
            Err(ReadError::Store(error)) => {
                tracing::error!(task = %question.task, %error, "an answer could not be stored; it will be asked again");
            }
            Err(error) => {
                tracing::debug!(task = %question.task, %error, "an answer to a task that is not there")
            }
        }
        Verdict::Taken
    }

    /// Whether a call with `task` of a tool that is not ours is to be refused here: it is the inner server's.
    pub(crate) fn forbids_task(&self, name: &str) -> bool {
        self.is_inner_tool(name)
    }
}

/// What a request that waits is told when the server has shut down and no body can end any more.
pub(crate) fn shut_down_error() -> ErrorObject {
    ErrorObject::internal("the server is shutting down; ask again")
}

/// `logging/setLevel`: ours when the inner server has no logging, else observed and passed on.
fn set_level(session: &Arc<Session>, id: &RawValue, params: Option<&RawValue>) -> Verdict {
    #[derive(serde::Deserialize)]
    struct SetLevel<'a> {
        #[serde(borrow, default)]
        level: Option<&'a RawValue>,
    }
    let inner = session
        .facts
        .load()
        .as_deref()
        .is_none_or(|facts| facts.inner_logging);
    let level = field::params::<SetLevel<'_>>(params).map(|params| params.level);
    let named = level.as_ref().ok().copied().flatten();
    match named
        .and_then(string_of)
        .and_then(|name| LogLevel::parse(&name))
    {
        Some(level) => {
            session.set_log_level(level);
            if inner {
                Verdict::Pass
            } else {
                Verdict::Reply(envelope::result(id, &json!({})))
            }
        }
        None if inner => Verdict::Pass,
        None => {
            let error = level.err().unwrap_or_else(|| {
                field::invalid("params.level", "a log level (debug … emergency)", named)
            });
            Verdict::Reply(envelope::error(Some(id), &error))
        }
    }
}
