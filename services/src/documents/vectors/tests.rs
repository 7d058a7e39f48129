//! Vectors of a store from their making to their end, without an encoder: a passage's vector says which one it is.

use super::super::index::{FileSegment, coded};
use super::super::library::{DocumentSettings, Library};
use super::super::members::{FilePurpose, MemberState, NewMember, StoreVectors};
use super::super::search::StoreSearch;
use super::super::stores::NewStore;
use super::super::tables::{self, PassageSpan};
use super::VectorJob;
use crate::embedder::VectorMaker;
use chimere_engine::ids::KeyId;
use std::sync::Arc;

const OURS: KeyId = KeyId(7);
/// Passages of the file, each of four sentences.
const PASSAGES: usize = 24;

fn open(dir: &tempfile::TempDir, maker: &str) -> Arc<Library> {
    let vectors = (!maker.is_empty()).then(|| VectorMaker { identity: maker.into(), width: PASSAGES });
    let settings = DocumentSettings {
        file_bytes_max: 1 << 20,
        account_bytes_max: 1 << 20,
        program: "none".into(),
        parse_seconds: 1,
        parse_bytes: 1,
        chunk_tokens: 400,
        threads: 1,
        count: Arc::new(str::len),
        vectors,
    };
    Arc::new(Library::open(dir.path(), settings).unwrap())
}

/// What the passage of a number says: its sentences have no word in common but those that all have.
fn passage(i: usize) -> String {
    ["port", "ferry", "song", "mayor"]
        .map(|of| format!("Of the old {of}{i} in the land much is known today."))
        .join(" ")
}

/// A store with a file that can be searched by its words: its id, and the file's.
fn filled(library: &Arc<Library>) -> (String, String) {
    let mut upload = library.upload(OURS).unwrap();
    upload.write(b"bytes").unwrap();
    let file = upload.keep("towns.txt", FilePurpose::Assistants, 1).unwrap();
    let new = NewMember { file_id: file.id.clone(), ..NewMember::default() };
    let store = library.create_store(OURS, NewStore { files: vec![new], ..NewStore::default() }, 1).unwrap().id;
    let mut writer = library.texts.begin(&file.sha256).unwrap();
    (0..PASSAGES).for_each(|i| writer.section(None, vec![], &passage(i)).unwrap());
    writer.finish().unwrap();
    searchable(library, &store, &file.id);
    (store, file.id.clone())
}

/// Has the store's file cut, as the threads of files would.
fn searchable(library: &Arc<Library>, store: &str, file: &str) {
    let (store, sha256) = (library.store(OURS, store).unwrap(), library.file(OURS, file).unwrap().sha256.clone());
    let outline: Arc<[_]> = library.texts.outline(&sha256).unwrap().into();
    let mut segment = FileSegment::of(file, outline.clone());
    for (i, section) in outline.iter().enumerate() {
        let span = PassageSpan { start: section.start as u32, end: section.end as u32 };
        segment.push("towns.txt", i, span, &passage(i));
    }
    let number = store.state.read().members[file].number;
    let settled = library.settle(
        &store,
        (file, number),
        |member| (member.state, member.chunks) = (MemberState::Completed, PASSAGES),
        Some(segment),
    );
    assert!(settled.unwrap());
}

/// The vector of a text about the passage of a number.
fn axis(i: usize) -> Vec<f32> {
    (0..PASSAGES).map(|at| f32::from(u8::from(at == i))).collect()
}

fn codes() -> Vec<u8> {
    (0..PASSAGES).flat_map(|i| coded(&axis(i)).collect::<Vec<u8>>()).collect()
}

fn job(library: &Library) -> Option<VectorJob> {
    library.vector_job(OURS, |_, _| true)
}

fn shown(library: &Library, store: &str) -> StoreVectors {
    library.describe(&library.store(OURS, store).unwrap()).vectors.unwrap()
}

fn on_disk(library: &Library, store: &str, file: &str, maker: &str) -> bool {
    library.db.read(|txn| tables::vectors(txn, (OURS, store, file), maker)).unwrap().is_some()
}

/// Tests a store whose sentences lie where their passages do.
fn tested(library: &Arc<Library>, store: &str) -> f64 {
    let due = library.test_of(OURS, store).unwrap();
    let probes = library.test_probes(&due);
    assert_eq!(probes.len(), PASSAGES);
    // Whichever sentence was taken out, it lies where the rest of its passage does.
    let vector = |text: &str| {
        let number = text.split(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty()).unwrap();
        axis(number.parse().unwrap())
    };
    let hits: Vec<_> = probes
        .iter()
        .filter_map(|probe| {
            library.test_search(&due, probe, (vector(&probe.sentence).as_slice(), vector(&probe.rest).as_slice()))
        })
        .collect();
    assert_eq!(hits.len(), PASSAGES);
    library.keep_test(&due, &hits, 9).unwrap().weight
}

#[test]
fn vectors_are_kept_as_a_whole_tested_and_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let library = open(&dir, "a");
    let (store, file) = filled(&library);
    assert_eq!((shown(&library, &store).waiting, shown(&library, &store).weight()), (PASSAGES, 0.0));
    assert!(library.test_of(OURS, &store).is_err() && library.due_test().is_none(), "a test wants all vectors");
    let own = job(&library).unwrap();
    let texts = library.vector_texts(&own, 2..4).unwrap().unwrap();
    assert_eq!((own.passages, texts), (PASSAGES, vec![passage(2), passage(3)]));
    assert!(!library.keep_vectors(&own, &codes()[1..]).unwrap(), "not all of them");
    // A service that dies here begins the file again.
    drop((own, library));
    let library = open(&dir, "a");
    library.load(&library.store(OURS, &store).unwrap());
    let bytes = library.index_bytes.load(std::sync::atomic::Ordering::Relaxed);
    let own = job(&library).unwrap();
    assert!(library.keep_vectors(&own, &codes()).unwrap() && job(&library).is_none());
    assert_eq!(library.index_bytes.load(std::sync::atomic::Ordering::Relaxed), bytes, "their room was counted before");
    assert!(shown(&library, &store).test_due && library.due_test().is_some());
    assert!(tested(&library, &store) > 0.5);
    assert!(!shown(&library, &store).test_due && library.due_test().is_none());
    drop((own, library));
    let library = open(&dir, "a");
    library.load(&library.store(OURS, &store).unwrap());
    let vectors = shown(&library, &store);
    assert!(vectors.waiting == 0 && vectors.weight() > 0.5 && !vectors.test_due, "{vectors:?}");
    let query = ["an unheard word"];
    let search = |vectors: &[Vec<f32>], weight| {
        let (stores, queries) = (vec![store.as_str(), store.as_str()], query.to_vec());
        let asked = StoreSearch { stores, queries, vectors, weight, k: 3, filter: None };
        library.search(OURS, &asked, 1).unwrap()
    };
    let found = search(&[axis(5)], None);
    assert_eq!((&*found[0].text, found[0].legs.words, found.len()), (&*passage(5), 0.0, 1));
    assert!(found[0].legs.vectors.unwrap() > 0.99, "{found:?}");
    assert_eq!((search(&[axis(5)], Some(0.0)), search(&[], None)), (vec![], vec![]), "by words alone");
    library.remove_file(OURS, &file).unwrap();
    assert!(!on_disk(&library, &store, &file, "a") && shown(&library, &store).passages == 0);
    assert_eq!(library.index_bytes.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn another_encoder_makes_its_own_vectors_and_is_tested_anew() {
    let dir = tempfile::tempdir().unwrap();
    let library = open(&dir, "a");
    let (store, file) = filled(&library);
    library.keep_vectors(&job(&library).unwrap(), &codes()).unwrap();
    tested(&library, &store);
    drop(library);
    let library = open(&dir, "");
    library.load(&library.store(OURS, &store).unwrap());
    assert!(job(&library).is_none() && library.describe(&library.store(OURS, &store).unwrap()).vectors.is_none());
    drop(library);
    let library = open(&dir, "b");
    library.load(&library.store(OURS, &store).unwrap());
    let vectors = shown(&library, &store);
    assert_eq!((vectors.waiting, vectors.weight(), vectors.test.as_ref()), (PASSAGES, 0.0, None));
    assert!(on_disk(&library, &store, &file, "a"), "until others take their place");
    assert!(library.keep_vectors(&job(&library).unwrap(), &codes()).unwrap());
    assert!(on_disk(&library, &store, &file, "b") && !on_disk(&library, &store, &file, "a"));
}

#[test]
fn a_file_that_goes_or_begins_anew_takes_its_vectors_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let library = open(&dir, "a");
    let (store, file) = filled(&library);
    let old = job(&library).unwrap();
    assert!(library.keep_vectors(&old, &codes()).unwrap());
    let again = NewMember { file_id: file.clone(), ..NewMember::default() };
    library.attach(OURS, &store, (vec![again], false), 2).unwrap();
    assert!(!on_disk(&library, &store, &file, "a"));
    searchable(&library, &store, &file);
    assert_eq!(shown(&library, &store).waiting, PASSAGES);
    assert!(!library.keep_vectors(&old, &codes()).unwrap(), "they are of passages that are gone");
    assert_eq!(library.vector_texts(&old, 0..1).unwrap(), None);
    assert!(library.keep_vectors(&job(&library).unwrap(), &codes()).unwrap());
    assert!(tested(&library, &store) > 0.5);
    library.detach(OURS, &store, &file).unwrap();
    assert!(!on_disk(&library, &store, &file, "a") && shown(&library, &store).passages == 0);
    let again = NewMember { file_id: file.clone(), ..NewMember::default() };
    library.attach(OURS, &store, (vec![again], false), 3).unwrap();
    searchable(&library, &store, &file);
    assert!(shown(&library, &store).test_due, "all passages are others than those of the test");
    library.keep_vectors(&job(&library).unwrap(), &codes()).unwrap();
    library.remove_store(OURS, &store).unwrap();
    assert!(!on_disk(&library, &store, &file, "a") && job(&library).is_none());
}
