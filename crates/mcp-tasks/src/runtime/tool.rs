//! Task tools: what they are called, what they take, and what runs when they are called.

use std::{borrow::Cow, future::Future, pin::Pin, sync::Arc, time::Duration};

use rmcp::model::{CallToolResult, ContentBlock, Icon, MetaObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    BuildError, CreateContext, CreatedTask, Limits, PollContext, TaskContext, TaskError,
    schema::{self, ParamHeader, Schema},
};
use crate::task::RawJson;

/// Whether a tool is called as a task (2025-11-25 `server/tools`, `execution.taskSupport`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaskSupport {
    /// Only as a task. Clients without tasks are refused, or (before 2025-11-25) served as if it were optional.
    #[default]
    Required,
    /// Either way: a plain call waits for the same body.
    Optional,
    /// Never as a task: a plain call that waits for the body.
    Forbidden,
}

impl TaskSupport {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Optional => "optional",
            Self::Forbidden => "forbidden",
        }
    }
}

/// What happens to a running task whose worker stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recovery {
    /// It fails: "the worker running this task stopped".
    #[default]
    Fail,
    /// Another worker runs the body again: with [`TaskContext::attempt`] raised, the last checkpoint, and the answers
    /// that were given before.
    Rerun,
}

/// What a `.create` handler decides about its task.
#[derive(Debug, Clone, Default)]
pub struct TaskOptions {
    pub(crate) ttl: Option<Duration>,
    pub(crate) poll_interval: Option<Duration>,
    pub(crate) id: Option<String>,
    pub(crate) external_id: Option<String>,
    pub(crate) status_message: Option<String>,
    pub(crate) immediate_response: Option<String>,
}

impl TaskOptions {
    /// The tool's own settings, and an id of ours.
    pub fn new() -> Self {
        Self::default()
    }

    /// The lifetime, unless the requestor asked for one; clamped to [`Limits::max_ttl`].
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How often requestors should ask; not below [`Limits::min_poll_interval`].
    #[must_use]
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = Some(interval);
        self
    }

    /// An id of your own: 22 to 128 characters of `[A-Za-z0-9_.:-]`, unguessable by your word. One that exists is a
    /// conflict, never an overwrite.
    #[must_use]
    pub fn proposed_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The job's name in an outside system, by which [`TaskHandle`](super::TaskHandle) finds the task.
    #[must_use]
    pub fn external_id(mut self, id: impl Into<String>) -> Self {
        self.external_id = Some(id.into());
        self
    }

    /// What a person is told while it works.
    #[must_use]
    pub fn status_message(mut self, message: impl Into<String>) -> Self {
        self.status_message = Some(message.into());
        self
    }

    /// What a host may tell its model at once.
    #[must_use]
    pub fn immediate_response(mut self, text: impl Into<String>) -> Self {
        self.immediate_response = Some(text.into());
        self
    }
}

/// What a body may return.
pub trait IntoTaskResult {
    /// The tool result it stands for.
    ///
    /// # Errors
    /// If it has no JSON form.
    fn into_task_result(self) -> Result<CallToolResult, TaskError>;
}

impl IntoTaskResult for CallToolResult {
    fn into_task_result(self) -> Result<CallToolResult, TaskError> {
        Ok(self)
    }
}

impl IntoTaskResult for String {
    fn into_task_result(self) -> Result<CallToolResult, TaskError> {
        Ok(CallToolResult::success(vec![ContentBlock::text(self)]))
    }
}

impl IntoTaskResult for &str {
    fn into_task_result(self) -> Result<CallToolResult, TaskError> {
        self.to_owned().into_task_result()
    }
}

impl IntoTaskResult for () {
    fn into_task_result(self) -> Result<CallToolResult, TaskError> {
        Ok(CallToolResult::success(Vec::new()))
    }
}

/// Structured output: the value as `structuredContent`, and as text for clients that do not read that.
#[derive(Debug, Clone)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoTaskResult for Json<T> {
    fn into_task_result(self) -> Result<CallToolResult, TaskError> {
        Ok(CallToolResult::structured(serde_json::to_value(self.0)?))
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = Result<T, TaskError>> + Send>>;
pub(crate) type BodyFn = Arc<dyn Fn(TaskContext, RawJson) -> Boxed<CallToolResult> + Send + Sync>;
pub(crate) type BeforeFn = Arc<dyn Fn(TaskContext, RawJson) -> Boxed<RawJson> + Send + Sync>;
pub(crate) type CreateFn = Arc<dyn Fn(CreateContext, RawJson) -> Boxed<CreatedTask> + Send + Sync>;
pub(crate) type PollFn = Arc<dyn Fn(PollContext) -> Boxed<()> + Send + Sync>;

#[derive(Clone)]
pub(crate) enum Body {
    Run(BodyFn),
    /// Gives its result as it is: the request was no tool call.
    #[cfg_attr(not(feature = "client"), allow(dead_code))]
    Raw(BeforeFn),
    Create(CreateFn),
}

/// A tool whose calls are tasks.
///
/// ```
/// use mcp_tasks::{TaskContext, TaskError, TaskTool};
/// use schemars::JsonSchema;
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Args {
///     steps: u32,
/// }
///
/// let tool = TaskTool::new("count")
///     .description("Counts slowly")
///     .input::<Args>()
///     .run(async |cx: TaskContext, args: Args| {
///         for step in 0..args.steps {
///             cx.progress(f64::from(step), Some(f64::from(args.steps)), None);
///         }
///         Ok::<_, TaskError>(format!("counted to {}", args.steps))
///     });
/// ```
#[derive(Clone)]
#[must_use]
pub struct TaskTool {
    name: String,
    title: Option<String>,
    description: Option<String>,
    input: Option<Value>,
    output: Option<Value>,
    annotations: Option<ToolAnnotations>,
    icons: Option<Vec<Icon>>,
    meta: Option<MetaObject>,
    support: TaskSupport,
    recovery: Recovery,
    options: TaskOptions,
    before: Option<BeforeFn>,
    body: Option<Body>,
    on_get: Option<PollFn>,
    on_result: Option<PollFn>,
    augmented: bool,
}

impl TaskTool {
    /// A tool of this name; the name may not be empty.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: None,
            input: None,
            output: None,
            annotations: None,
            icons: None,
            meta: None,
            support: TaskSupport::default(),
            recovery: Recovery::default(),
            options: TaskOptions::default(),
            before: None,
            body: None,
            on_get: None,
            on_result: None,
            augmented: false,
        }
    }

    /// It is a tool of the inner server, which lists it itself.
    pub(crate) fn augmented(mut self) -> Self {
        self.augmented = true;
        self
    }

    /// The tool's own settings, all at once.
    pub(crate) fn options(mut self, options: TaskOptions) -> Self {
        self.options = options;
        self
    }

    pub(crate) fn before_raw(mut self, before: Option<BeforeFn>) -> Self {
        self.before = before;
        self
    }

    /// A name for people.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// What it does; its name if not said.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// The arguments are a `T`; its schema is made by `schemars`.
    pub fn input<T: JsonSchema>(self) -> Self {
        self.input_schema(schema_of::<T>())
    }

    /// The arguments' JSON schema; `{"type": "object"}` if not said.
    pub fn input_schema(mut self, schema: Value) -> Self {
        self.input = Some(schema);
        self
    }

    /// Structured output is a `T`; checked before it is stored.
    pub fn output<T: JsonSchema>(self) -> Self {
        self.output_schema(schema_of::<T>())
    }

    /// The JSON schema of structured output; checked before it is stored.
    pub fn output_schema(mut self, schema: Value) -> Self {
        self.output = Some(schema);
        self
    }

    /// Hints for hosts.
    pub fn annotations(mut self, annotations: ToolAnnotations) -> Self {
        self.annotations = Some(annotations);
        self
    }

    /// Icons for hosts.
    pub fn icons(mut self, icons: Vec<Icon>) -> Self {
        self.icons = Some(icons);
        self
    }

    /// The definition's `_meta`.
    pub fn meta(mut self, meta: MetaObject) -> Self {
        self.meta = Some(meta);
        self
    }

    /// Whether it is called as a task; required if not said.
    pub fn support(mut self, support: TaskSupport) -> Self {
        self.support = support;
        self
    }

    /// What happens to running tasks when their worker stops; they fail if not said.
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.recovery = recovery;
        self
    }

    /// The lifetime of tasks whose requestor asks for none; [`Limits::default_ttl`] if not said.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = Some(ttl);
        self
    }

    /// How often requestors should ask; [`Limits::poll_interval`] if not said.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.options.poll_interval = Some(interval);
        self
    }

    /// What a host may tell its model at once (2025-11-25 `model-immediate-response`).
    pub fn immediate_response(mut self, text: impl Into<String>) -> Self {
        self.options.immediate_response = Some(text.into());
        self
    }

    /// A stage that runs, and may ask, before a task exists. What it returns is what the body gets as its arguments.
    pub fn before_task<A, B, E, F, Fut>(mut self, before: F) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        B: Serialize + Send + 'static,
        E: Into<TaskError> + 'static,
        F: Fn(TaskContext, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<B, E>> + Send + 'static,
    {
        self.before = Some(before_fn(before));
        self
    }

    /// The body. Its return value, error or panic is the task's outcome.
    pub fn run<A, R, E, F, Fut>(mut self, body: F) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: IntoTaskResult + 'static,
        E: Into<TaskError> + 'static,
        F: Fn(TaskContext, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        let body = Arc::new(body);
        self.body = Some(Body::Run(Arc::new(move |cx, raw| {
            let body = body.clone();
            Box::pin(async move {
                let arguments = parse_arguments(&raw)?;
                body(cx, arguments)
                    .await
                    .map_err(Into::into)?
                    .into_task_result()
            })
        })));
        self
    }

    /// The body of a request that is no tool call: what it returns is the outcome as it is.
    #[cfg(feature = "client")]
    pub(crate) fn run_raw<F, Fut>(mut self, body: F) -> Self
    where
        F: Fn(TaskContext, RawJson) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<RawJson, TaskError>> + Send + 'static,
    {
        self.body = Some(Body::Raw(Arc::new(move |cx, raw| Box::pin(body(cx, raw)))));
        self
    }

    /// A handler that creates the task ([`CreateContext::create_task`]), hands its id to work elsewhere and returns
    /// at once. Whoever holds a [`TaskHandle`](super::TaskHandle) ends it later, in this process or another.
    pub fn create<A, E, F, Fut>(mut self, create: F) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        E: Into<TaskError> + 'static,
        F: Fn(CreateContext, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<CreatedTask, E>> + Send + 'static,
    {
        let create = Arc::new(create);
        self.body = Some(Body::Create(Arc::new(move |cx, raw| {
            let create = create.clone();
            Box::pin(async move {
                let arguments = parse_arguments(&raw)?;
                create(cx, arguments).await.map_err(Into::into)
            })
        })));
        self
    }

    /// Called when a requestor asks for the state of a task that has not ended, for job systems that are asked
    /// lazily: update or end the task through [`PollContext::handle`]. An error reaches the requestor.
    pub fn on_get<E, F, Fut>(mut self, ask: F) -> Self
    where
        E: Into<TaskError> + 'static,
        F: Fn(PollContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
    {
        self.on_get = Some(poll_fn(ask));
        self
    }

    /// The same, called when a requestor waits for the result, and once every poll interval while it does.
    /// [`on_get`](Self::on_get) if not said.
    pub fn on_result<E, F, Fut>(mut self, ask: F) -> Self
    where
        E: Into<TaskError> + 'static,
        F: Fn(PollContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
    {
        self.on_result = Some(poll_fn(ask));
        self
    }

    pub(crate) fn build(self, limits: &Limits) -> Result<ToolEntry, BuildError> {
        let name = self.name.clone();
        let wrong = |why: String| BuildError::Tool {
            tool: name.clone(),
            why,
        };
        if self.name.trim().is_empty() {
            return Err(wrong("a tool needs a name".into()));
        }
        let object = |what: &str, schema: Value| match schema {
            Value::Object(object) => Ok(Arc::new(object)),
            other => Err(wrong(format!(
                "the {what} schema must be a JSON object, got {other}"
            ))),
        };
        let input = object(
            "input",
            self.input.unwrap_or_else(|| json!({"type": "object"})),
        )?;
        schema::check_input(&input).map_err(&wrong)?;
        let param_headers = schema::param_headers(&input);
        let input_schema = Schema::compile(&input)
            .map_err(|e| wrong(format!("the input schema is not valid: {e}")))?;
        let output = self
            .output
            .map(|schema| object("output", schema))
            .transpose()?;
        let output_schema = output
            .as_deref()
            .map(Schema::compile)
            .transpose()
            .map_err(|e| wrong(format!("the output schema is not valid: {e}")))?;
        let body = self
            .body
            .ok_or_else(|| wrong("it has neither .run nor .create".into()))?;
        if matches!(body, Body::Run(_)) && (self.on_get.is_some() || self.on_result.is_some()) {
            return Err(wrong(
                ".on_get and .on_result belong to .create tools".into(),
            ));
        }
        if self
            .options
            .ttl
            .is_some_and(|ttl| ttl < Duration::from_millis(1))
        {
            return Err(wrong("its ttl must be at least 1 ms".into()));
        }
        if let Some(interval) = self
            .options
            .poll_interval
            .filter(|i| *i < limits.min_poll_interval)
        {
            return Err(wrong(format!(
                "its poll interval of {interval:?} is below the minimum of {:?}",
                limits.min_poll_interval
            )));
        }
        let mut tool = Tool::new_with_raw(
            self.name.clone(),
            Some(Cow::Owned(
                self.description.unwrap_or_else(|| self.name.clone()),
            )),
            input,
        );
        tool.title = self.title;
        tool.output_schema = output;
        tool.annotations = self.annotations;
        tool.icons = self.icons;
        tool.meta = self.meta;
        let plain = RawJson::from_serialize(&tool).map_err(|e| wrong(e.to_string()))?;
        let listed = with_execution(&tool, self.support).map_err(|e| wrong(e.to_string()))?;
        Ok(ToolEntry {
            name: self.name.into(),
            support: self.support,
            recovery: self.recovery,
            options: self.options,
            plain,
            listed,
            param_headers,
            input_schema,
            output_schema,
            before: self.before,
            body,
            on_get: self.on_get,
            on_result: self.on_result,
            augmented: self.augmented,
        })
    }
}

impl std::fmt::Debug for TaskTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskTool")
            .field("name", &self.name)
            .field("support", &self.support)
            .finish_non_exhaustive()
    }
}

/// The definition as 2025-11-25 lists it. An output schema whose root is no object is unknown to that revision.
fn with_execution(tool: &Tool, support: TaskSupport) -> Result<RawJson, serde_json::Error> {
    let mut value = serde_json::to_value(tool)?;
    if let Some(members) = value.as_object_mut() {
        let object_output = members
            .get("outputSchema")
            .is_none_or(|schema| schema["type"] == "object");
        if !object_output {
            members.remove("outputSchema");
        }
        members.insert("execution".into(), json!({"taskSupport": support.as_str()}));
    }
    RawJson::from_serialize(&value)
}

/// A stage before a task, as it is kept.
pub(crate) fn before_fn<A, B, E, F, Fut>(before: F) -> BeforeFn
where
    A: DeserializeOwned + Send + 'static,
    B: Serialize + Send + 'static,
    E: Into<TaskError> + 'static,
    F: Fn(TaskContext, A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<B, E>> + Send + 'static,
{
    let before = Arc::new(before);
    Arc::new(move |cx, raw| {
        let before = before.clone();
        Box::pin(async move {
            let arguments = parse_arguments(&raw)?;
            let next = before(cx, arguments).await.map_err(Into::into)?;
            Ok(RawJson::from_serialize(&next)?)
        })
    })
}

fn poll_fn<E, F, Fut>(ask: F) -> PollFn
where
    E: Into<TaskError> + 'static,
    F: Fn(PollContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
{
    let ask = Arc::new(ask);
    Arc::new(move |cx| {
        let ask = ask.clone();
        Box::pin(async move { ask(cx).await.map_err(Into::into) })
    })
}

fn parse_arguments<A: DeserializeOwned>(raw: &RawJson) -> Result<A, TaskError> {
    raw.parse()
        .map_err(|e| TaskError::invalid_params(format!("arguments: {e}")))
}

fn schema_of<T: JsonSchema>() -> Value {
    let mut schema = schemars::generate::SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    // A unit or empty struct says nothing; an object is what arguments are.
    if let Some(members) = schema.as_object_mut() {
        let unset = members.get("type").is_none_or(|t| t == "null");
        if unset
            && !members
                .keys()
                .any(|key| matches!(key.as_str(), "$ref" | "oneOf" | "anyOf" | "allOf"))
        {
            members.insert("type".into(), json!("object"));
        } else if unset {
            members.entry("type").or_insert_with(|| json!("object"));
        }
    }
    schema
}

/// A tool ready to be called.
pub(crate) struct ToolEntry {
    pub(crate) name: Arc<str>,
    pub(crate) support: TaskSupport,
    pub(crate) recovery: Recovery,
    pub(crate) options: TaskOptions,
    /// The definition without `execution`.
    pub(crate) plain: RawJson,
    /// The definition with `execution`, for 2025-11-25.
    pub(crate) listed: RawJson,
    /// The parameters that clients of 2026-07-28 repeat in headers.
    #[cfg_attr(not(feature = "http"), allow(dead_code))]
    pub(crate) param_headers: Vec<ParamHeader>,
    pub(crate) input_schema: Schema,
    pub(crate) output_schema: Option<Schema>,
    pub(crate) before: Option<BeforeFn>,
    pub(crate) body: Body,
    pub(crate) on_get: Option<PollFn>,
    pub(crate) on_result: Option<PollFn>,
    /// A tool of the inner server, which lists it itself.
    pub(crate) augmented: bool,
}

impl ToolEntry {
    /// Whether its tasks are created by a handler, which may give them ids of its own.
    pub(crate) fn makes_own_ids(&self) -> bool {
        matches!(self.body, Body::Create(_))
    }
}

#[cfg(test)]
#[path = "tool_tests.rs"]
mod tests;
