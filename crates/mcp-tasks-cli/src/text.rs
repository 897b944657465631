//! Words on their way to the terminal. What comes from a server is cleaned first: it could hold control sequences.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use serde::Serialize;

/// The text with line ends and tabs, but without any other control character, nor what turns the reading direction.
pub(crate) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.replace("\r\n", "\n").chars() {
        match c {
            '\n' | '\t' => clean.push(c),
            c if hidden(c) => {
                let _ = write!(clean, "{}", c.escape_unicode());
            }
            c => clean.push(c),
        }
    }
    clean
}

/// The same on one line.
pub(crate) fn line(text: &str) -> String {
    clean(text.trim()).replace(['\n', '\t'], " ")
}

fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A JSON document on one line. It has no control characters: JSON can write them in other ways.
pub(crate) fn json_line(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    if !text.chars().any(hidden) {
        return text;
    }
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match hidden(c) {
            true => {
                let _ = write!(line, "\\u{:04x}", u32::from(c));
            }
            false => line.push(c),
        }
    }
    line
}

/// A line on standard output. Nobody may be listening any more (`| head`): that is no failure.
pub(crate) fn out(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// A line on standard error.
pub(crate) fn err(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// A word as a POSIX shell reads it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:/=@%+,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn control_sequences_are_shown_not_sent() {
        let evil = "a\u{1b}[2Jb\u{9b}1mc\r\nd\te\u{202e}f\rg\u{7}";
        let clean = clean(evil);
        assert_eq!(clean, "a\\u{1b}[2Jb\\u{9b}1mc\nd\te\\u{202e}f\\u{d}g\\u{7}");
        assert_eq!(line(" a\nb\t"), "a b");
        let value = json!({"text": evil});
        let line = json_line(&value);
        assert!(
            line.is_ascii() && !line.chars().any(char::is_control),
            "{line}"
        );
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("a-1:b"), "a-1:b");
        assert_eq!(quoted("it's $x"), r"'it'\''s $x'");
        assert_eq!(quoted(""), "''");
    }
}
