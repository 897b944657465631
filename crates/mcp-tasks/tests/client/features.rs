//! What the client does, one feature at a time, both ends ours, over a pipe and over HTTP.

use std::{sync::Arc, time::Duration};

use mcp_tasks::{
    Limits, TaskContext, TaskError, TaskSupport, TaskTool, Tasks,
    client::{
        CallOptions, TaskClient, TaskClientError, TaskEvent, TaskPreference, TaskStatus, TaskStream,
    },
    store::MemoryStore,
};
use rmcp::{ServiceExt, model::CallToolRequestParams};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use crate::{
    Person, call,
    ends::{Ends, WAYS},
    script::RELATED,
    support::{
        Greeter, PATIENCE,
        http::Served,
        tools::{self, Gates},
    },
    text_of,
};

/// Waits, but not for ever.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what)
        .await
        .expect("this takes too long")
}

/// A server that knows whose tasks they are.
fn server(gates: &Gates, limits: Limits) -> Tasks {
    // Tells what it does, a step whenever it is let.
    let held = gates.clone();
    let steps = TaskTool::new("steps").support(TaskSupport::Optional).run(
        move |cx: TaskContext, _: Value| {
            let gates = held.clone();
            async move {
                gates.pass().await;
                cx.status("one").await?;
                gates.pass().await;
                cx.progress(1.0, Some(2.0), Some("half"));
                gates.pass().await;
                cx.status("two").await?;
                gates.pass().await;
                Ok::<_, TaskError>("done")
            }
        },
    );
    let builder = tools::all(gates).limits(limits).tool(steps);
    builder.owner(|_| Some("ada")).build().unwrap()
}

fn limits(poll: Duration) -> Limits {
    let mut limits = tools::limits();
    limits.poll_interval = poll;
    limits
}

fn writer() -> Person {
    Person {
        writes: true,
        ..Person::default()
    }
}

const OFTEN: Duration = Duration::from_millis(100);

fn quick() -> Tasks {
    server(&Gates::default(), limits(OFTEN))
}

async fn next(events: &mut TaskStream) -> TaskEvent {
    soon(events.next()).await.expect("another event")
}

/// The next event that is a status with this message.
async fn until_status(events: &mut TaskStream, message: &str) {
    loop {
        match next(events).await {
            TaskEvent::Status(info) if info.status_message.as_deref() == Some(message) => break,
            // The same status may be told again with another time.
            TaskEvent::Status(_) => {}
            other => panic!("{other:?} before {message:?}"),
        }
    }
}

// F-31, B94
#[tokio::test]
async fn a_stream_tells_of_the_creation_of_changes_of_progress_and_of_one_end() {
    for way in WAYS {
        let gates = Gates::default();
        let builder = TaskClient::builder(()).poll_floor(OFTEN);
        let ends = Ends::connect(way, &server(&gates, limits(OFTEN)), builder).await;
        let mut events = ends
            .client
            .call_tool_stream(call("steps"), CallOptions::new());
        let TaskEvent::Created(created) = next(&mut events).await else {
            panic!("{way:?}: not created first")
        };
        assert_eq!(created.status, TaskStatus::Working);
        gates.go.add_permits(1);
        until_status(&mut events, "one").await;
        gates.go.add_permits(1);
        match next(&mut events).await {
            TaskEvent::Progress(step) => {
                assert_eq!(
                    (step.progress, step.total, step.message.as_deref()),
                    (1.0, Some(2.0), Some("half")),
                    "{way:?}"
                );
            }
            other => panic!("{way:?}: {other:?}"),
        }
        gates.go.add_permits(1);
        until_status(&mut events, "two").await;
        gates.go.add_permits(1);
        let result = loop {
            match next(&mut events).await {
                TaskEvent::Status(info) => assert_eq!(info.task_id, created.task_id),
                TaskEvent::Result(result) => break result,
                other => panic!("{way:?}: {other:?}"),
            }
        };
        assert_eq!(text_of(&result), "done");
        assert!(soon(events.next()).await.is_none(), "{way:?}: two ends");
        // One that ends badly, and one that is no task at all.
        let mut events = ends
            .client
            .call_tool_stream(call("fails"), CallOptions::new());
        let mut kinds = Vec::new();
        while let Some(event) = soon(events.next()).await {
            kinds.push(match event {
                TaskEvent::Created(_) => "created",
                TaskEvent::Status(_) => "status",
                TaskEvent::Error(TaskClientError::Rpc(_)) => "error",
                other => panic!("{way:?}: {other:?}"),
            });
        }
        kinds.dedup();
        assert_eq!(kinds, ["created", "status", "error"], "{way:?}");
        let greet = CallToolRequestParams::new("greet")
            .with_arguments(json!({"name": "Ada"}).as_object().unwrap().clone());
        let mut events = ends.client.call_tool_stream(greet, CallOptions::new());
        assert!(
            matches!(next(&mut events).await, TaskEvent::Result(result) if text_of(&result) == "Hello, Ada!"),
            "{way:?}"
        );
        assert!(soon(events.next()).await.is_none());
    }
}

// F-32
#[tokio::test]
async fn a_handle_gets_follows_and_cancels_and_lists_have_all_pages() {
    for way in WAYS {
        let gates = Gates::default();
        let mut limits = limits(OFTEN);
        limits.page = 3;
        let ends = Ends::connect(way, &server(&gates, limits), TaskClient::builder(())).await;
        let client = &ends.client;
        let make = async |tool: &'static str| {
            let made = client.call_tool_task(call(tool), CallOptions::new());
            soon(made).await.unwrap()
        };
        let held = make("held").await;
        assert_eq!(held.info().unwrap().status, TaskStatus::Working);
        soon(gates.wait_started()).await;
        assert_eq!(
            soon(held.get()).await.unwrap().status,
            TaskStatus::Working,
            "{way:?}"
        );
        gates.go.add_permits(1);
        for _ in 0..2 {
            let result = soon(held.result()).await.unwrap();
            assert_eq!(text_of(&result), "held {}", "{way:?}");
        }
        let mut events = held.events();
        let mut last = None;
        while let Some(event) = soon(events.next()).await {
            last = Some(event);
        }
        assert!(matches!(last, Some(TaskEvent::Result(_))), "{last:?}");
        let late = soon(held.cancel()).await.unwrap();
        assert_eq!(late.status, TaskStatus::Completed, "{way:?}");
        let cancelled = make("held").await;
        soon(gates.wait_started()).await;
        let told = soon(cancelled.cancel()).await.unwrap();
        assert_eq!(told.status, TaskStatus::Cancelled, "{way:?}");
        soon(gates.wait_cancelled()).await;
        let mut ids = vec![held.id().to_owned(), cancelled.id().to_owned()];
        for _ in 0..6 {
            ids.push(make("echo").await.id().to_owned());
        }
        let listed = soon(client.list_tasks()).await.unwrap();
        let mut listed: Vec<_> = listed.into_iter().map(|task| task.task_id).collect();
        listed.sort();
        ids.sort();
        assert_eq!(listed, ids, "{way:?}");
        assert_eq!(ends.heard.sent("tasks/list").len(), 3, "{way:?}");
    }
}

// F-33
#[tokio::test]
async fn call_tool_drives_to_the_end_whatever_the_server_speaks() {
    for way in WAYS {
        let ends = Ends::connect(way, &quick(), TaskClient::builder(writer())).await;
        let client = &ends.client;
        for (tool, text) in [
            ("echo", "nothing"),
            ("ask_two", "accept 1; accept 2"),
            ("immediate", "done"),
        ] {
            let options = CallOptions::new();
            let result = soon(client.call_tool_with(call(tool), options)).await;
            let mut words: Vec<_> = text_of(&result.unwrap())
                .split("; ")
                .map(str::to_owned)
                .collect();
            words.sort();
            assert_eq!(words.join("; "), text, "{way:?}");
        }
        // Plainly, where that is wanted: the server waits for the task.
        let plainly = CallOptions::new().task(TaskPreference::Never);
        let result = soon(client.call_tool_with(call("echo"), plainly)).await;
        assert_eq!(text_of(&result.unwrap()), "nothing");
        let made = ends.heard.sent("tools/call");
        let augmented = made
            .iter()
            .filter(|call| call["params"]["task"].is_object());
        assert_eq!((made.len(), augmented.count()), (4, 3), "{way:?}");
    }
    // A server that knows nothing of tasks.
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        let served = Greeter.serve(tokio::io::split(theirs)).await.unwrap();
        served.waiting().await
    });
    let piped = TaskClient::connect((), tokio::io::split(ours)).await;
    let service = rmcp::transport::StreamableHttpService::new(
        || Ok(Greeter),
        Arc::new(
            rmcp::transport::streamable_http_server::session::local::LocalSessionManager::default(),
        ),
        rmcp::transport::StreamableHttpServerConfig::default(),
    );
    let served = Served::app(axum::Router::new().route_service("/mcp", service)).await;
    for client in [piped, TaskClient::http((), &served.url).await] {
        let client = client.unwrap();
        assert!(!client.supports_tasks());
        let greet = CallToolRequestParams::new("greet")
            .with_arguments(json!({"name": "Ada"}).as_object().unwrap().clone());
        let result = soon(client.call_tool(greet)).await.unwrap();
        assert_eq!(text_of(&result), "Hello, Ada!");
        let error = soon(client.list_tasks()).await.unwrap_err();
        assert!(
            matches!(&error, TaskClientError::TasksUnsupported(why) if why.contains("tasks.list")),
            "{error}"
        );
    }
}

// F-34; people who take their time are in `seed.rs`.
#[tokio::test]
async fn every_question_reaches_the_handler_once() {
    for way in WAYS {
        let person = writer();
        let ends = Ends::connect(way, &quick(), TaskClient::builder(person.clone())).await;
        let made = ends
            .client
            .call_tool_task(call("ask_two"), CallOptions::new());
        let task = soon(made).await.unwrap();
        // Several followers, one person.
        let results = [task.result(), task.result(), task.result()];
        for result in soon(futures_util::future::join_all(results)).await {
            let text = text_of(&result.unwrap()).to_owned();
            assert!(text.contains('1') && text.contains('2'), "{way:?}: {text}");
        }
        assert_eq!(person.asked(), 2, "{way:?}");
        assert_eq!(ends.heard.answers().len(), 2, "{way:?}");
    }
}

// F-35, B86
#[tokio::test]
async fn ends_keep_what_was_said_and_are_told_apart() {
    for way in WAYS {
        let gates = Gates::default();
        let tasks = server(&gates, limits(OFTEN));
        let ends = Ends::connect(way, &tasks, TaskClient::builder(())).await;
        let run = async |tool: &'static str| {
            let options = CallOptions::new();
            soon(ends.client.call_tool_with(call(tool), options)).await
        };
        let result = run("is_error").await.unwrap();
        assert_eq!(
            (
                result.is_error,
                text_of(&result),
                &result.structured_content
            ),
            (Some(true), "it broke", &Some(json!({"code": 7}))),
            "{way:?}"
        );
        let error = run("fails").await.unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Rpc(error) if error.code.0 == 1042
                && error.message == "it broke" && error.data == Some(json!({"step": 3}))),
            "{way:?}: {error:?}"
        );
        let error = run("panics").await.unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Rpc(error) if error.code.0 == -32603),
            "{way:?}: {error:?}"
        );
        let made = ends.client.call_tool_task(call("held"), CallOptions::new());
        let task = soon(made).await.unwrap();
        soon(gates.wait_started()).await;
        // By somebody else.
        let other = Ends::connect(way, &tasks, TaskClient::builder(())).await;
        let same = other.client.task(task.id());
        let (result, told) = tokio::join!(soon(task.result()), soon(same.cancel()));
        assert_eq!(told.unwrap().status, TaskStatus::Cancelled, "{way:?}");
        let error = result.unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Cancelled { task_id, .. } if task_id == task.id()),
            "{way:?}: {error:?}"
        );
    }
}

// B53: whoever gives up while a person thinks takes the question back, and the task with it.
#[tokio::test]
async fn a_call_given_up_during_a_question_is_cancelled_with_it() {
    for way in WAYS {
        let person = Person {
            thinks: Some(Arc::new(Notify::new())),
            ..writer()
        };
        let ends = Ends::connect(way, &quick(), TaskClient::builder(person.clone())).await;
        let options = CallOptions::new().cancel_on_drop(true);
        let mut events = ends.client.call_tool_stream(call("ask"), options);
        let TaskEvent::Created(task) = next(&mut events).await else {
            panic!("{way:?}: no task")
        };
        while person.asked() == 0 {
            tokio::select! {
                event = next(&mut events) => assert!(!event.is_last(), "{way:?}: {event:?}"),
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
        }
        drop(events);
        soon(person.cancelled.notified()).await;
        let error = soon(ends.client.task(&task.task_id).result()).await;
        assert!(
            matches!(error, Err(TaskClientError::Cancelled { .. })),
            "{way:?}: {error:?}"
        );
        assert_eq!(ends.heard.sent("tasks/cancel").len(), 1, "{way:?}");
    }
}

// F-38
#[tokio::test]
async fn announcements_are_told_and_wake_the_poller() {
    for way in WAYS {
        let gates = Gates::default();
        // By polls alone it would take an hour.
        let tasks = server(&gates, limits(Duration::from_secs(3600)));
        let (told, mut announced) = mpsc::unbounded_channel();
        let builder = TaskClient::builder(()).on_status(move |info| drop(told.send(info)));
        let ends = Ends::connect(way, &tasks, builder).await;
        let mut events = ends
            .client
            .call_tool_stream(call("steps"), CallOptions::new());
        let TaskEvent::Created(task) = next(&mut events).await else {
            panic!("{way:?}: no task")
        };
        gates.go.add_permits(1);
        until_status(&mut events, "one").await;
        gates.go.add_permits(3);
        let result = soon(events.result()).await.unwrap();
        assert_eq!(text_of(&result), "done", "{way:?}");
        assert_eq!(ends.heard.sent("tasks/get").len(), 0, "{way:?}");
        assert_eq!(ends.heard.sent("tasks/result").len(), 1, "{way:?}");
        loop {
            let info = soon(announced.recv()).await.unwrap();
            assert_eq!(info.task_id, task.task_id);
            if info.status.is_terminal() {
                break assert_eq!(info.status, TaskStatus::Completed);
            }
        }
    }
}

// F-39, F-37 ("declared only then"); what the server declares is in `stdio.rs`.
#[tokio::test]
async fn the_handshake_offers_what_there_is_and_answers_name_their_task() {
    for way in WAYS {
        for hosts in [false, true] {
            let mut builder = TaskClient::builder(writer());
            if hosts {
                builder = builder.host(MemoryStore::new());
            }
            let ends = Ends::connect(way, &quick(), builder).await;
            let [hello] = &ends.heard.sent("initialize")[..] else {
                panic!("{way:?}: one initialize")
            };
            assert_eq!(hello["params"]["protocolVersion"], "2025-11-25");
            let mut declared = json!({"elicitation": {}});
            if hosts {
                let requests = json!({"elicitation": {"create": {}}});
                declared["tasks"] = json!({"list": {}, "cancel": {}, "requests": requests});
            }
            assert_eq!(hello["params"]["capabilities"], declared, "{way:?}");
            assert!(ends.client.supports_tasks());
            assert_eq!(ends.client.protocol_version(), "2025-11-25");
            let made = ends.client.call_tool_task(call("ask"), CallOptions::new());
            let task = soon(made).await.unwrap();
            soon(task.result()).await.unwrap();
            let [answer] = &ends.heard.answers()[..] else {
                panic!("{way:?}: one answer")
            };
            assert_eq!(
                answer["result"]["_meta"],
                json!({"mine": true, RELATED: {"taskId": task.id()}}),
                "{way:?}"
            );
        }
    }
}
