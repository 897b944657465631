//! Tells what happens: JSON lines, plain lines, or lines above a progress bar.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use indicatif::{ProgressBar, ProgressStyle};
use mcp_tasks::client::TaskStatus;

use super::event::Event;

/// Prints events to standard output. Clones print to the same place.
#[derive(Clone)]
pub(super) struct Printer(Arc<Shared>);

struct Shared {
    json: bool,
    /// Whether progress is a bar.
    bars: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bar: Option<ProgressBar>,
    /// What was to be printed while somebody types.
    held: Option<Vec<String>>,
}

impl Printer {
    pub(super) fn new(json: bool) -> Self {
        let bars = !json && io::stdout().is_terminal() && io::stderr().is_terminal();
        Self(Arc::new(Shared {
            json,
            bars,
            state: Mutex::default(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells an event.
    pub(super) fn event(&self, event: &Event<'_>) {
        let mut state = self.state();
        if self.0.json {
            if let Ok(line) = serde_json::to_string(event) {
                state.print(line);
            }
            return;
        }
        if self.0.bars && state.held.is_none() {
            match event {
                Event::Progress {
                    progress,
                    total: Some(total),
                    message,
                    ..
                } => return state.advance(*progress, *total, message.unwrap_or_default()),
                Event::Result { .. } | Event::ServerKilled { .. } => state.clear(),
                _ => {}
            }
        }
        state.print(line(event));
    }

    /// Tells something that is no event: in JSON mode, nothing.
    pub(super) fn note(&self, text: String) {
        if !self.0.json {
            self.state().print(text);
        }
    }

    /// Leaves the terminal to somebody who types; what happens meanwhile is told by [`release`](Self::release).
    pub(super) fn hold(&self) {
        let mut state = self.state();
        state.clear();
        state.held = Some(Vec::new());
    }

    pub(super) fn release(&self) {
        let mut state = self.state();
        for line in state.held.take().into_iter().flatten() {
            state.print(line);
        }
    }

    /// Removes the bar, and tells what was held back.
    pub(super) fn close(&self) {
        if self.state().held.is_some() {
            // Below the prompt that nobody has answered.
            eprintln!();
        }
        self.release();
        self.state().clear();
    }
}

impl State {
    fn print(&mut self, line: String) {
        // Nobody may be listening any more (`| head`): the demo goes on all the same.
        let print = |line: &str| {
            let mut out = io::stdout().lock();
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        };
        match (&mut self.held, &self.bar) {
            (Some(held), _) => held.push(line),
            (None, Some(bar)) => bar.suspend(|| print(&line)),
            (None, None) => print(&line),
        }
    }

    fn advance(&mut self, progress: f64, total: f64, message: &str) {
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::no_length();
            let style = ProgressStyle::with_template("  [{bar:40}] {pos}/{len} {msg}");
            bar.with_style(
                style
                    .unwrap_or_else(|_| ProgressStyle::default_bar())
                    .progress_chars("=> "),
            )
        });
        // Steps are small whole numbers here.
        bar.set_length(total as u64);
        bar.set_message(message.to_owned());
        bar.set_position(progress as u64);
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// An event for a person.
fn line(event: &Event<'_>) -> String {
    match event {
        Event::Created { tool, task, .. } => format!("{tool}: created task {task}"),
        Event::Status {
            tool,
            status,
            message,
            ..
        } => match (status, message) {
            (TaskStatus::Working, Some(message)) => format!("{tool}: {message}"),
            (status, Some(message)) => format!("{tool}: {status}: {message}"),
            (status, None) => format!("{tool}: {status}"),
        },
        Event::Progress {
            tool,
            progress,
            total,
            message,
            ..
        } => {
            let total = total.map(|total| format!("/{total}")).unwrap_or_default();
            format!(
                "{tool}: progress {progress}{total} {}",
                message.unwrap_or_default()
            )
        }
        Event::Question { message, .. } => format!("question: {message}"),
        Event::Answer {
            action, content, ..
        } => {
            let content: Vec<String> = content
                .iter()
                .map(|(name, value)| format!(" {name}={value}"))
                .collect();
            format!("answer: {action}{}", content.concat())
        }
        Event::ServerKilled { pid, step, .. } => {
            format!(
                "server: killed (SIGKILL) process {pid} in the middle of the task, after step {step}"
            )
        }
        Event::ServerRestarted { pid, url, .. } => {
            format!("server: restarted as process {pid} on the same file, {url}")
        }
        Event::Result {
            tool,
            text,
            attempts,
            resumed_from,
            ..
        } => match attempts {
            1 => format!("{tool}: result: {text}"),
            _ => format!(
                "{tool}: result: {text} (attempt {attempts}, resumed from step {resumed_from})"
            ),
        },
    }
}
