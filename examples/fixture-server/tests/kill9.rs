//! Killed at random moments, over and over: nothing that was acknowledged is lost, and every task ends by its policy.
//!
//! `KILL9_SEED` and `KILL9_ROUNDS` change what is done; the seed is printed when a test fails.
#![allow(clippy::unwrap_used, missing_docs)]

mod process;

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use process::{Client, Cut, PATIENCE, Server, of, text};
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{sleep, timeout},
};

const STOPPED: &str = "the worker running this task stopped";
const LEASE_MS: u64 = 400;
/// Clients that work at one time.
const WORKERS: usize = 6;

fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// splitmix64: the same on every platform.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// What a task was made to do, and so how it may end.
#[derive(Debug, Clone)]
enum Kind {
    /// Runs again: `sleep_required`.
    Echo {
        text: String,
        ms: u64,
    },
    /// Runs again from where it was: `checkpointed`.
    Steps {
        steps: u32,
        ms: u64,
    },
    /// Runs again with the answers it has: `ask` and `ask_two`.
    Ask,
    AskTwo,
    /// Fails when its worker stopped.
    Count {
        ms: u64,
    },
    Forever,
    /// Ends at once, or fails when its worker stopped.
    Fails,
    ToolError,
    /// Worked on outside.
    External {
        job: String,
        ms: u64,
    },
}

impl Kind {
    fn roll(dice: &mut Dice) -> Self {
        let n = dice.below(1_000_000);
        // Some are long enough to be interrupted again and again.
        let ms = [5, 50, 300, 900][usize::try_from(dice.below(4)).unwrap()];
        match dice.below(12) {
            0 | 1 => Self::Echo {
                text: format!("echo {n}"),
                ms,
            },
            2 | 3 => Self::Steps {
                steps: 8,
                ms: 10 + ms / 10,
            },
            4 | 5 => Self::Ask,
            6 => Self::AskTwo,
            7 => Self::Count { ms },
            8 => Self::Forever,
            9 => Self::Fails,
            10 => Self::ToolError,
            _ => Self::External {
                job: format!("job {n}"),
                ms,
            },
        }
    }

    fn call(&self) -> (&'static str, Value) {
        match self {
            Self::Echo { text, ms } => ("sleep_required", json!({"text": text, "ms": ms})),
            Self::Steps { steps, ms } => ("checkpointed", json!({"steps": steps, "ms": ms})),
            Self::Ask => ("ask", json!({})),
            Self::AskTwo => ("ask_two", json!({})),
            Self::Count { ms } => ("count_side_effects", json!({"ms": ms})),
            Self::Forever => ("forever", json!({})),
            Self::Fails => ("fail_task", json!({})),
            Self::ToolError => ("tool_error", json!({})),
            Self::External { job, ms } => ("external", json!({"job": job, "ms": ms})),
        }
    }

    fn asks(&self) -> bool {
        matches!(self, Self::Ask | Self::AskTwo)
    }
}

/// What the server has acknowledged about a question.
#[derive(Debug, Clone, Default)]
struct Asked {
    message: String,
    acknowledged: Option<String>,
    /// Sent, but the connection was cut: may count.
    unsure: Vec<String>,
}

impl Asked {
    fn may_be(&self, name: &str) -> bool {
        match &self.acknowledged {
            Some(given) => given == name,
            None => self.unsure.iter().any(|given| given == name),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Cancel {
    No,
    Unsure,
    Acknowledged,
}

/// A task whose creation was acknowledged, and what is known of it.
#[derive(Debug)]
struct Known {
    id: String,
    kind: Kind,
    round: usize,
    /// By the question's key.
    questions: BTreeMap<String, Asked>,
    cancel: Cancel,
    /// A checkpoint was seen in its first attempt.
    saved: bool,
    /// The last state and the response of `tasks/result`.
    end: Option<(String, Value)>,
}

/// What was certain when a request was sent.
struct Before {
    end: Option<String>,
    cancelled: bool,
    answers: usize,
}

impl Known {
    fn certain(&self) -> Before {
        Before {
            end: self.end.as_ref().map(|(status, _)| status.clone()),
            cancelled: self.cancel == Cancel::Acknowledged,
            answers: self
                .questions
                .values()
                .filter(|asked| asked.acknowledged.is_some())
                .count(),
        }
    }

    /// Takes a state that the server told.
    fn told(&mut self, before: &Before, task: &Value, round: usize) {
        assert_eq!(task["taskId"], *self.id);
        let status = task["status"].as_str().unwrap();
        if let Some(end) = &before.end {
            assert_eq!(status, end, "it had ended: {self:?}");
        }
        if before.cancelled {
            assert_eq!(status, "cancelled", "its cancel was acknowledged: {self:?}");
        }
        match status {
            "working" => {}
            "input_required" => {
                assert!(self.kind.asks(), "{self:?}");
                let all = if matches!(self.kind, Kind::Ask) { 1 } else { 3 };
                assert!(
                    before.answers < all,
                    "all its questions were answered: {self:?}"
                );
            }
            "cancelled" => assert_ne!(self.cancel, Cancel::No, "{self:?}"),
            "completed" => {
                let never = matches!(self.kind, Kind::Forever | Kind::Fails | Kind::ToolError);
                assert!(!never, "{self:?}");
            }
            "failed" => {
                let message = task["statusMessage"].as_str().unwrap_or_default();
                let right = match self.kind {
                    Kind::Fails | Kind::ToolError => message == "it broke" || message == STOPPED,
                    Kind::Count { .. } | Kind::Forever => message == STOPPED,
                    _ => false,
                };
                assert!(right, "{message:?}: {self:?}");
            }
            other => panic!("{other}: {self:?}"),
        }
        let moved = task["createdAt"] != task["lastUpdatedAt"];
        self.saved |= moved && round == self.round && status == "working";
    }

    /// Takes the response of `tasks/result`, after a terminal state was told.
    fn ended(&mut self, status: &str, response: Value) {
        if let Some((_, first)) = &self.end {
            let same =
                (&first["result"], &first["error"]) == (&response["result"], &response["error"]);
            assert!(same, "another result than before: {response}: {self:?}");
            return;
        }
        let error = &response["error"];
        match (status, &self.kind) {
            ("cancelled", _) => assert_eq!(error["code"], -32800, "{response}"),
            ("failed", _) if error["message"] == STOPPED => {
                assert_eq!(error["code"], -32603, "{response}")
            }
            ("failed", Kind::Fails) => {
                assert_eq!(
                    (&error["code"], &error["data"]),
                    (&json!(1042), &json!({"step": 3}))
                );
            }
            ("failed", Kind::ToolError) => {
                assert_eq!(response["result"]["isError"], true, "{response}")
            }
            ("completed", Kind::Echo { text: said, .. }) => assert_eq!(text(&response), said),
            ("completed", Kind::Steps { .. }) => {
                self.steps(text(&response));
            }
            ("completed", Kind::Count { ms }) => {
                assert_eq!(text(&response), format!("counted for {ms} ms"));
            }
            ("completed", Kind::External { job, .. }) => {
                assert_eq!(text(&response), format!("{job} is done"));
            }
            ("completed", Kind::Ask) => {
                let name = text(&response).strip_prefix("action=accept name=");
                self.answered(
                    "What is your name?",
                    name.unwrap_or_else(|| panic!("{response}")),
                );
            }
            ("completed", Kind::AskTwo) => {
                let parts: Vec<_> = text(&response).split(' ').collect();
                for (part, which) in parts.iter().zip(["first", "second", "third"]) {
                    let name = part.strip_prefix(&format!("{which}=")).unwrap();
                    self.answered(&format!("What is the {which} name?"), name);
                }
            }
            _ => panic!("{status}: {response}: {self:?}"),
        }
        self.end = Some((status.to_owned(), response));
    }

    /// The name the body was given must be the one that was acknowledged.
    fn answered(&self, message: &str, name: &str) {
        let asked = self
            .questions
            .values()
            .find(|asked| asked.message == message);
        assert!(
            asked.is_some_and(|asked| asked.may_be(name)),
            "{name:?} for {message:?}: {self:?}"
        );
    }

    /// How often it ran, and how many steps in its last attempt.
    fn steps(&self, said: &str) -> (u32, u32) {
        let Kind::Steps { steps, .. } = self.kind else {
            panic!("{self:?}")
        };
        let numbers: Vec<u32> = said
            .split(' ')
            .map(|part| part.split_once('=').unwrap().1.parse().unwrap())
            .collect();
        let [all, attempts, ran] = numbers[..] else {
            panic!("{said}")
        };
        assert_eq!(all, steps);
        if attempts == 1 {
            assert_eq!(ran, steps, "{said}");
        } else if self.saved {
            assert!(
                ran < steps,
                "it had saved a step, but ran all of them again: {said}: {self:?}"
            );
        }
        (attempts, ran)
    }
}

/// What was acknowledged, over all rounds.
struct Model {
    dice: Mutex<Dice>,
    tasks: Mutex<Vec<Arc<Task>>>,
    /// Creations of which no answer came.
    unsure: AtomicUsize,
    /// Acknowledged operations, all in all.
    done: AtomicUsize,
    questions: AtomicUsize,
}

struct Task {
    id: String,
    known: Mutex<Known>,
    /// One client at a time asks and answers.
    busy: tokio::sync::Mutex<()>,
}

impl Task {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap()
    }
}

/// One life of the server.
struct Round {
    number: usize,
    model: Arc<Model>,
    /// The session of the first round, and one of this round.
    old: Client,
    new: Client,
    acknowledged: AtomicUsize,
    kill_after: usize,
    kill: Notify,
}

impl Model {
    fn roll(&self, n: u64) -> u64 {
        self.dice.lock().unwrap().below(n)
    }

    fn all(&self) -> Vec<Arc<Task>> {
        self.tasks.lock().unwrap().clone()
    }

    fn any(&self) -> Option<Arc<Task>> {
        let tasks = self.tasks.lock().unwrap();
        // The newer half rather: most of the older have ended.
        let count = tasks.len() as u64;
        let from = if self.roll(4) == 0 { 0 } else { count / 2 };
        let at = from + self.roll((count - from).max(1));
        tasks.get(usize::try_from(at).unwrap()).cloned()
    }
}

impl Round {
    fn client(&self) -> &Client {
        if self.model.roll(2) == 0 {
            &self.old
        } else {
            &self.new
        }
    }

    /// An operation was acknowledged; the server dies after so many.
    fn acknowledge(&self) {
        self.model.done.fetch_add(1, Ordering::Relaxed);
        if self.acknowledged.fetch_add(1, Ordering::Relaxed) + 1 == self.kill_after {
            self.kill.notify_one();
        }
    }

    async fn create(&self) -> Result<(), Cut> {
        let kind = Kind::roll(&mut self.model.dice.lock().unwrap());
        let (tool, arguments) = kind.call();
        let created = self.client().create(tool, arguments).await;
        let Ok(task) = created else {
            self.model.unsure.fetch_add(1, Ordering::Relaxed);
            return Err(Cut);
        };
        let id = task["taskId"].as_str().unwrap().to_owned();
        let known = Mutex::new(Known {
            id: id.clone(),
            kind,
            round: self.number,
            questions: BTreeMap::new(),
            cancel: Cancel::No,
            saved: false,
            end: None,
        });
        let task = Arc::new(Task {
            id,
            known,
            busy: tokio::sync::Mutex::default(),
        });
        self.model.tasks.lock().unwrap().push(task);
        self.acknowledge();
        Ok(())
    }

    /// Reads the task, and its result if it has ended.
    async fn read(&self, task: &Task) -> Result<bool, Cut> {
        let client = self.client();
        let before = task.known().certain();
        let mut answer = client.call("tasks/get", of(&task.id)).await?;
        let state = answer["result"].take();
        assert!(
            state.is_object(),
            "an acknowledged task is gone: {answer}: {:?}",
            task.known()
        );
        task.known().told(&before, &state, self.number);
        self.acknowledge();
        let status = state["status"].as_str().unwrap();
        if !["completed", "failed", "cancelled"].contains(&status) {
            return Ok(false);
        }
        let response = client.call("tasks/result", of(&task.id)).await?;
        task.known().ended(status, response);
        self.acknowledge();
        Ok(true)
    }

    async fn cancel(&self, task: &Task) -> Result<(), Cut> {
        let before = {
            let mut known = task.known();
            if known.cancel == Cancel::No {
                known.cancel = Cancel::Unsure;
            }
            known.certain()
        };
        let answer = self.client().call("tasks/cancel", of(&task.id)).await?;
        let mut known = task.known();
        match answer["result"]["status"].as_str() {
            Some("cancelled") => {
                assert_eq!(before.end, None, "it had ended: {known:?}");
                known.cancel = Cancel::Acknowledged;
            }
            _ => {
                let message = answer["error"]["message"].as_str().unwrap_or_default();
                assert!(
                    message.contains("already in terminal status"),
                    "{answer}: {known:?}"
                );
            }
        }
        drop(known);
        self.acknowledge();
        Ok(())
    }

    /// Waits for the result and answers what is asked meanwhile, or leaves in the middle of it.
    async fn answer(&self, task: &Task, patient: bool) -> Result<(), Cut> {
        let Ok(_busy) = task.busy.try_lock() else {
            return Ok(());
        };
        let client = self.client();
        let mut messages = client.open("tasks/result", of(&task.id)).await?;
        loop {
            let message = messages.next().await?.ok_or(Cut)?;
            if message["method"] == "notifications/cancelled"
                || message["method"] == "notifications/tasks/status"
            {
                continue;
            }
            if message["method"].is_null() {
                return Ok(());
            }
            assert_eq!(message["method"], "elicitation/create", "{message}");
            self.model.questions.fetch_add(1, Ordering::Relaxed);
            let key = message["params"]["_meta"]["mcp-tasks/input"]
                .as_str()
                .unwrap()
                .to_owned();
            let said = message["params"]["message"].as_str().unwrap().to_owned();
            {
                let mut known = task.known();
                let asked = known.questions.entry(key.clone()).or_default();
                assert_eq!(
                    asked.acknowledged, None,
                    "asked again for {said:?}: {}",
                    task.id
                );
                assert!(
                    asked.message.is_empty() || asked.message == said,
                    "{asked:?}: {said}"
                );
                // Asked again: what was sent before did not get there.
                *asked = Asked {
                    message: said,
                    ..Asked::default()
                };
            }
            if !patient && self.model.roll(4) == 0 {
                return Ok(());
            }
            let name = format!("n{}", self.model.roll(1_000_000));
            task.known()
                .questions
                .get_mut(&key)
                .unwrap()
                .unsure
                .push(name.clone());
            client.accept(&message, &name).await?;
            task.known().questions.get_mut(&key).unwrap().acknowledged = Some(name);
            self.acknowledge();
            if !patient && self.model.roll(4) == 0 {
                return Ok(());
            }
        }
    }

    /// Every page of the list: what was acknowledged before is on it, and no more than may be.
    async fn list(&self) -> Result<(), Cut> {
        let before = self.model.all();
        let mut listed = HashSet::new();
        let mut params = json!({});
        let client = self.client();
        loop {
            let page = client.call("tasks/list", params).await?["result"].take();
            for task in page["tasks"].as_array().unwrap() {
                let id = task["taskId"].as_str().unwrap().to_owned();
                assert!(listed.insert(id), "listed twice: {task}");
            }
            match page["nextCursor"].as_str() {
                Some(cursor) => params = json!({"cursor": cursor}),
                None => break,
            }
        }
        for task in before {
            assert!(listed.contains(&task.id), "not listed: {:?}", task.known());
        }
        self.acknowledge();
        Ok(())
    }

    /// A client that does this and that until the server is gone.
    async fn work(self: Arc<Self>) {
        loop {
            let done = match (self.model.roll(20), self.model.any()) {
                (0..8, _) | (_, None) => self.create().await,
                (8..12, Some(task)) => self.read(&task).await.map(drop),
                (12..14, Some(task)) if !task.known().kind.asks() || self.model.roll(4) == 0 => {
                    self.cancel(&task).await
                }
                (14, _) => self.list().await,
                (_, Some(task)) => {
                    let asks = task.known().kind.asks();
                    if asks {
                        self.answer(&task, false).await
                    } else {
                        self.read(&task).await.map(drop)
                    }
                }
            };
            if done.is_err() {
                return;
            }
        }
    }

    /// Everything that was acknowledged is still there.
    async fn check(self: Arc<Self>) -> Result<(), Cut> {
        self.list().await?;
        let mut checks = JoinSet::new();
        for part in self.model.all().chunks(32) {
            let (round, part) = (self.clone(), part.to_vec());
            checks.spawn(async move {
                for task in part {
                    round.read(&task).await?;
                }
                Ok(())
            });
        }
        let mut all = Ok(());
        while let Some(done) = checks.join_next().await {
            all = all.and(done.unwrap());
        }
        all
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_to_kill_9() {
    let seed = environment("KILL9_SEED", 20_251_125);
    let rounds = usize::try_from(environment("KILL9_ROUNDS", 22)).unwrap();
    println!("KILL9_SEED={seed} KILL9_ROUNDS={rounds}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tasks.db");
    let model = Arc::new(Model {
        dice: Mutex::new(Dice(seed)),
        tasks: Mutex::default(),
        unsure: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        questions: AtomicUsize::new(0),
    });
    let mut first: Option<Client> = None;
    for number in 0..rounds {
        let server = Server::start(&file, LEASE_MS).await;
        let new = Client::initialize(&server, "ann").await.unwrap();
        // The session of the first round is good for all of them.
        let old = first.get_or_insert_with(|| new.clone()).at(&server);
        // Now and then the server dies again while it is still looking at what the one before has left.
        let early = model.roll(5) == 0;
        let least = if early { 1 } else { model.all().len() + 5 };
        let round = Arc::new(Round {
            number,
            model: model.clone(),
            old,
            new,
            acknowledged: AtomicUsize::new(0),
            kill_after: least + usize::try_from(model.roll(60)).unwrap(),
            kill: Notify::new(),
        });
        let mut clients = JoinSet::new();
        let checking = round.clone();
        clients.spawn(async move {
            let _ = checking.check().await;
        });
        for _ in 0..WORKERS {
            clients.spawn(round.clone().work());
        }
        let killed = async {
            tokio::select! {
                () = round.kill.notified() => {}
                // A client that panics ends the test now, not at the end of the round.
                Some(Err(failed)) = clients.join_next() => std::panic::resume_unwind(failed.into_panic()),
                () = sleep(PATIENCE) => panic!("round {number} stalls"),
            }
        };
        killed.await;
        if model.roll(2) == 0 {
            sleep(Duration::from_micros(model.roll(5000))).await;
        }
        let log = server.log();
        server.kill().await;
        while let Some(ended) = timeout(PATIENCE, clients.join_next())
            .await
            .expect("clients see the end")
        {
            ended.unwrap_or_else(|failed| {
                eprintln!("round {number}\n{log}");
                std::panic::resume_unwind(failed.into_panic())
            });
        }
    }

    // And then it may live.
    let server = Server::start(&file, LEASE_MS).await;
    let new = Client::initialize(&server, "ann").await.unwrap();
    let old = first.unwrap().at(&server);
    // Its general stream is there too; but nobody reads it, so no question is to go there.
    drop(old.listen().await.unwrap());
    let round = Arc::new(Round {
        number: rounds,
        model: model.clone(),
        old,
        new,
        acknowledged: AtomicUsize::new(0),
        kill_after: usize::MAX,
        kill: Notify::new(),
    });
    round.clone().check().await.unwrap();
    let tasks = model.all();
    let mut waits = JoinSet::new();
    for task in tasks.clone() {
        let round = round.clone();
        waits.spawn(async move {
            // The answer of a blocking tasks/result, with all questions answered.
            timeout(PATIENCE / 2, round.answer(&task, true))
                .await
                .unwrap_or_else(|_| panic!("it does not end: {:?}", task.known()))
                .unwrap();
            assert!(
                round.read(&task).await.unwrap(),
                "it has not ended: {:?}",
                task.known()
            );
        });
    }
    while let Some(ended) = waits.join_next().await {
        ended.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
    }
    // Another owner sees none of it.
    let eve = Client::initialize(&server, "eve").await.unwrap();
    assert_eq!(
        eve.call("tasks/list", json!({})).await.unwrap()["result"]["tasks"],
        json!([])
    );
    let some = eve.call("tasks/get", of(&tasks[0].id)).await.unwrap();
    assert_eq!(some["error"]["code"], -32602);
    summary(&model, rounds);
    assert_eq!(
        server.log(),
        format!("listening on {}\n", server.url),
        "warnings"
    );
}

/// What happened, and that enough of each kind did.
fn summary(model: &Model, rounds: usize) {
    let tasks = model.all();
    let count =
        |what: &dyn Fn(&Known) -> bool| tasks.iter().filter(|task| what(&task.known())).count();
    let ended =
        |known: &Known, status: &str| known.end.as_ref().is_some_and(|(end, _)| end == status);
    let stopped = |known: &Known| {
        known
            .end
            .as_ref()
            .is_some_and(|(_, response)| response["error"]["message"] == STOPPED)
    };
    let resumed = count(&|known: &Known| match (&known.kind, &known.end) {
        (Kind::Steps { steps, .. }, Some((status, response))) if status == "completed" => {
            known.steps(text(response)).1 < *steps
        }
        _ => false,
    });
    let counts = [
        ("completed", count(&|known| ended(known, "completed"))),
        ("cancelled", count(&|known| ended(known, "cancelled"))),
        ("failed because the worker stopped", count(&stopped)),
        ("resumed from a checkpoint", resumed),
        ("questions", model.questions.load(Ordering::Relaxed)),
    ];
    println!(
        "{rounds} rounds, {} operations acknowledged, {} tasks, {} creations unsure, {counts:?}",
        model.done.load(Ordering::Relaxed),
        tasks.len(),
        model.unsure.load(Ordering::Relaxed),
    );
    for (what, count) in counts {
        assert!(count > 0, "none {what}");
    }
}
