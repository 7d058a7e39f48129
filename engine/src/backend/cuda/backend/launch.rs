//! The launch of a step: copies and clears, prompts, decode graphs, the head, the sampler, and the results' way back.

use super::{CudaBackend, UnsampledStep};
use crate::backend::cuda::draft_head::ModelRank;
use crate::backend::cuda::error::{CudaBackendError, CudaResult, During};
use crate::backend::cuda::layout::shape::{PassShape, bucket};
use crate::backend::cuda::rank::experts::{ExpertTier, PassKind};
use crate::backend::cuda::rank::memory::RankMemory;
use crate::backend::cuda::rank::pass::{Pass, PromptPieces};
use crate::backend::cuda::rank::staging::{Staging, stage};
use crate::backend::cuda::step::host::HostCopies;
use crate::backend::cuda::step::leader::Leader;
use crate::backend::cuda::step::rows::{self, PassRoom, PieceRows, Row, StepRows, columns};
use crate::backend::cuda::step::sampling::{InFlight, WantedOutputs};
use crate::constraint::Constraint;
use crate::ids::SlotId;
use crate::step::{Piece, StateCopy, StateStart, StepPlan};
use chimere_kernels::cuda::attention::{TileChip, tiles};
use chimere_kernels::cuda::gdn_prefill::chunks_max;

impl CudaBackend {
    /// The first kernels of a decode pass with drafts.
    pub(super) fn enqueue_first(&mut self, PassShape { rows, drafts, adapted }: PassShape) -> CudaResult<()> {
        if !drafts {
            return Ok(());
        }
        let pass = Pass::decode(rows, &self.decode_rows, drafts).adapted(adapted);
        let memory = &mut RankMemory { store: &mut self.store, work: &mut self.work };
        self.network.begin(&self.device, &pass, memory)
    }

    /// Kernels of a decode pass, but for the first of one with drafts, up to its rows' logits.
    pub(super) fn enqueue_decode(&mut self, PassShape { rows, drafts, adapted }: PassShape) -> CudaResult<()> {
        let Self { device, network, store, work, draft_model, decode_rows, .. } = self;
        let pass = Pass::decode(rows, decode_rows, drafts).adapted(adapted);
        match drafts {
            true => network.go_on(device, &pass, &mut RankMemory { store, work })?,
            false => network.forward(device, &pass, &mut RankMemory { store, work })?,
        }
        network.decode_head(device, rows, work)?;
        if let Some(model) = draft_model {
            let rank = &mut ModelRank { device, network, memory: RankMemory { store, work } };
            match drafts {
                true => model.observe(rank, &pass)?,
                false => model.keep(rank, &pass)?,
            }
        }
        self.note_experts(PassKind::Decode, rows)
    }

    /// Enqueues that the experts are noted that a pass of `rows` rows has read.
    fn note_experts(&mut self, pass: PassKind, rows: usize) -> CudaResult<()> {
        let used = self.network.used();
        let Some(experts) = &mut self.experts else { return Ok(()) };
        experts.note(&self.device, pass, &self.work.experts, (rows * used, self.counts.rows() * used))
    }

    /// Copies, clears, page tables, forward. The logits of the wanted rows lie in the workspace afterwards, in stream
    /// order.
    pub(super) fn enqueue(&mut self, plan: &StepPlan) -> CudaResult<UnsampledStep> {
        let staging = match self.ring.take() {
            Some(staging) => staging,
            None => {
                return Err(CudaBackendError::Unsupported {
                    what: "the number of steps in flight",
                    got: "more than 3".into(),
                    need: "at most 2 that nobody has waited for".into(),
                });
            }
        };
        let stream = self.device.stream().clone();
        staging.begin.record(&stream).during("marking a step")?;
        if let Some(experts) = &mut self.experts {
            experts.begin(&self.device, &staging)?;
        }
        self.prepare(plan, &staging)?;
        if let Some(adapters) = &mut self.network.adapters {
            adapters.begin(&self.device, plan, &staging)?;
        }
        if let Some(host) = &mut self.host {
            host.grow();
        }
        self.stored.begin(plan);
        self.draft_model.iter_mut().for_each(|model| model.begin(plan));
        let leader = self.leader.take();
        let room = PassRoom { rows: self.counts.decode, drafts: self.counts.drafts };
        let rows = StepRows::of(plan, room, &mut self.stored, leader.as_ref())?;
        self.stored.prompts_were_computed(rows.pieces.iter().map(PieceRows::end));
        let mut wanted = WantedOutputs::default();
        let prompts = rows.sampled_prefill();
        self.decode(&rows.before, &staging)?;
        if !rows.prefill.is_empty() {
            self.prefill(&rows, &prompts, &staging, &mut wanted)?;
        }
        if let (Some(given), Some(to)) = (self.given.take(), &mut self.work.given) {
            stage(&self.device, &staging, to, 0, &given)?;
        }
        let decoded = match &leader {
            Some(leader) if !rows.behind.is_empty() => self.follow(&rows, leader, &staging)?,
            _ => self.decode(&rows.passes, &staging)?,
        };
        let asking = plan.pieces.iter().filter(|piece| piece.guesses > 0);
        self.backfill(asking.map(|piece| piece.slot), &staging)?;
        if !prompts.is_empty() {
            self.network.head(&self.device, prompts.len(), decoded, &mut self.work)?;
        }
        wanted.expert_rows = (rows.cut_rows * self.network.routed_blocks()) as u64;
        wanted.place(rows, &prompts, decoded);
        if let Some(experts) = &mut self.experts {
            experts.end(&stream)?;
        }
        staging.forward.record(&stream).during("marking a step")?;
        Ok(UnsampledStep { id: plan.id, staging, wanted })
    }

    fn prepare(&mut self, plan: &StepPlan, staging: &Staging) -> CudaResult<()> {
        for copy in &plan.copies {
            match copy {
                StateCopy::Slot { from, to } => self.store.copy_slot(&self.device, from.0 as usize, to.0 as usize)?,
                StateCopy::Page { from, to } => self.store.copy_page(&self.device, from.0 as usize, to.0 as usize)?,
            }
        }
        // A load of this plan may take the place of a checkpoint that a piece reads before, or bring what one reads.
        let planned = |piece: &&Piece| plan.transfers.iter().any(|transfer| piece.state.load() == Some(transfer.id));
        let (late, now): (Vec<_>, Vec<_>) = plan.pieces.iter().partition(planned);
        if let Some(host) = &self.host {
            host.wait_for(&now, self.device.stream())?;
        }
        self.begin_pieces(&now, staging)?;
        if let Some(host) = &mut self.host {
            host.begin(plan, &mut self.store, self.device.stream())?;
            host.wait_for(&late, self.device.stream())?;
        }
        self.begin_pieces(&late, staging)
    }

    /// What slots hold before their pieces' rows, and page tables.
    fn begin_pieces(&mut self, pieces: &[&Piece], staging: &Staging) -> CudaResult<()> {
        for piece in pieces {
            let slot = piece.slot.0 as usize;
            match &piece.state {
                StateStart::Clear => self.store.clear_slot(&self.device, slot)?,
                StateStart::Continue => {}
                StateStart::Restore { from, prompt, .. } => {
                    self.store.restore(&self.device, *from, slot)?;
                    let tokens = &prompt[..piece.start as usize];
                    self.history.note(&self.device, tokens, slot, &mut self.store, staging)?;
                }
            }
            if let Some((at, pages)) = self.store.table_change(piece.slot.0 as usize, &piece.pages) {
                stage(&self.device, staging, &mut self.store.table, at, &pages)?;
            }
        }
        Ok(())
    }

    /// Prompt rows through all layers; scores on the way, and the rows to sample gathered for the head.
    fn prefill(
        &mut self,
        rows: &StepRows,
        prompts: &[i32],
        staging: &Staging,
        wanted: &mut WantedOutputs,
    ) -> CudaResult<()> {
        self.backfill(rows.pieces.iter().map(PieceRows::slot), staging)?;
        let n = rows.prefill.len();
        stage(&self.device, staging, &mut self.prefill_rows, 0, &columns(&rows.prefill, n))?;
        let pieces: Vec<i32> = rows.pieces.iter().flat_map(|p| [p.slot, p.start, p.first_row, p.rows]).collect();
        stage(&self.device, staging, &mut self.pieces, 0, &pieces)?;
        let lengths: Vec<usize> = rows.pieces.iter().map(|p| p.rows as usize).collect();
        let chip = TileChip::of(&self.device);
        let tiles = self.tiled.map_or_else(Vec::new, |shape| tiles(shape, chip, &lengths));
        stage(&self.device, staging, &mut self.tiles, 0, tiles.as_flattened())?;
        let exports = self.stage_exports(rows, staging)?;
        let exports = exports.then(|| self.exports.as_view());
        let (list, tiled, counts) = (self.pieces.as_view(), self.tiles.as_view(), (rows.pieces.len(), tiles.len()));
        let prompts_of = PromptPieces { exports: exports.as_ref(), ..PromptPieces::new(&list, &tiled, counts) };
        let adapted = self.adapted(rows.pieces.iter().map(PieceRows::slot));
        let pass = Pass::prompts(n, &self.prefill_rows, prompts_of).adapted(adapted);
        self.last_rows = n;
        let memory = &mut RankMemory { store: &mut self.store, work: &mut self.work };
        self.network.forward(&self.device, &pass, memory)?;
        self.note_experts(PassKind::Prompts, n)?;
        self.pooling.launch(&self.device, &rows.pooled, self.network.hidden_rows(&self.work), staging)?;
        for scores in rows.scores.chunks(self.counts.logits) {
            let at: Vec<i32> = scores.iter().map(|s| s.row as i32).collect();
            self.gather(&at, staging)?;
            self.network.head(&self.device, at.len(), 0, &mut self.work)?;
            self.sampling.score(&self.device, scores, &self.work.logits, &mut self.store, staging, wanted)?;
        }
        self.gather(prompts, staging)?;
        let (list, tiled) = (self.pieces.as_view(), self.tiles.as_view());
        let pass = Pass::prompts(n, &self.prefill_rows, PromptPieces::new(&list, &tiled, counts));
        let Self { device, network, store, work, draft_model: Some(model), .. } = self else { return Ok(()) };
        model.observe(&mut ModelRank { device, network, memory: RankMemory { store, work } }, &pass)
    }

    /// Sends where states are kept on the way, if any are.
    fn stage_exports(&mut self, rows: &StepRows, staging: &Staging) -> CudaResult<bool> {
        if rows.exports.is_empty() {
            return Ok(false);
        }
        let mut places = vec![-1; chunks_max(rows.prefill.len(), rows.pieces.len())];
        for (chunk, checkpoint) in &rows.exports {
            places[*chunk] = self.store.place_of(*checkpoint) as i32;
        }
        stage(&self.device, staging, &mut self.exports, 0, &places)?;
        Ok(true)
    }

    /// Brings some prefill rows together, ready for the head.
    fn gather(&mut self, rows: &[i32], staging: &Staging) -> CudaResult<()> {
        if rows.is_empty() {
            return Ok(());
        }
        stage(&self.device, staging, &mut self.wanted, 0, rows)?;
        self.network.gather(&self.device, rows.len(), &self.wanted, &mut self.work)
    }

    /// Decode passes; returns the rows of logits that the last one left.
    fn decode(&mut self, passes: &[Vec<Row>], staging: &Staging) -> CudaResult<usize> {
        let mut decoded = 0;
        for pass in passes {
            if self.draft_model.as_ref().is_some_and(|model| model.is_due(pass)) {
                self.backfill(pass.iter().map(Row::slot), staging)?;
            }
            decoded = bucket(pass.len());
            stage(&self.device, staging, &mut self.decode_rows, 0, &columns(pass, decoded))?;
            let adapted = self.adapted(pass.iter().map(Row::slot));
            let shape = PassShape { rows: decoded, drafts: rows::takes_drafts(pass), adapted };
            self.launch_pass(shape)?;
            if let (Some(model), false) = (&mut self.draft_model, shape.drafts) {
                model.defer(pass);
            }
        }
        Ok(decoded)
    }

    /// A decode pass that follows the step before, whose outcome the device alone knows; returns the rows of logits
    /// that it left.
    fn follow(&mut self, rows: &StepRows, leader: &Leader, staging: &Staging) -> CudaResult<usize> {
        let (Some(model), Some(pass)) = (&mut self.draft_model, rows.passes.last()) else { return Ok(0) };
        let (count, what) = (bucket(pass.len()), (&pass[..], &rows.behind[..], leader));
        model.follow(&self.device, staging, what, &mut self.decode_rows, &mut self.sampling)?;
        let adapted = self.adapted(pass.iter().map(Row::slot));
        self.launch_pass(PassShape { rows: count, drafts: true, adapted })?;
        Ok(count)
    }

    /// Whether a sequence in these slots has an adapter.
    fn adapted(&self, slots: impl Iterator<Item = SlotId>) -> bool {
        self.network.adapters.as_ref().is_some_and(|adapters| adapters.any(slots))
    }

    fn launch_pass(&mut self, shape: PassShape) -> CudaResult<()> {
        if shape.drafts {
            self.first_graphs.launch(shape)?;
        }
        self.graphs.launch(shape)?;
        self.last_rows = shape.rows;
        Ok(())
    }

    /// Has the draft model read what waits of these slots.
    fn backfill(&mut self, mut slots: impl Iterator<Item = SlotId>, staging: &Staging) -> CudaResult<()> {
        let Self { device, network, store, work, draft_model: Some(model), .. } = self else { return Ok(()) };
        let rank = &mut ModelRank { device, network, memory: RankMemory { store, work } };
        model.backfill(rank, &mut slots, staging, (&mut self.prefill_rows, self.counts.prefill))
    }

    /// The sampler, and the way back of its results.
    pub(super) fn sample(&mut self, step: UnsampledStep, constraints: &[Constraint]) -> CudaResult<InFlight> {
        let UnsampledStep { id, staging, mut wanted } = step;
        // Between kernels a copy takes the device longer than either: none stands between the samples and the guesses.
        if let Some(model) = &mut self.draft_model {
            model.ask(&self.device, &staging, &wanted.asked(), &self.sampling)?;
        }
        self.sampling.sample(&self.device, &self.work, &mut self.store, constraints, &staging, &mut wanted)?;
        staging.sampled.record(self.device.stream()).during("marking a step")?;
        if let Some(model) = &mut self.draft_model {
            let proposed = model.propose(&self.device, &self.decode_rows, &self.sampling, &staging, &mut wanted)?;
            self.leader = proposed.or(self.leader.take());
        }
        self.sampling.fetch(&self.device, &staging, &mut wanted)?;
        staging.end.record(self.device.stream()).during("marking a step")?;
        let experts = self.experts.as_ref().map(ExpertTier::counts);
        let device = self.device.clone();
        Ok(InFlight::new((device, id), staging, wanted, (self.host.as_ref().map(HostCopies::watch), experts)))
    }
}
