//! How an answer may begin: a model that knows nothing of what is asked begins by saying so, and nothing that it says
//! then stands in a document. A sentence that says all that the question names is one to begin with. Who knows the text
//! finds it; what is left to do here is to say its tokens one by one, while the answer is the sentence so far.

use super::documents::Place;
use crate::ids::TokenId;

/// A sentence to begin an answer with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// What stands between the end of a thought and an answer.
    pub lead: Vec<TokenId>,
    /// The sentence as an answer says it, with the end of the answer; of a long one the beginning.
    pub tokens: Vec<TokenId>,
    /// Where the sentence stands in the documents.
    pub place: Place,
}

impl Opening {
    /// The token that comes next, and its place, if `answer` is all of an answer so far. After a thought a lead may
    /// stand before the sentence.
    pub fn next(&self, answer: &[TokenId], after_thought: bool) -> Option<(TokenId, Place)> {
        if after_thought && answer.len() < self.lead.len() && self.lead.starts_with(answer) {
            return Some((self.lead[answer.len()], self.place));
        }
        let begun = answer.strip_prefix(&self.lead[..]).filter(|_| after_thought).unwrap_or(answer);
        let token = *self.tokens.get(begun.len()).filter(|_| self.tokens.starts_with(begun))?;
        Some((token, Place { token: self.place.token + begun.len() as u32, ..self.place }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_said_to_its_end_as_long_as_the_answer_is_it() {
        let opening = Opening { lead: vec![1], tokens: vec![5, 6, 7], place: Place { document: 2, token: 10 } };
        let next = |answer: &[TokenId], thought| opening.next(answer, thought).map(|(id, at)| (id, at.token));
        assert_eq!(next(&[], false), Some((5, 10)));
        assert_eq!(next(&[5], false), Some((6, 11)));
        assert_eq!(next(&[5, 6], false), Some((7, 12)));
        for other in [&[5, 6, 7][..], &[6], &[1], &[5, 7], &[1, 5]] {
            assert_eq!(next(other, false), None, "{other:?}");
        }
        assert_eq!(next(&[], true), Some((1, 10)));
        assert_eq!(next(&[1], true), Some((5, 10)));
        assert_eq!(next(&[1, 5, 6], true), Some((7, 12)));
        assert_eq!(next(&[5], true), Some((6, 11)), "a model may leave the lead out");
        assert_eq!(next(&[1, 1], true), None);
    }
}
