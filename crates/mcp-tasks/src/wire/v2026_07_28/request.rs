//! What a requestor sends.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::{
    envelope::string_of,
    error::INVALID_PARAMS,
    field::{self, invalid},
    object::RawObject,
};
use crate::task::{ErrorObject, InputKind, TaskId};

/// The members of a `tools/call`, borrowed and unchecked but for the name. `params.task` means nothing here.
#[derive(Debug, Clone)]
pub struct ToolCall<'a> {
    /// The tool.
    pub name: String,
    /// The arguments as they came.
    pub arguments: Option<&'a RawValue>,
    /// The answers to the questions of an earlier round, as they came.
    pub input_responses: Option<&'a RawValue>,
    /// The state that came with those questions, as it came.
    pub request_state: Option<&'a RawValue>,
}

/// Reads the parameters of a `tools/call`; `None` if they do not even name a tool.
pub fn tool_call(params: Option<&RawValue>) -> Option<ToolCall<'_>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        #[serde(borrow, default)]
        name: Option<&'a RawValue>,
        #[serde(borrow, default)]
        arguments: Option<&'a RawValue>,
        #[serde(borrow, default)]
        input_responses: Option<&'a RawValue>,
        #[serde(borrow, default)]
        request_state: Option<&'a RawValue>,
    }
    let params: Params<'_> = field::params(params).ok()?;
    let there = |raw: Option<&'_ RawValue>| raw.is_some_and(|raw| raw.get() != "null");
    Some(ToolCall {
        name: string_of(params.name?)?.into_owned(),
        arguments: params.arguments,
        input_responses: params.input_responses.filter(|raw| there(Some(raw))),
        request_state: params.request_state.filter(|raw| there(Some(raw))),
    })
}

/// The parameters of a `tasks/update` (ext-tasks, Task Update Requests).
#[derive(Debug)]
pub struct Update<'a> {
    /// The task.
    pub task: TaskId,
    /// The answers, by the keys of their questions.
    pub responses: RawObject<'a>,
}

/// Reads the parameters of a `tasks/update`.
///
/// # Errors
/// -32602 naming what is missing or of the wrong type.
pub fn update(params: Option<&RawValue>) -> Result<Update<'_>, ErrorObject> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        #[serde(borrow, default)]
        input_responses: Option<&'a RawValue>,
    }
    let task = field::task_id(params)?;
    let given: Params<'_> = field::params(params)?;
    Ok(Update {
        task,
        responses: responses(given.input_responses)?,
    })
}

/// Answers by the keys of their questions.
///
/// # Errors
/// -32602 if that is no object.
pub fn responses(raw: Option<&RawValue>) -> Result<RawObject<'_>, ErrorObject> {
    raw.and_then(RawObject::parse)
        .ok_or_else(|| invalid("params.inputResponses", "an object", raw))
}

/// Whether an answer has the shape that this kind of question wants.
///
/// # Errors
/// What is wrong with it.
#[allow(deprecated)]
pub fn check_response(kind: InputKind, response: &RawValue) -> Result<(), String> {
    use rmcp::model::{CreateMessageResult, ElicitResult, ListRootsResult};
    let text = response.get();
    if !text.starts_with('{') {
        return Err("it is no object".to_owned());
    }
    let read = match kind {
        InputKind::ElicitForm | InputKind::ElicitUrl => {
            serde_json::from_str::<ElicitResult>(text).map(drop)
        }
        InputKind::Sample => serde_json::from_str::<CreateMessageResult>(text).map(drop),
        InputKind::ListRoots => serde_json::from_str::<ListRootsResult>(text).map(drop),
    };
    read.map_err(|e| e.to_string())
}

/// What a `subscriptions/listen` asks for that is ours (2026-07-28 `basic/patterns/subscriptions`; ext-tasks, Task
/// Status Notifications).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listen {
    /// The tasks whose changes are wanted; `None` if the member is not there.
    pub tasks: Option<Vec<TaskId>>,
    /// Whether changes of the list of tools are wanted.
    pub tools_changed: bool,
}

/// The most tasks that one subscription may name.
pub const MAX_LISTENED: usize = 1000;

/// Reads the filter of a `subscriptions/listen`.
///
/// # Errors
/// -32602 naming the member that is of the wrong type. A filter that is missing is the inner server's to refuse.
pub fn listen(params: Option<&RawValue>) -> Result<Listen, ErrorObject> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, default)]
        notifications: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Filter<'a> {
        #[serde(borrow, default)]
        task_ids: Option<&'a RawValue>,
        #[serde(borrow, default)]
        tools_list_changed: Option<&'a RawValue>,
    }
    let Ok(Params {
        notifications: Some(filter),
    }) = field::params(params)
    else {
        return Ok(Listen::default());
    };
    if !filter.get().starts_with('{') {
        return Ok(Listen::default());
    }
    let filter: Filter<'_> = serde_json::from_str(filter.get())
        .map_err(|e| ErrorObject::new(INVALID_PARAMS, format!("params.notifications: {e}")))?;
    let tasks = filter.task_ids.filter(|raw| raw.get() != "null");
    let tasks = tasks.map(|raw| {
        let wrong = |expected: &str| invalid("params.notifications.taskIds", expected, Some(raw));
        let ids: Vec<String> =
            serde_json::from_str(raw.get()).map_err(|_| wrong("an array of task ids"))?;
        if ids.len() > MAX_LISTENED {
            return Err(wrong(&format!("at most {MAX_LISTENED} task ids")));
        }
        let mut tasks: Vec<TaskId> = Vec::with_capacity(ids.len());
        for id in ids {
            let id = TaskId::from_stored(&id);
            if !tasks.contains(&id) {
                tasks.push(id);
            }
        }
        Ok(tasks)
    });
    Ok(Listen {
        tasks: tasks.transpose()?,
        tools_changed: filter
            .tools_list_changed
            .is_some_and(|raw| raw.get() == "true"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn a_filter_of_the_wrong_type_is_named() {
        for wrong in ["7", "\"x\"", "[1]", "{}"] {
            let params = raw(&format!(r#"{{"notifications":{{"taskIds":{wrong}}}}}"#));
            let error = listen(Some(&params)).unwrap_err();
            assert_eq!(error.code, -32602);
            assert!(error.message.contains("taskIds"), "{}", error.message);
        }
        let params = raw(r#"{"notifications":{"taskIds":["a","b","a"],"toolsListChanged":true}}"#);
        let wanted = listen(Some(&params)).unwrap();
        assert_eq!(wanted.tasks.unwrap().len(), 2);
        assert!(wanted.tools_changed);
        for none in ["{}", r#"{"notifications":7}"#, r#"{"notifications":{}}"#] {
            assert_eq!(listen(Some(&raw(none))), Ok(Listen::default()), "{none}");
        }
    }

    #[test]
    fn answers_are_judged_by_the_kind_of_their_question() {
        let form = |text: &str| check_response(InputKind::ElicitForm, &raw(text)).is_ok();
        assert!(form(r#"{"action":"accept","content":{"a":1}}"#));
        assert!(form(r#"{"action":"decline"}"#));
        assert!(!form(r#"{"action":"maybe"}"#) && !form("7") && !form("{}"));
        assert!(!form(r#"["accept",{"a":1}]"#));
        let roots = |text: &str| check_response(InputKind::ListRoots, &raw(text)).is_ok();
        assert!(roots(r#"{"roots":[{"uri":"file:///x"}]}"#));
        assert!(!roots(r#"{"roots":7}"#) && !roots(r#"{"action":"accept"}"#));
        let sample = |text: &str| check_response(InputKind::Sample, &raw(text)).is_ok();
        assert!(sample(
            r#"{"role":"assistant","model":"m","content":{"type":"text","text":"x"}}"#
        ));
        assert!(!sample(r#"{"role":"assistant"}"#));
    }

    #[test]
    fn an_update_names_what_is_wrong() {
        for (params, member) in [
            ("{}", "taskId"),
            (r#"{"taskId":"x"}"#, "inputResponses"),
            (r#"{"taskId":"x","inputResponses":[]}"#, "inputResponses"),
            (r#"{"taskId":"x","inputResponses":null}"#, "inputResponses"),
        ] {
            let error = update(Some(&raw(params))).unwrap_err();
            assert_eq!(error.code, -32602);
            assert!(error.message.contains(member), "{}", error.message);
        }
    }
}
