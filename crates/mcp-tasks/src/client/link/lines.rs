//! Messages as lines over any pair of byte streams, a child process's stdio among them
//! (2025-11-25 `basic/transports`, stdio).

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rmcp::model::RequestId;
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    process::Child,
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

use super::{Inbound, Link, Lost, LostKind, Outgoing, skim::Skim};

/// How long a child process may take to end once its input is closed.
const CHILD_GRACE: Duration = Duration::from_secs(2);
/// How long the last messages may take to be written.
const FLUSH_GRACE: Duration = Duration::from_secs(1);

struct Line {
    bytes: Bytes,
    written: Option<oneshot::Sender<Result<(), Lost>>>,
}

/// The writing half; the reading half feeds the channel.
pub(in crate::client) struct LineLink {
    lines: mpsc::Sender<Line>,
    finished: CancellationToken,
}

/// Starts both halves. They end when `stop` is cancelled or the peer closes; a child is killed with the link. A message
/// of more than `limit` bytes is read past.
pub(in crate::client) fn start(
    reader: impl AsyncRead + Send + Unpin + 'static,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    child: Option<Child>,
    limit: usize,
    inbound: mpsc::Sender<Inbound>,
    stop: CancellationToken,
) -> LineLink {
    let (lines, queue) = mpsc::channel(256);
    let finished = CancellationToken::new();
    tokio::spawn(read(reader, limit, inbound.clone(), stop.clone()));
    tokio::spawn(write(writer, child, queue, inbound, stop, finished.clone()));
    LineLink { lines, finished }
}

async fn read(
    reader: impl AsyncRead + Send + Unpin,
    limit: usize,
    inbound: mpsc::Sender<Inbound>,
    stop: CancellationToken,
) {
    let mut reader = BufReader::with_capacity(16 << 10, reader);
    let reading = async {
        loop {
            match next_line(&mut reader, limit).await {
                Ok(Some(Read::Line(line))) if line.is_empty() => {}
                Ok(Some(read)) => {
                    let message = match read {
                        Read::Line(bytes) => Some(Inbound::Message { bytes, via: None }),
                        Read::TooLarge(skim) => too_large(&skim, limit),
                    };
                    if let Some(message) = message
                        && inbound.send(message).await.is_err()
                    {
                        return;
                    }
                }
                Ok(None) => break closed(&inbound, "the server closed its output").await,
                Err(error) => break closed(&inbound, &error.to_string()).await,
            }
        }
    };
    tokio::select! { () = reading => {}, () = stop.cancelled() => {} }
}

async fn closed(inbound: &mpsc::Sender<Inbound>, why: &str) {
    let _ = inbound
        .send(Inbound::Closed {
            why: why.to_owned(),
        })
        .await;
}

/// One line that was read.
enum Read {
    Line(Bytes),
    /// It had too many bytes, and was not kept.
    TooLarge(Skim),
}

/// What a message that was not kept means for whoever waits: an answer is lost, a request is refused as unknown.
fn too_large(skim: &Skim, limit: usize) -> Option<Inbound> {
    let lost = Lost::too_large(limit);
    let id = skim
        .id()
        .filter(|id| serde_json::from_str::<RequestId>(id).is_ok());
    let Some(id) = id else {
        tracing::warn!(why = lost.why, "a message was dropped");
        return None;
    };
    if skim.method {
        let bytes = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"mcp-tasks/too_large"}}"#);
        let bytes = bytes.into();
        return Some(Inbound::Message { bytes, via: None });
    }
    let id = id.into();
    Some(Inbound::Lost { id, lost })
}

/// One line without its end; `None` at the end of the stream. A last line without a line end counts.
async fn next_line(
    reader: &mut (impl AsyncBufRead + Unpin),
    limit: usize,
) -> std::io::Result<Option<Read>> {
    let mut line = Vec::new();
    let mut skim: Option<Skim> = None;
    loop {
        let chunk = reader.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(match skim {
                Some(skim) => Some(Read::TooLarge(skim)),
                None => (!line.is_empty()).then(|| Read::Line(line.into())),
            });
        }
        let (taken, ended) = match chunk.iter().position(|b| *b == b'\n') {
            Some(end) => (end + 1, true),
            None => (chunk.len(), false),
        };
        match &mut skim {
            Some(skim) => skim.feed(&chunk[..taken]),
            None => line.extend_from_slice(&chunk[..taken]),
        }
        reader.consume(taken);
        if skim.is_none() && line.len() > limit {
            let skim = skim.insert(Skim::default());
            skim.feed(&std::mem::take(&mut line));
        }
        if ended {
            if let Some(skim) = skim {
                return Ok(Some(Read::TooLarge(skim)));
            }
            let end = line.trim_ascii_end().len();
            line.truncate(end);
            return Ok(Some(Read::Line(line.into())));
        }
    }
}

async fn write(
    mut writer: impl AsyncWrite + Send + Unpin,
    mut child: Option<Child>,
    mut queue: mpsc::Receiver<Line>,
    inbound: mpsc::Sender<Inbound>,
    stop: CancellationToken,
    finished: CancellationToken,
) {
    let _finished = finished.drop_guard();
    let mut failed = false;
    loop {
        let line = tokio::select! {
            biased;
            line = queue.recv() => line,
            () = stop.cancelled() => None,
        };
        let Some(line) = line else { break };
        let outcome = tokio::select! {
            outcome = write_line(&mut writer, &line.bytes) => outcome,
            () = async { stop.cancelled().await; tokio::time::sleep(FLUSH_GRACE).await } => break,
        };
        failed = outcome.is_err();
        let outcome = outcome.map_err(|error| {
            Lost::new(
                LostKind::Closed,
                true,
                format!("writing to the server failed: {error}"),
            )
        });
        let why = outcome.as_ref().err().map(|lost| lost.why.clone());
        if let Some(written) = line.written {
            let _ = written.send(outcome);
        }
        if let Some(why) = why {
            closed(&inbound, &why).await;
            break;
        }
    }
    queue.close();
    if !failed {
        let _ = tokio::time::timeout(FLUSH_GRACE, writer.shutdown()).await;
    }
    drop(writer);
    if let Some(child) = &mut child
        && tokio::time::timeout(CHILD_GRACE, child.wait())
            .await
            .is_err()
    {
        tracing::debug!("the server process did not end by itself, killing it");
        let _ = child.kill().await;
    }
}

async fn write_line(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    writer.write_all(bytes).await?;
    writer.write_all(b"\n").await?;
    writer.flush().await
}

impl LineLink {
    fn gone() -> Lost {
        Lost::new(LostKind::Closed, false, "the connection is closed")
    }
}

#[async_trait]
impl Link for LineLink {
    async fn send(&self, message: Outgoing) -> Result<(), Lost> {
        let request = message.kind.id().is_some();
        let (written, done) = oneshot::channel();
        let line = Line {
            bytes: message.bytes,
            written: (!request).then_some(written),
        };
        self.lines.send(line).await.map_err(|_| Self::gone())?;
        if request {
            return Ok(());
        }
        done.await.unwrap_or_else(|_| Err(Self::gone()))
    }

    fn send_best_effort(&self, message: Outgoing) {
        let _ = self.lines.try_send(Line {
            bytes: message.bytes,
            written: None,
        });
    }

    fn abort(&self, _id: &str) {}

    async fn finished(&self) {
        self.finished.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_end_in_lf_or_crlf_or_the_end() {
        let mut reader =
            BufReader::with_capacity(3, &b"{\"a\":1}\r\n\n{\"id\":12345}\n{\"b\":2}"[..]);
        let mut lines = Vec::new();
        while let Some(read) = next_line(&mut reader, 9).await.unwrap() {
            lines.push(match read {
                Read::Line(line) => String::from_utf8(line.to_vec()).unwrap(),
                Read::TooLarge(skim) => format!("too large: {:?}", skim.id()),
            });
        }
        assert_eq!(
            lines,
            ["{\"a\":1}", "", "too large: Some(\"12345\")", "{\"b\":2}"]
        );
    }
}
