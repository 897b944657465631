//! The body of a task that is a call of an inner tool: in our own future, as its requestor would have called it.

use std::sync::Arc;

use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, InitializeRequestParams,
    InputRequests, InputRequiredResult, JsonObject, RequestMetaObject,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    AfterFn, InnerTools,
    inner::Client,
    relay::{self, Relay},
};
use crate::runtime::{Recovery, TaskContext, TaskError, WORKER_STOPPED};

/// How often a tool may ask in rounds before that counts as a fault.
const ROUNDS: u32 = 100;

pub(super) struct InnerBody {
    pub(super) tool: String,
    pub(super) inner: Arc<dyn InnerTools>,
    pub(super) recovery: Recovery,
    pub(super) after: Option<AfterFn>,
}

/// Where a call that asks in rounds stands: the task's checkpoint.
#[derive(Serialize, Deserialize)]
struct Round {
    number: u32,
    /// What the tool wants to have back, as it came.
    state: Option<String>,
    /// What it asked.
    requests: InputRequests,
    /// The tool is running with the answers: from here on it may have done something.
    running: bool,
}

impl InnerBody {
    pub(super) async fn run(
        &self,
        cx: TaskContext,
        arguments: Value,
    ) -> Result<CallToolResult, TaskError> {
        let saved: Option<Round> = cx.restored()?;
        let mut round = saved.filter(|round| !round.running);
        if cx.attempt() > 1 && round.is_none() && self.recovery == Recovery::Fail {
            return Err(TaskError::internal(WORKER_STOPPED));
        }
        let arguments = match arguments {
            Value::Object(arguments) => Some(arguments),
            _ => None,
        };
        let result = loop {
            let mut params = self.params(&cx, arguments.clone());
            if let Some(round) = &mut round {
                if round.requests.is_empty() {
                    // It wants to be called again, not to be asked for it without pause.
                    tokio::time::sleep(cx.poll_interval()).await;
                }
                params.input_responses = Some(answers(&cx, round).await?);
                params.request_state = round.state.clone();
                round.running = true;
                cx.checkpoint(round).await?;
            }
            match self.once(&cx, params).await? {
                CallToolResponse::Complete(result) => break result,
                CallToolResponse::InputRequired(required) => {
                    let number = round.as_ref().map_or(0, |round| round.number) + 1;
                    if number > ROUNDS {
                        let why = format!("the tool asked in more than {ROUNDS} rounds");
                        return Err(TaskError::internal(why));
                    }
                    let next = asked(number, required);
                    cx.checkpoint(&next).await?;
                    round = Some(next);
                }
                _ => {
                    let why = "the tool answered with a task of its own";
                    return Err(TaskError::internal(why));
                }
            }
        };
        match &self.after {
            Some(after) => after(cx, result).await,
            None => Ok(result),
        }
    }

    fn params(&self, cx: &TaskContext, arguments: Option<JsonObject>) -> CallToolRequestParams {
        let mut params = CallToolRequestParams::new(self.tool.clone());
        params.arguments = arguments;
        params.meta = meta(cx);
        params
    }

    /// One call of the tool. What it sends meanwhile becomes the task's; whatever it leaves behind loses its peer with
    /// the end of this.
    async fn once(
        &self,
        cx: &TaskContext,
        params: CallToolRequestParams,
    ) -> Result<CallToolResponse, TaskError> {
        let mut client = Client::new(&self.inner, requestor(cx));
        let mut context = client.context();
        if let Some(meta) = meta(cx) {
            context.meta = meta;
        }
        context.extensions = cx.extensions().clone();
        let cancel = context.ct.clone();
        // Dropped with this future, the tool sees its token fire.
        let _cancelled = cancel.clone().drop_guard();
        let (mut relay, mut asked) = (Relay::default(), FuturesUnordered::new());
        let mut call = self.inner.call(params, context);
        let ended = loop {
            tokio::select! {
                biased;
                Some(message) = client.sent.recv() => asked.extend(relay.take(cx, &message)),
                Some(answer) = asked.next(), if !asked.is_empty() => {
                    if let Some(answer) = answer {
                        let _ = client.answers.send(Box::new(answer)).await;
                    }
                }
                () = cx.cancelled(), if !cancel.is_cancelled() => cancel.cancel(),
                ended = &mut call => break ended,
            }
        };
        // What was sent before the end is told before it.
        while let Ok(message) = client.sent.try_recv() {
            relay.take(cx, &message);
        }
        ended.map_err(TaskError::from)
    }
}

/// The request's `_meta`, with its progress token, as it came.
fn meta(cx: &TaskContext) -> Option<RequestMetaObject> {
    cx.request()
        .meta
        .as_ref()
        .and_then(|meta| meta.parse().ok())
}

/// The requestor, as a session with it would have begun: what it can be asked is what it declared.
fn requestor(cx: &TaskContext) -> InitializeRequestParams {
    let requestor = cx.requestor();
    let of =
        |raw: &Option<crate::task::RawJson>| raw.as_ref().and_then(|raw| raw.parse::<Value>().ok());
    let info = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": of(&requestor.capabilities).unwrap_or_else(|| json!({})),
        "clientInfo": of(&requestor.client_info)
            .unwrap_or_else(|| json!({"name": "unknown", "version": "0"})),
    });
    serde_json::from_value(info).unwrap_or_default()
}

fn asked(number: u32, required: InputRequiredResult) -> Round {
    Round {
        number,
        state: required.request_state,
        requests: required.input_requests.unwrap_or_default(),
        running: false,
    }
}

/// Puts the questions of a round, under keys of that round, and waits for all answers.
async fn answers(
    cx: &TaskContext,
    round: &Round,
) -> Result<std::collections::BTreeMap<String, Value>, TaskError> {
    let asked = round.requests.iter().map(|(key, request)| async move {
        let request = serde_json::to_value(request)?;
        let method = request["method"].as_str().unwrap_or_default();
        let question = relay::question(method, request["params"].clone()).ok_or_else(|| {
            TaskError::internal(format!("the tool asked {method:?}, which is no question"))
        })?;
        let question = question.key(format!("{}.{key}", round.number));
        let answer = cx.ask(question).await.map_err(TaskError::from)?;
        Ok((key.clone(), answer.parse::<Value>()?))
    });
    join_all(asked).await.into_iter().collect()
}
