//! `chimere info`: what a model file holds and what it will need.

use chimere::config::{Config, Devices, ServeArgs};
use chimere::device::{DeviceError, EarlyLook, PlannedReplica, plan_replicas};
use chimere::printable::one_line;
use chimere_engine::PAGE_TOKENS;
use chimere_engine::backend::cpu::matmul::Isa;
use chimere_engine::backend::{cpu, cuda};
use chimere_engine::format::TokenizerSource;
use chimere_engine::model::{self, AdapterTargets, Model, ModelConfig, MoeConfig, StateShape, Summary};
use chimere_tools::figures::{bytes_text, count_text};
use chimere_tools::{CliError, find_model};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Shows a model's architecture, sizes, encodings by role, memory needs, and the CPU's instruction sets.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct InfoArgs {
    /// Model: a GGUF file, a directory with one, or a Hugging Face directory [default: as for `serve`].
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) model: Option<PathBuf>,

    /// Adapter for the model: a directory in PEFT's layout, or a GGUF file. Says what it changes, or why it cannot be
    /// served.
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) adapter: Option<PathBuf>,

    /// Shows instead how `serve` would compute the model on these GPUs, without more flags: all that hold it, or
    /// numbers with commas between them.
    #[arg(long, value_name = "all|N,N", num_args = 0..=1, default_missing_value = "all", conflicts_with = "adapter")]
    pub(crate) devices: Option<Devices>,
}

/// Prints what the model file says.
pub(crate) fn run(args: &InfoArgs) -> Result<(), CliError> {
    let path = find_model(args.model.as_deref())?;
    if let Some(devices) = &args.devices {
        return show_devices(&path, devices);
    }
    let model = model::load(&path).map_err(|e| CliError::Failed(e.to_string()))?;
    let isa = Isa::chosen().map_err(|e| CliError::Failed(e.to_string()))?;
    let adapter = args.adapter.as_deref().map(|path| adapter_text(path, &model)).transpose()?;
    print!("{}\n{}{}", report(&path, &model), adapter.unwrap_or_default(), isa_text(isa));
    Ok(())
}

/// Prints each GPU with its replicas, and how the memory of one of them would be split. The file and the environment
/// configure the rest, as for `serve`.
fn show_devices(path: &Path, devices: &Devices) -> Result<(), CliError> {
    let args = ServeArgs { model: Some(path.to_owned()), devices: Some(devices.clone()), ..ServeArgs::default() };
    let config = Config::load(&args, std::env::vars()).map_err(|e| CliError::Usage(e.to_string()))?;
    let mut model = model::load(path).map_err(|e| CliError::Failed(e.to_string()))?;
    config.engine.draft_ids.limit(&mut model).map_err(CliError::Usage)?;
    let look = EarlyLook::begin(config.engine.device, devices);
    let planned = plan_replicas(&config, &model, look, &mut |line| println!("{line}")).map_err(|e| match e {
        DeviceError::Usage(why) => CliError::Usage(why),
        DeviceError::Unusable(why) => CliError::Failed(why),
    })?;
    print!("{}", replicas_text(&planned));
    Ok(())
}

/// A line for each replica: its GPU, and what it has of it.
fn replicas_text(planned: &[PlannedReplica]) -> String {
    let lines = planned.iter().enumerate().map(|(number, PlannedReplica { setup, plan })| {
        let device = setup.gpu().map_or_else(|| "the CPU".into(), |gpu| format!("GPU {}", gpu.ordinal));
        let (weights, all, pages) = (bytes_text(plan.needs.weights), bytes_text(plan.bytes()), plan.pages);
        let slots = setup.slots();
        format!("replica {number} on {device}: weights {weights} of {all}, {slots} sequences, {pages} pages of KV\n")
    });
    lines.collect()
}

/// What an adapter changes of a model.
fn adapter_text(path: &Path, model: &Model) -> Result<String, CliError> {
    let adapter = model::read_adapter(path, "adapter", &AdapterTargets::of(model))
        .map_err(|e| CliError::Failed(e.to_string()))?;
    let (matrices, rank) = (adapter.matrices(), adapter.rank_max());
    let blocks = adapter.blocks.iter().filter(|block| !block.is_empty()).count();
    let bytes = bytes_text(adapter.bytes());
    Ok(format!(
        "adapter {}: changes {matrices} matrices of {blocks} blocks, rank {rank} at most, {bytes}\n\n",
        path.display()
    ))
}

/// The instruction set in use and those that there are.
fn isa_text(used: Isa) -> String {
    let has = Isa::available().iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", ");
    format!("CPU computes with {}; this machine has {has}, and CHIMERE_ISA picks one\n", used.name())
}

fn report(path: &Path, model: &Model) -> String {
    let summary = Summary::of(model);
    let mut out = String::new();
    let c = &model.config;
    let mut line = |name: &str, value: String| writeln!(out, "{name:<15} {value}").expect("writing to a string");
    line("model", one_line(&c.name));
    line("file", path.display().to_string());
    line("architecture", c.architecture.to_owned());
    line(
        "parameters",
        format!(
            "{} ({} used by a token)",
            count_text(summary.parameters()),
            count_text(used_parameters(model, &summary))
        ),
    );
    line("weights", bytes_text(summary.bytes()));
    line("layers", layers_text(c));
    line("width", format!("{} hidden, {} vocabulary, {} context", c.hidden, c.vocab, c.context));
    for shape in c.shapes() {
        line(shape.name(), shape.describe());
    }
    line("tokenizer", tokenizer_text(model));
    line("computed by", backends_text(c));
    out.push('\n');
    out.push_str(&roles_table(&summary));
    out.push('\n');
    out.push_str(&memory_table(c));
    out
}

/// Parameters that one token's forward pass reads: the embedding is a look-up unless it is the head too.
fn used_parameters(model: &Model, summary: &Summary) -> u64 {
    use model::Role;
    let role = |role| summary.roles.get(&role).map_or(0, |r| r.parameters);
    let moe = model.config.each::<MoeConfig>().next();
    let experts = moe.map_or(0, |moe| role(Role::Experts) / moe.experts as u64 * moe.used as u64);
    let lookup = if model.weights.head.is_some() { role(Role::Embedding) } else { 0 };
    summary.parameters() - role(Role::Experts) + experts - lookup
}

/// Layers, and of what looks beyond one token how many there are of each.
fn layers_text(c: &ModelConfig) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for op in c.blocks().map(|block| &block.op).filter(|op| op.state() != StateShape::default()) {
        match counts.iter_mut().find(|(name, _)| *name == op.name()) {
            Some((_, count)) => *count += 1,
            None => counts.push((op.name(), 1)),
        }
    }
    let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    format!("{}: {}", c.layers.len(), counts.join(", "))
}

fn tokenizer_text(model: &Model) -> String {
    let template = if model.text.chat_template.is_some() { "chat template" } else { "no chat template" };
    let ends = model.text.end_ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let source = match &model.text.tokenizer {
        TokenizerSource::Json(_) => "tokenizer.json".to_owned(),
        TokenizerSource::Gguf { pre, tokens, .. } => format!("{} tokens, pre-tokenizer {pre}", tokens.len()),
    };
    format!("{source}, {template}, ends at {ends}")
}

/// Which backends compute the model, and why one does not.
fn backends_text(c: &ModelConfig) -> String {
    match (cpu::check(c), cuda::check(c)) {
        (Ok(()), Ok(())) => "CPU and GPU".to_owned(),
        (Ok(()), Err(gpu)) => format!("CPU; not by a GPU: {gpu}"),
        (Err(cpu), Ok(())) => format!("GPU; not by a CPU: {cpu}"),
        (Err(cpu), Err(gpu)) => format!("neither a CPU: {cpu}; nor a GPU: {gpu}"),
    }
}

fn roles_table(summary: &Summary) -> String {
    let mut out = format!("{:<16}{:>12}{:>12}  encodings\n", "weights", "parameters", "bytes");
    for (role, r) in &summary.roles {
        let types =
            r.types.iter().map(|(ty, bytes)| format!("{ty} {}", bytes_text(*bytes))).collect::<Vec<_>>().join(", ");
        writeln!(out, "{:<16}{:>12}{:>12}  {types}", role.name(), count_text(r.parameters), bytes_text(r.bytes))
            .expect("to a string");
    }
    out
}

/// Bytes of one sequence's recurrent state in all layers, with its convolution tails, in f32.
fn state_bytes(c: &ModelConfig) -> u64 {
    (4 * c.recurrent_floats()) as u64
}

/// Bytes of one page of KV in f16, all layers.
fn page_bytes(c: &ModelConfig) -> u64 {
    (2 * 2 * c.kv_values() * PAGE_TOKENS as usize) as u64
}

/// Bytes of one page of KV in f16 that a draft head has beside them, where it is used.
fn draft_page_bytes(c: &ModelConfig) -> u64 {
    let values = c.draft.iter().map(|block| block.op.state()).map(|state| state.kv_heads * state.kv_dim).sum::<usize>();
    (2 * 2 * values * PAGE_TOKENS as usize) as u64
}

fn memory_table(c: &ModelConfig) -> String {
    let pages = u64::from(c.context.div_ceil(PAGE_TOKENS));
    let mut out = String::from("memory beside the weights\n");
    for (what, bytes) in [
        ("recurrent state of a sequence", state_bytes(c)),
        ("one that the prefix cache keeps", state_bytes(c)),
        ("KV of 32 tokens in f16", page_bytes(c)),
        ("KV of a whole context in f16", page_bytes(c) * pages),
        ("KV of 32 tokens of a draft head", draft_page_bytes(c)),
    ]
    .into_iter()
    .filter(|(_, bytes)| *bytes > 0)
    {
        writeln!(out, "  {what:<32}{:>12}", bytes_text(bytes)).expect("to a string");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere::config::Device;
    use chimere_engine::model::OpConfig;

    #[test]
    fn the_shipped_model_is_described_in_full() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano/nano-q8_0.gguf");
        let text = report(&file, &model::load(&file).unwrap());
        for wanted in [
            "qwen35moe",
            "8: 6 gated delta, 2 attention",
            "4 of 16 experts 128 wide",
            "4 key heads of 64, 8 value heads of 64",
            "Q8_0",
            "draft head",
            "chat template",
            "computed by     CPU and GPU",
        ] {
            assert!(text.contains(wanted), "{wanted:?} is not in\n{text}");
        }
    }

    #[test]
    fn each_replica_has_a_line_with_what_it_has_of_its_device() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano/nano-q8_0.gguf");
        let model = model::load(&file).unwrap();
        let flags = ServeArgs {
            device: Some(Device::Cpu),
            threads: Some(2),
            replicas: Some(2),
            max_seqs: Some(3),
            vram_budget: Some("1GiB".parse().unwrap()),
            ..ServeArgs::default()
        };
        let config = Config::load(&flags, [].into_iter()).unwrap();
        let (look, mut said) = (EarlyLook::begin(Device::Cpu, &Devices::First), Vec::new());
        let planned = plan_replicas(&config, &model, look, &mut |line| said.push(line.to_owned())).unwrap();
        assert_eq!(said[0], "computing on the CPU, 2 replicas");
        assert!(said[1].starts_with("memory plan\n") && said[1].ends_with(" of 512.0 MiB"), "{said:?}");
        let text = replicas_text(&planned);
        assert!(text.starts_with("replica 0 on the CPU: weights ") && text.contains(" 3 sequences, "), "{text}");
        assert_eq!(text.matches(&format!("{} pages of KV\n", planned[0].plan.pages)).count(), 2, "{text}");
    }

    #[test]
    fn a_model_of_mamba_2_is_described_with_what_computes_it() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden");
        let text = |preset: &str| {
            let file = golden.join(preset).join("model.gguf");
            report(&file, &model::load(&file).unwrap())
        };
        let nemotron = text("nemotron_h");
        for wanted in [
            "nemotron_h_moe",
            "5: 2 mamba-2, 1 attention",
            "4 heads of 32 in 2 groups, state 32, 4 taps",
            "4 query and 2 key heads of 32, no positions",
            "computed by     CPU and GPU",
        ] {
            assert!(nemotron.contains(wanted), "{wanted:?} is not in\n{nemotron}");
        }
        let falcon = text("falcon_h1");
        assert!(falcon.contains("2: 2 attention beside mamba-2"), "{falcon}");
        assert!(falcon.contains("attention beside mamba-2 4 query"), "{falcon}");
        assert!(falcon.contains("computed by     CPU and GPU"), "{falcon}");
        let file = golden.join("falcon_h1").join("model.gguf");
        let mut wide = model::load(&file).unwrap();
        for block in wide.config.layers.iter_mut().flatten() {
            if let OpConfig::Parallel(parallel) = &mut block.op {
                parallel.attention.head_dim = 512;
            }
        }
        let wide = report(&file, &wide);
        assert!(wide.contains("CPU; not by a GPU: ") && wide.contains("heads of 512: must be of 64"), "{wide}");
    }

    #[test]
    fn an_adapter_is_described_by_what_it_changes_or_refused() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden");
        let model = model::load(&golden.join("moe/model.gguf")).unwrap();
        let text = adapter_text(&golden.join("adapters/moe"), &model).unwrap();
        assert!(text.contains("changes 31 matrices of 8 blocks, rank 6 at most"), "{text}");
        let error = adapter_text(&golden.join("adapters/qwen3"), &model).unwrap_err().to_string();
        assert!(error.contains("`mlp.down_proj`"), "{error}");
    }

    #[test]
    fn every_instruction_set_of_this_machine_is_named_and_the_one_in_use_first() {
        let text = isa_text(Isa::Scalar);
        assert!(text.starts_with("CPU computes with scalar; "), "{text}");
        assert!(Isa::available().iter().all(|isa| text.contains(isa.name())), "{text}");
    }

    #[test]
    fn memory_follows_from_the_shape() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano/nano-q8_0.gguf");
        let c = model::load(&file).unwrap().config;
        // 6 layers of 8 heads of 64 x 64 floats and 3 rows of 4*64*2 + 8*64 channels; 2 layers of 2 heads of 64 halves,
        // K and V.
        assert_eq!(state_bytes(&c), 6 * 4 * (8 * 64 * 64 + 3 * 1024));
        assert_eq!(page_bytes(&c), 2 * 2 * 2 * 2 * 64 * 32);
        assert_eq!(draft_page_bytes(&c), 2 * 2 * 2 * 64 * 32, "one layer more");
    }
}
