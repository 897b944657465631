//! The command line `mcp-tasks`. Every command is a module of its own; this file only chooses between them.
#![forbid(unsafe_code)]

mod ask;
mod commands;
mod connect;
mod demo;
mod exit;
mod failure;
mod follow;
mod session;
mod show;
mod signals;
mod span;
mod state;
mod target;
mod text;
mod values;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use exit::Exit;
use failure::Failure;

const TARGETS: &str = "\
The target comes last: a URL, or a command after `--` that serves MCP on its standard input and output.
  mcp-tasks call survey --arg city=Paris http://localhost:8000/mcp
  mcp-tasks call survey --arg city=Paris -- my-server --stdio";

/// Calls the tools of MCP servers as durable tasks: they go on when you leave, and are there when you come back.
#[derive(Parser)]
#[command(name = "mcp-tasks", version, propagate_version = true)]
#[command(after_help = format!("{TARGETS}\n\n{}", exit::TABLE))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(after_help = exit::TABLE)]
    Tools(commands::tools::Options),
    #[command(after_help = format!("{TARGETS}\n\n{}", exit::TABLE))]
    Call(Box<commands::call::Options>),
    #[command(after_help = exit::TABLE)]
    Get(commands::get::Options),
    #[command(after_help = exit::TABLE)]
    Result(commands::result::Options),
    #[command(after_help = exit::TABLE)]
    Watch(commands::watch::Options),
    #[command(after_help = exit::TABLE)]
    List(commands::list::Options),
    #[command(after_help = exit::TABLE)]
    Cancel(commands::cancel::Options),
    #[command(after_help = exit::TABLE)]
    Resume(commands::resume::Options),
    #[command(after_help = exit::TABLE)]
    Demo(demo::Options),
    Completions(commands::completions::Options),
    Man(commands::man::Options),
    #[command(hide = true)]
    DemoServer(demo::server::Options),
}

impl Command {
    fn is_json(&self) -> bool {
        match self {
            Self::Tools(options) => options.show.json,
            Self::Call(options) => options.show.json,
            Self::Get(options) => options.show.json,
            Self::Result(options) => options.show.json,
            Self::Watch(options) => options.show.json,
            Self::List(options) => options.show.json,
            Self::Cancel(options) => options.show.json,
            Self::Resume(options) => options.show.json,
            Self::Demo(_) | Self::Completions(_) | Self::Man(_) | Self::DemoServer(_) => false,
        }
    }

    async fn run(self) -> Result<Exit, Failure> {
        match self {
            Self::Tools(options) => commands::tools::run(options).await,
            Self::Call(options) => commands::call::run(*options).await,
            Self::Get(options) => commands::get::run(options).await,
            Self::Result(options) => commands::result::run(options).await,
            Self::Watch(options) => commands::watch::run(options).await,
            Self::List(options) => commands::list::run(options).await,
            Self::Cancel(options) => commands::cancel::run(options).await,
            Self::Resume(options) => commands::resume::run(options).await,
            Self::Demo(options) => demo::run(options).await.map(|()| Exit::Done),
            Self::Completions(options) => Ok(commands::completions::run(&options, Cli::command())),
            Self::Man(options) => commands::man::run(&options, Cli::command()),
            Self::DemoServer(options) => demo::server::run(options).await.map(|()| Exit::Done),
        }
    }
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let json = command.is_json();
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return Failure::new(format!("no async runtime: {error}")).report(json),
    };
    let ended = runtime.block_on(command.run());
    // A prompt that nobody answered any more is not waited for.
    runtime.shutdown_background();
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(json),
    }
}
