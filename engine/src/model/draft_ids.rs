//! The ids that a model's draft head guesses among: all, or a shortlist, so that a guess reads fewer rows of the head.
//!
//! A guess is only a guess: what is left out of the list is never guessed, and no byte of an answer follows from that.

use super::Model;
use crate::format::Tensor;
use crate::ids::TokenId;
use std::ops::Range;
use std::sync::Arc;

/// Ids of a shortlist come in so many: kernels read rows of the head in tiles.
const IDS_STEP: usize = 64;

/// Ids to guess among.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraftIds {
    /// Whatever the model knows.
    All,
    /// Those below this one. Tokenizers number what is frequent first.
    First(u32),
    /// These, in any order.
    Listed(Vec<TokenId>),
}

/// Fewer ids than the model knows, a whole number of 64.
#[derive(Clone, Debug)]
pub enum Shortlist {
    /// So many from 0 on: the first rows of the model's head.
    First(usize),
    /// These, rising, and their rows of the head.
    Listed {
        /// The id at each place.
        ids: Arc<[TokenId]>,
        /// The rows of the head that belong to these ids, `[ids, hidden]`.
        rows: Tensor,
    },
}

impl Shortlist {
    /// How many ids it has.
    #[allow(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        match self {
            Self::First(n) => *n,
            Self::Listed { ids, .. } => ids.len(),
        }
    }

    /// The ids by place, where these differ from their places.
    pub fn ids(&self) -> Option<&Arc<[TokenId]>> {
        match self {
            Self::First(_) => None,
            Self::Listed { ids, .. } => Some(ids),
        }
    }

    /// Their rows of the head, where these are not its first ones.
    pub fn rows(&self) -> Option<&Tensor> {
        match self {
            Self::First(_) => None,
            Self::Listed { rows, .. } => Some(rows),
        }
    }

    /// The place of an id, if it is listed.
    pub fn place(&self, id: TokenId) -> Option<u32> {
        match self {
            Self::First(n) => ((id as usize) < *n).then_some(id),
            Self::Listed { ids, .. } => ids.binary_search(&id).ok().map(|place| place as u32),
        }
    }
}

impl Model {
    /// Has the draft head, if there is one, guess among these ids and those that fill them up to a multiple of 64: the
    /// lowest that are not listed.
    ///
    /// # Errors
    /// If none is listed, or one that the model does not know.
    pub fn limit_draft_ids(&mut self, wanted: &DraftIds) -> Result<(), String> {
        let vocab = self.config.vocab;
        let (count, ids) = match wanted {
            DraftIds::All => (vocab, None),
            DraftIds::First(n) => (*n as usize, None),
            DraftIds::Listed(ids) => {
                let ids = filled_up(ids, vocab)?;
                (ids.len(), Some(ids).filter(|ids| !are_first(ids)))
            }
        };
        if count == 0 {
            return Err("no id is listed, at least one is needed".into());
        }
        let Some(draft_head) = &mut self.weights.draft_head else { return Ok(()) };
        let head = self.weights.head.as_ref().unwrap_or(&self.weights.embed);
        draft_head.shortlist = match ids {
            Some(ids) => Some(Shortlist::Listed { rows: head.gather_rows(&runs(&ids)), ids: ids.into() }),
            None => Some(count.next_multiple_of(IDS_STEP)).filter(|n| *n < vocab).map(Shortlist::First),
        };
        Ok(())
    }
}

/// Whether rising ids are those below their number.
fn are_first(ids: &[TokenId]) -> bool {
    ids.last().is_none_or(|last| *last as usize + 1 == ids.len())
}

/// The ids rising, with as many of the lowest others as make a whole number of steps, or all.
fn filled_up(ids: &[TokenId], vocab: usize) -> Result<Vec<TokenId>, String> {
    if let Some(id) = ids.iter().find(|id| **id as usize >= vocab) {
        return Err(format!("id {id}: the model knows those below {vocab}"));
    }
    let mut taken = vec![false; vocab];
    ids.iter().for_each(|id| taken[*id as usize] = true);
    let own = taken.iter().filter(|taken| **taken).count();
    let more = own.next_multiple_of(IDS_STEP).min(vocab) - own;
    taken.iter_mut().filter(|taken| !**taken).take(more).for_each(|taken| *taken = true);
    Ok((0..vocab as TokenId).filter(|id| taken[*id as usize]).collect())
}

/// Rising ids as stretches of neighbours.
fn runs(ids: &[TokenId]) -> Vec<Range<usize>> {
    let neighbours = ids.chunk_by(|a, b| a + 1 == *b);
    neighbours.map(|run| run[0] as usize..run[run.len() - 1] as usize + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_rise_and_are_filled_up_with_the_lowest_ids() {
        let list = filled_up(&[300, 2, 300, 511], 512).unwrap();
        assert_eq!((list.len(), &list[..3], &list[61..]), (64, &[0, 1, 2][..], &[61, 300, 511][..]));
        assert_eq!(runs(&list), [0..62, 300..301, 511..512]);
        assert!(!are_first(&list) && are_first(&filled_up(&[3, 63, 3], 512).unwrap()));
        assert_eq!(filled_up(&(1..90).collect::<Vec<_>>(), 100).unwrap().len(), 100, "all of them");
        assert_eq!(filled_up(&[], 100), Ok(Vec::new()));
        assert_eq!(filled_up(&[4, 512], 512), Err("id 512: the model knows those below 512".into()));
    }

    #[test]
    fn places_are_those_of_the_listed_ids() {
        let rows = Tensor::owned("w".into(), crate::format::BlockType::F32, vec![2, 1], vec![0; 8]).unwrap();
        let listed = Shortlist::Listed { ids: vec![3, 9].into(), rows };
        assert_eq!([3, 4, 9].map(|id| listed.place(id)), [Some(0), None, Some(1)]);
        assert_eq!([63, 64].map(|id| Shortlist::First(64).place(id)), [Some(63), None]);
    }
}
