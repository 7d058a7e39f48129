//! All collections of a service. Each belongs to an account and to nobody else; a write is on the disk before searches
//! see it.

use super::error::CollectionError;
use super::index::{CollectionQuery, FoundItem, Index, Item};
use super::store::Store;
use crate::{limits, metrics};
use chimere_engine::ids::KeyId;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What collections are made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the model that makes the vectors; vectors of another model cannot be compared with them.
    pub model: String,
    /// Numbers of a vector.
    pub width: usize,
    /// Bytes that all collections may take in memory.
    pub bytes_max: u64,
}

/// See the file's head.
pub struct Collections {
    settings: Settings,
    all: RwLock<BTreeMap<(KeyId, String), Arc<Collection>>>,
    /// Bytes of all indices.
    bytes: AtomicU64,
    /// Held by whoever changes something, so that the disk and the memory change in the same order. `None` without a
    /// directory.
    store: Mutex<Option<Store>>,
}

struct Collection {
    model: String,
    created: u64,
    index: RwLock<Index>,
}

/// What a collection holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Name by which requests ask for the collection.
    pub name: String,
    /// The model of its vectors.
    pub model: String,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// How many items it has.
    pub items: usize,
    /// Bytes of vectors and texts, about.
    pub bytes: u64,
}

impl Info {
    fn of(name: &str, collection: &Collection) -> Self {
        let index = collection.index.read();
        let (items, bytes) = (index.len(), index.bytes());
        Self { name: name.to_owned(), model: collection.model.clone(), created: collection.created, items, bytes }
    }
}

impl Collections {
    /// Those of a directory. Without one there are none and none can be made.
    pub fn open(directory: Option<&Path>, settings: Settings) -> Result<Self, CollectionError> {
        let store = directory.map(Store::open).transpose()?;
        let stored = store.as_ref().map_or(Ok(BTreeMap::new()), |store| store.read(&settings.model, settings.width))?;
        let bytes = stored.values().map(|stored| stored.index.bytes()).sum::<u64>();
        let all = stored.into_iter().map(|(key, stored)| {
            let index = RwLock::new(stored.index);
            (key, Arc::new(Collection { model: stored.model, created: stored.created, index }))
        });
        Ok(Self { all: RwLock::new(all.collect()), bytes: AtomicU64::new(bytes), store: Mutex::new(store), settings })
    }

    /// Tells the metrics what there is. For a start: collections may be opened before there is anybody to tell.
    pub fn export(&self) {
        ::metrics::gauge!(metrics::COLLECTIONS).set(self.all.read().len() as f64);
        ::metrics::gauge!(metrics::COLLECTION_BYTES).set(self.bytes.load(Ordering::Relaxed) as f64);
    }

    /// An account's collections, by name.
    pub fn list(&self, owner: KeyId) -> Vec<Info> {
        let all = self.all.read();
        let own = all.range((owner, String::new())..).take_while(|((of, _), _)| *of == owner);
        own.map(|((_, name), collection)| Info::of(name, collection)).collect()
    }

    /// One of an account's collections.
    pub fn info(&self, owner: KeyId, name: &str) -> Result<Info, CollectionError> {
        Ok(Info::of(name, &*self.find(owner, name)?))
    }

    fn find(&self, owner: KeyId, name: &str) -> Result<Arc<Collection>, CollectionError> {
        let found = self.all.read().get(&(owner, name.to_owned())).cloned();
        found.ok_or_else(|| CollectionError::Unknown(name.to_owned()))
    }

    /// One whose vectors are those of the model that runs.
    fn find_usable(&self, owner: KeyId, name: &str) -> Result<Arc<Collection>, CollectionError> {
        let found = self.find(owner, name)?;
        if found.model == self.settings.model {
            return Ok(found);
        }
        let (made_with, now) = (found.model.clone(), self.settings.model.clone());
        Err(CollectionError::OtherModel { name: name.to_owned(), made_with, now })
    }

    /// Makes an empty collection; one that is there stays as it is. True if it is new.
    pub fn create(&self, owner: KeyId, name: &str, now: u64) -> Result<bool, CollectionError> {
        let mut store = self.store.lock();
        let store = store.as_mut().ok_or(CollectionError::NoDirectory)?;
        if self.find(owner, name).is_ok() {
            return Ok(false);
        }
        let got = self.list(owner).len();
        if got >= limits::COLLECTIONS_MAX {
            return Err(CollectionError::TooManyCollections { got });
        }
        store.create(owner, name, &self.settings.model, now)?;
        let index = RwLock::new(Index::new(self.settings.width));
        let collection = Collection { model: self.settings.model.clone(), created: now, index };
        self.all.write().insert((owner, name.to_owned()), Arc::new(collection));
        Ok(true)
    }

    /// Removes a collection with all it has. Searches under way go on.
    pub fn remove(&self, owner: KeyId, name: &str) -> Result<(), CollectionError> {
        let mut store = self.store.lock();
        let found = self.find(owner, name)?;
        store.as_mut().ok_or(CollectionError::NoDirectory)?.remove(owner, name)?;
        self.all.write().remove(&(owner, name.to_owned()));
        self.bytes.fetch_sub(found.index.read().bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// Whether these items would find room, asked before they are embedded.
    pub fn check_room(&self, owner: KeyId, name: &str, items: &[Item]) -> Result<(), CollectionError> {
        self.room(owner, name, &*self.find_usable(owner, name)?, items.iter())
    }

    fn room<'a>(
        &self,
        owner: KeyId,
        name: &str,
        collection: &Collection,
        items: impl Iterator<Item = &'a Item> + Clone,
    ) -> Result<(), CollectionError> {
        let index = collection.index.read();
        let new: HashSet<&str> = items.clone().map(|item| item.id.as_str()).filter(|id| !index.has(id)).collect();
        let (got, more, max) = (index.len(), new.len(), limits::COLLECTION_ITEMS_MAX);
        if got + more > max {
            return Err(CollectionError::TooManyItems { name: name.to_owned(), got, more, max });
        }
        // Read again below, with all others of the account.
        drop(index);
        let (all, max) = (self.bytes.load(Ordering::Relaxed), self.settings.bytes_max);
        let more: u64 = items.map(|item| Index::bytes_of(item, self.settings.width)).sum();
        let own = self.own_bytes(owner);
        // Whoever has much leaves as much for others. Where no key is asked for there are no others.
        let left = max.saturating_sub(all + more);
        let fits = all + more <= max && (owner == KeyId::default() || own + more <= left);
        if fits { Ok(()) } else { Err(CollectionError::NoMemory { got: own, more, max }) }
    }

    /// Bytes of all collections of an account.
    fn own_bytes(&self, owner: KeyId) -> u64 {
        let all = self.all.read();
        let own = all.range((owner, String::new())..).take_while(|((of, _), _)| *of == owner);
        own.map(|(_, collection)| collection.index.read().bytes()).sum()
    }

    /// Adds items with their vectors, in the place of those with the same ids. All of them are on the disk when this
    /// returns, or none is.
    pub fn add(&self, owner: KeyId, name: &str, items: Vec<(Item, Vec<f32>)>) -> Result<Info, CollectionError> {
        let mut store = self.store.lock();
        let collection = self.find_usable(owner, name)?;
        self.room(owner, name, &collection, items.iter().map(|(item, _)| item))?;
        store.as_mut().ok_or(CollectionError::NoDirectory)?.add(owner, name, &items)?;
        {
            let mut index = collection.index.write();
            let before = index.bytes();
            items.into_iter().for_each(|(item, vector)| index.put(item, &vector));
            self.bytes.fetch_add(index.bytes(), Ordering::Relaxed);
            self.bytes.fetch_sub(before, Ordering::Relaxed);
        }
        Ok(Info::of(name, &collection))
    }

    /// The `k` best items for a query, best first; with `examples` only those that have an answer. Reads all of the
    /// collection.
    pub fn search(
        &self,
        owner: KeyId,
        name: &str,
        query: &CollectionQuery<'_>,
        k: usize,
        examples: bool,
    ) -> Result<Vec<FoundItem>, CollectionError> {
        let collection = self.find_usable(owner, name)?;
        let hits = collection.index.read().find(query, k, |item| !examples || item.answer.is_some());
        Ok(hits)
    }
}

#[cfg(test)]
mod tests {
    use super::super::index::By;
    use super::*;

    const OURS: KeyId = KeyId(7);
    const THEIRS: KeyId = KeyId(8);

    fn settings(model: &str) -> Settings {
        Settings { model: model.into(), width: 2, bytes_max: 20_000 }
    }

    fn open(dir: &tempfile::TempDir) -> Collections {
        Collections::open(Some(dir.path()), settings("m")).unwrap()
    }

    fn item(id: &str, vector: [f32; 2]) -> (Item, Vec<f32>) {
        (
            Item { id: id.into(), text: format!("text of {id}"), answer: (id != "mute").then(|| "yes".into()) },
            vector.to_vec(),
        )
    }

    fn like(vector: &[f32]) -> CollectionQuery<'_> {
        CollectionQuery { vector, text: "", by: By::Both }
    }

    fn found(all: &Collections, owner: KeyId, name: &str) -> Vec<String> {
        all.search(owner, name, &like(&[1.0, 0.0]), 9, false)
            .unwrap()
            .into_iter()
            .map(|hit| hit.item.id.clone())
            .collect()
    }

    #[test]
    fn what_was_added_is_there_after_a_restart_and_what_was_removed_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let all = open(&dir);
        assert!(
            all.create(OURS, "a", 5).unwrap()
                && !all.create(OURS, "a", 6).unwrap()
                && all.create(OURS, "ab", 5).unwrap()
        );
        all.add(OURS, "a", vec![item("far", [0.0, 1.0]), item("near", [1.0, 0.0])]).unwrap();
        all.add(OURS, "a", vec![item("far", [-1.0, 0.0]), item("mute", [0.6, 0.8])]).unwrap();
        all.add(OURS, "ab", vec![item("other", [1.0, 0.0])]).unwrap();
        let infos = all.list(OURS);
        drop(all);
        let all = open(&dir);
        assert_eq!(all.list(OURS), infos);
        assert_eq!(
            (found(&all, OURS, "a"), infos[0].created),
            (vec!["near".to_owned(), "mute".into(), "far".into()], 5)
        );
        assert_eq!(
            all.search(OURS, "a", &like(&[0.6, 0.8]), 1, true).unwrap()[0].item.id,
            "near",
            "an example has an answer"
        );
        all.remove(OURS, "a").unwrap();
        drop(all);
        let all = open(&dir);
        assert_eq!((all.list(OURS).len(), found(&all, OURS, "ab")), (1, vec!["other".to_owned()]));
        assert!(all.create(OURS, "a", 9).unwrap());
        assert_eq!(found(&all, OURS, "a"), [""; 0], "nothing comes back with the name");
    }

    #[test]
    fn to_another_account_a_collection_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let all = open(&dir);
        all.create(OURS, "a", 5).unwrap();
        all.create(THEIRS, "a", 5).unwrap();
        all.add(OURS, "a", vec![item("ours", [1.0, 0.0])]).unwrap();
        assert_eq!((found(&all, THEIRS, "a").len(), all.list(THEIRS)[0].items), (0, 0));
        all.remove(THEIRS, "a").unwrap();
        assert_eq!(found(&all, OURS, "a"), ["ours"]);
        for error in [
            all.info(THEIRS, "a").unwrap_err(),
            all.add(THEIRS, "a", vec![item("x", [1.0, 0.0])]).unwrap_err(),
            all.search(THEIRS, "a", &like(&[1.0, 0.0]), 1, false).unwrap_err(),
            all.remove(THEIRS, "a").unwrap_err(),
        ] {
            assert!(matches!(error, CollectionError::Unknown(_)), "{error}");
        }
    }

    #[test]
    fn limits_hold_and_what_is_refused_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let all = open(&dir);
        all.create(OURS, "a", 5).unwrap();
        let many = (0..100).map(|i| item(&i.to_string(), [1.0, 0.0])).collect();
        let error = all.add(OURS, "a", many).unwrap_err().to_string();
        assert!(error.contains("more would exceed an account's share of 20000 (engram.collections_mib)"), "{error}");
        let items: Vec<Item> = (0..=limits::COLLECTION_ITEMS_MAX).map(|i| item(&i.to_string(), [1.0, 0.0]).0).collect();
        let error = all.check_room(OURS, "a", &items).unwrap_err().to_string();
        assert!(error.contains("has 0 items, 20001 more would exceed 20000"), "{error}");
        assert_eq!((all.list(OURS)[0].items, all.bytes.load(Ordering::Relaxed)), (0, 0));
        (1..limits::COLLECTIONS_MAX).for_each(|i| assert!(all.create(OURS, &i.to_string(), 5).unwrap()));
        assert!(matches!(
            all.create(OURS, "one more", 5),
            Err(CollectionError::TooManyCollections { got: limits::COLLECTIONS_MAX })
        ));
        assert!(all.create(THEIRS, "one more", 5).unwrap());
    }

    #[test]
    fn one_account_leaves_half_of_the_memory_for_others_and_none_is_told_what_they_have() {
        let dir = tempfile::tempdir().unwrap();
        let all = open(&dir);
        let fill = |owner: KeyId| {
            all.create(owner, "a", 5).unwrap();
            let one = |i: u32| all.add(owner, "a", vec![item(&format!("{i:04}"), [1.0, 0.0])]);
            let error = (0..).find_map(|i| one(i).err()).unwrap().to_string();
            (all.own_bytes(owner), error)
        };
        let (ours, _) = fill(OURS);
        let (theirs, error) = fill(THEIRS);
        assert!((9_600..=10_000).contains(&ours) && (4_600..=5_200).contains(&theirs), "{ours} and {theirs} of 20000");
        assert!(error.contains(&theirs.to_string()) && !error.contains(&ours.to_string()), "{error}");
    }

    #[test]
    fn vectors_of_another_model_are_refused_and_can_be_removed() {
        let dir = tempfile::tempdir().unwrap();
        let all = open(&dir);
        all.create(OURS, "a", 5).unwrap();
        all.add(OURS, "a", vec![item("x", [1.0, 0.0])]).unwrap();
        drop(all);
        let other = Settings { width: 3, ..settings("n") };
        let all = Collections::open(Some(dir.path()), other).unwrap();
        let error = all.search(OURS, "a", &like(&[1.0, 0.0, 0.0]), 1, false).unwrap_err().to_string();
        assert!(error.contains("made with the model \"m\", and \"n\" runs"), "{error}");
        all.remove(OURS, "a").unwrap();
        assert!(all.create(OURS, "a", 5).unwrap());
    }

    #[test]
    fn without_a_directory_there_are_none_and_a_damaged_file_is_named() {
        let none = Collections::open(None, settings("m")).unwrap();
        assert!(matches!(none.create(OURS, "a", 5), Err(CollectionError::NoDirectory)));
        assert!(none.list(OURS).is_empty());
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("collections.redb"), "no database").unwrap();
        let error = Collections::open(Some(dir.path()), settings("m")).err().unwrap().to_string();
        assert!(error.contains("collections.redb: "), "{error}");
    }
}
