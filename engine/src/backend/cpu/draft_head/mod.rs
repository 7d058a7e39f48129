//! The model's draft head: a layer of its own that guesses, from what the model made of the last position and from the
//! token behind it, which token comes after that (multi-token prediction).
//!
//! The layer reads the token at a position and the hidden state, after the final norm, of the position before:
//! `x = fc [norm(embedding); norm(hidden)]`. Its keys and values, which follow from `x` alone, lie at the token's
//! position of the sequence's pages, so what a prefix's pages hold depends on the prefix. A prompt's rows leave them at
//! once; those of decode rows wait, as hidden states, until a guess is asked for, and of many that wait only the last
//! are read: from the gap on the head attends to what is behind it, as it does behind position 0, which has nothing
//! before it. The whole layer is computed only for guesses, a row a sequence and pass: the guess is what the sampler of
//! its output would choose, and the next pass reads it, and the layer's own output after its last norm. Nothing here
//! shows in a sample.

use crate::backend::cpu::CpuBackend;
use crate::backend::cpu::blocks::{Block, BlockThread, ExpertCount, Op, PAGE, Packing, Step};
use crate::backend::cpu::matmul::{ActivationRows, PackedMatrix, RowForm, RowsView, TILE_ROWS, matmul};
use crate::backend::cpu::network::forward::{Pass, ThreadScratch};
use crate::backend::cpu::network::logits::HeadRows;
use crate::backend::cpu::network::weights::packed_blocks;
use crate::backend::cpu::network::workspace::WorkspaceRoom;
use crate::backend::cpu::pass::batch::Batch;
use crate::backend::cpu::pass::probe::{Probe, Recorder};
use crate::backend::cpu::pass::routes::Routes;
use crate::backend::cpu::sampler;
use crate::backend::cpu::sampler::history::History;
use crate::backend::cpu::simd::norm::norm_row;
use crate::backend::cpu::step::outputs::Outputs;
use crate::backend::cpu::team::pool::Team;
use crate::backend::cpu::team::shared::Shared;
use crate::constraint::Constraint;
use crate::format::NotFinite;
use crate::ids::{SeqId, TokenId};
use crate::model::{DraftHeadWeights, Model, ModelConfig, OpConfig, Shortlist, StateShape};
use crate::sampling::SamplingParams;
use crate::step::SampleRow;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The head's weights as this backend multiplies with them.
pub(crate) struct DraftHead {
    embed_norm: Vec<f32>,
    hidden_norm: Vec<f32>,
    /// `[hidden, 2 * hidden]`.
    fc: PackedMatrix,
    /// Attention first.
    blocks: Vec<Block>,
    norm: Vec<f32>,
    /// What is guessed among, if that is not all, and its rows of the model's head where these are not the first.
    shortlist: Option<(Shortlist, Option<PackedMatrix>)>,
}

/// Whether this backend computes such a draft head: attention, and then what looks at one row alone.
pub(crate) fn is_computed(model: &ModelConfig) -> bool {
    model.draft.split_first().is_some_and(|(first, rest)| {
        let alone = rest.iter().all(|block| block.op.state() == StateShape::default());
        matches!(first.op, OpConfig::Attention(_)) && alone
    })
}

impl DraftHead {
    /// Packs it, for a model whose configuration says that it is computed.
    pub(crate) fn pack(model: &Model, w: &DraftHeadWeights, exact: bool) -> Result<Self, NotFinite> {
        let packing = Packing { exact, eps: model.config.rms_eps };
        let blocks = packed_blocks(&model.config, model.config.draft.iter().zip(&w.layer), packing)?;
        let rows = w.shortlist.as_ref().and_then(Shortlist::rows).map(|rows| PackedMatrix::pack(rows, 0, exact));
        let rows = rows.transpose()?;
        Ok(Self {
            embed_norm: w.embed_norm.clone(),
            hidden_norm: w.hidden_norm.clone(),
            fc: PackedMatrix::pack(&w.fc, 0, exact)?,
            blocks,
            norm: w.norm.clone(),
            shortlist: w.shortlist.clone().map(|list| (list, rows)),
        })
    }

    /// Bytes of [`DraftHead::matrices`] before they are packed.
    pub(crate) fn planned_bytes(w: &DraftHeadWeights, exact: bool) -> u64 {
        let blocks = w.layer.iter().map(|block| Op::planned_bytes(&block.op, exact)).sum::<u64>();
        let listed = w.shortlist.as_ref().and_then(Shortlist::rows);
        let listed = listed.map_or(0, |rows| PackedMatrix::planned_bytes(rows, exact));
        blocks + PackedMatrix::planned_bytes(&w.fc, exact) + listed
    }

    /// The packed matrices.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = &PackedMatrix> {
        let listed = self.shortlist.iter().filter_map(|(_, rows)| rows.as_ref());
        self.blocks.iter().flat_map(|block| block.op.matrices()).chain([&self.fc]).chain(listed)
    }

    /// The rows of the model's head that guesses take.
    fn rows<'a>(&'a self, whole: HeadRows<'a>) -> HeadRows<'a> {
        match &self.shortlist {
            None => whole,
            Some((list, own)) => {
                HeadRows { matrix: own.as_ref().unwrap_or(whole.matrix), tiles: list.len() / TILE_ROWS }
            }
        }
    }

    /// Brings the logits of listed ids, which stand first, to the ids' places; all others are never drawn.
    fn spread(&self, logits: &mut [f32]) {
        let Some((list, _)) = &self.shortlist else { return };
        let mut end = logits.len();
        // From behind: an id is never below its place in the list.
        for place in (0..list.len()).rev() {
            let id = list.ids().map_or(place, |ids| ids[place] as usize);
            logits[id] = logits[place];
            logits[id + 1..end].fill(f32::NEG_INFINITY);
            end = id;
        }
        logits[..end].fill(f32::NEG_INFINITY);
    }
}

/// What its rows are computed in, beside the buffers of its blocks' shapes.
pub(crate) struct Buffers {
    /// Both halves of the input, `[rows, 2 * hidden]`.
    input: ActivationRows,
    /// Of a step's rows after the final norm, `[rows, hidden]`.
    finals: Shared<f32>,
    /// What each guessing sequence's next pass reads, `[sequences, hidden]`.
    carried: Shared<f32>,
}

/// The buffers in a step.
#[derive(Clone, Copy)]
pub(crate) struct Views<'a> {
    input: RowsView<'a>,
    finals: &'a Shared<f32>,
    carried: &'a Shared<f32>,
}

impl Buffers {
    /// For up to so many guessing sequences.
    pub(crate) fn new(room: &mut WorkspaceRoom, sequences: usize) -> Self {
        let hidden = room.hidden();
        Self {
            input: room.activations(1, 2 * hidden),
            finals: room.floats(hidden),
            carried: room.plain(sequences * hidden),
        }
    }

    /// At the size of a step.
    pub(crate) fn views(&mut self, rows: usize, hidden: usize) -> Views<'_> {
        self.input.set_len(rows, 2 * hidden);
        Views { input: self.input.view(), finals: &self.finals, carried: &self.carried }
    }
}

/// Rows of a slot that wait to be read at most.
pub(crate) const LATE_MAX: usize = 64;
/// So many of them stay where there are more.
const LATE_KEPT: usize = 32;

/// What the head has read of a slot.
#[derive(Clone, Debug)]
pub(crate) struct HeadSlot {
    /// From this position on it has read all but those that wait.
    pub(crate) from: usize,
    /// Tokens of the last positions, which wait. The store keeps the hidden states before each of them (`Store::late`).
    pub(crate) late: Vec<TokenId>,
    /// The position behind the last of these.
    pub(crate) end: usize,
}

impl Default for HeadSlot {
    fn default() -> Self {
        Self { from: 1, late: Vec::new(), end: 0 }
    }
}

/// Consecutive rows of a slot.
pub(crate) struct HeadPiece<'a> {
    pub(crate) seq: SeqId,
    pub(crate) slot: usize,
    pub(crate) start: usize,
    /// The first position that they attend to.
    pub(crate) from: usize,
    pub(crate) tokens: &'a [TokenId],
    pub(crate) pages: &'a [usize],
}

/// The rows of a piece.
pub(crate) struct Read {
    pub(crate) slot: usize,
    pub(crate) first_row: usize,
    /// Rows that count whatever is sampled.
    pub(crate) certain: usize,
    pub(crate) start: usize,
    /// Of rows that are read late.
    pub(crate) late: Option<Vec<TokenId>>,
}

/// What a step's pieces leave for the head.
#[derive(Default)]
pub(crate) struct HeadOutputs {
    pub(crate) pieces: Vec<Read>,
    /// Rows behind which the state is kept, and where, as if it were a slot.
    pub(crate) exports: Vec<(usize, usize)>,
    pub(crate) asked: Vec<Asked>,
}

/// A piece that asks for guesses.
pub(crate) struct Asked {
    pub(crate) slot: usize,
    pub(crate) pages: Vec<usize>,
    /// Position of its last row that counts whatever is sampled.
    pub(crate) position: u32,
    /// How that row is sampled.
    pub(crate) row: SampleRow,
    pub(crate) guesses: u32,
    /// Ids behind which nothing is guessed.
    pub(crate) ends: Arc<[TokenId]>,
}

/// One row of a pass.
pub(crate) struct GuessRow<'a> {
    asked: &'a Asked,
    /// Place among all that ask.
    place: usize,
    token: [TokenId; 1],
    position: usize,
    from: usize,
    sample: SampleRow,
    history: History,
}

impl GuessRow<'_> {
    fn piece(&self) -> HeadPiece<'_> {
        let GuessRow { asked, token, position, from, sample, .. } = self;
        HeadPiece {
            seq: sample.seq,
            slot: asked.slot,
            start: *position,
            from: *from,
            tokens: token,
            pages: &asked.pages,
        }
    }
}

fn row_of(row: usize, hidden: usize) -> Range<usize> {
    row * hidden..(row + 1) * hidden
}

impl Pass<'_> {
    /// Leaves each row's hidden state in the workspace and, where a piece is read at once, the head's keys and values of
    /// all rows. Begins behind the last look at the residual stream, which is used up.
    pub(crate) fn read(&self, team: Team, outputs: &Outputs) {
        let (Some(head), Some(ws)) = (&self.model.draft_head, self.ws.head) else { return };
        let c = &self.model.config;
        for row in team.share(self.batch.rows()) {
            // SAFETY: the row is in this thread's share; the stream is finished.
            unsafe {
                let x = self.ws.plain.x.get(row_of(row, c.hidden));
                norm_row(x, &self.model.norm, c.rms_eps, ws.finals.get_mut(row_of(row, c.hidden)));
            }
        }
        if outputs.head.pieces.iter().all(|piece| piece.late.is_some()) {
            return;
        }
        team.wait();
        self.read_rows(team, head, ws, |row| {
            let piece = self.batch.piece_of(row);
            // SAFETY: what came before was finished before the barrier, or before the step.
            unsafe {
                match row == piece.first_row {
                    false => ws.finals.get(row_of(row - 1, c.hidden)),
                    true => self.store.hidden.get(row_of(piece.slot, c.hidden)),
                }
            }
        });
    }

    /// The same of rows that waited, each with its place among the hidden states that wait.
    fn read_late(&self, team: Team, places: &[usize]) {
        let (Some(head), Some(ws)) = (&self.model.draft_head, self.ws.head) else { return };
        for row in team.share(places.len()) {
            self.steps.iter().for_each(|step| step.begin(row, self.batch.positions[row]));
        }
        // SAFETY: they were written before the pass.
        let before = |row: usize| unsafe { self.store.late.get(row_of(places[row], self.model.config.hidden)) };
        self.read_rows(team, head, ws, before);
    }

    /// The head's keys and values of all rows, of which `before` knows the hidden states before them.
    fn read_rows<'b>(&'b self, team: Team, head: &DraftHead, ws: Views<'_>, before: impl Fn(usize) -> &'b [f32]) {
        for row in team.share(self.batch.rows()) {
            self.head_input(head, ws, row, before(row));
        }
        team.wait();
        self.head_stream(head, ws, team);
        let block = &head.blocks[0];
        match (&block.op, &self.steps[block.shape]) {
            (Op::Attention(attention), Step::Attention(step)) => {
                attention.remember(step, self.head_block(team, head, 0))
            }
            _ => unreachable!("the first block of a draft head that is computed is attention"),
        }
        team.wait();
    }

    /// A thread at a block of the head.
    fn head_block<'a>(&'a self, team: Team<'a>, head: &'a DraftHead, nth: usize) -> BlockThread<'a> {
        let block = &head.blocks[nth];
        BlockThread { pass: self, team, norm: &block.norm, scale: block.scale, block: self.model.blocks.len() + nth }
    }

    /// Both halves of a row's input; the row is in this thread's share.
    fn head_input(&self, head: &DraftHead, ws: Views<'_>, row: usize, before: &[f32]) {
        let c = &self.model.config;
        // SAFETY: the row is this thread's in both buffers, and nobody reads them before the next barrier.
        unsafe {
            let embedded = self.ws.plain.made.get_mut(row_of(row, c.hidden));
            self.embed_row(row, embedded);
            let (first, second) = ws.input.row_mut(row).split_at_mut(c.hidden);
            norm_row(embedded, &head.embed_norm, c.rms_eps, first);
            norm_row(before, &head.hidden_norm, c.rms_eps, second);
            if head.fc.input() == RowForm::Q8 {
                ws.input.quantize(row..row + 1);
            }
        }
    }

    /// The residual stream of the head's layer. Ends with a barrier.
    fn head_stream(&self, head: &DraftHead, ws: Views<'_>, team: Team) {
        let (rows, hidden) = (self.batch.rows(), self.model.config.hidden);
        let tiles = team.share(head.fc.tiles());
        // SAFETY: the tiles are this thread's share.
        let out = unsafe { self.out(&self.ws.plain.x, rows, hidden) };
        matmul(&head.fc, ws.input, &self.batch.pairs, tiles, out);
        team.wait();
    }

    /// One guess for each row.
    fn guess(
        &self,
        team: Team,
        scratch: &mut ThreadScratch,
        rows: &[GuessRow<'_>],
        found: &Mutex<Vec<(usize, TokenId)>>,
    ) {
        let (Some(head), Some(ws)) = (&self.model.draft_head, self.ws.head) else { return };
        let (hidden, vocab) = (self.model.config.hidden, self.model.config.vocab);
        for row in team.share(rows.len()) {
            self.steps.iter().for_each(|step| step.begin(row, self.batch.positions[row]));
            // SAFETY: it was written behind the last barrier.
            let before = unsafe { ws.carried.get(row_of(rows[row].place, hidden)) };
            self.head_input(head, ws, row, before);
        }
        team.wait();
        self.head_stream(head, ws, team);
        for (nth, block) in head.blocks.iter().enumerate() {
            block.op.run(&self.steps[block.shape], self.head_block(team, head, nth));
            team.wait();
        }
        let every: Vec<_> = (0..rows.len()).collect();
        self.logits_of(team, head.rows(self.whole_head()), &every, &head.norm);
        // Of few rows the first threads have them, as of samples.
        for i in team.reversed().share(rows.len()) {
            let row = &rows[i];
            // SAFETY: what was normed and the logits were finished before the last barrier; place and row are this
            // thread's.
            let logits = unsafe {
                ws.carried.get_mut(row_of(row.place, hidden)).copy_from_slice(self.ws.last.row(i));
                self.ws.plain.logits.get_mut(i * vocab..(i + 1) * vocab)
            };
            head.spread(logits);
            let free = Constraint::default();
            let token = sampler::sample(logits, &row.sample, &row.history, &free, &mut scratch.sampler).token;
            found.lock().expect("no thread panics while it reports").push((row.place, token));
        }
    }
}

impl CpuBackend {
    /// Keeps what the head reads next of each sequence. After the samples of a step are accepted.
    pub(crate) fn keep_for_head(&mut self, outputs: &Outputs) {
        let (Some(head), hidden) = (&self.workspace.head, self.model.config.hidden) else { return };
        let store = &mut self.store;
        // SAFETY: no step runs while `self` is borrowed mutably.
        let last = |row| unsafe { head.finals.get(row_of(row, hidden)) };
        for piece in &outputs.head.pieces {
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
        for (row, place) in &outputs.head.exports {
            // SAFETY: as above.
            unsafe { store.hidden.get_mut(row_of(*place, hidden)).copy_from_slice(last(*row)) };
        }
    }

    /// Has the head read what waits of those who ask.
    pub(crate) fn read_late(&mut self, outputs: &Outputs) {
        // Of each row the piece, and its place in it.
        let asked = &outputs.head.asked;
        let late = |asked: &Asked| self.store.slots[asked.slot].head.late.len();
        let rows: Vec<_> =
            asked.iter().enumerate().flat_map(|(at, asked)| (0..late(asked)).map(move |i| (at, i))).collect();
        for rows in rows.chunks(self.info.step_rows_max as usize) {
            let pieces = rows.chunk_by(|a, b| a.0 == b.0).map(|rows| {
                let (Asked { slot, pages, row, .. }, first) = (&asked[rows[0].0], rows[0].1);
                let HeadSlot { from, late, end } = &self.store.slots[*slot].head;
                let (start, tokens) = (end - late.len() + first, &late[first..first + rows.len()]);
                HeadPiece { seq: row.seq, slot: *slot, start, from: *from, tokens, pages }
            });
            let batch = Batch::of_head(pieces);
            let places: Vec<_> = rows.iter().map(|(at, i)| asked[*at].slot * LATE_MAX + i).collect();
            self.head_pass(&batch, |pass, team, _| pass.read_late(team, &places));
        }
        asked.iter().for_each(|asked| self.store.slots[asked.slot].head.late.clear());
    }

    /// What the head guesses behind the samples that were accepted, for each piece that asks.
    pub(crate) fn guess(&mut self, outputs: &Outputs) -> Vec<Vec<TokenId>> {
        let asked = &outputs.head.asked;
        let mut all = vec![Vec::new(); asked.len()];
        let (Some(head), hidden) = (&self.workspace.head, self.model.config.hidden) else { return all };
        for (place, asked) in asked.iter().enumerate() {
            // SAFETY: no step runs while `self` is borrowed mutably.
            unsafe {
                let from = self.store.hidden.get(row_of(asked.slot, hidden));
                head.carried.get_mut(row_of(place, hidden)).copy_from_slice(from);
            }
        }
        for n in 0.. {
            let rows: Vec<_> = (0..asked.len()).filter_map(|at| self.guess_row(&asked[at], at, &all[at], n)).collect();
            if rows.is_empty() {
                break;
            }
            for (place, token) in self.guess_pass(&rows) {
                all[place].push(token);
            }
        }
        all
    }

    /// The `n`th row of a sequence, if it wants that, its pages reach so far, and it goes on.
    fn guess_row<'a>(&self, asked: &'a Asked, place: usize, before: &[TokenId], n: u32) -> Option<GuessRow<'a>> {
        let slot = &self.store.slots[asked.slot];
        let position = asked.position as usize + slot.unfolded + 1 + n as usize;
        let fits = position < asked.pages.len() * PAGE && position < self.info.context as usize;
        let sampled = slot.sampled.filter(|_| n < asked.guesses && fits)?;
        let token = before.last().copied().unwrap_or(sampled);
        if asked.ends.contains(&token) {
            return None;
        }
        let output_index = asked.row.output_index + slot.unfolded as u32 + 1 + n;
        let mut history = History::default();
        if asked.row.params.reads_history() {
            history = slot.history.clone();
            [sampled].iter().chain(before).for_each(|token| history.push_output(*token));
        }
        let params = match &asked.row.params {
            told if told.logprobs.is_some() || told.certainty => {
                Arc::new(SamplingParams { logprobs: None, certainty: false, report: false, ..(**told).clone() })
            }
            told => told.clone(),
        };
        let SampleRow { seq, slot: into, choice, .. } = asked.row;
        let sample = SampleRow { output_index, choice, ..SampleRow::new(seq, into, params) };
        Some(GuessRow { asked, place, token: [token], position, from: slot.head.from, sample, history })
    }

    fn guess_pass(&mut self, rows: &[GuessRow<'_>]) -> Vec<(usize, TokenId)> {
        let (batch, found) = (Batch::of_head(rows.iter().map(GuessRow::piece)), Mutex::default());
        self.head_pass(&batch, |pass, team, scratch| pass.guess(team, scratch, rows, &found));
        if self.probe.record {
            // SAFETY: no step runs any more.
            let logits = unsafe { self.workspace.plain.logits.get(0..rows.len() * self.model.config.vocab) };
            self.recording.guesses.extend_from_slice(logits);
        }
        found.into_inner().expect("no thread panicked")
    }

    /// A pass of the head over some rows.
    fn head_pass(&mut self, batch: &Batch, work: impl Fn(&Pass<'_>, Team, &mut ThreadScratch) + Sync) {
        let (recorder, experts, routes) = (Recorder::new(Probe::default()), ExpertCount::default(), Routes::default());
        let (ws, steps) = self.workspace.views(batch, self.pool.threads());
        let (model, store, progress) = (&self.model, &self.store, &self.progress);
        let (steps, routes) = (&steps, &routes);
        let pass = Pass { model, batch, store, ws, steps, recorder: &recorder, experts: &experts, routes, progress };
        self.pool.run(|team| {
            let scratch = &mut *self.scratch[team.index].lock().expect("no thread panicked before");
            work(&pass, team, scratch);
        });
        self.progress.advance();
    }
}

impl HeadSlot {
    /// A piece from this position on was read at once: what waits before it never is.
    fn read_at_once(&mut self, start: usize) {
        if !self.late.is_empty() {
            (self.from, self.late) = (start, Vec::new());
        }
    }
}
