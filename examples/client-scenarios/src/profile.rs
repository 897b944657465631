//! What the tools of each server are called.

use serde_json::{Value, json};

/// A call: the tool and its arguments.
pub(crate) type Call = (&'static str, Value);

/// The tools of one server; `None` where it has none of that kind.
#[derive(Clone)]
pub(crate) struct Profile {
    /// Runs a moment with or without a task, and says `one`.
    pub(crate) optional: Option<Call>,
    /// A text in its result.
    pub(crate) says: &'static str,
    /// The same where it is called plainly.
    pub(crate) says_plainly: &'static str,
    pub(crate) plain: Call,
    pub(crate) required: Option<Call>,
    /// Asks the user once; its result has `answer` in it.
    pub(crate) ask: Call,
    pub(crate) answer: &'static str,
    /// Asks before it does anything, where it is called plainly under 2026-07-28; its result has `answer` in it.
    pub(crate) ask_first: Option<Call>,
    pub(crate) fail: Option<Call>,
    /// A text in what the failed one says.
    pub(crate) fails_with: &'static str,
    pub(crate) forever: Option<Call>,
    /// Plain tools that have the client host a task.
    pub(crate) hosted: Vec<Hosted>,
}

/// A tool that asks its client in a task of the client's, and what its result then says.
#[derive(Clone)]
pub(crate) struct Hosted {
    pub(crate) call: Call,
    pub(crate) says: &'static [&'static str],
}

impl Profile {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            // Our fixture server, and the one on the TypeScript SDK.
            "fixture" | "ts" => Self {
                optional: Some(("slow_echo", json!({"text": "one", "ms": 400}))),
                says: "one",
                says_plainly: "one",
                plain: ("plain_echo", json!({"text": "one"})),
                required: Some(("ask_name", json!({}))),
                ask: ("ask_name", json!({"ms": 200})),
                answer: "Ada",
                ask_first: None,
                fail: Some(("fail_task", json!({}))),
                fails_with: if name == "ts" { "boom" } else { "it broke" },
                forever: Some(("forever", json!({}))),
                // All of the events, as JSON.
                hosted: vec![Hosted {
                    call: ("ask_client_task", json!({})),
                    says: &[
                        r#"\"type\":\"taskCreated\""#,
                        r#"\"type\":\"result\""#,
                        r#"\"action\":\"accept\""#,
                        "Ada",
                    ],
                }],
            },
            // Those of 2026-07-28 on rmcp and on the TypeScript SDK: the first has no tool that must be a task.
            "rmcp" | "sdk2" => Self {
                optional: Some(("slow_echo", json!({"text": "one", "ms": 400}))),
                says: "one",
                says_plainly: if name == "rmcp" { "sync" } else { "one" },
                plain: ("plain_echo", json!({"text": "one"})),
                required: (name == "sdk2").then(|| ("ask_name", json!({}))),
                ask: ("ask_name", json!({"ms": 200})),
                answer: "Ada",
                ask_first: (name == "sdk2").then(|| ("ask_first", json!({}))),
                fail: Some(("fail_task", json!({}))),
                fails_with: "boom",
                forever: Some(("forever", json!({}))),
                hosted: Vec::new(),
            },
            "python" | "fastmcp" => Self {
                optional: Some(("sleep_echo", json!({"text": "one", "ms": 400}))),
                says: "one",
                says_plainly: "one",
                plain: ("greet", json!({"name": "one"})),
                required: Some(("sleep_required", json!({"text": "one"}))),
                ask: ("ask", json!({})),
                answer: "Ada",
                ask_first: (name == "fastmcp").then(|| ("ask", json!({}))),
                fail: Some(("fail", json!({}))),
                fails_with: "boom",
                forever: Some(("sleep_required", json!({"text": "late", "ms": 3_600_000}))),
                hosted: Vec::new(),
            },
            "everything" => Self {
                optional: None,
                says: "one",
                says_plainly: "one",
                plain: ("echo", json!({"message": "one"})),
                required: Some(("simulate-research-query", json!({"topic": "one"}))),
                ask: (
                    "simulate-research-query",
                    json!({"topic": "python", "ambiguous": true}),
                ),
                answer: "python",
                ask_first: None,
                fail: None,
                fails_with: "",
                forever: Some(("simulate-research-query", json!({"topic": "one"}))),
                hosted: vec![
                    Hosted {
                        call: ("trigger-sampling-request-async", json!({"prompt": "hello"})),
                        says: &["[COMPLETED]", "Task created: ", "sampled by Ada"],
                    },
                    Hosted {
                        call: ("trigger-elicitation-request-async", json!({})),
                        says: &["[COMPLETED]", "Task created: ", "- Name: Ada"],
                    },
                ],
            },
            _ => return None,
        })
    }
}
