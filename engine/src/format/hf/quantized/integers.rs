//! Matrices of 4-bit integers with a scale and a zero point for 128 columns.

use super::super::tensors::{MappedBytes, TensorLocation, Tensors};
use super::scales::{check_shape, floats};
use super::{QuantizedMatrix, StoredMatrix, WeightScheme};
use crate::format::{BlockType, LoadError, Tensor};
use half::f16;
use safetensors::Dtype;

/// Columns that share a scale.
const GROUP: usize = 128;
/// Nibbles of a word.
const WORD: usize = 8;
/// The zero point of weights that are stored without one.
const MIDDLE: u8 = 8;
/// A zero point of GPTQ that has no certain meaning.
const AMBIGUOUS: u8 = 16;
/// Which of eight outputs the nibbles of a word of AWQ are of.
const AWQ_ORDER: [usize; WORD] = [0, 2, 4, 6, 1, 3, 5, 7];

/// The matrix of compressed-tensors with these codes.
pub(super) fn packed(tensors: &Tensors, stem: &str, entry: &TensorLocation) -> Result<StoredMatrix, LoadError> {
    let [codes, scales, zeros, shape_name, order] =
        ["weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx"]
            .map(|end| format!("{stem}.{end}"));
    let [rows, words] = entry.shape[..] else {
        return Err(tensors.error(&codes, "2 dimensions", entry.shape.len()));
    };
    let shape = vec![rows, words * WORD];
    check_scales(tensors, &scales, [rows, shape[1] / GROUP], &shape)?;
    let mut parts = vec![codes, scales];
    let scheme = if tensors.location(&zeros).is_some() { WeightScheme::Int4Zeros } else { WeightScheme::Int4 };
    if let Some(found) = tensors.location(&zeros) {
        check_words(tensors, &zeros, found, [rows / WORD, shape[1] / GROUP])?;
        parts.push(zeros);
    }
    if let Some(found) = tensors.location(&shape_name) {
        let said =
            found.integers().ok_or_else(|| tensors.error(&shape_name, "I64", format_args!("{:?}", found.dtype)))?;
        if !said.iter().copied().eq(shape.iter().map(|n| *n as i64)) {
            return Err(tensors.error(&shape_name, format_args!("{shape:?}"), format_args!("{said:?}")));
        }
        parts.push(shape_name);
    }
    push_order(tensors, order, shape[1], &mut parts)?;
    Ok(StoredMatrix { scheme, shape, parts })
}

/// The matrix of AWQ or GPTQ with these codes. They differ in what shares a word: outputs or inputs.
pub(super) fn awq_or_gptq(tensors: &Tensors, stem: &str, entry: &TensorLocation) -> Result<StoredMatrix, LoadError> {
    let [codes, scales, zeros, order] = ["qweight", "scales", "qzeros", "g_idx"].map(|end| format!("{stem}.{end}"));
    let [down, across] = entry.shape[..] else {
        return Err(tensors.error(&codes, "2 dimensions", entry.shape.len()));
    };
    let outputs = match tensors.location(&scales).map(|s| &s.shape[..]) {
        Some([_, outputs]) => *outputs,
        Some(other) => return Err(tensors.error(&scales, "2 dimensions", other.len())),
        None => return Err(tensors.error(&scales, "the scales of a matrix of 4-bit integers", "no such tensor")),
    };
    let (scheme, inputs) =
        if across == outputs { (WeightScheme::Gptq, down * WORD) } else { (WeightScheme::Awq, down) };
    if scheme == WeightScheme::Awq {
        check_shape(tensors, &codes, &entry.shape, &[inputs, outputs / WORD])?;
    }
    let shape = vec![outputs, inputs];
    check_scales(tensors, &scales, [inputs / GROUP, outputs], &shape)?;
    match tensors.location(&zeros) {
        Some(found) => check_words(tensors, &zeros, found, [inputs / GROUP, outputs / WORD])?,
        None => return Err(tensors.error(&zeros, "the zero points of a matrix of 4-bit integers", "no such tensor")),
    }
    let mut parts = vec![codes, scales, zeros];
    push_order(tensors, order, inputs, &mut parts)?;
    Ok(StoredMatrix { scheme, shape, parts })
}

fn check_scales(tensors: &Tensors, name: &str, want: [usize; 2], matrix: &[usize]) -> Result<(), LoadError> {
    if !matrix[1].is_multiple_of(GROUP) {
        return Err(tensors.error(name, "groups of 128 columns", format_args!("{} columns", matrix[1])));
    }
    match tensors.location(name) {
        Some(found) => check_shape(tensors, name, &found.shape, &want),
        None => Err(tensors.error(name, "the scales of a matrix of 4-bit integers", "no such tensor")),
    }
}

fn check_words(tensors: &Tensors, name: &str, found: &TensorLocation, want: [usize; 2]) -> Result<(), LoadError> {
    if found.dtype != Dtype::I32 {
        return Err(tensors.error(name, "I32", format_args!("{:?}", found.dtype)));
    }
    check_shape(tensors, name, &found.shape, &want)
}

/// Adds the groups of the columns to the parts, if the file has them: they must be in order.
fn push_order(tensors: &Tensors, name: String, cols: usize, parts: &mut Vec<String>) -> Result<(), LoadError> {
    let Some(found) = tensors.location(&name) else { return Ok(()) };
    let groups = found.integers().ok_or_else(|| tensors.error(&name, "I32", format_args!("{:?}", found.dtype)))?;
    check_shape(tensors, &name, &[groups.len()], &[cols])?;
    if let Some(at) = (0..cols).find(|at| groups[*at] != (at / GROUP) as i64) {
        let want = format!("group {} at column {at}: columns in their order", at / GROUP);
        return Err(tensors.error(&name, want, groups[at]));
    }
    parts.push(name);
    Ok(())
}

/// The matrix in its encoding.
pub(super) fn tensor(q: &QuantizedMatrix<'_>) -> Result<Tensor, LoadError> {
    let (halves, factor) = exact_halves(q)?;
    let (rows, groups) = (q.rows(), q.cols() / GROUP);
    let zeros = zero_points(q, rows, groups);
    if q.stored.scheme == WeightScheme::Gptq && zeros.contains(&AMBIGUOUS) {
        // Programs take it for 0 or for 16.
        return Err(q.tensors.error(&q.stored.parts[2], "zero points that are stored as 0 to 14", 15));
    }
    if q.stored.scheme == WeightScheme::Gptq && q.quantization.is_symmetric() && zeros.iter().any(|z| *z != MIDDLE) {
        let want = "8 everywhere, because config.json says that weights are symmetric (`sym`)";
        return Err(q.tensors.error(&q.stored.parts[2], want, "another zero point"));
    }
    let (scheme, codes) = (q.stored.scheme, q.part(0).bytes());
    let row_bytes = groups * BlockType::U4G128.bytes();
    let tensor = q.made(BlockType::U4G128, move |out| {
        for group in 0..groups {
            for row in 0..rows {
                let block = &mut out[row * row_bytes + group * BlockType::U4G128.bytes()..];
                let by_rows = matches!(scheme, WeightScheme::Int4 | WeightScheme::Int4Zeros);
                let at = if by_rows { row * groups + group } else { group * rows + row };
                block[..2].copy_from_slice(&halves[at].to_le_bytes());
                block[2] = zeros[row * groups + group];
            }
            put_codes(scheme, &codes, (rows, groups), group, out);
        }
    })?;
    Ok(if factor == 1.0 { tensor } else { tensor.with_scale(Some([factor].into())) })
}

/// The scales as f16 times one power of two, without a change of any value: bf16 reaches further than f16.
fn exact_halves(q: &QuantizedMatrix<'_>) -> Result<(Vec<f16>, f32), LoadError> {
    let scales = floats(q.tensors, &q.stored.parts[1], "a matrix of 4-bit integers")?;
    let values = scales.decode();
    let most = values.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    // Times 15, the largest code less a zero point, 2^11 is still a number of f16.
    let raise = if scales.ty == BlockType::F16 || most == 0.0 { 0 } else { 11 - most.log2().floor() as i32 };
    let (up, down) = (2f32.powi(raise.clamp(-126, 126)), 2f32.powi(-raise.clamp(-126, 126)));
    let halves: Vec<f16> = values.iter().map(|x| f16::from_f32(x * up)).collect();
    match values.iter().zip(&halves).find(|(x, half)| half.to_f32() != **x * up) {
        None => Ok((halves, down)),
        Some((x, _)) => {
            Err(q.tensors.error(&q.stored.parts[1], format_args!("scales within 2^-25 of the largest, {most}"), x))
        }
    }
}

/// The zero points of all rows, `[rows][groups]`.
fn zero_points(q: &QuantizedMatrix<'_>, rows: usize, groups: usize) -> Vec<u8> {
    let Some(words) = q.stored.parts.iter().position(|p| p.ends_with("zero_point") || p.ends_with("qzeros")) else {
        return vec![MIDDLE; rows * groups];
    };
    let words = q.part(words).bytes();
    // Of the first format of GPTQ's program, which stores one less.
    let more = u8::from(q.stored.scheme == WeightScheme::Gptq && !q.quantization.is_gptq_v2());
    let of = |row: usize, group: usize| match q.stored.scheme {
        WeightScheme::Int4Zeros => nibble(&words, row / WORD * groups + group, row % WORD),
        WeightScheme::Awq => {
            let place = AWQ_ORDER.iter().position(|output| *output == row % WORD).expect("one of eight");
            nibble(&words, group * (rows / WORD) + row / WORD, place)
        }
        _ => nibble(&words, group * (rows / WORD) + row / WORD, row % WORD) + more,
    };
    (0..rows * groups).map(|at| of(at / groups, at % groups)).collect()
}

fn nibble(words: &MappedBytes, word: usize, place: usize) -> u8 {
    words.get()[4 * word + place / 2] >> (place % 2 * 4) & 15
}

/// Puts the codes of one group of all rows into their blocks.
fn put_codes(scheme: WeightScheme, codes: &MappedBytes, (rows, groups): (usize, usize), group: usize, out: &mut [u8]) {
    let (codes, block) = (codes.get(), BlockType::U4G128.bytes());
    let word = |at: usize| u32::from_le_bytes(*codes[4 * at..].first_chunk().expect("a word of the matrix"));
    let mut put = |row: usize, col: usize, code: u32| {
        // As in four blocks of 32 whose halves share bytes.
        let at = (row * groups + group) * block + 4 + col / 32 * 16 + col % 16;
        out[at] |= (code as u8 & 15) << (col % 32 / 16 * 4);
    };
    match scheme {
        WeightScheme::Awq => {
            for (octet, col) in (0..rows / WORD).flat_map(|octet| (0..GROUP).map(move |col| (octet, col))) {
                let word = word((group * GROUP + col) * (rows / WORD) + octet);
                AWQ_ORDER.iter().enumerate().for_each(|(i, output)| put(octet * WORD + output, col, word >> (4 * i)));
            }
        }
        _ => {
            let eights = groups * (GROUP / WORD);
            for (row, eight) in (0..rows).flat_map(|row| (0..GROUP / WORD).map(move |eight| (row, eight))) {
                let of_row = group * (GROUP / WORD) + eight;
                let word = word(if scheme == WeightScheme::Gptq { of_row * rows + row } else { row * eights + of_row });
                (0..WORD).for_each(|i| put(row, eight * WORD + i, word >> (4 * i)));
            }
        }
    }
}
