//! What a step will take, learned from what steps took. Plain numbers: no clock, no device.
//!
//! A step's time is taken as the sum of two parts that are each linear in what the step computes: recurrent rows
//! (passes over the weights, rows, positions attended to) and prompt rows (that there are any, rows, pairs of
//! positions). The first part is learned from steps without prompts, the second from what steps with prompts took
//! beyond it, so a night of decoding alone does not make the model forget what prompts cost. To
//! compare numbers of rows with each other, steps with drafts are learned apart from those without: each is planned only
//! when the one before it is done, so what the device waits for it counts as its time, while steps that are planned
//! ahead hide that.

mod fit;
mod ratios;

use crate::ids::Micros;
use crate::step::{Form, Piece, StepPlan};
use fit::{LinearFit, SURPRISE_AFTER, SlopedFit};
use ratios::{APART_MAX, FASTER_PART, RATIO_PART, RowRatios, SURE};
use std::num::NonZeroU32;

/// Attended positions and pairs are counted in thousands, so that all figures have a like size.
const THOUSAND: f64 = 1e-3;

/// What a step computes, as far as its time depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepShape {
    /// Passes over the weights for recurrent rows, one after another.
    pub passes: u32,
    /// Recurrent rows: decode rows and recomputed positions.
    pub rows: u32,
    /// Positions that the recurrent rows attend to, all together.
    pub attended: u64,
    /// Number of prompt rows.
    pub prompt_rows: u32,
    /// Pairs of a prompt row and a position that it attends to.
    pub prompt_pairs: u64,
    /// Passes of the draft head, one after another.
    pub guess_passes: u32,
    /// Their rows, all together.
    pub guess_rows: u32,
    /// Whether rows are drafted: then its time is taken from the end of the step before.
    pub late: bool,
}

impl StepShape {
    /// Of a plan, on a device that recomputes positions in passes.
    pub fn of(plan: &StepPlan, recompute: Option<Recompute>) -> Self {
        Self::of_pieces(&plan.pieces, recompute)
    }

    /// Of a plan that has these pieces.
    pub(in crate::scheduler) fn of_pieces(pieces: &[Piece], recompute: Option<Recompute>) -> Self {
        pieces.iter().fold(Self::default(), |shape, piece| shape.with(piece, recompute))
    }

    fn with(mut self, piece: &Piece, recompute: Option<Recompute>) -> Self {
        let (start, len) = (piece.start, piece.len());
        self.guess_passes = self.guess_passes.max(piece.guesses);
        self.guess_rows += piece.guesses;
        self.late |= !piece.drafts.is_empty();
        match piece.form {
            Form::Chunked => {
                self.prompt_rows += len;
                self.prompt_pairs += pairs(start, len);
            }
            Form::Recurrent => {
                self.passes = self.passes.max(recompute.map_or(1, |r| piece.passes(r.rows.get())));
                self.rows += len;
                self.attended += pairs(start, len);
            }
        }
        self
    }

    /// This shape with another number of recurrent rows, each of which attends to as much as before.
    fn with_rows(self, rows: u32) -> Self {
        Self { rows, attended: self.attended * u64::from(rows) / u64::from(self.rows.max(1)), ..self }
    }

    /// This shape without its prompt rows.
    pub fn without_prompts(self) -> Self {
        Self { prompt_rows: 0, prompt_pairs: 0, ..self }
    }

    fn recurrent(&self) -> [f64; 3] {
        [f64::from(self.passes), f64::from(self.rows), self.attended as f64 * THOUSAND]
    }

    fn guesses(&self) -> [f64; 3] {
        [f64::from(self.guess_passes), f64::from(self.guess_rows), f64::from(u32::from(self.guess_rows > 0))]
    }

    fn prompts(&self) -> [f64; 3] {
        [f64::from(self.prompt_rows), self.prompt_pairs as f64 * THOUSAND, f64::from(u32::from(self.prompt_rows > 0))]
    }
}

/// Positions that `len` rows from `start` on attend to, each to itself and all before it.
fn pairs(start: u32, len: u32) -> u64 {
    let (start, len) = (u64::from(start), u64::from(len));
    len * start + len * (len + 1) / 2
}

/// What seems to take longer was not one step: the clock jumped, or the machine slept.
const STEP_US_MAX: f64 = 60e6;

/// By how much a step that took longer, or shorter if it was planned ahead, counts at most in what numbers of rows are
/// compared by.
const CHANGE_MAX: f64 = 1.25;
/// How far neighbours are sought.
const NEAR_ROWS: u32 = crate::drafts::PIECE_ROWS_MAX as u32 - 1;
/// Part of what waiting for a plan takes that one observation replaces.
const WAIT_PART: f64 = 0.1;
/// What it takes, in steps without drafts, before it was seen.
const WAIT_AT_FIRST: f64 = 0.25;

/// Predicts times of steps, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CostModel {
    recurrent: LinearFit,
    /// Of steps without drafts that were planned ahead alone. It does not change while all steps have drafts, and what
    /// it errs about contexts of another length, it errs about both kinds.
    ahead: SlopedFit,
    /// By rows, what those steps took over what it says.
    ahead_ratios: RowRatios,
    /// By rows, what steps with drafts took over what the linear part says.
    late_ratios: RowRatios,
    /// What a step without drafts takes beyond its own time where it was not planned ahead; `None` before any was seen.
    wait_us: Option<f64>,
    prompts: LinearFit,
    guesses: LinearFit,
}

impl CostModel {
    /// A step of this shape took that long, without the guesses of a draft head.
    pub fn observe(&mut self, shape: &StepShape, took: Micros) {
        self.observe_unusual(shape, took);
        let took = took.0 as f64;
        if shape.rows == 0 || shape.prompt_rows > 0 || took > STEP_US_MAX {
            return;
        }
        let took = self.unsurprised(shape, took);
        if !shape.late {
            self.ahead.observe(shape.recurrent(), took);
        }
        let (of_rows, attending) = self.ahead_parts(shape);
        if of_rows > 0.0 {
            let ratios = if shape.late { &mut self.late_ratios } else { &mut self.ahead_ratios };
            if shape.late {
                ratios.age();
            }
            let ratio = (took - attending) / of_rows;
            // Nothing makes a step with drafts faster than it is; what was planned ahead is early behind one that was late.
            let faster = shape.late && ratio < ratios.of(shape.rows);
            ratios.observe(shape.rows, ratio as f32, if faster { FASTER_PART } else { RATIO_PART });
        }
    }

    /// What a step took as far as its kind may change by one step: a single one that the machine held up must not show
    /// for long, and while all steps have drafts nothing else would be seen of those without.
    fn unsurprised(&self, shape: &StepShape, took: f64) -> f64 {
        let ratios = if shape.late { &self.late_ratios } else { &self.ahead_ratios };
        let expected = self.decode_rows_us(shape).filter(|_| ratios.seen(shape.rows) >= SURPRISE_AFTER as f32);
        let least = |us: f64| if shape.late { 0.0 } else { us / CHANGE_MAX };
        expected.map_or(took, |us| took.clamp(least(us), us * CHANGE_MAX))
    }

    /// Learns from a step whose time does not tell what others of its kind take: one without drafts that was not
    /// planned ahead.
    pub fn observe_unusual(&mut self, shape: &StepShape, took: Micros) {
        let took = took.0 as f64;
        if took > STEP_US_MAX {
            return;
        }
        if shape.prompt_rows > 0 {
            if shape.rows == 0 || self.recurrent.knows() {
                self.prompts.observe(shape.prompts(), (took - self.recurrent.at(&shape.recurrent())).max(0.0));
            }
        } else if shape.rows > 0 {
            self.recurrent.observe(shape.recurrent(), took);
        }
    }

    /// The guesses of a step of this shape took that long.
    pub fn observe_guesses(&mut self, shape: &StepShape, took: Micros) {
        if shape.guess_rows > 0 && (took.0 as f64) <= STEP_US_MAX {
            self.guesses.observe(shape.guesses(), took.0 as f64);
        }
    }

    /// What a step of this shape should take, microseconds; `None` while a part of it was never seen, except that what
    /// is not known of guesses counts for nothing.
    pub fn predict(&self, shape: &StepShape) -> Option<f64> {
        let known = (shape.rows == 0 || self.recurrent.knows()) && (shape.prompt_rows == 0 || self.prompts.knows());
        let parts = || self.recurrent.at(&shape.recurrent()) + self.prompts.at(&shape.prompts());
        known.then(|| parts() + self.guesses.at(&shape.guesses()))
    }

    /// What so many guesses in so many passes should take, microseconds; `None` before any were made.
    pub fn guess_us(&self, passes: u32, guesses: u32) -> Option<f64> {
        let shape = StepShape { guess_passes: passes, guess_rows: guesses, ..StepShape::default() };
        self.guesses.knows().then(|| self.guesses.at(&shape.guesses()))
    }

    /// What a step without prompts should take by what steps of as many rows took, microseconds: to compare numbers of
    /// rows with each other, between which a linear function does not tell the steps. Where no step with drafts was seen,
    /// they are taken to be like others.
    pub fn decode_rows_us(&self, shape: &StepShape) -> Option<f64> {
        if !self.ahead.knows() {
            return None;
        }
        let own = self.rows_us(shape);
        if !shape.late || shape.rows > APART_MAX {
            return Some(own);
        }
        let by_others = if self.late_ratios.is_sure(shape.rows) { None } else { self.by_neighbours(shape) };
        // Fewer rows take no longer than more: what was held up would not be tried again otherwise.
        let more = (shape.rows + 1..=shape.rows + NEAR_ROWS).filter_map(|rows| self.late_us(shape, rows));
        Some(more.chain(by_others).fold(own, f64::min))
    }

    /// What lies between steps of fewer rows and of more that are sure, or goes on from those of fewer: what was seen once
    /// or twice may have been held up, and who believes it never sees it again.
    fn by_neighbours(&self, shape: &StepShape) -> Option<f64> {
        let n = shape.rows;
        let (fewer, more) = (n.saturating_sub(NEAR_ROWS).max(1)..n, n + 1..=n + NEAR_ROWS);
        let above = more.map(|rows| (rows, self.late_us(shape, rows))).find_map(sure);
        if above.is_none() && !fewer.clone().any(|rows| self.late_ratios.is_sure(rows)) {
            return None;
        }
        let us = |rows| self.late_us(shape, rows).or_else(|| self.ahead_us(shape, rows));
        let mut below = fewer.rev().map(|rows| (rows, us(rows))).filter_map(sure);
        let (low, less) = below.next()?;
        let (other, us) = above.or_else(|| below.next())?;
        Some((less + (us - less) * (f64::from(n) - low) / (other - low)).max(less))
    }

    /// What a step with drafts takes that has so many rows instead, if that is sure.
    fn late_us(&self, shape: &StepShape, rows: u32) -> Option<f64> {
        self.late_ratios.is_sure(rows).then(|| self.rows_us(&shape.with_rows(rows)))
    }

    /// Expected time of a step of so many rows without drafts, with the wait for its plan; `None` if it is not known.
    fn ahead_us(&self, shape: &StepShape, rows: u32) -> Option<f64> {
        let alone = || self.rows_us(&StepShape { late: false, ..shape.with_rows(rows) });
        self.knows_ahead(rows).then(|| alone() + self.wait_us.unwrap_or_default())
    }

    /// Expected time of a step with the recurrent rows of this shape and no prompt rows, microseconds.
    fn rows_us(&self, shape: &StepShape) -> f64 {
        // A number of rows that was never tried with drafts is worth trying if it were like any other.
        let tried = shape.late && self.late_ratios.seen(shape.rows) > 0.0;
        let ratios = if tried { &self.late_ratios } else { &self.ahead_ratios };
        let (of_rows, attending) = self.ahead_parts(shape);
        of_rows * ratios.of(shape.rows) + attending
    }

    /// What the linear part says of a step's rows, which is what ratios are of, and of the positions that they attend to:
    /// these take as long each whatever the number of rows.
    fn ahead_parts(&self, shape: &StepShape) -> (f64, f64) {
        self.ahead.parts(&shape.recurrent())
    }

    /// A step without drafts was waited for, and took so long from the end of the one before.
    pub fn observe_wait(&mut self, shape: &StepShape, took: Micros) {
        let alone = if self.ahead.knows() { self.rows_us(&StepShape { late: false, ..*shape }) } else { 0.0 };
        if alone > 0.0 && shape.prompt_rows == 0 && shape.rows > 0 {
            let wait = (took.0 as f64 - alone).clamp(0.0, alone);
            let kept = self.wait_us.get_or_insert(wait);
            *kept += (wait - *kept) * WAIT_PART;
        }
    }

    /// What it takes to wait for a step's plan, where the step takes so long when it was planned ahead.
    pub fn wait_us(&self, step_us: f64) -> f64 {
        self.wait_us.unwrap_or(WAIT_AT_FIRST * step_us)
    }

    /// Were steps of so many rows seen that had no drafts and were planned ahead?
    pub fn knows_ahead(&self, rows: u32) -> bool {
        self.ahead_ratios.seen(rows) >= SURE
    }

    /// Was a step with drafts and so many rows seen?
    pub fn tried(&self, rows: u32) -> bool {
        self.late_ratios.seen(rows) > 0.0
    }

    /// What `len` prompt rows from `start` on add to a step, microseconds; `first` if it has no prompt rows yet. `None`
    /// before any were seen.
    pub fn prompt_us(&self, start: u32, len: u32, first: bool) -> Option<f64> {
        let features = [f64::from(len), pairs(start, len) as f64 * THOUSAND, f64::from(u32::from(first))];
        self.prompts.knows().then(|| self.prompts.at(&features))
    }

    /// What `len` recurrent rows of one sequence from `start` on take in `passes` passes of their own, microseconds.
    pub fn recurrent_us(&self, passes: u32, start: u32, len: u32) -> Option<f64> {
        let features = [f64::from(passes), f64::from(len), pairs(start, len) as f64 * THOUSAND];
        self.recurrent.knows().then(|| self.recurrent.at(&features))
    }
}

/// A number of rows, and what a step of so many takes if that is known.
fn sure((rows, us): (u32, Option<f64>)) -> Option<(f64, f64)> {
    Some((f64::from(rows), us?))
}

/// Steps that take this many times `Pace::ahead_us` are worth waiting for.
const AHEAD_WORTH: f64 = 3.0;
/// Part of a step's predicted time by which the next one is planned earlier still.
const AHEAD_SHARE: f64 = 0.03;

/// How positions are recomputed that a sequence had before it was preempted, in passes over the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recompute {
    /// Rows of a sequence that one pass takes.
    pub rows: NonZeroU32,
    /// The most passes of a step.
    pub passes_max: NonZeroU32,
}

impl Recompute {
    /// Passes of so many positions.
    pub fn passes(self, positions: u32) -> u32 {
        positions.div_ceil(self.rows.get())
    }

    /// Positions of a sequence in a step.
    pub fn positions_max(self) -> u32 {
        self.rows.get().saturating_mul(self.passes_max.get())
    }
}

/// How much a step may take on, beside the bounds that never change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Model of the time that steps take.
    pub cost: CostModel,
    /// A step in which somebody decodes takes no more prompt positions than this time allows, microseconds; 0 sets no
    /// target. The unit of [`crate::CHUNK_TOKENS`] that moves a prompt is granted all the same.
    pub target_us: u64,
    /// A request that would wait longer than this for its first step is refused, microseconds; 0 sets no bound.
    pub wait_us_max: u64,
    /// How, on a device where recomputed positions of a sequence take passes over the weights of their own.
    pub recompute: Option<Recompute>,
    /// Decode rows and prompts take passes over the weights of their own, so that steps of either alone take no longer
    /// than one of both.
    pub apart: bool,
    /// While a step runs, the next one is planned this long before its predicted end, microseconds; 0: at once.
    pub ahead_us: u64,
}

impl Pace {
    /// The shape of a plan on this device.
    pub fn shape(&self, plan: &StepPlan) -> StepShape {
        StepShape::of(plan, self.recompute)
    }

    /// When to plan the step after the only one in flight, which began then and should take so long: late, so that who
    /// comes meanwhile is in it. At once while nobody knows what steps take, and after short ones, for which nobody
    /// waits long.
    pub fn plan_at(&self, began: Micros, predicted_us: Option<f64>) -> Micros {
        let ahead_us = self.ahead_us as f64;
        let late = predicted_us.filter(|us| self.ahead_us > 0 && *us > AHEAD_WORTH * ahead_us);
        // A prediction errs by a share of itself.
        Micros(began.0 + late.map_or(0, |us| (us * (1.0 - AHEAD_SHARE) - ahead_us) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(rows: u32, context: u32) -> StepShape {
        StepShape { passes: 1, rows, attended: u64::from(rows * context), ..StepShape::default() }
    }

    fn mixed(rows: u32, prompt_rows: u32, start: u32) -> StepShape {
        StepShape { prompt_rows, prompt_pairs: pairs(start, prompt_rows), ..decode(rows, 500) }
    }

    /// A device whose steps take 4 ms, 200 us a row, 100 us for each thousand positions, 150 us a prompt row and 2 ms
    /// if there are any.
    fn truth(shape: &StepShape) -> f64 {
        let prompts = shape.prompts();
        let recurrent = shape.recurrent();
        4_000.0 * recurrent[0]
            + 200.0 * recurrent[1]
            + 100.0 * recurrent[2]
            + 150.0 * prompts[0]
            + 20.0 * prompts[1]
            + 2_000.0 * prompts[2]
    }

    fn learned() -> CostModel {
        let mut model = CostModel::default();
        for i in 0..2_000u32 {
            let shape = if i % 4 == 3 {
                mixed(i % 13, 64 * (1 + i % 5), 64 * (i % 37))
            } else {
                decode(1 + i % 16, 50 + i % 700)
            };
            model.observe(&shape, Micros(truth(&shape) as u64));
        }
        model
    }

    #[track_caller]
    fn assert_close(got: f64, want: f64, share: f64) {
        assert!((got - want).abs() <= share * want, "{got} is not within {share} of {want}");
    }

    #[test]
    fn what_is_learned_from_a_steady_device_predicts_it() {
        let model = learned();
        for shape in [decode(1, 100), decode(16, 600), mixed(8, 256, 0), mixed(3, 64, 2_000), mixed(0, 128, 64)] {
            assert_close(model.predict(&shape).unwrap(), truth(&shape), 0.1);
        }
    }

    #[test]
    fn numbers_of_rows_are_told_apart_where_a_row_more_has_a_step() {
        let mut model = CostModel::default();
        let steps = |rows: u32| 1_000 + 50 * u64::from(rows) + if rows > 4 { 2_000 } else { 0 };
        (0..2_000u32).for_each(|i| model.observe(&decode(1 + i % 8, 100), Micros(steps(1 + i % 8))));
        for rows in 1..=8 {
            assert_close(model.decode_rows_us(&decode(rows, 100)).unwrap(), steps(rows) as f64, 0.08);
        }
        assert!(CostModel::default().decode_rows_us(&decode(1, 1)).is_none());
    }

    #[test]
    fn a_number_of_rows_that_was_never_seen_lies_between_its_neighbours() {
        let mut model = CostModel::default();
        let steps = |rows: u32| if rows < 4 { 1_000 } else { 1_500 };
        (0..2_000u32)
            .for_each(|i| model.observe(&decode([1, 5, 9][i as usize % 3], 100), Micros(steps(1 + i % 3 * 4))));
        let of = |rows| model.decode_rows_us(&decode(rows, 100)).unwrap();
        assert_close(of(1), 1_000.0, 0.05);
        assert!((1_000.0..1_500.0).contains(&of(3)), "{}", of(3));
        assert_close(of(5), 1_500.0, 0.05);
    }

    #[test]
    fn a_step_that_was_held_up_says_little_of_those_like_it_and_a_change_is_learned() {
        let mut model = CostModel::default();
        (0..100u32).for_each(|i| model.observe(&decode(1, 50 + i), Micros(1_000)));
        model.observe(&decode(1, 150), Micros(40_000));
        assert_close(model.decode_rows_us(&decode(1, 60)).unwrap(), 1_000.0, 0.05);
        (0..100u32).for_each(|i| model.observe(&decode(1, 50 + i), Micros(3_000)));
        assert_close(model.decode_rows_us(&decode(1, 150)).unwrap(), 3_000.0, 0.1);
    }

    #[test]
    fn steps_with_drafts_are_learned_apart_from_others() {
        let mut model = learned();
        let late = StepShape { late: true, ..decode(4, 100) };
        let before = model.decode_rows_us(&decode(4, 100));
        assert_eq!(model.decode_rows_us(&late), before, "until one was seen, they are like others");
        let took = |rows: u32| Micros(truth(&decode(rows, 100)) as u64 + 3_000);
        for rows in (0..400).map(|i| 1 + i % 16) {
            model.observe(&StepShape { late: true, ..decode(rows, 100) }, took(rows));
            model.observe_unusual(&decode(rows, 100), took(rows));
        }
        assert_close(model.decode_rows_us(&late).unwrap(), truth(&decode(4, 100)) + 3_000.0, 0.05);
        assert_eq!(model.decode_rows_us(&decode(4, 100)), before);
        assert_close(model.predict(&decode(4, 100)).unwrap(), truth(&decode(4, 100)) + 3_000.0, 0.05);
    }

    #[test]
    fn numbers_of_drafts_that_were_held_up_when_they_were_tried_are_not_believed() {
        let mut model = learned();
        let late = |rows| StepShape { late: true, ..decode(rows, 100) };
        let us = |rows: u32| truth(&decode(rows, 100)) + 500.0;
        let observe = |model: &mut CostModel, rows: u32, times: f64, n: usize| {
            (0..n).for_each(|_| model.observe(&late(rows), Micros((times * us(rows)) as u64)));
        };
        observe(&mut model, 2, 4.0, 1);
        let alone = model.decode_rows_us(&late(2)).unwrap();
        assert!(alone > 3.0 * us(2), "nobody knows better yet");
        observe(&mut model, 4, 1.0, 6);
        let beside = model.decode_rows_us(&late(2)).unwrap();
        assert!(beside < us(4) && beside > 0.8 * us(2), "{beside} where two rows take {}", us(2));
        observe(&mut model, 3, 3.0, 6);
        let bound = model.decode_rows_us(&late(3)).unwrap();
        assert_close(bound, model.decode_rows_us(&late(4)).unwrap(), 1e-9);
        observe(&mut model, 2, 1.0, 8);
        assert_close(model.decode_rows_us(&late(2)).unwrap(), us(2), 0.1);
    }

    #[test]
    fn a_machine_that_becomes_slower_while_one_answer_grows_does_not_make_eight_rows_of_it_dear() {
        let mut model = CostModel::default();
        let late = |context| StepShape { late: true, ..decode(8, context) };
        // 20 us for each thousand positions, and the machine takes up to a tenth more, for some steps at a time.
        let us = |rows: u32, context: u32, step: u32| {
            let alone = f64::from(300 + 100 * rows) + 0.02 * f64::from(rows * context);
            Micros((alone * (1.05 + 0.05 * (f64::from(step) / 20.0).sin())) as u64)
        };
        (0..6).for_each(|i| model.observe(&decode(1, 300), us(1, 300, i)));
        (0..6).for_each(|i| model.observe(&late(300), us(8, 300, i)));
        for step in 0..1_500 {
            let context = 300 + step % 500;
            model.observe(&decode(1, context), us(1, context, step));
            let (got, want) = (model.decode_rows_us(&late(context)).unwrap(), us(8, context, step).0 as f64);
            assert_close(got, want, 0.25);
        }
    }

    #[test]
    fn what_was_never_seen_is_not_predicted() {
        let mut model = CostModel::default();
        assert_eq!(model.predict(&decode(1, 1)), None);
        model.observe(&decode(2, 100), Micros(5_000));
        assert!(model.predict(&decode(2, 100)).is_some());
        assert_eq!((model.predict(&mixed(1, 64, 0)), model.prompt_us(0, 64, true)), (None, None));
    }

    #[test]
    fn a_night_of_decoding_does_not_make_it_forget_what_prompts_cost() {
        let mut model = learned();
        let before = model.prompt_us(0, 256, true).unwrap();
        for _ in 0..10_000 {
            model.observe(&decode(1, 300), Micros(truth(&decode(1, 300)) as u64));
        }
        assert_eq!(model.prompt_us(0, 256, true), Some(before));
        assert_close(model.predict(&decode(16, 300)).unwrap(), truth(&decode(16, 300)), 0.15);
    }

    #[test]
    fn one_step_in_which_the_machine_slept_or_the_clock_jumped_teaches_little() {
        let mut model = learned();
        let before = model.predict(&decode(4, 300)).unwrap();
        model.observe(&decode(4, 300), Micros(3_600_000_000));
        assert_close(model.predict(&decode(4, 300)).unwrap(), before, 0.15);
        model.observe(&decode(4, 300), Micros(0));
        assert!(model.predict(&decode(4, 300)).unwrap().is_finite());
    }

    #[test]
    fn a_device_that_became_slower_for_good_is_followed() {
        let mut model = learned();
        for i in 0..1_000u32 {
            let shape = decode(1 + i % 16, 50 + i % 700);
            model.observe(&shape, Micros((10.0 * truth(&shape)) as u64));
        }
        assert_close(model.predict(&decode(8, 400)).unwrap(), 10.0 * truth(&decode(8, 400)), 0.15);
    }

    #[test]
    fn rows_attend_to_themselves_and_all_before() {
        assert_eq!((pairs(0, 1), pairs(0, 3), pairs(10, 2)), (1, 6, 23));
    }
}
