//! A device whose memory holds, instead of numbers, which tokens they would have been computed from.
//!
//! A position's KV and the recurrent state after it stand for all tokens up to it and the form each was computed in, so
//! both are one running hash. A row finds in its pages and in its slot exactly its own sequence's past, or the test
//! fails. Plans run at once and in order, as on a real device's stream; only their outcomes are late. Transfers
//! ([`super::transfers`]) run as late as they may.

use super::transfers::Copier;
use crate::backend::Followed;
use crate::constraint::Constraint;
use crate::ids::{PageId, SeqId, SlotId, TokenId};
use crate::sampling::SamplingParams;
use crate::scheduler::SchedulerConfig;
use crate::step::{
    Certainty, Form, Piece, PieceTokens, PooledUnit, RowReport, Sample, SampleRow, Score, StateCopy, StateStart,
    StepOutcome, StepPlan, TokenLogprobs,
};
use crate::{CHUNK_TOKENS, PAGE_TOKENS};
use std::collections::{HashMap, HashSet};

/// Tokens are below this: few enough that chosen end ids do occur.
pub(super) const VOCAB: u32 = 50;

/// The memory of a device with the capacities of a scheduler's configuration.
pub(super) struct FakeDevice {
    slots: Vec<Slot>,
    /// The hash after each position, as a slot has it.
    checkpoints: Vec<Vec<u64>>,
    pages: Vec<[u64; PAGE_TOKENS as usize]>,
    rows_max: u32,
    /// The adapter in each slot for one, and the adapter that each sequence has had so far.
    adapters: Vec<Option<u64>>,
    adapter_of: HashMap<SeqId, Option<u64>>,
    copier: Copier,
    followed: Followed,
    /// Of a hundred guesses of its draft head those that are right, if it has such a head.
    pub(super) guesses_right: Option<u64>,
}

/// What transfers read and write on the device.
pub(super) struct Memory<'a> {
    pub(super) checkpoints: &'a mut [Vec<u64>],
    pub(super) pages: &'a mut [[u64; PAGE_TOKENS as usize]],
}

#[derive(Clone, Default)]
struct Slot {
    /// The hash after each position so far.
    past: Vec<u64>,
    last_sampled: Option<TokenId>,
}

impl FakeDevice {
    pub(super) fn new(config: &SchedulerConfig) -> Self {
        Self {
            slots: vec![Slot::default(); config.slots as usize],
            checkpoints: vec![Vec::new(); config.prefix.checkpoints as usize],
            pages: vec![[0; PAGE_TOKENS as usize]; config.pages as usize],
            rows_max: config.step_rows_max(),
            adapters: vec![None; config.adapter_slots],
            adapter_of: HashMap::new(),
            copier: Copier::new(config),
            followed: Followed::default(),
            guesses_right: Some(80),
        }
    }

    pub(super) fn run(&mut self, plan: &StepPlan) -> StepOutcome {
        plan.pieces.iter().for_each(check_pages);
        let settled = self.followed.settle(plan).expect("the piece before is that of the step before");
        let plan = settled.as_ref().unwrap_or(plan);
        let rows: u32 = plan.pieces.iter().map(Piece::len).sum();
        assert!(rows > 0 && rows <= self.rows_max, "{rows} rows, at most {} may be", self.rows_max);
        Self::check_disjoint(plan);
        self.check_adapters(plan);
        plan.copies.iter().for_each(|copy| self.copy(copy));
        let planned = |piece: &&Piece| plan.transfers.iter().any(|transfer| piece.state.load() == Some(transfer.id));
        let (late, now): (Vec<_>, Vec<_>) = plan.pieces.iter().partition(planned);
        let mut memory = Memory { checkpoints: &mut self.checkpoints, pages: &mut self.pages };
        now.iter().filter_map(|piece| piece.state.load()).for_each(|load| self.copier.wait_for(load, &mut memory));
        now.iter().for_each(|piece| self.begin(piece));
        let mut memory = Memory { checkpoints: &mut self.checkpoints, pages: &mut self.pages };
        self.copier.begin(plan, &mut memory);
        late.iter().filter_map(|piece| piece.state.load()).for_each(|load| self.copier.wait_for(load, &mut memory));
        late.iter().for_each(|piece| self.begin(piece));
        let mut outcome = StepOutcome { id: Some(plan.id), ..StepOutcome::default() };
        for piece in &plan.pieces {
            self.compute(piece, &mut outcome);
        }
        let mut memory = Memory { checkpoints: &mut self.checkpoints, pages: &mut self.pages };
        self.copier.report(plan, &mut memory, &mut outcome);
        self.followed = Followed::of(&plan.pieces, &outcome);
        outcome
    }

    /// A sequence has one adapter always, and of a step each slot for adapters has one.
    fn check_adapters(&mut self, plan: &StepPlan) {
        for piece in plan.pieces.iter().filter(|piece| piece.adapter.is_some()) {
            let own = piece.adapter.as_ref().expect("only such pieces");
            self.adapters[usize::from(own.slot.0)] = Some(own.adapter.number);
        }
        for piece in &plan.pieces {
            let own = piece.adapter.as_ref().map(|own| own.adapter.number);
            let held = piece.adapter.as_ref().and_then(|own| self.adapters[usize::from(own.slot.0)]);
            assert_eq!(held, own, "sequence {} meets another adapter", piece.seq);
            assert_eq!(*self.adapter_of.entry(piece.seq).or_insert(own), own, "sequence {} changes it", piece.seq);
        }
    }

    /// No two pieces share a sequence, a state, a page that one of them writes, or a place for a sampled token.
    fn check_disjoint(plan: &StepPlan) {
        let mut seqs = HashSet::new();
        let mut samplers = HashSet::new();
        let mut exports = HashSet::new();
        for piece in &plan.pieces {
            assert!(seqs.insert(piece.seq), "sequence {} has two pieces", piece.seq);
            let others = || plan.pieces.iter().filter(|other| other.seq != piece.seq);
            assert!(others().all(|other| other.slot != piece.slot), "slot {} is computed twice", piece.slot);
            let written = &piece.pages[(piece.start / PAGE_TOKENS) as usize..];
            assert!(
                others().all(|o| o.pages.iter().all(|p| !written.contains(p))),
                "{} writes pages of another",
                piece.seq
            );
            assert!(piece.exports.iter().all(|e| exports.insert(e.to)), "a checkpoint is written twice");
            // Those behind drafts are of the piece's own slot.
            let choices = &piece.samples[..piece.samples.len() - piece.drafts.len()];
            assert!(choices.iter().all(|row| samplers.insert(row.slot)), "a slot keeps two samples");
        }
    }

    fn copy(&mut self, copy: &StateCopy) {
        match *copy {
            StateCopy::Slot { from, to } => self.slot(to).past = self.slot(from).past.clone(),
            StateCopy::Page { from, to } => self.pages[to.0 as usize] = self.pages[from.0 as usize],
        }
    }

    /// Before any row of the step, as on a device: what is restored now may be overwritten by an export of this step.
    fn begin(&mut self, piece: &Piece) {
        match &piece.state {
            StateStart::Clear => self.slot(piece.slot).past.clear(),
            StateStart::Continue => assert!(piece.start > 0, "{} begins with a clear state", piece.seq),
            StateStart::Restore { from, prompt, .. } => {
                let past = self.checkpoints[from.0 as usize].clone();
                let tokens = &prompt[..piece.start as usize];
                assert_eq!(past.last(), Some(&end_of(tokens, prompt.len())), "{} finds its prompt's state", piece.seq);
                self.slot(piece.slot).past = past;
            }
        }
    }

    fn compute(&mut self, piece: &Piece, outcome: &mut StepOutcome) {
        check_form(piece);
        let mut tokens = match &piece.tokens {
            PieceTokens::Known(tokens) => tokens.clone(),
            PieceTokens::Sampled => vec![self.slot(piece.slot).last_sampled.expect("the slot has sampled a token")],
        };
        tokens.extend(&piece.drafts);
        let mut past = std::mem::take(&mut self.slot(piece.slot).past);
        assert_eq!(past.len() as u32, piece.start, "the state of {} stands where its piece starts", piece.seq);
        for (position, expected) in past.iter().enumerate() {
            assert_eq!(self.kv(&piece.pages, position), *expected, "{} has its own KV at {position}", piece.seq);
        }
        for &token in &tokens {
            let position = past.len();
            past.push(step_hash(past.last().copied(), token, piece.form));
            self.pages[piece.pages[position / PAGE_TOKENS as usize].0 as usize][position % PAGE_TOKENS as usize] =
                past[position];
        }
        for export in &piece.exports {
            let inside = export.position > piece.start && export.position <= past.len() as u32;
            assert!(inside && export.position.is_multiple_of(CHUNK_TOKENS) && piece.form == Form::Chunked, "{piece:?}");
            self.checkpoints[export.to.0 as usize] = past[..export.position as usize].to_vec();
        }
        if piece.drafts.is_empty() {
            self.report(piece, past[past.len() - 1], outcome);
        } else {
            let right = self.report_drafted(piece, &past, outcome);
            past.truncate((piece.start + piece.certain() + right) as usize);
        }
        if piece.guesses > 0 {
            outcome.guesses.push(self.guesses(piece, &past));
        }
        outcome.pooled.extend(piece.pooled_units().map(|positions| PooledUnit {
            seq: piece.seq,
            sum: vec![past[positions.start as usize..positions.end as usize].iter().map(|hash| hidden(*hash)).sum()],
            positions,
        }));
        self.slot(piece.slot).past = past;
    }

    fn report(&mut self, piece: &Piece, end: u64, outcome: &mut StepOutcome) {
        outcome.scores.extend(piece.scored().into_iter().map(|scored| Score {
            seq: piece.seq,
            position: scored.position,
            token: scored.token,
            logprobs: TokenLogprobs { logprob: -1.0, top: Vec::new() },
            finite: true,
        }));
        for row in &piece.samples {
            let sample = sampled(row, end);
            self.slot(row.slot).last_sampled = Some(sample.token);
            outcome.samples.push(sample);
        }
    }

    /// Samples behind each draft that is right, and says how many are. What the others wrote stays in the pages.
    fn report_drafted(&mut self, piece: &Piece, past: &[u64], outcome: &mut StepOutcome) -> u32 {
        assert_eq!(piece.samples.len(), piece.drafts.len() + 1, "each draft has a sample behind it: {piece:?}");
        let first = (piece.start + piece.certain()) as usize - 1;
        let mut right = 0;
        for (i, row) in piece.samples.iter().enumerate() {
            assert_eq!((row.seq, row.output_index), (piece.seq, piece.samples[0].output_index + i as u32));
            let sample = sampled(row, past[first + i]);
            let token = sample.token;
            self.slot(row.slot).last_sampled = Some(token);
            outcome.samples.push(sample);
            if piece.drafts.get(i) != Some(&token) {
                break;
            }
            right += 1;
        }
        outcome.accepted.push(right);
        right
    }

    /// What follows, mostly; now and then a wrong token, or fewer than were asked for.
    fn guesses(&mut self, piece: &Piece, past: &[u64]) -> Vec<TokenId> {
        let own = piece.samples.len() == piece.drafts.len() + 1 && piece.samples.iter().all(|row| row.seq == piece.seq);
        assert!(own && self.guesses_right.is_some(), "guesses behind the samples of one choice: {piece:?}");
        let row = &piece.samples[0];
        let counted = past.len() as u32 - piece.start - piece.certain();
        let (mut hash, mut token) = (past[past.len() - 1], self.slot(row.slot).last_sampled.expect("it was sampled"));
        let right = self.guesses_right.unwrap_or_default();
        let len = if mix(hash, 5).is_multiple_of(8) { piece.guesses / 2 } else { piece.guesses };
        (0..len)
            .map(|i| {
                hash = step_hash(Some(hash), token, Form::Recurrent);
                let output = row.output_index + counted + 1 + i;
                let next = next_token(hash, &row.params, &[], (row.choice, output));
                token = if mix(hash, 7) % 100 < right { next } else { (next + 1) % VOCAB };
                token
            })
            .collect()
    }

    fn slot(&mut self, slot: SlotId) -> &mut Slot {
        &mut self.slots[slot.0 as usize]
    }

    fn kv(&self, pages: &[PageId], position: usize) -> u64 {
        self.pages[pages[position / PAGE_TOKENS as usize].0 as usize][position % PAGE_TOKENS as usize]
    }
}

/// What a row gets whose sequence has this past.
fn sampled(row: &SampleRow, past: u64) -> Sample {
    let constraint = Constraint::of(row.rules.clone(), VOCAB);
    let draw = || next_token(past, &row.params, &constraint.forbidden, (row.choice, row.output_index));
    let token = constraint.forced.unwrap_or_else(draw);
    let certainty = row.params.certainty.then(|| certainty_after(past));
    let report = RowReport::of(row, &constraint, VOCAB);
    let yielded = constraint.yielded;
    let logprob = || TokenLogprobs { logprob: -hidden(past), top: Vec::new() };
    let logprobs = row.params.logprobs.map(|_| logprob());
    Sample { seq: row.seq, token, logprobs, certainty, changed: None, yielded, report, finite: true }
}

/// As many pages as its positions and guesses can take.
fn check_pages(piece: &Piece) {
    let end = piece.start + piece.follows.unwrap_or(0) + piece.len();
    let (pages, guesses) = (piece.pages.len() as u32, (end + piece.guesses).div_ceil(PAGE_TOKENS));
    assert!(
        pages == end.div_ceil(PAGE_TOKENS) || pages == guesses,
        "pages of positions 0..{end}, {guesses} with guesses"
    );
}

fn check_form(piece: &Piece) {
    let end = piece.start + piece.len();
    match piece.form {
        Form::Chunked => {
            assert!(piece.start.is_multiple_of(CHUNK_TOKENS) && end <= piece.prompt_len, "{piece:?}");
            assert!(end.is_multiple_of(CHUNK_TOKENS) || end == piece.prompt_len, "{piece:?}");
        }
        Form::Recurrent => assert!(piece.start >= piece.prompt_len && piece.score.is_none(), "{piece:?}"),
    }
}

/// The hash after a prompt and what followed it.
pub(super) fn end_of(tokens: &[TokenId], prompt_len: usize) -> u64 {
    let mut hash = None;
    for (position, &token) in tokens.iter().enumerate() {
        hash = Some(step_hash(hash, token, if position < prompt_len { Form::Chunked } else { Form::Recurrent }));
    }
    hash.expect("a prompt has a token")
}

/// A hidden state of one number, whole so that sums are exact.
fn hidden(past: u64) -> f32 {
    (past % 1000) as f32
}

/// What a prompt is pooled to from this position on.
pub(super) fn pooled_of(prompt: &[TokenId], from: usize) -> Vec<f32> {
    let states: Vec<f32> = (from..prompt.len()).map(|at| hidden(end_of(&prompt[..=at], prompt.len()))).collect();
    vec![states.iter().sum::<f32>() / states.len() as f32]
}

fn step_hash(past: Option<u64>, token: TokenId, form: Form) -> u64 {
    mix(past.unwrap_or(0x9e37_79b9), u64::from(token) * 2 + u64::from(form == Form::Recurrent))
}

/// The fake model: the next token depends on all that came before, on the parameters, on the choice and on the output's
/// index. Instead of a forbidden one it says the next that is not.
pub(super) fn next_token(
    past: u64,
    params: &SamplingParams,
    forbidden: &[TokenId],
    (choice, output): (u32, u32),
) -> TokenId {
    let drawn = mix(mix(past, params.seed), u64::from(choice) << 32 | u64::from(output));
    let ids = (0..VOCAB).map(|i| ((drawn % u64::from(VOCAB) + u64::from(i)) % u64::from(VOCAB)) as TokenId);
    ids.into_iter().find(|id| !forbidden.contains(id)).expect("a constraint leaves a token")
}

/// How certain the fake model is: more often than not.
pub(super) fn certainty_after(past: u64) -> Certainty {
    let entropy = (mix(past, 1) % 4) as f32;
    Certainty { entropy, top_prob: 1.0 / (1.0 + entropy) }
}

/// Mixes two numbers into one by the finaliser of splitmix64.
pub(super) fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.rotate_left(23) ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
