//! The wrapped server: tools that know nothing of tasks.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use mcp_tasks::{Augment, Question, Recovery, TaskContext, TaskError, TaskSupport, TasksBuilder};
#[allow(deprecated)]
use rmcp::{
    ErrorData, Peer, RoleServer, ServerHandler,
    handler::server::{
        tool::{InputResponses, RequestState},
        wrapper::Parameters,
    },
    model::{
        CallToolResponse, CallToolResult, ContentBlock, CreateMessageRequestParams, ElicitRequest,
        ElicitRequestParams, ElicitationAction, ElicitationSchema, Implementation, InputRequest,
        InputRequiredResult, ProgressNotificationParam, SamplingMessage, ServerCapabilities,
        ServerConfig,
    },
    service::RequestContext,
    tool, tool_handler, tool_router,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// A plain rmcp server. Clones share the counter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inner {
    counter: Arc<AtomicU64>,
}

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Slow {
    #[serde(default = "hi")]
    text: String,
    /// Milliseconds.
    #[serde(default = "some")]
    ms: u64,
}

fn hi() -> String {
    "hi".into()
}

fn some() -> u64 {
    300
}

#[derive(Deserialize, JsonSchema)]
struct Wait {
    /// Milliseconds.
    #[serde(default)]
    ms: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Prompt {
    prompt: String,
}

/// The tools that become tasks: what is said of each is all there is to it.
pub(crate) fn augment(builder: TasksBuilder) -> TasksBuilder {
    // Asked for "mrtr", it asks back before there is a task.
    let slow = Augment::new(TaskSupport::Optional).before_task(
        async |cx: TaskContext, mut args: Value| {
            if args["text"] == "mrtr" {
                let answer = cx
                    .ask(Question::form::<Name>("What is your name?")?)
                    .await?;
                let answer: Value = answer.parse()?;
                let name = answer["content"]["name"].as_str().unwrap_or("nobody");
                args["text"] = format!("mrtr {name}").into();
            }
            Ok::<_, TaskError>(args)
        },
    );
    builder
        .augment("inner_slow", slow.recovery(Recovery::Rerun))
        .augment_where(
            |tool| tool.name.starts_with("inner_"),
            TaskSupport::Optional,
        )
}

fn ask_for_name() -> ElicitRequestParams {
    let form = serde_json::json!({
        "mode": "form", "message": "What is your name?",
        "requestedSchema": {
            "type": "object", "required": ["name"],
            "properties": {"name": {"type": "string"}},
        },
    });
    serde_json::from_value(form).unwrap_or_else(|_| ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: "What is your name?".into(),
        requested_schema: ElicitationSchema::new(BTreeMap::new()),
    })
}

async fn progress(context: &RequestContext<RoleServer>, done: f64, total: f64, message: &str) {
    if let Some(token) = context.meta.get_progress_token() {
        let step = ProgressNotificationParam::new(token, done)
            .with_total(total)
            .with_message(message);
        let _ = context.peer.notify_progress(step).await;
    }
}

#[tool_router]
impl Inner {
    /// What `count_side_effects` counts.
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        self.counter.clone()
    }

    #[tool(description = "Greets somebody")]
    async fn greet(&self, Parameters(Name { name }): Parameters<Name>) -> String {
        format!("Hello, {name}!")
    }

    #[tool(description = "Says what it was told")]
    async fn plain_echo(&self, Parameters(Text { text }): Parameters<Text>) -> String {
        text
    }

    #[tool(description = "Waits, and says what it was told")]
    async fn inner_slow(
        &self,
        Parameters(Slow { text, ms }): Parameters<Slow>,
        context: RequestContext<RoleServer>,
    ) -> String {
        progress(&context, 1.0, 2.0, "waiting").await;
        tokio::time::sleep(Duration::from_millis(ms)).await;
        progress(&context, 2.0, 2.0, "done").await;
        text
    }

    #[tool(description = "Asks for a name, and greets")]
    async fn inner_ask(
        &self,
        Parameters(Wait { ms }): Parameters<Wait>,
        peer: Peer<RoleServer>,
    ) -> Result<String, ErrorData> {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        let answer = peer.create_elicitation(ask_for_name()).await;
        let answer = answer.map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
        let name = answer
            .content
            .as_ref()
            .and_then(|content| content["name"].as_str());
        Ok(match answer.action {
            ElicitationAction::Accept => format!("Hello {}", name.unwrap_or("nobody")),
            other => format!("no name: {other:?}"),
        })
    }

    #[tool(description = "Asks the client's model")]
    #[allow(deprecated)]
    async fn inner_sample(
        &self,
        Parameters(Prompt { prompt }): Parameters<Prompt>,
        peer: Peer<RoleServer>,
    ) -> Result<String, ErrorData> {
        let params = CreateMessageRequestParams::new(vec![SamplingMessage::user_text(prompt)], 100);
        let sampled = peer.create_message(params).await;
        let sampled = sampled.map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
        serde_json::to_string(&sampled).map_err(|e| ErrorData::internal_error(e.to_string(), None))
    }

    #[tool(description = "Asks for a name in rounds, without a peer, and greets")]
    async fn inner_mrtr(&self, state: RequestState, answers: InputResponses) -> CallToolResponse {
        let name = answers
            .0
            .as_ref()
            .and_then(|answers| answers["name"]["content"]["name"].as_str());
        match (state.0.as_deref(), name) {
            (Some("asked"), Some(name)) => {
                let text = format!("Hello {name}");
                CallToolResult::success(vec![ContentBlock::text(text)]).into()
            }
            _ => {
                let request = InputRequest::Elicitation(ElicitRequest::new(ask_for_name()));
                let asked = BTreeMap::from([("name".to_owned(), request)]);
                InputRequiredResult::new(Some(asked), Some("asked".into())).into()
            }
        }
    }

    #[tool(description = "Panics")]
    async fn inner_panics(&self) -> String {
        panic!("on purpose")
    }

    #[tool(description = "Works on, whether it is cancelled or not")]
    async fn inner_ignores_cancel(&self, Parameters(Wait { ms }): Parameters<Wait>) -> String {
        let until = tokio::time::Instant::now() + Duration::from_millis(ms);
        while tokio::time::Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.counter.fetch_add(1, Ordering::Relaxed);
        }
        "done".into()
    }

    #[tool(description = "How far count_side_effects has counted in this process")]
    async fn read_counter(&self) -> String {
        self.counter.load(Ordering::Relaxed).to_string()
    }
}

#[tool_handler]
impl ServerHandler for Inner {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build()).with_server_info(
            Implementation::new("fixture-server", env!("CARGO_PKG_VERSION")),
        )
    }
}
