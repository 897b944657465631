//! Reading what a server says of a task. Tolerant: the id and the status are needed, the rest is taken where it fits.

use std::time::Duration;

#[allow(deprecated)] // by rmcp, for revisions after 2026-07-28
use rmcp::model::{CallToolResult, ContentBlock, CreateMessageResult, ElicitResult, MetaObject};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::TaskClientError;
pub use crate::wire::status::Status as TaskStatus;
use crate::{task::Timestamp, wire::v2025_11_25::RELATED_TASK};

/// A task as the server last told it (2025-11-25 `basic/utilities/tasks`, Task; the same of the tasks extension of
/// 2026-07-28, where a task whose result says `isError` is told as failed here too).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskInfo {
    /// The id. Without an authorization context it is the only thing that protects the task.
    pub task_id: String,
    /// The status.
    pub status: TaskStatus,
    /// What the server says about the status, for a person.
    pub status_message: Option<String>,
    /// When the task was made, by the server's clock; `None` if it was not told in RFC 3339.
    pub created_at: Option<Timestamp>,
    /// When the task last changed, by the server's clock.
    pub last_updated_at: Option<Timestamp>,
    /// The time to live from creation; `None` is unlimited, or not told.
    pub ttl: Option<Duration>,
    /// How long to wait between two polls; `None` if not told.
    pub poll_interval: Option<Duration>,
}

impl TaskInfo {
    /// Reads a task as `tasks/get`, `tasks/cancel`, `tasks/list` and the status notification tell it.
    ///
    /// # Errors
    /// What is wrong, naming the member.
    pub(super) fn read(raw: &RawValue) -> Result<Self, TaskClientError> {
        let value = object("a task", raw)?;
        // Some servers nest it here too.
        let task = match (value.get("taskId"), value.get("task")) {
            (None, Some(task @ Value::Object(_))) => task,
            _ => &value,
        };
        let status = match task.get("status") {
            Some(status) => TaskStatus::deserialize(status)
                .map_err(|_| protocol(format!("unknown task status {status}")))?,
            None => return Err(protocol("a task has no status".to_owned())),
        };
        Self::lenient(task, status).ok_or_else(|| protocol("a task has no taskId".to_owned()))
    }

    /// Reads the `task` of a creation answer: the id is kept whatever the rest looks like. `None` if the answer is no
    /// creation answer at all.
    ///
    /// # Errors
    /// If there is a task without an id.
    pub(super) fn read_created(raw: &RawValue) -> Result<Option<Self>, TaskClientError> {
        let value = object("the answer to a request with a task", raw)?;
        let Some(task @ Value::Object(_)) = value.get("task") else {
            return Ok(None);
        };
        let status = task
            .get("status")
            .and_then(|status| TaskStatus::deserialize(status).ok());
        match Self::lenient(task, status.unwrap_or(TaskStatus::Working)) {
            Some(info) => Ok(Some(info)),
            // Something else that happens to be called `task`, beside a result.
            None if value.get("content").is_some() => Ok(None),
            None => Err(protocol("the created task has no taskId".to_owned())),
        }
    }

    fn lenient(task: &Value, status: TaskStatus) -> Option<Self> {
        let Value::Object(task) = task else {
            return None;
        };
        Some(Self {
            ttl: task.get("ttl").and_then(millis),
            poll_interval: task.get("pollInterval").and_then(millis),
            ..Self::of_members(task, status)?
        })
    }

    /// The members of a task by the names of 2026-07-28; `None` without an id.
    pub(super) fn of_members(task: &Map<String, Value>, status: TaskStatus) -> Option<Self> {
        let text = |name: &str| task.get(name).and_then(Value::as_str);
        Some(Self {
            task_id: text("taskId").filter(|id| !id.is_empty())?.to_owned(),
            status,
            status_message: text("statusMessage").map(str::to_owned),
            created_at: text("createdAt").and_then(timestamp),
            last_updated_at: text("lastUpdatedAt").and_then(timestamp),
            ttl: task.get("ttlMs").and_then(millis),
            poll_interval: task.get("pollIntervalMs").and_then(millis),
        })
    }
}

/// What a task gives in the end: the result of a tool call, of an elicitation or of a sampling request.
pub trait TaskOutcome: sealed::Sealed + Sized + Send + 'static {
    /// Reads what `tasks/result` or a plain answer told.
    #[doc(hidden)]
    fn read(raw: &RawValue) -> Result<Self, TaskClientError>;

    /// The task it says that it is of.
    #[doc(hidden)]
    fn related(&self) -> Option<&str> {
        None
    }

    /// It is of a task that failed with this message.
    #[doc(hidden)]
    fn of_failed(&mut self, _message: Option<&str>) {}

    /// The error for one that came where a task was insisted on.
    #[doc(hidden)]
    fn immediate(self) -> TaskClientError;
}

fn related(meta: Option<&MetaObject>) -> Option<&str> {
    meta?.get(RELATED_TASK)?.get("taskId")?.as_str()
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::CallToolResult {}
    impl Sealed for super::ElicitResult {}
    #[allow(deprecated)]
    impl Sealed for super::CreateMessageResult {}
}

impl TaskOutcome for CallToolResult {
    fn read(raw: &RawValue) -> Result<Self, TaskClientError> {
        tool_result(raw)
    }

    fn related(&self) -> Option<&str> {
        related(self.meta.as_ref())
    }

    fn immediate(self) -> TaskClientError {
        TaskClientError::Immediate(Box::new(self))
    }

    /// It is no success, whatever it says: some servers give an empty one.
    fn of_failed(&mut self, message: Option<&str>) {
        self.is_error = Some(true);
        if let (true, Some(message)) = (self.content.is_empty(), message) {
            self.content.push(ContentBlock::text(message));
        }
    }
}

impl TaskOutcome for ElicitResult {
    fn read(raw: &RawValue) -> Result<Self, TaskClientError> {
        outcome("an elicitation result", raw)
    }

    fn immediate(self) -> TaskClientError {
        TaskClientError::ImmediateElicitation(Box::new(self))
    }

    fn related(&self) -> Option<&str> {
        related(self.meta.as_ref())
    }
}

#[allow(deprecated)]
impl TaskOutcome for CreateMessageResult {
    fn read(raw: &RawValue) -> Result<Self, TaskClientError> {
        outcome("a sampling result", raw)
    }

    fn immediate(self) -> TaskClientError {
        TaskClientError::ImmediateMessage(Box::new(self))
    }
}

fn outcome<T: serde::de::DeserializeOwned>(
    what: &str,
    raw: &RawValue,
) -> Result<T, TaskClientError> {
    no_list(what, raw)?;
    serde_json::from_str(raw.get())
        .map_err(|error| protocol(format!("{what} cannot be read: {error}")))
}

/// The result of a tool, as `tools/call` or `tasks/result` gave it.
///
/// # Errors
/// What is wrong with it.
fn tool_result(raw: &RawValue) -> Result<CallToolResult, TaskClientError> {
    no_list("a tool result", raw)?;
    match serde_json::from_str::<CallToolResult>(raw.get()) {
        Ok(result) => Ok(result),
        Err(error) => {
            // A result that says nothing is a result all the same.
            let Value::Object(members) = object("a tool result", raw)? else {
                return Err(protocol(format!("a tool result cannot be read: {error}")));
            };
            if members.keys().all(|name| name == "_meta") {
                let mut result = CallToolResult::default();
                result.meta = members
                    .get("_meta")
                    .and_then(|meta| serde_json::from_value(meta.clone()).ok());
                return Ok(result);
            }
            Err(protocol(format!("a tool result cannot be read: {error}")))
        }
    }
}

/// A list would be read as the members of an object in their order.
fn no_list(what: &str, raw: &RawValue) -> Result<(), TaskClientError> {
    match raw.get().starts_with('[') {
        true => object(what, raw).map(drop),
        false => Ok(()),
    }
}

fn object(what: &str, raw: &RawValue) -> Result<Value, TaskClientError> {
    match serde_json::from_str(raw.get()) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(other) => {
            let text = other.to_string();
            Err(protocol(format!(
                "{what} must be an object, got {}",
                crate::wire::envelope::excerpt(&text)
            )))
        }
        Err(error) => Err(protocol(format!("{what} cannot be read: {error}"))),
    }
}

pub(super) fn protocol(what: String) -> TaskClientError {
    TaskClientError::Protocol(what)
}

fn timestamp(text: &str) -> Option<Timestamp> {
    let time = chrono::DateTime::parse_from_rfc3339(text.trim()).ok()?;
    u64::try_from(time.timestamp_millis())
        .ok()
        .map(Timestamp::from_millis)
}

fn millis(value: &Value) -> Option<Duration> {
    /// Nothing is gained by telling a century from longer.
    const CENTURY_MS: f64 = 3.16e12;
    let ms = value.as_f64().filter(|ms| *ms >= 0.0)?;
    Some(Duration::from_secs_f64(ms.min(CENTURY_MS) / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn a_list_is_no_result() {
        for text in [
            "[]",
            r#"[[{"type":"text","text":"x"}]]"#,
            r#"["accept",{}]"#,
        ] {
            let raw = RawValue::from_string(text.to_owned()).unwrap();
            assert!(
                matches!(tool_result(&raw), Err(TaskClientError::Protocol(_))),
                "{text}"
            );
            let read = outcome::<rmcp::model::ElicitResult>("an answer", &raw);
            assert!(matches!(read, Err(TaskClientError::Protocol(_))), "{text}");
        }
    }

    #[test]
    fn a_task_is_read_with_any_rfc3339_and_without_ttl() {
        for (text, ms) in [
            ("2025-11-25T10:30:00Z", 1_764_066_600_000),
            ("2025-11-25T11:30:00.123456+01:00", 1_764_066_600_123),
            ("2025-11-25t10:30:00.5z", 1_764_066_600_500),
        ] {
            let task = format!(r#"{{"taskId":"t","status":"working","createdAt":"{text}","x":1}}"#);
            let info = TaskInfo::read(&raw(&task)).unwrap();
            assert_eq!(info.created_at, Some(Timestamp::from_millis(ms)), "{text}");
            assert_eq!((info.ttl, info.poll_interval), (None, None));
        }
        let odd = r#"{"taskId":"t","status":"failed","createdAt":7,"ttl":null,"pollInterval":"5"}"#;
        let info = TaskInfo::read(&raw(odd)).unwrap();
        assert_eq!((info.status, info.created_at), (TaskStatus::Failed, None));
        let nested = r#"{"task":{"taskId":"t","status":"completed","pollInterval":1e300}}"#;
        assert!(TaskInfo::read(&raw(nested)).unwrap().poll_interval > Some(Duration::from_secs(1)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = |text: &str| TaskInfo::read(&raw(text)).unwrap_err().to_string();
        assert!(wrong(r#"{"taskId":"t","status":"pending"}"#).contains("\"pending\""));
        assert!(wrong(r#"{"status":"working"}"#).contains("no taskId"));
        assert!(wrong("[1]").contains("must be an object"));
    }

    #[test]
    fn a_handle_keeps_its_id_whatever_the_rest() {
        let info = TaskInfo::read_created(&raw(r#"{"task":{"taskId":"t","status":7,"ttl":{}}}"#));
        let info = info.unwrap().unwrap();
        assert_eq!(
            (info.task_id.as_str(), info.status),
            ("t", TaskStatus::Working)
        );
        assert!(
            TaskInfo::read_created(&raw(r#"{"content":[]}"#))
                .unwrap()
                .is_none()
        );
        assert!(
            TaskInfo::read_created(&raw(r#"{"content":[],"task":{}}"#))
                .unwrap()
                .is_none()
        );
        assert!(TaskInfo::read_created(&raw(r#"{"task":{"id":"t"}}"#)).is_err());
    }

    #[test]
    fn an_empty_result_is_a_result() {
        assert!(
            tool_result(&raw(r#"{"_meta":{"a":1}}"#))
                .unwrap()
                .meta
                .is_some()
        );
        assert_eq!(tool_result(&raw("{}")).unwrap().content.len(), 0);
        assert!(tool_result(&raw(r#"{"foo":1}"#)).is_err());
        assert!(tool_result(&raw(r#"{"resultType":"task","taskId":"t"}"#)).is_err());
    }
}
