//! The model's draft head on the device: a layer that guesses, from the hidden state of a position and the token behind
//! it, which token comes after that. The CPU's page (`cpu/draft_head`) says what is computed.
//!
//! Rows of prompts and of passes with drafts leave the layer's keys and values behind their pass: the head's input,
//! its first product, in-projections, and a launch that writes them. All others leave their hidden state and token
//! alone, one launch, and are read together later (`backfill.rs`), so that whoever asks for no guesses pays next to
//! nothing. The hidden states of a slot's last positions stay in the store, so that rows behind a step find the one
//! before them, however many drafts were accepted. The whole layer is computed for guesses alone: a kernel finds
//! behind which row of the step a sequence goes on, the sampler draws each guess as it would draw the output, and the
//! next pass reads it on the device; all passes of a step are one graph, or few. With a shortlist the model's head is
//! multiplied with by the rows of its ids alone, and the sampler's tokens are places in the list. Unlike on the CPU
//! position 0 is attended to, and behind a checkpoint the hidden state before it is taken for zeros: guesses are a
//! little other ones then.

use super::backfill::LateRows;
use super::guessing::Guessing;
use super::layer::{HeadLayer, ShortlistHead, rows_of};
use super::{DraftModel, ModelRank};
use crate::backend::cuda::error::{CudaResult, During};
use crate::backend::cuda::layout::draft_head::{GRAPH_PASSES, shortlist};
use crate::backend::cuda::layout::shape::{GuessShape, bucket, buckets};
use crate::backend::cuda::layout::weights::Draft;
use crate::backend::cuda::network::{BlockLoader, Network};
use crate::backend::cuda::rank::graphs::Graphs;
use crate::backend::cuda::rank::pass::Pass;
use crate::backend::cuda::rank::staging::{Staging, stage};
use crate::backend::cuda::rank::weights::Matrix;
use crate::backend::cuda::step::leader::{AskedAt, Leader};
use crate::backend::cuda::step::rows::{Row, columns};
use crate::backend::cuda::step::sampling::{Sampling, WantedOutputs};
use crate::ids::SlotId;
use crate::model::{BlockConfig, Model};
use crate::step::StepPlan;
use chimere_kernels::cuda::Device;
use chimere_kernels::cuda::draft_head::{BEHIND_WORDS, Behind};
use cudarc::driver::CudaSlice;

/// A draft head of one layer, with the graphs of its passes and the rows that it has not read.
pub(super) struct MtpHead {
    layer: HeadLayer,
    guessing: Guessing,
    /// Passes of guesses, several with their samplers in one.
    graphs: Graphs<GuessShape>,
    late: LateRows,
}

impl MtpHead {
    /// Loads its kernels and takes its memory; `blocks` are the head's among those of the model.
    pub(super) fn new(
        loader: &mut BlockLoader<'_>,
        network: &Network,
        model: &Model,
        blocks: &[BlockConfig],
        mut weights: Draft<Matrix, CudaSlice<f32>>,
    ) -> CudaResult<Self> {
        let own = std::mem::take(&mut weights.blocks).into_iter().zip(blocks);
        let own = own.map(|(block, of)| loader.bind(of, block)).collect::<Result<_, _>>()?;
        let rows = weights.listed.take();
        let listed = shortlist(model).map(|list| ShortlistHead::new(&mut loader.products, &network.head, list, rows));
        let (table, counts) = (loader.table, loader.setting.counts);
        let layer = HeadLayer::new(&mut loader.products, weights, own, (table, counts), listed.transpose()?)?;
        let guessing = Guessing::new(loader.products.device, loader.products.cache, model, counts)?;
        let late = LateRows::new(counts.slots as u32);
        Ok(Self { layer, guessing, graphs: Graphs::default(), late })
    }

    /// Kernels of passes of guesses with their samplers, and between two of what the next one reads.
    fn enqueue(&mut self, rank: &mut ModelRank<'_>, GuessShape { rows, passes }: GuessShape) -> CudaResult<()> {
        let Self { layer, guessing, .. } = self;
        for nth in 0..passes {
            if nth > 0 {
                layer.next_guesses(rank.device, None, guessing, (rows, nth - 1))?;
            }
            layer.guess(rank, &Pass::guesses(rows, guessing.room, &guessing.rows))?;
            guessing.draw(rank.device, (&mut *rank.memory.work, &mut *rank.memory.store), (rows, nth))?;
        }
        Ok(())
    }
}

impl DraftModel for MtpHead {
    fn capture(&mut self, rank: &mut ModelRank<'_>, slots: usize) -> CudaResult<()> {
        for rows in buckets(slots) {
            self.enqueue(rank, GuessShape { rows, passes: GRAPH_PASSES })?;
            rank.device.stream().synchronize().during("running the kernels for the first time")?;
            for passes in 1..=GRAPH_PASSES {
                let (shape, device) = (GuessShape { rows, passes }, rank.device);
                let mut graphs = std::mem::take(&mut self.graphs);
                let captured = graphs.capture(device, shape, || self.enqueue(rank, shape));
                self.graphs = graphs;
                captured?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, plan: &StepPlan) {
        self.late.begin(plan);
    }

    fn observe(&mut self, rank: &mut ModelRank<'_>, pass: &Pass<'_>) -> CudaResult<()> {
        self.layer.remember(rank, pass)
    }

    fn keep(&self, rank: &mut ModelRank<'_>, pass: &Pass<'_>) -> CudaResult<()> {
        self.layer.keep_rows(rank, pass)
    }

    fn defer(&mut self, rows: &[Row]) {
        self.late.wait(rows);
    }

    fn is_due(&self, rows: &[Row]) -> bool {
        self.late.is_due(rows)
    }

    fn backfill(
        &mut self,
        rank: &mut ModelRank<'_>,
        slots: &mut dyn Iterator<Item = SlotId>,
        staging: &Staging,
        (words, rows_max): (&mut CudaSlice<i32>, usize),
    ) -> CudaResult<()> {
        for rows in self.late.take(slots).chunks(rows_max) {
            stage(rank.device, staging, words, 0, &columns(rows, rows.len()))?;
            self.layer.remember_late(rank, &Pass::late(rows.len(), words))?;
        }
        Ok(())
    }

    fn ask(&mut self, device: &Device, staging: &Staging, asked: &[AskedAt], sampling: &Sampling) -> CudaResult<()> {
        self.guessing.ask(device, staging, asked, sampling)
    }

    fn propose(
        &mut self,
        device: &Device,
        decode_rows: &CudaSlice<i32>,
        sampling: &Sampling,
        staging: &Staging,
        wanted: &mut WantedOutputs,
    ) -> CudaResult<Option<Leader>> {
        let (asked, passes) = wanted.guesses();
        if asked.is_empty() {
            return Ok(None);
        }
        let Self { layer, guessing, graphs, .. } = self;
        let rows = bucket(asked.len());
        let settled = wanted.will_guess(GuessShape { rows, passes }, guessing.listed_ids());
        let (mut done, mut last) = (0, 0);
        while done < passes {
            // Behind a prompt alone no row of it is looked up.
            let step = Pass::decode(wanted.decoded.max(1), decode_rows, false);
            let (results, ahead) = sampling.results();
            let (rows_of_step, ahead) = (rows_of(&step), wanted.follows.then_some(&ahead));
            let behind = (done == 0).then_some(Behind { results: &results, rows: rows_of_step, ahead });
            layer.next_guesses(device, behind, guessing, (rows, last))?;
            let shape = GuessShape { rows, passes: (passes - done).min(GRAPH_PASSES) };
            graphs.launch(shape)?;
            guessing.fetch(device, staging, shape, done)?;
            (done, last) = (done + shape.passes, shape.passes - 1);
        }
        // There the guesses of all passes lie one behind another; nobody takes the place before the next step is done.
        let guessed = staging.guesses_address();
        Ok(Some(Leader { asked, guessed, guess_rows: rows, settled }))
    }

    fn follow(
        &mut self,
        device: &Device,
        staging: &Staging,
        (pass, behind, leader): (&[Row], &[i32], &Leader),
        decode_rows: &mut CudaSlice<i32>,
        sampling: &mut Sampling,
    ) -> CudaResult<()> {
        let Self { layer, guessing, .. } = self;
        let count = bucket(pass.len());
        stage(device, staging, &mut guessing.planned, 0, &columns(pass, count))?;
        let mut behind = behind.to_vec();
        behind.resize(BEHIND_WORDS * count, -1);
        stage(device, staging, &mut guessing.behind, 0, &behind)?;
        layer.follow(device, guessing, (count, leader), decode_rows, sampling)
    }
}
