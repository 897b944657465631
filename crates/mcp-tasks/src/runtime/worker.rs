//! The worker of this process: its lease, the recovery of what lapsed workers left, and the sweeper.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio_util::sync::DropGuard;

use super::{Inner, Recovery, limits::millis, run, tool::Body};
use crate::{
    store::{Access, StoreError},
    task::{Change, ErrorObject, Outcome, TaskId, TaskRecord},
};

/// What a person is told of a task that its worker left.
const STOPPED: &str = "the worker running this task stopped";
/// How many records one round of recovery or sweeping takes.
const BATCH: usize = 256;
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
                tokio::spawn(sweep(Arc::downgrade(self)));
                Ok(())
            })
            .await?;
        Ok(())
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
            let orphans = self.engine.store.orphans(now, wanted).await?;
            let last = orphans.len() < wanted;
            for record in orphans {
                if self.closing.is_cancelled() || self.stop.is_cancelled() {
                    return Ok(());
                }
                if !passed.insert(record.id.clone()) {
                    continue;
                }
                // Our own lease may have lapsed in a stalled process; what still runs here is not left.
                let ours = record.worker.as_ref() == Some(&self.worker)
                    && self.engine.hub.is_running(&record.id);
                if ours || record.is_expired(self.engine.clock.now()) {
                    continue;
                }
                if let Err(error) = self.take_over(&record).await {
                    tracing::warn!(task = %record.id, %error, "a left task could not be taken over");
                }
            }
            if last {
                return Ok(());
            }
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
            run::start(self, tool, next);
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

/// Renews the lease, and looks for left tasks, until the runtime stops.
async fn keep_lease(inner: Weak<Inner>, _left: DropGuard) {
    loop {
        let Some(inner) = inner.upgrade() else { return };
        if let Err(error) = inner.recover().await {
            tracing::warn!(%error, "left tasks could not be looked for");
        }
        let (stop, every) = (inner.stop.clone(), inner.engine.limits.heartbeat);
        let weak = Arc::downgrade(&inner);
        drop(inner);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(every) => {}
        }
        let Some(inner) = weak.upgrade() else { return };
        if let Err(error) = inner.heartbeat().await {
            tracing::warn!(%error, "the lease could not be renewed");
        }
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
