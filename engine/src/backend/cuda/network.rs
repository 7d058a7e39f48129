//! The layers: which kernels run over a step's rows, in which order, on which buffers. Nothing here waits for the
//! device.
//!
//! What a block launches, its operator says (`blocks`); what blocks hand on to each other is the residual stream
//! (`residual`), and each is told who reads it next. A layer of a decode pass of few rows is four launches:
//! in-projections; the mixer; out-projection into the residual stream; experts, which rows choose there, summed into
//! the residual stream.

use crate::backend::cuda::blocks::{BlockPass, BlockPlace, Bound, Kernels};
use crate::backend::cuda::error::{CudaBackendError, CudaResult};
use crate::backend::cuda::layout::config::CudaConfig;
use crate::backend::cuda::layout::operators::OpQuery;
use crate::backend::cuda::layout::operators::operator::Setting;
use crate::backend::cuda::layout::products::{ProductChoice, ProductKind, RowCount, classes};
use crate::backend::cuda::layout::programs::embed_shape;
use crate::backend::cuda::layout::weights;
use crate::backend::cuda::layout::workspace::{half_rows, routed_blocks, shared_half_rows};
use crate::backend::cuda::rank::adapters::AdapterStore;
use crate::backend::cuda::rank::memory::RankMemory;
use crate::backend::cuda::rank::pass::Pass;
use crate::backend::cuda::rank::products::{Product, ProductKernels};
use crate::backend::cuda::rank::residual::NextBlock;
use crate::backend::cuda::rank::weights::{DeviceWeights, EmbeddingTable, Matrix};
use crate::backend::cuda::rank::workspace::Workspace;
use crate::format::BlockType;
use crate::model::{BlockConfig, ModelConfig, OpConfig};
use chimere_kernels::cuda::attention::KvType;
use chimere_kernels::cuda::embed::{Embed, Table, TableShape, TokenRows};
use chimere_kernels::cuda::gather::Gather;
use chimere_kernels::cuda::pool::HiddenRows;
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::wide::halves::HalfRows;
use chimere_kernels::cuda::wide::{Chip, Columns, Epilogue, Output};
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::{CudaSlice, DevicePtr};
use std::ops::Range;

/// Blocks that a pass begins with: a tenth of those of a large model.
const FIRST_BLOCKS: usize = 8;

/// The model on the device, ready to be launched; the module's head says how.
pub(crate) struct Network {
    pub(crate) hidden: usize,
    pub(crate) vocab: usize,
    pub(crate) eps: f32,
    /// Experts that a row uses, and blocks that choose some.
    used: usize,
    routed: usize,
    pub(crate) embedding: EmbeddingTable,
    /// What rows of it are multiplied with.
    pub(crate) embedding_scale: f32,
    embed: Embed,
    blocks: Vec<Block>,
    /// Of each of the model's shapes.
    pub(crate) kernels: Vec<Kernels>,
    pub(crate) norm: CudaSlice<f32>,
    gather: Gather,
    pub(crate) head: Matrix,
    pub(crate) head_product: Product,
    pub(crate) beside: Device,
    /// If there may be some.
    pub(crate) adapters: Option<AdapterStore>,
}

pub(crate) struct Block {
    pub(crate) norm: CudaSlice<f32>,
    pub(crate) op: Bound,
    /// Which of the model's shapes the operator has, and so which kernels are its.
    pub(crate) shape: usize,
    pub(crate) place: BlockPlace,
}

/// That a trace of experts can be replayed by so many sequences, where a launch takes at most `most` rows.
fn check_replay(most: usize, rows: usize) -> CudaResult<()> {
    if rows <= most {
        return Ok(());
    }
    Err(CudaBackendError::Unsupported {
        what: "the batch of a replayed trace of experts",
        got: format!("{rows} rows"),
        need: match most {
            0 => "a launch of all experts, which this chip or model does not have".into(),
            most => format!("at most {most} rows, those of one launch of all experts on this chip"),
        },
    })
}

/// Loads blocks: those of the model, then those of whatever computes beside it. Products of one shape are loaded once.
pub(crate) struct BlockLoader<'a> {
    pub(crate) products: ProductKernels<'a>,
    /// What the look-up of embeddings is made for.
    pub(crate) table: TableShape,
    pub(crate) setting: Setting,
    shapes: Vec<&'a OpConfig>,
    place: BlockPlace,
}

impl<'a> BlockLoader<'a> {
    /// For a model that `layout::operators::check` has passed; `embedding` is the encoding of its rows on the device.
    pub(crate) fn new(
        device: &'a Device,
        cache: &'a KernelCache,
        c: &'a ModelConfig,
        config: &CudaConfig,
        (planes, embedding): (Planes, BlockType),
    ) -> CudaResult<Self> {
        let (setting, shapes) = (Setting::of(c, config, planes, device.arch()), c.shapes());
        let classes = classes(setting.counts.decode, setting.counts.prefill);
        let halves = |(rows, values)| HalfRows::new(device, rows, values);
        let halves = [halves(half_rows(c, setting.counts))?, halves(shared_half_rows(c, setting.counts))?];
        let (chip, adapter_rank) = (Chip::of(device), config.adapters.rank());
        let choice = ProductChoice { chip, replayed: config.replayed, adapter_rank };
        let products = ProductKernels::new(device, cache, classes, choice, planes, halves);
        Ok(Self { products, table: embed_shape(c, embedding, planes), setting, shapes, place: BlockPlace::default() })
    }

    /// Loads the products of the block that comes next.
    pub(crate) fn bind(
        &mut self,
        of: &BlockConfig,
        block: weights::Block<Matrix, CudaSlice<f32>>,
    ) -> CudaResult<Block> {
        let shape = self.shapes.iter().position(|shape| **shape == of.op).expect("every block's shape is listed");
        let op = Bound::new(block.op, &mut self.products, self.setting.hidden)?;
        let bound = Block { norm: block.norm, op, shape, place: self.place };
        self.place = self.place.after(OpQuery(&of.op), self.setting.kv);
        Ok(bound)
    }
}

impl Network {
    /// Loads every kernel that the model's layers take.
    pub(crate) fn new(loader: &mut BlockLoader<'_>, c: &ModelConfig, weights: DeviceWeights) -> CudaResult<Self> {
        let (device, cache) = (loader.products.device, loader.products.cache);
        let mut blocks = Vec::with_capacity(weights.blocks.len());
        for (of, block) in c.blocks().zip(weights.blocks) {
            blocks.push(loader.bind(of, block)?);
        }
        if loader.products.choice.replayed {
            check_replay(loader.products.replayed_rows_max(), loader.setting.counts.slots)?;
        }
        let BlockLoader { products, table, setting, shapes, .. } = loader;
        let table = *table;
        let load = |shape| Kernels::load(shape, device, cache, setting);
        let kernels = shapes.iter().copied().map(load).collect::<Result<_, _>>()?;
        Ok(Self {
            hidden: c.hidden,
            vocab: c.vocab,
            eps: c.rms_eps,
            used: c.blocks().map(|block| OpQuery(&block.op).widths().used).max().unwrap_or(0),
            routed: routed_blocks(c.blocks()),
            embed: Embed::load(device, cache, table)?,
            embedding: weights.embed,
            embedding_scale: c.embedding_scale,
            blocks,
            kernels,
            norm: weights.norm,
            gather: Gather::load(device, cache, c.hidden, setting.planes)?,
            head_product: products.of(ProductKind::dense(&weights.head, Epilogue::Plain, Some(c.hidden))?)?,
            head: weights.head,
            beside: device.beside()?,
            adapters: None,
        })
    }

    /// Experts that a row uses.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Blocks with experts to choose from.
    pub(crate) fn routed_blocks(&self) -> usize {
        self.routed
    }

    /// Token rows through all layers: the residual stream and its int8 form for the head lie in the workspace
    /// afterwards.
    pub(crate) fn forward(&mut self, device: &Device, pass: &Pass<'_>, memory: &mut RankMemory<'_>) -> CudaResult<()> {
        self.begin(device, pass, memory)?;
        self.go_on(device, pass, memory)
    }

    /// The first layers of [`Network::forward`], then the others.
    pub(crate) fn begin(&mut self, device: &Device, pass: &Pass<'_>, memory: &mut RankMemory<'_>) -> CudaResult<()> {
        self.embed(device, pass, memory)?;
        self.layers(0..FIRST_BLOCKS.min(self.blocks.len()), device, pass, memory)
    }

    /// Enqueues the layers of [`Network::forward`] behind those of [`Network::begin`].
    pub(crate) fn go_on(&mut self, device: &Device, pass: &Pass<'_>, memory: &mut RankMemory<'_>) -> CudaResult<()> {
        let all = self.blocks.len();
        self.layers(FIRST_BLOCKS.min(all)..all, device, pass, memory)
    }

    fn layers(
        &mut self,
        blocks: Range<usize>,
        device: &Device,
        pass: &Pass<'_>,
        memory: &mut RankMemory<'_>,
    ) -> CudaResult<()> {
        let (hidden, eps) = (self.hidden, self.eps);
        for i in blocks {
            let block = &self.blocks[i];
            let next = match self.blocks.get(i + 1) {
                Some(next) => next.op.reader(&next.norm, pass.rows),
                None => NextBlock { norm: &self.norm, matrix: &self.head, halves: None },
            };
            let (beside, norm, place) = (&self.beside, &block.norm, block.place);
            let adapters = self.adapters.as_ref().filter(|_| pass.adapted).map(|all| all.block(i, &pass.slots));
            let at = BlockPass { device, beside, pass, norm, next, adapters, place, hidden, eps };
            block.op.launch(&mut self.kernels[block.shape], at, memory)?;
        }
        Ok(())
    }

    fn embed(&self, device: &Device, pass: &Pass<'_>, memory: &mut RankMemory<'_>) -> CudaResult<()> {
        let RankMemory { store, work } = memory;
        let bytes = self.embedding.bytes();
        let table = Table { address: bytes.device_ptr(device.stream()).0, bytes: bytes.len() };
        let rows = TokenRows {
            count: pass.rows.count,
            tokens: &pass.tokens,
            sampled: &store.sampled.as_view(),
            slots: &pass.slots,
            positions: &pass.positions,
            prompt_lens: &pass.prompt_lens,
        };
        let (mut x, mut folded) = (work.stream.x.as_view_mut(), work.stream.rows.write());
        let weight = self.blocks.first().map_or(&self.norm, |first| &first.norm).as_view();
        // SAFETY: the table lives as long as the network; slots were checked against the store when the step was
        // planned.
        Ok(unsafe {
            let history = Some(&mut store.counts.as_view_mut());
            self.embed.launch(device, table, rows, self.embedding_scale, &weight, history, &mut x, folded.out())
        }?)
    }

    /// Logits of all rows of a decode pass, into the first rows of logits.
    pub(crate) fn decode_head(&self, device: &Device, rows: usize, work: &mut Workspace) -> CudaResult<()> {
        self.logits(device, rows, (&self.head_product, &self.head, self.vocab), work)
    }

    /// Logits of the pass's rows by a head with `ids` outputs, into the first rows of logits.
    pub(crate) fn logits(
        &self,
        device: &Device,
        rows: usize,
        (product, head, ids): (&Product, &Matrix, usize),
        work: &mut Workspace,
    ) -> CudaResult<()> {
        let folded = work.stream.rows.read(self.eps);
        let out = Output::Plain { values: &mut work.logits.as_view_mut(), stride: ids };
        let rows = RowCount { count: rows, prefill: false };
        let columns = Columns::First(rows.count);
        // SAFETY: the columns are not listed.
        unsafe { product.launch(device, rows, head, &folded.source(), columns, out) }
    }

    /// What a prefill that has just been enqueued leaves, and the final norm.
    pub(crate) fn hidden_rows<'a>(&'a self, work: &'a Workspace) -> HiddenRows<'a> {
        let (x, squares) = (work.stream.x.as_view(), work.stream.rows.squares());
        HiddenRows { x, squares, weight: self.norm.as_view(), eps: self.eps }
    }

    /// Brings the int8 form of the listed rows together, for [`Network::head`].
    pub(crate) fn gather(
        &self,
        device: &Device,
        rows: usize,
        list: &CudaSlice<i32>,
        work: &mut Workspace,
    ) -> CudaResult<()> {
        let (from, mut to) = (work.stream.rows.read(self.eps), work.last.write());
        // SAFETY: the list names rows of the prefill that has just been enqueued.
        Ok(unsafe { self.gather.launch(device, rows, &list.as_view(), from.folded(), to.out()) }?)
    }

    /// Logits of the gathered rows, into rows of logits from `first` on.
    pub(crate) fn head(&self, device: &Device, rows: usize, first: usize, work: &mut Workspace) -> CudaResult<()> {
        let folded = work.last.read(self.eps);
        let values = &mut work.logits.slice_mut(first * self.vocab..);
        let out = Output::Plain { values, stride: self.vocab };
        // The head has no prompts of its own: these rows are as few as those of a decode pass.
        let rows = RowCount { count: rows, prefill: false };
        let columns = Columns::First(rows.count);
        // SAFETY: the columns are not listed.
        unsafe { self.head_product.launch(device, rows, &self.head, &folded.source(), columns, out) }
    }
}

impl BlockPlace {
    /// That of the block after one of this operator.
    fn after(self, op: OpQuery<'_>, kv: KvType) -> Self {
        let memory = op.memory(kv, 0);
        Self {
            recurrent: self.recurrent + usize::from(memory.is_recurrent()),
            cached: self.cached + usize::from(memory.is_cached()),
            routed: self.routed + usize::from(op.widths().used > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_no_launch_replays_is_refused_by_name() {
        assert!(check_replay(16, 16).is_ok());
        let error = |most, rows| check_replay(most, rows).unwrap_err().to_string();
        assert_eq!(
            error(8, 16),
            "the batch of a replayed trace of experts is 16 rows, the GPU's kernels need at most 8 rows, those of one \
             launch of all experts on this chip"
        );
        assert!(error(0, 1).contains("which this chip or model does not have"));
    }
}
