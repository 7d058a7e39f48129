//! Makes a table from token ids. The same code makes the file of a corpus and the table of one request's documents.

use super::format::{Image, TokenizerHash};
use super::long::{Followers, LongContexts, LongRules, Occurrence};
use super::ngrams::Continuation;
use super::record::{OrderImage, with_longer};
use crate::engram::context;
use crate::engram::order::{MATCH_MAX, ORDER_MAX, Orders};
use crate::ids::TokenId;

/// What a table is built with.
#[derive(Clone, Copy, Debug)]
pub struct BuildOptions {
    /// Lengths of the contexts that are counted.
    pub orders: Orders,
    /// The longest contexts: those of more than [`ORDER_MAX`] tokens, up to [`MATCH_MAX`], where they say more
    /// than their ends do, beside orders that reach to [`ORDER_MAX`]. [`ORDER_MAX`] wants none of them.
    pub longest: usize,
    /// Continuations seen less often after a context are not listed; they still count as occurrences of the context.
    pub min_count: u32,
    /// Tokens of the vocabulary.
    pub vocab: u32,
    /// The tokenizer that the ids come from.
    pub tokenizer: TokenizerHash,
    /// When the text was seen, seconds since 1970.
    pub time: u32,
}

/// Why a table cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// An id that the vocabulary does not have.
    #[error("text {text}, token {position}: wanted an id below {vocab}, got {id}")]
    Id {
        /// Which text, from 0.
        text: usize,
        /// Where in it, from 0.
        position: usize,
        /// The id that is too large.
        id: TokenId,
        /// Tokens of the vocabulary.
        vocab: u32,
    },
    /// Long contexts stand beside all of eight tokens.
    #[error(
        "longest: wanted {ORDER_MAX}, or up to {max} with orders up to {ORDER_MAX}, got {got} with orders up to {high}"
    )]
    Longest {
        /// The most that it may be.
        max: usize,
        /// The value that was given.
        got: usize,
        /// The highest of the orders.
        high: usize,
    },
    /// Positions are counted in 32 bits.
    #[error("wanted at most {max} tokens, got {got}")]
    TooManyTokens {
        /// The most that there may be.
        max: u64,
        /// Tokens of all texts.
        got: u64,
    },
    /// An order's records are counted in 32 bits.
    #[error("order {order}: wanted at most 16 GiB of records, got more; raise min_count or split the text")]
    TooLarge {
        /// The context length that has too many.
        order: usize,
    },
}

/// Counts what follows each context. Contexts never reach from one text into another.
pub fn build(texts: &[&[TokenId]], options: &BuildOptions) -> Result<Image, BuildError> {
    let tokens = check(texts, options)?;
    let mut prior = vec![0; options.vocab as usize];
    texts.iter().flat_map(|t| t.iter()).for_each(|&id| prior[id as usize] += 1);
    let mut orders = Vec::new();
    let &BuildOptions { longest, min_count, time, .. } = options;
    let mut long = LongContexts::new(texts, LongRules { longest, min_count, time });
    for order in options.orders.iter() {
        orders.extend(build_order(texts, order, options, &mut long)?);
    }
    orders.extend(long.finish().map_err(|order| BuildError::TooLarge { order })?);
    Ok(Image { tokenizer: options.tokenizer, vocab: options.vocab, tokens, prior, orders })
}

fn check(texts: &[&[TokenId]], options: &BuildOptions) -> Result<u64, BuildError> {
    let (max, got, high) = (MATCH_MAX, options.longest, options.orders.iter().next_back().unwrap_or(0));
    if got != ORDER_MAX && !((ORDER_MAX..=max).contains(&got) && high == ORDER_MAX) {
        return Err(BuildError::Longest { max, got, high });
    }
    let (max, got) = (u64::from(u32::MAX), texts.iter().map(|t| t.len() as u64).sum());
    if got > max {
        return Err(BuildError::TooManyTokens { max, got });
    }
    for (text, ids) in texts.iter().enumerate() {
        if let Some(position) = ids.iter().position(|&id| id >= options.vocab) {
            return Err(BuildError::Id { text, position, id: ids[position], vocab: options.vocab });
        }
    }
    Ok(got)
}

fn build_order(
    texts: &[&[TokenId]],
    order: usize,
    options: &BuildOptions,
    long: &mut LongContexts<'_>,
) -> Result<Option<OrderImage>, BuildError> {
    let mut occurrences = Vec::with_capacity(texts.iter().map(|t| t.len().saturating_sub(order)).sum());
    for (text, ids) in texts.iter().enumerate() {
        let contexts = ids.windows(order + 1).enumerate();
        occurrences.extend(contexts.map(|(start, window)| Occurrence {
            hash: context::hash(&window[..order]),
            text: text as u32,
            at: (start + order) as u32,
        }));
    }
    occurrences.sort_unstable_by_key(|o| o.hash);
    let mut image = OrderImage::new(order);
    let mut list = Vec::new();
    for same_hash in occurrences.chunk_by_mut(|a, b| a.hash == b.hash) {
        push_contexts(texts, order, options, same_hash, &mut list, long, &mut image)
            .ok_or(BuildError::TooLarge { order })?;
    }
    Ok(image.finish())
}

/// Adds the contexts of one hash, nearly always a single one; `None` if the order has become too large.
fn push_contexts(
    texts: &[&[TokenId]],
    order: usize,
    options: &BuildOptions,
    same_hash: &mut [Occurrence],
    list: &mut Vec<Continuation>,
    long: &mut LongContexts<'_>,
    image: &mut OrderImage,
) -> Option<()> {
    let gram = |o: &Occurrence| &texts[o.text as usize][o.at as usize - order..=o.at as usize];
    same_hash.sort_unstable_by(|a, b| gram(a).cmp(gram(b)));
    for context in same_hash.chunk_by(|a, b| gram(a)[..order] == gram(b)[..order]) {
        list.clear();
        let mut seen = 0;
        for same in context.chunk_by(|a, b| gram(a)[order] == gram(b)[order]) {
            seen += 1;
            let count = same.len() as u32;
            if count >= options.min_count {
                list.push(Continuation { token: gram(&same[0])[order], count, time: options.time });
            }
        }
        let longer = match order {
            ORDER_MAX => long.take(context, Followers { seen, listed: list.len() }),
            _ => 0,
        };
        let (first, total) = (&context[0], with_longer(context.len() as u64, longer));
        image.push(first.hash, &gram(first)[..order], total, list).then_some(())?;
    }
    Some(())
}
