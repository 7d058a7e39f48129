//! A table that can be asked, read from a file or made for one request. It is in memory and checked in full when it is
//! opened, so that looking up needs no trust, whatever becomes of the file; read by any number of threads.
//!
//! An order's records are sorted by (hash, key); its index is an open-addressed table of the records in that order.
//! Both follow from the contents alone, so equal contents make equal bytes, merging is one pass, and checking an index
//! is one pass too.

use super::error::{TableError, TableProblem};
use super::filter::scale;
use super::format::{self, Header, Image, TokenizerHash, u32_at, u64_at};
use crate::engram::context::{self, Context};
use crate::engram::order::{MATCH_MAX, ORDER_MAX};
use crate::engram::pages::{Pages, prefetch};
use crate::files::{Stamp, open_regular};
use crate::ids::TokenId;
use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

/// What answers which tokens followed a context. Asked in three steps, so that a batch can wait for memory once, not
/// each time.
pub trait Ngrams: Send + Sync {
    /// Bit `order` is set if the table has contexts of that order.
    fn orders(&self) -> u32;
    /// Tokens of the vocabulary.
    fn vocab(&self) -> u32;
    /// How often a token stood in the text, and how many tokens there were: the prior's numbers.
    fn prior(&self, token: TokenId) -> u64;
    /// Asks memory for what [`Ngrams::prior`] will read.
    fn prefetch_prior(&self, _token: TokenId) {}
    /// Sum of [`Ngrams::prior`] over the vocabulary.
    fn prior_total(&self) -> u64;
    /// Step 1: asks memory for the place in the index.
    fn prefetch(&self, context: &Context, order: usize);
    /// Step 2: finds a candidate, and asks memory for its record.
    fn locate(&self, context: &Context, order: usize) -> Option<usize>;
    /// Step 3: reads the record, or `None` if the candidate was another context.
    fn read(&self, context: &Context, order: usize, candidate: usize) -> Option<Continuations<'_>>;

    /// What followed the last `order` ids.
    fn find(&self, context: &Context, order: usize) -> Option<Continuations<'_>> {
        self.read(context, order, self.locate(context, order)?)
    }
}

/// What followed one context.
#[derive(Clone, Copy, Debug)]
pub struct Continuations<'a> {
    total: u64,
    /// Lengths of longer contexts of the same table that end with this one, as [`with_longer`] has them.
    longer: u32,
    /// (token, count) pairs, 8 bytes each.
    pairs: &'a [u8],
}

impl<'a> Continuations<'a> {
    pub(super) fn new(total: u64, pairs: &'a [u8]) -> Self {
        Self { total, longer: 0, pairs }
    }

    /// Lengths of the longer contexts that end with this one and are known too, rising.
    pub(super) fn longer(&self) -> impl Iterator<Item = usize> + use<> {
        let mut left = self.longer;
        std::iter::from_fn(move || {
            let i = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(ORDER_MAX + 1 + i)
        })
    }

    /// How often the context was seen, also before continuations that are too rare to be listed.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// (token, count), most frequent first, ties by lower id.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (TokenId, u32)> + use<'a> {
        let pairs = self.pairs.as_chunks::<8>().0;
        pairs
            .iter()
            .map(|&[a, b, c, d, e, f, g, h]| (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])))
    }
}

/// One continuation of a context, with all that a file says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// The token that followed.
    pub token: TokenId,
    /// How often it followed.
    pub count: u32,
    /// When it was last seen, seconds since 1970.
    pub time: u32,
}

/// One context, with all that a file says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The context, newest id last.
    pub key: Vec<TokenId>,
    /// How often it was seen.
    pub total: u64,
    /// Most frequent first, ties by lower id.
    pub list: Vec<Continuation>,
}

/// Lengths that long contexts may have.
const LONG_LENGTHS: usize = MATCH_MAX - ORDER_MAX;
/// Bits of a record's total that count, where the others say which longer contexts there are.
const TOTAL_BITS: u32 = u64::BITS - LONG_LENGTHS as u32;

/// The total of a context of [`ORDER_MAX`] tokens as its record has it: above it a bit for each length of longer
/// contexts that end with this one, [`ORDER_MAX`] + 1 first. So nobody looks for longer ones where there are none.
pub(super) fn with_longer(total: u64, longer: u32) -> u64 {
    assert!(total >> TOTAL_BITS == 0, "texts have less than 2^32 tokens");
    total | u64::from(longer) << TOTAL_BITS
}

/// A table in format v2 or v3.
#[derive(Debug)]
pub struct Table {
    bytes: Bytes,
    header: Header,
    prior_total: u64,
    /// Bit `order` is set if there are contexts of that order, up to `ORDER_MAX`.
    orders: u32,
    /// By order; the last one is `MATCH_MAX`.
    places: [Option<OrderRanges>; MATCH_MAX + 1],
    stats: Vec<OrderStats>,
}

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

#[derive(Debug)]
enum Bytes {
    Read(Pages),
    Owned(Vec<u8>),
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Read(pages) => pages,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

#[derive(Clone, Debug)]
struct OrderRanges {
    /// Slots that a hash is scaled to; probing may run past them.
    homes: usize,
    index: Range<usize>,
    records: Range<usize>,
    shape: RecordShape,
}

impl Table {
    /// Reads a file and checks all of it. Nothing of the file is used after that.
    pub fn open(path: &Path) -> Result<Self, TableError> {
        read_file(path).and_then(Self::checked).map_err(|e| e.in_file(path))
    }

    /// As [`Table::open`], and refuses a table that was made for another tokenizer.
    pub fn open_for(path: &Path, tokenizer: TokenizerHash) -> Result<Self, TableError> {
        let table = Self::open(path)?;
        match table.tokenizer() {
            got if got == tokenizer => Ok(table),
            got => Err(TableProblem::Tokenizer { want: tokenizer.to_string(), got: got.to_string() }.in_file(path)),
        }
    }

    /// A file that is already in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, TableProblem> {
        Self::checked(Bytes::Owned(bytes))
    }

    /// A table for one request, asked without ever being a file.
    pub fn in_memory(image: &Image) -> Self {
        Self::from_bytes(image.to_bytes()).expect("what is built here passes the checks")
    }

    fn checked(bytes: Bytes) -> Result<Self, TableProblem> {
        let header = format::read(&bytes)?;
        let mut places = [const { None }; MATCH_MAX + 1];
        let is_long = header.orders.iter().any(|o| o.0 > ORDER_MAX);
        let mut stats = Vec::new();
        for (order, index, records) in header.orders.clone() {
            let shape = RecordShape { order, says_longer: is_long && order == ORDER_MAX };
            let (index_bytes, record_bytes) = (&bytes[index.clone()], &bytes[records.clone()]);
            let walk = Check { order, vocab: header.vocab, shape, index: index_bytes, records: record_bytes };
            let found = walk.run()?;
            places[order] = Some(OrderRanges { homes: homes(found.contexts), index, records, shape });
            stats.push(found);
        }
        let counts = bytes[header.prior.clone()].as_chunks::<8>().0;
        let prior_total = counts.iter().try_fold(0u64, |sum, n| sum.checked_add(u64::from_le_bytes(*n)));
        let prior_total = prior_total.ok_or_else(|| TableProblem::damaged("prior", "a sum below 2^64", "more"))?;
        let orders = stats.iter().filter(|s| s.order <= ORDER_MAX).fold(0, |bits, s| bits | 1 << s.order);
        let table = Self { prior_total, orders, places, stats, header, bytes };
        if is_long { table.check_longer().map(|()| table) } else { Ok(table) }
    }

    /// The tokenizer whose ids the table speaks of.
    pub fn tokenizer(&self) -> TokenizerHash {
        self.header.tokenizer
    }

    /// Tokens that the table was built from.
    pub fn tokens(&self) -> u64 {
        self.header.tokens
    }

    /// Sizes by order, shortest context first.
    pub fn stats(&self) -> &[OrderStats] {
        &self.stats
    }

    /// Size of the file, or of what would be one.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has contexts of more than [`ORDER_MAX`] tokens.
    pub fn is_long(&self) -> bool {
        self.stats.last().is_some_and(|s| s.order > ORDER_MAX)
    }

    /// Each long context is one that its end of [`ORDER_MAX`] tokens speaks of, and has fewer continuations than that;
    /// and nothing else is spoken of.
    fn check_longer(&self) -> Result<(), TableProblem> {
        let wrong =
            |order: usize, want: &str| TableProblem::damaged(format!("order {order}: records"), want, "otherwise");
        let mut spoken = HashMap::new();
        for order in self.stats.iter().map(|s| s.order).filter(|&order| order > ORDER_MAX) {
            for record in self.records(order) {
                let key = record.key(order);
                let end = self.find(&Context::new(&key), ORDER_MAX).filter(|end| record.pairs.len() < end.pairs.len());
                end.ok_or_else(|| wrong(order, "contexts with fewer continuations than their ends of 8 tokens"))?;
                *spoken.entry(key[order - ORDER_MAX..].to_vec()).or_insert(0u32) |= 1 << (order - ORDER_MAX - 1);
            }
        }
        let lengths = |record: &Record<'_>| spoken.get(&record.key(ORDER_MAX)).copied().unwrap_or(0);
        match self.records(ORDER_MAX).all(|record| record.longer == lengths(&record)) {
            true => Ok(()),
            false => Err(wrong(ORDER_MAX, "the lengths of the longer contexts that there are")),
        }
    }

    /// All contexts of one order, in the file's order.
    pub fn entries(&self, order: usize) -> impl Iterator<Item = Entry> {
        self.records(order).map(move |record| record.entry(order))
    }

    /// Hashes of the contexts of all orders, for a filter.
    pub(super) fn hashes(&self) -> impl Iterator<Item = u64> {
        // Long ones are asked for where shorter ones say that they are there.
        let orders = self.stats.iter().map(|s| s.order).filter(|&order| order <= ORDER_MAX);
        orders.flat_map(|order| self.records(order).map(move |r| context::hash(&r.key(order))))
    }

    #[inline]
    fn prior_section(&self) -> &[u8] {
        &self.bytes[self.header.prior.clone()]
    }

    fn records(&self, order: usize) -> impl Iterator<Item = Record<'_>> {
        let place = self.places.get(order).and_then(|p| p.as_ref());
        let mut rest = place.map_or(&[][..], |p| &self.bytes[p.records.clone()]);
        std::iter::from_fn(move || {
            let record = Record::read(rest, place?.shape)?;
            rest = &rest[record.bytes()..];
            Some(record)
        })
    }

    /// A copy that can be written or changed.
    pub(super) fn prior_counts(&self) -> Vec<u64> {
        self.prior_section().as_chunks::<8>().0.iter().map(|n| u64::from_le_bytes(*n)).collect()
    }
}

/// All bytes of a regular file that stays as it is meanwhile.
fn read_file(path: &Path) -> Result<Bytes, TableProblem> {
    let mut file = open_regular(path)?;
    let stamp = Stamp::of(&file)?;
    let mut head = Vec::new();
    // Before there is memory for the rest: a file of another kind may be of any size.
    io::Read::by_ref(&mut file).take(8).read_to_end(&mut head)?;
    format::check_start(&head)?;
    let size = usize::try_from(stamp.bytes()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    let mut bytes = Pages::try_zeroed(size)?;
    let rest = bytes.get_mut(head.len()..).ok_or(TableProblem::Changed)?;
    file.read_exact(rest)
        .map_err(|e| if e.kind() == io::ErrorKind::UnexpectedEof { TableProblem::Changed } else { e.into() })?;
    bytes[..head.len()].copy_from_slice(&head);
    if Stamp::of(&file)? != stamp {
        return Err(TableProblem::Changed);
    }
    Ok(Bytes::Read(bytes))
}

impl Ngrams for Table {
    fn orders(&self) -> u32 {
        self.orders
    }

    fn vocab(&self) -> u32 {
        self.header.vocab
    }

    fn prior(&self, token: TokenId) -> u64 {
        self.prior_section().as_chunks().0.get(token as usize).map_or(0, |count| u64::from_le_bytes(*count))
    }

    fn prefetch_prior(&self, token: TokenId) {
        prefetch(self.prior_section(), 8 * token as usize);
    }

    fn prior_total(&self) -> u64 {
        self.prior_total
    }

    #[inline]
    fn prefetch(&self, context: &Context, order: usize) {
        if let (Some(Some(place)), Some(hash)) = (self.places.get(order), context.hash(order)) {
            prefetch(&self.bytes, place.index.start + 8 * scale(hash, place.homes));
        }
    }

    #[inline]
    fn locate(&self, context: &Context, order: usize) -> Option<usize> {
        let place = self.places.get(order)?.as_ref()?;
        let hash = context.hash(order)?;
        let slot = place.probe(&self.bytes, hash, scale(hash, place.homes))?;
        let record = place.record(&self.bytes, slot)?;
        prefetch(&self.bytes, record);
        prefetch(&self.bytes, record + 64);
        Some(slot)
    }

    fn read(&self, context: &Context, order: usize, candidate: usize) -> Option<Continuations<'_>> {
        let place = self.places.get(order)?.as_ref()?;
        let (hash, key) = (context.hash(order)?, context.key(order)?);
        let mut slot = candidate;
        loop {
            let at = place.record(&self.bytes, slot)?;
            let record = Record::read(self.bytes.get(at..place.records.end)?, place.shape)?;
            if record.has_key(key) {
                return Some(Continuations { total: record.total, longer: record.longer, pairs: record.pairs });
            }
            slot = place.probe(&self.bytes, hash, slot + 1)?;
        }
    }
}

impl OrderRanges {
    /// The first slot from `slot` on with this hash's fingerprint, before an empty one.
    #[inline]
    fn probe(&self, bytes: &[u8], hash: u64, mut slot: usize) -> Option<usize> {
        loop {
            match u64_at(&bytes[..self.index.end], self.index.start + 8 * slot)? {
                0 => return None,
                word if (word >> 32) as u32 == hash as u32 => return Some(slot),
                _ => slot += 1,
            }
        }
    }

    /// Where the record of a slot starts in the file.
    #[inline]
    fn record(&self, bytes: &[u8], slot: usize) -> Option<usize> {
        let word = u64_at(bytes, self.index.start + 8 * slot)? as u32;
        Some(self.records.start + 4 * (word as usize).checked_sub(1)?)
    }
}

/// Slots that hashes are scaled to: 0.7 of them are taken.
fn homes(contexts: u64) -> usize {
    (contexts as usize * 10).div_ceil(7).max(1)
}

/// What a file's records of one order look like.
#[derive(Clone, Copy, Debug)]
struct RecordShape {
    order: usize,
    /// Above the total stand lengths: see [`with_longer`].
    says_longer: bool,
}

/// u32 n, u64 total, key, n (token, count) pairs, n times.
struct Record<'a> {
    total: u64,
    longer: u32,
    key: &'a [u8],
    pairs: &'a [u8],
    times: &'a [u8],
}

impl<'a> Record<'a> {
    const HEAD: usize = 12;

    /// The record at the start of `bytes`; `None` if it does not fit.
    #[inline]
    fn read(bytes: &'a [u8], shape: RecordShape) -> Option<Self> {
        let (n, total) = (u32_at(bytes, 0)? as usize, u64_at(bytes, 4)?);
        let bits = if shape.says_longer { TOTAL_BITS } else { u64::BITS };
        let (total, longer) = (total & u64::MAX >> (u64::BITS - bits), total.checked_shr(bits).unwrap_or(0) as u32);
        let (key, rest) = bytes.get(Self::HEAD..)?.split_at_checked(4 * shape.order)?;
        let (pairs, rest) = rest.split_at_checked(n.checked_mul(8)?)?;
        Some(Self { total, longer, key, pairs, times: rest.get(..4 * n)? })
    }

    fn bytes(&self) -> usize {
        Self::HEAD + self.key.len() + self.pairs.len() + self.times.len()
    }

    #[inline]
    fn has_key(&self, key: &[TokenId]) -> bool {
        self.key.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).eq(key.iter().copied())
    }

    fn key(&self, order: usize) -> Vec<TokenId> {
        assert_eq!(self.key.len(), 4 * order);
        words(self.key).collect()
    }

    fn list(&self) -> impl Iterator<Item = Continuation> {
        let pairs = Continuations::new(self.total, self.pairs).iter();
        pairs.zip(words(self.times)).map(|((token, count), time)| Continuation { token, count, time })
    }

    fn entry(&self, order: usize) -> Entry {
        Entry { key: self.key(order), total: self.total, list: self.list().collect() }
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b))
}

/// Index and records of one order in the making. Records come sorted by (hash, key).
#[derive(Clone, Debug)]
pub(super) struct OrderImage {
    pub(super) order: usize,
    pub(super) index: Vec<u8>,
    pub(super) records: Vec<u8>,
    pub(super) ngrams: u64,
    contexts: Vec<(u64, u32)>,
}

impl OrderImage {
    pub(super) fn new(order: usize) -> Self {
        Self { order, index: Vec::new(), records: Vec::new(), ngrams: 0, contexts: Vec::new() }
    }

    /// Adds a context, if any continuation is left of it; sorts `list`. `false` if the order has become larger than its
    /// index can say.
    #[must_use]
    pub(super) fn push(&mut self, hash: u64, key: &[TokenId], total: u64, list: &mut [Continuation]) -> bool {
        if list.is_empty() {
            return true;
        }
        let Some(at) = u32::try_from(self.records.len() / 4 + 1).ok().filter(|&at| at < u32::MAX) else { return false };
        list.sort_unstable_by_key(|c| (std::cmp::Reverse(c.count), c.token));
        self.contexts.push((hash, at));
        self.ngrams += list.len() as u64;
        let out = &mut self.records;
        out.extend((list.len() as u32).to_le_bytes());
        out.extend(total.to_le_bytes());
        key.iter().for_each(|id| out.extend(id.to_le_bytes()));
        list.iter().for_each(|c| out.extend((u64::from(c.count) << 32 | u64::from(c.token)).to_le_bytes()));
        list.iter().for_each(|c| out.extend(c.time.to_le_bytes()));
        true
    }

    /// Makes the index; `None` if there is no context.
    pub(super) fn finish(mut self) -> Option<Self> {
        let homes = homes(self.contexts.len() as u64);
        let mut slots: Vec<u64> = Vec::with_capacity(homes + 8);
        for (hash, at) in std::mem::take(&mut self.contexts) {
            slots.resize(slots.len().max(scale(hash, homes)), 0);
            slots.push(slot_word(hash, at));
        }
        // One empty slot behind the last home and the last record ends every probe.
        slots.resize(slots.len().max(homes) + 1, 0);
        self.index = slots.iter().flat_map(|word| word.to_le_bytes()).collect();
        (self.ngrams > 0).then_some(self)
    }
}

fn slot_word(hash: u64, at: u32) -> u64 {
    hash << 32 | u64::from(at)
}

/// The checks of one order: everything that looking up and merging rely on.
struct Check<'a> {
    order: usize,
    vocab: u32,
    shape: RecordShape,
    index: &'a [u8],
    records: &'a [u8],
}

impl Check<'_> {
    /// Walks records and index side by side: as both are sorted by hash, each slot is known before it is read.
    fn run(&self) -> Result<OrderStats, TableProblem> {
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
