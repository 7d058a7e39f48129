//! Matrices of 8-bit and 4-bit floats.

use super::super::tensors::{TensorLocation, Tensors};
use super::scales::{check_shape, floats, one_factor};
use super::{QuantizedMatrix, StoredMatrix, WeightScheme};
use crate::format::blocks::decode::e4m3;
use crate::format::{BlockType, LoadError, Tensor};
use safetensors::Dtype;

/// Rows and columns that share a scale.
pub(super) const SQUARE: usize = 128;
/// Values that share an 8-bit scale in NVFP4.
const NVFP4_GROUP: usize = 16;
/// Values that share a power of two in MXFP4.
const MXFP4_GROUP: usize = 32;

/// The 8-bit matrix, or stack of them, of this name.
pub(super) fn fp8(tensors: &Tensors, name: &str, entry: &TensorLocation) -> Result<StoredMatrix, LoadError> {
    let inverse = format!("{name}_scale_inv");
    let own = format!("{name}_scale");
    let scales_name = if tensors.location(&own).is_some() { own } else { inverse };
    let scales = floats(tensors, &scales_name, "an F8_E4M3 tensor")?;
    let [stack @ .., rows, cols] = &entry.shape[..] else {
        return Err(tensors.error(name, "at least 2 dimensions in F8_E4M3", entry.shape.len()));
    };
    let blocks = [stack, &[rows.div_ceil(SQUARE), cols.div_ceil(SQUARE)]].concat();
    let a_row = scales.shape == [&entry.shape[..entry.shape.len() - 1], &[1]].concat() || scales.shape == [*rows];
    let scheme = if scales.shape.len() < 2 && scales.shape.iter().product::<usize>() == 1 {
        WeightScheme::Fp8Whole
    } else if a_row && scales.shape != blocks {
        WeightScheme::Fp8Rows
    } else {
        // Some programs write dimensions of 1 between these.
        let (got, want) = (without_ones(&scales.shape), without_ones(&blocks));
        check_shape(tensors, &scales_name, if got == want { &blocks } else { &scales.shape }, &blocks)?;
        WeightScheme::Fp8Blocks
    };
    let parts = vec![name.to_owned(), scales_name];
    Ok(StoredMatrix { scheme, shape: entry.shape.clone(), parts })
}

fn without_ones(shape: &[usize]) -> Vec<usize> {
    shape.iter().copied().filter(|n| *n != 1).collect()
}

/// The 4-bit matrix of modelopt with these codes.
pub(super) fn nvfp4_of_modelopt(
    tensors: &Tensors,
    name: &str,
    stem: &str,
    entry: &TensorLocation,
) -> Result<StoredMatrix, LoadError> {
    let parts = vec![name.to_owned(), format!("{stem}.weight_scale"), format!("{stem}.weight_scale_2")];
    nvfp4(tensors, entry, parts)
}

/// The 4-bit matrix of compressed-tensors with these codes.
pub(super) fn packed(tensors: &Tensors, stem: &str, entry: &TensorLocation) -> Result<StoredMatrix, LoadError> {
    let [codes, scales, global] =
        ["weight_packed", "weight_scale", "weight_global_scale"].map(|end| format!("{stem}.{end}"));
    if tensors.location(&scales).is_some_and(|s| s.dtype == Dtype::U8) {
        let shape = unpacked_shape(tensors, &codes, entry)?;
        let groups = [shape[0], shape[1] / MXFP4_GROUP];
        check_shape(tensors, &scales, &tensors.location(&scales).expect("it is there").shape, &groups)?;
        return Ok(StoredMatrix { scheme: WeightScheme::Mxfp4, shape, parts: vec![codes, scales] });
    }
    nvfp4(tensors, entry, vec![codes, scales, global])
}

fn nvfp4(tensors: &Tensors, entry: &TensorLocation, parts: Vec<String>) -> Result<StoredMatrix, LoadError> {
    let shape = unpacked_shape(tensors, &parts[0], entry)?;
    let scales = &parts[1];
    match tensors.location(scales) {
        Some(s) if s.dtype == Dtype::F8_E4M3 => {
            check_shape(tensors, scales, &s.shape, &[shape[0], shape[1] / NVFP4_GROUP])?;
        }
        Some(s) => return Err(tensors.error(scales, "F8_E4M3", format_args!("{:?}", s.dtype))),
        None => return Err(tensors.error(scales, "the scales of an NVFP4 tensor", "no such tensor")),
    }
    one_factor(tensors, &parts[2], "an NVFP4 tensor")?;
    Ok(StoredMatrix { scheme: WeightScheme::Nvfp4, shape, parts })
}

/// The shape of a matrix of which two values share a byte.
fn unpacked_shape(tensors: &Tensors, codes: &str, entry: &TensorLocation) -> Result<Vec<usize>, LoadError> {
    match entry.shape[..] {
        [rows, bytes] => Ok(vec![rows, 2 * bytes]),
        _ => Err(tensors.error(codes, "2 dimensions", entry.shape.len())),
    }
}

/// The matrix in its encoding.
pub(super) fn tensor(q: &QuantizedMatrix<'_>) -> Result<Tensor, LoadError> {
    match q.stored.scheme {
        WeightScheme::Fp8Blocks => fp8_blocks(q),
        WeightScheme::Nvfp4 => nvfp4_tensor(q),
        WeightScheme::Mxfp4 => mxfp4_tensor(q),
        _ => fp8_rows(q),
    }
}

fn fp8_rows(q: &QuantizedMatrix<'_>) -> Result<Tensor, LoadError> {
    let scales = floats(q.tensors, &q.stored.parts[1], "an F8_E4M3 tensor")?.decode();
    let tensor = q.part(0).mapped(&q.name, BlockType::F8E4m3);
    Ok(tensor.with_scale(Some(scales.into())))
}

fn fp8_blocks(q: &QuantizedMatrix<'_>) -> Result<Tensor, LoadError> {
    let scales = floats(q.tensors, &q.stored.parts[1], "an F8_E4M3 tensor")?;
    let [.., rows, cols] = q.stored.shape[..] else { unreachable!("8-bit floats have 2 dimensions or more") };
    let (down, across) = (rows.div_ceil(SQUARE), cols.div_ceil(SQUARE));
    let (scales, codes, ty) = (scales.decode(), q.part(0).bytes(), q.encoding());
    let row_bytes = ty.row_bytes(cols).expect("the encoding fits the row");
    q.made(ty, move |out| {
        let each = out.chunks_exact_mut(row_bytes.max(1)).zip(codes.get().chunks_exact(cols.max(1)));
        for (row, (out, codes)) in each.enumerate() {
            let line = (row / rows * down + row % rows / SQUARE) * across;
            fp8_row(ty, codes, &scales[line..line + across], out);
        }
    })
}

fn fp8_row(ty: BlockType, codes: &[u8], scales: &[f32], out: &mut [u8]) {
    let blocks = codes.chunks(SQUARE).zip(scales);
    if ty == BlockType::F8E4m3B128 {
        for ((codes, scale), out) in blocks.zip(out.chunks_exact_mut(ty.bytes())) {
            out[..4].copy_from_slice(&scale.to_le_bytes());
            out[4..].copy_from_slice(codes);
        }
        return;
    }
    let values = blocks.flat_map(|(codes, scale)| codes.iter().map(move |code| scale * e4m3(*code)));
    out.as_chunks_mut::<4>().0.iter_mut().zip(values).for_each(|(out, x)| *out = x.to_le_bytes());
}

/// Nibbles of neighbours, low one first, of 2 * N values, as N bytes of which each has a value of the first half and
/// one of the second.
fn halves<const N: usize>(codes: &[u8]) -> [u8; N] {
    let nibble = |i: usize| codes[i / 2] >> (i % 2 * 4) & 15;
    std::array::from_fn(|j| nibble(j) | nibble(j + N) << 4)
}

/// Bytes of codes, then of scales, of a row, encoded by blocks.
fn by_rows(
    q: &QuantizedMatrix<'_>,
    ty: BlockType,
    group: usize,
    block: impl Fn(&[u8], &[u8], &mut [u8]) + Send + Sync + 'static,
) -> Result<Tensor, LoadError> {
    let (codes, scales) = (q.part(0).bytes(), q.part(1).bytes());
    let (codes_len, scales_len) = (ty.elements() / 2, ty.elements() / group);
    q.made(ty, move |out| {
        // Rows are whole blocks, so that the matrix is one run of them.
        let each = codes.get().chunks_exact(codes_len).zip(scales.get().chunks_exact(scales_len));
        each.zip(out.chunks_exact_mut(ty.bytes())).for_each(|((codes, scales), out)| block(codes, scales, out));
    })
}

fn nvfp4_tensor(q: &QuantizedMatrix<'_>) -> Result<Tensor, LoadError> {
    let scales = q.part(1).bytes();
    if let Some(at) = scales.get().iter().position(|s| *s >= 0x7f) {
        let got = format!("{} in row {}", e4m3(scales.get()[at]), at * NVFP4_GROUP / q.cols().max(1));
        return Err(q.tensors.error(&q.stored.parts[1], "finite scales without a sign", got));
    }
    let factor = one_factor(q.tensors, &q.stored.parts[2], "an NVFP4 tensor")?;
    let divides = q.stored.parts[2].ends_with("_global_scale");
    let tensor = by_rows(q, BlockType::Nvfp4, NVFP4_GROUP, |codes, scales, out| {
        out[..4].copy_from_slice(scales);
        for (codes, out) in codes.chunks_exact(8).zip(out[4..].chunks_exact_mut(8)) {
            out.copy_from_slice(&halves::<8>(codes));
        }
    })?;
    Ok(tensor.with_scale(Some([if divides { 1.0 / factor } else { factor }].into())))
}

fn mxfp4_tensor(q: &QuantizedMatrix<'_>) -> Result<Tensor, LoadError> {
    by_rows(q, BlockType::Mxfp4, MXFP4_GROUP, |codes, scales, out| {
        out[0] = scales[0];
        out[1..].copy_from_slice(&halves::<16>(codes));
    })
}
