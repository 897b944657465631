//! Compare-and-swap.

use std::sync::Arc;

use super::{
    Handles, at_once, insert,
    samples::{self, cancelled, owned, said},
    stored,
};
use crate::{
    store::{Access, Swap, TaskStore},
    task::TaskRecord,
};

async fn swap(store: &dyn TaskStore, next: &Arc<TaskRecord>, revision: u64) -> Swap {
    store
        .replace(next.clone(), revision, &Access::System)
        .await
        .expect("replace")
}

pub(super) async fn revisions(stores: &Handles) {
    let first = owned("ann").into_record();
    let second = said(&first, "two");
    assert_eq!(
        swap(&*stores.one, &second, 1).await,
        Swap::Missing,
        "a swap inserts nothing"
    );
    assert_eq!(
        stored(&*stores.one, &first).await,
        None,
        "a swap of a missing record leaves nothing behind"
    );

    insert(&*stores.one, &first).await;
    assert_eq!(
        swap(&*stores.two, &second, 2).await,
        Swap::Stale,
        "a swap from a later revision"
    );
    assert_eq!(
        swap(&*stores.two, &second, 0).await,
        Swap::Stale,
        "a swap from an earlier revision"
    );
    assert_eq!(
        stored(&*stores.two, &first).await,
        Some(first.clone()),
        "a stale swap changes nothing"
    );
    assert_eq!(swap(&*stores.two, &second, 1).await, Swap::Done);
    assert_eq!(
        stored(&*stores.one, &first).await,
        Some(second.clone()),
        "a swap is seen by the other handle at once"
    );
    assert_eq!(
        swap(&*stores.one, &said(&first, "again"), 1).await,
        Swap::Stale,
        "the old revision is gone"
    );
    assert_eq!(
        stored(&*stores.two, &first).await,
        Some(second),
        "the loser changed nothing"
    );
}

pub(super) async fn races(stores: &Handles) {
    let mut current = samples::bearer().into_record();
    insert(&*stores.one, &current).await;
    for round in 0..10 {
        let results = at_once(16, |n| {
            let (store, next) = (stores.nth(n), said(&current, &format!("{round}/{n}")));
            async move { (swap(&*store, &next, next.revision - 1).await, next) }
        })
        .await;
        let won: Vec<_> = results
            .iter()
            .filter(|(swap, _)| *swap == Swap::Done)
            .collect();
        assert_eq!(
            won.len(),
            1,
            "of racing swaps from one revision exactly one is done"
        );
        let lost = results
            .iter()
            .filter(|(swap, _)| *swap == Swap::Stale)
            .count();
        assert_eq!(lost, 15, "the others are stale");
        let now = stored(&*stores.two, &current)
            .await
            .expect("the record is there");
        assert_eq!(now, won[0].1, "what is stored is what the winner wrote");
        current = now;
    }
}

/// Read, decide, swap, again if stale: no step is lost.
pub(super) async fn counter(stores: &Handles) {
    let record = samples::bearer().into_record();
    insert(&*stores.one, &record).await;
    at_once(8, |n| {
        let (store, id) = (stores.nth(n), record.id.clone());
        async move {
            for step in 0..5 {
                loop {
                    let now = store
                        .get(id.as_str(), &Access::System)
                        .await
                        .expect("get")
                        .expect("there");
                    let next = said(&now, &format!("{n}/{step}/{}", now.revision));
                    if swap(&*store, &next, now.revision).await == Swap::Done {
                        break;
                    }
                }
            }
        }
    })
    .await;
    let end = stored(&*stores.two, &record).await.expect("there");
    assert_eq!(
        end.revision, 41,
        "8 writers of 5 steps each from revision 1"
    );
}

pub(super) async fn against_removal(stores: &Handles) {
    for _ in 0..10 {
        let record = owned("ann").into_record();
        insert(&*stores.one, &record).await;
        at_once(4, |n| {
            let (store, record) = (stores.nth(n / 2), record.clone());
            async move {
                if n.is_multiple_of(2) {
                    store
                        .remove(record.id.as_str(), &Access::System)
                        .await
                        .expect("remove");
                } else {
                    swap(&*store, &cancelled(&record), 1).await;
                }
            }
        })
        .await;
        assert_eq!(
            stored(&*stores.two, &record).await,
            None,
            "a swap does not bring a removed record back"
        );
    }
    let listed = stores
        .one
        .list(&crate::task::Owner::principal("ann"), None, 100)
        .await
        .expect("list");
    assert!(listed.is_empty(), "nor into a list");
    let expired = stores
        .one
        .expired(*samples::END, 100)
        .await
        .expect("expired");
    assert!(expired.is_empty(), "nor among the expired");
}
