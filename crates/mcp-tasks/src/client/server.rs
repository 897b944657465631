//! What the server says of itself, read raw: rmcp's typed model drops the members that tasks of 2025-11-25 need.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tokio::sync::OnceCell;

use super::{TaskClientError, connection::Connection, info::protocol};
use crate::wire::v2025_11_25::VERSION;

/// How many pages of one list are read before it is taken for endless.
const MAX_PAGES: usize = 1000;

/// What the answer to `initialize` declares about tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ServerFacts {
    /// `serverInfo.name`.
    pub(super) name: String,
    /// The negotiated revision.
    pub(super) version: String,
    /// `tasks.requests.tools.call`.
    pub(super) call: bool,
    /// `tasks.list`.
    pub(super) list: bool,
    /// `tasks.cancel`.
    pub(super) cancel: bool,
}

impl ServerFacts {
    /// Reads an `initialize` result. `null` members count as absent; under an older revision there are no tasks.
    pub(super) fn read(result: &RawValue) -> Self {
        let result: Value = serde_json::from_str(result.get()).unwrap_or_default();
        let version = result
            .get("protocolVersion")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let has =
            |path: &str| version == VERSION && result.pointer(path).is_some_and(Value::is_object);
        let name = result.pointer("/serverInfo/name").and_then(Value::as_str);
        Self {
            name: name.unwrap_or_default().to_owned(),
            call: has("/capabilities/tasks/requests/tools/call"),
            list: has("/capabilities/tasks/list"),
            cancel: has("/capabilities/tasks/cancel"),
            version: version.to_owned(),
        }
    }
}

/// What a tool says of tasks (`execution.taskSupport`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ToolSupport {
    #[default]
    Forbidden,
    Optional,
    Required,
}

type Index = HashMap<String, ToolSupport>;

/// The tools of the server, listed when first needed and again after `notifications/tools/list_changed`.
#[derive(Debug, Default)]
pub(super) struct Tools(Mutex<Arc<OnceCell<Index>>>);

impl Tools {
    /// The list has changed.
    pub(super) fn changed(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::default();
    }

    fn cell(&self) -> Arc<OnceCell<Index>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Connection {
    /// What the tool says of tasks; an unknown tool says nothing.
    pub(super) async fn tool_support(
        self: &Arc<Self>,
        tool: &str,
    ) -> Result<ToolSupport, TaskClientError> {
        let cell = self.tools.cell();
        let index = cell.get_or_try_init(|| self.index_tools()).await?;
        Ok(index.get(tool).copied().unwrap_or_default())
    }

    async fn index_tools(self: &Arc<Self>) -> Result<Index, TaskClientError> {
        #[derive(Deserialize)]
        struct Tool {
            name: String,
            #[serde(default)]
            execution: Value,
        }
        let mut index = Index::new();
        self.pages("tools/list", "tools", |tool| {
            let Ok(tool) = serde_json::from_str::<Tool>(tool.get()) else {
                return Ok(());
            };
            let support = match tool.execution.get("taskSupport").and_then(Value::as_str) {
                Some("optional") => ToolSupport::Optional,
                Some("required") => ToolSupport::Required,
                _ => ToolSupport::Forbidden,
            };
            index.insert(tool.name, support);
            Ok(())
        })
        .await?;
        Ok(index)
    }

    /// Reads all pages of a list and hands over each of its items.
    pub(super) async fn pages(
        self: &Arc<Self>,
        method: &'static str,
        member: &str,
        mut item: impl FnMut(&RawValue) -> Result<(), TaskClientError>,
    ) -> Result<(), TaskClientError> {
        let mut seen = HashSet::new();
        let mut params = json!({});
        let (mut bytes, limit) = (0, self.settings.max_message);
        for _ in 0..MAX_PAGES {
            let page = self.read(method, &params, None).await?;
            // The items are kept: together they are bounded as one message is.
            bytes += page.get().len();
            if bytes > limit {
                return Err(TaskClientError::TooLarge { limit });
            }
            let page: HashMap<&str, &RawValue> = page
                .parse()
                .map_err(|error| protocol(format!("{method}: the page cannot be read: {error}")))?;
            let items = page
                .get(member)
                .map(|raw| serde_json::from_str::<Vec<&RawValue>>(raw.get()));
            match items {
                Some(Ok(items)) => items.into_iter().try_for_each(&mut item)?,
                _ => {
                    return Err(protocol(format!(
                        "{method}: the page has no list {member:?}"
                    )));
                }
            }
            let next = page
                .get("nextCursor")
                .and_then(|raw| serde_json::from_str::<Option<String>>(raw.get()).ok());
            let Some(next) = next.flatten() else {
                return Ok(());
            };
            if !seen.insert(next.clone()) {
                return Err(protocol(format!(
                    "{method}: the cursor {next:?} came twice"
                )));
            }
            params = json!({ "cursor": next });
        }
        Err(protocol(format!(
            "{method}: the list has more than {MAX_PAGES} pages"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_members_and_older_revisions_declare_nothing() {
        let read = |text: &str| ServerFacts::read(&RawValue::from_string(text.to_owned()).unwrap());
        let full = read(
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tasks":{"list":{},"cancel":null,"requests":{"tools":{"call":{}}}}}}"#,
        );
        assert!(full.call && full.list && !full.cancel);
        let none = read(
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tasks":{"requests":{"tools":{}}}}}"#,
        );
        assert!(!none.call);
        let old = read(
            r#"{"protocolVersion":"2025-06-18","capabilities":{"tasks":{"requests":{"tools":{"call":{}}}}}}"#,
        );
        assert!(!old.call && old.version == "2025-06-18");
        assert_eq!(read("7"), ServerFacts::default());
    }
}
