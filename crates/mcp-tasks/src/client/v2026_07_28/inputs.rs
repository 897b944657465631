//! The questions of one task while it is followed: each is asked once, and its answer sent until the server has it.
//!
//! Answers go out when all that is asked has one, or else with the next word from the server: those that come quickly
//! are sent together, and a slow person holds up no other's answer for longer than a poll. A key that is listed again
//! after its answer was taken is answered again after a while, with the same: a server may be behind its own word.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use serde_json::{Map, Value};
use tokio::{sync::watch, time::Instant};

use super::{Modern, broke, reading::Question};
use crate::client::{
    TaskClientError, backoff::Backoff, connection::Connection, desk::Keyed, questions::Answer,
};

/// How many questions a task may ask before its server is taken for broken.
const MOST: usize = 1000;
/// The longest key.
const LONGEST_KEY: usize = 1024;
/// How soon an answer that was taken is sent again to a server that goes on asking.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) struct Inputs {
    /// The keys that the server last listed.
    listed: Vec<String>,
    /// Every key that was asked here, hashed.
    asked: HashSet<u64>,
    /// The listed ones whose answers were taken.
    taken: HashMap<String, (Instant, Backoff)>,
    heard: watch::Receiver<u64>,
}

impl Inputs {
    pub(super) fn new(modern: &Modern) -> Self {
        Self {
            listed: Vec::new(),
            asked: HashSet::new(),
            taken: HashMap::new(),
            heard: modern.answered.subscribe(),
        }
    }

    /// Waits for an answer of the handler to some question.
    pub(super) async fn answered(&mut self) {
        if self.heard.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The server lists these questions: what is new is asked, what is missing is withdrawn. Whether anything was new.
    ///
    /// # Errors
    /// `Protocol`, if it asks without end.
    pub(super) fn told(
        &mut self,
        connection: &Arc<Connection>,
        task: &str,
        questions: Vec<(String, Question)>,
    ) -> Result<bool, TaskClientError> {
        let mut asked = false;
        if questions.len() > MOST {
            return Err(broke(format!("a task asks {} questions", questions.len())));
        }
        let mut listed = Vec::with_capacity(questions.len());
        for (key, question) in questions {
            if key.len() > LONGEST_KEY {
                return Err(broke("the key of a question is too long"));
            }
            if let Keyed::Ask { number, cancel } = connection.desk.keyed(task, &key) {
                asked = true;
                self.asked.insert(hash(&key));
                let (task, key) = (task.to_owned(), key.clone());
                let asking = connection
                    .clone()
                    .ask_keyed(task, key, question, number, cancel);
                tokio::spawn(asking);
                if self.asked.len() > MOST {
                    return Err(broke(format!("a task asks more than {MOST} questions")));
                }
            }
            listed.push(key);
        }
        let is_listed = |key: &str| listed.iter().any(|known| known == key);
        connection.desk.withdraw_unlisted(task, is_listed);
        self.taken.retain(|key, _| is_listed(key));
        self.listed = listed;
        Ok(asked)
    }

    /// The answers that are to be sent; `all` waits until nothing is open.
    ///
    /// # Errors
    /// `Unanswerable`, if one of the questions is that.
    pub(super) fn ready(
        &self,
        connection: &Connection,
        task: &str,
        all: bool,
    ) -> Result<Option<Map<String, Value>>, TaskClientError> {
        let now = Instant::now();
        let mut answers = Map::new();
        for key in &self.listed {
            match connection.desk.answer(task, key) {
                Some(Answer::Result(_))
                    if self.taken.get(key).is_some_and(|(due, _)| *due > now) => {}
                Some(Answer::Result(result)) => drop(answers.insert(key.clone(), result)),
                Some(Answer::Error(error)) => {
                    return Err(TaskClientError::Unanswerable {
                        task_id: Some(task.to_owned()),
                        key: key.clone(),
                        error,
                    });
                }
                None if all => return Ok(None),
                None => {}
            }
        }
        Ok(Some(answers).filter(|answers| !answers.is_empty()))
    }

    /// The server has taken the answers to these.
    pub(super) fn taken(&mut self, keys: Vec<String>) {
        for key in keys {
            if self.listed.contains(&key) {
                let fresh = || (Instant::now(), Backoff::new(AGAIN * 2, AGAIN * 60));
                let (due, backoff) = self.taken.entry(key).or_insert_with(fresh);
                *due = Instant::now() + backoff.next();
            }
        }
    }
}

fn hash(key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}
