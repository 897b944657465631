//! The ordinary requests about tasks: bounded in time, repeated when they fail on the way.

use std::sync::Arc;

use rmcp::model::ErrorCode;
use serde_json::{Value, json};

use super::{
    TaskClientError, TaskInfo,
    backoff::Backoff,
    connection::Connection,
    drive::other_task,
    link::LostKind,
    v2026_07_28 as modern,
    waiting::{Abandon, Reply},
};
use crate::task::RawJson;

/// How often a read is sent before its failure is told.
const TRIES: u32 = 4;

impl Connection {
    /// A request that may be repeated: reads, and the cancel of a task.
    ///
    /// # Errors
    /// `Rpc` for an error answer, else what became of the last try.
    pub(super) async fn read(
        self: &Arc<Self>,
        method: &'static str,
        params: &Value,
        task: Option<&str>,
    ) -> Result<RawJson, TaskClientError> {
        let mut backoff = Backoff::usual();
        let timeout = self.settings.request_timeout;
        loop {
            let one = async {
                self.request(method, params, None, Abandon::Silently)
                    .await
                    .reply()
                    .await
            };
            let failed = match tokio::time::timeout(timeout, one).await {
                Ok(Reply::Result(result)) => {
                    if self.modern.get().is_some() {
                        modern::complete(method, result.as_raw())?;
                    }
                    return Ok(result);
                }
                Ok(Reply::Error(error)) => return Err(TaskClientError::Rpc(error)),
                Ok(Reply::Lost(lost)) if lost.kind == LostKind::Closed => {
                    return Err(self.closed_error(task));
                }
                Ok(Reply::Lost(lost))
                    if lost.kind != LostKind::Transient || backoff.tries() + 1 >= TRIES =>
                {
                    return Err(TaskClientError::lost(lost, task));
                }
                Ok(Reply::Lost(lost)) => lost.retry_after,
                Err(_) => {
                    return Err(TaskClientError::Timeout {
                        method,
                        after: timeout,
                    });
                }
            };
            let wait = backoff.next().max(failed.unwrap_or_default());
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.stop.cancelled() => return Err(self.closed_error(task)),
            }
        }
    }

    /// What the peer told of this task. Of one that has ended nobody has to be asked any more.
    fn told_of(&self, task: &str, info: &RawJson) -> Result<TaskInfo, TaskClientError> {
        let info = match self.modern.get() {
            Some(_) => modern::info_of(info)?,
            None => TaskInfo::read(info.as_raw())?,
        };
        if info.task_id != task {
            return Err(other_task(task, &info.task_id));
        }
        if info.status.is_terminal() {
            self.desk.forget(task);
        }
        Ok(info)
    }

    /// `tasks/get`. `existed`: the task is known to have existed, so an unknown one has expired.
    pub(super) async fn task_info(
        self: &Arc<Self>,
        task: &str,
        existed: bool,
    ) -> Result<TaskInfo, TaskClientError> {
        match self
            .read("tasks/get", &json!({ "taskId": task }), Some(task))
            .await
        {
            Ok(info) => self.told_of(task, &info),
            Err(TaskClientError::Rpc(error))
                if existed && error.code == ErrorCode::INVALID_PARAMS =>
            {
                Err(TaskClientError::Expired {
                    task_id: task.to_owned(),
                })
            }
            Err(error) => Err(error),
        }
    }

    /// `tasks/cancel`; for a task that has ended already, how it ended.
    pub(super) async fn cancel_task(
        self: &Arc<Self>,
        task: &str,
        existed: bool,
    ) -> Result<TaskInfo, TaskClientError> {
        if !self.declares(|server| server.cancel) {
            return Err(TaskClientError::TasksUnsupported(
                "the peer does not declare tasks.cancel".to_owned(),
            ));
        }
        if self.modern.get().is_some() {
            return self.cancelled_modern(task, existed).await;
        }
        let refused = match self
            .read("tasks/cancel", &json!({ "taskId": task }), Some(task))
            .await
        {
            Ok(info) => return self.told_of(task, &info),
            Err(TaskClientError::Rpc(error)) if error.code == ErrorCode::INVALID_PARAMS => error,
            Err(error) => return Err(error),
        };
        let info = self.task_info(task, existed).await?;
        if info.status.is_terminal() {
            Ok(info)
        } else {
            Err(TaskClientError::Rpc(refused))
        }
    }

    /// `tasks/cancel` for a task that nobody waits for any more.
    pub(super) async fn cancel_only(self: &Arc<Self>, task: &str) -> Result<(), TaskClientError> {
        match self.modern.get() {
            Some(_) => self.cancel_modern(task).await,
            None => self.cancel_task(task, true).await.map(drop),
        }
    }

    /// `tasks/list`, all pages.
    pub(super) async fn list_tasks(self: &Arc<Self>) -> Result<Vec<TaskInfo>, TaskClientError> {
        if !self.declares(|server| server.list) {
            return Err(TaskClientError::TasksUnsupported(match self.modern.get() {
                Some(_) => "no tasks.list: 2026-07-28 has no such method".to_owned(),
                None => "the peer does not declare tasks.list".to_owned(),
            }));
        }
        let mut tasks = Vec::new();
        self.pages("tasks/list", "tasks", |task| {
            tasks.push(TaskInfo::read(task)?);
            Ok(())
        })
        .await?;
        Ok(tasks)
    }
}
