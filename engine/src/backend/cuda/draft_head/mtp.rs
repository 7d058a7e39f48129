//! The model's draft head on the device: a layer that guesses, from the hidden state of a position and the token behind
//! it, which token comes after that. The CPU's page (`cpu/mtp.rs`) says what is computed.
//!
//! Rows of prompts and of passes with drafts leave the layer's keys and values behind their pass: the head's input,
//! its first product, in-projections, and a launch that writes them. All others leave their hidden state and token
//! alone, one launch, and are read together later (`late.rs`), so that whoever asks for no guesses pays next to
//! nothing. The hidden states of a slot's last positions stay in the store, so that rows behind a step find the one
//! before them, however many drafts were accepted. The whole layer is computed for guesses alone: a kernel finds
//! behind which row of the step a sequence goes on, the sampler draws each guess as it would draw the output, and the
//! next pass reads it on the device; all passes of a step are one graph, or few. With a shortlist the model's head is
//! multiplied with by the rows of its ids alone, and the sampler's tokens are places in the list. Unlike on the CPU
//! position 0 is attended to, and behind a checkpoint the hidden state before it is taken for zeros: guesses are a
//! little other ones then.

use crate::backend::cuda::blocks::BlockPass;
use crate::backend::cuda::error::{CudaBackendError, During};
use crate::backend::cuda::layout::draft_head::{GRAPH_PASSES, input_product, listed_product, shortlist};
use crate::backend::cuda::layout::outputs::LIST_WORDS;
use crate::backend::cuda::layout::shape::{Counts, GuessShape, bucket};
use crate::backend::cuda::layout::weights::Draft;
use crate::backend::cuda::network::{Block, Network};
use crate::backend::cuda::rank::pass::Pass;
use crate::backend::cuda::rank::products::{Product, ProductKernels};
use crate::backend::cuda::rank::quantized::Quantized;
use crate::backend::cuda::rank::residual::Next;
use crate::backend::cuda::rank::staging::{Staging, stage};
use crate::backend::cuda::rank::store::Store;
use crate::backend::cuda::rank::weights::Matrix;
use crate::backend::cuda::rank::workspace::Workspace;
use crate::backend::cuda::step::leader::{AskedAt, Leader};
use crate::backend::cuda::step::rows::columns;
use crate::backend::cuda::step::sampling::Sampling;
use crate::drafts::DRAFTS_MAX;
use crate::ids::TokenId;
use crate::model::{Model, Shortlist};
use chimere_kernels::cuda::draft_head::{
    self, BEHIND_WORDS, Behind, DraftHead, Following, Guessed, GuessedBefore, GuessingRows, HeadNorms, HeadRows,
    ROW_WORDS,
};
use chimere_kernels::cuda::embed::{Table, TableShape};
use chimere_kernels::cuda::sampler::{SampleInputs, SampleOutputs, SampleParams, SampleResult, Sampler};
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::{CudaSlice, DevicePtr};
use std::sync::Arc;

const _: () = assert!(draft_head::RING > 2 * (DRAFTS_MAX + 1), "a step's rows and its guesses are fewer");

/// A shortlist's product, with its rows where they are not the first of the model's head.
pub(crate) struct Listed {
    ids: usize,
    product: Product,
    rows: Option<Matrix>,
}

impl Listed {
    /// Loads its kernels.
    pub(crate) fn new(
        products: &mut ProductKernels<'_>,
        head: &Matrix,
        list: &Shortlist,
        rows: Option<Matrix>,
    ) -> Result<Self, CudaBackendError> {
        let product = products.of(listed_product(head, list, head.cols)?)?;
        Ok(Self { ids: list.len(), product, rows })
    }
}

/// The head's weights with their products and kernels.
pub(crate) struct Head {
    kernels: DraftHead,
    embed_norm: CudaSlice<f32>,
    hidden_norm: CudaSlice<f32>,
    fc: Matrix,
    fc_product: Product,
    blocks: Vec<Block>,
    /// Before the model's head.
    norm: CudaSlice<f32>,
    /// Both halves of the input, `[rows, 2 * hidden]`.
    input: Quantized,
    listed: Option<Listed>,
}

impl Head {
    /// Loads its kernels. `blocks` are bound already.
    pub(crate) fn new(
        products: &mut ProductKernels<'_>,
        weights: Draft<Matrix, CudaSlice<f32>>,
        blocks: Vec<Block>,
        (table, counts): (TableShape, Counts),
        listed: Option<Listed>,
    ) -> Result<Self, CudaBackendError> {
        let Draft { fc, embed_norm, hidden_norm, norm, .. } = weights;
        let device = products.device;
        Ok(Self {
            kernels: DraftHead::load(device, products.cache, table)?,
            embed_norm,
            hidden_norm,
            fc_product: products.of(input_product(&fc)?)?,
            fc,
            blocks,
            norm,
            input: Quantized::new(device, counts.rows(), 2 * table.cols, table.planes)?,
            listed,
        })
    }
}

impl Network {
    /// Enqueues that the head's layer and the slots remember the rows of a pass that has just gone through all layers.
    /// The residual stream is used up.
    pub(crate) fn remember(
        &mut self,
        device: &Device,
        pass: &Pass<'_>,
        store: &mut Store,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        self.with_head(|network, head| {
            network.read(head, device, pass, true, store, work)?;
            network.keep(head, device, pass, &network.norm, store, work)?;
            network.run(head, device, pass, true, store, work)
        })
    }

    /// Does `work` with the head, taken out meanwhile; nothing where there is none.
    fn with_head(
        &mut self,
        work: impl FnOnce(&mut Self, &mut Head) -> Result<(), CudaBackendError>,
    ) -> Result<(), CudaBackendError> {
        let Some(mut head) = self.draft.take() else { return Ok(()) };
        let done = work(self, &mut head);
        self.draft = Some(head);
        done
    }

    /// Enqueues that the slots keep what the head is to read of the rows of a decode pass that has just gone through all
    /// layers. The residual stream is used up.
    pub(crate) fn keep_rows(
        &self,
        device: &Device,
        pass: &Pass<'_>,
        store: &mut Store,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        let Some(head) = &self.draft else { return Ok(()) };
        self.keep(head, device, pass, &self.norm, store, work)
    }

    /// Enqueues that the head's layer remembers rows that waited. Between passes: the residual stream is used up.
    pub(crate) fn remember_late(
        &mut self,
        device: &Device,
        pass: &Pass<'_>,
        store: &mut Store,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        self.with_head(|network, head| {
            network.read(head, device, pass, false, store, work)?;
            network.run(head, device, pass, true, store, work)
        })
    }

    /// Enqueues a pass of guesses, up to their logits.
    pub(crate) fn guess(
        &mut self,
        device: &Device,
        pass: &Pass<'_>,
        store: &mut Store,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        self.with_head(|network, head| {
            network.read(head, device, pass, false, store, work)?;
            network.run(head, device, pass, false, store, work)?;
            network.logits(device, pass.rows.count, network.guessed_head(head), work)?;
            network.keep(head, device, pass, &head.norm, store, work)
        })
    }

    /// Product, rows and number of the ids that are guessed among.
    fn guessed_head<'a>(&'a self, head: &'a Head) -> (&'a Product, &'a Matrix, usize) {
        match &head.listed {
            None => (&self.head_product, &self.head, self.vocab),
            Some(Listed { ids, product, rows }) => (product, rows.as_ref().unwrap_or(&self.head), *ids),
        }
    }

    /// The input of the head's rows, behind what the model's last layer has just left or behind what slots carry.
    fn read(
        &self,
        head: &mut Head,
        device: &Device,
        pass: &Pass<'_>,
        behind_model: bool,
        store: &Store,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        let bytes = self.embedding.bytes();
        let table = Table { address: bytes.device_ptr(device.stream()).0, bytes: bytes.len() };
        let norms = HeadNorms {
            model: &self.norm.as_view(),
            embedding: &head.embed_norm.as_view(),
            hidden: &head.hidden_norm.as_view(),
            eps: self.eps,
        };
        let sampled = (rows_of(pass), &store.sampled.as_view());
        let (mut codes, mut meta) = head.input.views_mut();
        let out = (&mut codes, &mut meta);
        let carried = store.carried.as_view();
        let mut x = work.stream.x.as_view_mut();
        let (x, begin) = if behind_model { (Some(x.as_view()), None) } else { (None, Some(&mut x)) };
        // SAFETY: the table lives as long as the network; slots were checked against the store when the step was
        // planned.
        Ok(unsafe {
            let table = (table, self.embedding_scale);
            head.kernels.input(device, table, sampled, norms, x.as_ref(), &carried, out, begin)
        }?)
    }

    /// The slots carry on what the rows left; `norm` is the one behind that.
    fn keep(
        &self,
        head: &Head,
        device: &Device,
        pass: &Pass<'_>,
        norm: &CudaSlice<f32>,
        store: &mut Store,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        let rows = (rows_of(pass), &store.sampled.as_view(), pass.prompts.is_some());
        let (x, carried) = (&mut work.stream.x.as_view_mut(), &mut store.carried.as_view_mut());
        // SAFETY: as above; a decode pass has fewer rows of a slot than are carried.
        Ok(unsafe { head.kernels.keep(device, rows, (&norm.as_view(), self.eps), x, carried) }?)
    }

    /// The head's first product and its layer, or of this only what later rows find.
    fn run(
        &mut self,
        head: &Head,
        device: &Device,
        pass: &Pass<'_>,
        remember: bool,
        store: &mut Store,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        let next = |i: usize| match head.blocks.get(i) {
            Some(next) => next.op.reader(&next.norm, pass.rows),
            None => Next { norm: &head.norm, matrix: &self.head, halves: None },
        };
        work.stream.add_product(device, pass.rows, (&head.fc_product, &head.fc), &head.input, next(0))?;
        let (hidden, eps, beside) = (self.hidden, self.eps, &self.beside);
        for (i, block) in head.blocks.iter().enumerate() {
            let (norm, place, next) = (&block.norm, block.place, next(i + 1));
            let at = BlockPass { device, beside, pass, norm, next, place, hidden, eps };
            let kernels = &mut self.kernels[block.shape];
            if remember {
                return block.op.remember(kernels, at, store, work);
            }
            block.op.launch(kernels, at, store, work)?;
        }
        Ok(())
    }

    /// Makes the rows of the next pass of guesses: behind what the step accepted, or behind those that a pass of the last
    /// graph drew.
    pub(crate) fn next_guesses(
        &self,
        device: &Device,
        behind: Option<Behind<'_>>,
        guessing: &mut Guessing,
        (rows, drawn): (usize, usize),
    ) -> Result<(), CudaBackendError> {
        let Some(head) = &self.draft else { return Ok(()) };
        let room = guessing.room;
        let results = guessing.results.slice(drawn * rows..(drawn + 1) * rows);
        let ids = guessing.ids.as_ref().map(|ids| ids.as_view());
        let guessed = Guessed { results: &results, ids: ids.as_ref() };
        let (mut tokens, mut rest) = guessing.rows.split_at_mut(room);
        let (mut slots, mut rest) = rest.split_at_mut(room);
        let mut positions = rest.slice_mut(..rows);
        let rows = GuessingRows {
            count: rows,
            asked: &guessing.asked.slice(..4 * rows),
            params: &mut guessing.params.as_view_mut(),
            tokens: &mut tokens,
            slots: &mut slots,
            positions: &mut positions,
        };
        // SAFETY: who asks has rows and results of the step, as its plan says, and the sampler draws places of the list.
        Ok(unsafe { head.kernels.rows(device, behind, guessed, rows) }?)
    }

    /// Makes the rows of a pass that follows the step before, in the place of that one's: `planned` and what each follows
    /// lie with `guessing`.
    pub(crate) fn follow(
        &self,
        device: &Device,
        guessing: &Guessing,
        (count, leader): (usize, &Leader),
        decode_rows: &mut CudaSlice<i32>,
        sampling: &mut Sampling,
    ) -> Result<(), CudaBackendError> {
        let Some(head) = &self.draft else { return Ok(()) };
        let ids = guessing.ids.as_ref().map(|ids| ids.as_view());
        let guessed = GuessedBefore { address: leader.guessed, rows: leader.guess_rows, ids: ids.as_ref() };
        let (results, ahead) = sampling.results_and_ahead();
        let pass = Following {
            count,
            behind: &guessing.behind.as_view(),
            planned: &guessing.planned.as_view(),
            results: &results,
            guessed,
            rows: &mut decode_rows.as_view_mut(),
            ahead: &mut ahead.as_view_mut(),
        };
        // SAFETY: what pieces follow was looked up among those that asked for guesses in the step before.
        Ok(unsafe { head.kernels.follow(device, pass) }?)
    }
}

/// A pass's rows as the head's kernels take them.
pub(crate) fn rows_of<'a>(pass: &'a Pass<'_>) -> HeadRows<'a> {
    HeadRows { count: pass.rows.count, tokens: &pass.tokens, slots: &pass.slots, positions: &pass.positions }
}

/// What passes of guesses read and leave, beside the workspace.
pub(crate) struct Guessing {
    /// As [`Pass`] reads them, arrays of `room` each: what is not made anew for a pass stays zero.
    pub(crate) rows: CudaSlice<i32>,
    pub(crate) room: usize,
    /// `[sequences, 4]`.
    asked: CudaSlice<i32>,
    params: CudaSlice<SampleParams>,
    /// What these name.
    lists: CudaSlice<u32>,
    /// `[GRAPH_PASSES, rows of a pass]`.
    results: CudaSlice<SampleResult>,
    /// What the rows of a pass follow, `[draft_head::ROWS_MAX, BEHIND_WORDS]`, and these rows as they were planned,
    /// `[ROW_WORDS, rows]`.
    pub(crate) behind: CudaSlice<i32>,
    pub(crate) planned: CudaSlice<i32>,
    /// For as many ids as are guessed among.
    sampler: Sampler,
    shortlist: Option<Shortlist>,
    /// The ids of the shortlist by place, where these differ.
    ids: Option<CudaSlice<u32>>,
}

impl Guessing {
    /// For as many sequences as there are slots.
    pub(crate) fn new(
        device: &Device,
        cache: &KernelCache,
        model: &Model,
        counts: Counts,
    ) -> Result<Self, CudaBackendError> {
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
    pub(crate) fn ask(
        &mut self,
        device: &Device,
        staging: &Staging,
        asked: &[AskedAt],
        sampling: &Sampling,
    ) -> Result<(), CudaBackendError> {
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
    pub(crate) fn draw(
        &mut self,
        device: &Device,
        (work, store): (&Workspace, &mut Store),
        (rows, nth): (usize, usize),
    ) -> Result<(), CudaBackendError> {
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
    pub(crate) fn fetch(
        &self,
        device: &Device,
        staging: &Staging,
        GuessShape { rows, passes }: GuessShape,
        before: usize,
    ) -> Result<(), CudaBackendError> {
        let (place, n) = (staging.guesses + before * rows, passes * rows);
        let from = self.results.device_ptr(device.stream()).0;
        // SAFETY: this part of the pinned results belongs to these passes alone, and is read after the step's last mark.
        unsafe { staging.fetch(device, from, &mut staging.results.as_mut_slice()[place..place + n]) }
    }

    /// The ids that guesses stand for by place, where these differ.
    pub(crate) fn listed_ids(&self) -> Option<Arc<[TokenId]>> {
        self.shortlist.as_ref().and_then(Shortlist::ids).cloned()
    }
}
