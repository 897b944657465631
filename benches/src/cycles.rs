//! Create + complete + fetch of an empty task, without a transport; and what group commit does for SQLite.

use std::{
    io::Write,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use mcp_tasks::{
    runtime::Runtime,
    store::{Access, MemoryStore, SqliteStore, TaskStore},
    task::{Owner, TaskId},
};
use tokio::task::JoinSet;

use crate::{
    Fallible, Plan,
    measure::{grouped, median, micros, per_second, percentile, rate, ratio, table},
    serve::{call, tasks},
};

const CLIENTS: [usize; 2] = [1, 64];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Memory,
    Sqlite,
}

/// What one round showed.
struct Round {
    rate: f64,
    p50: Duration,
    p99: Duration,
    writes: f64,
    per_commit: f64,
}

/// One task from its creation by way of its body, which returns at once, to its outcome.
async fn cycle(runtime: &Runtime) -> Fallible<()> {
    let record = runtime.create(call("empty", Owner::Bearer)).await?;
    let access = Access::Owner(Owner::Bearer);
    let ended = runtime.wait(&record.id, &access, None).await?;
    if ended.outcome().is_none() {
        return Err("a task ended without an outcome".into());
    }
    Ok(())
}

async fn round(kind: Kind, clients: usize, plan: &Plan) -> Fallible<Round> {
    let dir = tempfile::tempdir_in(&plan.dir)?;
    let sqlite = match kind {
        Kind::Memory => None,
        Kind::Sqlite => Some(SqliteStore::open(dir.path().join("tasks.db"))?),
    };
    let store: Arc<dyn TaskStore> = match &sqlite {
        Some(store) => Arc::new(store.clone()),
        None => Arc::new(MemoryStore::new()),
    };
    let tasks = tasks(store.clone())?;
    cycle(tasks.runtime()).await?;
    let stats = || sqlite.as_ref().map(SqliteStore::write_stats);
    let before = stats();
    let began = Instant::now();
    let until = began + plan.round;
    let mut at_work = JoinSet::new();
    for _ in 0..clients {
        let runtime = tasks.runtime().clone();
        at_work.spawn(async move {
            let mut times = Vec::new();
            while Instant::now() < until {
                let began = Instant::now();
                cycle(&runtime).await?;
                times.push(began.elapsed());
            }
            Fallible::Ok(times)
        });
    }
    let mut times = Vec::new();
    while let Some(done) = at_work.join_next().await {
        times.append(&mut done??);
    }
    let took = began.elapsed();
    times.sort_unstable();
    let (mut writes, mut per_commit) = (0.0, 0.0);
    if let (Some(before), Some(after)) = (before, stats()) {
        let written = usize::try_from(after.writes - before.writes)?;
        let commits = usize::try_from(after.commits - before.commits)?.max(1);
        writes = rate(written, took);
        per_commit = rate(written, Duration::from_secs(1)) / rate(commits, Duration::from_secs(1));
    }
    tasks.shutdown(Duration::from_secs(5)).await;
    store.close().await?;
    Ok(Round {
        rate: rate(times.len(), took),
        p50: percentile(&times, 50),
        p99: percentile(&times, 99),
        writes,
        per_commit,
    })
}

pub(crate) fn run(plan: &Plan) -> Fallible<()> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(async {
            cycles(plan).await?;
            group_commit(plan).await
        })
}

async fn cycles(plan: &Plan) -> Fallible<()> {
    let kinds: Vec<(Kind, usize)> = [Kind::Memory, Kind::Sqlite]
        .into_iter()
        .flat_map(|kind| CLIENTS.map(|clients| (kind, clients)))
        .collect();
    let mut rounds: Vec<Vec<Round>> = kinds.iter().map(|_| Vec::new()).collect();
    for _ in 0..plan.rounds {
        for (at, (kind, clients)) in kinds.iter().enumerate() {
            rounds[at].push(round(*kind, *clients, plan).await?);
        }
    }
    let mut rows = Vec::new();
    for (at, (kind, clients)) in kinds.iter().enumerate() {
        let of = |figure: fn(&Round) -> f64| median(rounds[at].iter().map(figure));
        // The one client of the same store came just before.
        let alone = if *clients == 1 { at } else { at - 1 };
        let pairs = rounds[at].iter().zip(&rounds[alone]);
        let sqlite = *kind == Kind::Sqlite;
        let only = |text: String| if sqlite { text } else { "-".into() };
        rows.push(vec![
            match kind {
                Kind::Memory => "memory".to_owned(),
                Kind::Sqlite => "SQLite, synchronous=FULL".to_owned(),
            },
            clients.to_string(),
            per_second(of(|round| round.rate)),
            ratio(median(pairs.map(|(mine, one)| mine.rate / one.rate))),
            micros(Duration::from_secs_f64(of(|round| round.p50.as_secs_f64()))),
            micros(Duration::from_secs_f64(of(|round| round.p99.as_secs_f64()))),
            only(per_second(of(|round| round.writes))),
            only(format!("{:.1}", of(|round| round.per_commit))),
        ]);
    }
    table(
        "## Create + complete + fetch of an empty task, without a transport",
        &[
            "store",
            "clients",
            "cycles",
            "to one client",
            "p50",
            "p99",
            "writes",
            "writes a commit",
        ],
        &rows,
    );
    Ok(())
}

/// The time that one small write takes to be on the disk.
fn disk(dir: &Path) -> Fallible<Duration> {
    let mut file = tempfile::tempfile_in(dir)?;
    let mut times = Vec::new();
    for _ in 0..20 {
        let began = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(percentile(&times, 50))
}

/// Writes of records alone, by so many clients at once.
async fn inserts(clients: usize, plan: &Plan) -> Fallible<f64> {
    let dir = tempfile::tempdir_in(&plan.dir)?;
    let store = Arc::new(SqliteStore::open(dir.path().join("tasks.db"))?);
    // A record to make others of.
    let memory = Arc::new(MemoryStore::new());
    let made = tasks(memory.clone())?;
    let record = made.runtime().create(call("hold", Owner::Bearer)).await?;
    let quota = mcp_tasks::store::Quota {
        total: u64::MAX >> 1,
        per_key: u64::MAX >> 1,
    };
    let written = Arc::new(AtomicUsize::new(0));
    let began = Instant::now();
    let until = began + plan.round;
    let mut at_work = JoinSet::new();
    for _ in 0..clients {
        let (store, record, written) = (store.clone(), record.clone(), written.clone());
        at_work.spawn(async move {
            while Instant::now() < until {
                let mut next = (*record).clone();
                next.id = TaskId::random();
                store.insert(Arc::new(next), quota).await?;
                written.fetch_add(1, Ordering::Relaxed);
            }
            Fallible::Ok(())
        });
    }
    while let Some(done) = at_work.join_next().await {
        done??;
    }
    let rate = rate(written.load(Ordering::Relaxed), began.elapsed());
    store.close().await?;
    Ok(rate)
}

async fn group_commit(plan: &Plan) -> Fallible<()> {
    let clients = [1, 8, 64, 256];
    let mut rates: Vec<Vec<f64>> = clients.iter().map(|_| Vec::new()).collect();
    for _ in 0..plan.rounds {
        for (at, clients) in clients.iter().enumerate() {
            rates[at].push(inserts(*clients, plan).await?);
        }
    }
    let mut rows = Vec::new();
    for (at, clients) in clients.iter().enumerate() {
        let pairs = rates[at].iter().zip(&rates[0]);
        rows.push(vec![
            grouped(*clients),
            per_second(median(rates[at].iter().copied())),
            ratio(median(pairs.map(|(mine, one)| mine / one))),
        ]);
    }
    table(
        "## SQLite, synchronous=FULL: inserts of tasks",
        &["clients", "inserts", "to one commit per write"],
        &rows,
    );
    println!(
        "\nOne write of 4 KiB is on this disk after {} (median).",
        micros(disk(&plan.dir)?)
    );
    Ok(())
}
