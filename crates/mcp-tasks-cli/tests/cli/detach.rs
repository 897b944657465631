//! A task that is left, and taken up by another process after its server was killed.

use std::io::{BufRead, BufReader};

use crate::{
    fixture::{Listening, Store},
    program::{User, finish},
};

// F-36
#[test]
fn over_http_the_task_survives_its_server() {
    let store = Store::new();
    let server = Listening::start(&store.arguments());
    let user = User::new();
    let steps = ["--arg", "steps=20", "--arg", "ms=100"];
    let called = [
        &["call", "checkpointed", "--detach"],
        &steps[..],
        &[&server.url],
    ]
    .concat();
    let detached = user.run(&called).ok();
    let id = detached.out.trim();
    assert!(
        detached
            .err
            .contains(&format!("resume with: mcp-tasks resume {id}")),
        "{detached:?}"
    );
    let server = server.again(&store.arguments());
    // The beginning of the id is enough.
    let resumed = user.run(&["resume", &id[..8]]).ok();
    assert!(
        resumed.out.starts_with("steps=20 attempts=2 ran="),
        "{resumed:?}"
    );
    // Its ticket is gone; the task is still there by its id.
    let again = user.run(&["resume"]);
    assert_eq!(again.code, 2, "{again:?}");
    let again = user.run(&["result", id, &server.url]).ok();
    assert_eq!(again.out, resumed.out);
}

#[test]
fn over_stdio_the_server_is_started_again() {
    let store = Store::new();
    let user = User::new();
    let call = [
        "call",
        "sleep_echo",
        "--detach",
        "--arg",
        "ms=500",
        "--arg",
        "text=after all",
    ];
    let detached = user.run_stdio(&call, &store.arguments()).ok();
    assert!(
        detached
            .err
            .contains("the server was started for this call"),
        "{detached:?}"
    );
    let resumed = user.run(&["resume", "--json"]).ok();
    let result = resumed.event("result");
    assert_eq!(result["task"], detached.out.trim());
    assert_eq!(result["result"]["content"][0]["text"], "after all");
}

// F-35
#[test]
fn a_deadline_leaves_the_ticket_and_a_cancel_takes_it_along() {
    let server = Listening::start(&[]);
    let user = User::new();
    let id = user
        .run(&["call", "forever", "--detach", &server.url])
        .ok()
        .out;
    let id = id.trim();
    let late = user.run(&["resume", "--timeout", "1ms", "--json"]);
    let error = late.event("error");
    assert_eq!(
        (late.code, &error["kind"], &error["task"]),
        (6, &"deadline".into(), &id.into()),
        "{late:?}"
    );
    assert!(
        late.err
            .contains(&format!("resume with: mcp-tasks resume {id}")),
        "{late:?}"
    );
    user.run(&["cancel", &id[..8]]).ok();
    assert_eq!(user.run(&["list", "--local"]).ok().out, "");
}

#[test]
fn a_server_that_is_gone_leaves_the_ticket() {
    let server = Listening::start(&[]);
    let user = User::new();
    let detached = user.run(&["call", "forever", "--detach", &server.url]).ok();
    drop(server);
    let resumed = user.run(&["resume", "--json"]);
    assert_eq!(
        (resumed.code, &resumed.event("error")["kind"]),
        (5, &"lost".into()),
        "{resumed:?}"
    );
    let tickets = user.run(&["list", "--local", "--json"]).ok();
    assert_eq!(tickets.json()[0]["tickets"][0]["task"], detached.out.trim());
}

#[test]
fn a_task_that_is_gone_takes_its_ticket_along() {
    let server = Listening::start(&[]);
    let user = User::new();
    user.run(&["call", "forever", "--detach", &server.url]).ok();
    // Its tasks were in memory.
    let server = server.again(&[]);
    let resumed = user.run(&["resume", "--json"]);
    assert_eq!(
        (resumed.code, &resumed.event("error")["kind"]),
        (4, &"expired".into()),
        "{resumed:?}"
    );
    assert_eq!(user.run(&["resume"]).code, 2);
    drop(server);
}

#[test]
fn watching_only_looks() {
    let server = Listening::start(&[]);
    let user = User::new();
    let id = user.run(&["call", "ask", "--detach", &server.url]).ok().out;
    let mut watching = user
        .command(&["watch", id.trim(), "--json"])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("input_required")));
    let resumed = user
        .run(&["result", id.trim(), "--answer", "name=Ada"])
        .ok();
    assert_eq!(resumed.out, "action=accept name=Ada\n");
    let watched = user.run(&["watch", id.trim(), &server.url]).ok();
    assert!(watched.err.contains("is completed"), "{watched:?}");
    assert_eq!(finish(watching).code, 0);
}
