//! `chimere kernels`: GPU code made ahead of time, on a machine that has the run-time compiler and needs no GPU.

use super::CliError;
use chimere::config::{Activations, Device, Embedding, Engine, KvType};
use chimere::device::DeviceRequest;
use chimere::limits;
use chimere_engine::backend::cuda::{self, AdapterRoom, Arch, Chip, CudaBackendError, CudaError, KernelCache, Program};
use chimere_engine::format::synth::{self, Mix, SynthOptions};
use chimere_engine::model::{self, Model};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

/// The commands on kernels.
#[derive(clap::Subcommand, Debug, Clone)]
pub enum KernelsCommand {
    /// Compile every kernel that a model needs and that the directory lacks. Needs libnvrtc and no GPU.
    Build(BuildKernelsArgs),
}

/// Which kernels to build, and where to keep them.
#[derive(clap::Args, Debug, Clone)]
pub struct BuildKernelsArgs {
    /// Architectures, a list: sm_80, sm_86, sm_89, sm_90a, sm_100a, sm_120a [default: all of them].
    #[arg(long, value_name = "ARCH,..", value_delimiter = ',')]
    pub arch: Vec<String>,
    /// Model to build for, may be given more than once [default: the released 35B shape in every mix of `synth`, and
    /// the shipped model].
    #[arg(long, value_name = "FILE|DIR")]
    pub model: Vec<PathBuf>,
    /// Multiprocessors of the device, which decide on tiles [default: those of a common device of each architecture].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub multiprocessors: Option<u32>,
    /// Directory to keep them in [default: $CHIMERE_KERNEL_CACHE, $XDG_CACHE_HOME/chimere/kernels,
    /// ~/.cache/chimere/kernels].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Does what the subcommand says.
pub fn run(args: &KernelsCommand) -> Result<(), CliError> {
    let KernelsCommand::Build(args) = args;
    let archs = archs(&args.arch)?;
    let dir = args.dir.clone().unwrap_or_else(KernelCache::default_dir);
    let mut work: Vec<(Program, Arch)> = Vec::new();
    // Every quantiser may want any of them.
    let encoders = cuda::encoder_programs();
    archs.iter().for_each(|arch| work.extend(encoders.iter().map(|p| (p.clone(), *arch))));
    for model in models(&args.model)? {
        for &arch in &archs {
            let typical = Chip::typical(arch);
            let multiprocessors = args.multiprocessors.map_or(typical.multiprocessors, |n| n as usize);
            let found = programs(&model, arch, Chip { multiprocessors, ..typical })
                .map_err(|e| CliError::Failed(format!("{}: {e}", model.config.name)))?;
            // Models share many of them.
            found.into_iter().for_each(|p| {
                if !work.iter().any(|(q, other)| *other == arch && *q == p) {
                    work.push((p, arch));
                }
            });
        }
    }
    let listed: Vec<_> = work.iter().map(|(p, arch)| (p, *arch)).collect();
    let terminal = std::io::stderr().is_terminal();
    let built = KernelCache::new(&dir).build_each(&listed, &|done, all| show(terminal, done, all));
    if terminal {
        eprintln!();
    }
    let built = built.map_err(|e| CliError::Failed(e.to_string()))?;
    let names = archs.iter().map(Arch::to_string).collect::<Vec<_>>().join(", ");
    println!("{}: {} kernels for {names}, {built} compiled now", dir.display(), work.len());
    Ok(())
}

fn archs(names: &[String]) -> Result<Vec<Arch>, CliError> {
    if names.is_empty() {
        return Ok(Arch::ALL.to_vec());
    }
    names.iter().map(|name| name.trim().parse().map_err(|e: CudaError| CliError::Usage(e.to_string()))).collect()
}

/// The models asked for, or those that everybody has.
fn models(paths: &[PathBuf]) -> Result<Vec<Model>, CliError> {
    let failed = |e: &dyn std::fmt::Display| CliError::Failed(e.to_string());
    if !paths.is_empty() {
        return paths.iter().map(|path| model::load(path).map_err(|e| failed(&e))).collect();
    }
    let mut all = Mix::ALL.map(|(mix, _)| outline(mix)).into_iter().collect::<Result<Vec<_>, _>>()?;
    // The shipped model may not be beside a binary that was installed alone.
    match super::find_model(None) {
        Ok(path) => all.push(model::load(&path).map_err(|e| failed(&e))?),
        Err(why) => eprintln!("chimere: only the released shape is built for: {why}"),
    }
    Ok(all)
}

/// The released shape without its weights: kernels depend on shapes and encodings alone.
fn outline(mix: Mix) -> Result<Model, CliError> {
    let shape = SynthOptions::shapes().next().expect("there is a shape").to_owned();
    let file = std::env::temp_dir().join(format!("chimere-outline-{}-{}.gguf", std::process::id(), mix.name()));
    let options = SynthOptions { shape, mix, layers: None, experts: None, vocab: None, draft_head: false, seed: 1 };
    synth::write_outline(&file, &options).map_err(|e| CliError::Failed(e.to_string()))?;
    let model = model::load(&file).map_err(|e| CliError::Failed(e.to_string()));
    // It stays mapped; the name is not needed any more.
    let _ = std::fs::remove_file(&file);
    model
}

/// For every way in which the model can be served.
fn programs(model: &Model, arch: Arch, chip: Chip) -> Result<Vec<Program>, CudaBackendError> {
    let mut all: Vec<Program> = Vec::new();
    for kv_type in [KvType::F16, KvType::Q8_0, KvType::Q8_0Q4_0] {
        let embeddings = [Embedding::Device, Embedding::Host];
        let rounded = [Activations::Int8, Activations::Int16];
        for (activations, embedding) in rounded.into_iter().flat_map(|a| embeddings.map(|e| (a, e))) {
            let wanted = DeviceRequest {
                device: Device::Cuda,
                kv_type,
                activations,
                embedding,
                // Larger steps take all kernels of smaller ones.
                step_tokens: limits::STEP_TOKENS_GPU[0],
                // Their number and rank are data.
                adapters: AdapterRoom { slots: 1, rank_max: 1 },
                ..DeviceRequest::of(&Engine::default(), model.config.context)
            };
            let more = cuda::programs(model, &wanted.cuda(), arch, Some(chip))?;
            more.into_iter().for_each(|p| {
                if !all.contains(&p) {
                    all.push(p);
                }
            });
        }
    }
    Ok(all)
}

fn show(terminal: bool, done: usize, all: usize) {
    if terminal {
        eprint!("\rcompiling {done} of {all}");
        // A progress line that cannot be written is not worth an error.
        let _ = std::io::stderr().flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_architecture_nobody_knows_is_refused_with_the_known_ones() {
        assert_eq!(archs(&[]).unwrap(), Arch::ALL);
        assert_eq!(archs(&["sm_90a".into(), " sm_80".into()]).unwrap().len(), 2);
        let error = archs(&["sm_61".into()]).unwrap_err();
        assert!(matches!(&error, CliError::Usage(why) if why.contains("sm_61") && why.contains("sm_120a")), "{error}");
    }

    #[test]
    fn the_released_shape_is_known_without_a_file_of_its_size() {
        let model = outline(Mix::Q4).unwrap();
        assert_eq!((model.config.hidden, model.config.layers.len()), (2048, 40));
    }
}
