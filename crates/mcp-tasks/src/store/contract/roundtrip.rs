//! What comes out is what went in.

use super::{
    Handles, insert,
    samples::{self, at, json, next, owned},
    stored,
};
use crate::{
    store::{Access, Swap},
    task::{
        Answer, Change, ErrorObject, Generation, InputKind, Outcome, Question, TaskId, WorkerId,
    },
};

/// Numbers no `f64` holds, escapes that have a shorter form, spaces, member order, a member twice.
const RAW: &str = r#"{"z":12345678901234567890123456789.123456789012345678901234567890,"a":1e400,
  "dup":1,"dup":2,"esc":"\u00e9\/\ud83d\ude00","text":"日本語 🦀 \u0000","n":-0.0,"e":1E+2}"#;

pub(super) async fn every_field(stores: &Handles) {
    let full = owned("ünï \u{1f980}\0'\"\\")
        .id(&TaskId::proposed("job.0123456789:abcdefghij_KLM-N").expect("an allowed id"))
        .external("außen/'; DROP TABLE tasks; --")
        .hidden()
        .worker(&WorkerId::from_stored("wörker"))
        .with(|new| {
            new.quota_key = Some("another key".into());
            new.ttl_ms = Some(u64::MAX);
            new.poll_interval_ms = u64::MAX;
            new.status_message = Some("très\nlong".into());
            new.immediate_response = Some("已开始".into());
        })
        .origin(|origin| {
            origin.tool = "a tool/with: anything".into();
            origin.arguments = json(RAW);
            origin.meta = Some(json(r#"{"io.example/x" : [ 1 , 2 ]}"#));
            origin.generation = Generation::V2026_07_28;
            origin.capabilities = Some(json("{}"));
            origin.client_info = Some(json(r#"{"name":"c","version":"1"}"#));
            origin.progress_token = Some(json("9007199254740993"));
            origin.session = Some("s".into());
            origin.requested_ttl = Some(Some(u64::MAX));
        });
    let mut record = full.into_record();
    insert(&*stores.one, &record).await;
    assert_eq!(
        stored(&*stores.two, &record).await,
        Some(record.clone()),
        "every field of a new record"
    );
    let raw = stored(&*stores.two, &record).await.expect("there");
    assert_eq!(
        raw.origin.arguments.get(),
        RAW,
        "arguments are kept byte for byte"
    );

    let question = |kind, text| Question {
        kind,
        params: json(text),
    };
    let ask = |key: &str, kind, text| Change::Ask {
        key: key.into(),
        question: question(kind, text),
    };
    let answer = |key: &str, answer| Change::Answer {
        key: key.into(),
        answer,
    };
    let refusal = ErrorObject {
        code: i64::MIN,
        message: "nein".into(),
        data: Some(json("null")),
    };
    let steps = [
        ask("ä", InputKind::ElicitForm, RAW),
        ask("b", InputKind::ElicitUrl, "{}"),
        ask("c", InputKind::Sample, "[]"),
        ask("d", InputKind::ListRoots, "null"),
        answer("ä", Answer::Result(json(RAW))),
        answer("b", Answer::Error(refusal.clone())),
        Change::Withdraw { key: "c".into() },
        Change::Checkpoint(json(RAW)),
        Change::Checkpoint(json("null")),
        Change::Status(Some("".into())),
        Change::Status(None),
        Change::TakeOver {
            worker: WorkerId::random(),
        },
    ];
    for step in steps {
        let after = next(&record, step);
        let swap = stores
            .one
            .replace(after.clone(), record.revision, &Access::System)
            .await
            .expect("replace");
        assert_eq!(swap, Swap::Done);
        assert_eq!(
            stored(&*stores.two, &record).await,
            Some(after.clone()),
            "a record with questions"
        );
        record = after;
    }
    let ends = [
        Change::Finish {
            outcome: Outcome::Result {
                json: json(RAW),
                is_error: true,
            },
            message: Some("fertig".into()),
            retain_ms: 0,
        },
        Change::Finish {
            outcome: Outcome::Error(refusal),
            message: None,
            retain_ms: 0,
        },
        Change::Cancel {
            message: Some("genug".into()),
        },
    ];
    for end in ends {
        let fresh = owned("ann").ttl(None).created(77).into_record();
        insert(&*stores.two, &fresh).await;
        let ended = next(&fresh, end);
        stores
            .one
            .replace(ended.clone(), 1, &Access::System)
            .await
            .expect("replace");
        assert_eq!(
            stored(&*stores.two, &fresh).await,
            Some(ended),
            "an ended record"
        );
    }
    // What is absent stays absent, what is null stays null.
    for requested in [None, Some(None), Some(Some(0))] {
        for value in [None, Some(json("null"))] {
            let record = samples::bearer().origin(|origin| {
                origin.requested_ttl = requested;
                origin.meta = value.clone();
                origin.progress_token = value.clone();
                origin.capabilities = value.clone();
                origin.client_info = value;
            });
            let record = record.into_record();
            insert(&*stores.one, &record).await;
            assert_eq!(
                stored(&*stores.two, &record).await,
                Some(record),
                "absent and null differ"
            );
        }
    }
    let edge = owned("ann").with(|new| new.ttl_ms = Some(0)).into_record();
    insert(&*stores.one, &edge).await;
    assert_eq!(
        stored(&*stores.two, &edge)
            .await
            .expect("there")
            .expires_at(),
        Some(at(0))
    );
}

pub(super) async fn large(stores: &Handles) {
    let text = format!("{{\"blob\":\"{}\"}}", "0123456789abcdef".repeat(65_536));
    assert!(text.len() > 1024 * 1024);
    let record = owned("ann")
        .origin(|origin| origin.arguments = json(&text))
        .into_record();
    insert(&*stores.one, &record).await;
    let done = next(
        &record,
        Change::Finish {
            outcome: Outcome::Result {
                json: json(&text),
                is_error: false,
            },
            message: None,
            retain_ms: 0,
        },
    );
    stores
        .two
        .replace(done.clone(), 1, &Access::System)
        .await
        .expect("replace");
    let read = stored(&*stores.one, &record).await.expect("there");
    assert!(read == done, "1 MiB of arguments and of result");
}
