//! Sessions over HTTP: found, restored, kept alive and ended.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Method, Request, StatusCode, request::Parts};
use http_body_util::{BodyExt, Full};
use rmcp::transport::streamable_http_server::session::{
    SessionState, SessionStore, SessionStoreError,
};

use super::{SESSION_ID, SessionOf, Shared};
use crate::{
    runtime::Runtime,
    server::session::{Session, SessionFacts},
    store::Document,
    task::Owner,
    wire::v2025_11_25 as g1,
};

/// How long a session that nobody uses is remembered in the store.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
/// How often that is renewed while it is used.
const RENEW: Duration = Duration::from_secs(3600);
/// How often a session is touched in the inner server while we answer its requests.
const TOUCH: Duration = Duration::from_secs(60);
/// How long a session without traffic stays in memory. It is found again in the store.
const IDLE: Duration = Duration::from_secs(3600);
/// The message that touches a session in the inner server. Two at a time must not have one id: the inner server would
/// answer only one of them.
fn ping_message() -> Vec<u8> {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!(r#"{{"jsonrpc":"2.0","id":"mcp-tasks-ping-{number}","method":"ping"}}"#).into_bytes()
}

/// rmcp's sessions, kept in the task store: any replica, and this one after a restart, brings them back.
pub(super) struct StoredSessions(Runtime);

impl StoredSessions {
    pub(super) fn new(runtime: Runtime) -> Self {
        Self(runtime)
    }

    fn key(session: &str) -> String {
        format!("rmcp-session/{session}")
    }
}

fn document(runtime: &Runtime, body: Vec<u8>) -> Document {
    let remembered = u64::try_from(REMEMBERED.as_millis()).unwrap_or(u64::MAX);
    Document {
        body,
        expires_at: Some(runtime.clock().now().plus_millis(remembered)),
    }
}

#[async_trait::async_trait]
impl SessionStore for StoredSessions {
    async fn load(&self, session: &str) -> Result<Option<SessionState>, SessionStoreError> {
        let found = self.0.store().get_document(&Self::key(session)).await?;
        Ok(found
            .map(|document| serde_json::from_slice(&document.body))
            .transpose()?)
    }

    async fn store(&self, session: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        let document = document(&self.0, serde_json::to_vec(state)?);
        Ok(self
            .0
            .store()
            .put_document(&Self::key(session), document)
            .await?)
    }

    async fn delete(&self, session: &str) -> Result<(), SessionStoreError> {
        Ok(self.0.store().remove_document(&Self::key(session)).await?)
    }
}

/// The sessions that are being brought back, each by one request at a time: the inner server's own restoring fails the
/// requests that come in the middle of it.
#[derive(Default)]
pub(super) struct Returning(Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>);

impl Returning {
    fn turn(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(key).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        turns.insert(key.to_owned(), Arc::downgrade(&turn));
        turn
    }
}

fn facts_key(session: &str) -> String {
    format!("session/{session}")
}

impl Shared {
    /// A session that `initialize` has made.
    pub(super) async fn begin_session(
        self: &Arc<Self>,
        key: &str,
        owner: Owner,
        facts: SessionFacts,
    ) {
        let runtime = &self.plane.runtime;
        match serde_json::to_vec(&facts) {
            Ok(body) => {
                let stored = runtime
                    .store()
                    .put_document(&facts_key(key), document(runtime, body))
                    .await;
                if let Err(error) = stored {
                    tracing::warn!(%error, "a session could not be stored; a restart will end it");
                }
            }
            Err(error) => tracing::warn!(%error, "a session has no JSON form"),
        }
        self.plane
            .sessions
            .add(Session::new(key.into(), owner, true, Some(facts)));
        self.keep_sessions();
    }

    /// The session of that id, if it is this owner's.
    pub(super) async fn find_session(
        self: &Arc<Self>,
        parts: &Parts,
        key: &str,
        owner: &Owner,
    ) -> SessionOf {
        if let Some(session) = self.plane.sessions.get(key) {
            return if session.owner() == owner {
                SessionOf::Known(session)
            } else {
                SessionOf::Gone
            };
        }
        Box::pin(self.restore_session(parts, key, owner)).await
    }

    /// The session of that id as the store has it.
    async fn restore_session(
        self: &Arc<Self>,
        parts: &Parts,
        key: &str,
        owner: &Owner,
    ) -> SessionOf {
        let runtime = &self.plane.runtime;
        let found = match runtime.store().get_document(&facts_key(key)).await {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(%error, "a session could not be read");
                None
            }
        };
        let now = runtime.clock().now();
        let facts = found
            .filter(|document| document.expires_at.is_none_or(|at| at > now))
            .and_then(|document| serde_json::from_slice::<SessionFacts>(&document.body).ok());
        let Some(facts) = facts else {
            return SessionOf::Inner;
        };
        if facts.owner != *owner {
            return SessionOf::Gone;
        }
        // To its end, even if the request is dropped: half-way back a session would be of no use to anybody.
        let (shared, parts, key) = (self.clone(), parts.clone(), key.to_owned());
        let back = tokio::spawn(async move { shared.bring_back(&parts, &key, facts).await });
        back.await.unwrap_or(SessionOf::Inner)
    }

    async fn bring_back(
        self: &Arc<Self>,
        parts: &Parts,
        key: &str,
        facts: SessionFacts,
    ) -> SessionOf {
        let turn = self.returning.turn(key);
        let _turn = turn.lock().await;
        if let Some(session) = self.plane.sessions.get(key) {
            return SessionOf::Known(session);
        }
        // The inner server has to bring it back too.
        if self.ping(parts, key).await != Some(StatusCode::OK) {
            return SessionOf::Inner;
        }
        tracing::debug!(session = key, "session restored");
        let session = Session::new(key.into(), facts.owner.clone(), true, Some(facts));
        let session = self.plane.sessions.add(session);
        self.keep_sessions();
        SessionOf::Known(session)
    }

    /// A request without a session, where the inner server keeps none: tasks by id, and nothing that needs a stream.
    pub(super) fn session_of_nobody(&self, owner: &Owner) -> Arc<Session> {
        let facts = SessionFacts {
            owner: owner.clone(),
            version: g1::VERSION.into(),
            capabilities: None,
            client_info: None,
            inner_tools: true,
            inner_logging: true,
        };
        Session::new("none".into(), owner.clone(), false, Some(facts))
    }

    pub(super) async fn end_session(&self, key: &str) {
        for outlet in self.plane.sessions.remove(key) {
            self.plane.delivery.closed(&outlet);
        }
        if let Err(error) = self
            .plane
            .runtime
            .store()
            .remove_document(&facts_key(key))
            .await
        {
            tracing::warn!(%error, "an ended session could not be removed from the store");
        }
    }

    /// A request of the session came in. The inner server's idle timer does not see what we answer ourselves.
    pub(super) fn used(self: &Arc<Self>, session: &Arc<Session>, parts: &Parts) {
        let now = Instant::now();
        session.touch_at(now);
        if session.is_real && session.needs_touch(now, TOUCH) {
            let (shared, session, parts) = (self.clone(), session.clone(), parts.clone());
            tokio::spawn(async move { shared.touch(&session, &parts).await });
        }
    }

    async fn touch(&self, session: &Arc<Session>, parts: &Parts) {
        session.remember(parts.clone());
        if session.needs_renewal(RENEW) {
            self.renew(&session.key).await;
        }
        if self.ping(parts, &session.key).await == Some(StatusCode::NOT_FOUND) {
            tracing::debug!(
                session = &*session.key,
                "the inner server has ended the session"
            );
            for outlet in self.plane.sessions.remove(&session.key) {
                self.plane.delivery.closed(&outlet);
            }
        }
    }

    /// Remembers a session anew from now on.
    async fn renew(&self, key: &str) {
        let runtime = &self.plane.runtime;
        for key in [facts_key(key), StoredSessions::key(key)] {
            let renewed = match runtime.store().get_document(&key).await {
                Ok(Some(found)) => {
                    let renewed = document(runtime, found.body);
                    runtime.store().put_document(&key, renewed).await
                }
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = renewed {
                tracing::warn!(%error, "a session could not be renewed in the store");
            }
        }
    }

    /// Asks the inner server for a sign of life in the session, as its client would; the status it answers with.
    async fn ping(&self, parts: &Parts, key: &str) -> Option<StatusCode> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(parts.uri.clone())
            .version(parts.version)
            .body(
                Full::new(Bytes::from(ping_message()))
                    .map_err(|never| match never {})
                    .boxed_unsync(),
            )
            .ok()?;
        for (name, value) in &parts.headers {
            if !matches!(
                name.as_str(),
                "content-length"
                    | "content-type"
                    | "accept"
                    | "last-event-id"
                    | "transfer-encoding"
            ) {
                request.headers_mut().append(name, value.clone());
            }
        }
        let headers = request.headers_mut();
        headers.insert(SESSION_ID, key.parse().ok()?);
        headers.insert(http::header::CONTENT_TYPE, super::JSON);
        let both = http::HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(http::header::ACCEPT, both);
        *request.extensions_mut() = parts.extensions.clone();
        let response = (self.inner)(request).await;
        let status = response.status();
        // To the end: the answer is what makes the inner server take note.
        let _ = response.into_body().collect().await;
        Some(status)
    }

    /// Keeps sessions with open streams alive in the inner server, and forgets those nobody uses, for as long as the
    /// service exists.
    fn keep_sessions(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        self.keeper.call_once(|| {
            tokio::spawn(async move {
                let mut every = tokio::time::interval(TOUCH);
                every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                loop {
                    every.tick().await;
                    let Some(shared) = weak.upgrade() else { return };
                    let runtime = &shared.plane.runtime;
                    let now = runtime.clock().now();
                    if let Err(error) = runtime.store().remove_expired_documents(now).await {
                        tracing::warn!(%error, "forgotten sessions could not be removed");
                    }
                    for session in shared.plane.sessions.all() {
                        if session.open.load(Ordering::Acquire) > 0
                            && let Some(parts) = session.remembered()
                        {
                            shared.touch(&session, &parts).await;
                        } else if session.is_real && session.idle() > IDLE && session.is_http() {
                            for outlet in shared.plane.sessions.remove(&session.key) {
                                shared.plane.delivery.closed(&outlet);
                            }
                        }
                    }
                }
            });
        });
    }
}
