//! Reading what came back for one HTTP request.

use std::time::Duration;

use bytes::Bytes;
use http::{
    StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use reqwest::Response;
use serde_json::value::RawValue;

use super::{Lost, LostKind};
use crate::wire::envelope::Message;

pub(super) enum Reply {
    /// A 2xx reply that is still to be read.
    Stream(Response),
    /// An error status whose body is the JSON-RPC answer all the same.
    Answer(Bytes),
}

pub(super) async fn accepted(response: Response, id: &str) -> Result<Reply, Lost> {
    if response.status().is_success() {
        return Ok(Reply::Stream(response));
    }
    let (status, retry_after) = (response.status(), retry_after(&response));
    let json = content_type(&response) == "application/json";
    let text = body(response, 64 << 10).await.unwrap_or_default();
    let credentials = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    // What it says of the wait is in a header, which an answer has no room for.
    let wait = status == StatusCode::TOO_MANY_REQUESTS && retry_after.is_some();
    if json && !credentials && !wait && answers(&text, id) {
        return Ok(Reply::Answer(text));
    }
    Err(refused(status, retry_after, &text))
}

/// Whether `bytes` are the response to the request `id`; an error that could not name its request is.
pub(super) fn answers(bytes: &[u8], id: &str) -> bool {
    let same = |got: &RawValue| got.get() == id;
    match Message::parse(bytes) {
        Ok(Message::Result { id, .. }) => same(id),
        Ok(Message::Error { id, .. }) => id.is_none_or(same),
        Ok(_) => false,
        // Broken, but meant to be the answer: the reader will say what is wrong with it.
        Err(malformed) => malformed.id.is_some_and(same),
    }
}

pub(super) async fn refusal(response: Response) -> Lost {
    let (status, retry_after) = (response.status(), retry_after(&response));
    let text = body(response, 64 << 10).await.unwrap_or_default();
    refused(status, retry_after, &text)
}

fn refused(status: StatusCode, retry_after: Option<Duration>, text: &[u8]) -> Lost {
    let kind = match status.as_u16() {
        code @ (401 | 403) => LostKind::Unauthorized(code),
        408 | 425 | 429 | 500 | 502..=504 => LostKind::Transient,
        code => LostKind::Refused(code),
    };
    let text = String::from_utf8_lossy(text);
    let mut lost = Lost::new(
        kind,
        true,
        format!(
            "HTTP {status}: {}",
            crate::wire::envelope::excerpt(text.trim())
        ),
    );
    lost.retry_after = retry_after;
    lost
}

pub(super) fn unreachable_server(error: &reqwest::Error) -> Lost {
    let mut why = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        why = format!("{why}: {cause}");
        source = cause.source();
    }
    Lost::new(LostKind::Transient, !error.is_connect(), why)
}

/// `Retry-After` in seconds; a date is not worth a clock here.
fn retry_after(response: &Response) -> Option<Duration> {
    let seconds: u64 = response
        .headers()
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds.min(3600)))
}

pub(super) fn content_type(response: &Response) -> String {
    let value = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let value = value
        .and_then(|value| value.split(';').next())
        .unwrap_or_default();
    value.trim().to_ascii_lowercase()
}

pub(super) fn is_stream(response: &Response) -> bool {
    response.status().is_success() && content_type(response) == "text/event-stream"
}

pub(super) async fn body(mut response: Response, limit: usize) -> Result<Bytes, Lost> {
    let mut whole = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| {
        let why = format!("the reply broke: {error}");
        Lost::new(LostKind::Transient, true, why)
    })? {
        if whole.len() + chunk.len() > limit {
            return Err(Lost::too_large(limit));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.into())
}
