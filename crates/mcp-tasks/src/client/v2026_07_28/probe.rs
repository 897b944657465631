//! Which revision a server speaks (2026-07-28 `basic/versioning`, and Backward Compatibility of both transports):
//! `server/discover` first. Its result, or an error that only this revision has, is a modern server's; whatever else
//! comes, or nothing, is one's that wants `initialize`.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use rmcp::model::{ClientConfig, ErrorData};
use serde_json::json;

use super::{Modern, broke, facts};
use crate::{
    client::{
        TaskClientError,
        connection::Connection,
        link::{Lost, LostKind},
        waiting::{Abandon, Reply},
    },
    wire::{
        error::{HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION},
        v2026_07_28::{
            LEGACY_VERSIONS, VERSION,
            reading::{Discovered, supported},
        },
    },
};

/// How often a server that says it speaks this revision, and does not, is asked.
const TRIES: u32 = 2;
const DISCOVER: &str = "server/discover";

/// What a probe found out.
pub(in crate::client) enum Probed {
    /// 2026-07-28 is spoken; the connection knows.
    Modern,
    /// `initialize` has to be tried.
    Legacy,
    /// The server went away over the question; a new one may be asked otherwise.
    Gone(TaskClientError),
}

/// Asks the server. `only` accepts no other revision.
///
/// # Errors
/// If the server refused for another reason, or shares no revision with us.
pub(in crate::client) async fn probe(
    connection: &Arc<Connection>,
    client: &ClientConfig,
    timeout: Duration,
    only: bool,
) -> Result<Probed, TaskClientError> {
    let candidate = Modern::new(client, &Discovered::default());
    let mut tries = 0;
    loop {
        tries += 1;
        let found = match ask(connection, &candidate, timeout).await {
            Some(Reply::Result(result)) => match Discovered::read(result.as_raw()) {
                Some(found) => found,
                None if only => {
                    let what = "the answer to server/discover names no supportedVersions";
                    return Err(broke(what));
                }
                None => return Ok(Probed::Legacy),
            },
            Some(Reply::Error(error)) => match is_modern(&error) {
                true if i64::from(error.code.0) == UNSUPPORTED_PROTOCOL_VERSION => Discovered {
                    versions: supported(error.data.as_ref()),
                    ..Discovered::default()
                },
                true => return Err(TaskClientError::Rpc(error)),
                false if only => return Err(TaskClientError::Rpc(error)),
                false => return Ok(Probed::Legacy),
            },
            Some(Reply::Lost(lost)) => return lost_on_the_way(connection, lost, only),
            None if only => {
                return Err(TaskClientError::Timeout {
                    method: DISCOVER,
                    after: timeout,
                });
            }
            None => return Ok(Probed::Legacy),
        };
        let speaks = |version: &str| found.versions.iter().any(|known| known == version);
        // Without a result it has only been named: then it is asked once more.
        if speaks(VERSION) && !found.result.is_empty() {
            let modern = Modern::new(client, &found);
            let _ = connection.declared.set(modern.stamp.capabilities().clone());
            let _ = connection.server.set(facts(&found));
            let _ = connection.modern.set(modern);
            return Ok(Probed::Modern);
        }
        if speaks(VERSION) && tries < TRIES {
            continue;
        }
        if !only && LEGACY_VERSIONS.iter().any(|version| speaks(version)) {
            return Ok(Probed::Legacy);
        }
        return Err(TaskClientError::UnsupportedVersion {
            supported: found.versions,
        });
    }
}

/// One `server/discover`; `None` if it was not answered in time. What comes later finds nobody who waits.
async fn ask(connection: &Arc<Connection>, modern: &Modern, timeout: Duration) -> Option<Reply> {
    let number = connection.number();
    let call = modern.stamped(connection, DISCOVER, json!({}));
    connection.probe.store(number, Ordering::Relaxed);
    let asked = async {
        let mut flight = connection
            .request_numbered(number, call, None, Abandon::Silently)
            .await;
        flight.reply().await
    };
    let reply = tokio::time::timeout(timeout, asked).await.ok();
    connection.probe.store(0, Ordering::Relaxed);
    reply
}

fn is_modern(error: &ErrorData) -> bool {
    matches!(
        i64::from(error.code.0),
        UNSUPPORTED_PROTOCOL_VERSION | MISSING_CLIENT_CAPABILITY | HEADER_MISMATCH
    )
}

fn lost_on_the_way(
    connection: &Connection,
    lost: Lost,
    only: bool,
) -> Result<Probed, TaskClientError> {
    match lost.kind {
        LostKind::Closed => Ok(Probed::Gone(connection.closed_error(None))),
        // An HTTP reply that is no answer of this revision: a status, or something else than a message.
        LostKind::Refused(_) | LostKind::Protocol if !only => Ok(Probed::Legacy),
        LostKind::Transient if lost.sent && !only => Ok(Probed::Legacy),
        _ => Err(TaskClientError::lost(lost, None)),
    }
}
