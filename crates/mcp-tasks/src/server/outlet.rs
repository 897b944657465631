//! One stream on which messages can be sent to a client.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::sync::mpsc;

use crate::task::TaskId;

/// How many messages may wait for a client that reads slowly. Nothing is queued beyond that: a notification is
/// dropped, a question stays with its task and is sent again.
const CAPACITY: usize = 256;

/// The sending end of a stdio pipe, of a general SSE stream, or of the stream of one request.
pub(crate) struct Outlet {
    id: u64,
    /// The session it belongs to.
    pub(crate) session: Arc<str>,
    messages: mpsc::Sender<Vec<u8>>,
    closed: AtomicBool,
    /// The tasks whose questions went out here and are not answered.
    carried: Mutex<HashSet<TaskId>>,
}

impl Outlet {
    /// A new stream of a session, and its receiving end.
    pub(crate) fn new(session: Arc<str>) -> (Arc<Self>, mpsc::Receiver<Vec<u8>>) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (messages, receiver) = mpsc::channel(CAPACITY);
        let outlet = Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            session,
            messages,
            closed: AtomicBool::new(false),
            carried: Mutex::default(),
        };
        (Arc::new(outlet), receiver)
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Sends one message; whether the stream took it.
    pub(crate) fn send(&self, message: Vec<u8>) -> bool {
        self.is_open() && self.messages.try_send(message).is_ok()
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Acquire) && !self.messages.is_closed()
    }

    /// Nothing is sent here any more. Returns the tasks whose questions were on it.
    pub(crate) fn close(&self) -> HashSet<TaskId> {
        self.closed.store(true, Ordering::Release);
        std::mem::take(&mut *self.carried.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn carry(&self, task: &TaskId) {
        self.carried
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(task.clone());
    }

    pub(crate) fn uncarry(&self, task: &TaskId) {
        self.carried
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(task);
    }
}
