//! Questions inside results, and the user's handler that answers them.
//!
//! An answer in `inputResponses` is a result; there is no room for an error. So an elicitation that cannot be answered
//! is declined, or cancelled where the handler failed. Nothing like that exists for sampling and roots: there the
//! question cannot be answered at all.

use std::sync::Arc;

use rmcp::{
    model::{ErrorCode, ErrorData, RequestId},
    service::RequestContext,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::reading::Question;
use crate::{
    client::{
        connection::Connection,
        questions::{Answer, Kind, Question as Readable},
    },
    task::RawJson,
    wire::v2025_11_25::RELATED_TASK,
};

impl Connection {
    /// Asks the handler, which sees the same as under the other revision: the question, and the task it belongs to.
    /// An error is what cannot be answered at all.
    pub(super) async fn answer_to(
        self: &Arc<Self>,
        key: &str,
        question: &Question,
        task: Option<&str>,
        cancel: CancellationToken,
    ) -> Answer {
        let Some(kind) = Kind::of(&question.method) else {
            let what = format!("nobody knows the question {:?}", question.method);
            return Answer::Error(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, what, None));
        };
        let mut readable = Readable::read(kind, question.params.as_ref().map(RawJson::as_raw));
        // The answer names no task here.
        readable.related = None;
        if let Some(task) = task {
            let related = json!({ "taskId": task });
            readable.meta.insert(RELATED_TASK.to_owned(), related);
        }
        let declared = self.declared.get().unwrap_or(&Value::Null);
        if let Err(error) = readable.declared(declared) {
            tracing::warn!(why = %error.message, "a question that was never declared");
            return declined(kind, "decline", error);
        }
        let closed = || {
            let why = "the client is closed";
            Answer::Error(ErrorData::new(ErrorCode::INTERNAL_ERROR, why, None))
        };
        let peer = tokio::select! {
            peer = self.peer.wait() => peer,
            () = self.stop.cancelled() => return closed(),
        };
        let id = RequestId::String(format!("{}:{key}", task.unwrap_or("call")).into());
        let mut context = RequestContext::new(id, peer.clone());
        context.ct = cancel;
        // A task of its own: a panic of the handler must not leave the server waiting.
        let mut asking = tokio::spawn(self.answerer.clone().answer(readable, context));
        let answer = tokio::select! {
            answer = &mut asking => answer,
            () = self.stop.cancelled() => {
                asking.abort();
                return closed();
            }
        };
        match answer {
            Ok(Answer::Result(result)) => Answer::Result(result),
            Ok(Answer::Error(error)) => declined(kind, "cancel", error),
            Err(error) => {
                tracing::warn!(%error, "the handler of a question panicked");
                let why = "the client's handler failed";
                let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, why, None);
                declined(kind, "cancel", error)
            }
        }
    }

    /// Asks the handler a task's question in the background; the desk remembers the answer, and whoever follows the
    /// task sends it.
    pub(super) async fn ask_keyed(
        self: Arc<Self>,
        task: String,
        key: String,
        question: Question,
        number: u64,
        cancel: CancellationToken,
    ) {
        let answer = self.answer_to(&key, &question, Some(&task), cancel).await;
        if self.stop.is_cancelled() {
            return;
        }
        self.desk.answered(number, &answer);
        if let Some(modern) = self.modern.get() {
            modern.answered.send_modify(|count| *count += 1);
        }
    }
}

fn declined(kind: Kind, action: &str, error: ErrorData) -> Answer {
    match kind {
        Kind::Elicit => Answer::Result(json!({ "action": action })),
        Kind::Sample | Kind::ListRoots => Answer::Error(error),
    }
}
