//! Tools that ask their requestor.

use std::time::Duration;

use mcp_tasks::{Elicitation, TaskContext, TaskError, TaskTool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Nothing, optional, required, wait::three_hundred};

/// The form most tools show.
#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct Confirm {
    confirm: bool,
}

#[derive(Deserialize, JsonSchema)]
struct AskName {
    #[serde(default = "three_hundred")]
    ms: u64,
}

#[derive(Deserialize, JsonSchema)]
struct ConfirmDelete {
    filename: String,
}

#[derive(Deserialize, JsonSchema)]
struct Sample {
    prompt: String,
}

/// What `test_tool_with_task` has learned before its task exists.
#[derive(Serialize, Deserialize)]
struct Known {
    name: String,
}

pub(super) fn tools() -> Vec<TaskTool> {
    vec![
        required("ask_name")
            .description("Waits, asks for a name, and greets")
            .input::<AskName>()
            .run(async |cx: TaskContext, AskName { ms }| {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                let name = ask_for_name(&cx, "What is your name?").await?;
                Ok::<_, TaskError>(format!("Hello {name}"))
            }),
        required("ask")
            .description("Asks for a name and tells how that was answered")
            .input::<Nothing>()
            .run(async |cx: TaskContext, Nothing {}| {
                let (action, name) = read(cx.elicit::<Name>("What is your name?").await?);
                Ok::<_, TaskError>(format!("action={action} name={name}"))
            }),
        required("ask_two")
            .description("Asks two questions at once, and then a third")
            .input::<Nothing>()
            .run(ask_two),
        optional("multi_input")
            .description("Asks two questions at once")
            .input::<Nothing>()
            .run(async |cx: TaskContext, Nothing {}| {
                let (left, right) = tokio::join!(
                    cx.elicit::<Name>("What is on the left?"),
                    cx.elicit::<Name>("What is on the right?"),
                );
                let (left, right) = (answer(left?), answer(right?));
                Ok::<_, TaskError>(format!("left={left} right={right}"))
            }),
        optional("confirm_delete")
            .description("Deletes a file (not really) if that is confirmed")
            .input::<ConfirmDelete>()
            .run(async |cx: TaskContext, ConfirmDelete { filename }| {
                let question = format!("Delete {filename}?");
                let confirmed = cx.elicit::<Confirm>(question).await?.accepted();
                let done = if confirmed.is_some_and(|answer| answer.confirm) {
                    "deleted"
                } else {
                    "kept"
                };
                Ok::<_, TaskError>(format!("{filename} was {done}"))
            }),
        optional("sample")
            .description("Asks the requestor's model")
            .input::<Sample>()
            .run(sample),
        optional("roots")
            .description("Asks for the requestor's roots")
            .input::<Nothing>()
            .run(roots),
        optional("ask_url")
            .description("Asks to visit a URL")
            .input::<Nothing>()
            .run(async |cx: TaskContext, Nothing {}| {
                let url = "https://example.com/sign-in";
                let action = match cx.elicit_url("Please sign in.", url).await? {
                    Elicitation::Accept(()) => "accept",
                    Elicitation::Decline => "decline",
                    Elicitation::Cancel => "cancel",
                };
                Ok::<_, TaskError>(format!("action={action}"))
            }),
        required("test_tool_with_task")
            .description("Asks for a name before its task exists")
            .input::<Nothing>()
            .before_task(async |cx: TaskContext, Nothing {}| {
                let name = ask_for_name(&cx, "What is your name?").await?;
                Ok::<_, TaskError>(Known { name })
            })
            .run(async |_: TaskContext, Known { name }| {
                Ok::<_, TaskError>(format!("Hello {name}"))
            }),
    ]
}

/// The name that a form was filled in with; a form that was not ends the tool.
pub(super) async fn ask_for_name(cx: &TaskContext, question: &str) -> Result<String, TaskError> {
    match cx.elicit::<Name>(question).await? {
        Elicitation::Accept(Name { name }) => Ok(name),
        Elicitation::Decline => Err(TaskError::tool("the question was declined")),
        Elicitation::Cancel => Err(TaskError::tool("the question was dismissed")),
    }
}

async fn ask_two(cx: TaskContext, Nothing {}: Nothing) -> Result<String, TaskError> {
    let (first, second) = tokio::join!(
        cx.elicit::<Name>("What is the first name?"),
        cx.elicit::<Name>("What is the second name?"),
    );
    let (first, second) = (answer(first?), answer(second?));
    let third = answer(cx.elicit::<Name>("What is the third name?").await?);
    Ok(format!("first={first} second={second} third={third}"))
}

#[allow(deprecated)] // by rmcp, for revisions after 2026-07-28
async fn sample(cx: TaskContext, Sample { prompt }: Sample) -> Result<String, TaskError> {
    use rmcp::model::{CreateMessageRequestParams, SamplingMessage};

    let messages = vec![SamplingMessage::user_text(prompt)];
    let answer = cx
        .sample(CreateMessageRequestParams::new(messages, 100))
        .await?;
    let texts: Vec<String> = answer
        .message
        .content
        .into_vec()
        .iter()
        .filter_map(|block| Some(block.as_text()?.text.clone()))
        .collect();
    Ok(texts.join("\n"))
}

#[allow(deprecated)] // by rmcp, for revisions after 2026-07-28
async fn roots(cx: TaskContext, Nothing {}: Nothing) -> Result<String, TaskError> {
    let roots = cx.list_roots().await?.roots;
    let uris: Vec<String> = roots.into_iter().map(|root| root.uri).collect();
    Ok(uris.join("\n"))
}

/// The action, and the name if there is one.
fn read(answer: Elicitation<Name>) -> (&'static str, String) {
    match answer {
        Elicitation::Accept(Name { name }) => ("accept", name),
        Elicitation::Decline => ("decline", String::new()),
        Elicitation::Cancel => ("cancel", String::new()),
    }
}

/// The name, or else the action.
fn answer(answer: Elicitation<Name>) -> String {
    match read(answer) {
        ("accept", name) => name,
        (action, _) => action.to_owned(),
    }
}
