//! Server-sent events of a reply, one at a time and bounded.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use sse_stream::SseByteStream;

use super::{Lost, LostKind};
use crate::client::backoff::Backoff;

/// What has to be remembered of a stream to take it up again.
#[derive(Debug, Clone, Default)]
pub(super) struct Cursor {
    /// The id of the last event that had one.
    pub(super) last_event_id: Option<String>,
    /// What that event said, hashed.
    last_data: u64,
    /// The last `retry` the server gave.
    pub(super) retry: Option<Duration>,
}

impl Cursor {
    /// How long to wait before the stream is taken up again: what the server asked for, and more when it keeps failing.
    pub(super) fn wait(&self, backoff: &mut Backoff) -> Duration {
        let first = backoff.tries() == 0;
        let wait = backoff.next();
        match self.retry {
            Some(retry) if first => retry.max(Duration::from_millis(100)),
            Some(retry) => retry.max(wait),
            None => wait,
        }
    }
}

type Bytestream = Pin<Box<dyn Stream<Item = Result<Bytes, std::io::Error>> + Send>>;

/// The events of one reply.
pub(super) struct Events {
    stream: SseByteStream<Bytestream>,
    /// The event that a resumed stream may begin with although we have it: its id, and what it said.
    repeated: Option<(String, u64)>,
    /// The most bytes that one event may have, and whether one had more.
    limit: usize,
    exceeded: Arc<AtomicBool>,
}

impl Events {
    /// Reads the body of `response`, events of at most `limit` bytes: the first one, or what was resumed after the
    /// last event that `cursor` remembers.
    pub(super) fn of(response: reqwest::Response, limit: usize, cursor: &Cursor) -> Self {
        let last = cursor.last_event_id.clone();
        let mut limiter = Limiter::new(limit);
        let exceeded = Arc::new(AtomicBool::new(false));
        let flag = exceeded.clone();
        let bytes = response.bytes_stream().map(move |chunk| {
            let chunk = chunk.map_err(std::io::Error::other)?;
            if limiter.exceeded(&chunk) {
                flag.store(true, Ordering::Relaxed);
                return Err(std::io::Error::other("an event is too large"));
            }
            Ok(chunk)
        });
        Self {
            stream: SseByteStream::new(Box::pin(bytes)),
            repeated: last.map(|id| (id, cursor.last_data)),
            limit,
            exceeded,
        }
    }

    /// The data of the next event that has any; `Ok(None)` at the end of the stream. Keeps `cursor` up to date.
    pub(super) async fn next(&mut self, cursor: &mut Cursor) -> Result<Option<Bytes>, Lost> {
        while let Some(event) = self.stream.next().await {
            let event = event.map_err(|error| match self.exceeded.load(Ordering::Relaxed) {
                true => Lost::too_large(self.limit),
                false => {
                    let why = format!("the stream broke: {error}");
                    Lost::new(LostKind::Transient, true, why)
                }
            })?;
            if let Some(ms) = event.retry {
                cursor.retry = Some(Duration::from_millis(ms.min(86_400_000)));
            }
            // Both, because some servers begin to count again when a stream is resumed.
            let said = hash(event.data.as_deref().unwrap_or_default());
            let mut repeated = false;
            if let Some(id) = event.id {
                let known = self.repeated.take();
                repeated = known.is_some_and(|(known, data)| known == id && data == said);
                cursor.last_data = said;
                // A NUL or line end cannot go into a header; the parser has dropped the latter.
                cursor.last_event_id = Some(id).filter(|id| !id.is_empty());
            }
            let message = event
                .event
                .as_deref()
                .is_none_or(|name| name.is_empty() || name == "message");
            match event.data {
                Some(data) if message && !repeated && !data.trim().is_empty() => {
                    return Ok(Some(data.into()));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

fn hash(data: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    hasher.finish()
}

/// Counts the bytes of one event; comments do not count, they keep a stream alive for hours.
struct Limiter {
    limit: usize,
    event: usize,
    line: usize,
    comment: bool,
    after_cr: bool,
}

impl Limiter {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            event: 0,
            line: 0,
            comment: false,
            after_cr: false,
        }
    }

    fn exceeded(&mut self, chunk: &[u8]) -> bool {
        for byte in chunk {
            if std::mem::replace(&mut self.after_cr, *byte == b'\r') && *byte == b'\n' {
                continue;
            }
            if matches!(byte, b'\n' | b'\r') {
                match (self.line, self.comment) {
                    (0, _) => self.event = 0,
                    (_, true) => {}
                    (line, false) => self.event += line,
                }
                (self.line, self.comment) = (0, false);
                continue;
            }
            if self.line == 0 {
                self.comment = *byte == b':';
            }
            self.line += 1;
            if self.event + self.line > self.limit {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::link::MAX_MESSAGE;

    #[test]
    fn comments_never_exceed_and_events_do() {
        let mut limiter = Limiter::new(MAX_MESSAGE);
        let comment = [b": keep-alive\n\n".as_slice(), &[b':'; 1024], b"\n"].concat();
        for _ in 0..(MAX_MESSAGE / 1024 + 2) {
            assert!(!limiter.exceeded(&comment));
        }
        let line = [b"data: ".as_slice(), &[b'x'; 1 << 20], b"\n"].concat();
        let lines = (0..80).find(|_| limiter.exceeded(&line));
        assert!(lines.is_some_and(|n| n >= 60), "{lines:?}");
    }

    #[test]
    fn an_empty_line_ends_an_event() {
        let mut limiter = Limiter::new(MAX_MESSAGE);
        let event = [b"data: ".as_slice(), &[b'x'; 1 << 20], b"\n\n"].concat();
        assert!((0..200).all(|_| !limiter.exceeded(&event)));
    }
}
