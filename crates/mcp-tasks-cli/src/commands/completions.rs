//! `mcp-tasks completions`: for the shells.

use clap::Command;
use clap_complete::Shell;

use crate::exit::Exit;

/// Print the completions of a shell, to be put where that shell looks for them
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(options: &Options, mut program: Command) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut program, "mcp-tasks", &mut script);
    crate::text::out(String::from_utf8_lossy(&script).trim_end());
    Exit::Done
}
