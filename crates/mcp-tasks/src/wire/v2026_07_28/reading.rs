//! What a server says, read by its client: results by their `resultType`, tasks, questions, what `server/discover`
//! tells. Tolerant: what is needed has to be there, the rest is taken where it fits. An error says what is wrong.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::{
    super::{
        envelope::{excerpt, string_of},
        field,
    },
    EXTENSION, SERVER_INFO_META, SUBSCRIPTION_META,
};

/// What a result says it is (2026-07-28 `basic`, Result).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultType {
    /// The result of the request's own kind; also one that does not say.
    Complete,
    /// The request has to be made again with answers.
    InputRequired,
    /// A task was made of the request.
    Task,
    /// Something that nobody here knows.
    Other(String),
}

impl ResultType {
    /// Reads it from a result.
    ///
    /// # Errors
    /// For a result that is no object, or a type that is no text.
    pub fn of(result: &RawValue) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Form<'a> {
            #[serde(borrow, default, rename = "resultType")]
            kind: Option<&'a RawValue>,
        }
        let form: Form<'_> = parse("a result", result)?;
        let Some(kind) = form.kind else {
            return Ok(Self::Complete);
        };
        let kind = string_of(kind)
            .ok_or_else(|| format!("resultType must be a text, got {}", excerpt(kind.get())))?;
        Ok(match &*kind {
            "complete" => Self::Complete,
            "input_required" => Self::InputRequired,
            "task" => Self::Task,
            other => Self::Other(excerpt(other).into_owned()),
        })
    }
}

/// One question: its key, and what is asked.
pub type Question<'a> = (String, Asked<'a>);

/// A request to the client, inside a result.
#[derive(Debug, Clone)]
pub struct Asked<'a> {
    /// The method.
    pub method: Cow<'a, str>,
    /// The parameters, if any.
    pub params: Option<&'a RawValue>,
}

/// The members of a task, and those of what hangs on its status.
#[derive(Debug, Default)]
pub struct Detailed<'a> {
    /// All the small members, as they came.
    pub task: Map<String, Value>,
    /// `inputRequests`.
    pub questions: Vec<Question<'a>>,
    /// `result`.
    pub result: Option<&'a RawValue>,
    /// `error`.
    pub error: Option<&'a RawValue>,
}

impl<'a> Detailed<'a> {
    /// Reads what `tasks/get`, `notifications/tasks` or a creation tells.
    ///
    /// # Errors
    /// For what is no object, or questions that cannot be read.
    pub fn read(raw: &'a RawValue) -> Result<Self, String> {
        let mut detailed = Self::default();
        for (name, value) in members("a task", raw)? {
            match &*name {
                "inputRequests" if value.get() != "null" => detailed.questions = questions(value)?,
                "result" if value.get() != "null" => detailed.result = Some(value),
                "error" if value.get() != "null" => detailed.error = Some(value),
                "taskId" | "status" | "statusMessage" | "createdAt" | "lastUpdatedAt" | "ttlMs"
                | "pollIntervalMs" => {
                    let value = serde_json::from_str(value.get()).unwrap_or_default();
                    detailed.task.insert(name.into_owned(), value);
                }
                _ => {}
            }
        }
        Ok(detailed)
    }
}

/// The answer that asks for answers (2026-07-28 `basic/patterns/mrtr`, InputRequiredResult).
#[derive(Debug)]
pub struct InputRequired<'a> {
    /// `inputRequests`.
    pub questions: Vec<Question<'a>>,
    /// `requestState`, to be given back as it is.
    pub state: Option<String>,
}

impl<'a> InputRequired<'a> {
    /// Reads one.
    ///
    /// # Errors
    /// If neither questions nor a state are there, or they cannot be read.
    pub fn read(raw: &'a RawValue) -> Result<Self, String> {
        let (mut asked, mut state) = (None, None);
        for (name, value) in members("an input_required result", raw)? {
            match &*name {
                "inputRequests" if value.get() != "null" => asked = Some(questions(value)?),
                "requestState" if value.get() != "null" => {
                    let text = string_of(value).ok_or_else(|| {
                        format!("requestState must be a text, got {}", excerpt(value.get()))
                    })?;
                    state = Some(text.into_owned());
                }
                _ => {}
            }
        }
        match (asked, state) {
            (None, None) => {
                Err("an input_required result has neither inputRequests nor requestState".into())
            }
            (asked, state) => Ok(Self {
                questions: asked.unwrap_or_default(),
                state,
            }),
        }
    }
}

/// `inputRequests`: an object of requests.
fn questions(raw: &RawValue) -> Result<Vec<Question<'_>>, String> {
    #[derive(Deserialize)]
    struct Form<'a> {
        #[serde(borrow)]
        method: Cow<'a, str>,
        #[serde(borrow, default)]
        params: Option<&'a RawValue>,
    }
    let mut questions = Vec::new();
    for (key, value) in members("inputRequests", raw)? {
        let form: Form<'_> = parse("an input request", value)?;
        let asked = Asked {
            method: form.method,
            params: form.params,
        };
        questions.push((key.into_owned(), asked));
    }
    Ok(questions)
}

/// What `server/discover` tells (2026-07-28 `server/discover`, DiscoverResult).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Discovered {
    /// `supportedVersions`.
    pub versions: Vec<String>,
    /// `serverInfo.name`.
    pub name: String,
    /// Whether the tasks extension is declared, by any object.
    pub tasks: bool,
    /// The whole result.
    pub result: Map<String, Value>,
}

impl Discovered {
    /// Reads one; `None` for a result that is something else.
    pub fn read(raw: &RawValue) -> Option<Self> {
        let Ok(Value::Object(result)) = serde_json::from_str(raw.get()) else {
            return None;
        };
        let versions = texts(result.get("supportedVersions")?)?;
        let whole = Value::Object(result);
        let tasks = whole.get("capabilities").and_then(|capabilities| {
            let extensions = capabilities.get("extensions")?;
            extensions.get(EXTENSION)
        });
        let tasks = tasks.is_some_and(Value::is_object);
        let info = whole
            .get("_meta")
            .and_then(|meta| meta.get(SERVER_INFO_META));
        let name = info.and_then(|info| info.get("name")?.as_str());
        let name = name.unwrap_or_default().to_owned();
        let Value::Object(result) = whole else {
            return None;
        };
        Some(Self {
            versions,
            name,
            tasks,
            result,
        })
    }
}

/// The `supported` revisions in the data of an error -32022.
pub fn supported(data: Option<&Value>) -> Vec<String> {
    data.and_then(|data| texts(data.get("supported")?))
        .unwrap_or_default()
}

fn texts(value: &Value) -> Option<Vec<String>> {
    let texts = value.as_array()?.iter();
    texts
        .map(|text| text.as_str().map(str::to_owned))
        .collect::<Option<_>>()
}

/// The subscription that a notification says it belongs to, as JSON text.
pub fn subscription(params: Option<&RawValue>) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow, default, rename = "_meta")]
        meta: Option<&'a RawValue>,
    }
    let params: Params<'_> = field::object(params?)?;
    let meta = members("_meta", params.meta?).ok()?;
    let subscription = meta
        .into_iter()
        .find(|(name, _)| name == SUBSCRIPTION_META)?;
    Some(subscription.1)
}

/// The tasks that a subscription was granted, from its acknowledgement.
pub fn granted(params: Option<&RawValue>) -> Vec<String> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(default)]
        notifications: Value,
    }
    let params = params.and_then(field::object::<Params>);
    params
        .and_then(|params| texts(params.notifications.get("taskIds")?))
        .unwrap_or_default()
}

fn parse<'a, T: Deserialize<'a>>(what: &str, raw: &'a RawValue) -> Result<T, String> {
    // A list would be read as members in order.
    if !raw.get().starts_with('{') {
        return Err(format!(
            "{what} must be an object, got {}",
            excerpt(raw.get())
        ));
    }
    serde_json::from_str(raw.get()).map_err(|error| {
        let got = excerpt(raw.get());
        format!("{what} cannot be read: {error}: {got}")
    })
}

/// The members of an object, in their order.
fn members<'a>(what: &str, raw: &'a RawValue) -> Result<Vec<(Cow<'a, str>, &'a RawValue)>, String> {
    struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);
    #[derive(Deserialize, PartialEq, Eq, Hash)]
    struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
    impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor<'a>(std::marker::PhantomData<&'a ()>);
            impl<'de: 'a, 'a> serde::de::Visitor<'de> for Visitor<'a> {
                type Value = Members<'a>;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an object")
                }

                fn visit_map<A: serde::de::MapAccess<'de>>(
                    self,
                    mut map: A,
                ) -> Result<Members<'a>, A::Error> {
                    let mut members = Vec::new();
                    while let Some((Name(name), value)) = map.next_entry()? {
                        members.push((name, value));
                    }
                    Ok(Members(members))
                }
            }
            deserializer.deserialize_map(Visitor(std::marker::PhantomData))
        }
    }
    parse::<Members<'a>>(what, raw).map(|members| members.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn the_result_type_decides() {
        for (text, kind) in [
            (r#"{"content":[]}"#, ResultType::Complete),
            (r#"{"resultType":"complete"}"#, ResultType::Complete),
            (r#"{"resultType":null}"#, ResultType::Complete),
            (r#"{"resultType":"task"}"#, ResultType::Task),
            (
                r#"{"resultType":"input\u005frequired"}"#,
                ResultType::InputRequired,
            ),
            (r#"{"resultType":"new"}"#, ResultType::Other("new".into())),
        ] {
            assert_eq!(ResultType::of(&raw(text)), Ok(kind), "{text}");
        }
        assert!(ResultType::of(&raw("[]")).is_err());
        assert!(ResultType::of(&raw(r#"{"resultType":7}"#)).is_err());
    }

    #[test]
    fn a_detailed_task_keeps_its_payload_raw() {
        let text = r#"{"resultType":"complete","taskId":"t","status":"input_required","ttlMs":null,"x":[1],
            "inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m"}},"b":{"method":"roots/list"}},
            "result":{"big": 1.0e2}}"#;
        let whole = raw(text);
        let detailed = Detailed::read(&whole).unwrap();
        assert_eq!(detailed.task["taskId"], "t");
        assert_eq!(detailed.task.len(), 3);
        let keys: Vec<_> = detailed.questions.iter().map(|(key, _)| &**key).collect();
        assert_eq!(keys, ["a", "b"]);
        assert_eq!(detailed.questions[1].1.method, "roots/list");
        assert_eq!(detailed.result.unwrap().get(), r#"{"big": 1.0e2}"#);
        assert!(Detailed::read(&raw(r#"{"inputRequests":[1]}"#)).is_err());
        assert!(Detailed::read(&raw(r#"{"inputRequests":{"a":{}}}"#)).is_err());
    }

    #[test]
    fn input_is_asked_with_questions_or_a_state() {
        let read = |text: &str| {
            let raw = raw(text);
            InputRequired::read(&raw).map(|input| (input.questions.len(), input.state))
        };
        assert_eq!(
            read(r#"{"requestState":"a\u00e9 "}"#),
            Ok((0, Some("aé ".into())))
        );
        assert_eq!(read(r#"{"inputRequests":{}}"#), Ok((0, None)));
        assert!(read("{}").unwrap_err().contains("neither"));
        assert!(
            read(r#"{"requestState":{}}"#)
                .unwrap_err()
                .contains("requestState")
        );
    }

    #[test]
    fn discovery_is_read() {
        let text = format!(
            r#"{{"supportedVersions":["2026-07-28"],"capabilities":{{"extensions":{{"{EXTENSION}":{{"new":1}}}}}},"_meta":{{"{SERVER_INFO_META}":{{"name":"s"}}}}}}"#
        );
        let discovered = Discovered::read(&raw(&text)).unwrap();
        assert!(discovered.tasks);
        assert_eq!((&*discovered.name, discovered.versions.len()), ("s", 1));
        assert!(
            !Discovered::read(&raw(r#"{"supportedVersions":[],"capabilities":null}"#))
                .unwrap()
                .tasks
        );
        for other in [
            "7",
            "{}",
            r#"{"supportedVersions":7}"#,
            r#"{"supportedVersions":[1]}"#,
        ] {
            assert_eq!(Discovered::read(&raw(other)), None, "{other}");
        }
    }

    #[test]
    fn a_notification_names_its_subscription() {
        let params = raw(&format!(
            r#"{{"_meta":{{"{SUBSCRIPTION_META}":"tc:3"}},"notifications":{{"taskIds":["t"]}}}}"#
        ));
        assert_eq!(subscription(Some(&params)).unwrap().get(), "\"tc:3\"");
        assert_eq!(granted(Some(&params)), ["t"]);
        assert!(subscription(Some(&raw("{}"))).is_none() && granted(None).is_empty());
    }
}
