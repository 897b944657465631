//! Building a server's task plane.

use std::{sync::Arc, time::Duration};

use super::{
    augment::{Augment, Rule},
    plane::Plane,
    v2026_07_28::StateKey,
};
use crate::{
    runtime::{BuildError, Limits, Runtime, TaskHandle, TaskTool},
    store::{MemoryStore, StoreError, TaskStore},
    task::{Clock, TaskId},
};

/// Tells whom a request stands for; `None` refuses it.
#[cfg(feature = "http")]
pub(crate) type OwnerRule =
    Arc<dyn Fn(&http::request::Parts) -> Option<crate::task::Owner> + Send + Sync>;

/// Task tools in front of an MCP server: see the [crate docs](crate) for a whole one.
#[derive(Clone)]
pub struct Tasks {
    pub(crate) plane: Arc<Plane>,
    #[cfg(feature = "http")]
    pub(crate) owner: Option<OwnerRule>,
    #[cfg(feature = "http")]
    pub(crate) strict_names: bool,
}

/// Collects what a [`Tasks`] is made of.
#[must_use]
pub struct TasksBuilder {
    store: Arc<dyn TaskStore>,
    limits: Limits,
    clock: Clock,
    tools: Vec<TaskTool>,
    rules: Vec<Rule>,
    state_key: Option<Vec<u8>>,
    tells_server: bool,
    #[cfg(feature = "http")]
    owner: Option<OwnerRule>,
    #[cfg(feature = "http")]
    strict_names: bool,
}

impl Tasks {
    /// Begins with a [`MemoryStore`], the default [`Limits`] and no tools.
    pub fn builder() -> TasksBuilder {
        TasksBuilder {
            store: Arc::new(MemoryStore::new()),
            limits: Limits::default(),
            clock: Clock::system(),
            tools: Vec::new(),
            rules: Vec::new(),
            state_key: None,
            tells_server: true,
            #[cfg(feature = "http")]
            owner: None,
            #[cfg(feature = "http")]
            strict_names: false,
        }
    }

    /// Adds a tool at run time; connected clients are told that the list changed.
    ///
    /// # Errors
    /// See [`Runtime::add_tool`].
    pub fn add_tool(&self, tool: TaskTool) -> Result<(), BuildError> {
        self.plane.runtime.add_tool(tool)?;
        self.plane.tools_changed();
        Ok(())
    }

    /// Removes a tool at run time; whether it was there. Its running tasks go on.
    pub fn remove_tool(&self, name: &str) -> bool {
        let removed = self.plane.runtime.remove_tool(name);
        if removed {
            self.plane.tools_changed();
        }
        removed
    }

    /// A handle on a task of this store, with which its work outside ends it.
    ///
    /// # Errors
    /// The store's.
    pub async fn handle(&self, id: &str) -> Result<Option<TaskHandle>, StoreError> {
        self.plane.runtime.handle(&TaskId::from_stored(id)).await
    }

    /// The runtime underneath.
    pub fn runtime(&self) -> &Runtime {
        &self.plane.runtime
    }

    /// Ends gracefully: see [`Runtime::shutdown`]. Waiting requests are answered or their streams closed.
    pub async fn shutdown(&self, patience: Duration) {
        self.plane.runtime.shutdown(patience).await;
    }
}

impl TasksBuilder {
    /// Where tasks are kept.
    pub fn store(self, store: impl TaskStore) -> Self {
        self.shared_store(Arc::new(store))
    }

    /// The same for a store that others use too.
    pub fn shared_store(mut self, store: Arc<dyn TaskStore>) -> Self {
        self.store = store;
        self
    }

    /// The limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Where the time is read; for tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Adds a tool.
    pub fn tool(mut self, tool: TaskTool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds tools.
    pub fn tools(mut self, tools: impl IntoIterator<Item = TaskTool>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// Makes calls of a tool of the inner server tasks. Nothing changes in the tool: it runs as its requestor would have
    /// called it, what it asks becomes the task's questions, and its progress and logs the task's.
    ///
    /// A name that is no tool is refused when the server is built, where its tools are known then; else there is a
    /// warning.
    pub fn augment(mut self, tool: impl Into<String>, augment: impl Into<Augment>) -> Self {
        self.rules.push(Rule::Named(tool.into(), augment.into()));
        self
    }

    /// The same for every tool that `wanted` accepts, by its annotations, `_meta` or name. The first rule that fits a
    /// tool counts.
    pub fn augment_where(
        mut self,
        wanted: impl Fn(&rmcp::model::Tool) -> bool + Send + Sync + 'static,
        augment: impl Into<Augment>,
    ) -> Self {
        self.rules
            .push(Rule::Where(Arc::new(wanted), augment.into()));
        self
    }

    /// The key that seals the state which a client of 2026-07-28 brings back with its answers (`basic/patterns/mrtr`):
    /// at least 32 random bytes, the same on all replicas. Without it one is generated and kept in the store.
    pub fn request_state_key(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.state_key = Some(key.into());
        self
    }

    /// Whether results of 2026-07-28 say who answers, in `_meta` (they do).
    pub fn server_info_in_results(mut self, tells: bool) -> Self {
        self.tells_server = tells;
        self
    }

    /// Over HTTP: whether a `tasks/*` request of 2026-07-28 without the header `Mcp-Name` is refused. It is not: a
    /// popular client does not send it.
    #[cfg(feature = "http")]
    pub fn strict_mcp_name(mut self, strict: bool) -> Self {
        self.strict_names = strict;
        self
    }

    /// Over HTTP: whom a request stands for, from its headers or from what an authentication layer put into its
    /// extensions. Tasks are bound to that name and nobody else can tell that they exist; `None` is answered 401.
    /// With it `tasks/list` is offered (2025-11-25 `basic/utilities/tasks`, Task Isolation and Access Control).
    #[cfg(feature = "http")]
    pub fn owner<F, N>(mut self, rule: F) -> Self
    where
        F: Fn(&http::request::Parts) -> Option<N> + Send + Sync + 'static,
        N: Into<String>,
    {
        self.owner = Some(Arc::new(move |parts| {
            rule(parts).map(|name| crate::task::Owner::principal(name.into()))
        }));
        self
    }

    /// Over HTTP: whoever holds a task's unguessable id may use it. There is no `tasks/list` then.
    #[cfg(feature = "http")]
    pub fn bearer_ids(mut self) -> Self {
        self.owner = Some(Arc::new(|_| Some(crate::task::Owner::Bearer)));
        self
    }

    /// Checks everything and builds it. Nothing is read from the store before the first task traffic.
    ///
    /// # Errors
    /// The first mistake found: see [`BuildError`].
    pub fn build(self) -> Result<Tasks, BuildError> {
        let runtime = Runtime::new(self.store, self.limits, self.clock)?;
        for tool in self.tools {
            runtime.add_tool(tool)?;
        }
        let state_key = match self.state_key {
            Some(key) if key.len() < 32 => {
                return Err(BuildError::StateKey(key.len()));
            }
            Some(key) => StateKey::given(key),
            None => StateKey::default(),
        };
        Ok(Tasks {
            plane: Plane::new(runtime, self.rules, state_key, self.tells_server),
            #[cfg(feature = "http")]
            owner: self.owner,
            #[cfg(feature = "http")]
            strict_names: self.strict_names,
        })
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for TasksBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TasksBuilder")
            .field("limits", &self.limits)
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}
