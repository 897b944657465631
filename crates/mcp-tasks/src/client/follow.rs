//! Following one task: polls, status notifications and `tasks/result`, until it has ended.
//!
//! First poll after one interval; the interval is this task's own, from the server's last word, never below the floor.
//! Whatever fails on the way is tried again with growing waits. `tasks/result` is opened at once when the task asks
//! something, kept while questions may come, and fetched when the task has ended well or badly.

use std::{sync::Arc, time::Duration};

use rmcp::model::{ErrorCode, ErrorData};
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};

use super::{
    CallOptions, TaskClientError, TaskEvent, TaskInfo, TaskProgress, TaskStatus,
    backoff::Backoff,
    connection::Connection,
    drive::{at, cancelled, other_task},
    info::{TaskOutcome, protocol},
    link::{Lost, LostKind},
    outage::Outage,
    waiting::{Abandon, InFlight, ProgressFeed, Reply, Watch},
};
use crate::wire::error::REQUEST_CANCELLED;

/// How many error answers in a row a poll, or `tasks/result` of a task that goes on, may give.
pub(super) const ERROR_ANSWERS: u32 = 8;
/// How often `tasks/result` of a *completed* task may be refused.
const RESULT_ERRORS: u32 = 3;
/// How often a task that had ended may be told to go on: once may be a replica that is behind.
const WENT_BACK: u32 = 2;
/// A `tasks/result` that was open this long did work, even if nothing came on it: some servers end streams early.
const SETTLED: Duration = Duration::from_secs(10);
/// A floor below this is none.
pub(super) const LEAST_FLOOR: Duration = Duration::from_millis(10);
/// The longest wait between two polls; beyond it a clock would overflow.
pub(super) const LONGEST_INTERVAL: Duration = Duration::from_secs(86_400);

pub(super) struct Follow<'a, R> {
    connection: &'a Arc<Connection>,
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
    watch: Watch,
    progress: Option<ProgressFeed>,
    poll: Option<(InFlight, Instant)>,
    poll_due: Option<Instant>,
    /// When the last poll was sent.
    polled_at: Option<Instant>,
    result: Option<InFlight>,
    result_due: Option<Instant>,
    result_opened: Option<Instant>,
    /// When to give up on an open `tasks/result` of a task that has ended.
    result_stale: Option<Instant>,
    /// What `tasks/result` said, until a poll has told whether that was the task's end.
    verdict: Option<ErrorData>,
    result_errors: u32,
    /// The end that `tasks/get` told of, and how often it told of something else later.
    end: Option<TaskStatus>,
    went_back: u32,
    backoff: Backoff,
    result_backoff: Backoff,
    outage: Outage,
    error_answers: u32,
}

enum Woke {
    Polled(Reply),
    PollLate,
    PollDue,
    Result(Reply),
    ResultDue,
    ResultStale,
    Announced(TaskInfo),
    Progress(TaskProgress),
}

type Outcome<R> = Result<Box<R>, TaskClientError>;

impl<'a, R: TaskOutcome> Follow<'a, R> {
    /// `info` is the created task, or the id of a task that exists.
    pub(super) fn new(
        connection: &'a Arc<Connection>,
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
            events,
            watch: connection.watch(&id),
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
            polled_at: None,
            result: None,
            result_due: None,
            result_opened: None,
            result_stale: None,
            verdict: None,
            result_errors: 0,
            end: None,
            went_back: 0,
            backoff: Backoff::usual(),
            result_backoff: Backoff::usual(),
            error_answers: 0,
        }
    }

    /// Follows to the end.
    pub(super) async fn run(mut self) -> Outcome<R> {
        let outcome = self.until_ended().await;
        if matches!(
            outcome,
            Ok(_) | Err(TaskClientError::Cancelled { .. } | TaskClientError::Expired { .. })
        ) {
            self.connection.desk.forget(&self.id);
        }
        outcome
    }

    async fn until_ended(&mut self) -> Outcome<R> {
        let now = Instant::now();
        match self.info.clone() {
            Some(info) => self.plan(&info),
            None => self.poll_due = Some(now),
        }
        loop {
            let ended = match self.wake().await {
                Woke::PollDue => {
                    self.poll_due = None;
                    let now = Instant::now();
                    self.polled_at = Some(now);
                    let late = now + self.connection.settings.request_timeout;
                    self.poll = Some((self.ask("tasks/get", None, Abandon::Silently).await, late));
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
                Woke::ResultDue => {
                    self.result_due = None;
                    self.result_opened = Some(Instant::now());
                    let id = self.id.clone();
                    let ended = self
                        .info
                        .as_ref()
                        .is_some_and(|info| info.status.is_terminal());
                    self.result_stale = ended.then(|| Instant::now() + self.patience());
                    self.result = Some(self.ask("tasks/result", Some(&id), Abandon::Notify).await);
                    None
                }
                Woke::ResultStale => {
                    self.result = None;
                    self.result_later(None);
                    None
                }
                Woke::Result(reply) => {
                    self.result = None;
                    self.result_stale = None;
                    self.result_came(reply)?
                }
                Woke::Announced(info) => self.announced(info).await?,
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

    async fn ask(&self, method: &'static str, task: Option<&str>, abandon: Abandon) -> InFlight {
        self.connection
            .request(method, &json!({ "taskId": self.id }), task, abandon)
            .await
    }

    async fn wake(&mut self) -> Woke {
        let Self {
            poll,
            result,
            progress,
            watch,
            ..
        } = self;
        let late = poll.as_ref().map(|(_, late)| *late);
        let result_stale = self.result_stale.filter(|_| result.is_some());
        tokio::select! {
            biased;
            // Progress first: what came before the result is told before it.
            step = async { match progress { Some(feed) => feed.next().await, None => std::future::pending().await } } => {
                Woke::Progress(step)
            }
            reply = reply_of(result.as_mut()) => Woke::Result(reply),
            reply = reply_of(poll.as_mut().map(|(flight, _)| flight)) => Woke::Polled(reply),
            info = watch.next() => Woke::Announced(info),
            () = at(self.result_due) => Woke::ResultDue,
            () = at(self.poll_due) => Woke::PollDue,
            () = at(late) => Woke::PollLate,
            () = at(result_stale) => Woke::ResultStale,
        }
    }

    /// What to do next, given the last word of the server.
    fn plan(&mut self, info: &TaskInfo) {
        let now = Instant::now();
        let interval = info
            .poll_interval
            .unwrap_or(self.connection.settings.poll_interval);
        let interval = interval.max(self.floor).min(LONGEST_INTERVAL);
        let ended = matches!(info.status, TaskStatus::Completed | TaskStatus::Failed);
        if (ended || info.status == TaskStatus::InputRequired) && self.result.is_none() {
            self.result_due.get_or_insert(now);
        }
        if ended {
            // Nothing new will be told; only the result is missing.
            self.poll_due = None;
            self.poll = None;
            if self.result.is_some() {
                let stale = now + self.patience();
                self.result_stale.get_or_insert(stale);
            }
        } else if self.poll.is_none() {
            self.poll_due = Some(now + interval);
        }
    }

    /// How long the result of a task that has ended may take; a stream that is dead without a sign is opened again.
    fn patience(&self) -> Duration {
        self.connection.settings.request_timeout.saturating_mul(5)
    }

    async fn told(&mut self, info: TaskInfo) {
        if self.info.as_ref() != Some(&info) {
            let _ = self.events.send(TaskEvent::Status(info.clone())).await;
        }
        self.plan(&info);
        self.info = Some(info);
    }

    async fn polled(&mut self, reply: Reply) -> Result<Option<Box<R>>, TaskClientError> {
        let info = match reply {
            Reply::Result(raw) => TaskInfo::read(raw.as_raw())?,
            Reply::Error(error) if error.code == ErrorCode::INVALID_PARAMS => {
                return match self.verdict.take() {
                    // It ended with this error, and was removed right after.
                    Some(verdict) if !says_gone(&verdict) => Err(TaskClientError::Rpc(verdict)),
                    _ if !self.existed => Err(TaskClientError::Rpc(error)),
                    _ if self.found || self.missed => Err(TaskClientError::Expired {
                        task_id: self.id.clone(),
                    }),
                    _ => {
                        self.missed = true;
                        let interval = self.info.as_ref().and_then(|info| info.poll_interval);
                        let wait = interval.unwrap_or(self.connection.settings.poll_interval);
                        self.poll_due =
                            Some(Instant::now() + wait.max(self.floor).min(LONGEST_INTERVAL));
                        Ok(None)
                    }
                };
            }
            Reply::Error(error) => {
                self.error_answers += 1;
                if error.code == ErrorCode::METHOD_NOT_FOUND || self.error_answers >= ERROR_ANSWERS
                {
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
        if info.task_id != self.id {
            return Err(other_task(&self.id, &info.task_id));
        }
        self.found = true;
        self.existed = true;
        self.outage.over();
        self.error_answers = 0;
        self.backoff.reset();
        let status = info.status;
        match self.end {
            Some(end) if !status.is_terminal() => {
                self.went_back += 1;
                if self.went_back >= WENT_BACK {
                    let what = format!("task {} was {end}, and now it is {status}", self.id);
                    return Err(protocol(what));
                }
            }
            _ => self.end = Some(status).filter(|status| status.is_terminal()),
        }
        if let Some(verdict) = self.verdict.take() {
            self.result_errors += 1;
            match status {
                // -32602 may also be what a replica that is behind says of a task that it does not know yet.
                TaskStatus::Failed
                    if verdict.code != ErrorCode::INVALID_PARAMS
                        || info.status_message.as_deref() == Some(&*verdict.message)
                        || self.result_errors >= RESULT_ERRORS =>
                {
                    self.told(info).await;
                    return Err(TaskClientError::Rpc(verdict));
                }
                TaskStatus::Completed if self.result_errors >= RESULT_ERRORS => {
                    return Err(match says_gone(&verdict) {
                        true => TaskClientError::Expired {
                            task_id: self.id.clone(),
                        },
                        false => TaskClientError::Rpc(verdict),
                    });
                }
                TaskStatus::Working | TaskStatus::InputRequired
                    if self.result_errors >= ERROR_ANSWERS =>
                {
                    return Err(TaskClientError::Rpc(verdict));
                }
                // Not its end, then: asked again when it is needed.
                _ => self.result_due = Some(Instant::now() + self.result_backoff.next()),
            }
        }
        self.told(info).await;
        match &self.info {
            Some(info) if status == TaskStatus::Cancelled => Err(cancelled(info)),
            _ => Ok(None),
        }
    }

    async fn announced(&mut self, info: TaskInfo) -> Result<Option<Box<R>>, TaskClientError> {
        let stale = |known: &TaskInfo| {
            known.status.is_terminal()
                || matches!((info.last_updated_at, known.last_updated_at), (Some(new), Some(old)) if new < old)
        };
        if self.info.as_ref().is_some_and(stale) {
            return Ok(None);
        }
        if info.status == TaskStatus::Cancelled {
            // An end without a result: the task itself is asked before that is told.
            if self.poll.is_none() {
                let now = Instant::now();
                let soon = self.polled_at.map_or(now, |at| (at + self.floor).max(now));
                self.poll_due = Some(self.poll_due.map_or(soon, |due| due.min(soon)));
            }
            return Ok(None);
        }
        self.existed = true;
        self.told(info).await;
        Ok(None)
    }

    fn result_came(&mut self, reply: Reply) -> Result<Option<Box<R>>, TaskClientError> {
        match reply {
            Reply::Result(raw) => {
                let mut result = R::read(raw.as_raw())?;
                if let Some(info) = &self.info
                    && info.status == TaskStatus::Failed
                {
                    result.of_failed(info.status_message.as_deref());
                }
                return match result.related() {
                    Some(other) if other != self.id => Err(other_task(&self.id, other)),
                    _ => Ok(Some(Box::new(result))),
                };
            }
            Reply::Error(error) => {
                self.outage.over();
                // Its end, or something on the way? The task itself is asked.
                self.verdict = Some(error);
                self.poll = None;
                self.poll_due = Some(Instant::now());
            }
            Reply::Lost(lost) => {
                self.outage.lasts(&lost)?;
                self.result_later(lost.retry_after);
            }
        }
        Ok(None)
    }

    /// `tasks/result` broke off: opened again if there is a reason to.
    fn result_later(&mut self, retry_after: Option<Duration>) {
        self.result_stale = None;
        if self
            .result_opened
            .is_some_and(|opened| opened.elapsed() > SETTLED)
        {
            self.result_backoff.reset();
        }
        let wanted = self.info.as_ref().is_some_and(|info| {
            matches!(
                info.status,
                TaskStatus::InputRequired | TaskStatus::Completed | TaskStatus::Failed
            )
        });
        if wanted {
            let wait = self
                .result_backoff
                .next()
                .max(retry_after.unwrap_or_default());
            self.result_due = Some(Instant::now() + wait);
        }
    }

    /// A poll failed on the way.
    fn failed(&mut self, lost: &Lost) -> Result<(), TaskClientError> {
        let due = self.outage.try_again(lost, &mut self.backoff, self.floor)?;
        self.poll_due = Some(due);
        Ok(())
    }
}

async fn reply_of(flight: Option<&mut InFlight>) -> Reply {
    match flight {
        Some(flight) => flight.reply().await,
        None => std::future::pending().await,
    }
}

/// Whether an answer of `tasks/result` says that there is no task to speak of, rather than how it ended.
fn says_gone(error: &ErrorData) -> bool {
    error.code == ErrorCode::INVALID_PARAMS || i64::from(error.code.0) == REQUEST_CANCELLED
}
