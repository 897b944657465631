//! Our client against a server of somebody else's: the scenarios of `interop/client-1x.mjs`, and what they lack.
//!
//! ```text
//! client-scenarios --tools PROFILE [--protocol auto|2025-11-25|2026-07-28] [--bearer TOKEN] [--only a,b] [--skip a,b] [--allow a,b] (URL | -- COMMAND [ARG…])
//! ```
//!
//! The client hosts tasks too: where a server asks its question as a task, that runs here.
//!
//! Each scenario prints its name as `- NAME`, then one line for each check, `  ok   …` or `  FAIL …`. `--allow` names
//! checks that the server is known to fail by its own fault: they are still made, and printed as `  known`. The exit
//! code is the number of failed checks. `interop/run-servers` runs it against every server we know.

mod profile;
mod scenarios;

use std::{
    process::ExitCode,
    sync::{Arc, Mutex},
};

use mcp_tasks::{
    client::{ProtocolChoice, TaskClient, TaskClientError, TaskInfo},
    store::MemoryStore,
    task::Generation,
};
#[allow(deprecated)] // by rmcp, for revisions after 2026-07-28
use rmcp::model::{CreateMessageRequestParams, CreateMessageResult, SamplingMessage};
use rmcp::{
    ClientHandler,
    model::{ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction, ErrorData},
    service::{RequestContext, RoleClient},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use profile::Profile;

/// Answers every question with `Ada` (or the first choice, or yes) and every prompt with `sampled by Ada`; keeps what it
/// was asked.
#[derive(Clone, Default)]
struct Person {
    asked: Arc<Mutex<Vec<Value>>>,
}

impl Person {
    fn asked(&self) -> usize {
        self.asked.lock().map_or(0, |asked| asked.len())
    }

    fn forget(&self) {
        if let Ok(mut asked) = self.asked.lock() {
            asked.clear();
        }
    }
}

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let mut config = ClientConfig::default();
        let declared = json!({"elicitation": {"form": {}}, "sampling": {}});
        config.capabilities = serde_json::from_value(declared).unwrap_or_default();
        config
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let mut request = serde_json::to_value(request).unwrap_or_default();
        request["_meta"] = serde_json::to_value(&context.meta).unwrap_or_default();
        let properties = request["requestedSchema"]["properties"]
            .as_object()
            .cloned();
        let mut content = json!({});
        for (name, schema) in properties.unwrap_or_default() {
            let choice = schema.pointer("/oneOf/0/const");
            content[name] = match choice.or(schema.pointer("/enum/0")) {
                Some(choice) => choice.clone(),
                None if schema["type"] == "boolean" => json!(true),
                None => json!("Ada"),
            };
        }
        if let Ok(mut asked) = self.asked.lock() {
            asked.push(request);
        }
        let mut answer = ElicitResult::new(ElicitationAction::Accept);
        answer.content = Some(content);
        Ok(answer)
    }

    #[allow(deprecated)]
    async fn create_message(
        &self,
        request: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        if let Ok(mut asked) = self.asked.lock() {
            asked.push(serde_json::to_value(request).unwrap_or_default());
        }
        let text = SamplingMessage::assistant_text("sampled by Ada");
        Ok(CreateMessageResult::new(text, "mock".into()))
    }
}

/// What the server announced of its tasks.
type Announced = watch::Sender<Vec<TaskInfo>>;

/// Where the server is.
#[derive(Clone)]
enum Target {
    Url(String),
    Command(Vec<String>),
}

/// What the scenarios share.
struct Run {
    profile: Profile,
    target: Target,
    client: TaskClient,
    person: Person,
    announced: Announced,
    bearer: Option<String>,
    protocol: ProtocolChoice,
    allowed: Vec<String>,
    failures: u8,
}

impl Run {
    /// Whether 2026-07-28 is spoken.
    fn modern(&self) -> bool {
        self.client.generation() == Generation::V2026_07_28
    }

    /// One check; `why` is shown if it failed.
    fn check(&mut self, name: &str, good: bool, why: impl FnOnce() -> String) {
        if good {
            println!("  ok   {name}");
        } else if self.allowed.iter().any(|allowed| allowed == name) {
            println!("  known {name}: the server's fault: {}", why());
        } else {
            println!("  FAIL {name}: {}", why());
            self.failures = self.failures.saturating_add(1);
        }
    }
}

async fn connect(
    target: &Target,
    bearer: Option<&str>,
    protocol: ProtocolChoice,
    person: &Person,
    announced: &Announced,
) -> Result<TaskClient, TaskClientError> {
    let announced = announced.clone();
    let mut builder = TaskClient::builder(person.clone())
        .protocol(protocol)
        .host(MemoryStore::new())
        .on_status(move |info| announced.send_modify(|all| all.push(info)));
    if let Some(token) = bearer {
        builder = builder.bearer(token);
    }
    match target {
        Target::Url(url) => builder.http(url).await,
        Target::Command(words) => {
            let (program, arguments) = words.split_first().unzip();
            let mut command = tokio::process::Command::new(program.map_or("", String::as_str));
            command.args(arguments.unwrap_or_default());
            builder.child(command).await
        }
    }
}

const USAGE: &str = "client-scenarios --tools fixture|ts|python|fastmcp|everything|rmcp|sdk2 [--protocol auto|2025-11-25|2026-07-28] [--bearer TOKEN] [--only a,b] [--skip a,b] [--allow a,b] (URL | -- COMMAND [ARG…])";

struct Options {
    profile: Profile,
    only: Vec<String>,
    skip: Vec<String>,
    allowed: Vec<String>,
    bearer: Option<String>,
    protocol: ProtocolChoice,
    target: Target,
}

fn options() -> Option<Options> {
    let (mut profile, mut target, mut bearer) = (None, None, None);
    let mut protocol = ProtocolChoice::Auto;
    let (mut only, mut skip, mut allowed) = (Vec::new(), Vec::new(), Vec::new());
    let list = |text: String| text.split(',').map(str::to_owned).collect();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--tools" => profile = Profile::named(&words.next()?),
            "--protocol" => {
                protocol = match &*words.next()? {
                    "auto" => ProtocolChoice::Auto,
                    "2025-11-25" => ProtocolChoice::V2025_11_25,
                    "2026-07-28" => ProtocolChoice::V2026_07_28,
                    _ => return None,
                }
            }
            "--bearer" => bearer = Some(words.next()?),
            "--only" => only = list(words.next()?),
            "--skip" => skip = list(words.next()?),
            "--allow" => allowed = list(words.next()?),
            "--" => {
                let command: Vec<String> = words.by_ref().collect();
                target = (!command.is_empty()).then_some(Target::Command(command));
            }
            url if url.starts_with("http") => target = Some(Target::Url(word)),
            _ => return None,
        }
    }
    Some(Options {
        profile: profile?,
        only,
        skip,
        allowed,
        bearer,
        protocol,
        target: target?,
    })
}

#[tokio::main]
async fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("usage: {USAGE}");
        return ExitCode::from(2);
    };
    let (person, announced) = (Person::default(), Announced::default());
    let bearer = options.bearer.as_deref();
    let protocol = options.protocol;
    let client = match connect(&options.target, bearer, protocol, &person, &announced).await {
        Ok(client) => client,
        Err(error) => {
            println!("  FAIL connect: {error}");
            return ExitCode::from(1);
        }
    };
    println!(
        "protocol {}, tasks {}",
        client.protocol_version(),
        client.supports_tasks()
    );
    let mut run = Run {
        profile: options.profile,
        target: options.target,
        client,
        person,
        announced,
        bearer: options.bearer,
        protocol,
        allowed: options.allowed,
        failures: 0,
    };
    for name in scenarios::NAMES {
        let named = |list: &[String]| list.iter().any(|listed| listed == name);
        if (options.only.is_empty() || named(&options.only)) && !named(&options.skip) {
            println!("- {name}");
            let limit = std::time::Duration::from_secs(30);
            let done = tokio::time::timeout(limit, scenarios::play(name, &mut run)).await;
            if done.is_err() {
                run.check(name, false, || format!("not done within {limit:?}"));
            }
        }
    }
    run.client.close().await;
    println!("{} failed", run.failures);
    ExitCode::from(run.failures)
}
