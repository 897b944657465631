//! Tools of the inner server that become tasks: said in one line, with nothing changed in the tool.
//!
//! [`Augment`] says how, `inner` is what is needed of a server whose tools are run (an rmcp handler; later also one that
//! is somewhere else), `run` is the body of such a task, `relay` turns what the tool sends to its client into the task's
//! questions, progress and logs.

mod inner;
mod relay;
mod run;

use std::{
    collections::BTreeSet,
    future::Future,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rmcp::model::{CallToolResult, Tool};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub(crate) use inner::{Handlers, InnerTools};

use crate::runtime::{
    BeforeFn, BuildError, Recovery, Runtime, TaskContext, TaskError, TaskOptions, TaskSupport,
    TaskTool, before_fn,
};

type AfterFn = Arc<
    dyn Fn(
            TaskContext,
            CallToolResult,
        )
            -> std::pin::Pin<Box<dyn Future<Output = Result<CallToolResult, TaskError>> + Send>>
        + Send
        + Sync,
>;

/// How a tool of the inner server becomes a task: see [`TasksBuilder::augment`](crate::TasksBuilder::augment).
///
/// ```
/// use std::time::Duration;
/// use mcp_tasks::{Augment, Recovery, TaskSupport, Tasks};
///
/// let builder = Tasks::builder()
///     .augment("slow_report", TaskSupport::Optional)
///     .augment(
///         "reindex",
///         Augment::new(TaskSupport::Required)
///             .ttl(Duration::from_secs(24 * 3600))
///             .recovery(Recovery::Rerun),
///     );
/// # drop(builder);
/// ```
#[derive(Clone)]
#[must_use]
pub struct Augment {
    pub(crate) support: TaskSupport,
    pub(crate) recovery: Option<Recovery>,
    pub(crate) options: TaskOptions,
    before: Option<BeforeFn>,
    pub(crate) after: Option<AfterFn>,
}

impl From<TaskSupport> for Augment {
    fn from(support: TaskSupport) -> Self {
        Self::new(support)
    }
}

impl Augment {
    /// With the limits' defaults, and recovery as the tool's annotations say.
    pub fn new(support: TaskSupport) -> Self {
        Self {
            support,
            recovery: None,
            options: TaskOptions::new(),
            before: None,
            after: None,
        }
    }

    /// What happens to running tasks when their worker stops. If not said: [`Recovery::Rerun`] for a tool whose
    /// annotations say `idempotentHint`, [`Recovery::Fail`] for others. A tool that waits for the answers of a
    /// multi-round-trip request is gone on with in any case: nothing of it is running.
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.recovery = Some(recovery);
        self
    }

    /// The lifetime of tasks whose requestor asks for none; [`Limits::default_ttl`](crate::Limits::default_ttl) if not
    /// said.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options = self.options.ttl(ttl);
        self
    }

    /// How often requestors should ask; [`Limits::poll_interval`](crate::Limits::poll_interval) if not said.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.options = self.options.poll_interval(interval);
        self
    }

    /// What a host may tell its model at once (2025-11-25 `model-immediate-response`).
    pub fn immediate_response(mut self, text: impl Into<String>) -> Self {
        self.options = self.options.immediate_response(text);
        self
    }

    /// A stage that runs, and may ask, before a task exists. What it returns is what the tool gets as its arguments.
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

    /// What becomes of the tool's result before it is the task's.
    pub fn after<E, F, Fut>(mut self, after: F) -> Self
    where
        E: Into<TaskError> + 'static,
        F: Fn(TaskContext, CallToolResult) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<CallToolResult, E>> + Send + 'static,
    {
        let after = Arc::new(after);
        self.after = Some(Arc::new(move |cx, result| {
            let after = after.clone();
            Box::pin(async move { after(cx, result).await.map_err(Into::into) })
        }));
        self
    }
}

impl std::fmt::Debug for Augment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Augment")
            .field("support", &self.support)
            .field("recovery", &self.recovery)
            .finish_non_exhaustive()
    }
}

/// Which tools are meant.
#[derive(Clone)]
pub(crate) enum Rule {
    Named(String, Augment),
    Where(Arc<dyn Fn(&Tool) -> bool + Send + Sync>, Augment),
}

/// The inner server's tools that become tasks, as far as they are known.
#[derive(Default)]
pub(crate) struct Augmented {
    rules: Vec<Rule>,
    inner: OnceLock<Arc<dyn InnerTools>>,
    /// The tools that were looked at, whether they matched or not.
    seen: Mutex<BTreeSet<String>>,
    listed: AtomicBool,
    listing: tokio::sync::OnceCell<()>,
}

impl Augmented {
    pub(crate) fn new(rules: Vec<Rule>) -> Self {
        Self {
            rules,
            ..Self::default()
        }
    }

    /// Tools are to become tasks, and nobody said whose.
    #[cfg_attr(not(feature = "http"), allow(dead_code))]
    pub(crate) fn has_no_handler(&self) -> bool {
        !self.rules.is_empty() && self.inner.get().is_none()
    }

    /// The server whose tools are meant. What it has is looked up at once, where it can say so without waiting.
    pub(crate) fn attach(
        &self,
        runtime: &Runtime,
        inner: Arc<dyn InnerTools>,
    ) -> Result<(), BuildError> {
        if self.rules.is_empty() || self.inner.set(inner.clone()).is_err() {
            return Ok(());
        }
        let Some(tools) = inner::list_now(&inner) else {
            return Ok(());
        };
        for tool in &tools {
            self.consider(runtime, tool)?;
        }
        self.listed.store(true, Ordering::Release);
        match self.missing() {
            Some(name) => Err(BuildError::UnknownTool(name)),
            None => Ok(()),
        }
    }

    /// Sees to it that all tools were looked at, before one is called that is not known.
    pub(crate) async fn resolve(&self, runtime: &Runtime) {
        if self.rules.is_empty() || self.listed.load(Ordering::Acquire) {
            return;
        }
        self.listing
            .get_or_init(|| async {
                let Some(inner) = self.inner.get() else {
                    return;
                };
                match inner::list(inner).await {
                    Ok(tools) => {
                        for tool in &tools {
                            self.consider_or_warn(runtime, tool);
                        }
                        if let Some(name) = self.missing() {
                            tracing::warn!(tool = name, "the inner server has no such tool to augment");
                        }
                    }
                    Err(error) => tracing::warn!(
                        %error,
                        "the inner server's tools could not be listed; they become tasks when a client lists them"
                    ),
                }
                self.listed.store(true, Ordering::Release);
            })
            .await;
    }

    /// Whether a tool that was listed was never looked at.
    pub(crate) fn wants(&self, name: &str) -> bool {
        !self.rules.is_empty()
            && !self
                .seen
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .contains(name)
    }

    /// A tool that the inner server has just listed.
    pub(crate) fn consider_or_warn(&self, runtime: &Runtime, tool: &Tool) {
        if let Err(error) = self.consider(runtime, tool) {
            tracing::warn!(tool = &*tool.name, %error, "a tool cannot become a task");
        }
    }

    fn consider(&self, runtime: &Runtime, tool: &Tool) -> Result<(), BuildError> {
        let Some(inner) = self.inner.get() else {
            return Ok(());
        };
        if !self
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(tool.name.to_string())
        {
            return Ok(());
        }
        let rule = self.rules.iter().find_map(|rule| match rule {
            Rule::Named(name, augment) => (*name == *tool.name).then_some(augment),
            Rule::Where(wanted, augment) => wanted(tool).then_some(augment),
        });
        match rule {
            Some(augment) => runtime.add_tool(augmented(tool, augment, inner.clone())),
            None => Ok(()),
        }
    }

    /// A name that was given and is no tool.
    fn missing(&self) -> Option<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        self.rules.iter().find_map(|rule| match rule {
            Rule::Named(name, _) if !seen.contains(name) => Some(name.clone()),
            _ => None,
        })
    }
}

/// The tool as one whose calls are tasks.
fn augmented(tool: &Tool, augment: &Augment, inner: Arc<dyn InnerTools>) -> TaskTool {
    let idempotent = tool
        .annotations
        .as_ref()
        .is_some_and(|hints| hints.idempotent_hint == Some(true));
    let recovery = augment.recovery.unwrap_or(match idempotent {
        true => Recovery::Rerun,
        false => Recovery::Fail,
    });
    let mut made = TaskTool::new(tool.name.to_string())
        .support(augment.support)
        .options(augment.options.clone())
        .input_schema(Value::Object((*tool.input_schema).clone()))
        // The body itself knows whether it can go on: see `run`.
        .recovery(Recovery::Rerun)
        .before_raw(augment.before.clone())
        .augmented();
    if let Some(output) = &tool.output_schema {
        made = made.output_schema(Value::Object((**output).clone()));
    }
    let body = Arc::new(run::InnerBody {
        tool: tool.name.to_string(),
        inner,
        recovery,
        after: augment.after.clone(),
    });
    made.run(move |cx: TaskContext, arguments: Value| {
        let body = body.clone();
        async move { body.run(cx, arguments).await }
    })
}
