//! One stream on which messages can be sent to a client.

use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::sync::mpsc;

use crate::task::TaskId;

/// How many messages may wait for a client that reads slowly. Beyond that notifications are dropped; questions, of
/// which there is one for each that is open, wait for room.
const CAPACITY: usize = 256;

/// The sending end of a stdio pipe, of a general SSE stream, or of the stream of one request.
pub(crate) struct Outlet {
    id: u64,
    /// The session it belongs to.
    pub(crate) session: Arc<str>,
    messages: mpsc::Sender<Vec<u8>>,
    closed: AtomicBool,
    /// What must not be dropped and found no room.
    late: Mutex<VecDeque<Vec<u8>>>,
    /// The tasks whose questions went out here and are not answered.
    carried: Mutex<HashSet<TaskId>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            late: Mutex::default(),
            carried: Mutex::default(),
        };
        (Arc::new(outlet), receiver)
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Sends one message, unless the client reads too slowly; whether the stream took it.
    pub(crate) fn send(&self, message: Vec<u8>) -> bool {
        self.is_open() && self.messages.try_send(message).is_ok()
    }

    /// Sends one message as soon as there is room for it, in the order of these calls. Not taken only when the stream
    /// is closed.
    pub(crate) fn send_surely(self: &Arc<Self>, message: Vec<u8>) -> bool {
        if !self.is_open() {
            return false;
        }
        let mut late = lock(&self.late);
        let message = match late.is_empty() {
            true => match self.messages.try_send(message) {
                Ok(()) => return true,
                Err(mpsc::error::TrySendError::Closed(_)) => return false,
                Err(mpsc::error::TrySendError::Full(message)) => message,
            },
            false => message,
        };
        late.push_back(message);
        if late.len() == 1 {
            tokio::spawn(self.clone().send_late());
        }
        true
    }

    /// Sends what is late until there is no more of it.
    async fn send_late(self: Arc<Self>) {
        while let Ok(room) = self.messages.reserve().await {
            let mut late = lock(&self.late);
            match late.pop_front() {
                Some(message) => room.send(message),
                None => return,
            }
            if late.is_empty() {
                return;
            }
        }
        lock(&self.late).clear();
    }

    /// Whether there is any point in writing a notification for it.
    pub(crate) fn has_room(&self) -> bool {
        self.messages.capacity() > 0
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Acquire) && !self.messages.is_closed()
    }

    /// Nothing is sent here any more. Returns the tasks whose questions were on it.
    pub(crate) fn close(&self) -> HashSet<TaskId> {
        self.closed.store(true, Ordering::Release);
        std::mem::take(&mut *lock(&self.carried))
    }

    pub(crate) fn carry(&self, task: &TaskId) {
        lock(&self.carried).insert(task.clone());
    }

    pub(crate) fn uncarry(&self, task: &TaskId) {
        lock(&self.carried).remove(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_must_not_be_dropped_waits_for_room_and_keeps_its_order() {
        let (outlet, mut messages) = Outlet::new("s".into());
        let mut sent = 0;
        while outlet.send(vec![0]) {
            sent += 1;
        }
        for n in 1..=3 {
            assert!(outlet.send_surely(vec![n]));
        }
        for _ in 0..sent {
            assert_eq!(messages.recv().await, Some(vec![0]));
        }
        for n in 1..=3 {
            assert_eq!(messages.recv().await, Some(vec![n]));
        }
        assert!(outlet.send_surely(vec![4]) && outlet.send(vec![5]));
        assert_eq!(messages.recv().await, Some(vec![4]));
        outlet.close();
        assert!(!outlet.send_surely(vec![6]));
    }
}
