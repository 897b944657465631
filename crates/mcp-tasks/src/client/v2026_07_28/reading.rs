//! What the server tells, as the rest of the client has it: the same for both revisions.

use rmcp::model::{ErrorCode, ErrorData};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::broke;
use crate::{
    client::{TaskClientError, TaskInfo, TaskStatus, error::error_data},
    task::RawJson,
    wire::v2026_07_28::reading::{Asked, Detailed, ResultType},
};

/// A question as it came.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) method: String,
    pub(super) params: Option<RawJson>,
}

impl From<Asked<'_>> for Question {
    fn from(asked: Asked<'_>) -> Self {
        Self {
            method: asked.method.into_owned(),
            params: asked.params.map(RawJson::from_raw),
        }
    }
}

/// How a task ended.
#[derive(Debug)]
pub(super) enum End {
    Result(RawJson),
    Error(ErrorData),
    Cancelled,
}

/// What was told of a task.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) info: TaskInfo,
    /// What it asks; empty unless it waits for answers.
    pub(super) questions: Vec<(String, Question)>,
    pub(super) end: Option<End>,
}

impl Told {
    /// Reads what `tasks/get` and `notifications/tasks` tell.
    ///
    /// # Errors
    /// `Protocol`, naming what is wrong.
    pub(super) fn read(raw: &RawValue) -> Result<Self, TaskClientError> {
        let detailed = Detailed::read(raw).map_err(broke)?;
        let status = match detailed.task.get("status") {
            Some(status) => TaskStatus::deserialize(status)
                .map_err(|_| broke(format!("unknown task status {status}")))?,
            None => return Err(broke("a task has no status")),
        };
        let mut info = TaskInfo::of_members(&detailed.task, status)
            .ok_or_else(|| broke("a task has no taskId"))?;
        let end = match status {
            TaskStatus::Completed => match detailed.result {
                Some(result) => Some(End::Result(RawJson::from_raw(result))),
                None => {
                    let what = format!("task {} completed without a result", info.task_id);
                    return Err(broke(what));
                }
            },
            TaskStatus::Failed => Some(match (detailed.error, detailed.result) {
                (Some(error), _) => End::Error(error_data(error)),
                (None, Some(result)) => End::Result(RawJson::from_raw(result)),
                (None, None) => {
                    let message = info.status_message.clone();
                    let message = message.unwrap_or_else(|| "the task failed".to_owned());
                    End::Error(ErrorData::new(ErrorCode::INTERNAL_ERROR, message, None))
                }
            }),
            TaskStatus::Cancelled => Some(End::Cancelled),
            _ => None,
        };
        // The other revision calls that failed, and whoever uses this client need not know which one is spoken.
        if let (TaskStatus::Completed, Some(End::Result(result))) = (status, &end)
            && says_error(result.as_raw())
        {
            info.status = TaskStatus::Failed;
        }
        let questions = match status {
            TaskStatus::InputRequired => detailed.questions,
            _ => Vec::new(),
        };
        Ok(Self {
            info,
            questions: questions
                .into_iter()
                .map(|(key, asked)| (key, asked.into()))
                .collect(),
            end,
        })
    }
}

/// The handle of a task that was made of a request: its id is kept whatever the rest looks like.
///
/// # Errors
/// `Protocol`, if there is no id.
pub(super) fn handle(raw: &RawValue) -> Result<TaskInfo, TaskClientError> {
    let detailed = Detailed::read(raw).map_err(broke)?;
    let status = detailed
        .task
        .get("status")
        .and_then(|status| TaskStatus::deserialize(status).ok());
    // However it began, it is over only when its result is there.
    let status = match status {
        Some(TaskStatus::InputRequired) => TaskStatus::InputRequired,
        _ => TaskStatus::Working,
    };
    TaskInfo::of_members(&detailed.task, status)
        .ok_or_else(|| broke("the created task has no taskId"))
}

fn says_error(result: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Form {
        #[serde(default, rename = "isError")]
        is_error: Value,
    }
    serde_json::from_str::<Form>(result.get()).is_ok_and(|form| form.is_error == true)
}

/// Whether a result is what its method's results are (`task` passes for `tasks/get`, which some servers call so).
///
/// # Errors
/// `Protocol`, if it says that it is something else.
pub(in crate::client) fn complete(method: &str, result: &RawValue) -> Result<(), TaskClientError> {
    let other = match ResultType::of(result).map_err(broke)? {
        ResultType::Complete => return Ok(()),
        ResultType::Task if method == "tasks/get" => return Ok(()),
        ResultType::Task => "a task".to_owned(),
        ResultType::InputRequired => "questions".to_owned(),
        ResultType::Other(kind) => format!("a result of type {kind:?}"),
    };
    Err(broke(format!("{method} was answered with {other}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Result<Told, TaskClientError> {
        Told::read(&RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn each_status_has_its_end() {
        let end = |text: &str| told(text).unwrap().end;
        let of = |status: &str, more: &str| {
            format!(r#"{{"taskId":"t","status":"{status}","ttlMs":5,"pollIntervalMs":7{more}}}"#)
        };
        assert!(end(&of("working", r#","result":{}"#)).is_none());
        assert!(matches!(
            end(&of("completed", r#","result":{"content":[]}"#)),
            Some(End::Result(_))
        ));
        assert!(matches!(end(&of("cancelled", "")), Some(End::Cancelled)));
        for (more, code) in [(r#","error":{"code":-7,"message":"m"}"#, -7), ("", -32603)] {
            match end(&of("failed", more)) {
                Some(End::Error(error)) => assert_eq!(error.code.0, code),
                other => panic!("{other:?}"),
            }
        }
        let info = told(&of("working", "")).unwrap().info;
        assert_eq!(
            (
                info.ttl.unwrap().as_millis(),
                info.poll_interval.unwrap().as_millis()
            ),
            (5, 7)
        );
        let failed = told(&of("completed", r#","result":{"isError":true}"#)).unwrap();
        assert_eq!(failed.info.status, TaskStatus::Failed);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, why) in [
            (r#"{"taskId":"t","status":"paused"}"#, "paused"),
            (r#"{"taskId":"t"}"#, "no status"),
            (r#"{"status":"working"}"#, "no taskId"),
            (r#"{"taskId":"t","status":"completed"}"#, "without a result"),
            (
                r#"{"taskId":"t","status":"input_required","inputRequests":[]}"#,
                "inputRequests",
            ),
            ("7", "a task"),
        ] {
            let error = told(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
