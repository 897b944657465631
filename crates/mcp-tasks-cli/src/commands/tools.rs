//! `mcp-tasks tools`: what a server can do.

use mcp_tasks::TaskSupport;
use rmcp::{model::Tool, service::ServiceError};
use serde_json::{Value, json};

use crate::{
    connect,
    exit::Exit,
    failure::Failure,
    session::Session,
    show::{Show, ShowArgs},
    target::TargetArgs,
    text,
};

/// List the tools of a server, and whether they run as tasks
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let target = options.target.required()?;
    let show = Show::new(options.show);
    let how = options.target.how();
    let mut session = Session::open_to_look(target, &how, None, show).await?;
    let ended = list(&mut session).await;
    session.close(ended).await
}

async fn list(session: &mut Session) -> Result<Exit, Failure> {
    let client = session.client.clone();
    let tools = session.unless_stopped(async {
        let listed = client
            .peer()
            .list_all_tools()
            .await
            .map_err(|error| unlisted(&error))?;
        let mut tools = Vec::with_capacity(listed.len());
        for tool in listed {
            let support = match client.supports_tasks() {
                true => client.task_support(&tool.name).await?,
                false => TaskSupport::Forbidden,
            };
            tools.push((tool, support));
        }
        Ok::<_, Failure>(tools)
    });
    let tools = tools.await?;
    let server = connect::server_name(&client);
    let json = json!({
        "server": server,
        "protocol": client.protocol_version(),
        "generation": connect::generation(&client),
        "tools": tools.iter().map(|(tool, support)| document(tool, *support)).collect::<Vec<_>>(),
    });
    let mut lines = vec![format!(
        "{server:?}, protocol {}",
        connect::protocol_words(&client)
    )];
    lines.extend(tools.iter().map(|(tool, support)| words(tool, *support)));
    session.show.document(&json, &lines.join("\n"));
    Ok(Exit::Done)
}

/// Why tools could not be listed.
pub(crate) fn unlisted(error: &ServiceError) -> Failure {
    let exit = match error {
        ServiceError::McpError(_) => Exit::Failed,
        ServiceError::Timeout { .. } => Exit::Deadline,
        _ => Exit::Lost,
    };
    Failure::exit(exit, format!("the tools could not be listed: {error}"))
}

fn document(tool: &Tool, support: TaskSupport) -> Value {
    json!({
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "task_support": support.as_str(),
        "input_schema": *tool.input_schema,
        "output_schema": tool.output_schema.as_deref(),
    })
}

fn words(tool: &Tool, support: TaskSupport) -> String {
    let task = match support {
        TaskSupport::Required => " [task]",
        TaskSupport::Optional => " [task or not]",
        TaskSupport::Forbidden => "",
    };
    let description = tool.description.as_deref().or(tool.title.as_deref());
    let description = description
        .map(|text| format!("  {}", text::line(text)))
        .unwrap_or_default();
    let arguments: Vec<String> = arguments(tool).collect();
    format!(
        "{}({}){task}{description}",
        text::line(&tool.name),
        arguments.join(", ")
    )
}

/// The names of a tool's arguments; one that may be left out has a question mark.
fn arguments(tool: &Tool) -> impl Iterator<Item = String> + '_ {
    let required = tool.input_schema.get("required").and_then(Value::as_array);
    let is_required =
        move |name: &str| required.is_some_and(|all| all.iter().any(|one| one == name));
    let properties = tool
        .input_schema
        .get("properties")
        .and_then(Value::as_object);
    properties
        .into_iter()
        .flatten()
        .map(move |(name, _)| match is_required(name) {
            true => text::line(name),
            false => format!("{}?", text::line(name)),
        })
}
