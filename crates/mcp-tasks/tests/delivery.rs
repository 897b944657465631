//! Where questions and notifications go (2025-11-25): to exactly one stream, and again only when that is gone.
//!
//! Nothing here waits for time to pass to see that something did not come. Two fences replace that: a [`Watcher`] is
//! told of every record after the server has sent what it had to, and a `list_changed` on a general stream comes after
//! all that was sent there before.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use mcp_tasks::{
    Elicitation, Limits, TaskContext, TaskError, TaskTool, Tasks,
    runtime::{LogEvent, Observer, ProgressEvent},
    task::{Phase, TaskId, TaskRecord},
};
use serde_json::{Value, json};
use support::{
    Greeter, PATIENCE, RELATED, code,
    http::{Client, Events, Served},
    pipe::Pipe,
    text,
    tools::{self, Gates, Name},
};
use tokio::sync::watch;

const G1: &str = "2025-11-25";
const LIST_CHANGED: &str = "notifications/tools/list_changed";
/// Longer than any test: what it holds back comes by what a client does, not by itself.
const NEVER: Duration = Duration::from_secs(600);

/// Hears of every change after the server's own delivery has: observers are told in order.
struct Watcher {
    phases: Mutex<Vec<(TaskId, u64, Phase)>>,
    told: watch::Sender<()>,
}

impl Observer for Watcher {
    fn changed(&self, record: &Arc<TaskRecord>) {
        let mut phases = self.phases.lock().unwrap();
        phases.push((record.id.clone(), record.revision, record.phase()));
        self.told.send_replace(());
    }
    fn removed(&self, _: &TaskId) {}
    fn progress(&self, _: &Arc<TaskRecord>, _: &ProgressEvent) {}
    fn log(&self, _: &Arc<TaskRecord>, _: &LogEvent) {}
}

struct World {
    tasks: Tasks,
    gates: Gates,
    served: Served,
    watcher: Arc<Watcher>,
}

impl World {
    /// A server with owners, whose sessions know a task only by naming it.
    async fn new() -> Self {
        Self::with(|limits| limits.poll_interval = NEVER).await
    }

    async fn with(change: impl FnOnce(&mut Limits)) -> Self {
        let gates = Gates::default();
        let mut limits = tools::limits();
        change(&mut limits);
        let tasks = tools::all(&gates)
            .limits(limits)
            .tool(flood_then_ask())
            .owner(|parts| {
                let token = parts.headers.get("authorization")?.to_str().ok()?;
                Some(token.strip_prefix("Bearer ")?.to_owned())
            })
            .build()
            .unwrap();
        let served = Served::start(&tasks, Greeter).await;
        let watcher = watch(&tasks);
        Self {
            tasks,
            gates,
            served,
            watcher,
        }
    }

    async fn client(&self, token: &str) -> Client {
        let mut client = Client::with_token(&self.served.url, token);
        client.initialize(G1).await;
        client
    }

    /// What came on a general stream up to now.
    async fn so_far(&self, general: &mut Events) -> Vec<Value> {
        self.fence();
        let mut seen = Vec::new();
        // One for the tool that came and one for the tool that went.
        let mut fences = 0;
        while fences < 2 {
            let message = general.next().await.expect("an open stream");
            if message["method"] == LIST_CHANGED {
                fences += 1;
            } else {
                seen.push(message);
            }
        }
        seen
    }

    fn fence(&self) {
        let tool =
            TaskTool::new("fence").run(async |_: TaskContext, _: Value| Ok::<_, TaskError>(()));
        self.tasks.add_tool(tool).unwrap();
        assert!(self.tasks.remove_tool("fence"));
    }
}

fn watch(tasks: &Tasks) -> Arc<Watcher> {
    let watcher = Arc::new(Watcher {
        phases: Mutex::default(),
        told: watch::Sender::new(()),
    });
    let observer: Arc<dyn Observer> = watcher.clone();
    tasks.runtime().observe(&observer);
    watcher
}

impl Watcher {
    /// Waits until the task has been `n` times in a phase, by distinct revisions.
    async fn times(&self, task: &Value, phase: Phase, n: usize) {
        let id = task["taskId"].as_str().unwrap();
        let mut told = self.told.subscribe();
        let seen = async {
            loop {
                told.borrow_and_update();
                let count = {
                    let phases = self.phases.lock().unwrap();
                    let mut revisions: Vec<_> = phases
                        .iter()
                        .filter(|(have, _, in_phase)| have.as_str() == id && *in_phase == phase)
                        .map(|(_, revision, _)| *revision)
                        .collect();
                    revisions.sort_unstable();
                    revisions.dedup();
                    revisions.len()
                };
                if count >= n {
                    return;
                }
                told.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, seen)
            .await
            .unwrap_or_else(|_| panic!("{id} is not {phase:?}"));
    }

    async fn asked(&self, task: &Value) {
        self.times(task, Phase::InputRequired, 1).await;
    }

    async fn finished(&self, task: &Value) {
        self.times(task, Phase::Finished, 1).await;
    }
}

/// Says more than any stream holds, and then asks.
fn flood_then_ask() -> TaskTool {
    TaskTool::new("flood_then_ask").run(async |cx: TaskContext, args: Value| {
        for step in 0..args["steps"].as_u64().unwrap_or(0) {
            cx.progress(
                step as f64,
                None,
                Some("a message of some length, said again and again"),
            );
        }
        match cx.elicit::<Name>("Still there?").await? {
            Elicitation::Accept(Name { name }) => Ok::<_, TaskError>(name),
            other => Ok(format!("{other:?}", other = other.accepted().is_some())),
        }
    })
}

fn is_question(message: &Value) -> bool {
    message["method"].as_str().is_some_and(|method| {
        ["elicitation/create", "sampling/createMessage", "roots/list"].contains(&method)
    })
}

fn questions(messages: &[Value]) -> usize {
    messages
        .iter()
        .filter(|message| is_question(message))
        .count()
}

fn statuses(messages: &[Value]) -> Vec<&str> {
    messages
        .iter()
        .filter(|message| message["method"] == "notifications/tasks/status")
        .filter_map(|message| message["params"]["status"].as_str())
        .collect()
}

fn of(task: &Value) -> Value {
    json!({"taskId": task["taskId"]})
}

/// The rest of a stream, with its response last.
async fn rest(events: &mut Events) -> Vec<Value> {
    let mut seen = Vec::new();
    while let Some(message) = events.next().await {
        seen.push(message);
    }
    seen
}

async fn question(events: &mut Events) -> Value {
    loop {
        let message = events.next().await.expect("an open stream");
        if is_question(&message) {
            return message;
        }
    }
}

// Client family (a): opens the general stream and waits on tasks/result.
#[tokio::test]
async fn a_client_that_waits_on_tasks_result_is_asked_there_and_only_there() {
    let world = World::new().await;
    let client = world.client("ann").await;
    let mut general = client.listen().await;
    let task = client.create("interview", json!({})).await;
    let mut result = client.open("tasks/result", of(&task)).await;
    assert_eq!(result.content_type, "text/event-stream");
    let mut ids = HashSet::new();
    for (name, message) in [("Ada", "First?"), ("Bob", "Second?")] {
        world.gates.go.add_permits(1);
        let asked = question(&mut result).await;
        assert_eq!(asked["params"]["message"], message);
        assert_eq!(asked["params"]["_meta"][RELATED], of(&task));
        assert!(ids.insert(asked["id"].as_str().unwrap().to_owned()));
        client.accept(&asked, name).await;
    }
    let sampling = question(&mut result).await;
    assert_eq!(sampling["method"], "sampling/createMessage");
    client.reply(&sampling, json!({"role": "assistant"})).await;
    let ended = rest(&mut result).await;
    assert_eq!(questions(&ended), 0, "{ended:?}");
    assert_eq!(
        text(&ended.last().unwrap()["result"]),
        r#"accept Ada; accept Bob; {"role":"assistant"}"#
    );
    let elsewhere = world.so_far(&mut general).await;
    assert_eq!(elsewhere, Vec::<Value>::new(), "on the general stream");
}

// Client family (b): polls, and does not call tasks/result while it is asked.
#[tokio::test]
async fn a_client_that_polls_is_asked_on_its_general_stream_once_it_knows_the_task() {
    let world = World::new().await;
    let client = world.client("ann").await;
    let mut general = client.listen().await;
    let task = client.create("ask", json!({})).await;
    world.watcher.asked(&task).await;
    let early = world.so_far(&mut general).await;
    assert_eq!(
        questions(&early),
        0,
        "before the client knows the task: {early:?}"
    );
    let got = client.request("tasks/get", of(&task)).await;
    assert_eq!(got["result"]["status"], "input_required");
    let asked = question(&mut general).await;
    for _ in 0..3 {
        client.request("tasks/get", of(&task)).await;
    }
    let again = world.so_far(&mut general).await;
    assert_eq!(questions(&again), 0, "{again:?}");
    client.accept(&asked, "Ada").await;
    world.watcher.finished(&task).await;
    let after = world.so_far(&mut general).await;
    assert_eq!(
        (questions(&after), statuses(&after)),
        (0, vec!["working", "completed"])
    );
    let result = client.request("tasks/result", of(&task)).await;
    assert_eq!(text(&result["result"]), "accept Ada");
}

#[tokio::test]
async fn a_client_that_only_listens_is_asked_one_poll_interval_after_creation() {
    let world = World::with(|_| ()).await;
    let client = world.client("ann").await;
    let mut general = client.listen().await;
    let task = client.create("ask", json!({})).await;
    let asked = question(&mut general).await;
    client.accept(&asked, "Ada").await;
    world.watcher.finished(&task).await;
    let after = world.so_far(&mut general).await;
    assert_eq!(questions(&after), 0);
}

// Client family (c): a pipe, where question and handle could be read in one gulp.
#[tokio::test]
async fn a_client_on_a_pipe_never_reads_question_and_handle_together() {
    let gates = Gates::default();
    let mut limits = tools::limits();
    limits.poll_interval = NEVER;
    let tasks = tools::all(&gates).limits(limits).build().unwrap();
    let watcher = watch(&tasks);
    let (mut pipe, _) = Pipe::at(G1, &tasks, Greeter).await;
    let params = json!({"name": "ask", "arguments": {}, "task": {}});
    let call = pipe.begin("tools/call", params).await;
    // Nothing is read before the body has asked: all there is comes in one gulp.
    let asked = async {
        loop {
            let id = watcher
                .phases
                .lock()
                .unwrap()
                .iter()
                .find_map(|(id, _, phase)| (*phase == Phase::InputRequired).then(|| id.clone()));
            match id {
                Some(id) => return id,
                None => tokio::task::yield_now().await,
            }
        }
    };
    let id = tokio::time::timeout(PATIENCE, asked).await.unwrap();
    let gulp = pipe.fence().await;
    assert_eq!(questions(&gulp), 0, "{gulp:?}");
    assert!(gulp.iter().any(|message| message["id"] == call), "{gulp:?}");
    let waiting = pipe.begin("tasks/result", json!({"taskId": id})).await;
    let asked = pipe.until(is_question).await;
    pipe.request("tasks/get", json!({"taskId": id})).await;
    assert_eq!(questions(&pipe.fence().await), 0);
    pipe.accept(&asked, "Ada").await;
    assert_eq!(text(&pipe.answer(waiting).await["result"]), "accept Ada");
    assert_eq!(questions(&pipe.fence().await), 0);
}

// Client family (d): no general stream at all.
#[tokio::test]
async fn without_a_general_stream_a_question_waits_for_tasks_result_and_is_on_no_other_stream() {
    let world = World::new().await;
    let client = world.client("ann").await;
    // Streams of other requests of the same session, open all the while.
    let mut call = client
        .open(
            "tools/call",
            json!({"name": "held_optional", "arguments": {}}),
        )
        .await;
    world.gates.wait_started().await;
    let other = client.create("held", json!({})).await;
    world.gates.wait_started().await;
    let mut others_result = client.open("tasks/result", of(&other)).await;
    let task = client.create("ask", json!({})).await;
    world.watcher.asked(&task).await;
    for _ in 0..2 {
        let got = client
            .post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": of(&task)}))
            .await;
        assert_eq!(got.headers["content-type"], "application/json");
        assert_eq!(got.json()["result"]["status"], "input_required");
    }
    let mut result = client.open("tasks/result", of(&task)).await;
    let asked = result.next().await.unwrap();
    assert!(is_question(&asked), "{asked}");
    client.accept(&asked, "Ada").await;
    let ended = rest(&mut result).await;
    assert_eq!(questions(&ended), 0);
    assert_eq!(text(&ended.last().unwrap()["result"]), "accept Ada");
    world.gates.go.add_permits(2);
    for stream in [&mut call, &mut others_result] {
        let seen = rest(stream).await;
        assert_eq!(text(&seen.last().unwrap()["result"]), "held {}");
        assert!(
            !format!("{seen:?}").contains(task["taskId"].as_str().unwrap()),
            "{seen:?}"
        );
    }
}

// F-13
#[tokio::test]
async fn a_question_whose_stream_was_dropped_is_asked_again_on_the_next_tasks_result() {
    let world = World::new().await;
    let client = world.client("ann").await;
    let task = client.create("interview", json!({})).await;
    world.gates.go.add_permits(1);
    let mut ids = HashSet::new();
    let mut keys = HashSet::new();
    let mut last = Value::Null;
    for _ in 0..3 {
        let mut result = client.open("tasks/result", of(&task)).await;
        last = question(&mut result).await;
        assert!(
            ids.insert(last["id"].as_str().unwrap().to_owned()),
            "a new id each time"
        );
        keys.insert(
            last["params"]["_meta"]["mcp-tasks/input"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    assert_eq!(keys.len(), 1, "one question: {keys:?}");
    client.accept(&last, "Ada").await;
    // The body goes on: its second question is another one, asked once.
    world.gates.go.add_permits(1);
    let mut result = client.open("tasks/result", of(&task)).await;
    let second = question(&mut result).await;
    assert_eq!(second["params"]["message"], "Second?");
    client.accept(&second, "Bob").await;
    let sampling = question(&mut result).await;
    client.reply(&sampling, json!({})).await;
    let ended = rest(&mut result).await;
    assert_eq!(questions(&ended), 0);
    assert_eq!(
        text(&ended.last().unwrap()["result"]),
        "accept Ada; accept Bob; {}"
    );
}

#[tokio::test]
async fn a_newer_general_stream_gets_an_open_question_only_when_the_older_one_is_gone() {
    let world = World::new().await;
    let client = world.client("ann").await;
    let mut older = client.listen().await;
    let task = client.create("ask", json!({})).await;
    client.request("tasks/get", of(&task)).await;
    let first = question(&mut older).await;
    let mut newer = client.listen().await;
    let seen = world.so_far(&mut newer).await;
    assert_eq!(questions(&seen), 0, "it is outstanding on the older stream");
    drop(older);
    let second = question(&mut newer).await;
    assert_ne!(first["id"], second["id"]);
    assert_eq!(first["params"], second["params"]);
    client.accept(&second, "Ada").await;
    world.watcher.finished(&task).await;
    // What is asked from now on goes to the newest.
    let mut newest = client.listen().await;
    let task = client.create("ask", json!({})).await;
    client.request("tasks/get", of(&task)).await;
    question(&mut newest).await;
    assert_eq!(client.delete().await.status / 100, 2);
    assert_eq!(questions(&rest(&mut newer).await), 0);
}

// The question was there first, held back because the client did not know the task.
#[tokio::test]
async fn a_waiting_question_goes_to_the_tasks_result_that_is_opened_not_to_the_general_stream() {
    let world = World::new().await;
    let client = world.client("ann").await;
    let mut general = client.listen().await;
    let task = client.create("ask", json!({})).await;
    world.watcher.asked(&task).await;
    let mut result = client.open("tasks/result", of(&task)).await;
    let asked = question(&mut result).await;
    client.accept(&asked, "Ada").await;
    assert_eq!(text(&result.response().await["result"]), "accept Ada");
    assert_eq!(questions(&world.so_far(&mut general).await), 0);
}

#[tokio::test]
async fn of_two_waiters_one_is_asked_and_both_are_answered() {
    let world = World::new().await;
    let client = world.client("ann").await;
    let mut general = client.listen().await;
    let task = client.create("interview", json!({})).await;
    let mut older = client.open("tasks/result", of(&task)).await;
    let mut newer = client.open("tasks/result", of(&task)).await;
    world.gates.go.add_permits(1);
    let asked = question(&mut newer).await;
    client.accept(&asked, "Ada").await;
    world.gates.go.add_permits(1);
    let on_newer = question(&mut newer).await;
    // The newer goes away in the middle of the question: the other one is asked, again under a new id.
    drop(newer);
    let on_older = question(&mut older).await;
    assert_eq!(on_older["params"], on_newer["params"]);
    assert_ne!(on_older["id"], on_newer["id"]);
    let mut third = client.open("tasks/result", of(&task)).await;
    client.accept(&on_older, "Bob").await;
    let sampling = question(&mut third).await;
    client.reply(&sampling, json!({})).await;
    for waiter in [&mut older, &mut third] {
        let ended = rest(waiter).await;
        assert_eq!(questions(&ended), 0, "{ended:?}");
        assert_eq!(
            text(&ended.last().unwrap()["result"]),
            "accept Ada; accept Bob; {}"
        );
    }
    let seen = world.so_far(&mut general).await;
    assert_eq!(questions(&seen), 0, "{seen:?}");
}

#[tokio::test]
async fn a_question_that_is_out_on_the_general_stream_is_not_sent_again_on_tasks_result() {
    let world = World::new().await;
    let client = world.client("ann").await;
    let mut general = client.listen().await;
    let task = client.create("ask", json!({})).await;
    client.request("tasks/get", of(&task)).await;
    let asked = question(&mut general).await;
    let mut result = client.open("tasks/result", of(&task)).await;
    client.accept(&asked, "Ada").await;
    let ended = rest(&mut result).await;
    assert_eq!(questions(&ended), 0, "{ended:?}");
    assert_eq!(text(&ended.last().unwrap()["result"]), "accept Ada");
}

#[tokio::test]
async fn when_the_general_stream_dies_an_open_tasks_result_is_asked() {
    let world = World::new().await;
    let client = world.client("ann").await;
    let mut general = client.listen().await;
    let task = client.create("interview", json!({})).await;
    client.request("tasks/get", of(&task)).await;
    world.gates.go.add_permits(1);
    let lost = question(&mut general).await;
    let mut result = client.open("tasks/result", of(&task)).await;
    drop(general);
    let again = question(&mut result).await;
    assert_ne!(lost["id"], again["id"]);
    // The answer to the first sending arrives after all, and then another one: the first counts, once.
    client.accept(&lost, "Ada").await;
    client.accept(&again, "Eve").await;
    world.gates.go.add_permits(1);
    let second = question(&mut result).await;
    assert_eq!(second["params"]["message"], "Second?");
    client.accept(&again, "Eve").await;
    client.accept(&second, "Bob").await;
    let sampling = question(&mut result).await;
    client.reply(&sampling, json!({})).await;
    let ended = rest(&mut result).await;
    assert_eq!(
        text(&ended.last().unwrap()["result"]),
        "accept Ada; accept Bob; {}"
    );
}

#[tokio::test]
async fn an_answer_of_another_owner_is_ignored() {
    let world = World::new().await;
    let ann = world.client("ann").await;
    let eve = world.client("eve").await;
    let mut eves = eve.listen().await;
    let task = ann.create("ask", json!({})).await;
    let mut result = ann.open("tasks/result", of(&task)).await;
    let asked = question(&mut result).await;
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        assert_eq!(code(&eve.request(method, of(&task)).await), -32602);
    }
    eve.accept(&asked, "Eve").await;
    let error =
        json!({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "no"}});
    assert_eq!(eve.post(&error).await.status, 202);
    let got = ann.request("tasks/get", of(&task)).await;
    assert_eq!(got["result"]["status"], "input_required");
    ann.accept(&asked, "Ada").await;
    assert_eq!(text(&result.response().await["result"]), "accept Ada");
    assert_eq!(world.so_far(&mut eves).await, Vec::<Value>::new());
}

// B80: nothing about a task goes to another owner, and each notification goes to one stream.
#[tokio::test]
async fn a_status_goes_to_one_stream_of_its_owner() {
    let world = World::new().await;
    let (ann, too, eve) = (
        world.client("ann").await,
        world.client("ann").await,
        world.client("eve").await,
    );
    let mut anns = ann.listen().await;
    let mut toos = too.listen().await;
    let mut eves = eve.listen().await;
    let task = ann.create("interview", json!({})).await;
    ann.request("tasks/get", of(&task)).await;
    // Another session of the same owner looks at it too; the one that made it still gets everything.
    too.request("tasks/get", of(&task)).await;
    assert_eq!(code(&eve.request("tasks/get", of(&task)).await), -32602);
    world.gates.go.add_permits(1);
    let asked = question(&mut anns).await;
    ann.accept(&asked, "Ada").await;
    world.watcher.times(&task, Phase::Working, 2).await;
    assert_eq!(statuses(&world.so_far(&mut anns).await), ["working"]);
    assert_eq!(world.so_far(&mut toos).await, Vec::<Value>::new());
    // Its stream gone, the session that named it last is next.
    drop(anns);
    world.gates.go.add_permits(1);
    world.watcher.times(&task, Phase::InputRequired, 2).await;
    let asked = question(&mut toos).await;
    assert_eq!(asked["params"]["message"], "Second?");
    // And a tasks/result before any general stream.
    let mut result = ann.open("tasks/result", of(&task)).await;
    too.accept(&asked, "Bob").await;
    let sampling = question(&mut result).await;
    ann.reply(&sampling, json!({})).await;
    let ended = rest(&mut result).await;
    assert_eq!(statuses(&ended), ["working", "completed"], "{ended:?}");
    let seen = world.so_far(&mut toos).await;
    assert_eq!((statuses(&seen), questions(&seen)), (vec![], 0));
    assert_eq!(world.so_far(&mut eves).await, Vec::<Value>::new());
}

#[tokio::test]
async fn progress_goes_to_the_creating_session_only() {
    let world = World::new().await;
    let ann = world.client("ann").await;
    let too = world.client("ann").await;
    let mut anns = ann.listen().await;
    let mut toos = too.listen().await;
    let params = json!({
        "name": "chatty", "arguments": {}, "task": {}, "_meta": {"progressToken": "mine"},
    });
    let task = ann.request("tools/call", params).await["result"]["task"].clone();
    world.watcher.finished(&task).await;
    let seen = world.so_far(&mut anns).await;
    let progress: Vec<_> = seen
        .iter()
        .filter(|message| message["method"] == "notifications/progress")
        .map(|message| {
            assert_eq!(message["params"]["progressToken"], "mine");
            message["params"]["progress"].as_f64().unwrap()
        })
        .collect();
    assert_eq!(progress, [1.0, 2.0, 3.0]);
    assert_eq!(world.so_far(&mut toos).await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_question_is_taken_back_where_it_was_asked_when_its_task_is_cancelled() {
    let world = World::new().await;
    let client = world.client("ann").await;
    // On a general stream.
    let mut general = client.listen().await;
    let task = client.create("ask", json!({})).await;
    client.request("tasks/get", of(&task)).await;
    let asked = question(&mut general).await;
    let cancelled = client.request("tasks/cancel", of(&task)).await;
    assert_eq!(cancelled["result"]["status"], "cancelled");
    let seen = world.so_far(&mut general).await;
    let back: Vec<_> = seen
        .iter()
        .filter(|message| message["method"] == "notifications/cancelled")
        .collect();
    assert_eq!(back.len(), 1, "{seen:?}");
    assert_eq!(back[0]["params"]["requestId"], asked["id"]);
    // On a tasks/result: before its response.
    let task = client.create("ask", json!({})).await;
    let mut result = client.open("tasks/result", of(&task)).await;
    let asked = question(&mut result).await;
    client.request("tasks/cancel", of(&task)).await;
    let ended = rest(&mut result).await;
    let at = ended
        .iter()
        .position(|message| message["method"] == "notifications/cancelled");
    assert_eq!(
        ended[at.expect("taken back")]["params"]["requestId"],
        asked["id"]
    );
    assert_eq!(code(ended.last().unwrap()), -32800);
    assert_eq!(questions(&world.so_far(&mut general).await), 0);
}

#[tokio::test]
async fn a_question_is_taken_back_where_it_was_asked_when_its_task_expires() {
    let world = World::new().await;
    let client = world.client("ann").await;
    let mut general = client.listen().await;
    let short = async |client: &Client| {
        let params = json!({"name": "ask", "arguments": {}, "task": {"ttl": 1000}});
        client.request("tools/call", params).await["result"]["task"].clone()
    };
    let on_general = short(&client).await;
    client.request("tasks/get", of(&on_general)).await;
    let asked = question(&mut general).await;
    let on_result = short(&client).await;
    let mut result = client.open("tasks/result", of(&on_result)).await;
    let asked_there = question(&mut result).await;
    let ended = rest(&mut result).await;
    assert_eq!(code(ended.last().unwrap()), -32602);
    let back = ended
        .iter()
        .find(|message| message["method"] == "notifications/cancelled");
    assert_eq!(
        back.expect("taken back")["params"]["requestId"],
        asked_there["id"],
        "{ended:?}"
    );
    let mut seen = Vec::new();
    let back = loop {
        let message = general.next().await.unwrap();
        if message["method"] == "notifications/cancelled" {
            break message;
        }
        seen.push(message);
    };
    assert_eq!(back["params"]["requestId"], asked["id"]);
    seen.extend(world.so_far(&mut general).await);
    assert_eq!(
        questions(&seen),
        0,
        "a question of an expired task: {seen:?}"
    );
}

#[tokio::test]
async fn an_answer_to_a_task_that_has_ended_changes_nothing() {
    let world = World::new().await;
    let client = world.client("ann").await;
    let task = client.create("ask", json!({})).await;
    let mut result = client.open("tasks/result", of(&task)).await;
    let asked = question(&mut result).await;
    client.request("tasks/cancel", of(&task)).await;
    client.accept(&asked, "Ada").await;
    let got = client.request("tasks/get", of(&task)).await;
    assert_eq!(got["result"]["status"], "cancelled");
}

/// A stream that is full of notifications nobody reads: they are dropped, the question is not.
#[tokio::test]
async fn a_question_reaches_a_client_that_reads_slowly() {
    let world = World::with(|limits| limits.poll_interval = Duration::from_millis(100)).await;
    let client = world.client("ann").await;
    let mut general = client.listen().await;
    let flood = async |task: bool| {
        let mut params = json!({
            "name": "flood_then_ask", "arguments": {"steps": 2000}, "_meta": {"progressToken": 1},
        });
        if task {
            params["task"] = json!({});
        }
        client.request("tools/call", params).await["result"]["task"].clone()
    };
    // More than one, so that no room that is kept for questions is enough for all of them.
    let mut tasks = Vec::new();
    for _ in 0..100 {
        tasks.push(flood(true).await);
    }
    for task in &tasks {
        world.watcher.asked(task).await;
    }
    let mut asked = HashSet::new();
    while asked.len() < tasks.len() {
        let question = question(&mut general).await;
        let task = question["params"]["_meta"][RELATED]["taskId"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(asked.insert(task), "asked twice: {question}");
        client.accept(&question, "Ada").await;
    }
    for task in &tasks {
        world.watcher.finished(task).await;
        let result = client.request("tasks/result", of(task)).await;
        assert_eq!(text(&result["result"]), "Ada");
    }
    assert_eq!(questions(&world.so_far(&mut general).await), 0);
}

#[tokio::test]
async fn a_question_reaches_a_client_that_reads_its_pipe_slowly() {
    let gates = Gates::default();
    let tasks = tools::all(&gates).tool(flood_then_ask()).build().unwrap();
    let watcher = watch(&tasks);
    let (mut pipe, _) = Pipe::at(G1, &tasks, Greeter).await;
    let params = json!({
        "name": "flood_then_ask", "arguments": {"steps": 20_000}, "task": {}, "_meta": {"progressToken": 1},
    });
    let answer = pipe.request("tools/call", params).await;
    let task = answer["result"]["task"].clone();
    watcher.asked(&task).await;
    pipe.request("tasks/get", of(&task)).await;
    let asked = pipe.until(is_question).await;
    pipe.accept(&asked, "Ada").await;
    watcher.finished(&task).await;
    let result = pipe.request("tasks/result", of(&task)).await;
    assert_eq!(text(&result["result"]), "Ada");
    assert_eq!(questions(&pipe.fence().await), 0);
}
