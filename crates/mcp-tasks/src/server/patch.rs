//! What is added to the inner server's own answers.

use serde_json::{Value, json, value::RawValue};

use super::{plane::Plane, session::SessionFacts};
use crate::{
    runtime::TaskSupport,
    task::{Generation, Owner, RawJson},
    wire::{
        envelope::{self, Message, string_of},
        error::METHOD_NOT_FOUND,
        object::RawObject,
        v2025_11_25 as g1, v2026_07_28 as g2,
    },
};

/// What a client says of itself in `initialize`.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientFacts {
    pub(crate) capabilities: Option<RawJson>,
    pub(crate) client_info: Option<RawJson>,
}

impl ClientFacts {
    pub(crate) fn of(params: Option<&RawValue>) -> Self {
        let Some(params) = params.and_then(RawObject::parse) else {
            return Self::default();
        };
        let object = |name: &str| {
            params
                .get(name)
                .filter(|raw| raw.get().starts_with('{'))
                .map(RawJson::from_raw)
        };
        Self {
            capabilities: object("capabilities"),
            client_info: object("clientInfo"),
        }
    }
}

/// Adds our capabilities to an `initialize` answer, and reads from it what was agreed on. `None` if it is no result.
pub(crate) fn initialize(
    response: &[u8],
    client: ClientFacts,
    owner: &Owner,
    list: bool,
) -> Option<(Vec<u8>, SessionFacts)> {
    let Ok(Message::Result { id, result }) = Message::parse(response) else {
        return None;
    };
    let mut result = RawObject::parse(result)?;
    let version = result
        .get("protocolVersion")
        .and_then(string_of)?
        .into_owned();
    let declared = result.object("capabilities");
    let (inner_tools, inner_logging) = (has(&declared, "tools"), has(&declared, "logging"));
    let mut capabilities = ours_added(&declared);
    if version == g1::VERSION {
        capabilities.set("tasks", &g1::server_tasks(list));
    }
    drop(declared);
    result.set("capabilities", &capabilities);
    let facts = SessionFacts {
        owner: owner.clone(),
        version,
        capabilities: client.capabilities,
        client_info: client.client_info,
        inner_tools,
        inner_logging,
    };
    Some((envelope::result(id, &result), facts))
}

fn has(capabilities: &RawObject<'_>, name: &str) -> bool {
    capabilities
        .get(name)
        .is_some_and(|raw| raw.get().starts_with('{'))
}

/// Our tools, as a revision lists them.
fn our_tools(plane: &Plane, generation: Generation) -> Vec<RawJson> {
    let execution = generation == Generation::V2025_11_25;
    let tools = plane.runtime.tools();
    tools
        .iter()
        .filter(|tool| !tool.augmented)
        .map(|tool| {
            if execution {
                tool.listed.clone()
            } else {
                tool.plain.clone()
            }
        })
        .collect()
}

/// `tools/list` where the inner server has none: ours, on one page.
pub(crate) fn own_tools_list(plane: &Plane, id: &RawValue, generation: Generation) -> Vec<u8> {
    let mut page = RawObject::default();
    if generation == Generation::V2026_07_28 {
        page.set("resultType", &"complete");
        page.set("_meta", &plane.server_meta());
        hint(&mut page);
    }
    page.set("tools", &our_tools(plane, generation));
    envelope::result(id, &page)
}

/// The caching hints of 2026-07-28 (`server/utilities/caching`): our tools can change at any time.
fn hint(page: &mut RawObject<'_>) {
    page.set("ttlMs", &0);
    if page.get("cacheScope").is_none() {
        page.set("cacheScope", &"private");
    }
}

/// Adds the extension and our other capabilities to an answer to `server/discover`, and learns from it who the inner
/// server is. `None` if it is no result.
pub(crate) fn discover(plane: &Plane, response: &[u8]) -> Option<Vec<u8>> {
    let Ok(Message::Result { id, result }) = Message::parse(response) else {
        return None;
    };
    let mut result = RawObject::parse(result)?;
    if let Some(info) = result.object("_meta").get(g2::SERVER_INFO_META) {
        let _ = plane.inner.server_info.set(RawJson::from_raw(info));
    }
    let versions = result.get("supportedVersions");
    if let Some(versions) = versions.and_then(|raw| serde_json::from_str(raw.get()).ok()) {
        let _ = plane.inner.versions.set(versions);
    }
    let declared = result.object("capabilities");
    let mut capabilities = ours_added(&declared);
    let mut extensions = declared.object("extensions").to_value();
    extensions[g2::EXTENSION] = json!({});
    capabilities.set("extensions", &extensions);
    capabilities.remove("tasks");
    drop(declared);
    result.set("capabilities", &capabilities);
    Some(envelope::result(id, &result))
}

/// What a server declares, with what our tools need. A capability that is `null` is one that is absent; it is not
/// written at all.
fn ours_added(declared: &RawObject<'_>) -> RawObject<'static> {
    let mut capabilities: RawObject<'static> = RawObject::default();
    for name in declared.names() {
        if let Some(raw) = declared.get(name).filter(|raw| raw.get() != "null") {
            capabilities.push_owned(name, raw);
        }
    }
    let mut tools = declared.object("tools").to_value();
    tools["listChanged"] = Value::Bool(true);
    capabilities.set("tools", &tools);
    if !has(declared, "logging") {
        capabilities.set("logging", &json!({}));
    }
    capabilities
}

/// Adds our tools to the last page of the inner server's list, and learns its names. The bytes as they came if it is
/// no answer to `tools/list`.
pub(crate) fn tools_list(plane: &Plane, response: &[u8], generation: Generation) -> Vec<u8> {
    let (id, result) = match Message::parse(response) {
        Ok(Message::Result { id, result }) => (id, result),
        Ok(Message::Error {
            id: Some(id),
            error,
        }) if serde_json::from_str::<crate::task::ErrorObject>(error.get())
            .is_ok_and(|error| error.code == METHOD_NOT_FOUND) =>
        {
            return own_tools_list(plane, id, generation);
        }
        _ => return response.to_vec(),
    };
    let Some(mut page) = RawObject::parse(result) else {
        return response.to_vec();
    };
    let inner: Vec<Box<RawValue>> = page
        .get("tools")
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default();
    let mut tools: Vec<RawJson> = Vec::with_capacity(inner.len());
    for tool in inner {
        let name = RawObject::parse(&tool)
            .and_then(|tool| Some(string_of(tool.get("name")?)?.into_owned()));
        let Some(name) = name else {
            tools.push(RawJson::from_raw(&tool));
            continue;
        };
        if plane.augmented.wants(&name)
            && let Ok(definition) = serde_json::from_str(tool.get())
        {
            plane
                .augmented
                .consider_or_warn(&plane.runtime, &definition);
        }
        let known = plane.runtime.tool(&name);
        if let Some(entry) = known.as_ref().filter(|entry| entry.augmented) {
            tools.push(with_execution(&tool, entry.support, generation));
            continue;
        }
        if known.is_some() {
            tracing::warn!(
                tool = name,
                "the inner server has a tool of the same name; the task tool is used"
            );
            continue;
        }
        plane.learn_inner_tool(&name);
        tools.push(RawJson::from_raw(&tool));
    }
    let last = page
        .get("nextCursor")
        .is_none_or(|cursor| cursor.get() == "null");
    if last {
        plane.inner_list_seen();
        tools.extend(our_tools(plane, generation));
    }
    if generation == Generation::V2026_07_28 {
        hint(&mut page);
    }
    page.set("tools", &tools);
    envelope::result(id, &page)
}

/// A tool of the inner server that becomes a task, as it was but for that.
fn with_execution(tool: &RawValue, support: TaskSupport, generation: Generation) -> RawJson {
    let patched = || {
        let mut members = RawObject::parse(tool)?;
        members.remove("execution");
        if generation == Generation::V2025_11_25 {
            members.set("execution", &json!({"taskSupport": support.as_str()}));
        }
        RawJson::from_serialize(&members).ok()
    };
    patched().unwrap_or_else(|| RawJson::from_raw(tool))
}
