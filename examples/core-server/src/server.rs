//! The fixture: what each tool, resource and prompt has to do is said by the suite (`conformance list`, and the
//! description of each scenario).

#![allow(deprecated, reason = "the suite calls what is deprecated too")]

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rmcp::{
    ErrorData, Peer, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientResult,
        CompleteRequestParams, CompleteResult, GetPromptRequestParams, GetPromptResponse,
        GetPromptResult, Implementation, ListPromptsResult, ListResourceTemplatesResult,
        ListResourcesResult, ListToolsResult, LoggingMessageNotificationParam,
        PaginatedRequestParams, ProgressNotificationParam, ReadResourceRequestParams,
        ReadResourceResponse, ReadResourceResult, ServerCapabilities, ServerConfig,
        SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool,
        UnsubscribeRequestParams,
    },
    service::{RequestContext, SubscriptionContext, SubscriptionSink},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::inputs::Inputs;

/// A PNG of one red pixel.
const IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg==";
/// A WAV of no samples.
const AUDIO: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";
const STEP: Duration = Duration::from_millis(50);

/// A result of rmcp's from its JSON.
pub(crate) fn complete<T: DeserializeOwned>(mut result: Value) -> Result<T, ErrorData> {
    result["resultType"] = json!("complete");
    made(result)
}

/// A model of rmcp from its JSON.
pub(crate) fn made<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::internal_error(format!("the fixture is wrong: {error}"), None))
}

pub(crate) fn text(text: impl Into<String>) -> Result<CallToolResponse, ErrorData> {
    let text: String = text.into();
    content(json!([{"type": "text", "text": text}]))
}

fn content(content: Value) -> Result<CallToolResponse, ErrorData> {
    Ok(complete::<CallToolResult>(json!({"content": content}))?.into())
}

#[derive(Clone, Default)]
pub(crate) struct CoreServer {
    inputs: Inputs,
    subscriptions: Arc<Mutex<Subscriptions>>,
}

#[derive(Default)]
struct Subscriptions {
    last: u64,
    open: HashMap<u64, SubscriptionSink>,
}

impl CoreServer {
    fn open(&self) -> Vec<SubscriptionSink> {
        let subscriptions = self.subscriptions.lock();
        let subscriptions = subscriptions.unwrap_or_else(PoisonError::into_inner);
        subscriptions.open.values().cloned().collect()
    }
}

/// What a tool asks the client in the middle of a call; protocol 2025-11-25 and before.
async fn ask(peer: &Peer<RoleServer>, request: Value) -> Result<Value, ErrorData> {
    let answer = peer.send_request(made(request)?).await;
    let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let answer: ClientResult = answer;
    serde_json::to_value(answer).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

async fn elicit(
    peer: &Peer<RoleServer>,
    message: &str,
    schema: Value,
) -> Result<CallToolResponse, ErrorData> {
    let params = json!({"mode": "form", "message": message, "requestedSchema": schema});
    let answer = ask(
        peer,
        json!({"method": "elicitation/create", "params": params}),
    )
    .await?;
    text(format!(
        "User response: action={}, content={}",
        answer["action"].as_str().unwrap_or_default(),
        answer["content"]
    ))
}

async fn log(context: &RequestContext<RoleServer>, level: Value, message: &str) {
    let params = json!({"level": level, "logger": "core-server", "data": message});
    if let Ok(params) = made::<LoggingMessageNotificationParam>(params) {
        let _ = context.peer.notify_logging_message(params).await;
    }
}

fn tools() -> Vec<Tool> {
    let plain = [
        ("test_simple_text", "Text"),
        ("test_image_content", "An image"),
        ("test_audio_content", "Audio"),
        ("test_embedded_resource", "An embedded resource"),
        ("test_multiple_content_types", "Text, an image, a resource"),
        ("test_tool_with_logging", "Writes log messages"),
        ("test_error_handling", "Always goes wrong"),
        ("test_tool_with_progress", "Reports progress"),
        ("test_elicitation_sep1034_defaults", "Asks, with defaults"),
        ("test_elicitation_sep1330_enums", "Asks, with choices"),
        ("test_reconnection", "Takes a moment"),
        ("test_trigger_tool_change", "Tells that tools changed"),
        ("test_trigger_prompt_change", "Tells that prompts changed"),
        ("test_missing_capability", "Needs sampling"),
        ("test_streaming_elicitation", "Needs an answer"),
        ("test_logging_tool", "Logs where it was asked to"),
    ];
    let plain = plain
        .iter()
        .chain(Inputs::TOOLS)
        .map(|(name, description)| {
            json!({"name": name, "description": description, "inputSchema": {"type": "object", "properties": {}}})
        });
    let with_arguments = json!([
        {
            "name": "test_sampling",
            "description": "Asks the client's model",
            "inputSchema": {
                "type": "object",
                "properties": {"prompt": {"type": "string", "description": "What to ask"}},
                "required": ["prompt"],
            },
        },
        {
            "name": "test_elicitation",
            "description": "Asks the user",
            "inputSchema": {
                "type": "object",
                "properties": {"message": {"type": "string", "description": "What to ask"}},
                "required": ["message"],
            },
        },
        {
            "name": "test_custom_header",
            "description": "Has its argument in a header too",
            "inputSchema": {
                "type": "object",
                "properties": {"value": {"type": "string", "x-mcp-header": "Value"}},
                "required": ["value"],
            },
        },
        {
            "name": "json_schema_2020_12_tool",
            "description": "Has a schema with what draft 2020-12 offers",
            "inputSchema": {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "$defs": {"address": {
                    "$anchor": "address",
                    "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                }},
                "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
                "allOf": [{"anyOf": [{"required": ["name"]}, {"required": ["address"]}]}],
                "if": {"required": ["address"]},
                "then": {"properties": {"address": {"required": ["street"]}}},
                "else": {"required": ["name"]},
                "additionalProperties": false,
            },
        },
    ]);
    let with_arguments = with_arguments.as_array().cloned().unwrap_or_default();
    plain
        .chain(with_arguments)
        .filter_map(|tool| serde_json::from_value(tool).ok())
        .collect()
}

impl ServerHandler for CoreServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_completions()
            .enable_logging()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new(
                "core-server",
                env!("CARGO_PKG_VERSION"),
            ))
            .with_instructions("The conformance suite's core fixture")
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools().into_iter().find(|tool| tool.name == name)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        complete(json!({"tools": tools(), "ttlMs": 60_000, "cacheScope": "public"}))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if Inputs::TOOLS.iter().any(|(name, _)| *name == request.name) {
            return self.inputs.call_tool(&request, &context.meta);
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let peer = &context.peer;
        match &*request.name {
            "test_simple_text" => text("This is a simple text response for testing."),
            "test_image_content" => {
                content(json!([{"type": "image", "data": IMAGE, "mimeType": "image/png"}]))
            }
            "test_audio_content" => {
                content(json!([{"type": "audio", "data": AUDIO, "mimeType": "audio/wav"}]))
            }
            "test_embedded_resource" => content(json!([{"type": "resource", "resource": {
                "uri": "test://embedded-resource",
                "mimeType": "text/plain",
                "text": "This is an embedded resource content.",
            }}])),
            "test_multiple_content_types" => content(json!([
                {"type": "text", "text": "Multiple content types test:"},
                {"type": "image", "data": IMAGE, "mimeType": "image/png"},
                {"type": "resource", "resource": {
                    "uri": "test://mixed-content-resource",
                    "mimeType": "application/json",
                    "text": r#"{"test":"data","value":123}"#,
                }},
            ])),
            "test_tool_with_logging" => {
                for message in ["started", "processing data", "completed"] {
                    log(&context, json!("info"), &format!("Tool {message}")).await;
                    tokio::time::sleep(STEP).await;
                }
                text("Logging test completed")
            }
            "test_logging_tool" => {
                if let Some(level) = context.meta.log_level() {
                    log(&context, json!(level), "The client asked for logs").await;
                }
                text("Logging tool completed")
            }
            "test_error_handling" => Ok(complete::<CallToolResult>(json!({
                "content": [{"type": "text", "text": "This tool intentionally returns an error for testing"}],
                "isError": true,
            }))?
            .into()),
            "test_tool_with_progress" => {
                for progress in [0, 50, 100] {
                    if let Some(token) = context.meta.get_progress_token() {
                        let params: ProgressNotificationParam = made(json!({
                            "progressToken": token,
                            "progress": progress,
                            "total": 100,
                            "message": format!("{progress} of 100"),
                        }))?;
                        let _ = peer.notify_progress(params).await;
                    }
                    tokio::time::sleep(STEP).await;
                }
                text("Progress test completed")
            }
            "test_sampling" => {
                let prompt = json!([{"role": "user", "content": {"type": "text", "text": arguments["prompt"]}}]);
                let params = json!({"messages": prompt, "maxTokens": 100});
                let request = json!({"method": "sampling/createMessage", "params": params});
                let answer = ask(peer, request).await?;
                text(format!(
                    "LLM response: {}",
                    answer["content"]["text"].as_str().unwrap_or("no text")
                ))
            }
            "test_elicitation" => {
                let message = arguments["message"].as_str().unwrap_or_default();
                let schema = json!({
                    "type": "object",
                    "properties": {
                        "username": {"type": "string", "description": "User's response"},
                        "email": {"type": "string", "description": "User's email address"},
                    },
                    "required": ["username", "email"],
                });
                elicit(peer, message, schema).await
            }
            "test_elicitation_sep1034_defaults" => {
                let schema = json!({"type": "object", "properties": {
                    "name": {"type": "string", "default": "John Doe"},
                    "age": {"type": "integer", "default": 30},
                    "score": {"type": "number", "default": 95.5},
                    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
                    "verified": {"type": "boolean", "default": true},
                }});
                elicit(peer, "All of these have defaults", schema).await
            }
            "test_elicitation_sep1330_enums" => {
                let titled = |n: [&str; 3]| {
                    json!([
                        {"const": "value1", "title": n[0]},
                        {"const": "value2", "title": n[1]},
                        {"const": "value3", "title": n[2]},
                    ])
                };
                let options = json!(["option1", "option2", "option3"]);
                let schema = json!({"type": "object", "properties": {
                    "untitledSingle": {"type": "string", "enum": options},
                    "titledSingle": {"type": "string", "oneOf": titled(["First Option", "Second Option", "Third Option"])},
                    "legacyEnum": {
                        "type": "string",
                        "enum": ["opt1", "opt2", "opt3"],
                        "enumNames": ["Option One", "Option Two", "Option Three"],
                    },
                    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
                    "titledMulti": {"type": "array", "items": {"anyOf": titled(["First Choice", "Second Choice", "Third Choice"])}},
                }});
                elicit(peer, "Choose", schema).await
            }
            "json_schema_2020_12_tool" => text(format!(
                "Hello, {}!",
                arguments["name"].as_str().unwrap_or("world")
            )),
            "test_custom_header" => text(arguments["value"].as_str().unwrap_or_default()),
            "test_reconnection" => {
                tokio::time::sleep(2 * STEP).await;
                text("Reconnection test completed")
            }
            "test_trigger_tool_change" => {
                for subscription in self.open() {
                    let _ = subscription.notify_tool_list_changed().await;
                }
                text("Told")
            }
            "test_trigger_prompt_change" => {
                for subscription in self.open() {
                    let _ = subscription.notify_prompt_list_changed().await;
                }
                text("Told")
            }
            "test_missing_capability" => {
                let declared = context.meta.client_capabilities().unwrap_or_default();
                if declared.sampling.is_none() {
                    let needed = ClientCapabilities::builder().enable_sampling().build();
                    return Err(ErrorData::missing_required_client_capability(needed));
                }
                text("The client can sample")
            }
            "test_streaming_elicitation" => Inputs::asked(&["user_name"], None).map(Into::into),
            other => Err(ErrorData::invalid_params(
                format!("Unknown tool: {other}"),
                None,
            )),
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        complete(json!({
            "resources": [
                {"uri": "test://static-text", "name": "Static text", "mimeType": "text/plain"},
                {"uri": "test://static-binary", "name": "Static binary", "mimeType": "image/png"},
            ],
            "ttlMs": 60_000,
            "cacheScope": "public",
        }))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        complete(json!({
            "resourceTemplates": [{
                "uriTemplate": "test://template/{id}/data",
                "name": "Dynamic",
                "mimeType": "application/json",
            }],
            "ttlMs": 60_000,
            "cacheScope": "public",
        }))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = &*request.uri;
        let id = uri
            .strip_prefix("test://template/")
            .and_then(|rest| rest.strip_suffix("/data"));
        let contents = match (uri, id) {
            ("test://static-text", _) => {
                json!({"uri": uri, "mimeType": "text/plain", "text": "The content of the static text resource."})
            }
            ("test://static-binary", _) => {
                json!({"uri": uri, "mimeType": "image/png", "blob": IMAGE})
            }
            (_, Some(id)) => {
                let data =
                    json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
                json!({"uri": uri, "mimeType": "application/json", "text": data.to_string()})
            }
            _ => {
                let data = json!({"uri": uri});
                return Err(ErrorData::resource_not_found(
                    "Resource not found",
                    Some(data),
                ));
            }
        };
        let result: ReadResourceResult =
            complete(json!({"contents": [contents], "ttlMs": 60_000, "cacheScope": "public"}))?;
        Ok(result.into())
    }

    async fn subscribe(
        &self,
        _: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        complete(json!({
            "prompts": [
                {"name": "test_simple_prompt", "description": "Without arguments"},
                {"name": "test_prompt_with_arguments", "description": "With arguments", "arguments": [
                    {"name": "arg1", "description": "The first", "required": true},
                    {"name": "arg2", "description": "The second", "required": false},
                ]},
                {"name": "test_prompt_with_embedded_resource", "description": "With a resource"},
                {"name": "test_prompt_with_image", "description": "With an image"},
                {"name": "test_input_required_result_prompt", "description": "Needs an answer"},
            ],
            "ttlMs": 60_000,
            "cacheScope": "public",
        }))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let said = |text: &str| json!({"role": "user", "content": {"type": "text", "text": text}});
        let argument = |name: &str| {
            let value = request.arguments.as_ref().and_then(|all| all.get(name));
            value.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let messages = match &*request.name {
            "test_simple_prompt" => json!([said("This is a simple prompt for testing.")]),
            "test_prompt_with_arguments" => json!([said(&format!(
                "Prompt with arguments: arg1='{}', arg2='{}'",
                argument("arg1"),
                argument("arg2")
            ))]),
            "test_prompt_with_embedded_resource" => {
                let uri = match argument("resourceUri") {
                    uri if uri.is_empty() => "test://example-resource".to_owned(),
                    uri => uri,
                };
                let resource = json!({"uri": uri, "mimeType": "text/plain", "text": "Embedded resource content"});
                json!([
                    {"role": "user", "content": {"type": "resource", "resource": resource}},
                    said("Please process the embedded resource above."),
                ])
            }
            "test_prompt_with_image" => json!([
                {"role": "user", "content": {"type": "image", "data": IMAGE, "mimeType": "image/png"}},
                said("Please analyze the image above."),
            ]),
            "test_input_required_result_prompt" => {
                let Some(answer) = Inputs::answer(request.input_responses.as_ref(), "user_context")
                else {
                    return Inputs::asked(&["user_context"], None).map(Into::into);
                };
                json!([said(&format!(
                    "Prompt with context: {}",
                    answer["content"]["context"]
                ))])
            }
            other => {
                return Err(ErrorData::invalid_params(
                    format!("Unknown prompt: {other}"),
                    None,
                ));
            }
        };
        let result: GetPromptResult = complete(json!({"messages": messages}))?;
        Ok(result.into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let all = ["paris", "park", "party"];
        let values: Vec<_> = all
            .iter()
            .filter(|value| value.starts_with(&request.argument.value))
            .collect();
        complete(json!({"completion": {"values": values, "total": values.len(), "hasMore": false}}))
    }

    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let key = {
            let subscriptions = self.subscriptions.lock();
            let mut subscriptions = subscriptions.unwrap_or_else(PoisonError::into_inner);
            subscriptions.last += 1;
            let key = subscriptions.last;
            subscriptions.open.insert(key, context.sink().clone());
            key
        };
        context.cancelled().await;
        let subscriptions = self.subscriptions.lock();
        let mut subscriptions = subscriptions.unwrap_or_else(PoisonError::into_inner);
        subscriptions.open.remove(&key);
        Ok(())
    }
}
