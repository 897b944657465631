//! What the server announces of a task that is followed: `subscriptions/listen` with its id (extension, Task Status
//! Notifications). A server that offers none, or not for this task, is polled only.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rmcp::model::ErrorCode;
use serde_json::{json, value::RawValue};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::{Modern, Stamped, reading::Told};
use crate::{
    client::{
        connection::Connection,
        link::{Lost, LostKind},
        waiting::{Abandon, InFlight, Reply},
    },
    task::RawJson,
    wire::v2026_07_28::reading::{granted, subscription},
};

/// How many tasks are listened to at a time: over HTTP each has a stream.
const MOST: usize = 32;

/// The subscriptions of a connection, by the numbers of their requests.
pub(super) struct Subscriptions {
    open: Mutex<HashMap<u64, Subscription>>,
    /// The server has shown that it offers none.
    refused: AtomicBool,
    /// It has granted some task.
    granted: AtomicBool,
    room: Arc<Semaphore>,
}

struct Subscription {
    task: String,
    news: watch::Sender<News>,
}

/// What came on a subscription: the last of it, for it says all.
#[derive(Debug, Clone, Default)]
pub(super) struct News {
    /// Whether the task was granted; `None` before the acknowledgement.
    pub(super) granted: Option<bool>,
    /// The task's state.
    pub(super) state: Option<Arc<RawJson>>,
}

impl Default for Subscriptions {
    fn default() -> Self {
        Self {
            open: Mutex::default(),
            refused: AtomicBool::new(false),
            granted: AtomicBool::new(false),
            room: Arc::new(Semaphore::new(MOST)),
        }
    }
}

impl Subscriptions {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Subscription>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.lock().contains_key(&number)
    }

    /// Nothing will be subscribed any more.
    fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }
}

/// What the server says when it ends a subscription of its own accord.
pub(super) fn ended() -> Lost {
    Lost::new(
        LostKind::Transient,
        true,
        "the server ended the subscription",
    )
}

/// The subscription that a notification belongs to: by its word, else by the stream that it came on. `None` if it is
/// not said at all.
fn number_of(params: Option<&RawValue>, via: Option<&Arc<str>>) -> Option<Option<u64>> {
    if let Some(named) = subscription(params) {
        return Some(Connection::own(named.get()));
    }
    via.map(|via| Connection::own(via))
}

impl Modern {
    /// `notifications/subscriptions/acknowledged`; `false` leaves it to rmcp.
    pub(super) fn acknowledged(&self, params: Option<&RawValue>, via: Option<&Arc<str>>) -> bool {
        let Some(Some(number)) = number_of(params, via) else {
            return false;
        };
        if let Some(subscription) = self.subscriptions.lock().get(&number) {
            let granted = granted(params).contains(&subscription.task);
            if granted {
                self.subscriptions.granted.store(true, Ordering::Relaxed);
            }
            let tell = |news: &mut News| news.granted = Some(granted);
            subscription.news.send_modify(tell);
        }
        true
    }

    /// `notifications/tasks`.
    pub(super) fn task_announced(
        &self,
        connection: &Connection,
        params: Option<&RawValue>,
        via: Option<&Arc<str>>,
    ) {
        let Some(raw) = params else { return };
        let told = match Told::read(raw) {
            Ok(told) => told,
            Err(error) => {
                return tracing::debug!(%error, "a task was announced that cannot be read");
            }
        };
        {
            let open = self.subscriptions.lock();
            let of_task = |subscription: &&Subscription| subscription.task == told.info.task_id;
            let mine: Vec<&Subscription> = match number_of(params, via) {
                Some(Some(number)) => open.get(&number).into_iter().filter(of_task).collect(),
                // One of rmcp's, or of nobody's.
                Some(None) => Vec::new(),
                None => open.values().filter(of_task).collect(),
            };
            if mine.is_empty() {
                return tracing::debug!("a task was announced that nobody asked for");
            }
            let state = Arc::new(RawJson::from_raw(raw));
            for subscription in mine {
                let tell = |news: &mut News| news.state = Some(state.clone());
                subscription.news.send_modify(tell);
            }
        }
        if let Some(callback) = &connection.settings.on_status {
            callback(told.info);
        }
    }

    /// The server has left a task out of a subscription.
    pub(super) fn left_out(&self) {
        if !self.subscriptions.granted.load(Ordering::Relaxed) {
            self.subscriptions.refuse();
        }
    }

    /// Asks for the announcements of a task; `None` if there are none to be had now.
    pub(super) async fn listen(&self, connection: &Arc<Connection>, task: &str) -> Option<Listen> {
        let subscriptions = &self.subscriptions;
        if !connection.settings.subscribe || subscriptions.refused.load(Ordering::Relaxed) {
            return None;
        }
        let room = subscriptions.room.clone().try_acquire_owned().ok()?;
        let number = connection.number();
        let news = watch::Sender::default();
        let heard = news.subscribe();
        let task = task.to_owned();
        let params = json!({ "notifications": { "taskIds": [task] } });
        subscriptions
            .lock()
            .insert(number, Subscription { task, news });
        let open = Open(connection.clone(), number);
        let call: Stamped = self.stamped(connection, "subscriptions/listen", params);
        let flight = connection
            .request_numbered(number, call, None, Abandon::Notify)
            .await;
        Some(Listen {
            flight,
            heard,
            _open: open,
            _room: room,
        })
    }
}

/// A subscription that is open, until this is dropped.
struct Open(Arc<Connection>, u64);

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(modern) = self.0.modern.get() {
            modern.subscriptions.lock().remove(&self.1);
        }
    }
}

/// One subscription.
pub(super) struct Listen {
    flight: InFlight,
    heard: watch::Receiver<News>,
    _open: Open,
    _room: OwnedSemaphorePermit,
}

pub(super) enum Heard {
    News(News),
    /// Nothing more will come; it must not be asked again.
    Over(Reply),
}

impl Listen {
    pub(super) async fn next(&mut self) -> Heard {
        tokio::select! {
            biased;
            Ok(()) = self.heard.changed() => Heard::News(self.heard.borrow_and_update().clone()),
            reply = self.flight.reply() => Heard::Over(reply),
        }
    }
}

/// Whether an ended subscription is worth another one; notes where the server offers none.
pub(super) fn worth_another(modern: &Modern, reply: &Reply, was_granted: bool) -> bool {
    match reply {
        Reply::Result(_) => was_granted,
        // This task, perhaps.
        Reply::Error(error) if error.code == ErrorCode::INVALID_PARAMS => false,
        Reply::Error(error) => {
            tracing::debug!(%error.message, "the server offers no subscriptions");
            modern.subscriptions.refuse();
            false
        }
        Reply::Lost(lost) => match lost.kind {
            LostKind::Transient => was_granted,
            LostKind::Closed => false,
            _ => {
                tracing::debug!(why = lost.why, "the server offers no subscriptions");
                modern.subscriptions.refuse();
                false
            }
        },
    }
}
