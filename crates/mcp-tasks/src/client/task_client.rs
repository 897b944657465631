//! The client itself.

use std::{fmt, sync::Arc};

use rmcp::{
    ClientHandler,
    model::{CallToolRequestParams, CallToolResult},
    service::{Peer, RoleClient},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    process::Command,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    CallOptions, RemoteTask, TaskClientBuilder, TaskClientError, TaskInfo, TaskStream, Ticket,
    connection::Connection,
    drive::{self, Start},
    remote::spawn,
    server::ToolSupport,
};
use crate::{
    TaskSupport,
    task::Generation,
    wire::{v2025_11_25, v2026_07_28},
};

/// A connection to an MCP server whose tools may run as tasks.
///
/// Cheap to clone. When the last clone is dropped the connection ends: the session is ended (HTTP), a child process is
/// stopped, streams and handles that are still there end with [`TaskClientError::Closed`]. Tasks on the server run on.
#[derive(Clone)]
pub struct TaskClient {
    connection: Arc<Connection>,
    peer: Peer<RoleClient>,
    _guard: Arc<Guard>,
}

/// Ends the connection with its last owner.
struct Guard(CancellationToken, #[allow(dead_code)] DropGuard);

impl TaskClient {
    pub(super) fn new(
        connection: Arc<Connection>,
        peer: Peer<RoleClient>,
        guard: DropGuard,
    ) -> Self {
        let guard = Arc::new(Guard(connection.stop.clone(), guard));
        Self {
            connection,
            peer,
            _guard: guard,
        }
    }

    /// Begins to build a client. `handler` answers the questions of tasks, and everything else a server may ask; a
    /// server only asks what the capabilities in the handler's `get_info` declare.
    pub fn builder<H: ClientHandler>(handler: H) -> TaskClientBuilder<H> {
        TaskClientBuilder::new(handler)
    }

    /// Connects over a pair of byte streams with default settings; see [`TaskClientBuilder::connect`].
    ///
    /// # Errors
    /// As there.
    pub async fn connect<H, R, W>(handler: H, io: (R, W)) -> Result<Self, TaskClientError>
    where
        H: ClientHandler,
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        Self::builder(handler).connect(io).await
    }

    /// Starts a server process with default settings; see [`TaskClientBuilder::child`].
    ///
    /// # Errors
    /// As there.
    pub async fn child(
        handler: impl ClientHandler,
        command: Command,
    ) -> Result<Self, TaskClientError> {
        Self::builder(handler).child(command).await
    }

    /// Connects to a Streamable HTTP endpoint with default settings; see [`TaskClientBuilder::http`].
    ///
    /// # Errors
    /// As there.
    pub async fn http(
        handler: impl ClientHandler,
        url: impl AsRef<str>,
    ) -> Result<Self, TaskClientError> {
        Self::builder(handler).http(url).await
    }

    /// rmcp's side of the same connection, for everything that is no task.
    pub fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    /// The protocol revision the server chose when we connected, as `2025-11-25`.
    pub fn protocol_version(&self) -> &str {
        self.connection
            .server
            .get()
            .map_or("", |server| &server.version)
    }

    /// The generation of tasks that is spoken: what [`protocol_version`](Self::protocol_version) says has either those
    /// of 2025-11-25, or the extension's of 2026-07-28, or none.
    pub fn generation(&self) -> Generation {
        match self.protocol_version() {
            v2026_07_28::VERSION => Generation::V2026_07_28,
            v2025_11_25::VERSION => Generation::V2025_11_25,
            _ => Generation::Legacy,
        }
    }

    /// Whether the server runs tool calls as tasks (`tasks.requests.tools.call` under 2025-11-25, the extension
    /// `io.modelcontextprotocol/tasks` under 2026-07-28), by what it last declared: a new session may have begun since.
    pub fn supports_tasks(&self) -> bool {
        self.connection.declares(|server| server.call)
    }

    /// What the tool says of tasks (`execution.taskSupport`, under 2025-11-25); `Forbidden` if it does not say, or is not
    /// listed. The list of tools is asked for once, and again after it has changed. Under 2026-07-28 tools say nothing,
    /// and the server decides: `Optional` for all of a server that declares the extension.
    ///
    /// # Errors
    /// What failed on the way.
    pub async fn task_support(&self, tool: &str) -> Result<TaskSupport, TaskClientError> {
        if self.connection.modern.get().is_some() {
            return Ok(match self.supports_tasks() {
                true => TaskSupport::Optional,
                false => TaskSupport::Forbidden,
            });
        }
        Ok(match self.connection.tool_support(tool).await? {
            ToolSupport::Forbidden => TaskSupport::Forbidden,
            ToolSupport::Optional => TaskSupport::Optional,
            ToolSupport::Required => TaskSupport::Required,
        })
    }

    /// Calls a tool and gives its result, however long it takes and whatever the server speaks: as a task where server
    /// and tool have tasks, plainly otherwise.
    ///
    /// # Errors
    /// As [`call_tool_with`](Self::call_tool_with).
    pub async fn call_tool(
        &self,
        params: CallToolRequestParams,
    ) -> Result<CallToolResult, TaskClientError> {
        self.call_tool_with(params, CallOptions::new()).await
    }

    /// [`call_tool`](Self::call_tool) with options.
    ///
    /// # Errors
    /// `Cancelled`, `Expired`, `Rpc` (also what a failed task gave), `TransportLost`, `Deadline`, … A result with
    /// `isError: true` is a result.
    pub async fn call_tool_with(
        &self,
        params: CallToolRequestParams,
        options: CallOptions,
    ) -> Result<CallToolResult, TaskClientError> {
        self.call_tool_stream(params, options).result().await
    }

    /// Calls a tool and tells what happens: [`TaskEvent`](super::TaskEvent)s, the last one a result or an error.
    pub fn call_tool_stream(
        &self,
        params: CallToolRequestParams,
        options: CallOptions,
    ) -> TaskStream {
        let start = Start::Call(Box::new(params));
        spawn(&self.connection, start, options, Arc::default())
    }

    /// Calls a tool as a task and returns with the handle.
    ///
    /// `options` also hold for what the handle follows, each time from its start.
    ///
    /// # Errors
    /// `TasksUnsupported` if the server, or the tool, has no tasks; `Immediate` with the result if the server answered
    /// with that; else what failed.
    pub async fn call_tool_task(
        &self,
        params: CallToolRequestParams,
        options: CallOptions,
    ) -> Result<RemoteTask, TaskClientError> {
        let tool = params.name.to_string();
        let (info, token) = drive::create(&self.connection, params, &options).await?;
        let remote = RemoteTask::new(self.connection.clone(), &info.task_id, options);
        Ok(remote.made(Some(info), Some(&tool), Some(&token)))
    }

    /// A handle on a task by its id; nothing is asked yet.
    pub fn task(&self, id: impl AsRef<str>) -> RemoteTask {
        RemoteTask::new(self.connection.clone(), id.as_ref(), CallOptions::new())
    }

    /// Goes on with a task that another process (or another client) began: what was answered there is not asked again.
    /// Nothing is sent yet. Follow it with [`RemoteTask::result`] or [`RemoteTask::events`]; a task that is gone
    /// meanwhile is [`Expired`](TaskClientError::Expired) there.
    ///
    /// # Errors
    /// `Ticket` if it is for another server, or for another protocol revision.
    pub fn resume(&self, ticket: &Ticket) -> Result<RemoteTask, TaskClientError> {
        let settings = &self.connection.settings;
        let server = self.connection.server.get();
        let name = server.map_or("", |server| &server.name);
        ticket.fits(&settings.endpoint, name, self.protocol_version())?;
        let desk = &self.connection.desk;
        desk.restore(&ticket.task, ticket.answered.iter().cloned());
        let remote = RemoteTask::new(self.connection.clone(), &ticket.task, CallOptions::new());
        Ok(remote.made(None, ticket.tool.as_deref(), ticket.token.as_deref()))
    }

    /// All tasks that the server lists for us (`tasks/list`, every page).
    ///
    /// # Errors
    /// `TasksUnsupported` if the server does not declare `tasks.list` (2026-07-28 has no list), `Protocol` for pages that
    /// never end.
    pub async fn list_tasks(&self) -> Result<Vec<TaskInfo>, TaskClientError> {
        self.connection.list_tasks().await
    }

    /// Ends the connection, for all clones, and waits until that is done: the session is ended, a child process gone.
    pub async fn close(self) {
        self._guard.0.cancel();
        self.connection.link.finished().await;
    }
}

impl fmt::Debug for TaskClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskClient")
            .field("server", &self.connection.server.get())
            .finish_non_exhaustive()
    }
}
