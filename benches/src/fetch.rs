//! `tasks/get` over HTTP: beside a bare handler, and beside rmcp's own.

use std::sync::Arc;

use crate::{
    Fallible, Plan,
    child::Server,
    load::{self, Conn, Round, Rounds, Work, next_id},
    measure::{micros, per_second, ratio, table},
    messages::{Constant, Gets, Template, connect, create},
};

const CONNECTIONS: usize = 16;

/// One server with its clients.
struct Side {
    name: &'static str,
    server: Server,
    conns: Vec<Conn>,
    asks: Asks,
    rounds: Rounds,
}

enum Asks {
    Gets(Arc<Gets>),
    Constant(Arc<Constant>),
}

impl Side {
    async fn round(&mut self, plan: &Plan) -> Fallible<Round> {
        let pid = self.server.pid();
        match &self.asks {
            Asks::Gets(work) => load::round(&mut self.conns, work, plan.round, pid).await,
            Asks::Constant(work) => load::round(&mut self.conns, work, plan.round, pid).await,
        }
    }
}

/// Connections to `server`, each with a task of its own. `None` if it does not serve tasks in this way.
async fn clients(server: &Server, stateless: bool) -> Fallible<Option<(Vec<Conn>, Gets)>> {
    let mut conns = Vec::new();
    let mut gets = Gets {
        clients: Vec::new(),
        tasks: Vec::new(),
        status: "\"working\"",
    };
    for _ in 0..CONNECTIONS {
        let (mut conn, speech) = connect(server.addr, stateless).await?;
        let Some(task) = create(&mut conn, &speech, "hold").await? else {
            return Ok(None);
        };
        conns.push(conn);
        gets.clients.push(Template::get(&speech));
        gets.tasks.push(vec![task]);
    }
    Ok(Some((conns, gets)))
}

/// The plane or rmcp, and a bare handler that is asked the same and answers in the same size.
async fn pair(
    name: &'static str,
    kind: &str,
    bare: &'static str,
    stateless: bool,
) -> Fallible<Option<[Side; 2]>> {
    let server = Server::start(&[kind])?;
    let Some((mut conns, gets)) = clients(&server, stateless).await? else {
        return Ok(None);
    };
    let gets = Arc::new(gets);
    let mut request = Vec::new();
    let id = next_id();
    let what = gets.request(0, id, &mut request);
    let (head, body) = conns[0].ask(&request).await?;
    if !gets.check(0, id, what, &head, body) {
        return Err(format!("{name}: {head:?} {}", String::from_utf8_lossy(body)).into());
    }
    let size = body.len();
    let constant = Server::start(&["bare", "--size", &size.to_string()])?;
    let mut plain = Vec::new();
    for _ in 0..CONNECTIONS {
        plain.push(Conn::open(constant.addr).await?);
    }
    let asked = Gets {
        clients: gets.clients.clone(),
        tasks: gets.tasks.clone(),
        ..*gets
    };
    Ok(Some([
        Side {
            name: bare,
            server: constant,
            conns: plain,
            asks: Asks::Constant(Arc::new(Constant { asked, size })),
            rounds: Rounds::default(),
        },
        Side {
            name,
            server,
            conns,
            asks: Asks::Gets(gets),
            rounds: Rounds::default(),
        },
    ]))
}

pub(crate) fn run(plan: &Plan) -> Fallible<()> {
    load::runtime()?.block_on(async {
        let pairs = [
            (
                "mcp-tasks, 2025-11-25",
                "plane",
                "bare handler, 2025-11-25 requests",
                false,
            ),
            (
                "mcp-tasks, 2026-07-28",
                "plane",
                "bare handler, 2026-07-28 requests",
                true,
            ),
            (
                "rmcp TaskManager, 2026-07-28, SSE",
                "rmcp",
                "bare handler, rmcp's size",
                true,
            ),
            (
                "rmcp TaskManager, 2026-07-28, JSON",
                "rmcp-json",
                "bare handler, rmcp's JSON size",
                true,
            ),
        ];
        let mut sides = Vec::new();
        for (name, kind, bare, stateless) in pairs {
            match pair(name, kind, bare, stateless).await? {
                Some(pair) => sides.push(pair),
                None => println!("\n{name}: tasks are not served in this way, left out"),
            }
        }
        for pair in &mut sides {
            for side in pair {
                side.round(plan).await?;
            }
        }
        for number in 0..plan.rounds {
            for pair in &mut sides {
                // Who begins takes turns too.
                let [bare, measured] = pair;
                let order = if number % 2 == 0 {
                    [bare, measured]
                } else {
                    [measured, bare]
                };
                for side in order {
                    let round = side.round(plan).await?;
                    side.rounds.push(round);
                }
            }
        }
        let mut rows = Vec::new();
        for pair in &sides {
            let [bare, _] = pair;
            for side in pair {
                let cpu = side.rounds.cpu();
                let times = match (cpu, bare.rounds.cpu()) {
                    (Some(cpu), Some(bare)) => ratio(cpu.as_secs_f64() / bare.as_secs_f64()),
                    _ => "-".into(),
                };
                rows.push(vec![
                    side.name.to_owned(),
                    per_second(side.rounds.rate()),
                    ratio(side.rounds.rate_ratio(&bare.rounds)),
                    micros(side.rounds.p50()),
                    micros(side.rounds.p99()),
                    cpu.map_or("-".into(), micros),
                    times,
                    ratio(side.rounds.generator()),
                ]);
            }
        }
        table(
            &format!("## tasks/get over HTTP keep-alive, {CONNECTIONS} connections"),
            &[
                "server",
                "rate",
                "of bare",
                "p50",
                "p99",
                "server CPU each",
                "CPU to bare",
                "generator busy",
            ],
            &rows,
        );
        let of = |name: &str| {
            sides
                .iter()
                .flatten()
                .find(|side| side.name.starts_with(name))
        };
        if let (Some(ours), Some(theirs)) = (of("mcp-tasks"), of("rmcp")) {
            println!(
                "\nmcp-tasks to rmcp's TaskManager: {} times the rate",
                ratio(ours.rounds.rate_ratio(&theirs.rounds))
            );
        }
        Ok(())
    })
}
