//! The client: calls tools of a server as tasks and drives them to their results.
//!
//! Two links (`link`) carry raw JSON, because rmcp's typed model drops what 2025-11-25 says of tasks; `router` gives
//! each message to a request of ours (`connection`), to the user's handler (`answering`) or to rmcp, whose
//! [`Peer`](rmcp::service::Peer) works on the same connection. `drive` makes a call, `follow` follows its task.
//! A server without tasks is called plainly. What 2026-07-28 does in another way is in `v2026_07_28`: its tasks, too,
//! come as the same events and errors.
//!
//! ```no_run
//! use mcp_tasks::client::{CallOptions, TaskClient, TaskEvent};
//! use rmcp::model::CallToolRequestParams;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = TaskClient::http((), "http://127.0.0.1:8000/mcp").await?;
//! let mut events = client.call_tool_stream(CallToolRequestParams::new("report"), CallOptions::new());
//! while let Some(event) = events.next().await {
//!     match event {
//!         TaskEvent::Status(task) => println!("{}: {:?}", task.status, task.status_message),
//!         TaskEvent::Result(result) => println!("{:?}", result.content),
//!         other => println!("{other:?}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A client's [`ClientHandler`](rmcp::ClientHandler) answers what a task asks (elicitation, sampling, roots), each
//! question once. For everything that is no task there is [`TaskClient::peer`].

mod answering;
mod backoff;
mod builder;
mod connection;
mod desk;
mod drive;
mod error;
mod follow;
mod hosting;
mod info;
mod link;
mod options;
mod outage;
mod questions;
mod remote;
mod requestor;
mod requests;
mod router;
mod server;
mod stream;
mod task_client;
mod ticket;
mod v2026_07_28;
mod waiting;

pub use builder::{ProtocolChoice, TaskClientBuilder};
pub use error::TaskClientError;
pub use info::{TaskInfo, TaskOutcome, TaskStatus};
pub use options::{CallOptions, TaskPreference};
pub use questions::QuestionParams;
pub use remote::RemoteTask;
pub use stream::{TaskEvent, TaskStream};
pub use task_client::TaskClient;
pub use ticket::{Endpoint, Ticket};
pub use waiting::TaskProgress;

pub(crate) use link::{Link, Lost, LostKind, Outgoing};
pub(crate) use requestor::{RemotePeer, RemotePeerRef, refused};

use builder::Settings;
