//! Speed and memory of mcp-tasks, beside a bare handler and beside rmcp's own task manager.
//!
//! Every figure is a ratio of two things measured in one run, in rounds that take turns; the absolute figures belong to
//! the machine. What is compared is served by a child process of the same build and asked by the same generator. See
//! `docs/benchmarks.md`.

mod augmented;
mod child;
mod cycles;
mod fetch;
mod load;
mod measure;
mod memory;
mod messages;
mod retained;
mod rounds;
mod serve;
mod wake;

use std::{path::PathBuf, time::Duration};

/// What can go wrong here is told and ends the run.
type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const USAGE: &str = "\
usage: mcp-tasks-bench [get] [cycles] [wake] [rounds] [augmented] [retained] [memory] [all] [options]
  get          tasks/get over HTTP, beside a bare handler and beside rmcp
  cycles       create + complete + fetch, in memory and in SQLite; group commit
  wake         from the end of a task to the bytes of a waiting tasks/result, or of a subscription
  rounds       a plain call of 2026-07-28, and one that asks
  augmented    a plain call of an augmented tool, beside the same server without tasks
  retained     tasks/get and creation while many tasks are kept
  memory       resident memory per task
options:
  --quick          little of everything: shows that it works, measures nothing
  --rounds N       rounds per figure (9)
  --seconds S      length of a round (0.6)
  --dir PATH       where the SQLite files are made (the system's temporary directory)";

/// How much is measured.
#[derive(Debug, Clone)]
struct Plan {
    quick: bool,
    rounds: usize,
    round: Duration,
    dir: PathBuf,
}

impl Plan {
    /// `full`, or `quick` in a smoke run.
    fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

fn main() -> Fallible<()> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("serve") => return serve::main(&args.split_off(1)),
        Some("hold") => return memory::hold(&args.split_off(1)),
        _ => {}
    }
    let mut plan = Plan {
        quick: false,
        rounds: 9,
        round: Duration::from_millis(600),
        dir: std::env::temp_dir(),
    };
    let mut parts: Vec<String> = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--quick" => {
                plan = Plan {
                    quick: true,
                    rounds: 2,
                    round: Duration::from_millis(100),
                    ..plan
                }
            }
            "--rounds" => plan.rounds = value()?.parse::<usize>()?.max(1),
            "--seconds" => plan.round = Duration::try_from_secs_f64(value()?.parse()?)?,
            "--dir" => plan.dir = value()?.into(),
            "--help" | "-h" => {
                println!("{USAGE}");
                return Ok(());
            }
            "get" | "cycles" | "wake" | "rounds" | "augmented" | "retained" | "memory" | "all" => {
                parts.push(arg)
            }
            _ => return Err(format!("{arg}: unknown\n{USAGE}").into()),
        }
    }
    if parts.is_empty() {
        return Err(format!("nothing to measure\n{USAGE}").into());
    }
    println!("{}", measure::machine());
    let wanted = |name: &str| parts.iter().any(|part| part == name || part == "all");
    for (name, run) in [
        ("get", fetch::run as fn(&Plan) -> Fallible<()>),
        ("cycles", cycles::run),
        ("wake", wake::run),
        ("rounds", rounds::run),
        ("augmented", augmented::run),
        ("retained", retained::run),
        ("memory", memory::run),
    ] {
        if wanted(name) {
            run(&plan)?;
        }
    }
    Ok(())
}
