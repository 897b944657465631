//! Inserts: conflicts, quota, and who sees what.

use super::{
    Handles, access, at_once, bearer, insert, quota,
    samples::{self, NO_LIMIT, cancelled, owned, said},
    stored,
};
use crate::{
    store::{Access, InsertError, QuotaScope, Swap},
    task::TaskId,
};

fn is_quota(result: &Result<(), InsertError>, expected: QuotaScope, value: u64) -> bool {
    matches!(result, Err(InsertError::Quota { scope, limit }) if *scope == expected && *limit == value)
}

pub(super) async fn conflicts(stores: &Handles) {
    let (one, two) = (&*stores.one, &*stores.two);
    let first = owned("ann").external("job-1").into_record();
    insert(one, &first).await;

    let same_id = owned("bob").id(&first.id).external("job-2").into_record();
    let refused = two.insert(same_id, NO_LIMIT).await;
    assert!(
        matches!(refused, Err(InsertError::Conflict("id"))),
        "a taken id is a conflict, got {refused:?}"
    );

    let same_external = owned("bob").external("job-1").into_record();
    let refused = two.insert(same_external.clone(), NO_LIMIT).await;
    assert!(
        matches!(refused, Err(InsertError::Conflict("external id"))),
        "a taken external id is a conflict, got {refused:?}"
    );
    assert_eq!(
        stored(one, &same_external).await,
        None,
        "a refused insert leaves nothing behind"
    );
    let unchanged = two
        .find_external("job-1", &Access::System)
        .await
        .expect("find_external");
    assert_eq!(
        unchanged,
        Some(first.clone()),
        "a refused insert overwrites nothing"
    );
    let free = two
        .find_external("job-2", &Access::System)
        .await
        .expect("find_external");
    assert_eq!(free, None, "a refused insert leaves no external id behind");

    // Neither refusal took a place: exactly one task is counted, for ann.
    let third = owned("bob").external("job-2").into_record();
    one.insert(third.clone(), quota(2, 1))
        .await
        .expect("refused inserts count nowhere");

    // Expired and ended records keep their names until they are removed.
    assert_eq!(
        two.replace(cancelled(&third), 1, &Access::System)
            .await
            .expect("replace"),
        Swap::Done
    );
    let refused = one
        .insert(owned("cid").external("job-2").into_record(), NO_LIMIT)
        .await;
    assert!(
        matches!(refused, Err(InsertError::Conflict("external id"))),
        "an ended task keeps its external id"
    );
    assert!(
        one.remove(third.id.as_str(), &Access::System)
            .await
            .expect("remove")
    );
    insert(
        two,
        &owned("cid").id(&third.id).external("job-2").into_record(),
    )
    .await;
}

pub(super) async fn racing_for_one_id(stores: &Handles) {
    let id = TaskId::random();
    let results = at_once(32, |n| {
        let (store, record) = (
            stores.nth(n),
            owned(&format!("owner-{n}")).id(&id).into_record(),
        );
        async move { store.insert(record, NO_LIMIT).await }
    })
    .await;
    let won = results.iter().filter(|result| result.is_ok()).count();
    assert_eq!(won, 1, "of racing inserts with one id exactly one succeeds");
    let lost = results
        .iter()
        .filter(|result| matches!(result, Err(InsertError::Conflict(_))))
        .count();
    assert_eq!(lost, 31, "the others are conflicts");

    let results = at_once(32, |n| {
        let (store, record) = (
            stores.nth(n),
            owned("ann").external("one-job").into_record(),
        );
        async move { store.insert(record, NO_LIMIT).await.is_ok() }
    })
    .await;
    let won = results.into_iter().filter(|won| *won).count();
    assert_eq!(
        won, 1,
        "of racing inserts with one external id exactly one succeeds"
    );
}

pub(super) async fn quota_in_all(stores: &Handles) {
    let limit = quota(3, 100);
    for n in 0..3 {
        let sample = [samples::bearer(), owned("ann").hidden(), owned("bob")]
            .into_iter()
            .nth(n)
            .expect("three");
        stores
            .nth(n)
            .insert(sample.into_record(), limit)
            .await
            .expect("below the limit");
    }
    let over = samples::bearer().into_record();
    let refused = stores.two.insert(over.clone(), limit).await;
    assert!(
        is_quota(&refused, QuotaScope::Total, 3),
        "the total is limited, got {refused:?}"
    );
    assert_eq!(
        stored(&*stores.one, &over).await,
        None,
        "a refused insert leaves nothing behind"
    );
    // The quota is the caller's: another may allow more.
    stores
        .one
        .insert(over, quota(4, 100))
        .await
        .expect("below a higher limit");
}

pub(super) async fn quota_per_key(stores: &Handles) {
    let limit = quota(100, 2);
    let ended = owned("ann").into_record();
    stores
        .one
        .insert(ended.clone(), limit)
        .await
        .expect("first");
    stores
        .two
        .insert(owned("ann").hidden().into_record(), limit)
        .await
        .expect("second");
    stores
        .one
        .replace(cancelled(&ended), 1, &Access::System)
        .await
        .expect("replace");
    let refused = stores.one.insert(owned("ann").into_record(), limit).await;
    assert!(
        is_quota(&refused, QuotaScope::PerKey, 2),
        "hidden and ended tasks count for their key, got {refused:?}"
    );
    stores
        .two
        .insert(owned("bob").into_record(), limit)
        .await
        .expect("another key has its own places");
    // The key counts, not the owner; tasks without a key count in all only.
    stores
        .two
        .insert(samples::bearer().quota_key("session").into_record(), limit)
        .await
        .expect("session 1");
    stores
        .one
        .insert(samples::bearer().quota_key("session").into_record(), limit)
        .await
        .expect("session 2");
    let refused = stores
        .one
        .insert(samples::bearer().quota_key("session").into_record(), limit)
        .await;
    assert!(
        is_quota(&refused, QuotaScope::PerKey, 2),
        "a bearer task counts for its quota key, got {refused:?}"
    );
    for n in 0..3 {
        stores
            .nth(n)
            .insert(samples::bearer().into_record(), limit)
            .await
            .expect("no key, no limit per key");
    }
}

pub(super) async fn racing_for_the_last_places(stores: &Handles) {
    let race = async |name: &'static str, limit| {
        let results = at_once(64, |n| {
            let (store, record) = (stores.nth(n), owned(name).into_record());
            async move { store.insert(record, limit).await }
        })
        .await;
        for refused in results.iter().filter(|result| result.is_err()) {
            assert!(
                matches!(refused, Err(InsertError::Quota { .. })),
                "a loser is refused by quota, got {refused:?}"
            );
        }
        results.iter().filter(|result| result.is_ok()).count()
    };
    assert_eq!(
        race("ann", quota(1000, 10)).await,
        10,
        "64 racing inserts for 10 places of a key: exactly 10 succeed"
    );
    assert_eq!(
        race("bob", quota(20, 1000)).await,
        10,
        "64 racing inserts for 10 places in all: exactly 10 succeed"
    );
}

pub(super) async fn remove_frees(stores: &Handles) {
    let limit = quota(1, 1);
    for n in 0..3 {
        let record = owned("ann").external("job").into_record();
        stores
            .nth(n)
            .insert(record.clone(), limit)
            .await
            .expect("the place was freed");
        let removed = stores
            .nth(n + 1)
            .remove(record.id.as_str(), &Access::System)
            .await
            .expect("remove");
        assert!(removed, "remove says that the record was there");
        assert_eq!(
            stored(&*stores.nth(n), &record).await,
            None,
            "a removed record is gone"
        );
        let by_name = stores
            .one
            .find_external("job", &Access::System)
            .await
            .expect("find_external");
        assert_eq!(by_name, None, "its external id too");
        let again = stores
            .nth(n)
            .remove(record.id.as_str(), &Access::System)
            .await
            .expect("remove");
        assert!(!again, "a second remove finds nothing");
    }
    // Racing removals free one place.
    let record = owned("ann").into_record();
    stores
        .one
        .insert(record.clone(), limit)
        .await
        .expect("insert");
    let removed = at_once(16, |n| {
        let (store, id) = (stores.nth(n), record.id.clone());
        async move {
            store
                .remove(id.as_str(), &Access::System)
                .await
                .expect("remove")
        }
    })
    .await;
    assert_eq!(
        removed.into_iter().filter(|removed| *removed).count(),
        1,
        "one of racing removals removes"
    );
    stores
        .one
        .insert(owned("ann").into_record(), limit)
        .await
        .expect("one place was freed");
    let refused = stores.two.insert(owned("bob").into_record(), limit).await;
    assert!(
        is_quota(&refused, QuotaScope::Total, 1),
        "and only one, got {refused:?}"
    );
}

pub(super) async fn isolation(stores: &Handles) {
    let (one, two) = (&*stores.one, &*stores.two);
    let ann = owned("ann").external("ann's job").into_record();
    let nobody = samples::bearer().external("nobody's job").into_record();
    // A principal whose name is that of nothing in particular is still a principal.
    let empty = owned("").external("empty's job").into_record();
    for record in [&ann, &nobody, &empty] {
        insert(one, record).await;
    }
    let cases = [
        (&ann, access("ann"), [access("bob"), bearer(), access("")]),
        (
            &nobody,
            bearer(),
            [access("ann"), access("bob"), access("")],
        ),
        (&empty, access(""), [access("ann"), bearer(), access("\0")]),
    ];
    for (record, own, others) in &cases {
        let id = record.id.as_str();
        let external = record.external_id.as_deref().expect("all have one");
        for other in others {
            let what = format!("{:?} asked as {other:?}", record.owner);
            assert_eq!(
                two.get(id, other).await.expect("get"),
                None,
                "get of {what}"
            );
            assert_eq!(
                two.find_external(external, other).await.expect("find"),
                None,
                "find_external of {what}"
            );
            let swap = two
                .replace(said(record, "mine!"), 1, other)
                .await
                .expect("replace");
            assert_eq!(swap, Swap::Missing, "replace of {what}");
            let swap = two
                .replace(said(record, "mine!"), 7, other)
                .await
                .expect("replace");
            assert_eq!(
                swap,
                Swap::Missing,
                "replace from a wrong revision of {what}"
            );
            assert!(
                !two.remove(id, other).await.expect("remove"),
                "remove of {what}"
            );
        }
        for access in [own, &Access::System] {
            let got = two.get(id, access).await.expect("get");
            assert_eq!(
                got.as_ref(),
                Some(*record),
                "get as {access:?}, after the others' tries"
            );
            let got = one.find_external(external, access).await.expect("find");
            assert_eq!(got.as_ref(), Some(*record), "find_external as {access:?}");
        }
        let swap = two
            .replace(said(record, "mine"), 1, own)
            .await
            .expect("replace");
        assert_eq!(swap, Swap::Done, "replace as {own:?}");
        assert!(
            one.remove(id, own).await.expect("remove"),
            "remove as {own:?}"
        );
    }
    let unknown = TaskId::random();
    assert_eq!(
        one.get(unknown.as_str(), &Access::System)
            .await
            .expect("get"),
        None,
        "an unknown id"
    );
    assert!(
        !one.remove(unknown.as_str(), &Access::System)
            .await
            .expect("remove"),
        "an unknown id"
    );
}
