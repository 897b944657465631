//! The command line `mcp-tasks`. Every command is a module of its own; this file only chooses between them.
#![forbid(unsafe_code)]

mod demo;
mod failure;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Failure;

const EXIT_CODES: &str = "\
Exit codes:
  0    everything the command promises has happened
  1    something failed; the message on stderr says what
  2    the command line is wrong, or a question could not be answered
  130  interrupted (Ctrl-C), 143 told to stop (SIGTERM)";

/// Durable, long-running tool calls for MCP servers and clients.
#[derive(Parser)]
#[command(name = "mcp-tasks", version, after_help = EXIT_CODES, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(after_help = EXIT_CODES)]
    Demo(demo::Options),
    #[command(hide = true)]
    DemoServer(demo::server::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return Failure::new(format!("no async runtime: {error}")).report(),
    };
    let ended = match cli.command {
        Command::Demo(options) => runtime.block_on(demo::run(options)),
        Command::DemoServer(options) => runtime.block_on(demo::server::run(options)),
    };
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
