//! Documents.

use super::{Handles, at_once, samples::at};
use crate::store::Document;

fn document(body: &[u8]) -> Document {
    Document {
        body: body.to_vec(),
        expires_at: None,
    }
}

pub(super) async fn keep_and_forget(stores: &Handles) {
    let (one, two) = (&*stores.one, &*stores.two);
    let get = async |key: &str| two.get_document(key).await.expect("get_document");
    assert_eq!(get("a").await, None, "nothing is kept at first");
    let bytes: Vec<u8> = (0..=255).collect();
    one.put_document("a", document(&bytes)).await.expect("put");
    one.put_document("", document(b"")).await.expect("put");
    assert_eq!(get("a").await, Some(document(&bytes)), "every byte is kept");
    assert_eq!(
        get("").await,
        Some(document(b"")),
        "an empty document under an empty key"
    );
    two.put_document(
        "a",
        Document {
            body: b"2".to_vec(),
            expires_at: Some(at(5)),
        },
    )
    .await
    .expect("put");
    let kept = one
        .put_document_if_absent("a", document(b"3"))
        .await
        .expect("put_if_absent");
    assert_eq!(
        kept,
        Document {
            body: b"2".to_vec(),
            expires_at: Some(at(5))
        },
        "the last writer wins, and stays"
    );
    let kept = one
        .put_document_if_absent("b", document(b"3"))
        .await
        .expect("put_if_absent");
    assert_eq!(kept, document(b"3"), "an absent document is put");
    one.remove_document("b").await.expect("remove");
    one.remove_document("b")
        .await
        .expect("removing nothing is nothing");
    assert_eq!(get("b").await, None, "a removed document is gone");

    one.put_document(
        "later",
        Document {
            body: vec![1],
            expires_at: Some(at(6)),
        },
    )
    .await
    .expect("put");
    two.remove_expired_documents(at(4))
        .await
        .expect("remove_expired");
    assert!(get("a").await.is_some(), "its time has not passed");
    two.remove_expired_documents(at(5))
        .await
        .expect("remove_expired");
    assert_eq!(get("a").await, None, "its time has passed");
    assert!(
        get("later").await.is_some() && get("").await.is_some(),
        "the others stay"
    );
}

pub(super) async fn race(stores: &Handles) {
    let kept = at_once(32, |n| {
        let store = stores.nth(n);
        async move {
            let mine = document(n.to_string().as_bytes());
            store
                .put_document_if_absent("secret", mine)
                .await
                .expect("put_if_absent")
        }
    })
    .await;
    let first = &kept[0];
    assert!(
        kept.iter().all(|document| document == first),
        "all racing callers get the same document"
    );
    let stored = stores
        .two
        .get_document("secret")
        .await
        .expect("get_document");
    assert_eq!(
        stored.as_ref(),
        Some(first),
        "and it is the one that is kept"
    );
}
