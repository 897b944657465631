//! Ctrl-C once, twice, and at other times.

use crate::{
    fixture::{self, Listening},
    program::{User, finish},
    terminal::{CTRL_C, Terminal},
};

/// The id in `resume with: mcp-tasks resume ID`.
fn resumable(text: &str) -> &str {
    let (_, rest) = text
        .split_once("resume with: mcp-tasks resume ")
        .unwrap_or_else(|| panic!("{text}"));
    rest.split_whitespace().next().unwrap()
}

// F-36
#[test]
fn once_detaches_and_the_task_goes_on() {
    let server = Listening::start(&[]);
    let user = User::speaking("2025-11-25");
    let arguments = [
        "call",
        "slow_echo",
        "--arg",
        "text=late",
        "--arg",
        "ms=6000",
        "--grace",
        "100ms",
        &server.url,
    ];
    let mut terminal = Terminal::start(&user, &arguments);
    terminal.expect("/4 echoing").keys(CTRL_C);
    terminal
        .expect("detached: the task runs on")
        .expect("resume with: ");
    let (code, text) = terminal.ended();
    assert_eq!(code, 7, "{text}");
    let id = resumable(&text);
    let resumed = user.run(&["resume", id]).ok();
    assert_eq!(resumed.out, "late\n");
    let gone = user.run(&["resume", id]);
    assert_eq!(gone.code, 2, "{gone:?}");
}

// F-32
#[test]
fn twice_cancels() {
    let server = Listening::start(&[]);
    let user = User::new();
    let mut terminal = Terminal::start(&user, &["call", "forever", "--grace", "10m", &server.url]);
    terminal.expect("forever: task ").keys(CTRL_C);
    terminal
        .expect("resume with: ")
        .expect("Ctrl-C again within 10m cancels the task")
        .keys(CTRL_C);
    terminal
        .expect("cancelling the task")
        .expect("was cancelled");
    let (code, text) = terminal.ended();
    assert_eq!(code, 3, "{text}");
    let id = resumable(&text);
    let got = user.run(&["get", id, &server.url, "--json"]).ok();
    assert_eq!(got.json()[0]["status"], "cancelled");
    assert_eq!(
        user.run(&["list", "--local", "--json"]).json()[0]["tickets"],
        serde_json::json!([])
    );
}

#[test]
fn in_a_prompt_it_leaves_the_question_open() {
    let server = Listening::start(&[]);
    let user = User::new();
    let mut terminal = Terminal::start(&user, &["call", "ask", "--grace", "0s", &server.url]);
    terminal.expect("name:").keys("half an ans").keys(CTRL_C);
    terminal.expect("detached");
    let (code, text) = terminal.ended();
    assert_eq!(code, 7, "{text}");
    let id = resumable(&text);
    let got = user.run(&["get", id, "--json"]).ok();
    assert_eq!(got.json()[0]["status"], "input_required");
    let resumed = user.run(&["resume", "--last", "--answer", "name=Ada"]).ok();
    assert_eq!(resumed.out, "action=accept name=Ada\n");
}

#[test]
fn in_a_prompt_and_once_more_cancels() {
    let server = Listening::start(&[]);
    let user = User::new();
    let mut terminal = Terminal::start(&user, &["call", "ask", "--grace", "10m", &server.url]);
    terminal.expect("name:").keys(CTRL_C);
    terminal
        .expect("Ctrl-C again")
        .keys(CTRL_C)
        .expect("was cancelled");
    assert_eq!(terminal.ended().0, 3);
}

#[test]
fn the_server_process_is_not_interrupted() {
    let user = User::new();
    let arguments = [
        "call",
        "forever",
        "--grace",
        "10m",
        "--",
        fixture::path(),
        "--stdio",
    ];
    let mut terminal = Terminal::start(&user, &arguments);
    terminal.expect("forever: task ").keys(CTRL_C);
    terminal
        .expect("if it keeps its tasks in a file or a database")
        .expect("Ctrl-C again")
        .keys(CTRL_C);
    terminal.expect("was cancelled");
    assert_eq!(terminal.ended().0, 3);
}

#[test]
fn before_there_is_a_task_the_call_can_only_be_withdrawn() {
    let server = Listening::start(&[]);
    let user = User::new();
    let mut terminal = Terminal::start(&user, &["call", "test_tool_with_task", &server.url]);
    terminal.expect("name:").keys(CTRL_C);
    terminal.expect("once more withdraws the call").keys(CTRL_C);
    let (code, text) = terminal.ended();
    assert_eq!(code, 130, "{text}");
}

#[test]
fn a_call_that_is_no_task_is_withdrawn() {
    let server = Listening::start(&[]);
    let user = User::new();
    let arguments = [
        "call",
        "slow_compute",
        "--arg",
        "seconds=600",
        "--no-task",
        "-v",
        &server.url,
    ];
    let mut terminal = Terminal::start(&user, &arguments);
    terminal.expect("connected to").keys(CTRL_C);
    let (code, text) = terminal.ended();
    assert_eq!(code, 130, "{text}");
    assert!(!text.contains("resume"), "{text}");
}

#[test]
fn told_to_stop_it_detaches_at_once() {
    use std::{io::Read, process::Command};
    let server = Listening::start(&[]);
    let user = User::new();
    let mut child = user
        .command(&["call", "forever", "--json", &server.url])
        .spawn()
        .unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("\"created\"") {
        let mut byte = [0];
        output.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
    assert!(
        Command::new("kill")
            .arg(child.id().to_string())
            .status()
            .unwrap()
            .success()
    );
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"detached\""), "{rest}");
    assert_eq!(finish(child).code, 7);
}
