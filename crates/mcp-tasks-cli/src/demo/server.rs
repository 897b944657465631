//! The demo's server: two task tools in front of an MCP server that has nothing else.
//!
//! It runs in a process of its own, this program started again as `mcp-tasks demo-server`. The parent reads the first line
//! of its output (the URL, or what went wrong), and holds its input: when that ends the parent is gone, or wants it to end.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use axum::{Router, serve::ListenerExt};
use mcp_tasks::{
    Elicitation, Json, Limits, Recovery, TaskContext, TaskError, TaskTool, Tasks,
    store::{SqliteStore, TaskStore},
};
use rmcp::{
    ServerHandler,
    model::{Implementation, ServerCapabilities, ServerConfig},
    transport::streamable_http_server::StreamableHttpServerConfig,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{net::TcpListener, sync::oneshot, time::sleep};

use crate::failure::Failure;

/// The tool that asks.
pub(super) const REPORT: &str = "write_report";
/// The tool that survives.
pub(super) const IMPORT: &str = "import_rows";
/// How long one step of either takes.
const STEP: Duration = Duration::from_millis(250);
/// How long the server may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// The demo's server, until its standard input ends.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The SQLite file
    #[arg(long)]
    pub(super) db: PathBuf,
    /// Where to listen
    #[arg(long)]
    pub(super) addr: SocketAddr,
    /// How long a worker's lease lasts
    #[arg(long)]
    pub(super) lease_ms: u64,
}

pub(crate) async fn run(options: Options) -> Result<(), Failure> {
    let parent_gone = end_of_input();
    let (listener, app, store) = match prepare(&options).await {
        Ok(ready) => ready,
        Err(why) => {
            // The parent tells it.
            println!("error: {why}");
            std::process::exit(1);
        }
    };
    let url = listener
        .local_addr()
        .map_err(|e| Failure::at("listening")(&e))?;
    println!("http://{url}/mcp");
    // Small messages both ways: waiting to fill a packet would cost 40 ms each.
    let listener = listener.tap_io(|tcp| drop(tcp.set_nodelay(true)));
    tokio::select! {
        served = axum::serve(listener, app) => served.map_err(|e| Failure::at("serving")(&e))?,
        _ = parent_gone => {}
    }
    store
        .close()
        .await
        .map_err(|e| Failure::at("closing the file")(&e))
}

async fn prepare(options: &Options) -> Result<(TcpListener, Router, SqliteStore), String> {
    let store = SqliteStore::open(&options.db).map_err(|error| error.to_string())?;
    let mut limits = Limits::default();
    limits.lease = Duration::from_millis(options.lease_ms);
    limits.heartbeat = limits.lease / 3;
    limits.poll_interval = Duration::from_millis(200);
    let tasks = Tasks::builder()
        .store(store.clone())
        .limits(limits)
        .tools([report(), import()])
        .bearer_ids()
        .build()
        .map_err(|error| error.to_string())?;
    let mut config = StreamableHttpServerConfig::default();
    // Clients come back soon after a restart, and miss little of the progress.
    config.sse_retry = Some(Duration::from_millis(200));
    let service = tasks
        .streamable_http(|| Ok(Nothing), config)
        .map_err(|error| error.to_string())?;
    let listener = TcpListener::bind(options.addr)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", options.addr))?;
    Ok((listener, Router::new().nest_service("/mcp", service), store))
}

/// Completes when standard input ends. From then on the process lives [`PATIENCE`] longer at the most.
fn end_of_input() -> oneshot::Receiver<()> {
    let (ended, end) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = ended.send(());
        std::thread::sleep(PATIENCE);
        std::process::exit(1);
    });
    end
}

/// The wrapped server.
struct Nothing;

impl ServerHandler for Nothing {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build()).with_server_info(
            Implementation::new("mcp-tasks-demo", env!("CARGO_PKG_VERSION")),
        )
    }
}

#[derive(Deserialize, JsonSchema)]
struct Report {}

/// What the question asks for.
#[derive(Deserialize, JsonSchema)]
struct Reader {
    #[serde(default = "everyone")]
    name: String,
}

fn everyone() -> String {
    "everyone".into()
}

fn report() -> TaskTool {
    TaskTool::new(REPORT)
        .description("Writes a report in four parts, and asks whom it is for")
        .input::<Report>()
        .run(async |cx: TaskContext, Report {}| {
            let mut reader = everyone();
            for (part, done) in ["heading", "summary", "figures", "outlook"]
                .iter()
                .zip(1_u32..)
            {
                cx.status(format!("writing the {part}")).await?;
                sleep(STEP).await;
                cx.progress(f64::from(done), Some(4.0), Some(part));
                if done == 2 {
                    reader = match cx.elicit::<Reader>("Whom is the report for?").await? {
                        Elicitation::Accept(reader) => reader.name,
                        Elicitation::Decline | Elicitation::Cancel => {
                            return Err(TaskError::tool("the question was not answered"));
                        }
                    };
                }
            }
            Ok(format!("A report in 4 parts for {reader}"))
        })
}

#[derive(Deserialize, JsonSchema)]
struct Import {
    steps: u32,
}

/// What the import tells of itself.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct Imported {
    /// How often it was begun.
    pub(super) attempts: u32,
    /// The step after which the last attempt went on.
    pub(super) resumed_from: u32,
    /// The steps that were done in all.
    pub(super) steps: u32,
}

fn import() -> TaskTool {
    TaskTool::new(IMPORT)
        .description("Imports rows in steps, and goes on after the last saved one when its server was killed")
        .recovery(Recovery::Rerun)
        .input::<Import>()
        .output::<Imported>()
        .run(async |cx: TaskContext, Import { steps }| {
            let resumed_from = cx.restored()?.unwrap_or(0);
            let attempts = cx.attempt();
            cx.status(match attempts {
                1 => "attempt 1".to_owned(),
                _ => format!("attempt {attempts}, resumed from step {resumed_from}"),
            })
            .await?;
            for step in resumed_from + 1..=steps {
                sleep(STEP).await;
                // From here on a restart does not repeat this step.
                cx.checkpoint(&step).await?;
                cx.progress(f64::from(step), Some(f64::from(steps)), Some("rows saved"));
            }
            Ok::<_, TaskError>(Json(Imported {
                attempts,
                resumed_from,
                steps,
            }))
        })
}
