//! What a sentence says in other words than the answer's: "Melkar is the capital of Ferfen." answers "The Ferfen
//! capital is" although nothing of it stands there in that order. Such a sentence is found by the words that it shares
//! with the question. Who knows the text finds it, and says what the engine then looks for: the shared words as they
//! are spelled in ids, and the value that is left.

use super::documents::Place;
use super::spelling::COMMON_IDS;
use crate::ids::TokenId;

/// Tokens that may stand between the last shared word and the value.
const LINK_TOKENS_MAX: usize = 3;

/// One sentence that may answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recollection {
    /// Words of the sentence that the question has too, each in the ways in which an answer may spell it.
    pub shared: Vec<Vec<Vec<TokenId>>>,
    /// What it says of them, as an answer goes on.
    pub value: Vec<TokenId>,
    /// Where the value stands.
    pub place: Place,
}

/// What comes next by a recollection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recalled<'a> {
    /// The sentence that answers.
    pub recollection: &'a Recollection,
    /// The token of its value that comes next.
    pub token: TokenId,
    /// The value begins with it.
    pub first: bool,
    /// Another sentence that answers as well says something else, earlier in the documents.
    pub against: Option<Place>,
}

/// The recollection that an output asks for by its last tokens: it has said shared words, more than of any other's, and
/// then something that joins them to a value. Where two are alike the later one wins.
pub fn recalled<'a>(all: &'a [Recollection], said: &[TokenId]) -> Option<Recalled<'a>> {
    let mut best: Option<(MatchRank, Recalled<'a>)> = None;
    for recollection in all {
        let Some((standing, at)) = recollection.standing(said) else { continue };
        let token = recollection.value[at];
        let next = Recalled { recollection, token, first: at == 0, against: None };
        match &mut best {
            Some((other, _)) if *other > standing => {}
            Some((other, before)) if *other == standing => {
                let against = (before.recollection.value != recollection.value).then_some(before.recollection.place);
                *before = Recalled { against, ..next };
            }
            best => *best = Some((standing, next)),
        }
    }
    best.map(|(_, recalled)| recalled)
}

/// How well one answers: shared words that were said, then those that were asked for.
type MatchRank = (usize, usize);

impl Recollection {
    /// How well it answers, and which token of its value comes next; `None` if it is not asked for here.
    fn standing(&self, said: &[TokenId]) -> Option<(MatchRank, usize)> {
        let begun = (0..=self.value.len()).rev().filter(|&n| said.ends_with(&self.value[..n]));
        // What looks like the value's beginning by chance has no shared words before it.
        let (standing, at) = begun.filter_map(|n| Some((self.asked(&said[..said.len() - n])?, n))).next()?;
        (at < self.value.len()).then_some((standing, at))
    }

    /// `said` ends where the value begins.
    fn asked(&self, said: &[TokenId]) -> Option<MatchRank> {
        let ends: Vec<usize> =
            self.shared.iter().filter_map(|word| word.iter().filter_map(|w| end_of(said, w)).max()).collect();
        let link = &said[*ends.iter().max()?..];
        let joins = (1..=LINK_TOKENS_MAX).contains(&link.len()) && link.iter().all(|&id| id < COMMON_IDS);
        joins.then_some((ends.len(), self.shared.len()))
    }
}

/// Where the last occurrence of a word ends.
fn end_of(said: &[TokenId], word: &[TokenId]) -> Option<usize> {
    said.windows(word.len().max(1)).rposition(|w| w == word).map(|at| at + word.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const IS: TokenId = 3;
    const OF: TokenId = 4;
    const NAME: [TokenId; 2] = [5000, 5001];
    const CAPITAL: [TokenId; 1] = [6000];
    const RIVER: [TokenId; 1] = [6001];

    fn recollection(relation: &[TokenId], value: &[TokenId], document: u32) -> Recollection {
        let shared = vec![vec![NAME.to_vec()], vec![relation.to_vec(), vec![7777]]];
        Recollection { shared, value: value.to_vec(), place: Place { document, token: 9 } }
    }

    fn next(all: &[Recollection], said: &[TokenId]) -> Option<(TokenId, bool)> {
        recalled(all, said).map(|r| (r.token, r.first))
    }

    fn after<const N: usize>(parts: [&[TokenId]; N]) -> Vec<TokenId> {
        parts.concat()
    }

    #[test]
    fn the_value_comes_after_the_words_and_a_joint_and_is_said_to_its_end() {
        let all = [recollection(&CAPITAL, &[8000, 8001], 0)];
        let begun = after([&NAME, &CAPITAL, &[IS]]);
        assert_eq!(next(&all, &begun), Some((8000, true)));
        assert_eq!(next(&all, &after([&begun, &[8000]])), Some((8001, false)));
        assert_eq!(next(&all, &after([&begun, &[8000, 8001]])), None);
        let digit = [recollection(&CAPITAL, &[20], 0)];
        assert_eq!(next(&digit, &after([&begun, &[20]])), None, "a value of frequent tokens is said once too");
        assert_eq!(next(&all, &after([&CAPITAL, &[OF], &NAME, &[IS]])), Some((8000, true)));
        assert_eq!(next(&all, &after([&NAME, &[7777, IS]])), Some((8000, true)), "another spelling");
    }

    #[test]
    fn nothing_is_recalled_where_nothing_joins_or_something_else_stands_between() {
        let all = [recollection(&CAPITAL, &[8000], 0)];
        for silent in
            [after([&NAME, &CAPITAL]), after([&NAME, &RIVER, &[IS]]), vec![IS], vec![], after([&NAME, &[IS; 4]])]
        {
            assert_eq!(next(&all, &silent), None, "{silent:?}");
        }
    }

    #[test]
    fn the_sentence_with_more_of_the_words_wins_and_of_equal_ones_the_later() {
        let all =
            [recollection(&RIVER, &[8000], 0), recollection(&CAPITAL, &[8100], 1), recollection(&RIVER, &[8200], 2)];
        assert_eq!(next(&all, &after([&NAME, &CAPITAL, &[IS]])), Some((8100, true)));
        let river = recalled(&all, &[NAME[0], NAME[1], RIVER[0], IS]).map(|r| (r.token, r.against));
        assert_eq!(river, Some((8200, Some(Place { document: 0, token: 9 }))));
    }
}
