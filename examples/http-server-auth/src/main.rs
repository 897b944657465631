//! Task tools on Streamable HTTP, with tasks that belong to users: an authentication layer says who a request is from,
//! and the task plane binds tasks to that name. To everybody else a task looks as if it did not exist.
//!
//!     cargo run -p http-server-auth -- 127.0.0.1:8080      (with the bearer token alice-secret or bob-secret)
#![forbid(unsafe_code)]

use std::{error::Error, time::Duration};

use axum::{
    Router,
    extract::Request,
    http::{StatusCode, header, request::Parts},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    serve::ListenerExt,
};
use mcp_tasks::{TaskContext, TaskError, TaskTool, Tasks};
use rmcp::{ServerHandler, transport::streamable_http_server::StreamableHttpServerConfig};
use schemars::JsonSchema;
use serde::Deserialize;

/// Who a request is from.
#[derive(Clone)]
struct User(&'static str);

/// Stands for whatever tells you who a token belongs to: a session table, a verified JWT.
fn user_of(token: &str) -> Option<User> {
    match token {
        "alice-secret" => Some(User("alice")),
        "bob-secret" => Some(User("bob")),
        _ => None,
    }
}

/// The authentication layer: requests go on with their [`User`], or not at all.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let header = request.headers().get(header::AUTHORIZATION);
    let token = header.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    match token.and_then(user_of) {
        Some(user) => {
            request.extensions_mut().insert(user);
            next.run(request).await
        }
        None => {
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            (StatusCode::UNAUTHORIZED, challenge).into_response()
        }
    }
}

/// The rule that binds tasks to users. Without a user there is no service either (401).
fn owner(parts: &Parts) -> Option<String> {
    let User(name) = parts.extensions.get::<User>()?;
    Some((*name).to_owned())
}

/// The server as it is without tasks; this one has nothing of its own.
struct Nothing;

impl ServerHandler for Nothing {}

#[derive(Deserialize, JsonSchema)]
struct Report {
    about: String,
}

async fn report(cx: TaskContext, Report { about }: Report) -> Result<String, TaskError> {
    let reader = cx.owner().name().unwrap_or_default().to_owned();
    tokio::time::sleep(Duration::from_millis(100)).await; // the work
    Ok(format!("All about {about}, for {reader} only."))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let tasks = Tasks::builder()
        .tool(
            TaskTool::new("report")
                .description("Writes a report")
                .input::<Report>()
                .run(report),
        )
        .owner(owner)
        .build()?;
    let mcp = tasks.streamable_http(|| Ok(Nothing), StreamableHttpServerConfig::default())?;
    let app = Router::new()
        .nest_service("/mcp", mcp)
        .layer(from_fn(authenticate));

    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    let listener = listener.tap_io(|tcp| drop(tcp.set_nodelay(true)));
    tokio::select! {
        ended = axum::serve(listener, app) => ended?,
        _ = tokio::signal::ctrl_c() => tasks.shutdown(Duration::from_secs(5)).await,
    }
    Ok(())
}
