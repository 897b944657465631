//! `mcp-tasks list`: the tasks of a server, or those that were left running from here.

use serde_json::json;

use crate::{
    exit::Exit,
    failure::Failure,
    session::Session,
    show::{Show, ShowArgs, Task},
    state::Tickets,
    target::{Protocol, Target, TargetArgs},
    text,
};

/// List the tasks of a server, or with --local those that were left running from here
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: TargetArgs,
    /// The tickets of tasks that were left running, whatever their server; no server is asked
    #[arg(long)]
    local: bool,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let show = Show::new(options.show);
    match (options.target.given()?, options.local) {
        (Some(_), true) => Err(Failure::usage(
            "--local lists what is kept here: it takes no target",
        )),
        (None, true) => local(&show),
        (None, false) => Err(Failure::usage(
            "list what? Give a target (a URL, or a command after `--`), or --local for the tasks left running from here",
        )),
        (Some(target), false) => {
            // Only 2025-11-25 has a list; it shows the tasks of both.
            let how = options.target.how().or(Protocol::V2025_11_25);
            let mut session = Session::open_to_look(target, &how, None, show).await?;
            let ended = remote(&mut session).await;
            session.close(ended).await
        }
    }
}

async fn remote(session: &mut Session) -> Result<Exit, Failure> {
    let client = session.client.clone();
    let tasks = session.unless_stopped(client.list_tasks()).await?;
    let tasks: Vec<Task> = tasks.iter().map(Task::from).collect();
    let lines: Vec<String> = tasks
        .iter()
        .map(|task| {
            let message = task.message.as_deref().map(text::line).unwrap_or_default();
            let created = task.created_at.as_deref().unwrap_or("-");
            let line = format!(
                "{}  {:14}  {created}  {message}",
                text::line(&task.id),
                task.status.as_str()
            );
            line.trim_end().to_owned()
        })
        .collect();
    session
        .show
        .document(&json!({ "tasks": tasks }), &lines.join("\n"));
    Ok(Exit::Done)
}

fn local(show: &Show) -> Result<Exit, Failure> {
    let (kept, broken) = Tickets::of_user()?.all()?;
    let tickets: Vec<_> = kept
        .iter()
        .map(|kept| {
            let target = Target::of(kept.ticket.endpoint());
            let (url, command) = match &target {
                Some(Target::Url(url)) => (Some(url), None),
                Some(Target::Command(words)) => (None, Some(words)),
                None => (None, None),
            };
            json!({
                "task": kept.ticket.task_id(),
                "tool": kept.ticket.tool(),
                "url": url,
                "command": command,
                "directory": kept.directory,
                "protocol": kept.ticket.protocol_version(),
                "detached_at": kept.saved_at().to_string(),
            })
        })
        .collect();
    let broken_json: Vec<_> = broken
        .iter()
        .map(|broken| json!({ "file": broken.file, "error": broken.why }))
        .collect();
    let lines: Vec<String> = kept
        .iter()
        .map(|kept| {
            let target = Target::of(kept.ticket.endpoint()).map(|target| target.to_string());
            text::line(&format!(
                "{}  {}  {}  {}",
                kept.ticket.task_id(),
                kept.saved_at(),
                kept.ticket.tool().unwrap_or("-"),
                target.unwrap_or_else(|| kept.ticket.endpoint().to_string()),
            ))
        })
        .collect();
    for broken in &broken {
        show.warn(&format!("mcp-tasks: {broken}"));
    }
    let document = json!({ "tickets": tickets, "broken": broken_json });
    if show.is_json() || !lines.is_empty() {
        show.document(&document, &lines.join("\n"));
    }
    match broken.is_empty() {
        true => Ok(Exit::Done),
        false => Ok(Exit::Failed),
    }
}
