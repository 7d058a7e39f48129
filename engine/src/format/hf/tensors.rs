//! Tensors of one safetensors file or of all shards that model.safetensors.index.json names.

use super::json::Json;
use crate::format::mapped::MappedFile;
use crate::format::{BlockType, Files, LoadError, Problem, Tensor};
use half::bf16;
use rayon::prelude::*;
use safetensors::{Dtype, SafeTensors};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";
/// 8-bit floats come with one scale for a square of this many rows and columns.
const FP8_SQUARE: usize = 128;

/// All tensors of a directory, by name.
pub(super) struct Tensors {
    dir: PathBuf,
    by_name: HashMap<String, TensorLocation>,
    files: Files,
}

/// The threads that decode a tensor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Workers {
    /// All of the pool.
    All,
    /// The one that asks, which takes no other work meanwhile.
    This,
}

/// Where a tensor lies.
struct TensorLocation {
    dtype: Dtype,
    shape: Vec<usize>,
    file: Arc<MappedFile>,
    range: Range<usize>,
}

impl Tensors {
    pub(super) fn open(dir: &Path) -> Result<Self, LoadError> {
        let mut all = Self { dir: dir.to_owned(), by_name: HashMap::new(), files: Files::default() };
        match Json::read_if_there(&dir.join(INDEX))? {
            None => all.add_file(&dir.join(SINGLE))?,
            Some(index) => all.add_indexed(&index)?,
        }
        Ok(all)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    pub(super) fn files(&self) -> &Files {
        &self.files
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The name of the scales that an 8-bit tensor of this name has.
    pub(super) fn scales_of(&self, name: &str) -> Option<String> {
        let entry = self.by_name.get(name)?;
        (entry.dtype == Dtype::F8_E4M3).then(|| scales_name(name))
    }

    /// Type and shape that [`Tensors::get`] gives, with all that it checks.
    pub(super) fn outline(&self, name: &str) -> Result<Option<(BlockType, &[usize])>, LoadError> {
        let Some(entry) = self.by_name.get(name) else { return Ok(None) };
        let ty = match entry.dtype {
            Dtype::F32 => BlockType::F32,
            Dtype::F16 => BlockType::F16,
            Dtype::BF16 => BlockType::Bf16,
            Dtype::F8_E4M3 => self.scales(name, entry).map(|_| BlockType::Bf16)?,
            other => return Err(self.error(name, "F32, F16, BF16 or F8_E4M3", format_args!("{other:?}"))),
        };
        Ok(Some((ty, &entry.shape)))
    }

    pub(super) fn get(&self, name: &str) -> Result<Option<Tensor>, LoadError> {
        self.get_with(name, Workers::All)
    }

    /// The tensor of this name, decoded by these threads where it has to be.
    pub(super) fn get_with(&self, name: &str, workers: Workers) -> Result<Option<Tensor>, LoadError> {
        let Some((ty, _)) = self.outline(name)? else { return Ok(None) };
        let entry = &self.by_name[name];
        if entry.dtype == Dtype::F8_E4M3 {
            return self.decode_fp8(name, entry, workers).map(Some);
        }
        let tensor = Tensor::mapped(name.to_owned(), ty, entry.shape.clone(), entry.file.clone(), entry.range.clone());
        Ok(Some(tensor.expect("the safetensors header was checked against shapes and file")))
    }

    fn add_indexed(&mut self, index: &Json) -> Result<(), LoadError> {
        let map = index.get("weight_map").and_then(|v| v.as_object());
        let map = map.ok_or_else(|| index.error("weight_map", "an object of tensor names and files", "none"))?;
        let mut files = BTreeSet::new();
        for (tensor, file) in map {
            let name = file.as_str().filter(|f| Path::new(f).file_name().is_some_and(|n| n == *f));
            files.insert(name.ok_or_else(|| index.error(tensor, "the name of a file in this directory", file))?);
        }
        files.iter().try_for_each(|f| self.add_file(&self.dir.join(f)))?;
        match map.keys().find(|name| !self.by_name.contains_key(*name)) {
            None => Ok(()),
            Some(name) => {
                Err(Problem::tensor(name, "to be in the file that the index names", "no such tensor")
                    .in_file(&index.file))
            }
        }
    }

    fn add_file(&mut self, path: &Path) -> Result<(), LoadError> {
        let file = MappedFile::open(path)?;
        self.files.push(file.clone());
        let (head, meta) = SafeTensors::read_metadata(&file)
            .map_err(|e| Problem::container("safetensors header", "one that describes this file", e).in_file(path))?;
        // The data section starts behind the header's length field and the header.
        let data_at = head + size_of::<u64>();
        for (name, info) in meta.tensors() {
            let (start, end) = info.data_offsets;
            let entry = TensorLocation {
                dtype: info.dtype,
                shape: info.shape.clone(),
                file: file.clone(),
                range: data_at + start..data_at + end,
            };
            if self.by_name.insert(name.clone(), entry).is_some() {
                return Err(Problem::tensor(name, "one tensor of this name in all files", "two").in_file(path));
            }
        }
        Ok(())
    }

    /// The scales of an 8-bit tensor: one for each square of the last two dimensions.
    fn scales(&self, name: &str, entry: &TensorLocation) -> Result<Tensor, LoadError> {
        let scale_name = scales_name(name);
        let scales = match self.by_name.get(&scale_name).map(|s| s.dtype) {
            Some(Dtype::F32 | Dtype::F16 | Dtype::BF16) => self.get(&scale_name)?.expect("it is there"),
            Some(other) => return Err(self.error(&scale_name, "F32, F16 or BF16", format_args!("{other:?}"))),
            None => return Err(self.error(&scale_name, "the scales of an F8_E4M3 tensor", "no such tensor")),
        };
        let [stack @ .., rows, cols] = &entry.shape[..] else {
            return Err(self.error(name, "at least 2 dimensions in F8_E4M3", entry.shape.len()));
        };
        let want = [stack, &[rows.div_ceil(FP8_SQUARE), cols.div_ceil(FP8_SQUARE)]].concat();
        if scales.shape != want {
            let (want, got) = (format!("shape {want:?}"), format!("shape {:?}", scales.shape));
            return Err(self.error(&scale_name, want, got));
        }
        Ok(scales)
    }

    /// bf16 of `value * scale`.
    fn decode_fp8(&self, name: &str, entry: &TensorLocation, workers: Workers) -> Result<Tensor, LoadError> {
        let scales = self.scales(name, entry)?;
        let [.., rows, cols] = entry.shape[..] else { unreachable!("scales belong to 2 dimensions or more") };
        let (down, across) = (scales.rows(), scales.cols());
        let (scales, bytes) = (scales.decode(), &entry.file[entry.range.clone()]);
        let mut out = vec![0; bytes.len() * 2];
        let decode = |(row, (out, bytes)): (usize, (&mut [u8], &[u8]))| {
            let line = (row / rows * down + row % rows / FP8_SQUARE) * across;
            fp8_row(bytes, &scales[line..line + across], out);
        };
        match workers {
            _ if bytes.is_empty() => {}
            Workers::All => out.par_chunks_mut(cols * 2).zip(bytes.par_chunks(cols)).enumerate().for_each(decode),
            Workers::This => out.chunks_mut(cols * 2).zip(bytes.chunks(cols)).enumerate().for_each(decode),
        }
        Ok(Tensor::owned(name.to_owned(), BlockType::Bf16, entry.shape.clone(), out).expect("two bytes a value"))
    }

    fn error(&self, name: &str, want: impl std::fmt::Display, got: impl std::fmt::Display) -> LoadError {
        Problem::tensor(name, want, got).in_file(&self.dir)
    }
}

impl std::fmt::Debug for Tensors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tensors").field("dir", &self.dir).field("count", &self.by_name.len()).finish()
    }
}

fn scales_name(name: &str) -> String {
    format!("{name}_scale_inv")
}

fn fp8_row(bytes: &[u8], scales: &[f32], out: &mut [u8]) {
    for (i, (byte, out)) in bytes.iter().zip(out.chunks_exact_mut(2)).enumerate() {
        out.copy_from_slice(&bf16::from_f32(e4m3(*byte) * scales[i / FP8_SQUARE]).to_le_bytes());
    }
}

/// An 8-bit float with sign, 4 bits of exponent and 3 of mantissa; no infinities, NaN is all ones.
fn e4m3(byte: u8) -> f32 {
    let (e, m) = (byte >> 3 & 15, f32::from(byte & 7));
    let magnitude = match byte & 0x7f {
        0x7f => f32::NAN,
        _ if e == 0 => m / 512.0,
        _ => (1.0 + m / 8.0) * f32::from_bits((u32::from(e) + 120) << 23),
    };
    if byte & 0x80 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bit_floats_have_their_published_values() {
        assert_eq!(
            [0x00, 0x01, 0x07, 0x08, 0x38, 0x7e, 0xb8].map(e4m3),
            [0.0, 0.001953125, 0.013671875, 0.015625, 1.0, 448.0, -1.0]
        );
        assert!(e4m3(0xff).is_nan());
    }
}
