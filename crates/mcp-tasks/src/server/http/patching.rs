//! Patching one message in the inner server's response, whether that is JSON or SSE.

use bytes::Bytes;
use http::{Response, header};
use http_body_util::{BodyExt, Full};

use super::{McpBody, is_sse};
use crate::server::stdio::one_line;

/// Reads the finite body of a response and offers each message in it to `patch`, which returns what takes the place
/// of one. Everything else is left as it was.
pub(super) async fn response(
    response: Response<McpBody>,
    mut patch: impl FnMut(&[u8]) -> Option<Vec<u8>>,
) -> Response<McpBody> {
    let (mut parts, body) = response.into_parts();
    let bytes = match body.collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) => {
            tracing::warn!(%error, "the inner server's response broke off");
            Bytes::new()
        }
    };
    let patched = if is_sse(&parts.headers) {
        events(&bytes, &mut patch)
    } else {
        patch(&bytes)
    };
    let bytes = match patched {
        Some(patched) => {
            parts.headers.remove(header::CONTENT_LENGTH);
            Bytes::from(patched)
        }
        None => bytes,
    };
    Response::from_parts(
        parts,
        Full::new(bytes)
            .map_err(|never| match never {})
            .boxed_unsync(),
    )
}

/// Patches the `data:` lines of an SSE body; `id:`, `retry:` and comments keep their bytes.
pub(super) fn events(
    body: &[u8],
    patch: &mut impl FnMut(&[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(body.len() + 1024);
    let mut changed = false;
    for line in body.split_inclusive(|b| *b == b'\n') {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let data = text
            .strip_prefix(b"data:")
            .map(|data| data.strip_prefix(b" ").unwrap_or(data));
        match data
            .filter(|data| data.starts_with(b"{"))
            .and_then(&mut *patch)
        {
            Some(mut patched) => {
                one_line(&mut patched);
                out.extend_from_slice(b"data: ");
                out.extend_from_slice(&patched);
                out.extend_from_slice(&line[text.len()..]);
                changed = true;
            }
            None => out.extend_from_slice(line),
        }
    }
    changed.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_message_changes() {
        let body = b"id: 0\nretry: 3000\ndata: \n\n: ping\n\ndata: {\"id\":1}\r\nid: 7\n\n";
        let patched = events(body, &mut |message| {
            assert_eq!(message, b"{\"id\":1}");
            Some(b"{\"id\":1,\n\"x\":2}".to_vec())
        });
        let expected =
            b"id: 0\nretry: 3000\ndata: \n\n: ping\n\ndata: {\"id\":1, \"x\":2}\r\nid: 7\n\n";
        assert_eq!(patched.unwrap(), expected);
        assert_eq!(events(body, &mut |_| None), None);
    }
}
