//! How many examples there are of each set, and how many bytes, by age.

use super::example::ExampleSet;
use std::collections::BTreeMap;

/// When an example came, in seconds since 1970, and its id.
pub(super) type Age = (u64, String);

/// Bytes of an example, and its set.
type ExampleSize = (u64, ExampleSet);

/// Examples by age. What a change of the database does here is undone with it.
#[derive(Default)]
pub(super) struct ExampleSizes {
    all: BTreeMap<Age, ExampleSize>,
    bytes: u64,
    /// What stood at each age that was changed, the last change last.
    undo: Vec<(Age, Option<ExampleSize>)>,
}

impl ExampleSizes {
    /// When the oldest example came.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.all.keys().next().map(|age| age.0)
    }

    /// Notes an example, in the place of what was there.
    pub(super) fn insert(&mut self, age: Age, size: ExampleSize) {
        self.change(age, Some(size));
    }

    /// Notes that an example is gone.
    pub(super) fn remove(&mut self, age: &Age) {
        self.change(age.clone(), None);
    }

    /// The oldest examples that go so that the rest has no more than so many bytes, and those that came before `ends`.
    pub(super) fn leaving(&mut self, bytes_max: u64, ends: u64) -> Vec<Age> {
        let mut gone = Vec::new();
        while let Some((age, _)) = self.all.first_key_value().filter(|(age, _)| age.0 < ends || self.bytes > bytes_max)
        {
            let age = age.clone();
            self.remove(&age);
            gone.push(age);
        }
        gone
    }

    /// The database has taken the changes, or has not.
    pub(super) fn settle(&mut self, taken: bool) {
        let undo = std::mem::take(&mut self.undo);
        if !taken {
            undo.into_iter().rev().for_each(|(age, before)| self.change(age, before));
            self.undo.clear();
        }
    }

    /// Examples of each set, in the order of [`ExampleSet::ALL`].
    pub(super) fn counts(&self) -> [(&'static str, usize); 3] {
        ExampleSet::ALL.map(|set| (set.name(), self.all.values().filter(|size| size.1 == set).count()))
    }

    fn change(&mut self, age: Age, now: Option<ExampleSize>) {
        let before = match now {
            Some(size) => self.all.insert(age.clone(), size),
            None => self.all.remove(&age),
        };
        let bytes = |size: Option<ExampleSize>| size.map_or(0, |size| size.0);
        self.bytes = self.bytes + bytes(now) - bytes(before);
        self.undo.push((age, before));
    }
}
