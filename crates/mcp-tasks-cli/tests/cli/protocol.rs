//! Which protocol is spoken: what the server speaks best, what a ticket says, or what is asked for.

use crate::{
    fixture::{Listening, Store},
    program::User,
};

#[test]
fn the_newest_is_spoken_and_shown_and_another_can_be_forced() {
    let server = Listening::start(&[]);
    let call = ["call", "-v", "slow_echo", "--arg", "ms=20"];
    for (asked, spoken) in [
        ("auto", "protocol 2026-07-28 (G2)"),
        ("2026-07-28", "protocol 2026-07-28 (G2)"),
        ("2025-11-25", "protocol 2025-11-25 (G1)"),
    ] {
        let user = User::new();
        for ran in [
            user.run(&[&call[..], &["--protocol", asked, &server.url]].concat()),
            user.run_stdio(&[&call[..], &["--protocol", asked]].concat(), &[]),
        ] {
            let ran = ran.ok();
            assert_eq!(ran.out, "hi\n");
            assert!(ran.err.contains(spoken), "{asked}: {ran:?}");
            assert!(ran.err.contains("slow_echo: task "), "{asked}: {ran:?}");
        }
        let json = user.run(&["tools", "--json", "--protocol", asked, &server.url]);
        assert!(json.ok().out.contains(&spoken[9..19]));
    }
    let wrong = User::new().run(&["tools", "--protocol", "2024", &server.url]);
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.err.contains("2025-11-25") && wrong.err.contains("2026-07-28"),
        "{wrong:?}"
    );
}

// F-34
#[test]
fn a_question_is_answered_in_either() {
    let server = Listening::start(&[]);
    for protocol in ["2025-11-25", "2026-07-28"] {
        let user = User::speaking(protocol);
        let ran = user.run(&["call", "ask", "--answer", "name=Ada", &server.url]);
        assert_eq!(ran.ok().out, "action=accept name=Ada\n", "{protocol}");
        // Plainly too: on the call's stream, or in rounds.
        let plain = [
            "call",
            "confirm_delete",
            "--no-task",
            "--arg",
            "filename=f",
            "--answer",
            "confirm=true",
        ];
        let ran = user.run(&[&plain[..], &[&server.url]].concat());
        assert_eq!(ran.ok().out, "f was deleted\n", "{protocol}");
    }
}

// F-36: a ticket is taken up in the protocol it was made with, whatever is spoken otherwise; a list shows both.
#[test]
fn a_ticket_keeps_its_protocol() {
    let store = Store::new();
    let server = Listening::start(&[&store.arguments()[..], &["--owner-from-bearer"]].concat());
    let bearer = ["--bearer", "alice"];
    let user = User::new();
    let mut ids = Vec::new();
    for protocol in ["2025-11-25", "2026-07-28"] {
        let call = ["call", "sleep_echo", "--detach", "--arg", "ms=300"];
        let more = ["--arg", "text=late", "--protocol", protocol, &server.url];
        let detached = user.run(&[&call[..], &bearer, &more].concat()).ok();
        ids.push((detached.out.trim().to_owned(), protocol));
    }
    let listed = user
        .run(&[&["list"], &bearer[..], &[&server.url]].concat())
        .ok();
    let local = user.run(&["list", "--local", "--json"]).ok().out;
    let server = server.again(&[&store.arguments()[..], &["--owner-from-bearer"]].concat());
    for (id, protocol) in ids {
        assert!(listed.out.contains(&id), "{listed:?}");
        assert!(local.contains(&id) && local.contains(protocol), "{local}");
        let resumed = user
            .run(&[&["resume", "-v", &id], &bearer[..]].concat())
            .ok();
        assert_eq!(resumed.out, "late\n");
        assert!(resumed.err.contains(protocol), "{resumed:?}");
    }
    drop(server);
}
