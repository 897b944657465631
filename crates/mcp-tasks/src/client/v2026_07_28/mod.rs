//! Protocol 2026-07-28 and its tasks extension, as a client speaks it: no handshake, no session, every request says
//! for itself who sends it.
//!
//! `probe` finds out whether the server speaks it, `meta` and `headers` are what each request carries, `peer` does that
//! for rmcp's requests. `call` makes a call (and makes it again with answers, where it is answered with questions),
//! `follow` follows the task that the server made of it, with `inputs` for its questions and `listen` for what it
//! announces.

mod asking;
mod call;
mod follow;
mod headers;
mod inputs;
mod listen;
mod meta;
mod peer;
mod probe;
mod reading;
mod tasks;
mod tools;

use std::sync::Arc;

use rmcp::{
    model::ClientConfig,
    service::{RoleClient, RxJsonRpcMessage},
};
use serde_json::{Map, Value, value::RawValue};
use tokio::sync::watch;

pub(super) use call::begin;
pub(super) use follow::Follow;
pub(super) use probe::{Probed, probe};
pub(super) use reading::complete;
pub(super) use tasks::info_of;

use super::{
    TaskClientError, connection::Connection, router::cancelled_id, server::ServerFacts,
    waiting::Reply,
};
use crate::wire::v2026_07_28::{VERSION, reading::Discovered};
use listen::Subscriptions;
use meta::Stamp;
use peer::PeerCalls;
use tools::HeaderIndex;

/// What a message was found to be.
pub(super) enum Passed<T> {
    /// It goes on.
    On(T),
    /// It goes no further: rmcp gets this.
    Answered(Box<RxJsonRpcMessage<RoleClient>>),
    /// It goes no further.
    Dropped,
}

/// A request of ours with all that it carries.
#[derive(Debug, Clone)]
pub(super) struct Stamped {
    pub(super) method: &'static str,
    pub(super) params: Value,
    pub(super) headers: Option<http::HeaderMap>,
}

/// What a connection knows that speaks this revision.
pub(super) struct Modern {
    stamp: Stamp,
    /// What `server/discover` told, for rmcp to begin with.
    discovered: Map<String, Value>,
    peer: PeerCalls,
    tools: HeaderIndex,
    subscriptions: Subscriptions,
    /// Counts answers of the user's handler, so that who follows a task hears of them.
    answered: watch::Sender<u64>,
    /// The tasks whose cancel the server has taken, latest last.
    cancelled: watch::Sender<Vec<String>>,
}

impl Modern {
    fn new(client: &ClientConfig, discovered: &Discovered) -> Self {
        Self {
            stamp: Stamp::of(client),
            discovered: discovered.result.clone(),
            peer: PeerCalls::default(),
            tools: HeaderIndex::default(),
            subscriptions: Subscriptions::default(),
            answered: watch::Sender::new(0),
            cancelled: watch::Sender::default(),
        }
    }

    /// A request of ours, but for `tools/call`.
    pub(super) fn stamped(
        &self,
        connection: &Connection,
        method: &'static str,
        mut params: Value,
    ) -> Stamped {
        self.stamp.put(&mut params, true);
        let http = connection.link.has_streams();
        Stamped {
            method,
            headers: http.then(|| headers::of(method, Some(&params))),
            params,
        }
    }

    /// A notification came; `false` leaves it to rmcp.
    pub(super) fn notification(
        &self,
        connection: &Connection,
        method: &str,
        params: Option<&RawValue>,
        via: Option<&Arc<str>>,
    ) -> bool {
        match method {
            "notifications/tasks" => {
                self.task_announced(connection, params, via);
                true
            }
            "notifications/subscriptions/acknowledged" => self.acknowledged(params, via),
            "notifications/cancelled" => {
                let id = cancelled_id(params);
                let Some(number) = id.and_then(|id| Connection::own(&id)) else {
                    return false;
                };
                if self.subscriptions.has(number) {
                    connection.settle(number, Reply::Lost(listen::ended()));
                }
                true
            }
            "notifications/progress" => connection.progress_came(params),
            "notifications/tools/list_changed" => {
                self.tools.changed();
                false
            }
            _ => false,
        }
    }
}

/// What the server says of itself, in the words of the other revision.
fn facts(discovered: &Discovered) -> ServerFacts {
    ServerFacts {
        name: discovered.name.clone(),
        version: VERSION.to_owned(),
        call: discovered.tasks,
        list: false,
        cancel: true,
    }
}

/// The server broke the protocol.
fn broke(what: impl Into<String>) -> TaskClientError {
    TaskClientError::Protocol(what.into())
}
