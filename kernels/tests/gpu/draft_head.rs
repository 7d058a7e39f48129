//! What stands around a draft head's layer: its input and what sequences carry against norms in f64, and the rows of
//! guesses behind accepted drafts.

use crate::support::{Gpu, Outcome, Test, pairs};
use crate::tables::random_table;
use chimere_kernels::cuda::draft_head::{
    self, Behind, DraftHead, DraftHeadRows, Following, Guessed, GuessedBefore, GuessingRows, HeadNorms, KEPT, RING,
    ROW_WORDS, ROWS_MAX,
};
use chimere_kernels::cuda::embed::{Table, TableEncoding, TableShape};
use chimere_kernels::cuda::gdn_decode::{pending_word, stores};
use chimere_kernels::cuda::product::sample::Random;
use chimere_kernels::cuda::quantized::{Planes, QuantizedRows};
use chimere_kernels::cuda::rows::{lengths, padded};
use chimere_kernels::cuda::sampler::{SampleParams, SampleResult};
use chimere_kernels::cuda::{CudaError, Program};
use chimere_kernels::reference;
use cudarc::driver::DevicePtr;

const SHAPES: [TableShape; 3] = [
    TableShape { cols: 2048, vocab: 40, encoding: TableEncoding::Q8_0, planes: Planes::One },
    TableShape { cols: 288, vocab: 40, encoding: TableEncoding::F16, planes: Planes::Two },
    TableShape { cols: 5120, vocab: 40, encoding: TableEncoding::Q4K, planes: Planes::One },
];
const EPS: f32 = 1e-6;

/// What the tests load.
pub(crate) fn programs() -> Result<Vec<Program>, CudaError> {
    SHAPES.into_iter().map(draft_head::program).collect()
}

/// The tests of this file by their names, as `main` lists and filters them.
pub(crate) const TESTS: &[Test] = &[
    ("draft_head::rows_read_the_token_and_the_hidden_state_before_them", every_shape),
    ("draft_head::guesses_go_on_behind_what_was_accepted", guesses_go_on_behind_what_was_accepted),
    ("draft_head::a_pass_follows_what_a_step_accepts", a_pass_follows_what_a_step_accepts),
];

fn every_shape(gpu: &Gpu) -> Outcome {
    for shape in SHAPES {
        for (behind_model, last) in [(true, false), (true, true), (false, false)] {
            rows_read_the_token_and_the_hidden_state_before_them(gpu, shape, behind_model, last)?;
        }
    }
    Ok(())
}

fn normed(x: &[f64], w: &[f32]) -> Vec<f64> {
    let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
    x.iter().zip(w).map(|(v, w)| v / (mean + f64::from(EPS)).sqrt() * f64::from(*w)).collect()
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|v| f64::from(*v)).collect()
}

/// A decode pass with drafts, or a prompt of which the last row is kept, or a pass of guesses or of rows that waited.
fn rows_read_the_token_and_the_hidden_state_before_them(
    gpu: &Gpu,
    shape: TableShape,
    behind_model: bool,
    last: bool,
) -> Outcome {
    let (stream, TableShape { cols, vocab, .. }) = (gpu.device.stream(), shape);
    let (mut random, scale) = (Random(cols as u64), 1.7f32);
    let table = random_table(shape, vocab, 5);
    let slots: Vec<i32> = if behind_model { vec![1, 1, 1, -1, 0, 2, 2] } else { vec![1, -1, 2, 0] };
    let positions: Vec<i32> = if behind_model { vec![7, 8, 9, 0, 64, 63, 64] } else { vec![9, 0, 65, 0] };
    let (n, carried_len) = (slots.len(), DraftHead::carried(cols));
    let mut tokens: Vec<i32> = (0..n as i32).map(|i| if i == 2 { -1 } else { 5 * i }).collect();
    let (sampled, kept) = ([3, 11, 8], 29);
    let [model, embedding, hidden] = [(); 3].map(|()| random.vector(cols));
    let (x, mut carried) = (random.vector(n * cols), random.vector(3 * carried_len));
    let kept_at = |slot: i32, position: i32| {
        slot as usize * carried_len + RING * cols + position.rem_euclid(RING as i32) as usize
    };
    if !behind_model {
        tokens[3] = KEPT;
        carried[kept_at(slots[3], positions[3])] = f32::from_bits(kept as u32);
    }

    let kernels = DraftHead::load(&gpu.device, &gpu.cache, shape)?;
    let d_table = stream.clone_htod(&table)?;
    let lists = [&tokens, &slots, &positions].map(|list| stream.clone_htod(list));
    let [d_tokens, d_slots, d_positions] = lists;
    let (d_tokens, d_slots, d_positions) = (d_tokens?, d_slots?, d_positions?);
    let [d_model, d_embedding, d_hidden] = [&model, &embedding, &hidden].map(|w| stream.clone_htod(w));
    let (d_model, d_embedding, d_hidden) = (d_model?, d_embedding?, d_hidden?);
    let (mut d_x, mut d_carried) = (stream.clone_htod(&x)?, stream.clone_htod(&carried)?);
    let d_sampled = stream.clone_htod(&sampled)?;
    let [codes, meta, _] = lengths(n, 2 * cols, shape.planes);
    let mut d_codes = stream.clone_htod(&vec![99i8; codes])?;
    let mut d_meta = stream.clone_htod(&vec![f32::NAN; meta])?;
    let (tokens_view, slots_view, positions_view) = (d_tokens.as_view(), d_slots.as_view(), d_positions.as_view());
    let rows = DraftHeadRows { count: n, tokens: &tokens_view, slots: &slots_view, positions: &positions_view };
    let norms = HeadNorms {
        model: &d_model.as_view(),
        embedding: &d_embedding.as_view(),
        hidden: &d_hidden.as_view(),
        eps: EPS,
    };
    let at = (Table { address: d_table.device_ptr(stream).0, bytes: table.len() }, scale);
    let out = (&mut d_codes.as_view_mut(), &mut d_meta.as_view_mut());
    let mut begin = stream.clone_htod(&vec![7.0f32; n * cols])?;
    // SAFETY: the table outlives the copies back, which wait; slots are below 3 and rows of one fewer than are carried.
    unsafe {
        let x = d_x.as_view();
        let (x, begin) = if behind_model { (Some(&x), None) } else { (None, Some(&mut begin.as_view_mut())) };
        kernels.input(&gpu.device, at, (rows, &d_sampled.as_view()), norms, x, &d_carried.as_view(), out, begin)?;
        let norm = (&d_model.as_view(), EPS);
        let rows = (rows, &d_sampled.as_view(), last);
        kernels.keep(&gpu.device, rows, norm, &mut d_x.as_view_mut(), &mut d_carried.as_view_mut())?;
    }
    assert!(behind_model || stream.clone_dtoh(&begin)?.iter().all(|v| *v == 0.0), "the stream begins at zero");
    assert!(stream.clone_dtoh(&d_x)?.iter().all(|v| *v == 0.0), "and so does that of what follows");

    let stride = padded(2 * cols) * shape.planes.count();
    let (codes, meta) = (stream.clone_dtoh(&d_codes)?, pairs(&stream.clone_dtoh(&d_meta)?));
    let row_bytes = table.len() / vocab;
    let row_of = |row: usize| wide(&x[row * cols..][..cols]);
    let mut want_carried = wide(&carried);
    let got_carried = stream.clone_dtoh(&d_carried)?;
    let mut worst = 0.0f64;
    for row in 0..n {
        let (slot, position) = (slots[row], positions[row]);
        let mut want = vec![0.0; 2 * cols];
        if slot >= 0 {
            let token = match tokens[row] {
                -1 => sampled[slot as usize],
                KEPT => kept,
                token => token,
            };
            let mut embedded = reference::table_row(shape.encoding, &table[token as usize * row_bytes..][..row_bytes]);
            embedded.iter_mut().for_each(|v| *v *= scale);
            let ring = |position: i32| slot as usize * carried_len + position.rem_euclid(RING as i32) as usize * cols;
            let follows = behind_model && row > 0 && slots[row - 1] == slot;
            let before =
                if follows { normed(&row_of(row - 1), &model) } else { wide(&carried[ring(position - 1)..][..cols]) };
            want = [normed(&wide(&embedded), &embedding), normed(&before, &hidden)].concat();
            if !last || row + 1 == n || slots[row + 1] != slot {
                want_carried[ring(position)..][..cols].copy_from_slice(&normed(&row_of(row), &model));
                let got = got_carried[kept_at(slot, position)].to_bits() as i32;
                assert!(got == token || tokens[row] == KEPT, "row {row}: token {got} is kept, not {token}");
            }
        }
        let own = QuantizedRows {
            codes: codes[row * stride..][..2 * cols * shape.planes.count()].to_vec(),
            meta: meta[row * stride / 32..][..2 * cols / 32 * shape.planes.count()].to_vec(),
            planes: shape.planes,
        };
        for (block, want) in want.chunks_exact(32).enumerate() {
            let top = want.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            let step = if shape.planes == Planes::Two { top / 127.0 / 254.0 } else { top / 127.0 };
            for (got, want) in own.values(block).iter().zip(want) {
                worst = worst.max(((got - want).abs() - 0.5 * step).max(0.0) / top.max(1e-9));
            }
        }
    }
    assert!(worst < 1e-5, "{shape:?}: inputs are {worst} of a block's largest value beyond rounding");
    let pairs = got_carried.chunks(carried_len).zip(want_carried.chunks(carried_len));
    let states = pairs.flat_map(|(got, want)| got[..RING * cols].iter().zip(want));
    let off = states.map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
    assert!(off < 2e-5, "{shape:?}: what is carried is {off} off");
    Ok(())
}

fn guesses_go_on_behind_what_was_accepted(gpu: &Gpu) -> Outcome {
    let stream = gpu.device.stream();
    let kernels = DraftHead::load(&gpu.device, &gpu.cache, SHAPES[1])?;
    // Three pieces: one right draft of two, none of one, and no draft; the second has no room left. Then a prompt's
    // end.
    let step =
        [[4, 50, 51, 9, 60, 7], [3, 3, 3, 0, 0, 5], [20, 21, 22, 62, 63, 8]].map(|list| stream.clone_htod(&list));
    let [tokens, slots, positions] = step;
    let (tokens, slots, positions) = (tokens?, slots?, positions?);
    let (tokens, slots, positions) = (tokens.as_view(), slots.as_view(), positions.as_view());
    let results = |ids: &[i32]| {
        let all: Vec<_> = ids.iter().map(|token| SampleResult { token: *token, ..SampleResult::default() }).collect();
        stream.clone_htod(&all)
    };
    let (sampled, mut guessed) = (results(&[50, 77, 12, 61, 13, 30, 44])?, results(&[0, 0, 0, 0])?);
    let asked = stream.clone_htod(&[0, 0, 2, 64, 3, 3, 1, 63, 5, 5, 0, 64, !6, 6, 40, 64])?;
    let params = [10, 20, 30, 1].map(|output_index| SampleParams { output_index, ..SampleParams::default() });
    let mut params = stream.clone_htod(&params)?;
    // By the number of the row in the step.
    let ahead = stream.clone_htod(&[5, 0, 0, 0, 0, 1])?;
    let ahead = ahead.as_view();
    let rows = 5;
    let mut lists = [(); 3].map(|()| stream.clone_htod(&vec![-9; rows]));
    let ids = stream.clone_htod(&[900u32, 901, 902, 903])?;
    for pass in 0..3 {
        let [t, s, p] = &mut lists;
        let (Ok(t), Ok(s), Ok(p)) = (t, s, p) else { panic!("no memory") };
        let own = GuessingRows {
            count: rows,
            asked: &asked.as_view(),
            params: &mut params.as_view_mut(),
            tokens: &mut t.as_view_mut(),
            slots: &mut s.as_view_mut(),
            positions: &mut p.as_view_mut(),
        };
        let step = DraftHeadRows { count: 6, tokens: &tokens, slots: &slots, positions: &positions };
        let accepted = sampled.as_view();
        let behind = (pass == 0).then_some(Behind { results: &accepted, rows: step, ahead: Some(&ahead) });
        let (drawn, ids) = (&guessed.as_view(), ids.as_view());
        // In the last pass guesses are places of a list.
        let guessed_by = Guessed { results: drawn, ids: (pass == 2).then_some(&ids) };
        // SAFETY: who asks has rows and results above.
        unsafe { kernels.rows(&gpu.device, behind, guessed_by, own) }?;
        let got = [stream.clone_dtoh(t)?, stream.clone_dtoh(s)?, stream.clone_dtoh(p)?];
        let want = match pass {
            0 => [[77, 61, 30, 44, 0], [3, -1, 5, 6, -1], [22, 63, 9, 41, 0]],
            1 => [[41, 42, 43, 45, 0], [3, -1, 5, 6, -1], [23, 64, 10, 42, 0]],
            _ => [[902, 900, 903, 901, 0], [3, -1, 5, 6, -1], [24, 65, 11, 43, 0]],
        };
        assert_eq!(got, want.map(|list| list.to_vec()), "pass {pass}");
        let outputs: Vec<u32> = stream.clone_dtoh(&params)?.iter().map(|p| p.output_index).collect();
        assert_eq!(outputs, [[16, 20, 31, 1], [17, 21, 32, 2], [18, 22, 33, 3]][pass]);
        guessed = results(if pass == 0 { &[41, 42, 43, 45] } else { &[2, 0, 3, 1] })?;
    }
    assert!(rows <= ROWS_MAX);
    Ok(())
}

fn a_pass_follows_what_a_step_accepts(gpu: &Gpu) -> Outcome {
    let stream = gpu.device.stream();
    let kernels = DraftHead::load(&gpu.device, &gpu.cache, SHAPES[1])?;
    // Two pieces: two of three drafts are right, and there was no draft. Of the old pass tokens alone are read.
    let before = [4, 50, 51, 52, 7, 0, 0, 0];
    let mut words = before.to_vec();
    words.resize(ROW_WORDS * before.len(), -7);
    let results = |ids: &[i32]| {
        let all: Vec<_> = ids.iter().map(|token| SampleResult { token: *token, ..SampleResult::default() }).collect();
        stream.clone_htod(&all)
    };
    // The first result is somebody else's. Guesses: two passes of two rows, places of a list.
    let (sampled, guessed) = (results(&[99, 50, 51, 88, 77, 30])?, results(&[1, 0, 2, 3])?);
    let ids = stream.clone_htod(&[900u32, 901, 902, 903])?;
    let behind = [
        [0, 1, 3, 0, 0, 19, 4, 0],
        [0, 1, 3, 1, 0, 19, 4, 0],
        [0, 1, 3, 2, 0, 19, 4, 0],
        [4, 5, 0, 0, 1, 9, 4, 0],
        [4, 5, 0, 1, 1, 9, 4, 0],
        [-1, 0, 0, 0, 0, 0, 0, 0],
    ];
    let n = behind.len();
    let columns = [
        vec![-1, 0, 0, -1, 0, 0],
        vec![3, 3, 3, 5, 5, -1],
        vec![21, 22, 23, 9, 10, 0],
        vec![12, 12, 12, 8, 8, 0],
        (0..2 * n as i32).collect(),
        vec![0; n],
        vec![0; n],
    ];
    let (mut rows, behind) = (stream.clone_htod(&words)?, stream.clone_htod(behind.as_flattened())?);
    let (planned, mut ahead) = (stream.clone_htod(&columns.concat())?, stream.clone_htod(&vec![-9; n])?);
    let drawn = GuessedBefore { address: guessed.device_ptr(stream).0, rows: 2, ids: Some(&ids.as_view()) };
    let pass = Following {
        count: n,
        behind: &behind.as_view(),
        planned: &planned.as_view(),
        results: &sampled.as_view(),
        guessed: drawn,
        rows: &mut rows.as_view_mut(),
        ahead: &mut ahead.as_view_mut(),
    };
    // SAFETY: rows name what lies above.
    unsafe { kernels.follow(&gpu.device, pass) }?;
    let mut want = columns;
    want[0] = vec![88, 901, 902, 30, 900, 0];
    want[2] = vec![23, 24, 25, 9, 10, 0];
    // Position 23 is the last of four and lacks 19 to 22; the other is where its state is.
    want[5] = vec![pending_word(4, stores(23, 4, 4)), 0, 0, pending_word(0, stores(9, 0, 4)), 0, 0];
    want[6] = vec![2, 0, 0, 0, 0, 0];
    assert_eq!(stream.clone_dtoh(&rows)?[..ROW_WORDS * n], want.concat());
    assert_eq!(stream.clone_dtoh(&ahead)?, [2, 2, 2, 0, 0, 0]);
    Ok(())
}
