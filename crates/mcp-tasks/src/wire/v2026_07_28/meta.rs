//! What a request says of itself (2026-07-28 `basic`, `_meta`).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    super::{
        envelope::string_of,
        error::{INVALID_PARAMS, UNSUPPORTED_PROTOCOL_VERSION},
        field::{self, invalid},
    },
    VERSION,
};
use crate::task::{ErrorObject, RawJson, TaskId};

/// The revisions that begin with `initialize`.
pub const LEGACY_VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Which kind of revision a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revision {
    /// This one.
    This,
    /// One that begins with `initialize`.
    Legacy,
    /// One that nobody here speaks.
    Unknown,
}

impl Revision {
    /// Reads a name.
    pub fn of(name: &str) -> Self {
        match name {
            VERSION => Self::This,
            _ if LEGACY_VERSIONS.contains(&name) => Self::Legacy,
            _ => Self::Unknown,
        }
    }
}

/// The `_meta` of one request, as it came. Nothing in it was checked.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestMeta<'a> {
    /// The whole object.
    pub raw: Option<&'a RawValue>,
    /// `io.modelcontextprotocol/protocolVersion`.
    pub version: Option<&'a RawValue>,
    /// `io.modelcontextprotocol/clientInfo`.
    pub client_info: Option<&'a RawValue>,
    /// `io.modelcontextprotocol/clientCapabilities`.
    pub capabilities: Option<&'a RawValue>,
    /// `io.modelcontextprotocol/logLevel`.
    pub log_level: Option<&'a RawValue>,
    /// `progressToken`.
    pub progress_token: Option<&'a RawValue>,
    /// Not of `_meta`, but beside it and read with it: `params.taskId`.
    pub task_id: Option<&'a RawValue>,
}

impl<'a> RequestMeta<'a> {
    /// Reads it from a request's parameters; empty if there is none.
    pub fn of(params: Option<&'a RawValue>) -> Self {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow, default, rename = "_meta")]
            meta: Option<&'a RawValue>,
            #[serde(borrow, default, rename = "taskId")]
            task_id: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct Meta<'a> {
            #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
            version: Option<&'a RawValue>,
            #[serde(borrow, default, rename = "io.modelcontextprotocol/clientInfo")]
            client_info: Option<&'a RawValue>,
            #[serde(borrow, default, rename = "io.modelcontextprotocol/clientCapabilities")]
            capabilities: Option<&'a RawValue>,
            #[serde(borrow, default, rename = "io.modelcontextprotocol/logLevel")]
            log_level: Option<&'a RawValue>,
            #[serde(borrow, default, rename = "progressToken")]
            progress_token: Option<&'a RawValue>,
        }
        let params = params.and_then(field::object::<Params<'_>>);
        let task_id = params.as_ref().and_then(|params| params.task_id);
        let raw = params.and_then(|params| params.meta);
        match raw.and_then(field::object::<Meta<'_>>) {
            Some(meta) => Self {
                raw,
                version: meta.version,
                client_info: meta.client_info,
                capabilities: meta.capabilities,
                log_level: meta.log_level,
                progress_token: meta.progress_token,
                task_id,
            },
            None => Self {
                task_id,
                ..Self::default()
            },
        }
    }

    /// The revision it names, if that is a text.
    pub fn version(&self) -> Option<Cow<'a, str>> {
        self.version.and_then(string_of)
    }

    /// The task that is named.
    ///
    /// # Errors
    /// -32602 if there is none, or it is no text.
    pub fn task_id(&self) -> Result<TaskId, ErrorObject> {
        field::string("params.taskId", self.task_id).map(|id| TaskId::from_stored(&id))
    }

    /// What is required of every request: a revision that is spoken here, and capabilities. `supported` are the
    /// revisions of the server.
    ///
    /// # Errors
    /// -32602 for what is missing or no object, -32022 for another revision.
    pub fn check(&self, supported: impl FnOnce() -> Vec<String>) -> Result<(), ErrorObject> {
        let missing = |name: &str, expected: &str, got: Option<&RawValue>| {
            let mut error = invalid(&format!("params._meta[{name:?}]"), expected, got);
            error.code = INVALID_PARAMS;
            error
        };
        let Some(version) = self.version() else {
            let expected = "the protocol version of the request";
            return Err(missing(
                super::PROTOCOL_VERSION_META,
                expected,
                self.version,
            ));
        };
        if Revision::of(&version) != Revision::This {
            return Err(ErrorObject {
                code: UNSUPPORTED_PROTOCOL_VERSION,
                message: format!("Unsupported protocol version: {version:?}"),
                data: RawJson::from_serialize(
                    &serde_json::json!({"supported": supported(), "requested": version}),
                )
                .ok(),
            });
        }
        match self.capabilities {
            Some(raw) if raw.get().starts_with('{') => Ok(()),
            got => Err(missing(super::CLIENT_CAPABILITIES_META, "an object", got)),
        }
    }

    /// Whether this very request declares the tasks extension: any object will do.
    pub fn declares_tasks(&self) -> bool {
        #[derive(Deserialize)]
        struct Capabilities<'a> {
            #[serde(borrow, default)]
            extensions: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct Extensions<'a> {
            #[serde(borrow, default, rename = "io.modelcontextprotocol/tasks")]
            tasks: Option<&'a RawValue>,
        }
        let declared = || {
            let capabilities: Capabilities<'_> = field::object(self.capabilities?)?;
            let extensions: Extensions<'_> = field::object(capabilities.extensions?)?;
            extensions.tasks
        };
        declared().is_some_and(|tasks| tasks.get().starts_with('{'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn of(capabilities: &str) -> Box<RawValue> {
        raw(&format!(
            r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{capabilities}}}}}"#
        ))
    }

    #[test]
    fn only_an_object_in_this_requests_capabilities_declares_tasks() {
        for (capabilities, declared) in [
            (
                r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
                true,
            ),
            (
                r#"{"extensions":{"io.modelcontextprotocol\/tasks":{"new":1}}}"#,
                true,
            ),
            (
                r#"{"extensions":{"io.modelcontextprotocol/tasks":null}}"#,
                false,
            ),
            (
                r#"{"extensions":{"io.modelcontextprotocol/tasks":true}}"#,
                false,
            ),
            (r#"{"extensions":null}"#, false),
            (r#"{"extensions":[]}"#, false),
            (r#"{"extensions":[{}]}"#, false),
            (r#"{"tasks":{"cancel":{}}}"#, false),
            ("{}", false),
        ] {
            let params = of(capabilities);
            let meta = RequestMeta::of(Some(&params));
            assert_eq!(meta.declares_tasks(), declared, "{capabilities}");
            assert!(meta.check(Vec::new).is_ok());
        }
        let bare = raw(r#"{"_meta":{"io.modelcontextprotocol/tasks":{}}}"#);
        assert!(!RequestMeta::of(Some(&bare)).declares_tasks());
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let code = |text: &str| {
            let params = raw(text);
            let error = RequestMeta::of(Some(&params))
                .check(|| vec!["2026-07-28".into()])
                .unwrap_err();
            (error.code, error.message)
        };
        for wrong in [
            "{}",
            r#"{"_meta":7}"#,
            r#"{"_meta":["2026-07-28",{},{}]}"#,
            r#"[{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}]"#,
            r#"{"_meta":{}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":7}}"#,
        ] {
            let (code, message) = code(wrong);
            assert_eq!(code, -32602, "{wrong}");
            assert!(message.contains("protocolVersion"), "{message}");
        }
        let (unsupported, _) =
            code(r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01"}}"#);
        assert_eq!(unsupported, -32022);
        for wrong in ["null", "7", "[]", "\"x\""] {
            let params = of(wrong);
            let error = RequestMeta::of(Some(&params)).check(Vec::new).unwrap_err();
            assert_eq!(error.code, -32602);
            assert!(
                error.message.contains("clientCapabilities"),
                "{}",
                error.message
            );
        }
    }
}
