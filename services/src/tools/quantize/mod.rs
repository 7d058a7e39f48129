//! `chimere quantize`: a model file whose weights take fewer bits. The engine has the encoders, the knapsack and the
//! writer; here the model is run to learn what each part is worth.

pub(in crate::tools) mod calibration;
mod card;
mod choice;
mod options;
mod plot;
mod report;
mod sensitivity;

pub use options::{Mtp, QuantizeArgs, Rounding, Rule, Scheme, Target};

use super::CliError;
use super::figures::{Steps, bytes_text};
use super::logits::threads;
use crate::config::Device;
use crate::device::ORDINAL;
use crate::text::{TextModel, tokenizer};
use calibration::{Calibration, TextMix};
use card::Card;
use chimere_engine::backend::cuda::CudaEncoder;
use chimere_engine::format::gguf::MetaValue;
use chimere_engine::format::{BlockType, Gguf, TextAssets};
use chimere_engine::model::{self, Model, Opened};
use chimere_engine::quantize::{self, Encoder, Group, Importance, MatrixRole, Output, Threads, fitting, groups};
use choice::Choices;
use report::{Report, Wrote};
use sensitivity::Answered;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Instant;

/// Tokens of a calibration sequence.
const SEQUENCE_TOKENS: u32 = 512;
/// The draft head's type where a scheme chooses the others: nothing that is measured depends on it.
const DRAFT_TYPE: BlockType = BlockType::Q4K;

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
    let write =
        |path: &Path, text: String| std::fs::write(path, text).map_err(|e| failed(format!("{}: {e}", path.display())));
    write(&path, format!("{:#}\n", report.json()))?;
    report.svg().map_or(Ok(()), |picture| write(&path.with_extension("svg"), picture))
}

/// Who encodes. Only that is done on a GPU: the bytes are the same, and what is measured is measured on the CPU.
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

/// What is to be done with a file's tensors, before anything was measured.
struct Job<'a> {
    args: &'a QuantizeArgs,
    source: &'a Gguf,
    encoder: &'a dyn Encoder,
    /// Groups that a scheme chooses types for.
    groups: Vec<Group>,
    /// Types that are settled: by rules, and the draft head's.
    settled: HashMap<String, BlockType>,
    dropped: Vec<String>,
    keys: Vec<(String, MetaValue)>,
    /// What the weights are to fit into, where that is the target, with the room that they have there beside tensors of
    /// no group.
    card: Option<(Card, u64)>,
}

impl<'a> Job<'a> {
    fn new(
        args: &'a QuantizeArgs,
        (source, encoder): (&'a Gguf, &'a dyn Encoder),
        model: &Model,
    ) -> Result<Self, CliError> {
        let main = model.config.layers.len();
        let mut job = Self {
            args,
            source,
            encoder,
            groups: groups(source, main),
            settled: HashMap::new(),
            dropped: vec![],
            keys: vec![],
            card: None,
        };
        job.settle_rules();
        let drafts: Vec<Group> = job.groups.extract_if(.., |g| g.role == MatrixRole::Draft).collect();
        match args.mtp {
            Mtp::Keep => {}
            Mtp::Drop => job.drop_draft(main)?,
            Mtp::Quantise => {
                let ty = if let Scheme::Uniform(ty) = args.scheme { ty } else { DRAFT_TYPE };
                drafts.iter().flat_map(|g| &g.tensors).for_each(|name| job.settle(name, ty));
            }
        }
        if job.groups.is_empty() && job.settled.is_empty() {
            return Err(failed(format!("{}: no tensor in it is one to quantise", source.path().display())));
        }
        job.plan_card(model)?;
        Ok(job)
    }

    fn plan_card(&mut self, model: &Model) -> Result<(), CliError> {
        let Some(Target::Card(bytes)) = self.args.target else { return Ok(()) };
        let card = Card::new(bytes, (self.args.context, self.args.seqs), model);
        // Everything is planned once with some types, so that what is in no group is counted as the planner does.
        let none = Importance::default();
        let all = card.weights_of(&self.output(&vec![DRAFT_TYPE; self.groups.len()], &none), &self.args.out)?;
        let of_groups: u64 = self.groups.iter().map(|g| card.bytes(self.source, g, DRAFT_TYPE)).sum();
        let room = card.room(model)?.saturating_sub(all.saturating_sub(of_groups));
        self.card = Some((card, room));
        Ok(())
    }

    /// That the weights fit as the planner counts them; what they take.
    fn check_card(&self, output: &Output<'_>, model: &Model) -> Result<Option<u64>, CliError> {
        let Some((card, _)) = &self.card else { return Ok(None) };
        let (takes, room) = (card.weights_of(output, &self.args.out)?, card.room(model)?);
        if takes > room {
            let (takes, room) = (bytes_text(takes), bytes_text(room));
            return Err(failed(format!("the chosen types take {takes} on the card, which has {room} for them")));
        }
        Ok(Some(takes))
    }

    /// What a type of a group takes of what the target counts.
    fn bytes(&self, group: &Group, ty: BlockType) -> u64 {
        match &self.card {
            Some((card, _)) => card.bytes(self.source, group, ty),
            None => group.bytes(self.source, ty),
        }
    }

    /// Tensors whose values are rounded together.
    fn correlated(&self) -> HashSet<String> {
        match self.args.rounding() {
            Rounding::Nearest => HashSet::new(),
            Rounding::Correlated => {
                self.groups.iter().flat_map(|g| &g.tensors).chain(self.settled.keys()).cloned().collect()
            }
        }
    }

    fn settle(&mut self, name: &str, ty: BlockType) {
        let cols = self.source.tensor(name).expect("it is one of the file's").cols();
        let ty = fitting(ty, cols).expect("groups have only rows of whole blocks of 32");
        self.settled.insert(name.to_owned(), ty);
    }

    /// Tensors that a rule names leave their groups.
    fn settle_rules(&mut self) {
        let named = |name: &String| self.args.tensor_type.iter().find(|r| r.names.is_match(name)).map(|r| r.ty);
        let hits: Vec<(String, BlockType)> = self
            .groups
            .iter()
            .flat_map(|g| &g.tensors)
            .filter_map(|name| named(name).map(|ty| (name.clone(), ty)))
            .collect();
        for (name, ty) in &hits {
            self.settle(name, *ty);
        }
        for group in &mut self.groups {
            group.tensors.retain(|name| !hits.iter().any(|h| h.0 == *name));
            let weights =
                |name: &String| self.source.tensor(name).map_or(0, |t| t.shape.iter().product::<usize>() as u64);
            group.weights = group.tensors.iter().map(weights).sum();
        }
        self.groups.retain(|g| !g.tensors.is_empty());
    }

    /// The layers from `main` on go, and the keys that count them say so.
    fn drop_draft(&mut self, main: usize) -> Result<(), CliError> {
        let meta = self.source.meta();
        let architecture = meta.need_str("general.architecture").map_err(failed)?;
        let is_draft = |name: &str| {
            let layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')?.0.parse::<usize>().ok());
            layer.is_some_and(|layer| layer >= main)
        };
        self.dropped = self.source.tensors().map(|t| t.name.clone()).filter(|name| is_draft(name)).collect();
        let (count, nextn) = (format!("{architecture}.block_count"), format!("{architecture}.nextn_predict_layers"));
        let all = meta.need_u64(&count).map_err(failed)?;
        let own = format!("{architecture}.");
        for key in meta.keys().filter(|key| key.starts_with(&own)) {
            if matches!(meta.integers(key), Ok(Some(list)) if all > 4 && list.len() as u64 == all) {
                let why = format!("key `{key}` has an entry a layer, which cannot be passed on without the draft head");
                return Err(failed(format!("--mtp drop: {why}")));
            }
        }
        self.keys = vec![(count, MetaValue::U32(main as u32)), (nextn, MetaValue::U32(0))];
        Ok(())
    }

    /// The file with these types for the groups.
    fn output(&self, types: &[BlockType], importance: &'a Importance) -> Output<'a> {
        let mut all = self.settled.clone();
        for (group, ty) in self.groups.iter().zip(types) {
            for name in &group.tensors {
                let cols = self.source.tensor(name).expect("a group's tensors are the file's").cols();
                all.insert(name.clone(), fitting(*ty, cols).expect("it fits"));
            }
        }
        let (dropped, keys) = (self.dropped.clone(), self.keys.clone());
        let (source, encoder) = (self.source, self.encoder);
        Output { source, types: all, dropped, keys, dropped_keys: Vec::new(), importance, encoder }
    }
}

fn quantize(args: &QuantizeArgs, (source, encoder): (&Gguf, &dyn Encoder), model: &Model) -> Result<Report, CliError> {
    let job = Job::new(args, (source, encoder), model)?;
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
    let (mut progress, begin) = (Steps::new("writing"), Instant::now());
    let kib = |bytes: u64| (bytes >> 10) as usize;
    let bytes = quantize::write(&args.out, &output, |done, all| progress.show(kib(done), kib(all))).map_err(failed)?;
    progress.end();
    let seconds = begin.elapsed().as_secs_f64();
    let measured = answered.map(|a| a.divergence_of_file(&args.out)).transpose()?;
    let wrote = Wrote { bytes, on: encoder.name().to_owned(), seconds };
    Ok(Report::new(args, &job.groups, source, choices, wrote, measured))
}

/// How much inputs count and, where a scheme asks for divergences, the base model's answers.
fn calibrate(job: &Job<'_>, model: &Model) -> Result<(Importance, Option<Answered>), CliError> {
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
        && args.rounding() == Rounding::Nearest
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

/// A name that says what was measured: the source's name and size, and what the text depends on.
fn measured_name(args: &QuantizeArgs) -> String {
    let stem = args.model.file_stem().unwrap_or_default().to_string_lossy();
    let bytes = bytes_at(&args.model);
    format!("{stem}-{bytes}-{}x{SEQUENCE_TOKENS}-seed{}", args.sequences, args.seed)
}

/// Bytes of a file, or of all files of a folder.
fn bytes_at(path: &Path) -> u64 {
    let file = |path: &Path| std::fs::metadata(path).map_or(0, |m| m.len());
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| file(&entry.path())).sum(),
        Err(_) => file(path),
    }
}

fn importance_path(args: &QuantizeArgs) -> Option<std::path::PathBuf> {
    args.work.as_ref().map(|dir| dir.join(format!("{}.importance.gguf", measured_name(args))))
}

fn kept_importance(args: &QuantizeArgs) -> Result<Option<Importance>, CliError> {
    importance_path(args).filter(|path| path.exists()).map(|path| Importance::open(&path).map_err(failed)).transpose()
}

impl Job<'_> {
    /// Bytes that the groups may take together; an error if their smallest types take more.
    fn budget(&self) -> Result<u64, CliError> {
        let target = self.args.target;
        let target = target.ok_or_else(|| CliError::Usage("--target: this scheme needs one".into()))?;
        let least: u64 = self.groups.iter().map(|g| choice::smallest(self, g)).sum();
        let weights: u64 = self.groups.iter().map(|g| g.weights).sum();
        let (budget, fixed) = match target {
            Target::Bits(bits) => ((bits * weights as f64 / 8.0) as u64, 0),
            Target::File(bytes) => {
                let fixed = self.fixed_bytes()?;
                (bytes.saturating_sub(fixed), fixed)
            }
            Target::Card(_) => (self.card.as_ref().map_or(0, |(_, room)| *room), 0),
        };
        if budget >= least {
            return Ok(budget);
        }
        let (asked, smallest) = match target {
            Target::Bits(bits) => (format!("{bits}bpw"), format!("{:.3}bpw", least as f64 * 8.0 / weights as f64)),
            Target::File(bytes) => {
                (bytes_text(bytes), format!("{} ({} bytes)", bytes_text(least + fixed), least + fixed))
            }
            Target::Card(_) => {
                (format!("a card with {} for them", bytes_text(budget)), format!("{} on the card", bytes_text(least)))
            }
        };
        Err(CliError::Usage(format!(
            "--target: wanted at least {smallest}, which the smallest types take, got {asked}"
        )))
    }

    /// What the file takes beside the groups, with the padding that they may need.
    fn fixed_bytes(&self) -> Result<u64, CliError> {
        const PADDING: u64 = 32;
        let (none, ty) = (Importance::default(), BlockType::Q8_0);
        let all = self.output(&vec![ty; self.groups.len()], &none).bytes().map_err(failed)?;
        let groups: u64 = self.groups.iter().map(|g| g.bytes(self.source, ty)).sum();
        Ok(all - groups + PADDING * self.groups.iter().map(|g| g.tensors.len() as u64).sum::<u64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(args(&["--target", "4bpw"]).rounding(), Rounding::Correlated);
        assert_eq!(args(&["--target", "4bpw", "--importance", "i.gguf"]).rounding(), Rounding::Nearest);
        assert_eq!(args(&["--scheme", "uniform:Q4_K"]).rounding(), Rounding::Nearest);
        let asked = args(&["--scheme", "uniform:Q4_K", "--rounding", "correlated", "--importance", "none"]);
        let refused = asked.check().unwrap_err().to_string();
        assert!(refused.contains("wanted --importance self") && refused.ends_with("got `none`"), "{refused}");
    }

    #[test]
    fn a_hugging_face_directory_becomes_a_file_that_reads_text_alike() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden/moe");
        let dir = tempfile::tempdir().unwrap();
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
        assert!(!out.with_extension("gguf.svg").exists(), "nothing was measured");
    }
}
