//! What a tool sends to its client, as the questions, progress and logs of its task.

use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use rmcp::{
    RoleServer,
    model::JsonRpcMessage,
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
};
use serde_json::{Value, json};

use crate::{
    runtime::{InputError, LogLevel, Question, TaskContext},
    task::{ErrorObject, InputKind},
};

/// A question that is out: the answer as the tool's peer takes it; `None` if the tool gave it up.
pub(super) type Asked = BoxFuture<'static, Option<RxJsonRpcMessage<RoleServer>>>;

/// The questions of one run, by the ids that the tool's peer gave them.
#[derive(Default)]
pub(super) struct Relay {
    open: Vec<(Value, AbortHandle)>,
}

impl Relay {
    /// Takes one message; a question is to be driven.
    pub(super) fn take(
        &mut self,
        cx: &TaskContext,
        message: &TxJsonRpcMessage<RoleServer>,
    ) -> Option<Asked> {
        let (id, value) = match message {
            JsonRpcMessage::Request(request) => (
                serde_json::to_value(&request.id).ok(),
                serde_json::to_value(&request.request).ok()?,
            ),
            JsonRpcMessage::Notification(notification) => {
                (None, serde_json::to_value(&notification.notification).ok()?)
            }
            _ => return None,
        };
        let method = value["method"].as_str().unwrap_or_default();
        let params = &value["params"];
        match (method, id) {
            ("notifications/progress", None) => progress(cx, params),
            ("notifications/message", None) => log(cx, params),
            ("notifications/cancelled", None) => {
                // The tool waits for it no longer: it is withdrawn.
                if let Some(at) = self
                    .open
                    .iter()
                    .position(|(id, _)| *id == params["requestId"])
                {
                    self.open.remove(at).1.abort();
                }
            }
            (_, Some(id)) => return Some(self.ask(cx, id, method, params.clone())),
            (other, None) => {
                tracing::debug!(
                    method = other,
                    "a tool's notification that is no task's was dropped"
                );
            }
        }
        None
    }

    fn ask(&mut self, cx: &TaskContext, id: Value, method: &str, params: Value) -> Asked {
        let Some(question) = question(method, params) else {
            let answer = match method {
                "ping" => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
                _ => {
                    let message = format!("a task cannot put the request {method:?} to its client");
                    let error = json!({"code": -32601, "message": message});
                    json!({"jsonrpc": "2.0", "id": id, "error": error})
                }
            };
            return Box::pin(std::future::ready(serde_json::from_value(answer).ok()));
        };
        let (abort, registration) = AbortHandle::new_pair();
        self.open.push((id.clone(), abort));
        // The key is taken now: by the order in which the tool asks.
        let (cx, question) = (cx.clone(), question.key(cx.next_key()));
        Box::pin(async move {
            let asked = async { cx.ask(question).await };
            let answered = Abortable::new(asked, registration).await.ok()?;
            let answer = match answered {
                Ok(result) => {
                    let result: Value = result.parse().ok()?;
                    json!({"jsonrpc": "2.0", "id": id, "result": result})
                }
                Err(error) => {
                    let error = refusal(error);
                    json!({"jsonrpc": "2.0", "id": id, "error": error})
                }
            };
            serde_json::from_value(answer).ok()
        })
    }
}

/// A request to a client as a question; `None` if it is none.
pub(super) fn question(method: &str, mut params: Value) -> Option<Question> {
    let kind = match method {
        "elicitation/create" if params["mode"] == "url" => InputKind::ElicitUrl,
        "elicitation/create" => InputKind::ElicitForm,
        "sampling/createMessage" => InputKind::Sample,
        "roots/list" => InputKind::ListRoots,
        _ => return None,
    };
    match &mut params {
        // Tokens and the like belong to the message, not to the question.
        Value::Object(members) => drop(members.remove("_meta")),
        other => *other = json!({}),
    }
    Some(Question::of(kind, params))
}

/// What a tool is told when there is no answer.
pub(super) fn refusal(error: InputError) -> ErrorObject {
    match error {
        InputError::Rejected(error) => error,
        InputError::Unsupported(_) => ErrorObject::new(-32601, error.to_string()),
        other => ErrorObject::internal(other.to_string()),
    }
}

fn progress(cx: &TaskContext, params: &Value) {
    if let Some(done) = params["progress"].as_f64() {
        cx.progress(done, params["total"].as_f64(), params["message"].as_str());
    }
}

fn log(cx: &TaskContext, params: &Value) {
    let level = params["level"].as_str().and_then(LogLevel::parse);
    cx.log_as(
        level.unwrap_or(LogLevel::Info),
        params["logger"].as_str(),
        params["data"].clone(),
    );
}
