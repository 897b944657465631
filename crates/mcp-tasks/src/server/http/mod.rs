//! Streamable HTTP: a tower service in front of rmcp's, or of any other MCP HTTP service.
//!
//! A message that is not ours goes on as the bytes that came. What we answer at once is one `application/json` body;
//! SSE is opened only when there is something to wait for.

mod guard;
mod headers;
mod listen;
mod patching;
mod sessions;
mod sse;

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body::Body;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use rmcp::{
    ServerHandler,
    model::Extensions,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde_json::value::RawValue;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    Tasks,
    augment::Handlers,
    builder::OwnerRule,
    patch::{self, ClientFacts},
    plane::{Attach, Carrier, Plane, Verdict},
    session::{CameIn, Session},
    v2026_07_28::{Fault, Incoming, Ours},
};
use crate::{
    runtime::BuildError,
    task::{Generation, Owner},
    wire::{
        envelope::{self, Message},
        v2025_11_25 as g1,
        v2026_07_28::{self as g2, RequestMeta},
    },
};
use guard::Guard;

/// The errors that bodies have.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body that broke off.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct BodyError(BoxError);

impl BodyError {
    pub(crate) fn new(error: impl Into<BoxError>) -> Self {
        Self(error.into())
    }
}

/// The body of requests to the inner service and of all responses.
pub type McpBody = UnsyncBoxBody<Bytes, BodyError>;

type Inner = Arc<
    dyn Fn(Request<McpBody>) -> Pin<Box<dyn Future<Output = Response<McpBody>> + Send>>
        + Send
        + Sync,
>;

const SESSION_ID: &str = "mcp-session-id";
const PROTOCOL_VERSION: &str = "mcp-protocol-version";
const LAST_EVENT_ID: &str = "last-event-id";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The revisions that have sessions; a header with another one is the inner server's to judge.
const SESSION_VERSIONS: [&str; 4] = g2::LEGACY_VERSIONS;

/// How the HTTP edge behaves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HttpOptions {
    /// Host names (or `host:port`) that requests may be addressed to; empty allows all. Loopback by default.
    pub allowed_hosts: Vec<String>,
    /// Origins that browsers may call from, as `scheme://host:port`, `scheme://host:*` for any port, or `null`.
    /// Loopback by default; a request without an `Origin` always passes.
    pub allowed_origins: Vec<String>,
    /// Allow every origin.
    pub any_origin: bool,
    /// Bytes of a request body (4 MiB).
    pub max_body_bytes: usize,
    /// How often a comment keeps a quiet SSE stream alive (15 s).
    pub sse_keep_alive: Duration,
    /// The inner service keeps no sessions.
    pub stateless: bool,
}

impl Default for HttpOptions {
    fn default() -> Self {
        let hosts = ["localhost", "127.0.0.1", "::1"];
        let origins = [
            "http://localhost:*",
            "http://127.0.0.1:*",
            "http://[::1]:*",
            "https://localhost:*",
        ];
        Self {
            allowed_hosts: hosts.map(str::to_owned).to_vec(),
            allowed_origins: origins.map(str::to_owned).to_vec(),
            any_origin: false,
            max_body_bytes: 4 * 1024 * 1024,
            sse_keep_alive: Duration::from_secs(15),
            stateless: false,
        }
    }
}

impl Tasks {
    /// A tower service: the task tools in front of rmcp's [`StreamableHttpService`] with `factory` and `config`.
    /// Sessions are kept in the task store too, so that any replica serves them, also after a restart. Where `config`
    /// allows no origins, loopback origins are allowed and all others refused (403).
    ///
    /// `factory` is called per session and, from 2026-07-28 on, per request: hand out clones of one `Arc`.
    ///
    /// # Errors
    /// [`BuildError::NoOwnerRule`] unless the builder was told whom tasks belong to, [`BuildError::DuplicateTool`] if
    /// the inner server is known to have a tool of the same name.
    pub fn streamable_http<H: ServerHandler>(
        &self,
        factory: impl Fn() -> Result<H, std::io::Error> + Send + Sync + 'static,
        mut config: StreamableHttpServerConfig,
    ) -> Result<TasksHttp, BuildError> {
        let factory = Arc::new(factory);
        if let Ok(handler) = factory() {
            self.plane.inner.learn(&handler);
            self.plane
                .check_names(|name| handler.get_tool(name).is_some())?;
        }
        let tool_of = factory.clone();
        let _ = self.plane.inner_tool.set(Arc::new(move |name| {
            tool_of().is_ok_and(|handler| handler.get_tool(name).is_some())
        }));
        let made = factory.clone();
        let inner = Arc::new(Handlers(move || made()));
        self.plane.augmented.attach(&self.plane.runtime, inner)?;
        let defaults = HttpOptions::default();
        let mut options = HttpOptions {
            allowed_hosts: config.allowed_hosts.clone(),
            allowed_origins: config.allowed_origins.clone(),
            max_body_bytes: config.max_request_body_bytes,
            sse_keep_alive: config.sse_keep_alive.unwrap_or(defaults.sse_keep_alive),
            stateless: !config.legacy_session_mode,
            ..defaults.clone()
        };
        if config.allowed_origins.is_empty() && !guard::refuses_every_origin(&config) {
            options.allowed_origins = defaults.allowed_origins;
            config.allowed_origins = options.allowed_origins.clone();
        }
        if config.session_store.is_none() {
            config.session_store = Some(Arc::new(sessions::StoredSessions::new(
                self.plane.runtime.clone(),
            )));
        }
        let service = StreamableHttpService::new(
            move || factory(),
            Arc::new(LocalSessionManager::default()),
            config,
        );
        Ok(self.layer(options)?.wrap(service))
    }

    /// A tower layer, for whoever already has an MCP HTTP service.
    ///
    /// # Errors
    /// [`BuildError::NoOwnerRule`] unless the builder was told whom tasks belong to.
    pub fn layer(&self, options: HttpOptions) -> Result<TasksLayer, BuildError> {
        let owner = self.owner.clone().ok_or(BuildError::NoOwnerRule)?;
        if self.plane.augmented.has_no_handler() {
            return Err(BuildError::NoHandler);
        }
        Ok(TasksLayer {
            plane: self.plane.clone(),
            owner,
            strict_names: self.strict_names,
            options,
        })
    }
}

/// Puts the task tools in front of an MCP HTTP service: see [`Tasks::layer`].
#[derive(Clone)]
pub struct TasksLayer {
    plane: Arc<Plane>,
    owner: OwnerRule,
    strict_names: bool,
    options: HttpOptions,
}

impl TasksLayer {
    fn wrap<S, B>(&self, service: S) -> TasksHttp
    where
        S: Service<Request<McpBody>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let inner: Inner = Arc::new(move |request| {
            let mut service = service.clone();
            Box::pin(async move {
                let ready = std::future::poll_fn(|cx| service.poll_ready(cx)).await;
                let Ok(()) = ready;
                let Ok(response) = service.call(request).await;
                response.map(|body| body.map_err(BodyError::new).boxed_unsync())
            })
        });
        TasksHttp(Arc::new(Shared {
            guard: Guard::new(&self.options),
            options: self.options.clone(),
            owner: self.owner.clone(),
            strict_names: self.strict_names,
            plane: self.plane.clone(),
            keeper: std::sync::Once::new(),
            returning: sessions::Returning::default(),
            inner,
        }))
    }
}

impl<S, B> Layer<S> for TasksLayer
where
    S: Service<Request<McpBody>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Service = TasksHttp;

    fn layer(&self, service: S) -> TasksHttp {
        self.wrap(service)
    }
}

/// The MCP endpoint: the task tools in front of an inner service. A tower `Service`, cheap to clone.
#[derive(Clone)]
pub struct TasksHttp(Arc<Shared>);

impl std::fmt::Debug for TasksHttp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TasksHttp")
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}

struct Shared {
    plane: Arc<Plane>,
    owner: OwnerRule,
    strict_names: bool,
    guard: Guard,
    options: HttpOptions,
    inner: Inner,
    keeper: std::sync::Once,
    returning: sessions::Returning,
}

impl<B> Service<Request<B>> for TasksHttp
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<McpBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = self.0.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            Ok(shared
                .handle(parts, body.map_err(BodyError::new).boxed_unsync())
                .await)
        })
    }
}

impl Shared {
    async fn handle(self: Arc<Self>, parts: Parts, body: McpBody) -> Response<McpBody> {
        if let Err(why) = self.guard.check(&parts) {
            return text(StatusCode::FORBIDDEN, why);
        }
        let Some(owner) = (self.owner)(&parts) else {
            let mut response = text(StatusCode::UNAUTHORIZED, "Unauthorized");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return response;
        };
        match parts.method {
            Method::POST => self.post(parts, body, owner).await,
            Method::GET => Box::pin(self.get(parts, body, owner)).await,
            Method::DELETE => Box::pin(self.delete(parts, body, owner)).await,
            _ => (self.inner)(Request::from_parts(parts, body)).await,
        }
    }

    /// What is not usual here is boxed: the future of every poll would have room for it.
    async fn post(
        self: &Arc<Self>,
        mut parts: Parts,
        body: McpBody,
        owner: Owner,
    ) -> Response<McpBody> {
        if let Err((status, why)) = check_media_types(&parts.headers) {
            return text(status, why);
        }
        let bytes = match self.read(&parts.headers, body).await {
            Ok(bytes) => bytes,
            Err(response) => return response,
        };
        let message = match Message::parse(&bytes) {
            Ok(message) => message,
            Err(malformed) => {
                return json(
                    StatusCode::BAD_REQUEST,
                    envelope::error(malformed.id, &malformed.error),
                );
            }
        };
        if message.method() == Some("initialize") {
            let initialize = self.initialize(parts, &message, bytes.clone(), owner);
            return Box::pin(initialize).await;
        }
        if let Message::Request { id, method, params } = &message
            && let Some(meta) = of_this_revision(&parts, *params)
        {
            let request = (*id, &**method, *params);
            return self
                .once(&parts, request, meta, bytes.clone(), &owner)
                .await;
        }
        if let Message::Notification { method, .. } = &message
            && method == "notifications/cancelled"
            && names_this_revision(&parts.headers)
        {
            // Closing the stream is what cancels there; some clients say it all the same, and there is nothing to do.
            return empty(StatusCode::ACCEPTED);
        }
        let session = match self.session_of(&parts, &message, &owner).await {
            SessionOf::Known(session) => session,
            // Sessions the inner server does not know, and older transports: not ours to answer.
            SessionOf::Inner => return self.pass(&parts, bytes.clone()).await,
            SessionOf::Gone => return text(StatusCode::NOT_FOUND, "Not Found: Session not found"),
        };
        self.used(&session, &parts);
        if let Message::Request { id, method, .. } = &message
            && method == "tools/list"
        {
            let list = self.tools_list(&parts, bytes.clone(), id, &session);
            return Box::pin(list).await;
        }
        let known = FromHttp(&parts);
        let carrier = Carrier::Own(&known);
        match self.plane.handle(&session, &message, &carrier).await {
            Verdict::Pass => {
                parts.extensions.insert(CameIn(session.key.clone()));
                let response = self.pass(&parts, bytes.clone()).await;
                sse::keep_open(response, session)
            }
            Verdict::Reply(reply) => json(StatusCode::OK, reply),
            Verdict::Taken => empty(StatusCode::ACCEPTED),
            Verdict::Pending(pending) => {
                let keep_alive = self.options.sse_keep_alive;
                Box::pin(sse::answer(&self.plane, Some(session), pending, keep_alive)).await
            }
            // Only requests of 2026-07-28 come to these.
            Verdict::Refused(reply, fault) => json(status_of(fault), reply),
            Verdict::Listen(_) => empty(StatusCode::ACCEPTED),
        }
    }

    /// Answers a request of 2026-07-28. An `Mcp-Session-Id` on it means nothing.
    async fn once(
        self: &Arc<Self>,
        parts: &Parts,
        (id, method, params): (&RawValue, &str, Option<&RawValue>),
        meta: RequestMeta<'_>,
        bytes: Bytes,
        owner: &Owner,
    ) -> Response<McpBody> {
        let ours = self.plane.concern(method, params).await;
        match &ours {
            Ours::No if matches!(method, "tools/list" | "server/discover") => {
                return Box::pin(self.patched_once(parts, method, bytes)).await;
            }
            Ours::No => return self.pass(parts, bytes).await,
            _ => {}
        }
        let checked = headers::check(
            &parts.headers,
            method,
            params,
            &meta,
            &ours,
            self.strict_names,
        );
        if let Err(error) = checked {
            return json(StatusCode::BAD_REQUEST, envelope::error(Some(id), &error));
        }
        let known = FromHttp(parts);
        let request = Incoming {
            id,
            method,
            params,
            meta,
            owner,
            carrier: &Carrier::Own(&known),
            pipe: None,
        };
        let keep_alive = self.options.sse_keep_alive;
        match self.plane.answer_once(&request, ours).await {
            Verdict::Reply(reply) => json(StatusCode::OK, reply),
            Verdict::Refused(reply, fault) => json(status_of(fault), reply),
            Verdict::Pending(pending) => {
                Box::pin(sse::answer(&self.plane, None, pending, keep_alive)).await
            }
            Verdict::Listen(subscription) => {
                let inner = self.pass(parts, bytes).await;
                let runtime = &self.plane.runtime;
                Box::pin(listen::open(runtime, subscription, inner, keep_alive)).await
            }
            Verdict::Pass => self.pass(parts, bytes).await,
            Verdict::Taken => empty(StatusCode::ACCEPTED),
        }
    }

    /// The inner server's answer to `tools/list` or `server/discover`, with ours added.
    async fn patched_once(&self, parts: &Parts, method: &str, bytes: Bytes) -> Response<McpBody> {
        let response = self.pass(parts, bytes).await;
        if method == "server/discover" {
            let patch = |message: &[u8]| patch::discover(&self.plane, message);
            return patching::response(response, patch).await;
        }
        let mut listed = false;
        let mut response = patching::response(response, |message| {
            let patched = patch::tools_list(&self.plane, message, Generation::V2026_07_28);
            listed |= matches!(Message::parse(&patched), Ok(Message::Result { .. }));
            Some(patched)
        })
        .await;
        if listed {
            // Also where the inner server has no tools, and said so with another status.
            *response.status_mut() = StatusCode::OK;
        }
        response
    }

    /// The general stream of a session, or a shimmed call that is rejoined.
    async fn get(self: &Arc<Self>, parts: Parts, body: McpBody, owner: Owner) -> Response<McpBody> {
        let Some(key) = session_id(&parts.headers) else {
            return (self.inner)(Request::from_parts(parts, body)).await;
        };
        let session = match self.find_session(&parts, key, &owner).await {
            SessionOf::Known(session) => session,
            SessionOf::Inner => return (self.inner)(Request::from_parts(parts, body)).await,
            SessionOf::Gone => return text(StatusCode::NOT_FOUND, "Not Found: Session not found"),
        };
        self.used(&session, &parts);
        if let Some(event) = parts
            .headers
            .get(LAST_EVENT_ID)
            .and_then(|value| value.to_str().ok())
            && let Some(rejoin) = sse::EventId::parse(event)
        {
            return sse::rejoin(&self.plane, session, rejoin, self.options.sse_keep_alive).await;
        }
        let response = (self.inner)(Request::from_parts(parts, body)).await;
        if !response.status().is_success() || !is_sse(response.headers()) {
            return response;
        }
        sse::merge_general(&self.plane, response, session)
    }

    /// Ends the session, but not its owner's tasks.
    async fn delete(
        self: &Arc<Self>,
        parts: Parts,
        body: McpBody,
        owner: Owner,
    ) -> Response<McpBody> {
        let key = session_id(&parts.headers).map(str::to_owned);
        if let Some(key) = &key {
            match self.find_session(&parts, key, &owner).await {
                SessionOf::Known(_) | SessionOf::Inner => {}
                SessionOf::Gone => {
                    return text(StatusCode::NOT_FOUND, "Not Found: Session not found");
                }
            }
        }
        let response = (self.inner)(Request::from_parts(parts, body)).await;
        if let Some(key) = key.filter(|_| response.status().is_success()) {
            self.end_session(&key).await;
        }
        response
    }

    async fn initialize(
        self: &Arc<Self>,
        parts: Parts,
        message: &Message<'_>,
        bytes: Bytes,
        owner: Owner,
    ) -> Response<McpBody> {
        let client = match message {
            Message::Request { params, .. } => ClientFacts::of(*params),
            _ => return self.pass(&parts, bytes).await,
        };
        let response = self.pass(&parts, bytes).await;
        if !response.status().is_success() {
            return response;
        }
        let key = session_id(response.headers()).map(str::to_owned);
        let list = owner != Owner::Bearer;
        let mut facts = None;
        let response = patching::response(response, |message| {
            let (patched, found) = patch::initialize(message, client.clone(), &owner, list)?;
            facts = Some(found);
            Some(patched)
        })
        .await;
        if let (Some(key), Some(facts)) = (key, facts) {
            self.begin_session(&key, owner, facts).await;
        }
        response
    }

    async fn tools_list(
        self: &Arc<Self>,
        parts: &Parts,
        bytes: Bytes,
        id: &RawValue,
        session: &Arc<Session>,
    ) -> Response<McpBody> {
        let generation = session.generation();
        if session
            .facts
            .load()
            .as_deref()
            .is_some_and(|facts| !facts.inner_tools)
        {
            return json(
                StatusCode::OK,
                patch::own_tools_list(&self.plane, id, generation),
            );
        }
        let response = self.pass(parts, bytes).await;
        let wanted = id.get().to_owned();
        let plane = self.plane.clone();
        patching::response(response, move |message| {
            let is_answer = match Message::parse(message) {
                Ok(Message::Result { id, .. } | Message::Error { id: Some(id), .. }) => {
                    id.get() == wanted
                }
                _ => false,
            };
            is_answer.then(|| patch::tools_list(&plane, message, generation))
        })
        .await
    }

    /// Hands a request on with the bytes that came.
    async fn pass(&self, parts: &Parts, bytes: Bytes) -> Response<McpBody> {
        let body = Full::new(bytes)
            .map_err(|never| match never {})
            .boxed_unsync();
        (self.inner)(Request::from_parts(parts.clone(), body)).await
    }

    #[allow(clippy::result_large_err)]
    async fn read(
        &self,
        headers: &HeaderMap,
        mut body: McpBody,
    ) -> Result<Bytes, Response<McpBody>> {
        let limit = self.options.max_body_bytes;
        let too_large = || {
            let why = format!("Payload Too Large: the body exceeds the limit of {limit} bytes");
            text(StatusCode::PAYLOAD_TOO_LARGE, why)
        };
        let declared = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if declared.is_some_and(|length| length / 4 > limit as u64) {
            return Err(too_large());
        }
        let mut first = Bytes::new();
        let mut whole: Vec<u8> = Vec::new();
        let mut seen: usize = 0;
        while let Some(frame) = body.frame().await {
            let data = match frame {
                Ok(frame) => frame.into_data().unwrap_or_default(),
                Err(error) => {
                    let why = format!("Bad Request: the body broke off: {error}");
                    return Err(text(StatusCode::BAD_REQUEST, why));
                }
            };
            seen = seen.saturating_add(data.len());
            // A client that only reads after it has written everything gets its answer too, within reason.
            if seen > limit.saturating_mul(4) {
                break;
            }
            if seen > limit {
                whole = Vec::new();
            } else if first.is_empty() && whole.is_empty() {
                first = data;
            } else {
                if whole.is_empty() {
                    whole.extend_from_slice(&first);
                }
                whole.extend_from_slice(&data);
            }
        }
        if seen > limit {
            return Err(too_large());
        }
        Ok(if whole.is_empty() {
            first
        } else {
            whole.into()
        })
    }
}

/// Whose session a request is in.
enum SessionOf {
    Known(Arc<Session>),
    /// None of ours: the inner server answers.
    Inner,
    /// There is no such session, as far as this requestor is to know.
    Gone,
}

impl Shared {
    async fn session_of(
        self: &Arc<Self>,
        parts: &Parts,
        message: &Message<'_>,
        owner: &Owner,
    ) -> SessionOf {
        let params = match message {
            Message::Request { params, .. } | Message::Notification { params, .. } => *params,
            Message::Result { .. } | Message::Error { .. } => None,
        };
        let header = parts.headers.get(PROTOCOL_VERSION);
        let version = header.map(|value| value.to_str().unwrap_or("not text"));
        // A request that names an older revision for itself is nothing we know.
        if g2::named_version(params).is_some()
            || version.is_some_and(|v| !SESSION_VERSIONS.contains(&v))
        {
            return SessionOf::Inner;
        }
        match session_id(&parts.headers) {
            Some(key) => self.find_session(parts, key, owner).await,
            None if self.options.stateless && version == Some(g1::VERSION) => {
                SessionOf::Known(self.session_of_nobody(owner))
            }
            None => SessionOf::Inner,
        }
    }
}

/// What a request of 2026-07-28, or of a revision after it that nobody here speaks, says of itself; `None` if it is
/// of another one.
fn of_this_revision<'a>(parts: &Parts, params: Option<&'a RawValue>) -> Option<RequestMeta<'a>> {
    // Most requests of other revisions have no such member: without a backslash it would stand there as it is.
    let may_say = params
        .map(RawValue::get)
        .is_some_and(|text| text.contains("_meta") || text.contains('\\'));
    let by_header = names_this_revision(&parts.headers);
    if !(may_say || by_header) {
        return None;
    }
    let meta = RequestMeta::of(params);
    let once = match meta.version() {
        Some(named) => g2::Revision::of(&named) != g2::Revision::Legacy,
        None => by_header,
    };
    once.then_some(meta)
}

/// Whether the header names 2026-07-28, or a revision after it.
fn names_this_revision(headers: &HeaderMap) -> bool {
    let mut named = headers.get_all(PROTOCOL_VERSION).iter();
    named.any(|version| version.as_bytes() >= g2::VERSION.as_bytes())
}

/// The head of a request, where rmcp's own service puts it for a tool.
struct FromHttp<'a>(&'a Parts);

impl Attach for FromHttp<'_> {
    fn attach(&self, to: &mut Extensions) {
        to.insert(self.0.clone());
    }
}

/// The status of a refusal (2026-07-28 `basic/transports/streamable-http`).
fn status_of(fault: Fault) -> StatusCode {
    match fault {
        Fault::Malformed => StatusCode::BAD_REQUEST,
        Fault::UnknownMethod => StatusCode::NOT_FOUND,
        Fault::InBand => StatusCode::OK,
    }
}

fn session_id(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(SESSION_ID)
        .and_then(|value| value.to_str().ok())
}

fn is_sse(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|essence| essence.eq_ignore_ascii_case("text/event-stream"))
}

fn media_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or(value).trim())
}

/// 406 and 415, as rmcp has them.
fn check_media_types(headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
    let accepts = |wanted: &str| {
        headers
            .get_all(header::ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(|entry| entry.split(';').next().unwrap_or(entry).trim())
            .any(|essence| essence.eq_ignore_ascii_case(wanted))
    };
    if !(accepts("application/json") && accepts("text/event-stream")) {
        let why = "Not Acceptable: Client must accept both application/json and text/event-stream";
        return Err((StatusCode::NOT_ACCEPTABLE, why));
    }
    if !media_type(headers).is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"))
    {
        let why = "Unsupported Media Type: Content-Type must be application/json";
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    Ok(())
}

fn respond(
    status: StatusCode,
    content_type: Option<HeaderValue>,
    body: impl Into<Bytes>,
) -> Response<McpBody> {
    let body = Full::new(body.into())
        .map_err(|never| match never {})
        .boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if let Some(content_type) = content_type {
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, content_type);
    }
    response
}

fn json(status: StatusCode, body: Vec<u8>) -> Response<McpBody> {
    respond(status, Some(JSON), body)
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<McpBody> {
    respond(
        status,
        Some(HeaderValue::from_static("text/plain; charset=utf-8")),
        body,
    )
}

fn empty(status: StatusCode) -> Response<McpBody> {
    respond(status, None, Bytes::new())
}
