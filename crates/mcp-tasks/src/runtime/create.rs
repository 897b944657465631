//! From a call to a task.

use std::{sync::Arc, time::Duration};

use rmcp::model::Extensions;

use super::{
    CreateContext, Inner, ReadError, Requestor, TaskContext, TaskError, TaskOptions, ToolEntry,
    limits::millis, run, tool::Body,
};
use crate::{
    store::{InsertError, Quota, QuotaScope, StoreError},
    task::{ErrorObject, NewTask, Origin, RawJson, TaskId, TaskRecord},
};

/// A call of a task tool.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Call {
    /// The tool.
    pub tool: Arc<str>,
    /// The arguments; `{}` if there are none.
    pub arguments: Option<RawJson>,
    /// The request's `_meta`.
    pub meta: Option<RawJson>,
    /// The request's progress token.
    pub progress_token: Option<RawJson>,
    /// Who calls.
    pub requestor: Requestor,
    /// Whose share of the per-owner limit it takes.
    pub quota_key: Option<Arc<str>>,
    /// The lifetime asked for in milliseconds: `None` nothing, `Some(None)` unlimited.
    pub ttl: Option<Option<u64>>,
    /// Run it behind an ordinary call.
    pub hidden: bool,
    /// Run the tool's stage before a task exists, not its body.
    pub before: bool,
    /// The arguments were checked before (they come from the stage before).
    pub checked: bool,
    /// The id to give it, when its creator has to know it beforehand.
    pub id: Option<TaskId>,
    /// What the transport and the layers in front of it know of the request. Lives no longer than the process.
    pub extensions: Extensions,
}

impl Call {
    /// A plain call of `tool` by `requestor`.
    pub fn new(tool: impl Into<Arc<str>>, requestor: Requestor) -> Self {
        let quota_key = requestor
            .owner
            .name()
            .map(|name| format!("owner:{name}").into());
        Self {
            tool: tool.into(),
            arguments: None,
            meta: None,
            progress_token: None,
            requestor,
            quota_key,
            ttl: None,
            hidden: false,
            before: false,
            checked: false,
            id: None,
            extensions: Extensions::default(),
        }
    }
}

/// Why no task came of a call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// There is no such tool.
    #[error("unknown tool: {0}")]
    UnknownTool(String),
    /// The arguments do not match the tool's input schema; names the place.
    #[error("{0}")]
    Arguments(String),
    /// A limit is reached; names it.
    #[error("{0}")]
    Limit(String),
    /// A proposed id is taken or not allowed.
    #[error("{0}")]
    Id(String),
    /// The `.create` handler failed.
    #[error("{}", .0.message)]
    Handler(ErrorObject),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CreateError {
    /// The JSON-RPC error this is to a requestor.
    pub fn into_rpc(self) -> ErrorObject {
        match self {
            Self::UnknownTool(_) | Self::Arguments(_) | Self::Id(_) => {
                ErrorObject::new(-32602, self.to_string())
            }
            Self::Limit(_) | Self::ShuttingDown => ErrorObject::new(-32000, self.to_string()),
            Self::Handler(error) => error,
            Self::Store(error) => ErrorObject::from(&error),
        }
    }
}

/// A task that is about to be created.
pub(crate) struct Draft {
    pub(crate) tool: Arc<ToolEntry>,
    pub(crate) requestor: Requestor,
    pub(crate) origin: Arc<Origin>,
    id: Option<TaskId>,
    quota_key: Option<Arc<str>>,
    hidden: bool,
    runs_here: bool,
}

/// Creation is a task of its own: once begun it ends, whatever becomes of the request.
pub(crate) async fn create(inner: &Arc<Inner>, call: Call) -> Result<Arc<TaskRecord>, CreateError> {
    let tool = inner
        .tool(&call.tool)
        .ok_or_else(|| CreateError::UnknownTool(call.tool.to_string()))?;
    if inner.closing.is_cancelled() {
        return Err(CreateError::ShuttingDown);
    }
    let arguments = check_arguments(inner, &tool, &call)?;
    inner.ensure_worker().await?;
    let inner = inner.clone();
    let created = tokio::spawn(async move { create_detached(&inner, tool, call, arguments).await });
    match created.await {
        Ok(created) => created,
        Err(_panic_or_abort) => Err(CreateError::Handler(ErrorObject::internal(
            "the task could not be created",
        ))),
    }
}

fn check_arguments(inner: &Inner, tool: &ToolEntry, call: &Call) -> Result<RawJson, CreateError> {
    let arguments = match &call.arguments {
        Some(arguments) => arguments.clone(),
        None => RawJson::from_text("{}").map_err(|e| CreateError::Arguments(e.to_string()))?,
    };
    let limit = inner.engine.limits.arguments;
    if arguments.get().len() > limit {
        let size = arguments.get().len();
        return Err(CreateError::Arguments(format!(
            "arguments: {size} bytes exceed the limit of {limit} bytes"
        )));
    }
    if !call.checked {
        tool.input_schema
            .check_raw("arguments", &arguments)
            .map_err(CreateError::Arguments)?;
    }
    Ok(arguments)
}

async fn create_detached(
    inner: &Arc<Inner>,
    tool: Arc<ToolEntry>,
    call: Call,
    arguments: RawJson,
) -> Result<Arc<TaskRecord>, CreateError> {
    let requestor = call.requestor;
    let origin = Arc::new(Origin {
        tool: tool.name.clone(),
        arguments: arguments.clone(),
        meta: call.meta,
        generation: requestor.generation,
        capabilities: requestor.capabilities.clone(),
        client_info: requestor.client_info.clone(),
        progress_token: call.progress_token,
        session: requestor.session.clone(),
        before: call.before,
        requested_ttl: call.ttl,
    });
    let runs_here = call.before || !matches!(tool.body, Body::Create(_));
    let draft = Draft {
        tool: tool.clone(),
        requestor,
        origin,
        id: call.id,
        quota_key: call.quota_key,
        hidden: call.hidden,
        runs_here,
    };
    match &tool.body {
        Body::Create(create) if !call.before => {
            let context = CreateContext::new(inner.clone(), draft);
            let made = run::contained(|| create(context.clone(), arguments)).await;
            match (made, context.close()) {
                // What the handler has already done to it is part of the record that is answered.
                (Ok(_), Some(record)) => match inner
                    .engine
                    .get(&record.id, &crate::store::Access::System)
                    .await
                {
                    Ok(record) => Ok(record),
                    Err(ReadError::Store(error)) => Err(error.into()),
                    Err(_) => Ok(record),
                },
                (Ok(_), None) => Err(CreateError::Handler(ErrorObject::internal(
                    "the tool's handler answered with a task that is not this call's",
                ))),
                (Err(error), created) => {
                    if let Some(record) = created {
                        inner.engine.remove(&record.id).await?;
                    }
                    Err(CreateError::Handler(error.into_rpc()))
                }
            }
        }
        _ => {
            let record = draft.insert(inner, TaskOptions::default()).await?;
            run::start(inner, tool, record.clone(), call.extensions);
            Ok(record)
        }
    }
}

impl Draft {
    /// Writes the first record.
    pub(crate) async fn insert(
        &self,
        inner: &Arc<Inner>,
        options: TaskOptions,
    ) -> Result<Arc<TaskRecord>, CreateError> {
        let limits = &inner.engine.limits;
        let tool = &self.tool.options;
        let id = match (options.id, &self.id) {
            (Some(proposed), _) => {
                TaskId::proposed(proposed).map_err(|e| CreateError::Id(e.to_string()))?
            }
            (None, Some(id)) => id.clone(),
            (None, None) => TaskId::random(),
        };
        if options
            .ttl
            .is_some_and(|ttl| ttl < Duration::from_millis(1))
        {
            let why = "the ttl of a task must be at least 1 ms";
            return Err(CreateError::Handler(ErrorObject::internal(why)));
        }
        let poll_interval = options
            .poll_interval
            .or(tool.poll_interval)
            .unwrap_or(limits.poll_interval);
        let text = |given: Option<String>, tools: &Option<String>| {
            given.or_else(|| tools.clone()).map(Into::into)
        };
        let new = NewTask {
            id,
            owner: self.requestor.owner.clone(),
            quota_key: self.quota_key.clone(),
            hidden: self.hidden,
            ttl_ms: Some(limits.grant_ttl(self.origin.requested_ttl, options.ttl.or(tool.ttl))),
            poll_interval_ms: millis(
                poll_interval
                    .max(limits.min_poll_interval)
                    .max(Duration::from_millis(1)),
            ),
            status_message: text(options.status_message, &tool.status_message),
            worker: self.runs_here.then(|| inner.worker.clone()),
            external_id: options.external_id.map(Into::into),
            immediate_response: text(options.immediate_response, &tool.immediate_response),
            origin: self.origin.clone(),
        };
        let record = Arc::new(TaskRecord::create(new, inner.engine.clock.now()));
        let quota = Quota {
            total: limits.tasks,
            per_key: limits.tasks_per_owner,
        };
        let mut inserted = inner.engine.store.insert(record.clone(), quota).await;
        if matches!(inserted, Err(InsertError::Quota { .. })) {
            // What has expired counts until it is reclaimed: that is due now.
            inner.sweep().await?;
            inserted = inner.engine.store.insert(record.clone(), quota).await;
        }
        inserted.map_err(|error| match error {
            InsertError::Conflict(what) => {
                CreateError::Id(format!("a task with this {what} already exists"))
            }
            InsertError::Quota { scope, limit } => CreateError::Limit(match scope {
                QuotaScope::Total => format!("the limit of {limit} tasks in all is reached"),
                QuotaScope::PerKey => format!("the limit of {limit} tasks per owner is reached"),
            }),
            InsertError::Store(error) => CreateError::Store(error),
        })?;
        tracing::info!(task = %record.id, tool = &*record.origin.tool, hidden = record.hidden, "task created");
        inner.engine.hub.publish(&record);
        Ok(record)
    }
}

/// The context of a body, and what tells it to end. Here, since creation and recovery both need it.
pub(crate) fn context(
    inner: &Arc<Inner>,
    record: &Arc<TaskRecord>,
    extensions: Extensions,
) -> (TaskContext, super::hub::RunSignals) {
    let signals = super::hub::RunSignals {
        attempt: record.attempt,
        cancel: tokio_util::sync::CancellationToken::new(),
        stop: inner.stop.child_token(),
    };
    let fence = crate::task::Fence {
        worker: inner.worker.clone(),
        attempt: record.attempt,
    };
    (
        TaskContext::new(
            inner.clone(),
            record.clone(),
            fence,
            signals.clone(),
            extensions,
        ),
        signals,
    )
}

impl From<CreateError> for TaskError {
    fn from(error: CreateError) -> Self {
        Self::relayed(error.into_rpc())
    }
}
