//! A backend that computes what it is asked for and says something else: a text that is known beforehand, of which a
//! stated share of the guesses is right. So a service around it takes the time that drafts take, and they are worth
//! what was stated. Prompts are not computed: what stands before the decoded positions is made up once.

use chimere_engine::backend::{Backend, BackendError, BackendInfo, Followed, Pending};
use chimere_engine::constraint::{Sources, StepRules};
use chimere_engine::drafts::DraftKind;
use chimere_engine::format::blocks::SplitMix;
use chimere_engine::ids::{SeqId, StepId, TokenId};
use chimere_engine::step::{Form, Piece, PieceTokens, Sample, SampleRow, StateStart, StepOutcome, StepPlan};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Words of the prompt, which repeats itself after so many.
const PROMPT_PERIOD: u64 = 251;
/// A text copies at most so much of its prompt at a stretch.
const STRETCH_MAX: u32 = 64;
/// Shares are kept as whole numbers of this.
const THOUSAND: u32 = 1000;

/// The texts that sequences say: each sequence has the text of its seed.
pub(super) struct StatedText {
    vocab: u32,
    /// Thousandths of the draft head's guesses that are right where those before them are.
    head: AtomicU32,
    /// Thousandths of a text's tokens that go on as its prompt does; the others begin elsewhere in it. 0: a text that
    /// has nothing of its prompt.
    copies: AtomicU32,
}

impl StatedText {
    /// Of a model that knows so many tokens.
    pub(super) fn new(vocab: u32) -> Self {
        Self { vocab, head: AtomicU32::new(0), copies: AtomicU32::new(0) }
    }

    /// From now on this source's guesses are right in such a share of all cases, and the other's never.
    pub(super) fn state(&self, source: DraftKind, share: f64) {
        let of = |kind| if source == kind { (share * f64::from(THOUSAND)).round() as u32 } else { 0 };
        self.head.store(of(DraftKind::Mtp), Ordering::Relaxed);
        self.copies.store(of(DraftKind::Ngram), Ordering::Relaxed);
    }

    /// The first tokens of the prompt that all have.
    pub(super) fn prompt(&self, len: u32) -> Arc<[TokenId]> {
        (0..u64::from(len)).map(|i| self.word(i)).collect()
    }

    fn word(&self, place: u64) -> TokenId {
        (mixed(0, place % PROMPT_PERIOD) % u64::from(self.vocab)) as TokenId
    }

    /// Output `index` of the text of this seed.
    pub(super) fn token(&self, seed: u64, index: u32) -> TokenId {
        let copies = self.copies.load(Ordering::Relaxed);
        if copies == 0 {
            return (mixed(seed, index.into()) % u64::from(self.vocab)) as TokenId;
        }
        let begins = |at: &u32| at.is_multiple_of(STRETCH_MAX) || !happens(seed, u64::from(*at), copies);
        let from = (0..=index).rev().find(begins).unwrap_or(0);
        self.word(mixed(seed, !u64::from(from)) % PROMPT_PERIOD + u64::from(index - from))
    }

    /// So many guesses of the draft head from output `first` on.
    fn guess(&self, seed: u64, first: u32, n: usize) -> Vec<TokenId> {
        let share = self.head.load(Ordering::Relaxed);
        let drawn = |i: u32| happens(seed ^ 0x6775_6573, u64::from(first) << 8 | u64::from(i), share);
        let right = (0..n as u32).take_while(|i| drawn(*i)).count() as u32;
        let wrong = |i: u32| u32::from(i >= right);
        (0..n as u32).map(|i| (self.token(seed, first + i) + wrong(i)) % self.vocab).collect()
    }
}

/// Does it, in so many thousandths of all cases?
fn happens(seed: u64, case: u64, thousandths: u32) -> bool {
    mixed(seed, case) % u64::from(THOUSAND) < u64::from(thousandths)
}

/// Of both; seeds that follow each other are moved apart.
fn mixed(seed: u64, n: u64) -> u64 {
    SplitMix::nth(seed.wrapping_mul(0xd134_2543_de82_ef95), n)
}

/// See the file's head.
pub(super) struct Stated {
    inner: Box<dyn Backend>,
    text: Arc<StatedText>,
    /// What the last step says to pieces that follow it: the text is known before it is computed.
    followed: Followed,
    /// The next step that is computed.
    next: StepId,
    /// By slot: its prompt was left out, and no row behind it was computed so far.
    fresh: Vec<bool>,
}

impl Stated {
    /// A backend that computes on `inner` and answers with `text`.
    pub(super) fn new(inner: Box<dyn Backend>, text: Arc<StatedText>) -> Self {
        let fresh = vec![false; inner.info().slots as usize];
        Self { inner, text, followed: Followed::default(), next: StepId(0), fresh }
    }

    /// The part of a plan that is computed.
    fn computed(&mut self, plan: StepPlan) -> StepPlan {
        let (prompts, mut pieces): (Vec<_>, Vec<_>) = plan.pieces.into_iter().partition(is_prompt);
        prompts.iter().for_each(|piece| self.fresh[piece.slot.0 as usize] = true);
        for piece in &mut pieces {
            if std::mem::take(&mut self.fresh[piece.slot.0 as usize]) {
                // Nothing was sampled in its slot that it could go on from.
                piece.state = StateStart::Clear;
                let last = &piece.samples[0];
                piece.tokens = PieceTokens::Known(vec![self.text.token(last.params.seed, last.output_index - 1)]);
            }
        }
        StepPlan { id: self.next, pieces, ..plan }
    }
}

fn is_prompt(piece: &Piece) -> bool {
    piece.form == Form::Chunked
}

impl Backend for Stated {
    fn info(&self) -> &BackendInfo {
        self.inner.info()
    }

    fn launch(&mut self, plan: StepPlan) -> Result<Pending, BackendError> {
        let plan = self.followed.settle(&plan)?.unwrap_or(plan);
        let said = StatedOutcome::of(&plan, &self.text);
        self.followed = Followed::of(&plan.pieces, &said.outcome);
        let (id, plan) = (plan.id, self.computed(plan));
        if plan.pieces.is_empty() {
            return Ok(Pending::ready(id, said.instead_of(StepOutcome::default())));
        }
        self.next.0 += 1;
        let pending = self.inner.launch(plan)?;
        Ok(Pending::new(id, move || Ok(said.instead_of(pending.wait()?))))
    }

    fn constrain(&mut self, rules: StepRules) -> Result<(), BackendError> {
        Err(BackendError::Plan { step: rules.step, why: "a stated text keeps to no rules".into() })
    }
}

/// The tokens and guesses that a step answers.
struct StatedOutcome {
    outcome: StepOutcome,
    /// Of each piece that asks for guesses, whether it is computed.
    computed: Vec<bool>,
}

impl StatedOutcome {
    /// The text in the place of what will be sampled.
    fn of(plan: &StepPlan, text: &StatedText) -> Self {
        let mut outcome = StepOutcome { id: Some(plan.id), ..StepOutcome::default() };
        let mut computed = Vec::new();
        for piece in &plan.pieces {
            let tokens = piece.samples.iter().map(|row| text.token(row.params.seed, row.output_index));
            let right = tokens.zip(&piece.drafts).take_while(|(token, draft)| token == *draft).count();
            let rows = if piece.drafts.is_empty() { &piece.samples[..] } else { &piece.samples[..=right] };
            let said = |row: &SampleRow| said(row.seq, text.token(row.params.seed, row.output_index));
            outcome.samples.extend(rows.iter().map(said));
            if !piece.drafts.is_empty() {
                outcome.accepted.push(right as u32);
            }
            if piece.guesses > 0 {
                let last = rows.last().expect("guesses stand behind a sample");
                let guesses = text.guess(last.params.seed, last.output_index + 1, piece.guesses as usize);
                outcome.guesses.push(guesses);
                computed.push(!is_prompt(piece));
            }
        }
        Self { outcome, computed }
    }

    /// The outcome of what was computed, with what is said in the place of what was sampled, and no more guesses than
    /// were made.
    fn instead_of(self, done: StepOutcome) -> StepOutcome {
        let StepOutcome { id, samples, accepted, mut guesses, .. } = self.outcome;
        let made = guesses.iter_mut().zip(self.computed).filter_map(|(guesses, computed)| computed.then_some(guesses));
        made.zip(&done.guesses).for_each(|(guesses, made)| guesses.truncate(made.len()));
        StepOutcome { id, samples, accepted, guesses, ..done }
    }
}

fn said(seq: SeqId, token: TokenId) -> Sample {
    Sample {
        seq,
        token,
        logprobs: None,
        certainty: None,
        changed: None,
        yielded: Sources::NONE,
        report: None,
        finite: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(source: DraftKind, share: f64) -> StatedText {
        let text = StatedText::new(5_000);
        text.state(source, share);
        text
    }

    #[test]
    fn the_stated_share_of_the_heads_guesses_is_right_at_each_place() {
        let text = text(DraftKind::Mtp, 0.6);
        let right = |first: u32| {
            let guessed = text.guess(9, first, 3);
            guessed.iter().zip(first..).take_while(|(token, index)| **token == text.token(9, *index)).count()
        };
        let seen: Vec<usize> = (0..4_000).map(right).collect();
        for place in 0..3 {
            let (asked, got) = [place, place + 1].map(|n| seen.iter().filter(|right| **right >= n).count()).into();
            let share = got as f64 / asked as f64;
            assert!((share - 0.6).abs() < 0.05, "place {place}: {share}");
        }
    }

    #[test]
    fn a_text_goes_on_as_its_prompt_does_where_that_is_what_is_stated() {
        let prompt = text(DraftKind::Ngram, 0.9).prompt(600);
        let follows = |text: &StatedText| {
            let pairs: std::collections::HashSet<_> = prompt.windows(2).map(|pair| (pair[0], pair[1])).collect();
            let tokens: Vec<_> = (0..2_000).map(|i| text.token(3, i)).collect();
            tokens.windows(2).filter(|pair| pairs.contains(&(pair[0], pair[1]))).count() as f64 / 2_000.0
        };
        let share = follows(&text(DraftKind::Ngram, 0.9));
        assert!((0.84..0.93).contains(&share), "{share}");
        assert!(follows(&text(DraftKind::Mtp, 0.9)) < 0.01);
    }
}
