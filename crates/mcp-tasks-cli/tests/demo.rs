//! `mcp-tasks demo`, run as its users run it.
#![allow(clippy::unwrap_used)]

use std::{
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::Command,
};

/// The demo with these arguments, and nobody at a terminal.
fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-tasks"));
    command
        .arg("demo")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), what)
        .await
        .expect("the demo hangs")
}

/// Runs it to its end; that of its output too, so that no process of its is left that holds it.
async fn run(arguments: &[&str]) -> (Output, String, String) {
    let output = soon(demo(arguments).output()).await.unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output, out, err)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Whether there is a process of this number; one that was not reaped is one.
async fn exists(pid: &Value) -> bool {
    let mut kill = Command::new("kill");
    kill.args(["-0", &pid.to_string()]).stderr(Stdio::null());
    kill.status().await.unwrap().success()
}

#[tokio::test]
async fn everything_happens_and_is_told_in_order() {
    let (output, out, err) = run(&["--yes"]).await;
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert_eq!(err, "");
    let mut lines = out.lines();
    let expected = [
        "server: started as process ",
        "write_report: created task ",
        "write_report: progress 2/4",
        "question: Whom is the report for?",
        "answer: accept name=\"everyone\"",
        "write_report: result: A report in 4 parts for everyone",
        "import_rows: created task ",
        "import_rows: attempt 1",
        "import_rows: progress 4/12",
        "server: killed (SIGKILL) process ",
        "server: restarted as process ",
        "import_rows: attempt 2, resumed from step ",
        "import_rows: result: ",
        "done: ",
    ];
    for start in expected {
        assert!(
            lines.any(|line| line.starts_with(start)),
            "{start:?} is not there, or not in its place:\n{out}"
        );
    }
}

#[tokio::test]
async fn json_lines_tell_the_same_and_a_file_is_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kept.db");
    let db = path.to_str().unwrap();
    for _ in 0..2 {
        let (output, out, err) = run(&["--yes", "--json", "--db", db]).await;
        assert_eq!(output.status.code(), Some(0), "{out}{err}");
        let events: Vec<Value> = out
            .lines()
            .map(|line| serde_json::from_str(line).expect(line))
            .collect();
        check(&events, db).await;
        assert!(path.exists());
    }
}

async fn check(events: &[Value], db: &str) {
    let mut rest = events.iter();
    let mut next = |name: &str| {
        rest.find(|event| event["event"] == name)
            .unwrap_or_else(|| panic!("no {name} in its place: {events:#?}"))
    };
    let created = next("created");
    assert_eq!(
        (&created["tool"], &created["status"]),
        (&"write_report".into(), &"working".into())
    );
    assert_eq!(next("progress")["total"], 4.0);
    let question = next("question");
    assert_eq!(question["task"], created["task"]);
    let answer = next("answer");
    assert_eq!(
        (&answer["action"], &answer["content"]["name"]),
        (&"accept".into(), &"everyone".into())
    );
    let result = next("result");
    assert_eq!(
        (&result["task"], &result["attempts"]),
        (&created["task"], &1.into())
    );
    let created = next("created");
    assert_eq!(created["tool"], "import_rows");
    let progress = next("progress");
    assert_eq!(
        (&progress["progress"], &progress["task"]),
        (&1.0.into(), &created["task"])
    );
    let killed = next("server_killed");
    assert_eq!(killed["task"], created["task"]);
    let restarted = next("server_restarted");
    assert_ne!(killed["pid"], restarted["pid"]);
    assert_eq!(restarted["db"], db);
    let result = next("result");
    assert_eq!(result["task"], created["task"]);
    assert!(result["attempts"].as_u64().unwrap() >= 2, "{result}");
    assert!(
        result["resumed_from"].as_u64() >= killed["step"].as_u64(),
        "{result}"
    );
    assert_eq!(events.last(), Some(result));

    let known = [
        "created",
        "status",
        "progress",
        "question",
        "answer",
        "server_killed",
        "server_restarted",
        "result",
    ];
    let name = |event: &Value| event["event"].as_str().unwrap().to_owned();
    assert!(events.iter().all(|event| known.contains(&&*name(event))));
    for pid in [&killed["pid"], &restarted["pid"]] {
        assert!(
            pid.is_u64() && !exists(pid).await,
            "process {pid} is still there"
        );
    }
}

#[tokio::test]
async fn without_a_terminal_somebody_has_to_say_yes() {
    let (output, out, err) = run(&[]).await;
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(out, "");
    assert!(err.contains("--yes") && err.contains("terminal"), "{err}");
}

#[tokio::test]
async fn a_wrong_path_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("not-a-database");
    std::fs::write(
        &other,
        "something else, long enough to be looked at ".repeat(50),
    )
    .unwrap();
    let missing = directory.path().join("missing").join("tasks.db");
    for path in [directory.path(), &*missing, &*other] {
        let db = path.to_str().unwrap();
        let (output, out, err) = run(&["--yes", "--db", db]).await;
        assert_eq!(output.status.code(), Some(1), "{out}{err}");
        assert!(err.contains(db), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
}

#[tokio::test]
async fn help_documents_the_exit_codes() {
    let (output, out, _) = run(&["--help"]).await;
    assert!(output.status.success());
    assert!(
        out.contains("Exit codes:") && out.contains("--db") && out.contains("--json"),
        "{out}"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn ctrl_c_leaves_nothing_behind() {
    let mut child = demo(&["--yes"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let started = soon(lines.next_line()).await.unwrap().unwrap();
    let (_, db) = started.split_once("tasks in ").unwrap();
    let directory = Path::new(db).parent().unwrap().to_owned();
    assert!(directory.exists());
    let pid = child.id().unwrap().to_string();
    let interrupt = Command::new("kill").args(["-INT", &pid]).status().await;
    assert!(interrupt.unwrap().success());
    assert_eq!(soon(child.wait()).await.unwrap().code(), Some(130));
    let server = started
        .split_once("process ")
        .unwrap()
        .1
        .split_once(',')
        .unwrap()
        .0;
    assert!(!exists(&server.parse::<u64>().unwrap().into()).await);
    assert!(!directory.exists());
}

#[tokio::test]
async fn the_server_dies_with_a_demo_that_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("tasks.db");
    let mut child = demo(&["--yes", "--json", "--db", db.to_str().unwrap()])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    loop {
        let line = soon(lines.next_line()).await.unwrap().expect("it ended");
        if line.contains("server_restarted") {
            break;
        }
    }
    child.start_kill().unwrap();
    soon(child.wait()).await.unwrap();
    // The server has the same standard error: it ends when the last process that holds it has gone.
    let mut rest = String::new();
    soon(child.stderr.take().unwrap().read_to_string(&mut rest))
        .await
        .unwrap();
    assert_eq!(rest, "");
}
