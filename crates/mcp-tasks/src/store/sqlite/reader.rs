//! Reads: a few connections, used from blocking threads so that no async thread ever waits for the disk.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::Semaphore;

use super::{
    file::File,
    rows::{self, COLUMNS, FROM, int, time, uint},
};
use crate::{
    store::{Access, ListKey, StoreError},
    task::{TaskId, TaskRecord, Timestamp},
};

const EXPIRED: &str =
    "SELECT id FROM tasks WHERE expires_at <= ?1 ORDER BY expires_at, id LIMIT ?2";
const NEXT_EXPIRY: &str =
    "SELECT expires_at FROM tasks WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT 1";

/// The read connections: opened when needed, kept for the next read.
#[derive(Debug)]
pub(super) struct Readers {
    file: Arc<File>,
    idle: Mutex<Vec<Connection>>,
    /// As many as reads may run at once; closed with the store.
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(file: Arc<File>) -> Arc<Self> {
        let permits = file.options.readers.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self {
            file,
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(permits)),
        })
    }

    /// Runs `query` on a connection, on a blocking thread.
    pub(super) async fn read<T, F>(
        self: &Arc<Self>,
        doing: &'static str,
        query: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let permit = match self.permits.clone().acquire_owned().await {
            Ok(permit) => permit,
            Err(_) => return Err(self.file.error(doing, "the store is closed")),
        };
        let readers = self.clone();
        let read = move || {
            // Held until the query has ended, also when the caller has left.
            let _permit = permit;
            let idle = readers.idle().pop();
            let conn = match idle {
                Some(conn) => conn,
                None => readers.file.open_reader()?,
            };
            let answer = query(&conn);
            if !readers.permits.is_closed() {
                readers.idle().push(conn);
            }
            answer
        };
        match tokio::task::spawn_blocking(read).await {
            Ok(answer) => answer.map_err(|error| self.file.error(doing, error)),
            Err(error) => Err(self.file.error(doing, error)),
        }
    }

    /// Lets the connections go; reads fail from here on.
    pub(super) fn close(&self) {
        self.permits.close();
        self.idle().clear();
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The record whose `column` (a unique one) has `value`.
pub(super) fn one(
    conn: &Connection,
    column: &'static str,
    value: &str,
    access: &Access,
) -> rusqlite::Result<Option<Arc<TaskRecord>>> {
    let owner = match access {
        Access::System => None,
        Access::Owner(owner) => owner.name(),
    };
    conn.prepare_cached(&one_sql(column, access))?
        .query_row(params![value, owner], rows::record)
        .optional()
}

/// A page of an owner's list.
pub(super) fn list(
    conn: &Connection,
    owner: &str,
    after: Option<&ListKey>,
    limit: usize,
) -> rusqlite::Result<Vec<Arc<TaskRecord>>> {
    let (created_at, id) = match after {
        Some(key) => (time(key.created_at), key.id.as_str()),
        None => (i64::MAX, ""),
    };
    conn.prepare_cached(&list_sql())?
        .query_map(
            params![owner, created_at, id, rows_limit(limit)],
            rows::record,
        )?
        .collect()
}

/// Ids whose lifetime has passed, the longest expired first.
pub(super) fn expired(
    conn: &Connection,
    now: Timestamp,
    limit: usize,
) -> rusqlite::Result<Vec<TaskId>> {
    conn.prepare_cached(EXPIRED)?
        .query_map([time(now), rows_limit(limit)], |row| {
            Ok(TaskId::from_stored(row.get_ref(0)?.as_str()?))
        })?
        .collect()
}

/// The end of the lifetime that passes next.
pub(super) fn next_expiry(conn: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    conn.prepare_cached(NEXT_EXPIRY)?
        .query_row([], |row| uint(row, 0).map(Timestamp::from_millis))
        .optional()
}

/// Records that have not ended, of workers without a lease. Looks at every worker once, not at every task.
pub(super) fn orphans(
    conn: &Connection,
    now: Timestamp,
    limit: usize,
) -> rusqlite::Result<Vec<Arc<TaskRecord>>> {
    conn.prepare_cached(&orphans_sql())?
        .query_map([time(now), rows_limit(limit)], rows::record)?
        .collect()
}

fn one_sql(column: &str, access: &Access) -> String {
    let limit = match access {
        Access::System => "?2 IS NULL",
        Access::Owner(_) => "t.owner IS ?2",
    };
    format!("SELECT {COLUMNS} FROM {FROM} WHERE t.{column} = ?1 AND {limit}")
}

fn list_sql() -> String {
    format!(
        "SELECT {COLUMNS} FROM {FROM}
         WHERE t.hidden = 0 AND t.owner = ?1 AND (t.created_at, t.id) < (?2, ?3)
         ORDER BY t.created_at DESC, t.id DESC LIMIT ?4"
    )
}

fn orphans_sql() -> String {
    format!(
        "WITH RECURSIVE running(worker) AS (
             SELECT min(worker) FROM tasks WHERE ended = 0 AND worker IS NOT NULL
             UNION ALL
             SELECT (SELECT min(worker) FROM tasks
                     WHERE ended = 0 AND worker IS NOT NULL AND worker > running.worker)
             FROM running WHERE running.worker IS NOT NULL
         )
         SELECT {COLUMNS} FROM running CROSS JOIN {FROM}
         WHERE running.worker IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = running.worker AND w.until > ?1)
           AND t.worker = running.worker AND t.ended = 0
         LIMIT ?2"
    )
}

fn rows_limit(limit: usize) -> i64 {
    int(limit as u64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        store::sqlite::{file::Patience, schema},
        task::Owner,
    };

    /// The cost of a query depends on what it returns, not on how many tasks are kept: SQLite looks things up.
    #[test]
    fn no_query_walks_the_tables_or_sorts() {
        let conn = Connection::open_in_memory().unwrap();
        schema::migrate(&conn, &Patience::new(Duration::ZERO)).unwrap();
        let queries = [
            one_sql("id", &Access::System),
            one_sql("id", &Access::Owner(Owner::Bearer)),
            one_sql("external_id", &Access::System),
            list_sql(),
            orphans_sql(),
            EXPIRED.to_owned(),
            NEXT_EXPIRY.to_owned(),
        ];
        for sql in queries {
            let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            for n in 1..=explain.parameter_count() {
                explain.raw_bind_parameter(n, 1).unwrap();
            }
            let mut rows = explain.raw_query();
            let mut plan = Vec::new();
            while let Some(row) = rows.next().unwrap() {
                plan.push(row.get::<_, String>(3).unwrap());
            }
            for step in &plan {
                let walks =
                    step.starts_with("SCAN") && step != "SCAN running" && sql != NEXT_EXPIRY;
                assert!(!walks && !step.contains("TEMP B-TREE"), "{sql}\n{plan:#?}");
            }
        }
    }
}
