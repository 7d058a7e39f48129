//! `chimere synth`: a model file of a released shape with random weights, to measure speed and memory without a
//! download.

use super::CliError;
use super::figures::{ByteProgress, bytes_text};
use chimere_engine::format::synth::{self, Mix, SynthError, SynthOptions};
use chimere_engine::model::{self, AdapterTargets, RandomAdapterError};
use clap::builder::PossibleValuesParser;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Writes a GGUF file with random weights. It can be served; what it says means nothing.
#[derive(clap::Args, Debug, Clone)]
pub struct SynthArgs {
    /// The file that is to be written.
    #[arg(value_name = "FILE", required_unless_present = "out", conflicts_with = "out")]
    pub file: Option<PathBuf>,
    /// File to write, as an option.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Released shape to take.
    #[arg(long, value_name = "NAME", default_value = "qwen3.5-35b-a3b",
        value_parser = PossibleValuesParser::new(SynthOptions::shapes()))]
    pub shape: String,
    /// Encodings: f32 nothing rounded; q8 all Q8_0; q4 experts Q4_K, head Q6_K, the rest Q8_0; iq3 experts IQ3_S, the
    /// rest Q5_K and Q6_K.
    #[arg(long, value_name = "MIX", default_value = "q4",
        value_parser = PossibleValuesParser::new(Mix::ALL.map(|m| m.1)))]
    pub mix: String,
    /// Layers [default: the shape's own].
    #[arg(long, value_name = "N")]
    pub layers: Option<usize>,
    /// Routed experts a layer [default: the shape's own].
    #[arg(long, value_name = "N")]
    pub experts: Option<usize>,
    /// Tokens of the vocabulary [default: the shape's own].
    #[arg(long, value_name = "N")]
    pub vocab: Option<usize>,
    /// With a draft head behind the layers (multi-token prediction).
    #[arg(long)]
    pub draft_head: bool,
    /// Write an adapter of this model instead: a directory in PEFT's layout that changes all matrices that it may.
    #[arg(long, value_name = "MODEL",
        conflicts_with_all = ["shape", "mix", "layers", "experts", "vocab", "draft_head"])]
    pub adapter: Option<PathBuf>,
    /// Rank of the adapter.
    #[arg(long, value_name = "N", default_value_t = 16, requires = "adapter")]
    pub rank: usize,
    /// Seed of the weights; equal options make equal bytes.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Writes the file, or lists the shapes that there are.
pub fn run(args: &SynthArgs) -> Result<(), CliError> {
    let file = args.out.as_ref().or(args.file.as_ref()).expect("clap asks for one of them");
    if let Some(model) = &args.adapter {
        return write_adapter(file, model, args);
    }
    let options = SynthOptions {
        shape: args.shape.clone(),
        mix: Mix::named(&args.mix).expect("clap lets only known names through"),
        layers: args.layers,
        experts: args.experts,
        vocab: args.vocab,
        draft_head: args.draft_head,
        seed: args.seed,
    };
    let mut progress = ByteProgress::new("writing");
    let begin = Instant::now();
    let size = synth::write(file, &options, |done, all| progress.show(done, all)).map_err(|e| match e {
        SynthError::Option(_) => CliError::Usage(e.to_string()),
        SynthError::Io { .. } => CliError::Failed(e.to_string()),
    })?;
    progress.end();
    let seconds = begin.elapsed().as_secs_f64();
    println!("{}: {} of {} {} in {seconds:.1} s", file.display(), bytes_text(size), args.shape, args.mix);
    Ok(())
}

fn write_adapter(path: &Path, model: &Path, args: &SynthArgs) -> Result<(), CliError> {
    let model = model::load(model).map_err(|e| CliError::Failed(e.to_string()))?;
    let (targets, rank) = (AdapterTargets::of(&model), args.rank);
    let size = model::write_random_adapter(path, &targets, rank, args.seed).map_err(|e| match e {
        RandomAdapterError::Refused(_) => CliError::Usage(e.to_string()),
        RandomAdapterError::Io(_) => CliError::Failed(format!("{}: {e}", path.display())),
    })?;
    println!("{}: {} of an adapter of rank {rank}", path.display(), bytes_text(size));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: SynthArgs,
    }

    #[test]
    fn a_shape_or_mix_nobody_knows_is_refused_with_the_known_ones() {
        let refused =
            |args: &[&str]| Cli::try_parse_from([&["synth", "x.gguf"], args].concat()).err().map(|e| e.to_string());
        assert!(refused(&["--shape", "35b"]).unwrap().contains("qwen3.5-35b-a3b"));
        assert!(refused(&["--mix", "q2"]).unwrap().contains("iq3"));
        assert!(refused(&[]).is_none());
        assert!(refused(&["--out", "y.gguf"]).unwrap().contains("--out"), "one file is enough");
        assert!(Cli::try_parse_from(["synth", "--out", "y.gguf"]).is_ok());
        assert!(Cli::try_parse_from(["synth"]).is_err());
    }

    #[test]
    fn a_random_adapter_changes_all_matrices_of_its_model_and_is_its_seed_s() {
        let dir = tempfile::tempdir().unwrap();
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden/moe/model.gguf");
        let args = |name: &str, rank: &str, seed: &str| {
            let path = dir.path().join(name);
            let words = ["synth", path.to_str().unwrap(), "--adapter", model.to_str().unwrap()];
            Cli::parse_from([&words[..], &["--rank", rank, "--seed", seed]].concat()).args
        };
        let bytes = |name: &str, seed: &str| {
            run(&args(name, "3", seed)).unwrap();
            std::fs::read(dir.path().join(name).join("adapter_model.safetensors")).unwrap()
        };
        let (first, again, other) = (bytes("a", "1"), bytes("b", "1"), bytes("c", "2"));
        assert!(first == again && first != other);
        let targets = AdapterTargets::of(&model::load(&model).unwrap());
        let read = model::read_adapter(&dir.path().join("a"), "a", &targets).unwrap();
        assert_eq!((read.rank_max(), read.matrices()), (3, 31));
        assert!(
            matches!(run(&args("d", "513", "1")), Err(CliError::Usage(why)) if why.contains("a rank from 1 to 512"))
        );
    }

    #[test]
    fn an_option_out_of_range_is_a_usage_error_and_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("m.gguf");
        let args = Cli::parse_from(["synth", file.to_str().unwrap(), "--layers", "0"]).args;
        assert!(matches!(run(&args), Err(CliError::Usage(_))));
        assert!(!file.exists());
    }
}
