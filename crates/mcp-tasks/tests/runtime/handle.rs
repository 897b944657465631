//! Handles: outside work, in this process and in others on the same store.

use std::sync::Arc;

use mcp_tasks::{
    CreateContext, InputError, Json, Limits, Question, Runtime, TaskError, TaskHandle, TaskOptions,
    TaskTool,
    store::{MemoryStore, TaskStore},
    task::{Clock, Phase, TaskId, TaskRecord},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{
    TestStore, accept, asked, by_alice, call, ended, error, result, runtime_on, soon, text, until,
};

/// A handle of another process reads the system's clock, so here the runtime does too.
fn here() -> (Runtime, MemoryStore) {
    let store = MemoryStore::new();
    let tool = TaskTool::new("job").output_schema(json!({"type": "object", "required": ["n"]}));
    let tool = tool.create(async |cx: CreateContext, args: Value| {
        let mut options = TaskOptions::new();
        if let Some(name) = args["external"].as_str() {
            options = options.external_id(name);
        }
        cx.create_task(options).await
    });
    let runtime = runtime_on(
        Arc::new(store.clone()),
        Limits::default(),
        &Clock::system(),
        [tool],
    );
    (runtime, store)
}

async fn elsewhere(store: &MemoryStore, id: &TaskId) -> TaskHandle {
    TaskHandle::attach(Arc::new(store.clone()), id.as_str())
        .await
        .unwrap()
        .unwrap()
}

// F-05
#[tokio::test(start_paused = true)]
async fn a_handle_elsewhere_completes_and_wakes_who_waits_here() {
    let (runtime, store) = here();
    let record = runtime.create(call("job")).await.unwrap();
    let handle = elsewhere(&store, &record.id).await;
    assert_eq!(handle.id(), &record.id);
    assert!(handle.status("half-way").await.unwrap());
    assert!(!handle.has_ended().await.unwrap());
    let seen = runtime.get(&record.id, &by_alice(), None).await.unwrap();
    assert_eq!(seen.status_message.as_deref(), Some("half-way"));
    // A handle is not held to the output schema (F-07).
    let (done, completed) = tokio::join!(ended(&runtime, &record.id), handle.complete("42"));
    assert!(completed.unwrap());
    assert_eq!(text(&done), "42");
    assert_eq!(done.status_message, None);
    assert!(handle.has_ended().await.unwrap());
    // Terminal is final.
    assert!(!handle.complete(Json(1)).await.unwrap());
    assert!(!handle.fail(TaskError::internal("late")).await.unwrap());
    assert!(!handle.status("late").await.unwrap());
    assert_eq!(
        runtime.get(&record.id, &by_alice(), None).await.unwrap(),
        done
    );
}

// F-05
#[tokio::test(start_paused = true)]
async fn a_handle_fails_a_task_in_either_way() {
    let (runtime, store) = here();
    let first = runtime.create(call("job")).await.unwrap();
    let handle = elsewhere(&store, &first.id).await;
    assert!(handle.fail(TaskError::tool("paper jam")).await.unwrap());
    let record = ended(&runtime, &first.id).await;
    assert!(result(&record).1);
    assert_eq!(record.status_message.as_deref(), Some("paper jam"));

    let second = runtime.create(call("job")).await.unwrap();
    let handle = runtime.handle(&second.id).await.unwrap().unwrap();
    // Whatever the error is of: the task does not stay `working`.
    assert!(handle.fail(InputError::TaskEnded).await.unwrap());
    assert_eq!(error(&ended(&runtime, &second.id).await).code, -32603);
}

// F-05
#[tokio::test(start_paused = true)]
async fn a_task_is_found_by_its_name_outside() {
    let (runtime, store) = here();
    let shared: Arc<dyn TaskStore> = Arc::new(store);
    let attach = |name: &'static str| TaskHandle::attach_external(shared.clone(), name);
    assert!(attach("run/17").await.unwrap().is_none());
    let mut wanted = call("job");
    wanted.arguments = Some(crate::support::json(r#"{"external":"run/17"}"#));
    let record = runtime.create(wanted).await.unwrap();
    let handle = attach("run/17").await.unwrap().unwrap();
    assert_eq!(handle.id(), &record.id);
    assert!(handle.complete("ok").await.unwrap());
    assert!(
        TaskHandle::attach(shared.clone(), "no such task")
            .await
            .unwrap()
            .is_none()
    );
    assert!(runtime.handle(&TaskId::random()).await.unwrap().is_none());
}

// F-05, F-15
#[tokio::test(start_paused = true)]
async fn a_handle_hears_of_the_end() {
    let (runtime, store) = here();
    let record = runtime.create(call("job")).await.unwrap();
    let handle = elsewhere(&store, &record.id).await;
    let mine = by_alice();
    let (told, cancelled) = tokio::join!(
        soon(handle.ended()),
        runtime.cancel(&record.id, &mine, "enough")
    );
    assert_eq!(told.unwrap().unwrap(), cancelled.unwrap());
    assert!(handle.has_ended().await.unwrap());
    assert!(!handle.complete("late").await.unwrap());
    let record = runtime.get(&record.id, &by_alice(), None).await.unwrap();
    assert_eq!(record.phase(), Phase::Cancelled);
    // A task that is gone has ended too.
    let gone = runtime.create(call("job")).await.unwrap();
    let handle = elsewhere(&store, &gone.id).await;
    let (told, _) = tokio::join!(soon(handle.ended()), async {
        assert!(store.remove(gone.id.as_str(), &by_alice()).await.unwrap());
    });
    assert!(told.unwrap().is_none());
}

#[derive(Deserialize, JsonSchema)]
struct Pick {
    n: u32,
}

// F-05, F-12
#[tokio::test(start_paused = true)]
async fn a_handle_asks_and_gets_the_answer() {
    let (runtime, store) = here();
    let record = runtime.create(call("job")).await.unwrap();
    let handle = elsewhere(&store, &record.id).await;
    let (answer, ()) = tokio::join!(soon(handle.elicit::<Pick>("Which?")), async {
        let input = asked(&store, &record.id).await;
        let (mine, answer) = (by_alice(), accept(r#"{"n":3}"#));
        assert!(
            runtime
                .answer(&record.id, &mine, &input.key, answer)
                .await
                .unwrap()
        );
    });
    assert_eq!(answer.unwrap().accepted().unwrap().n, 3);
    let record = runtime.get(&record.id, &by_alice(), None).await.unwrap();
    assert_eq!(record.phase(), Phase::Working);
}

// F-05: two processes ask at the same moment, and each gets the answer to its own question
#[tokio::test(start_paused = true)]
async fn handles_that_ask_at_once_do_not_take_each_others_answers() {
    let store = TestStore::default();
    let tool = TaskTool::new("job")
        .create(async |cx: CreateContext, _: Value| cx.create_task(TaskOptions::new()).await);
    let shared: Arc<dyn TaskStore> = Arc::new(store.clone());
    let runtime = runtime_on(shared.clone(), Limits::default(), &Clock::system(), [tool]);
    let record = runtime.create(call("job")).await.unwrap();
    store.faults.asking.close();
    let mut asking = Vec::new();
    for message in ["One?", "Two?"] {
        let handle = TaskHandle::attach(shared.clone(), record.id.as_str())
            .await
            .unwrap()
            .unwrap();
        asking.push(tokio::spawn(
            async move { handle.elicit::<Pick>(message).await },
        ));
        store.faults.asking.reached().await;
    }
    store.faults.asking.open();
    let both = |record: &TaskRecord| record.open_inputs().count() == 2;
    let open = until(&store, &record.id, both).await;
    for input in open.open_inputs() {
        let params: Value = input.question.params.parse().unwrap();
        let n = if params["message"] == "One?" { 1 } else { 2 };
        let answer = accept(&format!(r#"{{"n":{n}}}"#));
        assert!(
            runtime
                .answer(&record.id, &by_alice(), &input.key, answer)
                .await
                .unwrap()
        );
    }
    for (n, asking) in (1..).zip(asking) {
        assert_eq!(
            soon(asking).await.unwrap().unwrap().accepted().unwrap().n,
            n
        );
    }
}

// F-05: under a key of its own a question is one, whoever asks it
#[tokio::test(start_paused = true)]
async fn a_question_with_a_key_is_asked_once() {
    let (runtime, store) = here();
    let record = runtime.create(call("job")).await.unwrap();
    let (one, two) = (
        elsewhere(&store, &record.id).await,
        elsewhere(&store, &record.id).await,
    );
    let question = || Question::form::<Pick>("Which?").unwrap().key("which");
    let (first, second, ()) = tokio::join!(
        soon(one.ask(question())),
        soon(two.ask(question())),
        async {
            let input = asked(&store, &record.id).await;
            assert_eq!(&*input.key, "which");
            let answer = accept(r#"{"n":1}"#);
            assert!(
                runtime
                    .answer(&record.id, &by_alice(), "which", answer)
                    .await
                    .unwrap()
            );
        }
    );
    assert_eq!(first.unwrap(), second.unwrap());
    let record = runtime.get(&record.id, &by_alice(), None).await.unwrap();
    assert_eq!(record.inputs.len(), 1);
}
