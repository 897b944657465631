//! Following one task of the extension: polls, announcements, questions and their answers, until it has ended.
//!
//! First poll after one interval; the interval is this task's own, from the server's last word, never below the floor.
//! Announcements say the same as polls, only sooner; polls go on beside them. Whatever fails on the way is tried again
//! with growing waits, and an answer that a person gave is sent again, never asked again.

use std::{sync::Arc, time::Duration};

use rmcp::model::{ErrorCode, ErrorData};
use serde_json::json;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use super::{
    Modern,
    inputs::Inputs,
    listen::{Heard, Listen, News, worth_another},
    reading::{End, Told},
};
use crate::client::{
    CallOptions, TaskClientError, TaskEvent, TaskInfo, TaskProgress, TaskStatus,
    backoff::Backoff,
    connection::Connection,
    drive::{at, cancelled, other_task},
    follow::{ERROR_ANSWERS, LEAST_FLOOR, LONGEST_INTERVAL},
    info::TaskOutcome,
    link::{Lost, LostKind},
    outage::Outage,
    waiting::{Abandon, InFlight, ProgressFeed, Reply},
};

/// How many polls a task may take to end once its cancel was taken, before it is given up.
const CANCEL_POLLS: u32 = 5;
/// How long an announcement stream may last before its end counts as a failure no more.
const SETTLED: Duration = Duration::from_secs(10);

/// A request under way, and when it is too late for its answer.
type Sent = (InFlight, Instant);

pub(in crate::client) struct Follow<'a, R> {
    connection: &'a Arc<Connection>,
    modern: &'a Modern,
    events: &'a mpsc::Sender<TaskEvent<R>>,
    id: String,
    /// The last word of the server; none yet for a task that was named by its id only.
    info: Option<TaskInfo>,
    /// Whether the task is known to have existed.
    existed: bool,
    /// Whether `tasks/get` has ever found it: a first miss may be a replica that is behind.
    found: bool,
    missed: bool,
    floor: Duration,
    progress: Option<ProgressFeed>,
    poll: Option<Sent>,
    poll_due: Option<Instant>,
    inputs: Inputs,
    /// `tasks/update`, and the keys of its answers.
    update: Option<(Sent, Vec<String>)>,
    update_due: Option<Instant>,
    update_backoff: Backoff,
    /// The answers that the server refused, and why.
    refused: Option<(Vec<String>, ErrorData)>,
    listen: Option<Listen>,
    listen_due: Option<Instant>,
    /// When an announcement stream has to be acknowledged.
    listen_stale: Option<Instant>,
    listen_opened: Instant,
    listen_backoff: Backoff,
    cancels: watch::Receiver<Vec<String>>,
    /// How many polls are left once the cancel was taken.
    cancel_polls: Option<u32>,
    backoff: Backoff,
    outage: Outage,
    error_answers: u32,
}

enum Woke {
    Polled(Reply),
    PollLate,
    PollDue,
    Answered,
    Updated(Reply),
    UpdateLate,
    UpdateDue,
    Heard(Heard),
    ListenDue,
    ListenStale,
    Cancelled,
    Progress(TaskProgress),
}

type Outcome<R> = Result<Box<R>, TaskClientError>;
type Step<R> = Result<Option<Box<R>>, TaskClientError>;

impl<'a, R: TaskOutcome> Follow<'a, R> {
    /// `info` is the created task, or the id of a task that exists.
    pub(in crate::client) fn new(
        connection: &'a Arc<Connection>,
        modern: &'a Modern,
        info: Result<TaskInfo, String>,
        existed: bool,
        options: &CallOptions,
        events: &'a mpsc::Sender<TaskEvent<R>>,
        progress: Option<ProgressFeed>,
    ) -> Self {
        let (id, info) = match info {
            Ok(info) => (info.task_id.clone(), Some(info)),
            Err(id) => (id, None),
        };
        let settings = &connection.settings;
        Self {
            connection,
            modern,
            events,
            outage: Outage::new(connection, &id, options),
            id,
            info,
            existed,
            found: false,
            missed: false,
            floor: options
                .poll_floor
                .unwrap_or(settings.poll_floor)
                .max(LEAST_FLOOR),
            progress,
            poll: None,
            poll_due: None,
            inputs: Inputs::new(modern),
            update: None,
            update_due: None,
            update_backoff: Backoff::usual(),
            refused: None,
            listen: None,
            listen_due: None,
            listen_stale: None,
            listen_opened: Instant::now(),
            listen_backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(60)),
            cancels: modern.cancelled.subscribe(),
            cancel_polls: None,
            backoff: Backoff::usual(),
            error_answers: 0,
        }
    }

    /// Follows to the end.
    pub(in crate::client) async fn run(mut self) -> Outcome<R> {
        let outcome = self.until_ended().await;
        match &outcome {
            Ok(_) | Err(TaskClientError::Cancelled { .. } | TaskClientError::Expired { .. }) => {
                self.connection.desk.forget(&self.id);
            }
            Err(TaskClientError::Unanswerable { .. }) => {
                // Nobody else could answer for this client: the task would wait for ever.
                if let Err(error) = self.connection.cancel_modern(&self.id).await {
                    tracing::warn!(task = self.id, %error, "the task could not be cancelled");
                }
                self.connection.desk.forget(&self.id);
            }
            Err(_) => {}
        }
        outcome
    }

    async fn until_ended(&mut self) -> Outcome<R> {
        let now = Instant::now();
        self.listen_due = Some(now);
        match &self.info {
            Some(info) if info.status == TaskStatus::Working => self.plan(true),
            // There is more to know than its handle says.
            _ => self.poll_due = Some(now),
        }
        loop {
            let ended = match self.wake().await {
                Woke::PollDue => {
                    self.poll_due = None;
                    let params = json!({ "taskId": self.id });
                    self.poll = Some(self.ask("tasks/get", &params).await);
                    None
                }
                Woke::PollLate => {
                    self.poll = None;
                    let why = "tasks/get was not answered in time";
                    self.failed(&Lost::new(LostKind::Transient, true, why))?;
                    None
                }
                Woke::Polled(reply) => {
                    self.poll = None;
                    self.polled(reply).await?
                }
                Woke::Answered | Woke::UpdateDue => {
                    self.send_answers(true).await?;
                    None
                }
                Woke::Updated(reply) => {
                    self.updated(reply).await?;
                    None
                }
                Woke::UpdateLate => {
                    self.update = None;
                    let why = "tasks/update was not answered in time";
                    self.update_failed(&Lost::new(LostKind::Transient, true, why))?;
                    None
                }
                Woke::Heard(Heard::News(news)) => self.heard(news).await?,
                Woke::Heard(Heard::Over(reply)) => {
                    self.listen_over(&reply);
                    None
                }
                Woke::ListenDue => {
                    self.listen_due = None;
                    let now = Instant::now();
                    self.listen_opened = now;
                    self.listen = self.modern.listen(self.connection, &self.id).await;
                    let stale = now + self.connection.settings.request_timeout;
                    self.listen_stale = self.listen.is_some().then_some(stale);
                    None
                }
                Woke::ListenStale => {
                    self.listen_stale = None;
                    self.listen = None;
                    None
                }
                Woke::Cancelled => {
                    self.cancel_taken();
                    None
                }
                Woke::Progress(step) => {
                    let _ = self.events.send(TaskEvent::Progress(step)).await;
                    None
                }
            };
            if let Some(result) = ended {
                return Ok(result);
            }
        }
    }

    async fn ask(&self, method: &'static str, params: &serde_json::Value) -> Sent {
        let late = Instant::now() + self.connection.settings.request_timeout;
        let flight = self
            .connection
            .request(method, params, None, Abandon::Silently)
            .await;
        (flight, late)
    }

    async fn wake(&mut self) -> Woke {
        let Self {
            poll,
            progress,
            inputs,
            update,
            listen,
            cancels,
            ..
        } = self;
        let poll_late = poll.as_ref().map(|(_, late)| *late);
        let update_late = update.as_ref().map(|((_, late), _)| *late);
        tokio::select! {
            biased;
            // Progress first: what came before the result is told before it.
            step = async { match progress { Some(feed) => feed.next().await, None => std::future::pending().await } } => {
                Woke::Progress(step)
            }
            reply = reply_of(poll.as_mut()) => Woke::Polled(reply),
            reply = reply_of(update.as_mut().map(|(sent, _)| sent)) => Woke::Updated(reply),
            heard = async { match listen { Some(listen) => listen.next().await, None => std::future::pending().await } } => {
                Woke::Heard(heard)
            }
            () = inputs.answered() => Woke::Answered,
            Ok(()) = cancels.changed() => Woke::Cancelled,
            () = at(self.update_due) => Woke::UpdateDue,
            () = at(self.listen_due) => Woke::ListenDue,
            () = at(self.poll_due) => Woke::PollDue,
            () = at(poll_late) => Woke::PollLate,
            () = at(update_late) => Woke::UpdateLate,
            () = at(self.listen_stale) => Woke::ListenStale,
        }
    }

    fn interval(&self) -> Duration {
        let interval = self.info.as_ref().and_then(|info| info.poll_interval);
        interval
            .unwrap_or(self.connection.settings.poll_interval)
            .max(self.floor)
            .min(LONGEST_INTERVAL)
    }

    /// When to poll next. An announcement may bring that forward, never put it off.
    fn plan(&mut self, polled: bool) {
        if self.poll.is_some() {
            return;
        }
        let due = Instant::now() + self.interval();
        self.poll_due = Some(match self.poll_due {
            Some(known) if !polled => known.min(due),
            _ => due,
        });
    }

    async fn polled(&mut self, reply: Reply) -> Step<R> {
        let told = match reply {
            Reply::Result(raw) => {
                super::complete("tasks/get", raw.as_raw())?;
                Told::read(raw.as_raw())?
            }
            Reply::Error(error) if error.code == ErrorCode::INVALID_PARAMS => {
                if self.cancel_polls.is_some() {
                    // It took the cancel and forgot the task.
                    return Err(self.was_cancelled());
                }
                if !self.existed {
                    return Err(TaskClientError::Rpc(error));
                }
                if self.found || self.missed {
                    return Err(TaskClientError::Expired {
                        task_id: self.id.clone(),
                    });
                }
                self.missed = true;
                self.plan(true);
                return Ok(None);
            }
            Reply::Error(error) => {
                self.error_answers += 1;
                let hopeless = matches!(
                    error.code,
                    ErrorCode::METHOD_NOT_FOUND | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
                );
                if hopeless || self.error_answers >= ERROR_ANSWERS {
                    return Err(TaskClientError::Rpc(error));
                }
                self.poll_due = Some(Instant::now() + self.backoff.next().max(self.floor));
                return Ok(None);
            }
            Reply::Lost(lost) => {
                self.failed(&lost)?;
                return Ok(None);
            }
        };
        self.found = true;
        self.outage.over();
        self.error_answers = 0;
        self.backoff.reset();
        self.told(told, true).await
    }

    async fn heard(&mut self, news: News) -> Step<R> {
        match news.granted {
            Some(false) => {
                // It takes subscriptions and leaves tasks out of them, if there is a task.
                if self.existed {
                    self.modern.left_out();
                }
                (self.listen, self.listen_stale) = (None, None);
                return Ok(None);
            }
            Some(true) => self.listen_stale = None,
            None => {}
        }
        let Some(state) = news.state else {
            return Ok(None);
        };
        let Ok(told) = Told::read(state.as_raw()) else {
            return Ok(None);
        };
        if self.is_stale(&told.info) {
            return Ok(None);
        }
        self.told(told, false).await
    }

    /// Whether this was said before what is known already.
    fn is_stale(&self, info: &TaskInfo) -> bool {
        let known = self.info.as_ref().and_then(|known| known.last_updated_at);
        matches!((info.last_updated_at, known), (Some(new), Some(old)) if new < old)
    }

    async fn told(&mut self, told: Told, polled: bool) -> Step<R> {
        let Told {
            info,
            questions,
            end,
        } = told;
        if info.task_id != self.id {
            return Err(other_task(&self.id, &info.task_id));
        }
        self.existed = true;
        // A poll may have been under way when something newer was announced.
        let stale = self.is_stale(&info) && end.is_none();
        if !stale {
            if self.info.as_ref() != Some(&info) {
                let _ = self.events.send(TaskEvent::Status(info.clone())).await;
            }
            self.info = Some(info.clone());
        }
        match end {
            Some(End::Result(raw)) => {
                let mut result = R::read(raw.as_raw())?;
                if info.status == TaskStatus::Failed {
                    result.of_failed(info.status_message.as_deref());
                }
                return match result.related() {
                    Some(other) if other != self.id => Err(other_task(&self.id, other)),
                    _ => Ok(Some(Box::new(result))),
                };
            }
            Some(End::Error(error)) => return Err(TaskClientError::Rpc(error)),
            Some(End::Cancelled) => return Err(cancelled(&info)),
            None => {}
        }
        match (self.cancel_polls, polled) {
            (Some(0), true) => return Err(self.was_cancelled()),
            (Some(left), true) => self.cancel_polls = Some(left - 1),
            _ => {}
        }
        // One that was cancelled is asked nothing more; and an old word says nothing of what is open now.
        if self.cancel_polls.is_none() && !stale {
            self.listed(questions, polled).await?;
        }
        self.plan(polled);
        Ok(None)
    }

    async fn listed(
        &mut self,
        questions: Vec<(String, super::reading::Question)>,
        polled: bool,
    ) -> Result<(), TaskClientError> {
        if let Some((keys, error)) = self.refused.take() {
            let asked = |key: &String| questions.iter().any(|(listed, _)| listed == key);
            match keys.iter().any(asked) {
                // It was refused, and is still wanted: nobody is asked twice.
                true if polled => return Err(TaskClientError::Rpc(error)),
                true => self.refused = Some((keys, error)),
                false => {}
            }
        }
        let asked = self.inputs.told(self.connection, &self.id, questions)?;
        self.send_answers(asked).await
    }

    /// Sends what was answered and is not under way; `all` only once everything is answered.
    async fn send_answers(&mut self, all: bool) -> Result<(), TaskClientError> {
        let waits = self.update_due.is_some_and(|due| due > Instant::now());
        if self.update.is_some() || waits || self.cancel_polls.is_some() || self.refused.is_some() {
            return Ok(());
        }
        let retrying = self.update_due.take().is_some();
        let ready = self
            .inputs
            .ready(self.connection, &self.id, all && !retrying)?;
        if let Some(answers) = ready {
            let keys = answers.keys().cloned().collect();
            let params = json!({ "taskId": self.id, "inputResponses": answers });
            self.update = Some((self.ask("tasks/update", &params).await, keys));
        }
        Ok(())
    }

    async fn updated(&mut self, reply: Reply) -> Result<(), TaskClientError> {
        let keys = self.update.take().map(|(_, keys)| keys).unwrap_or_default();
        match reply {
            Reply::Result(raw) => {
                super::complete("tasks/update", raw.as_raw())?;
                self.update_backoff.reset();
                self.outage.over();
                self.inputs.taken(keys);
                // Answers that came meanwhile.
                self.send_answers(true).await?;
            }
            Reply::Error(error) if error.code == ErrorCode::INVALID_PARAMS => {
                // The task is gone, or an answer is not what it wanted: the task itself is asked.
                self.refused = Some((keys, error));
                let soon = Instant::now() + self.floor;
                self.poll_due = Some(self.poll_due.map_or(soon, |due| due.min(soon)));
            }
            Reply::Error(error) => {
                let hopeless = matches!(
                    error.code,
                    ErrorCode::METHOD_NOT_FOUND | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
                );
                if hopeless || self.update_backoff.tries() + 1 >= ERROR_ANSWERS {
                    return Err(TaskClientError::Rpc(error));
                }
                self.update_due = Some(Instant::now() + self.update_backoff.next());
            }
            Reply::Lost(lost) => self.update_failed(&lost)?,
        }
        Ok(())
    }

    /// An answer did not get through: the same one is sent again.
    fn update_failed(&mut self, lost: &Lost) -> Result<(), TaskClientError> {
        let now = Duration::ZERO;
        let due = self.outage.try_again(lost, &mut self.update_backoff, now)?;
        self.update_due = Some(due);
        Ok(())
    }

    fn listen_over(&mut self, reply: &Reply) {
        let was_granted = self.listen_stale.is_none();
        (self.listen, self.listen_stale) = (None, None);
        if worth_another(self.modern, reply, was_granted) {
            if self.listen_opened.elapsed() > SETTLED {
                self.listen_backoff.reset();
            }
            self.listen_due = Some(Instant::now() + self.listen_backoff.next());
        }
    }

    /// The server has taken the cancel of some task.
    fn cancel_taken(&mut self) {
        let of_this = self.cancels.borrow_and_update().contains(&self.id);
        if of_this && self.cancel_polls.is_none() {
            self.cancel_polls = Some(CANCEL_POLLS);
            let soon = Instant::now() + self.floor;
            if self.poll.is_none() {
                self.poll_due = Some(self.poll_due.map_or(soon, |due| due.min(soon)));
            }
        }
    }

    fn was_cancelled(&self) -> TaskClientError {
        TaskClientError::Cancelled {
            task_id: self.id.clone(),
            message: self
                .info
                .as_ref()
                .and_then(|info| info.status_message.clone()),
        }
    }

    /// A poll failed on the way.
    fn failed(&mut self, lost: &Lost) -> Result<(), TaskClientError> {
        let due = self.outage.try_again(lost, &mut self.backoff, self.floor)?;
        self.poll_due = Some(due);
        Ok(())
    }
}

async fn reply_of(sent: Option<&mut Sent>) -> Reply {
    match sent {
        Some((flight, _)) => flight.reply().await,
        None => std::future::pending().await,
    }
}
