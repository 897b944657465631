//! Drives both binaries.

use std::{path::Path, process::Command};

use serde_json::json;
use testkit::{Client, Process, Stdio};

fn program(binary: &str, dir: &Path) -> Command {
    let mut command = Command::new(binary);
    command.arg(dir.join("tasks.db")).arg(dir.join("jobs"));
    command
}

fn client(dir: &Path) -> Stdio {
    let mut client = Stdio::start(&mut program(env!("CARGO_BIN_EXE_shout-server"), dir));
    client.initialize(json!({}));
    client
}

fn worker(dir: &Path) -> Process {
    Process::start(&mut program(env!("CARGO_BIN_EXE_shout-worker"), dir))
}

#[test]
fn the_worker_finishes_tasks_while_the_server_is_away() {
    let dir = tempfile::tempdir().unwrap();
    let mut before = client(dir.path());
    let task = before.call_as_task("shout", json!({"text": "hello"}));
    let got = before.request("tasks/get", json!({"taskId": task}));
    assert_eq!(got["result"]["status"], "working", "{got}");
    assert_eq!(
        got["result"]["statusMessage"], "waiting for a worker",
        "{got}"
    );
    assert!(before.close().success());

    let _worker = worker(dir.path());
    let mut after = client(dir.path());
    let result = after.task_result(&task);
    assert_eq!(result["content"][0]["text"], "HELLO", "{result}");
    // And while it is there.
    let next = after.call_as_task("shout", json!({"text": "again"}));
    assert_eq!(after.task_result(&next)["content"][0]["text"], "AGAIN");
}

#[test]
fn a_cancelled_job_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = client(dir.path());
    let unwanted = client.call_as_task("shout", json!({"text": "unwanted"}));
    let cancelled = client.request("tasks/cancel", json!({"taskId": unwanted}));
    assert_eq!(cancelled["result"]["status"], "cancelled", "{cancelled}");
    let _worker = worker(dir.path());
    let wanted = client.call_as_task("shout", json!({"text": "wanted"}));
    assert_eq!(client.task_result(&wanted)["content"][0]["text"], "WANTED");
    let got = client.request("tasks/get", json!({"taskId": unwanted}));
    assert_eq!(got["result"]["status"], "cancelled", "{got}");
}
