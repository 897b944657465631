//! What only the SQLite store promises: group commit, several processes, and a file that outlives them.

#![allow(clippy::unwrap_used)]

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use mcp_tasks::{
    store::{
        Access, ChangeEvent, Document, InsertError, Quota, SqliteOptions, SqliteStore, StoreError,
        Swap, Synchronous, TaskStore,
    },
    task::{
        Change, Generation, NewTask, Origin, Owner, RawJson, TaskId, TaskRecord, Timestamp,
        WorkerId,
    },
};

const NO_LIMIT: Quota = Quota {
    total: u64::MAX,
    per_key: u64::MAX,
};

fn task(owner: &str) -> Arc<TaskRecord> {
    let new = NewTask {
        id: TaskId::random(),
        owner: Owner::principal(owner),
        quota_key: Some(owner.into()),
        hidden: false,
        ttl_ms: Some(60_000),
        poll_interval_ms: 1000,
        status_message: None,
        worker: Some(WorkerId::random()),
        external_id: None,
        immediate_response: None,
        origin: Arc::new(Origin {
            tool: "build".into(),
            arguments: RawJson::from_text(r#"{"target":"x"}"#).unwrap(),
            meta: None,
            generation: Generation::V2025_11_25,
            capabilities: None,
            client_info: None,
            progress_token: None,
            session: None,
            before: false,
            requested_ttl: None,
        }),
    };
    Arc::new(TaskRecord::create(new, Timestamp::now()))
}

fn said(record: &TaskRecord, text: &str) -> Arc<TaskRecord> {
    Arc::new(
        record
            .apply(Change::Status(Some(text.into())), Timestamp::now(), None)
            .unwrap(),
    )
}

async fn list_all(store: &SqliteStore, owner: &str) -> Vec<Arc<TaskRecord>> {
    store
        .list(&Owner::principal(owner), None, usize::MAX)
        .await
        .unwrap()
}

fn message(error: &StoreError) -> String {
    error.to_string()
}

#[tokio::test]
async fn everything_survives_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    let record = task("ann");
    store.insert(record.clone(), NO_LIMIT).await.unwrap();
    let changed = said(&record, "half way");
    assert_eq!(
        store
            .replace(changed.clone(), 1, &Access::System)
            .await
            .unwrap(),
        Swap::Done
    );
    store
        .heartbeat(
            record.worker.as_ref().unwrap(),
            Timestamp::from_millis(1000),
        )
        .await
        .unwrap();
    store.close().await.unwrap();
    let closed = store
        .get(record.id.as_str(), &Access::System)
        .await
        .unwrap_err();
    assert!(
        message(&closed).contains("tasks.db: the store is closed"),
        "{closed}"
    );
    let closed = store
        .remove(record.id.as_str(), &Access::System)
        .await
        .unwrap_err();
    assert!(
        message(&closed).contains("tasks.db: the store is closed"),
        "{closed}"
    );
    store.close().await.unwrap();
    drop(store);
    let left: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["tasks.db"], "a close leaves one file");

    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(
        store
            .get(record.id.as_str(), &Access::System)
            .await
            .unwrap(),
        Some(changed.clone())
    );
    assert_eq!(
        list_all(&store, "ann").await,
        std::slice::from_ref(&changed)
    );
    assert_eq!(
        store.orphans(Timestamp::from_millis(999), 9).await.unwrap(),
        []
    );
    assert_eq!(
        store
            .orphans(Timestamp::from_millis(1000), 9)
            .await
            .unwrap(),
        [changed]
    );
    let full = store
        .insert(
            task("ann"),
            Quota {
                total: 9,
                per_key: 1,
            },
        )
        .await;
    assert!(
        matches!(full, Err(InsertError::Quota { .. })),
        "the counts survive too: {full:?}"
    );
}

/// Waits for the answer to one fsync while the others queue up behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_share_commits() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path().join("tasks.db")).unwrap();
    let begun = Instant::now();
    for _ in 0..64 {
        store.insert(task("ann"), NO_LIMIT).await.unwrap();
    }
    let alone = begun.elapsed();
    let stats = store.write_stats();
    assert_eq!(
        (stats.writes, stats.commits),
        (64, 64),
        "one writer alone waits for every commit"
    );

    let begun = Instant::now();
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let store = store.clone();
        writers.spawn(async move {
            for _ in 0..20 {
                store.insert(task("bob"), NO_LIMIT).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let together = begun.elapsed();
    let (writes, commits) = (
        store.write_stats().writes - 64,
        store.write_stats().commits - 64,
    );
    assert_eq!(writes, 64 * 20);
    assert!(
        commits * 8 <= writes,
        "{commits} commits for {writes} writes"
    );
    eprintln!(
        "alone {:.0} writes/s, 64 together {:.0} writes/s in {commits} commits",
        64.0 / alone.as_secs_f64(),
        f64::from(64 * 20) / together.as_secs_f64()
    );
}

/// The log behind the feed stays short; who was not listening for long is told that events were lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_change_log_is_pruned() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    let other = SqliteStore::open(&path).unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let store = store.clone();
        writers.spawn(async move {
            for _ in 0..160 {
                store.insert(task("ann"), NO_LIMIT).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let conn = rusqlite::Connection::open(&path).unwrap();
    let (rows, newest): (i64, i64) = conn
        .query_row("SELECT count(*), max(seq) FROM changes", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!(newest, 64 * 160);
    assert!((8192..=8192 + 1024).contains(&rows), "{rows} rows are kept");

    let mut feed = other.changes();
    assert_eq!(feed.next().await, Some(ChangeEvent::Lagged));
    let record = task("ann");
    store.insert(record.clone(), NO_LIMIT).await.unwrap();
    assert_eq!(
        feed.next().await,
        Some(ChangeEvent::Task {
            id: record.id.clone(),
            revision: 1
        })
    );
}

/// A refusal or an error of one write in a group is that write's alone.
#[tokio::test]
async fn a_failing_write_does_not_hurt_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    // A trap inside the database: one document cannot be written.
    let other = rusqlite::Connection::open(&path).unwrap();
    other
        .execute_batch(
            "CREATE TRIGGER trap BEFORE INSERT ON documents WHEN NEW.key = 'trap'
             BEGIN SELECT RAISE(ABORT, 'sprung'); END",
        )
        .unwrap();
    // While the writer waits for the lock with a first write, the others queue up and become one group.
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let document = Document {
        body: vec![1],
        expires_at: None,
    };
    let waiting = tokio::spawn({
        let (store, document) = (store.clone(), document.clone());
        async move { store.put_document("first", document).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (first, last) = (task("ann"), task("ann"));
    let quota = Quota {
        total: 2,
        per_key: 2,
    };
    let (a, trap, twin, b, over, ()) = tokio::join!(
        store.insert(first.clone(), quota),
        store.put_document("trap", document),
        store.insert(first.clone(), NO_LIMIT),
        store.insert(last, quota),
        store.insert(task("ann"), quota),
        async { other.execute_batch("ROLLBACK").unwrap() },
    );
    waiting.await.unwrap().unwrap();
    a.unwrap();
    let trap = trap.unwrap_err();
    assert!(
        message(&trap).contains("sprung") && message(&trap).contains("tasks.db"),
        "{trap}"
    );
    assert!(matches!(twin, Err(InsertError::Conflict("id"))));
    b.unwrap();
    assert!(matches!(over, Err(InsertError::Quota { .. })));
    assert_eq!(list_all(&store, "ann").await.len(), 2);
    assert_eq!(store.get_document("trap").await.unwrap(), None);
}

#[tokio::test]
async fn what_is_not_a_store_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |path: &Path| message(&SqliteStore::open(path).unwrap_err());

    let text = dir.path().join("text.db");
    let content = "this is a text file, and long enough for a header of a database".repeat(40);
    std::fs::write(&text, &content).unwrap();
    assert!(
        refused(&text).contains("text.db: file is not a database"),
        "{}",
        refused(&text)
    );
    assert_eq!(std::fs::read_to_string(&text).unwrap(), content);

    assert!(
        refused(dir.path()).contains("is a directory"),
        "{}",
        refused(dir.path())
    );
    let nowhere = dir.path().join("no/such/folder/tasks.db");
    assert!(
        refused(&nowhere).contains("no/such/folder/tasks.db"),
        "{}",
        refused(&nowhere)
    );
    assert!(refused(Path::new(":memory:")).contains("MemoryStore"));
    assert!(refused(Path::new("")).contains("MemoryStore"));

    let foreign = dir.path().join("foreign.db");
    let other = rusqlite::Connection::open(&foreign).unwrap();
    other.execute_batch("CREATE TABLE tasks (a)").unwrap();
    drop(other);
    let before = std::fs::read(&foreign).unwrap();
    assert!(
        refused(&foreign).contains("another application"),
        "{}",
        refused(&foreign)
    );
    assert_eq!(std::fs::read(&foreign).unwrap(), before);

    let newer = dir.path().join("newer.db");
    SqliteStore::open(&newer).unwrap().close().await.unwrap();
    let other = rusqlite::Connection::open(&newer).unwrap();
    other
        .pragma_update(None, "user_version", 1_000_000)
        .unwrap();
    drop(other);
    let why = refused(&newer);
    assert!(
        why.contains("newer.db") && why.contains("newer version of mcp-tasks (format 1000000"),
        "{why}"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn an_unwritable_file_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tasks.db");
    SqliteStore::open(&path).unwrap().close().await.unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    if std::fs::OpenOptions::new().append(true).open(&path).is_ok() {
        return; // a superuser writes to anything
    }
    let why = message(&SqliteStore::open(&path).unwrap_err());
    assert!(why.contains("not writable"), "{why}");
}

#[tokio::test]
async fn a_damaged_file_is_an_error_not_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    for _ in 0..200 {
        store.insert(task("ann"), NO_LIMIT).await.unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    let mut bytes = std::fs::read(&path).unwrap();
    let half = bytes.len() / 2;
    bytes[4096..half].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    // Where the damage shows is SQLite's affair; that it shows as an error is ours.
    if let Ok(store) = SqliteStore::open(&path) {
        let listed = store.list(&Owner::principal("ann"), None, 1000).await;
        let inserted = store.insert(task("ann"), NO_LIMIT).await;
        assert!(listed.is_err() || inserted.is_err());
    }
}

/// A store that is dropped with writes under way: whatever was acknowledged is there, the rest whole or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_in_the_middle_of_writes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    let acknowledged = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (store, acknowledged) = (store.clone(), acknowledged.clone());
        writers.spawn(async move {
            loop {
                let record = task("ann");
                store.insert(record.clone(), NO_LIMIT).await.unwrap();
                acknowledged.lock().unwrap().push(record);
            }
        });
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(store);
    writers.shutdown().await;
    let store = SqliteStore::open(&path).unwrap();
    let acknowledged = std::mem::take(&mut *acknowledged.lock().unwrap());
    assert!(!acknowledged.is_empty());
    for record in &acknowledged {
        assert_eq!(
            store
                .get(record.id.as_str(), &Access::System)
                .await
                .unwrap()
                .as_ref(),
            Some(record)
        );
    }
}

/// Not a test of its own: the other process of those below, told by its environment what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the other tests as a process of its own"]
async fn other_process() {
    let Ok(path) = std::env::var("STORE_PATH") else {
        return;
    };
    let count: usize = std::env::var("STORE_COUNT").unwrap().parse().unwrap();
    let store = SqliteStore::open_with(path, SqliteOptions::new().synchronous(Synchronous::Normal))
        .unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = store.clone();
        writers.spawn(async move {
            for _ in 0..count {
                let record = task("child");
                store.insert(record.clone(), NO_LIMIT).await.unwrap();
                let next = said(&record, "changed");
                assert_eq!(
                    store.replace(next, 1, &Access::System).await.unwrap(),
                    Swap::Done
                );
                println!("\nwrote {}", record.id);
            }
        });
    }
    writers.join_all().await;
}

fn spawn_other_process(path: &Path, count: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "other_process", "--ignored", "--nocapture"])
        .env("STORE_PATH", path)
        .env("STORE_COUNT", count.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

fn written(child: &mut Child, at_most: usize) -> Vec<String> {
    BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| line.strip_prefix("wrote ").map(str::to_owned))
        .take(at_most)
        .collect()
}

/// Three processes' worth of writers on one file: nobody gives up, nothing is lost, nobody is starved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_processes_write_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tasks.db");
    let store = SqliteStore::open(&path).unwrap();
    let mut children: Vec<_> = (0..2).map(|_| spawn_other_process(&path, 100)).collect();
    let mut writers = tokio::task::JoinSet::new();
    let stop = Instant::now() + Duration::from_secs(2);
    for _ in 0..8 {
        let store = store.clone();
        writers.spawn(async move {
            let (mut done, mut slowest) = (0_usize, Duration::ZERO);
            while Instant::now() < stop {
                let begun = Instant::now();
                store.insert(task("parent"), NO_LIMIT).await.unwrap();
                slowest = slowest.max(begun.elapsed());
                done += 1;
            }
            (done, slowest)
        });
    }
    let ids = tokio::task::spawn_blocking(move || {
        let ids: Vec<_> = children
            .iter_mut()
            .flat_map(|child| written(child, usize::MAX))
            .collect();
        for mut child in children {
            assert!(child.wait().unwrap().success(), "a process failed");
        }
        ids
    })
    .await
    .unwrap();
    let (mut done, mut slowest) = (0, Duration::ZERO);
    for (d, s) in writers.join_all().await {
        done += d;
        slowest = slowest.max(s);
    }
    eprintln!("{done} inserts beside two other processes, the slowest took {slowest:?}");
    assert_eq!(
        ids.len(),
        2 * 8 * 100,
        "every write of the other processes was acknowledged"
    );
    assert_eq!(list_all(&store, "child").await.len(), ids.len());
    assert!(
        list_all(&store, "child")
            .await
            .iter()
            .all(|record| record.revision == 2)
    );
    assert_eq!(list_all(&store, "parent").await.len(), done);
    assert!(
        slowest < Duration::from_secs(5),
        "a writer was starved: {slowest:?}"
    );
    // The counts were kept by all of them together.
    let total = (ids.len() + done) as u64;
    let full = store.insert(task("ann"), Quota { total, per_key: 9 }).await;
    assert!(matches!(full, Err(InsertError::Quota { .. })), "{full:?}");
    store
        .insert(
            task("ann"),
            Quota {
                total: total + 1,
                per_key: 9,
            },
        )
        .await
        .unwrap();
}

/// A process that is killed loses nothing it was told is written, and leaves nothing locked.
#[tokio::test]
async fn a_killed_process_leaves_a_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tasks.db");
    for _ in 0..3 {
        let mut child = spawn_other_process(&path, 1_000_000);
        let ids = written(&mut child, 300);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(ids.len(), 300);
        let store = SqliteStore::open(&path).unwrap();
        for id in &ids {
            let record = store
                .get(id, &Access::System)
                .await
                .unwrap()
                .expect("an acknowledged task is there");
            assert_eq!(record.revision, 2, "with its acknowledged change");
        }
        let total = list_all(&store, "child").await.len() as u64;
        let full = store.insert(task("ann"), Quota { total, per_key: 1 }).await;
        assert!(
            matches!(full, Err(InsertError::Quota { .. })),
            "the count is that of the records: {full:?}"
        );
        // What is locked out by another connection for a while waits.
        let other = rusqlite::Connection::open(&path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let waiting = tokio::spawn({
            let store = store.clone();
            async move {
                store
                    .put_document(
                        "key",
                        Document {
                            body: vec![],
                            expires_at: None,
                        },
                    )
                    .await
            }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!waiting.is_finished(), "it waits for the lock");
        other.execute_batch("COMMIT").unwrap();
        waiting.await.unwrap().expect("it got the lock");
        store.close().await.unwrap();
    }
}

/// A lock that is never given back is an error that says so, for each of the writes, and the next ones go through.
#[tokio::test]
async fn patience_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tasks.db");
    let options = SqliteOptions::new().busy_timeout(Duration::from_millis(100));
    let store = SqliteStore::open_with(&path, options).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let record = task("ann");
    let (a, b) = tokio::join!(
        store.insert(record.clone(), NO_LIMIT),
        store.remove("x", &Access::System)
    );
    let (a, b) = (a.unwrap_err().to_string(), b.unwrap_err().to_string());
    assert!(
        a.contains("inserting a task") && a.contains("locked"),
        "{a}"
    );
    assert!(
        b.contains("removing a task") && b.contains("tasks.db"),
        "{b}"
    );
    // Reads do not mind.
    assert_eq!(
        store
            .get(record.id.as_str(), &Access::System)
            .await
            .unwrap(),
        None
    );
    other.execute_batch("ROLLBACK").unwrap();
    store.insert(record, NO_LIMIT).await.unwrap();
}
