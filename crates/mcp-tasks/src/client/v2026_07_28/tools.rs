//! Which parameters of which tool go into headers: listed when first needed, and again when that turns out wrong.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde::Deserialize;
use serde_json::Value;
use tokio::sync::OnceCell;

use super::{Modern, Stamped, broke, headers, headers::ToolHeaders};
use crate::client::{TaskClientError, connection::Connection};

/// By tool, where there is something to say: the headers, or what is wrong with them.
type Index = HashMap<String, Result<ToolHeaders, String>>;

/// The index, of the list as it was when first needed.
#[derive(Debug, Default)]
pub(super) struct HeaderIndex(Mutex<Arc<OnceCell<Index>>>);

impl HeaderIndex {
    /// The list has changed, or seems to have.
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

/// What a tool of a list says of headers; `None` if nothing.
pub(super) fn headers_of(schema: &Value) -> Option<Result<ToolHeaders, String>> {
    match ToolHeaders::read(schema) {
        Ok(headers) if headers.is_empty() => None,
        read => Some(read),
    }
}

impl Modern {
    /// A call, with the headers of its parameters over HTTP. `tasks`: whether it may become a task.
    ///
    /// # Errors
    /// If what the tool says of headers is wrong.
    pub(super) async fn call(
        &self,
        connection: &Arc<Connection>,
        method: &'static str,
        mut params: Value,
        tasks: bool,
    ) -> Result<Stamped, TaskClientError> {
        self.stamp.put(&mut params, tasks);
        let headers = match connection.link.has_streams() {
            true => Some(self.call_headers(connection, method, &params).await?),
            false => None,
        };
        Ok(Stamped {
            method,
            params,
            headers,
        })
    }

    /// All headers of a `tools/call`.
    ///
    /// # Errors
    /// If what the tool says of them is wrong.
    pub(super) async fn call_headers(
        &self,
        connection: &Arc<Connection>,
        method: &str,
        params: &Value,
    ) -> Result<http::HeaderMap, TaskClientError> {
        let mut all = headers::of(method, Some(params));
        let Some(tool) = params.get("name").and_then(Value::as_str) else {
            return Ok(all);
        };
        let cell = self.tools.cell();
        let index = match cell.get_or_try_init(|| index(connection)).await {
            Ok(index) => index,
            // A server without a list may have tools all the same; if a header is missing, it will say so.
            Err(TaskClientError::Rpc(error)) => {
                tracing::debug!(%error.message, "the tools could not be listed");
                return Ok(all);
            }
            Err(error) => return Err(error),
        };
        match index.get(tool) {
            Some(Ok(headers)) => headers.put(params.get("arguments"), &mut all),
            Some(Err(why)) => {
                return Err(broke(format!("the tool {tool:?} cannot be used: {why}")));
            }
            None => {}
        }
        Ok(all)
    }
}

async fn index(connection: &Arc<Connection>) -> Result<Index, TaskClientError> {
    #[derive(Deserialize)]
    struct Tool {
        name: String,
        #[serde(default, rename = "inputSchema")]
        schema: Value,
    }
    let mut index = Index::new();
    connection
        .pages("tools/list", "tools", |tool| {
            let Ok(tool) = serde_json::from_str::<Tool>(tool.get()) else {
                return Ok(());
            };
            if let Some(headers) = headers_of(&tool.schema) {
                if let Err(why) = &headers {
                    tracing::warn!(tool = tool.name, why, "a tool is left out");
                }
                index.insert(tool.name, headers);
            }
            Ok(())
        })
        .await?;
    Ok(index)
}
