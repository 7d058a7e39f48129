//! The token table: its decoding, the rows that come of it, and the history of tokens.

use crate::rows;
use crate::support::{Gpu, Outcome, Test};
use crate::tables::random_table;
use chimere_kernels::cuda::embed::{self, Embed, Table, TableEncoding, TableShape, TokenRows};
use chimere_kernels::cuda::product::sample::Random;
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::rows::FoldedOut;
use chimere_kernels::cuda::{CudaError, Program};
use chimere_kernels::reference;
use cudarc::driver::{DevicePtr, sys};

/// Odd vocabularies too: then the histories of two sequences share a word.
const SHAPES: [(usize, usize); 4] = [(32, 511), (96, 64), (256, 515), (2048, 40)];

fn shapes() -> impl Iterator<Item = TableShape> {
    let all = SHAPES.into_iter().flat_map(|(cols, vocab)| {
        TableEncoding::ALL.map(|encoding| TableShape { cols, vocab, encoding, planes: Planes::One })
    });
    let two =
        SHAPES.map(|(cols, vocab)| TableShape { cols, vocab, encoding: TableEncoding::Q8_0, planes: Planes::Two });
    two.into_iter().chain(all).filter(|s| s.bytes().is_ok())
}

/// What the tests load.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    shapes().map(embed::program).collect()
}

/// The tests of this file by their names, as `main` lists and filters them.
pub(crate) const TESTS: &[Test] = &[
    ("embed::rows_are_the_table_s_and_tokens_are_remembered", every_encoding),
    ("embed::a_table_in_host_memory_gives_the_same_rows", in_host_memory),
];

fn every_encoding(gpu: &Gpu) -> Outcome {
    shapes().try_for_each(|shape| rows_are_the_table_s_and_tokens_are_remembered(gpu, shape, false))
}

fn in_host_memory(gpu: &Gpu) -> Outcome {
    rows_are_the_table_s_and_tokens_are_remembered(gpu, shapes().last().expect("some"), true)
}

fn rows_are_the_table_s_and_tokens_are_remembered(gpu: &Gpu, shape: TableShape, in_host_memory: bool) -> Outcome {
    let (stream, TableShape { cols, vocab, .. }) = (gpu.device.stream(), shape);
    let table = random_table(shape, vocab, 5);
    let on_device = stream.clone_htod(&table)?;
    // SAFETY: written below before it is read.
    let mut pinned =
        unsafe { stream.context().alloc_pinned_with_flags::<u8>(table.len(), sys::CU_MEMHOSTALLOC_DEVICEMAP)? };
    pinned.as_mut_slice()?.copy_from_slice(&table);
    let address = if in_host_memory { pinned.as_ptr()? as u64 } else { on_device.device_ptr(stream).0 };
    let row_bytes = table.len() / vocab;
    let scale = if in_host_memory { 3.3 } else { 1.0 };

    let n = 9;
    let tokens: Vec<i32> = vec![3, -1, 3, vocab as i32 - 1, 0, -1, vocab as i32, 7, 3];
    let slots: Vec<i32> = vec![0, 2, 0, 1, 1, -1, 2, -1, 2];
    let positions: Vec<i32> = vec![4, 9, 5, 0, 1, 0, 2, 1, 3];
    let prompt_lens: Vec<i32> = vec![5, 3, 5, 8, 1, 9, 9, 0, 3];
    let sampled = [1, 2, 6];
    let w = Random(8).vector(cols);
    let mut history: Vec<u16> = (0..3 * vocab).map(|i| (i % 3) as u16).collect();
    history[2 * vocab + 6] = 0x7fff;
    history[2 * vocab + 3] = 0x8000 | 0x7ffe;
    history.resize(history.len().next_multiple_of(2), 77);
    let words: Vec<u32> = history.as_chunks::<2>().0.iter().map(|[a, b]| u32::from(*a) | u32::from(*b) << 16).collect();

    let lists = [&tokens, &slots, &positions, &prompt_lens].map(|l| stream.clone_htod(l));
    let [d_tokens, d_slots, d_positions, d_lens] = lists;
    let (d_tokens, d_slots, d_positions, d_lens) = (d_tokens?, d_slots?, d_positions?, d_lens?);
    let (d_sampled, dw, mut d_history) =
        (stream.clone_htod(&sampled)?, stream.clone_htod(&w)?, stream.clone_htod(&words)?);
    let mut x = stream.clone_htod(&vec![-7.0f32; n * cols])?;
    let mut out = rows::Poisoned::new(gpu, n, cols, shape.planes)?;
    let kernel = Embed::load(&gpu.device, &gpu.cache, shape)?;
    let step = TokenRows {
        count: n,
        tokens: &d_tokens.as_view(),
        sampled: &d_sampled.as_view(),
        slots: &d_slots.as_view(),
        positions: &d_positions.as_view(),
        prompt_lens: &d_lens.as_view(),
    };
    let (mut codes, mut meta, mut squares) =
        (out.codes.as_view_mut(), out.meta.as_view_mut(), out.squares.as_view_mut());
    let folded = FoldedOut { codes: &mut codes, meta: &mut meta, squares: &mut squares };
    let table = Table { address, bytes: table.len() };
    // SAFETY: both tables outlive the copies back, which wait; slots are below 3.
    unsafe {
        let history = Some(&mut d_history.as_view_mut());
        kernel.launch(&gpu.device, table, step, scale, &dw.as_view(), history, &mut x.as_view_mut(), folded)?;
    }
    let (got, got_history) = (stream.clone_dtoh(&x)?, stream.clone_dtoh(&d_history)?);
    let host = pinned.as_slice()?;
    for row in 0..n {
        let slot = slots[row];
        let token = if tokens[row] == -1 && slot >= 0 { sampled[slot as usize] } else { tokens[row] };
        let got = &got[row * cols..][..cols];
        if slot < 0 {
            assert!(got.iter().all(|v| *v == 0.0), "{shape:?}: row {row} is none, and not zero");
        } else if token as usize >= vocab {
            assert!(got.iter().all(|v| v.is_nan()), "{shape:?}: token {token} does not show");
        } else {
            let mut want = reference::table_row(shape.encoding, &host[token as usize * row_bytes..][..row_bytes]);
            want.iter_mut().for_each(|x| *x *= scale);
            let differs = (0..cols).find(|c| got[*c].to_bits() != want[*c].to_bits());
            assert!(differs.is_none(), "{shape:?} row {row}: {:?}", differs.map(|c| (c, got[c], want[c])));
            let entry = &mut history[slot as usize * vocab + token as usize];
            *entry = reference::remember(*entry, positions[row], prompt_lens[row]);
        }
    }
    let words: Vec<u32> = history.as_chunks::<2>().0.iter().map(|[a, b]| u32::from(*a) | u32::from(*b) << 16).collect();
    assert!(words == got_history, "{shape:?}: history");
    out.check(gpu, &got, &w, cols, |_| true, &format!("{shape:?}"))?;
    println!("embed {shape:?}{}: equal", if in_host_memory { " in host memory" } else { "" });
    Ok(())
}
