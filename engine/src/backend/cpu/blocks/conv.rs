//! The causal convolution before a recurrent rule, with SiLU, or of a mixer of its own without, and the inputs of it
//! that a sequence keeps.

use super::BlockThread;
use crate::backend::cpu::pass::batch::BatchPiece;
use crate::backend::cpu::simd::{Kernel, LANES, Lanes, run};
use crate::backend::cpu::store::Store;
use crate::backend::cpu::team::shared::SharedBuffer;
use std::ops::Range;

/// Channels that one unit of a convolution's work has.
const STRIP: usize = 512;

/// A depthwise convolution's weights.
pub(super) struct Convolution {
    pub(super) taps: usize,
    pub(super) channels: usize,
    /// `[taps, channels]`: transposed, so that channels are neighbours.
    weights: Vec<f32>,
    /// Added to each channel, `[channels]`.
    bias: Option<Vec<f32>>,
    /// Whether a SiLU follows.
    activated: bool,
}

impl Convolution {
    /// From weights as files have them, `[channels, taps]`.
    pub(super) fn new(weights: &[f32], bias: Option<&[f32]>, taps: usize) -> Self {
        let channels = weights.len() / taps;
        let transposed = (0..taps * channels).map(|i| weights[i % channels * taps + i / channels]).collect();
        let bias = bias.map(<[f32]>::to_vec);
        Self { taps, channels, weights: transposed, bias, activated: true }
    }

    /// The convolution without the SiLU behind it.
    pub(super) fn without_activation(self) -> Self {
        Self { activated: false, ..self }
    }

    /// Units that the work at a row divides into.
    pub(super) fn strips(&self) -> usize {
        self.channels.div_ceil(STRIP)
    }

    /// Channels of the `n`th unit.
    pub(super) fn strip(&self, n: usize) -> Range<usize> {
        n * STRIP..((n + 1) * STRIP).min(self.channels)
    }

    /// Where in a buffer of rows of channels those of a piece are.
    pub(super) fn rows_of(&self, piece: &BatchPiece) -> Range<usize> {
        piece.first_row * self.channels..(piece.first_row + piece.rows) * self.channels
    }

    /// [`Convolution::at`] with the instructions of this processor.
    pub(super) fn run(&self, inputs: &[f32], tail: &[f32], row: usize, first: usize, out: &mut [f32]) {
        struct Strip<'a>(&'a Convolution, &'a [f32], &'a [f32], usize, usize, &'a mut [f32]);
        impl Kernel for Strip<'_> {
            type Output = ();
            #[inline(always)]
            unsafe fn call<L: Lanes>(self) {
                // SAFETY: the caller's.
                unsafe { self.0.at::<L>(self.1, self.2, self.3, self.4, self.5) }
            }
        }
        run(Strip(self, inputs, tail, row, first, out));
    }

    /// Convolution and, where there is one, SiLU of `out.len()` channels from `first`, at row `row` of a piece.
    /// `inputs` are the piece's rows, `tail` those before it, oldest first.
    ///
    /// # Safety
    /// The instruction set of `L` exists.
    #[inline(always)]
    pub(super) unsafe fn at<L: Lanes>(&self, inputs: &[f32], tail: &[f32], row: usize, first: usize, out: &mut [f32]) {
        let (channels, taps) = (self.channels, self.taps);
        assert!(first + out.len() <= channels && out.len().is_multiple_of(LANES), "channels come in whole vectors");
        assert!(
            self.weights.len() >= taps * channels && tail.len() >= (taps - 1) * channels,
            "a row of channels a tap"
        );
        assert!(self.bias.as_ref().is_none_or(|bias| bias.len() >= channels), "a bias a channel");
        assert!(inputs.len() >= (row + 1) * channels, "the rows up to this one");
        let mut col = 0;
        while col < out.len() {
            // SAFETY: the instruction set is the caller's promise; rows and columns were just checked.
            col += unsafe {
                match (out.len() - col) / LANES {
                    4.. => self.columns::<L, 4>(inputs, tail, row, first + col, &mut out[col..]),
                    _ => self.columns::<L, 1>(inputs, tail, row, first + col, &mut out[col..]),
                }
            };
        }
    }

    /// [`Convolution::at`] for `N` vectors of channels from `first`.
    #[inline(always)]
    unsafe fn columns<L: Lanes, const N: usize>(
        &self,
        inputs: &[f32],
        tail: &[f32],
        row: usize,
        first: usize,
        out: &mut [f32],
    ) -> usize {
        let (channels, taps) = (self.channels, self.taps);
        // SAFETY: the caller's: N vectors of channels are in every row that is read, in the bias and in `out`.
        unsafe {
            let mut acc = [L::splat(0.0); N];
            if let Some(bias) = &self.bias {
                let bias = bias.as_ptr().add(first);
                for (v, acc) in acc.iter_mut().enumerate() {
                    *acc = L::load(bias.add(v * LANES));
                }
            }
            for j in 0..taps {
                let source = match (row + j).checked_sub(taps - 1) {
                    Some(r) => inputs.as_ptr().add(r * channels + first),
                    None => tail.as_ptr().add((row + j) * channels + first),
                };
                let w = self.weights.as_ptr().add(j * channels + first);
                for (v, acc) in acc.iter_mut().enumerate() {
                    *acc = L::load(w.add(v * LANES)).mul_add(L::load(source.add(v * LANES)), *acc);
                }
            }
            for (v, acc) in acc.iter().enumerate() {
                let value = if self.activated { acc.silu() } else { *acc };
                value.store(out.as_mut_ptr().add(v * LANES));
            }
        }
        N * LANES
    }

    /// Asks for `count` channels of a tail from `first` on.
    ///
    /// # Safety
    /// The instruction set of `L` exists.
    #[inline(always)]
    pub(super) unsafe fn prefetch<L: Lanes>(&self, tail: &[f32], first: usize, count: usize) {
        for tap in 0..self.taps - 1 {
            let mut at = tap * self.channels + first;
            while at < tap * self.channels + first + count {
                // SAFETY: the caller's; the address need not be mapped.
                unsafe { L::prefetch(tail.as_ptr().wrapping_add(at)) };
                at += LANES;
            }
        }
    }

    /// [`Convolution::keep_tail`] for this thread's share of the pieces of a step, whose inputs are in this buffer.
    ///
    /// # Safety
    /// The inputs were finished before the last barrier, and nobody reads or writes the tails of this block meanwhile.
    pub(super) unsafe fn keep_tails(&self, inputs: &SharedBuffer<f32>, at: BlockThread<'_>) {
        let pieces = &at.pass.batch.pieces;
        for piece in at.team.share(pieces.len()).map(|piece| &pieces[piece]) {
            // SAFETY: the caller's, and this piece is this thread's share.
            unsafe { self.keep_tail(inputs.get(self.rows_of(piece)), at.pass.store, piece, at.block) };
        }
    }

    /// Keeps the last inputs of a piece for the next one, those before each checkpoint, and by themselves those of
    /// drafted rows, until it is known which of them count. `inputs` are the piece's rows.
    ///
    /// # Safety
    /// Nobody reads or writes the tails of the piece's slot and checkpoints in this block meanwhile.
    pub(super) unsafe fn keep_tail(&self, inputs: &[f32], store: &Store, piece: &BatchPiece, block: usize) {
        let (channels, rows) = (self.channels, piece.certain());
        for (row, drafted) in inputs.chunks_exact(channels).skip(rows).enumerate() {
            // SAFETY: a plan has one piece a slot.
            unsafe { store.drafted.inputs(piece.slot, row, block) }.copy_from_slice(drafted);
        }
        // SAFETY: the caller's; a plan writes a checkpoint once.
        let place = |slot: usize| unsafe { store.tails.get_mut(store.shape.tail_at(slot, block)) };
        for (rows, checkpoint) in &piece.exports {
            // The whole chunk before it is longer than the tail.
            let tail = place(*checkpoint);
            tail.copy_from_slice(&inputs[rows * channels - tail.len()..rows * channels]);
        }
        let tail = place(piece.slot);
        let kept = tail.len() / channels;
        let new = rows.min(kept);
        tail.copy_within(new * channels.., 0);
        tail[(kept - new) * channels..].copy_from_slice(&inputs[(rows - new) * channels..rows * channels]);
    }
}

/// `log(1 + e^x)`, and `x` itself where the difference does not show.
pub(super) fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}
