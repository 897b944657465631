//! The bar or spinner with its status line, at the bottom of a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use mcp_tasks::client::TaskStatus;

use super::{event::Task, plain::amount};
use crate::text;

/// How fine a bar is drawn.
const STEPS: u64 = 1000;

/// What there is to show; it is remembered while the bar is not there.
pub(super) struct Bar {
    drawn: Option<ProgressBar>,
    since: Instant,
    name: String,
    status: String,
    progress: String,
    /// How much is done, of 1.
    part: Option<f64>,
}

impl Bar {
    pub(super) fn new() -> Self {
        Self {
            drawn: None,
            since: Instant::now(),
            name: String::new(),
            status: String::new(),
            progress: String::new(),
            part: None,
        }
    }

    pub(super) fn name(&mut self, name: &str) {
        self.name = text::line(name);
    }

    pub(super) fn status(&mut self, task: &Task) {
        let message = task.message.as_deref().map(text::line);
        self.status = match (task.status, message) {
            (TaskStatus::Working, Some(message)) => message,
            (status, Some(message)) => format!("{status}: {message}"),
            (status, None) => status.to_string(),
        };
    }

    pub(super) fn progress(&mut self, progress: f64, total: Option<f64>, message: Option<&str>) {
        self.part = total
            .map(|total| progress / total)
            .filter(|part| part.is_finite());
        self.progress = amount(progress, total);
        if let Some(message) = message {
            self.progress = format!("{} {}", self.progress, text::line(message));
        }
    }

    /// Draws it.
    pub(super) fn draw(&mut self) {
        let parts = [&self.name, &self.progress, &self.status];
        let parts: Vec<&str> = parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .map(String::as_str)
            .collect();
        let since = self.since;
        let bar = self.drawn.get_or_insert_with(|| {
            let bar = ProgressBar::new(STEPS).with_elapsed(since.elapsed());
            bar.set_style(style("{spinner} {wide_msg} {elapsed}"));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        if let Some(part) = self.part {
            let with_bar = style("{spinner} [{bar:30}] {wide_msg} {elapsed}");
            bar.set_style(with_bar.progress_chars("=> "));
            // Bounded: what does not fit is cut off at either end.
            bar.set_position((part.clamp(0.0, 1.0) * STEPS as f64) as u64);
        }
        bar.set_message(parts.join(" · "));
    }

    /// Prints above it.
    pub(super) fn suspend(&self, print: impl FnOnce()) {
        match &self.drawn {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Takes it off the terminal.
    pub(super) fn hide(&mut self) {
        if let Some(bar) = self.drawn.take() {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}
