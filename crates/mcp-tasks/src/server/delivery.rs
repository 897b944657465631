//! Where questions and notifications go: to exactly one stream, and again only when that is gone.
//!
//! The rule (2025-11-25 `basic/utilities/tasks`, Input Required Status and Associating Task-Related Messages, with our
//! choices): a question goes to the newest open `tasks/result` of its task; else to the general stream of the session
//! that made the task or, when that is gone, of the session that last named it; else it waits for the next
//! `tasks/result`. On a general stream only once that session has shown that it knows the task, or one poll interval
//! after creation. A shimmed call's questions go on the call's own stream. Nothing is queued: open questions are kept
//! with their task.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use super::{
    outlet::Outlet,
    requests::Requests,
    session::{Session, Sessions},
};
use crate::{
    runtime::{LogEvent, LogLevel, Observer, ProgressEvent, Runtime, Watch},
    task::{InputState, Phase, RawJson, TaskId, TaskRecord},
    wire::v2025_11_25::{self as g1, QuestionId},
};

/// The routes of all live tasks that somebody here has to do with.
pub(crate) struct Delivery {
    pub(crate) sessions: Arc<Sessions>,
    /// Requests of ours that are under way.
    pub(crate) requests: Requests,
    routes: papaya::HashMap<TaskId, Arc<Mutex<Route>>>,
    myself: Weak<Delivery>,
}

/// What is known of one task's clients.
struct Route {
    /// The newest record that was told.
    record: Option<Arc<TaskRecord>>,
    /// The session that made the task.
    creator: Option<Arc<str>>,
    /// The session that last named it.
    named_by: Option<Arc<str>>,
    /// The creator has named the task since it made it.
    known: bool,
    /// From when on the creator is taken to know it anyway.
    knows_from: Option<Instant>,
    timer_set: bool,
    /// The open `tasks/result` streams, the newest last.
    results: Vec<Arc<Outlet>>,
    /// The stream of the shimmed call.
    call: Option<Arc<Outlet>>,
    is_call: bool,
    /// Set for a call of 2026-07-28, whose questions go into its answer.
    once: Option<Once>,
    /// The last sending of each question that is not answered.
    sent: HashMap<Arc<str>, Sending>,
    _watch: Option<Watch>,
}

/// What one request of 2026-07-28 wants to hear on its stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Once {
    /// The token of its progress.
    pub(crate) progress_token: Option<RawJson>,
    /// The least level of its logs; `None` is none at all.
    pub(crate) logs: Option<LogLevel>,
}

struct Sending {
    request_id: String,
    outlet: Arc<Outlet>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Route {
    fn new() -> Self {
        Self {
            record: None,
            creator: None,
            named_by: None,
            known: false,
            knows_from: None,
            timer_set: false,
            results: Vec::new(),
            call: None,
            is_call: false,
            once: None,
            sent: HashMap::new(),
            _watch: None,
        }
    }
}

/// Where a message about a task goes now.
enum Target {
    Stream(Arc<Outlet>),
    /// Nowhere before this moment.
    NotBefore(Instant),
    /// Nowhere until somebody opens a stream.
    Nowhere,
}

impl Delivery {
    pub(crate) fn new(sessions: Arc<Sessions>) -> Arc<Self> {
        Arc::new_cyclic(|myself| Self {
            sessions,
            requests: Requests::default(),
            routes: papaya::HashMap::new(),
            myself: myself.clone(),
        })
    }

    fn route(&self, id: &TaskId) -> Option<Arc<Mutex<Route>>> {
        self.routes.pin().get(id).cloned()
    }

    fn route_or_new(&self, id: &TaskId) -> Arc<Mutex<Route>> {
        self.routes
            .pin()
            .get_or_insert_with(id.clone(), || Arc::new(Mutex::new(Route::new())))
            .clone()
    }

    /// A session is about to make the task `id`. Before it exists, so that nothing its body says is lost.
    pub(crate) fn creating(
        &self,
        runtime: &Runtime,
        id: &TaskId,
        session: &Session,
        poll: Duration,
    ) {
        let watch = runtime.follow(id);
        let route = self.route_or_new(id);
        let mut route = lock(&route);
        route.creator = session.is_real.then(|| session.key.clone());
        route.knows_from = Some(Instant::now() + poll);
        route._watch = Some(watch);
    }

    /// The same for a shimmed call, whose stream takes everything.
    pub(crate) fn calling(
        &self,
        runtime: &Runtime,
        id: &TaskId,
        session: &Session,
        call: Arc<Outlet>,
    ) {
        let watch = runtime.follow(id);
        let route = self.route_or_new(id);
        let mut route = lock(&route);
        route.creator = session.is_real.then(|| session.key.clone());
        route.is_call = true;
        route.call = Some(call);
        route._watch = Some(watch);
    }

    /// The same for a call of 2026-07-28, which has no session: nothing but progress, if it gave a token, and the logs
    /// it asked for. `again` when the task was there before this request.
    pub(crate) fn calling_once(
        &self,
        runtime: &Runtime,
        id: &TaskId,
        call: Arc<Outlet>,
        once: Once,
        again: bool,
    ) {
        let watch = runtime.follow(id);
        let route = self.route_or_new(id);
        let mut route = lock(&route);
        route.is_call = true;
        route.call = Some(call);
        route.once = Some(once);
        route._watch = Some(watch);
        drop(route);
        if again {
            catch_up(runtime, id);
        }
    }

    /// The stream of a shimmed call has come back. Whether the call is still going on.
    pub(crate) fn rejoin(&self, record: &Arc<TaskRecord>, call: Arc<Outlet>) {
        let route = self.route_or_new(&record.id);
        let mut route = lock(&route);
        route.is_call = true;
        route.call = Some(call);
        take_newer(&mut route, record);
        self.pump(&mut route);
        drop(route);
        self.send_requests();
    }

    /// Nothing came of it.
    pub(crate) fn forget(&self, id: &TaskId) {
        self.routes.pin().remove(id);
    }

    /// A session named a live task in an allowed `tasks/*`.
    pub(crate) fn named(&self, runtime: &Runtime, session: &Session, record: &Arc<TaskRecord>) {
        if let Some(route) = self.note(runtime, session, record) {
            self.pump(&mut lock(&route));
            self.send_requests();
        }
    }

    /// Takes note of the session that named the task; the route, if that may have changed where a question goes.
    fn note(
        &self,
        runtime: &Runtime,
        session: &Session,
        record: &Arc<TaskRecord>,
    ) -> Option<Arc<Mutex<Route>>> {
        if record.is_terminal() || !session.is_real {
            return None;
        }
        let (shared, new) = match self.route(&record.id) {
            Some(route) => (route, false),
            None => (self.route_or_new(&record.id), true),
        };
        let watch = new.then(|| runtime.follow(&record.id));
        if new {
            catch_up(runtime, &record.id);
        }
        let mut route = lock(&shared);
        let is_creator = route.creator.as_ref() == Some(&session.key);
        let by_now = is_creator && !route.known;
        let other = route.named_by.as_ref() != Some(&session.key);
        if !(new || by_now || other) {
            return None;
        }
        if new {
            // Made before this process, or in another: its record says by which session.
            route.creator = record.origin.session.clone();
            route._watch = watch;
        }
        if route.creator.as_ref() == Some(&session.key) {
            route.known = true;
        }
        route.named_by = Some(session.key.clone());
        take_newer(&mut route, record);
        drop(route);
        Some(shared)
    }

    /// A `tasks/result` of the task has been opened on this stream, until the guard is dropped.
    pub(crate) fn result_opened(
        &self,
        runtime: &Runtime,
        session: &Session,
        record: &Arc<TaskRecord>,
        outlet: Arc<Outlet>,
        own_stream: bool,
    ) -> ResultGuard {
        // A question that waits goes here, not to the general stream.
        self.note(runtime, session, record);
        let shared = self.route_or_new(&record.id);
        let mut route = lock(&shared);
        if route._watch.is_none() {
            route._watch = Some(runtime.follow(&record.id));
            route.creator = record.origin.session.clone();
            catch_up(runtime, &record.id);
        }
        route.results.push(outlet.clone());
        take_newer(&mut route, record);
        self.pump(&mut route);
        drop(route);
        self.send_requests();
        ResultGuard {
            delivery: self.myself.clone(),
            task: record.id.clone(),
            outlet,
            own_stream,
        }
    }

    fn result_closed(&self, task: &TaskId, outlet: &Arc<Outlet>, own_stream: bool) {
        if let Some(route) = self.route(task) {
            let mut route = lock(&route);
            if let Some(at) = route
                .results
                .iter()
                .position(|have| have.id() == outlet.id())
            {
                route.results.remove(at);
            }
        }
        if own_stream {
            self.closed(outlet);
        }
    }

    /// A session opened a general stream.
    pub(crate) fn general_opened(&self, session: &Arc<Session>, outlet: &Arc<Outlet>) {
        for task in session.add_general(outlet.clone()) {
            self.pump_task(&task);
        }
        self.send_requests();
    }

    /// A stream is gone: what it carried unanswered is sent again, where there is another.
    pub(crate) fn closed(&self, outlet: &Arc<Outlet>) {
        if let Some(session) = self.sessions.get(&outlet.session) {
            session.remove_general(outlet);
        }
        for task in outlet.close() {
            self.pump_task(&task);
        }
        self.requests.stream_closed(outlet, &self.myself);
    }

    fn pump_task(&self, id: &TaskId) {
        if let Some(route) = self.route(id) {
            self.pump(&mut lock(&route));
        }
    }

    /// Sends what is due for a task.
    fn pump(&self, route: &mut Route) {
        let Some(record) = route.record.clone() else {
            return;
        };
        for input in &record.inputs {
            if input.is_open() && !record.is_terminal() {
                if route
                    .sent
                    .get(&input.key)
                    .is_some_and(|sending| sending.outlet.is_open())
                {
                    continue;
                }
                loop {
                    match self.target(route, &record) {
                        Target::Stream(outlet) => {
                            let request_id = QuestionId::mint(&record.id, &input.key);
                            let question =
                                g1::question(&request_id, &record, input, !route.is_call);
                            // Before it is sent: a stream that closes meanwhile knows what was on it.
                            outlet.carry(&record.id);
                            if !outlet.send_surely(question) {
                                // It has closed just now, and is no target any more.
                                continue;
                            }
                            tracing::debug!(task = %record.id, key = &*input.key, "question sent");
                            let sending = Sending { request_id, outlet };
                            route.sent.insert(input.key.clone(), sending);
                        }
                        Target::NotBefore(at) => self.pump_later(route, &record.id, at),
                        Target::Nowhere => {}
                    }
                    break;
                }
            } else if let Some(sending) = route.sent.remove(&input.key) {
                // Answered questions are done with; others are taken back where they were asked.
                if !matches!(input.state, InputState::Answered(_)) {
                    let why = if record.is_terminal() {
                        "the task has ended"
                    } else {
                        "no longer asked"
                    };
                    let back = g1::cancelled(&sending.request_id, why);
                    sending.outlet.send_surely(back);
                }
                if route
                    .sent
                    .values()
                    .all(|other| other.outlet.id() != sending.outlet.id())
                {
                    sending.outlet.uncarry(&record.id);
                }
            }
        }
    }

    fn target(&self, route: &Route, record: &TaskRecord) -> Target {
        if route.once.is_some() {
            return Target::Nowhere;
        }
        if route.is_call {
            return match route.call.as_ref().filter(|call| call.is_open()) {
                Some(call) => Target::Stream(call.clone()),
                None => Target::Nowhere,
            };
        }
        if let Some(newest) = route.results.iter().rev().find(|outlet| outlet.is_open()) {
            return Target::Stream(newest.clone());
        }
        let allowed = |key: &Arc<str>| {
            self.sessions
                .get(key)
                .filter(|session| *session.owner() == record.owner)
        };
        let creator = route.creator.as_ref().and_then(allowed);
        let namer = route.named_by.as_ref().and_then(allowed);
        if let Some(outlet) = creator.and_then(|session| session.general_or_wait(&record.id)) {
            return match route.knows_from {
                Some(from) if !route.known && Instant::now() < from => Target::NotBefore(from),
                _ => Target::Stream(outlet),
            };
        }
        match namer.and_then(|session| session.general_or_wait(&record.id)) {
            Some(outlet) => Target::Stream(outlet),
            None => Target::Nowhere,
        }
    }

    /// Where a request of ours to the client of `session` goes: on behalf of `task` on that call's own stream, or on its
    /// newest `tasks/result`; else on the session's general stream, for a task only once the session knows it.
    fn request_target(&self, session: &Arc<str>, task: Option<&TaskId>) -> Target {
        let general = || self.sessions.get(session)?.general();
        let general = || general().map_or(Target::Nowhere, Target::Stream);
        let Some(route) = task.and_then(|task| self.route(task)) else {
            return general();
        };
        let route = lock(&route);
        let open = |outlet: &&Arc<Outlet>| outlet.is_open() && outlet.session == *session;
        if route.is_call {
            let call = route.call.as_ref().filter(open);
            return call.cloned().map_or(Target::Nowhere, Target::Stream);
        }
        if let Some(newest) = route.results.iter().rev().find(open) {
            return Target::Stream(newest.clone());
        }
        match (general(), route.knows_from) {
            (Target::Stream(_), Some(from)) if !route.known && Instant::now() < from => {
                Target::NotBefore(from)
            }
            (target, _) => target,
        }
    }

    /// Sends the requests that had no stream to go to, where there is one now.
    pub(crate) fn send_requests(&self) {
        for (id, session, task) in self.requests.unsent() {
            self.send_request(&id, &session, task.as_ref());
        }
    }

    /// Sends a request that waits, if there is a stream for it.
    pub(crate) fn send_request(&self, id: &str, session: &Arc<str>, task: Option<&TaskId>) {
        loop {
            match self.request_target(session, task) {
                Target::Stream(outlet) if !self.requests.send_on(id, &outlet) => {}
                Target::NotBefore(at) => {
                    let delivery = self.myself.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep_until(at.into()).await;
                        if let Some(delivery) = delivery.upgrade() {
                            delivery.send_requests();
                        }
                    });
                    return;
                }
                Target::Stream(_) | Target::Nowhere => return,
            }
        }
    }

    /// Sends a notification of ours to the client of `session` where a request would go, or drops it.
    #[cfg(feature = "client")]
    pub(crate) fn tell(&self, session: &Arc<str>, task: Option<&TaskId>, message: Vec<u8>) {
        if let Target::Stream(outlet) = self.request_target(session, task) {
            outlet.send(message);
        }
    }

    fn pump_later(&self, route: &mut Route, id: &TaskId, at: Instant) {
        if std::mem::replace(&mut route.timer_set, true) {
            return;
        }
        let (delivery, id) = (self.myself.clone(), id.clone());
        tokio::spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            if let Some(delivery) = delivery.upgrade()
                && let Some(route) = delivery.route(&id)
            {
                let mut route = lock(&route);
                route.timer_set = false;
                delivery.pump(&mut route);
            }
        });
    }

    fn stop_waiting(&self, route: &Route, id: &TaskId) {
        for key in [&route.creator, &route.named_by].into_iter().flatten() {
            if let Some(session) = self.sessions.get(key) {
                session.stop_waiting(id);
            }
        }
    }

    /// The one stream for progress and logs: of the session that made the task.
    fn creators_stream(&self, route: &Route) -> Option<Arc<Outlet>> {
        if route.is_call {
            return route.call.clone().filter(|call| call.is_open());
        }
        let creator = route.creator.as_ref()?;
        let result = route
            .results
            .iter()
            .rev()
            .find(|outlet| outlet.is_open() && outlet.session == *creator);
        result
            .cloned()
            .or_else(|| self.sessions.get(creator)?.general())
    }
}

/// What was written between the caller's read and the watch.
fn catch_up(runtime: &Runtime, id: &TaskId) {
    let (runtime, id) = (runtime.clone(), id.clone());
    tokio::spawn(async move { runtime.refresh(&id).await });
}

fn take_newer(route: &mut Route, record: &Arc<TaskRecord>) {
    if route
        .record
        .as_ref()
        .is_none_or(|have| have.revision < record.revision)
    {
        route.record = Some(record.clone());
    }
}

impl Observer for Delivery {
    fn changed(&self, record: &Arc<TaskRecord>) {
        let Some(shared) = self.route(&record.id) else {
            return;
        };
        let mut route = lock(&shared);
        let before = route.record.clone();
        if before
            .as_ref()
            .is_some_and(|have| have.revision >= record.revision)
        {
            return;
        }
        route.record = Some(record.clone());
        let told = match &before {
            Some(before) => record.tells_more_than(before),
            // Creation is told by its answer.
            None => record.phase() != Phase::Working,
        };
        if told && !route.is_call {
            match self.target(&route, record) {
                Target::Stream(outlet) => {
                    outlet.send(g1::status_changed(record));
                }
                // Best effort, never queued; but a notification is no question: it may come before the handle.
                Target::NotBefore(_) => {
                    if let Some(outlet) = self.creators_stream(&route) {
                        outlet.send(g1::status_changed(record));
                    }
                }
                Target::Nowhere => {}
            }
        }
        self.pump(&mut route);
        if record.is_terminal() {
            self.stop_waiting(&route, &record.id);
            drop(route);
            self.routes.pin().remove(&record.id);
        }
    }

    fn removed(&self, id: &TaskId) {
        if let Some(route) = self.routes.pin().remove(id) {
            let mut route = lock(route);
            for (_, sending) in route.sent.drain() {
                let back = g1::cancelled(&sending.request_id, "the task has expired");
                sending.outlet.send_surely(back);
                sending.outlet.uncarry(id);
            }
            self.stop_waiting(&route, id);
        }
    }

    fn progress(&self, record: &Arc<TaskRecord>, event: &ProgressEvent) {
        let Some(route) = self.route(&record.id) else {
            return;
        };
        let route = lock(&route);
        let token = match &route.once {
            Some(once) => once.progress_token.as_ref(),
            None => record.origin.progress_token.as_ref(),
        };
        let Some(token) = token else { return };
        if let Some(outlet) = self.creators_stream(&route)
            && outlet.has_room()
        {
            let message = event.message.as_deref();
            outlet.send(g1::progress(
                record,
                token,
                event.done,
                event.total,
                message,
                !route.is_call,
            ));
        }
    }

    fn log(&self, record: &Arc<TaskRecord>, event: &LogEvent) {
        let Some(route) = self.route(&record.id) else {
            return;
        };
        let route = lock(&route);
        let Some(outlet) = self.creators_stream(&route) else {
            return;
        };
        let wanted = match &route.once {
            Some(once) => once.logs.is_some_and(|least| event.level >= least),
            None => self
                .sessions
                .get(&outlet.session)
                .is_none_or(|session| session.wants_log(event.level)),
        };
        if wanted && outlet.has_room() {
            let logger = event.logger.as_deref();
            outlet.send(g1::log_message(
                record,
                event.level.as_str(),
                logger,
                &event.data,
                !route.is_call,
            ));
        }
    }
}

/// An open `tasks/result`. Dropping it is the waiter leaving; the task is not touched.
pub(crate) struct ResultGuard {
    delivery: Weak<Delivery>,
    task: TaskId,
    outlet: Arc<Outlet>,
    own_stream: bool,
}

impl Drop for ResultGuard {
    fn drop(&mut self) {
        if let Some(delivery) = self.delivery.upgrade() {
            delivery.result_closed(&self.task, &self.outlet, self.own_stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use serde_json::{Value, json};

    use super::*;
    use crate::{
        Limits, TaskContext, TaskError, TaskTool, Tasks,
        server::{
            plane::{Carrier, NothingMore, Plane, Verdict},
            session::SessionFacts,
        },
        store::Access,
        task::{Owner, RawJson},
        wire::envelope::Message,
    };

    struct World {
        plane: Arc<Plane>,
        session: Arc<Session>,
    }

    impl World {
        fn new() -> Self {
            let limits = Limits {
                tasks_per_owner: 1,
                ..Limits::default()
            };
            let echo = async |_: TaskContext, _: Value| Ok::<_, TaskError>("done");
            let ask = async |cx: TaskContext, _: Value| {
                let answer = cx.ask(crate::Question::roots()).await?;
                Ok::<_, TaskError>(answer.get().to_owned())
            };
            let tasks = Tasks::builder()
                .limits(limits)
                .tool(TaskTool::new("echo").run(echo))
                .tool(TaskTool::new("ask").run(ask));
            let plane = tasks.build().unwrap().plane;
            let facts = SessionFacts {
                owner: Owner::Bearer,
                version: g1::VERSION.into(),
                capabilities: Some(RawJson::from_text(r#"{"roots":{}}"#).unwrap()),
                client_info: None,
                inner_tools: false,
                inner_logging: false,
            };
            let session = Session::new("s".into(), Owner::Bearer, true, Some(facts));
            let session = plane.sessions.add(session);
            Self { plane, session }
        }

        async fn handle(&self, method: &str, params: Value) -> Verdict {
            let text = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            let text = text.to_string().into_bytes();
            let message = Message::parse(&text).map_err(|e| e.error).unwrap();
            self.plane
                .handle(&self.session, &message, &Carrier::Own(&NothingMore))
                .await
        }

        async fn call(&self, tool: &str) -> Value {
            let params = json!({"name": tool, "arguments": {}, "task": {}});
            let Verdict::Reply(reply) = self.handle("tools/call", params).await else {
                panic!("no reply");
            };
            serde_json::from_slice(&reply).unwrap()
        }

        async fn create(&self, tool: &str) -> TaskId {
            let answer = self.call(tool).await;
            TaskId::from_stored(answer["result"]["task"]["taskId"].as_str().unwrap())
        }

        /// Until the body has asked, and its question waits for a stream.
        async fn asked(&self) {
            while lock(&self.session.waiting).is_empty() {
                tokio::task::yield_now().await;
            }
        }

        fn is_empty(&self) -> bool {
            self.plane.delivery.routes.is_empty() && lock(&self.session.waiting).is_empty()
        }
    }

    // B74: what is known of a task's clients goes with the task.
    #[tokio::test]
    async fn nothing_outlives_its_task() {
        let world = World::new();
        let runtime = world.plane.runtime.clone();
        let id = world.create("echo").await;
        runtime.wait(&id, &Access::System, None).await.unwrap();
        assert!(world.is_empty(), "finished");
        runtime.remove(&id).await;

        let id = world.create("ask").await;
        world.asked().await;
        runtime.cancel(&id, &Access::System, "").await.unwrap();
        assert!(world.is_empty(), "cancelled");
        runtime.remove(&id).await;

        let id = world.create("ask").await;
        world.asked().await;
        assert!(world.call("ask").await["error"].is_object(), "the limit");
        assert_eq!(world.plane.delivery.routes.len(), 1, "refused");
        runtime.remove(&id).await;
        assert!(world.is_empty(), "expired");
    }

    // B77: the route of a creation that is interrupted goes with the request, whatever becomes of the creation.
    #[tokio::test]
    async fn nothing_is_left_of_a_creation_that_is_interrupted() {
        for taken in [false, true] {
            let world = World::new();
            if taken {
                let id = world.create("echo").await;
                let runtime = &world.plane.runtime;
                runtime.wait(&id, &Access::System, None).await.unwrap();
            }
            let mut creation = Box::pin(world.call("ask"));
            let begun = std::future::poll_fn(|cx| Poll::Ready(creation.as_mut().poll(cx))).await;
            assert!(begun.is_pending() && world.plane.delivery.routes.len() == 1);
            drop(creation);
            assert!(world.is_empty(), "taken: {taken}");
        }
    }

    // A task may end between the read of a tasks/result and its stream.
    #[tokio::test]
    async fn a_waiter_that_comes_too_late_leaves_no_route() {
        let world = World::new();
        let runtime = world.plane.runtime.clone();
        let id = world.create("ask").await;
        let stale = runtime.get(&id, &Access::System, None).await.unwrap();
        runtime.cancel(&id, &Access::System, "").await.unwrap();
        let real = world.session.clone();
        let nobody = Session::new("none".into(), Owner::Bearer, false, None);
        for session in [real, nobody] {
            let (outlet, _messages) = Outlet::new(session.key.clone());
            let delivery = &world.plane.delivery;
            let open = delivery.result_opened(&runtime, &session, &stale, outlet, true);
            while !world.is_empty() {
                tokio::task::yield_now().await;
            }
            drop(open);
            assert!(world.is_empty());
        }
    }
}
