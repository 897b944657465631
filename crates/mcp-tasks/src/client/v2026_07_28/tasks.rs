//! The ordinary requests about tasks.

use std::sync::Arc;

use rmcp::model::ErrorCode;
use serde_json::json;

use super::{Modern, broke, reading::Told};
use crate::{
    client::{TaskClientError, TaskInfo, TaskStatus, connection::Connection},
    task::RawJson,
};

/// How often a task is asked whether it has obeyed a cancel.
const LOOKS: u32 = 4;
/// How long to wait between two looks at most.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(1);
/// How many cancelled tasks are remembered.
const REMEMBERED: usize = 256;

impl Modern {
    /// The server has taken a cancel: whoever follows the task waits for its end, not for answers.
    fn cancel_taken(&self, task: &str) {
        self.cancelled.send_modify(|tasks| {
            tasks.retain(|known| known != task);
            if tasks.len() >= REMEMBERED {
                tasks.remove(0);
            }
            tasks.push(task.to_owned());
        });
    }
}

/// What `tasks/get` told of a task.
pub(in crate::client) fn info_of(raw: &RawJson) -> Result<TaskInfo, TaskClientError> {
    Told::read(raw.as_raw()).map(|told| told.info)
}

impl Connection {
    /// `tasks/cancel`, without a look at what becomes of it: the answer only says that it was taken (extension,
    /// Task Cancellation).
    pub(in crate::client) async fn cancel_modern(
        self: &Arc<Self>,
        task: &str,
    ) -> Result<(), TaskClientError> {
        let params = json!({ "taskId": task });
        self.read("tasks/cancel", &params, Some(task)).await?;
        self.desk.stop_asking(task);
        if let Some(modern) = self.modern.get() {
            modern.cancel_taken(task);
        }
        Ok(())
    }

    /// `tasks/cancel`, and what became of it: a server may take a moment to obey, and need not.
    pub(in crate::client) async fn cancelled_modern(
        self: &Arc<Self>,
        task: &str,
        existed: bool,
    ) -> Result<TaskInfo, TaskClientError> {
        let refused = match self.cancel_modern(task).await {
            Ok(()) => None,
            Err(TaskClientError::Rpc(error)) if error.code == ErrorCode::INVALID_PARAMS => {
                Some(error)
            }
            Err(error) => return Err(error),
        };
        for look in 1.. {
            match self.task_info(task, existed).await {
                Ok(info) if info.status.is_terminal() => return Ok(info),
                Ok(info) => match &refused {
                    Some(refused) => return Err(TaskClientError::Rpc(refused.clone())),
                    None if look >= LOOKS => return Ok(info),
                    None => {
                        let interval = info.poll_interval.unwrap_or(self.settings.poll_interval);
                        let wait = interval.max(self.settings.poll_floor).min(LOOK_AGAIN);
                        tokio::time::sleep(wait).await;
                    }
                },
                // It took the cancel and forgot the task.
                Err(TaskClientError::Expired { .. }) if refused.is_none() => {
                    return Ok(gone(task));
                }
                Err(error) => return Err(error),
            }
        }
        Err(broke("a cancel without end"))
    }
}

fn gone(task: &str) -> TaskInfo {
    TaskInfo {
        task_id: task.to_owned(),
        status: TaskStatus::Cancelled,
        status_message: None,
        created_at: None,
        last_updated_at: None,
        ttl: None,
        poll_interval: None,
    }
}
