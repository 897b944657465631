//! A question on its way: from the server to the user's handler, and the answer back.

use std::sync::Arc;

use bytes::Bytes;
use rmcp::{
    model::{ErrorCode, ErrorData, RequestId},
    service::RequestContext,
};
use serde_json::{Value, value::RawValue};
use tokio_util::sync::CancellationToken;

use super::{
    backoff::Backoff,
    connection::Connection,
    desk::Arrival,
    link::{Kind, Lost, LostKind, Outgoing},
    questions::{Answer, Kind as QuestionKind, Question},
};
use crate::{
    task::{ErrorObject, RawJson},
    wire::envelope,
};

/// How often an answer of ours is sent before it is given up; the server will ask again.
const ANSWER_TRIES: u32 = 6;

impl Connection {
    /// Takes a request that is a question of a task, or came on a stream of ours; `false` leaves it to rmcp.
    pub(super) fn question(
        self: &Arc<Self>,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
        via: Option<&Arc<str>>,
    ) -> bool {
        if self.hosted(id, method, params) {
            return true;
        }
        let Some(kind) = QuestionKind::of(method) else {
            return false;
        };
        let mut question = Question::read(kind, params);
        let declared = self.declared.get().unwrap_or(&Value::Null);
        if let Err(error) = question.declared(declared) {
            self.refuse(id.get().into(), error);
            return true;
        }
        let Ok(request_id) = serde_json::from_str::<RequestId>(id.get()) else {
            return false;
        };
        let stream = self.stream_of(via);
        if let Some(task) = stream.clone().flatten() {
            question.related.get_or_insert(task);
        }
        if question.related.is_none() && stream.is_none() {
            return false;
        }
        let id: Arc<str> = id.get().into();
        let task = question.related.clone();
        match self.desk.arrived(&id, task.as_deref(), &question, via) {
            Arrival::Joined => tracing::debug!(id = &*id, "a question that is being asked already"),
            Arrival::Known { number, answer } => self.answer_soon(id, answer, Some(number)),
            Arrival::Busy => self.refuse(id, internal("too many open questions")),
            Arrival::Endless => {
                let why = "the server asks the same question again and again";
                self.refuse(id, internal(why));
                let lost = Lost::new(LostKind::Protocol, true, why);
                match (&task, via.and_then(|via| Self::own(via))) {
                    (Some(task), _) => self.give_up(task, &lost),
                    (None, Some(call)) => self.lost(call, lost),
                    (None, None) => {}
                }
            }
            Arrival::Ask { number, cancel } => {
                tokio::spawn(self.clone().ask(number, question, request_id, cancel));
            }
        }
        true
    }

    fn refuse(self: &Arc<Self>, id: Arc<str>, error: ErrorData) {
        self.answer_soon(id, Answer::Error(error), None);
    }

    /// Answers without holding up whoever reads. A server that asks and never reads is not answered for ever.
    fn answer_soon(self: &Arc<Self>, id: Arc<str>, answer: Answer, number: Option<u64>) {
        let Ok(permit) = self.answering.clone().try_acquire_owned() else {
            return tracing::warn!(
                "a question is left alone: the server does not take our answers"
            );
        };
        let answering = self.clone().answer(vec![id], answer, number);
        tokio::spawn(async move {
            answering.await;
            drop(permit);
        });
    }

    async fn ask(
        self: Arc<Self>,
        number: u64,
        question: Question,
        id: RequestId,
        cancel: CancellationToken,
    ) {
        // A server may ask before the handshake is over for rmcp.
        let peer = tokio::select! {
            peer = self.peer.wait() => peer.clone(),
            () = self.stop.cancelled() => return,
        };
        let mut context = RequestContext::new(id, peer);
        context.ct = cancel;
        // A task of its own: a panic of the handler must not leave the server waiting.
        let mut asking = tokio::spawn(self.answerer.clone().answer(question, context));
        let answer = tokio::select! {
            answer = &mut asking => answer,
            () = self.stop.cancelled() => return asking.abort(),
        };
        let answer = answer.unwrap_or_else(|error| {
            tracing::warn!(%error, "the handler of a question panicked");
            Answer::Error(ErrorData::new(
                ErrorCode::INTERNAL_ERROR,
                "the client's handler failed",
                None,
            ))
        });
        let waiting = self.desk.answered(number, &answer);
        if !waiting.is_empty() {
            self.answer(waiting, answer, Some(number)).await;
        }
    }

    /// Sends an answer under each of these request ids (JSON text).
    async fn answer(self: Arc<Self>, ids: Vec<Arc<str>>, answer: Answer, number: Option<u64>) {
        let mut taken = false;
        for id in ids {
            let Ok(id) = RawValue::from_string(id.to_string()) else {
                continue;
            };
            let bytes: Bytes = match &answer {
                Answer::Result(result) => envelope::result(&id, result),
                Answer::Error(error) => envelope::error(Some(&id), &error_object(error)),
            }
            .into();
            taken |= self.deliver(bytes).await;
        }
        if let (true, Some(number)) = (taken, number) {
            self.desk.taken(number);
        }
    }

    /// Sends a response, again if that fails on the way; whether the server took it.
    pub(super) async fn deliver(&self, bytes: Bytes) -> bool {
        let mut backoff = Backoff::usual();
        loop {
            let message = Outgoing::new(bytes.clone(), Kind::Other);
            match self.link.send(message).await {
                Ok(()) => return true,
                Err(lost) if lost.kind == LostKind::Transient && backoff.tries() < ANSWER_TRIES => {
                    let wait = backoff.next().max(lost.retry_after.unwrap_or_default());
                    tokio::time::sleep(wait).await;
                }
                Err(lost) => {
                    tracing::warn!(why = lost.why, "an answer did not get through");
                    return false;
                }
            }
        }
    }
}

fn internal(why: &'static str) -> ErrorData {
    ErrorData::new(ErrorCode::INTERNAL_ERROR, why, None)
}

fn error_object(error: &ErrorData) -> ErrorObject {
    ErrorObject {
        code: error.code.0.into(),
        message: error.message.to_string(),
        data: error
            .data
            .as_ref()
            .and_then(|data| RawJson::from_serialize(data).ok()),
    }
}
