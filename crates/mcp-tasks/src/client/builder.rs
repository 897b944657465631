//! Settings of a client, and the ways to connect.

use std::{future::Future, process::Stdio, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};
use rmcp::{
    ClientHandler,
    model::ProtocolVersion,
    service::{
        ClientLifecycleMode, RoleClient, RunningService, RxJsonRpcMessage, serve_client,
        serve_client_with_lifecycle,
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    process::Command,
    sync::mpsc,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    Endpoint, TaskClient, TaskClientError, TaskInfo, Ticket,
    connection::Connection,
    hosting::Hosting,
    link::{
        Inbound, Link, MAX_MESSAGE,
        http::{self as http_link, HttpSettings, TokenSource},
        lines,
    },
    questions::HandlerAnswerer,
    router::Channel,
    v2026_07_28::{Probed, probe},
};
use crate::{runtime::Limits, store::TaskStore};

/// Called with every status that the server announces.
pub(super) type StatusCallback = Arc<dyn Fn(TaskInfo) + Send + Sync>;

/// Which protocol revision a client speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolChoice {
    /// 2026-07-28 where the server speaks it, which `server/discover` finds out, else 2025-11-25 with `initialize`
    /// (2026-07-28 `basic/versioning`, Backward Compatibility).
    #[default]
    Auto,
    /// 2025-11-25, or what the server makes of it at `initialize`.
    V2025_11_25,
    /// 2026-07-28, or nothing.
    V2026_07_28,
}

/// What a connection needs to know.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) poll_floor: Duration,
    pub(super) poll_interval: Duration,
    pub(super) request_timeout: Duration,
    pub(super) max_outage: Option<Duration>,
    pub(super) on_status: Option<StatusCallback>,
    pub(super) max_message: usize,
    pub(super) endpoint: Endpoint,
    pub(super) protocol: ProtocolChoice,
    pub(super) probe_timeout: Duration,
    pub(super) subscribe: bool,
}

impl Settings {
    pub(super) fn new() -> Self {
        Self {
            poll_floor: Duration::from_millis(100),
            poll_interval: Duration::from_secs(1),
            request_timeout: Duration::from_secs(60),
            max_outage: Some(Duration::from_secs(600)),
            on_status: None,
            max_message: MAX_MESSAGE,
            endpoint: Endpoint::Streams,
            protocol: ProtocolChoice::Auto,
            probe_timeout: Duration::from_secs(10),
            subscribe: true,
        }
    }
}

/// Builds a [`TaskClient`]; made by [`TaskClient::builder`].
pub struct TaskClientBuilder<H> {
    handler: Arc<H>,
    settings: Settings,
    headers: HeaderMap,
    token: Option<TokenSource>,
    http_client: Option<reqwest::Client>,
    host: Option<(Arc<dyn TaskStore>, Limits)>,
    wrong: Option<String>,
}

impl<H: ClientHandler> TaskClientBuilder<H> {
    pub(super) fn new(handler: H) -> Self {
        Self {
            handler: Arc::new(handler),
            settings: Settings::new(),
            headers: HeaderMap::new(),
            token: None,
            http_client: None,
            host: None,
            wrong: None,
        }
    }

    /// Which protocol revision to speak. Default [`Auto`](ProtocolChoice::Auto).
    #[must_use]
    pub fn protocol(mut self, choice: ProtocolChoice) -> Self {
        self.settings.protocol = choice;
        self
    }

    /// Speaks what the task of this ticket speaks: nothing is found out then.
    #[must_use]
    pub fn for_ticket(self, ticket: &Ticket) -> Self {
        match ticket.protocol_version() == crate::wire::v2026_07_28::VERSION {
            true => self.protocol(ProtocolChoice::V2026_07_28),
            false => self.protocol(ProtocolChoice::V2025_11_25),
        }
    }

    /// How long a server may be silent on `server/discover` before it is taken for one that wants `initialize`. Default
    /// 10 s, which is time enough for a process to start; a server that does not know the method usually says so.
    #[must_use]
    pub fn probe_timeout(mut self, timeout: Duration) -> Self {
        self.settings.probe_timeout = timeout;
        self
    }

    /// Whether to ask for announcements of each task that is followed (2026-07-28 `subscriptions/listen`); without
    /// them a task is polled only. A server that offers none is polled too. Default `true`.
    #[must_use]
    pub fn subscribe(mut self, subscribe: bool) -> Self {
        self.settings.subscribe = subscribe;
        self
    }

    /// The shortest time between two polls of one task. Default 100 ms.
    #[must_use]
    pub fn poll_floor(mut self, floor: Duration) -> Self {
        self.settings.poll_floor = floor;
        self
    }

    /// The time between two polls where the server gives no `pollInterval`. Default 1 s.
    #[must_use]
    pub fn default_poll_interval(mut self, interval: Duration) -> Self {
        self.settings.poll_interval = interval;
        self
    }

    /// How long one ordinary request (the handshake, a poll, a page of a list, a cancel) may take. Default 60 s. Never
    /// bounds a `tools/call`, a `tasks/result`, or how long a person may think.
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.settings.request_timeout = timeout;
        self
    }

    /// How long a server may stay out of reach before a followed task is given up; `None` is for ever. Default 10
    /// minutes.
    #[must_use]
    pub fn max_outage(mut self, outage: Option<Duration>) -> Self {
        self.settings.max_outage = outage;
        self
    }

    /// Calls `callback` with every `notifications/tasks/status` (2026-07-28: `notifications/tasks`), whether the task is followed or not. It must not
    /// block: nothing else is read meanwhile.
    #[must_use]
    pub fn on_status(mut self, callback: impl Fn(TaskInfo) + Send + Sync + 'static) -> Self {
        self.settings.on_status = Some(Arc::new(callback));
        self
    }

    /// Hosts tasks for the server on `store`, with the default limits: see [`host_with`](Self::host_with).
    #[must_use]
    pub fn host(self, store: impl TaskStore) -> Self {
        self.host_with(Arc::new(store), Limits::default())
    }

    /// Hosts tasks for the server: it may ask its questions (`elicitation/create`, `sampling/createMessage`) as tasks,
    /// which are kept on `store` within `limits` and answered by the handler. `initialize` declares that for the
    /// questions whose capability the handler's `get_info` declares, and only then (2025-11-25
    /// `basic/utilities/tasks`, Client Capabilities). What the handler's [`RequestContext`](rmcp::service::RequestContext)
    /// calls the request's id is the task's; its token is cancelled with the task.
    ///
    /// Under 2026-07-28 a client hosts no tasks: then nothing is declared, and nothing asked.
    ///
    /// The tasks belong to the server, which is known by its URL, its command or the name given with
    /// [`endpoint`](Self::endpoint), so that they are there again after a restart on the same store; without any of
    /// these they belong to this connection. A question that was open when the client ended has failed.
    #[must_use]
    pub fn host_with(mut self, store: Arc<dyn TaskStore>, limits: Limits) -> Self {
        self.host = Some((store, limits));
        self
    }

    /// The most bytes that one message of the server may have; a longer one is not kept, and whoever waits for it gets
    /// [`TooLarge`](TaskClientError::TooLarge). A list of several pages counts as one message. Default 64 MiB.
    #[must_use]
    pub fn max_message_size(mut self, bytes: usize) -> Self {
        self.settings.max_message = bytes;
        self
    }

    /// What tickets call this server, instead of its URL or command: useful where those differ from process to process.
    #[must_use]
    pub fn endpoint(mut self, name: impl Into<String>) -> Self {
        self.settings.endpoint = Endpoint::Named(name.into());
        self
    }

    /// A header for every HTTP request. A name or value that is no header's is an error when connecting.
    #[must_use]
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        let name = name.as_ref();
        match (
            HeaderName::try_from(name),
            HeaderValue::try_from(value.as_ref()),
        ) {
            (Ok(name), Ok(value)) => drop(self.headers.append(name, value)),
            _ => self.wrong = Some(format!("the header {name:?} is no header")),
        }
        self
    }

    /// A bearer token for every HTTP request.
    #[must_use]
    pub fn bearer(self, token: impl Into<String>) -> Self {
        let token = token.into();
        self.bearer_with(move |_| std::future::ready(Some(token.clone())))
    }

    /// Asks for the bearer token before every HTTP request. The argument is `true` when the server has just refused
    /// (401) the last one: then a fresh one is wanted. `None` sends no token.
    #[must_use]
    pub fn bearer_with<F>(mut self, source: impl Fn(bool) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<String>> + Send + 'static,
    {
        self.token = Some(Arc::new(move |refused| Box::pin(source(refused))));
        self
    }

    /// The HTTP client to use, for proxies, TLS settings or a connection pool that is shared. It must not have an
    /// overall timeout: streams stay open as long as a task runs.
    #[must_use]
    pub fn http_client(mut self, client: reqwest::Client) -> Self {
        self.http_client = Some(client);
        self
    }

    /// Connects over a pair of byte streams, one JSON-RPC message a line (2025-11-25 `basic/transports`, stdio).
    ///
    /// # Errors
    /// `Initialize`, `TransportLost` or `Timeout` if the handshake fails.
    pub async fn connect<R, W>(self, io: (R, W)) -> Result<TaskClient, TaskClientError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (reader, writer) = io;
        let limit = self.settings.max_message;
        let opened = self
            .open(|inbound, stop| {
                Ok(Box::new(lines::start(
                    reader, writer, None, limit, inbound, stop,
                )))
            })
            .await?;
        opened.into_client()
    }

    /// Starts a server process and connects to its stdio. Its stderr goes where `command` says. When the client goes,
    /// the process' input is closed, and it is killed if it has not ended two seconds later. Some servers of older
    /// revisions end when they are asked which one they speak: such a one is started again.
    ///
    /// # Errors
    /// `Spawn` if it cannot be started, else as [`connect`](Self::connect).
    pub async fn child(mut self, mut command: Command) -> Result<TaskClient, TaskClientError> {
        let run = command.as_std();
        let words = std::iter::once(run.get_program()).chain(run.get_args());
        let words = words.map(|word| word.to_string_lossy().into_owned());
        let endpoint = Endpoint::Command(words.collect());
        self.connects_to(endpoint);
        let limit = self.settings.max_message;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut start = || {
            let mut child = command.spawn().map_err(TaskClientError::Spawn)?;
            match (child.stdin.take(), child.stdout.take()) {
                (Some(writer), Some(reader)) => Ok((reader, writer, child)),
                _ => Err(TaskClientError::Spawn(std::io::Error::other(
                    "the process has no stdio",
                ))),
            }
        };
        let (reader, writer, child) = start()?;
        let opened = self
            .open(|inbound, stop| {
                Ok(Box::new(lines::start(
                    reader,
                    writer,
                    Some(child),
                    limit,
                    inbound,
                    stop,
                )))
            })
            .await?;
        let Opened::Gone(builder, _) = opened else {
            return opened.into_client();
        };
        tracing::debug!("the server ended at server/discover, starting it again");
        let (reader, writer, child) = start()?;
        builder
            .protocol(ProtocolChoice::V2025_11_25)
            .open(|inbound, stop| {
                Ok(Box::new(lines::start(
                    reader,
                    writer,
                    Some(child),
                    limit,
                    inbound,
                    stop,
                )))
            })
            .await?
            .into_client()
    }

    /// Connects to a Streamable HTTP endpoint (2025-11-25 `basic/transports`, Streamable HTTP). Redirects are followed
    /// within its origin only: our headers are for this server. For `https` reqwest has to be built with TLS: enable
    /// one of its TLS features in your own manifest.
    ///
    /// # Errors
    /// `Config` for a URL or header that is none, else as [`connect`](Self::connect).
    pub async fn http(mut self, url: impl AsRef<str>) -> Result<TaskClient, TaskClientError> {
        let url = url.as_ref();
        let parsed = reqwest::Url::parse(url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(url) = parsed else {
            return Err(TaskClientError::Config(format!("{url:?} is no HTTP URL")));
        };
        let mut public = url.clone();
        let _ = public.set_username("");
        let _ = public.set_password(None);
        public.set_fragment(None);
        self.connects_to(Endpoint::Url(public.into()));
        let client = match self.http_client.take() {
            Some(client) => client,
            None => reqwest::Client::builder()
                .connect_timeout(Duration::from_secs(10))
                .tcp_keepalive(Duration::from_secs(30))
                .redirect(reqwest::redirect::Policy::custom(same_origin))
                .build()
                .map_err(|error| TaskClientError::Config(error.to_string()))?,
        };
        let settings = HttpSettings {
            client,
            url,
            headers: std::mem::take(&mut self.headers),
            token: self.token.take(),
            max_message: self.settings.max_message,
        };
        self.open(|inbound, stop| Ok(Box::new(http_link::start(settings, inbound, stop))))
            .await?
            .into_client()
    }

    fn connects_to(&mut self, endpoint: Endpoint) {
        if !matches!(self.settings.endpoint, Endpoint::Named(_)) {
            self.settings.endpoint = endpoint;
        }
    }

    async fn open(
        self,
        link: impl FnOnce(
            mpsc::Sender<Inbound>,
            CancellationToken,
        ) -> Result<Box<dyn Link>, TaskClientError>,
    ) -> Result<Opened<H>, TaskClientError> {
        if let Some(wrong) = self.wrong {
            return Err(TaskClientError::Config(wrong));
        }
        let stop = CancellationToken::new();
        // Whatever ends this early, or drops it, takes the background work with it.
        let guard = stop.clone().drop_guard();
        let handler = self.handler.clone();
        let timeout = self.settings.request_timeout;
        let (inbound, queue) = mpsc::channel(64);
        let answerer = Arc::new(HandlerAnswerer(handler.clone()));
        let link = link(inbound, stop.clone())?;
        let settings = self.settings.clone();
        let connection = Arc::new(Connection::new(link, settings, answerer, stop.clone()));
        let (to_rmcp, incoming) = mpsc::channel(64);
        let _ = connection.to_rmcp.set(to_rmcp.downgrade());
        tokio::spawn(connection.clone().route(queue, to_rmcp));
        match self.spoken(&connection).await? {
            Probed::Modern => {
                return modern(handler, connection, incoming, guard, timeout).await;
            }
            Probed::Gone(error) => return Ok(Opened::Gone(Box::new(self), error)),
            Probed::Legacy => {}
        }
        if let Some((store, limits)) = self.host {
            let hosting = Hosting::new(store, limits, &connection)?;
            let _ = connection.hosting.set(hosting);
        }
        let channel = Channel {
            connection: connection.clone(),
            incoming,
        };
        let running = match tokio::time::timeout(timeout, serve_client(handler, channel)).await {
            Ok(Ok(running)) => running,
            Ok(Err(error)) => {
                let lost = connection.handshake().lost.take();
                return Err(match (lost, connection.gone.get()) {
                    (Some(lost), _) => TaskClientError::lost(lost, None),
                    (None, Some(_)) => connection.closed_error(None),
                    (None, None) => TaskClientError::Initialize(Box::new(error)),
                });
            }
            Err(_) => {
                return Err(TaskClientError::Timeout {
                    method: "initialize",
                    after: timeout,
                });
            }
        };
        Ok(opened(connection, running, guard))
    }

    /// Finds out which revision to speak.
    async fn spoken(&self, connection: &Arc<Connection>) -> Result<Probed, TaskClientError> {
        let only = match self.settings.protocol {
            ProtocolChoice::V2025_11_25 => return Ok(Probed::Legacy),
            ProtocolChoice::V2026_07_28 => true,
            ProtocolChoice::Auto => false,
        };
        // Over HTTP a server that is slow to start is nothing special, and one that says nothing at all is.
        let timeout = match only || connection.link.has_streams() {
            true => self.settings.request_timeout,
            false => self.settings.probe_timeout,
        };
        match probe(connection, &self.handler.get_info(), timeout, only).await? {
            Probed::Gone(error) if only => Err(error),
            probed => Ok(probed),
        }
    }
}

/// What came of an attempt to connect.
enum Opened<H> {
    Client(TaskClient),
    /// The server went away when it was asked what it speaks.
    Gone(Box<TaskClientBuilder<H>>, TaskClientError),
}

impl<H> Opened<H> {
    fn into_client(self) -> Result<TaskClient, TaskClientError> {
        match self {
            Self::Client(client) => Ok(client),
            Self::Gone(_, error) => Err(error),
        }
    }
}

/// rmcp on a connection that speaks 2026-07-28.
async fn modern<H: ClientHandler>(
    handler: Arc<H>,
    connection: Arc<Connection>,
    incoming: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
    guard: DropGuard,
    timeout: Duration,
) -> Result<Opened<H>, TaskClientError> {
    let channel = Channel {
        connection: connection.clone(),
        incoming,
    };
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let discover = ClientLifecycleMode::Discover { preferred_versions };
    let serving = serve_client_with_lifecycle(handler, channel, discover);
    match tokio::time::timeout(timeout, serving).await {
        Ok(Ok(running)) => Ok(opened(connection, running, guard)),
        Ok(Err(_)) if connection.gone.get().is_some() => Err(connection.closed_error(None)),
        Ok(Err(error)) => Err(TaskClientError::Initialize(Box::new(error))),
        Err(_) => Err(TaskClientError::Timeout {
            method: "server/discover",
            after: timeout,
        }),
    }
}

fn opened<H: ClientHandler>(
    connection: Arc<Connection>,
    running: RunningService<RoleClient, Arc<H>>,
    guard: DropGuard,
) -> Opened<H> {
    let peer = running.peer().clone();
    let _ = connection.peer.set(peer.clone());
    let stop = connection.stop.clone();
    tokio::spawn(async move {
        tokio::select! { _ = running.waiting() => {}, () = stop.cancelled() => {} }
    });
    Opened::Client(TaskClient::new(connection, peer, guard))
}

/// Follows redirects that stay on the server, ten at most.
fn same_origin(attempt: reqwest::redirect::Attempt<'_>) -> reqwest::redirect::Action {
    let first = attempt.previous().first().map(reqwest::Url::origin);
    if attempt.previous().len() > 10 {
        attempt.error("too many redirects")
    } else if first == Some(attempt.url().origin()) {
        attempt.follow()
    } else {
        attempt.stop()
    }
}
