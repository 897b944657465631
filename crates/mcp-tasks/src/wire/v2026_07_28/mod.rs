//! The extension `io.modelcontextprotocol/tasks` of protocol 2026-07-28 (SEP-2663).
//!
//! So far only what recognises such a request, so that it passes to the inner server untouched: messages of this
//! revision are served without tasks until the extension lands here.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::envelope::string_of;

/// The revision this module speaks.
pub const VERSION: &str = "2026-07-28";

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
    let params: Params<'_> = serde_json::from_str(text).ok()?;
    let meta: Meta<'_> = serde_json::from_str(params.meta?.get()).ok()?;
    string_of(meta.version?).map(std::borrow::Cow::into_owned)
}
