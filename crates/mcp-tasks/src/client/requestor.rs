//! The driver in the other direction: a server that makes task-augmented requests of its client
//! (2025-11-25 `basic/utilities/tasks`). Only the link differs, and what was declared.

use std::sync::{Arc, Weak};

use rmcp::{
    model::{ErrorCode, ErrorData},
    service::{RequestContext, RoleClient},
};
use serde_json::{Value, value::RawValue};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    CallOptions, Settings, TaskClientError, TaskEvent, TaskInfo, TaskOutcome, TaskStream,
    connection::Connection,
    drive::{self, Begun, Start},
    link::{Link, Lost, LostKind},
    questions::{Answer, Answerer, Question},
    remote::spawn,
    server::ServerFacts,
    waiting::Reply,
};
use crate::wire::{envelope::Message, v2025_11_25::VERSION};

/// The tasks of the other side, which hosts them for us.
#[derive(Clone)]
pub(crate) struct RemotePeer(Arc<Connection>);

/// The way back to it, for whoever has its answers.
#[derive(Clone)]
pub(crate) struct RemotePeerRef(Weak<Connection>);

/// Nothing is asked on this connection.
struct Nobody;

impl Answerer for Nobody {
    fn answer(
        self: Arc<Self>,
        _: Question,
        _: RequestContext<RoleClient>,
    ) -> futures_util::future::BoxFuture<'static, Answer> {
        let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "nobody answers here", None);
        Box::pin(std::future::ready(Answer::Error(error)))
    }
}

impl RemotePeer {
    /// `link` is made with the way back; `list` and `cancel` are what was declared; `ended` is cancelled when the other
    /// side is gone.
    pub(crate) fn new(
        link: impl FnOnce(RemotePeerRef) -> Box<dyn Link>,
        list: bool,
        cancel: bool,
        ended: CancellationToken,
    ) -> Self {
        let settings = Settings::new();
        let connection = Arc::new_cyclic(|me: &Weak<Connection>| {
            let link = link(RemotePeerRef(me.clone()));
            Connection::new(link, settings, Arc::new(Nobody), ended)
        });
        // Several of these share the streams of a session, also across a restart.
        let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
        connection.number_from(high >> 12);
        // What is told when `ended` is cancelled.
        let _ = connection.gone.set("the client's session has ended".into());
        let _ = connection.server.set(ServerFacts {
            version: VERSION.to_owned(),
            name: String::new(),
            call: false,
            list,
            cancel,
        });
        Self(connection)
    }

    /// Makes a request whose `params` have their task augmentation.
    ///
    /// # Errors
    /// What failed, or the result if that came at once.
    pub(crate) async fn create<R: TaskOutcome>(
        &self,
        method: &'static str,
        params: Value,
        options: &CallOptions,
    ) -> Result<TaskInfo, TaskClientError> {
        match drive::create_request::<R>(&self.0, method, params, options).await? {
            Begun::Task(info) => Ok(info),
            Begun::Done(result) => Err(result.immediate()),
        }
    }

    /// The same, driven to its end.
    pub(crate) fn stream<R: TaskOutcome>(
        &self,
        method: &'static str,
        params: Value,
        options: CallOptions,
    ) -> TaskStream<R> {
        let start = Start::Request { method, params };
        spawn(&self.0, start, options, Arc::default())
    }

    /// Follows a task that is there.
    pub(crate) fn events<R: TaskOutcome>(&self, id: &str, options: CallOptions) -> TaskStream<R> {
        let start = Start::Task {
            id: id.to_owned(),
            existed: false,
            token: None,
        };
        spawn(&self.0, start, options, Arc::default())
    }

    pub(crate) async fn get(&self, id: &str) -> Result<TaskInfo, TaskClientError> {
        self.while_there(self.0.task_info(id, false)).await
    }

    pub(crate) async fn cancel(&self, id: &str) -> Result<TaskInfo, TaskClientError> {
        self.while_there(self.0.cancel_task(id, false)).await
    }

    pub(crate) async fn list(&self) -> Result<Vec<TaskInfo>, TaskClientError> {
        self.while_there(self.0.list_tasks()).await
    }

    async fn while_there<T>(
        &self,
        work: impl Future<Output = Result<T, TaskClientError>>,
    ) -> Result<T, TaskClientError> {
        tokio::select! {
            biased;
            done = work => done,
            () = self.0.stop.cancelled() => Err(self.0.closed_error(None)),
        }
    }
}

impl RemotePeerRef {
    pub(crate) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// A response came.
    pub(crate) fn respond(&self, message: &Message<'_>) {
        if let Some(connection) = self.0.upgrade() {
            connection.respond(message, None);
        }
    }

    /// There will be no response to the request with this id (JSON text), which was sent.
    pub(crate) fn lost(&self, id: &str, why: &str) {
        if let (Some(connection), Some(number)) = (self.0.upgrade(), Connection::own(id)) {
            let lost = Lost::new(LostKind::Transient, true, why);
            connection.settle(number, Reply::Lost(lost));
        }
    }

    /// A notification came; whether it was about tasks.
    pub(crate) fn notified(&self, method: &str, params: Option<&RawValue>) -> bool {
        self.0
            .upgrade()
            .is_some_and(|connection| connection.notification(method, params))
    }
}

/// A stream that says at once why there is nothing to follow.
pub(crate) fn refused<R>(error: TaskClientError) -> TaskStream<R> {
    let (sender, events) = mpsc::channel(1);
    let _ = sender.try_send(TaskEvent::Error(error));
    TaskStream::new(events, Arc::default())
}
