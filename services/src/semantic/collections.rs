//! All collections of a service. Each belongs to an account and to nobody else; a write is on the disk before searches
//! see it.

use super::error::CollectionError;
use super::index::{CollectionQuery, FoundItem, Index, Item, ProbeQuery, Ranking};
use super::self_test::{self, Hits, SENTENCES_MAX, SelfTest};
use super::store::{Store, TestHistory};
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
    /// Name of the model or of the encoder that makes the vectors; those of another one cannot be compared with them.
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
    history: RwLock<TestHistory>,
}

impl Collection {
    fn is_due(&self, model: &str) -> bool {
        let (items, history) = (self.index.read().len(), self.history.read());
        self.model == model && self_test::is_due(items, history.changes, history.test.as_ref())
    }

    /// How much the vectors count in a search by both. Nothing, until a test of this collection has found otherwise.
    fn vector_weight(&self) -> f64 {
        self.history.read().test.as_ref().map_or(0.0, |test| test.weight)
    }
}

/// By what a client wants items to be found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Words, and meaning as far as the collection's self-test has found that it helps.
    #[default]
    Both,
    /// Only the cosine between the vectors counts.
    Meaning,
    /// BM25. Items without a word of the query are not found.
    Words,
}

/// A collection whose self-test is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueTest {
    /// The account of the collection.
    pub owner: KeyId,
    /// Name of the collection.
    pub name: String,
    /// How many items were ever put into it.
    pub changes: u64,
}

/// A sentence that was taken out of an item's text, to be searched for.
#[derive(Clone, Debug)]
pub struct SentenceProbe {
    /// The item that is to be found.
    pub item: Arc<Item>,
    /// The sentence that was taken out.
    pub sentence: String,
    /// The text without the sentence.
    pub rest: String,
}

/// What a collection holds.
#[derive(Clone, Debug, PartialEq)]
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
    /// Result of the last self-test.
    pub self_test: Option<SelfTest>,
    /// So much has changed since then that another test is due.
    pub self_test_due: bool,
}

impl Info {
    fn of(name: &str, collection: &Collection, model: &str) -> Self {
        let (items, bytes) = {
            let index = collection.index.read();
            (index.len(), index.bytes())
        };
        Self {
            name: name.to_owned(),
            model: collection.model.clone(),
            created: collection.created,
            items,
            bytes,
            self_test: collection.history.read().test.clone(),
            self_test_due: collection.is_due(model),
        }
    }

    /// How much the vectors count in a search by both.
    pub fn vector_weight(&self) -> f64 {
        self.self_test.as_ref().map_or(0.0, |test| test.weight)
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
            let history = RwLock::new(stored.history);
            (key, Arc::new(Collection { model: stored.model, created: stored.created, index, history }))
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
        own.map(|((_, name), collection)| self.describe(name, collection)).collect()
    }

    /// One of an account's collections.
    pub fn info(&self, owner: KeyId, name: &str) -> Result<Info, CollectionError> {
        Ok(self.describe(name, &*self.find(owner, name)?))
    }

    fn describe(&self, name: &str, collection: &Collection) -> Info {
        Info::of(name, collection, &self.settings.model)
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
        let history = RwLock::new(TestHistory::default());
        let collection = Collection { model: self.settings.model.clone(), created: now, index, history };
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
        let mut history = collection.history.read().clone();
        history.changes += items.len() as u64;
        store.as_mut().ok_or(CollectionError::NoDirectory)?.add(owner, name, &items, &history)?;
        *collection.history.write() = history;
        {
            let mut index = collection.index.write();
            let before = index.bytes();
            items.into_iter().for_each(|(item, vector)| index.put(item, &vector));
            self.bytes.fetch_add(index.bytes(), Ordering::Relaxed);
            self.bytes.fetch_sub(before, Ordering::Relaxed);
        }
        Ok(self.describe(name, &collection))
    }

    /// How a search orders items. `examples` are items of one kind that are told apart by words: a blend for those was
    /// measured, and no self-test is asked.
    pub fn ranking(&self, owner: KeyId, name: &str, by: By, examples: bool) -> Result<Ranking, CollectionError> {
        let weight = self.find_usable(owner, name)?.vector_weight();
        Ok(match by {
            By::Meaning => Ranking::Meaning,
            By::Both if examples => Ranking::Examples,
            By::Both if weight > 0.0 => Ranking::Blend(weight as f32),
            By::Both | By::Words => Ranking::Words,
        })
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

    /// A collection whose self-test is due, if there is one.
    pub fn due_test(&self) -> Option<DueTest> {
        let all = self.all.read();
        let ((owner, name), collection) = all.iter().find(|(_, collection)| collection.is_due(&self.settings.model))?;
        Some(DueTest { owner: *owner, name: name.clone(), changes: collection.history.read().changes })
    }

    /// The sentences to search for in a test. Reads as many texts as it needs for them.
    pub fn probes(&self, due: &DueTest) -> Result<Vec<SentenceProbe>, CollectionError> {
        let collection = self.find_usable(due.owner, &due.name)?;
        let index = collection.index.read();
        let order = self_test::order(index.len(), due.changes).into_iter();
        let probe = |at: usize| {
            let item = index.item(at).clone();
            let (sentence, rest) = self_test::taken_out(&item.text, due.changes.wrapping_add(at as u64))?;
            Some(SentenceProbe { item, sentence, rest })
        };
        Ok(order.filter_map(probe).take(SENTENCES_MAX).collect())
    }

    /// With which weights of the vectors a sentence finds its text; none where that has changed meanwhile.
    pub fn probe(&self, due: &DueTest, probe: &ProbeQuery<'_>) -> Result<Option<Hits>, CollectionError> {
        Ok(self.find_usable(due.owner, &due.name)?.index.read().probe(probe))
    }

    /// Keeps the result of a test. What cannot be written counts until the service ends.
    pub fn keep_test(&self, due: &DueTest, hits: &[Hits], now: u64) -> Result<SelfTest, CollectionError> {
        let mut store = self.store.lock();
        let collection = self.find_usable(due.owner, &due.name)?;
        let mut history = collection.history.read().clone();
        let items = collection.index.read().len();
        let test = SelfTest::of(hits, (now, items, due.changes), history.test.as_ref());
        history.test = Some(test.clone());
        *collection.history.write() = history.clone();
        store.as_mut().ok_or(CollectionError::NoDirectory)?.put_test(due.owner, &due.name, &history)?;
        Ok(test)
    }
}

#[cfg(test)]
mod tests {
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
        CollectionQuery { vector, text: "", ranking: Ranking::Examples }
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

    /// 40 items of some sentences, each with its own direction.
    fn prose(all: &Collections, name: &str) {
        let text = |i: u32| format!("Of a{i} and also of b{i} quite a lot is known. It is so. It is so. It is so.");
        let item = |i: u32| Item { id: i.to_string(), text: text(i), answer: None };
        let items = (0..40).map(|i| (item(i), vec![(i as f32).cos(), (i as f32).sin()]));
        all.create(OURS, name, 5).unwrap();
        all.add(OURS, name, items.collect()).unwrap();
    }

    /// Runs a test in which sentences have their text's vector, or that of another text.
    fn tested(all: &Collections, due: &DueTest, helps: bool) -> SelfTest {
        let hit = |probe: &SentenceProbe| {
            let angle = |id: &str| id.parse::<f32>().unwrap() + if helps { 0.0 } else { 3.0 };
            let (mine, rest) = (angle(&probe.item.id), probe.item.id.parse::<f32>().unwrap());
            let (mine, rest) = ([mine.cos(), mine.sin()], [rest.cos(), rest.sin()]);
            let query = ProbeQuery { item: &probe.item, sentence: ("none", &mine), rest: (&probe.rest, &rest) };
            all.probe(due, &query).unwrap().unwrap()
        };
        let hits: Vec<Hits> = all.probes(due).unwrap().iter().map(hit).collect();
        assert_eq!(hits.len(), 40);
        all.keep_test(due, &hits, 9).unwrap()
    }

    #[test]
    fn both_means_words_until_a_test_says_otherwise_and_the_weight_outlives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { bytes_max: 1 << 20, ..settings("m") };
        let all = Collections::open(Some(dir.path()), settings.clone()).unwrap();
        prose(&all, "helped");
        prose(&all, "hurt");
        let both = |all: &Collections, name: &str| all.ranking(OURS, name, By::Both, false).unwrap();
        assert_eq!((both(&all, "helped"), all.list(OURS)[0].vector_weight()), (Ranking::Words, 0.0));
        assert!(all.list(OURS).iter().all(|info| info.self_test_due && info.self_test.is_none()));
        for (name, helps) in [("helped", true), ("hurt", false)] {
            let due = all.due_test().unwrap();
            assert_eq!((due.name.as_str(), due.changes), (name, 40));
            tested(&all, &due, helps);
        }
        assert_eq!(all.due_test(), None);
        let infos = all.list(OURS);
        drop(all);
        let all = Collections::open(Some(dir.path()), settings).unwrap();
        assert_eq!((all.list(OURS), all.due_test()), (infos, None));
        assert_eq!((both(&all, "helped"), both(&all, "hurt")), (Ranking::Blend(0.9), Ranking::Words));
        assert_eq!(all.ranking(OURS, "hurt", By::Both, true).unwrap(), Ranking::Examples);
        assert_eq!(all.ranking(OURS, "helped", By::Words, false).unwrap(), Ranking::Words);
        // A test whose collection is gone ends, and one of the same name begins anew.
        let gone = DueTest { owner: OURS, name: "helped".into(), changes: 40 };
        all.remove(OURS, "helped").unwrap();
        assert!(matches!(all.probes(&gone), Err(CollectionError::Unknown(_))));
        assert!(matches!(all.keep_test(&gone, &[], 9), Err(CollectionError::Unknown(_))));
        all.create(OURS, "helped", 9).unwrap();
        assert_eq!(all.info(OURS, "helped").unwrap().self_test, None);
    }

    #[test]
    fn a_test_is_due_again_when_a_tenth_was_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let all = Collections::open(Some(dir.path()), Settings { bytes_max: 1 << 20, ..settings("m") }).unwrap();
        prose(&all, "a");
        let due = all.due_test().unwrap();
        assert!(tested(&all, &due, true).weight > 0.5);
        (0..4).for_each(|_| drop(all.add(OURS, "a", vec![item("3", [1.0, 0.0])]).unwrap()));
        assert_eq!(all.due_test(), None);
        all.add(OURS, "a", vec![item("4", [1.0, 0.0])]).unwrap();
        assert_eq!(all.due_test().unwrap().changes, 45);
        assert!(all.info(OURS, "a").unwrap().self_test.is_some(), "the old one counts until then");
    }

    #[test]
    fn a_file_of_a_service_without_self_tests_opens_with_all_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let all = open(&dir);
        all.create(OURS, "a", 5).unwrap();
        all.add(OURS, "a", vec![item("x", [1.0, 0.0])]).unwrap();
        drop(all);
        let file = dir.path().join("collections.redb");
        let db = redb::Database::open(&file).unwrap();
        let txn = db.begin_write().unwrap();
        let table = redb::TableDefinition::<(u64, &str), (u64, Option<&str>)>::new("self_tests");
        assert!(txn.delete_table(table).unwrap());
        txn.commit().unwrap();
        drop(db);
        let all = open(&dir);
        assert_eq!((found(&all, OURS, "a"), all.list(OURS)[0].self_test.clone()), (vec!["x".to_owned()], None));
        all.add(OURS, "a", vec![item("y", [0.0, 1.0])]).unwrap();
        all.remove(OURS, "a").unwrap();
        drop(all);
        assert!(open(&dir).list(OURS).is_empty());
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
