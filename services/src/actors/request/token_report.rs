//! What stood behind one token beside the model's logits, as a reply tells who asks with `report`.

use chimere_engine::drafts::{DraftKind, DraftReport};
use chimere_engine::engram::Origin;
use chimere_engine::step::{Certainty, RowReport};

/// The report on one token of a choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenReport {
    /// How sure the model was.
    pub certainty: Option<Certainty>,
    /// The engine's report on the row of the token.
    pub row: RowReport,
    /// What tables and documents did, for a request that uses some.
    pub engram: Option<TokenEngram>,
    /// Whose guess it was, or said otherwise.
    pub draft: Option<DraftedToken>,
    /// Tokens that the thought may have after it, of one that is bounded.
    pub thought_left: Option<u32>,
}

/// What tables and documents did at one token.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenEngram {
    /// They made it another one; `None` where the device cannot tell.
    pub changed: Option<bool>,
    /// Where it comes from, if it is what they wanted most, and the document's id and title.
    pub source: Option<(Origin, DocumentName)>,
}

/// A document's id and title, as far as it has some.
pub type DocumentName = (Option<String>, Option<String>);

/// A token that was guessed, or that came in place of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftedToken {
    /// The source that drafted the token.
    pub kind: DraftKind,
    /// True if the token is the drafted one.
    pub accepted: bool,
}

/// Tells which tokens of a choice were drafted: what was comes with the first token of a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct DraftFollower {
    kind: Option<DraftKind>,
    /// Right drafts that have not come yet.
    right: u32,
    /// Behind them is a wrong one.
    wrong: bool,
}

impl DraftFollower {
    /// Takes the next token's report, if it has one.
    pub fn next(&mut self, report: Option<DraftReport>) -> Option<DraftedToken> {
        if let Some(DraftReport { kind, drafted, accepted }) = report {
            *self = Self { kind: Some(kind), right: accepted, wrong: accepted < drafted };
        }
        let accepted = self.right > 0;
        let guessed = accepted || std::mem::take(&mut self.wrong);
        self.right = self.right.saturating_sub(1);
        self.kind.filter(|_| guessed).map(|kind| DraftedToken { kind, accepted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+` for a draft that was right, `-` for the token in place of one that was not, `.` for a token of the model's own.
    fn told(steps: &[Option<(u32, u32)>]) -> String {
        let mut follower = DraftFollower::default();
        let tokens = steps.iter().flat_map(|step| {
            let report = step.map(|(drafted, accepted)| DraftReport { kind: DraftKind::Ngram, drafted, accepted });
            std::iter::once(report).chain((0..report.map_or(0, |r| r.accepted)).map(|_| None))
        });
        tokens.map(|report| follower.next(report).map_or('.', |t| if t.accepted { '+' } else { '-' })).collect()
    }

    #[test]
    fn right_drafts_come_first_and_then_the_token_in_place_of_the_wrong_one() {
        assert_eq!(told(&[None, Some((3, 2)), None, Some((2, 2)), Some((1, 0)), None]), ".++-.++.-.");
    }
}
