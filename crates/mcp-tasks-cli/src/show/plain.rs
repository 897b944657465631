//! Words for a person.

use mcp_tasks::client::TaskStatus;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use super::event::{Event, Task};
use crate::{span, text};

/// An event on one line; none for what only `--json` and `--verbose` tell.
pub(super) fn line(event: &Event<'_>, verbose: bool) -> Option<String> {
    let line = match event {
        Event::Connected {
            server,
            protocol,
            generation,
        } => {
            if !verbose {
                return None;
            }
            let generation = generation.unwrap_or("no tasks");
            format!("connected to {server:?}, protocol {protocol} ({generation})")
        }
        Event::Created { tool, task } => format!("{tool}: task {}", task.id),
        Event::Status { task } => status(task),
        Event::Progress {
            progress,
            total,
            message,
        } => {
            let message = message
                .map(|message| format!(" {message}"))
                .unwrap_or_default();
            format!("progress {}{message}", amount(*progress, *total))
        }
        Event::Question { message, url, .. } => {
            let url = url.map(|url| format!(" {url}")).unwrap_or_default();
            format!("question: {message}{url}")
        }
        Event::Answer {
            action,
            content,
            reason,
            ..
        } => {
            let content = content
                .map(|content| format!(" {content}"))
                .unwrap_or_default();
            let reason = reason
                .map(|reason| format!(" ({reason})"))
                .unwrap_or_default();
            format!("answer: {action}{content}{reason}")
        }
        Event::Detached { resume, .. } => format!("resume with: {resume}"),
        Event::Result { .. } => return None,
    };
    Some(text::line(&line))
}

fn status(task: &Task) -> String {
    match (task.status, &task.message) {
        (TaskStatus::Working, Some(message)) => message.clone(),
        (status, Some(message)) => format!("{status}: {message}"),
        (status, None) => status.to_string(),
    }
}

/// `3/4`, or `3`.
pub(super) fn amount(progress: f64, total: Option<f64>) -> String {
    match total {
        Some(total) => format!("{progress}/{total}"),
        None => progress.to_string(),
    }
}

/// All that is known of a task, on several lines.
pub(crate) fn task_lines(task: &Task) -> String {
    let span = |ms: Option<u64>| ms.map(|ms| span::words(std::time::Duration::from_millis(ms)));
    let lines = [
        ("task", Some(task.id.clone())),
        ("status", Some(task.status.to_string())),
        ("message", task.message.clone()),
        ("created", task.created_at.clone()),
        ("updated", task.updated_at.clone()),
        (
            "lives",
            Some(span(task.ttl_ms).unwrap_or_else(|| "unlimited".to_owned())),
        ),
        ("poll every", span(task.poll_interval_ms)),
    ];
    let lines: Vec<String> = lines
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name:11}{}", text::line(&value?))))
        .collect();
    lines.join("\n")
}

/// What a tool gave: its texts, a line for everything else, or its structured content if there is nothing else.
pub(super) fn result(result: &CallToolResult) -> String {
    let mut parts: Vec<String> = result.content.iter().map(block).collect();
    if let (true, Some(content)) = (parts.is_empty(), &result.structured_content) {
        parts.push(serde_json::to_string_pretty(content).unwrap_or_default());
    }
    parts.join("\n")
}

fn block(block: &ContentBlock) -> String {
    if let Some(text) = block.as_text() {
        return text.text.clone();
    }
    if let Some(resource) = block.as_resource() {
        return match &resource.resource {
            ResourceContents::TextResourceContents { text, .. } => text.clone(),
            ResourceContents::BlobResourceContents { uri, blob, .. } => {
                format!("[resource {uri}, {} characters of base64]", blob.len())
            }
            _ => "[resource]".to_owned(),
        };
    }
    let value = serde_json::to_value(block).unwrap_or_default();
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let kind = text("type").unwrap_or("content");
    match (text("uri"), text("data"), text("mimeType")) {
        (Some(uri), _, _) => format!("[{kind} {uri}]"),
        (None, Some(data), mime) => format!(
            "[{kind} {}, {} characters of base64]",
            mime.unwrap_or_default(),
            data.len()
        ),
        _ => format!("[{kind}]"),
    }
}
