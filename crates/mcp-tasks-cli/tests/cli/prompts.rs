//! Questions at a terminal, and the bar.

use serde_json::{Value, json};

use crate::{
    asking::Asking,
    fixture::{self, Listening},
    program::User,
    terminal::{DOWN, ENTER, ESC, Terminal},
};

fn on_stdio<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [arguments, &["--", fixture::path(), "--stdio"]].concat()
}

// F-31, F-34
#[test]
fn a_question_is_answered_over_stdio_and_http() {
    let server = Listening::start(&[]);
    let stdio = on_stdio(&["call", "ask_name"]);
    for arguments in [stdio, vec!["call", "ask_name", &server.url]] {
        let user = User::new();
        let mut terminal = Terminal::start(&user, &arguments);
        terminal
            .expect("ask_name: task ")
            .expect("What is your name?")
            .expect("name:")
            .keys("Ada")
            .keys(ENTER);
        terminal.expect("Hello Ada");
        let (code, text) = terminal.ended();
        assert_eq!(code, 0, "{text}");
    }
}

#[test]
fn a_yes_or_no_question_is_answered() {
    for (typed, done) in [("y", "deleted"), ("n", "kept")] {
        let user = User::new();
        let arguments = on_stdio(&["call", "confirm_delete", "--arg", "filename=a.txt"]);
        let mut terminal = Terminal::start(&user, &arguments);
        terminal
            .expect("Delete a.txt?")
            .expect("confirm:")
            .keys(typed)
            .keys(ENTER);
        terminal.expect(&format!("a.txt was {done}"));
        assert_eq!(terminal.ended().0, 0);
    }
}

#[test]
fn a_question_is_declined_or_dismissed() {
    for (keys, action) in [(DOWN.to_owned(), "decline"), (DOWN.repeat(2), "cancel")] {
        let user = User::new();
        let mut terminal = Terminal::start(&user, &on_stdio(&["call", "ask"]));
        terminal
            .expect("name:")
            .keys(ESC)
            .expect("Leave the question?")
            .expect("dismiss")
            .keys(&keys)
            .keys(ENTER);
        terminal.expect(&format!("action={action}"));
        assert_eq!(terminal.ended().0, 0);
    }
}

#[test]
fn escaping_by_mistake_is_no_harm() {
    let user = User::new();
    let mut terminal = Terminal::start(&user, &on_stdio(&["call", "ask"]));
    terminal
        .expect("name:")
        .keys(ESC)
        .expect("Leave the question?")
        .expect("dismiss")
        .keys(ENTER);
    terminal
        .expect("name:")
        .keys("Ada")
        .keys(ENTER)
        .expect("action=accept name=Ada");
    assert_eq!(terminal.ended().0, 0);
}

#[test]
fn progress_is_a_bar() {
    let user = User::speaking("2025-11-25");
    let arguments = on_stdio(&[
        "call",
        "slow_echo",
        "--arg",
        "text=done",
        "--arg",
        "ms=2000",
    ]);
    let mut terminal = Terminal::start(&user, &arguments);
    terminal
        .expect("slow_echo: task ")
        .expect("[===")
        .expect("/4 echoing");
    terminal.expect("done");
    let (code, text) = terminal.ended();
    assert_eq!(code, 0, "{text}");
}

#[test]
fn a_url_is_shown_and_a_model_is_played() {
    let user = User::speaking("2025-11-25");
    let mut terminal = Terminal::start(&user, &on_stdio(&["call", "ask_url"]));
    terminal
        .expect("Please sign in.")
        .expect("https://example.com/sign-in")
        .expect("decline")
        .keys(ENTER);
    terminal.expect("action=accept");
    assert_eq!(terminal.ended().0, 0);

    let mut terminal = Terminal::start(
        &user,
        &on_stdio(&["call", "sample", "--arg", "prompt=Say hi"]),
    );
    terminal
        .expect("user: Say hi")
        .expect("decline")
        .keys(ENTER);
    terminal
        .expect("Answer:")
        .keys("hi there")
        .keys(ENTER)
        .expect("hi there");
    assert_eq!(terminal.ended().0, 0);

    let mut terminal = Terminal::start(
        &user,
        &on_stdio(&["call", "sample", "--arg", "prompt=Say hi"]),
    );
    terminal
        .expect("decline")
        .keys(DOWN)
        .keys(ENTER)
        .expect("the user rejected the request");
    assert_eq!(terminal.ended().0, 1);
}

#[test]
fn two_questions_come_one_after_the_other() {
    let user = User::new();
    let mut terminal = Terminal::start(&user, &on_stdio(&["call", "multi_input"]));
    terminal
        .expect("What is on the ")
        .expect("name:")
        .keys("a")
        .keys(ENTER);
    terminal
        .expect("What is on the ")
        .expect("name:")
        .keys("b")
        .keys(ENTER);
    terminal.expect("left=").expect("right=");
    assert_eq!(terminal.ended().0, 0);
}

#[test]
fn a_prompt_ends_with_its_task() {
    let server = Listening::start(&[]);
    let user = User::new();
    let mut terminal = Terminal::start(&user, &["call", "ask", &server.url]);
    let id = terminal.expect("ask: task ").line();
    terminal.expect("name:").keys("half an ans");
    user.run(&["cancel", &id, &server.url]).ok();
    terminal.expect("was cancelled");
    assert_eq!(terminal.ended().0, 3);
}

/// Answers a form of one field, `f`, with these keys; gives the answer.
fn fill(field: Value, required: bool, keys: &[(&str, &str)]) -> Value {
    let required = if required { json!(["f"]) } else { json!([]) };
    let schema = json!({"type": "object", "properties": {"f": field}, "required": required});
    let server = Asking::start(vec![Asking::form_with("form", schema)]);
    let user = User::new();
    let mut terminal = Terminal::start(&user, &["call", "form", &server.url]);
    terminal.expect("This is form.");
    for (shown, typed) in keys {
        terminal.expect(shown).keys(typed);
    }
    terminal.expect("{\"action\"");
    let (code, text) = terminal.ended();
    assert_eq!(code, 0, "{text}");
    let last = text
        .lines()
        .rfind(|line| line.contains("{\"action\""))
        .unwrap();
    serde_json::from_str(&last[last.find('{').unwrap()..]).unwrap()
}

fn accepted(value: Value) -> Value {
    json!({"action": "accept", "content": {"f": value}})
}

#[test]
fn text_has_defaults_and_is_checked() {
    let field =
        json!({"type": "string", "title": "Your e-mail", "format": "email", "default": "a@b.c"});
    assert_eq!(
        fill(field, true, &[("Your e-mail:", ENTER)]),
        accepted(json!("a@b.c"))
    );
    // rmcp's model has no pattern: it is taken from the question as it came.
    let field = json!({"type": "string", "pattern": "^[a-z]+$", "minLength": 1});
    let keys = [("f:", "7\r"), ("does not match", "\u{7f}abc\r")];
    assert_eq!(fill(field, true, &keys), accepted(json!("abc")));
    let field = json!({"type": "string"});
    assert_eq!(
        fill(field, false, &[("f (optional):", ENTER)]),
        json!({"action": "accept", "content": {}})
    );
}

#[test]
fn numbers_are_numbers_within_their_limits() {
    let field = json!({"type": "integer", "minimum": 1, "maximum": 5});
    let keys = [
        ("1 to 5", "x\r"),
        ("expected a whole number", "\u{7f}9\r"),
        ("maximum", "\u{7f}4\r"),
    ];
    assert_eq!(fill(field, true, &keys), accepted(json!(4)));
    assert_eq!(
        fill(json!({"type": "number"}), true, &[("f:", "2.5\r")]),
        accepted(json!(2.5))
    );
    assert_eq!(
        fill(
            json!({"type": "integer", "default": 7}),
            true,
            &[("f:", ENTER)]
        ),
        accepted(json!(7))
    );
}

#[test]
fn booleans_have_defaults_or_are_left_out() {
    let field = json!({"type": "boolean", "default": true});
    assert_eq!(fill(field, true, &[("f:", ENTER)]), accepted(json!(true)));
    let keys = DOWN.repeat(2) + ENTER;
    let answer = fill(
        json!({"type": "boolean"}),
        false,
        &[("(leave it out)", &keys)],
    );
    assert_eq!(answer, json!({"action": "accept", "content": {}}));
}

#[test]
fn one_of_several_is_chosen_by_its_title() {
    let choose = DOWN.to_owned() + ENTER;
    let field = json!({"type": "string", "enum": ["red", "green"]});
    assert_eq!(
        fill(field, true, &[("green", &choose)]),
        accepted(json!("green"))
    );
    let choices = json!([{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]);
    let field = json!({"type": "string", "oneOf": choices, "default": "g"});
    assert_eq!(fill(field, true, &[("Green", ENTER)]), accepted(json!("g")));
    let field = json!({"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]});
    assert_eq!(
        fill(field, true, &[("Green", &choose)]),
        accepted(json!("g"))
    );
}

#[test]
fn several_of_several_are_chosen() {
    let field = json!({"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["a", "b", "c"]}});
    let keys = format!(" {DOWN}{DOWN} {ENTER}");
    let answer = fill(field.clone(), true, &[("c", ENTER), ("[]", &keys)]);
    assert_eq!(answer, accepted(json!(["a", "c"])));
    let choices = json!([{"const": "a", "title": "Ay"}, {"const": "b", "title": "Bee"}]);
    let field = json!({"type": "array", "items": {"anyOf": choices}, "default": ["b"]});
    assert_eq!(fill(field, true, &[("Bee", ENTER)]), accepted(json!(["b"])));
}

#[test]
fn what_a_server_writes_cannot_command_the_terminal() {
    let evil = "\u{1b}]0;owned\u{7}\u{1b}[2J";
    let field =
        json!({"type": "string", "title": format!("T{evil}"), "description": format!("D{evil}")});
    let server = Asking::start(vec![(
        "form",
        "elicitation/create",
        json!({"mode": "form", "message": format!("M{evil}"),
            "requestedSchema": {"type": "object", "properties": {"f": field}, "required": ["f"]}}),
    )]);
    let user = User::new();
    let mut terminal = Terminal::start(&user, &["call", "form", "-v", &server.url]);
    terminal
        .expect("asking\\u{1b}[31m")
        .expect("M\\u{1b}]0;owned\\u{7}\\u{1b}[2J")
        .expect("T\\u{1b}]0;");
    terminal.keys(ENTER).expect("accept");
    assert_eq!(terminal.ended().0, 0);
}
