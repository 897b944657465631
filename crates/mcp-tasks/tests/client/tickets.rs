//! Tickets: a task begun by one client and taken up by another, over HTTP and over lines, against our own server.

use std::{sync::Arc, time::Duration};

use mcp_tasks::{
    Elicitation, TaskContext, TaskError, TaskTool, Tasks,
    client::{
        CallOptions, Endpoint, ProtocolChoice, TaskClient, TaskClientError, TaskEvent, TaskStatus,
        Ticket,
    },
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{
    Person, call,
    lines::play,
    script::*,
    support::{
        Greeter,
        http::Served,
        tools::{self, Gates, Name},
    },
    text_of,
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Http,
    Lines,
}

struct World {
    tasks: Tasks,
    gates: Gates,
    served: Served,
}

impl World {
    async fn new() -> Self {
        let gates = Gates::default();
        let twice = TaskTool::new("twice").run(async |cx: TaskContext, _: Value| {
            let mut said = Vec::new();
            for question in ["First?", "Second?"] {
                said.push(match cx.elicit::<Name>(question).await? {
                    Elicitation::Accept(Name { name }) => name,
                    _ => "nobody".to_owned(),
                });
            }
            Ok::<_, TaskError>(said.join(" "))
        });
        let tasks = tools::all(&gates).tool(twice).bearer_ids().build().unwrap();
        let served = Served::start(&tasks, Greeter).await;
        Self {
            tasks,
            gates,
            served,
        }
    }

    async fn connect(&self, way: Way, person: &Namer) -> TaskClient {
        self.speaking(ProtocolChoice::Auto, way, person).await
    }

    async fn speaking(&self, choice: ProtocolChoice, way: Way, person: &Namer) -> TaskClient {
        let builder = TaskClient::builder(person.clone()).protocol(choice);
        match way {
            Way::Http => builder.http(&self.served.url).await.unwrap(),
            Way::Lines => {
                let (ours, theirs) = tokio::io::duplex(1 << 16);
                let tasks = self.tasks.clone();
                tokio::spawn(async move { tasks.serve(Greeter, tokio::io::split(theirs)).await });
                builder.connect(tokio::io::split(ours)).await.unwrap()
            }
        }
    }
}

/// Gives a name, or thinks for ever from the second question on.
#[derive(Clone)]
struct Namer {
    name: &'static str,
    patient: bool,
    asked: Arc<std::sync::Mutex<Vec<String>>>,
    thinking: Arc<Notify>,
}

impl Namer {
    fn new(name: &'static str, patient: bool) -> Self {
        Self {
            name,
            patient,
            asked: Arc::default(),
            thinking: Arc::default(),
        }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl rmcp::ClientHandler for Namer {
    fn get_info(&self) -> rmcp::model::ClientConfig {
        crate::elicits()
    }

    async fn create_elicitation(
        &self,
        request: rmcp::model::ElicitRequestParams,
        _: rmcp::service::RequestContext<rmcp::service::RoleClient>,
    ) -> Result<rmcp::model::ElicitResult, rmcp::model::ErrorData> {
        let request = serde_json::to_value(request).unwrap();
        let message = request["message"].as_str().unwrap().to_owned();
        self.asked.lock().unwrap().push(message.clone());
        if message == "Second?" && !self.patient {
            self.thinking.notify_one();
            std::future::pending::<()>().await;
        }
        let action = rmcp::model::ElicitationAction::Accept;
        let mut answer = rmcp::model::ElicitResult::new(action);
        answer.content = Some(json!({ "name": self.name }));
        Ok(answer)
    }
}

const BOTH: [(ProtocolChoice, &str); 2] = [
    (ProtocolChoice::V2025_11_25, "2025-11-25"),
    (ProtocolChoice::V2026_07_28, "2026-07-28"),
];

/// Each way, with each revision.
fn all_ways() -> impl Iterator<Item = (Way, ProtocolChoice, &'static str)> {
    let ways = [Way::Http, Way::Lines].into_iter();
    ways.flat_map(|way| BOTH.map(|(choice, version)| (way, choice, version)))
}

/// Through JSON, as another process would get it.
fn stored(ticket: &Ticket) -> Ticket {
    Ticket::from_json(&ticket.to_json()).unwrap()
}

// F-36
#[tokio::test]
async fn a_task_in_the_middle_of_a_question_is_taken_up_and_answered_ones_are_not_asked_again() {
    for (way, choice, version) in all_ways() {
        let world = World::new().await;
        let (ada, bob) = (Namer::new("Ada", false), Namer::new("Bob", true));
        let client = world.speaking(choice, way, &ada).await;
        let mut events = client.call_tool_stream(call("twice"), CallOptions::new());
        let Some(TaskEvent::Created(_)) = events.next().await else {
            panic!("{way:?}: no task")
        };
        let reading = tokio::spawn(async move {
            let task = events.task().unwrap();
            while events.next().await.is_some() {}
            task
        });
        ada.thinking.notified().await;
        let other = client.clone();
        client.close().await;
        drop(other);
        let ticket = reading.await.unwrap().ticket();
        assert_eq!(ticket.tool(), Some("twice"));
        assert_eq!(ticket.protocol_version(), version);
        assert_eq!(
            *ticket.endpoint() == Endpoint::Streams,
            way == Way::Lines,
            "{ticket:?}"
        );
        let client = world.speaking(choice, way, &bob).await;
        let task = client.resume(&stored(&ticket)).unwrap();
        assert_eq!(task.ticket().task_id(), ticket.task_id());
        assert_eq!(text_of(&task.result().await.unwrap()), "Ada Bob", "{way:?}");
        assert_eq!(ada.asked(), ["First?", "Second?"], "{way:?}");
        assert_eq!(bob.asked(), ["Second?"], "{way:?}");
    }
}

// F-35, F-36
#[tokio::test]
async fn finished_cancelled_and_expired_tasks_are_told_apart_by_whoever_resumes() {
    for (way, choice, _) in all_ways() {
        let world = World::new().await;
        let person = Namer::new("Ada", true);
        let client = world.speaking(choice, way, &person).await;
        let make = async |tool: &'static str, options: CallOptions| {
            client.call_tool_task(call(tool), options).await.unwrap()
        };
        let finished = make("echo", CallOptions::new()).await;
        assert_eq!(text_of(&finished.result().await.unwrap()), "nothing");
        let failed = make("fails", CallOptions::new()).await;
        let cancelled = make("held", CallOptions::new()).await;
        world.gates.wait_started().await;
        cancelled.cancel().await.unwrap();
        let expired = make("echo", CallOptions::new().ttl(Duration::from_millis(300))).await;
        let tickets = [&finished, &failed, &cancelled, &expired].map(|task| stored(&task.ticket()));
        client.close().await;
        // The least that the server grants is a second.
        tokio::time::sleep(Duration::from_millis(1500)).await;

        let client = world.speaking(choice, way, &person).await;
        let [finished, failed, cancelled, expired] =
            tickets.map(|ticket| client.resume(&ticket).unwrap());
        for _ in 0..2 {
            assert_eq!(text_of(&finished.result().await.unwrap()), "nothing");
        }
        let error = failed.result().await.unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Rpc(error) if error.code.0 == 1042),
            "{error}"
        );
        let error = cancelled.result().await.unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Cancelled { task_id, .. } if task_id == cancelled.id()),
            "{error}"
        );
        assert_eq!(cancelled.get().await.unwrap().status, TaskStatus::Cancelled);
        if choice == ProtocolChoice::V2026_07_28 {
            // There no time to live can be asked for.
            assert_eq!(expired.get().await.unwrap().status, TaskStatus::Completed);
            continue;
        }
        for error in [
            expired.get().await.unwrap_err(),
            expired.result().await.unwrap_err(),
        ] {
            assert!(
                matches!(&error, TaskClientError::Expired { task_id } if task_id == expired.id()),
                "{way:?}: {error}"
            );
        }
    }
}

#[tokio::test]
async fn a_ticket_for_another_server_is_refused() {
    let (here, there) = (World::new().await, World::new().await);
    let person = Namer::new("Ada", true);
    let client = here.connect(Way::Http, &person).await;
    let task = client
        .call_tool_task(call("echo"), CallOptions::new())
        .await
        .unwrap();
    let ticket = task.ticket();
    for (way, what) in [
        (Way::Http, there.served.url.as_str()),
        (Way::Lines, "byte streams"),
    ] {
        let other = there.connect(way, &person).await;
        let error = other.resume(&ticket).unwrap_err();
        assert!(
            matches!(&error, TaskClientError::Ticket(why) if why.contains(&here.served.url) && why.contains(what)),
            "{error}"
        );
    }
    // Credentials are no part of where a server is, and a name of one's own takes the place of it all.
    let url = here.served.url.replace("http://", "http://ada:secret@");
    let other = TaskClient::http(person.clone(), url).await.unwrap();
    assert!(
        !other
            .resume(&ticket)
            .unwrap()
            .ticket()
            .to_json()
            .contains("secret")
    );
    let named = async |url: &str| {
        let builder = TaskClient::builder(person.clone()).endpoint("prod");
        builder.http(url).await.unwrap()
    };
    let task = named(&here.served.url).await.task("T");
    assert!(
        named(&there.served.url)
            .await
            .resume(&task.ticket())
            .is_ok()
    );
    assert!(client.resume(&task.ticket()).is_err());
}

// F-36
#[tokio::test(start_paused = true)]
async fn recorded_answers_are_given_again_and_another_protocol_or_server_is_refused() {
    let person = Person::default();
    // An answer with a key, and one without that the server did not take before the connection went.
    let (mut script, io) = Script::pair();
    let server = async {
        script.until_created().await;
        script.serve("tasks/get", task("input_required")).await;
        script.expect("tasks/result").await;
        script.send(question(json!("q1"), Some("k"))).await;
        let answered = script.expect_answer().await;
        assert_eq!(answered["result"]["content"], json!({"name": 1}));
        drop(script);
    };
    let client = async {
        let client = TaskClient::connect(person.clone(), io).await.unwrap();
        let task = client
            .call_tool_task(call("slow"), CallOptions::new())
            .await
            .unwrap();
        let error = task.result().await.unwrap_err();
        assert!(
            matches!(error, TaskClientError::TransportLost { .. }),
            "{error}"
        );
        task.ticket()
    };
    // (The client is closed by then, and the answers are still known.)
    let ticket = play(server, client).await;
    assert_eq!((ticket.answered(), ticket.server()), (1, "script"));

    let (mut script, io) = Script::pair();
    let server = async {
        script.handshake(with_tasks()).await;
        script.serve("tasks/get", task("input_required")).await;
        let waiting = script.expect("tasks/result").await;
        script.send(question(json!("q2"), Some("k"))).await;
        let answered = script.expect_answer().await;
        assert_eq!(
            (&answered["id"], &answered["result"]["content"]),
            (&json!("q2"), &json!({"name": 1}))
        );
        assert_eq!(answered["result"]["_meta"][RELATED]["taskId"], "T");
        script.send(question(json!("q3"), Some("another"))).await;
        let answered = script.expect_answer().await;
        assert_eq!(answered["result"]["content"], json!({"name": 2}));
        script.send(answer(&waiting, &text("done"))).await;
    };
    let client = async {
        let client = TaskClient::connect(person.clone(), io).await.unwrap();
        let task = client.resume(&stored(&ticket)).unwrap();
        assert_eq!(text_of(&task.result().await.unwrap()), "done");
    };
    play(server, client).await;
    assert_eq!(person.asked(), 2);

    for (version, name, what) in [
        ("2025-06-18", "script", "speaks 2025-06-18"),
        ("2025-11-25", "other", "this is \"other\""),
    ] {
        let (mut script, io) = Script::pair();
        let hello = json!({"protocolVersion": version, "capabilities": {},
            "serverInfo": {"name": name, "version": "1"}});
        let server = async {
            script.serve("initialize", hello).await;
            script.expect("notifications/initialized").await;
        };
        let client = async {
            let client = TaskClient::connect((), io).await.unwrap();
            let error = client.resume(&ticket).unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
        };
        play(server, client).await;
    }
}
