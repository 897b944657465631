//! A body, run: from its record to its outcome.

use std::{future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use rmcp::model::{CallToolResult, Extensions};
use tracing::Instrument;

use super::{
    Inner, TaskContext, TaskError, ToolEntry, create,
    engine::{UpdateError, sleep_or_forever},
    error::Failure,
    hub::RunSignals,
    tool::Body,
};
use crate::{
    store::Access,
    task::{Change, ErrorObject, Outcome, RawJson, TaskRecord},
};

/// The pauses after which storing an outcome is tried again when the store fails: each twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Starts the body of a record that this worker holds.
pub(crate) fn start(
    inner: &Arc<Inner>,
    tool: Arc<ToolEntry>,
    record: Arc<TaskRecord>,
    extensions: Extensions,
) {
    let (context, signals) = create::context(inner, &record, extensions);
    let running = inner.engine.hub.run_started(&record.id, &signals);
    // Changes by other processes (a cancel, a take-over) have to reach the body.
    let watch = inner.engine.hub.watch(&inner.engine, &record.id);
    let span = tracing::info_span!("task", id = %record.id, tool = &*record.origin.tool, attempt = record.attempt);
    let inner = inner.clone();
    tokio::spawn(
        async move {
            // Dropped in this order, and whatever panics: no watch outlives its body, no body its end.
            let _running = running;
            let _watch = watch;
            look(&inner, &record).await;
            let ended = run(&inner, tool, &record, &context, &signals).await;
            context.end();
            if let Some(change) = ended {
                store_outcome(&inner, &record, &context, &signals, change).await;
            }
        }
        .instrument(span),
    );
}

/// What was written before the body's watch was opened is not on it: a cancel under an id that was known beforehand.
async fn look(inner: &Arc<Inner>, record: &Arc<TaskRecord>) {
    let hub = &inner.engine.hub;
    match inner
        .engine
        .store
        .get(record.id.as_str(), &Access::System)
        .await
    {
        Ok(Some(present)) if present.revision > record.revision => hub.publish(&present),
        Ok(Some(_)) => {}
        Ok(None) => hub.publish_removed(&record.id),
        Err(error) => tracing::warn!(%error, "the task could not be read; its body runs"),
    }
}

/// Runs the body; the change that ends its task, or `None` if the task is no longer its own to end.
async fn run(
    inner: &Arc<Inner>,
    tool: Arc<ToolEntry>,
    record: &Arc<TaskRecord>,
    context: &TaskContext,
    signals: &RunSignals,
) -> Option<Change> {
    let expired = sleep_or_forever(record.remaining(inner.engine.clock.now()));
    tokio::pin!(expired);
    let _permit = tokio::select! {
        biased;
        () = signals.stop.cancelled() => return None,
        () = signals.cancel.cancelled() => return None,
        () = &mut expired => return None,
        permit = inner.permits.acquire() => permit.ok()?,
    };
    let arguments = record.origin.arguments.clone();
    let before = record.origin.before;
    let work = async {
        if before {
            let stage = tool
                .before
                .as_ref()
                .ok_or_else(|| TaskError::internal("the tool has no stage before"))?;
            let next = contained(|| stage(context.clone(), arguments)).await?;
            return Ok(Ended::Stage(next));
        }
        match &tool.body {
            Body::Run(body) => contained(|| body(context.clone(), arguments))
                .await
                .map(Ended::Body),
            Body::Raw(body) => {
                let result = contained(|| body(context.clone(), arguments)).await?;
                let (size, limit) = (result.get().len(), inner.engine.limits.result);
                if size > limit {
                    return Err(TaskError::internal(format!(
                        "the result of {size} bytes exceeds the limit of {limit} bytes"
                    )));
                }
                Ok(Ended::Stage(result))
            }
            Body::Create(_) => Err(TaskError::internal("the tool's work is done outside")),
        }
    };
    tokio::pin!(work);
    let grace = inner.engine.limits.cancel_grace;
    let ended = tokio::select! {
        biased;
        () = signals.stop.cancelled() => return None,
        ended = &mut work => ended,
        () = signals.cancel.cancelled() => {
            grant(grace, signals, work).await;
            return None;
        }
        () = &mut expired => {
            tracing::info!("the task's lifetime passed while it ran");
            signals.cancel.cancel();
            grant(grace, signals, work).await;
            return None;
        }
    };
    let result = match ended {
        Ok(Ended::Stage(json)) => {
            return Some(inner.engine.finish(
                Outcome::Result {
                    json,
                    is_error: false,
                },
                None,
            ));
        }
        Ok(Ended::Body(result)) => Ok(result),
        Err(error) => Err(error),
    };
    let (outcome, message) = outcome_of(result, Some(&tool), inner.engine.limits.result);
    Some(inner.engine.finish(outcome, message))
}

enum Ended {
    Body(CallToolResult),
    Stage(RawJson),
}

/// Lets a body that was told to end do so, for a while; then it is dropped.
async fn grant<F: Future>(grace: Duration, signals: &RunSignals, work: std::pin::Pin<&mut F>) {
    tokio::select! {
        () = signals.stop.cancelled() => {}
        ended = tokio::time::timeout(grace, work) => {
            if ended.is_err() {
                tracing::warn!(?grace, "the body did not end after a cancel and was dropped");
            }
        }
    }
}

/// Calls user code and drives what it returns; a panic in either becomes an error.
pub(crate) async fn contained<T, F, Fut>(call: F) -> Result<T, TaskError>
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = Result<T, TaskError>>,
{
    let caught = match std::panic::catch_unwind(AssertUnwindSafe(call)) {
        Ok(future) => AssertUnwindSafe(future).catch_unwind().await,
        Err(panic) => Err(panic),
    };
    caught.unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        tracing::error!(panic = what, "a task tool panicked");
        Err(TaskError::internal("the tool panicked"))
    })
}

/// What a body's end is to the task: its outcome and what a person is told about it.
pub(crate) fn outcome_of(
    result: Result<CallToolResult, TaskError>,
    tool: Option<&ToolEntry>,
    limit: usize,
) -> (Outcome, Option<Arc<str>>) {
    let failed = |error: ErrorObject| {
        let message = Some(error.message.as_str().into());
        (Outcome::Error(error), message)
    };
    let mut result = match result {
        Ok(result) => result,
        Err(TaskError(Failure::Tool(result))) => *result,
        Err(TaskError(Failure::Rpc(error))) => {
            let size = error.message.len() + error.data.as_ref().map_or(0, |data| data.get().len());
            return failed(if size > limit {
                ErrorObject::internal(format!(
                    "the error of {size} bytes exceeds the limit of {limit} bytes"
                ))
            } else {
                error
            });
        }
    };
    // Neutral: each generation adds what it wants.
    result.result_type = None;
    let is_error = result.is_error == Some(true);
    if let Some(schema) = tool
        .and_then(|tool| tool.output_schema.as_ref())
        .filter(|_| !is_error)
    {
        let checked = match &result.structured_content {
            Some(content) => schema.check("structuredContent", content),
            None => {
                Err("structuredContent: expected what the output schema says, got nothing".into())
            }
        };
        if let Err(why) = checked {
            return failed(ErrorObject::internal(format!(
                "the tool broke its output schema: {why}"
            )));
        }
    }
    let message =
        is_error.then(|| text_of(&result).unwrap_or_else(|| "the tool reported an error".into()));
    let json = match RawJson::from_serialize(&result) {
        Ok(json) => json,
        Err(e) => {
            return failed(ErrorObject::internal(format!(
                "the result has no JSON form: {e}"
            )));
        }
    };
    let size = json.get().len();
    if size > limit {
        return failed(ErrorObject::internal(format!(
            "the result of {size} bytes exceeds the limit of {limit} bytes"
        )));
    }
    (Outcome::Result { json, is_error }, message.map(Into::into))
}

/// The first text of a result.
pub(crate) fn text_of(result: &CallToolResult) -> Option<String> {
    result
        .content
        .iter()
        .find_map(|block| block.as_text())
        .map(|text| text.text.clone())
}

/// Stores the outcome. A store that fails is tried again for as long as the task lives: a result must not be lost to
/// a fault that passes, and a task whose worker goes on living is nobody else's to end.
async fn store_outcome(
    inner: &Arc<Inner>,
    record: &Arc<TaskRecord>,
    context: &TaskContext,
    signals: &RunSignals,
    change: Change,
) {
    let fence = crate::task::Fence {
        worker: inner.worker.clone(),
        attempt: context.attempt(),
    };
    let mut pause = FIRST_PAUSE;
    let mut hint = Some(record.clone());
    loop {
        match inner
            .engine
            .update(
                &record.id,
                &Access::System,
                Some(&fence),
                hint.take(),
                &change,
            )
            .await
        {
            Ok(record) => {
                tracing::info!(phase = ?record.phase(), "task ended");
                return;
            }
            Err(UpdateError::Refused(refusal, present)) => {
                tracing::debug!(%refusal, "a late outcome was ignored");
                // It may be our own, written by a call that failed after all.
                inner.engine.hub.publish(&present);
                return;
            }
            Err(UpdateError::NotFound) => return,
            Err(UpdateError::Store(error)) => {
                if record.is_expired(inner.engine.clock.now()) {
                    tracing::error!(%error, "the outcome was lost: the store failed until the task expired");
                    return;
                }
                tracing::warn!(%error, ?pause, "the outcome could not be stored yet");
                tokio::select! {
                    () = signals.stop.cancelled() => return,
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                }
            }
        }
    }
}
