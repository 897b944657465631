//! The worker of this process: its lease, the recovery of what lapsed workers left, and the sweeper.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use rmcp::model::Extensions;
use tokio_util::sync::DropGuard;

use super::{Inner, Recovery, limits::millis, run, tool::Body};
use crate::{
    store::{Access, StoreError},
    task::{Change, ErrorObject, Outcome, TaskId, TaskRecord},
};

/// What a person is told of a task that its worker left.
pub(crate) const STOPPED: &str = "the worker running this task stopped";
/// How many records one round of recovery or sweeping takes.
const BATCH: usize = 256;
/// How many of them are taken over at one moment: their writes share a store's commits.
const AT_ONCE: usize = 32;
/// How often expired records are reclaimed.
const SWEEP: Duration = Duration::from_secs(1);
/// How often expired documents are reclaimed.
const SWEEP_DOCUMENTS: u32 = 60;

impl Inner {
    /// Starts the worker once. It begins with the first task traffic, not with the process: clients start throw-away
    /// siblings of a server, and those must claim nothing.
    pub(crate) async fn ensure_worker(self: &Arc<Self>) -> Result<(), StoreError> {
        self.worker_started
            .get_or_try_init(async || {
                self.heartbeat().await?;
                let left = self.lease_left.clone().drop_guard();
                tokio::spawn(keep_lease(Arc::downgrade(self), left));
                tokio::spawn(look_for_left(Arc::downgrade(self)));
                tokio::spawn(sweep(Arc::downgrade(self)));
                Ok(())
            })
            .await
            .copied()
    }

    async fn heartbeat(&self) -> Result<(), StoreError> {
        let until = self
            .engine
            .clock
            .now()
            .plus_millis(millis(self.engine.limits.lease));
        self.engine.store.heartbeat(&self.worker, until).await
    }

    /// Takes over what lapsed workers left, for the tools that are registered here.
    async fn recover(self: &Arc<Self>) -> Result<(), StoreError> {
        // Left tasks that stay left: another's to take, or nobody's. Others must not wait behind them.
        let mut passed: HashSet<TaskId> = HashSet::new();
        loop {
            let wanted = BATCH + passed.len();
            let now = self.engine.clock.now();
            let mut orphans = self.engine.store.orphans(now, wanted).await?;
            let last = orphans.len() < wanted;
            orphans.retain(|record| passed.insert(record.id.clone()));
            stream::iter(orphans)
                .map(|record| self.take_over_left(record))
                .buffer_unordered(AT_ONCE)
                .for_each(|()| std::future::ready(()))
                .await;
            if last || self.is_ending() {
                return Ok(());
            }
        }
    }

    fn is_ending(&self) -> bool {
        self.closing.is_cancelled() || self.stop.is_cancelled()
    }

    /// Takes a record over, if it is left.
    async fn take_over_left(self: &Arc<Self>, record: Arc<TaskRecord>) {
        if self.is_ending() {
            return;
        }
        // Our own lease may have lapsed in a stalled process; what still runs here is not left.
        let ours =
            record.worker.as_ref() == Some(&self.worker) && self.engine.hub.is_running(&record.id);
        if ours || record.is_expired(self.engine.clock.now()) {
            return;
        }
        if let Err(error) = self.take_over(&record).await {
            tracing::warn!(task = %record.id, %error, "a left task could not be taken over");
        }
    }

    async fn take_over(self: &Arc<Self>, record: &Arc<TaskRecord>) -> Result<(), StoreError> {
        let Some(tool) = self.tool(&record.origin.tool) else {
            return Ok(());
        };
        let rerun = tool.recovery == Recovery::Rerun
            && !record.origin.before
            && matches!(tool.body, Body::Run(_));
        let change = if rerun {
            Change::TakeOver {
                worker: self.worker.clone(),
            }
        } else {
            let error = ErrorObject::internal(STOPPED);
            self.engine
                .finish(Outcome::Error(error), Some(STOPPED.into()))
        };
        // By the record as the lapsed worker left it: if anything has been written since, it is not ours to take.
        let now = self.engine.clock.now();
        let Ok(next) = record.apply(change, now, None) else {
            return Ok(());
        };
        let next = Arc::new(next);
        let swap = self
            .engine
            .store
            .replace(next.clone(), record.revision, &Access::System)
            .await?;
        if swap != crate::store::Swap::Done {
            return Ok(());
        }
        self.engine.hub.publish(&next);
        if rerun {
            tracing::info!(task = %next.id, attempt = next.attempt, "a left task runs again");
            run::start(self, tool, next, Extensions::default());
        } else {
            tracing::info!(task = %next.id, "a left task failed");
        }
        Ok(())
    }

    /// Removes what has expired.
    pub(super) async fn sweep(&self) -> Result<(), StoreError> {
        loop {
            let now = self.engine.clock.now();
            let due = self.engine.store.expired(now, BATCH).await?;
            for id in &due {
                // Read again: its lifetime may have been lengthened since.
                let record = self.engine.store.get(id.as_str(), &Access::System).await?;
                if record.is_some_and(|record| record.is_expired(now)) {
                    self.engine.remove(id).await?;
                    tracing::debug!(task = %id, "task expired");
                }
            }
            if due.len() < BATCH {
                return Ok(());
            }
        }
    }
}

/// Renews the lease until the runtime stops. Nothing else is done here: who renews it late is taken over.
async fn keep_lease(inner: Weak<Inner>, _left: DropGuard) {
    while wait_a_heartbeat(&inner).await {
        let Some(inner) = inner.upgrade() else { return };
        if let Err(error) = inner.heartbeat().await {
            tracing::warn!(%error, "the lease could not be renewed");
        }
    }
}

/// Looks for left tasks until the runtime stops.
async fn look_for_left(inner: Weak<Inner>) {
    loop {
        let Some(strong) = inner.upgrade() else {
            return;
        };
        if let Err(error) = strong.recover().await {
            tracing::warn!(%error, "left tasks could not be looked for");
        }
        drop(strong);
        if !wait_a_heartbeat(&inner).await {
            return;
        }
    }
}

/// Whether the runtime still works after the time of a heartbeat.
async fn wait_a_heartbeat(inner: &Weak<Inner>) -> bool {
    let Some(strong) = inner.upgrade() else {
        return false;
    };
    let (stop, every) = (strong.stop.clone(), strong.engine.limits.heartbeat);
    drop(strong);
    tokio::select! {
        () = stop.cancelled() => false,
        () = tokio::time::sleep(every) => true,
    }
}

/// Reclaims what has expired, until the runtime stops.
async fn sweep(inner: Weak<Inner>) {
    let mut round = 0;
    loop {
        let Some(strong) = inner.upgrade() else {
            return;
        };
        if let Err(error) = strong.sweep().await {
            tracing::warn!(%error, "expired tasks could not be removed");
        }
        round = (round + 1) % SWEEP_DOCUMENTS;
        if round == 0
            && let Err(error) = strong
                .engine
                .store
                .remove_expired_documents(strong.engine.clock.now())
                .await
        {
            tracing::warn!(%error, "expired documents could not be removed");
        }
        let stop = strong.stop.clone();
        drop(strong);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(SWEEP) => {}
        }
    }
}
