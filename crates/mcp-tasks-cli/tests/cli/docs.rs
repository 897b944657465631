//! What README.md and docs/cli.md show is true.

use std::{collections::BTreeSet, path::PathBuf};

use serde_json::Value;

use crate::{
    fixture::{self, Listening},
    program::{User, finish},
};

fn text(file: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(file)).unwrap()
}

/// The lines of all blocks of this language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}");
    let mut inside = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        match inside {
            false => inside = line == fence,
            true if line == "```" => inside = false,
            true => lines.push(line),
        }
    }
    lines
}

#[test]
fn the_commands_that_are_shown_work() {
    let ours = [env!("CARGO_BIN_EXE_mcp-tasks"), fixture::path()];
    let ours = ours.map(|program| PathBuf::from(program).parent().unwrap().to_owned());
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(ours.into_iter().chain(std::env::split_paths(&usual))).unwrap();
    for (file, least) in [("README.md", 6), ("docs/cli.md", 5)] {
        let server = Listening::start(&[]);
        let user = User::new();
        let text = text(file);
        let commands = blocks(&text, "sh")
            .into_iter()
            .filter(|line| line.starts_with("mcp-tasks "));
        let commands: Vec<&str> = commands.collect();
        assert!(commands.len() >= least, "{file}: {commands:?}");
        for line in commands {
            let line = line.replace("http://127.0.0.1:4000/mcp", &server.url);
            let mut shell = std::process::Command::new("sh");
            shell
                .args(["-c", &line])
                .env("PATH", &path)
                .env("MCP_TASKS_STATE", user.path())
                .stdin(std::process::Stdio::null())
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped());
            let ran = finish(shell.spawn().unwrap());
            assert_eq!(ran.code, 0, "{file}: {line}: {ran:?}");
        }
    }
}

#[test]
fn the_exit_codes_are_those_of_the_help() {
    let help = User::new().run(&["help"]).ok().out;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let docs = text("docs/cli.md");
    let (_, table) = docs.split_once("## Exit codes").unwrap();
    let rows: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| code"))
        .collect();
    assert!(rows.len() > 9);
    for row in rows.iter().take(10) {
        let words = row.trim_matches(['|', ' ']).replace(" | ", " ");
        assert!(help.contains(&words), "{words:?} in {help}");
    }
}

#[test]
fn the_events_that_are_shown_have_the_members_of_real_ones() {
    let keys = |value: &Value| -> BTreeSet<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    let snapshots = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cli/snapshots");
    let mut real = Vec::new();
    for file in std::fs::read_dir(snapshots).unwrap() {
        let snapshot = std::fs::read_to_string(file.unwrap().path()).unwrap();
        real.extend(
            snapshot
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok()),
        );
    }
    let docs = text("docs/cli.md");
    let shown = blocks(&docs, "json");
    assert!(shown.len() > 10);
    for line in shown {
        let event: Value = serde_json::from_str(line).expect(line);
        let alike = |real: &&Value| {
            real["event"] == event["event"]
                && keys(real) == keys(&event)
                && real["task"].is_object() == event["task"].is_object()
        };
        let found = real.iter().find(alike);
        let found = found.unwrap_or_else(|| panic!("no real event is like {line}"));
        if event["task"].is_object() {
            assert_eq!(keys(&found["task"]), keys(&event["task"]), "{line}");
        }
    }
}
