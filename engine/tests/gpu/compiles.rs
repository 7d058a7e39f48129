//! What needs no device: kernels of whole models compile, and backends are told apart.

use super::Test;
use super::driver::{Gpu, config, cpu_config};
use super::follow::{SYNTHETIC, small};
use super::support;
use chimere_engine::backend::Backend;
use chimere_engine::backend::cpu::CpuBackend;
use chimere_engine::backend::cuda::{Activations, CudaConfig, KernelCache, programs};
use chimere_engine::format::synth::write_outline;

/// Tests that want a device.
pub(super) const TESTS: &[Test] = &[("a_cpu_and_a_gpu_backend_are_told_apart", a_cpu_and_a_gpu_backend_are_told_apart)];

fn a_cpu_and_a_gpu_backend_are_told_apart() {
    let model = support::gguf("moe");
    let cpu = CpuBackend::new(&model, &cpu_config(false), &mut |_| {}).unwrap();
    let gpu = Gpu::new(&model, &config(2, 16));
    assert_eq!((cpu.info().device, gpu.backend.info().device), ("cpu", "cuda"));
}

/// Needs the run-time compiler and no device.
pub(super) fn every_kernel_of_the_synthetic_hybrids_compiles() {
    let (dir, arch) = (tempfile::tempdir().unwrap(), "sm_90a".parse().unwrap());
    let cache = KernelCache::new(dir.path());
    let outline = dir.path().join("outline.gguf");
    for (shape, layers, _) in SYNTHETIC {
        write_outline(&outline, &small(shape, layers)).unwrap();
        let model = chimere_engine::model::load(&outline).unwrap();
        for (activations, expert_bytes) in
            [(Activations::Int8, None), (Activations::Int8, Some(0)), (Activations::Int16, None)]
        {
            let config = CudaConfig { activations, expert_bytes, ..config(2, 16) };
            cache.build(&programs(&model, &config, arch, None).unwrap(), &[arch]).unwrap_or_else(|e| panic!("{e}"));
        }
    }
}

/// Needs the run-time compiler and no device.
pub(super) fn every_kernel_of_the_shipped_model_compiles() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, arch) = (KernelCache::new(dir.path()), "sm_90a".parse().unwrap());
    for expert_bytes in [None, Some(0)] {
        let config = CudaConfig { expert_bytes, ..config(2, 16) };
        let programs = programs(&support::nano(), &config, arch, None).unwrap();
        let missing = cache.missing(&programs, arch);
        assert!(missing > 0);
        assert_eq!(cache.build(&programs, &[arch]).unwrap(), missing);
    }
}
