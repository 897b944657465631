//! Questions of a running body to its requestor.

use std::{sync::Arc, time::Duration};

use mcp_tasks::{
    Elicitation, InputError, Limits, Question, TaskContext, TaskError, TaskTool,
    runtime::ReadError,
    store::Access,
    task::{Answer, ErrorObject, InputKind, InputState, Owner, Phase},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::support::{
    Heard, TestStore, accept, asked, by_alice, call, clock, ended, error, json, runtime,
    runtime_on, soon, text, until,
};

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Name {
    name: String,
}

fn sampling() -> Question {
    let params = serde_json::from_str(
        r#"{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}],"maxTokens":5}"#,
    )
    .unwrap();
    Question::sample(&params).unwrap()
}

const SAMPLED: &str =
    r#"{"role":"assistant","content":{"type":"text","text":"hello"},"model":"m"}"#;

// F-12: all while one call waits that was there before the first question
#[tokio::test(start_paused = true)]
async fn a_body_asks_twice_and_samples_once() {
    let tool = TaskTool::new("ask").run(async |cx: TaskContext, _: Value| {
        let first = cx.elicit::<Name>("First name?").await?;
        let last = cx.elicit::<Name>("Last name?").await?;
        let said = cx.ask(sampling()).await?;
        let said: Value = said.parse()?;
        let name = |given: Elicitation<Name>| given.accepted().unwrap().name;
        Ok::<_, TaskError>(format!("{} {} {}", name(first), name(last), said["model"]))
    });
    let (runtime, store) = runtime([tool]);
    let heard = Heard::of(&runtime);
    let record = runtime.create(call("ask")).await.unwrap();
    let id = record.id.clone();
    let waiter = tokio::spawn({
        let (runtime, id) = (runtime.clone(), id.clone());
        async move { runtime.wait(&id, &by_alice(), None).await }
    });
    let mut keys = Vec::new();
    for (kind, answer) in [
        (InputKind::ElicitForm, accept(r#"{"name":"Ada"}"#)),
        (InputKind::ElicitForm, accept(r#"{"name":"Byron"}"#)),
        (InputKind::Sample, Answer::Result(json(SAMPLED))),
    ] {
        let input = asked(&store, &id).await;
        assert_eq!(input.question.kind, kind);
        let polled = runtime.get(&id, &by_alice(), None).await.unwrap();
        assert_eq!(polled.phase(), Phase::InputRequired);
        assert!(
            runtime
                .answer(&id, &by_alice(), &input.key, answer)
                .await
                .unwrap()
        );
        keys.push(input.key.clone());
    }
    let done = soon(waiter).await.unwrap().unwrap();
    assert_eq!(text(&done), "Ada Byron \"m\"");
    keys.dedup();
    assert_eq!(keys.len(), 3);
    let mut phases: Vec<Phase> = heard
        .records
        .lock()
        .unwrap()
        .iter()
        .map(|r| r.phase())
        .collect();
    phases.dedup();
    let asked = [Phase::InputRequired, Phase::Working];
    assert_eq!(
        phases,
        [
            &[Phase::Working][..],
            &asked,
            &asked,
            &asked,
            &[Phase::Finished]
        ]
        .concat()
    );
}

// F-12: each key waits for its own answer, however they come (B49, B55)
#[tokio::test(start_paused = true)]
async fn answers_go_by_key_and_count_once() {
    let tool = TaskTool::new("both").run(async |cx: TaskContext, _: Value| {
        let (a, b) = tokio::join!(
            cx.ask(Question::form::<Name>("A?").unwrap().key("a")),
            cx.ask(Question::form::<Name>("B?").unwrap().key("b")),
        );
        Ok::<_, TaskError>(format!("{} {}", a?.get(), b?.get()))
    });
    let (runtime, store) = runtime([tool]);
    let id = runtime.create(call("both")).await.unwrap().id.clone();
    until(&store, &id, |record| record.open_inputs().count() == 2).await;
    let mine = by_alice();
    let answer = |key: &'static str, text: &str| {
        let answer = Answer::Result(json(text));
        let (runtime, id, mine) = (&runtime, &id, &mine);
        async move { runtime.answer(id, mine, key, answer).await.unwrap() }
    };
    assert!(!answer("c", "0").await);
    assert!(answer("b", "2").await);
    let between = runtime.get(&id, &mine, None).await.unwrap();
    assert_eq!(between.phase(), Phase::InputRequired);
    let open: Vec<_> = between
        .open_inputs()
        .map(|input| input.key.clone())
        .collect();
    assert_eq!(open, ["a".into()]);
    assert!(!answer("b", "3").await);
    // Somebody else's answer is to a task that is not there.
    let bob = Access::Owner(Owner::principal("bob"));
    let foreign = runtime
        .answer(&id, &bob, "a", Answer::Result(json("9")))
        .await;
    assert!(matches!(foreign, Err(ReadError::NotFound)));
    assert!(answer("a", "1").await);
    assert_eq!(text(&ended(&runtime, &id).await), "1 2");
    assert!(!answer("a", "4").await);
}

/// A tool that asks once for a name and says what came back.
fn once() -> TaskTool {
    TaskTool::new("once").run(async |cx: TaskContext, _: Value| {
        let what = match cx.elicit::<Name>("Name?").await {
            Ok(Elicitation::Accept(name)) => format!("accepted {}", name.name),
            Ok(Elicitation::Decline) => "declined".to_owned(),
            Ok(Elicitation::Cancel) => "cancelled".to_owned(),
            Err(InputError::Rejected(error)) => format!("error {} {}", error.code, error.message),
            Err(InputError::InvalidAnswer(why)) => format!("invalid: {why}"),
            Err(other) => return Err(other.into()),
        };
        Ok::<_, TaskError>(what)
    })
}

// F-14: the body sees which, at once
#[tokio::test(start_paused = true)]
async fn the_body_sees_every_kind_of_answer() {
    let (runtime, store) = runtime([once()]);
    let result = |text: &str| Answer::Result(json(text));
    let refused = ErrorObject::new(-1, "user is away");
    for (answer, says) in [
        (accept(r#"{"name":"Ada"}"#), "accepted Ada"),
        (result(r#"{"action":"decline"}"#), "declined"),
        (result(r#"{"action":"cancel","content":null}"#), "cancelled"),
        (Answer::Error(refused), "error -1 user is away"),
        (
            accept(r#"{"nom":"Ada"}"#),
            "invalid: content: missing field `name`",
        ),
        (result(r#"{"action":"accept"}"#), "invalid: content"),
        (result(r#"{"action":"maybe"}"#), "invalid: action"),
        (result(r#"["accept"]"#), "invalid: "),
        (result("17"), "invalid: "),
    ] {
        let id = runtime.create(call("once")).await.unwrap().id.clone();
        let input = asked(&store, &id).await;
        let begun = tokio::time::Instant::now();
        assert!(
            runtime
                .answer(&id, &by_alice(), &input.key, answer)
                .await
                .unwrap()
        );
        let said = text(&ended(&runtime, &id).await);
        assert!(said.starts_with(says), "{says}: {said}");
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}

// F-14: an error answer that the body passes on keeps its code unless that is reserved
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_an_error_can_be_the_tasks_error() {
    let tool = TaskTool::new("pass")
        .run(async |cx: TaskContext, _: Value| cx.list_roots().await.map(|_| "none"));
    let (runtime, store) = runtime([tool]);
    for (code, kept) in [(-1, -1), (-32601, -32601), (-32042, -32603)] {
        let id = runtime.create(call("pass")).await.unwrap().id.clone();
        let input = asked(&store, &id).await;
        let answer = Answer::Error(ErrorObject::new(code, "no"));
        assert!(
            runtime
                .answer(&id, &by_alice(), &input.key, answer)
                .await
                .unwrap()
        );
        assert_eq!(error(&ended(&runtime, &id).await).code, kept);
    }
}

// F-12: what the requestor did not declare is not asked
#[tokio::test(start_paused = true)]
async fn a_requestor_is_not_asked_what_it_does_not_do() {
    let tool = TaskTool::new("roots").run(async |cx: TaskContext, _: Value| {
        let roots = cx.list_roots().await.unwrap_err().to_string();
        let url = cx
            .elicit_url("Sign in", "https://example.com/")
            .await
            .unwrap_err()
            .to_string();
        Ok::<_, TaskError>(format!("{roots}; {url}"))
    });
    let (runtime, _store) = runtime([tool]);
    let mut forms = call("roots");
    forms.requestor.capabilities = Some(json(r#"{"elicitation":{}}"#));
    let record = crate::support::run(&runtime, forms).await;
    assert!(record.inputs.is_empty());
    assert_eq!(
        text(&record),
        "the requestor does not support roots; the requestor does not support elicitation.url"
    );
}

// F-12
#[tokio::test(start_paused = true)]
async fn a_url_question_has_an_id_and_content_of_its_answer_means_nothing() {
    let tool = TaskTool::new("url").run(async |cx: TaskContext, _: Value| {
        let answer = cx.elicit_url("Sign in", "https://example.com/").await?;
        Ok::<_, TaskError>(format!("{answer:?}"))
    });
    let (runtime, store) = runtime([tool]);
    let id = runtime.create(call("url")).await.unwrap().id.clone();
    let input = asked(&store, &id).await;
    let params: Value = input.question.params.parse().unwrap();
    assert_eq!(
        (&params["mode"], &params["url"]),
        (&"url".into(), &"https://example.com/".into())
    );
    assert_eq!(params["elicitationId"].as_str().unwrap().len(), 36);
    let answer = accept(r#"{"ignored":1}"#);
    assert!(
        runtime
            .answer(&id, &by_alice(), &input.key, answer)
            .await
            .unwrap()
    );
    assert_eq!(text(&ended(&runtime, &id).await), "Accept(())");
}

// F-12
#[tokio::test(start_paused = true)]
async fn a_key_is_one_kind_of_question() {
    let tool = TaskTool::new("kinds").run(async |cx: TaskContext, _: Value| {
        let form = cx.ask(Question::form::<Name>("Name?").unwrap().key("k"));
        let (form, roots) = tokio::join!(form, cx.ask(Question::roots().key("k")));
        assert!(form.is_ok() != roots.is_ok());
        Ok::<_, TaskError>(form.and(roots).unwrap_err().to_string())
    });
    let (runtime, store) = runtime([tool]);
    let id = runtime.create(call("kinds")).await.unwrap().id.clone();
    let input = asked(&store, &id).await;
    let answer = Answer::Result(json("{}"));
    assert!(
        runtime
            .answer(&id, &by_alice(), &input.key, answer)
            .await
            .unwrap()
    );
    assert!(text(&ended(&runtime, &id).await).contains("\"k\" was already used"));
}

// F-13, at this level: a waiter is no part of the question
#[tokio::test(start_paused = true)]
async fn a_question_outlives_who_waited_for_it() {
    let (runtime, store) = runtime([once()]);
    let id = runtime.create(call("once")).await.unwrap().id.clone();
    let waiter = tokio::spawn({
        let (runtime, id) = (runtime.clone(), id.clone());
        async move { runtime.wait(&id, &by_alice(), None).await }
    });
    let input = asked(&store, &id).await;
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    let after = runtime.get(&id, &by_alice(), None).await.unwrap();
    assert_eq!(after.phase(), Phase::InputRequired);
    assert_eq!(after.open_inputs().next().unwrap(), &input);
    let answer = accept(r#"{"name":"Ada"}"#);
    assert!(
        runtime
            .answer(&id, &by_alice(), &input.key, answer.clone())
            .await
            .unwrap()
    );
    assert!(
        !runtime
            .answer(&id, &by_alice(), &input.key, answer)
            .await
            .unwrap()
    );
    assert_eq!(text(&ended(&runtime, &id).await), "accepted Ada");
}

// "question delivered stale after it timed out"
#[tokio::test(start_paused = true)]
async fn a_question_the_body_gave_up_on_is_withdrawn() {
    let (told, mut gave_up) = mpsc::unbounded_channel();
    let tool = TaskTool::new("impatient").run(move |cx: TaskContext, _: Value| {
        let told = told.clone();
        async move {
            let patience = Duration::from_secs(30);
            let late = tokio::time::timeout(patience, cx.elicit::<Name>("Name?")).await;
            assert!(late.is_err());
            told.send(()).unwrap();
            let next = cx.elicit::<Name>("And now?").await?;
            Ok::<_, TaskError>(next.accepted().unwrap().name)
        }
    });
    let (runtime, store) = runtime([tool]);
    let id = runtime.create(call("impatient")).await.unwrap().id.clone();
    let first = asked(&store, &id).await;
    soon(gave_up.recv()).await.unwrap();
    let withdrawn = until(&store, &id, |record| {
        record.inputs.len() == 2 && record.open_inputs().count() == 1
    })
    .await;
    assert_eq!(withdrawn.inputs[0].state, InputState::Withdrawn);
    let late = accept(r#"{"name":"late"}"#);
    assert!(
        !runtime
            .answer(&id, &by_alice(), &first.key, late)
            .await
            .unwrap()
    );
    let second = asked(&store, &id).await;
    assert_ne!(second.key, first.key);
    let answer = accept(r#"{"name":"Ada"}"#);
    assert!(
        runtime
            .answer(&id, &by_alice(), &second.key, answer)
            .await
            .unwrap()
    );
    assert_eq!(text(&ended(&runtime, &id).await), "Ada");
}

// The same, where the body asks again under its own key: no answer to the first counts for the second
#[tokio::test(start_paused = true)]
async fn a_question_may_be_asked_again_under_its_key() {
    let tool = TaskTool::new("stubborn").run(async |cx: TaskContext, _: Value| {
        let ask = || cx.ask(Question::form::<Name>("Name?").unwrap().key("name"));
        let patience = Duration::from_secs(30);
        assert!(tokio::time::timeout(patience, ask()).await.is_err());
        Ok::<_, TaskError>(ask().await?.get().to_owned())
    });
    let (runtime, store) = runtime([tool]);
    let id = runtime.create(call("stubborn")).await.unwrap().id.clone();
    let again = until(&store, &id, |record| {
        record.inputs.len() == 2 && record.open_inputs().count() == 1
    })
    .await;
    let open = again.open_inputs().next().unwrap();
    assert_eq!((&*again.inputs[0].key, &*open.key), ("name", "name~2"));
    let answer = Answer::Result(json("2"));
    assert!(
        runtime
            .answer(&id, &by_alice(), "name~2", answer)
            .await
            .unwrap()
    );
    assert_eq!(text(&ended(&runtime, &id).await), "2");
}

// The same, where the body gave up before the question was even stored
#[tokio::test(start_paused = true)]
async fn a_question_given_up_half_way_does_not_stay_open() {
    let store = TestStore::default();
    let tool = TaskTool::new("hasty").run(async |cx: TaskContext, _: Value| {
        let patience = Duration::from_secs(1);
        assert!(
            tokio::time::timeout(patience, cx.elicit::<Name>("Name?"))
                .await
                .is_err()
        );
        cx.cancelled().await;
        Ok::<_, TaskError>(())
    });
    let runtime = runtime_on(Arc::new(store.clone()), Limits::default(), &clock(), [tool]);
    store.faults.asking.close();
    let id = runtime.create(call("hasty")).await.unwrap().id.clone();
    store.faults.asking.reached().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    store.faults.asking.open();
    let record = until(&store, &id, |record| {
        record
            .inputs
            .first()
            .is_some_and(|input| input.state == InputState::Withdrawn)
    })
    .await;
    assert_eq!(record.phase(), Phase::Working);
}

// F-15: "cancel before the first question still parking in input_required"
#[tokio::test(start_paused = true)]
async fn a_cancelled_task_asks_nothing() {
    let (told, mut came) = mpsc::unbounded_channel();
    let tool = TaskTool::new("late").run(move |cx: TaskContext, _: Value| {
        let told = told.clone();
        async move {
            cx.cancelled().await;
            told.send(cx.elicit::<Name>("Name?").await.unwrap_err().to_string())
                .unwrap();
            Ok::<_, TaskError>(())
        }
    });
    let (runtime, _store) = runtime([tool]);
    let id = runtime.create(call("late")).await.unwrap().id.clone();
    runtime.cancel(&id, &by_alice(), "enough").await.unwrap();
    assert_eq!(soon(came.recv()).await.unwrap(), "the task has ended");
    let record = runtime.get(&id, &by_alice(), None).await.unwrap();
    assert_eq!((record.phase(), record.inputs.len()), (Phase::Cancelled, 0));
}
