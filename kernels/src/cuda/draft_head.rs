//! What stands around the layer of a draft head (multi-token prediction): the int8 form of its input,
//! `[norm(embedding); norm(hidden state of the position before)]`, that hidden state, which sequences carry from step
//! to step, and the rows of its guesses, which follow from what a step accepted. All of it is a guess in the end: the
//! bytes need equal nothing.

use crate::cuda::gdn::decode as gdn_decode;
use crate::cuda::rows::embed::{self, Table, TableShape};
use crate::cuda::rows::{fits, lengths};
use crate::cuda::runtime::arguments::{self, DeviceStruct, Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::sampler::{SampleParams, SampleResult};
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaStream, CudaView, CudaViewMut};

const NAME: &str = "draft_head";
/// Positions of a sequence whose hidden states and tokens are kept: more than a step adds and its guesses reach, so
/// that rows can wait to be read.
pub const RING: usize = 64;
/// The token of a row that has the one kept at its position.
pub const KEPT: i32 = -2;
/// Rows of guesses at once: threads of the block that makes them.
pub const ROWS_MAX: usize = 256;

/// The program for a token table, whose rows are as long as those of the residual stream.
///
/// # Errors
/// If rows are no whole number of blocks, or too long.
pub fn program(shape: TableShape) -> Result<Program, CudaError> {
    shape.bytes()?;
    let structs = [
        SampleParams::declaration(),
        SampleResult::declaration(),
        InputArguments::declaration(),
        KeepArguments::declaration(),
        RowsArguments::declaration(),
        FollowArguments::declaration(),
    ];
    Ok(Program {
        name: NAME,
        source: source!("drafts/head.cu"),
        arguments: arguments::file(&structs),
        defines: vec![
            ("COLS", shape.cols as i64),
            ("VOCAB", shape.vocab as i64),
            ("ENCODING", embed::code(shape.encoding)),
            ("RING", RING as i64),
            ("KEPT", i64::from(KEPT)),
            ("STORES", i64::from(gdn_decode::WRITES)),
            shape.planes.define(),
        ],
    })
}

/// The kernels for one model.
#[derive(Debug)]
pub struct DraftHead {
    shape: TableShape,
    input: Kernel<InputArguments>,
    keep: Kernel<KeepArguments>,
    rows: Kernel<RowsArguments>,
    follow: Kernel<FollowArguments>,
}

device_struct! {
    /// Parameters of the kernel of [`DraftHead::input`].
    struct InputArguments {
        table: Ptr<u8>,
        /// Id of each row's token, `[rows]`: -1 stands for the slot's last sampled token, [`KEPT`] for the one that is
        /// kept at the row's position.
        tokens: Ptr<i32>,
        /// Last sampled token of each slot, `[slots]`.
        sampled: Ptr<i32>,
        /// Slot of each row's sequence, `[rows]`; a padding row has a value below 0.
        slots: Ptr<i32>,
        /// Position of each row in its sequence, `[rows]`.
        positions: Ptr<i32>,
        /// Residual stream behind the model's last layer, `[rows, cols]`; null where all rows read what their slot
        /// carries.
        x: Ptr<f32>,
        /// What slots carry: RING hidden states of `cols` values, then the bits of RING tokens:
        /// `[slots, RING * (cols + 1)]`.
        carried: Ptr<f32>,
        /// Weight of the norm behind the model's last layer, `[cols]`.
        norm: Ptr<f32>,
        /// Weight of the norm of the embedding's half of the input, `[cols]`.
        embed_norm: Ptr<f32>,
        /// Weight of the norm of the hidden state's half of the input, `[cols]`.
        hidden_norm: Ptr<f32>,
        codes: PtrMut<i8>,
        meta: PtrMut<[f32; 2]>,
        /// Residual stream in which the draft layer begins, `[rows, cols]`, set to zero; null where nothing is to be
        /// set.
        begin: PtrMut<f32>,
        /// Factor of the table's rows.
        scale: f32,
        eps: f32,
    }
}

device_struct! {
    /// Parameters of the kernel of [`DraftHead::keep`].
    struct KeepArguments {
        /// Id of each row's token, `[rows]`: -1 stands for the slot's last sampled token.
        tokens: Ptr<i32>,
        /// Last sampled token of each slot, `[slots]`.
        sampled: Ptr<i32>,
        /// Slot of each row's sequence, `[rows]`; a padding row has a value below 0.
        slots: Ptr<i32>,
        /// Position of each row in its sequence, `[rows]`.
        positions: Ptr<i32>,
        /// Residual stream that is stored, `[rows, cols]`, and then set to zero.
        x: PtrMut<f32>,
        /// Weight of the norm behind the residual stream, `[cols]`.
        norm: Ptr<f32>,
        /// What slots carry: RING hidden states of `cols` values, then the bits of RING tokens:
        /// `[slots, RING * (cols + 1)]`.
        carried: PtrMut<f32>,
        eps: f32,
        /// 1: of neighbouring rows of a slot the last alone is kept.
        last: i32,
    }
}

device_struct! {
    /// Parameters of the kernel of [`DraftHead::rows`].
    struct RowsArguments {
        /// The four words of [`GuessingRows::asked`] for each guess, `[count]`.
        asked: Ptr<[i32; 4]>,
        results: Ptr<SampleResult>,
        step_tokens: Ptr<i32>,
        step_slots: Ptr<i32>,
        step_positions: Ptr<i32>,
        guessed: Ptr<SampleResult>,
        /// By how much a row's output is further on than the parameters say, or null: then by nothing.
        ahead: Ptr<i32>,
        /// The id at each place of a shortlist, or null: then guesses are ids.
        ids: Ptr<u32>,
        params: PtrMut<SampleParams>,
        tokens: PtrMut<i32>,
        slots: PtrMut<i32>,
        positions: PtrMut<i32>,
        rows: i32,
        count: i32,
        first: i32,
    }
}

device_struct! {
    /// Parameters of the kernel of [`DraftHead::follow`].
    struct FollowArguments {
        /// The eight words of [`Following::behind`] for each row, `[2 * rows]`.
        behind: Ptr<[i32; 4]>,
        /// Planned rows, eight arrays of `rows` words: see [`ROW_WORDS`].
        planned: Ptr<i32>,
        results: Ptr<SampleResult>,
        step_tokens: Ptr<i32>,
        guessed: Ptr<SampleResult>,
        /// The id at each place of a shortlist, or null: then guesses are ids.
        ids: Ptr<u32>,
        to: PtrMut<i32>,
        ahead: PtrMut<i32>,
        rows: i32,
        guess_rows: i32,
    }
}

/// Rows on the device that the draft head reads or keeps, padding rows included.
#[derive(Clone, Copy)]
pub struct DraftHeadRows<'a> {
    /// Number of rows, padding rows included.
    pub count: usize,
    /// `[rows]`: id, or -1 for the last sampled one of the slot, or, of rows that are read, [`KEPT`].
    pub tokens: &'a CudaView<'a, i32>,
    /// `[rows]`; below 0: no row. Rows of a slot lie together, in the order of their positions.
    pub slots: &'a CudaView<'a, i32>,
    /// Position of each row in its sequence, `[rows]`.
    pub positions: &'a CudaView<'a, i32>,
}

/// The head's own values, and the model's.
#[derive(Clone, Copy)]
pub struct HeadNorms<'a> {
    /// Weight of the norm behind the model's last layer, `[cols]`.
    pub model: &'a CudaView<'a, f32>,
    /// Weight of the norm of the embedding's half of the input, `[cols]`.
    pub embedding: &'a CudaView<'a, f32>,
    /// Weight of the norm of the hidden state's half of the input, `[cols]`.
    pub hidden: &'a CudaView<'a, f32>,
    /// Epsilon of all three norms.
    pub eps: f32,
}

/// The first guesses of a step: behind which of its rows, and what these were.
#[derive(Clone, Copy)]
pub struct Behind<'a> {
    /// What the sampler left.
    pub results: &'a CudaView<'a, SampleResult>,
    /// Rows of the step's decode pass.
    pub rows: DraftHeadRows<'a>,
    /// What [`DraftHead::follow`] said of them, if they are its.
    pub ahead: Option<&'a CudaView<'a, i32>>,
}

/// Words of a row of a pass, as [`DraftHead::follow`] reads and writes them, in arrays one behind another: token, slot,
/// position, length of the prompt, a cut's two words ([`crate::cuda::moe::router::cut_words`]), what its state lacks
/// ([`crate::cuda::gdn::decode::pending_word`]), and of that how much was drafted.
pub const ROW_WORDS: usize = 8;
/// Words that say what a row follows: the first row of its piece in the pass before, below 0 if it follows none, the
/// number of that row's result, the drafts behind it, the number of the new row in its piece; its place among those who
/// guessed, the position behind which the state is stored, after how many positions it is stored
/// ([`crate::cuda::gdn::decode::store_every`]), and a word that nobody reads.
pub const BEHIND_WORDS: usize = 8;

/// What the draft head guessed behind a step, in the device's memory or in the host's that it sees.
#[derive(Clone, Copy)]
pub struct GuessedBefore<'a> {
    /// Address of the results, `[passes, rows]`.
    pub address: u64,
    /// Rows of a pass.
    pub rows: usize,
    /// Token id of each place of the head's shortlist; `None` where results hold token ids.
    pub ids: Option<&'a CudaView<'a, u32>>,
}

/// A pass that goes on behind a step of which only the device knows how many drafts count.
pub struct Following<'a, 'b> {
    /// Rows of the pass, at most [`ROWS_MAX`].
    pub count: usize,
    /// Words that say what each row follows, `[count, BEHIND_WORDS]`: see [`BEHIND_WORDS`].
    pub behind: &'a CudaView<'a, i32>,
    /// `[ROW_WORDS, count]`: the rows, with the positions that they have if no draft counts.
    pub planned: &'a CudaView<'a, i32>,
    /// What the step's sampler left.
    pub results: &'a CudaView<'a, SampleResult>,
    /// What the draft head guessed behind the step.
    pub guessed: GuessedBefore<'a>,
    /// `[ROW_WORDS, rows before]`: tokens and so on of the pass before; `[ROW_WORDS, count]` of this one afterwards.
    pub rows: &'a mut CudaViewMut<'b, i32>,
    /// `[count]`: how many drafts count before each row.
    pub ahead: &'a mut CudaViewMut<'b, i32>,
}

/// Who guesses, and with what.
pub struct GuessingRows<'a, 'b> {
    /// Rows of the pass, at most [`ROWS_MAX`]; those behind the ones that were asked for become none.
    pub count: usize,
    /// `[count asked for]`: the first row of a piece in the step's decode pass, the number of its first result, how
    /// many drafts it has, and the first position that there is no room for. Behind a prompt's end it is the complement
    /// of the slot instead of a row, and instead of the drafts the prompt's last position.
    pub asked: &'a CudaView<'a, i32>,
    /// `[count asked for]`: [`SampleParams::output_index`] counts on.
    pub params: &'a mut CudaViewMut<'b, SampleParams>,
    /// Token of each row, `[rows]`: the one that was drawn last.
    pub tokens: &'a mut CudaViewMut<'b, i32>,
    /// Slot of each row, `[rows]`: written behind a step, read behind a pass of guesses; below 0 where the row is
    /// padding or its sequence has no room left.
    pub slots: &'a mut CudaViewMut<'b, i32>,
    /// Position of each row, `[rows]`: written behind a step, one further on behind a pass of guesses.
    pub positions: &'a mut CudaViewMut<'b, i32>,
}

/// What a pass of guesses drew.
#[derive(Clone, Copy)]
pub struct Guessed<'a> {
    /// Results of the sampler, one for each row of the pass.
    pub results: &'a CudaView<'a, SampleResult>,
    /// The id that each token of them stands for, where it is not the token itself.
    pub ids: Option<&'a CudaView<'a, u32>>,
}

impl DraftHeadRows<'_> {
    /// Addresses of tokens, slots and positions.
    fn pointers(&self, stream: &CudaStream) -> [Ptr<i32>; 3] {
        [self.tokens, self.slots, self.positions].map(|list| Ptr::of(list, stream))
    }
}

impl DraftHead {
    /// Loads the kernels.
    ///
    /// # Errors
    /// If there are none, or they cannot be compiled or loaded.
    pub fn load(device: &Device, cache: &KernelCache, shape: TableShape) -> Result<Self, CudaError> {
        let module = device.module(cache, &program(shape)?)?;
        Ok(Self {
            shape,
            input: module.kernel("draft_input")?,
            keep: module.kernel("draft_keep")?,
            rows: module.kernel("draft_rows")?,
            follow: module.kernel("draft_follow")?,
        })
    }

    /// Values of what a sequence carries.
    pub fn carried(cols: usize) -> usize {
        RING * (cols + 1)
    }

    fn grid(&self, rows: usize) -> Grid {
        Grid { blocks: (rows as u32, 1), threads: (self.shape.cols / 8).next_multiple_of(32) as u32 }
    }

    fn check(&self, rows: DraftHeadRows<'_>, carried: usize) -> Result<(), CudaError> {
        let n = rows.count;
        for (what, list) in [("tokens", rows.tokens), ("slots", rows.slots), ("positions", rows.positions)] {
            fits(NAME, what, list.len(), n)?;
        }
        fits(NAME, "what is carried", carried, n.min(1) * Self::carried(self.shape.cols))
    }

    /// Enqueues the input of a pass: `codes` and `meta` get plain rows of `2 * cols`. `x` is what the model's last
    /// layer left of the same rows; without it, each row goes on from what its slot carries, and `begin`, `[rows,
    /// cols]`, becomes zero; such a launch begins when everything before it is done, as the first of a graph does, so
    /// that what comes behind it may read early what was written before it.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// As [`crate::cuda::rows::embed::Embed::launch`]; slots on the device are below those that `carried` has room for.
    #[allow(clippy::too_many_arguments, reason = "table, rows, weights, memory and output of one operation")]
    pub unsafe fn input(
        &self,
        device: &Device,
        (table, scale): (Table, f32),
        (rows, sampled): (DraftHeadRows<'_>, &CudaView<'_, i32>),
        norms: HeadNorms<'_>,
        x: Option<&CudaView<'_, f32>>,
        carried: &CudaView<'_, f32>,
        (codes, meta): (&mut CudaViewMut<'_, i8>, &mut CudaViewMut<'_, f32>),
        begin: Option<&mut CudaViewMut<'_, f32>>,
    ) -> Result<(), CudaError> {
        let (n, cols) = (rows.count, self.shape.cols);
        self.check(rows, carried.len())?;
        fits(NAME, "the table (bytes)", table.bytes, self.shape.bytes()?)?;
        for norm in [norms.model, norms.embedding, norms.hidden] {
            fits(NAME, "a norm", norm.len(), cols)?;
        }
        fits(NAME, "x", x.map_or(n * cols, |x| x.len()), n * cols)?;
        fits(NAME, "the stream", begin.as_ref().map_or(n * cols, |x| x.len()), n * cols)?;
        let [need, metas, _] = lengths(n, 2 * cols, self.shape.planes);
        fits(NAME, "codes", codes.len(), need)?;
        fits(NAME, "meta", meta.len(), metas)?;
        if n == 0 {
            return Ok(());
        }
        let (stream, guesses) = (device.stream(), begin.is_some());
        let [tokens, slots, positions] = rows.pointers(stream);
        let arguments = InputArguments {
            table: Ptr::at(table.address),
            tokens,
            sampled: Ptr::of(sampled, stream),
            slots,
            positions,
            x: Ptr::of_some(x, stream),
            carried: Ptr::of(carried, stream),
            norm: Ptr::of(norms.model, stream),
            embed_norm: Ptr::of(norms.embedding, stream),
            hidden_norm: Ptr::of(norms.hidden, stream),
            codes: PtrMut::of(codes, stream),
            meta: PtrMut::of(meta, stream),
            begin: begin.map_or(PtrMut::default(), |x| PtrMut::of(x, stream)),
            scale,
            eps: norms.eps,
        };
        // SAFETY: buffers were found large enough, ids beyond the table are not looked up, the caller vouches for slots
        // and the table's memory; nothing but weights is read before the wait.
        unsafe {
            match guesses {
                true => self.input.launch_behind_all(device, self.grid(n), &arguments),
                false => self.input.launch(device, self.grid(n), &arguments),
            }
        }
    }

    /// Enqueues that the slots carry what a pass left in `x`, `[rows, cols]`, which becomes zero, and the rows' tokens:
    /// of each row, or, of neighbouring rows of a slot, of the `last` alone. `norm` is the weight of the norm behind
    /// `x`.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// As for [`DraftHead::input`]; unless it is the `last` that is kept, rows of a slot are fewer than [`RING`].
    pub unsafe fn keep(
        &self,
        device: &Device,
        (rows, sampled, last): (DraftHeadRows<'_>, &CudaView<'_, i32>, bool),
        (norm, eps): (&CudaView<'_, f32>, f32),
        x: &mut CudaViewMut<'_, f32>,
        carried: &mut CudaViewMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let (n, cols) = (rows.count, self.shape.cols);
        self.check(rows, carried.len())?;
        fits(NAME, "the norm", norm.len(), cols)?;
        fits(NAME, "x", x.len(), n * cols)?;
        if n == 0 {
            return Ok(());
        }
        let stream = device.stream();
        let [tokens, slots, positions] = rows.pointers(stream);
        let arguments = KeepArguments {
            tokens,
            sampled: Ptr::of(sampled, stream),
            slots,
            positions,
            x: PtrMut::of(x, stream),
            norm: Ptr::of(norm, stream),
            carried: PtrMut::of(carried, stream),
            eps,
            last: i32::from(last),
        };
        // SAFETY: as above.
        unsafe { self.keep.launch(device, self.grid(n), &arguments) }
    }

    /// Enqueues what the next pass of guesses reads: behind what a step accepted, or one further on than the guesses
    /// before.
    ///
    /// # Errors
    /// If there are too many rows, a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// What `asked` names on the device lies within the step's rows and results, and what was guessed within the ids,
    /// if there are any.
    pub unsafe fn rows(
        &self,
        device: &Device,
        behind: Option<Behind<'_>>,
        guessed: Guessed<'_>,
        rows: GuessingRows<'_, '_>,
    ) -> Result<(), CudaError> {
        let (n, count) = (rows.count, rows.asked.len() / 4);
        if n > ROWS_MAX || count > n {
            let reason = format!("{count} guesses in {n} rows: at most {ROWS_MAX}");
            return Err(CudaError::shape(NAME, reason));
        }
        fits(NAME, "parameters", rows.params.len(), count)?;
        fits(NAME, "guesses", guessed.results.len(), count)?;
        for (what, len) in
            [("tokens", rows.tokens.len()), ("slots", rows.slots.len()), ("positions", rows.positions.len())]
        {
            fits(NAME, what, len, n)?;
        }
        let stream = device.stream();
        let arguments = RowsArguments {
            asked: Ptr::of(rows.asked, stream),
            results: Ptr::of_some(behind.map(|b| b.results), stream),
            step_tokens: Ptr::of_some(behind.map(|b| b.rows.tokens), stream),
            step_slots: Ptr::of_some(behind.map(|b| b.rows.slots), stream),
            step_positions: Ptr::of_some(behind.map(|b| b.rows.positions), stream),
            guessed: Ptr::of(guessed.results, stream),
            ahead: Ptr::of_some(behind.and_then(|b| b.ahead), stream),
            ids: Ptr::of_some(guessed.ids, stream),
            params: PtrMut::of(rows.params, stream),
            tokens: PtrMut::of(rows.tokens, stream),
            slots: PtrMut::of(rows.slots, stream),
            positions: PtrMut::of(rows.positions, stream),
            rows: n as i32,
            count: count as i32,
            first: i32::from(behind.is_some()),
        };
        // SAFETY: lists were found large enough, the caller vouches for what they name; nothing is read before the
        // wait.
        unsafe { self.rows.launch(device, Grid { blocks: (1, 1), threads: ROWS_MAX as u32 }, &arguments) }
    }

    /// Enqueues the rows of a pass that goes on behind a step.
    ///
    /// # Errors
    /// If there are too many rows, a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// What `behind` names on the device lies within the rows, results and guesses of the step before, these at the
    /// address that is said, and what was guessed within the ids, if there are any.
    pub unsafe fn follow(&self, device: &Device, pass: Following<'_, '_>) -> Result<(), CudaError> {
        let (n, guessed) = (pass.count, pass.guessed);
        if n > ROWS_MAX {
            return Err(CudaError::shape(NAME, format!("{n} rows that follow: at most {ROWS_MAX}")));
        }
        fits(NAME, "what rows follow", pass.behind.len(), BEHIND_WORDS * n)?;
        fits(NAME, "planned rows", pass.planned.len(), ROW_WORDS * n)?;
        fits(NAME, "rows", pass.rows.len(), ROW_WORDS * n)?;
        fits(NAME, "how far rows are ahead", pass.ahead.len(), n)?;
        let stream = device.stream();
        let to = PtrMut::of(pass.rows, stream);
        let arguments = FollowArguments {
            behind: Ptr::of(pass.behind, stream),
            planned: Ptr::of(pass.planned, stream),
            results: Ptr::of(pass.results, stream),
            step_tokens: Ptr::at(to.address()),
            guessed: Ptr::at(guessed.address),
            ids: Ptr::of_some(guessed.ids, stream),
            to,
            ahead: PtrMut::of(pass.ahead, stream),
            rows: n as i32,
            guess_rows: guessed.rows as i32,
        };
        // SAFETY: lists were found large enough, the caller vouches for what they name; nothing is read before the
        // wait.
        unsafe { self.follow.launch(device, Grid { blocks: (1, 1), threads: ROWS_MAX as u32 }, &arguments) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::rows::embed::TableEncoding;
    use crate::cuda::rows::quantized::Planes;

    #[test]
    fn a_head_is_as_wide_as_its_model() {
        let shape = TableShape { cols: 2048, vocab: 512, encoding: TableEncoding::Q8_0, planes: Planes::One };
        assert!(program(shape).is_ok() && program(TableShape { cols: 48, ..shape }).is_err());
    }
}
