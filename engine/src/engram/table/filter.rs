//! Tier 0: a filter that says which tables may know a context without touching any of them. Where it says that one does
//! not, it is never wrong; a context that no table knows is taken for some table's about once in 10,000 times. Built
//! whole from the tables it speaks for, and rebuilt when they change.
//!
//! After Fan et al., "Cuckoo Filter: Practically Better Than Bloom" (2014), with a cache line as the bucket: 20
//! fingerprints of 17 bits, each with the bits of the tables that know its context. A fingerprint is in its first line
//! if there was room, else in its second one, and then the first is marked for the fingerprints that share 5 bits with
//! it: so 99 questions of 100 read one line and not two. The second line is found by subtraction instead of xor, so
//! that the number of lines need not be a power of two.

use super::opened::Table;
use crate::engram::context::{Context, scale};
use crate::engram::order::ORDER_MAX;
use crate::engram::pages::{Pages, prefetch};

/// Contexts of all orders of some tables.
#[derive(Debug)]
pub struct Filter {
    memory: Pages,
    lines: usize,
}

/// A set of tables, by the bits that they have in a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableBits(u8);

/// A cache line: u16 of each place's fingerprint, 0 = empty; u8 of each place's tables, with the fingerprint's 17th bit
/// on top; and u32 of marks, one bit for each value of a fingerprint's lowest 5. Places are filled from the first one
/// on.
type FilterLine = [u8; LINE_BYTES];

const LINE_BYTES: usize = 64;
const PLACES: usize = 20;
const TABLES_AT: usize = 2 * PLACES;
const MARKS_AT: usize = 3 * PLACES;
const _: () = assert!(MARKS_AT + 4 == LINE_BYTES, "fingerprints, tables and marks fill a line");
/// Tables that have a bit of their own.
const BITS: usize = 7;
const TOP: u8 = 1 << BITS;

/// Share of places that are filled when all goes as planned; above it more fingerprints are in second lines.
const LOAD: f64 = 0.7;
/// Fingerprints moved for one insertion before the filter is made larger.
const MOVES_MAX: u32 = 500;
/// Insertions whose lines are asked for before the first of them is made.
const AHEAD: usize = 32;

/// 17 bits of a hash: the low ones, never 0, and one on top of the tables.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Print {
    low: u16,
    top: u8,
}

impl TableBits {
    /// The bit of a filter's table number `index`, from 0. Tables beyond 7 share bits: whoever asks for one of them may
    /// then be sent to it for a context that only another one knows.
    pub fn of(index: usize) -> Self {
        Self(1 << (index % BITS))
    }

    /// Whether no table is in the set.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether some table is in both sets.
    #[inline]
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl Filter {
    /// The filter of some tables; the first of them has the bit [`TableBits::of`] 0.
    pub fn of_tables<'a>(tables: impl Iterator<Item = &'a Table> + Clone) -> Self {
        let dense = tables.clone().flat_map(|t| t.stats()).filter(|s| s.order <= ORDER_MAX);
        let contexts = dense.map(|s| s.contexts).sum();
        let hashes = |(i, table): (usize, &'a Table)| table.hashes().map(move |hash| (hash, TableBits::of(i)));
        Self::new(contexts, || tables.clone().enumerate().flat_map(hashes))
    }

    /// Of the contexts with these hashes, each with a table that knows it; a context of several tables takes one place.
    fn new<I: Iterator<Item = (u64, TableBits)>>(contexts: u64, hashes: impl Fn() -> I) -> Self {
        let mut lines = (contexts as f64 / (PLACES as f64 * LOAD)) as usize + 2;
        loop {
            let mut filter = Self { memory: Pages::zeroed(LINE_BYTES * lines), lines };
            if filter.insert_all(hashes()) {
                return filter;
            }
            lines += lines / 8 + 1;
        }
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        LINE_BYTES * self.lines
    }

    /// The tables that may know the last `order` ids: all that do, and rarely others.
    #[inline]
    pub fn may_know(&self, context: &Context, order: usize) -> TableBits {
        context.hash(order).map_or(TableBits::default(), |hash| self.tables(hash))
    }

    /// Asks memory for what [`Filter::may_know`] will read; worth it for a batch of contexts before the first is asked.
    #[inline]
    pub fn prefetch(&self, context: &Context, order: usize) {
        context.hash(order).into_iter().for_each(|hash| self.prefetch_hash(hash));
    }

    #[inline]
    fn prefetch_hash(&self, hash: u64) {
        prefetch(&self.memory, LINE_BYTES * scale(hash, self.lines));
    }

    #[inline]
    fn tables(&self, hash: u64) -> TableBits {
        let (print, first) = self.place(hash);
        let line = self.line(first);
        let mut tables = tables_in(line, print);
        if is_marked(line, print) {
            tables |= tables_in(self.line(self.other(print, first)), print);
        }
        TableBits(tables)
    }

    /// Fingerprint and first line.
    #[inline]
    fn place(&self, hash: u64) -> (Print, usize) {
        (Print { low: (hash as u16).max(1), top: (hash >> 9) as u8 & TOP }, scale(hash, self.lines))
    }

    /// The other line of a fingerprint: its own inverse, as a cuckoo needs it.
    #[inline]
    fn other(&self, print: Print, line: usize) -> usize {
        let print = u64::from(print.low) << 8 | u64::from(print.top);
        let sum = scale(print.wrapping_mul(0x9E37_79B9_7F4A_7C15), self.lines);
        if sum >= line { sum - line } else { sum + self.lines - line }
    }

    /// `false` if some did not fit.
    fn insert_all(&mut self, mut hashes: impl Iterator<Item = (u64, TableBits)>) -> bool {
        let mut some = Vec::with_capacity(AHEAD);
        loop {
            some.extend(hashes.by_ref().take(AHEAD).inspect(|(hash, _)| self.prefetch_hash(*hash)));
            if some.is_empty() {
                return true;
            }
            if !some.drain(..).all(|(hash, tables)| self.insert(hash, tables)) {
                return false;
            }
        }
    }

    fn insert(&mut self, hash: u64, tables: TableBits) -> bool {
        let (mut print, mut at) = self.place(hash);
        let (mut tables, other) = (tables.0, self.other(print, at));
        // Equal fingerprints in the same lines cannot be told apart anyway, and repeats would fill them for ever.
        let marked = is_marked(self.line(at), print);
        if join(self.line_mut(at), print, tables) || marked && join(self.line_mut(other), print, tables) {
            return true;
        }
        if put(self.line_mut(at), print, tables) {
            return true;
        }
        if put(self.line_mut(other), print, tables) {
            mark(self.line_mut(at), print);
            return true;
        }
        for step in 0..MOVES_MAX {
            let place = step.wrapping_mul(0x9E37_79B1) as usize % PLACES;
            (print, tables) = swap(self.line_mut(at), place, print, tables);
            mark(self.line_mut(at), print);
            at = self.other(print, at);
            if put(self.line_mut(at), print, tables) {
                return true;
            }
        }
        false
    }

    #[inline]
    fn line(&self, at: usize) -> &FilterLine {
        &self.memory.as_chunks().0[at]
    }

    fn line_mut(&mut self, at: usize) -> &mut FilterLine {
        &mut self.memory.as_chunks_mut().0[at]
    }
}

/// All tables of the places that have this fingerprint.
#[inline]
fn tables_in(line: &FilterLine, print: Print) -> u8 {
    let mut tables = 0;
    // Without a branch, so that many places are compared at once.
    for place in 0..PLACES {
        let same = Print::at(line, place) == print;
        tables |= if same { line[TABLES_AT + place] } else { 0 };
    }
    tables & !TOP
}

impl Print {
    #[inline]
    fn at(line: &FilterLine, place: usize) -> Self {
        let low = u16::from_ne_bytes(line.as_chunks().0[place]);
        Self { low, top: line[TABLES_AT + place] & TOP }
    }
}

/// Adds tables to a fingerprint, if the line has it.
fn join(line: &mut FilterLine, print: Print, tables: u8) -> bool {
    // Most of the time there is nothing to find, which this says soonest.
    let has = tables_in(line, print) != 0;
    let place = has.then(|| (0..PLACES).find(|&place| Print::at(line, place) == print)).flatten();
    place.map(|place| line[TABLES_AT + place] |= tables).is_some()
}

/// Puts a fingerprint into a free place, if the line has one.
fn put(line: &mut FilterLine, print: Print, tables: u8) -> bool {
    let taken: usize = (0..PLACES).map(|place| usize::from(Print::at(line, place).low != 0)).sum();
    (taken < PLACES).then(|| swap(line, taken, print, tables)).is_some()
}

/// Whether this fingerprint, or one of those that share a mark with it, may be in its other line.
#[inline]
fn is_marked(line: &FilterLine, print: Print) -> bool {
    u32::from_ne_bytes(line.as_chunks().0[MARKS_AT / 4]) >> (print.low % 32) & 1 == 1
}

fn mark(line: &mut FilterLine, print: Print) {
    let marks = &mut line.as_chunks_mut().0[MARKS_AT / 4];
    *marks = (u32::from_ne_bytes(*marks) | 1 << (print.low % 32)).to_ne_bytes();
}

/// Puts this into a place; what was there.
fn swap(line: &mut FilterLine, place: usize, print: Print, tables: u8) -> (Print, u8) {
    let before = (Print::at(line, place), line[TABLES_AT + place] & !TOP);
    line.as_chunks_mut().0[place] = print.low.to_ne_bytes();
    line[TABLES_AT + place] = tables | print.top;
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TableBits = TableBits(1);

    fn hash(i: u64) -> u64 {
        crate::engram::context::hash(&[i as u32, (i >> 32) as u32])
    }

    #[test]
    fn every_member_is_known_and_strangers_almost_never_are() {
        for members in [0, 1, 7, 1_000, 200_000] {
            let filter = Filter::new(members, || (0..members).map(|i| (hash(i), ONE)));
            assert!((0..members).all(|i| filter.tables(hash(i)).meets(ONE)), "a member of {members} is missing");
            let strangers = 200_000;
            let wrong = (members..members + strangers).filter(|&i| !filter.tables(hash(i)).is_empty()).count();
            // 20 places of 17 bits, 0.7 filled, and sometimes 20 more: 1.1e-4.
            assert!(wrong < 60, "{wrong} of {strangers} strangers pass a filter of {members}");
            assert!(filter.bytes() as u64 <= 5 * members + 128);
        }
    }

    #[test]
    fn a_context_has_the_bits_of_all_tables_that_know_it_and_almost_never_others() {
        let knows = |i: u64, table: usize| hash(i ^ 0xAB00 << table).is_multiple_of(3);
        let pairs = || {
            (0..20).flat_map(|t| (0..100_000).filter(move |&i| knows(i, t)).map(move |i| (hash(i), TableBits::of(t))))
        };
        let filter = Filter::new(100_000, pairs);
        let mut wrong = 0;
        for i in 0..100_000 {
            let want = (0..20).filter(|&t| knows(i, t)).fold(0, |bits, t| bits | TableBits::of(t).0);
            let got = filter.tables(hash(i)).0;
            assert_eq!(got & want, want, "context {i} lacks a table");
            wrong += usize::from(got != want);
        }
        // 13 other places of 17 bits.
        assert!(wrong < 30, "{wrong} of 100,000 have a bit too many");
    }

    #[test]
    fn repeated_contexts_take_one_place() {
        let filter = Filter::new(100, || (0..10_000).map(|i| (hash(i % 10), TableBits::of(i as usize % 7))));
        assert!((0..10).all(|i| filter.tables(hash(i)) == TableBits(0x7F)));
        assert_eq!(filter.bytes(), 9 * LINE_BYTES);
    }

    #[test]
    fn contexts_that_all_want_the_same_lines_make_it_larger_until_they_fit() {
        let same_place = |i: u64| (i + 1) | (1 << 63);
        let filter = Filter::new(8, || (0..64).map(|i| (same_place(i), TableBits::of(i as usize))));
        assert!((0..64).all(|i| filter.tables(same_place(i)).meets(TableBits::of(i as usize))));
    }
}
