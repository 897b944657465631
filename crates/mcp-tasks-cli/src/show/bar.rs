//! The bar or spinner with its status line, at the bottom of a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use mcp_tasks::client::TaskStatus;

use super::{event::Task, plain::amount};
use crate::text;

/// How fine a bar is drawn.
const STEPS: u64 = 1000;

pub(super) struct Bar {
    bar: ProgressBar,
    name: String,
    status: String,
    progress: String,
    has_total: bool,
}

impl Bar {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_style(style("{spinner} {wide_msg} {elapsed}"));
        bar.enable_steady_tick(Duration::from_millis(120));
        Self {
            bar,
            name: String::new(),
            status: String::new(),
            progress: String::new(),
            has_total: false,
        }
    }

    pub(super) fn name(&mut self, name: &str) {
        self.name = text::line(name);
        self.refresh();
    }

    pub(super) fn status(&mut self, task: &Task) {
        let message = task.message.as_deref().map(text::line);
        self.status = match (task.status, message) {
            (TaskStatus::Working, Some(message)) => message,
            (status, Some(message)) => format!("{status}: {message}"),
            (status, None) => status.to_string(),
        };
        self.refresh();
    }

    pub(super) fn progress(&mut self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let part = total
            .map(|total| progress / total)
            .filter(|part| part.is_finite());
        if let Some(part) = part {
            if !self.has_total {
                self.has_total = true;
                self.bar.set_length(STEPS);
                let bar = style("{spinner} [{bar:30}] {wide_msg} {elapsed}");
                self.bar.set_style(bar.progress_chars("=> "));
            }
            // Bounded: a float that does not fit is cut off at either end.
            self.bar
                .set_position((part.clamp(0.0, 1.0) * STEPS as f64) as u64);
        }
        self.progress = amount(progress, total);
        if let Some(message) = message {
            self.progress = format!("{} {}", self.progress, text::line(message));
        }
        self.refresh();
    }

    fn refresh(&self) {
        let parts = [&self.name, &self.progress, &self.status];
        let parts: Vec<&str> = parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .map(String::as_str)
            .collect();
        self.bar.set_message(parts.join(" · "));
    }

    pub(super) fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    pub(super) fn clear(self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}
