//! Answers what servers ask: by prompts at the terminal ([`prompt`]) that follow the question's schema ([`form`]), or
//! with what the command line gave ([`given`]). Without either a question is declined, and that is said.

mod form;
mod given;
mod prompt;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use mcp_tasks::client::QuestionParams;
use rmcp::{
    ClientHandler,
    model::{
        ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
        ElicitationCapability, ErrorCode, ErrorData, FormElicitationCapability, Implementation,
        RequestParamsMeta, UrlElicitationCapability,
    },
    service::{RequestContext, RoleClient},
};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    show::{Event, Show},
    signals::Interrupter,
    text,
};
pub(crate) use given::AnswerArgs;
use prompt::Reply;

/// The metadata that names the task a question belongs to.
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
const NOBODY: &str = "nobody is at a terminal to answer it";

/// The handler of this program's client. Clones are the same.
#[derive(Clone)]
pub(crate) struct Asker(Arc<Shared>);

struct Shared {
    show: Show,
    interrupter: Interrupter,
    answers: AnswerArgs,
    /// Whether somebody is at a terminal.
    terminal: bool,
    /// Whoever has the terminal.
    turn: Arc<tokio::sync::Mutex<()>>,
    left: AtomicBool,
}

/// What becomes of a question, and why if nobody said it.
enum Verdict<T> {
    Accept(T),
    Decline(Option<String>),
    Cancel,
    /// It stays open for whoever resumes.
    Open,
}

impl Asker {
    pub(crate) fn new(show: Show, interrupter: Interrupter, answers: AnswerArgs) -> Self {
        use std::io::{self, IsTerminal};
        Self(Arc::new(Shared {
            show,
            interrupter,
            answers,
            terminal: io::stdin().is_terminal() && io::stderr().is_terminal(),
            turn: Arc::default(),
            left: AtomicBool::new(false),
        }))
    }

    /// From now on questions stay open.
    pub(crate) fn leave(&self) {
        self.0.left.store(true, Ordering::Relaxed);
    }

    fn has_left(&self) -> bool {
        self.0.left.load(Ordering::Relaxed)
    }

    /// Prompts on a thread of its own, one question after the other.
    async fn prompt<T: Send + 'static>(
        &self,
        withdrawn: CancellationToken,
        prompt: impl FnOnce() -> Reply<T> + Send + 'static,
    ) -> Verdict<T> {
        let turn = tokio::select! {
            turn = self.0.turn.clone().lock_owned() => turn,
            () = withdrawn.cancelled() => return Verdict::Cancel,
        };
        if self.has_left() {
            return Verdict::Open;
        }
        let show = self.0.show.clone();
        show.hold();
        // A prompt cannot be taken away from whoever types: until they leave it, nothing else is shown.
        let prompting = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let reply = prompt();
            show.release();
            reply
        });
        let reply = tokio::select! {
            reply = prompting => reply.unwrap_or_else(|error| Reply::Broken(error.to_string())),
            () = withdrawn.cancelled() => {
                text::err("\r\n(this question is no longer open: leave it with Esc)\r");
                return Verdict::Cancel;
            }
        };
        match reply {
            Reply::Accept(value) => Verdict::Accept(value),
            Reply::Decline => Verdict::Decline(None),
            Reply::Cancel => Verdict::Cancel,
            Reply::Interrupted => {
                self.0.interrupter.interrupt();
                Verdict::Open
            }
            Reply::Broken(why) => {
                Verdict::Decline(Some(format!("the terminal does not work: {why}")))
            }
        }
    }

    async fn form(
        &self,
        message: String,
        schema: &Value,
        withdrawn: CancellationToken,
    ) -> Verdict<Map<String, Value>> {
        let fields = form::fields(schema);
        let given = match self.0.answers.fill(schema, &fields) {
            Ok(given) => given,
            Err(why) => {
                self.0.show.warn(&format!("mcp-tasks: {why}"));
                return Verdict::Decline(Some(why));
            }
        };
        let answered = !self.0.answers.is_empty();
        if answered && fields.iter().all(|field| given.contains_key(&field.name)) {
            if self.0.terminal {
                self.0
                    .show
                    .note(&format!("{message}\n(answered on the command line)"));
            }
            return Verdict::Accept(given);
        }
        if self.0.terminal {
            return self
                .prompt(withdrawn, move || prompt::form(&message, &fields, given))
                .await;
        }
        match (answered, form::complete(&fields, given)) {
            (true, Ok(complete)) => Verdict::Accept(complete),
            (true, Err(missing)) => Verdict::Decline(Some(missing)),
            (false, _) => Verdict::Decline(Some(format!("{NOBODY}, and there is no --answer"))),
        }
    }

    async fn url(
        &self,
        message: String,
        url: String,
        withdrawn: CancellationToken,
    ) -> Verdict<Map<String, Value>> {
        match self.0.terminal {
            true => {
                self.prompt(withdrawn, move || prompt::url(&message, &url))
                    .await
            }
            false => Verdict::Decline(Some(NOBODY.to_owned())),
        }
    }

    /// Tells a question; at a terminal its prompt does that.
    fn tell(&self, question: &Event<'_>) {
        if !self.0.terminal || self.0.show.is_json() {
            self.0.show.event(question);
        }
    }

    /// Tells an answer; at a terminal whoever gave it knows.
    fn told<T>(&self, task: Option<&str>, verdict: &Verdict<T>, content: Option<&Value>) {
        let (action, reason) = match verdict {
            Verdict::Accept(_) => ("accept", None),
            Verdict::Decline(reason) => ("decline", reason.as_deref()),
            Verdict::Cancel => ("cancel", None),
            Verdict::Open => return,
        };
        if self.0.terminal && reason.is_none() && !self.0.show.is_json() {
            return;
        }
        self.0.show.event(&Event::Answer {
            task,
            action,
            content,
            reason,
        });
    }
}

fn related(meta: impl serde::Serialize) -> Option<String> {
    let meta = serde_json::to_value(meta).ok()?;
    Some(meta.get(RELATED_TASK)?.get("taskId")?.as_str()?.to_owned())
}

#[allow(deprecated)] // by rmcp, for revisions after 2026-07-28
impl ClientHandler for Asker {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(
            ElicitationCapability::new()
                .with_form(FormElicitationCapability::default())
                .with_url(UrlElicitationCapability::default()),
        );
        capabilities.sampling = Some(rmcp::model::SamplingCapability::default());
        ClientConfig::new(
            capabilities,
            Implementation::new("mcp-tasks", env!("CARGO_PKG_VERSION")),
        )
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        if self.has_left() {
            return std::future::pending().await;
        }
        let task = related(&context.meta).or_else(|| related(request.meta()));
        let task = task.as_deref();
        let withdrawn = context.ct.clone();
        let verdict = match request {
            ElicitRequestParams::FormElicitationParams {
                message,
                requested_schema,
                ..
            } => {
                // rmcp's model leaves out some of what a schema says.
                let whole = context.extensions.get::<QuestionParams>();
                let whole =
                    whole.and_then(|QuestionParams(params)| params.get("requestedSchema").cloned());
                let schema = whole.unwrap_or_else(|| json!(requested_schema));
                self.tell(&Event::Question {
                    task,
                    kind: "form",
                    message: &message,
                    schema: Some(&schema),
                    url: None,
                    request: None,
                });
                self.form(message, &schema, withdrawn).await
            }
            ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
                self.tell(&Event::Question {
                    task,
                    kind: "url",
                    message: &message,
                    schema: None,
                    url: Some(&url),
                    request: None,
                });
                self.url(message, url, withdrawn).await
            }
            _ => Verdict::Decline(Some("this kind of question is not known here".to_owned())),
        };
        let content = match &verdict {
            Verdict::Accept(content) => Some(Value::Object(content.clone())),
            _ => None,
        };
        self.told(task, &verdict, content.as_ref());
        let action = match verdict {
            Verdict::Accept(_) => ElicitationAction::Accept,
            Verdict::Decline(_) => ElicitationAction::Decline,
            Verdict::Cancel => ElicitationAction::Cancel,
            Verdict::Open => return std::future::pending().await,
        };
        let mut result = ElicitResult::new(action);
        result.content = content;
        Ok(result)
    }

    async fn create_message(
        &self,
        request: rmcp::model::CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::CreateMessageResult, ErrorData> {
        use rmcp::model::{CreateMessageResult, SamplingMessage};

        if self.has_left() {
            return std::future::pending().await;
        }
        let task = related(&context.meta).or_else(|| related(&request.meta));
        let task = task.as_deref();
        let words = conversation(&request);
        self.tell(&Event::Question {
            task,
            kind: "sampling",
            message: &words,
            schema: None,
            url: None,
            request: Some(&json!(request)),
        });
        let verdict = match self.0.terminal {
            true => {
                self.prompt(context.ct.clone(), move || prompt::sampling(&words))
                    .await
            }
            false => Verdict::Decline(Some(NOBODY.to_owned())),
        };
        let content = match &verdict {
            Verdict::Accept(answer) => Some(json!(answer)),
            _ => None,
        };
        self.told(task, &verdict, content.as_ref());
        let why = match verdict {
            Verdict::Accept(answer) => {
                let message = SamplingMessage::assistant_text(answer);
                return Ok(CreateMessageResult::new(message, "a person".to_owned())
                    .with_stop_reason(CreateMessageResult::STOP_REASON_END_TURN));
            }
            Verdict::Decline(Some(why)) => format!("the user rejected the request: {why}"),
            Verdict::Decline(None) | Verdict::Cancel => "the user rejected the request".to_owned(),
            Verdict::Open => return std::future::pending().await,
        };
        Err(ErrorData::new(ErrorCode(-1), why, None))
    }

    async fn on_logging_message(
        &self,
        message: rmcp::model::LoggingMessageNotificationParam,
        _context: rmcp::service::NotificationContext<RoleClient>,
    ) {
        if self.0.show.is_verbose() {
            let data = match &message.data {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            self.0.show.note(&text::line(&format!("log: {data}")));
        }
    }
}

/// A sampling request for a person.
#[allow(deprecated)] // by rmcp, for revisions after 2026-07-28
fn conversation(request: &rmcp::model::CreateMessageRequestParams) -> String {
    let mut lines = Vec::new();
    lines.extend(
        request
            .system_prompt
            .as_ref()
            .map(|prompt| format!("system: {prompt}")),
    );
    for message in &request.messages {
        let role = serde_json::to_value(&message.role).unwrap_or_default();
        for block in message.content.clone().into_vec() {
            let words = block
                .as_text()
                .map_or("[not text]".to_owned(), |text| text.text.clone());
            lines.push(format!("{}: {words}", role.as_str().unwrap_or_default()));
        }
    }
    lines.join("\n")
}
