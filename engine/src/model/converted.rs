//! A Hugging Face directory as the GGUF file that a converter would write of it: keys, names, order and types of
//! tensors, value heads in the order of the family's files, norms as factors, experts in stacks.
//!
//! Tensors are made from the mapped files when their bytes are asked for, so whoever goes through them one by one
//! needs memory for one. Which names an operator has in both formats stands beside its two readers.

use super::blocks::{Converted, LayerPlan};
use super::families::{FAMILIES, Family, Layers};
use super::from_hf::{PREFIXES, check_keys_read, draft_prefix, head_name, main_prefix, shape, unties};
use super::load::hugging_face_family;
use super::unread::check_tensors;
use super::{BlockConfig, Model, ModelConfig, load_gguf};
use crate::format::gguf::{GgufHeader, MetaValue};
use crate::format::hf::is_vision;
use crate::format::{Gguf, HfDir, LoadError, ReadNames, TextAssets};
use std::sync::Arc;

/// The file of a directory, and the model in it. `text` has the directory's tokenizer in the form of GGUF files.
///
/// Families whose files are not written are refused, and so are tensors that nobody knows: they would be left out
/// without a word. Those of a vision tower are left out with a line in the log.
pub fn as_gguf(dir: HfDir, text: &TextAssets) -> Result<(Gguf, Model), LoadError> {
    let family = hugging_face_family(&dir)?;
    let conversion = family.conversion.ok_or_else(|| not_written(&dir, family))?;
    let Layers { main, draft } = (family.hugging_face_layers)(&dir)?;
    let draft = draft_prefix(&dir).map(|prefix| (prefix, &draft));
    let config = shape(&dir, family)?.with_layers(&main, draft.map(|(_, plan)| plan));
    let mut all = Converted { dir: Arc::new(dir), conversion, tensors: Vec::new(), read: ReadNames::default() };
    all.add_model(&config, &main, draft)?;
    all.only_known()?;
    check_keys_read(all.dir.config())?;
    let header = header(&all.dir, &config, text)?;
    let file = Gguf::of_parts(&header, all.tensors, all.dir.path(), all.dir.files().clone())?;
    let model = load_gguf(&file)?;
    Ok((file, model))
}

fn not_written(dir: &HfDir, family: &Family) -> LoadError {
    let known: Vec<_> =
        FAMILIES.iter().filter(|f| f.conversion.is_some()).flat_map(|f| f.hugging_face).copied().collect();
    let want = format!("one of {}, which can be written as GGUF", known.join(", "));
    let got = family.hugging_face.iter().find(|name| **name == dir.config().model_type).copied().unwrap_or(family.gguf);
    dir.config().error("model_type", want, format_args!("`{got}`"))
}

impl Converted {
    fn add_model(
        &mut self,
        config: &ModelConfig,
        main: &[LayerPlan],
        draft: Option<(&str, &LayerPlan)>,
    ) -> Result<(), LoadError> {
        let (hidden, prefix) = (config.hidden, main_prefix(&self.dir).unwrap_or(PREFIXES[0]));
        let mut top = self.part(prefix.to_owned(), String::new(), hidden);
        top.put_from("token_embd.weight", "embed_tokens.weight", &[config.vocab, hidden])?;
        top.put_norm("output_norm.weight", "norm.weight", &[hidden])?;
        self.add_head(config)?;
        draft.map_or(Ok(()), |(prefix, _)| self.add_draft(prefix, (main.len(), hidden)))?;
        self.add_layers(prefix, hidden, main)?;
        let layer = |(prefix, plan)| self.add_layer(format!("{prefix}layers.0."), (main.len(), hidden), plan);
        draft.map_or(Ok(()), layer)
    }

    fn add_head(&mut self, config: &ModelConfig) -> Result<(), LoadError> {
        let name = head_name(&self.dir);
        if self.dir.config().is_tied() && !self.has_own_head(name)? {
            self.read.note(name);
            return Ok(());
        }
        let mut top = self.part(String::new(), String::new(), config.hidden);
        top.put_from("output.weight", name, &[config.vocab, config.hidden])
    }

    /// Whether a directory whose configuration ties the head has one of its own that differs from the embedding.
    fn has_own_head(&self, name: &str) -> Result<bool, LoadError> {
        let prefix = main_prefix(&self.dir).unwrap_or(PREFIXES[0]);
        let embed = self.dir.tensor(&format!("{prefix}embed_tokens.weight"))?;
        let head = self.dir.tensor(name)?;
        Ok(head.zip(embed).is_some_and(|(head, embed)| unties(&head, &embed)))
    }

    /// What stands around the draft head's layer, which is number `layer`.
    fn add_draft(&mut self, prefix: &str, (layer, hidden): (usize, usize)) -> Result<(), LoadError> {
        let mut part = self.part(prefix.to_owned(), format!("blk.{layer}.nextn."), hidden);
        part.put_from("eh_proj.weight", "fc.weight", &[hidden, 2 * hidden])?;
        part.put_norm("enorm.weight", "pre_fc_norm_embedding.weight", &[hidden])?;
        part.put_norm("hnorm.weight", "pre_fc_norm_hidden.weight", &[hidden])?;
        part.put_norm("shared_head_norm.weight", "norm.weight", &[hidden])
    }

    fn add_layers(&mut self, prefix: &str, hidden: usize, layers: &[LayerPlan]) -> Result<(), LoadError> {
        let mut each = layers.iter().enumerate();
        each.try_for_each(|(i, plan)| self.add_layer(format!("{prefix}layers.{i}."), (i, hidden), plan))
    }

    fn add_layer(
        &mut self,
        theirs: String,
        (number, hidden): (usize, usize),
        plan: &LayerPlan,
    ) -> Result<(), LoadError> {
        let norms = self.conversion.norms;
        let mut layer = self.part(theirs, format!("blk.{number}."), hidden);
        for block in plan {
            let ours = norms.iter().find(|n| n.0 == block.norm).expect("a family's norms are in its conversion").1;
            layer.put_norm(ours, block.norm, &[hidden])?;
        }
        plan.iter().try_for_each(|block| block.op.convert(&mut layer))
    }

    /// That every tensor of the directory has found its place.
    fn only_known(&self) -> Result<(), LoadError> {
        let checked = check_tensors(self.dir.tensor_names(), &self.read, is_vision);
        checked.map_err(|problem| problem.in_file(self.dir.path()))
    }
}

fn header(dir: &HfDir, config: &ModelConfig, text: &TextAssets) -> Result<GgufHeader, LoadError> {
    let mut header = GgufHeader::default();
    let family = config.architecture;
    header.set("general.architecture", MetaValue::Str(family.into()));
    header.set("general.name", MetaValue::Str(config.name.clone()));
    header.set("general.alignment", MetaValue::U32(32));
    header.set("general.quantization_version", MetaValue::U32(2));
    let mut set = |key: &str, value| {
        header.set(format!("{family}.{key}"), value);
    };
    let count = |n: usize| MetaValue::U32(n as u32);
    let drafts = usize::from(!config.draft.is_empty());
    set("block_count", count(config.layers.len() + drafts));
    set("context_length", MetaValue::U32(config.context));
    set("embedding_length", count(config.hidden));
    set("attention.layer_norm_rms_epsilon", MetaValue::F32(config.rms_eps));
    for op in config.shapes() {
        op.gguf_keys().into_iter().for_each(|(key, value)| set(key, value));
    }
    let (key, value) = pattern(&config.layers);
    set(key, value);
    if let Some(sections) = sections(dir)? {
        set("rope.dimension_sections", MetaValue::I32s(sections));
    }
    if drafts > 0 {
        set("nextn_predict_layers", count(drafts));
    }
    text.set_keys(&mut header, config.vocab).map_err(|p| p.in_file(dir.path()))?;
    Ok(header)
}

/// Which layers attend: every n-th, or a flag a layer.
fn pattern(layers: &[Vec<BlockConfig>]) -> (&'static str, MetaValue) {
    let recurrent: Vec<bool> = layers.iter().map(|l| l.iter().any(|b| b.op.state().is_recurrent())).collect();
    let first = recurrent.iter().position(|r| !r).unwrap_or(layers.len());
    let regular = |(i, r): (usize, &bool)| *r != (i + 1).is_multiple_of(first + 1);
    if recurrent.iter().enumerate().all(regular) {
        return ("full_attention_interval", MetaValue::U32(first as u32 + 1));
    }
    ("attention.recurrent_layers", MetaValue::Bools(recurrent))
}

/// How a rotated head is shared out among the dimensions of a picture, which other programs ask for. Four numbers.
fn sections(dir: &HfDir) -> Result<Option<Vec<i32>>, LoadError> {
    let c = dir.config();
    for key in ["rope_parameters.mrope_section", "rope_scaling.mrope_section"] {
        if let Some(all) = c.numbers(key)? {
            if all.len() > 4 || all.iter().any(|n| n.fract() != 0.0 || !(0.0..=4096.0).contains(n)) {
                return Err(c.error(key, "at most 4 whole numbers up to 4096", format_args!("{all:?}")));
            }
            return Ok(Some((0..4).map(|i| all.get(i).map_or(0, |n| *n as i32)).collect()));
        }
    }
    Ok(None)
}
