//! What `--json` prints: it is stable, so every shape is a snapshot.

use std::io::{BufRead, BufReader};

use serde_json::Value;

use crate::{
    fixture::{self, Listening},
    program::{Ran, User},
};

/// Compares the lines, without what differs from run to run.
fn snapshot(name: &str, ran: &Ran) {
    let lines = ran.json();
    let is = |at: usize, name: &str| lines[at]["event"] == name;
    let last = |name: &str| (0..lines.len()).rev().find(|at| is(*at, name));
    // How many of these there are depends on the timing.
    let statuses = matches!(name, "watch" | "resume" | "result_of_cancelled");
    let kept = ran.out.lines().enumerate().filter(|(at, _)| {
        (!is(*at, "status") || (statuses && last("status") == Some(*at)))
            && (!is(*at, "progress") || last("progress") == Some(*at))
    });
    let mut text: String = kept.map(|(_, line)| format!("{line}\n")).collect();
    text.push_str(&format!("exit {}", ran.code));
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let program = regex_literal(fixture::path());
    for (pattern, instead) in [
        (
            r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "[id]",
        ),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", "[time]"),
        (r"127\.0\.0\.1:\d+", "[address]"),
        (&*program, "[fixture-server]"),
        (r#""directory":"[^"]*""#, r#""directory":"[directory]""#),
    ] {
        settings.add_filter(pattern, instead);
    }
    settings.bind(|| insta::assert_snapshot!(name, text));
}

fn regex_literal(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_alphanumeric() || c == '/' {
                c.to_string()
            } else {
                format!("\\{c}")
            }
        })
        .collect()
}

#[test]
fn tools() {
    let ran = User::speaking("2025-11-25")
        .run_stdio(&["tools", "--json"], &[])
        .ok();
    let mut document = ran.json().remove(0);
    let tools = document["tools"].as_array_mut().unwrap();
    tools.retain(|tool| {
        ["greet", "ask_name", "structured"].contains(&tool["name"].as_str().unwrap())
    });
    snapshot(
        "tools",
        &Ran {
            out: document.to_string(),
            ..ran
        },
    );
}

// F-31, F-35
#[test]
fn call() {
    let user = User::speaking("2025-11-25");
    let call = |arguments: &[&str]| user.run_stdio(&[&["call", "--json"], arguments].concat(), &[]);
    snapshot("call_task", &call(&["slow_echo", "--arg", "text=hi"]).ok());
    snapshot(
        "call_plain",
        &call(&["plain_echo", "--arg", "text=hi"]).ok(),
    );
    snapshot(
        "call_no_task",
        &call(&[
            "sleep_echo",
            "--no-task",
            "--arg",
            "text=hi",
            "--arg",
            "ms=1",
        ])
        .ok(),
    );
    snapshot("call_tool_failed", &call(&["tool_error"]));
    snapshot("call_failed", &call(&["fail_task"]));
    snapshot("call_declined", &call(&["ask"]).ok());
    snapshot(
        "call_answered",
        &call(&["ask", "--answer", "name=Ada"]).ok(),
    );
    snapshot("call_url", &call(&["ask_url"]).ok());
    snapshot(
        "call_sampling",
        &call(&["sample", "--arg", "prompt=Say hi"]),
    );
    snapshot("call_detached", &call(&["forever", "--detach"]).ok());
    snapshot(
        "list_local_command",
        &user.run(&["list", "--local", "--json"]).ok(),
    );
}

// F-32
#[test]
fn the_life_of_a_task() {
    let server = Listening::start(&["--owner-from-bearer"]);
    let user = User::speaking("2025-11-25");
    let with = |arguments: &[&str]| {
        let mut command = user.command(&[arguments, &["--json"]].concat());
        command.env("MCP_TASKS_BEARER", "t");
        crate::program::finish(command.spawn().unwrap())
    };
    let called = with(&["call", "ask", "--detach", &server.url]).ok();
    snapshot("detach", &called);
    let id = called.event("created")["task"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    snapshot("list_local", &with(&["list", "--local"]).ok());
    snapshot("list", &with(&["list", &server.url]).ok());
    snapshot("deadline", &with(&["watch", &id, "--timeout", "1ms"]));
    let mut watching = user.command(&["watch", &id, "--json"]);
    let mut watching = watching.env("MCP_TASKS_BEARER", "t").spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("input_required")));
    snapshot("get", &with(&["get", &id]).ok());
    snapshot("cancel", &with(&["cancel", &id]).ok());
    assert!(lines.any(|line| line.unwrap().contains("\"cancelled\"")));
    assert_eq!(crate::program::finish(watching).code, 3);
    snapshot("cancel_again", &with(&["cancel", &id, &server.url]).ok());
    snapshot("result_of_cancelled", &with(&["result", &id, &server.url]));
    snapshot("watch_cancelled", &with(&["watch", &id, &server.url]));
    let called = with(&[
        "call",
        "sleep_echo",
        "--detach",
        "--arg",
        "ms=1",
        "--arg",
        "text=hi",
        &server.url,
    ])
    .ok();
    let id = called.event("detached")["task"]
        .as_str()
        .unwrap()
        .to_owned();
    snapshot("watch", &with(&["watch", &id]).ok());
    snapshot("cancel_too_late", &with(&["cancel", &id]));
    snapshot("resume", &with(&["resume"]).ok());
    snapshot("get_unknown", &with(&["get", "nothing", &server.url]));
}

#[test]
fn errors() {
    let user = User::speaking("2025-11-25");
    snapshot("error_usage", &user.run(&["tools", "--json"]));
    snapshot(
        "error_no_tasks",
        &user.run_stdio(
            &[
                "call",
                "plain_echo",
                "--arg",
                "text=x",
                "--detach",
                "--json",
            ],
            &[],
        ),
    );
    snapshot("error_no_ticket", &user.run(&["get", "nothing", "--json"]));
    let lines = user
        .run(&["tools", "--json", "--", "/no/such/program"])
        .json();
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (&lines[0]["kind"], &lines[0]["exit"]),
        (&Value::from("lost"), &Value::from(5))
    );
}
