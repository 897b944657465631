//! The writes of one transaction. Each either does what it is for or writes nothing.

use std::{collections::HashMap, sync::Arc};

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::rows::{int, time, uint};
use crate::{
    store::{Access, Document, Quota, QuotaScope, Swap},
    task::{TaskId, TaskRecord, Timestamp, WorkerId},
};

/// What became of an insert.
pub(super) enum Inserted {
    Done,
    Conflict(&'static str),
    Quota { scope: QuotaScope, limit: u64 },
}

/// How many tasks there are: in all (`None`), or of one quota key.
type CountKey = Option<Arc<str>>;

struct Count {
    stored: u64,
    now: u64,
}

/// One transaction: what its writes share.
pub(super) struct Batch<'c> {
    conn: &'c Connection,
    me: i64,
    counts: HashMap<CountKey, Count>,
    events: Vec<(TaskId, u64)>,
    seq: Option<i64>,
}

/// What a transaction wrote that others are told about.
pub(super) struct Written {
    /// The changes, in order.
    pub(super) events: Vec<(TaskId, u64)>,
    /// The last row of the change log, if there are any changes.
    pub(super) seq: Option<i64>,
}

/// The owner column an access is limited to; `(true, _)` is no limit.
fn limit(access: &Access) -> (bool, Option<&str>) {
    match access {
        Access::System => (true, None),
        Access::Owner(owner) => (false, owner.name()),
    }
}

impl<'c> Batch<'c> {
    pub(super) fn new(conn: &'c Connection, me: i64) -> Self {
        Self {
            conn,
            me,
            counts: HashMap::new(),
            events: Vec::new(),
            seq: None,
        }
    }

    /// Writes what was gathered.
    pub(super) fn finish(self) -> rusqlite::Result<Written> {
        for (key, count) in &self.counts {
            if count.stored == count.now {
                continue;
            }
            let (scope, key) = scope_and_key(key);
            if count.now == 0 {
                self.conn
                    .prepare_cached("DELETE FROM counts WHERE scope = ?1 AND key = ?2")?
                    .execute(params![scope, key])?;
            } else {
                self.conn
                    .prepare_cached(
                        "INSERT OR REPLACE INTO counts (scope, key, n) VALUES (?1, ?2, ?3)",
                    )?
                    .execute(params![scope, key, int(count.now)])?;
            }
        }
        Ok(Written {
            events: self.events,
            seq: self.seq,
        })
    }

    pub(super) fn insert(
        &mut self,
        record: &TaskRecord,
        state: &str,
        origin: &str,
        quota: Quota,
    ) -> rusqlite::Result<Inserted> {
        if self.count(&None)?.now >= quota.total {
            return Ok(Inserted::Quota {
                scope: QuotaScope::Total,
                limit: quota.total,
            });
        }
        if record.quota_key.is_some() && self.count(&record.quota_key)?.now >= quota.per_key {
            return Ok(Inserted::Quota {
                scope: QuotaScope::PerKey,
                limit: quota.per_key,
            });
        }
        let added = self
            .conn
            .prepare_cached(
                "INSERT INTO tasks (id, owner, quota_key, hidden, created_at, expires_at, revision, worker, ended,
                                    external_id, state)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT DO NOTHING",
            )?
            .execute(params![
                record.id.as_str(),
                record.owner.name(),
                record.quota_key,
                record.hidden,
                time(record.created_at),
                record.expires_at().map(time),
                int(record.revision),
                record.worker.as_ref().map(WorkerId::as_str),
                record.is_terminal(),
                record.external_id,
                state,
            ])?;
        if added == 0 {
            let same_id = self
                .conn
                .prepare_cached("SELECT 1 FROM tasks WHERE id = ?1")?
                .exists([record.id.as_str()])?;
            return Ok(Inserted::Conflict(if same_id {
                "id"
            } else {
                "external id"
            }));
        }
        self.conn
            .prepare_cached("INSERT INTO origins (task, body) VALUES (?1, ?2)")?
            .execute(params![self.conn.last_insert_rowid(), origin])?;
        self.count(&None)?.now += 1;
        if record.quota_key.is_some() {
            self.count(&record.quota_key)?.now += 1;
        }
        self.changed(&record.id, Some(record.revision))?;
        Ok(Inserted::Done)
    }

    pub(super) fn replace(
        &mut self,
        next: &TaskRecord,
        state: &str,
        revision: u64,
        access: &Access,
    ) -> rusqlite::Result<Swap> {
        let (all, owner) = limit(access);
        let swapped = self
            .conn
            .prepare_cached(
                "UPDATE tasks SET expires_at = ?1, revision = ?2, worker = ?3, ended = ?4, state = ?5
                 WHERE id = ?6 AND revision = ?7 AND (?8 OR owner IS ?9)",
            )?
            .execute(params![
                next.expires_at().map(time),
                int(next.revision),
                next.worker.as_ref().map(WorkerId::as_str),
                next.is_terminal(),
                state,
                next.id.as_str(),
                int(revision),
                all,
                owner,
            ])?;
        if swapped == 1 {
            self.changed(&next.id, Some(next.revision))?;
            return Ok(Swap::Done);
        }
        let there = self
            .conn
            .prepare_cached("SELECT 1 FROM tasks WHERE id = ?1 AND (?2 OR owner IS ?3)")?
            .exists(params![next.id.as_str(), all, owner])?;
        Ok(if there { Swap::Stale } else { Swap::Missing })
    }

    pub(super) fn remove(&mut self, id: &TaskId, access: &Access) -> rusqlite::Result<bool> {
        let (all, owner) = limit(access);
        let removed: Option<(i64, Option<Arc<str>>)> = self
            .conn
            .prepare_cached(
                "DELETE FROM tasks WHERE id = ?1 AND (?2 OR owner IS ?3) RETURNING n, quota_key",
            )?
            .query_row(params![id.as_str(), all, owner], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        let Some((n, quota_key)) = removed else {
            return Ok(false);
        };
        self.conn
            .prepare_cached("DELETE FROM origins WHERE task = ?1")?
            .execute([n])?;
        for key in std::iter::once(None).chain(quota_key.map(Some)) {
            let count = self.count(&key)?;
            count.now = count.now.saturating_sub(1);
        }
        self.changed(id, None)?;
        Ok(true)
    }

    pub(super) fn heartbeat(
        &mut self,
        worker: &WorkerId,
        until: Timestamp,
    ) -> rusqlite::Result<()> {
        self.conn
            .prepare_cached("INSERT OR REPLACE INTO workers (id, until) VALUES (?1, ?2)")?
            .execute(params![worker.as_str(), time(until)])?;
        // A worker that is not there counts as lapsed, so long lapsed ones need not be kept.
        self.conn
            .prepare_cached("DELETE FROM workers WHERE until < ?1 - 86400000")?
            .execute([time(until)])?;
        Ok(())
    }

    pub(super) fn release(&mut self, worker: &WorkerId) -> rusqlite::Result<()> {
        self.conn
            .prepare_cached("DELETE FROM workers WHERE id = ?1")?
            .execute([worker.as_str()])?;
        Ok(())
    }

    pub(super) fn put_document(&mut self, key: &str, document: &Document) -> rusqlite::Result<()> {
        self.conn
            .prepare_cached(
                "INSERT OR REPLACE INTO documents (key, body, expires_at) VALUES (?1, ?2, ?3)",
            )?
            .execute(params![key, document.body, document.expires_at.map(time)])?;
        Ok(())
    }

    /// Keeps `document` unless there is one; the one that is kept if it is another.
    pub(super) fn put_document_if_absent(
        &mut self,
        key: &str,
        document: &Document,
    ) -> rusqlite::Result<Option<Document>> {
        let added = self
            .conn
            .prepare_cached(
                "INSERT INTO documents (key, body, expires_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            )?
            .execute(params![key, document.body, document.expires_at.map(time)])?;
        if added == 1 {
            return Ok(None);
        }
        get_document(self.conn, key)
    }

    pub(super) fn remove_document(&mut self, key: &str) -> rusqlite::Result<()> {
        self.conn
            .prepare_cached("DELETE FROM documents WHERE key = ?1")?
            .execute([key])?;
        Ok(())
    }

    pub(super) fn remove_expired_documents(&mut self, now: Timestamp) -> rusqlite::Result<()> {
        self.conn
            .prepare_cached("DELETE FROM documents WHERE expires_at <= ?1")?
            .execute([time(now)])?;
        Ok(())
    }

    fn count(&mut self, key: &CountKey) -> rusqlite::Result<&mut Count> {
        if !self.counts.contains_key(key) {
            let (scope, name) = scope_and_key(key);
            let stored = self
                .conn
                .prepare_cached("SELECT n FROM counts WHERE scope = ?1 AND key = ?2")?
                .query_row(params![scope, name], |row| uint(row, 0))
                .optional()?
                .unwrap_or(0);
            self.counts.insert(
                key.clone(),
                Count {
                    stored,
                    now: stored,
                },
            );
        }
        Ok(self
            .counts
            .entry(key.clone())
            .or_insert(Count { stored: 0, now: 0 }))
    }

    fn changed(&mut self, id: &TaskId, revision: Option<u64>) -> rusqlite::Result<()> {
        // The newest row is never deleted, so `seq` only ever rises.
        let seq = self
            .conn
            .prepare_cached("INSERT INTO changes (task, revision, writer) VALUES (?1, ?2, ?3)")?
            .insert(params![id.as_str(), revision.map(int), self.me])?;
        self.seq = Some(seq);
        self.events.push((id.clone(), revision.unwrap_or(u64::MAX)));
        Ok(())
    }
}

fn scope_and_key(key: &CountKey) -> (i64, &str) {
    match key {
        None => (0, ""),
        Some(key) => (1, key),
    }
}

/// The document under `key`.
pub(super) fn get_document(conn: &Connection, key: &str) -> rusqlite::Result<Option<Document>> {
    let read = |row: &Row<'_>| {
        Ok(Document {
            body: row.get(0)?,
            expires_at: match row.get::<_, Option<i64>>(1)? {
                Some(_) => Some(Timestamp::from_millis(uint(row, 1)?)),
                None => None,
            },
        })
    };
    conn.prepare_cached("SELECT body, expires_at FROM documents WHERE key = ?1")?
        .query_row([key], read)
        .optional()
}
