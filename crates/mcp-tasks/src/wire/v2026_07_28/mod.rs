//! Protocol 2026-07-28 and its extension `io.modelcontextprotocol/tasks` (SEP-2663): every request says for itself
//! which revision it speaks, who sends it and what that client can do.

mod answer;
mod meta;
mod notification;
#[cfg(feature = "client")]
pub mod reading;
mod request;

use serde::Deserialize;
use serde_json::value::RawValue;

pub use answer::{
    ServerMeta, acknowledged, created, got, input_required, outcome, refused_plainly,
    tasks_undeclared, unknown_method,
};
pub use meta::{LEGACY_VERSIONS, RequestMeta, Revision};
pub use notification::{
    ACKNOWLEDGED, acknowledged as subscription_acknowledged, cancelled as subscription_cancelled,
    ended as subscription_ended, task_changed, tools_changed,
};
pub use request::{
    Listen, MAX_LISTENED, ToolCall, Update, check_response, listen, responses, tool_call, update,
};

use super::{envelope::string_of, field::object};

/// The revision this module speaks.
pub const VERSION: &str = "2026-07-28";

/// The extension's identifier, under `capabilities.extensions` of both sides.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// `_meta` of a request: the revision it speaks.
pub const PROTOCOL_VERSION_META: &str = "io.modelcontextprotocol/protocolVersion";
/// `_meta` of a request: who sends it.
pub const CLIENT_INFO_META: &str = "io.modelcontextprotocol/clientInfo";
/// `_meta` of a request: what its sender can do.
pub const CLIENT_CAPABILITIES_META: &str = "io.modelcontextprotocol/clientCapabilities";
/// `_meta` of a request: the least level of log messages it wants on its stream.
pub const LOG_LEVEL_META: &str = "io.modelcontextprotocol/logLevel";
/// `_meta` of a result: who answers.
pub const SERVER_INFO_META: &str = "io.modelcontextprotocol/serverInfo";
/// `_meta` of everything that belongs to a subscription: the id of its `subscriptions/listen`.
pub const SUBSCRIPTION_META: &str = "io.modelcontextprotocol/subscriptionId";

/// The revision a request names for itself in `_meta`, if it names one.
pub fn named_version(params: Option<&RawValue>) -> Option<String> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, default, rename = "_meta")]
        meta: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
        version: Option<&'a RawValue>,
    }
    // Most requests of other revisions have no such member: without a backslash it would stand there as it is.
    let text = params?.get();
    if !text.contains("_meta") && !text.contains('\\') {
        return None;
    }
    let params: Params<'_> = object(params?)?;
    let meta: Meta<'_> = object(params.meta?)?;
    string_of(meta.version?).map(std::borrow::Cow::into_owned)
}
