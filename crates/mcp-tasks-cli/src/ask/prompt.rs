//! Prompts at the terminal. All of this blocks: it runs on a thread of its own.
//!
//! Esc offers to decline or to dismiss the whole question; Ctrl-C leaves it unanswered.

use std::{fmt, sync::Arc};

use inquire::{
    Confirm, InquireError, MultiSelect, Select, Text,
    list_option::ListOption,
    validator::{ErrorMessage, Validation},
};
use serde_json::{Map, Value};

use super::form::{Field, Kind};
use crate::text;

/// How a question ended.
#[derive(Debug, PartialEq)]
pub(super) enum Reply<T> {
    Accept(T),
    Decline,
    Cancel,
    /// Ctrl-C.
    Interrupted,
    /// The terminal does not work.
    Broken(String),
}

const ESC: &str = "Esc: decline or dismiss";

/// Asks for every field that is not given.
pub(super) fn form(
    message: &str,
    fields: &[Arc<Field>],
    given: Map<String, Value>,
) -> Reply<Map<String, Value>> {
    text::err(&format!("\n{}", text::clean(message)));
    if fields.is_empty() {
        return choose("Your answer:", "accept");
    }
    let mut filled = given;
    for field in fields {
        if filled.contains_key(&field.name) {
            continue;
        }
        loop {
            match ask(field) {
                Ok(Some(value)) => drop(filled.insert(field.name.clone(), value)),
                Ok(None) => {}
                Err(InquireError::OperationCanceled) => match way_out() {
                    Reply::Accept(()) => continue,
                    other => return other.map(|()| Map::new()),
                },
                Err(error) => return stopped(error),
            }
            break;
        }
    }
    Reply::Accept(filled)
}

/// Asks to visit a URL.
pub(super) fn url(message: &str, url: &str) -> Reply<Map<String, Value>> {
    text::err(&format!(
        "\n{}\n  {}",
        text::clean(message),
        text::line(url)
    ));
    choose("When you have opened it:", "go on (accept)")
}

/// Asks for what a model would say.
pub(super) fn sampling(request: &str) -> Reply<String> {
    text::err(&format!("\n{}", text::clean(request)));
    match choose("The server asks for a model:", "answer in its place") {
        Reply::Accept(_) => {}
        other => return other.map(|_| String::new()),
    }
    loop {
        match Text::new("Answer:").with_help_message(ESC).prompt() {
            Ok(answer) => return Reply::Accept(answer),
            Err(InquireError::OperationCanceled) => match way_out() {
                Reply::Accept(()) => {}
                other => return other.map(|()| String::new()),
            },
            Err(error) => return stopped(error),
        }
    }
}

impl<T> Reply<T> {
    fn map<U>(self, with: impl FnOnce(T) -> U) -> Reply<U> {
        match self {
            Self::Accept(value) => Reply::Accept(with(value)),
            Self::Decline => Reply::Decline,
            Self::Cancel => Reply::Cancel,
            Self::Interrupted => Reply::Interrupted,
            Self::Broken(why) => Reply::Broken(why),
        }
    }
}

fn stopped<T>(error: InquireError) -> Reply<T> {
    match error {
        InquireError::OperationInterrupted => Reply::Interrupted,
        InquireError::OperationCanceled => Reply::Cancel,
        error => Reply::Broken(error.to_string()),
    }
}

/// Accept (in these words), decline or dismiss.
fn choose(message: &str, accept: &str) -> Reply<Map<String, Value>> {
    match select(message, &[accept, "decline", "dismiss (cancel)"]) {
        Ok(0) => Reply::Accept(Map::new()),
        Ok(1) => Reply::Decline,
        Ok(_) => Reply::Cancel,
        Err(error) => stopped(error),
    }
}

/// What to do with a question that was escaped from; accept is to go on with it.
fn way_out() -> Reply<()> {
    choose("Leave the question?", "go on answering").map(|_| ())
}

fn select(message: &str, options: &[&str]) -> Result<usize, InquireError> {
    Select::new(message, options.to_vec())
        .without_filtering()
        .with_help_message("↑↓ to move, Enter to choose")
        .raw_prompt()
        .map(|chosen| chosen.index)
}

/// Asks for one field; none if it is left out.
fn ask(field: &Arc<Field>) -> Result<Option<Value>, InquireError> {
    let message = match field.required {
        true => format!("{}:", field.label),
        false => format!("{} (optional):", field.label),
    };
    let help: Vec<String> = [
        field.description.clone(),
        field.hint(),
        Some(ESC.to_owned()),
    ]
    .into_iter()
    .flatten()
    .collect();
    let help = help.join(" · ");
    match &field.kind {
        Kind::Boolean if field.required || field.default.is_some() => {
            let mut prompt = Confirm::new(&message).with_help_message(&help);
            if let Some(default) = field.default.as_ref().and_then(Value::as_bool) {
                prompt = prompt.with_default(default);
            }
            prompt.prompt().map(|yes| Some(yes.into()))
        }
        Kind::Boolean => {
            let choices = [
                (Value::Bool(true), "yes".to_owned()),
                (Value::Bool(false), "no".to_owned()),
            ];
            one(field, &choices, &message, &help)
        }
        Kind::One(choices) => one(field, choices, &message, &help),
        Kind::Many(choices) => many(field, choices, &message, &help),
        Kind::Text | Kind::Number | Kind::Integer | Kind::Json => typed(field, &message, &help),
    }
}

fn typed(field: &Arc<Field>, message: &str, help: &str) -> Result<Option<Value>, InquireError> {
    let default = field.default.as_ref().map(|value| match value {
        Value::String(text) => text::line(text),
        other => other.to_string(),
    });
    let checked = field.clone();
    let mut prompt = Text::new(message)
        .with_help_message(help)
        .with_validator(move |typed: &str| Ok(verdict(read(&checked, typed).map(drop))));
    if let Some(default) = &default {
        prompt = prompt.with_default(default);
    }
    let typed = prompt.prompt()?;
    Ok(read(field, &typed).ok().flatten())
}

/// Nothing typed leaves out a field that may be left out.
fn read(field: &Field, typed: &str) -> Result<Option<Value>, String> {
    match (typed, field.required) {
        ("", false) => Ok(None),
        (typed, _) => field.parse(typed).map(Some),
    }
}

fn verdict(checked: Result<(), String>) -> Validation {
    match checked {
        Ok(()) => Validation::Valid,
        Err(why) => Validation::Invalid(ErrorMessage::Custom(why)),
    }
}

fn one(
    field: &Field,
    choices: &[(Value, String)],
    message: &str,
    help: &str,
) -> Result<Option<Value>, InquireError> {
    let mut options: Vec<Option<&(Value, String)>> = choices.iter().map(Some).collect();
    if !field.required {
        options.push(None);
    }
    let default = field.default.as_ref();
    let start = choices.iter().position(|(value, _)| Some(value) == default);
    let options: Vec<Choice<'_>> = options.into_iter().map(Choice).collect();
    let chosen = Select::new(message, options)
        .with_starting_cursor(start.unwrap_or(0))
        .with_help_message(help)
        .prompt()?;
    Ok(chosen.0.map(|(value, _)| value.clone()))
}

fn many(
    field: &Arc<Field>,
    choices: &[(Value, String)],
    message: &str,
    help: &str,
) -> Result<Option<Value>, InquireError> {
    let options: Vec<String> = choices.iter().map(|(_, label)| label.clone()).collect();
    let default = field.default.as_ref().and_then(Value::as_array);
    let is_default = |value: &Value| default.is_some_and(|default| default.contains(value));
    let default: Vec<usize> = (0..choices.len())
        .filter(|at| is_default(&choices[*at].0))
        .collect();
    let values: Arc<[Value]> = choices.iter().map(|(value, _)| value.clone()).collect();
    let help = format!("Space to choose, Enter when done · {help}");
    let (checked, known) = (field.clone(), values.clone());
    let chosen = MultiSelect::new(message, options)
        .with_default(&default)
        .with_help_message(&help)
        .with_validator(move |chosen: &[ListOption<&String>]| {
            let indices = chosen.iter().map(|option| option.index);
            Ok(verdict(several(&checked, &known, indices).map(drop)))
        })
        .raw_prompt()?;
    let indices = chosen.iter().map(|option| option.index);
    Ok(several(field, &values, indices).ok().flatten())
}

/// Nothing chosen leaves out a field that may be left out.
fn several(
    field: &Field,
    values: &[Value],
    indices: impl Iterator<Item = usize>,
) -> Result<Option<Value>, String> {
    let chosen: Vec<Value> = indices.filter_map(|at| values.get(at).cloned()).collect();
    if chosen.is_empty() && !field.required {
        return Ok(None);
    }
    let value = Value::Array(chosen);
    field.check(&value).map(|()| Some(value))
}

/// A choice by its label; none is to leave the field out.
#[derive(Clone, Copy)]
struct Choice<'a>(Option<&'a (Value, String)>);

impl fmt::Display for Choice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.map_or("(leave it out)", |(_, label)| label))
    }
}
