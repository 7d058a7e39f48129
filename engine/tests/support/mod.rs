//! What the tests of exactness share: golden data, and a backend driven by hand.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test file uses its part")]

pub mod conversations;
pub mod directory;
pub mod drafts;

use chimere_engine::PAGE_TOKENS;
use chimere_engine::backend::Backend;
use chimere_engine::backend::cpu::{CpuBackend, CpuConfig, KvType, Probe, Recording};
use chimere_engine::format::gguf::{GgufHeader, MetaValue};
use chimere_engine::format::{Gguf, Tensor};
use chimere_engine::ids::{PageId, SeqId, SlotId, StepId, TokenId};
use chimere_engine::model::{self, DraftIds, Model};
use chimere_engine::step::{Form, Piece, PieceTokens, StateStart, StepOutcome, StepPlan};
use safetensors::{Dtype, SafeTensors};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The repository, or where `CHIMERE_TEST_DATA` says its data was copied to: a test binary also runs on machines
/// without a checkout.
pub fn data_dir() -> PathBuf {
    std::env::var_os("CHIMERE_TEST_DATA")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".."), PathBuf::from)
}

/// Numbers that are the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// The standard deviation of values.
pub fn deviation(x: &[f32]) -> f32 {
    let mean = x.iter().sum::<f32>() / x.len() as f32;
    (x.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / x.len() as f32).sqrt()
}

/// The folder of a golden preset.
pub fn golden_dir(preset: &str) -> PathBuf {
    data_dir().join("engine/tests/golden").join(preset)
}

/// The model that is shipped with the repository, with Q8_0 weights.
pub fn nano() -> Model {
    model::load(&data_dir().join("models/nano/nano-q8_0.gguf")).unwrap()
}

/// A model whose draft head guesses among these ids.
pub fn guessing_among(mut model: Model, ids: &DraftIds) -> Model {
    model.limit_draft_ids(ids).unwrap();
    assert!(model.weights.draft_head.as_ref().unwrap().shortlist.is_some(), "fewer than all");
    model
}

/// A preset's model from its GGUF file.
pub fn gguf(preset: &str) -> Model {
    model::load(&golden_dir(preset).join("model.gguf")).unwrap()
}

/// A preset's model from a Hugging Face directory; the tokenizer is that of `moe`, which alone has one.
pub fn hugging_face(preset: &str) -> Model {
    let dir = tempfile::tempdir().unwrap();
    for (from, file) in [(preset, "config.json"), (preset, "model.safetensors"), ("moe", "tokenizer.json")] {
        std::fs::copy(golden_dir(from).join(file), dir.path().join(file)).unwrap();
    }
    model::load(dir.path()).unwrap()
}

/// Arrays that the reference implementation wrote.
pub struct Golden(Vec<u8>);

impl Golden {
    /// Those of a preset.
    pub fn of(preset: &str) -> Self {
        Self::read(&golden_dir(preset).join("golden.safetensors"))
    }

    /// Those of a file.
    pub fn read(path: &Path) -> Self {
        Self(std::fs::read(path).unwrap())
    }

    /// Shape and values, integers too.
    pub fn array(&self, name: &str) -> (Vec<usize>, Vec<f32>) {
        self.find(name).unwrap_or_else(|| panic!("the golden file has no {name}"))
    }

    /// [`Golden::array`], if the file has it.
    pub fn find(&self, name: &str) -> Option<(Vec<usize>, Vec<f32>)> {
        let all = SafeTensors::deserialize(&self.0).unwrap();
        let t = all.tensor(name).ok()?;
        let words = t.data();
        let values = match t.dtype() {
            Dtype::F32 => words.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect(),
            Dtype::I64 => words.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as f32).collect(),
            Dtype::I32 => words.chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap()) as f32).collect(),
            other => panic!("{name} is {other:?}"),
        };
        Some((t.shape().to_vec(), values))
    }

    /// An array of token ids by its name.
    pub fn ids(&self, name: &str) -> Vec<TokenId> {
        self.array(name).1.iter().map(|id| *id as TokenId).collect()
    }
}

/// The keys and tensors of a GGUF file, to be changed.
pub struct GgufParts {
    pub keys: Vec<(String, MetaValue)>,
    pub tensors: Vec<(String, Tensor)>,
}

impl GgufParts {
    /// Those of a preset's file.
    pub fn of(preset: &str) -> Self {
        let file = Gguf::open(&golden_dir(preset).join("model.gguf")).unwrap();
        let keys = file.meta().encoded().map(|(name, bytes)| (name.to_owned(), MetaValue::Encoded(bytes.to_vec())));
        let tensors = file.tensors_in_order().map(|t| (t.name.clone(), t.clone()));
        Self { keys: keys.collect(), tensors: tensors.collect() }
    }

    /// Sets a key, in the place of one of this name.
    pub fn set(&mut self, key: &str, value: MetaValue) {
        self.keys.retain(|(name, _)| name != key);
        self.keys.push((key.to_owned(), value));
    }

    /// Adds a copy of the tensor `like` under another name.
    pub fn add_like(&mut self, like: &str, name: &str) {
        let tensor = self.tensors.iter().find(|t| t.0 == like).unwrap().1.clone();
        self.tensors.push((name.to_owned(), tensor));
    }

    /// The model in a file of these parts, or why there is none.
    pub fn load(self) -> Result<Model, String> {
        let file = Gguf::from_bytes(&self.bytes(), Path::new("m.gguf")).map_err(|e| e.to_string())?;
        model::load_gguf(&file).map_err(|e| e.to_string())
    }

    /// A file of these parts.
    pub fn bytes(self) -> Vec<u8> {
        let mut header = GgufHeader::default();
        self.keys.into_iter().for_each(|(name, value)| _ = header.set(name, value));
        self.tensors.iter().for_each(|(name, t)| _ = header.tensor(name, t.ty, &t.shape));
        let mut bytes = header.to_bytes();
        for (_, t) in &self.tensors {
            bytes.extend_from_slice(t.bytes());
            bytes.resize(header.padded(bytes.len() as u64) as usize, 0);
        }
        bytes
    }
}

/// Small and exact, for the presets.
pub fn config(exact: bool, threads: usize) -> CpuConfig {
    CpuConfig {
        threads,
        slots: 2,
        pages: 16,
        checkpoints: 0,
        kv_type: KvType::F16,
        exact,
        step_rows_max: 128,
        context: 512,
        drafts: 0,
        draft_head: false,
    }
}

/// One sequence of the shipped model.
pub fn shipped_config(exact: bool, threads: usize) -> CpuConfig {
    CpuConfig { slots: 1, pages: 128, step_rows_max: 512, context: 4096, ..config(exact, threads) }
}

/// A backend and the next step's id.
pub struct Driver {
    pub backend: CpuBackend,
    next: u64,
}

impl Driver {
    /// A driver that records every step of the CPU backend.
    pub fn recording(model: &Model, config: &CpuConfig) -> Self {
        let mut backend = CpuBackend::new(model, config, &mut |_| {}).unwrap();
        backend.set_probe(Probe { record: true, perturbation: None });
        Self { backend, next: 0 }
    }

    /// One step of these pieces.
    pub fn step(&mut self, pieces: Vec<Piece>) -> StepOutcome {
        let id = StepId(self.next);
        self.next += 1;
        self.backend.launch(StepPlan::new(id, pieces)).unwrap().wait().unwrap()
    }

    /// One step of one piece without samples, in slot 0 and pages from 0; what it recorded.
    pub fn run(&mut self, form: Form, start: usize, ids: &[TokenId]) -> Recording {
        self.step(vec![piece(form, start, ids)]);
        self.backend.recording().clone()
    }

    /// Logits of a prompt computed in pieces of `size`.
    pub fn prompt(&mut self, ids: &[TokenId], size: usize) -> Vec<f32> {
        ids.chunks(size).enumerate().flat_map(|(i, part)| self.run(Form::Chunked, i * size, part).logits).collect()
    }
}

/// A piece of sequence 1 in slot 0 and pages from 0.
pub fn piece(form: Form, start: usize, ids: &[TokenId]) -> Piece {
    let end = (start + ids.len()) as u32;
    Piece {
        seq: SeqId(1),
        slot: SlotId(0),
        state: StateStart::at(start as u32),
        form,
        start: start as u32,
        tokens: PieceTokens::Known(ids.to_vec()),
        drafts: Vec::new(),
        guesses: 0,
        pages: (0..end.div_ceil(PAGE_TOKENS)).map(PageId).collect(),
        prompt_len: end,
        samples: Vec::new(),
        score: None,
        experts: None,
        adapter: None,
        follows: None,
        ends: Arc::default(),
        pool_from: None,
        exports: Vec::new(),
    }
}

/// The largest absolute difference of two arrays.
pub fn max_abs(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, |m, d| if d.is_nan() { f32::INFINITY } else { m.max(d) })
}

/// The largest difference over the largest value.
pub fn relative(got: &[f32], want: &[f32]) -> f32 {
    max_abs(got, want) / want.iter().fold(0.0f32, |m, x| m.max(x.abs()))
}

/// Root mean square of the difference over that of `want`.
pub fn relative_rms(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let square = |x: f32| f64::from(x) * f64::from(x);
    let error: f64 = got.iter().zip(want).map(|(a, b)| square(a - b)).sum();
    (error / want.iter().map(|b| square(*b)).sum::<f64>()).sqrt()
}

/// The share of rows with the same largest value.
pub fn argmax_agreement(got: &[f32], want: &[f32], width: usize) -> f64 {
    let best = |row: &[f32]| (0..width).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
    let rows = got.len() / width;
    let same = got.chunks(width).zip(want.chunks(width)).filter(|(a, b)| best(a) == best(b)).count();
    same as f64 / rows as f64
}
