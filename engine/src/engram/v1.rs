//! The first Chimère's `.engr` format, version 1: one order, hashes without keys, counts by falling frequency.
//!
//! header: u32 magic, version 1, order, table_size, num_entries; slots of 16 bytes {u64 hash, u32 data offset, u32
//! total}, hash 0 = empty; data: u32 n, then n x (u32 token, u32 count). FNV-1a-64 over the little-endian bytes of the
//! last `order` ids, index = hash mod size, linear probing. Without keys two contexts with one hash cannot be told
//! apart, so such a file cannot become version 2.

use super::ORDER_MAX;
use super::context::Context;
use super::error::{TableError, TableProblem};
use super::format::{MAGIC, u32_at, u64_at};
use super::table::{Continuations, Ngrams, Table};
use crate::files::read_regular;
use crate::ids::TokenId;
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

const HEADER_BYTES: usize = 20;
const SLOT_BYTES: usize = 16;
/// Slots are numbered with 32 bits and lists begin within 4 GiB.
const BYTES_MAX: u64 = 128 << 30;

/// A table in format v1, read into memory.
#[derive(Debug)]
pub struct V1Table {
    bytes: Vec<u8>,
    order: usize,
    slots: usize,
    vocab: u32,
    /// The format has no prior: these are the sums of all continuations.
    tokens: HashMap<TokenId, u64>,
    total: u64,
}

/// Why a table cannot be written in format v1.
#[derive(Debug, thiserror::Error)]
pub enum V1Error {
    /// The file could not be written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The format holds one order, and the table does not have it.
    #[error("order {0}: the table has none of its contexts")]
    Order(usize),
    /// Offsets have 32 bits.
    #[error("wanted at most 4 GiB of continuations, got more")]
    TooLarge,
    /// The format has no keys to tell two contexts apart, and no place for the hash 0.
    #[error("the context {0:?} has the hash of another one, or the hash 0")]
    Hash(Vec<TokenId>),
}

impl V1Table {
    /// Reads and checks a file for a model with `vocab` tokens. The format does not say whose ids it holds: the caller
    /// must know.
    pub fn open(path: &Path, vocab: u32) -> Result<Self, TableError> {
        let bytes = read_regular(path, BYTES_MAX).map_err(|e| TableProblem::from(e).in_file(path))?;
        Self::from_bytes(bytes, vocab).map_err(|e| e.in_file(path))
    }

    /// A file that is already in memory.
    pub fn from_bytes(bytes: Vec<u8>, vocab: u32) -> Result<Self, TableProblem> {
        let field = |at| u32_at(&bytes, at).ok_or_else(|| short(bytes.len(), HEADER_BYTES));
        match (field(0)?, field(4)?) {
            (MAGIC, 1) => {}
            (MAGIC, got) => return Err(TableProblem::Version { want: "1", got }),
            (got, _) => return Err(TableProblem::Magic(got)),
        }
        let (order, slots, entries) = (field(8)? as usize, field(12)? as usize, field(16)?);
        if !(1..=ORDER_MAX).contains(&order) {
            return Err(TableProblem::damaged("order", format!("1 to {ORDER_MAX}"), order));
        }
        let data = HEADER_BYTES + slots * SLOT_BYTES;
        if bytes.len() < data || slots == 0 {
            return Err(short(bytes.len(), data.max(HEADER_BYTES + SLOT_BYTES)));
        }
        let mut table = Self { bytes, order, slots, vocab, tokens: HashMap::new(), total: 0 };
        table.check(entries)?;
        Ok(table)
    }

    /// The one context length.
    pub fn order(&self) -> usize {
        self.order
    }

    /// Contexts with their continuations, in the order of the slots.
    pub fn entries(&self) -> impl Iterator<Item = (u64, Continuations<'_>)> {
        (0..self.slots).filter_map(|slot| Some((self.hash(slot).filter(|&h| h != 0)?, self.at(slot)?)))
    }

    fn check(&mut self, entries: u32) -> Result<(), TableProblem> {
        let (mut tokens, mut taken, mut total) = (HashMap::<TokenId, u64>::new(), 0u32, 0u64);
        for slot in (0..self.slots).filter(|&slot| self.hash(slot) != Some(0)) {
            let name = |part: &str| format!("slot {slot}: {part}");
            let list = self
                .at(slot)
                .ok_or_else(|| TableProblem::damaged(name("continuations"), "inside the file", "outside"))?;
            taken += 1;
            for (token, count) in list.iter() {
                if token >= self.vocab {
                    return Err(TableProblem::damaged(name("token"), format!("below {}", self.vocab), token));
                }
                *tokens.entry(token).or_default() += u64::from(count);
                total += u64::from(count);
            }
            if !list.iter().map(|c| c.1).is_sorted_by(|a, b| a >= b) {
                return Err(TableProblem::damaged(name("continuations"), "falling counts", "others"));
            }
            let sum: u64 = list.iter().map(|c| u64::from(c.1)).sum();
            if sum > list.total() {
                return Err(TableProblem::damaged(name("total"), format!("at least {sum}"), list.total()));
            }
        }
        if taken != entries {
            return Err(TableProblem::damaged("number of entries", entries, taken));
        }
        (self.tokens, self.total) = (tokens, total);
        Ok(())
    }

    fn hash(&self, slot: usize) -> Option<u64> {
        u64_at(&self.bytes, HEADER_BYTES + slot * SLOT_BYTES)
    }

    /// What a slot points to; `None` if that is outside the file.
    fn at(&self, slot: usize) -> Option<Continuations<'_>> {
        let at = HEADER_BYTES + slot * SLOT_BYTES;
        let data = self.bytes.get(HEADER_BYTES + self.slots * SLOT_BYTES..)?;
        let list = data.get(u32_at(&self.bytes, at + 8)? as usize..)?;
        let n = u32_at(list, 0)? as usize;
        Some(Continuations::new(u64::from(u32_at(&self.bytes, at + 12)?), list.get(4..)?.get(..n.checked_mul(8)?)?))
    }
}

impl Ngrams for V1Table {
    fn orders(&self) -> u32 {
        1 << self.order
    }

    fn vocab(&self) -> u32 {
        self.vocab
    }

    fn prior(&self, token: TokenId) -> u64 {
        self.tokens.get(&token).copied().unwrap_or(0)
    }

    fn prior_total(&self) -> u64 {
        self.total
    }

    fn prefetch(&self, _: &Context, _: usize) {}

    fn locate(&self, context: &Context, order: usize) -> Option<usize> {
        let hash = fnv1a((order == self.order).then(|| context.key(order))??);
        let home = (hash % self.slots as u64) as usize;
        let probes = (home..self.slots).chain(0..home).map(|slot| (slot, self.hash(slot)));
        // A full table has no empty slot: after one round the context is not there.
        let found = probes.take_while(|&(_, h)| h != Some(0)).find(|&(_, h)| h == Some(hash));
        found.filter(|_| hash != 0).map(|(slot, _)| slot)
    }

    fn read(&self, _: &Context, _: usize, candidate: usize) -> Option<Continuations<'_>> {
        self.at(candidate)
    }
}

/// Writes one order of a table in format v1. Totals saturate at 32 bits; keys, times and the prior are lost.
pub fn write_v1(table: &Table, order: usize, out: &mut impl Write) -> Result<(), V1Error> {
    let contexts = table.stats().iter().find(|s| s.order == order).ok_or(V1Error::Order(order))?.contexts;
    let size =
        usize::try_from(contexts * 4 / 3 + 1).ok().filter(|&n| n <= u32::MAX as usize).ok_or(V1Error::TooLarge)?;
    let mut slots = vec![(0u64, 0u32, 0u32); size];
    let mut data: Vec<u8> = Vec::new();
    for entry in table.entries(order) {
        let hash = fnv1a(&entry.key);
        let home = (hash % size as u64) as usize;
        let probes = (home..size).chain(0..home);
        let slot = probes
            .clone()
            .find(|&slot| slots[slot].0 == 0 || slots[slot].0 == hash)
            .filter(|&s| slots[s].0 == 0 && hash != 0);
        let slot = slot.ok_or(V1Error::Hash(entry.key))?;
        let at = u32::try_from(data.len()).map_err(|_| V1Error::TooLarge)?;
        slots[slot] = (hash, at, u32::try_from(entry.total).unwrap_or(u32::MAX));
        data.extend((entry.list.len() as u32).to_le_bytes());
        entry.list.iter().for_each(|c| data.extend((u64::from(c.count) << 32 | u64::from(c.token)).to_le_bytes()));
    }
    let header = [MAGIC, 1, order as u32, size as u32, contexts as u32];
    out.write_all(&header.map(u32::to_le_bytes).concat())?;
    for (hash, at, total) in slots {
        out.write_all(&hash.to_le_bytes())?;
        out.write_all(&(u64::from(total) << 32 | u64::from(at)).to_le_bytes())?;
    }
    Ok(out.write_all(&data)?)
}

fn short(got: usize, want: usize) -> TableProblem {
    TableProblem::damaged("length", format!("at least {want} bytes"), format!("{got} bytes"))
}

/// FNV-1a-64 over the little-endian bytes of the ids.
fn fnv1a(ids: &[TokenId]) -> u64 {
    let bytes = ids.iter().flat_map(|id| id.to_le_bytes());
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a_of_little_endian_ids() {
        assert_eq!(fnv1a(&[]), 0xCBF2_9CE4_8422_2325);
        // "foob" "arXX" in little-endian; the published value of "foob" is 0xdd120e790c2512af.
        assert_eq!(fnv1a(&[u32::from_le_bytes(*b"foob")]), 0xDD12_0E79_0C25_12AF);
    }
}
