//! The two links that carry raw JSON-RPC to a server: lines (stdio, any byte pair) and Streamable HTTP. A server that
//! asks its client has a third, over the streams of the client's session (`crate::server`).
//!
//! A [`Link`] takes messages as bytes; what comes back arrives on one channel as [`Inbound`], with the stream it came
//! on where the transport has streams. What became of a *request* is always told there too ([`Inbound::Lost`]); what
//! became of a notification or a response is what [`Link::send`] returns.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

pub(super) mod http;
pub(super) mod lines;
mod listen;
mod reply;
mod skim;
mod sse;

/// The largest message taken from a server unless set otherwise, in bytes. A result is at most 16 MiB on our own server.
pub(super) const MAX_MESSAGE: usize = 64 << 20;

/// The id (JSON text) of the `initialize` that a link sends by itself, when a session is gone; its answer is an
/// [`Inbound::Message`] like any.
pub(super) const RENEWAL_ID: &str = "\"tc:renew\"";

/// A message to the server.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    /// The JSON text, without a line end.
    pub(crate) bytes: Bytes,
    /// What it is.
    pub(crate) kind: Kind,
    /// What HTTP repeats of it in headers, under a revision without sessions; `None` under one with sessions.
    pub(crate) headers: Option<::http::HeaderMap>,
}

impl Outgoing {
    /// A message of a revision with sessions.
    pub(crate) fn new(bytes: impl Into<Bytes>, kind: Kind) -> Self {
        Self {
            bytes: bytes.into(),
            kind,
            headers: None,
        }
    }
}

/// What a message to the server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The request `initialize`, with the JSON text of its id.
    Initialize(Arc<str>),
    /// The notification `notifications/initialized`.
    Initialized,
    /// Any other request, with the JSON text of its id.
    Request(Arc<str>),
    /// Any other notification, or a response.
    Other,
}

impl Kind {
    /// The id of a request.
    pub(crate) fn id(&self) -> Option<&Arc<str>> {
        match self {
            Self::Initialize(id) | Self::Request(id) => Some(id),
            Self::Initialized | Self::Other => None,
        }
    }
}

/// What came from the server.
#[derive(Debug)]
pub(crate) enum Inbound {
    /// A message.
    Message {
        /// The JSON text.
        bytes: Bytes,
        /// The id (JSON text) of the request on whose stream it came; `None` on a general stream.
        via: Option<Arc<str>>,
    },
    /// The request with this id (JSON text) will get no answer.
    Lost {
        /// The id.
        id: Arc<str>,
        /// Why.
        lost: Lost,
    },
    /// Nothing will come any more.
    Closed {
        /// Why.
        why: String,
    },
}

/// Why a message did not get through.
#[derive(Debug, Clone)]
pub(crate) struct Lost {
    /// Whether the server may have seen it.
    pub(crate) sent: bool,
    /// Whether it is worth another try.
    pub(crate) kind: LostKind,
    /// How long the server asked us to wait.
    pub(crate) retry_after: Option<Duration>,
    /// What happened, for a person.
    pub(crate) why: String,
}

/// Whether another try is worth it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LostKind {
    /// It is.
    Transient,
    /// The connection is gone for good.
    Closed,
    /// HTTP 401 or 403.
    Unauthorized(u16),
    /// Refused with an HTTP status that will not change.
    Refused(u16),
    /// The reply made no sense.
    Protocol,
    /// The reply has more bytes than this, the most we take.
    TooLarge(usize),
}

impl Lost {
    /// A failure of this kind.
    pub(crate) fn new(kind: LostKind, sent: bool, why: impl Into<String>) -> Self {
        Self {
            sent,
            kind,
            retry_after: None,
            why: why.into(),
        }
    }

    /// A message that has more than `limit` bytes.
    pub(super) fn too_large(limit: usize) -> Self {
        let why = format!("a message of the peer has more than {limit} bytes");
        Self::new(LostKind::TooLarge(limit), true, why)
    }
}

/// A connection that carries raw messages.
#[async_trait]
pub(crate) trait Link: Send + Sync + 'static {
    /// Sends a message. A request is accepted here and its fate told on the channel; anything else is done when this
    /// returns.
    async fn send(&self, message: Outgoing) -> Result<(), Lost>;

    /// Sends a notification if that is possible without waiting; nobody will know whether it arrived.
    fn send_best_effort(&self, message: Outgoing);

    /// Nobody waits for the answer to this request (JSON text of its id) any more.
    fn abort(&self, id: &str);

    /// Whether each request has a stream of its own (HTTP): closing that withdraws the request.
    fn has_streams(&self) -> bool {
        false
    }

    /// Waits until the link, told to stop, has said goodbye.
    async fn finished(&self);
}
