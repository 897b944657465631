//! Resident memory per task, each figure in a process of its own.

use std::{io::BufRead, sync::Arc, time::Duration};

use mcp_tasks::{store::MemoryStore, task::Owner};

use crate::{
    Fallible, Plan, child,
    child::Server,
    load::{self, Work, next_id},
    measure::{grouped, resident, table},
    messages::{Calls, Template, connect, create, has},
    serve::{call, fill, tasks},
};

const KINDS: [(&str, &str); 4] = [
    ("working", "working, work done outside, bearer"),
    ("owned", "working, work done outside, of one owner (listed)"),
    ("ended", "ended with a short result, bearer"),
    ("running", "a body that runs here and waits"),
];

/// The child: holds `count` tasks of a kind and tells what that took.
pub(crate) fn hold(args: &[String]) -> Fallible<()> {
    let [kind, count] = args else {
        return Err("hold KIND COUNT".into());
    };
    let count: usize = count.parse()?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(async {
            let tasks = tasks(Arc::new(MemoryStore::new()))?;
            let runtime = tasks.runtime();
            // What comes once comes before.
            fill(runtime, 1000).await?;
            let own = std::process::id();
            let before = resident(own).ok_or("the system does not tell")?;
            let make = async |tool: &str, owner: Owner| {
                for _ in 0..count {
                    runtime.create(call(tool, owner.clone())).await?;
                }
                Fallible::Ok(())
            };
            match kind.as_str() {
                "working" => make("hold", Owner::Bearer).await?,
                "owned" => make("hold", Owner::principal("ann@example.com")).await?,
                "ended" => drop(fill(runtime, count).await?),
                "running" => make("wait", Owner::Bearer).await?,
                other => return Err(format!("hold {other:?}: unknown").into()),
            }
            let after = resident(own).ok_or("the system does not tell")?;
            println!("{}", after.saturating_sub(before) / count.max(1));
            Ok(())
        })
}

pub(crate) fn run(plan: &Plan) -> Fallible<()> {
    let mut rows = Vec::new();
    for (kind, name) in KINDS {
        let count = match kind {
            "running" => plan.pick(100_000, 2_000),
            _ => plan.pick(1_000_000, 5_000),
        };
        let (mut child, mut lines) = child::start(&["hold", kind, &count.to_string()])?;
        let mut line = String::new();
        lines.read_line(&mut line)?;
        child.wait()?;
        rows.push(row(name, count, line.trim().parse()?));
    }
    let count = plan.pick(100_000, 1_000);
    let each = load::runtime()?.block_on(over_http(count))?;
    rows.push(row(
        "working, created over HTTP in a live session",
        count,
        each,
    ));
    for (tool, status, name, count) in [
        ("asks", "\"input_required\"", "waits for an answer", 1_000),
        ("asks", "\"input_required\"", "waits for an answer", 10_000),
        ("stays", "\"working\"", "works", 1_000),
    ] {
        let name = format!("an augmented tool that {name}, called over HTTP");
        let count = plan.pick(count, count.min(1_000));
        let each = load::runtime()?.block_on(parked(tool, status, count))?;
        rows.push(row(&name, count, each));
    }
    table(
        "## Resident memory per task, memory store",
        &["tasks", "how many", "bytes each"],
        &rows,
    );
    Ok(())
}

fn row(name: &str, count: usize, each: usize) -> Vec<String> {
    vec![name.to_owned(), grouped(count), grouped(each)]
}

/// What a task takes that a session has made and may be told about.
async fn over_http(count: usize) -> Fallible<usize> {
    let server = Server::start(&["plane"])?;
    let (mut conn, speech) = connect(server.addr, false).await?;
    let calls = Calls(vec![Template::call(&speech, "hold")]);
    let mut before = 0;
    let mut request = Vec::new();
    for made in 0..count + 1000 {
        if made == 1000 {
            before = resident(server.pid()).ok_or("the system does not tell")?;
        }
        let id = next_id();
        request.clear();
        calls.request(0, id, &mut request);
        let (head, body) = conn.ask(&request).await?;
        if !calls.check(0, id, 0, &head, body) {
            return Err(format!("no task: {}", String::from_utf8_lossy(body)).into());
        }
    }
    let after = resident(server.pid()).ok_or("the system does not tell")?;
    Ok(after.saturating_sub(before) / count.max(1))
}

/// What a running tool of the inner server takes as a task: its call, its peer, the HTTP request it came with. All of them
/// are there at once.
async fn parked(tool: &str, status: &str, count: usize) -> Fallible<usize> {
    let server = Server::start(&["augmented"])?;
    let (mut conn, speech) = connect(server.addr, false).await?;
    let get = Template::get(&speech);
    let mut before = 0;
    // What comes once comes before.
    for (number, tasks) in [1000, count].into_iter().enumerate() {
        if number == 1 {
            before = resident(server.pid()).ok_or("the system does not tell")?;
        }
        let mut ids = Vec::with_capacity(tasks);
        for _ in 0..tasks {
            let id = create(&mut conn, &speech, tool).await?;
            ids.push(id.ok_or("no task was made")?);
        }
        for id in ids {
            let mut request = Vec::new();
            while {
                request.clear();
                get.write(next_id(), &id, &mut request);
                let (_, body) = conn.ask(&request).await?;
                !has(body, status.as_bytes())
            } {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
    let after = resident(server.pid()).ok_or("the system does not tell")?;
    Ok(after.saturating_sub(before) / count.max(1))
}
