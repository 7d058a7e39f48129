//! Byte-pair merging of words of megabytes, as a text without a blank is one: the same ids as the crate's own merging
//! in a third of its memory, which is more than a hundred bytes for each byte of the word.

use super::alphabet;
use super::source::TokenizerParts;
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

impl Merges {
    /// Of parts that were found to be closed: there is a token for each byte, each merge's halves and its product.
    pub(super) fn new(parts: &TokenizerParts) -> Self {
        let id = |token: &str| *parts.vocab.get(token).expect("the parts are closed");
        let mut buffer = [0; 4];
        let bytes = alphabet::chars().map(|c| id(c.encode_utf8(&mut buffer))).collect();
        let mut ranks = HashMap::with_capacity_and_hasher(parts.merges.len(), BuildHasherDefault::default());
        let mut products = Vec::with_capacity(parts.merges.len());
        for (rank, (left, right)) in (0..).zip(&parts.merges) {
            // Of a pair that stands twice the later rank counts, as it does in the crate.
            ranks.insert(pair(id(left), id(right)), rank);
            products.push(id(&format!("{left}{right}")));
        }
        Self { bytes, ranks, products }
    }

    /// Appends the ids of a word of less than 4 GiB. The lowest rank is merged first, of several places the first.
    pub(super) fn encode(&self, word: &[u8], ids: &mut Vec<TokenId>) {
        let mut symbols: Vec<Symbol> = (0..).zip(word).map(|(at, &byte)| self.symbol(at, byte)).collect();
        if let Some(last) = symbols.last_mut() {
            last.after = NONE;
        }
        let first = (0..).zip(symbols.windows(2)).filter_map(|(at, two)| self.entry(at, two[0].id, two[1].id));
        let mut open: BinaryHeap<Reverse<u64>> = first.collect::<Vec<_>>().into();
        while let Some(Reverse(entry)) = open.pop() {
            let (rank, at) = ((entry >> 32) as u32, entry as u32);
            if self.merge(&mut symbols, rank, at) {
                let Symbol { id, before, after } = symbols[at as usize];
                if before != NONE {
                    open.extend(self.entry(before, symbols[before as usize].id, id));
                }
                if after != NONE {
                    open.extend(self.entry(at, id, symbols[after as usize].id));
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

    /// What is open at a place: its rank above the place, so that the lowest rank comes first, then the first place.
    fn entry(&self, at: u32, left: TokenId, right: TokenId) -> Option<Reverse<u64>> {
        self.rank(left, right).map(|rank| Reverse(u64::from(rank) << 32 | u64::from(at)))
    }
}

fn pair(left: TokenId, right: TokenId) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// A hash of two ids in one multiplication. Nobody chooses the pairs but the model's file.
#[derive(Debug, Default)]
pub(super) struct PairHasher(u64);

impl Hasher for PairHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, pair: u64) {
        // An odd constant without a pattern: the golden ratio's digits.
        let product = u128::from(pair ^ self.0) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}
