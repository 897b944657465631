//! `tasks/get` and creation while many tasks are kept.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use mcp_tasks::{
    Tasks,
    runtime::Runtime,
    store::{Access, MemoryStore},
    task::{Owner, TaskId},
};

use crate::{
    Fallible, Plan,
    child::Server,
    load::{self, Conn, Rounds},
    measure::{Numbers, grouped, median, micros, per_second, rate, ratio, table},
    messages::{Calls, Gets, Template, connect},
    serve::{call, fill, tasks},
};

const CONNECTIONS: usize = 16;
/// How many of the tasks are asked for in the figure that leaves the processor's caches out.
const FEW: usize = 1000;

/// A server with so many tasks, and what it showed.
struct Side {
    kept: usize,
    server: Server,
    conns: Vec<Conn>,
    any: Arc<Gets>,
    few: Arc<Gets>,
    calls: Option<Arc<Calls>>,
    rounds: [Rounds; 3],
}

impl Side {
    async fn start(kind: &str, kept: usize, stateless: bool) -> Fallible<Self> {
        let server = Server::start(&[kind, "--retain", &kept.to_string()])?;
        let (mut conns, mut gets, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..CONNECTIONS {
            let (conn, speech) = connect(server.addr, stateless).await?;
            conns.push(conn);
            gets.push(Template::get(&speech));
            calls.push(Template::call(&speech, "turn"));
        }
        let of = |tasks: &[String]| {
            Arc::new(Gets {
                clients: gets.clone(),
                tasks: vec![tasks.to_vec()],
                status: "\"completed\"",
            })
        };
        let few = server.tasks.len().min(FEW);
        Ok(Self {
            kept,
            any: of(&server.tasks),
            few: of(&server.tasks[..few]),
            // rmcp's manager cannot remove a task, so that creation has no constant number of them.
            calls: (kind == "plane").then(|| Arc::new(Calls(calls))),
            conns,
            server,
            rounds: Default::default(),
        })
    }

    async fn round(&mut self, plan: &Plan) -> Fallible<()> {
        let pid = self.server.pid();
        let any = load::round(&mut self.conns, &self.any, plan.round, pid).await?;
        let few = load::round(&mut self.conns, &self.few, plan.round, pid).await?;
        self.rounds[0].push(any);
        self.rounds[1].push(few);
        if let Some(calls) = &self.calls {
            let made = load::round(&mut self.conns, calls, plan.round, pid).await?;
            self.rounds[2].push(made);
        }
        Ok(())
    }
}

pub(crate) fn run(plan: &Plan) -> Fallible<()> {
    let sizes = plan.pick([1_000, 100_000, 1_000_000], [100, 1_000, 5_000]);
    over_http(plan, "mcp-tasks, 2025-11-25", "plane", &sizes, false)?;
    let few = plan.pick([1_000, 1_000_000], [100, 5_000]);
    over_http(plan, "mcp-tasks, 2026-07-28", "plane", &few, true)?;
    let sizes = plan.pick([1_000, 20_000], [100, 1_000]);
    over_http(
        plan,
        "rmcp TaskManager, 2026-07-28",
        "rmcp-json",
        &sizes,
        true,
    )?;
    in_process(plan)
}

/// Who is measured when: forwards, then backwards.
fn turn(sides: usize, number: usize) -> Vec<usize> {
    let order = 0..sides;
    if number.is_multiple_of(2) {
        order.collect()
    } else {
        order.rev().collect()
    }
}

fn over_http(
    plan: &Plan,
    name: &str,
    kind: &str,
    sizes: &[usize],
    stateless: bool,
) -> Fallible<()> {
    load::runtime()?.block_on(async {
        let mut sides = Vec::new();
        for kept in sizes {
            sides.push(Side::start(kind, *kept, stateless).await?);
        }
        for side in &mut sides {
            side.round(plan).await?;
            side.rounds = Default::default();
        }
        for number in 0..plan.rounds {
            for at in turn(sides.len(), number) {
                sides[at].round(plan).await?;
            }
        }
        let mut rows = Vec::new();
        for (at, what) in [
            "tasks/get of any of them",
            "tasks/get of the same 1 000",
            "creation",
        ]
        .into_iter()
        .enumerate()
        {
            for side in &sides {
                let rounds = &side.rounds[at];
                if at == 2 && side.calls.is_none() {
                    continue;
                }
                rows.push(vec![
                    what.to_owned(),
                    grouped(side.kept),
                    per_second(rounds.rate()),
                    ratio(rounds.rate_ratio(&sides[0].rounds[at])),
                    micros(rounds.p50()),
                    micros(rounds.p99()),
                    rounds.cpu().map_or("-".into(), micros),
                ]);
            }
        }
        table(
            &format!("## With many tasks kept, over HTTP, {CONNECTIONS} connections: {name}"),
            &[
                "what",
                "kept",
                "rate",
                "to the first",
                "p50",
                "p99",
                "server CPU each",
            ],
            &rows,
        );
        Ok(())
    })
}

/// The same without a transport.
struct Filled {
    tasks: Tasks,
    ids: Vec<TaskId>,
    rates: [Vec<f64>; 3],
}

impl Filled {
    async fn gets(&self, among: usize, time: Duration) -> Fallible<f64> {
        let (runtime, access) = (self.tasks.runtime(), Access::Owner(Owner::Bearer));
        let mut numbers = Numbers::new(among);
        let (began, mut count) = (Instant::now(), 0);
        while began.elapsed() < time {
            for _ in 0..64 {
                let id = &self.ids[numbers.below(among)];
                let record = runtime.get(id, &access, None).await?;
                if !record.is_terminal() {
                    return Err("a task that had ended goes on".into());
                }
            }
            count += 64;
        }
        Ok(rate(count, began.elapsed()))
    }

    async fn creations(&self, time: Duration) -> Fallible<f64> {
        let runtime: &Runtime = self.tasks.runtime();
        let (began, mut count) = (Instant::now(), 0);
        while began.elapsed() < time {
            runtime.create(call("turn", Owner::Bearer)).await?;
            count += 1;
        }
        Ok(rate(count, began.elapsed()))
    }
}

fn in_process(plan: &Plan) -> Fallible<()> {
    let time = plan.round / 3;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(async {
            let mut sides = Vec::new();
            for kept in plan.pick([1_000, 100_000, 1_000_000], [100, 1_000, 5_000]) {
                let tasks = tasks(Arc::new(MemoryStore::new()))?;
                let ids = fill(tasks.runtime(), kept).await?;
                sides.push(Filled {
                    tasks,
                    ids,
                    rates: Default::default(),
                });
            }
            for number in 0..plan.rounds {
                for at in turn(sides.len(), number) {
                    let side = &mut sides[at];
                    let any = side.gets(side.ids.len(), time).await?;
                    let few = side.gets(side.ids.len().min(FEW), time).await?;
                    let made = side.creations(time).await?;
                    for (rates, rate) in side.rates.iter_mut().zip([any, few, made]) {
                        rates.push(rate);
                    }
                }
            }
            let mut rows = Vec::new();
            for (at, what) in ["read of any of them", "read of the same 1 000", "creation"]
                .into_iter()
                .enumerate()
            {
                for side in &sides {
                    let pairs = side.rates[at].iter().zip(&sides[0].rates[at]);
                    rows.push(vec![
                        what.to_owned(),
                        grouped(side.ids.len()),
                        per_second(median(side.rates[at].iter().copied())),
                        ratio(median(pairs.map(|(mine, first)| mine / first))),
                    ]);
                }
            }
            table(
                "## With many tasks kept, without a transport, one client",
                &["what", "kept", "rate", "to the first"],
                &rows,
            );
            Ok(())
        })
}
