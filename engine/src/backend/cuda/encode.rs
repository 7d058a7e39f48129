//! Encoders on a device: the bytes that the threads' searches find, a piece of rows at a time. Rows are decoded by the
//! threads, which also refuse what is no number.

use super::error::{CudaBackendError, CudaResult, During};
use crate::format::blocks::{grids, row_weights};
use crate::format::{BlockType, Tensor};
use crate::quantize::{self, Importance, QuantizeError, Threads, values_into};
use chimere_kernels::cuda::encode::{self, Encoding, RowWeights};
use chimere_kernels::cuda::{Compiler, CudaError, Device, KernelCache, Program};
use cudarc::driver::CudaSlice;
use rayon::prelude::*;
use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Values of a piece: 256 MiB on the host and on the device.
const PIECE_VALUES: usize = 64 << 20;

/// The type as kernels know it; `None` of those that only threads write.
fn encoding(ty: BlockType) -> Option<Encoding> {
    Some(match ty {
        BlockType::Q4_0 => Encoding::Q4_0,
        BlockType::Q5_0 => Encoding::Q5_0,
        BlockType::Q5_1 => Encoding::Q5_1,
        BlockType::Q8_0 => Encoding::Q8_0,
        BlockType::Iq4Nl => Encoding::Iq4Nl,
        BlockType::Mxfp4 => Encoding::Mxfp4,
        BlockType::Q3K => Encoding::Q3K,
        BlockType::Q6K => Encoding::Q6K,
        BlockType::Iq4Xs => Encoding::Iq4Xs,
        BlockType::Q4K => Encoding::Q4K,
        BlockType::Q5K => Encoding::Q5K,
        BlockType::Iq3S => Encoding::Iq3S,
        BlockType::Iq3Xxs => Encoding::Iq3Xxs,
        _ => return None,
    })
}

fn book(encoding: Encoding) -> &'static [[u8; 4]] {
    match encoding {
        Encoding::Iq3S => &grids::IQ3_S,
        Encoding::Iq3Xxs => &grids::IQ3_XXS,
        _ => &[],
    }
}

/// The programs of all encoders.
pub fn encoder_programs() -> Vec<Program> {
    Encoding::ALL.into_iter().map(encode::program).collect()
}

/// Encodes on a device what kernels know, on threads the rest.
pub struct CudaEncoder {
    device: Device,
    cache: KernelCache,
    name: String,
    state: RefCell<State>,
}

/// Kernels that were wanted so far, and the buffers of a piece.
#[derive(Default)]
struct State {
    kernels: HashMap<Encoding, encode::Encoder>,
    values: Vec<f32>,
    on_device: Option<CudaSlice<f32>>,
    encoded: Option<CudaSlice<u8>>,
}

/// What the values of a piece's rows weigh, as the kernels take it.
struct Sets {
    weights: Vec<f32>,
    set_of: Vec<u32>,
}

impl Sets {
    /// `None` where all values of all rows weigh the same.
    fn of(tensor: &Tensor, rows: &[usize], importance: &Importance) -> Option<Self> {
        let (mut sets, mut any) = (Self { weights: Vec::new(), set_of: Vec::with_capacity(rows.len()) }, false);
        let (mut before, cols) = (None, tensor.cols());
        for matrix in rows.iter().map(|row| row / tensor.rows()) {
            if before.replace(matrix) != Some(matrix) {
                let own = importance.of(&tensor.name, matrix, cols).and_then(row_weights);
                any |= own.is_some();
                sets.weights.extend(own.unwrap_or_else(|| vec![1.0; cols]));
            }
            sets.set_of.push((sets.weights.len() / cols - 1) as u32);
        }
        any.then_some(sets)
    }
}

/// Room for `len` elements on the device; what there was is kept if it suffices.
macro_rules! room {
    ($slot:expr, $device:expr, $len:expr) => {{
        if $slot.as_ref().is_none_or(|have| have.len() < $len) {
            // What is too small makes room first.
            drop($slot.take());
            $slot = Some($device.stream().alloc_zeros($len).during("allocating rows to encode")?);
        }
        $slot.as_mut().expect("just made")
    }};
}

impl CudaEncoder {
    /// Opens device `ordinal`.
    ///
    /// # Errors
    /// If there is none that can be used, or neither the kernels nor a compiler for them.
    pub fn open(ordinal: usize) -> Result<Self, CudaError> {
        let device = Device::open(ordinal)?;
        let cache = KernelCache::new(KernelCache::default_dir());
        if cache.missing(&encoder_programs(), device.arch()) > 0 {
            Compiler::load()?;
        }
        let name = device.info()?.name;
        Ok(Self { device, cache, name, state: RefCell::default() })
    }

    fn piece(
        &self,
        tensor: &Tensor,
        rows: &[usize],
        (encoding, importance): (Encoding, &Importance),
        out: &mut [u8],
    ) -> Result<(), QuantizeError> {
        let (state, cols) = (&mut *self.state.borrow_mut(), tensor.cols());
        state.values.resize(state.values.len().max(rows.len() * cols), 0.0);
        let values = &mut state.values[..rows.len() * cols];
        values.par_chunks_exact_mut(cols).zip(rows).try_for_each(|(x, row)| values_into(tensor, *row, x))?;
        let sets = Sets::of(tensor, rows, importance);
        self.launch(state, (rows.len(), cols), (encoding, sets), out).map_err(|e| QuantizeError::Device(e.to_string()))
    }

    fn launch(
        &self,
        state: &mut State,
        (rows, cols): (usize, usize),
        (encoding, sets): (Encoding, Option<Sets>),
        out: &mut [u8],
    ) -> CudaResult<()> {
        let (device, stream) = (&self.device, self.device.stream());
        let x = room!(state.on_device, device, rows * cols);
        stream.memcpy_htod(&state.values[..rows * cols], &mut x.slice_mut(..rows * cols)).during("sending rows")?;
        let sets = sets.map(|sets| {
            let weights = stream.clone_htod(&sets.weights).during("sending weights")?;
            Ok::<_, CudaBackendError>((weights, stream.clone_htod(&sets.set_of).during("sending weights")?))
        });
        let sets = sets.transpose()?;
        let sets = sets.as_ref().map(|(weights, set_of)| (weights.as_view(), set_of.as_view()));
        let weighed = sets.as_ref().map(|(weights, set_of)| RowWeights { weights, set_of });
        let kernel = match state.kernels.entry(encoding) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(encode::Encoder::load(device, &self.cache, encoding, book(encoding))?),
        };
        let encoded = room!(state.encoded, device, out.len());
        // SAFETY: `Sets::of` numbers rows by the sets that it made.
        unsafe { kernel.launch(device, (rows, cols), &x.as_view(), weighed, &mut encoded.slice_mut(..out.len())) }?;
        stream.memcpy_dtoh(&encoded.slice(..out.len()), out).during("reading encoded rows")?;
        stream.synchronize().during("encoding rows")
    }
}

impl quantize::Encoder for CudaEncoder {
    fn nearest(
        &self,
        tensor: &Tensor,
        rows: &[usize],
        ty: BlockType,
        importance: &Importance,
    ) -> Result<Vec<u8>, QuantizeError> {
        let Some(encoding) = encoding(ty) else { return Threads.nearest(tensor, rows, ty, importance) };
        let len = ty.row_bytes(tensor.cols()).expect("the type fits the rows");
        let mut out = vec![0; rows.len() * len];
        let each = (PIECE_VALUES / tensor.cols()).max(1);
        for (rows, out) in rows.chunks(each).zip(out.chunks_mut(each * len)) {
            self.piece(tensor, rows, (encoding, importance), out)?;
        }
        Ok(out)
    }

    fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::blocks::can_quantize;

    #[test]
    fn kernels_and_files_have_one_shape_of_block() {
        for ty in quantize::MENU.into_iter().chain([BlockType::Q4_0]) {
            let encoding = encoding(ty).unwrap();
            assert_eq!(encoding.block(), (ty.elements(), ty.bytes()), "{ty:?}");
            assert!(can_quantize(ty));
            let (entries, top) = encoding.book().unwrap_or((0, 0));
            assert_eq!(book(encoding).len(), entries, "{ty:?}");
            assert_eq!(book(encoding).iter().flatten().max().copied().unwrap_or(0), top, "{ty:?}");
        }
    }

    #[test]
    fn rows_of_one_matrix_share_what_they_weigh() {
        let tensor = Tensor::owned("w".into(), BlockType::F32, vec![3, 2, 32], vec![0; 3 * 2 * 32 * 4]).unwrap();
        let mut importance = Importance::default();
        importance.add("w", 1, 5, &[2.0; 32]);
        assert!(Sets::of(&tensor, &[0, 1], &importance).is_none(), "nothing is known of the first matrix");
        let sets = Sets::of(&tensor, &[1, 2, 3, 5], &importance).unwrap();
        assert_eq!(sets.set_of, [0, 1, 1, 2]);
        assert_eq!(sets.weights, [1.0; 96]);
    }
}
