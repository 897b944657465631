//! A handle on one task of the server.

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use rmcp::model::CallToolResult;
use tokio::sync::mpsc;

use super::{
    CallOptions, TaskClientError, TaskInfo, TaskStream, Ticket,
    connection::Connection,
    drive::{Start, drive},
    info::TaskOutcome,
};

/// How many events a stream holds for a reader that is behind.
const EVENTS: usize = 32;

/// A task on the server, by its id. Dropping it leaves the task alone.
///
/// A handle does not keep the connection: it is of no use once its [`TaskClient`](super::TaskClient) is dropped.
#[derive(Clone)]
pub struct RemoteTask {
    connection: Arc<Connection>,
    id: Arc<str>,
    info: Arc<Mutex<Option<TaskInfo>>>,
    options: CallOptions,
    /// Whether the task is known to have existed.
    existed: bool,
    tool: Option<Arc<str>>,
    /// The token (JSON text) under which its progress is reported.
    token: Option<Arc<str>>,
}

impl RemoteTask {
    pub(super) fn new(connection: Arc<Connection>, id: &str, options: CallOptions) -> Self {
        Self {
            connection,
            id: id.into(),
            info: Arc::default(),
            options,
            existed: false,
            tool: None,
            token: None,
        }
    }

    /// With what is known of its making.
    pub(super) fn made(
        self,
        info: Option<TaskInfo>,
        tool: Option<&str>,
        token: Option<&str>,
    ) -> Self {
        Self {
            info: Arc::new(Mutex::new(info)),
            existed: true,
            tool: tool.map(Into::into),
            token: token.map(Into::into),
            ..self
        }
    }

    /// The same task, followed with these options.
    #[must_use]
    pub fn with_options(self, options: CallOptions) -> Self {
        Self { options, ..self }
    }

    /// What another process needs to go on with the task; see [`TaskClient::resume`](super::TaskClient::resume).
    ///
    /// Answers that were given are in it as long as the server may ask for them again; a question that is open will be
    /// asked again by whoever resumes.
    pub fn ticket(&self) -> Ticket {
        let server = self.connection.server.get();
        Ticket {
            endpoint: self.connection.settings.endpoint.clone(),
            server: server.map(|server| server.name.clone()).unwrap_or_default(),
            protocol: server
                .map(|server| server.version.clone())
                .unwrap_or_default(),
            task: self.id.to_string(),
            tool: self.tool.as_deref().map(str::to_owned),
            token: self.token.as_deref().map(str::to_owned),
            answered: self.connection.desk.recorded(&self.id),
        }
    }

    /// The task's id. With it [`TaskClient::task`](super::TaskClient::task) finds the task again; a
    /// [`ticket`](Self::ticket) remembers more.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What the server last told through this handle ([`get`](Self::get), [`cancel`](Self::cancel) or the creation).
    pub fn info(&self) -> Option<TaskInfo> {
        self.info
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn known(&self) -> bool {
        self.existed
            || self
                .info
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_some()
    }

    fn told(&self, info: TaskInfo) -> TaskInfo {
        *self.info.lock().unwrap_or_else(PoisonError::into_inner) = Some(info.clone());
        info
    }

    /// Asks the server (`tasks/get`, 2025-11-25 `basic/utilities/tasks`).
    ///
    /// # Errors
    /// `Expired` if the task existed and is gone, `Rpc` (-32602) if it was never seen, else what failed on the way.
    pub async fn get(&self) -> Result<TaskInfo, TaskClientError> {
        self.connection
            .task_info(&self.id, self.known())
            .await
            .map(|info| self.told(info))
    }

    /// Follows the task to its end and gives its tool's result; may be called again, and by several at a time.
    ///
    /// # Errors
    /// `Cancelled`, `Expired`, `Rpc` (what a failed task gave), `Deadline`, or what failed on the way.
    pub async fn result(&self) -> Result<CallToolResult, TaskClientError> {
        self.events().result().await
    }

    /// Follows the task to its end.
    pub fn events(&self) -> TaskStream {
        let start = Start::Task {
            id: self.id.to_string(),
            existed: self.known(),
            token: self.token.as_deref().map(str::to_owned),
        };
        let handle = Arc::new(OnceLock::from(self.clone()));
        spawn(&self.connection, start, self.options.clone(), handle)
    }

    /// Cancels the task (`tasks/cancel`). If it has ended already, how it ended is returned: see its status.
    ///
    /// # Errors
    /// `TasksUnsupported` if the server does not declare `tasks.cancel`, `Expired`, `Rpc`, or what failed on the way.
    pub async fn cancel(&self) -> Result<TaskInfo, TaskClientError> {
        self.connection
            .cancel_task(&self.id, self.known())
            .await
            .map(|info| self.told(info))
    }
}

impl fmt::Debug for RemoteTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteTask")
            .field("id", &self.id)
            .field("info", &self.info())
            .finish_non_exhaustive()
    }
}

/// Drives in the background.
pub(super) fn spawn<R: TaskOutcome>(
    connection: &Arc<Connection>,
    start: Start,
    options: CallOptions,
    handle: Arc<OnceLock<RemoteTask>>,
) -> TaskStream<R> {
    let (sender, events) = mpsc::channel(EVENTS);
    let work = drive(connection.clone(), start, options, sender, handle.clone());
    tokio::spawn(work);
    TaskStream::new(events, handle)
}
