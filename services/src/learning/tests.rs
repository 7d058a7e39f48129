//! Examples that are kept, merged, let go of and pushed out.

use super::*;
use crate::database::disk::Disk;
use crate::learning::example::ExampleSet;
use crate::learning::example::TruthSource;
use crate::learning::example::tests::example;

const DAY: u64 = 86_400;
const WHO: KeyId = KeyId(1);
const OTHER: KeyId = KeyId(2);

fn store(bytes_max: u64) -> ExampleStore {
    ExampleStore::of(Disk::default().database(), StoreBounds { bytes_max, seconds: 90 * DAY }).unwrap()
}

fn answers(stored: &[StoredExample]) -> Vec<&str> {
    stored.iter().map(|stored| stored.example.answer.as_str()).collect()
}

#[test]
fn an_example_is_kept_once_and_one_that_asks_nearly_the_same_is_in_its_set() {
    let store = store(1 << 20);
    let question = "In which year was the old port of the town of Kelm built, and who built it there?";
    let first = Example { set: ExampleSet::Vault, ..example(question, "In 1871.") };
    assert_eq!(store.add(WHO, first.clone()).unwrap(), Kept::New(first.id()));
    let again = Example { truth: vec![TruthSource::Operator], at: 5, ..example(question, "in  1871.") };
    assert_eq!(store.add(OTHER, again).unwrap(), Kept::Merged(first.id()));
    let other = example(&question.to_uppercase(), "In 1872.");
    assert_eq!(store.add(OTHER, other.clone()).unwrap(), Kept::New(other.id()));
    let all = store.all().unwrap();
    let kept = all.iter().find(|stored| stored.example.answer == "In 1871.").unwrap();
    let beside = all.iter().find(|stored| stored.example.answer == "In 1872.").unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!((&kept.accounts[..], beside.example.set), (&[1, 2][..], ExampleSet::Vault));
    assert_eq!(kept.example.truth, [TruthSource::Correction, TruthSource::Operator]);
    let far = example("How do I bake bread without yeast at home?", "With soda.");
    store.add(WHO, far).unwrap();
    let all = store.all().unwrap();
    let far = all.iter().find(|stored| stored.example.answer == "With soda.").unwrap();
    assert_eq!(far.example.set, ExampleSet::Train, "it asks something else");
}

#[test]
fn what_an_account_brought_goes_when_it_says_so_and_what_others_brought_stays() {
    let store = store(1 << 20);
    let (shared, own) = (example("a b c d", "x"), example("e f g h", "y"));
    store.add(WHO, shared.clone()).unwrap();
    store.add(OTHER, shared.clone()).unwrap();
    store.add(WHO, own.clone()).unwrap();
    assert_eq!(answers(&store.of_account(WHO).unwrap()).len(), 2);
    assert_eq!(store.forget(WHO, Some("ex_none")).unwrap(), 0);
    assert_eq!(store.forget(WHO, None).unwrap(), 2);
    assert!(store.of_account(WHO).unwrap().is_empty());
    assert_eq!(answers(&store.all().unwrap()), ["x"]);
    assert_eq!(store.forget(OTHER, Some(&shared.id())).unwrap(), 1);
    assert!(store.all().unwrap().is_empty());
    assert_eq!(store.add(WHO, own.clone()).unwrap(), Kept::New(own.id()), "nothing of it was left");
}

#[test]
fn a_secret_is_not_kept_and_old_examples_make_room() {
    let store = store(2_000);
    let secret = example("Why does it fail with password: hunter2hunter2?", "x");
    assert_eq!(store.add(WHO, secret).unwrap(), Kept::Secret);
    assert!(store.all().unwrap().is_empty());
    for n in 0..20u64 {
        let new = Example { at: n, ..example(&format!("question{n} number{n} of{n} many{n}"), &"y".repeat(100)) };
        store.add(WHO, new).unwrap();
    }
    let left = store.all().unwrap();
    assert!((2..10).contains(&left.len()) && left.last().unwrap().example.at == 19, "{}", left.len());
    let late = Example { at: 200 * DAY, ..example("something else at last", "z") };
    store.add(WHO, late).unwrap();
    assert_eq!(answers(&store.all().unwrap()), ["z"], "the time of the others was over");
}

#[test]
fn a_full_disk_keeps_what_was_there() {
    let disk = Disk::default();
    let store = ExampleStore::of(disk.database(), StoreBounds { bytes_max: 1 << 20, seconds: DAY }).unwrap();
    store.add(WHO, example("a b c", "x")).unwrap();
    disk.set_full(true);
    assert!(store.add(WHO, example("d e f", &"y".repeat(1 << 20))).is_err());
    disk.set_full(false);
    assert_eq!(answers(&store.all().unwrap()), ["x"]);
    assert!(matches!(store.add(WHO, example("d e f", "y")).unwrap(), Kept::New(_)));
}
