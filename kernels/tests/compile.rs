//! Every kernel compiles, for the oldest, the measured and the newest kind of chip. Needs the run-time compiler and no
//! device.
//!
//! Without the compiler this prints why and passes, unless `CHIMERE_REQUIRE` names `nvrtc`. `CHIMERE_KEEP_KERNELS`
//! names a directory where the machine code stays, for `scripts/compare_kernels.py`; `CHIMERE_KERNEL_ARCHS` the
//! architectures, with commas between them.

use chimere_kernels::cuda::attention::{self, KvType};
use chimere_kernels::cuda::experts::{self, ExpertShape, Experts};
use chimere_kernels::cuda::gdn_decode::{self, Heads};
use chimere_kernels::cuda::mamba2::{self, Mamba2Shape};
use chimere_kernels::cuda::product::{self, Activated, MatrixShape, Residual, layout::Layout, sample::LAYOUTS};
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::wide::{self, Chip, Epilogue, halves, lora_shrink, warpgroup};
use chimere_kernels::cuda::{Arch, Compiler, CudaError, KernelCache, Program};
use chimere_kernels::cuda::{
    addresses, carry, combine, draft_head, embed, gather, gdn_prefill, history, pool, router, sampler, uses,
};
use chimere_kernels::reference::TableEncoding;
use std::path::PathBuf;

const H200: Chip = Chip { multiprocessors: 132, clusters: true, shared_bytes: 227 << 10, warpgroups: true };
const EPILOGUES: [Epilogue; 5] =
    [Epilogue::Plain, Epilogue::Residual, Epilogue::Gated, Epilogue::Squared, Epilogue::Rounded];
/// What every chip can do: not all have clusters.
const ANY: Chip = Chip { clusters: false, shared_bytes: 99 << 10, ..H200 };

fn compiler() -> Option<Compiler> {
    match Compiler::load() {
        Ok(compiler) => Some(compiler),
        Err(error) => {
            let required = std::env::var("CHIMERE_REQUIRE").unwrap_or_default().split(',').any(|r| r == "nvrtc");
            assert!(!required, "{error}");
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// The kernels of the released shapes and of a small model.
fn programs() -> Result<Vec<Program>, CudaError> {
    let released = Heads { key_dim: 128, value_dim: 128, keys: 16, values: 32, grouped: false };
    let small = Heads { key_dim: 64, value_dim: 64, keys: 2, values: 4, grouped: true };
    let chips: [Arch; 2] = ["sm_89".parse()?, "sm_90a".parse()?];
    let mut programs =
        vec![sampler::program(248_320, false)?, sampler::program(512, false)?, sampler::program(512, true)?];
    for encoding in TableEncoding::ALL {
        let table = embed::TableShape { cols: 2048, vocab: 248_320, encoding, planes: Planes::One };
        programs.extend([embed::program(table)?, draft_head::program(table)?]);
    }
    for (cols, experts, used, sigmoid) in
        [(2048, 256, 8, false), (4096, 512, 10, false), (32, 16, 4, false), (2688, 128, 6, true)]
    {
        programs.push(router::program(router::RouterShape { cols, experts, used, sigmoid })?);
        programs.push(combine::program(combine::CombineShape {
            cols,
            used,
            shared: true,
            stream: true,
            planes: Planes::One,
        })?);
        programs.push(gather::program(cols, Planes::One)?);
        programs.push(pool::program(cols)?);
    }
    programs.extend([history::program(248_320), history::program(511), uses::program(256), uses::program(16)]);
    programs.extend([addresses::program(), carry::program()]);
    for heads in [released, small] {
        programs.push(gdn_decode::program(heads, heads.inputs(), Planes::One, 0)?);
        programs.push(gdn_decode::program(heads, heads.inputs(), Planes::One, 7)?);
        let untaken = gdn_decode::DraftRoom { room: 7, taken: false };
        programs.push(gdn_decode::program(heads, heads.inputs(), Planes::One, untaken)?);
        programs.push(gdn_prefill::program(heads, heads.inputs(), Planes::One)?);
    }
    let wide = Mamba2Shape { heads: 24, head_dim: 128, state_dim: 256, groups: 1, normed: false, planes: Planes::One };
    programs.extend([mamba2::program(mixer(Planes::One))?, mamba2::program(wide)?]);
    for (dim, heads, kv_heads, rotary) in [(256, 16, 2, 64), (64, 4, 2, 16)] {
        let stride = (2 * heads + 2 * kv_heads) * dim;
        let shape = attention::AttentionShape {
            dim,
            heads,
            kv_heads,
            rotary,
            theta: 1e7,
            yarn: None,
            eps: 1e-6,
            gated: true,
            normed: true,
            scale: attention::AttentionShape::usual_scale(dim),
            stride,
            planes: Planes::One,
            drafts: 0,
        };
        for kv in [KvType::F16, KvType::Q8, KvType::Q8Q4] {
            for arch in chips {
                programs.push(attention::program(shape, kv, attention::tiling(shape, kv, arch))?);
            }
        }
    }
    let summed = combine::CombineShape { cols: 1024, used: 22, shared: false, stream: false, planes: Planes::One };
    programs.extend([combine::program(summed)?, combine::program(combine::CombineShape { cols: 64, ..summed })?]);
    let mut shapes = vec![MatrixShape::new(Layout::Q8_0, 256, 128)?];
    for layout in LAYOUTS {
        shapes.push(MatrixShape::new(layout, 2048, 512)?);
    }
    programs.extend(shapes.iter().flat_map(|s| product::programs(*s, Some(128), 132)));
    programs.extend(shapes[..3].iter().flat_map(|s| Residual::programs(*s, 132)));
    for (i, shape) in shapes.iter().enumerate() {
        programs.extend(Activated::programs(*shape, EPILOGUES[2 + i % 3], Some(128), 132));
    }
    let kind = |width, layout| ExpertShape { width, gate_up: layout, down: layout };
    for experts in [
        Experts::new(2048, 256, 8, kind(512, Layout::Q4_K), kind(512, Layout::Q8_0))?,
        Experts::new(32, 16, 4, kind(32, Layout::IQ3_S), kind(96, Layout::W16))?,
        Experts::new(2688, 128, 6, kind(1856, Layout::Q5_0), kind(3712, Layout::Q8_0))?
            .without_gates()?
            .with_sigmoids(true),
        // In two memories, as a trace says.
        Experts::new(2048, 256, 8, kind(512, Layout::Q4_K), kind(512, Layout::Q6_K))?
            .with_places(true)
            .with_replay(true),
    ] {
        let tiling = experts::tiling(experts, H200).expect("enough shared memory");
        programs.push(experts::program(experts, tiling));
    }
    // Of many columns: every layout, and every epilogue.
    for (i, product) in shapes.iter().enumerate() {
        let epilogue = EPILOGUES[i % 5];
        let shape = wide::WideShape::new(*product, epilogue, Some(64), true)?;
        programs.push(wide::program(shape, wide::tiling(shape, 32, ANY))?);
    }
    programs.extend(two_planes()?);
    Ok(programs)
}

/// Products that adapters add to: every epilogue, of few and of many rows.
fn adapted() -> Result<Vec<Program>, CudaError> {
    let matrix = MatrixShape::new(Layout::Q4_K, 2048, 512)?.with_adapters(true);
    let mut programs = vec![lora_shrink::program(Planes::One), lora_shrink::program(Planes::Two)];
    programs.extend(product::programs(matrix, Some(128), 132));
    programs.extend(Residual::programs(matrix, 132));
    programs.extend(Activated::programs(matrix, Epilogue::Gated, Some(128), 132));
    for epilogue in [Epilogue::Plain, Epilogue::Residual, Epilogue::Gated] {
        let shape = wide::WideShape::new(matrix, epilogue, Some(64), true)?;
        programs.push(wide::program(shape, wide::tiling(shape, 32, ANY))?);
    }
    let kind = |width, layout| ExpertShape { width, gate_up: layout, down: layout };
    for experts in [
        Experts::new(2048, 256, 8, kind(512, Layout::Q4_K), kind(512, Layout::Q8_0))?,
        Experts::new(2688, 128, 6, kind(1856, Layout::Q5_0), kind(3712, Layout::Q8_0))?.without_gates()?,
        Experts::new(256, 16, 4, kind(128, Layout::Q8_0), kind(128, Layout::W16))?.with_planes(Planes::Two),
    ] {
        let experts = experts.with_adapters(64);
        programs.push(experts::program(experts, experts::tiling(experts, H200).expect("enough shared memory")));
    }
    Ok(programs)
}

/// Products in f16 of every layout, each way to cut one up and every epilogue, with the rows that they
/// read.
fn in_halves() -> Result<Vec<Program>, CudaError> {
    let mut programs = vec![halves::program(512, None)?, halves::program(2048, Some(2048))?];
    let tiles = [(2, 2, 128), (2, 1, 64), (1, 1, 64)];
    for (i, layout) in LAYOUTS.into_iter().enumerate() {
        let (groups, tiles, columns) = tiles[i % tiles.len()];
        // A stage of 16 bits a weight has no room for two.
        let tiles = if layout == Layout::W16 { 1 } else { tiles };
        let epilogue = EPILOGUES[i / 3 % 5];
        let shape = wide::WideShape::new(MatrixShape::new(layout, 2048, 512)?, epilogue, Some(64), i % 2 == 0)?;
        // Where columns are not listed, of two segments too, and few rows' kernels.
        let segments = if shape.dense() && tiles == 1 { 2 } else { 1 };
        let tiling = warpgroup::WarpgroupTiling { groups, tiles, columns, stages: 3, turns: 0, segments };
        programs.push(warpgroup::program(shape, tiling)?);
        programs.extend(product::halves::programs(shape.matrix(), Some(64), 132));
    }
    let adapted = MatrixShape::new(Layout::Q4_K, 2048, 512)?.with_adapters(true);
    programs.extend(product::halves::programs(adapted, Some(64), 132));
    for epilogue in [Epilogue::Plain, Epilogue::Residual, Epilogue::Gated] {
        let shape = wide::WideShape::new(adapted, epilogue, Some(64), true)?;
        let tiling = warpgroup::WarpgroupTiling { groups: 2, tiles: 1, columns: 64, stages: 3, turns: 0, segments: 1 };
        programs.push(warpgroup::program(shape, tiling)?);
    }
    let down = wide::WideShape::new(MatrixShape::new(Layout::Q4_K, 2048, 512)?, wide::Epilogue::Plain, None, false)?;
    let gate_up =
        wide::WideShape::new(MatrixShape::new(Layout::Q4_K, 1024, 2048)?, wide::Epilogue::Gated, None, false)?;
    let in_turns = warpgroup::WarpgroupTiling { groups: 4, tiles: 1, columns: 128, stages: 3, turns: 4, segments: 1 };
    for shape in [down, gate_up.with_half_rows(true)] {
        programs.push(warpgroup::program(shape, in_turns)?);
    }
    Ok(programs)
}

fn mixer(planes: Planes) -> Mamba2Shape {
    Mamba2Shape { heads: 8, head_dim: 64, state_dim: 128, groups: 2, normed: true, planes }
}

/// Everything that reads or writes activations, once with two planes of them; products in every layout.
fn two_planes() -> Result<Vec<Program>, CudaError> {
    const PLANES: Planes = Planes::Two;
    let hopper = "sm_90a".parse()?;
    let heads = Heads { key_dim: 64, value_dim: 64, keys: 2, values: 4, grouped: true };
    let attends = attention::AttentionShape {
        dim: 64,
        heads: 4,
        kv_heads: 2,
        rotary: 16,
        theta: 1e7,
        yarn: None,
        eps: 1e-6,
        gated: true,
        normed: true,
        scale: 1.0 / 8.0,
        stride: 768,
        planes: PLANES,
        drafts: 7,
    };
    let plain = attention::AttentionShape {
        dim: 128,
        rotary: 128,
        gated: false,
        normed: false,
        scale: 0.01,
        stride: 1024,
        ..attends
    };
    let qwen3 = attention::AttentionShape { normed: true, planes: Planes::One, ..plain };
    let kind = |width, layout| ExpertShape { width, gate_up: layout, down: layout };
    let experts = Experts::new(256, 16, 4, kind(128, Layout::Q8_0), kind(128, Layout::W16))?.with_planes(PLANES);
    let mut programs = vec![
        embed::program(embed::TableShape { cols: 256, vocab: 512, encoding: TableEncoding::F16, planes: PLANES })?,
        draft_head::program(embed::TableShape {
            cols: 288,
            vocab: 512,
            encoding: TableEncoding::Q8_0,
            planes: PLANES,
        })?,
        combine::program(combine::CombineShape { cols: 256, used: 4, shared: true, stream: true, planes: PLANES })?,
        gather::program(256, PLANES)?,
        gdn_decode::program(heads, heads.inputs(), PLANES, 7)?,
        gdn_prefill::program(heads, heads.inputs(), PLANES)?,
        mamba2::program(mixer(PLANES))?,
        attention::program(plain, KvType::F16, attention::tiling(plain, KvType::F16, hopper))?,
        attention::program(attends, KvType::F16, attention::tiling(attends, KvType::F16, hopper))?,
        attention::program(qwen3, KvType::Q8, attention::tiling(qwen3, KvType::Q8, hopper))?,
        experts::program(experts, experts::tiling(experts, H200).expect("enough shared memory")),
    ];
    for (i, layout) in LAYOUTS.into_iter().enumerate() {
        let product = MatrixShape::new(layout, 256, 512)?.with_planes(PLANES);
        programs.extend(product::programs(product, Some(128), 132).into_iter().take(2 - i % 2));
        let epilogue = EPILOGUES[i % 5];
        let wide = wide::WideShape::new(product, epilogue, Some(64), true)?;
        programs.push(wide::program(wide, wide::tiling(wide, 32, ANY))?);
    }
    programs.extend(Residual::programs(MatrixShape::new(Layout::W16, 256, 1024)?.with_planes(PLANES), 132));
    Ok(programs)
}

#[test]
fn every_kernel_compiles_for_old_and_new_chips() {
    if compiler().is_none() {
        return;
    }
    let archs = std::env::var("CHIMERE_KERNEL_ARCHS").unwrap_or_else(|_| "sm_80,sm_90a,sm_120a".into());
    let archs: Vec<Arch> = archs.split(',').map(|a| a.parse().unwrap()).collect();
    compile_all(&programs().unwrap(), &archs);
}

#[test]
fn products_that_adapters_add_to_compile() {
    if compiler().is_none() {
        return;
    }
    compile_all(&adapted().unwrap(), &["sm_80".parse().unwrap(), "sm_90a".parse().unwrap()]);
}

#[test]
fn what_only_warpgroups_run_compiles_for_them() {
    if compiler().is_none() {
        return;
    }
    compile_all(&in_halves().unwrap(), &["sm_90a".parse().unwrap()]);
}

/// Compiles each program for each architecture, on all cores, into the directory that keeps them or one that passes.
fn compile_all(programs: &[Program], archs: &[Arch]) {
    let kept = std::env::var_os("CHIMERE_KEEP_KERNELS").map(PathBuf::from);
    let passing = std::env::temp_dir().join(format!("chimere-kernels-{}-{}", programs.len(), std::process::id()));
    let cache = KernelCache::new(kept.as_ref().unwrap_or(&passing));
    // An error names the program, the architecture and the line.
    let built = cache.build(programs, archs).unwrap_or_else(|e| panic!("{e}"));
    assert!((built > 0 || kept.is_some()) && built <= archs.len() * programs.len());
    for (program, arch) in programs.iter().flat_map(|p| archs.iter().map(move |arch| (p, *arch))) {
        let code = cache.get(program, arch).expect("it was built");
        assert!(code.starts_with(b"\x7fELF"), "{} for {arch} is no machine code", program.name);
    }
    if kept.is_none() {
        std::fs::remove_dir_all(passing).expect("it holds machine code");
    }
}

#[test]
fn a_source_with_a_mistake_is_answered_with_its_line() {
    let Some(compiler) = compiler() else { return };
    let source = "#include \"common/base.cuh\"\n__global__ void f() { return 1; }\n";
    let program = Program { name: "broken", source, arguments: String::new(), defines: vec![("N", 3)] };
    let error = compiler.compile(&program, Arch::ALL[0]).unwrap_err();
    assert!(matches!(error, CudaError::Compile { .. }));
    let text = error.to_string();
    for part in ["`broken`", "sm_80", "-DN=3", "NVRTC_ERROR_COMPILATION", "broken(2)", "return"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn what_was_built_ahead_of_time_is_not_compiled_again() {
    if compiler().is_none() {
        return;
    }
    let dir = std::env::temp_dir().join(format!("chimere-kernels-ahead-{}", std::process::id()));
    let cache = KernelCache::new(&dir);
    let programs = [gather::program(256, Planes::One).unwrap()];
    assert_eq!(cache.build(&programs, &Arch::ALL).unwrap(), Arch::ALL.len());
    assert_eq!(cache.build(&programs, &Arch::ALL).unwrap(), 0);
    std::fs::remove_dir_all(dir).unwrap();
}
