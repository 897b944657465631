//! The tables, and how a file of an older version becomes one of this version.

use rusqlite::Connection;

use super::file::Patience;

/// `PRAGMA application_id` of our files: "mcpt".
const APPLICATION_ID: i32 = 0x6d63_7074;

/// What makes version `n + 1` of version `n`. An entry never changes once released; a change is a new entry.
const MIGRATIONS: &[&str] = &[V1];

/// `origins` is apart from `tasks` because it never changes and may be large: SQLite writes a row as a whole.
/// `changes` is the change feed's log, newest rows only; its `revision` is NULL when the task was removed.
const V1: &str = "
    CREATE TABLE tasks (
        n            INTEGER PRIMARY KEY,
        id           TEXT    NOT NULL UNIQUE,
        owner        TEXT,             -- NULL: whoever holds the id
        quota_key    TEXT,
        hidden       INTEGER NOT NULL,
        created_at   INTEGER NOT NULL, -- all times: milliseconds since the Unix epoch
        expires_at   INTEGER,
        revision     INTEGER NOT NULL,
        worker       TEXT,
        ended        INTEGER NOT NULL,
        external_id  TEXT    UNIQUE,
        state        TEXT    NOT NULL  -- JSON: what else changes
    ) STRICT;
    CREATE INDEX tasks_by_owner  ON tasks (owner, created_at, id) WHERE hidden = 0 AND owner IS NOT NULL;
    CREATE INDEX tasks_by_expiry ON tasks (expires_at, id)        WHERE expires_at IS NOT NULL;
    CREATE INDEX tasks_by_worker ON tasks (worker)                WHERE ended = 0 AND worker IS NOT NULL;

    CREATE TABLE origins (
        task INTEGER PRIMARY KEY,      -- tasks.n
        body TEXT    NOT NULL          -- JSON: the original request
    ) STRICT;

    CREATE TABLE counts (
        scope INTEGER NOT NULL,        -- 0: all tasks (with the key ''), 1: those of a quota key
        key   TEXT    NOT NULL,
        n     INTEGER NOT NULL,
        PRIMARY KEY (scope, key)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE workers (
        id    TEXT    PRIMARY KEY,
        until INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE documents (
        key        TEXT PRIMARY KEY,
        body       BLOB NOT NULL,
        expires_at INTEGER
    ) STRICT;
    CREATE INDEX documents_by_expiry ON documents (expires_at) WHERE expires_at IS NOT NULL;

    CREATE TABLE changes (
        seq      INTEGER PRIMARY KEY,
        task     TEXT    NOT NULL,
        revision INTEGER,
        writer   INTEGER NOT NULL      -- the store object that wrote
    ) STRICT;
";

/// Why a file cannot be used as a store.
#[derive(Debug, thiserror::Error)]
pub(super) enum SchemaError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(
        "the file was written by a newer version of mcp-tasks (format {found}, this version knows {known})"
    )]
    Newer { found: i64, known: usize },
    #[error("the file is the database of another application")]
    Foreign,
}

/// The version of a file that is ours or empty (then 0).
pub(super) fn check(conn: &Connection) -> Result<usize, SchemaError> {
    let application: i32 = conn.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let version: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if application != APPLICATION_ID {
        let tables: i64 =
            conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if application != 0 || version != 0 || tables != 0 {
            return Err(SchemaError::Foreign);
        }
    }
    match usize::try_from(version) {
        Ok(version) if version <= MIGRATIONS.len() => Ok(version),
        _ => Err(SchemaError::Newer {
            found: version,
            known: MIGRATIONS.len(),
        }),
    }
}

/// Brings the file to this version, in one transaction. Of several processes that open a new file, one makes it.
pub(super) fn migrate(conn: &Connection, patience: &Patience) -> Result<(), SchemaError> {
    if check(conn)? == MIGRATIONS.len() {
        return Ok(());
    }
    patience.retry(|| conn.execute_batch("BEGIN IMMEDIATE"))?;
    let migrated = check(conn).and_then(|from| {
        for step in &MIGRATIONS[from..] {
            conn.execute_batch(step)?;
        }
        conn.pragma_update(None, "application_id", APPLICATION_ID)?;
        conn.pragma_update(None, "user_version", MIGRATIONS.len() as i64)?;
        patience.retry(|| conn.execute_batch("COMMIT"))?;
        Ok(())
    });
    if migrated.is_err() && !conn.is_autocommit() {
        // The first error is the one to tell of.
        let _ = conn.execute_batch("ROLLBACK");
    }
    migrated
}
