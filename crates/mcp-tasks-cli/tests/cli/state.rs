//! The directory of tickets.

use crate::{
    fixture::Listening,
    program::{User, finish},
};

#[test]
fn processes_that_detach_at_once_all_keep_their_tickets() {
    let server = Listening::start(&[]);
    let user = User::new();
    let detaching: Vec<_> = (0..4)
        .map(|_| {
            user.command(&["call", "forever", "--detach", &server.url])
                .spawn()
                .unwrap()
        })
        .collect();
    let mut ids: Vec<String> = detaching
        .into_iter()
        .map(|child| finish(child).ok().out.trim().to_owned())
        .collect();
    let listed = user.run(&["list", "--local", "--json"]).ok();
    let tickets = listed.json()[0]["tickets"].as_array().unwrap().clone();
    let mut kept: Vec<String> = tickets
        .iter()
        .map(|ticket| ticket["task"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    kept.sort();
    assert_eq!(kept, ids);
}

#[test]
fn a_broken_file_is_named_and_the_others_are_listed() {
    let server = Listening::start(&[]);
    let user = User::new();
    let id = user
        .run(&["call", "forever", "--detach", &server.url])
        .ok()
        .out;
    std::fs::write(user.path().join("broken.json"), "{\"version\": 1").unwrap();
    let listed = user.run(&["list", "--local"]);
    assert_eq!(listed.code, 1, "{listed:?}");
    assert!(listed.out.starts_with(id.trim()), "{listed:?}");
    assert!(
        listed.err.contains("broken.json is no ticket"),
        "{listed:?}"
    );
    // It is in nobody's way.
    user.run(&["get", id.trim()]).ok();
}

#[test]
fn no_credentials_are_kept() {
    let server = Listening::start(&["--owner-from-bearer"]);
    let user = User::new();
    let secret = ["--bearer", "s3cret-token", "--header", "X-Key: s3cret-key"];
    let call = [&["call", "ask", "--detach"], &secret[..], &[&server.url]].concat();
    let id = user.run(&call).ok().out;
    for file in std::fs::read_dir(user.path()).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(
            text.contains(id.trim()) && !text.contains("s3cret"),
            "{text}"
        );
    }
    let refused = user.run(&["get", id.trim(), "--json"]);
    assert_eq!(
        (refused.code, &refused.event("error")["kind"]),
        (5, &"lost".into()),
        "{refused:?}"
    );
    let mut command = user.command(&["result", id.trim(), "--answer", "name=Ada"]);
    command.env("MCP_TASKS_BEARER", "s3cret-token");
    let result = finish(command.spawn().unwrap()).ok();
    assert_eq!(result.out, "action=accept name=Ada\n");
}
