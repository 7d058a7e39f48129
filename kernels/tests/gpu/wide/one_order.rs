//! Products of many columns against the kernels for few rows: the same bytes, in f16 and in int8.

use super::*;

/// What few rows are multiplied by in f16, and how many are: every layout, with a last tile that is not whole, and an
/// odd number of units; sums in one segment, two and four.
pub(super) fn few_in_halves(multiprocessors: usize) -> Vec<(WideShape, warpgroup::WarpgroupTiling)> {
    let of = |layout, (rows, cols), (groups, columns)| {
        let shape = shape(layout, rows, cols, Epilogue::Plain, Some(128), true);
        let segments = product::halves::tilings(shape.matrix(), multiprocessors)[0].1.warps_k;
        (shape, warpgroup::WarpgroupTiling { groups, tiles: 1, columns, stages: 3, turns: 0, segments })
    };
    let every = LAYOUTS.into_iter().flat_map(|layout| [(72, 256), (1000, 896)].map(|size| of(layout, size, (1, 32))));
    let others = [(Layout::Q6_K, (203, 2048)), (Layout::Q8_0, (64, 128)), (Layout::Q6_K, (50_720, 128))];
    let others = others.map(|(layout, size)| of(layout, size, (1, 64)));
    // The last block of three warpgroups goes back to have whole tiles.
    let three = [Layout::Q8_0, Layout::Q6_K, Layout::IQ3_S].map(|layout| of(layout, (1000, 2048), (3, 128)));
    every.chain(others).chain(three).collect()
}

pub(super) fn few_rows_in_halves(gpu: &Gpu) -> Outcome {
    if !gpu.device.arch().has_warpgroups() {
        println!("skipped: {} has no matrix instructions of warpgroups", gpu.device.arch());
        return Ok(());
    }
    for (shape, tiling) in few_in_halves(gpu.device.multiprocessors() as usize) {
        let worst = few_rows_have_the_bytes_of_many(gpu, shape, tiling)?;
        println!("few rows in f16 {:?} {:?}: {worst:.2} of tolerance", shape.matrix().layout(), shape.matrix().size());
    }
    Ok(())
}

/// The product of few rows' columns in stages that warps of their own feed: as many of them as a block has go round
/// several times.
pub(super) fn staged(multiprocessors: usize) -> (WideShape, warpgroup::WarpgroupTiling) {
    let shape = shape(Layout::Q6_K, 1024, 2048, Epilogue::Plain, Some(128), true);
    let segments = product::halves::tilings(shape.matrix(), multiprocessors)[0].1.warps_k;
    (shape, warpgroup::WarpgroupTiling { groups: 1, tiles: 1, columns: 64, stages: 3, turns: 0, segments })
}

pub(super) fn staged_as_few(gpu: &Gpu) -> Outcome {
    if !gpu.device.arch().has_warpgroups() {
        println!("skipped: {} has no matrix instructions of warpgroups", gpu.device.arch());
        return Ok(());
    }
    let (shape, tiling) = staged(gpu.device.multiprocessors() as usize);
    few_rows_have_the_bytes_of_many(gpu, shape, tiling).map(|_| ())
}

/// How much of the tolerance the worst output takes.
fn few_rows_have_the_bytes_of_many(
    gpu: &Gpu,
    shape: WideShape,
    tiling: warpgroup::WarpgroupTiling,
) -> Result<f64, Box<dyn Error>> {
    let (stream, (rows, cols), norm) = (gpu.device.stream(), shape.matrix().size(), shape.norm().unwrap_or(0));
    let (most, stride) = (tiling.columns + 3, rows + 5);
    let mut random = Random(8);
    let matrix = Matrix::random(shape.matrix().layout(), rows, cols, 6).lowered();
    let x = activations(most, cols, Planes::One, &mut random);
    let squares: Vec<f32> = random.vector(most * norm / 32).into_iter().map(|v| v.abs() * 1e6).collect();
    let weights = stream.clone_htod(&matrix.packed())?;
    let (codes, meta) = (stream.clone_htod(&x.codes)?, stream.clone_htod(x.meta.as_flattened())?);
    let d_squares = stream.clone_htod(&squares)?;
    let many = warpgroup::Warpgroup::load(&gpu.device, &gpu.cache, shape, tiling)?;
    let few = product::Product::in_halves(&gpu.device, &gpu.cache, shape.matrix(), shape.norm())?;
    let halves = Halves::load(&gpu.device, &gpu.cache, cols, shape.norm())?;
    let want = Want { x: &x, norm, squares: &squares, next: &[], epilogue: Epilogue::Plain, tolerance: HALF_TOLERANCE };
    let mut worst = 0.0f64;
    for n in [1, 2, 5, 8, 9, 16, most] {
        // How rows lie depends on how many there are.
        let made = HalfRows::new(&gpu.device, n, n * cols)?;
        let (codes, meta, squares) = (codes.as_view(), meta.as_view(), d_squares.as_view());
        let x = Inputs { codes: &codes, meta: &meta, squares: Some(&squares), eps: EPS, factor: 1.0, lora: None };
        halves.launch(&gpu.device, n, x, &made)?;
        let [mut of_many, mut of_few] =
            [stream.clone_htod(&vec![f32::NAN; n * stride])?, stream.clone_htod(&vec![f32::NAN; n * stride])?];
        let (of_halves, mut values) =
            (warpgroup::HalfInputs { rows: &made, factor: 0.5, lora: None }, of_many.as_view_mut());
        let out = Output::Plain { values: &mut values, stride };
        // SAFETY: the columns are not listed.
        unsafe { many.launch(&gpu.device, &weights.as_view(), of_halves, Columns::First(n), out)? };
        let out = product::Output { values: &mut of_few.as_view_mut(), stride, factor: 0.5 };
        let norm = x.squares.map(|squares| Norm { squares, eps: EPS });
        few.launch(
            &gpu.device,
            &weights.as_view(),
            Activations { codes: x.codes, meta: x.meta, lora: None },
            norm,
            n,
            out,
        )?;
        let bits = |v: &CudaSlice<f32>| -> Result<Vec<u32>, Box<dyn Error>> {
            Ok(stream.clone_dtoh(v)?.into_iter().map(f32::to_bits).collect())
        };
        let (of_many, of_few) = (bits(&of_many)?, bits(&of_few)?);
        let differ = of_few.iter().zip(&of_many).filter(|(a, b)| a != b).count();
        assert!(differ == 0, "{shape:?}: {differ} of {} outputs of {n} rows", n * rows);
        for (c, values) in of_few.chunks_exact(stride).enumerate() {
            let got = Written { values: values.to_vec(), ..Written::default() };
            worst = worst.max(want.compare(&matrix, &got, rows, c, 7).map_err(|e| format!("{shape:?} row {c}: {e}"))?);
        }
    }
    Ok(worst)
}

/// Shared memory of a block on the devices that have most.
const SHARED_MAX: usize = 227 << 10;

/// Ways to share four segments: by groups, by blocks, one group after another, all of a warp.
const IN_ORDER: [WideTiling; 5] = [
    WideTiling { tiles: 1, warps_rows: 4, octets: 2, warps_columns: 1, groups: 4, units: 1, ..ONE_GROUP },
    WideTiling { tiles: 1, warps_rows: 4, octets: 1, warps_columns: 1, split: 4, ..ONE_GROUP },
    WideTiling { tiles: 2, warps_rows: 2, octets: 2, warps_columns: 2, groups: 2, units: 2, ..ONE_GROUP },
    WideTiling { tiles: 1, warps_rows: 2, octets: 4, warps_columns: 1, groups: 2, split: 2, ..ONE_GROUP },
    ONE_GROUP,
];
const ONE_GROUP: WideTiling = WideTiling {
    tiles: 2,
    warps_rows: 4,
    octets: 1,
    warps_columns: 1,
    groups: 1,
    units: 1,
    split: 1,
    stages: 3,
    order: Some(Order { segments: 4, by_halves: false }),
};

/// Whatever way the segments are shared, a column has the bytes that `product` gives it, of which there are shapes
/// whose segments are unequal.
pub(super) fn in_order(gpu: &Gpu) -> Outcome {
    for (layout, (rows, cols)) in LAYOUTS.into_iter().flat_map(|l| [(40, 512), (1000, 768), (96, 1408)].map(|s| (l, s)))
    {
        for planes in Planes::ALL {
            let shape = shape(layout, rows, cols, Epilogue::Plain, Some(256), true).with_planes(planes);
            same_as_product(gpu, shape)?;
        }
    }
    Ok(())
}

fn same_as_product(gpu: &Gpu, shape: WideShape) -> Outcome {
    const COLUMNS: usize = 19;
    let (stream, (rows, cols), norm) = (gpu.device.stream(), shape.matrix().size(), 256);
    let mut random = Random(3);
    let x = activations(COLUMNS, cols, shape.matrix().planes(), &mut random);
    let squares: Vec<f32> = random.vector(COLUMNS * norm / 32).into_iter().map(|v| v.abs() * 1e6).collect();
    let weights = stream.clone_htod(&Matrix::random(shape.matrix().layout(), rows, cols, 5).packed())?;
    let (codes, meta) = (stream.clone_htod(&x.codes)?, stream.clone_htod(x.meta.as_flattened())?);
    let squares = stream.clone_htod(&squares)?;
    let (codes, meta, squares) = (codes.as_view(), meta.as_view(), squares.as_view());
    let by_four = product::ProductTiling { warps_k: 4, tiles: 1, cluster: 1, depth: 1, registers: 80 };
    let few = product::Product::load_tiled(
        &gpu.device,
        &gpu.cache,
        shape.matrix(),
        Some(norm),
        &product::COLUMNS.map(|c| (c, by_four)),
    )?;
    let mut want = stream.alloc_zeros::<f32>(COLUMNS * rows)?;
    let out = product::Output { values: &mut want.as_view_mut(), stride: rows, factor: 0.5 };
    let norm = product::Norm { squares: &squares, eps: EPS };
    few.launch(
        &gpu.device,
        &weights.as_view(),
        product::Activations { codes: &codes, meta: &meta, lora: None },
        Some(norm),
        COLUMNS,
        out,
    )?;
    let want = stream.clone_dtoh(&want)?;
    for tiling in IN_ORDER {
        // Stages of 16-bit weights for four groups are so large that only two have room.
        let stages = if tiling.shared_bytes(shape.matrix()) <= SHARED_MAX { tiling.stages } else { 2 };
        let tiling = WideTiling { stages, ..tiling };
        let wide = Wide::load(&gpu.device, &gpu.cache, shape, tiling)?;
        let mut got = stream.alloc_zeros::<f32>(COLUMNS * rows)?;
        let x = Inputs { codes: &codes, meta: &meta, squares: Some(&squares), eps: EPS, factor: 0.5, lora: None };
        let out = Output::Plain { values: &mut got.as_view_mut(), stride: rows };
        // SAFETY: the columns are not listed.
        unsafe { wide.launch(&gpu.device, &weights.as_view(), x, Columns::First(COLUMNS), out)? };
        let got = stream.clone_dtoh(&got)?;
        let differ = got.iter().zip(&want).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        assert!(differ == 0, "{shape:?} {tiling:?}: {differ} of {} outputs", got.len());
    }
    Ok(())
}
