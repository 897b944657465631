//! The server is killed in the middle of a task, and started again on the same file.

use mcp_tasks::client::{
    CallOptions, TaskClient, TaskClientError, TaskEvent, TaskPreference, TaskStream,
};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    call,
    fixture::{Listening, on_stdio},
    person::Person,
    soon, text_of, word, words,
};

struct Store {
    _directory: TempDir,
    option: String,
}

impl Store {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tasks.db");
        Self {
            option: format!("sqlite:{}", path.to_str().unwrap()),
            _directory: directory,
        }
    }

    fn arguments(&self) -> [&str; 4] {
        ["--lease-ms", "600", "--store", &self.option]
    }
}

/// Reads on to the first event that is `wanted`.
async fn until(events: &mut TaskStream, wanted: &str) {
    loop {
        let event = soon(events.next()).await.expect("the end came first");
        assert!(!event.is_last(), "{event:?} came first");
        if word(&event) == wanted {
            return;
        }
    }
}

// F-36
#[tokio::test]
async fn the_same_client_goes_on_over_http() {
    let store = Store::new();
    let server = Listening::start("127.0.0.1:0", &store.arguments()).await;
    let (person, _) = Person::new();
    let client = soon(TaskClient::http(person, &server.url)).await.unwrap();
    let steps = call("checkpointed", json!({"steps": 10, "ms": 200}));
    let mut events = client.call_tool_stream(steps, CallOptions::new());
    until(&mut events, "created").await;
    // Its last change moves with every saved step.
    until(&mut events, "status working").await;
    until(&mut events, "status working").await;
    let server = server.killed().await.again(&store.arguments()).await;
    let got = words(events).await;
    let last = got.last().unwrap();
    assert!(
        last.starts_with("result steps=10 attempts=2 ran="),
        "{got:?}"
    );
    assert!(!last.ends_with("ran=10"), "{last}");
    let result = soon(client.call_tool(call("plain_echo", json!({"text": "still there"})))).await;
    assert_eq!(text_of(&result.unwrap()), "still there");
    // The session's own stream is there again too.
    let got = soon(client.call_tool(call("ask_name", json!({}))))
        .await
        .unwrap();
    assert_eq!(text_of(&got), "Hello your");
    drop(server);
}

#[tokio::test]
async fn a_question_that_was_open_is_asked_once_and_answered_after_the_restart() {
    let store = Store::new();
    let server = Listening::start("127.0.0.1:0", &store.arguments()).await;
    let (person, mut told) = Person::new();
    let (person, go_on) = person.thinking();
    let client = soon(TaskClient::http(person.clone(), &server.url))
        .await
        .unwrap();
    let mut events =
        client.call_tool_stream(call("ask_name", json!({"ms": 0})), CallOptions::new());
    until(&mut events, "created").await;
    soon(told.recv()).await.unwrap();
    let server = server.killed().await.again(&store.arguments()).await;
    go_on.notify_one();
    let got = words(events).await;
    assert_eq!(got.last().unwrap(), "result Hello your", "{got:?}");
    assert_eq!(person.asked().len(), 1);
    drop(server);
}

#[tokio::test]
async fn an_answer_given_while_the_server_is_away_arrives() {
    let store = Store::new();
    let server = Listening::start("127.0.0.1:0", &store.arguments()).await;
    let (person, mut told) = Person::new();
    let (person, go_on) = person.thinking();
    let client = soon(TaskClient::http(person.clone(), &server.url))
        .await
        .unwrap();
    let mut events =
        client.call_tool_stream(call("ask_name", json!({"ms": 0})), CallOptions::new());
    until(&mut events, "created").await;
    soon(told.recv()).await.unwrap();
    let server = server.killed().await;
    go_on.notify_one();
    let server = server.again(&store.arguments()).await;
    let got = words(events).await;
    assert_eq!(got.last().unwrap(), "result Hello your", "{got:?}");
    assert_eq!(person.asked().len(), 1);
    drop(server);
}

#[tokio::test]
async fn many_requests_at_once_bring_a_session_back() {
    let store = Store::new();
    let server = Listening::start("127.0.0.1:0", &store.arguments()).await;
    let client = soon(TaskClient::http((), &server.url)).await.unwrap();
    let steps = call("checkpointed", json!({"steps": 100, "ms": 100}));
    let task = soon(client.call_tool_task(steps, CallOptions::new()))
        .await
        .unwrap();
    let server = server.killed().await.again(&store.arguments()).await;
    let gets: Vec<_> = (0..16)
        .map(|_| {
            let task = task.clone();
            tokio::spawn(async move { task.get().await })
        })
        .collect();
    for get in gets {
        soon(get).await.unwrap().unwrap();
    }
    drop(server);
}

#[tokio::test]
async fn a_plain_call_of_a_task_tool_is_rejoined() {
    let store = Store::new();
    let server = Listening::start("127.0.0.1:0", &store.arguments()).await;
    let (person, mut told) = Person::new();
    let (person, go_on) = person.thinking();
    let client = soon(TaskClient::http(person.clone(), &server.url))
        .await
        .unwrap();
    let plainly = CallOptions::new().task(TaskPreference::Never);
    let call = call("confirm_delete", json!({"filename": "f"}));
    let events = client.call_tool_stream(call, plainly);
    soon(told.recv()).await.unwrap();
    let server = server.killed().await.again(&store.arguments()).await;
    go_on.notify_one();
    let got = words(events).await;
    assert_eq!(got, ["result f was deleted"]);
    assert_eq!(person.asked().len(), 1);
    drop(server);
}

#[tokio::test]
async fn a_task_without_recovery_says_what_happened() {
    let store = Store::new();
    let server = Listening::start("127.0.0.1:0", &store.arguments()).await;
    let client = soon(TaskClient::http((), &server.url)).await.unwrap();
    let mut events = client.call_tool_stream(call("forever", json!({})), CallOptions::new());
    until(&mut events, "created").await;
    let server = server.killed().await.again(&store.arguments()).await;
    let got = words(events).await;
    assert!(
        got.last()
            .unwrap()
            .contains("the worker running this task stopped"),
        "{got:?}"
    );
    drop(server);
}

// F-36
#[tokio::test]
async fn on_stdio_another_process_goes_on_with_the_task() {
    let store = Store::new();
    let arguments = store.arguments();
    let (person, _) = Person::new();
    let first = soon(TaskClient::child(person.clone(), on_stdio(&arguments)))
        .await
        .unwrap();
    let steps = call("checkpointed", json!({"steps": 10, "ms": 100}));
    let mut events = first.call_tool_stream(steps, CallOptions::new());
    let Some(TaskEvent::Created(info)) = soon(events.next()).await else {
        panic!("it was not created")
    };
    until(&mut events, "status working").await;
    soon(first.close()).await;
    let mut last = None;
    while let Some(event) = soon(events.next()).await {
        last = Some(event);
    }
    assert!(
        matches!(last, Some(TaskEvent::Error(TaskClientError::Closed))),
        "{last:?}"
    );
    let second = soon(TaskClient::child(person, on_stdio(&arguments)))
        .await
        .unwrap();
    let result = soon(second.task(&info.task_id).result()).await.unwrap();
    assert!(
        text_of(&result).starts_with("steps=10 attempts=2"),
        "{result:?}"
    );
    assert!(!text_of(&result).ends_with("ran=10"), "{result:?}");
}
