//! The longest thing just said that some documents know. All places of the documents stand in the order of what is
//! before them, read backwards, so that the places behind one context are neighbours, and a longer context is a part of
//! the range of a shorter one. That is a suffix array of the reversed texts: exact for every length, four bytes a
//! token, and nothing is allocated to ask it.

use crate::engram::order::MATCH_MAX;
use crate::ids::TokenId;
use std::cmp::Ordering;

/// Texts that a request has brought, in their order.
#[derive(Debug)]
pub struct Documents {
    /// All texts, one behind the other.
    ids: Vec<TokenId>,
    /// Where each text begins; rises.
    starts: Vec<u32>,
    /// Places with an id before them in the same text, by that context read backwards.
    sorted: Vec<u32>,
}

/// A place in documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which document, from 0.
    pub document: u32,
    /// Which of its tokens, from 0.
    pub token: u32,
}

/// The longest known context: its length, and where it stands.
#[derive(Clone, Copy, Debug)]
pub struct LongestMatch<'a> {
    /// Tokens of the context, 1 to [`MATCH_MAX`].
    pub len: usize,
    /// The place behind each of its occurrences, as numbers of [`Documents::place`]; never empty.
    pub behind: &'a [u32],
}

impl Documents {
    /// Of at most 2^32 tokens together.
    pub fn new(texts: &[&[TokenId]]) -> Self {
        let mut documents = Self { ids: Vec::new(), starts: Vec::new(), sorted: Vec::new() };
        for text in texts {
            let start = documents.ids.len() as u32;
            documents.starts.push(start);
            documents.ids.extend_from_slice(text);
            documents.sorted.extend(start + 1..documents.ids.len() as u32);
        }
        let mut sorted = std::mem::take(&mut documents.sorted);
        // Ties are broken by place, so that equal documents make equal orders.
        sorted.sort_unstable_by(|&a, &b| {
            let (left, right) = (documents.before(a), documents.before(b));
            left.iter().rev().cmp(right.iter().rev()).then(a.cmp(&b))
        });
        documents.sorted = sorted;
        documents
    }

    /// What stands before a place, at most [`MATCH_MAX`] ids of the same text.
    pub fn before(&self, at: u32) -> &[TokenId] {
        let start = self.start_of(at).max(at.saturating_sub(MATCH_MAX as u32));
        &self.ids[start as usize..at as usize]
    }

    /// The id at a place.
    pub fn id(&self, at: u32) -> TokenId {
        self.ids[at as usize]
    }

    /// Whether the context of this length behind a place reaches back to the beginning of its text.
    pub fn begins_text(&self, at: u32, len: usize) -> bool {
        (at - self.start_of(at)) as usize == len
    }

    /// Which document a place is in, and where there.
    pub fn place(&self, at: u32) -> Place {
        let document = self.starts.partition_point(|&start| start <= at) - 1;
        Place { document: document as u32, token: at - self.starts[document] }
    }

    fn start_of(&self, at: u32) -> u32 {
        // Places have an id before them, so that empty texts at the same start are not theirs.
        self.starts[self.starts.partition_point(|&start| start < at).saturating_sub(1)]
    }

    /// The longest end of `recent`, newest last, that stands in a document with something behind it.
    pub fn longest(&self, recent: &[TokenId]) -> Option<LongestMatch<'_>> {
        let mut range = &self.sorted[..];
        let mut longest = None;
        for (depth, &id) in recent.iter().rev().take(MATCH_MAX).enumerate() {
            range = self.narrowed(range, depth, id);
            if range.is_empty() {
                break;
            }
            longest = Some(LongestMatch { len: depth + 1, behind: range });
        }
        longest
    }

    /// The part of a range whose contexts, alike in their last `depth` ids, have `id` before those.
    fn narrowed<'a>(&self, range: &'a [u32], depth: usize, id: TokenId) -> &'a [u32] {
        let against = |at: u32| match self.before(at).iter().rev().nth(depth) {
            None => Ordering::Less,
            Some(other) => other.cmp(&id),
        };
        let first = range.partition_point(|&at| against(at) == Ordering::Less);
        let len = range[first..].partition_point(|&at| against(at) == Ordering::Equal);
        &range[first..first + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every place is compared with every end of what was said.
    fn naive(texts: &[Vec<TokenId>], recent: &[TokenId]) -> Option<(usize, Vec<Place>)> {
        (1..=recent.len().min(MATCH_MAX)).rev().find_map(|len| {
            let end = &recent[recent.len() - len..];
            let mut places = Vec::new();
            for (document, text) in texts.iter().enumerate() {
                let behind = (len..text.len()).filter(|&at| text[at - len..at] == *end);
                places.extend(behind.map(|at| Place { document: document as u32, token: at as u32 }));
            }
            (!places.is_empty()).then_some((len, places))
        })
    }

    fn fast(texts: &[Vec<TokenId>], recent: &[TokenId]) -> Option<(usize, Vec<Place>)> {
        let texts: Vec<&[TokenId]> = texts.iter().map(Vec::as_slice).collect();
        let documents = Documents::new(&texts);
        let found = documents.longest(recent)?;
        let mut places: Vec<_> = found.behind.iter().map(|&at| documents.place(at)).collect();
        places.sort_unstable();
        for (&at, place) in found.behind.iter().zip(found.behind.iter().map(|&at| documents.place(at))) {
            assert_eq!(documents.id(at), texts[place.document as usize][place.token as usize]);
            assert_eq!(documents.begins_text(at, found.len), place.token as usize == found.len);
        }
        Some((found.len, places))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn the_longest_match_is_what_comparing_everything_finds(
            texts in prop::collection::vec(prop::collection::vec(0u32..4, 0..50), 0..6),
            recent in prop::collection::vec(0u32..4, 0..48),
        ) {
            prop_assert_eq!(fast(&texts, &recent), naive(&texts, &recent));
            // What a text itself says is found at its full length.
            for text in &texts {
                for end in [text.len() / 2, text.len()] {
                    prop_assert_eq!(fast(&texts, &text[..end]), naive(&texts, &text[..end]));
                }
            }
        }
    }

    #[test]
    fn one_token_over_and_over_and_all_different_ones_are_texts_too() {
        let same = vec![7; 65_536];
        let found = fast(std::slice::from_ref(&same), &[7; 40]).unwrap();
        assert_eq!((found.0, found.1.len()), (MATCH_MAX, 65_536 - MATCH_MAX));
        let different: Vec<TokenId> = (0..65_536).collect();
        let found = fast(std::slice::from_ref(&different), &different[..1000]).unwrap();
        assert_eq!(found, (MATCH_MAX, vec![Place { document: 0, token: 1000 }]));
    }

    #[test]
    fn what_ends_a_text_has_nothing_behind_it_and_empty_texts_know_nothing() {
        assert_eq!(fast(&[vec![1, 2], vec![], vec![3]], &[1, 2]), None);
        assert_eq!(fast(&[vec![], vec![1, 2]], &[5, 1]), Some((1, vec![Place { document: 1, token: 1 }])));
        assert_eq!(fast(&[], &[1]), None);
        assert_eq!(fast(&[vec![1, 2]], &[]), None);
    }
}
