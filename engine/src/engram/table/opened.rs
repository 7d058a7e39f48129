//! A table that can be asked, read from a file or made for one request. It is in memory and checked in full when it is
//! opened, so that looking up needs no trust, whatever becomes of the file; read by any number of threads.

use super::check::{Check, OrderStats};
use super::error::{TableError, TableProblem};
use super::format::{self, Header, Image, TokenizerHash};
use super::ngrams::{Continuations, Entry, Ngrams};
use super::record::{Record, RecordShape, homes, u64_at};
use crate::engram::context::{self, Context, scale};
use crate::engram::order::{MATCH_MAX, ORDER_MAX};
use crate::engram::pages::{Pages, prefetch};
use crate::files::{Stamp, open_regular};
use crate::ids::TokenId;
use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

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
                let fewer = |end: &Continuations<'_>| record.continuations().iter().len() < end.iter().len();
                let end = self.find(&Context::new(&key), ORDER_MAX).filter(fewer);
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
                return Some(record.continuations());
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
