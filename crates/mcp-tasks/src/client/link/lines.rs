//! Messages as lines over any pair of byte streams, a child process's stdio among them
//! (2025-11-25 `basic/transports`, stdio).

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    process::Child,
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

use super::{Inbound, Link, Lost, LostKind, MAX_MESSAGE, Outgoing};

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

/// Starts both halves. They end when `stop` is cancelled or the peer closes; a child is killed with the link.
pub(in crate::client) fn start(
    reader: impl AsyncRead + Send + Unpin + 'static,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    child: Option<Child>,
    inbound: mpsc::Sender<Inbound>,
    stop: CancellationToken,
) -> LineLink {
    let (lines, queue) = mpsc::channel(256);
    let finished = CancellationToken::new();
    tokio::spawn(read(reader, inbound.clone(), stop.clone()));
    tokio::spawn(write(writer, child, queue, inbound, stop, finished.clone()));
    LineLink { lines, finished }
}

async fn read(
    reader: impl AsyncRead + Send + Unpin,
    inbound: mpsc::Sender<Inbound>,
    stop: CancellationToken,
) {
    let mut reader = BufReader::with_capacity(16 << 10, reader);
    let reading = async {
        loop {
            match next_line(&mut reader).await {
                Ok(Some(line)) if line.is_empty() => {}
                Ok(Some(line)) => {
                    let message = Inbound::Message {
                        bytes: line,
                        via: None,
                    };
                    if inbound.send(message).await.is_err() {
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

/// One line without its end; `None` at the end of the stream. A last line without a line end counts.
async fn next_line(reader: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Option<Bytes>> {
    let mut line = Vec::new();
    loop {
        let chunk = reader.fill_buf().await?;
        if chunk.is_empty() {
            return Ok((!line.is_empty()).then(|| line.into()));
        }
        let (taken, ended) = match chunk.iter().position(|b| *b == b'\n') {
            Some(end) => (end + 1, true),
            None => (chunk.len(), false),
        };
        line.extend_from_slice(&chunk[..taken]);
        reader.consume(taken);
        if line.len() > MAX_MESSAGE {
            return Err(std::io::Error::other(format!(
                "a message of the server is longer than {MAX_MESSAGE} bytes"
            )));
        }
        if ended {
            let end = line.trim_ascii_end().len();
            line.truncate(end);
            return Ok(Some(line.into()));
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
        let mut reader = BufReader::with_capacity(3, &b"{\"a\":1}\r\n\n{\"b\":2}"[..]);
        assert_eq!(next_line(&mut reader).await.unwrap().unwrap(), "{\"a\":1}");
        assert_eq!(next_line(&mut reader).await.unwrap().unwrap(), "");
        assert_eq!(next_line(&mut reader).await.unwrap().unwrap(), "{\"b\":2}");
        assert_eq!(next_line(&mut reader).await.unwrap(), None);
    }
}
