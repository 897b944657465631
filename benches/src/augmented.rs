//! What it costs to call an augmented tool plainly, beside the same rmcp server without the plane.

use std::sync::Arc;

use axum::Router;
use mcp_tasks::{Limits, TaskSupport, Tasks, store::MemoryStore};
use rmcp::{
    ErrorData, Peer, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitRequestParams,
        ElicitationSchema, JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
        ServerConfig, Tool,
    },
    service::RequestContext,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};

use crate::{
    Fallible, Plan,
    child::Server,
    load::{self, Conn, Rounds},
    measure::{micros, per_second, ratio, table},
    messages::{PlainCalls, Speech, Template, connect},
};

const CONNECTIONS: usize = 16;

/// A server that knows nothing of tasks: a tool that answers at once, one that asks, one that never ends.
#[derive(Debug, Clone)]
struct Ordinary;

fn tool(name: &'static str) -> Tool {
    let schema = JsonObject::from_iter([("type".to_owned(), "object".into())]);
    Tool::new(name, "", Arc::new(schema))
}

impl ServerHandler for Ordinary {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = ["answers", "untouched", "asks", "stays"].map(tool);
        Ok(ListToolsResult::with_all_items(tools.to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match &*request.name {
            "asks" => ask(&context.peer).await?,
            "stays" => context.ct.cancelled().await,
            _ => {}
        }
        Ok(CallToolResult::success(vec![ContentBlock::text("done")]).into())
    }
}

async fn ask(peer: &Peer<RoleServer>) -> Result<(), ErrorData> {
    let question = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: "Go on?".to_owned(),
        requested_schema: ElicitationSchema::new(Default::default()),
    };
    let answer = peer.create_elicitation(question).await;
    answer
        .map(drop)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// Its tools as tasks, all but one.
fn augmented() -> Fallible<Tasks> {
    let mut limits = Limits::default();
    limits.tasks_per_owner = limits.tasks;
    limits.concurrent_runs = 1_000_000;
    let tasks = Tasks::builder()
        .store(MemoryStore::new())
        .limits(limits)
        .bearer_ids()
        .augment_where(|tool| tool.name != "untouched", TaskSupport::Optional)
        .build()?;
    Ok(tasks)
}

/// The server with tasks in front.
pub(crate) fn in_front() -> Fallible<Router> {
    let service =
        augmented()?.streamable_http(|| Ok(Ordinary), StreamableHttpServerConfig::default())?;
    Ok(Router::new().route_service("/mcp", service))
}

/// The server alone, with answers in the same form as ours: one JSON body where there is nothing to wait for.
pub(crate) fn alone(json: bool) -> Router {
    let config = StreamableHttpServerConfig::default().with_json_response(json);
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(|| Ok(Ordinary), sessions, config);
    Router::new().route_service("/mcp", service)
}

struct Side {
    name: &'static str,
    server: Server,
    conns: Vec<Conn>,
    work: Arc<PlainCalls>,
    rounds: Rounds,
}

impl Side {
    async fn start(name: &'static str, kind: &str, tool: &str, stateless: bool) -> Fallible<Self> {
        let server = Server::start(&[kind])?;
        let (mut conns, mut calls) = (Vec::new(), Vec::new());
        for _ in 0..CONNECTIONS {
            let (conn, speech) = connect(server.addr, stateless).await?;
            conns.push(conn);
            calls.push(match speech {
                Speech::Session(_) => Template::plain_in(&speech, tool),
                Speech::Stateless => Template::plain(tool, ""),
            });
        }
        Ok(Self {
            name,
            server,
            conns,
            work: Arc::new(PlainCalls(calls)),
            rounds: Rounds::default(),
        })
    }
}

pub(crate) fn run(plan: &Plan) -> Fallible<()> {
    for (revision, stateless) in [("2025-11-25", false), ("2026-07-28", true)] {
        load::runtime()?.block_on(compare(plan, revision, stateless))?;
    }
    Ok(())
}

async fn compare(plan: &Plan, revision: &str, stateless: bool) -> Fallible<()> {
    let mut sides = [
        Side::start("rmcp alone, SSE", "ordinary", "answers", stateless).await?,
        Side::start("rmcp alone, JSON", "ordinary-json", "answers", stateless).await?,
        Side::start(
            "tasks in front, tool not augmented",
            "augmented",
            "untouched",
            stateless,
        )
        .await?,
        Side::start(
            "tasks in front, tool augmented",
            "augmented",
            "answers",
            stateless,
        )
        .await?,
    ];
    for number in 0..=plan.rounds {
        let count = sides.len();
        for turn in 0..count {
            let at = if number % 2 == 0 {
                turn
            } else {
                count - 1 - turn
            };
            let side = &mut sides[at];
            let pid = side.server.pid();
            let round = load::round(&mut side.conns, &side.work, plan.round, pid).await?;
            if number > 0 {
                side.rounds.push(round);
            }
        }
    }
    let rows: Vec<_> = sides
        .iter()
        .map(|side| {
            vec![
                side.name.to_owned(),
                per_second(side.rounds.rate()),
                micros(side.rounds.p50()),
                micros(side.rounds.p99()),
                side.rounds.cpu().map_or_else(|| "?".to_owned(), micros),
                ratio(side.rounds.rate_ratio(&sides[0].rounds)),
                cost(side, &sides[0]),
            ]
        })
        .collect();
    table(
        &format!(
            "## A plain call of an ordinary tool over HTTP, {revision}, {CONNECTIONS} connections"
        ),
        &[
            "server",
            "rate",
            "p50",
            "p99",
            "cpu a call",
            "rate to alone",
            "cpu to alone",
        ],
        &rows,
    );
    Ok(())
}

/// The server's processor time of a call, to that of another.
fn cost(side: &Side, to: &Side) -> String {
    match (side.rounds.cpu(), to.rounds.cpu()) {
        (Some(mine), Some(theirs)) => ratio(mine.as_secs_f64() / theirs.as_secs_f64().max(1e-9)),
        _ => "?".to_owned(),
    }
}
