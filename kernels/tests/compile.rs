//! Every kernel compiles, for the oldest, the measured and the newest kind of chip. Needs the run-time compiler and no device.
//!
//! Without the compiler this prints why and passes, unless `CHIMERE_REQUIRE` names `nvrtc`.

use chimere_kernels::cuda::gdn_decode::{self, Heads};
use chimere_kernels::cuda::product::{self, Shape, layout::Layout, sample::LAYOUTS};
use chimere_kernels::cuda::{Arch, Compiler, CudaError, KernelCache, Program, norm_quantize};

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
    let mut programs = vec![norm_quantize::program(2048)?, norm_quantize::program(256)?];
    programs.extend([gdn_decode::program(released, released.inputs())?, gdn_decode::program(small, small.inputs())?]);
    let mut products = vec![Shape::new(Layout::Q8_0, 256, 128)?];
    for layout in LAYOUTS {
        products.push(Shape::new(layout, 2048, 512)?);
    }
    programs.extend(products.into_iter().map(|s| product::program(s, product::tiling(s, 1, 132))));
    Ok(programs)
}

#[test]
fn every_kernel_compiles_for_old_and_new_chips() {
    let Some(compiler) = compiler() else { return };
    for arch in ["sm_80", "sm_90a", "sm_120a"].map(|a| a.parse::<Arch>().unwrap()) {
        for program in programs().unwrap() {
            let cubin = compiler.compile(&program, arch).unwrap_or_else(|e| panic!("{e}"));
            assert!(cubin.starts_with(b"\x7fELF"), "{} for {arch} is no machine code", program.name);
        }
    }
}

#[test]
fn a_source_with_a_mistake_is_answered_with_its_line() {
    let Some(compiler) = compiler() else { return };
    let program =
        Program { name: "broken", source: "#include \"common.cuh\"\n__global__ void f() { return 1; }\n", defines: vec![("N", 3)] };
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
    let programs = [norm_quantize::program(256).unwrap()];
    assert_eq!(cache.build(&programs, &Arch::ALL).unwrap(), Arch::ALL.len());
    assert_eq!(cache.build(&programs, &Arch::ALL).unwrap(), 0);
    std::fs::remove_dir_all(dir).unwrap();
}
