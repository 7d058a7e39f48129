//! The sampler's parameters and results: from a plan's sample rows to device memory, and from pinned memory to an
//! outcome.

use super::host::HostWatch;
use super::leader::{AskedAt, RowPlace, Settled, SettledPiece};
use super::pooling::pooled;
use super::rows::{DraftedAt, PooledAt, SampleAt, ScoreAt, StepRows};
use crate::backend::BackendError;
use crate::backend::cuda::error::{CudaResult, During};
use crate::backend::cuda::layout::outputs::{LAUNCH_ROWS, LIST_WORDS};
use crate::backend::cuda::layout::shape::{Counts, GuessShape};
use crate::backend::cuda::rank::experts::ReadCounts;
use crate::backend::cuda::rank::staging::{Staging, stage};
use crate::backend::cuda::rank::store::Store;
use crate::backend::cuda::rank::workspace::Workspace;
use crate::constraint::{Constraint, Sources};
use crate::ids::{StepId, TokenId};
use crate::model::Shortlist;
use crate::step::{Certainty, ExpertUse, RowReport, Sample, SampleRow, Score, StepOutcome, StepTiming, TokenLogprobs};
use chimere_kernels::cuda::sampler::{SampleInputs, SampleOutputs, SampleParams, SampleResult, Sampler};
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::{CudaSlice, CudaView, DevicePtr, DriverError};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A step that is over within this time is watched from its beginning, where the next one waits for it.
const SHORT_STEP: Duration = Duration::from_micros(500);
/// A step's end is watched for so long without sleep.
const WATCHED_MAX: Duration = Duration::from_millis(1);

/// The sampler and what it reads and writes on the device.
pub(crate) struct Sampling {
    sampler: Sampler,
    params: CudaSlice<SampleParams>,
    lists: CudaSlice<u32>,
    results: CudaSlice<SampleResult>,
    /// By row, how far it is on where that was not known when its step was planned.
    ahead: CudaSlice<i32>,
    vocab: usize,
}

/// What a step has to report, and where its results will be.
#[derive(Default)]
pub(crate) struct WantedOutputs {
    samples: Vec<SampleAt>,
    /// Rows of logits by sample.
    logit_rows: Vec<usize>,
    /// Pieces whose last samples count only if drafts are right.
    drafted: Vec<DraftedAt>,
    /// Who asks for guesses.
    asked: Vec<AskedAt>,
    /// Passes of guesses that are on their way, each of so many rows, and the ids that these stand for, where they are
    /// places in a list.
    guess_passes: usize,
    guess_rows: usize,
    guess_ids: Option<Arc<[TokenId]>>,
    /// By sample, who had to yield: empty until the sampler is enqueued.
    yielded: Vec<Sources>,
    /// By sample, what its request asks to be told; likewise.
    reports: Vec<Option<Box<RowReport>>>,
    scores: Vec<ScoreAt>,
    pooled: Vec<PooledAt>,
    /// Results that are on their way, scores first, and those of them that the device keeps yet.
    results: usize,
    unfetched: Range<usize>,
    /// Launches that draw samples.
    launches: usize,
    /// Its rows follow a step whose outcome was not known: the device knows how far on each is.
    pub(crate) follows: bool,
    /// Where it is told what became of who asks for guesses.
    settled: Option<Settled>,
    /// Rows that may do with fewer experts, once a layer. If there are any, a result follows whose token is the number
    /// they took.
    pub(crate) expert_rows: u64,
    /// Decode passes, each a graph, and rows of the last; 0 where there is none.
    replays: u32,
    pub(crate) decoded: usize,
}

impl WantedOutputs {
    /// Takes over what the rows ask for, and says where the logits of the samples are: those of decode rows first,
    /// then, from row
    /// `decoded` on, those of prompts.
    pub(crate) fn place(&mut self, rows: StepRows, prompts: &[i32], decoded: usize) {
        let row = |s: &SampleAt| match s.place {
            RowPlace::Decode(row) => row,
            RowPlace::Prefill(row) => {
                decoded + prompts.iter().position(|p| *p == row as i32).expect("every sampled row was gathered")
            }
        };
        self.logit_rows = rows.samples.iter().map(row).collect();
        (self.replays, self.decoded) = ((rows.before.len() + rows.passes.len()) as u32, decoded);
        self.follows = !rows.behind.is_empty();
        (self.samples, self.drafted, self.asked) = (rows.samples, rows.drafted, rows.asked);
        (self.scores, self.pooled) = (rows.scores, rows.pooled);
    }
}

impl WantedOutputs {
    /// Who asks for guesses.
    pub(crate) fn asked(&self) -> Vec<AskedAt> {
        self.asked.clone()
    }

    /// Who asks for guesses that can be made, and how many passes that takes.
    pub(crate) fn guesses(&self) -> (Vec<AskedAt>, usize) {
        // All samples of the step lie beside one another on the device only where one launch drew them.
        let one_launch = self.samples.len() <= LAUNCH_ROWS && self.launches == 1;
        let asked = if one_launch { self.asked() } else { Vec::new() };
        let passes = asked.iter().map(|asked| asked.guesses as usize).max().unwrap_or(0);
        (asked, passes)
    }

    /// So many passes of guesses are on their way; `ids` are those that their results stand for. Where it is told what
    /// became of it all.
    pub(crate) fn will_guess(&mut self, shape: GuessShape, ids: Option<Arc<[TokenId]>>) -> Settled {
        (self.guess_passes, self.guess_rows, self.guess_ids) = (shape.passes, shape.rows, ids);
        self.settled.insert(Settled::default()).clone()
    }
}

impl Sampling {
    pub(crate) fn new(device: &Device, cache: &KernelCache, vocab: usize, counts: Counts) -> CudaResult<Self> {
        let (stream, rows) = (device.stream(), counts.logits.max(LAUNCH_ROWS) + 1);
        let doing = "allocating the sampler's memory";
        Ok(Self {
            sampler: Sampler::load(device, cache, vocab, LAUNCH_ROWS)?,
            params: stream.clone_htod(&vec![SampleParams::default(); rows]).during(doing)?,
            lists: stream.alloc_zeros(LIST_WORDS).during(doing)?,
            results: stream.alloc_zeros(rows).during(doing)?,
            ahead: stream.alloc_zeros(LAUNCH_ROWS).during(doing)?,
            vocab,
        })
    }

    /// Log-probabilities of known tokens; the logits of score `i` lie in row `i`.
    pub(crate) fn score(
        &mut self,
        device: &Device,
        scores: &[ScoreAt],
        logits: &CudaSlice<f32>,
        store: &mut Store,
        staging: &Staging,
        wanted: &mut WantedOutputs,
    ) -> CudaResult<()> {
        let params: Vec<SampleParams> = scores.iter().enumerate().map(|(row, s)| score_params(row, s)).collect();
        for part in params.chunks(LAUNCH_ROWS) {
            self.run(device, (part, &[]), (logits, None), store, staging, wanted)?;
        }
        Ok(())
    }

    /// Samples every wanted row, each with its constraint.
    pub(crate) fn sample(
        &mut self,
        device: &Device,
        work: &Workspace,
        store: &mut Store,
        constraints: &[Constraint],
        staging: &Staging,
        wanted: &mut WantedOutputs,
    ) -> CudaResult<()> {
        let mut batch = SampleBatch::default();
        wanted.yielded = constraints.iter().map(|constraint| constraint.yielded).collect();
        let rows = wanted.samples.iter().map(|at| &at.row).zip(constraints);
        wanted.reports = rows.map(|(row, constraint)| RowReport::of(row, constraint, self.vocab as u32)).collect();
        for (i, constraint) in constraints.iter().enumerate() {
            let (sample, row) = (&wanted.samples[i], wanted.logit_rows[i]);
            if batch.params.len() == LAUNCH_ROWS
                || batch.lists.len() + words(sample, constraint, self.vocab) > LIST_WORDS
            {
                self.sample_batch(device, &mut batch, (&work.logits, None), store, staging, wanted)?;
            }
            batch.push(&wanted.samples[i], row, constraint, self.vocab);
        }
        let tally = work.tally.as_view();
        let tally = (wanted.expert_rows > 0).then_some(&tally);
        self.sample_batch(device, &mut batch, (&work.logits, tally), store, staging, wanted)
    }

    fn sample_batch(
        &mut self,
        device: &Device,
        batch: &mut SampleBatch<'_>,
        from: (&CudaSlice<f32>, Option<&CudaView<'_, u32>>),
        store: &mut Store,
        staging: &Staging,
        wanted: &mut WantedOutputs,
    ) -> CudaResult<()> {
        let SampleBatch { params, lists, .. } = std::mem::take(batch);
        wanted.launches += 1;
        self.run(device, (&params, &lists), from, store, staging, wanted)
    }

    /// One launch, the tally behind its results, and the copy of those of the launch before to the host.
    fn run(
        &mut self,
        device: &Device,
        (params, lists): (&[SampleParams], &[u32]),
        (logits, tally): (&CudaSlice<f32>, Option<&CudaView<'_, u32>>),
        store: &mut Store,
        staging: &Staging,
        wanted: &mut WantedOutputs,
    ) -> CudaResult<()> {
        if params.is_empty() {
            return Ok(());
        }
        self.fetch(device, staging, wanted)?;
        stage(device, staging, &mut self.params, 0, params)?;
        stage(device, staging, &mut self.lists, 0, lists)?;
        // SAFETY: two tokens of 16 bits lie in each word.
        let history =
            unsafe { store.counts.transmute::<u16>(2 * store.counts.len()) }.expect("words hold twice as many halves");
        // One launch has all rows of a step that follows another.
        let ahead = self.ahead.as_view();
        let inputs = SampleInputs {
            logits: &logits.as_view(),
            params: &self.params.as_view(),
            lists: &self.lists.as_view(),
            history: &history,
            ahead: wanted.follows.then_some(&ahead),
            tally,
            processed: params.iter().any(|row| row.processed == 1),
        };
        let outputs =
            SampleOutputs { results: &mut self.results.as_view_mut(), sampled: &mut store.sampled.as_view_mut() };
        // SAFETY: rows of logits and slots are those of the plan, which was checked; offsets into the lists are their
        // own.
        unsafe { self.sampler.launch(device, params.len(), inputs, outputs) }?;
        let (first, end) = (wanted.results, wanted.results + params.len());
        wanted.results = end;
        wanted.unfetched = first..end + usize::from(tally.is_some());
        Ok(())
    }

    /// Copies the results of the last launch to the host, if they are not on their way yet.
    pub(crate) fn fetch(&self, device: &Device, staging: &Staging, wanted: &mut WantedOutputs) -> CudaResult<()> {
        let Range { start: first, end } = std::mem::take(&mut wanted.unfetched);
        if first == end {
            return Ok(());
        }
        let from = self.results.device_ptr(device.stream()).0;
        // SAFETY: this part of the pinned results belongs to these rows alone, and is read after the step's last mark.
        unsafe { staging.fetch(device, from, &mut staging.results.as_mut_slice()[first..end]) }
    }
}

impl Sampling {
    /// How guesses are drawn, and the lists that this names: as the outputs in their place would be, of all that the
    /// device knows of them. The number of an output is that behind the first sample of who asks.
    pub(crate) fn params_of_guesses(
        &self,
        asked: &[AskedAt],
        shortlist: Option<&Shortlist>,
    ) -> (Vec<SampleParams>, Vec<u32>) {
        let (mut batch, free) = (SampleBatch { shortlist, ..SampleBatch::default() }, Constraint::default());
        for (i, asked) in asked.iter().enumerate() {
            let row = SampleRow { output_index: asked.sample.output_index + 1, ..asked.sample.clone() };
            batch.push(&SampleAt { place: RowPlace::Decode(i), history: 0, row }, i, &free, self.vocab);
        }
        let SampleBatch { mut params, lists, .. } = batch;
        for params in &mut params {
            (params.slot, params.history) = (-1, -1);
            (params.logprobs, params.certainty, params.processed) = (-1, 0, 0);
        }
        (params, lists)
    }

    /// What the step's samples left, for who goes on from there; and how far on its rows are.
    pub(crate) fn results(&self) -> (CudaView<'_, SampleResult>, CudaView<'_, i32>) {
        (self.results.as_view(), self.ahead.as_view())
    }

    /// Results of the step's samples, and the memory where it is noted how far on the rows are.
    pub(crate) fn results_and_ahead(&mut self) -> (CudaView<'_, SampleResult>, &mut CudaSlice<i32>) {
        (self.results.as_view(), &mut self.ahead)
    }
}

/// Rows of one launch.
#[derive(Default)]
struct SampleBatch<'a> {
    params: Vec<SampleParams>,
    lists: Vec<u32>,
    /// What is drawn from, if that is not the whole vocabulary.
    shortlist: Option<&'a Shortlist>,
}

impl SampleBatch<'_> {
    fn push(&mut self, sample: &SampleAt, row: usize, constraint: &Constraint, vocab: usize) {
        let (r, p) = (&sample.row, &*sample.row.params);
        let bias = self.pairs(&p.logit_bias);
        let forbidden = self.words(&constraint.forbidden);
        let sparse = self.pairs(&constraint.bias);
        // Where the kernel looks for them: behind the biases.
        let mixed = self.pairs(&constraint.mix);
        let mask_at = match constraint.mask.as_deref() {
            Some(mask) => {
                let at = self.lists.len();
                // Words that a mask does not have allow nothing.
                self.lists.extend(mask.iter().copied().chain(std::iter::repeat(0)).take(vocab.div_ceil(32)));
                at as i32
            }
            None => -1,
        };
        self.params.push(SampleParams {
            row: row as i32,
            slot: r.slot.0 as i32,
            history: sample.history as i32,
            forced: constraint.forced.map_or(-1, |id| id as i32),
            temperature: p.temperature,
            top_p: p.top_p,
            top_k: p.top_k,
            min_p: p.min_p,
            seed: p.seed,
            repetition_penalty: p.repetition_penalty,
            presence_penalty: p.presence_penalty,
            frequency_penalty: p.frequency_penalty,
            output_index: r.output_index,
            choice: r.choice,
            processed: u32::from(p.processed && p.logprobs.is_some()),
            bias_at: bias.0,
            biases: bias.1,
            ends_at: forbidden.0,
            ends: forbidden.1,
            edits_at: sparse.0,
            edits: sparse.1,
            mask_at,
            logprobs: p.logprobs.map_or(-1, i32::from),
            certainty: u32::from(p.certainty),
            mixes: mixed.1,
        });
    }

    fn pairs(&mut self, pairs: &[(u32, f32)]) -> (u32, u32) {
        let (at, list) = (self.lists.len() as u32, self.shortlist);
        let place = |id| list.map_or(Some(id), |list| list.place(id));
        let placed = pairs.iter().filter_map(|(id, value)| Some([place(*id)?, value.to_bits()]));
        self.lists.extend(placed.flatten());
        (at, (self.lists.len() as u32 - at) / 2)
    }

    fn words(&mut self, words: &[u32]) -> (u32, u32) {
        let at = self.lists.len() as u32;
        self.lists.extend_from_slice(words);
        (at, words.len() as u32)
    }
}

/// Words that a row's lists take, at most.
fn words(sample: &SampleAt, c: &Constraint, vocab: usize) -> usize {
    let pairs = sample.row.params.logit_bias.len() + c.bias.len() + c.mix.len();
    2 * pairs + c.forbidden.len() + c.mask.as_ref().map_or(0, |_| vocab.div_ceil(32))
}

fn score_params(row: usize, score: &ScoreAt) -> SampleParams {
    SampleParams {
        row: row as i32,
        forced: score.token as i32,
        logprobs: i32::from(score.top),
        ..SampleParams::default()
    }
}

/// A step whose results are on their way.
pub(in crate::backend) struct InFlight {
    device: Arc<Device>,
    id: StepId,
    staging: Arc<Staging>,
    wanted: WantedOutputs,
    host: Option<HostWatch>,
    experts: Option<Arc<ReadCounts>>,
}

impl InFlight {
    pub(crate) fn new(
        (device, id): (Arc<Device>, StepId),
        staging: Arc<Staging>,
        wanted: WantedOutputs,
        (host, experts): (Option<HostWatch>, Option<Arc<ReadCounts>>),
    ) -> Self {
        Self { device, id, staging, wanted, host, experts }
    }

    /// Until the device has passed the step. What a sleeping thread takes to wake up is time in which the device has
    /// nothing to do where the next step is planned by what this one said, so one with drafts or guesses is watched for
    /// if it is short, and slept for but for its last part if it is not.
    fn sleep(&self) -> Result<(), DriverError> {
        let staging = &self.staging;
        let last_part = match (self.wanted.guess_passes > 0, self.wanted.drafted.is_empty()) {
            (true, _) => &staging.sampled,
            (false, false) => &staging.forward,
            (false, true) => return staging.end.synchronize(),
        };
        if self.is_done_within(SHORT_STEP)? {
            return Ok(());
        }
        last_part.synchronize()?;
        if self.is_done_within(WATCHED_MAX)? { Ok(()) } else { staging.end.synchronize() }
    }

    /// Watches for so long at most.
    fn is_done_within(&self, time: Duration) -> Result<bool, DriverError> {
        let begin = Instant::now();
        while !self.staging.end.try_is_complete()? {
            if begin.elapsed() > time {
                return Ok(false);
            }
            std::hint::spin_loop();
        }
        Ok(true)
    }

    /// Blocks until the device has passed the step, and reads what it left.
    pub(crate) fn wait(mut self) -> Result<StepOutcome, BackendError> {
        let id = self.id;
        let device = self.device.clone();
        let failed = |error: DriverError| BackendError::Device { step: id, why: device.explain(&error) };
        self.sleep().map_err(failed)?;
        if !self.wanted.learn_drafts() {
            let why = "it follows a step that nobody has waited for".into();
            return Err(BackendError::Device { step: id, why });
        }
        let micros = |ms: f32| (ms * 1000.0) as u64;
        let forward_us = micros(self.staging.begin.elapsed_ms(&self.staging.forward).map_err(failed)?);
        let sample_us = micros(self.staging.forward.elapsed_ms(&self.staging.sampled).map_err(failed)?);
        let guess_us = micros(self.staging.sampled.elapsed_ms(&self.staging.end).map_err(failed)?);
        let guess_us = if self.wanted.guess_passes > 0 { guess_us } else { 0 };
        // SAFETY: the copies to this memory came before the mark that was waited for.
        let (results, sums) = unsafe { (self.staging.results.as_slice(), self.staging.sums.as_slice()) };
        let guessed = &results[self.staging.guesses..];
        let (results, behind) = results.split_at(self.wanted.results);
        let (scores, samples) = results.split_at(self.wanted.scores.len());
        let rows = self.wanted.expert_rows;
        let brought = rows > 0 && !samples.is_empty();
        let all = samples.iter().enumerate();
        let samples: Vec<_> = all.map(|(i, r)| sample(&self.wanted, i, r)).collect();
        let (samples, accepted) = accept(samples, &self.wanted.drafted);
        let guesses = self.wanted.guessed(guessed, &accepted);
        self.wanted.settle(&guesses, &accepted);
        Ok(StepOutcome {
            id: Some(id),
            samples,
            accepted,
            guesses,
            scores: self.wanted.scores.iter().zip(scores).map(|(at, r)| score(at, r)).collect(),
            timing: StepTiming { forward_us, sample_us, guess_us },
            experts: ExpertUse { rows, experts: if brought { u64::from(behind[0].token as u32) } else { 0 } },
            graph_replays: self.wanted.replays,
            pooled: pooled(self.wanted.pooled, sums, self.staging.hidden),
            host: self.host.map(|host| host.progress()).unwrap_or_default(),
            expert_reads: self.experts.map(|counts| counts.take()).unwrap_or_default(),
        })
    }
}

impl WantedOutputs {
    /// Takes over which guesses are the drafts of pieces that follow others. False where these have not been waited
    /// for.
    fn learn_drafts(&mut self) -> bool {
        self.drafted.iter_mut().all(|DraftedAt { tokens, lead, .. }| {
            let Some(lead) = lead else { return true };
            let settled = lead.settled().filter(|settled| settled.guesses.len() >= tokens.len());
            settled.is_some_and(|settled| {
                let drafts = tokens.len();
                *tokens = settled.guesses[..drafts].to_vec();
                true
            })
        })
    }

    /// Tells whoever follows what became of the pieces that asked for guesses.
    fn settle(&self, guesses: &[Vec<TokenId>], accepted: &[u32]) {
        let Some(settled) = &self.settled else { return };
        let all = self.asked.iter().zip(guesses).map(|(asked, guesses)| SettledPiece {
            accepted: self.right_of(asked.first_sample, accepted),
            guesses: guesses.clone(),
        });
        // Nobody else waits for this step.
        let _ = settled.set(all.collect());
    }

    /// How many drafts count of the piece whose first sample this is.
    fn right_of(&self, first_sample: usize, accepted: &[u32]) -> u32 {
        self.drafted.iter().position(|at| at.first_sample == first_sample).map_or(0, |i| accepted[i])
    }

    /// The guesses of each piece that asks, as far as there was room for them. `accepted`: of each piece with drafts,
    /// how many count.
    fn guessed(&self, results: &[SampleResult], accepted: &[u32]) -> Vec<Vec<TokenId>> {
        if self.guess_passes == 0 {
            return vec![Vec::new(); self.asked.len()];
        }
        let of = |(place, asked): (usize, &AskedAt)| {
            let passes = 0..asked.room(self.right_of(asked.first_sample, accepted));
            let drawn = passes.map(|pass| results[pass * self.guess_rows + place].token as TokenId);
            drawn.map(|token| self.guess_ids.as_ref().map_or(token, |ids| ids[token as usize])).collect()
        };
        self.asked.iter().enumerate().map(of).collect()
    }
}

/// Leaves the samples that count, and says how many drafts of each piece do.
fn accept(samples: Vec<Sample>, drafted: &[DraftedAt]) -> (Vec<Sample>, Vec<u32>) {
    let (mut counts, mut accepted) = (vec![true; samples.len()], Vec::with_capacity(drafted.len()));
    for DraftedAt { first_sample, tokens, .. } in drafted {
        let behind = first_sample + tokens.len();
        let of_piece = samples[*first_sample..=behind].iter().zip(tokens);
        let equal = of_piece.take_while(|(sample, draft)| sample.token == **draft).count();
        counts[first_sample + equal + 1..=behind].fill(false);
        accepted.push(equal as u32);
    }
    (samples.into_iter().zip(counts).filter_map(|(sample, counts)| counts.then_some(sample)).collect(), accepted)
}

fn sample(wanted: &WantedOutputs, i: usize, r: &SampleResult) -> Sample {
    let row = &wanted.samples[i].row;
    let p = &row.params;
    Sample {
        seq: row.seq,
        token: r.token as u32,
        logprobs: p.logprobs.map(|top| logprobs(r, top)),
        certainty: p.certainty.then_some(Certainty { entropy: r.entropy, top_prob: r.top_prob }),
        changed: Some(r.token != r.plain),
        yielded: wanted.yielded[i],
        report: wanted.reports[i].clone(),
        finite: r.not_finite == 0,
    }
}

fn score(at: &ScoreAt, r: &SampleResult) -> Score {
    let (logprobs, finite) = (logprobs(r, at.top), r.not_finite == 0);
    Score { seq: at.seq, position: at.position, token: at.token, logprobs, finite }
}

fn logprobs(r: &SampleResult, top: u8) -> TokenLogprobs {
    let top = r.top_ids.iter().zip(&r.top_logprobs).take(usize::from(top)).take_while(|(id, _)| **id >= 0);
    TokenLogprobs { logprob: r.logprob, top: top.map(|(id, l)| (*id as u32, *l)).collect() }
}
