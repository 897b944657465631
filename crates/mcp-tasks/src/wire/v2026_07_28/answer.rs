//! What a requestor gets.

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{json, value::RawValue};

use super::{
    super::{
        envelope,
        error::{METHOD_NOT_FOUND, MISSING_CLIENT_CAPABILITY, REQUEST_CANCELLED},
        object::RawObject,
        status::{self, Status},
        v2025_11_25::{RELATED_TASK, Time, question_method},
    },
    EXTENSION, SERVER_INFO_META,
};
use crate::task::{ErrorObject, Input, InputKind, Outcome, RawJson, State, TaskRecord};

/// `_meta` of every result: who answers. Empty where that is not to be told.
#[derive(Clone, Copy)]
pub struct ServerMeta<'a>(pub Option<&'a RawJson>);

impl Serialize for ServerMeta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(usize::from(self.0.is_some())))?;
        if let Some(info) = self.0 {
            map.serialize_entry(SERVER_INFO_META, info)?;
        }
        map.end()
    }
}

/// The members that every telling of a task has.
fn task_members<M: SerializeMap>(
    map: &mut M,
    record: &TaskRecord,
    status: Status,
) -> Result<(), M::Error> {
    map.serialize_entry("taskId", &record.id)?;
    map.serialize_entry("status", &status)?;
    // The message of an end does not belong to a task that is told as working.
    if let Some(message) = &record.status_message
        && (status != Status::Working || !record.is_terminal())
    {
        map.serialize_entry("statusMessage", message)?;
    }
    map.serialize_entry("createdAt", &Time(record.created_at))?;
    map.serialize_entry("lastUpdatedAt", &Time(record.updated_at))?;
    map.serialize_entry("ttlMs", &record.ttl_ms)?;
    map.serialize_entry("pollIntervalMs", &record.poll_interval_ms)
}

/// The members of a `DetailedTask`: what it is doing, with its open questions, its result or its error.
pub(super) fn detailed_members<M: SerializeMap>(
    map: &mut M,
    record: &TaskRecord,
) -> Result<(), M::Error> {
    let status = status::v2026_07_28(record);
    task_members(map, record, status)?;
    match &record.state {
        State::Active if status == Status::InputRequired => {
            map.serialize_entry("inputRequests", &InputRequests(record))
        }
        State::Active | State::Cancelled => Ok(()),
        State::Finished(Outcome::Error(error)) => map.serialize_entry("error", error),
        State::Finished(Outcome::Result { json, .. }) => {
            map.serialize_entry("result", &Inlined { json, server: None })
        }
    }
}

/// The open questions of a task, by their keys.
struct InputRequests<'a>(&'a TaskRecord);

impl Serialize for InputRequests<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Request<'a> {
            method: &'static str,
            params: Params<'a>,
        }
        struct Params<'a>(&'a Input);
        impl Serialize for Params<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let params = &self.0.question.params;
                if self.0.question.kind != InputKind::ElicitUrl {
                    return params.serialize(serializer);
                }
                // The key is what names it here.
                let mut params = RawObject::parse(params.as_raw()).unwrap_or_default();
                params.remove("elicitationId");
                params.serialize(serializer)
            }
        }
        let request = |input: &'_ Input| question_method(input.question.kind);
        let mut map = serializer.serialize_map(None)?;
        for input in self.0.open_inputs() {
            let asked = Request {
                method: request(input),
                params: Params(input),
            };
            map.serialize_entry(&*input.key, &asked)?;
        }
        map.end()
    }
}

/// A tool's result as this revision wants it: `resultType` says that it is one, and it claims no task.
struct Inlined<'a> {
    json: &'a RawJson,
    server: Option<ServerMeta<'a>>,
}

impl Serialize for Inlined<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Outcomes are objects: what is not was refused before it was stored.
        let mut result = RawObject::parse(self.json.as_raw()).unwrap_or_default();
        result.set("resultType", &"complete");
        let mut meta = result.object("_meta");
        let had = meta.remove(RELATED_TASK);
        let info = self.server.and_then(|server| server.0);
        if let Some(info) = info {
            meta.set(SERVER_INFO_META, info);
        }
        if had || info.is_some() {
            let meta = (!meta.is_empty()).then(|| serde_json::value::to_raw_value(&meta).ok());
            match meta.flatten() {
                Some(meta) => result.set("_meta", &meta),
                None => {
                    result.remove("_meta");
                }
            }
        }
        result.serialize(serializer)
    }
}

/// The answer to `tasks/get`: the task with whatever belongs to its state.
pub fn got(id: &RawValue, record: &TaskRecord, server: ServerMeta<'_>) -> Vec<u8> {
    struct Got<'a>(&'a TaskRecord, ServerMeta<'a>);
    impl Serialize for Got<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            map.serialize_entry("resultType", "complete")?;
            detailed_members(&mut map, self.0)?;
            map.serialize_entry("_meta", &self.1)?;
            map.end()
        }
    }
    envelope::result(id, &Got(record, server))
}

/// The handle that answers a `tools/call` (`CreateTaskResult`): always working, even if the body has ended.
pub fn created(id: &RawValue, record: &TaskRecord, server: ServerMeta<'_>) -> Vec<u8> {
    struct Created<'a>(&'a TaskRecord, ServerMeta<'a>);
    impl Serialize for Created<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            map.serialize_entry("resultType", "task")?;
            task_members(&mut map, self.0, Status::Working)?;
            map.serialize_entry("_meta", &self.1)?;
            map.end()
        }
    }
    envelope::result(id, &Created(record, server))
}

/// The acknowledgement of `tasks/update` and `tasks/cancel`.
pub fn acknowledged(id: &RawValue, server: ServerMeta<'_>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Ack<'a> {
        #[serde(rename = "resultType")]
        kind: &'static str,
        #[serde(rename = "_meta")]
        meta: ServerMeta<'a>,
    }
    let ack = Ack {
        kind: "complete",
        meta: server,
    };
    envelope::result(id, &ack)
}

/// What a plain call is answered with when its body has ended; `None` while it runs.
pub fn outcome(id: &RawValue, record: &TaskRecord, server: ServerMeta<'_>) -> Option<Vec<u8>> {
    match &record.state {
        State::Active => None,
        State::Cancelled => {
            let error = ErrorObject::new(REQUEST_CANCELLED, "the call was cancelled");
            Some(envelope::error(Some(id), &error))
        }
        State::Finished(Outcome::Error(error)) => Some(envelope::error(Some(id), error)),
        State::Finished(Outcome::Result { json, .. }) => {
            let server = Some(server);
            Some(envelope::result(id, &Inlined { json, server }))
        }
    }
}

/// The refusal of a plain call in the tool's own terms.
pub fn refused_plainly(id: &RawValue, why: &str, server: ServerMeta<'_>) -> Vec<u8> {
    let mut result = json!({
        "resultType": "complete", "content": [{"type": "text", "text": why}], "isError": true,
    });
    if let Ok(meta) = serde_json::to_value(server) {
        result["_meta"] = meta;
    }
    envelope::result(id, &result)
}

/// `InputRequiredResult`: the open questions, and the state that the retry has to bring back (2026-07-28
/// `basic/patterns/mrtr`).
pub fn input_required(
    id: &RawValue,
    record: &TaskRecord,
    state: &str,
    server: ServerMeta<'_>,
) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct InputRequired<'a> {
        result_type: &'static str,
        input_requests: InputRequests<'a>,
        request_state: &'a str,
        #[serde(rename = "_meta")]
        meta: ServerMeta<'a>,
    }
    let required = InputRequired {
        result_type: "input_required",
        input_requests: InputRequests(record),
        request_state: state,
        meta: server,
    };
    envelope::result(id, &required)
}

/// The error -32021 for a request that needs the tasks extension.
pub fn tasks_undeclared() -> ErrorObject {
    let required = json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}});
    ErrorObject {
        code: MISSING_CLIENT_CAPABILITY,
        message: format!("Missing required client capability: {EXTENSION}"),
        data: RawJson::from_serialize(&required).ok(),
    }
}

/// The error -32601 for a method that nobody here has.
pub fn unknown_method(method: &str) -> ErrorObject {
    ErrorObject::new(METHOD_NOT_FOUND, format!("Method not found: {method}"))
}
