//! rmcp's own requests on this connection: they go out with what ours carry, and tools that must not be used over
//! HTTP do not reach it.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::{
    model::{ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage},
    service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage},
};
use serde_json::{Map, Value, json, value::RawValue};

use super::{Modern, Passed, headers, tools::headers_of};
use crate::{
    client::{
        connection::Connection,
        link::{Kind, Outgoing},
        router::cancelled_id,
    },
    wire::{envelope::Message, error::HEADER_MISMATCH, v2026_07_28::VERSION},
};

/// How many requests of rmcp's are remembered until they are answered.
const REMEMBERED: usize = 1024;

/// The requests of rmcp's whose answers concern us, by the JSON text of their ids.
#[derive(Default)]
pub(super) struct PeerCalls(Mutex<HashMap<Arc<str>, PeerCall>>);

enum PeerCall {
    /// `tools/list`, over HTTP.
    List,
    /// `tools/call`, over HTTP, that may be sent once more.
    Call(Value),
}

impl PeerCalls {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, PeerCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, id: &Arc<str>, call: PeerCall) {
        let mut calls = self.lock();
        if calls.len() < REMEMBERED {
            calls.insert(id.clone(), call);
        }
    }

    /// There will be no answer to the request with this id.
    fn forget(&self, id: &str) {
        self.lock().remove(id);
    }
}

impl Modern {
    /// rmcp's message as it goes out.
    pub(in crate::client) async fn outgoing(
        &self,
        connection: &Arc<Connection>,
        message: &TxJsonRpcMessage<RoleClient>,
    ) -> io::Result<Passed<Outgoing>> {
        let bytes = serde_json::to_vec(message)?;
        let http = connection.link.has_streams();
        match Message::parse(&bytes) {
            Ok(Message::Request { id, method, .. }) => {
                let id: Arc<str> = id.get().into();
                if method == "server/discover" && connection.peer.get().is_none() {
                    return Ok(self.rediscovered(&id));
                }
                let method = method.into_owned();
                let whole: Value = serde_json::from_slice(&bytes)?;
                self.request(connection, &id, &method, whole, http).await
            }
            Ok(Message::Notification { method, params }) => {
                if method == "notifications/cancelled"
                    && let Some(id) = cancelled_id(params)
                {
                    self.peer.forget(&id);
                    connection.link.abort(&id);
                    // Closing its stream has said it.
                    if http {
                        return Ok(Passed::Dropped);
                    }
                }
                let headers = http.then(|| headers::of(&method, None));
                Ok(Passed::On(Outgoing {
                    headers,
                    ..Outgoing::new(bytes, Kind::Other)
                }))
            }
            // There are no responses of clients under this revision.
            _ => Ok(Passed::Dropped),
        }
    }

    async fn request(
        &self,
        connection: &Arc<Connection>,
        id: &Arc<str>,
        method: &str,
        mut whole: Value,
        http: bool,
    ) -> io::Result<Passed<Outgoing>> {
        self.stamp.complete(&mut whole["params"]);
        let headers = match (http, method) {
            (false, _) => None,
            (true, "tools/call") => {
                match self
                    .call_headers(connection, method, &whole["params"])
                    .await
                {
                    Ok(headers) => {
                        self.peer.remember(id, PeerCall::Call(whole.clone()));
                        Some(headers)
                    }
                    Err(error) => return Ok(refused(id, error.to_string())),
                }
            }
            (true, method) => {
                if method == "tools/list" {
                    self.peer.remember(id, PeerCall::List);
                }
                Some(headers::of(method, whole.get("params")))
            }
        };
        Ok(Passed::On(Outgoing {
            headers,
            ..Outgoing::new(serde_json::to_vec(&whole)?, Kind::Request(id.clone()))
        }))
    }

    /// What was found out already, for rmcp to begin with.
    fn rediscovered(&self, id: &Arc<str>) -> Passed<Outgoing> {
        let found = &self.discovered;
        let member = |name: &str| found.get(name).cloned();
        let capabilities = member("capabilities").filter(|value| {
            serde_json::from_value::<rmcp::model::ServerCapabilities>(value.clone()).is_ok()
        });
        let mut result = json!({
            "resultType": "complete",
            "supportedVersions": [VERSION],
            "capabilities": capabilities.unwrap_or_else(|| json!({})),
            "ttlMs": member("ttlMs").and_then(|ms| ms.as_u64()).unwrap_or(0),
            "cacheScope": match found.get("cacheScope").and_then(Value::as_str) {
                Some("public") => "public",
                _ => "private",
            },
        });
        if let Some(Value::String(text)) = member("instructions") {
            result["instructions"] = json!(text);
        }
        if let Some(meta @ Value::Object(_)) = member("_meta") {
            result["_meta"] = meta;
        }
        answered(id, &result)
    }

    /// The answer to a request of rmcp's came.
    pub(in crate::client) fn answered(
        &self,
        connection: &Arc<Connection>,
        message: &Message<'_>,
    ) -> Passed<()> {
        let id = match message {
            Message::Result { id, .. } | Message::Error { id: Some(id), .. } => id.get(),
            _ => return Passed::On(()),
        };
        let (id, call) = match self.peer.lock().remove_entry(id) {
            Some(known) => known,
            None => return Passed::On(()),
        };
        match (call, message) {
            (PeerCall::List, Message::Result { result, .. }) => filtered(&id, result),
            (PeerCall::Call(whole), Message::Error { error, .. }) => {
                let error = connection.error_of(error);
                if i64::from(error.code.0) != HEADER_MISMATCH {
                    return Passed::On(());
                }
                self.tools.changed();
                tokio::spawn(again(connection.clone(), id, whole));
                Passed::Dropped
            }
            _ => Passed::On(()),
        }
    }

    /// The request of rmcp's with this id will get no answer.
    pub(in crate::client) fn lost(&self, id: &str) {
        self.peer.forget(id);
    }
}

/// Makes rmcp's call once more, with the headers of the tools as they are now.
async fn again(connection: Arc<Connection>, id: Arc<str>, whole: Value) {
    let Some(modern) = connection.modern.get() else {
        return;
    };
    let made = modern.call_headers(&connection, "tools/call", &whole["params"]);
    let why = match made.await {
        Ok(headers) => {
            let message = Outgoing {
                headers: Some(headers),
                ..Outgoing::new(whole.to_string(), Kind::Request(id.clone()))
            };
            match connection.link.send(message).await {
                Ok(()) => return,
                Err(lost) => lost.why,
            }
        }
        Err(error) => error.to_string(),
    };
    if let Passed::Answered(error) = refused::<()>(&id, why) {
        connection.to_rmcp(*error).await;
    }
}

/// A list without the tools that must not be used over HTTP.
fn filtered(id: &Arc<str>, result: &RawValue) -> Passed<()> {
    let Ok(Value::Object(mut result)) = serde_json::from_str::<Value>(result.get()) else {
        return Passed::On(());
    };
    let Some(Value::Array(tools)) = result.get_mut("tools") else {
        return Passed::On(());
    };
    let before = tools.len();
    tools.retain(|tool| {
        let schema = tool.get("inputSchema").unwrap_or(&Value::Null);
        match headers_of(schema) {
            Some(Err(why)) => {
                tracing::warn!(tool = %tool["name"], why, "a tool is left out");
                false
            }
            _ => true,
        }
    });
    match tools.len() == before {
        true => Passed::On(()),
        false => answered(id, &Value::Object(result)),
    }
}

/// A result for rmcp.
fn answered<T>(id: &str, result: &Value) -> Passed<T> {
    let id: Value = serde_json::from_str(id).unwrap_or_default();
    let mut message = Map::new();
    message.insert("jsonrpc".to_owned(), json!("2.0"));
    message.insert("id".to_owned(), id);
    message.insert("result".to_owned(), result.clone());
    match serde_json::from_value::<RxJsonRpcMessage<RoleClient>>(Value::Object(message)) {
        Ok(message) => Passed::Answered(Box::new(message)),
        Err(_) => Passed::Dropped,
    }
}

/// An error for rmcp.
fn refused<T>(id: &str, why: String) -> Passed<T> {
    let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, why, None);
    let id: Option<RequestId> = serde_json::from_str(id).ok();
    Passed::Answered(Box::new(ServerJsonRpcMessage::error(error, id)))
}
