//! Lists and expiry.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::{
    Handles, access, insert,
    samples::{self, END, at, next, owned, said},
};
use crate::{
    store::{Access, ListKey, Swap, TaskStore},
    task::{Change, Outcome, Owner, TaskId, TaskRecord},
};

/// All pages of a list, `limit` at a time.
async fn walk(store: &dyn TaskStore, owner: &Owner, limit: usize) -> Vec<Arc<TaskRecord>> {
    let mut all: Vec<Arc<TaskRecord>> = Vec::new();
    loop {
        let after = all.last().map(|record| ListKey {
            created_at: record.created_at,
            id: record.id.clone(),
        });
        let page = store
            .list(owner, after.as_ref(), limit)
            .await
            .expect("list");
        assert!(page.len() <= limit, "a page has at most `limit` records");
        if page.is_empty() {
            return all;
        }
        let again = page
            .iter()
            .find(|record| all.iter().any(|seen| seen.id == record.id));
        assert!(
            again.is_none(),
            "a page begins after its key, and no record is returned twice, got {again:?} again"
        );
        all.extend(page);
    }
}

pub(super) async fn order_and_pages(stores: &Handles) {
    let ann = Owner::principal("ann");
    let mut expected = Vec::new();
    for n in 0..25_u64 {
        // Several share a millisecond.
        let record = owned("ann").created(n / 3 * 10).into_record();
        insert(&*stores.nth(usize::from(n.is_multiple_of(2))), &record).await;
        insert(&*stores.one, &owned("bob").created(n).into_record()).await;
        expected.push(record);
    }
    expected.sort_by_key(|record| std::cmp::Reverse((record.created_at, record.id.clone())));
    for limit in [1, 7, 24, 25, 26, 1000, usize::MAX] {
        assert_eq!(
            walk(&*stores.two, &ann, limit).await,
            expected,
            "newest first, by pages of {limit}"
        );
    }
    // A page begins after the key also where no record has it any more.
    let gone = &expected[10];
    stores
        .one
        .remove(gone.id.as_str(), &access("ann"))
        .await
        .expect("remove");
    let after = ListKey {
        created_at: gone.created_at,
        id: gone.id.clone(),
    };
    let rest = stores
        .two
        .list(&ann, Some(&after), 100)
        .await
        .expect("list");
    assert_eq!(rest, expected[11..], "after the place of a removed record");
    // A change does not move a record in the list, and the list shows it.
    let changed = said(&expected[20], "changed");
    stores
        .two
        .replace(changed.clone(), 1, &Access::System)
        .await
        .expect("replace");
    let all = walk(&*stores.one, &ann, 7).await;
    assert_eq!(all.len(), 24);
    assert_eq!(
        all[19], changed,
        "a changed record is listed in its old place"
    );
}

pub(super) async fn what_is_not_listed(stores: &Handles) {
    let one = &*stores.one;
    let shown = owned("ann").into_record();
    insert(one, &shown).await;
    insert(one, &owned("ann").hidden().into_record()).await;
    insert(one, &owned("bob").into_record()).await;
    insert(one, &samples::bearer().into_record()).await;
    insert(one, &samples::bearer().quota_key("ann").into_record()).await;
    let listed = stores
        .two
        .list(&Owner::principal("ann"), None, 100)
        .await
        .expect("list");
    assert_eq!(
        listed,
        [shown],
        "neither hidden nor others' nor bearer tasks are listed"
    );
    let listed = stores
        .two
        .list(&Owner::Bearer, None, 100)
        .await
        .expect("list");
    assert!(listed.is_empty(), "bearer tasks are never listed");
    let listed = stores
        .two
        .list(&Owner::principal("nobody"), None, 100)
        .await
        .expect("list");
    assert!(listed.is_empty(), "an unknown owner has no tasks");
    let listed = stores
        .two
        .list(&Owner::principal("ann"), None, 0)
        .await
        .expect("list");
    assert!(listed.is_empty(), "at most none");
}

/// Walks while others create and remove: what is there all the time is seen exactly once.
pub(super) async fn walk_among_writers(stores: &Handles) {
    let ann = Owner::principal("ann");
    let mut steady = Vec::new();
    for n in 0..60 {
        let record = owned("ann").created(n * 2).into_record();
        insert(&*stores.one, &record).await;
        steady.push(record.id.clone());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicU64::new(0));
    let (store, stopped, count) = (stores.two.clone(), stop.clone(), written.clone());
    let writer = tokio::spawn(async move {
        let mut n = 0_u64;
        // A few stay for a while: were it ever more of them, the walk could not keep up.
        let mut staying = VecDeque::new();
        while !stopped.load(Ordering::Relaxed) {
            // Into the middle of the list as well as to its top.
            let record = owned("ann").created(n * 37 % 200).into_record();
            insert(&*store, &record).await;
            staying.push_back(record.id.clone());
            let keep = if n.is_multiple_of(2) { 40 } else { 20 };
            while staying.len() > keep
                && let Some(id) = staying.pop_front()
            {
                store
                    .remove(id.as_str(), &Access::System)
                    .await
                    .expect("remove");
            }
            n += 1;
            count.store(n, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let mut walks = 0;
    // However late the writer begins, some walks are among its writes.
    while walks < 20 || (written.load(Ordering::Relaxed) < 100 && !writer.is_finished()) {
        walks += 1;
        tokio::task::yield_now().await;
        let mut seen: HashMap<TaskId, u32> = HashMap::new();
        for record in walk(&*stores.one, &ann, 7).await {
            *seen.entry(record.id.clone()).or_default() += 1;
        }
        for id in &steady {
            assert_eq!(
                seen.get(id),
                Some(&1),
                "a record that is there all the time is returned exactly once"
            );
        }
        assert!(
            seen.values().all(|times| *times == 1),
            "no record is returned twice"
        );
    }
    stop.store(true, Ordering::Relaxed);
    writer.await.expect("the writer panicked");
}

pub(super) async fn expiry(stores: &Handles) {
    let (one, two) = (&*stores.one, &*stores.two);
    assert_eq!(
        one.next_expiry().await.expect("next_expiry"),
        None,
        "an empty store"
    );
    let forever = owned("ann").ttl(None).into_record();
    insert(one, &forever).await;
    assert_eq!(
        two.next_expiry().await.expect("next_expiry"),
        None,
        "an unlimited lifetime does not pass"
    );
    let mut records = Vec::new();
    for ttl in [300, 100, 500, 200, 400_u64] {
        let record = owned("ann")
            .created(1000 - ttl)
            .ttl(Some(2 * ttl))
            .hidden()
            .into_record();
        insert(&*stores.nth(records.len()), &record).await;
        records.push(record);
    }
    records.sort_by_key(|record| record.expires_at());
    let ids: Vec<_> = records.iter().map(|record| record.id.clone()).collect();
    assert_eq!(
        two.next_expiry().await.expect("next_expiry"),
        Some(at(1100))
    );
    let due = async |ms, limit| two.expired(at(ms), limit).await.expect("expired");
    assert_eq!(due(1099, 10).await, [], "not yet");
    assert_eq!(
        due(1100, 10).await,
        ids[..1],
        "the moment it ends, it has passed"
    );
    assert_eq!(due(1450, 10).await, ids[..4], "the longest expired first");
    assert_eq!(
        due(1450, 2).await,
        ids[..2],
        "at most `limit`, the longest expired of them"
    );
    assert_eq!(
        two.expired(*END, 10).await.expect("expired"),
        ids,
        "an unlimited one never"
    );
    let got = two
        .get(ids[0].as_str(), &Access::System)
        .await
        .expect("get");
    assert_eq!(
        got.as_ref(),
        Some(&records[0]),
        "an expired record is returned until it is removed"
    );

    // A lengthened lifetime moves.
    let longer = records[0]
        .apply(
            Change::Finish {
                outcome: Outcome::Result {
                    json: samples::json("{}"),
                    is_error: false,
                },
                message: None,
                retain_ms: 5000,
            },
            at(1100),
            None,
        )
        .expect("finish");
    assert_eq!(
        longer.expires_at(),
        Some(at(6100)),
        "the sample is as meant"
    );
    assert_eq!(
        one.replace(Arc::new(longer), 1, &Access::System)
            .await
            .expect("replace"),
        Swap::Done
    );
    assert_eq!(
        due(1450, 10).await,
        ids[1..4],
        "a lengthened lifetime has not passed"
    );
    assert_eq!(
        two.next_expiry().await.expect("next_expiry"),
        Some(at(1200))
    );
    // A change that leaves the lifetime alone leaves the expiry alone.
    let same = next(&records[1], Change::Checkpoint(samples::json("1")));
    assert_eq!(
        two.replace(same, 1, &Access::System)
            .await
            .expect("replace"),
        Swap::Done
    );
    assert_eq!(
        one.next_expiry().await.expect("next_expiry"),
        Some(at(1200))
    );
    for id in &ids[1..] {
        assert!(
            one.remove(id.as_str(), &Access::System)
                .await
                .expect("remove")
        );
    }
    assert_eq!(
        two.next_expiry().await.expect("next_expiry"),
        Some(at(6100)),
        "the removed are not waited for"
    );
    assert_eq!(two.expired(*END, 10).await.expect("expired"), ids[..1]);
}
