//! A backend that computes what it is asked for and says something else: a text that is known beforehand, of which a
//! stated share of the guesses is right. So a service around it takes the time that drafts take, and they are worth what
//! was stated. Prompts are not computed: what stands before the decoded positions is made up once.

use chimere_engine::backend::{Backend, BackendError, BackendInfo, Pending};
use chimere_engine::constraint::{Sources, StepRules};
use chimere_engine::drafts::DraftKind;
use chimere_engine::format::blocks::SplitMix;
use chimere_engine::ids::{SeqId, StepId, TokenId};
use chimere_engine::step::{Form, Piece, PieceTokens, Sample, StateStart, StepOutcome, StepPlan};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Words of the prompt, which repeats itself after so many.
const PROMPT_PERIOD: u64 = 251;
/// A text copies at most so much of its prompt at a stretch.
const STRETCH_MAX: u32 = 64;
/// Shares are kept as whole numbers of this.
const THOUSAND: u32 = 1000;

/// What sequences say: each the text of its seed.
pub(super) struct Text {
    vocab: u32,
    /// Thousandths of the draft head's guesses that are right where those before them are.
    head: AtomicU32,
    /// Thousandths of a text's tokens that go on as its prompt does; the others begin elsewhere in it. 0: a text that
    /// has nothing of its prompt.
    copies: AtomicU32,
}

impl Text {
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
    text: Arc<Text>,
    /// The next step that is computed.
    next: StepId,
    /// By slot: its prompt was left out, and no row behind it was computed so far.
    fresh: Vec<bool>,
}

impl Stated {
    /// Says `text`.
    pub(super) fn new(inner: Box<dyn Backend>, text: Arc<Text>) -> Self {
        let fresh = vec![false; inner.info().slots as usize];
        Self { inner, text, next: StepId(0), fresh }
    }

    /// What is computed of a plan.
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
        let said =
            Said { id: plan.id, text: self.text.clone(), pieces: plan.pieces.iter().map(SaidPiece::of).collect() };
        let (id, plan) = (plan.id, self.computed(plan));
        if plan.pieces.is_empty() {
            return Ok(Pending::ready(id, said.outcome(StepOutcome::default())));
        }
        self.next.0 += 1;
        let pending = self.inner.launch(plan)?;
        Ok(Pending::new(id, move || Ok(said.outcome(pending.wait()?))))
    }

    fn constrain(&mut self, rules: StepRules) -> Result<(), BackendError> {
        Err(BackendError::Plan { step: rules.step, why: "a stated text keeps to no rules".into() })
    }
}

/// What a step says.
struct Said {
    id: StepId,
    text: Arc<Text>,
    pieces: Vec<SaidPiece>,
}

/// A piece, as far as it says something.
struct SaidPiece {
    /// Of each sampled row: whose, by which seed, and which output.
    rows: Vec<(SeqId, u64, u32)>,
    drafts: Vec<TokenId>,
    guesses: u32,
    computed: bool,
}

impl SaidPiece {
    fn of(piece: &Piece) -> Self {
        let rows = piece.samples.iter().map(|row| (row.seq, row.params.seed, row.output_index)).collect();
        Self { rows, drafts: piece.drafts.clone(), guesses: piece.guesses, computed: !is_prompt(piece) }
    }

    /// How many of its drafts the text says.
    fn accepted(&self, text: &Text) -> usize {
        let pairs = self.rows.iter().zip(&self.drafts);
        pairs.take_while(|((_, seed, index), draft)| text.token(*seed, *index) == **draft).count()
    }
}

impl Said {
    /// The outcome of what was computed, with the text in the place of what was sampled.
    fn outcome(self, done: StepOutcome) -> StepOutcome {
        let (text, mut computed) = (&*self.text, done.guesses.iter());
        let (mut samples, mut accepted, mut guesses) = (Vec::new(), Vec::new(), Vec::new());
        for piece in &self.pieces {
            let right = piece.accepted(text);
            let rows = if piece.drafts.is_empty() { &piece.rows[..] } else { &piece.rows[..=right] };
            samples.extend(rows.iter().map(|(seq, seed, index)| said(*seq, text.token(*seed, *index))));
            if !piece.drafts.is_empty() {
                accepted.push(right as u32);
            }
            if piece.guesses > 0 {
                let (_, seed, index) = *rows.last().expect("guesses stand behind a sample");
                let made = if piece.computed { computed.next().map_or(0, Vec::len) } else { piece.guesses as usize };
                guesses.push(text.guess(seed, index + 1, made));
            }
        }
        StepOutcome { id: Some(self.id), samples, accepted, guesses, ..done }
    }
}

fn said(seq: SeqId, token: TokenId) -> Sample {
    Sample { seq, token, logprobs: None, certainty: None, changed: None, yielded: Sources::NONE, report: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(source: DraftKind, share: f64) -> Text {
        let text = Text::new(5_000);
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
        let follows = |text: &Text| {
            let pairs: std::collections::HashSet<_> = prompt.windows(2).map(|pair| (pair[0], pair[1])).collect();
            let tokens: Vec<_> = (0..2_000).map(|i| text.token(3, i)).collect();
            tokens.windows(2).filter(|pair| pairs.contains(&(pair[0], pair[1]))).count() as f64 / 2_000.0
        };
        let share = follows(&text(DraftKind::Ngram, 0.9));
        assert!((0.84..0.93).contains(&share), "{share}");
        assert!(follows(&text(DraftKind::Mtp, 0.9)) < 0.01);
    }
}
