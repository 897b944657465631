//! Both ends ours, over a pipe and over HTTP; what the client sends is overheard.

use std::sync::{Arc, Mutex};

use axum::{
    body::Body,
    extract::Request,
    http::Method,
    middleware::{self, Next},
};
use mcp_tasks::{
    Tasks,
    client::{ProtocolChoice, TaskClient, TaskClientBuilder},
};
use rmcp::{ClientHandler, transport::StreamableHttpServerConfig};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::Notify,
};

use crate::support::{Greeter, PATIENCE, http::Served};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    Pipe,
    Http,
}

pub(crate) const WAYS: [Way; 2] = [Way::Pipe, Way::Http];

/// The messages of a client.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<Value>>>);

impl Heard {
    fn hear(&self, text: &[u8]) {
        if let Ok(message) = serde_json::from_slice(text) {
            self.0.lock().unwrap().push(message);
        }
    }

    /// The requests and notifications of this method.
    pub(crate) fn sent(&self, method: &str) -> Vec<Value> {
        let heard = self.0.lock().unwrap();
        let of_method = heard.iter().filter(|message| message["method"] == method);
        of_method.cloned().collect()
    }

    /// The responses.
    pub(crate) fn answers(&self) -> Vec<Value> {
        let heard = self.0.lock().unwrap();
        let answers = heard
            .iter()
            .filter(|message| message.get("method").is_none());
        answers.cloned().collect()
    }
}

/// A client, connected, and what keeps its server.
pub(crate) struct Ends {
    pub(crate) client: TaskClient,
    pub(crate) heard: Heard,
    _served: Option<Served>,
}

impl Ends {
    /// With 2025-11-25.
    pub(crate) async fn connect<H: ClientHandler>(
        way: Way,
        tasks: &Tasks,
        builder: TaskClientBuilder<H>,
    ) -> Self {
        let builder = builder.protocol(ProtocolChoice::V2025_11_25);
        match way {
            Way::Pipe => {
                let (read, write, heard) = overheard(tasks.clone());
                Self {
                    client: builder.connect((read, write)).await.unwrap(),
                    heard,
                    _served: None,
                }
            }
            Way::Http => {
                let heard = Heard::default();
                let ears = heard.clone();
                let general = Arc::new(Notify::new());
                let opened = general.clone();
                let listen = move |request: Request, next: Next| {
                    let (ears, opened) = (ears.clone(), opened.clone());
                    async move {
                        let (parts, body) = request.into_parts();
                        let opens = parts.method == Method::GET;
                        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
                        ears.hear(&body);
                        let request = Request::from_parts(parts, Body::from(body));
                        let response = next.run(request).await;
                        if opens {
                            opened.notify_one();
                        }
                        response
                    }
                };
                let service = tasks
                    .streamable_http(|| Ok(Greeter), StreamableHttpServerConfig::default())
                    .unwrap();
                let app = axum::Router::new()
                    .route_service("/mcp", service)
                    .layer(middleware::from_fn(listen));
                let served = Served::app(app).await;
                let client = builder.http(&served.url).await.unwrap();
                // What is announced before nobody hears.
                let open = tokio::time::timeout(PATIENCE, general.notified()).await;
                open.expect("the client opens its general stream");
                Self {
                    client,
                    heard,
                    _served: Some(served),
                }
            }
        }
    }
}

/// A client's end of a connection to `tasks`, and what the client writes there.
pub(crate) fn overheard(
    tasks: Tasks,
) -> (
    impl AsyncRead + Unpin + Send,
    impl AsyncWrite + Unpin + Send,
    Heard,
) {
    let (client, ours) = tokio::io::duplex(1 << 16);
    let (between, theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move { tasks.serve(Greeter, tokio::io::split(theirs)).await });
    let heard = Heard::default();
    let ears = heard.clone();
    tokio::spawn(async move {
        let (mut from_server, mut to_server) = tokio::io::split(between);
        let (from_client, mut to_client) = tokio::io::split(ours);
        let up = async {
            let mut from_client = BufReader::new(from_client).lines();
            while let Ok(Some(line)) = from_client.next_line().await {
                ears.hear(line.as_bytes());
                to_server
                    .write_all(format!("{line}\n").as_bytes())
                    .await
                    .unwrap();
            }
        };
        let down = tokio::io::copy(&mut from_server, &mut to_client);
        tokio::select! { () = up => {}, _ = down => {} }
    });
    let (read, write) = tokio::io::split(client);
    (read, write, heard)
}
