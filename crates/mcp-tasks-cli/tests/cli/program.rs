//! Running `mcp-tasks`.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use serde_json::Value;

use crate::fixture;

/// Longer than anything takes on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(120);

/// A user with a state directory of their own.
pub(crate) struct User {
    pub(crate) state: tempfile::TempDir,
    /// What they want to be spoken.
    pub(crate) protocol: &'static str,
}

/// What a run of the program gave.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl User {
    pub(crate) fn new() -> Self {
        Self::speaking("auto")
    }

    pub(crate) fn speaking(protocol: &'static str) -> Self {
        Self {
            state: tempfile::tempdir().unwrap(),
            protocol,
        }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-tasks"));
        command
            .args(arguments)
            .env("MCP_TASKS_STATE", self.state.path())
            .env("MCP_TASKS_PROTOCOL", self.protocol)
            .env("NO_COLOR", "1")
            .env_remove("MCP_TASKS_BEARER")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs it to its end, with nobody at a terminal.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        finish(self.command(arguments).spawn().unwrap())
    }

    /// The same, with `fixture-server` as the command after `--`.
    pub(crate) fn run_stdio(&self, arguments: &[&str], server: &[&str]) -> Ran {
        self.run(&[arguments, &["--", fixture::path(), "--stdio"], server].concat())
    }

    pub(crate) fn path(&self) -> &Path {
        self.state.path()
    }
}

/// Waits for its end.
pub(crate) fn finish(child: Child) -> Ran {
    let pid = child.id();
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(SOON) else {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        panic!("mcp-tasks hangs");
    };
    let output = output.unwrap();
    Ran {
        code: output.status.code().expect("a signal ended it"),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Ran {
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Its output as JSON, one value a line.
    pub(crate) fn json(&self) -> Vec<Value> {
        self.out
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect()
    }

    /// The last event of this name.
    #[track_caller]
    pub(crate) fn event(&self, name: &str) -> Value {
        let events = self.json();
        let found = events
            .into_iter()
            .rev()
            .find(|event| event["event"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }
}
