//! Who answers the demo's question: the handler of its client.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rmcp::{
    ClientHandler,
    model::{
        ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
        ElicitationCapability, ErrorData, FormElicitationCapability, Implementation,
    },
    service::{RequestContext, RoleClient},
};
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::{event::Event, printer::Printer};

/// Where answers come from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answers {
    /// The defaults that the question gives.
    Defaults,
    /// Somebody at the terminal.
    Terminal,
}

/// Answers questions. Clones are the same person.
#[derive(Clone)]
pub(super) struct Person {
    answers: Answers,
    printer: Printer,
    thinking: Arc<AtomicBool>,
}

impl Person {
    pub(super) fn new(answers: Answers, printer: Printer) -> Self {
        Self {
            answers,
            printer,
            thinking: Arc::default(),
        }
    }

    /// Whether somebody at the terminal has been asked and has not answered yet.
    pub(super) fn is_thinking(&self) -> bool {
        self.thinking.load(Ordering::Relaxed)
    }

    /// Fills in a form; `None` if nobody does.
    async fn fill_in(&self, schema: &Value) -> Option<Map<String, Value>> {
        let mut content = Map::new();
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let default = match &field["default"] {
                Value::Null => Value::from("yes"),
                default => default.clone(),
            };
            let given = match self.answers {
                Answers::Defaults => String::new(),
                Answers::Terminal => ask(name, &default).await?,
            };
            let value = match (given.trim(), field["type"].as_str()) {
                ("", _) => default,
                (given, Some("string")) => given.into(),
                (given, _) => serde_json::from_str(given).unwrap_or_else(|_| given.into()),
            };
            content.insert(name.clone(), value);
        }
        Some(content)
    }
}

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation =
            Some(ElicitationCapability::new().with_form(FormElicitationCapability::default()));
        ClientConfig::new(
            capabilities,
            Implementation::new("mcp-tasks-demo", env!("CARGO_PKG_VERSION")),
        )
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams {
            meta,
            message,
            requested_schema,
        } = request
        else {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        let related = serde_json::to_value(meta).unwrap_or_default();
        let task = related["io.modelcontextprotocol/related-task"]["taskId"].as_str();
        self.printer.event(&Event::Question {
            task,
            message: &message,
        });
        let schema = serde_json::to_value(requested_schema).unwrap_or_default();
        let terminal = matches!(self.answers, Answers::Terminal);
        if terminal {
            self.thinking.store(true, Ordering::Relaxed);
            self.printer.hold();
        }
        let filled_in = tokio::select! {
            filled_in = self.fill_in(&schema) => filled_in,
            () = context.ct.cancelled() => None,
        };
        if terminal {
            self.thinking.store(false, Ordering::Relaxed);
            self.printer.release();
        }
        let (action, name) = match filled_in {
            Some(_) => (ElicitationAction::Accept, "accept"),
            None => (ElicitationAction::Cancel, "cancel"),
        };
        self.printer.event(&Event::Answer {
            task,
            action: name,
            content: filled_in.as_ref().unwrap_or(&Map::new()),
        });
        let mut result = ElicitResult::new(action);
        result.content = filled_in.map(Value::Object);
        Ok(result)
    }
}

/// Reads a line from the terminal; `None` at its end. The thread stays behind if nobody types any more.
async fn ask(name: &str, default: &Value) -> Option<String> {
    let shown = default
        .as_str()
        .map_or_else(|| default.to_string(), str::to_owned);
    eprint!("  {name} [{shown}]: ");
    let _ = io::stderr().flush();
    let (sender, line) = oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = io::stdin().read_line(&mut line);
        let _ = sender.send(read.is_ok_and(|bytes| bytes > 0).then_some(line));
    });
    let line = line.await.ok().flatten();
    if line.is_none() {
        eprintln!();
    }
    line
}
