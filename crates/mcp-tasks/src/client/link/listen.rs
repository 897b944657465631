//! The stream for what belongs to no request: GET, opened once the session is ready, taken up again when it ends.

use std::time::Duration;

use super::{
    http::{RECONNECT, Shared},
    reply::is_stream,
    sse::{Cursor, Events},
};
use crate::client::backoff::Backoff;

/// A stream that lived this long did work, even if nothing came on it.
const SETTLED: Duration = Duration::from_secs(10);

/// Listens for as long as it is polled.
pub(super) async fn run(shared: &Shared) {
    let mut sessions = shared.session.subscribe();
    loop {
        let Ok(session) = sessions
            .wait_for(|session| session.ready)
            .await
            .map(|s| s.generation)
        else {
            return;
        };
        let other = |now: &super::http::Session| now.generation != session;
        tokio::select! {
            () = listen(shared) => {}
            _ = sessions.wait_for(other) => continue,
        }
        // The server offers no such stream; the next session may.
        if sessions.wait_for(other).await.is_err() {
            return;
        }
    }
}

/// Listens until the server turns out not to offer the stream.
async fn listen(shared: &Shared) {
    let mut cursor = Cursor::default();
    let mut backoff = Backoff::new(RECONNECT, Duration::from_secs(60));
    loop {
        match shared.listen(cursor.last_event_id.as_deref()).await {
            Ok(response) if is_stream(&response) => {
                let mut events = Events::of(response, shared.max_message(), &cursor);
                let opened = tokio::time::Instant::now();
                loop {
                    match events.next(&mut cursor).await {
                        Ok(Some(data)) => {
                            backoff.reset();
                            shared.deliver(data, None).await;
                        }
                        Ok(None) => break tracing::debug!("the general stream ended"),
                        Err(lost) => {
                            break tracing::debug!(why = lost.why, "the general stream broke");
                        }
                    }
                }
                if opened.elapsed() > SETTLED {
                    backoff.reset();
                }
            }
            Ok(response) => match response.status().as_u16() {
                // An event id that the server has forgotten: begin afresh.
                400 | 404 | 410 if cursor.last_event_id.is_some() => cursor.last_event_id = None,
                // 405 is the word for "not offered"; 404 a session that is gone (the next request will renew it).
                status @ (200..=299 | 400 | 401 | 403..=407 | 410 | 501) => {
                    return tracing::debug!(status, "no general stream");
                }
                status => tracing::debug!(status, "the general stream was refused for now"),
            },
            Err(lost) => tracing::debug!(why = lost.why, "the general stream could not be opened"),
        }
        tokio::time::sleep(cursor.wait(&mut backoff)).await;
    }
}
