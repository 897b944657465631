//! `mcp-tasks call`: one call of a tool, up to its result.

use mcp_tasks::{
    TaskSupport,
    client::{CallOptions, RemoteTask, TaskClientError, TaskPreference},
};
use rmcp::model::{CallToolRequestParams, Tool};
use serde_json::{Map, Value, json};

use crate::{
    exit::Exit,
    failure::Failure,
    follow::{FollowArgs, Following},
    session::Session,
    show::{Event, Show, ShowArgs, Task},
    span::{self, Ttl},
    target::{TargetArgs, looks_like_url},
    text,
    values::{self, Pair},
};

/// Call a tool and wait for its result, as a task where the server and the tool have tasks
///
/// The result goes to standard output, everything else to standard error. Questions are asked at the terminal; where
/// there is none they are declined, or answered with --answer. Ctrl-C detaches: the task runs on, and `mcp-tasks
/// resume` goes on with it; another Ctrl-C right after it cancels the task.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The tool's name
    tool: String,
    #[command(flatten)]
    target: TargetArgs,
    /// An argument, its type as the tool's input schema says; may be given again. NAME:=JSON for a value of any type
    #[arg(long = "arg", value_name = "NAME=VALUE", value_parser = values::pair)]
    arguments: Vec<Pair>,
    /// All arguments, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = values::object, conflicts_with = "arguments")]
    args: Option<Map<String, Value>>,
    /// Leave the task at once: print its id, and keep its ticket for `mcp-tasks resume`
    #[arg(long, conflicts_with = "no_task")]
    detach: bool,
    /// How long the task and its result shall be kept, from now on: a time such as 10m, or unlimited
    #[arg(long, value_name = "TIME", value_parser = span::parse_ttl, conflicts_with = "no_task")]
    ttl: Option<Ttl>,
    /// Make a plain call, even where there are tasks
    #[arg(long)]
    no_task: bool,
    #[command(flatten)]
    follow: FollowArgs,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    if looks_like_url(&options.tool) {
        return Err(Failure::usage(format!(
            "{:?} is a URL: the tool's name comes first, then the target",
            options.tool
        )));
    }
    let target = options.target.required()?;
    let show = Show::new(options.show);
    let answers = options.follow.answers.clone();
    let mut session = Session::open(target, &options.target.how(), None, answers, show).await?;
    session.tell_connected();
    let ended = call(&mut session, &options).await;
    session.close(ended).await
}

async fn call(session: &mut Session, options: &Options) -> Result<Exit, Failure> {
    let client = session.client.clone();
    let tool = session.unless_stopped(find(&client, &options.tool)).await?;
    let arguments = arguments(options, &tool)?;
    let params = CallToolRequestParams::new(options.tool.clone()).with_arguments(arguments);
    let support = match options.no_task || !client.supports_tasks() {
        true => TaskSupport::Forbidden,
        false => {
            session
                .unless_stopped(client.task_support(&options.tool))
                .await?
        }
    };
    let is_task = support != TaskSupport::Forbidden;
    if options.ttl.is_some() && !is_task {
        return Err(no_tasks(&options.tool, client.supports_tasks(), "--ttl"));
    }
    let mut call = CallOptions::new().task(match options.no_task {
        true => TaskPreference::Never,
        false => TaskPreference::Auto,
    });
    if let Some(Ttl(ttl)) = options.ttl {
        call = match ttl {
            Some(ttl) => call.ttl(ttl),
            None => call.ttl_unlimited(),
        };
    }
    if let Some(timeout) = options.follow.timeout {
        call = call.deadline(timeout);
    }
    if options.detach {
        if !is_task {
            return Err(no_tasks(&options.tool, client.supports_tasks(), "--detach"));
        }
        return detach(session, params, call, options).await;
    }
    let events = client.call_tool_stream(params, call);
    let following = Following {
        tool: Some(&options.tool),
        is_task,
        grace: options.follow.grace,
    };
    session.follow(events, &following).await
}

/// Makes the task and leaves it.
async fn detach(
    session: &mut Session,
    params: CallToolRequestParams,
    call: CallOptions,
    options: &Options,
) -> Result<Exit, Failure> {
    let client = session.client.clone();
    let created = tokio::select! {
        created = client.call_tool_task(params, call) => created,
        signal = session.signals.next() => {
            return Err(signal.failure().and("the server had not named the task yet"));
        }
    };
    let task = match created {
        Ok(task) => task,
        Err(TaskClientError::Immediate(result)) => {
            session
                .show
                .note("the server answered at once: there is no task");
            return Ok(session.finished(Some(&options.tool), None, &result));
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(info) = task.info() {
        session.show.event(&Event::Created {
            tool: &options.tool,
            task: Task::from(&info),
        });
    }
    left(session, &task)
}

fn left(session: &Session, task: &RemoteTask) -> Result<Exit, Failure> {
    let resume = session.keep(task)?;
    session.detached(task.id(), &resume);
    if !session.show.is_json() {
        text::out(&text::line(task.id()));
    }
    Ok(Exit::Done)
}

fn no_tasks(tool: &str, server_has: bool, option: &str) -> Failure {
    let who = match server_has {
        true => format!("the tool {tool:?} does not run as a task"),
        false => "the server has no tasks".to_owned(),
    };
    Failure::exit(Exit::NoTasks, format!("{option}: {who}"))
}

/// The tool as the server lists it.
async fn find(client: &mcp_tasks::client::TaskClient, name: &str) -> Result<Tool, Failure> {
    let tools = client.peer().list_all_tools().await;
    let mut tools = tools.map_err(|error| super::tools::unlisted(&error))?;
    match tools.iter().position(|tool| tool.name == name) {
        Some(at) => Ok(tools.swap_remove(at)),
        None => {
            let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
            Err(Failure::usage(format!(
                "the server has no tool {name:?}; it has: {}",
                names.join(", ")
            )))
        }
    }
}

/// The arguments, as the tool's input schema types them.
fn arguments(options: &Options, tool: &Tool) -> Result<Map<String, Value>, Failure> {
    let schema = json!(tool.input_schema);
    let mut arguments = options.args.clone().unwrap_or_default();
    for pair in &options.arguments {
        let wrong = |why: &str| Failure::usage(format!("--arg {:?}: {why}", pair.name));
        let known = schema.get("properties").and_then(Value::as_object);
        let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
        if let (Some(known), true) = (known, closed)
            && !known.contains_key(&pair.name)
        {
            let known: Vec<&str> = known.keys().map(String::as_str).collect();
            return Err(wrong(&format!(
                "the tool has no such argument; it has: {}",
                known.join(", ")
            )));
        }
        let value = pair
            .typed(&schema)
            .map_err(|why| wrong(&format!("{why} (the tool's input schema says so)")))?;
        if arguments.insert(pair.name.clone(), value).is_some() {
            return Err(wrong("it is given twice"));
        }
    }
    let required = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let missing: Vec<&str> = required
        .filter_map(Value::as_str)
        .filter(|name| !arguments.contains_key(*name))
        .collect();
    match missing.is_empty() {
        true => Ok(arguments),
        false => Err(Failure::usage(format!(
            "the tool {:?} needs {}",
            options.tool,
            missing
                .iter()
                .map(|name| format!("--arg {name}=…"))
                .collect::<Vec<_>>()
                .join(" and ")
        ))),
    }
}
