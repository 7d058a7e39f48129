//! Products against plain arithmetic, and every instruction set of the host against the definition.

use super::*;

const TYPES: [BlockType; 27] = {
    use BlockType::*;
    [
        F32, F16, Bf16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K, Iq1S, Iq1M, Iq2Xxs, Iq2Xs, Iq2S, Iq3Xxs,
        Iq3S, Iq4Nl, Iq4Xs, Mxfp4, Nvfp4, F8E4m3, F8E4m3B128, U4G128,
    ]
};

/// A small generator, so that cases are the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// Random blocks of `ty` with scales of a sensible size.
fn tensor(ty: BlockType, shape: &[usize], random: &mut Random) -> Tensor {
    let elements: usize = shape.iter().product();
    let mut bytes: Vec<u8> = Vec::new();
    for _ in 0..elements / ty.elements() {
        let at = bytes.len();
        bytes.extend((0..ty.bytes()).map(|_| (random.next() >> 24) as u8));
        let mut put = |offset: usize, value: f32| {
            let value = value * (1.0 + 0.3 * random.unit());
            bytes[at + offset..at + offset + 2].copy_from_slice(&half::f16::from_f32(value).to_le_bytes());
        };
        match ty {
            BlockType::F32 => {
                let v = random.unit().to_le_bytes();
                bytes[at..].copy_from_slice(&v);
            }
            BlockType::F16 => put(0, 0.7),
            BlockType::Bf16 => {
                let v = half::bf16::from_f32(random.unit()).to_le_bytes();
                bytes[at..].copy_from_slice(&v);
            }
            BlockType::Mxfp4 => bytes[at] = 120 + bytes[at] % 4,
            BlockType::Nvfp4 => bytes[at..at + 4].iter_mut().for_each(|t| *t = 8 + *t % 40),
            BlockType::F8E4m3 => bytes[at] = if bytes[at] & 0x7f == 0x7f { 0 } else { bytes[at] },
            BlockType::F8E4m3B128 => {
                bytes[at..].iter_mut().filter(|b| **b & 0x7f == 0x7f).for_each(|b| *b = 0);
                bytes[at..at + 4].copy_from_slice(&(3e-3 * (1.0 + 0.3 * random.unit())).to_le_bytes());
            }
            BlockType::U4G128 => {
                put(0, 2e-2);
                (bytes[at + 2], bytes[at + 3]) = (bytes[at + 2] % 17, 0);
            }
            BlockType::Iq1M => {
                // A nibble of the factor in the top of each of four words.
                let factor = half::f16::from_f32(5e-2 * (1.0 + 0.3 * random.unit())).to_bits();
                for (i, high) in bytes[at + 48..].iter_mut().skip(1).step_by(2).enumerate() {
                    *high = *high & 15 | ((factor >> (4 * i) & 15) as u8) << 4;
                }
            }
            BlockType::Q6K => put(208, 1e-3),
            BlockType::Q3K => put(108, 3e-3),
            BlockType::Q2K => {
                put(80, 1e-2);
                put(82, 1e-2);
            }
            BlockType::Q4K | BlockType::Q5K | BlockType::Q4_1 | BlockType::Q5_1 => {
                put(0, 2e-3);
                put(2, 2e-2);
            }
            _ => put(0, 5e-3),
        }
    }
    let mut tensor = Tensor::owned(format!("test.{}", ty.name()), ty, shape.to_vec(), bytes).unwrap();
    // Of the three ways to have factors beside the encoding, one each.
    let rows = tensor.matrices() * tensor.rows();
    let factors = match ty {
        BlockType::F8E4m3 => rows,
        BlockType::Nvfp4 => tensor.matrices(),
        BlockType::U4G128 => 1,
        _ => return tensor,
    };
    tensor.scale = Some((0..factors).map(|_| 1.0 + 0.3 * random.unit()).collect());
    tensor
}

fn activations(n: usize, cols: usize, random: &mut Random) -> ActivationRows {
    let mut x = ActivationRows::with_capacity(n, cols);
    x.set_len(n, cols);
    for i in 0..n {
        x.row_mut(i).iter_mut().for_each(|v| *v = random.unit() * random.unit() * 3.0);
    }
    x.quantize(0..n);
    x
}

fn decoded(t: &Tensor, index: usize, row: usize) -> Vec<f32> {
    let mut out = vec![0.0; t.cols()];
    decode_row(t.ty, t.row(index, row), &mut out);
    out.iter_mut().for_each(|x| *x *= t.row_scale(index, row));
    out
}

fn cols_of(ty: BlockType) -> usize {
    if FloatForm::of(ty).is_some() {
        70usize.next_multiple_of(ty.elements())
    } else {
        300usize.next_multiple_of(ty.elements())
    }
}

#[test]
fn packed_weights_decode_to_the_encoding_s_own_values() {
    let mut random = Random(1);
    for ty in TYPES {
        let t = tensor(ty, &[2, 21, cols_of(ty)], &mut random);
        for exact in [false, true] {
            let w = PackedMatrix::pack(&t, 1, exact).unwrap();
            for row in [0, 15, 16, 20] {
                let (mut got, want) = (vec![f32::NAN; t.cols()], decoded(&t, 1, row));
                w.decode_row(row, &mut got);
                let lossless = exact || PackedMatrix::reencodes(ty).is_none();
                let bound = if lossless { 0.0 } else { want.iter().fold(0.0f32, |m, v| m.max(v.abs())) / 100.0 };
                let worst = got.iter().zip(&want).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
                assert!(worst <= bound, "{} exact {exact} row {row}: off by {worst}", ty.name());
            }
        }
    }
}

#[test]
fn a_row_that_is_no_finite_numbers_is_named() {
    let mut random = Random(9);
    for ty in TYPES.into_iter().filter(|ty| *ty != BlockType::Nvfp4) {
        let whole = tensor(ty, &[2, 37, cols_of(ty)], &mut random);
        let (mut bytes, row) = (whole.bytes().to_vec(), ty.row_bytes(whole.cols()).unwrap());
        bytes[(37 + 21) * row - ty.bytes()..][..ty.bytes()].fill(0xff);
        let t = Tensor::owned("bad".into(), ty, whole.shape.clone(), bytes).unwrap();
        for exact in [false, true] {
            assert!(PackedMatrix::pack(&t, 0, exact).is_ok(), "{}", ty.name());
            let error = PackedMatrix::pack(&t, 1, exact).err().unwrap_or_else(|| panic!("{}", ty.name()));
            assert_eq!((error.tensor.as_str(), error.row), ("bad", 37 + 20), "{} exact {exact}", ty.name());
        }
    }
}

#[test]
fn a_product_is_that_of_the_decoded_weights_within_the_rounding_of_the_activations() {
    let mut random = Random(2);
    for ty in TYPES {
        let t = tensor(ty, &[2, 37, cols_of(ty)], &mut random);
        let mut x = activations(3, t.cols(), &mut random);
        for exact in [false, true] {
            let w = PackedMatrix::pack(&t, 1, exact).unwrap();
            let mut out = vec![f32::NAN; 3 * 37];
            matmul(&w, x.view(), &[(0, 0), (1, 1), (2, 2)], 0..w.tiles(), OutView::of(&mut out, 37));
            let (mut error, mut norm) = (0.0, 0.0);
            for i in 0..3 {
                for r in 0..37 {
                    let want: f64 =
                        decoded(&t, 1, r).iter().zip(x.row(i)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                    error += (f64::from(out[i * 37 + r]) - want).powi(2);
                    norm += want.powi(2);
                }
            }
            let relative = (error / norm).sqrt();
            let bound = if exact || w.input() == RowForm::F32 { 1e-6 } else { 1.5e-2 };
            assert!(relative < bound, "{} exact {exact}: relative RMS {relative}", ty.name());
        }
    }
}

#[test]
fn pairs_gather_inputs_scatter_outputs_and_touch_nothing_else() {
    let mut random = Random(3);
    let t = tensor(BlockType::Q8_0, &[40, 64], &mut random);
    let w = PackedMatrix::pack(&t, 0, false).unwrap();
    let mut x = activations(4, 64, &mut random);
    let mut all = vec![f32::NAN; 4 * 40];
    matmul(&w, x.view(), &[(0, 0), (1, 1), (2, 2), (3, 3)], 0..3, OutView::of(&mut all, 40));
    let mut out = vec![7.0; 5 * 50];
    matmul(&w, x.view(), &[(3, 1), (1, 4)], 1..3, OutView::of(&mut out, 50).columns(10));
    for (i, value) in out.iter().enumerate() {
        let (row, col) = (i / 50, (i % 50).wrapping_sub(10));
        let want = match row {
            1 if (16..40).contains(&col) => all[3 * 40 + col],
            4 if (16..40).contains(&col) => all[40 + col],
            _ => 7.0,
        };
        assert_eq!(*value, want, "row {row} column {col}");
    }
}

/// Every instruction set, count of rows and division of tiles gives the bytes of the definition.
#[test]
fn products_have_the_same_bytes_on_every_instruction_set_for_any_batch() {
    let mut random = Random(5);
    for (ty, exact) in TYPES.into_iter().flat_map(|ty| [(ty, false), (ty, true)]) {
        for (rows, cols) in [(37, cols_of(ty)), (64, ty.elements().max(32)), (5, 3 * ty.elements().max(32))] {
            let t = tensor(ty, &[rows, cols], &mut random);
            let w = PackedMatrix::pack(&t, 0, exact).unwrap();
            let n = 50;
            let mut x = activations(n, cols, &mut random);
            let all: Vec<(u32, u32)> = (0..n as u32).map(|i| (i, n as u32 - 1 - i)).collect();
            let mut want = vec![f32::NAN; n * rows];
            for pair in &all {
                matmul_on(Isa::Scalar, &w, x.view(), &[*pair], 0..w.tiles(), OutView::of(&mut want, rows));
            }
            assert!(want.iter().all(|v| v.is_finite()), "{} exact {exact}", ty.name());
            for (isa, count) in
                Isa::available().iter().flat_map(|isa| [1, 2, 3, 4, 5, 7, 8, 16, 17, 33, n].map(|c| (*isa, c)))
            {
                let mut got = vec![f32::NAN; n * rows];
                for pairs in all.chunks(count) {
                    let cut = w.tiles().div_ceil(2);
                    for tiles in [0..cut, cut..w.tiles()] {
                        matmul_on(isa, &w, x.view(), pairs, tiles, OutView::of(&mut got, rows));
                    }
                }
                let differ = got.iter().zip(&want).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
                assert_eq!(
                    differ,
                    0,
                    "{} exact {exact} {rows}x{cols} on {isa:?}, {count} rows: of {}",
                    ty.name(),
                    want.len()
                );
            }
        }
    }
}

#[test]
fn activations_quantise_to_the_same_bytes_on_every_instruction_set() {
    let mut random = Random(6);
    let mut values: Vec<f32> = (0..4096).map(|i| random.unit() * 10f32.powi(i / 64 - 40)).collect();
    (values[7], values[40], values[100], values[3000]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.5);
    values[320..352].fill(-0.0);
    // Halves of a unit of the int8 form, both ways to round.
    (0..64).for_each(|i| values[2048 + i] = if i % 32 == 0 { 127.0 } else { i as f32 - 31.5 });
    let zero = QBlock::of(&[0.0; 32]);
    let mut want = vec![zero; 128];
    quantize::quantize_row(Isa::Scalar, &values, &mut want);
    for isa in Isa::available().iter().copied() {
        let mut got = vec![zero; 128];
        quantize::quantize_row(isa, &values, &mut got);
        let fields = |b: &QBlock| (b.q, b.d.to_bits(), b.sum, b.offset, b.offset_half, b.below, b.below_half);
        assert!(got.iter().map(fields).eq(want.iter().map(fields)), "{isa:?}");
    }
}

#[test]
fn activations_that_are_not_finite_show_in_the_product() {
    let mut random = Random(4);
    let t = tensor(BlockType::Q4K, &[16, 256], &mut random);
    let w = PackedMatrix::pack(&t, 0, false).unwrap();
    for bad in [f32::NAN, f32::INFINITY] {
        let mut x = activations(1, 256, &mut random);
        x.row_mut(0)[100] = bad;
        x.quantize(0..1);
        let mut out = vec![0.0; 16];
        matmul(&w, x.view(), &[(0, 0)], 0..1, OutView::of(&mut out, 16));
        assert!(out.iter().all(|v| v.is_nan()), "{bad} in, {out:?} out");
    }
}

#[test]
fn activations_round_to_nearest_with_ties_to_even_and_tiny_ones_vanish() {
    let mut x = [0.0f32; 32];
    x[..6].copy_from_slice(&[127.0, -127.0, 0.5, 1.5, -2.5, 63.4]);
    let block = QBlock::of(&x);
    assert_eq!((block.d, &block.q[..6]), (1.0, &[127, -127, 0, 2, -2, 63][..]));
    assert_eq!((block.sum, block.offset, block.offset_half), (63.0, -128 * 63, [-128 * 63, 0]));
    assert_eq!((block.below, block.below_half), (129, [129, 0]));
    assert_eq!(QBlock::of(&[1e-35; 32]), QBlock::of(&[0.0; 32]));
}

#[test]
fn a_range_of_tiles_writes_nothing_beyond_itself() {
    let mut random = Random(77);
    let w = PackedMatrix::pack(&tensor(BlockType::Q8_0, &[160, 64], &mut random), 0, false).unwrap();
    for rows in [1, 3, 5, 30] {
        let mut x = ActivationRows::with_capacity(rows, 64);
        x.set_len(rows, 64);
        (0..rows).for_each(|i| x.row_mut(i).iter_mut().for_each(|v| *v = random.unit()));
        x.quantize(0..rows);
        let pairs: Vec<_> = (0..rows as u32).map(|i| (i, i)).collect();
        for isa in Isa::available().iter().copied() {
            for (first, end) in [(0, 3), (1, 2), (3, 8), (2, 9)] {
                let mut out = vec![f32::MAX; rows * 160];
                matmul_on(isa, &w, x.view(), &pairs, first..end, OutView::of(&mut out, 160));
                for (i, v) in out.iter().enumerate() {
                    let inside = (first * TILE_ROWS..end * TILE_ROWS).contains(&(i % 160));
                    assert_eq!(
                        *v != f32::MAX,
                        inside,
                        "{isa:?}, {rows} rows, tiles {first}..{end}, output {}",
                        i % 160
                    );
                }
            }
        }
    }
}
