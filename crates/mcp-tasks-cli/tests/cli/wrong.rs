//! Wrong input: each error names what was wrong.

use serde_json::json;

use crate::{
    asking::Asking,
    fixture::{self, Listening},
    program::User,
};

#[test]
fn every_wrong_input_is_named() {
    let server = Listening::start(&[]);
    let url = &*server.url;
    let user = User::speaking("2025-11-25");
    let program = fixture::path();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["call"], 2, "<TOOL>"),
        (&["call", "ask"], 2, "there is no target"),
        (&["tools"], 2, "there is no target"),
        (
            &["tools", "localhost:80"],
            2,
            "\"localhost:80\" is no target",
        ),
        (&["tools", "ftp://x"], 2, "\"ftp://x\" is no target"),
        (&["tools", "http://"], 2, "\"http://\" is no HTTP URL"),
        (&["tools", url, "--", program, "--stdio"], 2, "two targets"),
        (
            &["tools", "--header", "A: b", "--", program, "--stdio"],
            2,
            "--header \"A\"",
        ),
        (&["tools", "--header", "nonsense", url], 2, "NAME: VALUE"),
        (
            &["tools", "--header", "Bad Name: x", url],
            2,
            "\"Bad Name\" is no header",
        ),
        (&["call", url, "ask"], 2, "the tool's name comes first"),
        (&["get", url], 2, "the task's id comes first"),
        (&["call", "nothing", url], 2, "no tool \"nothing\""),
        (
            &["call", "slow_echo", "--arg", "ms=soon", url],
            2,
            "--arg \"ms\": expected integer, got \"soon\"",
        ),
        (&["call", "slow_echo", "--arg", "ms", url], 2, "NAME=VALUE"),
        (
            &["call", "slow_echo", "--arg", "ms=1", "--arg", "ms=2", url],
            2,
            "--arg \"ms\": it is given twice",
        ),
        (
            &["call", "slow_echo", "--arg", "ms:=x", url],
            2,
            "\"x\" is no JSON",
        ),
        (
            &["call", "slow_echo", "--args", "[]", url],
            2,
            "expected a JSON object",
        ),
        (
            &["call", "slow_echo", "--args", "{}", "--arg", "ms=1", url],
            2,
            "cannot be used with",
        ),
        (
            &["call", "sleep_echo", "--arg", "ms=1", url],
            2,
            "needs --arg text=…",
        ),
        (&["call", "slow_echo", "--arg", "ms=-5", url], 1, "ms"),
        (
            &["call", "slow_echo", "--ttl", "soon", url],
            2,
            "\"soon\" is no span of time",
        ),
        (
            &["call", "slow_echo", "--ttl", "0s", url],
            2,
            "some time to live",
        ),
        (
            &["call", "slow_echo", "--timeout", "5", url],
            2,
            "\"5\" is no span of time",
        ),
        (
            &["call", "slow_echo", "--detach", "--no-task", url],
            2,
            "--no-task",
        ),
        (
            &["call", "plain_echo", "--detach", "--arg", "text=x", url],
            8,
            "\"plain_echo\" does not run as a task",
        ),
        (
            &["call", "plain_echo", "--ttl", "5m", "--arg", "text=x", url],
            8,
            "--ttl",
        ),
        (&["call", "ask", "--answer", "name", url], 2, "NAME=VALUE"),
        (
            &["call", "ask", "--answers", "x", url],
            2,
            "expected a JSON object",
        ),
        (&["list"], 2, "--local"),
        (&["list", "--local", url], 2, "--local"),
        (&["get", "nothing"], 2, "\"nothing\""),
        (&["get", "nothing", url], 1, "nothing"),
        (&["result", "nothing", url], 1, "nothing"),
        (&["cancel", "nothing", url], 1, "nothing"),
        (&["watch", "nothing", url], 1, "nothing"),
        (&["resume"], 2, "no task was left running"),
        (&["resume", "--last", "x"], 2, "--last"),
        (&["tools", "--", "/no/such/program"], 5, "/no/such/program"),
        (
            &["tools", "--", program, "--nonsense"],
            5,
            "server: fixture-server: \"--nonsense\" is no option",
        ),
        (
            &["tools", "http://127.0.0.1:1/mcp"],
            5,
            "http://127.0.0.1:1/mcp",
        ),
        (&["completions", "dos"], 2, "'dos'"),
        (
            &["man", "--out", "/no/such/directory"],
            1,
            "/no/such/directory",
        ),
    ];
    for (arguments, code, words) in cases {
        let ran = user.run(arguments);
        assert_eq!(ran.code, *code, "{arguments:?}: {ran:?}");
        assert!(ran.err.contains(words), "{arguments:?}: {ran:?}");
        assert_eq!(ran.out, "", "{arguments:?}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn https_is_spoken() {
    // Whoever listens here speaks no TLS: what fails is the handshake, not the scheme.
    let server = Asking::start(vec![]);
    let ran = User::new().run(&["tools", &server.url.replace("http:", "https:")]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(!ran.err.contains("scheme"), "{ran:?}");
}

#[test]
fn headers_and_the_bearer_are_sent() {
    let server = Asking::start(vec![Asking::form("form", json!({"f": {"type": "string"}}))]);
    let user = User::new();
    let headers = ["--header", "X-Team: blue", "--bearer", "s3cret"];
    user.run(&[&["tools"], &headers[..], &[&server.url]].concat())
        .ok();
    let seen = server.headers.lock().unwrap();
    assert_eq!(
        (&seen["x-team"], &seen["authorization"]),
        (&"blue".parse().unwrap(), &"Bearer s3cret".parse().unwrap())
    );
}

#[test]
fn answers_that_do_not_fit_decline() {
    let field =
        json!({"n": {"type": "integer", "minimum": 3}, "t": {"type": "string", "default": "d"}});
    let server = Asking::start(vec![Asking::form("form", field)]);
    let user = User::new();
    let call = |answers: &[&str]| {
        user.run(&[&["call", "form"], answers, &[&server.url]].concat())
            .ok()
    };
    assert_eq!(
        call(&["--answer", "n=5"]).out,
        "{\"action\":\"accept\",\"content\":{\"n\":5,\"t\":\"d\"}}\n"
    );
    assert_eq!(
        call(&["--answers", "{\"n\": 4}"]).out,
        "{\"action\":\"accept\",\"content\":{\"n\":4,\"t\":\"d\"}}\n"
    );
    for (answers, why) in [
        (
            &["--answer", "n=five"][..],
            "--answer \"n\": expected integer, got \"five\"",
        ),
        (
            &["--answer", "n=1"],
            "--answer \"n\": 1 is less than the minimum of 3",
        ),
        (&["--answer", "t=x"], "there is no answer for \"n\""),
        (&[], "nobody is at a terminal to answer it"),
    ] {
        let ran = call(answers);
        assert_eq!(ran.out, "{\"action\":\"decline\"}\n");
        assert!(ran.err.contains(why), "{ran:?}");
    }
}

#[test]
fn completions_and_the_manual_are_printed() {
    let user = User::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = user.run(&["completions", shell]).ok().out;
        assert!(
            script.contains("resume") && script.contains("detach"),
            "{script}"
        );
    }
    let page = user.run(&["man"]).ok().out;
    assert!(
        page.contains(".TH mcp-tasks 1") && page.contains("Exit codes"),
        "{page}"
    );
    let out = user.path().to_str().unwrap();
    user.run(&["man", "--out", out]).ok();
    for name in ["mcp-tasks.1", "mcp-tasks-call.1", "mcp-tasks-list.1"] {
        let page = std::fs::read_to_string(user.path().join(name)).unwrap();
        assert!(page.contains("\\-\\-") || name == "mcp-tasks.1", "{page}");
    }
    assert!(!user.path().join("mcp-tasks-demo-server.1").exists());
}
