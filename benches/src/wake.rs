//! From the end of a task to whoever waits for it.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use mcp_tasks::{
    Tasks,
    runtime::Runtime,
    store::{Access, MemoryStore},
    task::{Owner, TaskId},
};
use tokio::{sync::Barrier, task::JoinSet};

use crate::{
    Fallible, Plan,
    load::{Conn, next_id},
    measure::{grouped, median, micros, percentile, table},
    messages::{Speech, Template, answers, connect, create, has},
    serve::{call, complete, listen, nodelay, plane, tasks},
};

/// The server is in this process, so that one clock tells both ends; its clients have a thread of their own.
pub(crate) fn run(plan: &Plan) -> Fallible<()> {
    let serving = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let (tasks, addr) = serving.block_on(async {
        let tasks = tasks(Arc::new(MemoryStore::new()))?;
        let app = plane(&tasks)?;
        let listener = listen().await?;
        let addr = listener.local_addr()?;
        tokio::spawn(async move { axum::serve(nodelay(listener), app).await });
        Fallible::Ok((tasks, addr))
    })?;
    let served = Served {
        tasks,
        addr,
        handle: serving.handle().clone(),
    };
    let mut rows = Vec::new();
    let one = crate::load::runtime()?.block_on(served.one_by_one(plan))?;
    rows.push(vec![
        "one waiting tasks/result over HTTP".to_owned(),
        grouped(one.len()),
        micros(percentile(&one, 50)),
        micros(percentile(&one, 99)),
        micros(one.last().copied().unwrap_or_default()),
    ]);
    let listening = crate::load::runtime()?.block_on(served.subscribed(plan))?;
    rows.push(vec![
        "one subscription over HTTP (2026-07-28)".to_owned(),
        grouped(listening.len()),
        micros(percentile(&listening, 50)),
        micros(percentile(&listening, 99)),
        micros(listening.last().copied().unwrap_or_default()),
    ]);
    let crowd = plan.pick(500, 50);
    let (all, last) = repeat(plan, || {
        crate::load::runtime()?.block_on(served.crowd(crowd))
    })?;
    rows.push(crowd_row(
        "one task, waiting tasks/result over HTTP",
        crowd,
        &all,
        last,
    ));
    let many = plan.pick(10_000, 500);
    for (name, each) in [
        ("one task, waiters in the process", false),
        ("a task each, waiters in the process", true),
    ] {
        let (all, last) = repeat(plan, || {
            serving.block_on(waiters(served.tasks.runtime(), many, each))
        })?;
        rows.push(crowd_row(name, many, &all, last));
    }
    table(
        "## From the end of a task to the answer of who waits for it",
        &["who waits", "how many", "median", "p99", "last"],
        &rows,
    );
    Ok(())
}

fn crowd_row(name: &str, count: usize, all: &[Duration], last: Duration) -> Vec<String> {
    vec![
        name.to_owned(),
        grouped(count),
        micros(percentile(all, 50)),
        micros(percentile(all, 99)),
        micros(last),
    ]
}

/// All times of all rounds, and the median of the last of each.
fn repeat(
    plan: &Plan,
    mut round: impl FnMut() -> Fallible<Vec<Duration>>,
) -> Fallible<(Vec<Duration>, Duration)> {
    let (mut all, mut lasts) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        let mut times = round()?;
        times.sort_unstable();
        lasts.push(times.last().copied().unwrap_or_default().as_secs_f64());
        all.append(&mut times);
    }
    all.sort_unstable();
    Ok((all, Duration::from_secs_f64(median(lasts))))
}

struct Served {
    tasks: Tasks,
    addr: SocketAddr,
    handle: tokio::runtime::Handle,
}

impl Served {
    /// Ends the task in the server's runtime; when that was begun.
    async fn end(&self, task: &str) -> Fallible<Instant> {
        let (runtime, id) = (self.tasks.runtime().clone(), TaskId::from_stored(task));
        let ended = self.handle.spawn(async move {
            let handle = runtime.handle(&id).await?.ok_or("a task is gone")?;
            let began = Instant::now();
            if !complete(&handle).await? {
                return Err("a task had ended before".into());
            }
            Fallible::Ok(began)
        });
        ended.await?
    }

    async fn one_by_one(&self, plan: &Plan) -> Fallible<Vec<Duration>> {
        let (mut conn, speech) = connect(self.addr, false).await?;
        let mut times = Vec::new();
        for _ in 0..plan.pick(2000, 50) {
            let task = create(&mut conn, &speech, "hold").await?.ok_or("no task")?;
            let id = open(&mut conn, &speech, &task).await?;
            let (ended, came) = tokio::join!(self.end(&task), answered(&mut conn, id));
            times.push(came?.saturating_duration_since(ended?));
        }
        times.sort_unstable();
        Ok(times)
    }

    /// From the end of a task to the notification that tells it.
    async fn subscribed(&self, plan: &Plan) -> Fallible<Vec<Duration>> {
        let (mut conn, speech) = connect(self.addr, true).await?;
        let mut times = Vec::new();
        for _ in 0..plan.pick(1000, 50) {
            let task = create(&mut conn, &speech, "hold").await?.ok_or("no task")?;
            let mut listening = Conn::open(self.addr).await?;
            let mut request = Vec::new();
            Template::listen().write(next_id(), &task, &mut request);
            listening.send(&request).await?;
            if listening.head().await?.status != 200 {
                return Err("a subscription was refused".into());
            }
            until(&mut listening, "\"working\"").await?;
            let (ended, came) =
                tokio::join!(self.end(&task), until(&mut listening, "\"completed\""));
            times.push(came?.saturating_duration_since(ended?));
        }
        times.sort_unstable();
        Ok(times)
    }

    /// Many clients wait for one task.
    async fn crowd(&self, count: usize) -> Fallible<Vec<Duration>> {
        let (mut first, speech) = connect(self.addr, false).await?;
        let task = create(&mut first, &speech, "hold")
            .await?
            .ok_or("no task")?;
        let ready = Arc::new(Barrier::new(count + 1));
        let mut waiting = JoinSet::new();
        for _ in 0..count {
            let (addr, task, ready) = (self.addr, task.clone(), ready.clone());
            let speech = speech.clone();
            waiting.spawn(async move {
                let mut conn = Conn::open(addr).await?;
                let id = open(&mut conn, &speech, &task).await?;
                ready.wait().await;
                answered(&mut conn, id).await
            });
        }
        ready.wait().await;
        let began = self.end(&task).await?;
        let mut times = Vec::new();
        while let Some(came) = waiting.join_next().await {
            times.push(came??.saturating_duration_since(began));
        }
        Ok(times)
    }
}

/// Asks for a task's result and reads until the stream is open.
async fn open(conn: &mut Conn, speech: &Speech, task: &str) -> Fallible<u64> {
    let id = next_id();
    let mut request = Vec::new();
    Template::result(speech).write(id, task, &mut request);
    conn.send(&request).await?;
    let head = conn.head().await?;
    if head.status != 200 {
        return Err(format!("tasks/result was answered {}", head.status).into());
    }
    Ok(id)
}

/// When the answer was there.
async fn answered(conn: &mut Conn, id: u64) -> Fallible<Instant> {
    while conn.chunk().await? {
        if answers(conn.body(), id) {
            let came = Instant::now();
            while conn.chunk().await? {}
            return Ok(came);
        }
    }
    Err("a stream ended without the answer".into())
}

/// When a stream has said so.
async fn until(conn: &mut Conn, wanted: &str) -> Fallible<Instant> {
    while conn.chunk().await? {
        if has(conn.body(), wanted.as_bytes()) {
            return Ok(Instant::now());
        }
    }
    Err(format!("a stream ended before it said {wanted}").into())
}

/// Waiters without a transport: all for one task, or each for its own. The times of each, from the first end on.
async fn waiters(runtime: &Runtime, count: usize, each: bool) -> Fallible<Vec<Duration>> {
    let mut ids = Vec::new();
    for _ in 0..if each { count } else { 1 } {
        ids.push(
            runtime
                .create(call("hold", Owner::Bearer))
                .await?
                .id
                .clone(),
        );
    }
    let mut waiting = JoinSet::new();
    for at in 0..count {
        let (runtime, id) = (runtime.clone(), ids[at % ids.len()].clone());
        waiting.spawn(async move {
            let access = Access::Owner(Owner::Bearer);
            let ended = runtime.wait(&id, &access, None).await?;
            let came = Instant::now();
            if ended.outcome().is_none() {
                return Err("a task ended without an outcome".into());
            }
            Fallible::Ok(came)
        });
    }
    // Until they all wait.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let runtime = runtime.clone();
    let began = tokio::spawn(async move {
        let mut handles = Vec::new();
        for id in &ids {
            handles.push(runtime.handle(id).await?.ok_or("a task is gone")?);
        }
        let began = Instant::now();
        for handle in &handles {
            complete(handle).await?;
        }
        Fallible::Ok(began)
    })
    .await??;
    let mut times = Vec::new();
    while let Some(came) = waiting.join_next().await {
        times.push(came??.saturating_duration_since(began));
    }
    Ok(times)
}
