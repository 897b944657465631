//! One server with a tool for every behaviour that clients have to cope with: `interop/` and the tests run against it.
//! The tools are in [`tools`], what they do is said in `interop/README.md`.
#![forbid(unsafe_code)]

mod inner;
mod options;
mod tools;

use std::{error::Error, net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};

use axum::{Router, http::request::Parts, serve::ListenerExt};
use mcp_tasks::{
    Tasks,
    store::{MemoryStore, SqliteStore, TaskStore},
};
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use tokio::net::TcpListener;

use inner::Inner;
use options::{Options, Store, Transport};

/// How long running bodies may take to end by themselves when the server is told to stop.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same when the one client of a pipe has left.
const PIPE_PATIENCE: Duration = Duration::from_millis(200);
/// How long open connections may take to end after that.
const DRAIN: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args_os().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{}", options::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("fixture-server: {why}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    // Never on stdout: that is the protocol's.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(options.log)
        .init();
    let ended = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => {
            let ended = runtime.block_on(serve(options));
            // The thread that reads stdin cannot be interrupted; do not wait for it.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(error.into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fixture-server: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(options: Options) -> Result<(), Box<dyn Error>> {
    let store: Arc<dyn TaskStore> = match &options.store {
        Store::Memory => Arc::new(MemoryStore::new()),
        Store::Sqlite(path) => Arc::new(SqliteStore::open(path)?),
    };
    let inner = Inner::default();
    let jobs = tools::Jobs::new(store.clone());
    let builder = Tasks::builder()
        .shared_store(store.clone())
        .limits(options.limits)
        .tools(tools::all(inner.counter(), &jobs));
    let builder = inner::augment(builder);
    let builder = if options.owner_from_bearer {
        builder.owner(bearer_token)
    } else {
        builder.bearer_ids()
    };
    let tasks = builder.build()?;
    tokio::spawn(jobs.work(tasks.clone()));
    match options.transport {
        Transport::Stdio => stdio(&tasks, inner).await?,
        Transport::Http(addr) => http(addr, &tasks, inner).await?,
    }
    store.close().await?;
    Ok(())
}

async fn stdio(tasks: &Tasks, inner: Inner) -> Result<(), Box<dyn Error>> {
    let (served, patience) = tokio::select! {
        served = tasks.serve_stdio(inner) => (served, PIPE_PATIENCE),
        () = told_to_stop() => (Ok(()), PATIENCE),
    };
    tasks.shutdown(patience).await;
    Ok(served?)
}

async fn http(addr: SocketAddr, tasks: &Tasks, inner: Inner) -> Result<(), Box<dyn Error>> {
    let config = StreamableHttpServerConfig::default();
    let sessions = config.cancellation_token.clone();
    let service = tasks.streamable_http(move || Ok(inner.clone()), config)?;
    let app = Router::new().nest_service("/mcp", service);
    let listener = TcpListener::bind(addr)
        .await
        .map_err(|e| format!("cannot listen on {addr}: {e}"))?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    // Small messages both ways: waiting to fill a packet would cost 40 ms each.
    let listener = listener.tap_io(|tcp| {
        if let Err(error) = tcp.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
    });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = axum::serve(listener, app).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let mut server = tokio::spawn(server.into_future());
    tokio::select! {
        ended = &mut server => return Ok(ended??),
        () = told_to_stop() => {}
    }
    tasks.shutdown(PATIENCE).await;
    sessions.cancel();
    drop(stop);
    match tokio::time::timeout(DRAIN, server).await {
        Ok(ended) => Ok(ended??),
        Err(_elapsed) => Ok(()),
    }
}

/// The token of `Authorization: Bearer TOKEN`.
fn bearer_token(parts: &Parts) -> Option<String> {
    let header = parts.headers.get(axum::http::header::AUTHORIZATION)?;
    let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

/// Completes on SIGTERM or ctrl-c.
async fn told_to_stop() {
    let interrupted = async {
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::warn!(%error, "ctrl-c cannot be heard");
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminated = async {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => {
                signals.recv().await;
            }
            Err(error) => {
                tracing::warn!(%error, "SIGTERM cannot be heard");
                std::future::pending::<()>().await;
            }
        }
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<()>();
    tokio::select! {
        () = interrupted => {}
        () = terminated => {}
    }
}
