//! One step of the engine as data: what the scheduler asks for ([`StepPlan`]) and what comes back ([`StepOutcome`]).
//! What sources that rows wait for add while the forward runs is [`crate::constraint::StepRules`].
//!
//! A plan names slots and pages and never reads them. It may be made while the step before it still runs: a token that
//! is not known yet is [`PieceTokens::Sampled`], and the backend takes it from the slot that sampled it.

use crate::CHUNK_TOKENS;
use crate::adapter::ResidentAdapter;
use crate::constraint::{Awaiting, Constraint, Rule, Source, Sources};
use crate::ids::{CheckpointId, HostBlockId, PageId, SeqId, SlotId, StepId, TokenId, TransferId};
pub use crate::sampling::Certainty;
use crate::sampling::SamplingParams;
pub use chimere_kernels::reference::ExpertCut;
use std::ops::Range;
use std::sync::Arc;

/// How many drafted tokens the steps of a backend may have. The default is a backend that takes none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftRoom {
    /// The most behind one sequence's own token.
    pub piece_max: u32,
    /// The most in a step, of all sequences together.
    pub step_max: u32,
    /// The most rows of a step after prompts, drafted ones among them.
    pub rows_max: u32,
    /// Whether sequences may have some for which [`SamplingParams::reads_history`].
    pub penalties: bool,
    /// Whether the model guesses itself, with a draft head: [`Piece::guesses`] may be asked for.
    pub guesses: bool,
    /// The most rows of a step of pieces that follow others ([`Piece::follows`]), and of the step that they follow.
    pub follow_rows_max: u32,
}

/// Everything a backend needs to run one step. Copies happen first, in order; then all pieces run together.
#[derive(Clone, Debug)]
pub struct StepPlan {
    /// Steps are launched in the order of their ids.
    pub id: StepId,
    /// Forks of state and copies of part-filled pages.
    pub copies: Vec<StateCopy>,
    /// At most one piece a sequence.
    pub pieces: Vec<Piece>,
    /// Copies to and from the host's memory, which run beside the steps: they begin when `copies` and restored states
    /// are done, those of a direction one after the other.
    pub transfers: Vec<Transfer>,
    /// The rows wait for all transfers of this and earlier plans: memory that one of them reads or writes has a new
    /// owner.
    pub settles: bool,
}

impl StepPlan {
    /// A step of these pieces alone.
    pub fn new(id: StepId, pieces: Vec<Piece>) -> Self {
        Self { id, copies: Vec::new(), pieces, transfers: Vec::new(), settles: false }
    }

    /// The rows that are sampled, in the order of their samples.
    pub fn sample_rows(&self) -> impl Iterator<Item = &SampleRow> {
        self.pieces.iter().flat_map(|piece| &piece.samples)
    }

    /// The deferred sources that its rows wait for.
    pub fn waits_for(&self) -> Sources {
        self.sample_rows().fold(Sources::NONE, |all, row| all.with(row.waits_for))
    }

    /// The rows that wait for one of them, if any do.
    pub fn awaiting(&self, source: Source) -> Option<Awaiting> {
        let waiting = self.sample_rows().filter(|row| row.waits_for.contains(source));
        let rows: Vec<_> = waiting.map(|row| (row.seq, row.output_index)).collect();
        let drafted = self.pieces.iter().filter(|piece| !piece.drafts.is_empty());
        let drafts = drafted.map(|piece| (piece.seq, piece.drafts.clone())).collect();
        (!rows.is_empty()).then_some(Awaiting { step: self.id, rows, drafts })
    }
}

/// A copy inside the device's memory, done before the step's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateCopy {
    /// Recurrent state, conv tail and token history; not the last sampled token, which each slot has of its own.
    Slot {
        /// Source; keeps its contents.
        from: SlotId,
        /// Slot that the copy overwrites whole.
        to: SlotId,
    },
    /// One KV page in every attention layer.
    Page {
        /// Source; keeps its contents.
        from: PageId,
        /// Page that the copy overwrites whole.
        to: PageId,
    },
}

/// A checkpoint and KV of units before it, copied between the device's memory and the host's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// [`HostProgress::finished`] names it when it is done.
    pub id: TransferId,
    /// Whether it goes to the host or to the device.
    pub direction: Direction,
    /// On the device. A checkpoint that is being loaded may be restored from: that step waits for it.
    pub checkpoint: CheckpointId,
    /// Blocks of the host that hold the checkpoint, in order.
    pub blocks: Vec<HostBlockId>,
    /// Units of [`CHUNK_TOKENS`] positions with the block of each.
    pub units: Vec<(UnitPages, HostBlockId)>,
}

/// The KV pages of a unit of [`CHUNK_TOKENS`] positions.
pub type UnitPages = [PageId; (CHUNK_TOKENS / crate::PAGE_TOKENS) as usize];

/// Which way a [`Transfer`] goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the device to the host.
    Save,
    /// From the host to the device.
    Load,
}

/// What is known of transfers and of the memory that they use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostProgress {
    /// Transfers that were found to be done, each once.
    pub finished: Vec<FinishedTransfer>,
    /// Blocks of the host's memory that are there by now: it is taken piece by piece.
    pub blocks: u32,
}

/// A transfer that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedTransfer {
    /// The transfer that is done.
    pub id: TransferId,
    /// Which way it went.
    pub direction: Direction,
    /// How long it took.
    pub micros: u64,
}

/// Consecutive positions of one sequence, computed in one step.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The sequence that these positions belong to.
    pub seq: SeqId,
    /// Slot of the sequence's recurrent state.
    pub slot: SlotId,
    /// What the slot holds before the first row.
    pub state: StateStart,
    /// Which arithmetic the rows take. Never depends on the batch.
    pub form: Form,
    /// Absolute position of the first token.
    pub start: u32,
    /// The tokens that are fed, known ones or the last sample.
    pub tokens: PieceTokens,
    /// What the sequence may say after them, each a row of its own behind the rows of `tokens`. A drafted row counts as
    /// far as every draft up to its own is what was sampled in its place; what the others wrote is never read. Only of
    /// decode rows, and while such a piece is in flight its sequence has no other.
    pub drafts: Vec<TokenId>,
    /// It goes on from a piece of its sequence in the step before, of which nobody knows yet how many of so many drafts
    /// count: `start` and [`SampleRow::output_index`] are those if none does, and what counts comes on top of them. Its
    /// token is the one sampled last that counts, and its drafts are the first guesses that were asked for there,
    /// whatever stands in `drafts`. Of a plan all pieces follow others, or none does. All of that piece's guesses found room in its pages, and its pages have room for
    /// these rows whatever counts.
    pub follows: Option<u32>,
    /// Pages of positions `0..start + len`, in order, and of as many more as may count of the drafts of the piece that
    /// it follows; the last may be part-filled.
    pub pages: Vec<PageId>,
    /// Length of the prompt: tokens from here on count as output for penalties.
    pub prompt_len: u32,
    /// Tokens to sample from the last row: none for an inner prompt piece, one a choice at the prompt's end, one for a
    /// decode row. With drafts one from each of the last `drafts.len() + 1` rows: each is sampled as if there were no
    /// drafts, which it is right to do once the drafts before it turn out to be what was sampled.
    pub samples: Vec<SampleRow>,
    /// Report log-probabilities of the prompt's own tokens.
    pub score: Option<ScoreRows>,
    /// How many tokens the model's draft head shall guess behind the last one that is sampled and counts: those of a
    /// decode row, or of a prompt's end with one sample.
    pub guesses: u32,
    /// Ids that end the sequence: a backend need not guess behind one.
    pub ends: Arc<[TokenId]>,
    /// Each row takes only as many experts as it needs.
    pub experts: Option<ExpertCut>,
    /// What is added to the model's matrices for these rows; of a sequence always the same adapter and scale, in any
    /// slot. A backend gets at most [as many](crate::backend::BackendInfo::adapter_slots) in one step as it has slots.
    /// Where a slot holds another number than the piece says, the backend copies the adapter there before the step's
    /// rows and behind those of the steps before.
    pub adapter: Option<ResidentAdapter>,
    /// Report [`PooledUnit`]s of the rows from this position on. Only for prompt pieces, which begin at a multiple of
    /// [`crate::CHUNK_TOKENS`].
    pub pool_from: Option<u32>,
    /// Checkpoints to take on the way, by position. Only of prompt pieces.
    pub exports: Vec<StateExport>,
}

/// What a piece's rows go on from. The copy or the clearing comes before all rows of the step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateStart {
    /// Nothing: state, convolution tail and token history are cleared.
    Clear,
    /// What the piece before it left in the slot.
    Continue,
    /// A checkpoint, which an earlier step took at the piece's first position.
    Restore {
        /// Checkpoint that is copied; it keeps its contents.
        from: CheckpointId,
        /// The prompt, of which the tokens before the piece are the slot's history.
        prompt: Arc<[TokenId]>,
        /// The copy from the host that brings it, which may not have ended: of this plan or of an earlier one. Without
        /// it the checkpoint is there, and a load of this plan into its place brings another one.
        load: Option<TransferId>,
    },
}

impl StateStart {
    /// Of a piece at this position of a sequence that no cache helps.
    pub fn at(start: u32) -> Self {
        if start == 0 { Self::Clear } else { Self::Continue }
    }

    /// The copy from the host that brings what the piece goes on from, if it may not have ended.
    pub fn load(&self) -> Option<TransferId> {
        if let Self::Restore { load, .. } = self { *load } else { None }
    }
}

/// A copy of the recurrent state as it is between two positions of a piece. The rest of a slot follows from the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateExport {
    /// After so many positions of the sequence: a multiple of [`CHUNK_TOKENS`] inside the piece or at its end.
    pub position: u32,
    /// Checkpoint that the copy overwrites whole.
    pub to: CheckpointId,
}

impl Piece {
    /// Positions whose sums it reports, a unit of [`crate::CHUNK_TOKENS`] at most in each: they end at absolute
    /// multiples of that, so that a prompt's units are the same however it is cut into pieces.
    pub fn pooled_units(&self) -> impl Iterator<Item = Range<u32>> + use<> {
        let end = self.start + self.len();
        let mut at = self.pool_from.map_or(end, |from| from.max(self.start));
        std::iter::from_fn(move || {
            let unit = at..((at / CHUNK_TOKENS + 1) * CHUNK_TOKENS).min(end);
            at = unit.end;
            (!unit.is_empty()).then_some(unit)
        })
    }

    /// Tokens whose log-probabilities it reports, in the order of their positions.
    pub fn scored(&self) -> Vec<ScoredToken> {
        let (Some(score), PieceTokens::Known(ids)) = (&self.score, &self.tokens) else { return Vec::new() };
        let of_row = |row: u32, token| ScoredToken { row, position: self.start + row + 1, token, top: score.top };
        let own = (0..).zip(ids.iter().skip(1)).map(|(row, token)| of_row(row, *token));
        let next = score.next.iter().map(|token| of_row(self.len() - 1, *token));
        own.chain(next).filter(|scored| scored.position >= score.from).collect()
    }

    /// Number of positions, drafted ones included.
    pub fn len(&self) -> u32 {
        self.certain() + u32::try_from(self.drafts.len()).expect("drafts are few")
    }

    /// Number of positions that count whatever is sampled: all but the drafted ones.
    pub fn certain(&self) -> u32 {
        match &self.tokens {
            PieceTokens::Known(ids) => u32::try_from(ids.len()).expect("a piece is shorter than the context"),
            PieceTokens::Sampled => 1,
        }
    }

    /// Rows of it in a pass over the weights that has at most `each`, or more for drafts, which stand with the row before
    /// them.
    pub fn rows_a_pass(&self, each: u32) -> u32 {
        each.max(self.len() - self.certain() + 1)
    }

    /// Passes that its rows take then; the last one is full.
    pub fn passes(&self, each: u32) -> u32 {
        self.len().div_ceil(self.rows_a_pass(each))
    }

    /// A piece has at least one token.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The canonical form of a position's arithmetic (see `docs/internals/architecture.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Prompt positions: chunks end at absolute multiples of [`crate::CHUNK_TOKENS`] or at the prompt's end.
    Chunked,
    /// Every position after the prompt's end, each as if it were alone, also when several are recomputed in one piece.
    Recurrent,
}

/// The tokens of a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PieceTokens {
    /// Known when the step was planned.
    Known(Vec<TokenId>),
    /// The one token that this slot sampled last, in the step before or in an earlier one.
    Sampled,
}

/// One token to sample from a piece's last row.
#[derive(Clone, Debug)]
pub struct SampleRow {
    /// The sequence that gets the token; differs from the piece's own for choices 1.. at the prompt's end.
    pub seq: SeqId,
    /// The slot that keeps it for a later [`PieceTokens::Sampled`].
    pub slot: SlotId,
    /// Shared by all choices of a request.
    pub params: Arc<SamplingParams>,
    /// How many tokens this choice has generated before this one.
    pub output_index: u32,
    /// Which choice of the request.
    pub choice: u32,
    /// What was said about it when it was planned. A forced token's log-probability is reported as for a sampled one.
    pub rules: Vec<Rule>,
    /// Deferred sources whose [`crate::constraint::StepRules`] the sampler waits for.
    pub waits_for: Sources,
}

impl SampleRow {
    /// The first output of a request's first choice, about which nothing is said.
    pub fn new(seq: SeqId, slot: SlotId, params: Arc<SamplingParams>) -> Self {
        Self { seq, slot, params, output_index: 0, choice: 0, rules: Vec::new(), waits_for: Sources::NONE }
    }
}

/// The most tokens that a piece has scored in the place behind it: a backend has room for the results of as many.
pub const SCORED_NEXT_MAX: usize = 32;

/// Which log-probabilities of known tokens a piece reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScoreRows {
    /// How many of the most probable alternatives to report.
    pub top: u8,
    /// Position of the first token that is scored.
    pub from: u32,
    /// What may stand behind the piece's last token, each scored in that place: the prompt's next token, or behind the
    /// prompt as many as a request asks about. At most [`SCORED_NEXT_MAX`].
    pub next: Arc<[TokenId]>,
}

/// A known token whose log-probability a piece reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScoredToken {
    /// The row of the piece that says it, which stands before the token.
    pub row: u32,
    /// Where the token stands or would stand.
    pub position: u32,
    /// The token that is scored.
    pub token: TokenId,
    /// How many alternatives come with it.
    pub top: u8,
}

/// What a finished step brings back to the host.
#[derive(Clone, Debug, Default)]
pub struct StepOutcome {
    /// The step that finished; `None` only in the default value.
    pub id: Option<StepId>,
    /// One entry a [`SampleRow`] of the plan, in its order; of a piece with drafts those of the rows that count.
    pub samples: Vec<Sample>,
    /// Of each piece with drafts, in their order, how many drafts were what was sampled in their place: it has one
    /// sample more.
    pub accepted: Vec<u32>,
    /// Of each piece with [`Piece::guesses`], in their order, what the draft head guesses: as many as were asked for, or
    /// fewer where there is no room for more.
    pub guesses: Vec<Vec<TokenId>>,
    /// Scores of known tokens, in the order of pieces and positions.
    pub scores: Vec<Score>,
    /// Where the time went.
    pub timing: StepTiming,
    /// What the rows with an [`ExpertCut`] took.
    pub experts: ExpertUse,
    /// Captured graphs that were replayed for it; 0 where a backend has none.
    pub graph_replays: u32,
    /// Sums of hidden states, in the order of pieces and positions.
    pub pooled: Vec<PooledUnit>,
    /// How the second tier of the prefix cache gets on.
    pub host: HostProgress,
    /// Where the experts lay that finished steps read, where not all lie on the device.
    pub expert_reads: ExpertReads,
}

/// The sum of a few consecutive rows' hidden states as the head reads them, which is after the final norm.
#[derive(Clone, Debug, PartialEq)]
pub struct PooledUnit {
    /// The sequence of the prompt whose rows are summed.
    pub seq: SeqId,
    /// Positions summed, in this order.
    pub positions: Range<u32>,
    /// As wide as the model.
    pub sum: Vec<f32>,
}

/// Routed experts of rows whose number was cut, over all layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertUse {
    /// Rows, counted once a layer.
    pub rows: u64,
    /// Experts that they were given to.
    pub experts: u64,
}

/// Routed experts that passes over all layers read, each once a layer and pass, by where they lay; and those that came to
/// the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertReads {
    /// Read in the device's memory.
    pub hits: u64,
    /// Read in the host's memory, over the bus.
    pub misses: u64,
    /// Bytes of the experts that were read in the host's memory.
    pub missed_bytes: u64,
    /// Brought to the device, in the place of others.
    pub promoted: u64,
}

/// One sampled token, with what the request asks to know about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The sequence that gets it.
    pub seq: SeqId,
    /// Id of the sampled token.
    pub token: TokenId,
    /// Log-probabilities, if the request asks for them.
    pub logprobs: Option<TokenLogprobs>,
    /// How certain the model was, if the request asks for it.
    pub certainty: Option<Certainty>,
    /// Whether biases or mixtures of its constraint made it another token than it would have been; `None` where the
    /// backend cannot tell.
    pub changed: Option<bool>,
    /// Sources with a rule about it that was left out: [`crate::constraint::Constraint::yielded`].
    pub yielded: Sources,
    /// Rules and experts behind the token, if the request asks for them.
    pub report: Option<Box<RowReport>>,
    /// Whether all logits that were read of its row are finite numbers. If not, the token means nothing.
    pub finite: bool,
}

/// What stood behind a token beside the model's logits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowReport {
    /// Sources whose rules about it stood: [`crate::constraint::Constraint::ruled`].
    pub ruled: Sources,
    /// Tokens that they left; `None` where they forbade nothing.
    pub allowed: Option<u32>,
    /// Experts that its row was given to, a list a layer that has some, the best first; `None` where the model has none,
    /// and of a backend that does not tell.
    pub experts: Option<Vec<Vec<u32>>>,
}

impl RowReport {
    /// Of a row about which this is said, for a vocabulary of so many tokens, if the row's request asks.
    pub fn of(row: &SampleRow, constraint: &Constraint, vocab: u32) -> Option<Box<Self>> {
        let report = || Self { ruled: constraint.ruled, allowed: constraint.left(vocab), experts: None };
        row.params.report.then(|| Box::new(report()))
    }
}

/// Log-probabilities from the unedited logits at temperature 1.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// Of the token itself, in nats.
    pub logprob: f32,
    /// The most probable tokens, best first, ties by lower id.
    pub top: Vec<(TokenId, f32)>,
}

/// The log-probability of a prompt token.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// The sequence of the prompt that is scored.
    pub seq: SeqId,
    /// Position of the scored token, at least 1.
    pub position: u32,
    /// The token that stands there.
    pub token: TokenId,
    /// As for sampled tokens.
    pub logprobs: TokenLogprobs,
    /// As for sampled tokens.
    pub finite: bool,
}

/// Wall time of a step's parts, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTiming {
    /// From the first copy to the last logit.
    pub forward_us: u64,
    /// Time of penalties, sampling and log-probabilities.
    pub sample_us: u64,
    /// Guesses of the draft head, after the samples.
    pub guess_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sampled_piece_has_one_position_and_a_known_one_as_many_as_its_tokens() {
        let mut piece = Piece {
            seq: SeqId(1),
            slot: SlotId(0),
            state: StateStart::Continue,
            form: Form::Recurrent,
            start: 70,
            tokens: PieceTokens::Sampled,
            drafts: Vec::new(),
            guesses: 0,
            pages: vec![PageId(0), PageId(1), PageId(2)],
            prompt_len: 64,
            samples: Vec::new(),
            score: None,
            experts: None,
            adapter: None,
            follows: None,
            ends: Arc::default(),
            pool_from: None,
            exports: Vec::new(),
        };
        assert_eq!(piece.len(), 1);
        piece.tokens = PieceTokens::Known(vec![5, 6, 7]);
        assert_eq!(piece.len(), 3);
        assert!(!piece.is_empty());
    }

    #[test]
    fn sums_end_at_multiples_of_64_wherever_pieces_do() {
        let units = |start: u32, len: u32, pool_from: Option<u32>| {
            let piece = Piece {
                seq: SeqId(1),
                slot: SlotId(0),
                state: StateStart::at(start),
                form: Form::Chunked,
                start,
                tokens: PieceTokens::Known(vec![0; len as usize]),
                drafts: Vec::new(),
                guesses: 0,
                pages: Vec::new(),
                prompt_len: 200,
                samples: Vec::new(),
                score: None,
                experts: None,
                adapter: None,
                follows: None,
                ends: Arc::default(),
                pool_from,
                exports: Vec::new(),
            };
            piece.pooled_units().map(|unit| (unit.start, unit.end)).collect::<Vec<_>>()
        };
        assert_eq!(units(0, 200, Some(0)), [(0, 64), (64, 128), (128, 192), (192, 200)]);
        assert_eq!(units(64, 64, Some(0)), [(64, 128)]);
        assert_eq!(units(128, 72, Some(199)), [(199, 200)]);
        assert_eq!(units(0, 128, Some(199)), []);
        assert_eq!(units(0, 64, None), []);
    }
}
