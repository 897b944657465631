use std::sync::Mutex as StdMutex;

use super::*;
use crate::{
    runtime::{Limits, LogEvent, ProgressEvent},
    store::{MemoryStore, Quota, TaskStore},
    task::{Change, Clock, Generation, NewTask, Origin, Owner, RawJson, Timestamp, WorkerId},
};

const QUOTA: Quota = Quota {
    total: 10,
    per_key: 10,
};

fn engine(store: &MemoryStore) -> Arc<Engine> {
    let store = Arc::new(store.clone());
    Arc::new(Engine::new(store, Limits::default(), Clock::system()))
}

fn record(worker: Option<WorkerId>) -> Arc<TaskRecord> {
    let origin = Origin {
        tool: "t".into(),
        arguments: RawJson::from_text("{}").unwrap(),
        meta: None,
        generation: Generation::V2025_11_25,
        capabilities: None,
        client_info: None,
        progress_token: None,
        session: None,
        before: false,
        requested_ttl: None,
    };
    let new = NewTask {
        id: TaskId::from_stored("an-id-that-was-proposed"),
        owner: Owner::Bearer,
        quota_key: None,
        hidden: false,
        ttl_ms: None,
        poll_interval_ms: 1000,
        status_message: None,
        worker,
        external_id: None,
        immediate_response: None,
        origin: Arc::new(origin),
    };
    Arc::new(TaskRecord::create(new, Timestamp::now()))
}

fn next(record: &TaskRecord, change: Change) -> Arc<TaskRecord> {
    Arc::new(record.apply(change, Timestamp::now(), None).unwrap())
}

fn signals(attempt: u32) -> RunSignals {
    RunSignals {
        attempt,
        cancel: CancellationToken::new(),
        stop: CancellationToken::new(),
    }
}

fn now<F: Future>(future: F) -> Option<F::Output> {
    futures_util::FutureExt::now_or_never(future)
}

#[tokio::test]
async fn what_is_told_late_of_an_earlier_attempt_does_not_stop_the_present_one() {
    let hub = Hub::new();
    let first = record(Some(WorkerId::random()));
    let worker = WorkerId::random();
    let second = next(&first, Change::TakeOver { worker });
    let run = signals(2);
    let _running = hub.run_started(&first.id, &run);
    hub.publish(&first);
    assert!(!run.stop.is_cancelled() && !run.cancel.is_cancelled());
    hub.publish(&next(&second, Change::Cancel { message: None }));
    assert!(run.cancel.is_cancelled() && !run.stop.is_cancelled());
    let worker = WorkerId::random();
    hub.publish(&next(&second, Change::TakeOver { worker }));
    assert!(run.stop.is_cancelled());
}

#[tokio::test]
async fn two_attempts_at_one_task_are_two_bodies() {
    let hub = Hub::new();
    let id = TaskId::random();
    let (old, new) = (signals(1), signals(2));
    let second = hub.run_started(&id, &new);
    let first = hub.run_started(&id, &old);
    // The later attempt's signals are the ones that count.
    hub.publish_removed(&id);
    assert!(new.cancel.is_cancelled() && !old.cancel.is_cancelled());
    drop(first);
    assert!(hub.is_running(&id));
    assert!(now(hub.runs_ended()).is_none());
    let mut ended = Box::pin(hub.runs_ended());
    assert!(now(ended.as_mut()).is_none());
    drop(second);
    assert!(now(ended).is_some());
    assert_eq!(hub.held(), [0, 0, 0]);
}

#[tokio::test]
async fn an_id_that_comes_again_is_another_task() {
    let store = MemoryStore::new();
    let engine = engine(&store);
    let record = record(None);
    let mut old = engine.hub.watch(&engine, &record.id);
    engine
        .hub
        .publish(&next(&record, Change::Cancel { message: None }));
    engine.hub.publish_removed(&record.id);
    assert!(now(old.changed()).is_some());
    assert!(matches!(old.seen(), Seen::Removed));
    // Nothing comes after that, and nobody spins on it.
    assert!(now(old.changed()).is_none());

    let mut new = engine.hub.watch(&engine, &record.id);
    engine.hub.publish(&record);
    assert!(now(new.changed()).is_some());
    assert!(matches!(new.seen(), Seen::Record(seen) if seen.revision == 1));
    drop(old);
    engine
        .hub
        .publish(&next(&record, Change::Cancel { message: None }));
    assert!(now(new.changed()).is_some());
    drop(new);
    assert_eq!(engine.hub.held(), [0, 0, 0]);
}

#[derive(Default)]
struct Removed(StdMutex<Vec<TaskId>>);

impl Observer for Removed {
    fn changed(&self, _: &Arc<TaskRecord>) {}
    fn removed(&self, id: &TaskId) {
        self.0.lock().unwrap().push(id.clone());
    }
    fn progress(&self, _: &Arc<TaskRecord>, _: &ProgressEvent) {}
    fn log(&self, _: &Arc<TaskRecord>, _: &LogEvent) {}
}

#[tokio::test]
async fn a_task_that_is_followed_before_it_exists_is_not_taken_for_removed() {
    let store = MemoryStore::new();
    let engine = engine(&store);
    let removed = Arc::new(Removed::default());
    let observer: Arc<dyn Observer> = removed.clone();
    engine.hub.observe(&observer);
    let record = record(None);
    let mut watch = engine.hub.watch(&engine, &record.id);
    assert!(
        engine
            .hub
            .heard(&engine, &record.id, UNKNOWN_REVISION)
            .await
    );
    assert!(removed.0.lock().unwrap().is_empty());
    assert!(matches!(watch.seen(), Seen::Nothing));
    store.insert(record.clone(), QUOTA).await.unwrap();
    assert!(engine.hub.heard(&engine, &record.id, 1).await);
    assert!(matches!(watch.seen(), Seen::Record(_)));
    store
        .remove(record.id.as_str(), &Access::System)
        .await
        .unwrap();
    assert!(
        engine
            .hub
            .heard(&engine, &record.id, UNKNOWN_REVISION)
            .await
    );
    assert!(matches!(watch.seen(), Seen::Removed));
    assert!(removed.0.lock().unwrap().iter().eq([&record.id]));
}
