//! One token of a GDN layer's mixer for each sequence of a step, from the in-projections to the int8 rows of the
//! out-projection: [`crate::reference::conv_silu`], [`crate::reference::l2norm`], [`crate::reference::gdn_recurrent`],
//! [`crate::reference::gated_norm`].
//!
//! One block a value head and sequence; where there are more of these than run at a time, a block has several, whose
//! states come one while another is in use. The state is read once, and written at some positions only ([`stores`]):
//! between, a position leaves its update of rank one, and the next ones apply it in registers. Drafted rows behind a
//! sequence's own leave such updates too, which later steps apply if it turns out that they count.

use crate::cuda::rows::quantized::Planes;
use crate::cuda::runtime::arguments::{Ptr, PtrMut, device_struct};
use crate::cuda::runtime::compiler::source;
use crate::cuda::{CudaError, Device, Grid, Kernel, KernelCache, Program};
use cudarc::driver::{CudaStream, CudaView, CudaViewMut};

/// Heads of a GDN layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Heads {
    /// K, of keys and queries.
    pub key_dim: usize,
    /// Width of a value, V.
    pub value_dim: usize,
    /// How many key heads there are.
    pub keys: usize,
    /// How many value heads there are.
    pub values: usize,
    /// Whether value head `h` belongs to key head `h / (values / keys)`; else it is `h % keys`.
    pub grouped: bool,
}

/// Columns of a state that a warp has, as in the source.
const WARP_COLS: usize = 16;
/// How many positions a written state serves at most. A divisor of a prompt's chunks, so that what computes chunks
/// finds it whole where one begins.
pub const STORE_EVERY: usize = 8;
/// And in steps of up to so many sequences, where applying what a state lacks costs as much as writing it.
const STORE_EVERY_OF_FEW: usize = 4;
const FEW_SEQUENCES: usize = 32;
/// In a word of pending updates: the row writes its state, as in the source.
pub(in crate::cuda) const WRITES: u32 = 1 << 16;
/// Values of an update beside its key and what the columns get: the decay, and room to the next 16 bytes.
const UPDATE_REST: usize = 4;
/// Blocks of a multiprocessor that have several sequences, and values between rows of a state that waits for one.
const SEVERAL_RESIDENT: usize = 2;
const STAGED_REST: usize = 4;
/// Positions whose inputs the convolution sees.
pub(in crate::cuda) const TAPS: usize = 4;

impl Heads {
    /// Channels of the convolution: q, k and v of all heads.
    pub fn channels(&self) -> usize {
        2 * self.keys * self.key_dim + self.values * self.value_dim
    }

    /// Values of an input row: q, k, v, z, b, a, and what the weights of b and a leave out, b2 and a2.
    pub fn inputs(&self) -> usize {
        self.channels() + self.values * self.value_dim + 4 * self.values
    }

    /// Values of a sequence's state.
    pub fn state(&self) -> usize {
        self.values * self.key_dim * self.value_dim
    }

    /// Values of a sequence's convolution ring.
    pub fn tail(&self) -> usize {
        TAPS * self.channels()
    }

    /// Values of what a sequence's state and ring may lack, where up to `drafts` drafted rows stand behind its own.
    pub fn updates(&self, drafts: usize) -> usize {
        let update = self.key_dim + self.value_dim + UPDATE_REST;
        let inputs = if drafts == 0 { 0 } else { TAPS + drafts };
        self.values * (STORE_EVERY - 1 + drafts) * update + inputs * self.channels()
    }

    /// Shared memory where one head's state waits.
    fn staged_bytes(&self) -> usize {
        4 * self.key_dim * (self.value_dim + STAGED_REST)
    }

    fn check(&self) -> Result<(), CudaError> {
        let fail = |reason: String| Err(CudaError::shape("gdn_decode", reason));
        let Heads { key_dim, value_dim, keys, values, .. } = *self;
        if ![32, 64, 128].contains(&value_dim) {
            return fail(format!("a value dimension of {value_dim}: must be 32, 64 or 128"));
        }
        if ![32, 64, 96, 128].contains(&key_dim) {
            return fail(format!("a key dimension of {key_dim}: must be a multiple of 32, at most 128"));
        }
        if keys == 0 || values == 0 || !values.is_multiple_of(keys) {
            return fail(format!("{values} value heads for {keys} key heads: must be a multiple"));
        }
        Ok(())
    }
}

/// After how many positions a state is written in a step of so many sequences. It changes no byte of what they say.
pub fn store_every(sequences: usize) -> usize {
    if sequences <= FEW_SEQUENCES { STORE_EVERY_OF_FEW } else { STORE_EVERY }
}

/// Whether the row of a sequence at this position writes its state, which lacks so many positions before it: after the
/// positions `p` with `p % every == every - 1`, `every` being [`store_every`]'s. Drafted rows never do.
pub fn stores(position: u32, pending: u32, every: usize) -> bool {
    let last = every as u32 - 1;
    position % every as u32 == last || pending >= last
}

/// What a kernel is told of a row whose state lacks so many positions, fewer than 65,536, and is written or not.
pub fn pending_word(pending: u32, stores: bool) -> i32 {
    (pending | if stores { WRITES } else { 0 }) as i32
}

/// Drafted rows, as far as a kernel knows of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DraftRoom {
    /// How many may stand behind a sequence's own: what sequences leave has room for them.
    pub room: usize,
    /// Whether any do. The kernel for steps in which none does is faster; its rows lack no drafted positions, and fewer
    /// than [`STORE_EVERY`] in all.
    pub taken: bool,
}

impl From<usize> for DraftRoom {
    /// So many, which are taken.
    fn from(room: usize) -> Self {
        Self { room, taken: room > 0 }
    }
}

impl DraftRoom {
    /// Whether the kernel for steps without drafted rows may do a row that lacks these positions.
    pub fn does_without(pending: usize, drafted: usize) -> bool {
        pending < STORE_EVERY && drafted == 0
    }
}

/// The program for these heads; input rows are `stride` values apart, `planes` are those of the outputs.
///
/// # Errors
/// If there is no kernel for them.
pub fn program(
    heads: Heads,
    stride: usize,
    planes: Planes,
    drafts: impl Into<DraftRoom>,
) -> Result<Program, CudaError> {
    let drafts = drafts.into();
    heads.check()?;
    if stride < heads.inputs() {
        return Err(CudaError::shape(
            "gdn_decode",
            format!("input rows of {} values only {stride} apart", heads.inputs()),
        ));
    }
    let defines = vec![
        ("K", heads.key_dim as i64),
        ("V", heads.value_dim as i64),
        ("HK", heads.keys as i64),
        ("HV", heads.values as i64),
        ("STORE_EVERY", STORE_EVERY as i64),
        ("DRAFTS", drafts.room as i64),
        ("BEHIND", i64::from(drafts.taken)),
        ("X_STRIDE", stride as i64),
        ("GROUPED", i64::from(heads.grouped)),
        planes.define(),
    ];
    Ok(Program::of::<Arguments>("gdn_decode", source!("gdn/decode.cu"), defines))
}

/// The kernel for the heads of a model.
#[derive(Debug)]
pub struct GdnDecode {
    heads: Heads,
    stride: usize,
    planes: Planes,
    drafts: DraftRoom,
    kernel: Kernel<Arguments>,
    /// For blocks that have several sequences, where the chip has the memory for it.
    several: Option<Kernel<Arguments>>,
}

device_struct! {
    /// Parameters of the kernel.
    struct Arguments {
        /// Rows of the in-projection, `[rows, stride]`.
        x: Ptr<f32>,
        /// `[slots, value heads, K, V]`.
        state: PtrMut<f32>,
        /// Inputs of the convolution at the last four positions of each slot, `[slots, 4, channels]`; position `p` has
        /// entry `p % 4`.
        tail: PtrMut<f32>,
        /// Pending updates, [`Heads::updates`] values for each slot: see [`Updates`].
        updates: PtrMut<f32>,
        /// Slot of each row's sequence, `[rows]`; a padding row has a value below 0.
        slots: Ptr<i32>,
        /// Position of each row in its sequence, `[rows]`.
        positions: Ptr<i32>,
        /// Word of [`pending_word`] for each row, `[rows]`.
        pending: Ptr<i32>,
        /// Number of drafted positions that the state of each row's sequence lacks, `[rows]`.
        drafted: Ptr<i32>,
        /// Weights of the convolution, `[channels, 4]`; the last of four is the current token's.
        taps: Ptr<f32>,
        /// Factor `-exp(A_log)` of each head's log decay, `[value heads]`, below 0.
        a_log_neg: Ptr<f32>,
        /// Bias of each head's step size, `[value heads]`.
        dt_bias: Ptr<f32>,
        /// Weight of the gated norm, `[V]`.
        norm: Ptr<f32>,
        /// `[rows, value heads * V * planes]`.
        codes: PtrMut<i8>,
        /// `[rows, value heads * V / 32 * planes]`.
        meta: PtrMut<[f32; 2]>,
        rows: u32,
        eps: f32,
    }
}

/// Weights of one layer.
#[derive(Clone, Copy)]
pub struct LayerWeights<'a> {
    /// `[channels, 4]`, the last is the current token's.
    pub taps: &'a CudaView<'a, f32>,
    /// Factor `-exp(A_log)` of each head's log decay, `[value heads]`, below 0.
    pub decay: &'a CudaView<'a, f32>,
    /// Bias of each head's step size, `[value heads]`.
    pub dt_bias: &'a CudaView<'a, f32>,
    /// Weight of the gated norm, `[V]`.
    pub norm: &'a CudaView<'a, f32>,
    /// Of the gated norm.
    pub eps: f32,
}

impl LayerWeights<'_> {
    /// Checks that every weight is as long as `heads` need it; `fits` gets a name, the length and the needed one.
    pub(super) fn check(
        &self,
        heads: Heads,
        fits: impl Fn(&str, usize, usize) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        fits("the convolution", self.taps.len(), heads.channels() * TAPS)?;
        fits("the decay", self.decay.len(), heads.values)?;
        fits("dt_bias", self.dt_bias.len(), heads.values)?;
        fits("the norm", self.norm.len(), heads.value_dim)
    }

    /// Addresses of the convolution, the decay, the bias of step sizes and the norm.
    pub(super) fn pointers(&self, stream: &CudaStream) -> [Ptr<f32>; 4] {
        [self.taps, self.decay, self.dt_bias, self.norm].map(|weights| Ptr::of(weights, stream))
    }
}

/// State of a layer's sequences, by slot.
pub struct GdnState<'a, 'b> {
    /// `[slots, value heads, K, V]`.
    pub state: &'a mut CudaViewMut<'b, f32>,
    /// `[slots, 4, channels]`: entry `p % 4` is position `p`'s input.
    pub tail: &'a mut CudaViewMut<'b, f32>,
}

/// What states and rings of sequences lack, [`Heads::updates`] values a slot: `[value heads, n, K + V + 4]`, of which
/// entry `p % n` is position `p`'s, then the inputs of drafted rows, `[4 + drafts, channels]`, of which entry `p % (4 +
/// drafts)` is position `p`'s.
pub struct Updates<'a, 'b>(pub &'a mut CudaViewMut<'b, f32>);

/// The rows of a step; on the device, written before the step begins.
#[derive(Clone, Copy)]
pub struct GdnRows<'a> {
    /// Number of rows, padding rows included.
    pub count: usize,
    /// Slot of each row's sequence; below 0: no row. Rows of one slot stand next to one another: all but the first are
    /// drafted.
    pub slots: &'a CudaView<'a, i32>,
    /// Position of each row: of drafted ones one after another.
    pub positions: &'a CudaView<'a, i32>,
    /// How many of the positions before a sequence's first row its state lacks, those since the last one that wrote it,
    /// and whether the row writes it: [`pending_word`].
    pub pending: &'a CudaView<'a, i32>,
    /// How many of the positions before a sequence's first row were drafted rows of the step before it.
    pub drafted: &'a CudaView<'a, i32>,
}

impl GdnDecode {
    /// Loads the kernel for `heads`.
    ///
    /// # Errors
    /// If there is none for them, or it cannot be compiled or loaded.
    pub fn load(
        device: &Device,
        cache: &KernelCache,
        heads: Heads,
        stride: usize,
        planes: Planes,
        drafts: impl Into<DraftRoom>,
    ) -> Result<Self, CudaError> {
        let drafts = drafts.into();
        let module = device.module(cache, &program(heads, stride, planes, drafts)?)?;
        // Its blocks copy whole pieces of 16 bytes of a row.
        let several = (!drafts.taken && device.arch().has_paired_scan() && stride.is_multiple_of(4))
            .then(|| module.kernel("gdn_decode_several")?.with_shared(heads.staged_bytes()))
            .transpose()?;
        Ok(Self { heads, stride, planes, drafts, kernel: module.kernel("gdn_decode")?, several })
    }

    /// Enqueues it. `x` is `[rows, stride]`; `codes` and `meta` get rows of `value heads * V`. Padding rows stay
    /// as they are.
    ///
    /// # Errors
    /// If a buffer is too small, or the driver refuses.
    ///
    /// # Safety
    /// Slots on the device are below those that `memory` and `updates` have room for; rows that have the same
    /// are no more than one and the drafts that the kernel was made for; where these are none, each is what
    /// [`DraftRoom::does_without`]. Pending updates are those since the state was written, which is where [`stores`]
    /// says or more often, and drafted positions those of the step before. The memory, the updates and the lists were
    /// last written before a launch that does not start early, such as the first of a graph.
    #[allow(clippy::too_many_arguments, reason = "inputs, weights, memory and both outputs of one operation")]
    pub unsafe fn launch(
        &self,
        device: &Device,
        rows: GdnRows<'_>,
        x: &CudaView<'_, f32>,
        layer: LayerWeights<'_>,
        memory: GdnState<'_, '_>,
        updates: Updates<'_, '_>,
        codes: &mut CudaViewMut<'_, i8>,
        meta: &mut CudaViewMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let (heads, n) = (self.heads, rows.count);
        let width = heads.values * heads.value_dim;
        let fits = |what: &str, got: usize, need: usize| {
            let text = || format!("{what} has {got} elements, {n} rows of {heads:?} need {need}");
            if got >= need { Ok(()) } else { Err(CudaError::shape("gdn_decode", text())) }
        };
        fits("the list of slots", rows.slots.len(), n)?;
        fits("the list of positions", rows.positions.len(), n)?;
        fits("the list of pending updates", rows.pending.len(), n)?;
        fits("the list of drafted positions", rows.drafted.len(), n)?;
        fits("the input", x.len(), n * self.stride)?;
        layer.check(heads, fits)?;
        fits("the state", memory.state.len(), n.min(1) * heads.state())?;
        fits("the ring", memory.tail.len(), n.min(1) * heads.tail())?;
        fits("the updates", updates.0.len(), n.min(1) * heads.updates(self.drafts.room))?;
        fits("codes", codes.len(), n * width * self.planes.count())?;
        fits("meta", meta.len(), n * width / 16 * self.planes.count())?;
        if n == 0 {
            return Ok(());
        }
        let stream = device.stream();
        let [taps, a_log_neg, dt_bias, norm] = layer.pointers(stream);
        let arguments = Arguments {
            x: Ptr::of(x, stream),
            state: PtrMut::of(memory.state, stream),
            tail: PtrMut::of(memory.tail, stream),
            updates: PtrMut::of(updates.0, stream),
            slots: Ptr::of(rows.slots, stream),
            positions: Ptr::of(rows.positions, stream),
            pending: Ptr::of(rows.pending, stream),
            drafted: Ptr::of(rows.drafted, stream),
            taps,
            a_log_neg,
            dt_bias,
            norm,
            codes: PtrMut::of(codes, stream),
            meta: PtrMut::of(meta, stream),
            rows: n as u32,
            eps: layer.eps,
        };
        let threads = heads.value_dim / WARP_COLS * 32;
        let at_a_time = (SEVERAL_RESIDENT * device.multiprocessors() as usize / heads.values).max(1);
        let (kernel, blocks) = match &self.several {
            Some(several) if n > at_a_time => (several, at_a_time),
            _ => (&self.kernel, n),
        };
        let grid = Grid { blocks: (heads.values as u32, blocks as u32), threads: threads as u32 };
        // SAFETY: buffers were found large enough, the caller vouches for slots and for the memory; that, the lists and
        // weights are all that the kernel reads before its wait.
        unsafe { kernel.launch(device, grid, &arguments) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASED: Heads = Heads { key_dim: 128, value_dim: 128, keys: 16, values: 32, grouped: false };

    #[test]
    fn the_released_model_and_small_ones_have_a_kernel() {
        assert_eq!((RELEASED.channels(), RELEASED.inputs(), RELEASED.state()), (8192, 12416, 524_288));
        let small = Heads { key_dim: 64, value_dim: 64, keys: 2, values: 4, grouped: true };
        assert!(
            program(RELEASED, 12416, Planes::One, 0).is_ok() && program(small, small.inputs(), Planes::Two, 7).is_ok()
        );
    }

    #[test]
    fn heads_without_a_kernel_are_refused_by_name() {
        let refused = |h: Heads| program(h, 1 << 20, Planes::One, 0).unwrap_err().to_string();
        assert!(refused(Heads { value_dim: 96, ..RELEASED }).contains("value dimension of 96"));
        assert!(refused(Heads { key_dim: 24, ..RELEASED }).contains("key dimension of 24"));
        assert!(refused(Heads { values: 24, ..RELEASED }).contains("24 value heads for 16"));
        assert!(program(RELEASED, 100, Planes::One, 0).is_err());
    }
}
