//! The forward pass of one step, as every thread of the team runs it: a fixed sequence of phases with a barrier after each.
//!
//! In a phase a thread writes the outputs that are its share (rows, or tiles of 16 output features, or heads of a sequence) and
//! reads what earlier phases wrote. Nothing is summed across threads, so their number never shows in a result.

use super::attention::{self, Angles, AttentionIo, AttentionJob, AttentionScratch, PAGE};
use super::batch::{AttentionPart, Batch, BatchPiece};
use super::gdn::{GdnJob, GdnScratch, GdnSink};
use super::gemm::Element;
use super::matmul::{OutView, PackedMatrix, RowForm, RowsView, TILE_ROWS, matmul};
use super::moe::{ExpertCount, MoeScratch};
use super::norm::norm_row;
use super::pool::Team;
use super::probe::Recorder;
use super::rowops::add;
use super::sampler::SamplerScratch;
use super::shared::Shared;
use super::simd::run;
use super::store::{Kv, Store};
use super::weights::{Attention, CpuModel, Ffn, Gdn, Mixer};
use super::workspace::Views;
use crate::format::blocks::decode_row;
use crate::model::GdnConfig;
use std::marker::PhantomData;
use std::ops::Range;

/// What all threads of a step see.
pub(super) struct Pass<'a> {
    pub(super) model: &'a CpuModel,
    pub(super) batch: &'a Batch,
    pub(super) store: &'a Store,
    pub(super) ws: Views<'a>,
    /// Value heads by key head.
    pub(super) heads: &'a [usize],
    pub(super) recorder: &'a Recorder,
    pub(super) experts: &'a ExpertCount,
}

/// What one thread keeps to itself.
pub(super) struct ThreadScratch {
    gdn: GdnScratch,
    attention: AttentionScratch,
    pub(super) moe: MoeScratch,
    pub(super) sampler: SamplerScratch,
}

impl ThreadScratch {
    pub(super) fn new(model: &CpuModel) -> Self {
        Self {
            gdn: GdnScratch::new(&model.config.gdn),
            attention: AttentionScratch::new(&model.config.attention),
            moe: MoeScratch::default(),
            sampler: SamplerScratch::default(),
        }
    }
}

impl Pass<'_> {
    /// All layers; leaves the residual stream of every row in the workspace.
    pub(super) fn layers(&self, team: Team, scratch: &mut ThreadScratch) {
        self.embed(team);
        let (mut gdn_layer, mut attention_layer) = (0, 0);
        for (i, layer) in self.model.layers.iter().enumerate() {
            match &layer.mixer {
                Mixer::Gdn(gdn) => {
                    self.norm(team, &layer.input_norm, read_q8(&gdn.inputs));
                    self.gdn(team, gdn, gdn_layer, scratch);
                    gdn_layer += 1;
                }
                Mixer::Attention(attention) => {
                    self.norm(team, &layer.input_norm, read_q8(&attention.inputs));
                    self.attention(team, attention, attention_layer, scratch);
                    attention_layer += 1;
                }
            }
            team.wait();
            self.record(team, 2 * i);
            match &layer.ffn {
                Ffn::Dense(swiglu) => self.dense(team, swiglu, &layer.post_norm),
                Ffn::Moe(moe) => self.moe(team, moe, &layer.post_norm, &mut scratch.moe),
            }
            team.wait();
            self.record(team, 2 * i + 1);
        }
    }

    /// Embeddings and rotation angles. The next phase divides rows in the same way, so no barrier follows.
    fn embed(&self, team: Team) {
        let (hidden, half) = (self.model.config.hidden, self.model.config.attention.rotary_dim / 2);
        let table = &self.model.embed;
        for row in team.share(self.batch.rows()) {
            let p = self.ws.plain;
            // SAFETY: the row is in this thread's share.
            let (x, cos, sin) = unsafe {
                let angles = row * half..(row + 1) * half;
                (p.x.get_mut(row * hidden..(row + 1) * hidden), p.cos.get_mut(angles.clone()), p.sin.get_mut(angles))
            };
            decode_row(table.ty, table.row(0, self.batch.tokens[row] as usize), x);
            if let Some(scale) = &table.scale {
                x.iter_mut().for_each(|x| *x *= scale[0]);
            }
            attention::angles(&self.model.config.attention, self.batch.positions[row], cos, sin);
            self.recorder.perturb(self.batch, row, x);
        }
    }

    /// The input of the next matrices: every row normed, and in int8 too if one of them reads that.
    pub(super) fn norm(&self, team: Team, w: &[f32], q8: bool) {
        for row in team.share(self.batch.rows()) {
            self.norm_row(row, w, q8);
        }
        team.wait();
    }

    /// [`Pass::norm`] of one row, which is in this thread's share.
    pub(super) fn norm_row(&self, row: usize, w: &[f32], q8: bool) {
        let hidden = self.model.config.hidden;
        // SAFETY: the residual stream was finished before the last barrier; the normed row is this thread's.
        unsafe {
            let x = self.ws.plain.x.get(row * hidden..(row + 1) * hidden);
            norm_row(x, w, self.model.config.rms_eps, self.ws.normed.row_mut(row));
            if q8 {
                self.ws.normed.quantize(row..row + 1);
            }
        }
    }

    /// This thread's share of the products of all rows with some matrices that read the same input.
    fn project<const N: usize>(&self, team: Team, inputs: &[PackedMatrix; N], outs: [&Shared<f32>; N]) {
        let items = inputs.each_ref().map(|m| (m.tiles(), m.cols() as u64));
        team.share_costs(&items, |i, tiles| {
            matmul(&inputs[i], self.ws.normed, &self.batch.pairs, tiles, self.out(outs[i], self.batch.rows(), inputs[i].rows()));
        });
    }

    /// A mixer's output matrix, added to the residual stream.
    fn mix(&self, team: Team, w: &PackedMatrix, x: RowsView<'_>) {
        let tiles = team.share(w.tiles());
        let (hidden, rows, plain) = (w.rows(), self.batch.rows(), self.ws.plain);
        matmul(w, x, &self.batch.pairs, tiles.clone(), self.out(&plain.down, rows, hidden));
        let cols = columns(&tiles, hidden);
        for row in 0..rows {
            let part = row * hidden + cols.start..row * hidden + cols.end;
            // SAFETY: these columns are this thread's in both buffers.
            unsafe { add(plain.x.get_mut(part.clone()), plain.down.get(part)) };
        }
    }

    /// A buffer as `rows` rows of `cols`, for a product whose tiles the team has divided.
    pub(super) fn out<'b>(&self, buffer: &'b Shared<f32>, rows: usize, cols: usize) -> OutView<'b> {
        // SAFETY: `part` checks the bounds. Each thread writes its own tiles, and nobody reads before the next barrier.
        unsafe { OutView::new(buffer.part(0..rows * cols), rows, cols, cols) }
    }

    fn gdn(&self, team: Team, layer: &Gdn, index: usize, scratch: &mut ThreadScratch) {
        let p = self.ws.plain;
        self.project(team, &layer.inputs, [&p.qkv, &p.z, &p.b, &p.a]);
        team.wait();
        let q8 = layer.out.input() == RowForm::Q8;
        team.share_costs(&self.batch.gdn_costs, |job, _| self.gdn_job(layer, index, job, q8, &mut scratch.gdn));
        team.wait();
        self.mix(team, &layer.out, self.ws.gdn_out);
        for piece in team.share(self.batch.pieces.len()) {
            self.keep_tail(&layer.params.config, index, &self.batch.pieces[piece]);
        }
    }

    fn gdn_job(&self, layer: &Gdn, index: usize, job: usize, q8: bool, scratch: &mut GdnScratch) {
        let (part, c, p) = (&self.batch.gdn_jobs[job], &layer.params.config, self.ws.plain);
        let piece = &self.batch.pieces[part.piece];
        let value_heads = &self.heads[part.heads.clone()];
        let rows = |width: usize| piece.first_row * width..(piece.first_row + piece.rows) * width;
        let sink = Sink { store: self.store, out: self.ws.gdn_out, config: c, piece, layer: index };
        // SAFETY: projections were finished before the last barrier, and tails change only after the next one.
        let (qkv, z, b, a, tail) = unsafe {
            (
                p.qkv.get(rows(c.channels())),
                p.z.get(rows(c.value_heads * c.value_dim)),
                p.b.get(rows(c.value_heads)),
                p.a.get(rows(c.value_heads)),
                self.store.tails.get(self.store.shape.tail_at(piece.slot, index)),
            )
        };
        let (form, start, rows, key_head) = (piece.form, piece.start, piece.rows, part.key_head);
        run(GdnJob { params: &layer.params, form, start, rows, key_head, value_heads, qkv, tail, z, b, a, scratch, sink });
        for row in (piece.first_row..piece.first_row + piece.rows).filter(|_| q8) {
            for h in value_heads {
                // SAFETY: the head's columns are this job's alone.
                unsafe { self.ws.gdn_out.quantize_part(row, h * c.value_dim..(h + 1) * c.value_dim) };
            }
        }
    }

    /// Keeps the last convolution inputs of a piece for the next one.
    fn keep_tail(&self, c: &GdnConfig, index: usize, piece: &BatchPiece) {
        let (channels, rows) = (c.channels(), piece.rows);
        // SAFETY: the jobs that read the tail are behind a barrier, and this piece is this thread's share.
        let (tail, qkv) = unsafe {
            (
                self.store.tails.get_mut(self.store.shape.tail_at(piece.slot, index)),
                self.ws.plain.qkv.get(piece.first_row * channels..(piece.first_row + rows) * channels),
            )
        };
        let kept = tail.len() / channels;
        let new = rows.min(kept);
        tail.copy_within(new * channels.., 0);
        tail[(kept - new) * channels..].copy_from_slice(&qkv[(rows - new) * channels..]);
    }

    fn attention(&self, team: Team, layer: &Attention, index: usize, scratch: &mut ThreadScratch) {
        let p = self.ws.plain;
        self.project(team, &layer.inputs, [&p.qg, &p.k, &p.v]);
        team.wait();
        match &self.store.kv {
            Kv::F32(kv) => self.attend(team, layer, index, kv, scratch),
            Kv::F16(kv) => self.attend(team, layer, index, kv, scratch),
        }
        team.wait();
        self.mix(team, &layer.out, self.ws.attention_out);
    }

    fn attend<E: Element>(&self, team: Team, layer: &Attention, index: usize, kv: &Shared<E>, scratch: &mut ThreadScratch) {
        let kv_heads = self.model.config.attention.kv_heads;
        for unit in team.share(self.batch.rows() * kv_heads) {
            self.rotate_and_store(layer, index, kv, unit / kv_heads, unit % kv_heads);
        }
        team.wait();
        let q8 = layer.out.input() == RowForm::Q8;
        team.share_costs(&self.batch.attention_costs, |job, _| {
            self.attention_job(index, kv, &self.batch.attention_jobs[job], q8, &mut scratch.attention);
        });
    }

    /// Norm and rotation of one row's queries of a key/value head's group, and its key and value into the cache.
    fn rotate_and_store<E: Element>(&self, layer: &Attention, index: usize, kv: &Shared<E>, row: usize, kv_head: usize) {
        let (c, p) = (&self.model.config.attention, self.ws.plain);
        let (dim, half, group) = (c.head_dim, c.rotary_dim / 2, c.heads / c.kv_heads);
        let piece = self.batch.piece_of(row);
        let position = self.batch.positions[row] as usize;
        let (page, place) = (piece.pages[position / PAGE], position % PAGE);
        // SAFETY: row and head are this thread's share of this phase, in the projections and in the cache; angles are old.
        unsafe {
            let angles = Angles { cos: p.cos.get(row * half..(row + 1) * half), sin: p.sin.get(row * half..(row + 1) * half) };
            for head in kv_head * group..(kv_head + 1) * group {
                let at = (row * c.heads + head) * 2 * dim;
                attention::norm_and_rotate(p.qg.get_mut(at..at + dim), &layer.q_norm, self.model.config.rms_eps, angles);
            }
            let at = (row * c.kv_heads + kv_head) * dim;
            let key = p.k.get_mut(at..at + dim);
            attention::norm_and_rotate(key, &layer.k_norm, self.model.config.rms_eps, angles);
            let keys = kv.part(self.store.shape.keys_at(page, index, kv_head));
            key.iter().enumerate().for_each(|(d, k)| keys.add(d * PAGE + place).write(E::from_f32(*k)));
            let values = kv.part(self.store.shape.values_at(page, index, kv_head));
            p.v.get(at..at + dim).iter().enumerate().for_each(|(d, v)| values.add(place * dim + d).write(E::from_f32(*v)));
        }
    }

    fn attention_job<E: Element>(
        &self,
        index: usize,
        kv: &Shared<E>,
        part: &AttentionPart,
        q8: bool,
        scratch: &mut AttentionScratch,
    ) {
        let config = &self.model.config.attention;
        let piece = &self.batch.pieces[part.piece];
        let first = piece.first_row + part.row;
        let width = config.heads * 2 * config.head_dim;
        // SAFETY: the rows were finished before the last barrier.
        let qg = unsafe { self.ws.plain.qg.get(first * width..(first + part.rows) * width) };
        let cache =
            Cache { kv, store: self.store, piece, layer: index, kv_head: part.kv_head, out: self.ws.attention_out, first, config };
        run(AttentionJob {
            config,
            start: piece.start + part.row,
            rows: part.rows,
            first_head: part.first_head,
            heads: part.heads,
            qg,
            cache,
            scratch,
            element: PhantomData::<E>,
        });
        let cols = part.first_head * config.head_dim..(part.first_head + part.heads) * config.head_dim;
        for row in (first..first + part.rows).filter(|_| q8) {
            // SAFETY: these heads of these rows are this job's alone.
            unsafe { self.ws.attention_out.quantize_part(row, cols.clone()) };
        }
    }

    fn record(&self, team: Team, place: usize) {
        if team.index == 0 {
            // SAFETY: the stream was finished before the last barrier, and changes two barriers later, which this thread is part of.
            self.recorder.hidden(place, || unsafe { self.ws.plain.x.get(0..self.batch.rows() * self.model.config.hidden) });
        }
    }
}

fn read_q8(readers: &[PackedMatrix]) -> bool {
    readers.iter().any(|m| m.input() == RowForm::Q8)
}

/// The columns of some tiles.
pub(super) fn columns(tiles: &Range<usize>, width: usize) -> Range<usize> {
    (tiles.start * TILE_ROWS).min(width)..(tiles.end * TILE_ROWS).min(width)
}

/// States and outputs of one piece in one layer.
#[derive(Clone, Copy)]
struct Sink<'a> {
    store: &'a Store,
    out: RowsView<'a>,
    config: &'a GdnConfig,
    piece: &'a BatchPiece,
    layer: usize,
}

// SAFETY: a plan has one piece a slot, and one job has each value head of a piece.
unsafe impl<'a> GdnSink<'a> for Sink<'a> {
    fn state(self, h: usize) -> &'a mut [f32] {
        let all = self.store.shape.state_at(self.piece.slot, self.layer);
        let len = all.len() / self.config.value_heads;
        // SAFETY: as above.
        unsafe { self.store.states.get_mut(all.start + h * len..all.start + (h + 1) * len) }
    }

    fn out(self, row: usize, h: usize) -> &'a mut [f32] {
        let dim = self.config.value_dim;
        // SAFETY: as above.
        unsafe { self.out.part_mut(self.piece.first_row + row, h * dim..(h + 1) * dim) }
    }
}

/// The cache of one sequence in one layer and head.
struct Cache<'a, E> {
    kv: &'a Shared<E>,
    store: &'a Store,
    piece: &'a BatchPiece,
    layer: usize,
    kv_head: usize,
    out: RowsView<'a>,
    first: usize,
    config: &'a crate::model::AttentionConfig,
}

// SAFETY: pages are written in the phase before; rows and heads are divided among jobs.
unsafe impl<E: Element> AttentionIo<E> for Cache<'_, E> {
    fn keys(&self, n: usize) -> &[E] {
        // SAFETY: as above.
        unsafe { self.kv.get(self.store.shape.keys_at(self.piece.pages[n], self.layer, self.kv_head)) }
    }

    fn values(&self, n: usize) -> &[E] {
        // SAFETY: as above.
        unsafe { self.kv.get(self.store.shape.values_at(self.piece.pages[n], self.layer, self.kv_head)) }
    }

    fn out(&self, row: usize, head: usize) -> &mut [f32] {
        let dim = self.config.head_dim;
        // SAFETY: as above.
        unsafe { self.out.part_mut(self.first + row, head * dim..(head + 1) * dim) }
    }
}
