//! The sources of one sequence: what they have read, what they would draft, and how often they were right. And what all
//! sequences have in common of that ([`Proposers`]).

use super::acceptance::{self, Acceptance, Basis, HEAD};
use super::proposal::Proposal;
use crate::drafts::{ByPlace, DraftKind, DraftKinds, DraftSource, Guess, PredictionSource, STRENGTHS, SuffixSource};
use crate::ids::TokenId;
use crate::scheduler::request::Request;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Makes the source that follows one choice of a request; `None` where it has nothing to go by.
pub type MakeSource = Arc<dyn Fn(&Request, u32) -> Option<Box<dyn DraftSource>> + Send + Sync>;

/// The kinds of sources that are asked, and how often their guesses were right, over all sequences.
pub(in crate::scheduler) struct Proposers {
    makers: Vec<(DraftKind, MakeSource)>,
    acceptance: Acceptance,
    /// The most tokens of a piece.
    pub(in crate::scheduler) max: usize,
    /// Kinds that may lose something yet. The others are compared with what comes where none of these offers anything.
    pub(in crate::scheduler) may_lose: DraftKinds,
    /// Kinds that panicked and are asked no more.
    pub(in crate::scheduler) lost: u64,
}

impl Proposers {
    /// Those that come with the program, of these kinds.
    pub(in crate::scheduler) fn new(kinds: DraftKinds, max: usize) -> Self {
        let prediction = |request: &Request, _| -> Option<Box<dyn DraftSource>> {
            let text = request.spec.prediction.clone()?;
            Some(Box::new(PredictionSource::new(text)))
        };
        let ngram = |request: &Request, _| -> Option<Box<dyn DraftSource>> {
            Some(Box::new(SuffixSource::new(&request.prompt)))
        };
        let own: [(DraftKind, MakeSource); 2] =
            [(DraftKind::Prediction, Arc::new(prediction)), (DraftKind::Ngram, Arc::new(ngram))];
        let makers = own.into_iter().filter(|(kind, _)| kinds.contains(*kind)).collect();
        Self { makers, acceptance: Acceptance::default(), max, may_lose: DraftKinds::all(), lost: 0 }
    }

    /// Whether no source on the host is asked for guesses.
    pub(in crate::scheduler) fn is_empty(&self) -> bool {
        self.makers.is_empty()
    }

    /// Asks these in the place of those of the same kind.
    pub(in crate::scheduler) fn replace(&mut self, kind: DraftKind, make: MakeSource) {
        self.makers.retain(|(of, _)| *of != kind);
        self.makers.push((kind, make));
    }

    /// Of the first `compared` tokens of an offer so many were right.
    pub(in crate::scheduler) fn learn(&mut self, offer: &Proposal, compared: usize, right: usize) {
        self.acceptance.observe_for_all(offer.basis(), compared, right);
    }

    /// Raises what is expected of a draft head's guesses: [`Acceptance::hope`].
    pub(in crate::scheduler) fn hope(&mut self) {
        self.acceptance.hope();
    }

    /// How often the draft head's first guess is right.
    pub(in crate::scheduler) fn head_is_right(&self) -> f64 {
        self.acceptance.of_head()
    }

    /// A source of this kind panicked: none of them is asked any more.
    fn lose(&mut self, kind: DraftKind) {
        tracing::error!(source = kind.name(), "a source of drafts panicked; it is switched off, and all streams go on");
        self.makers.retain(|(of, _)| *of != kind);
        self.lost += 1;
    }
}

/// Owned by the sequence. Nothing in it shows in a byte of the output.
#[derive(Default)]
pub(in crate::scheduler) struct SequenceProposers {
    /// `None` before the first guess is wanted.
    sources: Option<Vec<Proposer>>,
    /// `None` before the first guess is wanted.
    acceptance: Option<Acceptance>,
    /// What the draft head guesses from the output of this number on.
    head_proposal: Option<(u32, Vec<TokenId>)>,
    /// The best offer after so many outputs.
    offer: Option<(usize, Option<Proposal>)>,
    /// A guess that is compared with what comes although it is not drafted: the number of the output that its first
    /// token would be, and how many of its tokens have come.
    watched: Option<(u32, usize, Proposal)>,
}

/// A source and how many outputs it has read.
struct Proposer {
    kind: DraftKind,
    source: Box<dyn DraftSource>,
    read: usize,
}

impl std::fmt::Debug for SequenceProposers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SequenceProposers").finish_non_exhaustive()
    }
}

impl SequenceProposers {
    /// What its best source offers behind these outputs.
    pub(in crate::scheduler) fn offer(
        &mut self,
        request: &Request,
        choice: u32,
        output: &[TokenId],
        all: &mut Proposers,
    ) -> Option<Proposal> {
        if self.offer.as_ref().is_none_or(|(at, _)| *at != output.len()) {
            self.make_sources(request, choice, all);
            let offer = self.best(output, all);
            if self.watched.is_none() {
                self.watched = offer.clone().map(|offer| (output.len() as u32, 0, offer));
            }
            self.offer = Some((output.len(), offer));
        }
        self.offer.as_ref().and_then(|(_, offer)| offer.clone())
    }

    /// An offer of a run that begins with output `first`.
    pub(in crate::scheduler) fn offer_run(&mut self, first: u32, tokens: Vec<TokenId>, all: &Proposers) -> Proposal {
        let (kind, strength) = (DraftKind::Grammar, STRENGTHS - 1);
        let chances = self.shares((kind, strength), all).into_iter().take(tokens.len()).collect();
        let offer = Proposal { kind, strength, tokens, chances };
        if self.watched.is_none() {
            self.watched = Some((first, 0, offer.clone()));
        }
        offer
    }

    /// What could be drafted of up to `most` guesses that the draft head is asked for; nobody knows the tokens yet.
    pub(in crate::scheduler) fn offer_guesses(&mut self, most: usize, all: &Proposers) -> Proposal {
        let (kind, strength) = HEAD;
        let chances = self.shares(HEAD, all).into_iter().take(most).collect();
        Proposal { kind, strength, tokens: vec![0; most], chances }
    }

    /// The draft head guesses these tokens from output `first` on.
    pub(in crate::scheduler) fn record_head_output(&mut self, first: u32, tokens: Vec<TokenId>, all: &Proposers) {
        if tokens.is_empty() {
            return;
        }
        if self.watched.is_none() {
            let offer = Proposal { tokens: tokens.clone(), ..self.offer_guesses(tokens.len(), all) };
            self.watched = Some((first, 0, offer));
        }
        (self.head_proposal, self.offer) = (Some((first, tokens)), None);
    }

    /// What of the draft head's guesses is left behind these outputs, if they went as it guessed.
    fn head_proposal(&self, output: &[TokenId]) -> Option<(DraftKind, usize, Vec<TokenId>)> {
        let (first, tokens) = self.head_proposal.as_ref()?;
        let left = tokens.strip_prefix(output.get(*first as usize..)?)?;
        (!left.is_empty()).then(|| (HEAD.0, HEAD.1, left.to_vec()))
    }

    /// How often guesses of this kind are right.
    fn shares(&mut self, basis: Basis, all: &Proposers) -> ByPlace<f32> {
        self.acceptance.get_or_insert(all.acceptance).of(basis)
    }

    fn make_sources(&mut self, request: &Request, choice: u32, all: &mut Proposers) {
        if self.sources.is_some() {
            return;
        }
        let mut sources = Vec::new();
        for (kind, make) in all.makers.clone() {
            match catch_unwind(AssertUnwindSafe(|| make(request, choice))) {
                Ok(source) => sources.extend(source.map(|source| Proposer { kind, source, read: 0 })),
                Err(_) => all.lose(kind),
            }
        }
        self.sources = Some(sources);
    }

    fn best(&mut self, output: &[TokenId], all: &mut Proposers) -> Option<Proposal> {
        let mut guesses: Vec<_> = self.head_proposal(output).into_iter().collect();
        let sources = self.sources.as_mut()?;
        sources.retain(|following| all.makers.iter().any(|(kind, _)| *kind == following.kind));
        for following in sources {
            let guess = following.guess(output, all);
            guesses.extend(guess.map(|guess| (following.kind, guess.strength(following.kind), guess.tokens)));
        }
        let mut best: Option<((bool, f64), Proposal)> = None;
        for (kind, strength, tokens) in guesses {
            let chances = self.shares((kind, strength), all);
            // The last one has no place of its own: it stands behind a token that is on its way.
            let last = [chances[chances.len() - 1]];
            let chances = chances.into_iter().chain(last).take(tokens.len()).collect();
            let offer = Proposal { kind, strength, tokens, chances };
            let worth = (all.may_lose.contains(kind), offer.worth());
            if best.as_ref().is_none_or(|(most, _)| worth > *most) {
                best = Some((worth, offer));
            }
        }
        best.map(|(_, offer)| offer)
    }

    /// Raises what is expected of a draft head's guesses, for each estimate of the sequence: [`Acceptance::hope`].
    pub(in crate::scheduler) fn hope(&mut self) {
        self.acceptance.iter_mut().for_each(Acceptance::hope);
    }

    /// How often the draft head's first guess is right here; `None` before anything was asked.
    pub(in crate::scheduler) fn head_is_right(&self) -> Option<f64> {
        self.acceptance.as_ref().map(Acceptance::of_head)
    }

    /// So many tokens of an offer were drafted and right.
    pub(in crate::scheduler) fn drafted(&mut self, offer: &Proposal, accepted: usize) {
        self.observe(offer, offer.tokens.len(), accepted);
        self.watched = None;
    }

    /// Compares an output that was not drafted with the guess that is watched. Where that is at its end, or wrong: the
    /// guess, how many of its tokens were compared, and how many were right.
    pub(in crate::scheduler) fn compare(&mut self, token: TokenId, index: u32) -> Option<(Proposal, usize, usize)> {
        let (first, right, offer) = self.watched.take()?;
        if first + right as u32 != index {
            return None;
        }
        let is_right = offer.tokens[right] == token;
        let right = right + usize::from(is_right);
        let compared = if is_right { right } else { right + 1 };
        if is_right && right < offer.tokens.len() {
            self.watched = Some((first, right, offer));
            return None;
        }
        self.observe(&offer, compared, right);
        Some((offer, compared, right))
    }

    fn observe(&mut self, offer: &Proposal, compared: usize, right: usize) {
        if let Some(acceptance) = &mut self.acceptance {
            acceptance.observe(offer.basis(), compared, right, acceptance::OF_ONE);
        }
    }
}

impl Proposer {
    /// A guess of up to one token more than may be drafted. A source that panics is lost.
    fn guess(&mut self, output: &[TokenId], all: &mut Proposers) -> Option<Guess> {
        let max = all.max + 1;
        let ask = || {
            self.source.read(&output[self.read..]);
            self.source.guess(max)
        };
        match catch_unwind(AssertUnwindSafe(ask)) {
            Ok(guess) => {
                self.read = output.len();
                guess.map(|guess| guess.within(max)).filter(|guess| !guess.tokens.is_empty())
            }
            Err(_) => {
                all.lose(self.kind);
                None
            }
        }
    }
}
