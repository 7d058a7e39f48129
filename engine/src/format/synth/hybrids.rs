//! Synthetic models of the families beside Qwen's hybrids.

use super::plan::{Fill, Planned, SynthOptions, SynthPlan, TensorUse, limited};
use super::text;
use crate::format::gguf::{GgufHeader, MetaValue};
use crate::format::{BlockType, Problem};

/// The sizes of a model that was released. Layers are words of one letter a block: `M` Mamba-2, `*` attention, `P` both
/// side by side, `C` a short convolution, `E` experts, `-` a dense part.
#[derive(Clone, Copy)]
pub(super) struct HybridShape {
    pub(super) name: &'static str,
    architecture: &'static str,
    /// Pre-tokenizer of the release.
    pre: &'static str,
    layers: &'static str,
    hidden: usize,
    vocab: usize,
    context: usize,
    /// Whether the head is the embedding.
    tied: bool,
    attention: AttentionSizes,
    ssm: Ssm,
    /// Width of a dense part.
    dense: usize,
    experts: ExpertSizes,
    /// Whether feed-forward parts have a gate; squared ReLUs otherwise.
    gated: bool,
    /// Factors, as the file's keys have them.
    factors: &'static [(&'static str, f32)],
}

#[derive(Clone, Copy)]
struct AttentionSizes {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    /// Base of the rotation; 0 for none.
    theta: f32,
    /// Whether queries and keys have norms.
    normed: bool,
}

#[derive(Clone, Copy)]
struct Ssm {
    heads: usize,
    dim: usize,
    state: usize,
    groups: usize,
    normed: bool,
}

#[derive(Clone, Copy)]
struct ExpertSizes {
    count: usize,
    used: usize,
    width: usize,
    shared: usize,
    /// Width of the rows that routed ones read and make, where it is their own; else 0.
    latent: usize,
    /// Whether sigmoids with biases choose them, and not a softmax.
    biased: bool,
}

const TAPS: usize = 4;
/// Of a short convolution.
const SHORT_TAPS: usize = 3;
const NO_ATTENTION: AttentionSizes = AttentionSizes { heads: 0, kv_heads: 0, dim: 0, theta: 0.0, normed: false };
const NO_EXPERTS: ExpertSizes = ExpertSizes { count: 0, used: 0, width: 0, shared: 0, latent: 0, biased: false };
/// Attention at layers 5, 15, 25 and 35.
const GRANITE_LAYERS: &str = "ME ME ME ME ME *E ME ME ME ME ME ME ME ME ME *E ME ME ME ME ME ME ME ME ME *E \
                              ME ME ME ME ME ME ME ME ME *E ME ME ME ME";

const SUPER_LAYERS: &str = "M E M E M E M * E M E M E M E M * E M E M E M E M * E M E M E M E M E M * E M E M E M E \
                            M E M * E M E M E M E M E M * E M E M E M E M E M * E M E M E M E M * E M E M E M E M E";

const NEMOTRON_NANO: HybridShape = HybridShape {
    name: "nemotron-3-nano-30b-a3b",
    architecture: "nemotron_h_moe",
    pre: "pixtral",
    layers: "M E M E M * E M E M E M * E M E M E M * E M E M E M * E M E M E M * E M E M E M E M * \
             E M E M E M E M E",
    hidden: 2688,
    vocab: 131_072,
    context: 262_144,
    tied: false,
    attention: AttentionSizes { heads: 32, kv_heads: 2, dim: 128, theta: 0.0, normed: false },
    ssm: Ssm { heads: 64, dim: 64, state: 128, groups: 8, normed: true },
    dense: 0,
    experts: ExpertSizes { count: 128, used: 6, width: 1856, shared: 3712, latent: 0, biased: true },
    gated: false,
    factors: &[("expert_weights_scale", 2.5)],
};

const NO_SSM: Ssm = Ssm { heads: 0, dim: 0, state: 0, groups: 0, normed: false };

const QWEN3_8B: HybridShape = HybridShape {
    name: "qwen3-8b",
    architecture: "qwen3",
    pre: "qwen2",
    layers: "*- *- *- *- *- *- *- *- *- *- *- *- *- *- *- *- *- *- \
             *- *- *- *- *- *- *- *- *- *- *- *- *- *- *- *- *- *-",
    hidden: 4096,
    vocab: 151_936,
    context: 40_960,
    tied: false,
    attention: AttentionSizes { heads: 32, kv_heads: 8, dim: 128, theta: 1e6, normed: true },
    ssm: NO_SSM,
    dense: 12_288,
    experts: NO_EXPERTS,
    gated: true,
    factors: &[],
};

const SHAPES: [HybridShape; 11] = [
    NEMOTRON_NANO,
    HybridShape {
        name: "nemotron-3-super-120b-a12b",
        layers: SUPER_LAYERS,
        hidden: 4096,
        ssm: Ssm { heads: 128, ..NEMOTRON_NANO.ssm },
        experts: ExpertSizes { count: 512, used: 22, width: 2688, shared: 5376, latent: 1024, biased: true },
        factors: &[("expert_weights_scale", 5.0)],
        ..NEMOTRON_NANO
    },
    HybridShape {
        name: "nemotron-h-8b",
        architecture: "nemotron_h",
        pre: "tekken",
        layers: "M - M - M - M * - M - M - M - M - M * - M - M - M - M - M * - M - M - M - M - M * - \
                 M - M - M - M - M -",
        hidden: 4096,
        vocab: 131_072,
        context: 8192,
        tied: false,
        attention: AttentionSizes { heads: 32, kv_heads: 8, dim: 128, theta: 0.0, normed: false },
        ssm: Ssm { heads: 128, dim: 64, state: 128, groups: 8, normed: true },
        dense: 21_504,
        experts: NO_EXPERTS,
        gated: false,
        factors: &[],
    },
    HybridShape {
        name: "granite-4-h-small",
        architecture: "granitehybrid",
        pre: "dbrx",
        layers: GRANITE_LAYERS,
        hidden: 4096,
        vocab: 100_352,
        context: 131_072,
        tied: true,
        attention: AttentionSizes { heads: 32, kv_heads: 8, dim: 128, theta: 0.0, normed: false },
        ssm: Ssm { heads: 128, dim: 64, state: 128, groups: 1, normed: true },
        dense: 0,
        experts: ExpertSizes { count: 72, used: 10, width: 768, shared: 1536, latent: 0, biased: false },
        gated: true,
        factors: &GRANITE_SMALL_FACTORS,
    },
    HybridShape {
        name: "granite-4-h-tiny",
        architecture: "granitehybrid",
        pre: "dbrx",
        layers: GRANITE_LAYERS,
        hidden: 1536,
        vocab: 100_352,
        context: 131_072,
        tied: true,
        attention: AttentionSizes { heads: 12, kv_heads: 4, dim: 128, theta: 0.0, normed: false },
        ssm: Ssm { heads: 48, dim: 64, state: 128, groups: 1, normed: true },
        dense: 0,
        experts: ExpertSizes { count: 64, used: 6, width: 512, shared: 1024, latent: 0, biased: false },
        gated: true,
        factors: &GRANITE_TINY_FACTORS,
    },
    HybridShape {
        name: "falcon-h1-7b",
        architecture: "falcon-h1",
        pre: "falcon-h1",
        layers: "P- P- P- P- P- P- P- P- P- P- P- P- P- P- P- P- P- P- P- P- P- P- \
                 P- P- P- P- P- P- P- P- P- P- P- P- P- P- P- P- P- P- P- P- P- P-",
        hidden: 3072,
        vocab: 130_048,
        context: 262_144,
        tied: false,
        attention: AttentionSizes { heads: 12, kv_heads: 2, dim: 128, theta: 1e11, normed: false },
        ssm: Ssm { heads: 24, dim: 128, state: 256, groups: 1, normed: false },
        dense: 12_288,
        experts: NO_EXPERTS,
        gated: true,
        factors: &[],
    },
    HybridShape {
        name: "mamba2-2.7b",
        architecture: "mamba2",
        pre: "olmo",
        layers: "M M M M M M M M M M M M M M M M M M M M M M M M M M M M M M M M \
                 M M M M M M M M M M M M M M M M M M M M M M M M M M M M M M M M",
        hidden: 2560,
        vocab: 50_288,
        context: 1 << 20,
        tied: true,
        attention: NO_ATTENTION,
        ssm: Ssm { heads: 80, dim: 64, state: 128, groups: 1, normed: true },
        dense: 0,
        experts: NO_EXPERTS,
        gated: true,
        factors: &[],
    },
    QWEN3_8B,
    HybridShape {
        name: "qwen3-30b-a3b",
        architecture: "qwen3moe",
        layers: "*E *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E \
                 *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E *E",
        hidden: 2048,
        attention: AttentionSizes { kv_heads: 4, ..QWEN3_8B.attention },
        dense: 0,
        experts: ExpertSizes { count: 128, used: 8, width: 768, shared: 0, latent: 0, biased: false },
        ..QWEN3_8B
    },
    HybridShape {
        name: "lfm2-8b-a1b",
        architecture: "lfm2moe",
        pre: "lfm2",
        layers: "C- C- *E CE CE CE *E CE CE CE *E CE CE CE *E CE CE CE *E CE CE *E CE CE",
        hidden: 2048,
        vocab: 65_536,
        context: 128_000,
        tied: true,
        attention: AttentionSizes { heads: 32, kv_heads: 8, dim: 64, theta: 1e6, normed: true },
        ssm: NO_SSM,
        dense: 7168,
        experts: ExpertSizes { count: 32, used: 4, width: 1792, shared: 0, latent: 0, biased: true },
        gated: true,
        factors: &[],
    },
    HybridShape {
        name: "granite-4-micro",
        architecture: "granite",
        pre: "dbrx",
        layers: "*- *- *- *- *- *- *- *- *- *- *- *- *- *- *- *- *- *- *- *- \
                 *- *- *- *- *- *- *- *- *- *- *- *- *- *- *- *- *- *- *- *-",
        hidden: 2560,
        vocab: 100_352,
        context: 131_072,
        tied: true,
        attention: AttentionSizes { heads: 40, kv_heads: 8, dim: 64, theta: 1e7, normed: false },
        ssm: NO_SSM,
        dense: 8192,
        experts: NO_EXPERTS,
        gated: true,
        factors: &GRANITE_MICRO_FACTORS,
    },
];

const GRANITE_SMALL_FACTORS: [(&str, f32); 4] =
    [("embedding_scale", 12.0), ("residual_scale", 0.22), ("attention.scale", 0.007_812_5), ("logit_scale", 16.0)];
const GRANITE_TINY_FACTORS: [(&str, f32); 4] =
    [("embedding_scale", 12.0), ("residual_scale", 0.22), ("attention.scale", 0.007_812_5), ("logit_scale", 6.0)];

const GRANITE_MICRO_FACTORS: [(&str, f32); 4] =
    [("embedding_scale", 12.0), ("residual_scale", 0.22), ("attention.scale", 0.015_625), ("logit_scale", 10.0)];

/// The names of these shapes.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SHAPES.iter().map(|shape| shape.name)
}

/// The shape of this name.
pub(super) fn find(name: &str) -> Option<&'static HybridShape> {
    SHAPES.iter().find(|shape| shape.name == name)
}

impl HybridShape {
    /// Header and tensors in file order.
    pub(super) fn plan(&self, options: &SynthOptions) -> Result<(GgufHeader, Vec<Planned>), Problem> {
        if options.draft_head {
            return Err(Problem::container("draft_head", "none: the shape has no draft head", true));
        }
        let all: Vec<&str> = self.layers.split_whitespace().collect();
        let layers = limited("layers", options.layers.unwrap_or(all.len()), 1, all.len())?;
        let vocab = limited("vocab", options.vocab.unwrap_or(self.vocab), text::tokens_min(), 1 << 20)?;
        let experts = match (self.experts.count, options.experts) {
            (0, Some(count)) => return Err(Problem::container("experts", "none: the shape has no experts", count)),
            (count, asked) => limited("experts", asked.unwrap_or(count), self.experts.used, 4096)?,
        };
        let shape = Self { vocab, experts: ExpertSizes { count: experts, ..self.experts }, ..*self };
        let mut plan = SynthPlan::new(options, self.hidden);
        plan.embedding(vocab, shape.output_norm());
        if !shape.tied {
            plan.head(vocab);
        }
        for (i, layer) in all[..layers].iter().enumerate() {
            shape.layer(&mut plan, i, layer);
        }
        Ok(plan.finish(shape.keys(options, &all[..layers])))
    }

    fn layer(&self, plan: &mut SynthPlan, i: usize, blocks: &str) {
        let b = |name: &str| format!("blk.{i}.{name}");
        for (n, block) in blocks.chars().enumerate() {
            plan.norm(b(if n == 0 { "attn_norm.weight" } else { self.second_norm() }), self.hidden);
            if matches!(block, 'M' | 'P') {
                self.mamba(plan, b);
            }
            if matches!(block, '*' | 'P') {
                self.attend(plan, b);
            }
            match block {
                'C' => self.short_conv(plan, b),
                'E' => self.mixture(plan, b),
                '-' => self.feed_forward(plan, b, "", &[self.dense, self.hidden], TensorUse::Shared),
                _ => {}
            }
        }
    }

    /// The name of the norm before the head.
    fn output_norm(&self) -> &'static str {
        if self.architecture.starts_with("lfm2") { "token_embd_norm.weight" } else { "output_norm.weight" }
    }

    /// The name of a layer's second norm: converters write that of Falcon-H1 without its end.
    fn second_norm(&self) -> &'static str {
        if self.architecture == "falcon-h1" { "ffn_norm" } else { "ffn_norm.weight" }
    }

    fn mamba(&self, plan: &mut SynthPlan, b: impl Fn(&str) -> String) {
        let Ssm { heads, dim, state, groups, normed } = self.ssm;
        let (values, channels) = (heads * dim, heads * dim + 2 * groups * state);
        plan.matrix(b("ssm_in.weight"), TensorUse::Dense, &[values + channels + heads, self.hidden]);
        plan.add(b("ssm_conv1d.weight"), BlockType::F32, &[channels, TAPS], Fill::Rms(0.5));
        plan.add(b("ssm_conv1d.bias"), BlockType::F32, &[channels], Fill::Rms(0.1));
        // Decays from nearly none to strong, as in trained models.
        plan.add(b("ssm_a"), BlockType::F32, &[heads, 1], Fill::Uniform(-6.0, -0.02));
        plan.add(b("ssm_d"), BlockType::F32, &[heads, 1], Fill::Uniform(0.5, 1.5));
        plan.add(b("ssm_dt.bias"), BlockType::F32, &[heads], Fill::Uniform(-3.0, 0.0));
        if normed {
            plan.add(b("ssm_norm.weight"), BlockType::F32, &[groups, values / groups], Fill::Uniform(0.8, 1.2));
        }
        plan.matrix(b("ssm_out.weight"), TensorUse::Dense, &[self.hidden, values]);
    }

    fn short_conv(&self, plan: &mut SynthPlan, b: impl Fn(&str) -> String) {
        plan.matrix(b("shortconv.in_proj.weight"), TensorUse::Dense, &[3 * self.hidden, self.hidden]);
        plan.add(b("shortconv.conv.weight"), BlockType::F32, &[self.hidden, SHORT_TAPS], Fill::Rms(0.5));
        plan.matrix(b("shortconv.out_proj.weight"), TensorUse::Dense, &[self.hidden, self.hidden]);
    }

    fn attend(&self, plan: &mut SynthPlan, b: impl Fn(&str) -> String) {
        let AttentionSizes { heads, kv_heads, dim, normed, .. } = self.attention;
        if normed {
            plan.norm(b("attn_q_norm.weight"), dim);
            plan.norm(b("attn_k_norm.weight"), dim);
        }
        plan.matrix(b("attn_q.weight"), TensorUse::Dense, &[heads * dim, self.hidden]);
        plan.matrix(b("attn_k.weight"), TensorUse::Dense, &[kv_heads * dim, self.hidden]);
        plan.matrix(b("attn_v.weight"), TensorUse::Dense, &[kv_heads * dim, self.hidden]);
        plan.matrix(b("attn_output.weight"), TensorUse::Dense, &[self.hidden, heads * dim]);
    }

    fn mixture(&self, plan: &mut SynthPlan, b: impl Fn(&str) -> String + Copy) {
        let ExpertSizes { count, width, shared, latent, biased, .. } = self.experts;
        plan.router(b("ffn_gate_inp.weight"), count);
        if biased {
            // Sigmoids of the best experts differ by hundredths: a larger bias would choose alone, the same few for
            // every token, as no balanced model does.
            plan.add(b("exp_probs_b.bias"), BlockType::F32, &[count], Fill::Uniform(-0.002, 0.002));
        }
        let read = if latent > 0 { latent } else { self.hidden };
        if latent > 0 {
            plan.matrix(b("ffn_latent_down.weight"), TensorUse::Dense, &[latent, self.hidden]);
            plan.matrix(b("ffn_latent_up.weight"), TensorUse::Dense, &[self.hidden, latent]);
        }
        self.feed_forward(plan, b, "_exps", &[count, width, read], TensorUse::Experts);
        if shared > 0 {
            self.feed_forward(plan, b, "_shexp", &[shared, self.hidden], TensorUse::Shared);
        }
    }

    /// Matrices of the shape `in_shape`, whose names end with `kind`, and the one that leads back.
    fn feed_forward(
        &self,
        plan: &mut SynthPlan,
        b: impl Fn(&str) -> String,
        kind: &str,
        in_shape: &[usize],
        part: TensorUse,
    ) {
        let mut out_shape = in_shape.to_vec();
        let last = out_shape.len() - 1;
        out_shape.swap(last - 1, last);
        if self.gated {
            plan.matrix(b(&format!("ffn_gate{kind}.weight")), part, in_shape);
        }
        plan.matrix(b(&format!("ffn_up{kind}.weight")), part, in_shape);
        plan.matrix(b(&format!("ffn_down{kind}.weight")), part, &out_shape);
    }

    fn keys(&self, options: &SynthOptions, layers: &[&str]) -> GgufHeader {
        let mut header = GgufHeader::default();
        let own = |name: &str| format!("{}.{name}", self.architecture);
        header.set("general.architecture", MetaValue::Str(self.architecture.into()));
        header.set("general.name", MetaValue::Str(format!("synthetic {} {}", self.name, options.mix.name())));
        header.set("general.quantization_version", MetaValue::U32(2));
        for (key, n) in self.numbers(layers.len()) {
            header.set(own(key), MetaValue::U32(n as u32));
        }
        self.layer_keys(layers, |key, value| _ = header.set(own(key), value));
        header.set(own("attention.layer_norm_rms_epsilon"), MetaValue::F32(1e-5));
        if self.architecture.starts_with("nemotron_h") {
            // Not of a norm that is there, but llama.cpp takes no file of the family without it.
            header.set(own("attention.layer_norm_epsilon"), MetaValue::F32(1e-5));
            if self.experts.count > 0 {
                header.set(own("expert_weights_norm"), MetaValue::Bool(true));
            }
        }
        self.factors.iter().for_each(|(key, factor)| _ = header.set(own(key), MetaValue::F32(*factor)));
        text::set(&mut header, self.vocab, self.pre);
        header
    }

    fn numbers(&self, layers: usize) -> Vec<(&'static str, usize)> {
        let Self { attention, ssm, experts, .. } = self;
        let mut numbers = vec![
            ("block_count", layers),
            ("context_length", self.context),
            ("embedding_length", self.hidden),
            ("vocab_size", self.vocab),
            ("attention.head_count", attention.heads),
        ];
        if ssm.heads > 0 {
            numbers.extend([
                ("ssm.conv_kernel", TAPS),
                ("ssm.state_size", ssm.state),
                ("ssm.group_count", ssm.groups),
                ("ssm.time_step_rank", ssm.heads),
                ("ssm.inner_size", ssm.heads * ssm.dim),
            ]);
        }
        if attention.heads > 0 {
            numbers.extend([("attention.key_length", attention.dim), ("attention.value_length", attention.dim)]);
        }
        if experts.count > 0 {
            numbers.extend([
                ("expert_count", experts.count),
                ("expert_used_count", experts.used),
                ("expert_feed_forward_length", experts.width),
            ]);
            numbers.extend((experts.shared > 0).then_some(("expert_shared_feed_forward_length", experts.shared)));
            numbers.extend((experts.latent > 0).then_some(("moe_latent_size", experts.latent)));
        }
        numbers
    }

    /// What is said a layer: where one block is a layer, the widths tell what it is.
    fn layer_keys(&self, layers: &[&str], mut set: impl FnMut(&str, MetaValue)) {
        let width = |layer: &str| match layer {
            _ if layer.contains('E') => self.experts.width,
            _ if layer.contains('-') => self.dense,
            _ => 0,
        };
        let widths: Vec<u32> = layers.iter().map(|layer| width(layer) as u32).collect();
        let attends = |layer: &&str| layer.contains(['*', 'P']);
        let heads = layers.iter().map(|layer| if attends(layer) { self.attention.kv_heads as u32 } else { 0 });
        if self.architecture.starts_with("lfm2") {
            // 2 stands for a sigmoid.
            set("expert_gating_func", MetaValue::U32(2));
            set("shortconv.l_cache", MetaValue::U32(SHORT_TAPS as u32));
            set("feed_forward_length", MetaValue::U32(self.dense as u32));
            let dense = layers.iter().take_while(|layer| layer.contains('-')).count();
            set("leading_dense_block_count", MetaValue::U32(dense as u32));
        } else {
            set("feed_forward_length", MetaValue::U32s(widths));
        }
        set("attention.head_count_kv", MetaValue::U32s(heads.collect()));
        match self.attention.theta {
            0.0 if self.attention.heads > 0 => set("rope.scaling.finetuned", MetaValue::Bool(false)),
            0.0 => {}
            theta => set("rope.freq_base", MetaValue::F32(theta)),
        }
    }
}
