//! What holds for every sequence of changes.

use std::collections::HashSet;

use proptest::{collection::vec, option, prelude::*};

use super::{
    Answer, Change, ErrorObject, Fence, Outcome, Phase, Refusal, TaskRecord, Timestamp, WorkerId,
    change::MAX_STATUS_MESSAGE,
    transitions::{json, new_task, question},
};

const CREATED: u64 = 1_000_000;

/// A change, and by how much the clock moves with it (backwards too).
fn any_step() -> impl Strategy<Value = (Change, i64)> {
    (any_change(), -5000_i64..5000)
}

fn any_key() -> impl Strategy<Value = std::sync::Arc<str>> {
    // Few, so that they meet.
    prop::sample::select(vec!["a", "b", "c", ""]).prop_map(Into::into)
}

fn any_message() -> impl Strategy<Value = Option<std::sync::Arc<str>>> {
    // Around the bound, of characters of one to four bytes.
    let long = (
        prop::sample::select(vec!["x", "é", "日", "🦀"]),
        0..4_usize,
        250..1100_usize,
    )
        .prop_map(|(unit, shift, count)| "x".repeat(shift) + &unit.repeat(count));
    option::of(prop_oneof![3 => ".{0,12}", 1 => long].prop_map(Into::into))
}

fn any_change() -> impl Strategy<Value = Change> {
    let worker = prop::sample::select(vec!["w1", "w2", "w3"]);
    let answer = prop_oneof![
        Just(Answer::Result(json("{}"))),
        Just(Answer::Error(ErrorObject::internal("no")))
    ];
    let outcome = prop_oneof![
        any::<bool>().prop_map(|is_error| Outcome::Result {
            json: json("[]"),
            is_error
        }),
        Just(Outcome::Error(ErrorObject::internal("broken")))
    ];
    let finish =
        (outcome, any_message(), 0..20_000_u64).prop_map(|(outcome, message, retain_ms)| {
            Change::Finish {
                outcome,
                message,
                retain_ms,
            }
        });
    prop_oneof![
        4 => any_message().prop_map(Change::Status),
        6 => any_key().prop_map(|key| Change::Ask { key, question: question() }),
        6 => (any_key(), answer).prop_map(|(key, answer)| Change::Answer { key, answer }),
        2 => any_key().prop_map(|key| Change::Withdraw { key }),
        2 => any::<u32>().prop_map(|n| Change::Checkpoint(json(&n.to_string()))),
        2 => worker.prop_map(|worker| Change::TakeOver { worker: WorkerId::from_stored(worker) }),
        1 => finish,
        1 => any_message().prop_map(|message| Change::Cancel { message }),
    ]
}

fn any_task() -> impl Strategy<Value = TaskRecord> {
    option::of(0..20_000_u64).prop_map(|ttl| new_task(ttl, Timestamp::from_millis(CREATED)))
}

/// Runs the steps; gives every record that there was and every refusal.
fn run(first: TaskRecord, steps: Vec<(Change, i64)>, mut check: impl FnMut(Step<'_>)) {
    let mut record = first;
    let mut now = CREATED;
    for (change, moved) in steps {
        now = now.saturating_add_signed(moved);
        let clock = Timestamp::from_millis(now);
        let after = record.apply(change.clone(), clock, None);
        check(Step {
            before: &record,
            change: &change,
            now: clock,
            after: &after,
        });
        if let Ok(next) = after {
            record = next;
        }
    }
}

struct Step<'a> {
    before: &'a TaskRecord,
    change: &'a Change,
    now: Timestamp,
    after: &'a Result<TaskRecord, Refusal>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn terminal_is_final(first in any_task(), steps in vec(any_step(), 1..40)) {
        run(first, steps, |step| {
            assert_eq!(step.before.is_terminal(), matches!(step.after, Err(Refusal::Terminal)), "{:?}", step.change);
        });
    }

    #[test]
    fn revisions_rise_by_one_and_time_never_falls(first in any_task(), steps in vec(any_step(), 1..40)) {
        run(first, steps, |step| {
            let Ok(after) = step.after else { return };
            assert_eq!(after.revision, step.before.revision + 1);
            assert!(after.updated_at >= step.before.updated_at && after.updated_at >= after.created_at);
            assert!(after.updated_at == step.now || after.updated_at == step.before.updated_at);
        });
    }

    #[test]
    fn where_a_task_came_from_never_changes(first in any_task(), steps in vec(any_step(), 1..40)) {
        run(first.clone(), steps, |step| {
            let Ok(after) = step.after else { return };
            assert_eq!(
                (&after.id, &after.owner, &after.quota_key, after.hidden, after.created_at),
                (&first.id, &first.owner, &first.quota_key, first.hidden, first.created_at)
            );
            assert_eq!(
                (&after.external_id, &after.immediate_response, after.poll_interval_ms, &after.origin),
                (&first.external_id, &first.immediate_response, first.poll_interval_ms, &first.origin)
            );
        });
    }

    #[test]
    fn a_key_is_asked_once_and_settled_once(first in any_task(), steps in vec(any_step(), 1..40)) {
        let mut asked = HashSet::new();
        let mut settled = HashSet::new();
        run(first, steps, |step| {
            if let (Change::Ask { key, .. }, false) = (step.change, step.before.is_terminal()) {
                assert_eq!(asked.insert(key.clone()), step.after.is_ok(), "a key is free once");
            }
            if let (Change::Answer { key, .. } | Change::Withdraw { key }, Ok(_)) = (step.change, step.after) {
                assert!(settled.insert(key.clone()), "a question is settled once");
            }
            let Ok(after) = step.after else { return };
            let keys: Vec<_> = after.inputs.iter().map(|input| input.key.clone()).collect();
            assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "keys are unique");
            assert!(keys.len() >= step.before.inputs.len(), "no question goes away");
            for (old, new) in step.before.inputs.iter().zip(&after.inputs) {
                assert_eq!((&old.key, &old.question, old.asked_at), (&new.key, &new.question, new.asked_at));
                assert!(old.is_open() || old == new, "what is settled stays as it is");
            }
        });
    }

    #[test]
    fn the_phase_follows_from_the_open_inputs(first in any_task(), steps in vec(any_step(), 1..40)) {
        run(first, steps, |step| {
            let Ok(after) = step.after else { return };
            let expected = match step.change {
                Change::Finish { .. } => Phase::Finished,
                Change::Cancel { .. } => Phase::Cancelled,
                _ if after.inputs.iter().any(|input| input.is_open()) => Phase::InputRequired,
                _ => Phase::Working,
            };
            assert_eq!(after.phase(), expected);
            assert_eq!(after.outcome().is_some(), expected == Phase::Finished);
        });
    }

    #[test]
    fn a_status_message_is_cut_at_a_character(first in any_task(), steps in vec(any_step(), 1..40)) {
        run(first, steps, |step| {
            let Ok(after) = step.after else { return };
            let kept = after.status_message.as_deref();
            assert!(kept.is_none_or(|kept| kept.len() <= MAX_STATUS_MESSAGE));
            let (Change::Status(given) | Change::Finish { message: given, .. } | Change::Cancel { message: given }) =
                step.change
            else {
                return;
            };
            assert_eq!(kept.is_some(), given.is_some());
            if let (Some(kept), Some(given)) = (kept, given.as_deref()) {
                assert!(given.starts_with(kept));
                // As much as fits: at most three bytes of a character are left over.
                assert!(kept == given || kept.len() > MAX_STATUS_MESSAGE - 4);
            }
        });
    }

    #[test]
    fn a_lifetime_is_never_shortened(first in any_task(), steps in vec(any_step(), 1..40)) {
        run(first, steps, |step| {
            let Ok(after) = step.after else { return };
            assert_eq!(after.ttl_ms.is_none(), step.before.ttl_ms.is_none());
            assert!(after.ttl_ms >= step.before.ttl_ms);
            if let (Change::Finish { retain_ms, .. }, Some(ends)) = (step.change, after.expires_at()) {
                let promised = step.now.max(after.created_at).plus_millis(*retain_ms);
                assert!(ends >= promised, "an outcome stays readable for as long as promised");
            } else {
                assert_eq!(after.ttl_ms, step.before.ttl_ms, "only an outcome lengthens it");
            }
        });
    }

    #[test]
    fn an_attempt_that_was_taken_over_writes_nothing(
        first in any_task(),
        steps in vec(any_step(), 1..40),
        late in vec(any_change(), 1..5),
    ) {
        let mut fences: Vec<Fence> = Vec::new();
        run(first, steps, |step| {
            if let (Change::TakeOver { worker }, Ok(after)) = (step.change, step.after) {
                assert_eq!((after.worker.as_ref(), after.attempt), (Some(worker), step.before.attempt + 1));
                fences.extend(step.before.worker.clone().map(|worker| Fence {
                    worker,
                    attempt: step.before.attempt,
                }));
            }
            let Ok(after) = step.after else { return };
            for (fence, change) in fences.iter().flat_map(|fence| late.iter().map(move |change| (fence, change))) {
                let refused = after.apply(change.clone(), step.now, Some(fence));
                let expected = if after.is_terminal() { Refusal::Terminal } else { Refusal::Fenced };
                assert_eq!(refused, Err(expected));
            }
            let present = Fence { worker: after.worker.clone().unwrap(), attempt: after.attempt };
            for change in &late {
                let now = step.now;
                assert_eq!(after.apply(change.clone(), now, Some(&present)), after.apply(change.clone(), now, None));
            }
        });
    }

    #[test]
    fn a_record_is_what_it_was_after_json(first in any_task(), steps in vec(any_step(), 1..20)) {
        run(first, steps, |step| {
            let Ok(after) = step.after else { return };
            let text = serde_json::to_string(after).unwrap();
            assert_eq!(serde_json::from_str::<TaskRecord>(&text).unwrap(), *after);
        });
    }
}
