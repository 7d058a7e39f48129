//! Examples that are kept, merged, let go of and pushed out.

use super::*;
use crate::database::disk::Disk;
use crate::learning::example::TruthSource;
use crate::learning::example::tests::example;

const DAY: u64 = 86_400;
const WHO: KeyId = KeyId(1);
const OTHER: KeyId = KeyId(2);

fn store(bytes_max: u64) -> ExampleStore {
    ExampleStore::of(Disk::default().database(), StoreBounds { bytes_max, seconds: 90 * DAY }, 0).unwrap()
}

fn add(store: &ExampleStore, account: KeyId, example: Example) -> Result<BroughtExample, DatabaseError> {
    let now = example.at;
    store.add(vec![(account, example)], now).map(|mut all| all.remove(0))
}

fn new(example: &Example) -> BroughtExample {
    BroughtExample::New(example.id(), example.set)
}

fn answers(stored: &[StoredExample]) -> Vec<&str> {
    stored.iter().map(|stored| stored.example.answer.as_str()).collect()
}

#[test]
fn an_example_is_kept_once_and_one_that_asks_nearly_the_same_is_in_its_set() {
    let store = store(1 << 20);
    let question = "In which year was the old port of the town of Kelm built, and who built it there?";
    let first = Example { set: ExampleSet::Vault, ..example(question, "In 1871.") };
    assert_eq!(add(&store, WHO, first.clone()).unwrap(), new(&first));
    let again = Example { truth: vec![TruthSource::Operator], at: 5, ..example(question, "in  1871.") };
    assert_eq!(add(&store, WHO, again.clone()).unwrap(), BroughtExample::Merged(first.id(), first.set));
    assert_eq!(add(&store, OTHER, first.clone()).unwrap(), BroughtExample::Merged(first.id(), first.set));
    let other = example(&question.to_uppercase(), "In 1872.");
    let kept = add(&store, OTHER, other.clone()).unwrap();
    assert_eq!(kept, BroughtExample::New(other.id(), ExampleSet::Vault));
    let all = store.all().unwrap();
    let kept = all.iter().find(|stored| stored.example.answer == "In 1871.").unwrap();
    let beside = all.iter().find(|stored| stored.example.answer == "In 1872.").unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!((&kept.accounts[..], beside.example.set), (&[1, 2][..], ExampleSet::Vault));
    assert_eq!(kept.example.truth, [TruthSource::Correction, TruthSource::Operator]);
    let far = example("How do I bake bread without yeast at home?", "With soda.");
    add(&store, WHO, far).unwrap();
    let all = store.all().unwrap();
    let far = all.iter().find(|stored| stored.example.answer == "With soda.").unwrap();
    assert_eq!(far.example.set, ExampleSet::Train, "it asks something else");
}

#[test]
fn what_an_account_brought_goes_when_it_says_so_and_what_others_brought_stays() {
    let store = store(1 << 20);
    let (shared, own) = (example("a b c d", "x"), example("e f g h", "y"));
    add(&store, WHO, Example { reason: Some("because".into()), ..shared.clone() }).unwrap();
    add(&store, OTHER, shared.clone()).unwrap();
    add(&store, WHO, own.clone()).unwrap();
    assert_eq!(answers(&store.of_account(WHO).unwrap()).len(), 2);
    assert_eq!(store.forget(WHO, Some("ex_none"), 0).unwrap(), Withdrawal::default());
    assert_eq!(store.forget(WHO, None, 0).unwrap().examples, 2);
    assert!(store.of_account(WHO).unwrap().is_empty());
    assert_eq!(answers(&store.all().unwrap()), ["x"]);
    assert_eq!(store.all().unwrap()[0].example.reason, None, "the words may have been the other's");
    assert_eq!(store.forget(OTHER, Some(&shared.id()), 0).unwrap().examples, 1);
    assert!(store.all().unwrap().is_empty());
    assert_eq!(add(&store, WHO, own.clone()).unwrap(), new(&own), "nothing of it was left");
}

#[test]
fn what_others_said_nearly_so_stays_apart_so_that_nothing_of_it_is_left_with_them() {
    let store = store(1 << 20);
    let question = "In which year was the old port of the town of Kelm built, and who built it there?";
    let theirs = example(&question.to_lowercase(), "In 1871.");
    add(&store, WHO, Example { set: ExampleSet::Gate, ..example(question, "In 1871.") }).unwrap();
    let kept = add(&store, OTHER, theirs.clone()).unwrap();
    assert_eq!(kept, BroughtExample::New(theirs.id(), ExampleSet::Gate));
    store.forget(WHO, None, 0).unwrap();
    assert_eq!(store.all().unwrap()[0].example.messages, theirs.messages);
}

#[test]
fn a_secret_is_not_kept_and_old_examples_make_room() {
    let store = store(2_000);
    let secret = example("Why does it fail with password: hunter2hunter2?", "x");
    assert_eq!(add(&store, WHO, secret).unwrap(), BroughtExample::Secret);
    assert!(store.all().unwrap().is_empty());
    for n in 0..20u64 {
        let new = Example { at: n, ..example(&format!("question{n} number{n} of{n} many{n}"), &"y".repeat(100)) };
        add(&store, WHO, new).unwrap();
    }
    let left = store.all().unwrap();
    assert!((2..10).contains(&left.len()) && left.last().unwrap().example.at == 19, "{}", left.len());
    let late = Example { at: 200 * DAY, ..example("something else at last", "z") };
    add(&store, WHO, late).unwrap();
    assert_eq!(answers(&store.all().unwrap()), ["z"], "the time of the others was over");
}

#[test]
fn a_full_disk_keeps_what_was_there() {
    let disk = Disk::default();
    let store = ExampleStore::of(disk.database(), StoreBounds { bytes_max: 1 << 20, seconds: DAY }, 0).unwrap();
    add(&store, WHO, example("a b c", "x")).unwrap();
    disk.set_full(true);
    assert!(add(&store, WHO, example("d e f", &"y".repeat(1 << 20))).is_err());
    disk.set_full(false);
    assert_eq!(answers(&store.all().unwrap()), ["x"]);
    assert!(matches!(add(&store, WHO, example("d e f", "y")).unwrap(), BroughtExample::New(..)));
}

#[test]
fn whoever_takes_an_example_back_makes_stale_all_that_was_trained_on_it_and_on_nobody_else_s() {
    let store = store(1 << 20);
    let (shared, own) = (example("a b c d", "x"), example("e f g h", "y"));
    for (account, example) in [(WHO, &shared), (OTHER, &shared), (WHO, &own)] {
        add(&store, account, example.clone()).unwrap();
    }
    let all = store.all().unwrap();
    let of = |answer: &str| all.iter().filter(|stored| stored.example.answer == answer).cloned().collect::<Vec<_>>();
    store.versions().propose("shared", (b"", "m"), &of("x"), 1).unwrap();
    store.versions().propose("own", (b"", "m"), &of("y"), 1).unwrap();
    // The examples go with their time, and what they were used for is still known.
    store.expire(100 * DAY).unwrap();
    assert!(store.all().unwrap().is_empty());
    assert_eq!(store.forget(WHO, Some("ex_none"), 2).unwrap(), Withdrawal::default());
    assert_eq!(store.forget(WHO, None, 3).unwrap(), Withdrawal { examples: 0, stale: vec!["own@1".into()] });
    let artefacts = store.artefacts().unwrap();
    let stale = |name: &str| artefacts.iter().find(|(own, _)| own == name).unwrap().1.stale;
    assert_eq!((stale("own@1"), stale("shared@1")), (Some(3), None), "somebody else brought it too");
    assert_eq!(store.forget(OTHER, Some(&shared.id()), 4).unwrap().stale, ["shared@1"]);
    assert!(store.forget(OTHER, None, 5).unwrap().stale.is_empty(), "said once");
}

#[test]
fn an_example_between_two_sets_trains_nothing_and_long_instructions_make_no_two_the_same() {
    let store = store(1 << 20);
    let words = |from: usize, to: usize| (from..to).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ");
    let in_set = |from, to, set| Example { set, ..example(&words(from, to), &format!("{from}")) };
    let outcomes = [
        add(&store, WHO, in_set(0, 200, ExampleSet::Train)).unwrap(),
        add(&store, WHO, in_set(24, 224, ExampleSet::Gate)).unwrap(),
        add(&store, WHO, in_set(12, 212, ExampleSet::Train)).unwrap(),
    ];
    let sets = outcomes.map(|outcome| match outcome {
        BroughtExample::New(_, set) => set,
        other => panic!("{other:?}"),
    });
    assert_eq!(sets, [ExampleSet::Train, ExampleSet::Gate, ExampleSet::Gate]);
    let told = |question: &str, set| {
        let mut told = Example { set, ..example(question, "yes") };
        told.messages.insert(0, serde_json::json!({"role": "system", "content": words(0, 300)}));
        told
    };
    let first = told("is the port of Kelm old?", ExampleSet::Train);
    let second = told("may dogs eat the bread that we bake?", ExampleSet::Gate);
    assert_eq!(add(&store, WHO, first.clone()).unwrap(), new(&first));
    assert_eq!(add(&store, WHO, second.clone()).unwrap(), new(&second));
}
