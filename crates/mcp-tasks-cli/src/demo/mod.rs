//! `mcp-tasks demo`: a task with a question, then a task whose server is killed in the middle.
//!
//! [`server`] is the server, [`child`] its process, [`person`] answers its question, [`story`] is what happens, [`event`]
//! and [`printer`] are how that is told.

mod child;
mod event;
mod person;
mod printer;
pub(crate) mod server;
mod story;

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
};

use tempfile::TempDir;

use crate::failure::Failure;
use person::{Answers, Person};
use printer::Printer;
use story::Story;

/// Shows the main job in one command, with nothing to install and no network.
///
/// Starts a server with a SQLite file over HTTP, calls a tool that reports progress, asks a question and returns a
/// result; then kills the server in the middle of a second task, restarts it on the same file, and shows that task
/// complete. The exit code is 0 only if all of that has happened.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Keep the tasks in this SQLite file, which stays; a temporary one if not said
    #[arg(long, value_name = "PATH")]
    db: Option<PathBuf>,
    /// Answer the question with its default instead of asking at the terminal
    #[arg(long)]
    yes: bool,
    /// Print one JSON object a line, each with the member "event"
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(options: Options) -> Result<(), Failure> {
    let answers = match options.yes {
        true => Answers::Defaults,
        false if io::stdin().is_terminal() => Answers::Terminal,
        false => {
            return Err(Failure::usage(
                "the demo asks a question, and standard input is no terminal to answer it at: give --yes to have it \
                 answered with its default",
            ));
        }
    };
    let (_directory, db) = match options.db {
        Some(path) => (None, path),
        None => {
            let directory = TempDir::with_prefix("mcp-tasks-demo-")
                .map_err(|error| Failure::new(format!("no temporary directory: {error}")))?;
            let path = directory.path().join("tasks.db");
            (Some(directory), path)
        }
    };
    let printer = Printer::new(options.json);
    let person = Person::new(answers, printer.clone());
    let mut story = Story::new(db, person, printer.clone());
    let ended = tokio::select! {
        ended = story.tell() => ended,
        failure = told_to_stop() => Err(failure),
    };
    // Whatever happened: no process and no directory of ours stays behind.
    story.clean_up().await;
    printer.close();
    ended
}

/// Completes on Ctrl-C or SIGTERM.
async fn told_to_stop() -> Failure {
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminated = async {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => drop(signals.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<()>();
    tokio::select! {
        () = interrupted => Failure::signal("Ctrl-C", 2),
        () = terminated => Failure::signal("SIGTERM", 15),
    }
}
