//! A tool that was written for rmcp and reads who calls it, in the way rmcp hands it on: from the extensions of the HTTP
//! request, where the authentication layer put it. As a task it sees the same, and its task is its caller's alone.
//!
//!     cargo run -p adopted-auth -- 127.0.0.1:8080      (with the bearer token alice-secret or bob-secret)
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
use mcp_tasks::{TaskSupport, Tasks};
use rmcp::{
    handler::server::{tool::Extension, wrapper::Parameters},
    tool, tool_router,
    transport::streamable_http_server::StreamableHttpServerConfig,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// What an access token says.
#[derive(Clone)]
struct Principal {
    subject: &'static str,
    scopes: &'static [&'static str],
}

/// Stands for whatever checks tokens: their signature, issuer, audience and expiry.
fn principal_of(token: &str) -> Option<Principal> {
    let (subject, scopes): (_, &[_]) = match token {
        "alice-secret" => ("alice", &["files:read", "files:export"]),
        "bob-secret" => ("bob", &["files:read"]),
        _ => return None,
    };
    Some(Principal { subject, scopes })
}

/// The authentication layer: requests go on with their [`Principal`], or not at all.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let header = request.headers().get(header::AUTHORIZATION);
    let token = header.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    match token.and_then(principal_of) {
        Some(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        None => {
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            (StatusCode::UNAUTHORIZED, challenge).into_response()
        }
    }
}

/// The server as it was before there were tasks.
struct Files;

#[derive(Deserialize, JsonSchema)]
struct Export {
    folder: String,
}

#[tool_router(server_handler)]
impl Files {
    #[tool(description = "Exports a folder, for those who may")]
    async fn export(
        &self,
        Parameters(Export { folder }): Parameters<Export>,
        Extension(parts): Extension<Parts>,
    ) -> Result<String, String> {
        let principal = parts.extensions.get::<Principal>();
        let Principal { subject, scopes } = principal.ok_or("nobody knows who asks")?;
        if !scopes.contains(&"files:export") {
            return Err(format!("{subject} may not export"));
        }
        tokio::time::sleep(Duration::from_millis(100)).await; // the work
        Ok(format!("{folder} was exported for {subject}"))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let tasks = Tasks::builder()
        .augment("export", TaskSupport::Optional)
        // Whose a task is: the subject, not the token, which changes with every refresh.
        .owner(|parts| Some(parts.extensions.get::<Principal>()?.subject))
        .build()?;
    let mcp = tasks.streamable_http(|| Ok(Files), StreamableHttpServerConfig::default())?;
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
