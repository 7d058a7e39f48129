//! The model's draft head on the device: a layer that guesses, from the hidden state of a position and the token behind
//! it, which token comes after that. The CPU's page (`cpu/mtp.rs`) says what is computed.
//!
//! Every row of every pass leaves the layer's keys and values, in the graph of the pass: the head's input, its first
//! product, in-projections, and a launch that writes them. The hidden states of a slot's last positions stay in the
//! store, so that rows behind a step find the one before them, however many drafts were accepted. The whole layer is
//! computed for guesses alone, in passes with graphs of their own: a kernel finds behind which row of the step a
//! sequence goes on, the sampler draws each guess as it would draw the output, and the next pass reads it on the device.
//! Unlike on the CPU position 0 is attended to, and behind a checkpoint the hidden state before it is taken for zeros:
//! guesses are a little other ones then.

use super::blocks::{BlockPass, OpQuery};
use super::error::{CudaBackendError, During};
use super::matrices::{Kernels as Products, Product, ProductKind};
use super::network::{Block, Network, Pass};
use super::residual::Next;
use super::rows::AskedAt;
use super::sampling::Sampling;
use super::shape::{Counts, bucket};
use super::staging::Staging;
use super::store::Store;
use super::weights::{Draft, Matrix, Packed};
use super::workspace::{Quantized, Workspace};
use super::{ROW_WORDS, stage};
use crate::drafts::DRAFTS_MAX;
use crate::model::ModelConfig;
use chimere_kernels::cuda::Device;
use chimere_kernels::cuda::attention::KvType;
use chimere_kernels::cuda::draft_head::{self, Behind, DraftHead, GuessingRows, HeadNorms, HeadRows};
use chimere_kernels::cuda::embed::{Table, TableShape};
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::sampler::{SampleParams, SampleResult};
use chimere_kernels::cuda::wide::Epilogue;
use cudarc::driver::{CudaSlice, DevicePtr};

const _: () = assert!(draft_head::RING > 2 * (DRAFTS_MAX + 1), "a step's rows and its guesses are fewer");

/// Whether this backend computes such a draft head: its blocks are like some of the model's, attention first, and then
/// what looks at one row alone.
pub(super) fn is_computed(model: &ModelConfig) -> bool {
    let shapes = model.shapes();
    let memory = |block: &crate::model::BlockConfig| OpQuery(&block.op).memory(KvType::F16, 0);
    let known = model.draft.iter().all(|block| shapes.contains(&&block.op));
    known
        && model.draft.split_first().is_some_and(|(first, rest)| {
            let alone = rest.iter().all(|block| !memory(block).is_cached() && !memory(block).is_recurrent());
            memory(first).is_cached() && !memory(first).is_recurrent() && alone
        })
}

/// What the head's first product is chosen by.
pub(super) fn product(fc: &impl Packed) -> Result<ProductKind, CudaBackendError> {
    ProductKind::dense(fc, Epilogue::Residual, None)
}

/// The head's weights with their products and kernels.
pub(super) struct Head {
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
}

impl Head {
    /// Loads its kernels. `blocks` are bound already.
    pub(super) fn new(
        products: &mut Products<'_>,
        weights: Draft<Matrix, CudaSlice<f32>>,
        blocks: Vec<Block>,
        table: TableShape,
        counts: Counts,
    ) -> Result<Self, CudaBackendError> {
        let Draft { fc, embed_norm, hidden_norm, norm, .. } = weights;
        let device = products.device;
        Ok(Self {
            kernels: DraftHead::load(device, products.cache, table)?,
            embed_norm,
            hidden_norm,
            fc_product: products.of(product(&fc)?)?,
            fc,
            blocks,
            norm,
            input: Quantized::new(device, counts.rows(), 2 * table.cols, table.planes)?,
        })
    }
}

impl Network {
    /// Enqueues that the head's layer and the slots remember the rows of a pass that has just gone through all layers.
    /// The residual stream is used up.
    pub(super) fn remember(
        &mut self,
        device: &Device,
        pass: &Pass<'_>,
        store: &mut Store,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        let Some(mut head) = self.draft.take() else { return Ok(()) };
        let done = self.read(&mut head, device, pass, true, store, work).and_then(|()| {
            self.keep(&head, device, pass, &self.norm, store, work)?;
            self.run(&head, device, pass, true, store, work)
        });
        self.draft = Some(head);
        done
    }

    /// Enqueues a pass of guesses, up to their logits.
    pub(super) fn guess(
        &mut self,
        device: &Device,
        pass: &Pass<'_>,
        store: &mut Store,
        work: &mut Workspace,
    ) -> Result<(), CudaBackendError> {
        let Some(mut head) = self.draft.take() else { return Ok(()) };
        let done = self.read(&mut head, device, pass, false, store, work).and_then(|()| {
            self.run(&head, device, pass, false, store, work)?;
            self.decode_head(device, pass.rows.count, work)?;
            self.keep(&head, device, pass, &head.norm, store, work)
        });
        self.draft = Some(head);
        done
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
        let rows = (rows_of(pass), pass.prompts.is_some());
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
            Some(next) => Next { norm: &next.norm, matrix: next.op.first() },
            None => Next { norm: &head.norm, matrix: &self.head },
        };
        work.stream.add_product(device, pass.rows, (&head.fc_product, &head.fc), &head.input, next(0))?;
        let (hidden, eps, deterministic, beside) = (self.hidden, self.eps, self.deterministic, &self.beside);
        for (i, block) in head.blocks.iter().enumerate() {
            let (norm, place, next) = (&block.norm, block.place, next(i + 1));
            let at = BlockPass { device, beside, pass, norm, next, place, hidden, eps, deterministic };
            let kernels = &mut self.kernels[block.shape];
            if remember {
                return block.op.remember(kernels, at, store, work);
            }
            block.op.launch(kernels, at, store, work)?;
        }
        Ok(())
    }

    /// Makes the rows of the next pass of guesses: behind what the step accepted, or behind the last guesses.
    pub(super) fn next_guesses(
        &self,
        device: &Device,
        behind: Option<Behind<'_>>,
        guessing: &mut Guessing,
        (asked, rows): (usize, usize),
    ) -> Result<(), CudaBackendError> {
        let Some(head) = &self.draft else { return Ok(()) };
        let room = guessing.room;
        let (mut tokens, mut rest) = guessing.rows.split_at_mut(room);
        let (mut slots, mut rest) = rest.split_at_mut(room);
        let mut positions = rest.slice_mut(..rows);
        let rows = GuessingRows {
            count: rows,
            asked: &guessing.asked.slice(..4 * asked),
            params: &mut guessing.params.as_view_mut(),
            tokens: &mut tokens,
            slots: &mut slots,
            positions: &mut positions,
        };
        // SAFETY: who asks has rows and results of the step, as its plan says.
        Ok(unsafe { head.kernels.rows(device, behind, &guessing.results.as_view(), rows) }?)
    }
}

/// A pass's rows as the head's kernels take them.
pub(super) fn rows_of<'a>(pass: &'a Pass<'_>) -> HeadRows<'a> {
    HeadRows { count: pass.rows.count, tokens: &pass.tokens, slots: &pass.slots, positions: &pass.positions }
}

/// What passes of guesses read and leave, beside the workspace.
pub(super) struct Guessing {
    /// As [`Pass`] reads them, arrays of `room` each: what is not made anew for a pass stays zero.
    pub(super) rows: CudaSlice<i32>,
    pub(super) room: usize,
    /// `[sequences, 4]`.
    asked: CudaSlice<i32>,
    params: CudaSlice<SampleParams>,
    results: CudaSlice<SampleResult>,
}

impl Guessing {
    /// For as many sequences as there are slots.
    pub(super) fn new(device: &Device, counts: Counts) -> Result<Self, CudaBackendError> {
        let (stream, rows, doing) = (device.stream(), bucket(counts.slots), "allocating the draft head's memory");
        Ok(Self {
            room: rows,
            rows: stream.clone_htod(&super::columns(&[], rows)).during(doing)?,
            asked: stream.alloc_zeros(4 * rows).during(doing)?,
            params: stream.clone_htod(&vec![SampleParams::default(); rows]).during(doing)?,
            results: stream.alloc_zeros(rows).during(doing)?,
        })
    }

    /// Bytes that it takes, and the head beside its weights.
    pub(super) fn bytes(c: &ModelConfig, counts: Counts, planes: Planes) -> u64 {
        if c.draft.is_empty() {
            return 0;
        }
        let each = 4 * ROW_WORDS + 16 + size_of::<SampleParams>() + size_of::<SampleResult>();
        (Quantized::bytes(counts.rows(), 2 * c.hidden, planes) + bucket(counts.slots) * each) as u64
    }

    /// Sends who asks, and how their guesses are drawn.
    pub(super) fn ask(
        &mut self,
        device: &Device,
        staging: &Staging,
        asked: &[AskedAt],
        sampling: &mut Sampling,
    ) -> Result<(), CudaBackendError> {
        let words: Vec<i32> = asked.iter().flat_map(AskedAt::words).collect();
        stage(device, staging, &mut self.asked, 0, &words)?;
        let params = sampling.params_of_guesses(device, staging, asked)?;
        stage(device, staging, &mut self.params, 0, &params)
    }

    /// Draws the guesses of a pass whose logits lie in the workspace; the results come behind those of the step, from
    /// `place` on.
    pub(super) fn draw(
        &mut self,
        device: &Device,
        sampling: &mut Sampling,
        (work, store): (&Workspace, &mut Store),
        staging: &Staging,
        (asked, place): (usize, usize),
    ) -> Result<(), CudaBackendError> {
        let (params, results) = (&self.params.slice(..asked), &mut self.results);
        sampling.draw_guesses(device, params, (work, store), staging, (results, place))
    }
}
