//! One `tools/call`: made, and made again with answers as long as it is answered with questions (2026-07-28
//! `basic/patterns/mrtr`), until its result or a task's handle is there.

use std::sync::Arc;

use rmcp::model::{ErrorCode, ErrorData};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::{
    broke,
    reading::{Question, handle},
};
use crate::{
    client::{
        TaskClientError,
        backoff::Backoff,
        connection::Connection,
        drive::{Begun, CALL_TRIES},
        info::TaskOutcome,
        link::LostKind,
        questions::Answer,
        waiting::{Abandon, Reply},
    },
    task::RawJson,
    wire::{
        error::HEADER_MISMATCH,
        v2026_07_28::reading::{InputRequired, ResultType},
    },
};

/// How often one call may be answered with questions.
const ROUNDS: u32 = 100;
/// How many questions one answer may have.
const QUESTIONS: usize = 256;

/// Makes a call. `tasks`: whether it may become a task. Ends early, with `Closed`, when `abandoned` is cancelled while
/// questions are asked.
pub(in crate::client) async fn begin<R: TaskOutcome>(
    connection: &Arc<Connection>,
    method: &'static str,
    params: Value,
    tasks: bool,
    abandoned: &CancellationToken,
) -> Result<Begun<R>, TaskClientError> {
    let mut next = params.clone();
    let mut pause = Backoff::usual();
    for _ in 0..ROUNDS {
        let result = made(connection, method, &next, tasks).await?;
        let raw = result.as_raw();
        let input = match ResultType::of(raw).map_err(broke)? {
            ResultType::Complete => {
                return R::read(raw).map(|result| Begun::Done(Box::new(result)));
            }
            // Without the extension it was not allowed, but the result is what was wanted.
            ResultType::Task if method == "tools/call" => return handle(raw).map(Begun::Task),
            ResultType::Task => return Err(broke(format!("{method} was answered with a task"))),
            ResultType::Other(kind) => {
                let what = format!("{method} was answered with a result of type {kind:?}");
                return Err(broke(what));
            }
            ResultType::InputRequired => InputRequired::read(raw).map_err(broke)?,
        };
        next = params.clone();
        if let Some(state) = input.state {
            next["requestState"] = Value::String(state);
        }
        if input.questions.is_empty() {
            // It wants time, not answers.
            tokio::select! {
                () = tokio::time::sleep(pause.next()) => {}
                () = abandoned.cancelled() => return Err(TaskClientError::Closed),
            }
            continue;
        }
        let questions: Vec<(String, Question)> = input
            .questions
            .into_iter()
            .map(|(key, asked)| (key, asked.into()))
            .collect();
        let answers = tokio::select! {
            answers = answers(connection, questions) => answers?,
            () = abandoned.cancelled() => return Err(TaskClientError::Closed),
        };
        next["inputResponses"] = Value::Object(answers);
    }
    Err(broke(format!(
        "{method} was answered with questions {ROUNDS} times"
    )))
}

/// The answers to all questions of one round. Dropped, it tells the handler that nobody waits.
async fn answers(
    connection: &Arc<Connection>,
    questions: Vec<(String, Question)>,
) -> Result<Map<String, Value>, TaskClientError> {
    if questions.len() > QUESTIONS {
        return Err(broke(format!("{} questions at once", questions.len())));
    }
    let cancel = CancellationToken::new();
    let _withdrawn = cancel.clone().drop_guard();
    let asking = questions.into_iter().map(|(key, question)| {
        let (connection, cancel) = (connection.clone(), cancel.clone());
        // A task of its own, so that a handler that is told to stop can still do so.
        tokio::spawn(async move {
            let answer = connection.answer_to(&key, &question, None, cancel).await;
            (key, answer)
        })
    });
    let mut answers = Map::new();
    for answered in futures_util::future::join_all(asking).await {
        let failed = |why: String| ErrorData::new(ErrorCode::INTERNAL_ERROR, why, None);
        let (key, answer) = match answered {
            Ok(answered) => answered,
            Err(error) => (String::new(), Answer::Error(failed(error.to_string()))),
        };
        match answer {
            Answer::Result(result) => drop(answers.insert(key, result)),
            Answer::Error(_) if connection.stop.is_cancelled() => {
                return Err(connection.closed_error(None));
            }
            Answer::Error(error) => {
                return Err(TaskClientError::Unanswerable {
                    task_id: None,
                    key,
                    error,
                });
            }
        }
    }
    Ok(answers)
}

/// One request and its result: sent again if it never left, and once if its headers were refused.
async fn made(
    connection: &Arc<Connection>,
    method: &'static str,
    params: &Value,
    tasks: bool,
) -> Result<RawJson, TaskClientError> {
    let Some(modern) = connection.modern.get() else {
        return Err(TaskClientError::Closed);
    };
    let (mut backoff, mut listed_again) = (Backoff::usual(), false);
    loop {
        let call = modern
            .call(connection, method, params.clone(), tasks)
            .await?;
        let mut flight = connection.request_as(call, None, Abandon::Notify).await;
        let lost = match flight.reply().await {
            Reply::Result(result) => return Ok(result),
            Reply::Error(error)
                if i64::from(error.code.0) == HEADER_MISMATCH
                    && connection.link.has_streams()
                    && !listed_again =>
            {
                // The tool is not what it was when it was listed.
                listed_again = true;
                modern.tools.changed();
                continue;
            }
            Reply::Error(error) => return Err(TaskClientError::Rpc(error)),
            Reply::Lost(lost) => lost,
        };
        if lost.kind == LostKind::Closed && connection.stop.is_cancelled() {
            return Err(connection.closed_error(None));
        }
        if lost.sent || lost.kind != LostKind::Transient || backoff.tries() + 1 >= CALL_TRIES {
            return Err(TaskClientError::lost(lost, None));
        }
        tokio::time::sleep(backoff.next().max(lost.retry_after.unwrap_or_default())).await;
    }
}
