//! Buffers and sampler of passes of guesses, on the device beside the workspace.

use crate::backend::cuda::error::{CudaResult, During};
use crate::backend::cuda::layout::draft_head::{GRAPH_PASSES, shortlist};
use crate::backend::cuda::layout::outputs::LIST_WORDS;
use crate::backend::cuda::layout::shape::{Counts, GuessShape, bucket};
use crate::backend::cuda::rank::staging::{Staging, stage};
use crate::backend::cuda::rank::store::Store;
use crate::backend::cuda::rank::workspace::Workspace;
use crate::backend::cuda::step::leader::AskedAt;
use crate::backend::cuda::step::rows::columns;
use crate::backend::cuda::step::sampling::Sampling;
use crate::ids::TokenId;
use crate::model::{Model, Shortlist};
use chimere_kernels::cuda::draft_head::{self, BEHIND_WORDS, ROW_WORDS};
use chimere_kernels::cuda::sampler::{SampleInputs, SampleOutputs, SampleParams, SampleResult, Sampler};
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::{CudaSlice, DevicePtr};
use std::sync::Arc;

/// What passes of guesses read and leave, beside the workspace.
pub(super) struct Guessing {
    /// As a pass reads them, arrays of `room` each: what is not made anew for a pass stays zero.
    pub(super) rows: CudaSlice<i32>,
    pub(super) room: usize,
    /// Rows that ask for guesses, `[sequences, 4]`, as the kernel of the first guesses reads them.
    pub(super) asked: CudaSlice<i32>,
    pub(super) params: CudaSlice<SampleParams>,
    /// Lists of token ids and numbers that the sampling parameters of `params` point into.
    pub(super) lists: CudaSlice<u32>,
    /// `[GRAPH_PASSES, rows of a pass]`.
    pub(super) results: CudaSlice<SampleResult>,
    /// What the rows of a pass follow, `[draft_head::ROWS_MAX, BEHIND_WORDS]`, and these rows as they were planned,
    /// `[ROW_WORDS, rows]`.
    pub(super) behind: CudaSlice<i32>,
    pub(super) planned: CudaSlice<i32>,
    /// For as many ids as are guessed among.
    sampler: Sampler,
    shortlist: Option<Shortlist>,
    /// The ids of the shortlist by place, where these differ.
    pub(super) ids: Option<CudaSlice<u32>>,
}

impl Guessing {
    /// For as many sequences as there are slots.
    pub(super) fn new(device: &Device, cache: &KernelCache, model: &Model, counts: Counts) -> CudaResult<Self> {
        let (stream, rows, doing) = (device.stream(), bucket(counts.slots), "allocating the draft head's memory");
        let list = shortlist(model).cloned();
        let among = list.as_ref().map_or(model.config.vocab, Shortlist::len);
        let ids = list.as_ref().and_then(Shortlist::ids).map(|ids| stream.clone_htod(&ids[..]));
        Ok(Self {
            room: rows,
            rows: stream.clone_htod(&columns(&[], rows)).during(doing)?,
            asked: stream.alloc_zeros(4 * rows).during(doing)?,
            params: stream.clone_htod(&vec![SampleParams::default(); rows]).during(doing)?,
            lists: stream.alloc_zeros(LIST_WORDS).during(doing)?,
            results: stream.alloc_zeros(GRAPH_PASSES * rows).during(doing)?,
            behind: stream.alloc_zeros(draft_head::ROWS_MAX * BEHIND_WORDS).during(doing)?,
            planned: stream.alloc_zeros(draft_head::ROWS_MAX * ROW_WORDS).during(doing)?,
            sampler: Sampler::load(device, cache, among, rows)?,
            shortlist: list,
            ids: ids.transpose().during(doing)?,
        })
    }

    /// Sends who asks, and how their guesses are drawn.
    pub(super) fn ask(
        &mut self,
        device: &Device,
        staging: &Staging,
        asked: &[AskedAt],
        sampling: &Sampling,
    ) -> CudaResult<()> {
        if asked.is_empty() {
            return Ok(());
        }
        let rows = bucket(asked.len());
        // Rows behind those that ask have no room for a position, and are none.
        let mut words: Vec<i32> = asked.iter().flat_map(AskedAt::words).collect();
        words.resize(4 * rows, 0);
        stage(device, staging, &mut self.asked, 0, &words)?;
        let (mut params, lists) = sampling.params_of_guesses(asked, self.shortlist.as_ref());
        stage(device, staging, &mut self.lists, 0, &lists)?;
        params.resize(rows, SampleParams::default());
        stage(device, staging, &mut self.params, 0, &params)
    }

    /// Draws the guesses of the `nth` pass of a graph, whose logits lie in the workspace.
    pub(super) fn draw(
        &mut self,
        device: &Device,
        (work, store): (&Workspace, &mut Store),
        (rows, nth): (usize, usize),
    ) -> CudaResult<()> {
        // SAFETY: two tokens of 16 bits lie in each word.
        let history =
            unsafe { store.counts.transmute::<u16>(2 * store.counts.len()) }.expect("words hold twice as many halves");
        let (logits, params, lists) = (&work.logits.as_view(), &self.params.slice(..rows), &self.lists.as_view());
        let history = &history;
        let inputs = SampleInputs { logits, params, lists, history, ahead: None, tally: None, processed: false };
        let mut results = self.results.slice_mut(nth * rows..(nth + 1) * rows);
        let outputs = SampleOutputs { results: &mut results, sampled: &mut store.sampled.as_view_mut() };
        // SAFETY: rows of logits are those of the pass; the parameters name no slot and no history, and parts of lists
        // that are their own.
        Ok(unsafe { self.sampler.launch(device, rows, inputs, outputs) }?)
    }

    /// Sends what a graph of so many passes drew behind the step's results, behind those of `before` passes.
    pub(super) fn fetch(
        &self,
        device: &Device,
        staging: &Staging,
        GuessShape { rows, passes }: GuessShape,
        before: usize,
    ) -> CudaResult<()> {
        let (place, n) = (staging.guesses + before * rows, passes * rows);
        let from = self.results.device_ptr(device.stream()).0;
        // SAFETY: this part of the pinned results belongs to these passes alone, and is read after the step's last
        // mark.
        unsafe { staging.fetch(device, from, &mut staging.results.as_mut_slice()[place..place + n]) }
    }

    /// The ids that guesses stand for by place, where these differ.
    pub(super) fn listed_ids(&self) -> Option<Arc<[TokenId]>> {
        self.shortlist.as_ref().and_then(Shortlist::ids).cloned()
    }
}
