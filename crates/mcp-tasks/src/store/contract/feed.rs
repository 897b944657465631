//! The change feed.

use std::{collections::HashMap, time::Duration};

use super::{
    Handles, insert,
    samples::{self, owned, said},
};
use crate::{
    store::{Access, ChangeEvent, ChangeFeed},
    task::{TaskId, TaskRecord},
};

/// How long a backend may take to tell of another process's change before we call it silent.
const PATIENCE: Duration = Duration::from_secs(10);

async fn next(feed: &mut ChangeFeed, what: &str) -> ChangeEvent {
    match tokio::time::timeout(PATIENCE, feed.next()).await {
        Ok(Some(event)) => event,
        Ok(None) => panic!("the feed ended while waiting for {what}"),
        Err(_) => panic!("the feed does not tell of {what}"),
    }
}

/// Waits until the feed tells of `revision` of the record, or that events were lost.
async fn told(feed: &mut ChangeFeed, record: &TaskRecord, revision: u64, what: &str) {
    loop {
        match next(feed, what).await {
            ChangeEvent::Task { id, revision: told } if id == record.id && told >= revision => {
                return;
            }
            ChangeEvent::Task { .. } => {}
            ChangeEvent::Lagged => return,
        }
    }
}

pub(super) async fn tells_of_changes(stores: &Handles) {
    // One written before anybody listened: nobody is promised anything about it.
    insert(&*stores.one, &owned("ann").into_record()).await;
    for round in 0..3 {
        let mut feeds = [
            stores.one.changes(),
            stores.two.changes(),
            stores.one.changes(),
        ];
        let record = samples::bearer().into_record();
        insert(&*stores.nth(round), &record).await;
        for feed in &mut feeds {
            told(feed, &record, 1, "an insert").await;
        }
        let second = said(&record, "two");
        stores
            .nth(round + 1)
            .replace(second.clone(), 1, &Access::System)
            .await
            .expect("replace");
        for feed in &mut feeds {
            told(feed, &record, 2, "a swap").await;
        }
        // A stale swap is no change; the next event anybody waits for is the removal.
        stores
            .nth(round)
            .replace(said(&record, "stale"), 1, &Access::System)
            .await
            .expect("replace");
        stores
            .nth(round)
            .remove(record.id.as_str(), &Access::System)
            .await
            .expect("remove");
        for feed in &mut feeds {
            told(feed, &record, u64::MAX, "a removal").await;
        }
        // Between the rounds nobody listens.
        drop(feeds);
        insert(&*stores.nth(round), &owned("ann").into_record()).await;
    }
}

/// Every change of many is told, or that some were lost.
pub(super) async fn follows_many(stores: &Handles) {
    let mut feeds = [stores.one.changes(), stores.two.changes()];
    let mut expected: HashMap<TaskId, u64> = HashMap::new();
    for n in 0..100 {
        let record = owned("ann").into_record();
        insert(&*stores.nth(n), &record).await;
        stores
            .nth(n / 2)
            .replace(said(&record, "x"), 1, &Access::System)
            .await
            .expect("replace");
        expected.insert(record.id.clone(), 2);
    }
    for feed in &mut feeds {
        let mut missing = expected.clone();
        while !missing.is_empty() {
            match next(feed, "one of many changes").await {
                ChangeEvent::Task { id, revision } => {
                    if missing.get(&id).is_some_and(|wanted| revision >= *wanted) {
                        missing.remove(&id);
                    }
                }
                ChangeEvent::Lagged => break,
            }
        }
    }
}

pub(super) async fn ends_with_the_store(stores: Handles) {
    let mut feed = stores.one.changes();
    let record = owned("ann").into_record();
    insert(&*stores.one, &record).await;
    told(&mut feed, &record, 1, "an insert").await;
    drop(stores);
    let ended =
        tokio::time::timeout(PATIENCE, async { while feed.next().await.is_some() {} }).await;
    assert!(ended.is_ok(), "a feed ends with its store");
}
