//! The draft head between two steps: the hidden states that it reads later, and its guesses.

use crate::backend::cpu::backend::CpuBackend;
use crate::backend::cpu::draft_head::guess_row::GuessRow;
use crate::backend::cpu::draft_head::pass::HeadPass;
use crate::backend::cpu::draft_head::row_of;
use crate::backend::cpu::network::forward::ModelPass;
use crate::backend::cpu::pass::batch::{HeadPiece, RowBatch};
use crate::backend::cpu::pass::experts::ExpertCount;
use crate::backend::cpu::pass::forward::Pass;
use crate::backend::cpu::pass::probe::{Probe, Recorder};
use crate::backend::cpu::pass::routes::Routes;
use crate::backend::cpu::sampler::SamplerScratch;
use crate::backend::cpu::step::head::{GuessRequest, HeadOutputs};
use crate::backend::cpu::store::head::{HeadSlot, LATE_KEPT, LATE_MAX};
use crate::backend::cpu::team::pool::Team;
use crate::ids::TokenId;
use std::sync::Mutex;

impl CpuBackend {
    /// Keeps what the head reads next of each sequence. After the samples of a step are accepted.
    pub(super) fn keep_for_head(&mut self, outputs: &HeadOutputs) {
        let (Some(head), hidden) = (&self.draft_head, self.model.config.hidden) else { return };
        let store = &mut self.store;
        // SAFETY: no step runs while `self` is borrowed mutably.
        let last = |row| unsafe { head.buffers.finals.get(row_of(row, hidden)) };
        for piece in &outputs.pieces {
            let (slot, rows) = (piece.slot, piece.certain + store.slots[piece.slot].unfolded);
            match &piece.late {
                // SAFETY: as above.
                Some(tokens) => (0..rows).for_each(|i| unsafe {
                    let before = match i {
                        0 => store.hidden.get(row_of(slot, hidden)),
                        _ => last(piece.first_row + i - 1),
                    };
                    let (waits, position) = (&mut store.slots[slot].head, piece.start + i);
                    if waits.end != position {
                        // Benchmarks begin anywhere.
                        waits.read_at_once(position);
                    }
                    let all = store.late.get_mut(row_of(slot, LATE_MAX * hidden));
                    if waits.late.len() == LATE_MAX {
                        all.copy_within((LATE_MAX - LATE_KEPT) * hidden.., 0);
                        waits.late.drain(..LATE_MAX - LATE_KEPT);
                        waits.from = position - LATE_KEPT;
                    }
                    all[row_of(waits.late.len(), hidden)].copy_from_slice(before);
                    waits.late.push(tokens[i]);
                    waits.end = position + 1;
                }),
                None => store.slots[slot].head.read_at_once(piece.start),
            }
            // SAFETY: as above.
            unsafe { store.hidden.get_mut(row_of(slot, hidden)).copy_from_slice(last(piece.first_row + rows - 1)) };
        }
        for (row, place) in &outputs.exports {
            // SAFETY: as above.
            unsafe { store.hidden.get_mut(row_of(*place, hidden)).copy_from_slice(last(*row)) };
        }
    }

    /// Has the head read the rows that wait of the sequences whose pieces ask for guesses.
    pub(super) fn read_late(&mut self, requests: &[GuessRequest]) {
        let late = |request: &GuessRequest| self.store.slots[request.slot].head.late.len();
        // Each row's request, and its place among the rows of that request.
        let rows: Vec<_> =
            requests.iter().enumerate().flat_map(|(at, request)| (0..late(request)).map(move |i| (at, i))).collect();
        for rows in rows.chunks(self.info.step_rows_max as usize) {
            let pieces = rows.chunk_by(|a, b| a.0 == b.0).map(|rows| {
                let (GuessRequest { slot, pages, row, .. }, first) = (&requests[rows[0].0], rows[0].1);
                let HeadSlot { from, late, end } = &self.store.slots[*slot].head;
                let (start, tokens) = (end - late.len() + first, &late[first..first + rows.len()]);
                HeadPiece { seq: row.seq, slot: *slot, start, from: *from, tokens, pages }
            });
            let batch = RowBatch::of_head(pieces);
            let places: Vec<_> = rows.iter().map(|(at, i)| requests[*at].slot * LATE_MAX + i).collect();
            self.head_pass(&batch, |pass, team, _| pass.read_late(team, &places));
        }
        requests.iter().for_each(|request| self.store.slots[request.slot].head.late.clear());
    }

    /// Guesses behind the samples that were accepted, for each piece that asks.
    pub(super) fn guess(&mut self, requests: &[GuessRequest]) -> Vec<Vec<TokenId>> {
        let mut all = vec![Vec::new(); requests.len()];
        let (Some(head), hidden) = (&self.draft_head, self.model.config.hidden) else { return all };
        for (place, request) in requests.iter().enumerate() {
            // SAFETY: no step runs while `self` is borrowed mutably.
            unsafe {
                let from = self.store.hidden.get(row_of(request.slot, hidden));
                head.buffers.carried.get_mut(row_of(place, hidden)).copy_from_slice(from);
            }
        }
        let context = self.info.context as usize;
        loop {
            let slots = &self.store.slots;
            let next = requests.iter().zip(&all).enumerate().filter_map(|(place, (request, before))| {
                GuessRow::of((place, request), &slots[request.slot], before, context)
            });
            let rows: Vec<_> = next.collect();
            if rows.is_empty() {
                return all;
            }
            for (place, token) in self.guess_pass(&rows) {
                all[place].push(token);
            }
        }
    }

    /// One more guess for each row, with the row's place among all requests.
    fn guess_pass(&mut self, rows: &[GuessRow<'_>]) -> Vec<(usize, TokenId)> {
        let (batch, found) = (RowBatch::of_head(rows.iter().map(GuessRow::piece)), Mutex::default());
        self.head_pass(&batch, |pass, team, scratch| pass.guess(team, scratch, rows, &found));
        if self.probe.record {
            // SAFETY: no step runs any more.
            let logits = unsafe { self.workspace.logits.get(0..rows.len() * self.model.config.vocab) };
            self.recording.guesses.extend_from_slice(logits);
        }
        found.into_inner().expect("no thread panicked")
    }

    /// A pass of the head over some rows.
    fn head_pass(&mut self, batch: &RowBatch, work: impl Fn(HeadPass<'_>, Team, &mut SamplerScratch) + Sync) {
        let Some(head) = &mut self.draft_head else { return };
        let (recorder, experts, routes) = (Recorder::new(Probe::default()), ExpertCount::default(), Routes::default());
        let ws = &self.workspace.views(batch, self.pool.threads());
        let (weights, views) = head.views(batch.rows(), self.model.config.hidden);
        let (model, store, progress) = (&self.model, &self.store, &self.progress);
        let (stream, experts, routes) = (ws.stream, &experts, &routes);
        let pass = Pass { config: &model.config, batch, store, stream, experts, routes };
        let network = &ModelPass { pass, model, ws, recorder: &recorder, progress };
        self.pool.run(|team| {
            let scratch = &mut *self.scratch[team.index].lock().expect("no thread panicked before");
            work(HeadPass { network, weights, views }, team, scratch);
        });
        self.progress.advance();
    }
}
