//! The checks of one order of a table, and its sizes, which are counted on the way.

use super::error::TableProblem;
use super::ngrams::Continuation;
use super::record::{Record, RecordShape, homes, slot_word, u64_at, words};
use crate::engram::context::{self, scale};
use crate::ids::TokenId;
use std::ops::Range;

/// Sizes of one order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderStats {
    /// The length of the contexts.
    pub order: usize,
    /// How many distinct contexts have it.
    pub contexts: u64,
    /// Distinct continuations of all contexts.
    pub ngrams: u64,
    /// Bytes of index and records.
    pub bytes: u64,
    /// When the oldest and the newest continuation were last seen, seconds since 1970.
    pub times: (u32, u32),
}

/// The checks of one order: everything that looking up and merging rely on.
pub(super) struct Check<'a> {
    pub(super) order: usize,
    pub(super) vocab: u32,
    pub(super) shape: RecordShape,
    pub(super) index: &'a [u8],
    pub(super) records: &'a [u8],
}

impl Check<'_> {
    /// Walks records and index side by side: as both are sorted by hash, each slot is known before it is read.
    pub(super) fn run(&self) -> Result<OrderStats, TableProblem> {
        let mut stats = OrderStats { order: self.order, times: (u32::MAX, 0), ..OrderStats::default() };
        stats.contexts = self.count()?;
        stats.bytes = (self.index.len() + self.records.len()) as u64;
        let homes = homes(stats.contexts);
        let (mut at, mut slot, mut last, mut seen) = (0, 0, None, Vec::new());
        while let Some(record) = Record::read(&self.records[at..], self.shape) {
            let key = record.key(self.order);
            let hash = context::hash(&key);
            self.check_record(at, &key, &record, &mut seen)?;
            self.check_slots(slot..slot.max(scale(hash, homes)), 0)?;
            slot = slot.max(scale(hash, homes));
            self.check_slots(slot..slot + 1, slot_word(hash, (at / 4 + 1) as u32))?;
            if last.replace((hash, key)) >= last {
                return Err(self.damaged(
                    "records",
                    "contexts sorted by hash and key, each once",
                    format!("another at byte {at}"),
                ));
            }
            slot += 1;
            at += record.bytes();
            stats.ngrams += record.times.len() as u64 / 4;
            let times = words(record.times);
            stats.times = times.fold(stats.times, |(old, new), t| (old.min(t), new.max(t)));
        }
        let end = slot.max(homes) + 1;
        self.check_slots(slot..end, 0)?;
        if self.index.len() != 8 * end {
            return Err(self.damaged("index", format!("{} bytes", 8 * end), format!("{} bytes", self.index.len())));
        }
        Ok(stats)
    }

    /// Number of records; they fill their section exactly.
    fn count(&self) -> Result<u64, TableProblem> {
        let (mut at, mut contexts) = (0, 0);
        while at < self.records.len() {
            let record = Record::read(&self.records[at..], self.shape);
            let record = record
                .ok_or_else(|| self.damaged("records", "whole records", format!("a part of one at byte {at}")))?;
            at += record.bytes();
            contexts += 1;
        }
        let fits = contexts > 0 && self.records.len() / 4 < u32::MAX as usize;
        if fits {
            Ok(contexts)
        } else {
            Err(self.damaged("records", "1 context or more in less than 16 GiB", self.records.len()))
        }
    }

    fn check_record(
        &self,
        at: usize,
        key: &[TokenId],
        record: &Record<'_>,
        seen: &mut Vec<TokenId>,
    ) -> Result<(), TableProblem> {
        let wrong = |want: &str| Err(self.damaged("records", want, format!("otherwise at byte {at}")));
        if key.iter().copied().chain(record.list().map(|c| c.token)).any(|id| id >= self.vocab) {
            return wrong(&format!("ids below {}", self.vocab));
        }
        let falling = |a: &Continuation, b: &Continuation| (a.count, b.token) > (b.count, a.token);
        if record.pairs.is_empty() || !record.list().zip(record.list().skip(1)).all(|(a, b)| falling(&a, &b)) {
            return wrong("one continuation or more, by falling count and rising id");
        }
        let sum: u64 = record.list().map(|c| u64::from(c.count)).sum();
        if sum > record.total || record.list().any(|c| c.count == 0) {
            return wrong("counts above 0 whose sum is at most the context's");
        }
        seen.clear();
        seen.extend(record.list().map(|c| c.token));
        seen.sort_unstable();
        if seen.is_sorted_by(|a, b| a < b) { Ok(()) } else { wrong("each continuation once") }
    }

    fn check_slots(&self, slots: Range<usize>, want: u64) -> Result<(), TableProblem> {
        match slots.clone().find(|slot| u64_at(self.index, 8 * slot) != Some(want)) {
            None => Ok(()),
            Some(slot) => Err(self.damaged("index", format!("{want:#x} in slot {slot}"), "something else")),
        }
    }

    fn damaged(&self, part: &str, want: impl std::fmt::Display, got: impl std::fmt::Display) -> TableProblem {
        TableProblem::damaged(format!("order {}: {part}", self.order), want, got)
    }
}
