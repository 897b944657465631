//! What a running task sends to its requestor.

use serde::Serialize;
use serde_json::{Value, json};

use super::{super::envelope, RELATED_TASK, TaskView, related_task};
use crate::task::{Input, InputKind, RawJson, TaskId, TaskRecord};

/// The `_meta` key that names the input a question asks for, so that our client recognises a repeat.
pub const INPUT_META: &str = "mcp-tasks/input";

/// The method that carries a question.
pub const fn question_method(kind: InputKind) -> &'static str {
    match kind {
        InputKind::ElicitForm | InputKind::ElicitUrl => "elicitation/create",
        InputKind::Sample => "sampling/createMessage",
        InputKind::ListRoots => "roots/list",
    }
}

/// The id of one sending of a question: it names task and key, so that any replica can place the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionId {
    /// The task.
    pub task: TaskId,
    /// The question's key.
    pub key: String,
}

impl QuestionId {
    const PREFIX: &'static str = "mcp-tasks/";

    /// A new id, different from every earlier one of the same question.
    pub fn mint(task: &TaskId, key: &str) -> String {
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        format!("{}{}/{task}/{key}", Self::PREFIX, &nonce[..12])
    }

    /// Whether an id is of this kind at all.
    pub fn is_ours(id: &str) -> bool {
        id.starts_with(Self::PREFIX)
    }

    /// Reads an id of ours.
    pub fn parse(id: &str) -> Option<Self> {
        let mut parts = id.strip_prefix(Self::PREFIX)?.splitn(3, '/');
        let (_nonce, task, key) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            task: TaskId::from_stored(task),
            key: key.to_owned(),
        })
    }
}

/// The request that carries a question. `related` adds the related-task metadata: for a task yes, on a shimmed call's
/// own stream no.
pub fn question(request_id: &str, record: &TaskRecord, input: &Input, related: bool) -> Vec<u8> {
    let mut params = match input.question.params.parse::<Value>() {
        Ok(Value::Object(params)) => params,
        _ => serde_json::Map::new(),
    };
    let meta = params.entry("_meta").or_insert_with(|| json!({}));
    if !meta.is_object() {
        *meta = json!({});
    }
    if related {
        meta[RELATED_TASK] = json!({ "taskId": record.id });
        meta[INPUT_META] = json!(input.key);
    }
    if meta.as_object().is_some_and(serde_json::Map::is_empty) {
        params.remove("_meta");
    }
    envelope::request(request_id, question_method(input.question.kind), &params)
}

/// `notifications/tasks/status`: the full task, no related-task metadata.
pub fn status_changed(record: &TaskRecord) -> Vec<u8> {
    envelope::notification("notifications/tasks/status", &TaskView::of(record))
}

/// `notifications/cancelled` for a question that is no longer asked.
pub fn cancelled(request_id: &str, reason: &str) -> Vec<u8> {
    envelope::notification(
        "notifications/cancelled",
        &json!({"requestId": request_id, "reason": reason}),
    )
}

/// `notifications/progress` under the original request's token.
pub fn progress(
    record: &TaskRecord,
    token: &RawJson,
    done: f64,
    total: Option<f64>,
    message: Option<&str>,
    related: bool,
) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Progress<'a> {
        progress_token: &'a RawJson,
        progress: Number,
        #[serde(skip_serializing_if = "Option::is_none")]
        total: Option<Number>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<&'a str>,
        #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
        meta: Option<Value>,
    }
    let params = Progress {
        progress_token: token,
        progress: Number(done),
        total: total.map(Number),
        message,
        meta: related.then(|| related_task(record)),
    };
    envelope::notification("notifications/progress", &params)
}

/// A number that is written without a fraction where it has none.
struct Number(f64);

impl Serialize for Number {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if self.0.fract() == 0.0 && self.0.abs() < EXACT {
            #[allow(clippy::cast_possible_truncation)]
            return serializer.serialize_i64(self.0 as i64);
        }
        serializer.serialize_f64(self.0)
    }
}

/// `notifications/message`.
pub fn log_message(
    record: &TaskRecord,
    level: &str,
    logger: Option<&str>,
    data: &Value,
    related: bool,
) -> Vec<u8> {
    let mut params = json!({"level": level, "data": data});
    if let Some(logger) = logger {
        params["logger"] = json!(logger);
    }
    if related {
        params["_meta"] = related_task(record);
    }
    envelope::notification("notifications/message", &params)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sending_has_an_id_of_its_own_that_names_task_and_key() {
        let task = TaskId::random();
        let (first, second) = (
            QuestionId::mint(&task, "a/b"),
            QuestionId::mint(&task, "a/b"),
        );
        assert_ne!(first, second);
        let parsed = QuestionId::parse(&first).unwrap();
        assert_eq!((parsed.task, parsed.key.as_str()), (task, "a/b"));
        for foreign in ["7", "mcp-tasks/", "mcp-tasks/x/y", "other/x/y/z"] {
            assert_eq!(QuestionId::parse(foreign), None, "{foreign}");
        }
    }
}
