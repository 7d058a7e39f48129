//! The forward pass of one step, as every thread of the team runs it: a fixed sequence of phases with a barrier after
//! each.

use crate::backend::Progress;
use crate::backend::cpu::blocks::BlockThread;
use crate::backend::cpu::network::weights::CpuModel;
use crate::backend::cpu::network::workspace::WorkspaceViews;
use crate::backend::cpu::pass::forward::Pass;
use crate::backend::cpu::pass::probe::Recorder;
use crate::backend::cpu::team::pool::Team;
use crate::format::blocks::decode_row;

/// What all threads of a pass through the model see.
pub(crate) struct ModelPass<'a> {
    /// What its blocks see.
    pub(crate) pass: Pass<'a>,
    pub(crate) model: &'a CpuModel,
    pub(crate) ws: &'a WorkspaceViews<'a>,
    pub(crate) recorder: &'a Recorder,
    /// Advanced after each block.
    pub(crate) progress: &'a Progress,
}

impl ModelPass<'_> {
    /// All layers; leaves the residual stream of every row in the workspace.
    pub(crate) fn layers(&self, team: Team) {
        self.embed(team);
        for (i, block) in self.model.blocks.iter().enumerate() {
            let at = BlockThread { pass: &self.pass, team, norm: &block.norm, scale: block.scale, block: i };
            block.op.run(&self.ws.steps[block.shape], at);
            team.wait();
            if team.index == 0 {
                self.progress.advance();
            }
            self.record(team, i);
        }
    }

    /// Embeddings, and what else a row needs once. The next phase divides rows in the same way, so no barrier follows.
    fn embed(&self, team: Team) {
        let hidden = self.model.config.hidden;
        for row in team.share(self.pass.batch.rows()) {
            // SAFETY: the row is in this thread's share.
            let x = unsafe { self.pass.stream.x.get_mut(row * hidden..(row + 1) * hidden) };
            self.embed_row(row, x);
            self.ws.steps.iter().for_each(|step| step.begin(row, self.pass.batch.positions[row]));
            self.recorder.perturb(self.pass.batch, row, x);
        }
    }

    /// The embedding of a row's token.
    pub(crate) fn embed_row(&self, row: usize, x: &mut [f32]) {
        let table = &self.model.embed;
        let token = self.pass.batch.tokens[row] as usize;
        decode_row(table.ty, table.row(0, token), x);
        if table.scale.is_some() {
            let scale = table.row_scale(0, token);
            x.iter_mut().for_each(|x| *x *= scale);
        }
        if self.model.config.embedding_scale != 1.0 {
            x.iter_mut().for_each(|x| *x *= self.model.config.embedding_scale);
        }
    }

    fn record(&self, team: Team, place: usize) {
        if team.index == 0 {
            // SAFETY: the stream was finished before the last barrier, and changes two barriers later, which this
            // thread is part of.
            self.recorder.hidden(place, || unsafe {
                self.pass.stream.x.get(0..self.pass.batch.rows() * self.model.config.hidden)
            });
        }
    }
}
