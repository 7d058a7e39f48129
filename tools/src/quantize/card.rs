//! What a card leaves for weights, and what they take there: not what they take in a file.

use super::failed;
use crate::CliError;
use crate::figures::bytes_text;
use chimere::config::{Device, Embedding, Engine, KvType};
use chimere::device::DeviceRequest;
use chimere_engine::PAGE_TOKENS;
use chimere_engine::backend::cuda::{self, CudaConfig, CudaMemory};
use chimere_engine::format::{BlockType, Gguf, Tensor};
use chimere_engine::model::{self, Model};
use chimere_engine::quantize::{self, Group, MatrixRole, Output, fitting};
use std::path::Path;

/// Of a card's memory, what the driver, a desktop and other programs have: a card of 16 GiB is planned as
/// `--vram-budget 15.5GiB`.
const MARGIN_BYTES: u64 = 512 << 20;
/// Positions of a step, as docs/operating/sixteen_gigabytes.md starts the service on such a card.
const STEP_TOKENS: u32 = 128;

/// A card, and what is to run on it: with keys of 8.5 and values of 4.5 bits, and the embedding's rows in the host's
/// memory.
pub(super) struct CardTarget {
    config: CudaConfig,
    /// Bytes of the card's memory for all that runs on it.
    budget: u64,
    /// Whether the head is the embedding again.
    tied: bool,
}

impl CardTarget {
    /// `bytes`: of the card.
    pub(super) fn new(bytes: u64, (context, seqs): (u32, u32), model: &Model) -> Self {
        let wanted = DeviceRequest {
            device: Device::Cuda,
            seqs,
            step_tokens: STEP_TOKENS,
            kv_type: KvType::Q8_0Q4_0,
            embedding: Embedding::Host,
            drafts: 0,
            draft_head: false,
            ..DeviceRequest::of(&Engine::default(), context)
        };
        let config = wanted.cuda().of(&model.config);
        let tied = model.weights.head.is_none();
        Self { config, budget: bytes.saturating_sub(MARGIN_BYTES), tied }
    }

    /// Bytes for all weights, or what everything else takes.
    pub(super) fn room(&self, model: &Model) -> Result<u64, CliError> {
        let m = CudaMemory::of(model, &self.config);
        let pages = u64::from(self.config.context.div_ceil(PAGE_TOKENS)) * u64::from(self.config.slots);
        let beside = m.workspace + m.reserve + m.slot * u64::from(self.config.slots) + m.page * pages;
        self.budget.checked_sub(beside).ok_or_else(|| {
            let (beside, budget) = (bytes_text(beside), bytes_text(self.budget));
            let (seqs, context) = (self.config.slots, self.config.context);
            CliError::Usage(format!(
                "--target card: {seqs} sequences of {context} tokens take {beside} beside weights, of {budget} that a \
                 card of this size is planned with; lower --seqs or --context"
            ))
        })
    }

    /// Bytes that all weights of a model take on the card.
    pub(super) fn weights(&self, model: &Model) -> u64 {
        CudaMemory::of(model, &self.config).weights
    }

    /// Bytes that a group's tensors take on the card, each in the encoding that fits it in the place of `ty`.
    pub(super) fn bytes(&self, source: &Gguf, group: &Group, ty: BlockType) -> u64 {
        let fits = |t: &Tensor| fitting(ty, t.cols()).expect("a group has only tensors that fit");
        // The embedding's rows lie in the host's memory; where they are the head too, that lies on the card.
        if group.role == MatrixRole::Embedding && !self.tied {
            return 0;
        }
        let bytes = |t: &Tensor| cuda::matrix_bytes(fits(t), t.rows(), t.cols()) * t.matrices() as u64;
        group.tensors.iter().filter_map(|name| source.tensor(name)).map(bytes).sum()
    }

    /// Bytes that all weights of a file take on the card before the file is written.
    ///
    /// `beside`: the file that will be written; an outline of it, without values, stands there for a moment.
    pub(super) fn weights_of(&self, output: &Output<'_>, beside: &Path) -> Result<u64, CliError> {
        let outline = beside.with_added_extension("outline");
        let written = quantize::write_outline(&outline, output).map_err(failed);
        let weights = written.and_then(|()| Ok(self.weights(&model::load(&outline).map_err(failed)?)));
        // The first error is the one to tell.
        let _ = std::fs::remove_file(&outline);
        weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_engine::quantize::{Importance, Threads, groups};
    use std::collections::HashMap;

    fn nano() -> (Gguf, Model) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/nano/nano-q8_0.gguf");
        let source = Gguf::open(&path).unwrap();
        let model = model::load_gguf(&source).unwrap();
        (source, model)
    }

    #[test]
    fn groups_take_on_a_card_what_the_planner_says_that_files_of_other_types_take_more_or_less() {
        let (source, model) = nano();
        let card = CardTarget::new(2 << 30, (2048, 4), &model);
        let groups = groups(&source, model.config.layers.len());
        let groups: Vec<_> = groups.into_iter().filter(|g| g.role != MatrixRole::Draft).collect();
        let (none, dir) = (Importance::default(), tempfile::tempdir().unwrap());
        let with = |ty: BlockType| {
            let fits = |name: &String| fitting(ty, source.tensor(name).unwrap().cols()).unwrap();
            let types: HashMap<_, _> =
                groups.iter().flat_map(|g| &g.tensors).map(|name| (name.clone(), fits(name))).collect();
            let output = Output {
                source: &source,
                types,
                dropped: Vec::new(),
                keys: Vec::new(),
                dropped_keys: Vec::new(),
                importance: &none,
                encoder: &Threads,
            };
            let sum: u64 = groups.iter().map(|g| card.bytes(&source, g, ty)).sum();
            (card.weights_of(&output, &dir.path().join("out.gguf")).unwrap(), sum)
        };
        let (eight, four) = (with(BlockType::Q8_0), with(BlockType::Q4K));
        assert!(eight.0 > four.0 && eight.0 - four.0 == eight.1 - four.1, "{eight:?} {four:?}");
        let query = groups.iter().find(|g| g.role == MatrixRole::AttentionQuery).unwrap();
        let of = |ty| card.bytes(&source, query, ty);
        assert_eq!(of(BlockType::Q3K), of(BlockType::Q6K), "Q3_K has no layout of its own");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "outlines are gone");
    }

    #[test]
    fn a_card_that_is_full_without_weights_is_refused_with_the_numbers() {
        let (_, model) = nano();
        let room = |bytes| CardTarget::new(bytes, (4096, 4), &model).room(&model);
        assert!(room(2 << 30).unwrap() > 0);
        let error = room(600 << 20).unwrap_err().to_string();
        assert!(error.contains("4 sequences of 4096 tokens take") && error.contains("88.0 MiB"), "{error}");
    }
}
