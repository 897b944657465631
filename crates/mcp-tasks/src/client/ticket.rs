//! What another process needs to go on with a task.

use std::fmt;

use rmcp::model::ErrorData;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Map, Value};

use super::{
    TaskClientError,
    desk::{Key, Recorded},
    questions::{Answer, Kind},
};

/// The version of the JSON form.
const VERSION: u32 = 1;

/// Where a client is connected to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Endpoint {
    /// A Streamable HTTP endpoint: its URL, without user name and password.
    Url(String),
    /// A process that speaks on its stdio: the program and its arguments.
    Command(Vec<String>),
    /// Whatever [`TaskClientBuilder::endpoint`](super::TaskClientBuilder::endpoint) said.
    Named(String),
    /// A pair of byte streams; which server that is, only its name in the handshake tells.
    Streams,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => f.write_str(url),
            Self::Command(command) => write!(f, "the command {:?}", command.join(" ")),
            Self::Named(name) => write!(f, "{name:?}"),
            Self::Streams => f.write_str("a pair of byte streams"),
        }
    }
}

/// A task on a server, to be stored and taken up by another process ([`TaskClient::resume`](super::TaskClient::resume)).
///
/// It is a snapshot: what was answered later is not in it, so take it when the task is left alone. It serializes as
/// JSON, whose version is checked when it is read.
///
/// Keep it as you keep a password: it holds the task's id, which may be all that protects the task, and the answers
/// that were given to its questions. No headers or tokens are in it.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Ticket {
    pub(super) endpoint: Endpoint,
    /// `serverInfo.name`.
    pub(super) server: String,
    pub(super) protocol: String,
    pub(super) task: String,
    pub(super) tool: Option<String>,
    /// JSON text.
    pub(super) token: Option<String>,
    pub(super) answered: Vec<Recorded>,
}

impl Ticket {
    /// Where the task's server is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// What the server calls itself (`serverInfo.name`).
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The protocol revision under which the task was made, as `2025-11-25`.
    pub fn protocol_version(&self) -> &str {
        &self.protocol
    }

    /// The task's id.
    pub fn task_id(&self) -> &str {
        &self.task
    }

    /// The tool that runs, if that is known.
    pub fn tool(&self) -> Option<&str> {
        self.tool.as_deref()
    }

    /// How many answers are on record, for questions that may come again.
    pub fn answered(&self) -> usize {
        self.answered.len()
    }

    /// The ticket as JSON text, the same as serde gives.
    pub fn to_json(&self) -> String {
        serde_json::to_value(self).unwrap_or_default().to_string()
    }

    /// Reads a ticket.
    ///
    /// # Errors
    /// `Ticket`, saying what is wrong.
    pub fn from_json(text: &str) -> Result<Self, TaskClientError> {
        serde_json::from_str(text).map_err(|error| TaskClientError::Ticket(error.to_string()))
    }

    /// Checks that it belongs to this connection.
    ///
    /// # Errors
    /// `Ticket`, naming both sides.
    pub(super) fn fits(
        &self,
        endpoint: &Endpoint,
        server: &str,
        protocol: &str,
    ) -> Result<(), TaskClientError> {
        let wrong = if self.endpoint != *endpoint {
            format!("it is for {}, this is {endpoint}", self.endpoint)
        } else if *endpoint == Endpoint::Streams && self.server != server {
            format!("it is for the server {:?}, this is {server:?}", self.server)
        } else if self.protocol != protocol {
            format!(
                "its task belongs to protocol {}, this connection speaks {protocol}",
                self.protocol
            )
        } else {
            return Ok(());
        };
        Err(TaskClientError::Ticket(wrong))
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("endpoint", &self.endpoint)
            .field("task", &self.task)
            .field("tool", &self.tool)
            .field("answered", &self.answered.len())
            .finish_non_exhaustive()
    }
}

/// The JSON form.
#[derive(Serialize, Deserialize)]
struct Form {
    version: u32,
    endpoint: Endpoint,
    #[serde(default)]
    server: String,
    protocol: String,
    task: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    progress_token: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    answered: Vec<Answered>,
}

#[derive(Serialize, Deserialize)]
struct Answered {
    /// The key, or else the method and the parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    params: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<ErrorData>,
}

impl From<&Recorded> for Answered {
    fn from(recorded: &Recorded) -> Self {
        let (key, method, params) = match &recorded.key {
            Key::Named(key) => (Some(key.clone()), None, None),
            Key::Params(kind, params) => {
                (None, Some(kind.method().to_owned()), Some(params.clone()))
            }
        };
        let (result, error) = match &recorded.answer {
            Answer::Result(result) => (Some(result.clone()), None),
            Answer::Error(error) => (None, Some(error.clone())),
        };
        Self {
            key,
            method,
            params,
            result,
            error,
        }
    }
}

impl TryFrom<Answered> for Recorded {
    type Error = String;

    fn try_from(answered: Answered) -> Result<Self, String> {
        let key = match (answered.key, answered.method) {
            (Some(key), _) => Key::Named(key),
            (None, Some(method)) => Key::Params(
                Kind::of(&method).ok_or_else(|| format!("{method:?} is no question"))?,
                answered.params.unwrap_or_default(),
            ),
            (None, None) => return Err("an answer without its question".to_owned()),
        };
        let answer = match (answered.result, answered.error) {
            (Some(result), None) => Answer::Result(result),
            (None, Some(error)) => Answer::Error(error),
            _ => return Err("an answer is a result or an error".to_owned()),
        };
        Ok(Self { key, answer })
    }
}

impl Serialize for Ticket {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let token = self.token.as_deref();
        Form {
            version: VERSION,
            endpoint: self.endpoint.clone(),
            server: self.server.clone(),
            protocol: self.protocol.clone(),
            task: self.task.clone(),
            tool: self.tool.clone(),
            progress_token: token.and_then(|text| serde_json::from_str(text).ok()),
            answered: self.answered.iter().map(Answered::from).collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Ticket {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let Value::Object(members) = &value else {
            return Err(D::Error::custom("a ticket is a JSON object"));
        };
        // A later version may look different altogether.
        match members.get("version").map(Value::as_u64) {
            Some(Some(version)) if version == u64::from(VERSION) => {}
            Some(_) => {
                let version = &members["version"];
                return Err(D::Error::custom(format!(
                    "version {version} of tickets is not known here, only {VERSION} is"
                )));
            }
            None => return Err(D::Error::custom("a ticket has a version")),
        }
        let form: Form = serde_json::from_value(value).map_err(D::Error::custom)?;
        if form.task.is_empty() {
            return Err(D::Error::custom("the task has no id"));
        }
        let token = form.progress_token.filter(|token| !token.is_null());
        let answered = form.answered.into_iter().map(Recorded::try_from);
        Ok(Self {
            endpoint: form.endpoint,
            server: form.server,
            protocol: form.protocol,
            task: form.task,
            tool: form.tool,
            token: token.map(|token| token.to_string()),
            answered: answered
                .collect::<Result<_, _>>()
                .map_err(D::Error::custom)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ticket() -> Ticket {
        let params = json!({"message": "m"}).as_object().cloned();
        let error = ErrorData::internal_error("no", Some(json!(1)));
        Ticket {
            endpoint: Endpoint::Url("http://localhost/mcp".to_owned()),
            server: "s".to_owned(),
            protocol: "2025-11-25".to_owned(),
            task: "T".to_owned(),
            tool: Some("ask".to_owned()),
            token: Some("\"tc:x:1\"".to_owned()),
            answered: vec![
                Recorded {
                    key: Key::Named("k".to_owned()),
                    answer: Answer::Result(json!({"action": "decline"})),
                },
                Recorded {
                    key: Key::Params(Kind::Elicit, params.unwrap_or_default()),
                    answer: Answer::Error(error),
                },
            ],
        }
    }

    #[test]
    fn a_ticket_survives_its_json() {
        let ticket = ticket();
        assert_eq!(Ticket::from_json(&ticket.to_json()).unwrap(), ticket);
        let value: Value = serde_json::from_str(&ticket.to_json()).unwrap();
        assert_eq!(
            value,
            json!({"version": 1, "endpoint": {"url": "http://localhost/mcp"}, "server": "s",
                "protocol": "2025-11-25", "task": "T", "tool": "ask", "progress_token": "tc:x:1",
                "answered": [{"key": "k", "result": {"action": "decline"}},
                    {"method": "elicitation/create", "params": {"message": "m"},
                        "error": {"code": -32603, "message": "no", "data": 1}}]})
        );
        assert!(!format!("{ticket:?}").contains("decline"));
    }

    #[test]
    fn what_is_wrong_with_a_ticket_is_told() {
        let good: Value = serde_json::from_str(&ticket().to_json()).unwrap();
        let with = |member: &str, value: Value| {
            let mut bad = good.clone();
            bad[member] = value;
            Ticket::from_json(&bad.to_string()).unwrap_err().to_string()
        };
        for (error, what) in [
            (with("version", json!(2)), "version 2 of tickets"),
            (with("version", json!("1")), "version \"1\""),
            (with("endpoint", json!({"pigeon": 1})), "pigeon"),
            (with("task", json!("")), "no id"),
            (with("task", json!(7)), "string"),
            (
                with("answered", json!([{"key": "k"}])),
                "a result or an error",
            ),
            (
                with("answered", json!([{"result": {}}])),
                "without its question",
            ),
            (
                with("answered", json!([{"method": "x", "result": {}}])),
                "\"x\" is no question",
            ),
        ] {
            assert!(error.contains("ticket") && error.contains(what), "{error}");
        }
        for garbled in [
            "",
            "{}",
            "[1]",
            "{\"version\":1}",
            &ticket().to_json()[..60],
        ] {
            assert!(matches!(
                Ticket::from_json(garbled),
                Err(TaskClientError::Ticket(_))
            ));
        }
    }
}
