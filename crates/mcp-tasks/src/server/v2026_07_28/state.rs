//! What a retry brings back: which hidden task it goes on with, sealed so that nobody else can make one.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::OnceCell;

use rmcp::model::{RequestStateCodec, SealOptions};

use crate::{
    runtime::Runtime,
    store::Document,
    task::{ErrorObject, Owner, RawJson, TaskId, TaskRecord},
    wire::error::INVALID_PARAMS,
};

/// Where a generated key is kept.
const KEY_DOCUMENT: &str = "request-state-key";
const KEY_ID: &str = "k1";

/// The key that seals states: the one given, or one that is generated and kept in the store, so that every replica
/// has it.
#[derive(Default)]
pub(crate) struct StateKey {
    given: Option<Vec<u8>>,
    codec: OnceCell<RequestStateCodec>,
}

/// What is sealed.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(super) struct State {
    /// The hidden task that asks.
    #[serde(rename = "t")]
    pub(super) task: TaskId,
    /// For a stage before a task: the id that the task gets.
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<TaskId>,
}

/// To what a state is bound: another owner, tool or arguments cannot use it.
pub(super) struct Binding(Vec<u8>);

impl Binding {
    pub(super) fn new(owner: &Owner, tool: &str, arguments: Option<&RawJson>) -> Self {
        let arguments = arguments
            .and_then(|raw| raw.parse::<Value>().ok())
            .unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        let mut canonical = String::new();
        write_canonical(&arguments, &mut canonical);
        let owner = match owner {
            Owner::Principal(name) => format!("principal:{name}"),
            Owner::Bearer => "bearer".to_owned(),
        };
        let mut bytes = Vec::new();
        for part in [owner.as_str(), "tools/call", tool, canonical.as_str()] {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        Self(bytes)
    }
}

/// JSON with the members of every object in order: clients may write them in another one.
fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|a, b| a.0.cmp(b.0));
            out.push('{');
            for (at, (name, value)) in members.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                write_canonical(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        other => out.push_str(&other.to_string()),
    }
}

impl StateKey {
    /// A key of at least 32 bytes, the same on all replicas.
    pub(crate) fn given(key: Vec<u8>) -> Self {
        Self {
            given: Some(key),
            codec: OnceCell::new(),
        }
    }

    async fn codec(&self, runtime: &Runtime) -> Result<&RequestStateCodec, ErrorObject> {
        self.codec
            .get_or_try_init(|| async {
                let key = match &self.given {
                    Some(key) => key.clone(),
                    None => {
                        // Random but for six bits each.
                        let fresh = [(); 3].map(|()| *uuid::Uuid::new_v4().as_bytes());
                        let offered = Document {
                            body: fresh.concat(),
                            expires_at: None,
                        };
                        let kept = runtime
                            .store()
                            .put_document_if_absent(KEY_DOCUMENT, offered);
                        kept.await.map_err(|error| ErrorObject::from(&error))?.body
                    }
                };
                RequestStateCodec::new_with_keyring(KEY_ID, [(KEY_ID, key)]).map_err(|error| {
                    tracing::error!(%error, "the key for request states is no use");
                    ErrorObject::internal("the request state could not be sealed")
                })
            })
            .await
    }

    /// Seals the state of a call whose hidden task is `record`; it is good for as long as that lives.
    pub(super) async fn seal(
        &self,
        runtime: &Runtime,
        record: &TaskRecord,
        state: &State,
        binding: &Binding,
    ) -> Result<String, ErrorObject> {
        let codec = self.codec(runtime).await?;
        let mut options = SealOptions::new().associated_data(&binding.0);
        if let Some(left) = record.remaining(runtime.clock().now()) {
            options = options.ttl(left);
        }
        codec.seal_json_with(state, &options).map_err(|error| {
            tracing::error!(%error, "a request state could not be sealed");
            ErrorObject::internal("the request state could not be sealed")
        })
    }

    /// Opens a state of ours that was given for the same owner, tool and arguments.
    pub(super) async fn open(
        &self,
        runtime: &Runtime,
        sealed: &str,
        binding: &Binding,
    ) -> Result<State, ErrorObject> {
        let codec = self.codec(runtime).await?;
        codec.open_json_with(sealed, &binding.0).map_err(|error| {
            tracing::debug!(%error, "a request state was refused");
            bad_state()
        })
    }
}

/// The one answer to states that were tampered with, are another's, or have expired.
pub(super) fn bad_state() -> ErrorObject {
    ErrorObject::new(
        INVALID_PARAMS,
        "params.requestState: expected the state of an earlier answer to this very call",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_members_does_not_matter_and_everything_else_does() {
        let of = |owner: &Owner, tool: &str, arguments: &str| {
            Binding::new(owner, tool, RawJson::from_text(arguments).ok().as_ref()).0
        };
        let alice = Owner::principal("alice");
        let one = of(&alice, "t", r#"{"a":1,"b":{"c":[1,2],"d":"x"}}"#);
        assert_eq!(
            one,
            of(&alice, "t", r#"{"b": {"d":"x", "c":[1,2]}, "a":1}"#)
        );
        for other in [
            of(&alice, "t", r#"{"a":1,"b":{"c":[2,1],"d":"x"}}"#),
            of(&alice, "u", r#"{"a":1,"b":{"c":[1,2],"d":"x"}}"#),
            of(
                &Owner::principal("bob"),
                "t",
                r#"{"a":1,"b":{"c":[1,2],"d":"x"}}"#,
            ),
            of(&Owner::Bearer, "t", r#"{"a":1,"b":{"c":[1,2],"d":"x"}}"#),
        ] {
            assert_ne!(one, other);
        }
        assert_eq!(
            Binding::new(&alice, "t", None).0,
            of(&alice, "t", "{}"),
            "no arguments are empty ones"
        );
    }
}
