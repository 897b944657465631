//! Where each message of the server goes: to one of our requests, to the question desk, or to rmcp.

use std::{io, sync::Arc};

use bytes::Bytes;
use rmcp::{
    model::{ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage},
    service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use serde_json::{Value, json, value::RawValue};
use tokio::sync::mpsc;

use super::{
    TaskInfo,
    connection::Connection,
    error::error_data,
    link::{Inbound, Kind, Lost, LostKind, Outgoing, RENEWAL_ID},
    server::ServerFacts,
    v2026_07_28::Passed,
    waiting::{Reply, TaskProgress},
};
use crate::wire::{envelope::Message, v2025_11_25::VERSION};

/// The transport that rmcp sees: the same link, without what is ours.
pub(super) struct Channel {
    pub(super) connection: Arc<Connection>,
    pub(super) incoming: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
}

impl Transport<RoleClient> for Channel {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let connection = self.connection.clone();
        async move {
            let outgoing = match connection.modern.get() {
                None => connection.outgoing(&message)?,
                Some(modern) => match modern.outgoing(&connection, &message).await? {
                    Passed::On(outgoing) => outgoing,
                    Passed::Answered(answer) => {
                        connection.to_rmcp(*answer).await;
                        return Ok(());
                    }
                    Passed::Dropped => return Ok(()),
                },
            };
            connection
                .link
                .send(outgoing)
                .await
                .map_err(|lost| io::Error::other(lost.why))
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.incoming.close();
        Ok(())
    }
}

impl Connection {
    /// rmcp's message as it goes out. `initialize` offers 2025-11-25; the capabilities are the handler's, and the tasks
    /// that are hosted for the server.
    fn outgoing(&self, message: &TxJsonRpcMessage<RoleClient>) -> io::Result<Outgoing> {
        let mut bytes = serde_json::to_vec(message)?;
        let kind = match Message::parse(&bytes) {
            Ok(Message::Request { id, method, .. }) => {
                let id: Arc<str> = id.get().into();
                if method == "initialize" {
                    Kind::Initialize(id)
                } else {
                    Kind::Request(id)
                }
            }
            Ok(Message::Notification { method, params }) => {
                if method == "notifications/cancelled"
                    && let Some(id) = cancelled_id(params)
                {
                    self.link.abort(&id);
                }
                if method == "notifications/initialized" {
                    Kind::Initialized
                } else {
                    Kind::Other
                }
            }
            _ => Kind::Other,
        };
        if let Kind::Initialize(id) = &kind {
            let mut value: Value = serde_json::from_slice(&bytes)?;
            value["params"]["protocolVersion"] = json!(VERSION);
            if let Some(hosting) = self.hosting.get() {
                hosting.declare(&mut value["params"]["capabilities"]);
            }
            let _ = self.declared.set(value["params"]["capabilities"].clone());
            bytes = serde_json::to_vec(&value)?;
            self.handshake().id = Some(id.clone());
        }
        Ok(Outgoing::new(bytes, kind))
    }

    pub(super) fn handshake(&self) -> std::sync::MutexGuard<'_, super::connection::Handshake> {
        self.handshake
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Routes what comes until the connection ends.
    pub(super) async fn route(
        self: Arc<Self>,
        mut inbound: mpsc::Receiver<Inbound>,
        rmcp: mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
    ) {
        loop {
            let next = tokio::select! { next = inbound.recv() => next, () = self.stop.cancelled() => None };
            match next {
                Some(Inbound::Message { bytes, via }) => {
                    self.message(&bytes, via.as_ref(), &rmcp).await
                }
                Some(Inbound::Lost { id, lost }) => self.request_lost(&id, lost, &rmcp).await,
                Some(Inbound::Closed { why }) => {
                    let _ = self.gone.set(why);
                    break;
                }
                None => break,
            }
        }
        self.shut();
    }

    async fn request_lost(
        &self,
        id: &Arc<str>,
        lost: Lost,
        rmcp: &mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
    ) {
        if let Some(number) = Self::own(id) {
            return self.settle(number, Reply::Lost(lost));
        }
        let why = format!("the request got no answer: {}", lost.why);
        {
            let mut handshake = self.handshake();
            if handshake.id.as_ref() == Some(id) {
                handshake.lost = Some(lost);
            }
        }
        if let Some(modern) = self.modern.get() {
            modern.lost(id);
        }
        // rmcp would wait for ever.
        if let Ok(id) = serde_json::from_str::<RequestId>(id) {
            let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, why, None);
            let _ = rmcp
                .send(ServerJsonRpcMessage::error(error, Some(id)))
                .await;
        }
    }

    async fn message(
        self: &Arc<Self>,
        bytes: &Bytes,
        via: Option<&Arc<str>>,
        rmcp: &mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
    ) {
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            Err(malformed) => {
                tracing::debug!(
                    error = malformed.error.message,
                    "the server sent something that is no message"
                );
                if let Some(number) = malformed.id.and_then(|id| Self::own(id.get())) {
                    let lost = Lost::new(LostKind::Protocol, true, malformed.error.message);
                    self.settle(number, Reply::Lost(lost));
                }
                return;
            }
        };
        match &message {
            Message::Result { .. } | Message::Error { .. } => {
                if self.respond(&message, via) {
                    return;
                }
                // An error that could not name its request: on a stream it is clear which one that is.
                if let (Message::Error { id: None, error }, Some(id)) = (&message, via)
                    && let Ok(id) = serde_json::from_str::<RequestId>(id)
                {
                    let _ = rmcp
                        .send(ServerJsonRpcMessage::error(error_data(error), Some(id)))
                        .await;
                    return;
                }
                if let Message::Result { id, result } = &message
                    && id.get() == RENEWAL_ID
                {
                    // A new session: its server may be another release.
                    self.renewed
                        .store(Some(Arc::new(ServerFacts::read(result))));
                    self.tools.changed();
                    return;
                }
                if let Some(modern) = self.modern.get() {
                    match modern.answered(self, &message) {
                        Passed::On(()) => {}
                        Passed::Answered(answer) => return drop(rmcp.send(*answer).await),
                        Passed::Dropped => return,
                    }
                } else if let Message::Result { id, result } = &message
                    && self.handshake().id.as_deref() == Some(id.get())
                {
                    let _ = self.server.set(ServerFacts::read(result));
                }
            }
            Message::Request { method, .. } if self.modern.get().is_some() => {
                // There are none under this revision, and no responses of ours.
                return tracing::debug!(%method, "a request of the server is ignored");
            }
            Message::Request { id, method, params } => {
                if self.question(id, method, *params, via) {
                    return;
                }
            }
            Message::Notification { method, params } => {
                let ours = match self.modern.get() {
                    Some(modern) => modern.notification(self, method, *params, via),
                    None => self.notification(method, *params),
                };
                if ours {
                    return;
                }
            }
        }
        match serde_json::from_slice::<RxJsonRpcMessage<RoleClient>>(bytes) {
            Ok(message) => drop(rmcp.send(message).await),
            Err(error) => {
                tracing::warn!(%error, "rmcp cannot read a message of the server");
                let answer = match &message {
                    Message::Result { id, .. } | Message::Error { id: Some(id), .. } => {
                        serde_json::from_str::<RequestId>(id.get()).ok()
                    }
                    _ => None,
                };
                if let Some(id) = answer {
                    let what = format!("the answer cannot be read: {error}");
                    let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, what, None);
                    let _ = rmcp
                        .send(ServerJsonRpcMessage::error(error, Some(id)))
                        .await;
                }
            }
        }
    }

    /// Takes a notification that is ours; `false` leaves it to rmcp.
    pub(super) fn notification(&self, method: &str, params: Option<&RawValue>) -> bool {
        match method {
            "notifications/tasks/status" => {
                let info = params.map(TaskInfo::read);
                let Some(Ok(info)) = info else {
                    tracing::debug!(?info, "a status notification that cannot be read");
                    return false;
                };
                self.announce(&info);
                if let Some(callback) = &self.settings.on_status {
                    callback(info);
                }
                true
            }
            "notifications/progress" => self.progress_came(params),
            "notifications/cancelled" => cancelled_id(params).is_some_and(|id| {
                self.desk.withdrawn(&id)
                    || self
                        .hosting
                        .get()
                        .is_some_and(|hosting| hosting.withdrawn(&id))
            }),
            "notifications/tools/list_changed" => {
                self.tools.changed();
                false
            }
            _ => false,
        }
    }
}

impl Connection {
    /// Gives rmcp a message that did not come from the server.
    pub(super) async fn to_rmcp(&self, message: RxJsonRpcMessage<RoleClient>) {
        if let Some(to_rmcp) = self.to_rmcp.get().and_then(mpsc::WeakSender::upgrade) {
            let _ = to_rmcp.send(message).await;
        }
    }

    /// A step of something's progress; `false` leaves it to rmcp.
    pub(super) fn progress_came(&self, params: Option<&RawValue>) -> bool {
        let Some((token, step)) = params.and_then(progress) else {
            return false;
        };
        // A token of the caller's own is rmcp's (and the handler's) business too.
        self.progressed(&token, &step);
        token.starts_with("\"tc:")
    }
}

/// `params.requestId` as JSON text.
pub(super) fn cancelled_id(params: Option<&RawValue>) -> Option<String> {
    let params: Value = serde_json::from_str(params?.get()).ok()?;
    Some(params.get("requestId")?.to_string())
}

fn progress(params: &RawValue) -> Option<(String, TaskProgress)> {
    let params: Value = serde_json::from_str(params.get()).ok()?;
    let step = TaskProgress {
        progress: params.get("progress")?.as_f64()?,
        total: params.get("total").and_then(Value::as_f64),
        message: params
            .get("message")
            .and_then(Value::as_str)
            .map(str::to_owned),
    };
    Some((params.get("progressToken")?.to_string(), step))
}
