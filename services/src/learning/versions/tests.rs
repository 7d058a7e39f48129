//! Versions on a disk that fails, fills and forgets.

use super::lineage::tests::verdict;
use super::*;
use crate::database::disk::Disk;
use crate::learning::example::Example;
use crate::learning::example::tests::example;
use crate::learning::gate::{Outcome, VAULT_ASKS_A_YEAR};
use crate::learning::store::{ExampleStore, StoreBounds};
use chimere_engine::ids::KeyId;

const NAME: &str = "facts";
const BASE: &str = "m";

fn store(disk: &Disk) -> ExampleStore {
    ExampleStore::of(disk.database(), StoreBounds { bytes_max: 1 << 20, seconds: 1 << 30 }, 0).unwrap()
}

fn propose(store: &ExampleStore, bytes: &[u8]) -> Result<u64, VersionError> {
    store.versions().propose(NAME, (bytes, BASE), &store.all()?, 0)
}

/// A candidate that has passed the gate, and its number.
fn passed(store: &ExampleStore, bytes: &[u8]) -> Result<u64, VersionError> {
    let number = propose(store, bytes)?;
    store.versions().judged(NAME, number, verdict(Outcome::Passed))?;
    Ok(number)
}

fn serve(store: &ExampleStore, bytes: &[u8]) -> Result<u64, VersionError> {
    let number = passed(store, bytes)?;
    store.versions().advance(NAME, number, StageEvent::Accepted, None)?;
    Ok(number)
}

fn served(store: &ExampleStore) -> Option<Vec<u8>> {
    store.versions().served(NAME, BASE).unwrap().map(|(_, bytes)| bytes)
}

#[test]
fn a_rollback_serves_the_very_bytes_that_were_served_before() {
    let disk = Disk::default();
    let (first, second) = (vec![7; 300_000], vec![9; 200_000]);
    let open = store(&disk);
    assert_eq!(served(&open), None);
    serve(&open, &first).unwrap();
    serve(&open, &second).unwrap();
    assert_eq!(served(&open), Some(second));
    assert_eq!(open.versions().roll_back(NAME).unwrap(), Some(1));
    assert_eq!(served(&open), Some(first.clone()));
    drop(open);
    assert_eq!(served(&store(&disk.after_a_crash())), Some(first), "also after a restart");
}

#[test]
fn whoever_is_cut_short_in_a_promotion_or_a_rollback_leaves_one_version_or_the_other_whole() {
    let disk = Disk::default();
    let (old, new) = (vec![7; 100_000], vec![9; 100_000]);
    let open = store(&disk);
    serve(&open, &old).unwrap();
    drop(open);
    // The process is gone after so many writes to the disk; each number of them is tried.
    let cut = |writes: usize, change: &dyn Fn(&ExampleStore) -> bool| {
        let cut = disk.after_a_crash();
        let open = store(&cut);
        cut.end_after(writes);
        let done = change(&open);
        let rest = cut.after_a_crash();
        drop(open);
        (done, store(&rest))
    };
    let promote = |open: &ExampleStore| serve(open, &new).is_ok();
    let back = |open: &ExampleStore| open.versions().roll_back(NAME).is_ok();
    let (mut cuts, mut writes) = (0, 0);
    loop {
        let (done, rest) = cut(writes, &promote);
        let after = served(&rest);
        assert!(after.as_ref() == Some(&old) || after.as_ref() == Some(&new), "after {writes} writes");
        assert!(!done || after.as_ref() == Some(&new), "what was acknowledged is there");
        let (gone, rest) = cut(writes, &back);
        let after = served(&rest);
        assert!(after.is_none() || after.as_ref() == Some(&old), "after {writes} writes");
        assert!(!gone || after.is_none());
        if done && gone {
            break;
        }
        (cuts, writes) = (cuts + 1, writes + 1);
    }
    assert!(cuts > 10, "{cuts} cuts are no test");
}

#[test]
fn a_full_disk_leaves_what_is_served_and_what_is_too_large_is_refused() {
    let disk = Disk::default();
    let open = store(&disk);
    serve(&open, b"old").unwrap();
    disk.set_full(true);
    assert!(serve(&open, &vec![9; 1 << 22]).is_err());
    assert_eq!(served(&open), Some(b"old".to_vec()));
    disk.set_full(false);
    serve(&open, b"new").unwrap();
    assert_eq!(served(&open), Some(b"new".to_vec()));
    let large = vec![0; crate::limits::LEARNING_VERSION_BYTES_MAX + 1];
    assert!(matches!(propose(&open, &large), Err(VersionError::TooLarge { .. })));
}

#[test]
fn a_version_made_from_what_somebody_takes_back_never_comes_back() {
    let disk = Disk::default();
    let open = store(&disk);
    let add = |account: u64, question: &str| {
        let brought = vec![(KeyId(account), Example { at: 5, ..example(question, "x") })];
        open.add(brought, 5).unwrap();
    };
    serve(&open, b"one").unwrap();
    add(1, "in which year was the port built");
    serve(&open, b"two").unwrap();
    add(2, "what do dogs eat in the winter");
    serve(&open, b"three").unwrap();
    let gone = open.forget(KeyId(1), None, 6).unwrap();
    assert_eq!(gone.stale, ["facts@2", "facts@3"]);
    assert_eq!(served(&open), Some(b"three".to_vec()), "until the next run");
    assert_eq!(open.versions().roll_back(NAME).unwrap(), Some(1));
    assert_eq!(served(&open), Some(b"one".to_vec()));
    let lineage = &open.versions().lineages().unwrap()[0].1;
    let kept: Vec<bool> = lineage.versions().iter().map(Version::has_bytes).collect();
    assert_eq!(kept, [true, false, false]);
}

#[test]
fn what_was_not_let_through_is_served_to_nobody_and_its_bytes_are_gone() {
    let open = store(&Disk::default());
    serve(&open, b"old").unwrap();
    let number = propose(&open, b"bad").unwrap();
    assert!(open.versions().advance(NAME, number, StageEvent::Accepted, None).is_err());
    assert_eq!(open.versions().judged(NAME, number, verdict(Outcome::People)).unwrap(), VersionStage::Candidate);
    propose(&open, b"worse").unwrap();
    let lineage = &open.versions().lineages().unwrap()[0].1;
    assert_eq!(lineage.version(number).unwrap().stage, VersionStage::Refused);
    assert!(!lineage.version(number).unwrap().has_bytes());
    assert_eq!(served(&open), Some(b"old".to_vec()));
    assert!(open.versions().served(NAME, "another model").unwrap().is_none());
}

#[test]
fn a_spent_asking_of_the_vault_is_spent_after_a_crash_too() {
    let disk = Disk::default();
    let open = store(&disk);
    for n in 0..VAULT_ASKS_A_YEAR as u64 {
        open.versions().spend_vault(1_000 + n).unwrap();
    }
    let after = store(&disk.after_a_crash());
    assert!(matches!(after.versions().spend_vault(2_000), Err(VersionError::VaultSpent(_))));
    after.versions().spend_vault(1_000 + 366 * 86_400).unwrap();
}

#[test]
fn a_budget_of_the_vault_that_cannot_be_read_is_an_error_and_stays_as_it_is() {
    let disk = Disk::default();
    let open = store(&disk);
    open.versions().spend_vault(1_000).unwrap();
    open.versions().damage_vault(b"{\"asked\": [1");
    for _ in 0..2 {
        let error = open.versions().spend_vault(2_000).unwrap_err().to_string();
        assert!(error.contains("the vault's budget cannot be read"), "{error}");
    }
}
