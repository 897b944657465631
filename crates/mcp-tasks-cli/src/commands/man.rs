//! `mcp-tasks man`: the manual.

use std::path::PathBuf;

use clap::Command;
use clap_mangen::Man;

use crate::{exit::Exit, failure::Failure};

/// Print the manual page, or write the pages of all commands into a directory
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write mcp-tasks.1, mcp-tasks-call.1, … into this directory instead
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
}

pub(crate) fn run(options: &Options, program: Command) -> Result<Exit, Failure> {
    match &options.out {
        None => {
            let page = page(program)?;
            crate::text::out(String::from_utf8_lossy(&page).trim_end());
        }
        Some(directory) => clap_mangen::generate_to(program, directory).map_err(|error| {
            Failure::new(format!(
                "the pages could not be written into {}: {error}",
                directory.display()
            ))
        })?,
    }
    Ok(Exit::Done)
}

fn page(command: Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    Man::new(command)
        .render(&mut page)
        .map_err(|e| Failure::at("the manual page")(&e))?;
    Ok(page)
}
