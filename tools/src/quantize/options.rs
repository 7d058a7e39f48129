//! What `chimere quantize` is asked for, and how sizes, schemes and rules are spelled.

use crate::CliError;
use chimere::config::Device;
use chimere_engine::format::BlockType;
use chimere_engine::format::blocks::can_quantize;
use regex::Regex;
use std::path::PathBuf;
use std::str::FromStr;

/// Writes a GGUF file of fewer bits. The mix of types is the one that is expected to move the model's answers least
/// within the target: how much each part moves them is measured on text that the model writes itself, on the CPU.
#[derive(clap::Args, Debug, Clone)]
pub struct QuantizeArgs {
    /// Source: a GGUF file of any types that are read here, or a Hugging Face directory.
    #[arg(long, value_name = "FILE|DIR")]
    pub model: PathBuf,
    /// File to write the model to.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Size of the file, such as 14.7GiB or 900MB; or bits a weight over all matrices, such as 4.1bpw; or a card that
    /// is to hold the weights beside what --seqs sequences of --context tokens take there, such as card:16GiB.
    #[arg(long, value_name = "SIZE|BPW|card:SIZE", required_unless_present_any = ["scheme", "tensor_type"])]
    pub target: Option<Target>,
    /// Tokens of each sequence on a card: with --target card.
    #[arg(long, value_name = "TOKENS", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..))]
    pub context: u32,
    /// Sequences at once on a card: with --target card.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub seqs: u32,
    /// How types are chosen: kl by measured divergence; error by importance-weighted error alone; ramp by kurtosis,
    /// rank and round-trip error; uniform:TYPE one type for all, which needs no target.
    #[arg(long, value_name = "SCHEME", default_value = "kl")]
    pub scheme: Scheme,
    /// A type for tensors whose names match, such as 'ffn_down_exps=Q5_K'. The first rule that matches holds.
    #[arg(long, value_name = "REGEX=TYPE")]
    pub tensor_type: Vec<TypeRule>,
    /// The draft head's matrices: quantise (Q4_K or the uniform type), keep as they are, or drop the head.
    #[arg(long, value_enum, default_value_t = Mtp::Quantise)]
    pub mtp: Mtp,
    /// How much inputs count: self measures it, none counts all alike, anything else is an importance matrix in GGUF.
    #[arg(long, value_name = "self|none|FILE", default_value = "self")]
    pub importance: String,
    /// How values are rounded: nearest each to the nearest that its scale has; correlated so that outputs change least,
    /// by how inputs are correlated in calibration text, with --importance self [default: correlated with scheme kl,
    /// else nearest].
    #[arg(long, value_enum)]
    pub rounding: Option<RoundingMethod>,
    /// Sequences of 512 tokens that the model writes for calibration.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub sequences: u32,
    /// Tokens of them on which divergences are measured.
    #[arg(long, value_name = "TOKENS", default_value_t = 12288, value_parser = clap::value_parser!(u32).range(64..))]
    pub tokens: u32,
    /// Layers of each role that are measured; those between are interpolated.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub depths: u32,
    /// Measure each group alone in its type too, for the report: one more reading of those tokens a group.
    #[arg(long)]
    pub measure_groups: bool,
    /// Seed of the calibration text. The same seed gives the same file.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Folder for what was measured: a later run of the same model and options goes on from it.
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,
    /// Where the report goes as JSON [default: the output's name with .json].
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// What encodes. The bytes are the same; everything else is done on the CPU.
    #[arg(long, value_enum, default_value = "auto")]
    pub device: Device,
    /// Threads that compute, 0 for every core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
}

impl QuantizeArgs {
    /// How values are rounded: as asked, or as the scheme does.
    pub(super) fn rounding(&self) -> RoundingMethod {
        let own = if self.scheme == Scheme::Kl && self.importance == "self" {
            RoundingMethod::Correlated
        } else {
            RoundingMethod::Nearest
        };
        self.rounding.unwrap_or(own)
    }

    /// Whether options go together, before anything is opened.
    pub(super) fn check(&self) -> Result<(), CliError> {
        if self.rounding() == RoundingMethod::Correlated && self.importance != "self" {
            return Err(CliError::Usage(format!(
                "--rounding correlated: wanted --importance self, which says how inputs are correlated, got `{}`",
                self.importance
            )));
        }
        Ok(())
    }
}

/// How values are rounded.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the option says what they are")]
pub enum RoundingMethod {
    Nearest,
    Correlated,
}

/// What becomes of the draft head.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the option says what they are")]
pub enum Mtp {
    Quantise,
    Keep,
    Drop,
}

/// How large the result may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Bytes of the whole file.
    File(u64),
    /// Bits a weight over all matrices that are quantised.
    Bits(f64),
    /// Bytes of a card.
    Card(u64),
}

/// How types are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the option says what they are")]
pub enum Scheme {
    Kl,
    Error,
    Ramp,
    Uniform(BlockType),
}

/// A type for tensors of some names.
#[derive(Clone, Debug)]
pub struct TypeRule {
    pub(super) names: Regex,
    pub(super) ty: BlockType,
}

const UNITS: [(&str, f64); 6] =
    [("GiB", 1073741824.0), ("MiB", 1048576.0), ("KiB", 1024.0), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)];

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("wanted a size such as 14.7GiB or 900MB, card:16GiB or 4.1bpw, got `{text}`");
        if let Some(size) = text.strip_prefix("card:") {
            return match size.parse() {
                Ok(Self::File(bytes)) => Ok(Self::Card(bytes)),
                _ => Err(wanted()),
            };
        }
        let number = |n: &str| n.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0).ok_or_else(wanted);
        if let Some(bits) = text.strip_suffix("bpw") {
            return number(bits).map(Self::Bits);
        }
        match UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, bytes))) {
            Some((n, unit)) => Ok(Self::File((number(n)? * unit) as u64)),
            None => text.parse().ok().filter(|n| *n > 0).map(Self::File).ok_or_else(wanted),
        }
    }
}

fn quantized_type(name: &str) -> Result<BlockType, String> {
    let all = || BlockType::all().filter(|t| can_quantize(*t)).map(BlockType::name).collect::<Vec<_>>().join(", ");
    let found = BlockType::named(name).filter(|t| can_quantize(*t));
    found.ok_or_else(|| format!("wanted one of {}, got `{name}`", all()))
}

impl FromStr for Scheme {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "kl" => Ok(Self::Kl),
            "error" => Ok(Self::Error),
            "ramp" => Ok(Self::Ramp),
            _ => match text.strip_prefix("uniform:") {
                Some(name) => quantized_type(name).map(Self::Uniform),
                None => Err(format!("wanted kl, error, ramp or uniform:TYPE, got `{text}`")),
            },
        }
    }
}

impl FromStr for TypeRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (names, ty) = text.rsplit_once('=').ok_or_else(|| format!("wanted REGEX=TYPE, got `{text}`"))?;
        Ok(Self { names: Regex::new(names).map_err(|e| e.to_string())?, ty: quantized_type(ty)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_schemes_and_rules_are_read_or_refused_with_what_is_wanted() {
        assert_eq!("1.5GiB".parse(), Ok(Target::File(1_610_612_736)));
        assert_eq!("900MB".parse(), Ok(Target::File(900_000_000)));
        assert_eq!("4.1bpw".parse(), Ok(Target::Bits(4.1)));
        assert_eq!("card:16GiB".parse(), Ok(Target::Card(16 << 30)));
        for bad in ["", "-1GiB", "nanbpw", "4.1", "card:4bpw", "card:", "0"] {
            assert!(bad.parse::<Target>().unwrap_err().contains(&format!("got `{bad}`")), "{bad}");
        }
        assert_eq!("uniform:q4_k".parse(), Ok(Scheme::Uniform(BlockType::Q4K)));
        assert!("uniform:Q2_K".parse::<Scheme>().unwrap_err().contains("Q4_K"));
        assert!("best".parse::<Scheme>().is_err());
        let rule: TypeRule = "blk\\.[01]\\.ffn=IQ3_S".parse().unwrap();
        assert!(rule.names.is_match("blk.1.ffn_up.weight") && rule.ty == BlockType::Iq3S);
        assert!("ffn".parse::<TypeRule>().is_err() && "(=Q4_K".parse::<TypeRule>().is_err());
    }
}
