//! What answers which tokens followed a context, and what an answer holds. A file is one such thing, and whoever asks
//! needs to know no file.

use crate::engram::context::Context;
use crate::engram::order::ORDER_MAX;
use crate::ids::TokenId;

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
    /// Bit i is set if the same table has a longer context of [`ORDER_MAX`] + 1 + i tokens that ends with this one.
    longer: u32,
    /// (token, count) pairs, 8 bytes each.
    pairs: &'a [u8],
}

impl<'a> Continuations<'a> {
    #[inline]
    pub(super) fn new(total: u64, longer: u32, pairs: &'a [u8]) -> Self {
        Self { total, longer, pairs }
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
