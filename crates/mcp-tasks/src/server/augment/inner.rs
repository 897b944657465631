//! What is needed of a server whose tools are run.

use std::{io, sync::Arc};

use futures_util::{FutureExt, future::BoxFuture};
use rmcp::{
    ErrorData, Peer, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, InitializeRequestParams, ListToolsResult,
        NumberOrString, PaginatedRequestParams, ServerConfig, Tool,
    },
    service::{RequestContext, RunningService},
};
use serde_json::json;
use tokio::sync::mpsc;

use crate::server::stdio::{Chan, FromInner, ToInner};

/// The most pages of a list of tools.
const PAGES: usize = 1000;

/// A server whose tools are run: an rmcp handler here.
pub(crate) trait InnerTools: Send + Sync {
    /// Calls a tool, in the caller's own future.
    fn call(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> BoxFuture<'static, Result<CallToolResponse, ErrorData>>;

    /// One page of its tools.
    fn list(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> BoxFuture<'static, Result<ListToolsResult, ErrorData>>;

    /// What it says of itself.
    fn config(&self) -> ServerConfig;
}

/// Handlers made by a factory, one for each call: clones of one handler share its state.
pub(crate) struct Handlers<F>(pub(crate) F);

impl<F, H> InnerTools for Handlers<F>
where
    F: Fn() -> io::Result<H> + Send + Sync,
    H: ServerHandler,
{
    fn call(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> BoxFuture<'static, Result<CallToolResponse, ErrorData>> {
        match (self.0)() {
            Ok(handler) => Box::pin(async move { handler.call_tool(params, context).await }),
            Err(error) => Box::pin(std::future::ready(Err(no_handler(&error)))),
        }
    }

    fn list(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> BoxFuture<'static, Result<ListToolsResult, ErrorData>> {
        match (self.0)() {
            Ok(handler) => Box::pin(async move { handler.list_tools(page, context).await }),
            Err(error) => Box::pin(std::future::ready(Err(no_handler(&error)))),
        }
    }

    fn config(&self) -> ServerConfig {
        (self.0)().map_or_else(|_| ServerConfig::default(), |handler| handler.get_info())
    }
}

fn no_handler(error: &io::Error) -> ErrorData {
    tracing::error!(%error, "the factory made no handler");
    ErrorData::internal_error("the server could not be reached", None)
}

/// A client of the inner server as its tools see it: whatever they send to it comes out of `sent`.
pub(super) struct Client {
    running: RunningService<RoleServer, PeerOnly>,
    /// What the tools send to their client.
    pub(super) sent: mpsc::Receiver<FromInner>,
    /// The answers to that.
    pub(super) answers: mpsc::Sender<ToInner>,
}

/// Only there so that a peer exists: nothing is ever asked of it.
struct PeerOnly(ServerConfig);

impl ServerHandler for PeerOnly {
    fn get_info(&self) -> ServerConfig {
        self.0.clone()
    }
}

impl Client {
    pub(super) fn new(inner: &Arc<dyn InnerTools>, info: InitializeRequestParams) -> Self {
        let (answers, rx) = mpsc::channel(16);
        let (tx, sent) = mpsc::channel(64);
        let service = PeerOnly(inner.config());
        let running = rmcp::service::serve_directly(service, Chan { rx, tx }, Some(info));
        Self {
            running,
            sent,
            answers,
        }
    }

    /// The context of one request of this client.
    pub(super) fn context(&self) -> RequestContext<RoleServer> {
        let peer: Peer<RoleServer> = self.running.peer().clone();
        RequestContext::new(NumberOrString::String("mcp-tasks".into()), peer)
    }
}

/// A client of whom nothing is known.
fn nobody() -> InitializeRequestParams {
    let info = json!({
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "mcp-tasks", "version": env!("CARGO_PKG_VERSION")},
    });
    serde_json::from_value(info).unwrap_or_default()
}

/// All tools of the server.
pub(super) async fn list(inner: &Arc<dyn InnerTools>) -> Result<Vec<Tool>, ErrorData> {
    let client = Client::new(inner, nobody());
    let mut tools = Vec::new();
    let mut page = None;
    for _ in 0..PAGES {
        let listed = inner.list(page, client.context()).await?;
        tools.extend(listed.tools);
        match listed.next_cursor {
            Some(cursor) => {
                page = Some(PaginatedRequestParams::default().with_cursor(Some(cursor)))
            }
            None => break,
        }
    }
    Ok(tools)
}

/// The same where the server can say so without waiting, as one does whose tools are macros; `None` where it cannot.
pub(super) fn list_now(inner: &Arc<dyn InnerTools>) -> Option<Vec<Tool>> {
    tokio::runtime::Handle::try_current().ok()?;
    list(inner).now_or_never()?.ok()
}
