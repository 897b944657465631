//! The whole transition table: every phase, every change, what becomes of it.

use std::sync::Arc;

use super::{
    Answer, Change, ErrorObject, Fence, Generation, InputKind, InputState, NewTask, Origin,
    Outcome, Owner, Phase, Question, RawJson, Refusal, State, TaskId, TaskRecord, Timestamp,
    WorkerId,
};

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + ms)
}

pub(super) fn json(text: &str) -> RawJson {
    RawJson::from_text(text).unwrap()
}

pub(super) fn question() -> Question {
    Question {
        kind: InputKind::ElicitForm,
        params: json("{}"),
    }
}

pub(super) fn new_task(ttl_ms: Option<u64>, created_at: Timestamp) -> TaskRecord {
    let new = NewTask {
        id: TaskId::random(),
        owner: Owner::principal("ann"),
        quota_key: Some("ann".into()),
        hidden: false,
        ttl_ms,
        poll_interval_ms: 1000,
        status_message: Some("begun".into()),
        worker: Some(WorkerId::from_stored("w1")),
        external_id: Some("job".into()),
        immediate_response: None,
        origin: Arc::new(Origin {
            tool: "build".into(),
            arguments: json("{}"),
            meta: None,
            generation: Generation::V2025_11_25,
            capabilities: None,
            client_info: None,
            progress_token: None,
            session: None,
            before: false,
            requested_ttl: None,
        }),
    };
    TaskRecord::create(new, created_at)
}

fn ask(key: &str) -> Change {
    Change::Ask {
        key: key.into(),
        question: question(),
    }
}

fn answer(key: &str) -> Change {
    Change::Answer {
        key: key.into(),
        answer: Answer::Result(json("1")),
    }
}

fn withdraw(key: &str) -> Change {
    Change::Withdraw { key: key.into() }
}

fn finish(outcome: Outcome) -> Change {
    Change::Finish {
        outcome,
        message: None,
        retain_ms: 0,
    }
}

fn result() -> Outcome {
    Outcome::Result {
        json: json("{}"),
        is_error: false,
    }
}

fn error() -> Outcome {
    Outcome::Error(ErrorObject::internal("broken"))
}

fn step(record: &TaskRecord, change: Change) -> TaskRecord {
    record.apply(change, at(1), None).unwrap()
}

/// Working, after two questions of which "answered" was answered and "withdrawn" withdrawn.
fn working() -> TaskRecord {
    let changes = [
        ask("answered"),
        ask("withdrawn"),
        answer("answered"),
        withdraw("withdrawn"),
    ];
    let record = changes
        .into_iter()
        .fold(new_task(Some(1000), at(0)), |record, change| {
            step(&record, change)
        });
    step(&record, Change::Status(Some("as it is".into())))
}

fn waiting(open: &[&str]) -> TaskRecord {
    let record = open
        .iter()
        .fold(working(), |record, key| step(&record, ask(key)));
    step(&record, Change::Status(Some("as it is".into())))
}

#[test]
fn every_phase_and_every_change() {
    use Phase::{Cancelled, Finished, InputRequired, Working};
    type Expected = Result<Phase, Refusal>;
    let used = |key: &str| Err(Refusal::KeyUsed(key.into()));
    let unknown = |key: &str| Err(Refusal::UnknownKey(key.into()));
    let closed = |key: &str| Err(Refusal::NotOpen(key.into()));
    let to = |phase| -> Expected { Ok(phase) };
    // The columns: working, one open question "a", two open questions "a" and "b". Ended tasks refuse all.
    let table: Vec<(Change, [Expected; 3])> = vec![
        (
            Change::Status(Some("other".into())),
            [to(Working), to(InputRequired), to(InputRequired)],
        ),
        (
            Change::Status(None),
            [to(Working), to(InputRequired), to(InputRequired)],
        ),
        (
            Change::Status(Some("as it is".into())),
            [
                Err(Refusal::Unchanged),
                Err(Refusal::Unchanged),
                Err(Refusal::Unchanged),
            ],
        ),
        (
            ask("new"),
            [to(InputRequired), to(InputRequired), to(InputRequired)],
        ),
        (ask("a"), [to(InputRequired), used("a"), used("a")]),
        (
            ask("answered"),
            [used("answered"), used("answered"), used("answered")],
        ),
        (
            ask("withdrawn"),
            [used("withdrawn"), used("withdrawn"), used("withdrawn")],
        ),
        (answer("a"), [unknown("a"), to(Working), to(InputRequired)]),
        (answer("b"), [unknown("b"), unknown("b"), to(InputRequired)]),
        (answer("A"), [unknown("A"), unknown("A"), unknown("A")]),
        (
            answer("answered"),
            [closed("answered"), closed("answered"), closed("answered")],
        ),
        (
            answer("withdrawn"),
            [
                closed("withdrawn"),
                closed("withdrawn"),
                closed("withdrawn"),
            ],
        ),
        (
            withdraw("a"),
            [unknown("a"), to(Working), to(InputRequired)],
        ),
        (
            withdraw("answered"),
            [closed("answered"), closed("answered"), closed("answered")],
        ),
        (
            withdraw("withdrawn"),
            [
                closed("withdrawn"),
                closed("withdrawn"),
                closed("withdrawn"),
            ],
        ),
        (
            Change::Checkpoint(json("7")),
            [to(Working), to(InputRequired), to(InputRequired)],
        ),
        (finish(result()), [to(Finished), to(Finished), to(Finished)]),
        (finish(error()), [to(Finished), to(Finished), to(Finished)]),
        (
            Change::Cancel { message: None },
            [to(Cancelled), to(Cancelled), to(Cancelled)],
        ),
        (
            Change::TakeOver {
                worker: WorkerId::from_stored("w2"),
            },
            [to(Working), to(InputRequired), to(InputRequired)],
        ),
    ];
    let from = [working(), waiting(&["a"]), waiting(&["a", "b"])];
    let phases = from.each_ref().map(TaskRecord::phase);
    assert_eq!(phases, [Working, InputRequired, InputRequired]);
    for (change, expected) in table {
        for (record, expected) in from.iter().zip(expected) {
            let what = format!(
                "{:?} with {} open, {change:?}",
                record.phase(),
                record.open_inputs().count()
            );
            let before = record.clone();
            let after = record.apply(change.clone(), at(2), None);
            assert_eq!(*record, before, "the present record is not touched: {what}");
            assert_eq!(
                after.as_ref().map(TaskRecord::phase),
                expected.as_ref().copied(),
                "{what}"
            );
            // Under a fence: the worker that has it may do the same, others nothing.
            let fence = |worker: &str, attempt| Fence {
                worker: WorkerId::from_stored(worker),
                attempt,
            };
            assert_eq!(
                record.apply(change.clone(), at(2), Some(&fence("w1", 1))),
                after,
                "fenced, {what}"
            );
            for stale in [fence("w1", 0), fence("w1", 2), fence("w2", 1)] {
                let refused = record.apply(change.clone(), at(2), Some(&stale));
                assert_eq!(refused, Err(Refusal::Fenced), "{stale:?}, {what}");
            }
        }
        for end in [
            finish(result()),
            finish(error()),
            Change::Cancel { message: None },
        ] {
            for record in &from {
                let ended = step(record, end.clone());
                assert_eq!(
                    ended.apply(change.clone(), at(2), None),
                    Err(Refusal::Terminal),
                    "{end:?}, then {change:?}"
                );
            }
        }
    }
}

#[test]
fn a_change_changes_what_it_says() {
    let record = waiting(&["a"]);
    let later = |change| record.apply(change, at(5), None).unwrap();

    let asked = later(ask("new"));
    let input = asked.input("new").unwrap();
    assert_eq!(
        (&input.question, &input.state, input.asked_at),
        (&question(), &InputState::Open, at(5))
    );
    assert_eq!(
        asked
            .inputs
            .iter()
            .map(|input| &*input.key)
            .collect::<Vec<_>>(),
        ["answered", "withdrawn", "a", "new"]
    );

    let answered = later(answer("a"));
    assert_eq!(
        answered.input("a").unwrap().state,
        InputState::Answered(Answer::Result(json("1")))
    );
    assert_eq!(
        answered.inputs[..2],
        record.inputs[..2],
        "the other inputs stay"
    );
    assert_eq!(
        later(withdraw("a")).input("a").unwrap().state,
        InputState::Withdrawn
    );

    let saved = later(Change::Checkpoint(json("[7]")));
    assert_eq!(saved.checkpoint, Some(json("[7]")));
    let cancelled = saved
        .apply(
            Change::Cancel {
                message: Some("enough".into()),
            },
            at(6),
            None,
        )
        .unwrap();
    assert_eq!(
        (&cancelled.state, &cancelled.checkpoint),
        (&State::Cancelled, &None)
    );
    assert_eq!(cancelled.status_message.as_deref(), Some("enough"));
    let finished = saved.apply(finish(error()), at(6), None).unwrap();
    assert_eq!(
        (finished.outcome(), &finished.checkpoint),
        (Some(&error()), &None)
    );

    let taken = later(Change::TakeOver {
        worker: WorkerId::from_stored("w2"),
    });
    assert_eq!(
        (taken.worker, taken.attempt),
        (Some(WorkerId::from_stored("w2")), 2)
    );
}

#[test]
fn a_text_does_not_outlive_the_state_it_was_said_of() {
    let text = |record: &TaskRecord| record.status_message.as_deref().map(str::to_owned);
    let record = working();
    let asked = step(&record, ask("a"));
    assert_eq!(text(&asked), None, "said while working");
    let told = step(&asked, Change::Status(Some("please answer".into())));
    assert_eq!(
        text(&step(&told, ask("b"))),
        Some("please answer".into()),
        "it still waits"
    );
    assert_eq!(text(&step(&told, answer("a"))), None, "said while waiting");
    assert_eq!(
        text(&step(&told, finish(result()))),
        None,
        "said before the end"
    );
    let said = Change::Finish {
        outcome: result(),
        message: Some("please answer".into()),
        retain_ms: 0,
    };
    assert_eq!(
        text(&step(&told, said)),
        Some("please answer".into()),
        "said of the end, even in the same words"
    );
    assert!(asked.tells_more_than(&record) && told.tells_more_than(&asked));
    assert!(!step(&told, Change::Checkpoint(json("1"))).tells_more_than(&told));
}

#[test]
fn a_result_stays_readable_for_the_time_promised() {
    let ends = |ttl, now, retain_ms| {
        let change = Change::Finish {
            outcome: result(),
            message: None,
            retain_ms,
        };
        new_task(ttl, at(0))
            .apply(change, at(now), None)
            .unwrap()
            .ttl_ms
    };
    assert_eq!(
        ends(Some(1000), 100, 60),
        Some(1000),
        "long enough as it is"
    );
    assert_eq!(ends(Some(1000), 990, 60), Some(1050), "lengthened");
    assert_eq!(
        ends(Some(1000), 5000, 60),
        Some(5060),
        "also when it had passed"
    );
    assert_eq!(ends(None, 100, 60), None, "unlimited stays unlimited");
    assert_eq!(ends(Some(1000), 100, u64::MAX), Some(u64::MAX));
}
