//! From the last hidden states to tokens: logits of the rows that need them, scores of known tokens, samples. And sums
//! of hidden states, for those who want no tokens.

use crate::backend::cpu::network::forward::ModelPass;
use crate::backend::cpu::pass::batch::{BatchPiece, RowBatch};
use crate::backend::cpu::pass::routes::Routes;
use crate::backend::cpu::sampler::history::History;
use crate::backend::cpu::sampler::{self, SamplerScratch};
use crate::backend::cpu::step::head::{BackfillPiece, GuessRequest, HeadOutputs};
use crate::backend::cpu::store::Slot;
use crate::backend::cpu::team::pool::Team;
use crate::backend::cpu::team::shared::SharedBuffer;
use crate::constraint::Constraint;
use crate::ids::{SeqId, TokenId};
use crate::step::{Form, Piece, PooledUnit, Sample, SampleRow, Score, ScoredToken, StepPlan};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// What a step has to report.
#[derive(Default)]
pub(crate) struct StepOutputs {
    /// Rows that tokens are scored by, each once, in order.
    score_rows: Vec<usize>,
    scores: Vec<ScoreRow>,
    /// Rows that tokens are sampled from.
    pub(crate) rows: Vec<usize>,
    /// Samples in the plan's order.
    pub(crate) samples: Vec<OutputSample>,
    units: Vec<PooledRows>,
    /// Pieces that have drafted rows, in the order of the plan.
    drafted: Vec<DraftedPiece>,
    pub(crate) head: HeadOutputs,
    /// Experts of the rows whose requests ask.
    pub(crate) routes: Routes,
}

/// A piece with drafts, whose first sample is the one before them.
struct DraftedPiece {
    first_sample: usize,
    slot: usize,
    tokens: Vec<TokenId>,
    /// Position of the first of them, and the prompt's length.
    start: u32,
    prompt_len: u32,
}

/// Rows whose hidden states are summed.
struct PooledRows {
    first_row: usize,
    seq: SeqId,
    positions: Range<u32>,
}

/// A known token to score.
struct ScoreRow {
    /// Row among those that tokens are scored by.
    logits: usize,
    seq: SeqId,
    position: u32,
    token: TokenId,
    top: usize,
}

/// A token to sample.
pub(crate) struct OutputSample {
    /// Row among the sampled ones.
    logits: usize,
    /// Slot whose history counts.
    slot: usize,
    /// Drafts before it, which count as outputs too: the sample is of use only if they do.
    drafts: Vec<TokenId>,
    pub(crate) row: SampleRow,
}

impl OutputSample {
    /// What its sequence has read and said before it.
    fn history<'a>(&self, slots: &'a [Slot]) -> Cow<'a, History> {
        let history = &slots[self.slot].history;
        if self.drafts.is_empty() || !self.row.params.reads_history() {
            return Cow::Borrowed(history);
        }
        let mut ahead = history.clone();
        self.drafts.iter().for_each(|token| ahead.push_output(*token));
        Cow::Owned(ahead)
    }
}

/// What the threads report.
#[derive(Default)]
pub(crate) struct Results {
    scores: Mutex<Vec<(usize, Score)>>,
    samples: Mutex<Vec<(usize, Sample)>>,
    pooled: Mutex<Vec<(usize, PooledUnit)>>,
}

impl Results {
    /// In the plan's order.
    pub(crate) fn into_parts(self) -> (Vec<Sample>, Vec<Score>, Vec<PooledUnit>) {
        (sorted(self.samples), sorted(self.scores), sorted(self.pooled))
    }
}

fn sorted<T>(list: Mutex<Vec<(usize, T)>>) -> Vec<T> {
    let mut list = list.into_inner().expect("no thread panics while it reports");
    list.sort_unstable_by_key(|(i, _)| *i);
    list.into_iter().map(|(_, t)| t).collect()
}

impl StepOutputs {
    pub(crate) fn of(plan: &StepPlan, batch: &RowBatch) -> Self {
        let mut all = Self::default();
        let mut first_row = 0;
        for (piece, rows) in plan.pieces.iter().zip(&batch.pieces) {
            all.push_head(piece, rows, batch);
            all.push_scores(piece, first_row);
            all.units.extend(piece.pooled_units().map(|positions| {
                let first_row = first_row + (positions.start - piece.start) as usize;
                PooledRows { first_row, seq: piece.seq, positions }
            }));
            first_row += piece.len() as usize;
            all.push_samples(piece, first_row);
        }
        let asked = all.samples.iter().filter(|sample| sample.row.params.report);
        all.routes = Routes::of(asked.map(|sample| all.rows[sample.logits]));
        all
    }

    /// Adds to the samples whose requests ask which experts their rows were given to.
    pub(crate) fn report(&self, samples: &mut [Sample]) {
        for (sample, of) in samples.iter_mut().zip(&self.samples) {
            if let Some(report) = &mut sample.report {
                report.experts = self.routes.experts(self.rows[of.logits]);
            }
        }
    }

    fn push_head(&mut self, piece: &Piece, rows: &BatchPiece, batch: &RowBatch) {
        let at_once = piece.form == Form::Chunked || rows.certain() > 1;
        let all = rows.first_row..rows.first_row + rows.rows;
        self.head.pieces.push(BackfillPiece {
            slot: rows.slot,
            first_row: rows.first_row,
            certain: rows.certain(),
            start: rows.start,
            late: (!at_once).then(|| batch.tokens[all].to_vec()),
        });
        self.head.exports.extend(rows.exports.iter().map(|(behind, place)| (rows.first_row + behind - 1, *place)));
        self.head.requests.extend(piece.samples.first().filter(|_| piece.guesses > 0).map(|row| GuessRequest {
            slot: rows.slot,
            pages: rows.pages.clone(),
            position: piece.start + piece.certain() - 1,
            row: row.clone(),
            guesses: piece.guesses,
            ends: piece.ends.clone(),
        }));
    }

    /// `end`: the row behind the piece.
    fn push_samples(&mut self, piece: &Piece, end: usize) {
        let (drafts, slot) = (&piece.drafts, piece.slot.0 as usize);
        if !drafts.is_empty() {
            let (first_sample, start) = (self.samples.len(), piece.start + piece.certain());
            let (tokens, prompt_len) = (drafts.clone(), piece.prompt_len);
            self.drafted.push(DraftedPiece { first_sample, slot, tokens, start, prompt_len });
        }
        if !piece.samples.is_empty() {
            self.rows.extend(end - 1 - drafts.len()..end);
        }
        for (i, row) in piece.samples.iter().enumerate() {
            // The choices of a prompt's end share its row.
            let at = i.min(drafts.len());
            let logits = self.rows.len() - 1 - drafts.len() + at;
            self.samples.push(OutputSample { logits, slot, drafts: drafts[..at].to_vec(), row: row.clone() });
        }
    }

    /// The tokens whose logits are read of each row, as [`sampler::read_of`] says it; all where several choices share
    /// the row.
    pub(crate) fn logits_read(&self, constraints: &[Constraint], vocab: usize) -> Vec<Option<Arc<[u32]>>> {
        let mut read = vec![None; self.rows.len()];
        let samples: Vec<_> = self.samples.iter().zip(constraints).collect();
        for of_row in samples.chunk_by(|(a, _), (b, _)| a.logits == b.logits) {
            if let [(sample, constraint)] = of_row {
                read[sample.logits] = sampler::read_of(&sample.row, constraint, vocab);
            }
        }
        read
    }

    /// Leaves of all samples those that count, each with the slot that keeps it, and says how many drafts of each piece
    /// do. `keep` hears of each piece its slot and the drafts that count, each with its position, and the prompt's
    /// length.
    pub(crate) fn accept(
        &self,
        samples: Vec<Sample>,
        mut keep: impl FnMut(usize, &[TokenId], u32, u32),
    ) -> (Vec<(usize, Sample)>, Vec<u32>) {
        let mut accepted = Vec::with_capacity(self.drafted.len());
        let mut counts = vec![true; samples.len()];
        for piece in &self.drafted {
            let own = &samples[piece.first_sample..=piece.first_sample + piece.tokens.len()];
            let equal = own.iter().zip(&piece.tokens).take_while(|(sample, draft)| sample.token == **draft).count();
            counts[piece.first_sample + equal + 1..=piece.first_sample + piece.tokens.len()].fill(false);
            keep(piece.slot, &piece.tokens[..equal], piece.start, piece.prompt_len);
            accepted.push(equal as u32);
        }
        let slots = self.samples.iter().map(|sample| sample.row.slot.0 as usize);
        let kept = slots.zip(samples).zip(counts).filter_map(|(sample, counts)| counts.then_some(sample)).collect();
        (kept, accepted)
    }

    /// Row `i` of a scored piece says how probable the token after it was.
    fn push_scores(&mut self, piece: &Piece, first_row: usize) {
        for ScoredToken { row, position, token, top } in piece.scored() {
            let row = first_row + row as usize;
            // Several tokens may be scored in one place.
            if self.score_rows.last() != Some(&row) {
                self.score_rows.push(row);
            }
            let logits = self.score_rows.len() - 1;
            self.scores.push(ScoreRow { logits, seq: piece.seq, position, token, top: usize::from(top) });
        }
    }
}

impl ModelPass<'_> {
    /// Scores and sums of hidden states.
    pub(crate) fn reports(&self, team: Team, scratch: &mut SamplerScratch, outputs: &StepOutputs, results: &Results) {
        let (room, vocab) = (self.ws.last.len(), self.model.config.vocab);
        if self.recorder.records() {
            let all: Vec<usize> = (0..self.pass.batch.rows()).collect();
            for rows in all.chunks(room) {
                self.logits(team, rows, &self.model.norm);
                if team.index == 0 {
                    // SAFETY: finished before the barrier in `logits`, and overwritten only after the next one.
                    self.recorder.logits(unsafe { self.ws.logits.get(0..rows.len() * vocab) });
                }
                team.wait();
            }
        }
        for (block, rows) in outputs.score_rows.chunks(room).enumerate() {
            self.logits(team, rows, &self.model.norm);
            let first = block * room;
            let place = |row: usize| outputs.scores.partition_point(|score| score.logits < row);
            let scores = place(first)..place(first + rows.len());
            for i in team.share(scores.len()) {
                let (at, s) = (scores.start + i, &outputs.scores[scores.start + i]);
                // SAFETY: as above.
                let logits = unsafe { self.ws.logits.get((s.logits - first) * vocab..(s.logits - first + 1) * vocab) };
                let logprobs = sampler::logprobs(logits, s.token, s.top, scratch);
                let finite = sampler::is_finite(logits);
                let score = Score { seq: s.seq, position: s.position, token: s.token, logprobs, finite };
                results.scores.lock().expect("no thread panics while it reports").push((at, score));
            }
            team.wait();
        }
        for i in team.share(outputs.units.len()) {
            let unit = self.pool(&outputs.units[i]);
            results.pooled.lock().expect("no thread panics while it reports").push((i, unit));
        }
    }

    /// The sum of a unit's rows after the final norm, row after row.
    fn pool(&self, unit: &PooledRows) -> PooledUnit {
        let mut sum = vec![0.0; self.model.config.hidden];
        for row in (unit.first_row..).take(unit.positions.len()) {
            self.pass.norm_row(row, &self.model.norm, false);
            // SAFETY: the row is of this thread's unit; the layers, which read normed rows too, are behind a barrier.
            let normed = unsafe { self.pass.stream.normed.row(row) };
            sum.iter_mut().zip(normed).for_each(|(sum, x)| *sum += x);
        }
        PooledUnit { seq: unit.seq, positions: unit.positions.clone(), sum }
    }
}

/// Everything a sampler reads; the logits are those of [`ModelPass::sampled_logits`].
pub(crate) struct StepSampling<'a> {
    pub(crate) outputs: &'a StepOutputs,
    pub(crate) logits: &'a SharedBuffer<f32>,
    pub(crate) vocab: usize,
    pub(crate) slots: &'a [Slot],
}

impl StepSampling<'_> {
    /// This thread's share of the samples, of which each has its constraint. Where there are few, the first threads
    /// have them: the first one is who waits for the others at the end of a step, and it would sleep and be woken if it
    /// had nothing to do itself.
    pub(crate) fn run(&self, team: Team, scratch: &mut SamplerScratch, constraints: &[Constraint], results: &Results) {
        for i in team.reversed().share(self.outputs.samples.len()) {
            let s = &self.outputs.samples[i];
            // SAFETY: logits are finished, and nobody writes them while samplers run.
            let logits = unsafe { self.logits.get(s.logits * self.vocab..(s.logits + 1) * self.vocab) };
            let history = s.history(self.slots);
            let sample = sampler::sample(logits, &s.row, &history, &constraints[i], scratch);
            results.samples.lock().expect("no thread panics while it reports").push((i, sample));
        }
    }
}
