//! Stores of accounts, the files in them, and batches of these.

use super::error::DocumentError;
use super::filter::Attributes;
use super::index::{FileSegment, StoreIndex};
use super::library::{Library, VectorStore, new_id, own};
use super::members::{BatchInfo, FileCounts, MemberInfo, MemberState, NewMember, StoreInfo, StoreRow};
use super::tables;
use crate::limits::{STORE_BATCHES_MAX, STORE_FILES_MAX, STORES_MAX};
use crate::metrics;
use chimere_engine::ids::KeyId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a client says of a new store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewStore {
    /// As people call it.
    pub name: String,
    /// More words about it.
    pub description: Option<String>,
    /// Pairs that clients keep with it.
    pub metadata: BTreeMap<String, String>,
    /// Files that it begins with.
    pub files: Vec<NewMember>,
}

/// What a client changes of a store; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreChange {
    /// The name from now on.
    pub name: Option<String>,
    /// Other pairs, in the place of all that were there.
    pub metadata: Option<BTreeMap<String, String>>,
}

impl Library {
    /// What is known of a store.
    pub(super) fn describe(&self, store: &VectorStore) -> StoreInfo {
        store.info(self.settings.vectors.as_ref())
    }

    /// Makes a store with files.
    pub(super) fn create_store(&self, owner: KeyId, new: NewStore, now: u64) -> Result<StoreInfo, DocumentError> {
        let mut changing = self.changing();
        let got = own(&self.stores.read(), owner).len();
        if got >= STORES_MAX {
            return Err(DocumentError::TooMany { what: "vector stores", got, more: 1, max: STORES_MAX });
        }
        let NewStore { name, description, metadata, files } = new;
        let (id, number) = (new_id("vs_"), changing.next_number());
        let row = StoreRow { id: id.clone(), number, created: now, name, description, metadata };
        let store = Arc::new(VectorStore::of(owner, row.clone()));
        // There is nothing to read.
        let index = self.empty_index();
        store.count(&index);
        *store.index.write() = Some(index);
        let members = self.new_members(&store, files, now, || changing.next_number())?;
        changing.write(|txn| {
            tables::put_store(txn, owner, &row)?;
            members.iter().try_for_each(|member| tables::put_member(txn, store.key(), member, Some(&[])))
        })?;
        store.state.write().members.extend(members.into_iter().map(|member| (member.file_id.clone(), member)));
        self.stores.write().insert((owner, id), store.clone());
        self.export();
        Ok(self.describe(&store))
    }

    /// Changes what a client says of a store.
    pub(super) fn update_store(
        &self,
        owner: KeyId,
        id: &str,
        change: StoreChange,
        now: u64,
    ) -> Result<StoreInfo, DocumentError> {
        let changing = self.changing();
        let store = self.store(owner, id)?;
        let mut row = store.state.read().row.clone();
        row.name = change.name.unwrap_or(row.name);
        row.metadata = change.metadata.unwrap_or(row.metadata);
        changing.write(|txn| tables::put_store(txn, owner, &row))?;
        store.state.write().row = row;
        store.active.store(now, Ordering::Relaxed);
        Ok(self.describe(&store))
    }

    /// Removes a store; its files stay the account's.
    pub(super) fn remove_store(&self, owner: KeyId, id: &str) -> Result<(), DocumentError> {
        let changing = self.changing();
        let store = self.store(owner, id)?;
        changing.write(|txn| tables::remove_store(txn, owner, id))?;
        self.stores.write().remove(&(owner, id.to_owned()));
        store.state.write().members.clear();
        let bytes = store.index.write().take().map_or(0, |index| index.bytes());
        self.index_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.export();
        Ok(())
    }

    /// Files as they begin in a store: each of the account's, and not too many.
    fn new_members(
        &self,
        store: &VectorStore,
        files: Vec<NewMember>,
        now: u64,
        mut next_number: impl FnMut() -> u64,
    ) -> Result<Vec<MemberInfo>, DocumentError> {
        files.iter().try_for_each(|new| self.file(store.owner, &new.file_id).map(drop))?;
        let state = store.state.read();
        let more = files.iter().filter(|new| !state.members.contains_key(&new.file_id)).count();
        let got = state.members.len();
        if got + more > STORE_FILES_MAX {
            return Err(DocumentError::TooMany { what: "files in the store", got, more, max: STORE_FILES_MAX });
        }
        let member = |NewMember { file_id, attributes, chunking }| MemberInfo {
            file_id,
            number: next_number(),
            created: now,
            state: MemberState::InProgress,
            attributes,
            chunking,
            bytes: 0,
            chunks: 0,
        };
        Ok(files.into_iter().map(member).collect())
    }

    /// Puts files into a store, in a batch if `batched`. One that is there already begins anew.
    pub(super) fn attach(
        &self,
        owner: KeyId,
        id: &str,
        (files, batched): (Vec<NewMember>, bool),
        now: u64,
    ) -> Result<Option<BatchInfo>, DocumentError> {
        let mut changing = self.changing();
        let store = self.store(owner, id)?;
        let members = self.new_members(&store, files, now, || changing.next_number())?;
        let ids = || members.iter().map(|member| member.file_id.clone()).collect();
        let batch = batched.then(|| BatchInfo {
            id: new_id("vsfb_"),
            number: changing.next_number(),
            created: now,
            files: ids(),
            cancelled: false,
        });
        let oldest = batch.as_ref().and_then(|_| oldest_batch(&store));
        changing.write(|txn| {
            members.iter().try_for_each(|member| tables::put_member(txn, store.key(), member, Some(&[])))?;
            oldest.iter().try_for_each(|oldest| tables::remove_batch(txn, store.key(), oldest))?;
            batch.iter().try_for_each(|batch| tables::put_batch(txn, store.key(), batch))
        })?;
        members.iter().for_each(|member| self.forget(&store, &member.file_id));
        let mut state = store.state.write();
        state.members.extend(members.into_iter().map(|member| (member.file_id.clone(), member)));
        if let Some(oldest) = oldest {
            state.batches.remove(&oldest);
        }
        state.batches.extend(batch.iter().map(|batch| (batch.id.clone(), batch.clone())));
        drop(state);
        store.active.store(now, Ordering::Relaxed);
        self.export();
        Ok(batch)
    }

    /// A store's files, oldest first.
    pub(super) fn members(&self, reader: KeyId, id: &str) -> Result<Vec<MemberInfo>, DocumentError> {
        let store = self.readable(reader, id)?;
        let mut members: Vec<MemberInfo> = store.state.read().members.values().cloned().collect();
        members.sort_by_key(|member| member.number);
        Ok(members)
    }

    /// One of a store's files.
    pub(super) fn member(&self, reader: KeyId, id: &str, file: &str) -> Result<MemberInfo, DocumentError> {
        let store = self.readable(reader, id)?;
        let found = store.state.read().members.get(file).cloned();
        found.ok_or_else(|| DocumentError::NotInStore(file.to_owned()))
    }

    /// Gives a file of a store other attributes.
    pub(super) fn set_attributes(
        &self,
        owner: KeyId,
        (id, file): (&str, &str),
        attributes: Attributes,
    ) -> Result<MemberInfo, DocumentError> {
        let changing = self.changing();
        let store = self.store(owner, id)?;
        let member = MemberInfo { attributes, ..self.member(owner, id, file)? };
        changing.write(|txn| tables::put_member(txn, store.key(), &member, None))?;
        store.state.write().members.insert(file.to_owned(), member.clone());
        Ok(member)
    }

    /// Takes a file out of a store; it stays the account's.
    pub(super) fn detach(&self, owner: KeyId, id: &str, file: &str) -> Result<(), DocumentError> {
        let changing = self.changing();
        let (store, _) = (self.store(owner, id)?, self.member(owner, id, file)?);
        changing.write(|txn| tables::remove_member(txn, store.key(), file))?;
        self.forget_member(&store, file);
        Ok(())
    }

    /// Forgets a file of a store whose row on the disk is gone or begun anew.
    pub(super) fn forget_member(&self, store: &VectorStore, file: &str) {
        self.forget(store, file);
        self.export();
    }

    fn forget(&self, store: &VectorStore, file: &str) {
        store.state.write().members.remove(file);
        self.change_index(store, |index| index.remove(file));
    }

    /// Changes the index of a store, if it was read from the disk.
    pub(super) fn change_index(&self, store: &VectorStore, change: impl FnOnce(&mut StoreIndex)) {
        if let Some(index) = &mut *store.index.write() {
            let before = index.bytes();
            change(index);
            store.count(index);
            self.index_bytes.fetch_add(index.bytes(), Ordering::Relaxed);
            self.index_bytes.fetch_sub(before, Ordering::Relaxed);
        }
    }

    /// Ends the work on a file of a store, if that is still the work that began with `number`; what it found becomes
    /// searchable before anybody else changes something. False if it is not.
    pub(super) fn settle(
        &self,
        store: &VectorStore,
        (file, number): (&str, u64),
        settled: impl FnOnce(&mut MemberInfo),
        segment: Option<FileSegment>,
    ) -> Result<bool, DocumentError> {
        let changing = self.changing();
        let current = store.state.read().members.get(file).cloned();
        let Some(mut member) =
            current.filter(|member| member.number == number && member.state == MemberState::InProgress)
        else {
            return Ok(false);
        };
        settled(&mut member);
        let spans = segment.as_ref().map_or(&[][..], FileSegment::spans);
        changing.write(|txn| tables::put_member(txn, store.key(), &member, Some(spans)))?;
        store.state.write().members.insert(file.to_owned(), member);
        if let Some(segment) = segment {
            self.change_index(store, |index| index.append(segment));
        }
        self.export();
        Ok(true)
    }

    /// One of a store's batches, with the states of its files; those that were taken out again count as cancelled.
    pub(super) fn batch(&self, reader: KeyId, id: &str, batch: &str) -> Result<(BatchInfo, FileCounts), DocumentError> {
        let store = self.readable(reader, id)?;
        let state = store.state.read();
        let found = state.batches.get(batch).ok_or_else(|| DocumentError::UnknownBatch(batch.to_owned()))?;
        let states = found.files.iter().map(|file| state.members.get(file).map(|member| &member.state));
        let counts = FileCounts::of(states.map(|state| state.unwrap_or(&MemberState::Cancelled)));
        Ok((found.clone(), counts))
    }

    /// Gives up the files of a batch that are not searchable yet.
    pub(super) fn cancel_batch(&self, owner: KeyId, id: &str, batch: &str) -> Result<(), DocumentError> {
        let changing = self.changing();
        let (store, (mut batch, _)) = (self.store(owner, id)?, self.batch(owner, id, batch)?);
        batch.cancelled = true;
        let mut waiting: Vec<MemberInfo> = {
            let state = store.state.read();
            let members = batch.files.iter().filter_map(|file| state.members.get(file));
            members.filter(|member| member.state == MemberState::InProgress).cloned().collect()
        };
        waiting.iter_mut().for_each(|member| member.state = MemberState::Cancelled);
        changing.write(|txn| {
            waiting.iter().try_for_each(|member| tables::put_member(txn, store.key(), member, Some(&[])))?;
            tables::put_batch(txn, store.key(), &batch)
        })?;
        let mut state = store.state.write();
        state.members.extend(waiting.into_iter().map(|member| (member.file_id.clone(), member)));
        state.batches.insert(batch.id.clone(), batch);
        drop(state);
        self.export();
        Ok(())
    }

    /// Tells the metrics what there is.
    pub(super) fn export(&self) {
        let stores = self.stores.read();
        let (mut counts, mut waiting) = (FileCounts::default(), 0);
        for store in stores.values() {
            waiting += if self.settings.vectors.is_some() { store.passages_waiting().1 } else { 0 };
            let own = FileCounts::of(store.state.read().members.values().map(|member| &member.state));
            counts.in_progress += own.in_progress;
            counts.completed += own.completed;
            counts.failed += own.failed;
            counts.cancelled += own.cancelled;
        }
        export(counts, self.index_bytes.load(Ordering::Relaxed), waiting);
    }
}

/// Tells the metrics of so many files by their states, of the bytes of all indices, and of so many passages that wait
/// for their vectors.
pub(super) fn export(counts: FileCounts, index_bytes: u64, waiting: usize) {
    let numbers = [counts.in_progress, counts.completed, counts.cancelled, counts.failed];
    for (state, number) in MemberState::NAMES.into_iter().zip(numbers) {
        ::metrics::gauge!(metrics::STORE_FILES, "state" => state).set(number as f64);
    }
    ::metrics::gauge!(metrics::STORE_INDEX_BYTES).set(index_bytes as f64);
    ::metrics::gauge!(metrics::STORE_VECTORS_WAITING).set(waiting as f64);
}

/// The batch that is forgotten for a new one, where there are as many as there may be.
fn oldest_batch(store: &VectorStore) -> Option<String> {
    let state = store.state.read();
    let is_full = state.batches.len() >= STORE_BATCHES_MAX;
    let oldest = state.batches.values().filter(|_| is_full).min_by_key(|batch| batch.number)?;
    Some(oldest.id.clone())
}
