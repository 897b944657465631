//! The store of one process: nothing survives it.

use std::{
    borrow::Borrow,
    collections::{BTreeSet, BinaryHeap, HashMap, HashSet},
    hash::{BuildHasher, Hash, Hasher, RandomState},
    ops::Bound,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;

use super::{
    Access, ChangeFeed, ChangeSender, Document, InsertError, ListKey, Quota, QuotaScope,
    StoreError, Swap, TaskStore,
};
use crate::task::{Owner, TaskId, TaskRecord, Timestamp, WorkerId};

const SHARDS: usize = 64;
/// So many that a shard of a full store grows within a fraction of a millisecond.
const RECORD_SHARDS: usize = 256;

/// Records in a sharded map: a read shares its shard with all other reads, and what a write locks is one shard of the
/// map or of an index at a time, for a few operations on it. About 1 KiB per idle task. Shared by clones; several runtimes may use one.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// By task id. No other lock is taken while one of these is held.
    records: Vec<RwLock<HashSet<ById>>>,
    total: AtomicU64,
    /// By owner or quota key.
    owners: Vec<Mutex<OwnerShard>>,
    /// By task id: when lifetimes end.
    expiry: Vec<Mutex<BTreeSet<(Timestamp, TaskId)>>>,
    external: Mutex<HashMap<Arc<str>, TaskId>>,
    workers: Mutex<HashMap<WorkerId, WorkerEntry>>,
    documents: Mutex<HashMap<String, Document>>,
    hasher: RandomState,
    feed: ChangeSender,
}

/// A record, found by its id.
#[derive(Debug)]
struct ById(Arc<TaskRecord>);

impl Borrow<str> for ById {
    fn borrow(&self) -> &str {
        self.0.id.as_str()
    }
}

impl Hash for ById {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id.as_str().hash(state);
    }
}

impl PartialEq for ById {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for ById {}

#[derive(Debug, Default)]
struct OwnerShard {
    counts: HashMap<Arc<str>, u64>,
    lists: HashMap<Arc<str>, BTreeSet<(Timestamp, TaskId)>>,
}

#[derive(Debug, Default)]
struct WorkerEntry {
    until: Option<Timestamp>,
    /// Tasks it runs that have not ended.
    running: BTreeSet<TaskId>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            records: (0..RECORD_SHARDS).map(|_| RwLock::default()).collect(),
            total: AtomicU64::new(0),
            owners: (0..SHARDS).map(|_| Mutex::default()).collect(),
            expiry: (0..SHARDS).map(|_| Mutex::default()).collect(),
            external: Mutex::default(),
            workers: Mutex::default(),
            documents: Mutex::default(),
            hasher: RandomState::new(),
            feed: ChangeSender::new(),
        }
    }
}

/// A poisoned index is still whole: no code between lock and unlock can panic half-way through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn owner_shard(&self, name: &str) -> MutexGuard<'_, OwnerShard> {
        lock(&self.owners[self.shard(name, SHARDS)])
    }

    fn expiry_shard(&self, id: &TaskId) -> MutexGuard<'_, BTreeSet<(Timestamp, TaskId)>> {
        lock(&self.expiry[self.shard(id.as_str(), SHARDS)])
    }

    fn shard(&self, text: &str, shards: usize) -> usize {
        // The remainder is below the number of shards, which fits.
        usize::try_from(self.hasher.hash_one(text) % shards as u64).unwrap_or(0)
    }

    /// The shard of the records in which `id` is or would be.
    fn read(&self, id: &str) -> RwLockReadGuard<'_, HashSet<ById>> {
        let shard = &self.records[self.shard(id, RECORD_SHARDS)];
        shard.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, id: &str) -> RwLockWriteGuard<'_, HashSet<ById>> {
        let shard = &self.records[self.shard(id, RECORD_SHARDS)];
        shard.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one place of the quota, or says which bound is reached.
    fn reserve(&self, key: Option<&Arc<str>>, quota: Quota) -> Result<(), InsertError> {
        let taken = self
            .total
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
                (n < quota.total).then_some(n + 1)
            });
        if taken.is_err() {
            return Err(InsertError::Quota {
                scope: QuotaScope::Total,
                limit: quota.total,
            });
        }
        if let Some(key) = key {
            let mut shard = self.owner_shard(key);
            let count = shard.counts.get(key).copied().unwrap_or(0);
            if count >= quota.per_key {
                drop(shard);
                self.total.fetch_sub(1, Ordering::AcqRel);
                return Err(InsertError::Quota {
                    scope: QuotaScope::PerKey,
                    limit: quota.per_key,
                });
            }
            shard.counts.insert(key.clone(), count + 1);
        }
        Ok(())
    }

    fn give_back(&self, key: Option<&Arc<str>>) {
        self.total.fetch_sub(1, Ordering::AcqRel);
        if let Some(key) = key {
            let mut shard = self.owner_shard(key);
            if let Some(count) = shard.counts.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    shard.counts.remove(key);
                    shrink(&mut shard.counts);
                }
            }
        }
    }

    fn visible(&self, id: &str, access: &Access) -> Option<Arc<TaskRecord>> {
        let records = self.read(id);
        let record = records.get(id).map(|ById(record)| record);
        record.filter(|record| access.covers(record)).cloned()
    }

    fn index(&self, record: &Arc<TaskRecord>) {
        if let Some(at) = record.expires_at() {
            self.expiry_shard(&record.id)
                .insert((at, record.id.clone()));
        }
        if let (false, Owner::Principal(name)) = (record.hidden, &record.owner) {
            self.owner_shard(name)
                .lists
                .entry(name.clone())
                .or_default()
                .insert((record.created_at, record.id.clone()));
        }
        self.index_worker(None, Some(record));
    }

    fn unindex(&self, record: &Arc<TaskRecord>) {
        if let Some(at) = record.expires_at() {
            self.expiry_shard(&record.id)
                .remove(&(at, record.id.clone()));
        }
        if let (false, Owner::Principal(name)) = (record.hidden, &record.owner) {
            let mut shard = self.owner_shard(name);
            if let Some(list) = shard.lists.get_mut(name) {
                list.remove(&(record.created_at, record.id.clone()));
                if list.is_empty() {
                    shard.lists.remove(name);
                    shrink(&mut shard.lists);
                }
            }
        }
        if let Some(external) = &record.external_id {
            let mut names = lock(&self.external);
            // The name may have been given to another task meanwhile.
            if names.get(external) == Some(&record.id) {
                names.remove(external);
            }
        }
        self.index_worker(Some(record), None);
    }

    /// Moves a task between the workers' sets, if the step from `before` to `after` changes who runs it.
    fn index_worker(&self, before: Option<&TaskRecord>, after: Option<&TaskRecord>) {
        fn runs(record: Option<&TaskRecord>) -> Option<(&WorkerId, &TaskId)> {
            record
                .filter(|record| !record.is_terminal())
                .and_then(|record| record.worker.as_ref().map(|worker| (worker, &record.id)))
        }
        let (before, after) = (runs(before), runs(after));
        if before == after {
            return;
        }
        let mut workers = lock(&self.workers);
        if let Some((worker, id)) = before
            && let Some(entry) = workers.get_mut(worker)
        {
            entry.running.remove(id);
        }
        // Steps that race come here in any order, so what counts is what is stored now, not this step's record.
        let stored = before
            .or(after)
            .and_then(|(_, id)| self.visible(id.as_str(), &Access::System));
        if let Some((worker, id)) = runs(stored.as_deref()) {
            workers
                .entry(worker.clone())
                .or_default()
                .running
                .insert(id.clone());
        }
    }
}

/// Gives memory back after a burst: a map that is mostly empty shrinks.
fn shrink<K: Eq + std::hash::Hash, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > 64 && map.len() * 4 < map.capacity() {
        map.shrink_to(map.len() * 2);
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many records are kept.
    pub fn len(&self) -> usize {
        let shards = self.0.records.iter();
        shards
            .map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner).len())
            .sum()
    }

    /// How many entries all indexes together have: none when no record is kept.
    #[doc(hidden)]
    pub fn index_entries(&self) -> usize {
        let inner = &*self.0;
        let owners = |shard: &Mutex<OwnerShard>| {
            let shard = lock(shard);
            shard.counts.len()
                + shard
                    .lists
                    .values()
                    .map(|list| 1 + list.len())
                    .sum::<usize>()
        };
        let running: usize = lock(&inner.workers)
            .values()
            .map(|entry| entry.running.len())
            .sum();
        inner.owners.iter().map(owners).sum::<usize>()
            + inner
                .expiry
                .iter()
                .map(|shard| lock(shard).len())
                .sum::<usize>()
            + lock(&inner.external).len()
            + running
    }

    /// Whether no record is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[async_trait]
impl TaskStore for MemoryStore {
    async fn insert(&self, record: Arc<TaskRecord>, quota: Quota) -> Result<(), InsertError> {
        let inner = &*self.0;
        inner.reserve(record.quota_key.as_ref(), quota)?;
        if let Some(external) = &record.external_id {
            let mut names = lock(&inner.external);
            if names.contains_key(external) {
                drop(names);
                inner.give_back(record.quota_key.as_ref());
                return Err(InsertError::Conflict("external id"));
            }
            names.insert(external.clone(), record.id.clone());
        }
        let inserted = inner.write(record.id.as_str()).insert(ById(record.clone()));
        if !inserted {
            if let Some(external) = &record.external_id {
                lock(&inner.external).remove(external);
            }
            inner.give_back(record.quota_key.as_ref());
            return Err(InsertError::Conflict("id"));
        }
        inner.index(&record);
        // Removed already, between the two steps: then its index entries came too late.
        if !inner.read(record.id.as_str()).contains(record.id.as_str()) {
            inner.unindex(&record);
        }
        inner.feed.send(&record.id, record.revision);
        Ok(())
    }

    async fn get(&self, id: &str, access: &Access) -> Result<Option<Arc<TaskRecord>>, StoreError> {
        Ok(self.0.visible(id, access))
    }

    async fn find_external(
        &self,
        external_id: &str,
        access: &Access,
    ) -> Result<Option<Arc<TaskRecord>>, StoreError> {
        let id = lock(&self.0.external).get(external_id).cloned();
        Ok(id.and_then(|id| self.0.visible(id.as_str(), access)))
    }

    async fn replace(
        &self,
        next: Arc<TaskRecord>,
        revision: u64,
        access: &Access,
    ) -> Result<Swap, StoreError> {
        let inner = &*self.0;
        let before = {
            let mut records = inner.write(next.id.as_str());
            match records.get(next.id.as_str()) {
                Some(ById(current)) if !access.covers(current) => return Ok(Swap::Missing),
                Some(ById(current)) if current.revision != revision => return Ok(Swap::Stale),
                Some(_) => {}
                None => return Ok(Swap::Missing),
            }
            match records.replace(ById(next.clone())) {
                Some(ById(before)) => before,
                None => return Ok(Swap::Missing),
            }
        };
        if before.ttl_ms != next.ttl_ms {
            let mut shard = inner.expiry_shard(&next.id);
            if let Some(at) = before.expires_at() {
                shard.remove(&(at, next.id.clone()));
            }
            if let Some(at) = next.expires_at() {
                shard.insert((at, next.id.clone()));
            }
        }
        inner.index_worker(Some(&before), Some(&next));
        inner.feed.send(&next.id, next.revision);
        Ok(Swap::Done)
    }

    async fn list(
        &self,
        owner: &Owner,
        after: Option<&ListKey>,
        limit: usize,
    ) -> Result<Vec<Arc<TaskRecord>>, StoreError> {
        let Owner::Principal(name) = owner else {
            return Ok(Vec::new());
        };
        let access = Access::Owner(owner.clone());
        let mut found = Vec::new();
        let mut after = after.map(|key| (key.created_at, key.id.clone()));
        // Again while there are more: what is being removed is in the index and not visible any more.
        while found.len() < limit {
            let keys: Vec<(Timestamp, TaskId)> = {
                let shard = self.0.owner_shard(name);
                let Some(list) = shard.lists.get(name) else {
                    break;
                };
                let end = after.take().map_or(Bound::Unbounded, Bound::Excluded);
                list.range((Bound::Unbounded, end))
                    .rev()
                    .take(limit - found.len())
                    .cloned()
                    .collect()
            };
            let Some(last) = keys.last().cloned() else {
                break;
            };
            after = Some(last);
            found.extend(
                keys.iter()
                    .filter_map(|(_, id)| self.0.visible(id.as_str(), &access)),
            );
        }
        Ok(found)
    }

    async fn remove(&self, id: &str, access: &Access) -> Result<bool, StoreError> {
        let inner = &*self.0;
        let removed = {
            let mut records = inner.write(id);
            let visible = records
                .get(id)
                .is_some_and(|ById(record)| access.covers(record));
            let Some(ById(removed)) = visible.then(|| records.take(id)).flatten() else {
                return Ok(false);
            };
            if records.capacity() > 64 && records.len() * 4 < records.capacity() {
                let keep = records.len() * 2;
                records.shrink_to(keep);
            }
            removed
        };
        inner.unindex(&removed);
        inner.give_back(removed.quota_key.as_ref());
        inner.feed.send(&removed.id, u64::MAX);
        Ok(true)
    }

    async fn expired(&self, now: Timestamp, limit: usize) -> Result<Vec<TaskId>, StoreError> {
        let inner = &*self.0;
        // The `limit` nearest so far, the last of them on top: a shard is left as soon as it has none nearer.
        let mut nearest: BinaryHeap<(Timestamp, TaskId)> = BinaryHeap::new();
        for shard in &inner.expiry {
            let mut shard = lock(shard);
            let mut left_behind = Vec::new();
            for entry in shard.iter().take_while(|(at, _)| *at <= now) {
                if nearest.len() >= limit && nearest.peek().is_none_or(|last| entry >= last) {
                    break;
                }
                let real = inner
                    .visible(entry.1.as_str(), &Access::System)
                    .is_some_and(|record| record.expires_at() == Some(entry.0));
                if !real {
                    left_behind.push(entry.clone());
                    continue;
                }
                nearest.push(entry.clone());
                if nearest.len() > limit {
                    nearest.pop();
                }
            }
            // By a racing write.
            for entry in left_behind {
                shard.remove(&entry);
            }
        }
        let found = nearest.into_sorted_vec();
        Ok(found.into_iter().map(|(_, id)| id).collect())
    }

    async fn next_expiry(&self) -> Result<Option<Timestamp>, StoreError> {
        let first =
            |shard: &Mutex<BTreeSet<(Timestamp, TaskId)>>| lock(shard).first().map(|(at, _)| *at);
        Ok(self.0.expiry.iter().filter_map(first).min())
    }

    async fn heartbeat(&self, worker: &WorkerId, until: Timestamp) -> Result<(), StoreError> {
        lock(&self.0.workers)
            .entry(worker.clone())
            .or_default()
            .until = Some(until);
        Ok(())
    }

    async fn release(&self, worker: &WorkerId) -> Result<(), StoreError> {
        if let Some(entry) = lock(&self.0.workers).get_mut(worker) {
            entry.until = None;
        }
        Ok(())
    }

    async fn orphans(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<Arc<TaskRecord>>, StoreError> {
        let left: Vec<(WorkerId, TaskId)> = {
            let mut workers = lock(&self.0.workers);
            let lapsed = |entry: &WorkerEntry| entry.until.is_none_or(|until| until <= now);
            for (worker, entry) in workers.iter_mut().filter(|(_, entry)| lapsed(entry)) {
                // An entry that a racing write left behind is dropped here.
                entry.running.retain(|id| {
                    self.0
                        .visible(id.as_str(), &Access::System)
                        .is_some_and(|record| {
                            !record.is_terminal() && record.worker.as_ref() == Some(worker)
                        })
                });
            }
            workers.retain(|_, entry| !(lapsed(entry) && entry.running.is_empty()));
            workers
                .iter()
                .filter(|(_, entry)| lapsed(entry))
                .flat_map(|(worker, entry)| {
                    entry.running.iter().map(|id| (worker.clone(), id.clone()))
                })
                .take(limit)
                .collect()
        };
        // Read without the lock: what has been taken over meanwhile is its new worker's, which lives.
        let still = |(worker, id): &(WorkerId, TaskId)| {
            let record = self.0.visible(id.as_str(), &Access::System)?;
            (!record.is_terminal() && record.worker.as_ref() == Some(worker)).then_some(record)
        };
        Ok(left.iter().filter_map(still).collect())
    }

    async fn put_document(&self, key: &str, document: Document) -> Result<(), StoreError> {
        lock(&self.0.documents).insert(key.to_owned(), document);
        Ok(())
    }

    async fn put_document_if_absent(
        &self,
        key: &str,
        document: Document,
    ) -> Result<Document, StoreError> {
        Ok(lock(&self.0.documents)
            .entry(key.to_owned())
            .or_insert(document)
            .clone())
    }

    async fn get_document(&self, key: &str) -> Result<Option<Document>, StoreError> {
        Ok(lock(&self.0.documents).get(key).cloned())
    }

    async fn remove_document(&self, key: &str) -> Result<(), StoreError> {
        lock(&self.0.documents).remove(key);
        Ok(())
    }

    async fn remove_expired_documents(&self, now: Timestamp) -> Result<(), StoreError> {
        lock(&self.0.documents).retain(|_, document| document.expires_at.is_none_or(|at| at > now));
        Ok(())
    }

    fn changes(&self) -> ChangeFeed {
        self.0.feed.subscribe()
    }

    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Change, Generation, NewTask, Origin, RawJson};

    const QUOTA: Quota = Quota {
        total: 10,
        per_key: 10,
    };

    fn record(worker: Option<WorkerId>, at: u64) -> Arc<TaskRecord> {
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
            id: TaskId::random(),
            owner: Owner::principal("alice"),
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
        Arc::new(TaskRecord::create(new, Timestamp::from_millis(at)))
    }

    #[tokio::test]
    async fn what_is_half_removed_does_not_end_a_list() {
        let store = MemoryStore::new();
        let records: Vec<_> = (0..4).map(|at| record(None, at)).collect();
        for record in &records {
            store.insert(record.clone(), QUOTA).await.unwrap();
        }
        // In the middle of being removed: gone, and still in the index.
        for gone in [&records[3], &records[2]] {
            store.0.write(gone.id.as_str()).remove(gone.id.as_str());
        }
        let page = store
            .list(&Owner::principal("alice"), None, 2)
            .await
            .unwrap();
        assert_eq!(page, [records[1].clone(), records[0].clone()]);
    }

    #[tokio::test]
    async fn the_longest_expired_come_first_whatever_their_shard() {
        let store = MemoryStore::new();
        let mut ids = Vec::new();
        let all = Quota {
            total: 1000,
            per_key: 1000,
        };
        for at in 0..500 {
            let mut record = (*record(None, at)).clone();
            record.ttl_ms = Some(10);
            ids.push(record.id.clone());
            store.insert(Arc::new(record), all).await.unwrap();
        }
        let expired = |now, limit| store.expired(Timestamp::from_millis(now), limit);
        assert_eq!(expired(10_000, 100).await.unwrap(), ids[..100]);
        assert_eq!(expired(10_000, 1000).await.unwrap(), ids);
        assert_eq!(expired(59, 100).await.unwrap(), ids[..50]);
        assert!(expired(9, 100).await.unwrap().is_empty());
        assert!(expired(10_000, 0).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn of_racing_writes_the_newest_decides_who_runs_the_task() {
        let store = MemoryStore::new();
        let (old, new) = (WorkerId::random(), WorkerId::random());
        let first = record(Some(old.clone()), 0);
        let step = |record: &TaskRecord, change| {
            Arc::new(record.apply(change, record.updated_at, None).unwrap())
        };
        let second = step(&first, Change::TakeOver { worker: new });
        let third = step(&second, Change::Cancel { message: None });
        store.insert(first.clone(), QUOTA).await.unwrap();
        for next in [&second, &third] {
            let before = next.revision - 1;
            let swap = store
                .replace(next.clone(), before, &Access::System)
                .await
                .unwrap();
            assert_eq!(swap, Swap::Done);
        }
        // The take-over gets to its index only now.
        store.0.index_worker(Some(&first), Some(&second));
        let now = Timestamp::from_millis(u64::MAX);
        let entries = || {
            lock(&store.0.workers)
                .values()
                .map(|entry| entry.running.len())
                .sum::<usize>()
        };
        assert_eq!(entries(), 0);
        assert!(store.orphans(now, 10).await.unwrap().is_empty());
        store
            .remove(first.id.as_str(), &Access::System)
            .await
            .unwrap();
        assert_eq!(store.index_entries(), 0);
    }
}
