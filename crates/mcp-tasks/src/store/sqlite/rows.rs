//! Records as rows: the columns a query asks about, and JSON for the rest.

use std::sync::Arc;

use rusqlite::{Row, types::Type};
use serde::{Deserialize, Serialize};

use crate::task::{Input, Origin, Owner, RawJson, State, TaskId, TaskRecord, Timestamp, WorkerId};

/// The columns [`record`] reads, of [`FROM`].
pub(super) const COLUMNS: &str = "t.id, t.owner, t.quota_key, t.hidden, t.created_at, t.revision, t.worker, t.external_id, t.state, o.body";

/// A task with its origin.
pub(super) const FROM: &str = "tasks t JOIN origins o ON o.task = t.n";

/// The changing part of a record that has no column: written anew with every change.
#[derive(Serialize)]
struct StateOut<'a> {
    updated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    poll_interval_ms: u64,
    state: &'a State,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_message: &'a Option<Arc<str>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    inputs: &'a [Arc<Input>],
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: &'a Option<RawJson>,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    immediate_response: &'a Option<Arc<str>>,
}

/// [`StateOut`], read back.
#[derive(Deserialize)]
struct StateIn {
    updated_at: Timestamp,
    #[serde(default)]
    ttl_ms: Option<u64>,
    poll_interval_ms: u64,
    state: State,
    #[serde(default)]
    status_message: Option<Arc<str>>,
    #[serde(default)]
    inputs: Vec<Arc<Input>>,
    #[serde(default, deserialize_with = "crate::task::present")]
    checkpoint: Option<RawJson>,
    attempt: u32,
    #[serde(default)]
    immediate_response: Option<Arc<str>>,
}

/// The `state` column of a record.
pub(super) fn state_json(record: &TaskRecord) -> Result<String, serde_json::Error> {
    // Every field is named, so that a new one is not forgotten here.
    let TaskRecord {
        id: _,
        owner: _,
        quota_key: _,
        hidden: _,
        revision: _,
        created_at: _,
        worker: _,
        external_id: _,
        origin: _,
        updated_at,
        ttl_ms,
        poll_interval_ms,
        state,
        status_message,
        inputs,
        checkpoint,
        attempt,
        immediate_response,
    } = record;
    serde_json::to_string(&StateOut {
        updated_at: *updated_at,
        ttl_ms: *ttl_ms,
        poll_interval_ms: *poll_interval_ms,
        state,
        status_message,
        inputs,
        checkpoint,
        attempt: *attempt,
        immediate_response,
    })
}

/// Reads [`COLUMNS`].
pub(super) fn record(row: &Row<'_>) -> rusqlite::Result<Arc<TaskRecord>> {
    let state: StateIn = json(row, 8)?;
    let origin: Origin = json(row, 9)?;
    Ok(Arc::new(TaskRecord {
        id: TaskId::from_stored(row.get_ref(0)?.as_str()?),
        owner: match row.get::<_, Option<Arc<str>>>(1)? {
            Some(name) => Owner::Principal(name),
            None => Owner::Bearer,
        },
        quota_key: row.get(2)?,
        hidden: row.get(3)?,
        created_at: Timestamp::from_millis(uint(row, 4)?),
        revision: uint(row, 5)?,
        worker: row.get_ref(6)?.as_str_or_null()?.map(WorkerId::from_stored),
        external_id: row.get(7)?,
        updated_at: state.updated_at,
        ttl_ms: state.ttl_ms,
        poll_interval_ms: state.poll_interval_ms,
        state: state.state,
        status_message: state.status_message,
        inputs: state.inputs,
        checkpoint: state.checkpoint,
        attempt: state.attempt,
        immediate_response: state.immediate_response,
        origin: Arc::new(origin),
    }))
}

fn json<T: for<'de> Deserialize<'de>>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    serde_json::from_slice(row.get_ref(column)?.as_bytes()?).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
    })
}

/// An integer column that is never negative.
pub(super) fn uint(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}

/// A number as SQLite keeps it; beyond 2^63 is that.
pub(super) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A point in time as SQLite keeps it.
pub(super) fn time(at: Timestamp) -> i64 {
    int(at.as_millis())
}
