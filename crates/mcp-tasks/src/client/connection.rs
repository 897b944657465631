//! One connection: our requests, rmcp's messages and the server's, told apart.
//!
//! Our own requests have string ids `tc:N`, rmcp's are numbers, so answers find their way by their id alone. What the
//! server asks or announces about tasks is handled here; everything else goes to rmcp as it came.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwapOption;
use rmcp::{
    model::{ErrorCode, ErrorData},
    service::{Peer, RoleClient, RxJsonRpcMessage},
};
use serde::Serialize;
use serde_json::{Value, value::RawValue};
use tokio::sync::{SetOnce, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::{
    Settings, TaskClientError, TaskInfo,
    desk::Desk,
    error::error_data,
    hosting::Hosting,
    link::{Kind, Link, Lost, LostKind, Outgoing},
    questions::Answerer,
    server::{ServerFacts, Tools},
    v2026_07_28::{Modern, Stamped},
    waiting::{Abandon, InFlight, ProgressFeed, Reply, TaskProgress, Watch},
};
use crate::{
    task::RawJson,
    wire::envelope::{self, Message},
};

/// How many announcements about tasks that nobody follows are kept.
const OVERHEARD: usize = 64;
/// The longest of them; one that is not kept will be polled.
const OVERHEARD_BYTES: usize = 64 << 10;
/// What drafts of 2026-07-28 called -32021.
const OLD_MISSING_CAPABILITY: i32 = -32003;

pub(super) struct Pending {
    reply: oneshot::Sender<Reply>,
    /// The task whose `tasks/result` this is.
    task: Option<String>,
}

#[derive(Default)]
pub(super) struct Tables {
    pub(super) pending: HashMap<u64, Pending>,
    pub(super) watched: HashMap<String, watch::Sender<Option<TaskInfo>>>,
    /// What was announced of tasks that nobody follows (yet: an announcement may overtake the reader of the handle).
    overheard: VecDeque<TaskInfo>,
    pub(super) progress: HashMap<String, Vec<(u64, mpsc::Sender<TaskProgress>)>>,
}

pub(super) struct Connection {
    pub(super) link: Box<dyn Link>,
    pub(super) settings: Settings,
    pub(super) desk: Desk,
    pub(super) answerer: Arc<dyn Answerer>,
    /// The capabilities that we declared.
    pub(super) declared: OnceLock<Value>,
    /// How many recorded answers and refusals may be on their way.
    pub(super) answering: Arc<tokio::sync::Semaphore>,
    /// Cancelled when the client is closed or dropped, or the server is gone.
    pub(super) stop: CancellationToken,
    /// Why the server is gone, if it is.
    pub(super) gone: OnceLock<String>,
    /// rmcp's side, as soon as the handshake is over.
    pub(super) peer: SetOnce<Peer<RoleClient>>,
    /// The way to rmcp; its end is the router's.
    pub(super) to_rmcp: OnceLock<mpsc::WeakSender<RxJsonRpcMessage<RoleClient>>>,
    /// What became of rmcp's `initialize`.
    pub(super) handshake: Mutex<Handshake>,
    /// What the server said when we connected.
    pub(super) server: OnceLock<ServerFacts>,
    /// What it said last, if it had to be asked again.
    pub(super) renewed: ArcSwapOption<ServerFacts>,
    /// The request of ours that finds out what is spoken; 0 when there is none.
    pub(super) probe: AtomicU64,
    /// What there is to know for 2026-07-28, where that is spoken.
    pub(super) modern: OnceLock<Modern>,
    pub(super) tools: Tools,
    /// The tasks that are hosted here for the server, if any are.
    pub(super) hosting: OnceLock<Hosting>,
    /// Tells our progress tokens from those of other clients, whose tasks we may go on with.
    pub(super) nonce: String,
    next: AtomicU64,
    tables: Mutex<Tables>,
}

/// What is known of rmcp's `initialize`.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    /// The id (JSON text) of the request.
    pub(super) id: Option<Arc<str>>,
    /// Why it got no answer.
    pub(super) lost: Option<Lost>,
}

impl Connection {
    pub(super) fn new(
        link: Box<dyn Link>,
        settings: Settings,
        answerer: Arc<dyn Answerer>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            link,
            settings,
            desk: Desk::default(),
            answerer,
            declared: OnceLock::new(),
            answering: Arc::new(tokio::sync::Semaphore::new(256)),
            stop,
            gone: OnceLock::new(),
            peer: SetOnce::new(),
            renewed: ArcSwapOption::empty(),
            to_rmcp: OnceLock::new(),
            handshake: Mutex::default(),
            server: OnceLock::new(),
            probe: AtomicU64::new(0),
            modern: OnceLock::new(),
            tools: Tools::default(),
            hosting: OnceLock::new(),
            nonce: uuid::Uuid::new_v4().simple().to_string()[..8].to_owned(),
            next: AtomicU64::new(1),
            tables: Mutex::default(),
        }
    }

    pub(super) fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this holds of what the server last said of itself.
    pub(super) fn declares(&self, what: impl Fn(&ServerFacts) -> bool) -> bool {
        match &*self.renewed.load() {
            Some(renewed) => what(renewed),
            None => self.server.get().is_some_and(what),
        }
    }

    /// Numbers from here on: where several connections share a channel, each needs numbers of its own.
    pub(super) fn number_from(&self, first: u64) {
        self.next.store(first, Ordering::Relaxed);
    }

    /// A number for an id or token of ours.
    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Why nothing goes any more.
    pub(super) fn closed_error(&self, task: Option<&str>) -> TaskClientError {
        match self.gone.get() {
            Some(why) => TaskClientError::TransportLost {
                task_id: task.map(str::to_owned),
                sent: true,
                why: why.clone(),
            },
            None => TaskClientError::Closed,
        }
    }

    /// Sends a request of ours. `task` names the task whose questions may come on its stream.
    pub(super) async fn request(
        self: &Arc<Self>,
        method: &'static str,
        params: &impl Serialize,
        task: Option<&str>,
        abandon: Abandon,
    ) -> InFlight {
        if let Some(modern) = self.modern.get() {
            let params = serde_json::to_value(params).unwrap_or_default();
            let call = modern.stamped(self, method, params);
            return self.request_as(call, task, abandon).await;
        }
        let plain = |id: &str| envelope::request(id, method, params);
        self.send_request(self.number(), plain, None, task, abandon)
            .await
    }

    /// Sends a request of a revision without sessions.
    pub(super) async fn request_as(
        self: &Arc<Self>,
        call: Stamped,
        task: Option<&str>,
        abandon: Abandon,
    ) -> InFlight {
        self.request_numbered(self.number(), call, task, abandon)
            .await
    }

    /// The same under a number of [`number`](Self::number).
    pub(super) async fn request_numbered(
        self: &Arc<Self>,
        number: u64,
        call: Stamped,
        task: Option<&str>,
        abandon: Abandon,
    ) -> InFlight {
        let bytes = |id: &str| envelope::request(id, call.method, &call.params);
        self.send_request(number, bytes, call.headers.clone(), task, abandon)
            .await
    }

    async fn send_request(
        self: &Arc<Self>,
        number: u64,
        bytes: impl FnOnce(&str) -> Vec<u8>,
        headers: Option<http::HeaderMap>,
        task: Option<&str>,
        abandon: Abandon,
    ) -> InFlight {
        let bytes = bytes(&format!("tc:{number}"));
        let (reply, answer) = oneshot::channel();
        let pending = Pending {
            reply,
            task: task.map(str::to_owned),
        };
        self.tables().pending.insert(number, pending);
        let mut flight = InFlight {
            connection: self.clone(),
            number,
            answer,
            abandon: None,
        };
        if self.stop.is_cancelled() {
            self.lost(
                number,
                Lost::new(LostKind::Closed, false, "the connection is closed"),
            );
            return flight;
        }
        let message = Outgoing {
            headers,
            ..Outgoing::new(bytes, Kind::Request(flight.id()))
        };
        let sent = self.link.send(message).await;
        flight.abandon = Some(abandon);
        if let Err(lost) = sent {
            self.lost(number, lost);
        }
        flight
    }

    /// A notification, now if possible, else never.
    pub(super) fn notify(&self, method: &str, params: &Value) {
        let bytes = envelope::notification(method, params);
        self.link
            .send_best_effort(Outgoing::new(bytes, Kind::Other));
    }

    /// The number in an id of ours (JSON text).
    pub(super) fn own(id: &str) -> Option<u64> {
        id.strip_prefix("\"tc:")?.strip_suffix('"')?.parse().ok()
    }

    /// The task that the stream of this request (JSON text of its id) is about, if the request is one of ours.
    pub(super) fn stream_of(&self, via: Option<&Arc<str>>) -> Option<Option<String>> {
        let number = Self::own(via?)?;
        Some(
            self.tables()
                .pending
                .get(&number)
                .and_then(|pending| pending.task.clone()),
        )
    }

    /// The answer to a request of ours came, or will never come.
    pub(super) fn settle(&self, number: u64, reply: Reply) {
        let pending = self.tables().pending.remove(&number);
        match pending {
            Some(pending) => drop(pending.reply.send(reply)),
            None => tracing::debug!(number, "an answer to a request that nobody waits for"),
        }
    }

    pub(super) fn lost(&self, number: u64, lost: Lost) {
        self.settle(number, Reply::Lost(lost));
    }

    /// Ends every `tasks/result` of a task that is under way.
    pub(super) fn give_up(&self, task: &str, lost: &Lost) {
        let of_task = |pending: &Pending| pending.task.as_deref() == Some(task);
        let numbers: Vec<u64> = {
            let tables = self.tables();
            let pending = tables.pending.iter();
            pending
                .filter(|(_, pending)| of_task(pending))
                .map(|(number, _)| *number)
                .collect()
        };
        for number in numbers {
            self.lost(number, lost.clone());
        }
    }

    /// Hands a response to whoever asked; `false` if it was none of us.
    pub(super) fn respond(&self, message: &Message<'_>, via: Option<&Arc<str>>) -> bool {
        let (number, reply) = match message {
            Message::Result { id, result } => (
                Self::own(id.get()),
                Reply::Result(RawJson::from_raw(result)),
            ),
            Message::Error {
                id: Some(id),
                error,
            } => (Self::own(id.get()), Reply::Error(self.error_of(error))),
            // The server could not read which request it was; on a stream that is clear all the same.
            Message::Error { id: None, error } => (
                via.map_or_else(|| self.probe(), |via| Self::own(via)),
                Reply::Error(self.error_of(error)),
            ),
            _ => return false,
        };
        let Some(number) = number else { return false };
        self.settle(number, reply);
        true
    }

    /// The probe, as long as nothing else is under way.
    fn probe(&self) -> Option<u64> {
        let number = self.probe.load(Ordering::Relaxed);
        (number != 0).then_some(number)
    }

    /// An error of the server, by the codes of the revision that is spoken.
    pub(super) fn error_of(&self, error: &RawValue) -> ErrorData {
        let mut error = error_data(error);
        if self.modern.get().is_some() && error.code.0 == OLD_MISSING_CAPABILITY {
            error.code = ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY;
        }
        error
    }

    /// Everything that waits is told that nothing will come.
    pub(super) fn shut(&self) {
        self.stop.cancel();
        self.desk.cancel_all();
        if let Some(hosting) = self.hosting.get() {
            hosting.end();
        }
        let pending = std::mem::take(&mut self.tables().pending);
        let why = self
            .gone
            .get()
            .map_or("the client is closed", String::as_str);
        for pending in pending.into_values() {
            let _ = pending
                .reply
                .send(Reply::Lost(Lost::new(LostKind::Closed, true, why)));
        }
    }

    /// Follows the status notifications of a task, from the last one that came before.
    pub(super) fn watch(self: &Arc<Self>, task: &str) -> Watch {
        let mut tables = self.tables();
        let mut changes = tables
            .watched
            .entry(task.to_owned())
            .or_default()
            .subscribe();
        if let Some(at) = tables
            .overheard
            .iter()
            .position(|info| info.task_id == task)
            && let Some(info) = tables.overheard.remove(at)
            && let Some(watched) = tables.watched.get(task)
        {
            watched.send_replace(Some(info));
            changes.mark_changed();
        }
        Watch {
            connection: self.clone(),
            task: task.to_owned(),
            changes,
        }
    }

    /// A status notification came.
    pub(super) fn announce(&self, info: &TaskInfo) {
        let mut tables = self.tables();
        if let Some(watched) = tables.watched.get(&info.task_id) {
            watched.send_replace(Some(info.clone()));
            return;
        }
        tables
            .overheard
            .retain(|known| known.task_id != info.task_id);
        let message = info.status_message.as_ref().map_or(0, String::len);
        if message + info.task_id.len() > OVERHEARD_BYTES {
            return;
        }
        if tables.overheard.len() >= OVERHEARD {
            tables.overheard.pop_front();
        }
        tables.overheard.push_back(info.clone());
    }

    /// Follows the progress reported under `token` (JSON text).
    pub(super) fn follow_progress(self: &Arc<Self>, token: String) -> ProgressFeed {
        let (sender, steps) = mpsc::channel(16);
        let number = self.number();
        let mut tables = self.tables();
        tables
            .progress
            .entry(token.clone())
            .or_default()
            .push((number, sender));
        ProgressFeed {
            connection: self.clone(),
            token,
            number,
            steps,
        }
    }

    /// A progress notification came under `token` (JSON text).
    pub(super) fn progressed(&self, token: &str, step: &TaskProgress) {
        for (_, sender) in self.tables().progress.get(token).into_iter().flatten() {
            // A reader that is behind misses steps, nothing else.
            let _ = sender.try_send(step.clone());
        }
    }
}
