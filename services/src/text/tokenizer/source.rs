//! Reads a tokenizer from what a model file carries. Both shapes become the same [`TokenizerParts`]; what the code
//! cannot do exactly is refused by name.

use super::normalized::{self, Normalized};
use super::split::{NAMED, SplitRule};
use super::{TokenKind, TokenizerError};
use chimere_engine::format::TokenizerSource;
use serde::Deserialize;
use std::collections::HashMap;

/// Ids above this are taken for a damaged file rather than for a vocabulary.
const TOKENS_MAX: u32 = 1 << 22;

/// A tokenizer, taken apart.
#[derive(Debug)]
pub(super) struct TokenizerParts {
    pub(super) rule: SplitRule,
    /// Normalise to NFC before splitting.
    pub(super) nfc: bool,
    /// Look a word up as a whole before merging.
    pub(super) ignore_merges: bool,
    /// Strings in the byte alphabet that merging works with.
    pub(super) vocab: HashMap<String, u32>,
    pub(super) merges: Vec<(String, String)>,
    /// Content, id and kind of each added token.
    pub(super) added: Vec<(String, u32, TokenKind)>,
    /// One more than the highest id.
    pub(super) size: u32,
    /// Added tokens that are looked for in normalised text.
    pub(super) normalized: Normalized,
}

/// Reads a tokenizer of either shape, GGUF's metadata or a `tokenizer.json`.
pub(super) fn read(source: &TokenizerSource) -> Result<TokenizerParts, TokenizerError> {
    match source {
        TokenizerSource::Json(bytes) => from_json(bytes),
        TokenizerSource::Gguf { pre, tokens, types, merges } => from_gguf(pre, tokens, types, merges),
    }
}

/// The tokenizer of any source in the form that GGUF files have.
pub(super) fn as_gguf(source: &TokenizerSource) -> Result<TokenizerSource, TokenizerError> {
    let parts = read(source)?;
    let is =
        |n: &&super::split::NamedRule| (n.rule, n.nfc, n.ignore_merges) == (parts.rule, parts.nfc, parts.ignore_merges);
    let named = NAMED.iter().find(is).ok_or_else(|| {
        let TokenizerParts { rule, nfc, ignore_merges, .. } = &parts;
        let got = format!("{rule:?} with nfc {nfc}, ignore_merges {ignore_merges}: GGUF files have no name for that");
        unsupported("pre_tokenizer", got)
    })?;
    let mut tokens: Vec<String> = (0..parts.size).map(|id| format!("[PAD{id}]")).collect();
    let mut types = vec![5; tokens.len()];
    let mut set = |token: &str, id: u32, kind| {
        tokens[id as usize] = token.to_owned();
        types[id as usize] = kind;
    };
    parts.vocab.iter().for_each(|(token, id)| set(token, *id, 1));
    for (token, id, kind) in &parts.added {
        set(token, *id, if *kind == TokenKind::Special { 3 } else { 4 });
    }
    let merges = parts.merges.iter().map(|(a, b)| format!("{a} {b}")).collect();
    Ok(TokenizerSource::Gguf { pre: named.name.to_owned(), tokens, types, merges })
}

fn from_gguf(pre: &str, tokens: &[String], types: &[i32], merges: &[String]) -> Result<TokenizerParts, TokenizerError> {
    let named = NAMED.iter().find(|named| named.name == pre).ok_or_else(|| unsupported("tokenizer.ggml.pre", pre))?;
    if tokens.len() != types.len() {
        let got = format!("{} types for {} tokens", types.len(), tokens.len());
        return Err(TokenizerError::Malformed { what: "tokenizer.ggml.token_type".into(), got });
    }
    let size = u32::try_from(tokens.len()).ok().filter(|&n| n <= TOKENS_MAX);
    let size = size.ok_or_else(|| too_many("tokenizer.ggml.tokens", tokens.len() as u64))?;
    let (mut vocab, mut added) = (HashMap::with_capacity(tokens.len()), Vec::new());
    for (id, (token, &kind)) in (0u32..).zip(tokens.iter().zip(types)) {
        match kind {
            1 => drop(vocab.insert(token.clone(), id)),
            3 => added.push((token.clone(), id, TokenKind::Special)),
            4 => added.push((token.clone(), id, TokenKind::Added)),
            5 => {}
            other => return Err(unsupported(&format!("tokenizer.ggml.token_type[{id}]"), other)),
        }
    }
    let merges = merges.iter().enumerate().map(|(i, m)| merge(m, || format!("tokenizer.ggml.merges[{i}]")));
    Ok(TokenizerParts {
        rule: named.rule,
        nfc: named.nfc,
        ignore_merges: named.ignore_merges,
        vocab,
        merges: merges.collect::<Result<_, _>>()?,
        added,
        size,
        normalized: Normalized::default(),
    })
}

fn from_json(bytes: &[u8]) -> Result<TokenizerParts, TokenizerError> {
    let file: TokenizerJson = serde_json::from_slice(bytes).map_err(|e| TokenizerError::Json(e.to_string()))?;
    let normalizers = flat(file.normalizer.as_ref());
    if let Some(other) = normalizers.iter().find(|step| step.kind != "NFC") {
        return Err(unsupported("normalizer", &other.kind));
    }
    let nfc = !normalizers.is_empty();
    let rule = rule_of(file.pre_tokenizer.as_ref())?;
    check_ends(&file)?;
    let model = checked_model(file.model)?;
    let normalized = normalized_of(&file.added_tokens, nfc)?;
    let added = file.added_tokens.into_iter().map(AddedEntry::checked).collect::<Result<Vec<_>, _>>()?;
    let top = model.vocab.values().copied().chain(added.iter().map(|a| a.1)).max();
    let size = top.map_or(0, |id| u64::from(id) + 1);
    let size = u32::try_from(size).ok().filter(|&n| n <= TOKENS_MAX).ok_or_else(|| too_many("model.vocab", size))?;
    let merges = model.merges.into_iter().enumerate().map(|(i, m)| match m {
        MergeEntry::Pair(a, b) => Ok((a, b)),
        MergeEntry::Line(line) => merge(&line, || format!("model.merges[{i}]")),
    });
    let merges = merges.collect::<Result<_, _>>()?;
    Ok(TokenizerParts {
        rule,
        nfc,
        ignore_merges: model.ignore_merges,
        vocab: model.vocab,
        merges,
        added,
        size,
        normalized,
    })
}

fn normalized_of(added: &[AddedEntry], nfc: bool) -> Result<Normalized, TokenizerError> {
    let of = |wanted: bool| -> Vec<(&str, u32)> {
        added.iter().filter(|token| token.normalized == wanted).map(|token| (&*token.content, token.id)).collect()
    };
    let refused = |content: &str| unsupported(&format!("added_tokens[{content:?}].normalized"), "true");
    normalized::checked(&of(true), &of(false), nfc).map_err(refused)
}

/// A step, or those that a sequence of steps consists of.
fn flat(step: Option<&Step>) -> Vec<&Step> {
    match step {
        Some(step) if step.kind == "Sequence" => step.steps.iter().flat_map(|step| flat(Some(step))).collect(),
        step => step.into_iter().collect(),
    }
}

/// The rule whose pattern the file has, followed by the plain byte alphabet.
fn rule_of(pre: Option<&Step>) -> Result<SplitRule, TokenizerError> {
    let steps = flat(pre);
    // By itself the byte alphabet cuts by a pattern of its own.
    if matches!(steps[..], [p] if p.kind == "ByteLevel" && p.use_regex && !p.add_prefix_space) {
        return Ok(SplitRule::Gpt2);
    }
    let [split, bytes] = steps[..] else {
        return Err(unsupported("pre_tokenizer", pre.map_or("null", |p| &p.kind)));
    };
    let pattern = split.pattern.as_ref().map_or("", |p| &p.regex);
    // The patterns leave nothing between words, so that removing what they leave says the same.
    let isolated = match (split.kind.as_str(), split.behavior.as_deref()) {
        ("Split", Some("Isolated")) => !split.invert,
        ("Split", Some("Removed")) => split.invert,
        _ => false,
    };
    let plain = bytes.kind == "ByteLevel" && !bytes.add_prefix_space && !bytes.use_regex;
    if !plain {
        return Err(unsupported("pre_tokenizer.pretokenizers[1]", format!("{bytes:?}")));
    }
    let rule = SplitRule::ALL.into_iter().find(|r| isolated && r.pattern() == pattern);
    rule.ok_or_else(|| unsupported("pre_tokenizer.pretokenizers[0]", format!("{split:?}")))
}

/// Nothing may be put before or after the ids, and decoding is the inverse alphabet.
fn check_ends(file: &TokenizerJson) -> Result<(), TokenizerError> {
    for post in flat(file.post_processor.as_ref()) {
        let adds = match post.kind.as_str() {
            "ByteLevel" => false,
            "TemplateProcessing" => !post.single.iter().all(|piece| piece.contains_key("Sequence")),
            _ => true,
        };
        if adds {
            return Err(unsupported("post_processor", &post.kind));
        }
    }
    match flat(file.decoder.as_ref())[..] {
        [step] if step.kind == "ByteLevel" => Ok(()),
        [step] => Err(unsupported("decoder", &step.kind)),
        _ => Err(unsupported("decoder", file.decoder.as_ref().map_or("null", |d| &d.kind))),
    }
}

fn checked_model(model: ModelEntry) -> Result<ModelEntry, TokenizerError> {
    let affix = |s: &Option<String>| s.as_ref().is_some_and(|s| !s.is_empty());
    let refused = [
        ("model.dropout", model.dropout.is_some_and(|d| d != 0.0)),
        ("model.unk_token", model.unk_token.is_some()),
        ("model.continuing_subword_prefix", affix(&model.continuing_subword_prefix)),
        ("model.end_of_word_suffix", affix(&model.end_of_word_suffix)),
        ("model.byte_fallback", model.byte_fallback),
    ];
    if model.kind != "BPE" {
        return Err(unsupported("model", &model.kind));
    }
    match refused.into_iter().find(|(_, set)| *set) {
        Some((name, _)) => Err(unsupported(name, "set")),
        None => Ok(model),
    }
}

fn merge(line: &str, name: impl Fn() -> String) -> Result<(String, String), TokenizerError> {
    let pair = line.split_once(' ').filter(|(a, b)| !a.is_empty() && !b.is_empty() && !b.contains(' '));
    let (a, b) = pair
        .ok_or_else(|| TokenizerError::Malformed { what: name(), got: format!("{line:?} instead of two strings") })?;
    Ok((a.to_owned(), b.to_owned()))
}

fn unsupported(what: &str, got: impl ToString) -> TokenizerError {
    TokenizerError::Unsupported { what: what.to_owned(), got: got.to_string() }
}

fn too_many(what: &str, got: u64) -> TokenizerError {
    TokenizerError::Malformed { what: what.to_owned(), got: format!("{got} tokens, at most {TOKENS_MAX} are taken") }
}

/// `tokenizer.json`. Padding and truncation are the caller's business there and are not read.
#[derive(Deserialize)]
struct TokenizerJson {
    #[serde(default)]
    added_tokens: Vec<AddedEntry>,
    normalizer: Option<Step>,
    pre_tokenizer: Option<Step>,
    post_processor: Option<Step>,
    decoder: Option<Step>,
    model: ModelEntry,
}

/// Any of the pipeline's steps, with the fields that the checks read.
#[derive(Deserialize, Debug)]
struct Step {
    #[serde(rename = "type")]
    kind: String,
    /// Those of a sequence.
    #[serde(default, rename = "pretokenizers", alias = "normalizers", alias = "processors", alias = "decoders")]
    steps: Vec<Step>,
    #[serde(default)]
    single: Vec<HashMap<String, serde_json::Value>>,
    pattern: Option<Pattern>,
    behavior: Option<String>,
    #[serde(default)]
    invert: bool,
    #[serde(default = "yes")]
    add_prefix_space: bool,
    #[serde(default = "yes")]
    use_regex: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize, Debug)]
struct Pattern {
    #[serde(rename = "Regex", default)]
    regex: String,
}

#[derive(Deserialize)]
struct ModelEntry {
    #[serde(rename = "type", default)]
    kind: String,
    dropout: Option<f32>,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
    vocab: HashMap<String, u32>,
    merges: Vec<MergeEntry>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum MergeEntry {
    Pair(String, String),
    Line(String),
}

#[derive(Deserialize)]
struct AddedEntry {
    id: u32,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    /// Looked for in the normalised text instead of in the text as it came.
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    special: bool,
}

impl AddedEntry {
    fn checked(self) -> Result<(String, u32, TokenKind), TokenizerError> {
        let options = [("single_word", self.single_word), ("lstrip", self.lstrip), ("rstrip", self.rstrip)];
        match options.into_iter().find(|(_, set)| *set) {
            Some((name, _)) => Err(unsupported(&format!("added_tokens[{:?}].{name}", self.content), "true")),
            None => Ok((self.content, self.id, if self.special { TokenKind::Special } else { TokenKind::Added })),
        }
    }
}
