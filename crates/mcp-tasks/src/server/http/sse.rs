//! Server-sent events: an answer that takes its time, a call that is rejoined, and a session's general stream.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use serde_json::value::RawValue;
use tokio::{sync::mpsc, time::Sleep};

use super::{BodyError, McpBody, empty, json, status_of};
use crate::{
    server::{
        call::{self, Rejoin},
        outlet::Outlet,
        plane::{Pending, Plane},
        session::Session,
        stdio::one_line,
        v2026_07_28,
    },
    store::Access,
    task::{Generation, TaskId},
};

/// How long a shimmed call may take to be answered as plain JSON instead of a stream.
const SHORT: Duration = Duration::from_millis(20);
/// How soon a client should come back to a stream that was cut, in milliseconds.
const RETRY_MS: u32 = 1000;

/// The id of an event on the stream of a shimmed call: it names the call, so that any replica can go on with it.
#[derive(Debug, Clone)]
pub(super) struct EventId {
    count: u64,
    task: TaskId,
    request: String,
}

impl EventId {
    const PREFIX: &'static str = "mcp-tasks.";

    fn write(rejoin: &Rejoin, count: u64) -> String {
        // Header values are ASCII; a request id may be anything.
        let request: String = rejoin
            .request
            .get()
            .bytes()
            .map(|b| format!("{b:02x}"))
            .collect();
        format!("{}{count}.{request}.{}", Self::PREFIX, rejoin.task)
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(Self::PREFIX)?.splitn(3, '.');
        let (count, hex, task) = (parts.next()?, parts.next()?, parts.next()?);
        let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
        Some(Self {
            count: count.parse().ok()?,
            task: TaskId::from_stored(task),
            request: String::from_utf8(bytes?).ok()?,
        })
    }
}

/// Counts a body of a session as open; requests of 2026-07-28 have none.
struct Open(Option<Arc<Session>>);

impl Open {
    fn new(session: Option<Arc<Session>>) -> Self {
        if let Some(session) = &session {
            session.open.fetch_add(1, Ordering::AcqRel);
        }
        Self(session)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(session) = &self.0 {
            session.open.fetch_sub(1, Ordering::AcqRel);
            session.touch();
        }
    }
}

/// The response to a request that is answered later. Without a session it is one of 2026-07-28: dropping it gives the
/// request up.
pub(super) async fn answer(
    plane: &Arc<Plane>,
    session: Option<Arc<Session>>,
    mut pending: Pending,
    keep_alive: Duration,
) -> Response<McpBody> {
    let (_closed, never) = mpsc::channel(1);
    let mut messages = pending.messages.take().unwrap_or(never);
    let mut first = VecDeque::new();
    if pending.is_call && (pending.rejoin.is_some() || session.is_none()) {
        // Many calls are short, and not every client likes a stream for those.
        let early = tokio::select! {
            biased;
            message = messages.recv() => Err(message),
            reply = &mut pending.answer => Ok(reply),
            () = tokio::time::sleep(SHORT) => Err(None),
        };
        match early {
            Ok(reply) => {
                while let Ok(message) = messages.try_recv() {
                    first.push_back(message);
                }
                if first.is_empty() {
                    if let Some(rejoin) = pending.rejoin {
                        plane.runtime.remove(&rejoin.task).await;
                    }
                    let Some(reply) = reply else {
                        return empty(StatusCode::ACCEPTED);
                    };
                    let status = match &session {
                        Some(_) => StatusCode::OK,
                        None => status_of(v2026_07_28::fault_of_answer(&reply)),
                    };
                    return json(status, reply);
                }
                pending.answer = Box::pin(std::future::ready(reply));
            }
            Err(message) => first.extend(message),
        }
    }
    let primed = session
        .as_ref()
        .is_some_and(|session| session.generation() == Generation::V2025_11_25);
    stream(
        plane,
        session,
        first,
        messages,
        pending.answer,
        pending.rejoin,
        0,
        primed,
        keep_alive,
    )
}

/// A shimmed call whose stream was cut, joined again.
pub(super) async fn rejoin(
    plane: &Arc<Plane>,
    session: Arc<Session>,
    event: EventId,
    keep_alive: Duration,
) -> Response<McpBody> {
    // The worker whose task this is may have been killed, and this the first that is heard of it here.
    if let Err(error) = plane.runtime.start_worker().await {
        tracing::warn!(%error, "the worker could not be started; a left call waits");
    }
    let access = Access::Owner(session.owner().clone());
    let record = match plane.runtime.hidden(&event.task, &access).await {
        Some(record) if record.origin.session.as_ref() == Some(&session.key) => record,
        // Answered and gone, or never this session's: there is nothing left to say.
        _ => return empty_stream(),
    };
    let Ok(request) = RawValue::from_string(event.request) else {
        return empty_stream();
    };
    let rejoin = Rejoin {
        task: record.id.clone(),
        request,
    };
    let (outlet, messages) = Outlet::new(session.key.clone());
    if !record.is_terminal() {
        plane.delivery.rejoin(&record, outlet.clone());
    }
    let answer = call::follow(plane, &session, &rejoin, outlet, true);
    stream(
        plane,
        Some(session),
        VecDeque::new(),
        messages,
        answer,
        Some(rejoin),
        // No id twice in a session (2025-11-25 `basic/transports`, Resumability and Redelivery).
        event.count.saturating_add(1),
        false,
        keep_alive,
    )
}

#[allow(clippy::too_many_arguments)]
fn stream(
    plane: &Arc<Plane>,
    session: Option<Arc<Session>>,
    first: VecDeque<Vec<u8>>,
    messages: mpsc::Receiver<Vec<u8>>,
    answer: BoxFuture<'static, Option<Vec<u8>>>,
    rejoin: Option<Rejoin>,
    count: u64,
    primed: bool,
    keep_alive: Duration,
) -> Response<McpBody> {
    let mut body = AnswerBody {
        plane: plane.clone(),
        _open: Open::new(session),
        ready: first,
        prime: None,
        messages,
        answer: Some(answer),
        rejoin,
        count,
        keep_alive,
        quiet: Box::pin(tokio::time::sleep(keep_alive)),
    };
    if primed && body.rejoin.is_some() {
        body.prime = Some(body.event(None));
    }
    sse_response(body.boxed_unsync())
}

pub(super) fn sse_response(body: McpBody) -> Response<McpBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn empty_stream() -> Response<McpBody> {
    sse_response(
        http_body_util::Empty::new()
            .map_err(|never| match never {})
            .boxed_unsync(),
    )
}

/// Messages, then the answer, then the end.
struct AnswerBody {
    plane: Arc<Plane>,
    _open: Open,
    prime: Option<Bytes>,
    ready: VecDeque<Vec<u8>>,
    messages: mpsc::Receiver<Vec<u8>>,
    answer: Option<BoxFuture<'static, Option<Vec<u8>>>>,
    rejoin: Option<Rejoin>,
    count: u64,
    keep_alive: Duration,
    quiet: Pin<Box<Sleep>>,
}

impl AnswerBody {
    /// One event; with an id where the stream can be rejoined. Without a message it primes the client to do so.
    fn event(&mut self, message: Option<Vec<u8>>) -> Bytes {
        let mut event = Vec::with_capacity(message.as_ref().map_or(0, Vec::len) + 96);
        if let Some(rejoin) = &self.rejoin {
            event.extend_from_slice(
                format!("id: {}\n", EventId::write(rejoin, self.count)).as_bytes(),
            );
            self.count += 1;
        }
        match message {
            Some(message) => write_data(&mut event, message),
            None => event.extend_from_slice(format!("retry: {RETRY_MS}\ndata: \n\n").as_bytes()),
        }
        event.into()
    }
}

/// A message as an event without an id.
pub(super) fn event(message: Vec<u8>) -> Bytes {
    let mut event = Vec::with_capacity(message.len() + 16);
    write_data(&mut event, message);
    event.into()
}

fn write_data(event: &mut Vec<u8>, mut message: Vec<u8>) {
    one_line(&mut message);
    event.extend_from_slice(b"data: ");
    event.extend_from_slice(&message);
    event.extend_from_slice(b"\n\n");
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let frame = |bytes: Bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        if let Some(prime) = this.prime.take() {
            return frame(prime);
        }
        if let Some(message) = this.ready.pop_front() {
            return frame(this.event(Some(message)));
        }
        if this.answer.is_some() {
            if let Poll::Ready(Some(message)) = this.messages.poll_recv(cx) {
                this.quiet
                    .as_mut()
                    .reset(tokio::time::Instant::now() + this.keep_alive);
                return frame(this.event(Some(message)));
            }
            if let Some(answer) = &mut this.answer
                && let Poll::Ready(reply) = answer.as_mut().poll(cx)
            {
                this.answer = None;
                // What was sent before the answer goes out before it.
                while let Ok(message) = this.messages.try_recv() {
                    this.ready.push_back(message);
                }
                this.ready.extend(reply);
                if let Some(message) = this.ready.pop_front() {
                    return frame(this.event(Some(message)));
                }
            } else if this.quiet.as_mut().poll(cx).is_ready() {
                this.quiet
                    .as_mut()
                    .reset(tokio::time::Instant::now() + this.keep_alive);
                return frame(Bytes::from_static(b": keep-alive\n\n"));
            } else {
                return Poll::Pending;
            }
        }
        // Read to the end: nobody will rejoin.
        if let Some(rejoin) = this.rejoin.take() {
            let runtime = this.plane.runtime.clone();
            tokio::spawn(async move { runtime.remove(&rejoin.task).await });
        }
        Poll::Ready(None)
    }
}

/// Counts the inner server's response as an open body of the session.
pub(super) fn keep_open(response: Response<McpBody>, session: Arc<Session>) -> Response<McpBody> {
    if !super::is_sse(response.headers()) {
        return response;
    }
    response.map(|inner| {
        Guarded {
            inner,
            _open: Open::new(Some(session)),
        }
        .boxed_unsync()
    })
}

struct Guarded {
    inner: McpBody,
    _open: Open,
}

impl Body for Guarded {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.get_mut().inner).poll_frame(cx)
    }
}

/// Adds our messages to a session's general stream. rmcp writes one whole event a frame, so that ours go between.
pub(super) fn merge_general(
    plane: &Arc<Plane>,
    response: Response<McpBody>,
    session: Arc<Session>,
) -> Response<McpBody> {
    let (outlet, messages) = Outlet::new(session.key.clone());
    plane.delivery.general_opened(&session, &outlet);
    response.map(|inner| {
        GeneralBody {
            plane: plane.clone(),
            inner,
            outlet,
            messages,
            _open: Open::new(Some(session)),
        }
        .boxed_unsync()
    })
}

struct GeneralBody {
    plane: Arc<Plane>,
    inner: McpBody,
    outlet: Arc<Outlet>,
    messages: mpsc::Receiver<Vec<u8>>,
    _open: Open,
}

impl Body for GeneralBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        match this.messages.poll_recv(cx) {
            Poll::Ready(Some(message)) => Poll::Ready(Some(Ok(Frame::data(event(message))))),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for GeneralBody {
    fn drop(&mut self) {
        self.plane.delivery.closed(&self.outlet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_ids_round_trip_and_are_ascii() {
        let request = RawValue::from_string("\"é/1\"".to_owned()).unwrap();
        let rejoin = Rejoin {
            task: TaskId::random(),
            request,
        };
        let text = EventId::write(&rejoin, 3);
        assert!(text.is_ascii());
        let parsed = EventId::parse(&text).unwrap();
        assert_eq!(
            (parsed.task, parsed.request.as_str()),
            (rejoin.task, "\"é/1\"")
        );
        for foreign in [
            "0",
            "3/1",
            "mcp-tasks.",
            "mcp-tasks.1.zz.x",
            "mcp-tasks.1.abc.x",
        ] {
            assert!(EventId::parse(foreign).is_none(), "{foreign}");
        }
    }
}
