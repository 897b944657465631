//! The program `client-stream`.

use std::process::{Output, Stdio};

use tokio::{io::AsyncWriteExt, process::Command};

use crate::{
    fixture::{Listening, program},
    soon,
};

async fn run(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_client-stream"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).await.unwrap();
    drop(stdin);
    soon(child.wait_with_output()).await.unwrap()
}

/// Runs it over both transports, and checks that these words are in its lines, in this order.
async fn prints(tool: &str, arguments: &str, input: &str, expected: &[&str]) {
    let server = Listening::start("127.0.0.1:0", &[]).await;
    let stdio = ["--", program().to_str().unwrap(), "--stdio"];
    for place in [&[&*server.url][..], &stdio] {
        let output = run(&[&[tool, arguments], place].concat(), input).await;
        let out = String::from_utf8(output.stdout).unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{out}{err}");
        let mut lines = out.lines();
        for start in expected {
            assert!(
                lines.any(|line| line.contains(start)),
                "{start:?} in {out}{err}"
            );
        }
    }
}

#[tokio::test]
async fn the_status_and_the_result_are_printed() {
    let arguments = r#"{"text": "hello", "ms": 400}"#;
    let expected = [
        "created: ",
        "status: completed",
        r#""content":[{"type":"text","text":"hello"}]"#,
    ];
    prints("slow_echo", arguments, "", &expected).await;
}

#[tokio::test]
async fn questions_are_answered_from_standard_input() {
    let input = "{\"name\": \"a\"}\n{\"name\": \"b\"}\n";
    let expected = [
        "created: ",
        // Two at once, in any order.
        "question: What is on the ",
        "question: What is on the ",
        "result: ",
    ];
    prints("multi_input", "{}", input, &expected).await;
    let expected = [r#""content":[{"type":"text","text":"action=decline name="}]"#];
    prints("ask", "{}", "", &expected).await;
}

#[tokio::test]
async fn a_failed_task_is_an_error() {
    let stdio = [
        "fail_task",
        "{}",
        "--",
        program().to_str().unwrap(),
        "--stdio",
    ];
    let output = run(&stdio, "").await;
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && err.contains("it broke"),
        "{err}"
    );
    let output = run(&["slow_echo"], "").await;
    assert!(String::from_utf8_lossy(&output.stderr).contains("arguments: TOOL"));
}
