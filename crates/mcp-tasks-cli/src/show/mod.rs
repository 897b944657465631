//! What the user sees. Results go to standard output; what happens on the way goes to standard error, as a bar or
//! spinner with a status line on a terminal ([`bar`]), as plain lines elsewhere ([`plain`]). With `--json` both go to
//! standard output as JSON ([`event`]).

mod bar;
pub(crate) mod event;
mod plain;

use std::{
    io::{self, IsTerminal},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::model::CallToolResult;
use serde::Serialize;
use serde_json::json;

use crate::text::{self, json_line};
use bar::Bar;
pub(crate) use event::{Event, Task};
pub(crate) use plain::task_lines;

/// How a command tells what it does.
#[derive(clap::Args, Debug, Clone, Copy)]
pub(crate) struct ShowArgs {
    /// Print JSON: a document, or one object a line for what happens
    #[arg(long)]
    pub(crate) json: bool,
    /// Tell more: the server, the protocol, and what a server process writes to its standard error
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Prints. Clones print to the same place.
#[derive(Clone)]
pub(crate) struct Show(Arc<Shared>);

struct Shared {
    args: ShowArgs,
    terminal: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bar: Option<Bar>,
    /// What was to be told while somebody types.
    held: Option<Vec<String>>,
    /// The last status line, which is not told again.
    told: Option<String>,
}

impl Show {
    pub(crate) fn new(args: ShowArgs) -> Self {
        Self(Arc::new(Shared {
            args,
            terminal: io::stderr().is_terminal(),
            state: Mutex::default(),
        }))
    }

    pub(crate) fn is_json(&self) -> bool {
        self.0.args.json
    }

    pub(crate) fn is_verbose(&self) -> bool {
        self.0.args.verbose
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells an event.
    pub(crate) fn event(&self, event: &Event<'_>) {
        if self.is_json() {
            return text::out(&json_line(event));
        }
        let mut state = self.state();
        if self.0.terminal && state.draw(event) {
            return;
        }
        let Some(line) = plain::line(event, self.is_verbose()) else {
            return;
        };
        if matches!(event, Event::Status { .. })
            && state.told.replace(line.clone()).as_ref() == Some(&line)
        {
            return;
        }
        state.print(line);
    }

    /// Tells a person something on standard error; nothing with `--json`.
    pub(crate) fn note(&self, words: &str) {
        if !self.is_json() {
            self.warn(words);
        }
    }

    /// Tells something on standard error in any case.
    pub(crate) fn warn(&self, words: &str) {
        self.state().print(text::clean(words));
    }

    /// The document a command gives: `json`, or these words.
    pub(crate) fn document(&self, json: &impl Serialize, words: &str) {
        self.close();
        match self.is_json() {
            true => text::out(&json_line(json)),
            false => text::out(&text::clean(words)),
        }
    }

    /// The result of a tool, the last thing a command tells.
    pub(crate) fn result(&self, tool: Option<&str>, task: Option<&str>, result: &CallToolResult) {
        let ok = result.is_error != Some(true);
        self.close();
        if self.is_json() {
            let result = json!(result);
            return self.event(&Event::Result {
                tool,
                task,
                ok,
                result: &result,
            });
        }
        let words = plain::result(result);
        if !words.is_empty() {
            text::out(&text::clean(&words));
        }
    }

    /// Leaves the terminal to somebody who types; what happens meanwhile is told by [`release`](Self::release).
    pub(crate) fn hold(&self) {
        let mut state = self.state();
        if let Some(bar) = &mut state.bar {
            bar.hide();
        }
        state.held.get_or_insert_with(Vec::new);
    }

    pub(crate) fn release(&self) {
        let mut state = self.state();
        for line in state.held.take().into_iter().flatten() {
            state.print(line);
        }
        if let Some(bar) = &mut state.bar {
            bar.draw();
        }
    }

    /// Gives the terminal back as it was, also in the middle of a prompt.
    pub(crate) fn close(&self) {
        let prompting = self.state().held.is_some();
        if prompting {
            let _ = crossterm::terminal::disable_raw_mode();
            let _ = crossterm::execute!(
                io::stderr(),
                crossterm::event::DisableBracketedPaste,
                crossterm::cursor::Show,
                crossterm::style::Print("\n")
            );
        }
        self.state().clear();
        self.release();
    }
}

impl State {
    fn print(&mut self, line: String) {
        match (&mut self.held, &self.bar) {
            (Some(held), _) => held.push(line),
            (None, Some(bar)) => bar.suspend(|| text::err(&line)),
            (None, None) => text::err(&line),
        }
    }

    /// Shows it on the bar; whether that is all there is to tell.
    fn draw(&mut self, event: &Event<'_>) -> bool {
        match event {
            Event::Created { tool, .. } => self.bar.get_or_insert_with(Bar::new).name(tool),
            Event::Status { task } => self.bar.get_or_insert_with(Bar::new).status(task),
            Event::Progress {
                progress,
                total,
                message,
            } => {
                let bar = self.bar.get_or_insert_with(Bar::new);
                bar.progress(*progress, *total, *message);
            }
            Event::Detached { .. } | Event::Result { .. } => self.clear(),
            Event::Connected { .. } | Event::Question { .. } | Event::Answer { .. } => {}
        }
        if let (Some(bar), None) = (&mut self.bar, &self.held) {
            bar.draw();
        }
        matches!(event, Event::Status { .. } | Event::Progress { .. })
    }

    /// Takes the bar away for good.
    fn clear(&mut self) {
        if let Some(mut bar) = self.bar.take() {
            bar.hide();
        }
    }
}
