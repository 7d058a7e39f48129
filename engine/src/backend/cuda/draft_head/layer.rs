//! The layers of an MTP head on the device: its input, its blocks, and the logits that it guesses by.

use super::ModelRank;
use super::guessing::Guessing;
use crate::backend::cuda::blocks::BlockPass;
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::draft_head::{input_product, listed_product};
use crate::backend::cuda::layout::shape::Counts;
use crate::backend::cuda::layout::weights::Draft;
use crate::backend::cuda::network::{Block, Network};
use crate::backend::cuda::rank::memory::RankMemory;
use crate::backend::cuda::rank::pass::Pass;
use crate::backend::cuda::rank::products::{Product, ProductKernels};
use crate::backend::cuda::rank::quantized::Quantized;
use crate::backend::cuda::rank::residual::NextBlock;
use crate::backend::cuda::rank::weights::Matrix;
use crate::backend::cuda::step::leader::Leader;
use crate::backend::cuda::step::sampling::Sampling;
use crate::model::Shortlist;
use chimere_kernels::cuda::Device;
use chimere_kernels::cuda::draft_head::{
    Behind, DraftHead, DraftHeadRows, Following, Guessed, GuessedBefore, GuessingRows, HeadNorms,
};
use chimere_kernels::cuda::embed::{Table, TableShape};
use cudarc::driver::{CudaSlice, DevicePtr};

/// A shortlist's product, with its rows where they are not the first of the model's head.
pub(super) struct ShortlistHead {
    ids: usize,
    product: Product,
    rows: Option<Matrix>,
}

impl ShortlistHead {
    /// Loads the product over the ids of the shortlist.
    pub(super) fn new(
        products: &mut ProductKernels<'_>,
        head: &Matrix,
        list: &Shortlist,
        rows: Option<Matrix>,
    ) -> CudaResult<Self> {
        let product = products.of(listed_product(head, list, head.cols)?)?;
        Ok(Self { ids: list.len(), product, rows })
    }
}

/// The head's weights with their products and kernels.
pub(super) struct HeadLayer {
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
    listed: Option<ShortlistHead>,
}

impl HeadLayer {
    /// Loads its kernels. `blocks` are bound already.
    pub(super) fn new(
        products: &mut ProductKernels<'_>,
        weights: Draft<Matrix, CudaSlice<f32>>,
        blocks: Vec<Block>,
        (table, counts): (TableShape, Counts),
        listed: Option<ShortlistHead>,
    ) -> CudaResult<Self> {
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

    /// Enqueues that the layer and the slots remember the rows of a pass that has just gone through all of the model's
    /// layers.
    pub(super) fn remember(&mut self, rank: &mut ModelRank<'_>, pass: &Pass<'_>) -> CudaResult<()> {
        self.read(rank, pass, true)?;
        self.keep(rank, pass, true)?;
        self.run(rank, pass, true)
    }

    /// Enqueues that the slots keep what the layer is to read of the rows of a decode pass that has just gone through
    /// all of the model's layers.
    pub(super) fn keep_rows(&self, rank: &mut ModelRank<'_>, pass: &Pass<'_>) -> CudaResult<()> {
        self.keep(rank, pass, true)
    }

    /// Enqueues that the layer remembers rows that waited.
    pub(super) fn remember_late(&mut self, rank: &mut ModelRank<'_>, pass: &Pass<'_>) -> CudaResult<()> {
        self.read(rank, pass, false)?;
        self.run(rank, pass, true)
    }

    /// Enqueues a pass of guesses, up to their logits.
    pub(super) fn guess(&mut self, rank: &mut ModelRank<'_>, pass: &Pass<'_>) -> CudaResult<()> {
        self.read(rank, pass, false)?;
        self.run(rank, pass, false)?;
        let (product, matrix, ids) = self.guessed_head(rank.network);
        rank.network.logits(rank.device, pass.rows.count, (product, matrix, ids), rank.memory.work)?;
        self.keep(rank, pass, false)
    }

    /// Product, rows and number of the ids that are guessed among.
    fn guessed_head<'a>(&'a self, network: &'a Network) -> (&'a Product, &'a Matrix, usize) {
        match &self.listed {
            None => (&network.head_product, &network.head, network.vocab),
            Some(ShortlistHead { ids, product, rows }) => (product, rows.as_ref().unwrap_or(&network.head), *ids),
        }
    }

    /// The input of the head's rows, behind what the model's last layer has just left or behind what slots carry.
    fn read(&mut self, rank: &mut ModelRank<'_>, pass: &Pass<'_>, behind_model: bool) -> CudaResult<()> {
        let ModelRank { device, network, memory: RankMemory { store, work } } = rank;
        let bytes = network.embedding.bytes();
        let table = Table { address: bytes.device_ptr(device.stream()).0, bytes: bytes.len() };
        let norms = HeadNorms {
            model: &network.norm.as_view(),
            embedding: &self.embed_norm.as_view(),
            hidden: &self.hidden_norm.as_view(),
            eps: network.eps,
        };
        let sampled = (rows_of(pass), &store.sampled.as_view());
        let (mut codes, mut meta) = self.input.views_mut();
        let out = (&mut codes, &mut meta);
        let carried = store.carried.as_view();
        let mut x = work.stream.x.as_view_mut();
        let (x, begin) = if behind_model { (Some(x.as_view()), None) } else { (None, Some(&mut x)) };
        // SAFETY: the table lives as long as the network; slots were checked against the store when the step was
        // planned.
        Ok(unsafe {
            let table = (table, network.embedding_scale);
            self.kernels.input(device, table, sampled, norms, x.as_ref(), &carried, out, begin)
        }?)
    }

    /// The slots carry on what the rows left: the model's last layer, or the head's.
    fn keep(&self, rank: &mut ModelRank<'_>, pass: &Pass<'_>, behind_model: bool) -> CudaResult<()> {
        let ModelRank { device, network, memory: RankMemory { store, work } } = rank;
        let norm = if behind_model { &network.norm } else { &self.norm };
        let rows = (rows_of(pass), &store.sampled.as_view(), pass.prompts.is_some());
        let (x, carried) = (&mut work.stream.x.as_view_mut(), &mut store.carried.as_view_mut());
        // SAFETY: as above; a decode pass has fewer rows of a slot than are carried.
        Ok(unsafe { self.kernels.keep(device, rows, (&norm.as_view(), network.eps), x, carried) }?)
    }

    /// The head's first product and its layer, or of this only what later rows find.
    fn run(&self, rank: &mut ModelRank<'_>, pass: &Pass<'_>, remember: bool) -> CudaResult<()> {
        let ModelRank { device, network, memory } = rank;
        let Network { head, hidden, eps, beside, kernels, .. } = &mut **network;
        let (device, hidden, eps) = (*device, *hidden, *eps);
        let next = |i: usize| match self.blocks.get(i) {
            Some(next) => next.op.reader(&next.norm, pass.rows),
            None => NextBlock { norm: &self.norm, matrix: head, halves: None },
        };
        memory.work.stream.add_product(device, pass.rows, (&self.fc_product, &self.fc), &self.input, next(0))?;
        for (i, block) in self.blocks.iter().enumerate() {
            let (norm, place, next) = (&block.norm, block.place, next(i + 1));
            let at = BlockPass { device, beside, pass, norm, next, adapters: None, place, hidden, eps };
            let kernels = &mut kernels[block.shape];
            if remember {
                return block.op.remember(kernels, at, memory);
            }
            block.op.launch(kernels, at, memory)?;
        }
        Ok(())
    }

    /// Makes the rows of the next pass of guesses: behind what the step accepted, or behind those that a pass of the
    /// last graph drew.
    pub(super) fn next_guesses(
        &self,
        device: &Device,
        behind: Option<Behind<'_>>,
        guessing: &mut Guessing,
        (rows, drawn): (usize, usize),
    ) -> CudaResult<()> {
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
        // SAFETY: who asks has rows and results of the step, as its plan says, and the sampler draws places of the
        // list.
        Ok(unsafe { self.kernels.rows(device, behind, guessed, rows) }?)
    }

    /// Makes the rows of a pass that follows the step before, in the place of that one's: `planned` and what each
    /// follows lie with `guessing`.
    pub(super) fn follow(
        &self,
        device: &Device,
        guessing: &Guessing,
        (count, leader): (usize, &Leader),
        decode_rows: &mut CudaSlice<i32>,
        sampling: &mut Sampling,
    ) -> CudaResult<()> {
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
        Ok(unsafe { self.kernels.follow(device, pass) }?)
    }
}

/// A pass's rows as the head's kernels take them.
pub(super) fn rows_of<'a>(pass: &'a Pass<'_>) -> DraftHeadRows<'a> {
    DraftHeadRows { count: pass.rows.count, tokens: &pass.tokens, slots: &pass.slots, positions: &pass.positions }
}
