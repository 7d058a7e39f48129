//! Synthetic models: whole GGUF files of a released shape with random weights, to measure speed and memory without a
//! download.
//!
//! Weights are scaled like a fresh initialisation, so activations stay finite; what the model says means nothing. A
//! byte-level tokenizer and a chat template are in the file, so it can be served.

mod hybrids;
mod plan;
mod text;

pub use plan::{Mix, SynthOptions};

use super::Problem;
use super::blocks::{SplitMix, encode_row, random_blocks};
use plan::{Fill, Planned};
use rayon::prelude::*;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Bytes that one task makes and writes at once: as large a write as the system takes gladly, and small enough to lie
/// in a cache while it is made and copied.
const PIECE_BYTES: usize = 1 << 20;

/// Why a synthetic model could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SynthError {
    /// An option is out of range.
    #[error("{0}")]
    Option(Problem),
    /// The file could not be written.
    #[error("{}: {error}", file.display())]
    Io {
        /// The file that was to be written.
        file: PathBuf,
        /// Why the system refused.
        error: io::Error,
    },
}

impl SynthOptions {
    /// Names of the shapes that can be made.
    pub fn shapes() -> impl Iterator<Item = &'static str> {
        plan::names().chain(hybrids::names())
    }
}

/// Writes the model to `path` and gives the file's size. The same options make the same bytes on every machine.
/// `progress` is told
/// `(bytes written, bytes in all)` a few times a second or more.
///
/// Every thread makes a piece and writes it where it belongs, so that making, and the copy into the system's cache, go
/// on side by side.
pub fn write(path: &Path, options: &SynthOptions, progress: impl FnMut(u64, u64) + Send) -> Result<u64, SynthError> {
    create(path, options, progress, |_| true)
}

/// Writes only what a reader decodes while it loads (header, norms and the like) and leaves holes where the matrices
/// are: a file that has the size of the model, takes no room, and can be planned for but not computed with.
pub fn write_outline(path: &Path, options: &SynthOptions) -> Result<u64, SynthError> {
    create(path, options, |_, _| (), |tensor| matches!(tensor.fill, Fill::Uniform(..)))
}

fn create(
    path: &Path,
    options: &SynthOptions,
    progress: impl FnMut(u64, u64) + Send,
    wanted: impl Fn(&Planned) -> bool,
) -> Result<u64, SynthError> {
    let planned = match hybrids::find(&options.shape) {
        Some(shape) => shape.plan(options),
        None => plan::plan(options),
    };
    let (header, tensors) = planned.map_err(SynthError::Option)?;
    let head = header.to_bytes();
    let (mut pieces, mut offset) = (Vec::new(), head.len() as u64);
    for (i, tensor) in tensors.iter().enumerate() {
        if wanted(tensor) {
            pieces.extend(TensorPiece::all_of(tensor, i as u64, offset));
        }
        offset += header.padded(tensor.bytes() as u64);
    }
    let total = offset;
    // Under another name until it is whole, so that a broken run leaves nothing that looks like a model.
    let partial = path.with_added_extension("partial");
    let write_all = || -> io::Result<()> {
        let file = File::create(&partial)?;
        // What lies between tensors is read as zeros.
        file.set_len(total)?;
        file.write_all_at(&head, 0)?;
        let told = Mutex::new((total - pieces.iter().map(|p| p.len as u64).sum::<u64>(), progress));
        pieces.par_iter().try_for_each_init(Vec::new, |buffer, piece| {
            buffer.resize(piece.len, 0);
            fill(piece.tensor, &mut SplitMix::new(options.seed, piece.stream), buffer);
            file.write_all_at(buffer, piece.offset)?;
            let (done, progress) = &mut *told.lock().expect("a progress line does not panic");
            *done += piece.len as u64;
            progress(*done, total);
            io::Result::Ok(())
        })?;
        std::fs::rename(&partial, path)
    };
    write_all().map(|()| total).map_err(|error| {
        // Nothing to be done if it cannot be removed either; the first error is the one to tell.
        let _ = std::fs::remove_file(&partial);
        SynthError::Io { file: path.to_owned(), error }
    })
}

/// A stretch of one tensor, made by one task.
struct TensorPiece<'a> {
    tensor: &'a Planned,
    /// Number of the stream of random numbers that fills it.
    stream: u64,
    /// Where it begins in the file.
    offset: u64,
    len: usize,
}

impl<'a> TensorPiece<'a> {
    fn all_of(tensor: &'a Planned, index: u64, offset: u64) -> impl Iterator<Item = Self> {
        let step = PIECE_BYTES / tensor.ty.bytes() * tensor.ty.bytes();
        (0..tensor.bytes().div_ceil(step)).map(move |p| Self {
            tensor,
            stream: index << 32 | p as u64,
            offset: offset + (p * step) as u64,
            len: step.min(tensor.bytes() - p * step),
        })
    }
}

fn fill(tensor: &Planned, rng: &mut SplitMix, out: &mut [u8]) {
    match tensor.fill {
        Fill::Rms(rms) => random_blocks(tensor.ty, rms, rng, out),
        Fill::Uniform(from, to) => {
            for b in out.chunks_exact_mut(tensor.ty.bytes()) {
                encode_row(tensor.ty, &[(from + to) / 2.0 + (to - from) / 2.0 * rng.signed_unit()], b);
            }
        }
    }
}
