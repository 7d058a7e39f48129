//! Passes of the draft head, as every thread of the team runs them.

use crate::backend::cpu::blocks::BlockThread;
use crate::backend::cpu::draft_head::buffers::HeadViews;
use crate::backend::cpu::draft_head::guess_row::GuessRow;
use crate::backend::cpu::draft_head::row_of;
use crate::backend::cpu::draft_head::weights::PackedDraftHead;
use crate::backend::cpu::matmul::{RowForm, matmul};
use crate::backend::cpu::network::forward::ModelPass;
use crate::backend::cpu::sampler::{self, SamplerScratch};
use crate::backend::cpu::simd::norm::norm_row;
use crate::backend::cpu::step::head::HeadOutputs;
use crate::backend::cpu::team::pool::Team;
use crate::constraint::Constraint;
use crate::ids::TokenId;
use std::sync::Mutex;

/// What all threads of a pass of the draft head see.
#[derive(Clone, Copy)]
pub(crate) struct HeadPass<'a> {
    /// The rows as the model sees them; the head shares its buffers.
    pub(crate) network: &'a ModelPass<'a>,
    pub(crate) weights: &'a PackedDraftHead,
    pub(crate) views: HeadViews<'a>,
}

impl HeadPass<'_> {
    /// Leaves each row's hidden state in the workspace and, where a piece is read at once, the head's keys and values
    /// of all rows. Begins behind the last look at the residual stream, which is used up.
    pub(crate) fn read(&self, team: Team, outputs: &HeadOutputs) {
        let ModelPass { pass, model, .. } = self.network;
        let c = &model.config;
        for row in team.share(pass.batch.rows()) {
            // SAFETY: the row is in this thread's share; the stream is finished.
            unsafe {
                let x = pass.stream.x.get(row_of(row, c.hidden));
                norm_row(x, &model.norm, c.rms_eps, self.views.finals.get_mut(row_of(row, c.hidden)));
            }
        }
        if outputs.pieces.iter().all(|piece| piece.late.is_some()) {
            return;
        }
        team.wait();
        self.read_rows(team, |row| {
            let piece = pass.batch.piece_of(row);
            // SAFETY: what came before was finished before the barrier, or before the step.
            unsafe {
                match row == piece.first_row {
                    false => self.views.finals.get(row_of(row - 1, c.hidden)),
                    true => pass.store.hidden.get(row_of(piece.slot, c.hidden)),
                }
            }
        });
    }

    /// Leaves the head's keys and values of rows that waited, each with its place among the hidden states that wait.
    pub(crate) fn read_late(&self, team: Team, places: &[usize]) {
        let ModelPass { pass, ws, .. } = self.network;
        for row in team.share(places.len()) {
            ws.steps.iter().for_each(|step| step.begin(row, pass.batch.positions[row]));
        }
        // SAFETY: they were written before the pass.
        let before = |row: usize| unsafe { pass.store.late.get(row_of(places[row], pass.config.hidden)) };
        self.read_rows(team, before);
    }

    /// The head's keys and values of all rows, of which `before` knows the hidden states before them.
    fn read_rows<'b>(&'b self, team: Team, before: impl Fn(usize) -> &'b [f32]) {
        for row in team.share(self.network.pass.batch.rows()) {
            self.input(row, before(row));
        }
        team.wait();
        self.stream(team);
        let block = &self.weights.blocks[0];
        block.op.remember(&self.network.ws.steps[block.shape], self.block(team, 0));
        team.wait();
    }

    /// A thread at a block of the head.
    fn block<'a>(&'a self, team: Team<'a>, nth: usize) -> BlockThread<'a> {
        let (block, before) = (&self.weights.blocks[nth], self.network.model.blocks.len());
        BlockThread { pass: &self.network.pass, team, norm: &block.norm, scale: block.scale, block: before + nth }
    }

    /// Both halves of a row's input; the row is in this thread's share.
    fn input(&self, row: usize, before: &[f32]) {
        let (ModelPass { pass, model, .. }, head, input) = (self.network, self.weights, self.views.input);
        let c = &model.config;
        // SAFETY: the row is this thread's in both buffers, and nobody reads them before the next barrier.
        unsafe {
            let embedded = pass.stream.made.get_mut(row_of(row, c.hidden));
            self.network.embed_row(row, embedded);
            let (first, second) = input.row_mut(row).split_at_mut(c.hidden);
            norm_row(embedded, &head.embed_norm, c.rms_eps, first);
            norm_row(before, &head.hidden_norm, c.rms_eps, second);
            if head.fc.input() == RowForm::Q8 {
                input.quantize(row..row + 1);
            }
        }
    }

    /// The residual stream of the head's layer. Ends with a barrier.
    fn stream(&self, team: Team) {
        let (pass, fc) = (&self.network.pass, &self.weights.fc);
        let tiles = team.share(fc.tiles());
        // SAFETY: the tiles are this thread's share.
        let out = unsafe { pass.out(pass.stream.x, pass.batch.rows(), pass.config.hidden) };
        matmul(fc, self.views.input, &pass.batch.pairs, tiles, out);
        team.wait();
    }

    /// One guess for each row, into `found` with the row's place among all requests.
    pub(crate) fn guess(
        &self,
        team: Team,
        scratch: &mut SamplerScratch,
        rows: &[GuessRow<'_>],
        found: &Mutex<Vec<(usize, TokenId)>>,
    ) {
        self.guess_layer(team, rows);
        let network = self.network;
        let every: Vec<_> = (0..rows.len()).collect();
        network.logits_of(team, self.weights.tiles(network.whole_head()), &every, &self.weights.norm);
        let (hidden, vocab) = (network.model.config.hidden, network.model.config.vocab);
        // Of few rows the first threads have them, as of samples.
        for i in team.reversed().share(rows.len()) {
            let row = &rows[i];
            // SAFETY: what was normed and the logits were finished before the last barrier; place and row are this
            // thread's.
            let logits = unsafe {
                self.views.carried.get_mut(row_of(row.place, hidden)).copy_from_slice(network.ws.last.row(i));
                network.ws.logits.get_mut(i * vocab..(i + 1) * vocab)
            };
            self.weights.spread(logits);
            let free = Constraint::default();
            let token = sampler::sample(logits, &row.sample, &row.history, &free, scratch).token;
            found.lock().expect("no thread panics while it reports").push((row.place, token));
        }
    }

    /// The head's whole layer for rows that guess. Ends with a barrier.
    fn guess_layer(&self, team: Team, rows: &[GuessRow<'_>]) {
        let ModelPass { pass, ws, .. } = self.network;
        for row in team.share(rows.len()) {
            ws.steps.iter().for_each(|step| step.begin(row, pass.batch.positions[row]));
            // SAFETY: it was written behind the last barrier.
            let before = unsafe { self.views.carried.get(row_of(rows[row].place, pass.config.hidden)) };
            self.input(row, before);
        }
        team.wait();
        self.stream(team);
        for (nth, block) in self.weights.blocks.iter().enumerate() {
            block.op.run(&ws.steps[block.shape], self.block(team, nth));
            team.wait();
        }
    }
}
