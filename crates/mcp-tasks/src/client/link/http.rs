//! Streamable HTTP (2025-11-25 `basic/transports`): one POST per message, JSON or SSE replies, a session.
//!
//! The stream for what belongs to no request is in [`listen`](super::listen).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
};
use reqwest::{Client, RequestBuilder, Response, Url};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{
    Inbound, Kind, Link, Lost, LostKind, Outgoing, RENEWAL_ID,
    reply::{Reply, accepted, answers, body, content_type, is_stream, refusal, unreachable_server},
    sse::{Cursor, Events},
};
use crate::{client::backoff::Backoff, wire::envelope::Message};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How long a server may take to forget a session, or to end a stream whose answer has come.
const GOODBYE: Duration = Duration::from_secs(5);
/// How long to wait before a broken stream is taken up again, unless the server says otherwise.
pub(super) const RECONNECT: Duration = Duration::from_secs(1);
/// How often in a row a request's stream is taken up again without anything coming.
const RESUMES: u32 = 5;
/// How long the handshake of a new session may take.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Gives the bearer token for a request; asked again, with `true`, when the server refused the last one.
pub(in crate::client) type TokenSource =
    Arc<dyn Fn(bool) -> futures_util::future::BoxFuture<'static, Option<String>> + Send + Sync>;

/// What a link needs to know.
pub(in crate::client) struct HttpSettings {
    pub(in crate::client) client: Client,
    pub(in crate::client) url: Url,
    pub(in crate::client) headers: HeaderMap,
    pub(in crate::client) token: Option<TokenSource>,
    /// The most bytes that one message may have.
    pub(in crate::client) max_message: usize,
}

/// What the server gave us at `initialize`.
#[derive(Debug, Clone, Default)]
pub(super) struct Session {
    /// How many there were before.
    pub(super) generation: u64,
    pub(super) id: Option<HeaderValue>,
    pub(super) version: Option<HeaderValue>,
    /// Whether `notifications/initialized` was accepted.
    pub(super) ready: bool,
}

pub(super) struct Shared {
    settings: HttpSettings,
    pub(super) session: watch::Sender<Session>,
    /// The bytes of `initialize`, to begin a new session with.
    hello: Mutex<Option<Bytes>>,
    /// One renewal at a time; an async lock, since it is held while the server answers.
    renewing: tokio::sync::Mutex<()>,
    inbound: mpsc::Sender<Inbound>,
    /// Requests whose answer has not come, by the text of their ids.
    open: Mutex<HashMap<Arc<str>, CancellationToken>>,
    stop: CancellationToken,
}

pub(in crate::client) struct HttpLink {
    shared: Arc<Shared>,
    finished: CancellationToken,
}

/// Starts a link; nothing is sent until the first message.
pub(in crate::client) fn start(
    settings: HttpSettings,
    inbound: mpsc::Sender<Inbound>,
    stop: CancellationToken,
) -> HttpLink {
    let shared = Arc::new(Shared {
        settings,
        session: watch::Sender::new(Session::default()),
        hello: Mutex::default(),
        renewing: tokio::sync::Mutex::default(),
        inbound,
        open: Mutex::default(),
        stop,
    });
    let finished = CancellationToken::new();
    let (listener, gone) = (shared.clone(), finished.clone().drop_guard());
    tokio::spawn(async move {
        let _gone = gone;
        tokio::select! { () = super::listen::run(&listener) => {}, () = listener.stop.cancelled() => {} }
        listener.stop.cancelled().await;
        listener.goodbye().await;
    });
    HttpLink { shared, finished }
}

impl Shared {
    /// A request with all headers but those of its method.
    async fn request(&self, method: http::Method, refused: bool) -> (RequestBuilder, Session) {
        let session = self.session.borrow().clone();
        let request = self.request_in(&session, method, refused).await;
        (request, session)
    }

    async fn request_in(
        &self,
        session: &Session,
        method: http::Method,
        refused: bool,
    ) -> RequestBuilder {
        let mut headers = self.settings.headers.clone();
        if let Some(id) = &session.id {
            headers.insert(SESSION_ID, id.clone());
        }
        if let Some(version) = &session.version {
            headers.insert(PROTOCOL_VERSION, version.clone());
        }
        if let Some(source) = &self.settings.token
            && let Some(token) = source(refused).await
        {
            match HeaderValue::try_from(format!("Bearer {token}")) {
                Ok(mut value) => {
                    value.set_sensitive(true);
                    headers.insert(AUTHORIZATION, value);
                }
                Err(_) => {
                    tracing::warn!("the bearer token has characters that no header can carry")
                }
            }
        }
        self.settings
            .client
            .request(method, self.settings.url.clone())
            .headers(headers)
    }

    pub(super) fn max_message(&self) -> usize {
        self.settings.max_message
    }

    /// One POST, with a second try after a refused token and after a lost session.
    async fn post(self: &Arc<Self>, message: &Outgoing) -> Result<Response, Lost> {
        let handshake = matches!(message.kind, Kind::Initialize(_) | Kind::Initialized);
        let (mut refused, mut renewed) = (false, false);
        loop {
            let session = match &message.kind {
                _ if message.headers.is_some() => Session::default(),
                Kind::Initialize(_) => Session::default(),
                _ => self.session.borrow().clone(),
            };
            let request = self.request_in(&session, http::Method::POST, refused);
            let response = request
                .await
                .headers(message.headers.clone().unwrap_or_default())
                .header(CONTENT_TYPE, "application/json")
                .header(ACCEPT, "application/json, text/event-stream")
                .body(message.bytes.clone())
                .send()
                .await
                .map_err(|error| unreachable_server(&error))?;
            match response.status() {
                StatusCode::UNAUTHORIZED if !refused && self.settings.token.is_some() => {
                    refused = true;
                }
                // A server that does not know the session has not looked at the message: it may be sent again.
                StatusCode::NOT_FOUND if session.id.is_some() && !renewed && !handshake => {
                    renewed = true;
                    // A task of its own: whoever found out may be gone before the new session is there.
                    let renewal = tokio::spawn(self.clone().renew(session.generation)).await;
                    renewal.unwrap_or_else(|_| Err(no_session("it broke off")))?;
                }
                _ => return Ok(response),
            }
        }
    }

    /// Begins a new session unless somebody else has. (Boxed: it posts, and a post may begin a session.)
    fn renew(
        self: Arc<Self>,
        old: u64,
    ) -> futures_util::future::BoxFuture<'static, Result<(), Lost>> {
        Box::pin(async move {
            let _one = self.renewing.lock().await;
            let before = self.session.borrow().clone();
            if before.generation != old {
                return Ok(());
            }
            tracing::info!("the server has forgotten the session, beginning a new one");
            let renewal = tokio::time::timeout(RENEWAL_TIMEOUT, self.handshake(old + 1)).await;
            let failed = match renewal {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(lost)) => Lost {
                    sent: false,
                    why: format!("the session is gone, and no new one: {}", lost.why),
                    ..lost
                },
                Err(_) => no_session("no answer in time"),
            };
            // Whoever comes next finds the old session gone, and tries again.
            self.session.send_replace(before);
            Err(failed)
        })
    }

    /// `initialize` and `notifications/initialized` once more.
    async fn handshake(self: &Arc<Self>, generation: u64) -> Result<(), Lost> {
        let hello = lock(&self.hello).clone();
        let hello = hello.ok_or_else(|| no_session("there was no initialize yet"))?;
        let mut hello: Value = serde_json::from_slice(&hello).unwrap_or_default();
        hello["id"] = serde_json::from_str(RENEWAL_ID).unwrap_or_default();
        let id: Arc<str> = RENEWAL_ID.into();
        let message = Outgoing::new(hello.to_string(), Kind::Initialize(id.clone()));
        let Reply::Stream(response) = accepted(self.post(&message).await?, &id).await? else {
            return Err(no_session("initialize was refused"));
        };
        let session = response.headers().get(SESSION_ID).cloned();
        let answer = self.read_answer(response, &id, None, true).await?;
        let Some(version) = version_of(&answer) else {
            return Err(no_session("initialize was refused"));
        };
        self.session.send_replace(Session {
            generation,
            id: session,
            version: Some(version),
            ready: false,
        });
        self.deliver_beside(answer);
        let initialized = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        self.tell(&Outgoing::new(
            Bytes::from_static(initialized),
            Kind::Initialized,
        ))
        .await
    }

    /// A notification or a response: any 2xx is success, whatever comes with it.
    async fn tell(self: &Arc<Self>, message: &Outgoing) -> Result<(), Lost> {
        let response = self.post(message).await?;
        if !response.status().is_success() {
            return Err(refusal(response).await);
        }
        if message.kind == Kind::Initialized {
            self.session.send_modify(|session| session.ready = true);
        }
        Ok(())
    }

    /// A request, until its answer is on the channel.
    async fn ask(self: &Arc<Self>, message: &Outgoing, id: &Arc<str>) -> Result<(), Lost> {
        let initialize = matches!(message.kind, Kind::Initialize(_));
        if initialize {
            *lock(&self.hello) = Some(message.bytes.clone());
        }
        match accepted(self.post(message).await?, id).await? {
            Reply::Answer(bytes) => self.deliver(bytes, Some(id)).await,
            Reply::Stream(response) => {
                let session = response.headers().get(SESSION_ID).cloned();
                let resume = message.headers.is_none();
                let answer = self.read_answer(response, id, Some(id), resume).await?;
                if initialize {
                    self.session.send_modify(|known| {
                        known.id = session;
                        known.version = version_of(&answer);
                    });
                }
                self.deliver(answer, Some(id)).await;
            }
        }
        Ok(())
    }

    /// The answer to the request `id` from a 2xx reply; what comes before it goes to the channel if `via` is given.
    /// `resume`: whether a stream that breaks may be taken up again.
    async fn read_answer(
        &self,
        response: Response,
        id: &str,
        via: Option<&Arc<str>>,
        resume: bool,
    ) -> Result<Bytes, Lost> {
        let kind = content_type(&response);
        if kind == "application/json" {
            let bytes = body(response, self.max_message()).await?;
            return match answers(&bytes, id) {
                true => Ok(bytes),
                false => Err(Lost::new(
                    LostKind::Protocol,
                    true,
                    "the JSON reply does not answer the request",
                )),
            };
        }
        if kind != "text/event-stream" {
            let what = format!(
                "HTTP {} with content type {kind:?} does not answer a request",
                response.status().as_u16()
            );
            return Err(Lost::new(LostKind::Protocol, true, what));
        }
        let mut cursor = Cursor::default();
        let mut events = Events::of(response, self.max_message(), &cursor);
        let mut backoff = Backoff::new(RECONNECT, Duration::from_secs(30));
        loop {
            let ended = loop {
                match events.next(&mut cursor).await {
                    Ok(Some(data)) if answers(&data, id) => {
                        // Reading on to the end lets the connection be used again.
                        tokio::spawn(async move {
                            let end =
                                async { while let Ok(Some(_)) = events.next(&mut cursor).await {} };
                            let _ = tokio::time::timeout(GOODBYE, end).await;
                        });
                        return Ok(data);
                    }
                    Ok(Some(data)) => {
                        backoff.reset();
                        if via.is_some() {
                            self.deliver(data, via).await;
                        }
                    }
                    Ok(None) => break "the stream ended without the answer".to_owned(),
                    Err(lost) if lost.kind == LostKind::Transient => break lost.why,
                    Err(lost) => return Err(lost),
                }
            };
            events = loop {
                let lost = |why: &str| Lost::new(LostKind::Transient, true, why);
                if !resume || cursor.last_event_id.is_none() || backoff.tries() >= RESUMES {
                    return Err(lost(&ended));
                }
                tokio::time::sleep(cursor.wait(&mut backoff)).await;
                match self.listen(cursor.last_event_id.as_deref()).await {
                    Ok(response) if is_stream(&response) => {
                        break Events::of(response, self.max_message(), &cursor);
                    }
                    Ok(response) if response.status().is_client_error() => {
                        return Err(lost(&ended));
                    }
                    Ok(_) | Err(_) => {}
                }
            };
        }
    }

    /// Opens (or takes up again) a stream with GET.
    pub(super) async fn listen(&self, last_event_id: Option<&str>) -> Result<Response, Lost> {
        let mut refused = false;
        loop {
            let (mut request, _) = self.request(http::Method::GET, refused).await;
            request = request.header(ACCEPT, "text/event-stream");
            if let Some(id) = last_event_id.and_then(|id| HeaderValue::try_from(id).ok()) {
                request = request.header(LAST_EVENT_ID, id);
            }
            let response = request
                .send()
                .await
                .map_err(|error| unreachable_server(&error))?;
            if response.status() == StatusCode::UNAUTHORIZED
                && !refused
                && self.settings.token.is_some()
            {
                refused = true;
                continue;
            }
            return Ok(response);
        }
    }

    pub(super) async fn deliver(&self, bytes: Bytes, via: Option<&Arc<str>>) {
        let _ = self
            .inbound
            .send(Inbound::Message {
                bytes,
                via: via.cloned(),
            })
            .await;
    }

    /// The same without waiting for room: now if there is some.
    fn deliver_beside(&self, bytes: Bytes) {
        let message = Inbound::Message { bytes, via: None };
        if let Err(mpsc::error::TrySendError::Full(message)) = self.inbound.try_send(message) {
            let inbound = self.inbound.clone();
            tokio::spawn(async move { drop(inbound.send(message).await) });
        }
    }

    /// Ends the session (DELETE); a server that does not offer that says 405, which is fine.
    async fn goodbye(&self) {
        if self.session.borrow().id.is_none() {
            return;
        }
        let goodbye = async {
            let (request, _) = self.request(http::Method::DELETE, false).await;
            if let Err(error) = request.send().await {
                tracing::debug!(%error, "the session could not be ended");
            }
        };
        let _ = tokio::time::timeout(GOODBYE, goodbye).await;
    }
}

#[async_trait]
impl Link for HttpLink {
    async fn send(&self, message: Outgoing) -> Result<(), Lost> {
        let shared = self.shared.clone();
        let Some(id) = message.kind.id().cloned() else {
            return tokio::select! {
                outcome = shared.tell(&message) => outcome,
                () = shared.stop.cancelled() => Err(Lost::new(LostKind::Closed, false, "the client is closed")),
            };
        };
        let abort = shared.stop.child_token();
        lock(&shared.open).insert(id.clone(), abort.clone());
        tokio::spawn(async move {
            let outcome = tokio::select! {
                outcome = shared.ask(&message, &id) => outcome,
                () = abort.cancelled() => Ok(()),
            };
            lock(&shared.open).remove(&id);
            if let Err(lost) = outcome {
                let _ = shared.inbound.send(Inbound::Lost { id, lost }).await;
            }
        });
        Ok(())
    }

    fn send_best_effort(&self, message: Outgoing) {
        let shared = self.shared.clone();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            let _ = tokio::time::timeout(GOODBYE, shared.tell(&message)).await;
        });
    }

    fn abort(&self, id: &str) {
        if let Some(open) = lock(&self.shared.open).remove(id) {
            open.cancel();
        }
    }

    fn has_streams(&self) -> bool {
        true
    }

    async fn finished(&self) {
        self.finished.cancelled().await;
    }
}

fn no_session(why: &str) -> Lost {
    let why = format!("the session is gone, and no new one: {why}");
    Lost::new(LostKind::Transient, false, why)
}

/// `protocolVersion` of an answer to `initialize`, as a header.
fn version_of(answer: &[u8]) -> Option<HeaderValue> {
    let Ok(Message::Result { result, .. }) = Message::parse(answer) else {
        return None;
    };
    let result: Value = serde_json::from_str(result.get()).ok()?;
    HeaderValue::try_from(result.get("protocolVersion")?.as_str()?).ok()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
