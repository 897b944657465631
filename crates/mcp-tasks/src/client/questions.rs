//! What a server may ask, and the user's handler that answers.

use std::sync::Arc;

use rmcp::{
    ClientHandler,
    model::{ElicitRequestParams, ErrorCode, ErrorData, RequestMetaObject},
    service::{RequestContext, RoleClient},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json, value::RawValue};

use crate::wire::v2025_11_25::RELATED_TASK;

/// The methods that are questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Elicit,
    Sample,
    ListRoots,
}

impl Kind {
    pub(super) fn of(method: &str) -> Option<Self> {
        match method {
            "elicitation/create" => Some(Self::Elicit),
            "sampling/createMessage" => Some(Self::Sample),
            "roots/list" => Some(Self::ListRoots),
            _ => None,
        }
    }

    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Elicit => "elicitation/create",
            Self::Sample => "sampling/createMessage",
            Self::ListRoots => "roots/list",
        }
    }
}

/// The parameters of a question as the server sent them, without `_meta`: in the
/// [`extensions`](RequestContext::extensions) of what the handler gets, because rmcp's model leaves out some of what a
/// requested schema may say (`pattern`, for one).
#[derive(Debug, Clone, PartialEq)]
pub struct QuestionParams(pub Value);

/// One question as it came.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) kind: Kind,
    /// The parameters without `_meta`.
    pub(super) params: Map<String, Value>,
    /// `params._meta`.
    pub(super) meta: Map<String, Value>,
    /// The task it belongs to, by its related-task metadata.
    pub(super) related: Option<String>,
}

impl Question {
    /// Reads a request. Parameters that are no object count as none; the handler's side will say what is missing.
    pub(super) fn read(kind: Kind, params: Option<&RawValue>) -> Self {
        let mut params: Map<String, Value> = params
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        let meta = match params.remove("_meta") {
            Some(Value::Object(meta)) => meta,
            _ => Map::new(),
        };
        let related = meta
            .get(RELATED_TASK)
            .and_then(|related| related.get("taskId"));
        let related = related.and_then(Value::as_str).map(str::to_owned);
        Self {
            kind,
            params,
            meta,
            related,
        }
    }
}

impl Question {
    /// Whether these capabilities of ours let a server ask this (2025-11-25 `client/elicitation`, `client/sampling`).
    ///
    /// # Errors
    /// -32601 for a method, -32602 for a mode or a member, that we never declared.
    pub(super) fn declared(&self, capabilities: &Value) -> Result<(), ErrorData> {
        let name = match self.kind {
            Kind::Elicit => "elicitation",
            Kind::Sample => "sampling",
            Kind::ListRoots => "roots",
        };
        let Some(declared) = capabilities.get(name).and_then(Value::as_object) else {
            let what = format!("this client did not declare {name}");
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, what, None));
        };
        let has = |member: &str| declared.get(member).is_some_and(Value::is_object);
        let mode = self.params.get("mode").and_then(Value::as_str);
        let missing = match self.kind {
            Kind::Elicit if mode == Some("url") => (!has("url")).then_some("elicitation.url"),
            Kind::Elicit => (has("url") && !has("form")).then_some("elicitation.form"),
            Kind::Sample => {
                let tools = ["tools", "toolChoice"].map(|name| self.params.get(name));
                let tools = tools.into_iter().flatten().any(|value| !value.is_null());
                (tools && !has("tools")).then_some("sampling.tools")
            }
            Kind::ListRoots => None,
        };
        missing.map_or(Ok(()), |name| {
            let what = format!("this client did not declare {name}");
            Err(ErrorData::new(ErrorCode::INVALID_PARAMS, what, None))
        })
    }
}

/// What was answered.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    Result(Value),
    Error(ErrorData),
}

/// Asks the user's handler; hides its type.
pub(super) trait Answerer: Send + Sync + 'static {
    fn answer(
        self: Arc<Self>,
        question: Question,
        context: RequestContext<RoleClient>,
    ) -> futures_util::future::BoxFuture<'static, Answer>;
}

/// The handler behind [`Answerer`].
pub(super) struct HandlerAnswerer<H>(pub(super) Arc<H>);

impl<H: ClientHandler> Answerer for HandlerAnswerer<H> {
    fn answer(
        self: Arc<Self>,
        question: Question,
        mut context: RequestContext<RoleClient>,
    ) -> futures_util::future::BoxFuture<'static, Answer> {
        let handler = self.0.clone();
        Box::pin(async move {
            let Question {
                kind,
                mut params,
                meta,
                related,
            } = question;
            if let Ok(meta) =
                serde_json::from_value::<RequestMetaObject>(Value::Object(meta.clone()))
            {
                context.meta = meta;
            }
            let raw = QuestionParams(Value::Object(params.clone()));
            context.extensions.insert(raw);
            if !meta.is_empty() {
                params.insert("_meta".to_owned(), Value::Object(meta));
            }
            let params = Value::Object(params);
            #[allow(deprecated)]
            let answer = match kind {
                Kind::Elicit => match read::<ElicitRequestParams>(params) {
                    Ok(params) => handler
                        .create_elicitation(params, context)
                        .await
                        .and_then(value),
                    Err(error) => Err(error),
                },
                Kind::Sample => match read::<rmcp::model::CreateMessageRequestParams>(params) {
                    Ok(params) => handler
                        .create_message(params, context)
                        .await
                        .and_then(value),
                    Err(error) => Err(error),
                },
                Kind::ListRoots => handler.list_roots(context).await.and_then(value),
            };
            match answer {
                Ok(result) => Answer::Result(related_to(related.as_deref(), result)),
                Err(error) => Answer::Error(error),
            }
        })
    }
}

fn read<T: DeserializeOwned>(params: Value) -> Result<T, ErrorData> {
    serde_json::from_value(params).map_err(|error| {
        ErrorData::new(
            ErrorCode::INVALID_PARAMS,
            format!("the question cannot be read: {error}"),
            None,
        )
    })
}

fn value(result: impl Serialize) -> Result<Value, ErrorData> {
    serde_json::to_value(result).map_err(|error| {
        ErrorData::new(
            ErrorCode::INTERNAL_ERROR,
            format!("the answer has no JSON form: {error}"),
            None,
        )
    })
}

/// Ties `result` to its task, beside whatever metadata the handler gave it.
fn related_to(task: Option<&str>, mut result: Value) -> Value {
    if let (Some(task), Some(members)) = (task, result.as_object_mut()) {
        match members.entry("_meta").or_insert_with(|| json!({})) {
            Value::Object(meta) => {
                meta.insert(RELATED_TASK.to_owned(), json!({ "taskId": task }));
            }
            other => *other = json!({ RELATED_TASK: { "taskId": task } }),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_declared_may_be_asked() {
        let all =
            json!({"elicitation": {"url": {}, "form": {}}, "sampling": {"tools": {}}, "roots": {}});
        let plain = json!({"elicitation": {}, "sampling": {}, "roots": null});
        let url = json!({"elicitation": {"url": {}}});
        for (kind, params, of_all, of_plain, of_url) in [
            (Kind::Elicit, r#"{"mode":"form"}"#, 0, 0, -32602),
            (Kind::Elicit, r#"{"mode":"url"}"#, 0, -32602, 0),
            (Kind::Sample, r#"{"tools":[]}"#, 0, -32602, -32601),
            (Kind::Sample, r#"{"tools":null}"#, 0, 0, -32601),
            (Kind::ListRoots, "{}", 0, -32601, -32601),
        ] {
            let raw = RawValue::from_string(params.to_owned()).unwrap();
            let question = Question::read(kind, Some(&raw));
            for (declared, expected) in [(&all, of_all), (&plain, of_plain), (&url, of_url)] {
                let code = question
                    .declared(declared)
                    .map_or_else(|e| e.code.0, |()| 0);
                assert_eq!(code, expected, "{kind:?} {params} {declared}");
            }
        }
    }

    #[test]
    fn answers_echo_the_task_beside_the_handlers_own_metadata() {
        let own = json!({"action": "accept", "_meta": {"mine": 1}});
        assert_eq!(
            related_to(Some("t"), own.clone())["_meta"],
            json!({"mine": 1, RELATED_TASK: {"taskId": "t"}})
        );
        assert_eq!(related_to(None, own.clone()), own);
        assert_eq!(
            related_to(Some("t"), json!({}))["_meta"][RELATED_TASK]["taskId"],
            "t"
        );
    }
}
