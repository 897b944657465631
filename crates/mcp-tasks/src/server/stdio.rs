//! A pipe: one line, one message. stdio is one, any `AsyncRead` and `AsyncWrite` pair is.

use std::{
    collections::{HashMap, hash_map::Entry},
    io,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::StreamExt;
use rmcp::{
    RoleServer, ServerHandler,
    model::{GetExtensions, JsonRpcMessage},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::{Notify, mpsc, oneshot},
    task::JoinSet,
};

use super::{
    Tasks,
    augment::Handlers,
    outlet::Outlet,
    patch::{self, ClientFacts},
    plane::{Carrier, Pending, Plane, Verdict},
    session::{CameIn, Session},
    v2026_07_28::{Incoming, Ours, Subscription},
};
use crate::{
    runtime::BuildError,
    task::{ErrorObject, Generation, Owner},
    wire::{
        envelope::{self, Message},
        error::{INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND},
        field,
        object::RawObject,
        v2026_07_28::{self as g2, RequestMeta, Revision},
    },
};

/// The longest line that is read, in bytes.
const MAX_LINE: usize = 64 * 1024 * 1024;
/// How long the inner server may take to answer what it has begun when the input ends.
const DRAIN: std::time::Duration = std::time::Duration::from_secs(5);
/// Whom the one client of a pipe stands for.
const OWNER: &str = "local";

/// Why serving a pipe ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The pipe failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The inner server has a tool with the name of a task tool.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// One protocol era of a connection: rmcp serves each with an instance of its own, begun by its first message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Era {
    /// Up to 2025-11-25: begins with `initialize`.
    Session,
    /// From 2026-07-28 on: every request for itself.
    PerRequest,
}

/// What has to be done to an answer of the inner server on its way out.
enum Expect {
    Initialize(ClientFacts),
    ToolsList(Generation),
    Discover,
}

/// A subscription that the inner server has its share in: whatever it says of it is ours to complete.
struct Listening {
    subscription: Arc<Subscription>,
    /// Taken when it was acknowledged.
    acknowledged: Option<oneshot::Sender<()>>,
}

/// Boxed: a channel has room for many at once from the beginning, and they are large.
pub(super) type ToInner = Box<RxJsonRpcMessage<RoleServer>>;
/// The same for what rmcp sends.
pub(super) type FromInner = Box<TxJsonRpcMessage<RoleServer>>;

/// rmcp's end of a channel.
pub(super) struct Chan {
    pub(super) rx: mpsc::Receiver<ToInner>,
    pub(super) tx: mpsc::Sender<FromInner>,
}

impl Transport<RoleServer> for Chan {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let tx = self.tx.clone();
        async move {
            tx.send(Box::new(message))
                .await
                .map_err(|_| io::Error::other("the connection is closed"))
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.rx.recv().await.map(|message| *message)
    }

    async fn close(&mut self) -> io::Result<()> {
        self.rx.close();
        Ok(())
    }
}

impl Tasks {
    /// Serves `handler`, with the task tools in front of it, on the process's standard input and output until the
    /// input ends.
    ///
    /// # Errors
    /// See [`ServeError`].
    #[cfg(feature = "stdio")]
    pub async fn serve_stdio<H: ServerHandler>(&self, handler: H) -> Result<(), ServeError> {
        self.serve(handler, (tokio::io::stdin(), tokio::io::stdout()))
            .await
    }

    /// Serves `handler`, with the task tools in front of it, on any pair of streams until the input ends. The other
    /// end is one client, whose tasks belong to the owner `local`.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub async fn serve<H, R, W>(&self, handler: H, io: (R, W)) -> Result<(), ServeError>
    where
        H: ServerHandler,
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let handler = Arc::new(handler);
        self.plane
            .check_names(|name| handler.get_tool(name).is_some())?;
        self.plane.inner.learn(&*handler);
        let tool_of = handler.clone();
        let _ = self
            .plane
            .inner_tool
            .set(Arc::new(move |name| tool_of.get_tool(name).is_some()));
        let made = handler.clone();
        let inner = Arc::new(Handlers(move || Ok(made.clone())));
        self.plane.augmented.attach(&self.plane.runtime, inner)?;
        let key: Arc<str> = format!("pipe-{}", uuid::Uuid::new_v4()).into();
        let session = Session::new(key.clone(), Owner::principal(OWNER), true, None);
        let session = self.plane.sessions.add(session);
        let (outlet, messages) = Outlet::new(key.clone());
        self.plane.delivery.general_opened(&session, &outlet);
        let (written, write) = mpsc::channel::<Vec<u8>>(256);
        let connection = Arc::new(Connection {
            plane: self.plane.clone(),
            session,
            outlet: outlet.clone(),
            written: written.clone(),
            expected: Mutex::default(),
            initialize_answered: Notify::new(),
            listening: Mutex::default(),
            eras: Mutex::default(),
        });
        let (read, out) = io;
        let writer = tokio::spawn(write_lines(out, messages, write));
        let mut work = Work::default();
        let ended = connection
            .read_lines(BufReader::new(read), &handler, &mut work)
            .await;
        // The client answers nothing any more: calls that wait for a task of its are not to wait for that.
        connection.session.ended.cancel();
        // Who waits for a task can come back to it; plain calls that have begun are finished, like the inner server's.
        work.waiting.shutdown().await;
        let _ = tokio::time::timeout(DRAIN, async {
            while work.calls.join_next().await.is_some() {}
            while work.inner.join_next().await.is_some() {}
        })
        .await;
        work.calls.shutdown().await;
        work.inner.shutdown().await;
        for outlet in self.plane.sessions.remove(&key) {
            self.plane.delivery.closed(&outlet);
        }
        self.plane.delivery.closed(&outlet);
        drop(connection);
        drop(written);
        let written = writer.await;
        ended?;
        match written {
            // A client that has gone reads nothing any more; that is no fault.
            Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Ok(result) => Ok(result?),
            Err(_cancelled) => Ok(()),
        }
    }
}

/// The background work of a connection; it ends with it.
#[derive(Default)]
struct Work {
    /// Requests that wait for a task.
    waiting: JoinSet<()>,
    /// Plain calls of task tools.
    calls: JoinSet<()>,
    /// The inner server.
    inner: JoinSet<()>,
}

struct Connection {
    plane: Arc<Plane>,
    session: Arc<Session>,
    outlet: Arc<Outlet>,
    written: mpsc::Sender<Vec<u8>>,
    expected: Mutex<HashMap<String, Expect>>,
    initialize_answered: Notify,
    /// The open subscriptions, by the ids of their requests.
    listening: Mutex<HashMap<String, Listening>>,
    /// Which era each request that the inner server works on belongs to.
    eras: Mutex<HashMap<String, Era>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The running rmcp instances of a connection.
#[derive(Default)]
struct Inner(HashMap<Era, mpsc::Sender<ToInner>>);

impl Connection {
    async fn read_lines<H, R>(
        self: &Arc<Self>,
        mut read: BufReader<R>,
        handler: &Arc<H>,
        work: &mut Work,
    ) -> io::Result<()>
    where
        H: ServerHandler,
        R: AsyncRead + Send + Unpin,
    {
        let mut inner = Inner::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            match read_line(&mut read, &mut line).await? {
                Line::End => return Ok(()),
                Line::TooLong => {
                    let error = ErrorObject::new(
                        INVALID_REQUEST,
                        format!("the message exceeds the limit of {MAX_LINE} bytes"),
                    );
                    self.write(envelope::error(None, &error)).await;
                }
                Line::Read if line.iter().all(u8::is_ascii_whitespace) => {}
                Line::Read => self.take(&line, handler, &mut inner, work).await,
            }
            while work.waiting.try_join_next().is_some() {}
            while work.calls.try_join_next().is_some() {}
        }
    }

    async fn take<H: ServerHandler>(
        self: &Arc<Self>,
        line: &[u8],
        handler: &Arc<H>,
        inner: &mut Inner,
        work: &mut Work,
    ) {
        let message = match Message::parse(line) {
            Ok(message) => message,
            Err(malformed) => {
                self.write(envelope::error(malformed.id, &malformed.error))
                    .await;
                return;
            }
        };
        let named = named_revision(&message);
        let era = self.era_of(&message, named);
        // A request that names an older revision for itself is nothing we know.
        let older = named == Some(Revision::Legacy);
        if let Message::Request { id, method, params } = &message {
            let expect = match &**method {
                "initialize" => Some(Expect::Initialize(ClientFacts::of(*params))),
                "tools/list" if era == Era::Session && !older => {
                    Some(Expect::ToolsList(self.session.generation()))
                }
                "tools/list" if era == Era::PerRequest => {
                    Some(Expect::ToolsList(Generation::V2026_07_28))
                }
                "server/discover" => Some(Expect::Discover),
                _ => None,
            };
            if method == "tools/list" && era == Era::Session && self.has_no_inner_tools() {
                self.write(patch::own_tools_list(
                    &self.plane,
                    id,
                    self.session.generation(),
                ))
                .await;
                return;
            }
            if let Some(expect) = expect {
                lock(&self.expected).insert(id.get().to_owned(), expect);
            } else if era == Era::PerRequest {
                if !self.take_once(id, method, *params, work).await {
                    return;
                }
            } else if era == Era::Session && !older {
                // Creation, polls and cancels are answered in order; what waits does so beside the reading.
                let carrier = Carrier::Connection(self.outlet.clone());
                match self.plane.handle(&self.session, &message, &carrier).await {
                    Verdict::Pass => {}
                    Verdict::Reply(reply) | Verdict::Refused(reply, _) => {
                        return self.write(reply).await;
                    }
                    Verdict::Taken | Verdict::Listen(_) => return,
                    Verdict::Pending(pending) => {
                        let work = if pending.is_call {
                            &mut work.calls
                        } else {
                            &mut work.waiting
                        };
                        work.spawn(self.clone().answer_later(pending));
                        return;
                    }
                }
            }
            lock(&self.eras).insert(id.get().to_owned(), era);
        } else {
            let carrier = Carrier::Connection(self.outlet.clone());
            let ends = self.ends_subscription(&message);
            match self.plane.handle(&self.session, &message, &carrier).await {
                Verdict::Pass => {}
                Verdict::Reply(reply) | Verdict::Refused(reply, _) => {
                    return self.write(reply).await;
                }
                // The inner server has its share in a subscription.
                Verdict::Taken if ends => {}
                Verdict::Taken | Verdict::Pending(_) | Verdict::Listen(_) => return,
            }
        }
        let begins = message.method() == Some("initialize") && era == Era::Session;
        if self.pass(line, &message, era, handler, inner, work).await && begins {
            // What follows is judged by what is agreed on here, also for a client that does not wait.
            self.initialize_answered.notified().await;
        }
    }

    /// Takes a request of 2026-07-28; whether the inner server is to have it too.
    async fn take_once(
        self: &Arc<Self>,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
        work: &mut Work,
    ) -> bool {
        let ours = self.plane.concern(method, params).await;
        if matches!(ours, Ours::No) {
            return true;
        }
        let request = Incoming {
            id,
            method,
            params,
            meta: RequestMeta::of(params),
            owner: self.session.owner(),
            carrier: &Carrier::Connection(self.outlet.clone()),
            pipe: Some(&self.session),
        };
        match self.plane.answer_once(&request, ours).await {
            Verdict::Pass => return true,
            Verdict::Reply(reply) | Verdict::Refused(reply, _) => self.write(reply).await,
            Verdict::Taken => {}
            Verdict::Pending(pending) => {
                work.calls.spawn(self.clone().answer_later(pending));
            }
            Verdict::Listen(subscription) => {
                let (acknowledged, begin) = oneshot::channel();
                let listening = Listening {
                    subscription: subscription.clone(),
                    acknowledged: Some(acknowledged),
                };
                lock(&self.listening).insert(id.get().to_owned(), listening);
                work.waiting.spawn(self.clone().listen(subscription, begin));
                return true;
            }
        }
        false
    }

    /// Tells what a subscription has to tell, once it is acknowledged and until it ends.
    async fn listen(
        self: Arc<Self>,
        subscription: Arc<Subscription>,
        acknowledged: oneshot::Receiver<()>,
    ) {
        let id = subscription.id.get().to_owned();
        let pending = self.session.begin(&id);
        let told = async {
            if acknowledged.await.is_err() {
                return;
            }
            let runtime = self.plane.runtime.clone();
            let mut messages = std::pin::pin!(subscription.messages(runtime, true));
            while let Some(message) = messages.next().await {
                self.write(message).await;
            }
        };
        tokio::select! {
            () = told => {}
            () = pending.token.cancelled() => {}
        }
        lock(&self.listening).remove(&id);
    }

    /// Whether a message cancels a subscription.
    fn ends_subscription(&self, message: &Message<'_>) -> bool {
        match message {
            Message::Notification { method, params } if method == "notifications/cancelled" => {
                cancelled_request(*params).is_some_and(|id| lock(&self.listening).contains_key(&id))
            }
            _ => false,
        }
    }

    /// What the inner server says of a subscription, with ours added; `None` if it says nothing of one.
    fn complete_subscription(
        &self,
        message: &Message<'_>,
    ) -> Option<(Vec<u8>, oneshot::Sender<()>)> {
        let mut all = lock(&self.listening);
        match message {
            Message::Notification {
                method,
                params: Some(params),
            } if method == g2::ACKNOWLEDGED => {
                let id = RawObject::parse(params)?
                    .object("_meta")
                    .get(g2::SUBSCRIPTION_META)?
                    .get()
                    .to_owned();
                let listening = all.get_mut(&id)?;
                let reply = listening.subscription.acknowledgement(Some(params));
                Some((reply, listening.acknowledged.take()?))
            }
            Message::Error {
                id: Some(id),
                error,
            } => {
                let error: ErrorObject = serde_json::from_str(error.get()).ok()?;
                if error.code != METHOD_NOT_FOUND {
                    all.remove(id.get());
                    return None;
                }
                // The inner server has no subscriptions: this one is ours alone.
                lock(&self.eras).remove(id.get());
                let listening = all.get_mut(id.get())?;
                let reply = listening.subscription.acknowledgement(None);
                Some((reply, listening.acknowledged.take()?))
            }
            Message::Result { id, .. } => {
                all.remove(id.get());
                None
            }
            _ => None,
        }
    }

    fn has_no_inner_tools(&self) -> bool {
        self.session
            .facts
            .load()
            .as_deref()
            .is_some_and(|facts| !facts.inner_tools)
    }

    fn era_of(&self, message: &Message<'_>, named: Option<Revision>) -> Era {
        match message {
            Message::Request { method, .. } => {
                let once = named.is_some_and(|named| named != Revision::Legacy);
                if method == "server/discover" || (once && method != "initialize") {
                    Era::PerRequest
                } else {
                    Era::Session
                }
            }
            Message::Notification { method, params } if method == "notifications/cancelled" => {
                cancelled_request(*params)
                    .and_then(|id| lock(&self.eras).get(&id).copied())
                    .unwrap_or(Era::Session)
            }
            _ => Era::Session,
        }
    }

    /// Hands a message to the inner server, as it came; whether it took it.
    async fn pass<H: ServerHandler>(
        self: &Arc<Self>,
        line: &[u8],
        message: &Message<'_>,
        era: Era,
        handler: &Arc<H>,
        inner: &mut Inner,
        work: &mut Work,
    ) -> bool {
        let (id, is_request) = match message {
            Message::Request { id, .. } => (Some(*id), true),
            _ => (None, false),
        };
        let mut typed = match serde_json::from_slice::<RxJsonRpcMessage<RoleServer>>(line) {
            Ok(typed) => typed,
            Err(e) => {
                if is_request {
                    let error = ErrorObject::new(
                        INVALID_REQUEST,
                        format!("the request cannot be read: {e}"),
                    );
                    self.write(envelope::error(id, &error)).await;
                } else {
                    tracing::debug!(error = %e, "a message that the inner server cannot read was dropped");
                }
                return false;
            }
        };
        if let (Era::Session, JsonRpcMessage::Request(request)) = (era, &mut typed) {
            let session = CameIn(self.session.key.clone());
            request.request.extensions_mut().insert(session);
        }
        if let (false, Message::Notification { method, params }) = (is_request, message)
            && method == "notifications/cancelled"
            && let Some(id) = cancelled_request(*params)
        {
            // rmcp does not answer a cancelled request.
            lock(&self.eras).remove(&id);
            lock(&self.expected).remove(&id);
        }
        let sender = match inner.0.entry(era) {
            Entry::Occupied(begun) => begun.into_mut(),
            // Only a request begins an era; anything else has nobody to go to yet.
            Entry::Vacant(_) if !is_request => return false,
            Entry::Vacant(new) => new.insert(self.start(era, handler, work)),
        };
        if sender.send(Box::new(typed)).await.is_ok() {
            return true;
        }
        inner.0.remove(&era);
        if let Some(id) = id {
            let error = ErrorObject::new(
                INTERNAL_ERROR,
                "the server has ended this connection's protocol era",
            );
            self.write(envelope::error(Some(id), &error)).await;
        }
        false
    }

    fn start<H: ServerHandler>(
        self: &Arc<Self>,
        era: Era,
        handler: &Arc<H>,
        work: &mut Work,
    ) -> mpsc::Sender<ToInner> {
        let (to_inner, rx) = mpsc::channel(64);
        let (tx, mut from_inner) = mpsc::channel(64);
        let handler = handler.clone();
        work.inner.spawn(async move {
            match rmcp::service::serve_server(handler, Chan { rx, tx }).await {
                Ok(running) => {
                    let _ = running.waiting().await;
                }
                Err(error) => tracing::debug!(?era, %error, "the inner server did not begin"),
            }
        });
        let connection = self.clone();
        work.inner.spawn(async move {
            while let Some(message) = from_inner.recv().await {
                match serde_json::to_vec(&message) {
                    Ok(bytes) => connection.write_inner(bytes).await,
                    Err(error) => {
                        tracing::error!(%error, "a message of the inner server has no JSON form")
                    }
                }
            }
            connection.initialize_answered.notify_one();
        });
        to_inner
    }

    /// Writes what the inner server says; with our additions where they belong.
    async fn write_inner(&self, bytes: Vec<u8>) {
        let Ok(message) = Message::parse(&bytes) else {
            return self.write(bytes).await;
        };
        if let Some((completed, acknowledged)) = self.complete_subscription(&message) {
            self.write(completed).await;
            // Nothing goes before the acknowledgement.
            let _ = acknowledged.send(());
            return;
        }
        let id = match message {
            Message::Result { id, .. } | Message::Error { id: Some(id), .. } => id.get().to_owned(),
            _ => return self.write(bytes).await,
        };
        lock(&self.eras).remove(&id);
        let expected = lock(&self.expected).remove(&id);
        let is_initialize = matches!(expected, Some(Expect::Initialize(_)));
        let bytes = match expected {
            None => bytes,
            Some(Expect::ToolsList(generation)) => {
                patch::tools_list(&self.plane, &bytes, generation)
            }
            Some(Expect::Discover) => patch::discover(&self.plane, &bytes).unwrap_or(bytes),
            Some(Expect::Initialize(client)) => {
                match patch::initialize(&bytes, client, self.session.owner(), true) {
                    Some((patched, facts)) => {
                        self.session.facts.store(Some(Arc::new(facts)));
                        patched
                    }
                    None => bytes,
                }
            }
        };
        self.write(bytes).await;
        if is_initialize {
            self.initialize_answered.notify_one();
        }
    }

    async fn answer_later(self: Arc<Self>, pending: Pending) {
        let rejoin = pending.rejoin;
        if let Some(reply) = pending.answer.await {
            self.write(reply).await;
        }
        if let Some(rejoin) = rejoin {
            self.plane.runtime.remove(&rejoin.task).await;
        }
    }

    async fn write(&self, message: Vec<u8>) {
        let _ = self.written.send(message).await;
    }
}

/// The kind of revision that a request names for itself.
fn named_revision(message: &Message<'_>) -> Option<Revision> {
    match message {
        Message::Request { params, .. } => {
            g2::named_version(*params).map(|named| Revision::of(&named))
        }
        _ => None,
    }
}

/// The id in a `notifications/cancelled`.
fn cancelled_request(params: Option<&RawValue>) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Cancelled<'a> {
        #[serde(borrow, rename = "requestId")]
        request: &'a RawValue,
    }
    field::object::<Cancelled<'_>>(params?).map(|cancelled| cancelled.request.get().to_owned())
}

enum Line {
    Read,
    TooLong,
    End,
}

/// Reads one line. A last line without an end is a message too.
async fn read_line<R: AsyncRead + Unpin>(
    read: &mut BufReader<R>,
    line: &mut Vec<u8>,
) -> io::Result<Line> {
    let mut too_long = false;
    loop {
        let chunk = read.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(match (too_long, line.is_empty()) {
                (true, _) => Line::TooLong,
                (false, true) => Line::End,
                (false, false) => Line::Read,
            });
        }
        let end = chunk.iter().position(|b| *b == b'\n');
        let taken = end.map_or(chunk.len(), |at| at + 1);
        if !too_long {
            line.extend_from_slice(&chunk[..end.unwrap_or(chunk.len())]);
        }
        read.consume(taken);
        if line.len() > MAX_LINE {
            too_long = true;
            line.clear();
            line.shrink_to(0);
        }
        if end.is_some() {
            return Ok(if too_long { Line::TooLong } else { Line::Read });
        }
    }
}

/// Writes messages as lines. An answer never overtakes what was sent for it before, but neither does it wait for what
/// tasks send by themselves after it, which may be without end.
async fn write_lines<W: AsyncWrite + Unpin>(
    mut out: W,
    mut sent: mpsc::Receiver<Vec<u8>>,
    mut answers: mpsc::Receiver<Vec<u8>>,
) -> io::Result<()> {
    let mut open = true;
    loop {
        let answer = tokio::select! {
            biased;
            answer = answers.recv() => Some(answer),
            message = sent.recv(), if open => {
                match message {
                    Some(message) => write_line(&mut out, message).await?,
                    None => open = false,
                }
                None
            }
        };
        if let Some(answer) = answer {
            for _ in 0..sent.len() {
                if let Ok(message) = sent.try_recv() {
                    write_line(&mut out, message).await?;
                }
            }
            match answer {
                Some(answer) => write_line(&mut out, answer).await?,
                // Nobody can answer any more.
                None => return out.flush().await,
            }
        }
        if answers.is_empty() && sent.is_empty() {
            out.flush().await?;
        }
    }
}

async fn write_line<W: AsyncWrite + Unpin>(out: &mut W, mut message: Vec<u8>) -> io::Result<()> {
    one_line(&mut message);
    message.push(b'\n');
    out.write_all(&message).await
}

/// Line ends inside a JSON text are white space between its tokens.
pub(crate) fn one_line(message: &mut [u8]) {
    for byte in message
        .iter_mut()
        .filter(|byte| matches!(byte, b'\n' | b'\r'))
    {
        *byte = b' ';
    }
}
