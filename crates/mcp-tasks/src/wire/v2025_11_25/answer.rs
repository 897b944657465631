//! What a requestor gets.

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Value, json, value::RawValue};

use super::{
    super::{
        envelope,
        error::{MISSING_CLIENT_CAPABILITY, REQUEST_CANCELLED},
        object::RawObject,
        status::{self, Status},
    },
    Cursor, IMMEDIATE_RESPONSE, RELATED_TASK,
};
use crate::task::{ErrorObject, Outcome, RawJson, State, TaskRecord};

/// A task as `tasks/get`, `tasks/cancel`, `tasks/list` and the status notification tell it: flat, no `_meta`.
pub struct TaskView<'a> {
    record: &'a TaskRecord,
    status: Status,
}

impl<'a> TaskView<'a> {
    /// The task as it is.
    pub fn of(record: &'a TaskRecord) -> Self {
        Self {
            record,
            status: status::v2025_11_25(record),
        }
    }

    /// The same for a task that has something to ask and no stream to do so: its requestor has to open `tasks/result`.
    #[must_use]
    pub fn asking(mut self) -> Self {
        if self.status == Status::Working {
            self.status = Status::InputRequired;
        }
        self
    }

    /// The task as a creation answer tells it: always working, even if the body has ended.
    fn created(record: &'a TaskRecord) -> Self {
        Self {
            record,
            status: Status::Working,
        }
    }
}

/// Writes a timestamp without an allocation of its own.
pub(in crate::wire) struct Time(pub(in crate::wire) crate::task::Timestamp);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl Serialize for TaskView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let record = self.record;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("taskId", &record.id)?;
        map.serialize_entry("status", &self.status)?;
        // The message of an end does not belong to a task that is told as working.
        if let Some(message) = &record.status_message
            && (self.status != Status::Working || !record.is_terminal())
        {
            map.serialize_entry("statusMessage", message)?;
        }
        map.serialize_entry("createdAt", &Time(record.created_at))?;
        map.serialize_entry("lastUpdatedAt", &Time(record.updated_at))?;
        map.serialize_entry("ttl", &record.ttl_ms)?;
        map.serialize_entry("pollInterval", &record.poll_interval_ms)?;
        map.end()
    }
}

/// `_meta` that ties a message to `record`.
pub fn related_task(record: &TaskRecord) -> Value {
    json!({ RELATED_TASK: { "taskId": record.id } })
}

/// The answer to a task-augmented request.
pub fn created(id: &RawValue, record: &TaskRecord) -> Vec<u8> {
    #[derive(Serialize)]
    struct Created<'a> {
        task: TaskView<'a>,
        #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
        meta: Option<Value>,
    }
    let meta = record
        .immediate_response
        .as_ref()
        .map(|text| json!({ IMMEDIATE_RESPONSE: text }));
    envelope::result(
        id,
        &Created {
            task: TaskView::created(record),
            meta,
        },
    )
}

/// The answer to `tasks/list`: the page, and where the next begins.
pub fn listed(
    id: &RawValue,
    records: &[std::sync::Arc<TaskRecord>],
    next: Option<&Cursor>,
) -> Vec<u8> {
    #[derive(Serialize)]
    struct Listed<'a> {
        tasks: Vec<TaskView<'a>>,
        #[serde(rename = "nextCursor", skip_serializing_if = "Option::is_none")]
        next: Option<String>,
    }
    let tasks = records.iter().map(|record| TaskView::of(record)).collect();
    envelope::result(
        id,
        &Listed {
            tasks,
            next: next.map(Cursor::encode),
        },
    )
}

/// What a cancelled task's `tasks/result` says.
#[derive(Debug)]
pub struct CancelledOutcome;

impl CancelledOutcome {
    /// The JSON-RPC error -32800.
    pub fn error(record: &TaskRecord) -> ErrorObject {
        ErrorObject {
            code: REQUEST_CANCELLED,
            message: "task was cancelled".into(),
            data: RawJson::from_serialize(&json!({"taskId": record.id, "status": "cancelled"}))
                .ok(),
        }
    }
}

/// What the original request would have returned, as the response to the request `id`; `None` while the task runs.
/// `related` adds the related-task metadata: on `tasks/result` yes, on the plain answer of a shimmed call no.
pub fn outcome(id: &RawValue, record: &TaskRecord, related: bool) -> Option<Vec<u8>> {
    match &record.state {
        State::Active => None,
        State::Cancelled => Some(envelope::error(Some(id), &CancelledOutcome::error(record))),
        State::Finished(Outcome::Error(error)) => {
            Some(envelope::error(Some(id), &known_here(error)))
        }
        State::Finished(Outcome::Result { json, .. }) => {
            let Some(mut result) = RawObject::parse(json.as_raw()) else {
                let error = ErrorObject::internal("the task's result is not an object");
                return Some(envelope::error(Some(id), &error));
            };
            let meta = related.then(|| {
                let mut meta = result.object("_meta");
                meta.set(RELATED_TASK, &json!({ "taskId": record.id }));
                serde_json::value::to_raw_value(&meta).ok()
            });
            let meta = meta.flatten();
            if !related {
                strip_related(&mut result);
            }
            if let Some(meta) = meta {
                result.set("_meta", &meta);
            }
            for_this_revision(&mut result);
            Some(envelope::result(id, &result))
        }
    }
}

/// An error as this revision knows it: the code for a capability that is missing came later.
fn known_here(error: &ErrorObject) -> std::borrow::Cow<'_, ErrorObject> {
    match error.code {
        MISSING_CLIENT_CAPABILITY => {
            std::borrow::Cow::Owned(ErrorObject::internal(error.message.clone()))
        }
        _ => std::borrow::Cow::Borrowed(error),
    }
}

/// A plain answer belongs to no task: a body cannot claim one for it.
fn strip_related(result: &mut RawObject<'_>) {
    let mut meta = result.object("_meta");
    if !meta.remove(RELATED_TASK) {
        return;
    }
    if meta.is_empty() {
        result.remove("_meta");
        return;
    }
    if let Ok(meta) = serde_json::value::to_raw_value(&meta) {
        result.set("_meta", &meta);
    }
}

/// Takes out what this revision does not know: `resultType`, and structured content that is no object (it becomes a
/// text).
fn for_this_revision(result: &mut RawObject<'_>) {
    result.remove("resultType");
    let structured = result
        .get("structuredContent")
        .map(|raw| raw.get().to_owned());
    if let Some(text) = structured.filter(|text| !text.starts_with('{')) {
        result.remove("structuredContent");
        let mut content: Vec<Box<RawValue>> = result
            .get("content")
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        let already = content.iter().any(|block| {
            serde_json::from_str::<Value>(block.get())
                .is_ok_and(|block| block["text"] == text.as_str())
        });
        if !already
            && let Ok(block) =
                serde_json::value::to_raw_value(&json!({"type": "text", "text": text}))
        {
            content.push(block);
            result.set("content", &content);
        }
    }
}
