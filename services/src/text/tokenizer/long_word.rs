//! Byte-pair merging of words of megabytes, as a text without a blank is one: the same ids as the crate's own merging
//! in a third of its memory, which is more than a hundred bytes for each byte of the word.

use super::source::TokenizerParts;
use super::{TokenizerError, alphabet, malformed};
use chimere_engine::ids::TokenId;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

/// Words of more bytes are merged here: below, memory is nothing and the crate remembers words that come again.
pub(super) const LONG_WORD_BYTES: usize = 4 << 10;
/// No symbol: the end of the word, or one that became part of another.
const NONE: u32 = u32::MAX;

/// What may be merged, by rank.
#[derive(Debug)]
pub(super) struct Merges {
    /// The token of each byte.
    bytes: Vec<TokenId>,
    /// Two tokens, the left one in the upper half, to the rank of their merge.
    ranks: HashMap<u64, u32, BuildHasherDefault<PairHasher>>,
    /// What comes of the merge of each rank.
    products: Vec<TokenId>,
}

/// A part of the word, and where its neighbours begin.
#[derive(Clone, Copy)]
struct Symbol {
    id: TokenId,
    before: u32,
    after: u32,
}

/// Whether text in UTF-8 can have this byte. Vocabularies such as that of GPT-NeoX have no tokens for the others.
fn in_text(byte: u8) -> bool {
    !matches!(byte, 0xC0 | 0xC1 | 0xF5..)
}

impl Merges {
    /// Merging needs a token for every byte that text may have, and for every merge's halves and product; without them
    /// words would vanish.
    pub(super) fn new(parts: &TokenizerParts) -> Result<Self, TokenizerError> {
        let (mut buffer, id) = ([0; 4], |token: &str| parts.vocab.get(token).copied());
        let mut named = |c: char| {
            let missing = || malformed("vocabulary", format!("no token for the byte written {c:?}"));
            id(c.encode_utf8(&mut buffer)).ok_or_else(missing)
        };
        let of_byte = |(byte, c)| if in_text(byte) { named(c) } else { Ok(named(c).unwrap_or(NONE)) };
        let bytes = (0..=u8::MAX).zip(alphabet::chars()).map(of_byte).collect::<Result<_, _>>()?;
        let mut ranks = HashMap::with_capacity_and_hasher(parts.merges.len(), BuildHasherDefault::default());
        let mut products = Vec::with_capacity(parts.merges.len());
        for (rank, (left, right)) in (0..).zip(&parts.merges) {
            let (Some(a), Some(b), Some(product)) = (id(left), id(right), id(&format!("{left}{right}"))) else {
                let open = format!("{left:?} + {right:?}, of which one or the product is no token");
                return Err(malformed("merges", open));
            };
            // Of a pair that stands twice the later rank counts, as it does in the crate.
            ranks.insert(pair(a, b), rank);
            products.push(product);
        }
        Ok(Self { bytes, ranks, products })
    }

    /// Appends the ids of a word of less than 4 GiB. The lowest rank is merged first, of several places the first.
    pub(super) fn encode(&self, word: &[u8], ids: &mut Vec<TokenId>) {
        let mut symbols: Vec<Symbol> = (0..).zip(word).map(|(at, &byte)| self.symbol(at, byte)).collect();
        if let Some(last) = symbols.last_mut() {
            last.after = NONE;
        }
        let mut open = MergeQueue::default();
        for (at, two) in (0..).zip(symbols.windows(2)) {
            self.offer(&mut open, at, two[0].id, two[1].id);
        }
        while let Some(Merge { rank, at }) = open.pop() {
            if self.merge(&mut symbols, rank, at) {
                let Symbol { id, before, after } = symbols[at as usize];
                if before != NONE {
                    self.offer(&mut open, before, symbols[before as usize].id, id);
                }
                if after != NONE {
                    self.offer(&mut open, at, id, symbols[after as usize].id);
                }
            }
        }
        ids.extend(symbols.iter().map(|symbol| symbol.id).filter(|&id| id != NONE));
    }

    /// Makes one symbol of the one at this place and the next. False if what the entry was made for is gone.
    fn merge(&self, symbols: &mut [Symbol], rank: u32, at: u32) -> bool {
        let Symbol { id, after, .. } = symbols[at as usize];
        if id == NONE || after == NONE {
            return false;
        }
        let (right, product) = (symbols[after as usize], self.products[rank as usize]);
        // Other halves may have come there which make the same token, and then they are merged in this one's turn.
        if self.rank(id, right.id).is_none_or(|now| self.products[now as usize] != product) {
            return false;
        }
        symbols[after as usize].id = NONE;
        symbols[at as usize] = Symbol { id: product, after: right.after, ..symbols[at as usize] };
        if right.after != NONE {
            symbols[right.after as usize].before = at;
        }
        true
    }

    fn symbol(&self, at: u32, byte: u8) -> Symbol {
        Symbol { id: self.bytes[usize::from(byte)], before: at.checked_sub(1).unwrap_or(NONE), after: at + 1 }
    }

    fn rank(&self, left: TokenId, right: TokenId) -> Option<u32> {
        self.ranks.get(&pair(left, right)).copied()
    }

    /// Notes that these two may be merged, if they may: `at` is where the left one begins.
    fn offer(&self, open: &mut MergeQueue, at: u32, left: TokenId, right: TokenId) {
        if let Some(rank) = self.rank(left, right) {
            open.push(Merge { rank, at });
        }
    }
}

/// A merge that is open, ordered by rank and then by place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Merge {
    rank: u32,
    at: u32,
}

/// What is open, lowest first. A heap alone would do, and take ten times as long for a word of millions of equal pairs:
/// all of a rank come at once here, nearly always in order, and only what comes too late for that goes into a heap.
#[derive(Default)]
struct MergeQueue {
    /// The rank whose places are handed out, of which there is none at first.
    rank: Option<u32>,
    /// Its places that are left, first one last.
    places: Vec<u32>,
    /// What came since then, of this rank or a lower one.
    late: BinaryHeap<Reverse<Merge>>,
    /// Places of each higher rank, as they came.
    later: HashMap<u32, Vec<u32>, BuildHasherDefault<PairHasher>>,
    /// The keys of `later`.
    ranks: BinaryHeap<Reverse<u32>>,
}

impl MergeQueue {
    fn push(&mut self, entry: Merge) {
        if self.rank.is_some_and(|rank| entry.rank <= rank) {
            self.late.push(Reverse(entry));
            return;
        }
        let new = || {
            self.ranks.push(Reverse(entry.rank));
            Vec::new()
        };
        self.later.entry(entry.rank).or_insert_with(new).push(entry.at);
    }

    fn pop(&mut self) -> Option<Merge> {
        if self.places.is_empty() && self.late.is_empty() {
            self.next_rank()?;
        }
        let own = self.rank.zip(self.places.last()).map(|(rank, &at)| Merge { rank, at });
        match self.late.peek() {
            Some(&Reverse(late)) if own.is_none_or(|own| late < own) => {
                self.late.pop();
                Some(late)
            }
            _ => {
                self.places.pop();
                own
            }
        }
    }

    fn next_rank(&mut self) -> Option<()> {
        let Reverse(rank) = self.ranks.pop()?;
        let mut places = self.later.remove(&rank)?;
        // Stable sorting takes runs that are in order as they are, and there are few: one for each rank that left some.
        places.sort();
        places.reverse();
        (self.rank, self.places) = (Some(rank), places);
        Some(())
    }
}

fn pair(left: TokenId, right: TokenId) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// A hash of two ids, or of a rank, in one multiplication. Nobody chooses them but the model's file.
#[derive(Debug, Default)]
pub(super) struct PairHasher(u64);

impl Hasher for PairHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u32(&mut self, rank: u32) {
        self.write_u64(rank.into());
    }

    fn write_u64(&mut self, pair: u64) {
        // An odd constant without a pattern: the golden ratio's digits.
        let product = u128::from(pair ^ self.0) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}
