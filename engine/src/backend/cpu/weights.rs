//! A model's weights as this backend multiplies with them.

use super::gdn::GdnParams;
use super::matmul::PackedMatrix;
use crate::format::Tensor;
use crate::model::{
    AttentionWeights, FfnWeights, GdnWeights, LayerWeights, MixerWeights, Model, ModelConfig, MoeWeights, SwigluWeights,
};

/// Everything the forward pass reads.
pub(super) struct CpuModel {
    pub(super) config: ModelConfig,
    /// Encoded as the file has it: a step reads a row a token.
    pub(super) embed: Tensor,
    pub(super) norm: Vec<f32>,
    pub(super) head: PackedMatrix,
    pub(super) layers: Vec<Layer>,
}

pub(super) struct Layer {
    pub(super) input_norm: Vec<f32>,
    pub(super) mixer: Mixer,
    pub(super) post_norm: Vec<f32>,
    pub(super) ffn: Ffn,
}

#[allow(clippy::large_enum_variant, reason = "one a layer")]
pub(super) enum Mixer {
    Gdn(Gdn),
    Attention(Attention),
}

pub(super) struct Gdn {
    /// qkv, z, b, a: all read the layer's input.
    pub(super) inputs: [PackedMatrix; 4],
    pub(super) params: GdnParams,
    pub(super) out: PackedMatrix,
}

pub(super) struct Attention {
    /// q with gates, k, v.
    pub(super) inputs: [PackedMatrix; 3],
    pub(super) q_norm: Vec<f32>,
    pub(super) k_norm: Vec<f32>,
    pub(super) out: PackedMatrix,
}

#[allow(clippy::large_enum_variant, reason = "one a layer")]
pub(super) enum Ffn {
    Dense(Swiglu),
    Moe(Moe),
}

pub(super) struct Swiglu {
    pub(super) gate: PackedMatrix,
    pub(super) up: PackedMatrix,
    pub(super) down: PackedMatrix,
}

pub(super) struct Moe {
    /// In f32 whatever the file has: rounded router logits pick other experts.
    pub(super) router: PackedMatrix,
    /// The routed experts, then the shared one.
    pub(super) experts: Vec<Swiglu>,
    pub(super) shared_gate: Vec<f32>,
    pub(super) used: usize,
}

impl CpuModel {
    /// Packs a model; `progress` hears the share done after each layer, 0 to 1.
    pub(super) fn pack(model: &Model, exact: bool, progress: &mut dyn FnMut(f32)) -> Self {
        let (c, w) = (&model.config, &model.weights);
        let mut layers = Vec::with_capacity(w.layers.len());
        for layer in &w.layers {
            layers.push(pack_layer(layer, c, exact));
            progress(layers.len() as f32 / (w.layers.len() + 1) as f32);
        }
        let head = PackedMatrix::pack(w.head.as_ref().unwrap_or(&w.embed), 0, exact);
        progress(1.0);
        Self { config: c.clone(), embed: w.embed.in_memory(), norm: w.norm.clone(), head, layers }
    }

    /// What [`CpuModel::bytes`] will say, before anything is packed.
    pub(super) fn planned_bytes(model: &Model, exact: bool) -> u64 {
        let bytes = |t: &Tensor| PackedMatrix::planned_bytes(t, exact);
        let swiglu = |s: &SwigluWeights| bytes(&s.gate) + bytes(&s.up) + bytes(&s.down);
        let layer = |l: &LayerWeights| {
            let mixer: u64 = match &l.mixer {
                MixerWeights::Gdn(g) => [&g.qkv, &g.z, &g.b, &g.a, &g.out].into_iter().map(bytes).sum(),
                MixerWeights::Attention(a) => [&a.q, &a.k, &a.v, &a.out].into_iter().map(bytes).sum(),
            };
            mixer
                + match &l.ffn {
                    FfnWeights::Dense(s) => swiglu(s),
                    FfnWeights::Moe(m) => PackedMatrix::planned_bytes(&m.router, true) + swiglu(&m.experts) + swiglu(&m.shared),
                }
        };
        let w = &model.weights;
        w.layers.iter().map(layer).sum::<u64>() + bytes(w.head.as_ref().unwrap_or(&w.embed)) + w.embed.bytes().len() as u64
    }

    /// Bytes of the embedding and of packed matrices.
    pub(super) fn bytes(&self) -> u64 {
        let layers = self.layers.iter().flat_map(|l| {
            let (inputs, out) = match &l.mixer {
                Mixer::Gdn(g) => (&g.inputs[..], &g.out),
                Mixer::Attention(a) => (&a.inputs[..], &a.out),
            };
            let (router, experts) = match &l.ffn {
                Ffn::Dense(s) => (None, std::slice::from_ref(s)),
                Ffn::Moe(m) => (Some(&m.router), &m.experts[..]),
            };
            inputs.iter().chain([out]).chain(router).chain(experts.iter().flat_map(|s| [&s.gate, &s.up, &s.down]))
        });
        layers.chain([&self.head]).map(|m| m.bytes() as u64).sum::<u64>() + self.embed.bytes().len() as u64
    }
}

fn pack_layer(w: &LayerWeights, c: &ModelConfig, exact: bool) -> Layer {
    let mixer = match &w.mixer {
        MixerWeights::Gdn(g) => Mixer::Gdn(pack_gdn(g, c, exact)),
        MixerWeights::Attention(a) => Mixer::Attention(pack_attention(a, exact)),
    };
    let ffn = match &w.ffn {
        FfnWeights::Dense(s) => Ffn::Dense(pack_swiglu(s, 0, exact)),
        FfnWeights::Moe(m) => Ffn::Moe(pack_moe(m, c, exact)),
    };
    Layer { input_norm: w.input_norm.clone(), mixer, post_norm: w.post_norm.clone(), ffn }
}

fn pack_gdn(w: &GdnWeights, c: &ModelConfig, exact: bool) -> Gdn {
    let (taps, channels) = (c.gdn.conv_taps, c.gdn.channels());
    let params = GdnParams {
        config: c.gdn,
        conv: (0..taps * channels).map(|i| w.conv[i % channels * taps + i / channels]).collect(),
        a_neg: w.a_neg.clone(),
        dt_bias: w.dt_bias.clone(),
        norm: w.norm.clone(),
        eps: c.rms_eps,
    };
    let pack = |t| PackedMatrix::pack(t, 0, exact);
    Gdn { inputs: [&w.qkv, &w.z, &w.b, &w.a].map(pack), params, out: pack(&w.out) }
}

fn pack_attention(w: &AttentionWeights, exact: bool) -> Attention {
    let pack = |t| PackedMatrix::pack(t, 0, exact);
    Attention { inputs: [&w.q, &w.k, &w.v].map(pack), q_norm: w.q_norm.clone(), k_norm: w.k_norm.clone(), out: pack(&w.out) }
}

fn pack_swiglu(w: &SwigluWeights, index: usize, exact: bool) -> Swiglu {
    let pack = |t| PackedMatrix::pack(t, index, exact);
    Swiglu { gate: pack(&w.gate), up: pack(&w.up), down: pack(&w.down) }
}

fn pack_moe(w: &MoeWeights, c: &ModelConfig, exact: bool) -> Moe {
    let crate::model::FfnConfig::Moe { experts, used, .. } = c.ffn else {
        unreachable!("the loader checked the layers against the configuration")
    };
    let mut all: Vec<Swiglu> = (0..experts).map(|e| pack_swiglu(&w.experts, e, exact)).collect();
    all.push(pack_swiglu(&w.shared, 0, exact));
    Moe { router: PackedMatrix::pack(&w.router, 0, true), experts: all, shared_gate: w.shared_gate.clone(), used }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_weights_take_what_was_planned_for_them() {
        for preset in ["moe", "dense", "next", "quant"] {
            let path = format!("{}/tests/golden/{preset}/model.gguf", env!("CARGO_MANIFEST_DIR"));
            let model = crate::model::load(path.as_ref()).unwrap();
            for exact in [false, true] {
                let packed = CpuModel::pack(&model, exact, &mut |_| {});
                assert_eq!(CpuModel::planned_bytes(&model, exact), packed.bytes(), "{preset}, exact {exact}");
            }
        }
    }
}
