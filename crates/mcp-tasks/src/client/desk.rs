//! Questions of a task to its requestor: asked of the user's handler once, however often the server sends them.
//!
//! The same question is recognised by its key (`_meta["mcp-tasks/input"]`, our own servers), else by its parameters
//! when it comes again on another stream before our answer was taken. Every request id it came under is answered.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::questions::{Answer, Kind, Question};
use crate::wire::v2025_11_25::INPUT_META;

/// How many questions are remembered, answered ones and open ones.
const REMEMBERED: usize = 1024;
/// How many may be open at a time.
const OPEN: usize = 256;
/// How many request ids of one question are answered.
const WAITING: usize = 64;
/// How many streams are remembered that a question came on.
const STREAMS: usize = 16;
/// How often the very same question of a task is taken before the server is taken for broken.
const SAME: u32 = 1000;

/// What a repeat is recognised by.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Key {
    Named(String),
    Params(Kind, Map<String, Value>),
}

impl Key {
    fn of(question: &Question) -> Self {
        match question.meta.get(INPUT_META).and_then(Value::as_str) {
            Some(key) => Self::Named(key.to_owned()),
            None => Self::Params(question.kind, question.params.clone()),
        }
    }
}

/// A question and what was answered, for a ticket.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Recorded {
    pub(super) key: Key,
    pub(super) answer: Answer,
}

#[derive(Debug)]
enum State {
    /// The handler is at it; these request ids (JSON text) wait for its answer.
    Asking {
        waiting: Vec<Arc<str>>,
        cancel: CancellationToken,
    },
    Answered(Answer),
}

#[derive(Debug)]
struct Entry {
    number: u64,
    task: Option<String>,
    key: Key,
    /// The streams it came on.
    streams: Vec<Option<Arc<str>>>,
    state: State,
}

impl Entry {
    fn is(&self, task: &str, key: &str) -> bool {
        self.task.as_deref() == Some(task) && matches!(&self.key, Key::Named(known) if known == key)
    }
}

/// What to do with a question that came.
#[derive(Debug)]
pub(super) enum Arrival {
    /// Ask the handler, then call [`Desk::answered`] with this number.
    Ask {
        number: u64,
        cancel: CancellationToken,
    },
    /// Answer with this, then call [`Desk::taken`] with the number.
    Known { number: u64, answer: Answer },
    /// Nothing: it is being asked, and this id will be answered too.
    Joined,
    /// Refuse: too many are open.
    Busy,
    /// Refuse: the same question has come too often.
    Endless,
}

/// What to do with a question that is known by its key alone (2026-07-28).
#[derive(Debug)]
pub(super) enum Keyed {
    /// Ask the handler, then call [`Desk::answered`] with this number.
    Ask {
        number: u64,
        cancel: CancellationToken,
    },
    /// Nothing: it is being asked, or was answered.
    Known,
    /// Nothing yet: too many are open.
    Busy,
}

/// The questions that are open or remembered.
#[derive(Debug, Default)]
pub(super) struct Desk(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    next: u64,
    list: VecDeque<Entry>,
    /// How often each question came, by its hash; the latest last.
    tally: VecDeque<(u64, u32)>,
}

impl Entries {
    /// Drops the oldest answer if there is no room for another question.
    fn make_room(&mut self) {
        let answered = |entry: &Entry| matches!(entry.state, State::Answered(_));
        if self.list.len() >= REMEMBERED
            && let Some(oldest) = self.list.iter().position(answered)
        {
            self.list.remove(oldest);
        }
    }

    /// Counts a question; how often it came.
    fn count(&mut self, task: Option<&str>, stream: Option<&Arc<str>>, key: &Key) -> u32 {
        // Without a task, the call on whose stream it came.
        let Some(scope) = task.or(stream.map(|stream| &**stream)) else {
            return 0;
        };
        let mut hasher = DefaultHasher::new();
        scope.hash(&mut hasher);
        match key {
            Key::Named(key) => key.hash(&mut hasher),
            Key::Params(kind, params) => {
                (kind.method(), serde_json::to_vec(params).ok()).hash(&mut hasher);
            }
        }
        let hash = hasher.finish();
        let known = self.tally.iter().position(|(known, _)| *known == hash);
        let before = known.and_then(|at| self.tally.remove(at));
        if self.tally.len() >= REMEMBERED {
            self.tally.pop_front();
        }
        let count = before.map_or(0, |(_, count)| count).saturating_add(1);
        self.tally.push_back((hash, count));
        count
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A question came with this request id (JSON text), on this stream. `task` is the task it belongs to.
    pub(super) fn arrived(
        &self,
        id: &Arc<str>,
        task: Option<&str>,
        question: &Question,
        stream: Option<&Arc<str>>,
    ) -> Arrival {
        let key = Key::of(question);
        let mut entries = self.lock();
        if entries.count(task, stream, &key) > SAME {
            return Arrival::Endless;
        }
        let again = |entry: &&mut Entry| {
            if let State::Asking { waiting, .. } = &entry.state
                && waiting.contains(id)
            {
                return true;
            }
            let same = task.is_some() && entry.task.as_deref() == task && entry.key == key;
            // Without a key only another stream makes a repeat of it: a body may well ask the same thing twice.
            same && (matches!(key, Key::Named(_))
                || !entry.streams.iter().any(|seen| seen.as_ref() == stream))
        };
        if let Some(entry) = entries.list.iter_mut().find(again) {
            if !entry.streams.iter().any(|seen| seen.as_ref() == stream) {
                if entry.streams.len() >= STREAMS {
                    entry.streams.remove(0);
                }
                entry.streams.push(stream.cloned());
            }
            return match &mut entry.state {
                State::Answered(answer) => Arrival::Known {
                    number: entry.number,
                    answer: answer.clone(),
                },
                State::Asking { waiting, .. } => {
                    if !waiting.contains(id) {
                        // The oldest sending is the likeliest to be forgotten.
                        if waiting.len() >= WAITING {
                            waiting.remove(0);
                        }
                        waiting.push(id.clone());
                    }
                    Arrival::Joined
                }
            };
        }
        let asking = |entry: &&Entry| matches!(entry.state, State::Asking { .. });
        if entries.list.iter().filter(asking).count() >= OPEN {
            return Arrival::Busy;
        }
        entries.make_room();
        entries.next += 1;
        let (number, cancel) = (entries.next, CancellationToken::new());
        entries.list.push_back(Entry {
            number,
            task: task.map(str::to_owned),
            key,
            streams: vec![stream.cloned()],
            state: State::Asking {
                waiting: vec![id.clone()],
                cancel: cancel.clone(),
            },
        });
        Arrival::Ask { number, cancel }
    }

    /// A task lists a question under this key.
    pub(super) fn keyed(&self, task: &str, key: &str) -> Keyed {
        let mut entries = self.lock();
        if entries.list.iter().any(|entry| entry.is(task, key)) {
            return Keyed::Known;
        }
        let asking = |entry: &&Entry| matches!(entry.state, State::Asking { .. });
        if entries.list.iter().filter(asking).count() >= OPEN {
            return Keyed::Busy;
        }
        entries.make_room();
        entries.next += 1;
        let (number, cancel) = (entries.next, CancellationToken::new());
        entries.list.push_back(Entry {
            number,
            task: Some(task.to_owned()),
            key: Key::Named(key.to_owned()),
            streams: Vec::new(),
            state: State::Asking {
                waiting: Vec::new(),
                cancel: cancel.clone(),
            },
        });
        Keyed::Ask { number, cancel }
    }

    /// The answer to a question, if there is one.
    pub(super) fn answer(&self, task: &str, key: &str) -> Option<Answer> {
        let entries = self.lock();
        let entry = entries.list.iter().find(|entry| entry.is(task, key))?;
        match &entry.state {
            State::Answered(answer) => Some(answer.clone()),
            State::Asking { .. } => None,
        }
    }

    /// The task no longer lists what it asked: a handler that is still at it is told, and what it says is dropped.
    pub(super) fn withdraw_unlisted(&self, task: &str, listed: impl Fn(&str) -> bool) {
        self.lock()
            .list
            .retain(|entry| match (&entry.key, &entry.state) {
                (Key::Named(key), State::Asking { cancel, .. })
                    if entry.task.as_deref() == Some(task) && !listed(key) =>
                {
                    cancel.cancel();
                    false
                }
                _ => true,
            });
    }

    /// Nobody wants the task's open questions answered any more.
    pub(super) fn stop_asking(&self, task: &str) {
        self.withdraw_unlisted(task, |_| false);
    }

    /// The handler has answered; the request ids that want to hear it. None if the question was withdrawn.
    pub(super) fn answered(&self, number: u64, answer: &Answer) -> Vec<Arc<str>> {
        let mut entries = self.lock();
        let Some(entry) = entries.list.iter_mut().find(|entry| entry.number == number) else {
            return Vec::new();
        };
        match std::mem::replace(&mut entry.state, State::Answered(answer.clone())) {
            State::Asking { waiting, .. } => waiting,
            State::Answered(_) => Vec::new(),
        }
    }

    /// The server has taken the answer: a question without a key (or a task) will be a new one when it comes again.
    pub(super) fn taken(&self, number: u64) {
        self.lock().list.retain(|entry| {
            entry.number != number || (entry.task.is_some() && matches!(entry.key, Key::Named(_)))
        });
    }

    /// The server withdrew the question with this request id (JSON text); whether there was one.
    pub(super) fn withdrawn(&self, id: &str) -> bool {
        let mut entries = self.lock();
        let mut found = false;
        entries.list.retain_mut(|entry| {
            let State::Asking { waiting, cancel } = &mut entry.state else {
                return true;
            };
            let before = waiting.len();
            waiting.retain(|waiting| **waiting != *id);
            found |= waiting.len() != before;
            if waiting.is_empty() {
                cancel.cancel();
            }
            !waiting.is_empty()
        });
        found
    }

    /// What was answered to the task's questions and may be asked again.
    pub(super) fn recorded(&self, task: &str) -> Vec<Recorded> {
        let entries = self.lock();
        let of_task = entries
            .list
            .iter()
            .filter(|entry| entry.task.as_deref() == Some(task));
        let answered = of_task.filter_map(|entry| match &entry.state {
            State::Answered(answer) => Some(Recorded {
                key: entry.key.clone(),
                answer: answer.clone(),
            }),
            State::Asking { .. } => None,
        });
        answered.collect()
    }

    /// Remembers what another client answered; the latest, if that is too much.
    pub(super) fn restore(
        &self,
        task: &str,
        recorded: impl DoubleEndedIterator<Item = Recorded> + ExactSizeIterator,
    ) {
        let mut entries = self.lock();
        let too_many = recorded.len().saturating_sub(REMEMBERED / 2);
        for Recorded { key, answer } in recorded.skip(too_many) {
            let known = |entry: &Entry| entry.task.as_deref() == Some(task) && entry.key == key;
            if entries.list.iter().any(known) {
                continue;
            }
            entries.make_room();
            entries.next += 1;
            let number = entries.next;
            entries.list.push_back(Entry {
                number,
                task: Some(task.to_owned()),
                key,
                streams: Vec::new(),
                state: State::Answered(answer),
            });
        }
    }

    /// The task has ended: nobody wants its answers any more.
    pub(super) fn forget(&self, task: &str) {
        self.lock().list.retain(|entry| {
            let of_task = entry.task.as_deref() == Some(task);
            if let (true, State::Asking { cancel, .. }) = (of_task, &entry.state) {
                cancel.cancel();
            }
            !of_task
        });
    }

    /// The client is closing: every handler that is still at it is told.
    pub(super) fn cancel_all(&self) {
        // What was answered is kept: a ticket may still be wanted.
        self.lock().list.retain(|entry| match &entry.state {
            State::Asking { cancel, .. } => {
                cancel.cancel();
                false
            }
            State::Answered(_) => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, value::RawValue};

    use super::*;

    fn question(params: &str) -> Question {
        Question::read(
            Kind::Elicit,
            Some(&RawValue::from_string(params.to_owned()).unwrap()),
        )
    }

    fn id(text: &str) -> Arc<str> {
        text.into()
    }

    const KEYED: &str = r#"{"message":"m","_meta":{"mcp-tasks/input":"k","io.modelcontextprotocol/related-task":{"taskId":"t"}}}"#;

    #[test]
    fn a_keyed_question_is_asked_once_and_every_id_hears_the_answer() {
        let (desk, question) = (Desk::default(), question(KEYED));
        assert_eq!(question.related.as_deref(), Some("t"));
        let Arrival::Ask { number, cancel } = desk.arrived(&id("1"), Some("t"), &question, None)
        else {
            panic!("first time")
        };
        assert!(matches!(
            desk.arrived(&id("2"), Some("t"), &question, None),
            Arrival::Joined
        ));
        assert!(matches!(
            desk.arrived(&id("2"), Some("t"), &question, None),
            Arrival::Joined
        ));
        assert!(desk.withdrawn("1") && !cancel.is_cancelled());
        let answer = Answer::Result(json!({"action": "decline"}));
        assert_eq!(desk.answered(number, &answer), [id("2")]);
        desk.taken(number);
        let Arrival::Known { answer: known, .. } =
            desk.arrived(&id("3"), Some("t"), &question, None)
        else {
            panic!("recorded")
        };
        assert_eq!(known, answer);
        assert!(matches!(
            desk.arrived(&id("4"), Some("u"), &question, None),
            Arrival::Ask { .. }
        ));
        desk.forget("t");
        assert!(matches!(
            desk.arrived(&id("5"), Some("t"), &question, None),
            Arrival::Ask { .. }
        ));
    }

    #[test]
    fn without_a_key_only_another_stream_makes_it_a_repeat() {
        let (desk, question) = (Desk::default(), question(r#"{"message":"again?"}"#));
        let (first, second) = (id("\"tc:1\""), id("\"tc:2\""));
        let Arrival::Ask { number, .. } =
            desk.arrived(&id("1"), Some("t"), &question, Some(&first))
        else {
            panic!("first time")
        };
        assert!(matches!(
            desk.arrived(&id("2"), Some("t"), &question, Some(&first)),
            Arrival::Ask { .. }
        ));
        assert!(matches!(
            desk.arrived(&id("3"), Some("t"), &question, Some(&second)),
            Arrival::Joined
        ));
        assert_eq!(
            desk.answered(number, &Answer::Result(json!({}))),
            [id("1"), id("3")]
        );
        desk.taken(number);
        desk.forget("t");
        assert!(matches!(
            desk.arrived(&id("4"), Some("t"), &question, Some(&second)),
            Arrival::Ask { .. }
        ));
    }

    #[test]
    fn a_withdrawn_question_is_not_answered_and_not_remembered() {
        let (desk, question) = (Desk::default(), question(KEYED));
        let Arrival::Ask { number, cancel } =
            desk.arrived(&id("\"q\""), Some("t"), &question, None)
        else {
            panic!("first time")
        };
        assert!(!desk.withdrawn("\"other\""));
        assert!(desk.withdrawn("\"q\"") && cancel.is_cancelled());
        assert!(desk.answered(number, &Answer::Result(json!({}))).is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let desk = Desk::default();
        for n in 0..3000 {
            let text = KEYED.replace("\"k\"", &format!("\"k{n}\""));
            let question = question(&text);
            if let Arrival::Ask { number, .. } =
                desk.arrived(&id(&n.to_string()), Some("t"), &question, None)
            {
                desk.answered(number, &Answer::Result(json!({})));
            }
        }
        assert_eq!(desk.lock().list.len(), REMEMBERED);
        for n in 0..3000 {
            desk.arrived(&id(&format!("o{n}")), None, &question("{}"), None);
        }
        assert!(matches!(
            desk.arrived(&id("last"), None, &question("{}"), None),
            Arrival::Busy
        ));
    }
}
