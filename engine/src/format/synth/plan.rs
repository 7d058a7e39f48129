//! Which tensors and keys a synthetic model has: a shape, a mix of encodings, and what the options override.

use super::text;
use crate::format::gguf::{GgufHeader, MetaValue};
use crate::format::{BlockType, Problem};

const ARCHITECTURE: &str = "qwen35moe";
/// Standard deviation of the embedding's values.
const EMBEDDING_RMS: f32 = 4.0;
/// Every fourth layer attends.
const ATTENTION_INTERVAL: usize = 4;

/// Options of a synthetic model: which shape is written, and in which encodings.
#[derive(Clone, Debug)]
pub struct SynthOptions {
    /// Name of a released shape, one of [`SynthOptions::shapes`].
    pub shape: String,
    /// The encodings of its tensors.
    pub mix: Mix,
    /// Layers, if not the shape's own.
    pub layers: Option<usize>,
    /// Routed experts, if not the shape's own.
    pub experts: Option<usize>,
    /// Rows of embedding and head, if not the shape's own.
    pub vocab: Option<usize>,
    /// A draft head behind the layers.
    pub draft_head: bool,
    /// Of the random numbers.
    pub seed: u64,
}

/// Names of the shapes that this file has.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SHAPES.iter().map(|s| s.name)
}

/// Encodings of the matrices; routers, norms and gates are F32 in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// All matrices in F32: nothing is rounded, neither here nor by other programs, so that what two compute can be
    /// held side by side.
    F32,
    /// All matrices in Q8_0.
    Q8,
    /// Embedding and experts Q4_K, head Q6_K, the rest Q8_0.
    Q4,
    /// Embedding Q4_K, experts IQ3_S, shared experts Q5_K, the rest Q6_K.
    Iq3,
}

impl Mix {
    /// Every mix with its name.
    pub const ALL: [(Mix, &'static str); 4] = [(Mix::F32, "f32"), (Mix::Q8, "q8"), (Mix::Q4, "q4"), (Mix::Iq3, "iq3")];

    /// The mix of this name.
    pub fn named(name: &str) -> Option<Mix> {
        Self::ALL.iter().find(|m| m.1 == name).map(|m| m.0)
    }

    /// The name that `--mix` has for it.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|m| m.0 == self).expect("all mixes are listed").1
    }

    fn of(self, part: TensorUse) -> BlockType {
        match (self, part) {
            (Mix::F32, _) | (_, TensorUse::Small) => BlockType::F32,
            (Mix::Q8, _) => BlockType::Q8_0,
            (_, TensorUse::Embedding) => BlockType::Q4K,
            (_, TensorUse::Head) => BlockType::Q6K,
            (Mix::Q4, TensorUse::Experts) => BlockType::Q4K,
            (Mix::Q4, TensorUse::Shared | TensorUse::Dense) => BlockType::Q8_0,
            (Mix::Iq3, TensorUse::Experts) => BlockType::Iq3S,
            (Mix::Iq3, TensorUse::Shared) => BlockType::Q5K,
            (Mix::Iq3, TensorUse::Dense) => BlockType::Q6K,
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum TensorUse {
    Embedding,
    Head,
    Experts,
    Shared,
    Dense,
    Small,
}

/// A tensor to write.
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) ty: BlockType,
    pub(super) shape: Vec<usize>,
    pub(super) fill: Fill,
}

/// How a tensor is filled.
#[derive(Clone, Copy)]
pub(super) enum Fill {
    /// Of mean 0 and about this standard deviation.
    Rms(f32),
    /// Evenly between two numbers.
    Uniform(f32, f32),
}

impl Planned {
    /// Bytes that it takes as encoded.
    pub(super) fn bytes(&self) -> usize {
        let (cols, rest) = self.shape.split_last().expect("every tensor has a dimension");
        self.ty.row_bytes(*cols).expect("the shapes are made of whole blocks") * rest.iter().product::<usize>()
    }
}

/// The sizes of a model that was released.
#[derive(Clone, Copy)]
struct ReleasedShape {
    name: &'static str,
    layers: usize,
    hidden: usize,
    vocab: usize,
    context: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    rotary: usize,
    key_heads: usize,
    value_heads: usize,
    gdn_dim: usize,
    taps: usize,
    experts: usize,
    used: usize,
    width: usize,
}

const SHAPES: &[ReleasedShape] = &[ReleasedShape {
    name: "qwen3.5-35b-a3b",
    layers: 40,
    hidden: 2048,
    vocab: 248_320,
    context: 262_144,
    heads: 16,
    kv_heads: 2,
    head_dim: 256,
    rotary: 64,
    key_heads: 16,
    value_heads: 32,
    gdn_dim: 128,
    taps: 4,
    experts: 256,
    used: 8,
    width: 512,
}];

/// Header and tensors in file order.
pub(super) fn plan(options: &SynthOptions) -> Result<(GgufHeader, Vec<Planned>), Problem> {
    let shape = shape(options)?;
    let mut plan = SynthPlan::new(options, shape.hidden);
    plan.embedding(shape.vocab, "output_norm.weight");
    plan.head(shape.vocab);
    for i in 0..shape.layers {
        plan.layer(&shape, i, (i + 1).is_multiple_of(ATTENTION_INTERVAL));
    }
    if options.draft_head {
        plan.draft_head(&shape);
    }
    Ok(plan.finish(keys(&shape, options)))
}

fn shape(options: &SynthOptions) -> Result<ReleasedShape, Problem> {
    let known = || SynthOptions::shapes().collect::<Vec<_>>().join(", ");
    let found = SHAPES.iter().find(|s| s.name == options.shape);
    let mut shape =
        *found.ok_or_else(|| Problem::container("shape", format_args!("one of {}", known()), &options.shape))?;
    shape.layers = limited("layers", options.layers.unwrap_or(shape.layers), ATTENTION_INTERVAL, 1024)?;
    shape.experts = limited("experts", options.experts.unwrap_or(shape.experts), shape.used, 4096)?;
    shape.vocab = limited("vocab", options.vocab.unwrap_or(shape.vocab), text::tokens_min(), 1 << 20)?;
    Ok(shape)
}

pub(super) fn limited(option: &str, value: usize, min: usize, max: usize) -> Result<usize, Problem> {
    if (min..=max).contains(&value) {
        Ok(value)
    } else {
        Err(Problem::container(option, format_args!("{min} to {max}"), value))
    }
}

pub(super) struct SynthPlan {
    mix: Mix,
    hidden: usize,
    tensors: Vec<Planned>,
}

impl SynthPlan {
    /// Without any tensor yet.
    pub(super) fn new(options: &SynthOptions, hidden: usize) -> Self {
        Self { mix: options.mix, hidden, tensors: Vec::new() }
    }

    /// Header and tensors in file order.
    pub(super) fn finish(self, mut header: GgufHeader) -> (GgufHeader, Vec<Planned>) {
        for t in &self.tensors {
            header.tensor(&t.name, t.ty, &t.shape);
        }
        (header, self.tensors)
    }

    /// Embedding and last norm, by the name that the family's files have for it. Rows of about the size of what the
    /// layers add to them: with smaller ones all tokens would soon look alike to the routers, and batches would read
    /// few experts.
    pub(super) fn embedding(&mut self, vocab: usize, norm: &str) {
        let ty = self.fitting(TensorUse::Embedding, self.hidden);
        self.add("token_embd.weight", ty, &[vocab, self.hidden], Fill::Rms(EMBEDDING_RMS));
        self.norm(norm, self.hidden);
    }

    pub(super) fn head(&mut self, vocab: usize) {
        self.matrix("output.weight", TensorUse::Head, &[vocab, self.hidden]);
    }

    /// Twice the usual spread, so that routers have preferences as trained ones do.
    pub(super) fn router(&mut self, name: String, experts: usize) {
        let spread = Fill::Rms(2.0 / (self.hidden as f32).sqrt());
        self.add(name, BlockType::F32, &[experts, self.hidden], spread);
    }

    /// The encoding of the mix, or the one that takes its place where rows are no whole blocks of it.
    fn fitting(&self, part: TensorUse, cols: usize) -> BlockType {
        let ty = self.mix.of(part);
        ty.fitting(cols).unwrap_or(ty)
    }

    pub(super) fn add(&mut self, name: impl Into<String>, ty: BlockType, shape: &[usize], fill: Fill) {
        self.tensors.push(Planned { name: name.into(), ty, shape: shape.to_vec(), fill });
    }

    /// Values like those of a fresh initialisation: products of normed inputs stay near 1.
    pub(super) fn matrix(&mut self, name: impl Into<String>, part: TensorUse, shape: &[usize]) {
        let inputs = shape[shape.len() - 1] as f32;
        let ty = self.fitting(part, shape[shape.len() - 1]);
        self.add(name, ty, shape, Fill::Rms(1.0 / inputs.sqrt()));
    }

    pub(super) fn norm(&mut self, name: impl Into<String>, len: usize) {
        self.add(name, BlockType::F32, &[len], Fill::Uniform(0.8, 1.2));
    }

    /// An attention layer behind those of the model, and what makes its input.
    fn draft_head(&mut self, s: &ReleasedShape) {
        self.layer(s, s.layers, true);
        let b = |name: &str| format!("blk.{}.nextn.{name}.weight", s.layers);
        self.matrix(b("eh_proj"), TensorUse::Dense, &[s.hidden, 2 * s.hidden]);
        for name in ["enorm", "hnorm", "shared_head_norm"] {
            self.norm(b(name), s.hidden);
        }
    }

    fn layer(&mut self, s: &ReleasedShape, i: usize, attends: bool) {
        let b = |name: &str| format!("blk.{i}.{name}");
        self.norm(b("attn_norm.weight"), s.hidden);
        if attends {
            self.attention(s, b)
        } else {
            self.gdn(s, b)
        }
        self.norm(b("post_attention_norm.weight"), s.hidden);
        self.router(b("ffn_gate_inp.weight"), s.experts);
        self.matrix(b("ffn_gate_exps.weight"), TensorUse::Experts, &[s.experts, s.width, s.hidden]);
        self.matrix(b("ffn_up_exps.weight"), TensorUse::Experts, &[s.experts, s.width, s.hidden]);
        self.matrix(b("ffn_down_exps.weight"), TensorUse::Experts, &[s.experts, s.hidden, s.width]);
        self.matrix(b("ffn_gate_inp_shexp.weight"), TensorUse::Small, &[s.hidden]);
        self.matrix(b("ffn_gate_shexp.weight"), TensorUse::Shared, &[s.width, s.hidden]);
        self.matrix(b("ffn_up_shexp.weight"), TensorUse::Shared, &[s.width, s.hidden]);
        self.matrix(b("ffn_down_shexp.weight"), TensorUse::Shared, &[s.hidden, s.width]);
    }

    fn attention(&mut self, s: &ReleasedShape, b: impl Fn(&str) -> String) {
        let (q, kv) = (s.heads * s.head_dim, s.kv_heads * s.head_dim);
        self.matrix(b("attn_q.weight"), TensorUse::Dense, &[2 * q, s.hidden]);
        self.matrix(b("attn_k.weight"), TensorUse::Dense, &[kv, s.hidden]);
        self.matrix(b("attn_v.weight"), TensorUse::Dense, &[kv, s.hidden]);
        self.matrix(b("attn_output.weight"), TensorUse::Dense, &[s.hidden, q]);
        self.norm(b("attn_q_norm.weight"), s.head_dim);
        self.norm(b("attn_k_norm.weight"), s.head_dim);
    }

    fn gdn(&mut self, s: &ReleasedShape, b: impl Fn(&str) -> String) {
        let values = s.value_heads * s.gdn_dim;
        let channels = 2 * s.key_heads * s.gdn_dim + values;
        self.matrix(b("attn_qkv.weight"), TensorUse::Dense, &[channels, s.hidden]);
        self.matrix(b("attn_gate.weight"), TensorUse::Dense, &[values, s.hidden]);
        self.matrix(b("ssm_beta.weight"), TensorUse::Dense, &[s.value_heads, s.hidden]);
        self.matrix(b("ssm_alpha.weight"), TensorUse::Dense, &[s.value_heads, s.hidden]);
        self.matrix(b("ssm_out.weight"), TensorUse::Dense, &[self.hidden, values]);
        self.add(b("ssm_conv1d.weight"), BlockType::F32, &[channels, s.taps], Fill::Rms(0.5));
        // Decays from nearly none to strong, as in trained models.
        self.add(b("ssm_a"), BlockType::F32, &[s.value_heads], Fill::Uniform(-6.0, -0.02));
        self.add(b("ssm_dt.bias"), BlockType::F32, &[s.value_heads], Fill::Uniform(-3.0, 0.0));
        self.norm(b("ssm_norm.weight"), s.gdn_dim);
    }
}

fn keys(s: &ReleasedShape, options: &SynthOptions) -> GgufHeader {
    let mut header = GgufHeader::default();
    header.set("general.architecture", MetaValue::Str(ARCHITECTURE.into()));
    header.set("general.name", MetaValue::Str(format!("synthetic {} {}", s.name, options.mix.name())));
    header.set("general.quantization_version", MetaValue::U32(2));
    let numbers = [
        ("block_count", s.layers + usize::from(options.draft_head)),
        ("nextn_predict_layers", usize::from(options.draft_head)),
        ("context_length", s.context),
        ("embedding_length", s.hidden),
        ("attention.head_count", s.heads),
        ("attention.head_count_kv", s.kv_heads),
        ("attention.key_length", s.head_dim),
        ("attention.value_length", s.head_dim),
        ("rope.dimension_count", s.rotary),
        ("ssm.conv_kernel", s.taps),
        ("ssm.state_size", s.gdn_dim),
        ("ssm.group_count", s.key_heads),
        ("ssm.time_step_rank", s.value_heads),
        ("ssm.inner_size", s.value_heads * s.gdn_dim),
        ("full_attention_interval", ATTENTION_INTERVAL),
        ("expert_count", s.experts),
        ("expert_used_count", s.used),
        ("expert_feed_forward_length", s.width),
        ("expert_shared_feed_forward_length", s.width),
    ];
    let told = |key: &str| key != "nextn_predict_layers" || options.draft_head;
    for (key, value) in numbers.into_iter().filter(|(key, _)| told(key)) {
        header.set(format!("{ARCHITECTURE}.{key}"), MetaValue::U32(value as u32));
    }
    header.set(format!("{ARCHITECTURE}.attention.layer_norm_rms_epsilon"), MetaValue::F32(1e-6));
    header.set(format!("{ARCHITECTURE}.rope.freq_base"), MetaValue::F32(1e7));
    header.set(format!("{ARCHITECTURE}.rope.dimension_sections"), MetaValue::I32s(vec![11, 11, 10, 0]));
    text::set(&mut header, s.vocab, "qwen35");
    header
}
