//! `chimere quantize`: a model file whose weights take fewer bits. The engine has the encoders, the knapsack and the
//! writer; here the model is run to learn what each part is worth.

mod card;
mod choice;
mod job;
mod kept;
mod options;
mod report;
mod sensitivity;

pub use options::{Mtp, QuantizeArgs, RoundingMethod, Scheme, Target, TypeRule};

use super::CliError;
use super::calibration::{self, Calibration, TextMix};
use super::figures::{StepProgress, bytes_text};
use super::logits::threads;
use chimere::config::Device;
use chimere::device::ORDINAL;
use chimere::text::{TextModel, tokenizer};
use chimere_engine::backend::cuda::CudaEncoder;
use chimere_engine::format::{Gguf, TextAssets};
use chimere_engine::model::{self, Model, Opened};
use chimere_engine::quantize::{self, Encoder, Importance, Threads};
use choice::Choices;
use job::QuantizeJob;
use kept::{importance_path, kept_importance};
use report::{QuantizeReport, Wrote};
use sensitivity::BaseAnswers;
use std::path::Path;
use std::time::Instant;

/// Tokens of a calibration sequence.
const SEQUENCE_TOKENS: u32 = 512;

fn failed(e: impl std::fmt::Display) -> CliError {
    CliError::Failed(e.to_string())
}

/// Measures, chooses, writes, and reports.
pub fn run(args: &QuantizeArgs) -> Result<(), CliError> {
    args.check()?;
    let (source, model) = open(&args.model)?;
    let encoder = encoder(args.device)?;
    let report = quantize(args, (&source, &*encoder), &model)?;
    print!("{report}");
    let path = args.report.clone().unwrap_or_else(|| args.out.with_added_extension("json"));
    std::fs::write(&path, format!("{:#}\n", report.json())).map_err(|e| failed(format!("{}: {e}", path.display())))
}

/// The encoder that `--device` names. Nothing else is done on a GPU: its bytes equal those of a CPU, and divergences
/// are measured on the CPU.
fn encoder(device: Device) -> Result<Box<dyn Encoder>, CliError> {
    if device == Device::Cpu {
        return Ok(Box::new(Threads));
    }
    match (CudaEncoder::open(ORDINAL), device) {
        (Ok(encoder), _) => Ok(Box::new(encoder)),
        (Err(why), Device::Cuda) => Err(failed(format!("device cuda: {why}"))),
        (Err(why), _) => {
            eprintln!("encoding on the CPU: {}", why.to_string().lines().next().unwrap_or_default());
            Ok(Box::new(Threads))
        }
    }
}

/// The source and the model in it: a GGUF file, or a Hugging Face directory as the file that a converter would write.
fn open(path: &Path) -> Result<(Gguf, Model), CliError> {
    match model::open(path).map_err(failed)? {
        Opened::Gguf(file) => {
            let model = model::load_gguf(&file).map_err(failed)?;
            Ok((file, model))
        }
        Opened::HuggingFace(dir) => {
            let mut text = TextAssets::from_hugging_face(dir.path()).map_err(failed)?;
            text.tokenizer =
                tokenizer::as_gguf(&text.tokenizer).map_err(|e| failed(format!("{}: {e}", path.display())))?;
            model::as_gguf(dir, &text).map_err(failed)
        }
    }
}

fn quantize(
    args: &QuantizeArgs,
    (source, encoder): (&Gguf, &dyn Encoder),
    model: &Model,
) -> Result<QuantizeReport, CliError> {
    let job = QuantizeJob::new(args, (source, encoder), model)?;
    // What cannot be is refused before hours of measuring.
    if !matches!(args.scheme, Scheme::Uniform(_)) {
        job.budget()?;
    }
    let (importance, answered) = calibrate(&job, model)?;
    let choices = Choices::of(&job, &importance, answered.as_ref())?;
    let output = job.output(&choices.types, &importance);
    if let Some(takes) = job.check_card(&output, model)? {
        eprintln!("weights on the card: {}", bytes_text(takes));
    }
    let (mut progress, begin) = (StepProgress::new("writing"), Instant::now());
    let kib = |bytes: u64| (bytes >> 10) as usize;
    let bytes = quantize::write(&args.out, &output, |done, all| progress.show(kib(done), kib(all))).map_err(failed)?;
    progress.end();
    let seconds = begin.elapsed().as_secs_f64();
    let measured = answered.map(|a| a.divergence_of_file(&args.out)).transpose()?;
    let wrote = Wrote { bytes, on: encoder.name().to_owned(), seconds };
    Ok(QuantizeReport::new(&job, choices, wrote, measured))
}

/// How much inputs count and, where a scheme asks for divergences, the base model's answers.
fn calibrate(job: &QuantizeJob<'_>, model: &Model) -> Result<(Importance, Option<BaseAnswers>), CliError> {
    let args = job.args;
    let own = args.importance == "self";
    let given = match args.importance.as_str() {
        "self" | "none" => Importance::default(),
        path => Importance::open(Path::new(path)).map_err(failed)?,
    };
    if !own && args.scheme != Scheme::Kl {
        return Ok((given, None));
    }
    if args.scheme != Scheme::Kl
        && args.rounding() == RoundingMethod::Nearest
        && let Some(kept) = kept_importance(args)?
    {
        return Ok((kept, None));
    }
    let text = TextModel::new(&model.text).map_err(failed)?;
    let threads = threads(args.threads);
    let options = Calibration {
        sequences: args.sequences,
        tokens: SEQUENCE_TOKENS,
        mix: TextMix::MostlyProse,
        seed: args.seed,
        threads,
    };
    let windows = calibration::write(model, &text, &options)?;
    let wanted = if args.scheme == Scheme::Kl { args.tokens as usize } else { 0 };
    let (measured, answered) = sensitivity::answer(model, windows, (wanted, &job.correlated()), threads)?;
    if let Some(path) = importance_path(args) {
        let tokens = u64::from(args.sequences) * u64::from(SEQUENCE_TOKENS);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(failed)?;
        measured.save(&path, tokens).map_err(|e| failed(format!("{}: {e}", path.display())))?;
    }
    Ok((if own { measured } else { given }, (wanted > 0).then_some(answered)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_engine::format::BlockType;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: QuantizeArgs,
    }

    #[test]
    fn values_are_rounded_together_where_it_is_measured_how_inputs_are_correlated() {
        let args = |options: &[&str]| {
            Command::parse_from([&["quantize", "--model", "m", "--out", "o"], options].concat()).args
        };
        assert_eq!(args(&["--target", "4bpw"]).rounding(), RoundingMethod::Correlated);
        assert_eq!(args(&["--target", "4bpw", "--importance", "i.gguf"]).rounding(), RoundingMethod::Nearest);
        assert_eq!(args(&["--scheme", "uniform:Q4_K"]).rounding(), RoundingMethod::Nearest);
        let asked = args(&["--scheme", "uniform:Q4_K", "--rounding", "correlated", "--importance", "none"]);
        let refused = asked.check().unwrap_err().to_string();
        assert!(refused.contains("wanted --importance self") && refused.ends_with("got `none`"), "{refused}");
    }

    #[test]
    fn a_hugging_face_directory_becomes_a_file_that_reads_text_alike() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden/moe");
        let dir = tempfile::tempdir().unwrap();
        // Without the GGUF file beside them, which would be the model.
        let source = dir.path().join("moe");
        std::fs::create_dir(&source).unwrap();
        let names =
            ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];
        for name in names {
            std::fs::copy(golden.join(name), source.join(name)).unwrap();
        }
        let out = dir.path().join("out.gguf");
        let (model, file) = (source.to_str().unwrap(), out.to_str().unwrap());
        let options = ["quantize", "--model", model, "--out", file, "--scheme", "uniform:Q4_K", "--importance", "none"];
        run(&Command::parse_from(options).args).unwrap();
        let (base, small) = (model::load(&source).unwrap(), model::load(&out).unwrap());
        assert_eq!((base.config.name.as_str(), small.config.name.as_str()), ("moe", "moe"));
        assert!(small.weights.draft_head.is_some() && small.weights.embed.ty == BlockType::Q5_0, "rows of 32");
        assert_eq!(base.text.end_ids, small.text.end_ids);
        assert_eq!(base.text.chat_template, small.text.chat_template);
        let text = "<|im_start|>user\nÀ l'été";
        let ids = |model: &Model| TextModel::new(&model.text).unwrap().tokenizer().encode(text);
        assert_eq!(ids(&base), ids(&small));
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(out.with_extension("gguf.json")).unwrap()).unwrap();
        assert_eq!(report["groups"][0]["type"], "Q4_K");
    }
    /// The report of quantising a golden file with these options.
    fn reported(golden: &str, options: &[&str]) -> Result<serde_json::Value, String> {
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden").join(golden).join("model.gguf");
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out.gguf");
        let (model, file) = (source.to_str().unwrap(), out.to_str().unwrap());
        let given = ["quantize", "--model", model, "--out", file, "--scheme", "uniform:Q4_K", "--importance", "none"];
        run(&Command::parse_from([&given, options].concat()).args).map_err(|e| e.to_string())?;
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(out.with_extension("gguf.json")).unwrap()).unwrap();
        assert_eq!(report["bytes"], std::fs::metadata(&out).unwrap().len());
        model::load(&out).unwrap();
        Ok(report)
    }

    #[test]
    fn every_matrix_of_every_family_is_encoded_or_listed_with_the_reason() {
        let mambas = ["mamba2", "granitehybrid", "falcon_h1", "nemotron_h", "nemotron_super"];
        let (deltas, convolutions) = (["moe", "next"], ["lfm2", "lfm2_moe"]);
        let others = ["qwen3", "qwen3_moe", "granite"];
        for golden in mambas.into_iter().chain(deltas).chain(convolutions).chain(others) {
            let report = reported(golden, &[]).unwrap();
            let of = |list: &str| report[list].as_array().unwrap().clone();
            let sum = |list: &str| of(list).iter().map(|row| row["bytes"].as_u64().unwrap()).sum::<u64>();
            let all = sum("groups") + sum("others") + report["header_bytes"].as_u64().unwrap();
            assert_eq!(report["bytes"], all, "{golden}");
            let kept: Vec<_> = of("others").iter().map(|row| row["why"].as_str().unwrap().to_owned()).collect();
            assert!(kept.iter().all(|why| !why.starts_with("matrices")), "{golden}: {kept:?}");
            let has = |name: &str| of("groups").iter().any(|g| g["group"].as_str().unwrap().starts_with(name));
            let (mamba, delta) = (mambas.contains(&golden), deltas.contains(&golden));
            assert_eq!((has("mamba in"), has("mamba out"), has("delta-net in")), (mamba, mamba, delta), "{golden}");
            let convolves = convolutions.contains(&golden);
            assert_eq!((has("short convolution in"), has("short convolution out")), (convolves, convolves), "{golden}");
            assert_eq!(has("experts latent"), golden == "nemotron_super");
        }
    }

    #[test]
    fn a_rule_without_effect_is_refused() {
        let refused = |rule: &str| reported("mamba2", &["--tensor-type", rule]).unwrap_err();
        let why = refused("ffn_dwon=Q8_0");
        assert!(why.contains("--tensor-type") && why.ends_with("got `ffn_dwon`, which matches none"), "{why}");
        let why = refused("conv1d=Q8_0");
        assert!(why.contains("blk.0.ssm_conv1d.weight (convolutions of a few taps)"), "{why}");
        let report = reported("mamba2", &["--tensor-type", "ssm_in=Q8_0"]).unwrap();
        let ruled = report["others"].as_array().unwrap().iter().find(|row| row["why"] == "--tensor-type").unwrap();
        assert_eq!((&ruled["type"], &ruled["tensors"]), (&"Q8_0".into(), &3.into()));
    }
}
