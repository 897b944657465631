//! Where the server is: a URL, or a command after `--`. Always the last thing on a command line.

use std::fmt;

use mcp_tasks::client::{Endpoint, ProtocolChoice, Ticket};

use crate::failure::Failure;

/// How a target is named on the command line.
#[derive(clap::Args, Debug)]
pub(crate) struct TargetArgs {
    /// The server's Streamable HTTP endpoint (http:// or https://)
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// After `--`: a command that serves MCP on its standard input and output
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// A header for every HTTP request, such as 'X-Team: blue'; may be given again
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// A bearer token for every HTTP request
    #[arg(
        long,
        value_name = "TOKEN",
        env = "MCP_TASKS_BEARER",
        hide_env_values = true
    )]
    bearer: Option<String>,
    /// Which protocol to speak
    #[arg(
        long,
        value_name = "REVISION",
        env = "MCP_TASKS_PROTOCOL",
        hide_env_values = true,
        default_value = "auto"
    )]
    protocol: Protocol,
}

/// A protocol revision, as it is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    /// The newest that the server speaks; of a task that was left running, the one it was made with
    #[default]
    Auto,
    /// Core tasks (G1)
    #[value(name = "2025-11-25")]
    V2025_11_25,
    /// The tasks extension (G2)
    #[value(name = "2026-07-28")]
    V2026_07_28,
}

impl Protocol {
    pub(crate) fn choice(self) -> ProtocolChoice {
        match self {
            Self::Auto => ProtocolChoice::Auto,
            Self::V2025_11_25 => ProtocolChoice::V2025_11_25,
            Self::V2026_07_28 => ProtocolChoice::V2026_07_28,
        }
    }
}

/// How a connection is made: what HTTP requests carry, and what is spoken. It is never stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectOptions {
    pub(crate) protocol: Protocol,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) bearer: Option<String>,
}

impl ConnectOptions {
    /// The same, with this protocol where none was asked for.
    pub(crate) fn or(mut self, protocol: Protocol) -> Self {
        if self.protocol == Protocol::Auto {
            self.protocol = protocol;
        }
        self
    }

    /// The same, for a task that was left running: with the protocol it was made with.
    pub(crate) fn for_ticket(&self, ticket: Option<&Ticket>) -> Self {
        let made_with = match ticket.map(Ticket::protocol_version) {
            Some("2025-11-25") => Protocol::V2025_11_25,
            Some("2026-07-28") => Protocol::V2026_07_28,
            _ => Protocol::Auto,
        };
        self.clone().or(made_with)
    }
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Url(String),
    /// The words of a command; at least one.
    Command(Vec<String>),
}

impl TargetArgs {
    /// The target, if one is given.
    pub(crate) fn given(&self) -> Result<Option<Target>, Failure> {
        let target = match (&self.url, self.command.as_slice()) {
            (None, []) => return Ok(None),
            (Some(url), []) => Target::Url(checked(url)?),
            (None, command) => Target::Command(command.to_vec()),
            (Some(url), command) => {
                return Err(Failure::usage(format!(
                    "there are two targets, {url:?} and the command {:?}: give one of them",
                    command.join(" ")
                )));
            }
        };
        if let (Target::Command(_), Some((name, _))) = (&target, self.headers.first()) {
            return Err(Failure::usage(format!(
                "--header {name:?}: headers go with a URL, and the target is a command"
            )));
        }
        Ok(Some(target))
    }

    /// The target.
    pub(crate) fn required(&self) -> Result<Target, Failure> {
        self.given()?.ok_or_else(|| {
            Failure::usage(
                "there is no target: the last thing on the command line is a URL such as http://localhost:8000/mcp, or a \
                 command after `--`",
            )
        })
    }

    pub(crate) fn how(&self) -> ConnectOptions {
        ConnectOptions {
            protocol: self.protocol,
            headers: self.headers.clone(),
            bearer: self.bearer.clone(),
        }
    }
}

/// Whether it is meant as a URL.
pub(crate) fn looks_like_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

fn checked(url: &str) -> Result<String, Failure> {
    if !looks_like_url(url) {
        return Err(Failure::usage(format!(
            "{url:?} is no target: expected a URL with http:// or https://, or a command after `--`"
        )));
    }
    if url.starts_with("https://") && !cfg!(feature = "tls") {
        return Err(Failure::usage(format!(
            "{url:?}: this mcp-tasks was built without the feature \"tls\", which https needs"
        )));
    }
    Ok(url.to_owned())
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("expected NAME: VALUE".to_owned()),
    }
}

impl Target {
    /// The one that a ticket names.
    pub(crate) fn of(endpoint: &Endpoint) -> Option<Self> {
        match endpoint {
            Endpoint::Url(url) => Some(Self::Url(url.clone())),
            Endpoint::Command(words) if !words.is_empty() => Some(Self::Command(words.clone())),
            _ => None,
        }
    }

    pub(crate) fn is_command(&self) -> bool {
        matches!(self, Self::Command(_))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => f.write_str(url),
            Self::Command(words) => {
                let words: Vec<String> =
                    words.iter().map(|word| crate::text::quoted(word)).collect();
                f.write_str(&words.join(" "))
            }
        }
    }
}
