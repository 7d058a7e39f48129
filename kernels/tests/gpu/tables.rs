//! Random token tables, for tests and times.

use chimere_kernels::cuda::embed::{TableEncoding, TableShape};
use chimere_kernels::cuda::product::sample::Random;

/// Blocks whose 16-bit factors are finite: their bits are random but for the exponent's highest.
pub(crate) fn random_table(shape: TableShape, rows: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let (elements, size) = shape.encoding.block();
    let factors: &[usize] = match shape.encoding {
        TableEncoding::F32 => &[2],
        TableEncoding::Q4K | TableEncoding::Q5K => &[0, 2],
        TableEncoding::Q6K => &[208],
        _ => &[0],
    };
    let mut bytes: Vec<u8> = (0..rows * shape.cols / elements * size).map(|_| random.bits() as u8).collect();
    for block in bytes.chunks_exact_mut(size) {
        factors.iter().for_each(|f| block[f + 1] &= 0xbf);
    }
    bytes
}
