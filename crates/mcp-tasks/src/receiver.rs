//! What a receiver answers about its tasks, whichever side it is on (2025-11-25 `basic/utilities/tasks`).

use serde_json::value::RawValue;

use crate::{
    runtime::{ReadError, Runtime},
    store::{Access, ListKey},
    task::{ErrorObject, Owner},
    wire::{envelope, error::INVALID_PARAMS, status, v2025_11_25 as g1},
};

/// The one answer for unknown, expired, hidden and foreign tasks.
pub(crate) fn not_found() -> ErrorObject {
    ErrorObject::new(INVALID_PARAMS, "Task not found")
}

pub(crate) fn read_error(error: ReadError) -> ErrorObject {
    match error {
        ReadError::NotFound | ReadError::Terminal(_) => not_found(),
        ReadError::Tool(error) => error,
        ReadError::Store(error) => ErrorObject::from(&error),
    }
}

/// The response to `tasks/list`.
pub(crate) async fn list(
    runtime: &Runtime,
    owner: &Owner,
    id: &RawValue,
    params: Option<&RawValue>,
) -> Result<Vec<u8>, ErrorObject> {
    let cursor = g1::cursor(params)?;
    let after = cursor.as_ref().map(|cursor| &cursor.0);
    let (mut records, more) = match runtime.list(owner, after).await {
        Ok(page) => page,
        Err(error) => return Err(ErrorObject::from(&error)),
    };
    let next = more.then(|| records.last()).flatten().map(|last| {
        g1::Cursor(ListKey {
            created_at: last.created_at,
            id: last.id.clone(),
        })
    });
    let now = runtime.clock().now();
    records.retain(|record| !record.is_expired(now));
    Ok(g1::listed(id, &records, next.as_ref()))
}

/// The response to `tasks/cancel`.
pub(crate) async fn cancel(
    runtime: &Runtime,
    owner: &Owner,
    id: &RawValue,
    params: Option<&RawValue>,
) -> Result<Vec<u8>, ErrorObject> {
    let task = g1::task_id(params)?;
    let access = Access::Owner(owner.clone());
    match runtime
        .cancel(&task, &access, "The task was cancelled by request.")
        .await
    {
        Ok(record) => Ok(envelope::result(id, &g1::TaskView::of(&record))),
        Err(ReadError::Terminal(record)) => Err(ErrorObject::new(
            INVALID_PARAMS,
            format!(
                "Cannot cancel task: already in terminal status '{}'",
                status::v2025_11_25(&record)
            ),
        )),
        Err(error) => Err(read_error(error)),
    }
}
