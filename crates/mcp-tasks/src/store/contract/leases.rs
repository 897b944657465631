//! Workers, their leases, and the tasks of those that lapsed.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Handles, at_once, insert,
    samples::{self, at, cancelled, next, owned},
    stored,
};
use crate::{
    store::{Access, Swap, TaskStore},
    task::{Change, TaskId, TaskRecord, WorkerId},
};

async fn orphans(store: &dyn TaskStore, now: u64) -> BTreeSet<TaskId> {
    let found = store.orphans(at(now), 100).await.expect("orphans");
    let ids: BTreeSet<_> = found.iter().map(|record| record.id.clone()).collect();
    assert_eq!(ids.len(), found.len(), "no record twice");
    for record in &found {
        assert_eq!(
            stored(store, record).await.as_ref(),
            Some(record),
            "an orphan is the stored record"
        );
    }
    ids
}

fn ids(records: &[&Arc<TaskRecord>]) -> BTreeSet<TaskId> {
    records.iter().map(|record| record.id.clone()).collect()
}

fn take_over(record: &TaskRecord, worker: &WorkerId) -> Arc<TaskRecord> {
    next(
        record,
        Change::TakeOver {
            worker: worker.clone(),
        },
    )
}

pub(super) async fn orphans_of(stores: &Handles) {
    let (one, two) = (&*stores.one, &*stores.two);
    let (w1, w2, unknown) = (WorkerId::random(), WorkerId::random(), WorkerId::random());
    one.heartbeat(&w1, at(100)).await.expect("heartbeat");
    two.heartbeat(&w2, at(200)).await.expect("heartbeat");
    let a = owned("ann").worker(&w1).into_record();
    let b = samples::bearer().worker(&w1).hidden().into_record();
    let c = owned("ann").worker(&w2).into_record();
    let outside = owned("ann").into_record();
    for record in [&a, &b, &c, &outside] {
        insert(one, record).await;
    }
    assert_eq!(orphans(two, 99).await, ids(&[]), "leases hold");
    assert_eq!(
        orphans(two, 100).await,
        ids(&[&a, &b]),
        "the moment a lease ends, it has passed"
    );
    assert_eq!(
        orphans(two, 200).await,
        ids(&[&a, &b, &c]),
        "outside work has no worker to lapse"
    );
    assert_eq!(
        two.orphans(at(200), 2).await.expect("orphans").len(),
        2,
        "at most `limit`"
    );

    one.heartbeat(&w1, at(300)).await.expect("heartbeat");
    assert_eq!(orphans(two, 250).await, ids(&[&c]), "a renewed lease holds");
    let d = owned("bob").worker(&unknown).into_record();
    insert(two, &d).await;
    assert_eq!(
        orphans(one, 150).await,
        ids(&[&d]),
        "a worker that never had a lease has lapsed"
    );
    two.release(&w1).await.expect("release");
    assert_eq!(
        orphans(one, 150).await,
        ids(&[&a, &b, &d]),
        "a released lease has passed"
    );
    two.release(&WorkerId::random())
        .await
        .expect("releasing an unknown worker is nothing");

    // Ended tasks need nobody; neither do those that another worker took over, or that are gone.
    one.replace(cancelled(&a), 1, &Access::System)
        .await
        .expect("replace");
    assert_eq!(
        orphans(two, 150).await,
        ids(&[&b, &d]),
        "an ended task is no orphan"
    );
    one.replace(take_over(&b, &w2), 1, &Access::System)
        .await
        .expect("replace");
    assert_eq!(
        orphans(two, 150).await,
        ids(&[&d]),
        "a task taken over is its new worker's"
    );
    assert_eq!(
        orphans(two, 200).await,
        ids(&[&b, &c, &d]),
        "and lapses with it"
    );
    two.remove(d.id.as_str(), &Access::System)
        .await
        .expect("remove");
    assert_eq!(
        orphans(one, 150).await,
        ids(&[]),
        "a removed task is no orphan"
    );

    // A worker that was released may come back.
    one.heartbeat(&w1, at(400)).await.expect("heartbeat");
    let e = owned("ann").worker(&w1).into_record();
    insert(two, &e).await;
    assert_eq!(orphans(one, 399).await, ids(&[&b, &c]));
    assert_eq!(orphans(one, 400).await, ids(&[&b, &c, &e]));
}

/// Everybody finds the same orphans and races for them: each task has one new worker.
pub(super) async fn takeover_race(stores: &Handles) {
    let dead = WorkerId::random();
    stores
        .one
        .heartbeat(&dead, at(100))
        .await
        .expect("heartbeat");
    for _ in 0..20 {
        insert(&*stores.one, &owned("ann").worker(&dead).into_record()).await;
    }
    let taken = at_once(8, |n| {
        let store = stores.nth(n);
        async move {
            let me = WorkerId::random();
            store.heartbeat(&me, at(10_000)).await.expect("heartbeat");
            let mut mine = Vec::new();
            for record in store.orphans(at(200), 100).await.expect("orphans") {
                let next = take_over(&record, &me);
                if store
                    .replace(next, record.revision, &Access::System)
                    .await
                    .expect("replace")
                    == Swap::Done
                {
                    mine.push((record.id.clone(), me.clone()));
                }
            }
            mine
        }
    })
    .await;
    let taken: Vec<_> = taken.into_iter().flatten().collect();
    assert_eq!(taken.len(), 20, "every orphan was taken over once");
    for (id, worker) in &taken {
        let record = stores
            .two
            .get(id.as_str(), &Access::System)
            .await
            .expect("get")
            .expect("there");
        assert_eq!(
            (record.worker.as_ref(), record.attempt),
            (Some(worker), 2),
            "by the one who was told so"
        );
    }
    assert_eq!(
        orphans(&*stores.two, 200).await,
        BTreeSet::new(),
        "none is left"
    );
}
