//! Synthetic models: whole GGUF files of a released shape with random weights, to measure speed and memory without a download.
//!
//! Weights are scaled like a fresh initialisation, so activations stay finite; what the model says means nothing. A byte-level
//! tokenizer and a chat template are in the file, so it can be served.

mod plan;
mod text;

pub use plan::{Mix, SynthOptions};

use super::Problem;
use super::blocks::{SplitMix, encode_row, random_blocks};
use plan::{Fill, Planned};
use rayon::prelude::*;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Bytes that one task makes at once.
const PIECE_BYTES: usize = 4 << 20;
/// Pieces in memory at once, a thread: enough to keep all busy, little enough for any machine.
const PIECES_A_THREAD: usize = 2;

/// Why a synthetic model could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SynthError {
    /// An option is out of range.
    #[error("{0}")]
    Option(Problem),
    /// The file could not be written.
    #[error("{}: {error}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

/// Writes the model to `path` and gives the file's size. The same options make the same bytes on every machine. `progress` is told
/// `(bytes written, bytes in all)` a few times a second or more.
pub fn write(path: &Path, options: &SynthOptions, mut progress: impl FnMut(u64, u64)) -> Result<u64, SynthError> {
    let (header, tensors) = plan::plan(options).map_err(SynthError::Option)?;
    let head = header.to_bytes();
    let total = head.len() as u64 + tensors.iter().map(|t| header.padded(t.bytes() as u64)).sum::<u64>();
    // Under another name until it is whole, so that a broken run leaves nothing that looks like a model.
    let partial = path.with_added_extension("partial");
    let mut write_all = || -> io::Result<()> {
        let mut file = File::create(&partial)?;
        file.write_all(&head)?;
        let mut done = head.len() as u64;
        for (i, tensor) in tensors.iter().enumerate() {
            write_tensor(&mut file, tensor, options.seed, i as u64, |bytes| {
                done += bytes;
                progress(done, total);
            })?;
            let padding = header.padded(tensor.bytes() as u64) - tensor.bytes() as u64;
            file.write_all(&vec![0; padding as usize])?;
            done += padding;
        }
        std::fs::rename(&partial, path)
    };
    write_all().map(|()| total).map_err(|error| {
        // Nothing to be done if it cannot be removed either; the first error is the one to tell.
        let _ = std::fs::remove_file(&partial);
        SynthError::Io { file: path.to_owned(), error }
    })
}

fn write_tensor(file: &mut File, tensor: &Planned, seed: u64, index: u64, mut wrote: impl FnMut(u64)) -> io::Result<()> {
    let block = tensor.ty.bytes();
    let piece = PIECE_BYTES / block * block;
    let pieces: Vec<(u64, usize)> =
        (0..tensor.bytes().div_ceil(piece)).map(|p| (p as u64, piece.min(tensor.bytes() - p * piece))).collect();
    for batch in pieces.chunks(rayon::current_num_threads() * PIECES_A_THREAD) {
        let made: Vec<Vec<u8>> = batch
            .par_iter()
            .map(|(p, len)| {
                let mut out = vec![0; *len];
                fill(tensor, &mut SplitMix::new(seed, index << 32 | p), &mut out);
                out
            })
            .collect();
        for bytes in &made {
            file.write_all(bytes)?;
            wrote(bytes.len() as u64);
        }
    }
    Ok(())
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
