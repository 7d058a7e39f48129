//! The quantised file: the source's metadata and order of tensors, some of them in another encoding. Under another name
//! until it is whole and on the disk.

use super::{Encoder, Importance, QuantizeError};
use crate::format::gguf::{GgufHeader, MetaValue};
use crate::format::{BlockType, Gguf, Tensor};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Bytes of a tensor that are made at once.
const SLAB_BYTES: usize = 32 << 20;
/// Keys about a set of split files: what is written is one file.
const SPLIT_KEYS: &str = "split.";
const ALIGNMENT: &str = "general.alignment";

/// What is to be written.
#[derive(Clone)]
pub struct Output<'a> {
    /// Where tensors and metadata come from.
    pub source: &'a Gguf,
    /// Encodings by tensor; the others are passed on as they are.
    pub types: HashMap<String, BlockType>,
    /// Tensors that are left out.
    pub dropped: Vec<String>,
    /// Keys that get another value. Keys that the source lacks are not added.
    pub keys: Vec<(String, MetaValue)>,
    /// Keys that are left out.
    pub dropped_keys: Vec<String>,
    /// How much inputs count.
    pub importance: &'a Importance,
    /// The device or the threads that encode.
    pub encoder: &'a dyn Encoder,
}

impl<'a> Output<'a> {
    /// The encoding of a tensor.
    pub fn ty(&self, tensor: &Tensor) -> BlockType {
        self.types.get(&tensor.name).copied().unwrap_or(tensor.ty)
    }

    /// Size of the whole file.
    pub fn bytes(&self) -> Result<u64, QuantizeError> {
        let header = self.header()?;
        let data: u64 = self.tensors().map(|t| header.padded(encoded_bytes(t, self.ty(t)))).sum();
        Ok(header.to_bytes().len() as u64 + data)
    }

    fn tensors(&self) -> impl Iterator<Item = &'a Tensor> {
        let dropped = self.dropped.clone();
        self.source.tensors_in_order().filter(move |t| !dropped.contains(&t.name))
    }

    fn header(&self) -> Result<GgufHeader, QuantizeError> {
        let mut header = GgufHeader::default();
        if let Some(bytes) = self.source.meta().u64(ALIGNMENT)? {
            header.align(bytes);
        }
        for (key, value) in self.source.meta().encoded() {
            if key.starts_with(SPLIT_KEYS) || self.dropped_keys.iter().any(|k| k == key) {
                continue;
            }
            let other = self.keys.iter().find(|k| k.0 == key).map(|k| k.1.clone());
            header.set(key, other.unwrap_or_else(|| MetaValue::Encoded(value.to_vec())));
        }
        for t in self.tensors() {
            header.tensor(&t.name, self.ty(t), &t.shape);
        }
        Ok(header)
    }
}

/// Bytes of a tensor encoded as `ty`.
///
/// # Panics
/// If its rows are not whole blocks of the type.
pub fn encoded_bytes(tensor: &Tensor, ty: BlockType) -> u64 {
    let row = ty.row_bytes(tensor.cols()).expect("the type fits the rows") as u64;
    row * (tensor.rows() * tensor.matrices()) as u64
}

/// Writes the file and gives its size. `progress` is told `(bytes written, bytes in all)`.
///
/// The room on the disk is looked at first. What was there under the name is replaced only by a whole file; a run that
/// ends early leaves at most a file whose name ends with `.partial`.
pub fn write(path: &Path, output: &Output<'_>, mut progress: impl FnMut(u64, u64)) -> Result<u64, QuantizeError> {
    let io_error = |error: io::Error| QuantizeError::Io { path: path.to_owned(), error };
    if let (Ok(a), Ok(b)) = (path.canonicalize(), output.source.path().canonicalize())
        && a == b
    {
        return Err(QuantizeError::SameFile(path.to_owned()));
    }
    let total = output.bytes()?;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let have = crate::files::room(parent).map_err(io_error)?;
    if have < total {
        return Err(QuantizeError::NoRoom { path: path.to_owned(), need: total, have });
    }
    let partial = path.with_added_extension("partial");
    let done = write_all(&partial, output, &mut |done| progress(done, total), &io_error).and_then(|()| {
        output.source.files().check()?;
        std::fs::rename(&partial, path).and_then(|()| File::open(parent)?.sync_all()).map_err(io_error)
    });
    if done.is_err() {
        // The first error is the one to tell.
        let _ = std::fs::remove_file(&partial);
    }
    done.map(|()| total)
}

/// Writes a file of the same size without its tensors' values, which are zeros and take no room: enough to plan with.
pub fn write_outline(path: &Path, output: &Output<'_>) -> Result<(), QuantizeError> {
    let bytes = (output.header()?.to_bytes(), output.bytes()?);
    let written = File::create(path).and_then(|mut file| {
        file.write_all(&bytes.0)?;
        file.set_len(bytes.1)
    });
    written.map_err(|error| QuantizeError::Io { path: path.to_owned(), error })
}

fn write_all(
    partial: &Path,
    output: &Output<'_>,
    progress: &mut dyn FnMut(u64),
    io_error: &dyn Fn(io::Error) -> QuantizeError,
) -> Result<(), QuantizeError> {
    let header = output.header()?;
    let mut file = BufWriter::new(File::create(partial).map_err(io_error)?);
    let head = header.to_bytes();
    file.write_all(&head).map_err(io_error)?;
    let mut done = head.len() as u64;
    for tensor in output.tensors() {
        let ty = output.ty(tensor);
        let tensor = &tensor.passing();
        for slab in slabs(tensor, ty) {
            let bytes = if ty == tensor.ty {
                copied(tensor, slab)
            } else {
                output.encoder.encode(tensor, &slab.collect::<Vec<_>>(), ty, output.importance)?
            };
            file.write_all(&bytes).map_err(io_error)?;
            done += bytes.len() as u64;
            progress(done);
        }
        let len = encoded_bytes(tensor, ty);
        let padding = header.padded(len) - len;
        file.write_all(&vec![0; padding as usize]).map_err(io_error)?;
        done += padding;
    }
    file.flush().and_then(|()| file.get_ref().sync_all()).map_err(io_error)
}

/// Ranges of rows whose bytes are made at once.
fn slabs(tensor: &Tensor, ty: BlockType) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
    let rows = tensor.rows() * tensor.matrices();
    let step = (SLAB_BYTES / ty.row_bytes(tensor.cols()).expect("the type fits the rows").max(1)).max(1);
    (0..rows).step_by(step).map(move |at| at..(at + step).min(rows))
}

fn copied(tensor: &Tensor, rows: std::ops::Range<usize>) -> Vec<u8> {
    let len = tensor.ty.row_bytes(tensor.cols()).expect("a tensor has whole rows");
    tensor.bytes()[rows.start * len..rows.end * len].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantize::Threads;

    fn source(dir: &Path) -> Gguf {
        let mut header = GgufHeader::default();
        header.set("general.architecture", MetaValue::Str("t".into()));
        header.set("t.block_count", MetaValue::U32(2));
        header.set("split.count", MetaValue::U32(1));
        header.set("words", MetaValue::Strings(vec!["a".into(), "bc".into()]));
        header.tensor("a.weight", BlockType::F32, &[3, 64]);
        header.tensor("norm", BlockType::F32, &[5]);
        header.tensor("b.weight", BlockType::F32, &[2, 2, 32]);
        let mut bytes = header.to_bytes();
        for n in [192, 5, 128] {
            bytes.extend((0..n).flat_map(|i| (i as f32 * 0.1).sin().to_le_bytes()));
            bytes.resize(header.padded(bytes.len() as u64) as usize, 0);
        }
        let path = dir.join("s.gguf");
        std::fs::write(&path, bytes).unwrap();
        Gguf::open(&path).unwrap()
    }

    fn output<'a>(source: &'a Gguf, importance: &'a Importance) -> Output<'a> {
        Output {
            source,
            types: HashMap::from([("a.weight".to_owned(), BlockType::Q8_0)]),
            dropped: vec!["b.weight".into()],
            keys: vec![("t.block_count".into(), MetaValue::U32(1))],
            dropped_keys: vec![],
            importance,
            encoder: &Threads,
        }
    }

    #[test]
    fn metadata_and_what_is_not_chosen_pass_through_untouched() {
        let dir = tempfile::tempdir().unwrap();
        let (source, importance) = (source(dir.path()), Importance::default());
        let path = dir.path().join("o.gguf");
        let mut told = (0, 0);
        let size = write(&path, &output(&source, &importance), |done, all| told = (done, all)).unwrap();
        assert_eq!((size, told.1), (std::fs::metadata(&path).unwrap().len(), size));
        assert!(!path.with_added_extension("partial").exists());
        let back = Gguf::open(&path).unwrap();
        assert_eq!(back.meta().strings("words").unwrap().unwrap(), ["a", "bc"]);
        assert_eq!(back.meta().u64("t.block_count").unwrap(), Some(1));
        assert_eq!(back.meta().u64("split.count").unwrap(), None);
        assert_eq!(back.tensor("norm").unwrap().bytes(), source.tensor("norm").unwrap().bytes());
        assert!(back.tensor("b.weight").is_none());
        let a = back.tensor("a.weight").unwrap();
        assert_eq!(a.ty, BlockType::Q8_0);
        let near =
            a.decode().iter().zip(source.tensor("a.weight").unwrap().decode()).all(|(x, y)| (x - y).abs() < 0.01);
        assert!(near);
    }

    #[test]
    fn a_run_that_fails_leaves_no_file_and_the_old_one_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let (source, importance) = (source(dir.path()), Importance::default());
        let path = dir.path().join("o.gguf");
        std::fs::write(&path, b"old").unwrap();
        let bad = Tensor::owned("a.weight".into(), BlockType::F32, vec![1, 32], vec![0xff; 128]).unwrap();
        let broken = source.with([bad]);
        let e = write(&path, &output(&broken, &importance), |_, _| ()).unwrap_err();
        assert!(e.to_string().contains("tensor `a.weight`: wanted finite weights"), "{e}");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert!(!path.with_added_extension("partial").exists());
        let e = write(source.path(), &output(&source, &importance), |_, _| ()).unwrap_err();
        assert!(e.to_string().contains("the output is the source"), "{e}");
    }
}
