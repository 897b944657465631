//! Tools that need answers before they have a result (protocol 2026-07-28, multi round-trip requests).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use rmcp::{
    ErrorData,
    model::{
        CallToolRequestParams, CallToolResponse, InputRequiredResult, InputResponses,
        RequestMetaObject,
    },
};
use serde_json::{Map, Value, json};

use crate::server::{made, text};

/// The states that were handed out, which is how a made-up one is told from them.
#[derive(Clone, Default)]
pub(crate) struct Inputs(Arc<Mutex<HashMap<String, u8>>>);

impl Inputs {
    /// Names and descriptions.
    pub(crate) const TOOLS: &[(&str, &str)] = &[
        ("test_input_required_result_elicitation", "Asks for a name"),
        ("test_input_required_result_sampling", "Asks a model"),
        ("test_input_required_result_list_roots", "Asks for roots"),
        ("test_input_required_result_request_state", "Has a state"),
        ("test_input_required_result_multiple_inputs", "Asks thrice"),
        ("test_input_required_result_multi_round", "Asks twice"),
        (
            "test_input_required_result_tampered_state",
            "Has a state that cannot be changed",
        ),
        (
            "test_input_required_result_capabilities",
            "Asks what the client can answer",
        ),
    ];

    pub(crate) fn call_tool(
        &self,
        request: &CallToolRequestParams,
        meta: &RequestMetaObject,
    ) -> Result<CallToolResponse, ErrorData> {
        let answers = request.input_responses.as_ref();
        let answer = |key: &str| Self::answer(answers, key);
        let round = match request.request_state.as_deref() {
            Some(state) => self.opened(state)?,
            None => 0,
        };
        let asked = |keys: &[&str], state: Option<u8>| {
            Self::asked(keys, state.map(|round| self.sealed(round))).map(Into::into)
        };
        match &*request.name {
            "test_input_required_result_elicitation" => match answer("user_name") {
                Some(answer) => text(format!(
                    "Hello, {}!",
                    answer["content"]["name"].as_str().unwrap_or_default()
                )),
                None => asked(&["user_name"], None),
            },
            "test_input_required_result_sampling" => match answer("capital_question") {
                Some(answer) => text(format!("Sampled: {}", answer["content"]["text"])),
                None => asked(&["capital_question"], None),
            },
            "test_input_required_result_list_roots" => match answer("client_roots") {
                Some(answer) => text(format!("Roots: {}", answer["roots"])),
                None => asked(&["client_roots"], None),
            },
            "test_input_required_result_request_state"
            | "test_input_required_result_tampered_state" => match round {
                0 => asked(&["confirm"], Some(1)),
                _ => text("Confirmed: state-ok"),
            },
            "test_input_required_result_multiple_inputs" => {
                let keys = ["user_name", "greeting", "client_roots"];
                if round > 0 && keys.iter().all(|key| answer(key).is_some()) {
                    text("All inputs received")
                } else {
                    asked(&keys, Some(1))
                }
            }
            "test_input_required_result_multi_round" => match round {
                0 => asked(&["step1"], Some(1)),
                1 => asked(&["step2"], Some(2)),
                _ => text("Multi-round flow complete"),
            },
            _capabilities => {
                let can = meta.client_capabilities().unwrap_or_default();
                let mut keys = Vec::new();
                keys.extend(can.elicitation.is_some().then_some("user_name"));
                keys.extend(can.sampling.is_some().then_some("greeting"));
                keys.extend(can.roots.is_some().then_some("client_roots"));
                if answers.is_some() || keys.is_empty() {
                    text("Capability-aware flow complete")
                } else {
                    asked(&keys, None)
                }
            }
        }
    }

    /// An answer that looks like one.
    pub(crate) fn answer<'a>(answers: Option<&'a InputResponses>, key: &str) -> Option<&'a Value> {
        answers?.get(key).filter(|answer| answer.is_object())
    }

    /// The result that asks for `keys`.
    pub(crate) fn asked(
        keys: &[&str],
        state: Option<String>,
    ) -> Result<InputRequiredResult, ErrorData> {
        let elicit = |message: &str, property: &str, kind: &str| {
            json!({"method": "elicitation/create", "params": {
                "mode": "form",
                "message": message,
                "requestedSchema": {
                    "type": "object",
                    "properties": {property: {"type": kind}},
                    "required": [property],
                },
            }})
        };
        let sample = |prompt: &str| {
            json!({"method": "sampling/createMessage", "params": {
                "messages": [{"role": "user", "content": {"type": "text", "text": prompt}}],
                "maxTokens": 100,
            }})
        };
        let requests: Map<String, Value> = keys
            .iter()
            .map(|key| {
                let request = match *key {
                    "capital_question" => sample("What is the capital of France?"),
                    "greeting" => sample("Generate a greeting"),
                    "client_roots" => json!({"method": "roots/list", "params": {}}),
                    "confirm" => elicit("Please confirm", "ok", "boolean"),
                    "step1" => elicit("Step 1: What is your name?", "name", "string"),
                    "step2" => elicit("Step 2: What is your favorite color?", "color", "string"),
                    "user_context" => elicit("In which context?", "context", "string"),
                    _ => elicit("What is your name?", "name", "string"),
                };
                ((*key).to_owned(), request)
            })
            .collect();
        Ok(InputRequiredResult::new(
            Some(made(Value::Object(requests))?),
            state,
        ))
    }

    /// A state that stands for a round.
    fn sealed(&self, round: u8) -> String {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = format!("state-{}-of-{}", states.len(), std::process::id());
        states.insert(state.clone(), round);
        state
    }

    fn opened(&self, state: &str) -> Result<u8, ErrorData> {
        let states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        states
            .get(state)
            .copied()
            .ok_or_else(|| ErrorData::invalid_params("requestState is none of ours", None))
    }
}
