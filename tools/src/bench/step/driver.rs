//! Hand-made steps on a backend, timed. What the scheduler would do is done here in the plainest way, so that only the
//! engine is measured; steps are launched while earlier ones may still run and waited for on another thread, as the
//! service does.

use super::replay::Replay;
use chimere::limits::STEPS_IN_FLIGHT_MAX;
use chimere_engine::adapter::{Adapter, ResidentAdapter};
use chimere_engine::backend::cpu::CpuBackend;
use chimere_engine::backend::cuda::CudaBackend;
use chimere_engine::backend::{Backend, BackendError, Pending};
use chimere_engine::ids::{AdapterSlotId, PageId, SeqId, SlotId, StepId, TokenId};
use chimere_engine::sampling::SamplingParams;
use chimere_engine::step::{Form, Piece, PieceTokens, SampleRow, StateStart, StepOutcome, StepPlan};
use chimere_engine::{CHUNK_TOKENS, PAGE_TOKENS};
use crossbeam::channel::{Receiver, Sender, unbounded};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A backend whose contexts can be made up, and that may know more about its steps.
pub(in crate::bench) trait MeasuredBackend: Backend {
    /// Overwrites a slot's state and these pages with random values.
    fn fill(&mut self, slot: SlotId, pages: &[PageId]);

    /// Distinct routed experts of the last finished step, an entry a layer; empty where nobody counts.
    fn expert_counts(&mut self) -> Vec<u32> {
        Vec::new()
    }

    /// Which experts the last finished step's rows used, by layer; empty where nobody tells.
    fn expert_choices(&mut self) -> Vec<Vec<i32>> {
        Vec::new()
    }

    /// Says which experts the rows of the next step use, `[layers][rows][used]`.
    fn give_experts(&mut self, _rows: usize, _experts: &[u32]) {
        unreachable!("traces are refused but for a GPU");
    }

    /// Bytes a second that a large copy in the device's memory reads and writes together, measured now.
    fn copy_bandwidth(&mut self) -> Option<f64> {
        None
    }
}

impl MeasuredBackend for CpuBackend {
    fn fill(&mut self, slot: SlotId, pages: &[PageId]) {
        self.fill_context(slot, pages);
    }
}

impl MeasuredBackend for CudaBackend {
    fn fill(&mut self, slot: SlotId, pages: &[PageId]) {
        self.fill_context(slot, pages);
    }

    fn expert_counts(&mut self) -> Vec<u32> {
        CudaBackend::expert_counts(self)
    }

    fn expert_choices(&mut self) -> Vec<Vec<i32>> {
        CudaBackend::expert_choices(self)
    }

    fn give_experts(&mut self, rows: usize, experts: &[u32]) {
        CudaBackend::give_experts(self, rows, experts);
    }

    fn copy_bandwidth(&mut self) -> Option<f64> {
        CudaBackend::copy_bandwidth(self)
    }
}

/// Times and counts of a run of steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct StepsRun {
    pub(super) wall: Duration,
    /// Of it, the sampler's part, as the backend reports it.
    pub(super) sampling: Duration,
    /// Drafts that were taken for accepted.
    pub(super) accepted: u64,
    /// Experts that were read on the device and elsewhere, as far as it was known when steps ended: a few of the run
    /// before may be among them.
    pub(super) reads: (u64, u64),
}

/// Drives one backend. Sequence `i` has slot `i` and its own stretch of pages.
pub(super) struct Driver<'a> {
    backend: &'a mut dyn MeasuredBackend,
    next: u64,
    rng: StdRng,
    /// A sequence's own, so that sequences draw different numbers.
    params: Vec<Arc<SamplingParams>>,
    pages_a_sequence: u32,
    /// Positions that a step of prompts takes.
    step_tokens: u32,
    flight: Flight,
    replay: Option<Replay>,
    /// What sequences have in turn, and how many of the first have one.
    adapters: (Vec<Arc<Adapter>>, u32),
}

impl<'a> Driver<'a> {
    /// Prompts are drawn from the whole vocabulary. Decoded tokens are sampled on the device at temperature 1, by a
    /// seed a sequence, and fed back there: greedy decoding falls into loops, in which all rows pick the same experts
    /// and batches look faster than they are.
    pub(super) fn new(backend: &'a mut dyn MeasuredBackend, seed: u64, step_tokens: u32) -> std::io::Result<Self> {
        let slots = u64::from(backend.info().slots);
        let own = |slot| {
            Arc::new(SamplingParams { seed: seed.wrapping_mul(slots).wrapping_add(slot), ..SamplingParams::default() })
        };
        let params = (0..slots).map(own).collect();
        let rng = StdRng::seed_from_u64(seed);
        Ok(Self {
            backend,
            next: 0,
            rng,
            params,
            pages_a_sequence: 0,
            step_tokens,
            flight: Flight::start()?,
            replay: None,
            adapters: (Vec::new(), 0),
        })
    }

    /// From now on decoded rows use the experts of a trace, if there is one.
    pub(super) fn replay(&mut self, trace: Option<Replay>) {
        self.replay = trace;
    }

    /// From now on the first `rows` sequences have these adapters in turn.
    pub(super) fn adapt(&mut self, adapters: Vec<Arc<Adapter>>, rows: u32) {
        self.adapters = (adapters, rows);
    }

    /// What a sequence has of these.
    fn adapter(&self, seq: u32) -> Option<ResidentAdapter> {
        let (adapters, rows) = &self.adapters;
        let slot = (seq < *rows && !adapters.is_empty()).then(|| seq as usize % adapters.len())?;
        Some(ResidentAdapter { adapter: adapters[slot].clone(), slot: AdapterSlotId(slot as u16), scale: 1.0 })
    }

    /// Gives each of `sequences` sequences room for this many positions, until the next call.
    ///
    /// # Panics
    /// If the backend was made with fewer pages.
    pub(super) fn make_room(&mut self, sequences: u32, positions: u32) {
        self.pages_a_sequence = positions.div_ceil(PAGE_TOKENS);
        assert!(
            sequences * self.pages_a_sequence <= self.backend.info().pages,
            "the backend was made with room for the largest case"
        );
    }

    /// Distinct routed experts a layer in the last step, the mean of all layers.
    pub(super) fn distinct_experts(&mut self) -> Option<f64> {
        let counts = self.backend.expert_counts();
        if counts.is_empty() {
            None
        } else {
            Some(counts.iter().map(|n| f64::from(*n)).sum::<f64>() / counts.len() as f64)
        }
    }

    /// Gives the first `sequences` slots a context of `length` made-up positions.
    pub(super) fn fill(&mut self, sequences: u32, length: u32) {
        for seq in 0..sequences {
            let pages = self.pages(seq, length);
            self.backend.fill(SlotId(seq), &pages);
        }
    }

    /// Computes the prompts of `sequences` new sequences, each `length` tokens long, in steps as full as they may be.
    pub(super) fn prefill(&mut self, sequences: u32, length: u32) -> Result<StepsRun, BackendError> {
        let begin = Instant::now();
        let mut run = StepsRun::default();
        let mut done = vec![0; sequences as usize];
        while let Some(pieces) = self.prompt_pieces(&mut done, length) {
            self.launch(pieces, &mut run)?;
        }
        self.finish(begin, run)
    }

    /// Decodes `steps` tokens of each of `sequences` sequences, from position `start` on. What stands before it is not
    /// touched.
    pub(super) fn decode(&mut self, sequences: u32, start: u32, steps: u32) -> Result<StepsRun, BackendError> {
        let begin = Instant::now();
        let mut run = StepsRun::default();
        for step in 0..steps {
            let pieces = (0..sequences).map(|seq| self.decode_piece(seq, start, start + step)).collect();
            if let Some(replay) = &mut self.replay {
                self.backend.give_experts(sequences as usize, replay.next(sequences as usize));
            }
            self.launch(pieces, &mut run)?;
        }
        let run = self.finish(begin, run)?;
        if let Some(replay) = &self.replay {
            replay.check(&self.backend.expert_choices());
        }
        Ok(run)
    }

    /// How many drafts steps take, where so many behind each sequence's row are too many.
    pub(super) fn lacks_room_for(&self, sequences: u32, drafts: u32) -> Option<u32> {
        let (room, step_rows) = (self.backend.info().drafts, self.backend.info().step_rows_max);
        let drafted = sequences * drafts;
        let most = room.step_max.min(room.rows_max.min(step_rows).saturating_sub(sequences));
        (drafts > room.piece_max || drafted > most).then_some(most)
    }

    /// Whether the model has a draft head that guesses.
    pub(super) fn guesses(&self) -> bool {
        self.backend.info().drafts.guesses
    }

    /// Steps with as many random drafts behind each row as there are `shares`, and with so many guesses of the draft
    /// head, if there is one: those in which at least the first, the first two, and so on, are taken for accepted,
    /// whatever was sampled. A step is made when the one before it is done, as where drafts are guessed by what came
    /// last.
    pub(super) fn decode_drafted(
        &mut self,
        sequences: u32,
        start: u32,
        steps: u32,
        (shares, guesses): (&[f64], u32),
    ) -> Result<StepsRun, BackendError> {
        let begin = Instant::now();
        let mut run = StepsRun::default();
        let mut next: Vec<(u32, Option<TokenId>)> = vec![(start, None); sequences as usize];
        for _ in 0..steps {
            let all = next.iter().enumerate();
            let pieces = all.map(|(seq, (at, token))| (seq as u32, *at, *token)).collect::<Vec<_>>();
            let pieces = pieces
                .into_iter()
                .map(|(seq, at, token)| self.drafted_piece(seq, (start, at), token, (shares.len(), guesses)));
            let pieces = pieces.collect();
            self.launch(pieces, &mut run)?;
            let outcome = self.flight.land()?;
            run.count(&outcome);
            let mut samples = outcome.samples.iter();
            for ((at, token), right) in next.iter_mut().zip(&outcome.accepted) {
                let (chance, sampled) = (self.rng.random_range(0.0..1.0), samples.next());
                // What the backend accepted by chance is not counted.
                samples.by_ref().take(*right as usize).for_each(drop);
                let accepted = shares.iter().take_while(|share| chance < **share).count() as u32;
                (*at, *token) = (*at + 1 + accepted, sampled.map(|sample| sample.token));
                run.accepted += u64::from(accepted);
            }
        }
        self.finish(begin, run)
    }

    fn drafted_piece(
        &mut self,
        seq: u32,
        (start, at): (u32, u32),
        token: Option<TokenId>,
        (drafts, guesses): (usize, u32),
    ) -> Piece {
        let len = 1 + drafts as u32;
        let samples = (0..len).map(|i| self.sample(seq, at - start + i)).collect();
        let mut piece = self.piece(seq, Form::Recurrent, at, len, start, samples);
        if self.guesses() {
            piece.guesses = guesses;
            piece.pages = self.pages(seq, at + len + piece.guesses);
        }
        if let PieceTokens::Known(tokens) = &mut piece.tokens {
            piece.drafts = tokens.split_off(1);
            tokens[0] = token.unwrap_or(tokens[0]);
        }
        piece
    }

    fn launch(&mut self, pieces: Vec<Piece>, run: &mut StepsRun) -> Result<(), BackendError> {
        while self.flight.steps >= STEPS_IN_FLIGHT_MAX {
            run.count(&self.flight.land()?);
        }
        let id = StepId(self.next);
        self.next += 1;
        let pending = self.backend.launch(StepPlan::new(id, pieces))?;
        self.flight.push(pending);
        Ok(())
    }

    fn finish(&mut self, begin: Instant, mut run: StepsRun) -> Result<StepsRun, BackendError> {
        while self.flight.steps > 0 {
            run.count(&self.flight.land()?);
        }
        run.wall = begin.elapsed();
        Ok(run)
    }

    /// The pieces of one step, first sequences first; `None` when every prompt is done.
    fn prompt_pieces(&mut self, done: &mut [u32], length: u32) -> Option<Vec<Piece>> {
        let mut room = self.step_tokens.min(self.backend.info().step_rows_max);
        let mut pieces = Vec::new();
        for (seq, done) in done.iter_mut().enumerate() {
            let take = granted(length - *done, room);
            if take > 0 {
                pieces.push(self.prompt_piece(seq as u32, *done, take, length));
                *done += take;
                room -= take;
            }
        }
        (!pieces.is_empty()).then_some(pieces)
    }

    fn prompt_piece(&mut self, seq: u32, start: u32, take: u32, length: u32) -> Piece {
        let samples = if start + take == length { vec![self.sample(seq, 0)] } else { Vec::new() };
        self.piece(seq, Form::Chunked, start, take, length, samples)
    }

    /// The first token of a run is drawn here, the others are those that the steps before sampled.
    fn decode_piece(&mut self, seq: u32, prompt_len: u32, position: u32) -> Piece {
        let samples = vec![self.sample(seq, position - prompt_len)];
        let mut piece = self.piece(seq, Form::Recurrent, position, 1, prompt_len, samples);
        if position > prompt_len {
            piece.tokens = PieceTokens::Sampled;
        }
        piece
    }

    fn piece(&mut self, seq: u32, form: Form, start: u32, len: u32, prompt_len: u32, samples: Vec<SampleRow>) -> Piece {
        let vocab = self.backend.info().vocab;
        let tokens: Vec<TokenId> = (0..len).map(|_| self.rng.random_range(0..vocab)).collect();
        Piece {
            seq: SeqId(seq.into()),
            slot: SlotId(seq),
            state: StateStart::at(start),
            form,
            start,
            tokens: PieceTokens::Known(tokens),
            drafts: Vec::new(),
            guesses: 0,
            pages: self.pages(seq, start + len),
            prompt_len,
            samples,
            score: None,
            experts: None,
            adapter: self.adapter(seq),
            follows: None,
            ends: Arc::default(),
            pool_from: None,
            exports: Vec::new(),
        }
    }

    fn sample(&self, seq: u32, output_index: u32) -> SampleRow {
        let params = self.params[seq as usize].clone();
        SampleRow { output_index, ..SampleRow::new(SeqId(seq.into()), SlotId(seq), params) }
    }

    fn pages(&self, seq: u32, positions: u32) -> Vec<PageId> {
        let first = seq * self.pages_a_sequence;
        let count = positions.div_ceil(PAGE_TOKENS);
        assert!(count <= self.pages_a_sequence, "room was made for the whole run");
        (first..first + count).map(PageId).collect()
    }
}

/// Prompt positions that a step takes: all that is left, or whole chunks.
fn granted(left: u32, room: u32) -> u32 {
    if left <= room { left } else { room / CHUNK_TOKENS * CHUNK_TOKENS }
}

impl StepsRun {
    fn count(&mut self, outcome: &StepOutcome) {
        self.sampling += Duration::from_micros(outcome.timing.sample_us);
        self.reads.0 += outcome.expert_reads.hits;
        self.reads.1 += outcome.expert_reads.misses;
    }
}

/// Launched steps, and the thread that waits for them, as the service's completion thread does.
struct Flight {
    launched: Sender<Pending>,
    done: Receiver<Result<StepOutcome, BackendError>>,
    /// Launched and not landed.
    steps: u32,
    last: StepId,
}

impl Flight {
    fn start() -> std::io::Result<Self> {
        let (launched, pending) = unbounded::<Pending>();
        let (outcomes, done) = unbounded();
        // It ends when the sending end of `launched` is dropped.
        std::thread::Builder::new()
            .name("chimere-done".into())
            .spawn(move || pending.into_iter().try_for_each(|p| outcomes.send(p.wait()).map_err(drop)))?;
        Ok(Self { launched, done, steps: 0, last: StepId(0) })
    }

    fn push(&mut self, pending: Pending) {
        self.last = pending.step();
        self.steps += 1;
        // A thread that is gone shows when its outcome is missed.
        self.launched.send(pending).ok();
    }

    /// Waits for the oldest.
    fn land(&mut self) -> Result<StepOutcome, BackendError> {
        self.steps -= 1;
        self.done.recv().unwrap_or(Err(BackendError::Lost { step: self.last }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_engine::backend::BackendInfo;
    use chimere_engine::constraint::StepRules;
    use chimere_engine::step::DraftRoom;
    use chimere_engine::step::StepTiming;

    /// Notes every piece as `seq[start..end]form`, steps parted by `|`, and checks what every backend may ask for.
    struct Notes {
        info: BackendInfo,
        steps: Vec<String>,
        filled: Vec<(SlotId, usize)>,
    }

    impl Backend for Notes {
        fn info(&self) -> &BackendInfo {
            &self.info
        }

        fn launch(&mut self, plan: StepPlan) -> Result<Pending, BackendError> {
            assert_eq!(plan.id, StepId(self.steps.len() as u64), "steps are launched in order");
            assert!(plan.pieces.iter().map(Piece::len).sum::<u32>() <= self.info.step_rows_max);
            let note = |p: &Piece| {
                assert_eq!(p.pages.len() as u32, (p.start + p.len()).div_ceil(PAGE_TOKENS));
                let end = p.start + p.len();
                let form = if p.form == Form::Chunked { "" } else { "r" };
                let fed = if p.tokens == PieceTokens::Sampled { "s" } else { "" };
                format!("{}[{}..{end}]{form}{fed}{}", p.seq, p.start, "+".repeat(p.samples.len()))
            };
            self.steps.push(plan.pieces.iter().map(note).collect::<Vec<_>>().join(" "));
            let timing = StepTiming { forward_us: 5, sample_us: 2, guess_us: 0 };
            Ok(Pending::ready(plan.id, StepOutcome { id: Some(plan.id), timing, ..Default::default() }))
        }

        fn constrain(&mut self, rules: StepRules) -> Result<(), BackendError> {
            Err(BackendError::Plan { step: rules.step, why: "nothing awaits rules".into() })
        }
    }

    impl MeasuredBackend for Notes {
        fn fill(&mut self, slot: SlotId, pages: &[PageId]) {
            self.filled.push((slot, pages.len()));
        }
    }

    fn notes(step_rows_max: u32) -> Notes {
        let info = BackendInfo {
            device: "cpu",
            slots: 4,
            pages: 40,
            checkpoints: 0,
            host_blocks: 0,
            step_rows_max,
            vocab: 100,
            context: 320,
            drafts: DraftRoom::default(),
            threads: 1,
            adapter_slots: 8,
        };
        Notes { info, steps: Vec::new(), filled: Vec::new() }
    }

    #[test]
    fn prompts_are_cut_at_chunks_and_sampled_at_their_end() {
        let mut backend = notes(100);
        let mut driver = Driver::new(&mut backend, 1, 100).unwrap();
        driver.make_room(2, 150);
        driver.prefill(2, 150).unwrap();
        assert_eq!(backend.steps.join(" | "), "0[0..64] | 0[64..150]+ | 1[0..64] | 1[64..150]+");
    }

    #[test]
    fn decoding_starts_after_a_made_up_context_and_gives_every_sequence_a_row() {
        let mut backend = notes(100);
        let mut driver = Driver::new(&mut backend, 1, 100).unwrap();
        driver.make_room(2, 67);
        driver.fill(2, 65);
        let run = driver.decode(2, 65, 2).unwrap();
        assert_eq!(run.sampling, Duration::from_micros(4));
        assert_eq!(backend.filled, [(SlotId(0), 3), (SlotId(1), 3)]);
        assert_eq!(backend.steps.join(" | "), "0[65..66]r+ 1[65..66]r+ | 0[66..67]rs+ 1[66..67]rs+");
    }

    #[test]
    fn sequences_draw_their_own_random_numbers() {
        let mut backend = notes(100);
        let driver = Driver::new(&mut backend, 1, 100).unwrap();
        let seeds: std::collections::HashSet<u64> = (0..4).map(|seq| driver.sample(seq, 0).params.seed).collect();
        assert_eq!(seeds.len(), 4);
    }

    #[test]
    fn a_step_takes_the_rest_of_a_prompt_or_whole_chunks() {
        assert_eq!([granted(64, 512), granted(600, 512), granted(600, 63), granted(20, 63)], [64, 512, 0, 20]);
    }
}
