//! Keys and tensors that loaders need not read, each with the reason. All others that nobody has read are refused by
//! name.

use crate::format::KeyValue;

/// The values with which a key changes nothing that is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Allowed {
    Any,
    Number(f64),
    /// A factor or a count of 1, which files of GGUF also write as 0.
    One,
    Flag(bool),
    Word(&'static str),
    Empty,
}

/// Keys that change nothing, with the values for which that holds, and why.
pub(crate) type Harmless = (&'static [&'static str], Allowed, &'static str);

impl Allowed {
    /// Whether the value is the one that changes nothing.
    pub(super) fn includes(self, value: &KeyValue) -> bool {
        match (self, value) {
            (Self::Any, _) => true,
            (Self::Number(want), KeyValue::Number(got)) => *got == want,
            (Self::One, KeyValue::Number(got)) => [0.0, 1.0].contains(got),
            (Self::Flag(want), KeyValue::Flag(got)) => *got == want,
            (Self::Word(want), KeyValue::Word(got)) => got == want,
            (Self::Empty, KeyValue::Empty) => true,
            _ => false,
        }
    }
}

impl std::fmt::Display for Allowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("any value"),
            Self::Number(x) => write!(f, "{x}"),
            Self::One => f.write_str("1"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Word(word) => write!(f, "`{word}`"),
            Self::Empty => f.write_str("an empty list"),
        }
    }
}

/// Why a tensor of a GGUF file or of a directory may be left unread, if it may.
pub(super) fn tensor(name: &str) -> Option<&'static str> {
    const INPUTS: &str = "activations are not multiplied in 4-bit or 8-bit floats here and need no scale";
    const CACHE: &str = "keys and values are not kept in 8-bit floats here and need no scale";
    let beside = [
        (".input_scale", INPUTS),
        (".input_global_scale", INPUTS),
        (".activation_scale", INPUTS),
        (".k_scale", CACHE),
        (".v_scale", CACHE),
        (".q_scale", CACHE),
    ];
    beside.iter().find(|(end, _)| name.ends_with(end)).map(|(_, why)| *why)
}

/// Keys of a GGUF file without the family's prefix. A family that computes with a key has read it, and then it is not
/// looked up here.
pub(super) const GGUF: &[Harmless] = &[
    (
        &["attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length"],
        Allowed::Any,
        "only layers that attend have heads, and their tensors would be left over",
    ),
    (
        &["feed_forward_length"],
        Allowed::Any,
        "the width of dense parts, whose tensors would be left over in a model of experts alone",
    ),
    (&["expert_shared_count"], Allowed::Any, "the width of the shared expert covers all of them"),
    (
        &["expert_count", "expert_used_count", "expert_feed_forward_length", "expert_shared_feed_forward_length"],
        Allowed::Number(0.0),
        "no tensors of experts are known in this model",
    ),
    (&["expert_group_count", "expert_group_used_count"], Allowed::One, "experts are chosen from one group"),
    (&["expert_weights_scale"], Allowed::One, "the weights of experts are not scaled in this model"),
    (&["expert_weights_norm"], Allowed::Flag(true), "the weights of the chosen experts have a fixed sum"),
    (&["expert_gating_func"], Allowed::Number(1.0), "only a softmax chooses experts in this family"),
    (&["leading_dense_block_count"], Allowed::Number(0.0), "every layer has the same feed-forward part"),
    (&["moe_latent_size"], Allowed::Number(0.0), "experts read the whole row in this family"),
    (&["residual_scale"], Allowed::One, "blocks are added unscaled in this family"),
    (&["attention.scale"], Allowed::Number(0.0), "scores have the usual scale in this model"),
    (&["attention.causal"], Allowed::Flag(true), "attention looks at earlier positions alone"),
    (&["attention.sliding_window"], Allowed::Number(0.0), "sliding windows are not supported"),
    (
        &["attn_logit_softcapping", "final_logit_softcapping"],
        Allowed::Number(0.0),
        "softcapping of scores or logits is not supported",
    ),
    (&["pooling_type"], Allowed::Number(0.0), "a request chooses how rows are pooled"),
    (&["ssm.dt_b_c_rms"], Allowed::Flag(false), "B, C and the step sizes of a mixer have no norms"),
    (
        &["rope.dimension_count", "rope.freq_base", "rope.scaling.finetuned"],
        Allowed::Any,
        "families that rotate heads read how, and the others have no positions",
    ),
    (&["rope.dimension_sections"], Allowed::Any, "all axes of a position are equal in text"),
    (&["rope.scaling.type"], Allowed::Word("none"), "scaled rotation is not supported"),
    (&["rope.scaling.factor", "rope.scale_linear"], Allowed::One, "scaled rotation is not supported"),
    (
        &["rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_ext_factor"],
        Allowed::Number(1.0),
        "scaled rotation is not supported, or not with this factor",
    ),
    (&["rope.scaling.yarn_log_multiplier"], Allowed::Number(0.0), "no family here has such a multiplier"),
    (
        &["rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"],
        Allowed::Any,
        "a rotation that is scaled by YaRN reads them, and no other one has them",
    ),
    (
        &["rope.scaling.original_context_length"],
        Allowed::Any,
        "it says what a scaled rotation starts from, and scaling itself is refused",
    ),
    (&["n_deepstack_layers"], Allowed::Number(0.0), "layers take no rows of a vision tower"),
];

/// Keys about the program that wrote a config.json.
const BOOKKEEPING: Harmless = (
    &[
        "_attn_implementation",
        "_attn_implementation_autoset",
        "_commit_hash",
        "_name_or_path",
        "architectures",
        "attn_implementation",
        "auto_map",
        "dtype",
        "finetuning_task",
        "gradient_checkpointing",
        "id2label",
        "label2id",
        "logits_to_keep",
        "model_name",
        "name_or_path",
        "num_logits_to_keep",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "problem_type",
        "return_dict",
        "return_dict_in_generate",
        "task_specific_params",
        "tokenizer_class",
        "torch_dtype",
        "torchscript",
        "transformers_version",
        "unsloth_fixed",
        "unsloth_version",
        "use_bfloat16",
        "use_cache",
        "use_mamba_kernels",
    ],
    Allowed::Any,
    "bookkeeping of the program that wrote the file",
);

/// Keys of the text part of config.json. A family that computes with a key has read it, and then it is not looked up
/// here.
pub(super) const HUGGING_FACE: &[Harmless] = &[
    BOOKKEEPING,
    (
        &["bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id", "sep_token_id"],
        Allowed::Any,
        "the files about text say which tokens begin and end one",
    ),
    (
        &[
            "attention_dropout",
            "block_mlp_init_scale",
            "block_out_init_scale",
            "block_use_xavier_init",
            "conv_use_xavier_init",
            "embd_pdrop",
            "hidden_dropout",
            "init_method",
            "initializer_range",
            "rescale_prenorm_residual",
            "resid_pdrop",
            "residual_dropout",
            "router_aux_loss_coef",
            "router_jitter_noise",
            "time_step_floor",
            "time_step_init_scheme",
            "time_step_max",
            "time_step_min",
            "time_step_rank",
            "time_step_scale",
        ],
        Allowed::Any,
        "training alone uses it",
    ),
    (
        &["chunk_size", "chunk_size_feed_forward", "mamba_chunk_size", "mamba_ssm_cache_dtype", "mamba_ssm_dtype"],
        Allowed::Any,
        "it says how other programs go through a prompt, or in which precision",
    ),
    (&["residual_in_fp32"], Allowed::Any, "rows between blocks are single precision here in any case"),
    (&["norm_before_gate"], Allowed::Any, "transformers does not read it: the gate comes first"),
    (&["mamba_norm_before_gate"], Allowed::Any, "where a mixer has a norm, the family reads it"),
    (
        &["expand", "mamba_expand", "mamba_d_ssm", "mlp_expansion_factor"],
        Allowed::Any,
        "the sizes that follow from it are keys of their own and the shapes of tensors",
    ),
    (&["moe_shared_expert_overlap"], Allowed::Any, "it orders work on several devices"),
    (
        &[
            "mtp_hybrid_override_pattern",
            "mtp_layers_block_type",
            "mtp_num_hidden_layers",
            "mtp_use_dedicated_embeddings",
            "num_nextn_predict_layers",
        ],
        Allowed::Any,
        "the draft head is read by its tensors, and left out where they are others",
    ),
    (
        &["full_attention_interval", "full_attn_idxs", "hybrid_override_pattern", "layer_types", "layers_block_type"],
        Allowed::Any,
        "another key says what each layer is, and the tensors of the layers bear it out",
    ),
    (
        &[
            "intermediate_size",
            "moe_intermediate_size",
            "moe_latent_size",
            "moe_shared_expert_intermediate_size",
            "n_group",
            "n_routed_experts",
            "n_shared_experts",
            "num_experts",
            "num_experts_per_tok",
            "routed_scaling_factor",
            "shared_expert_intermediate_size",
            "topk_group",
        ],
        Allowed::Any,
        "it is about feed-forward parts of a kind that no layer has: their tensors would be left over",
    ),
    (
        &[
            "conv_kernel",
            "head_dim",
            "mamba_d_conv",
            "mamba_d_head",
            "mamba_d_state",
            "mamba_head_dim",
            "mamba_n_groups",
            "mamba_n_heads",
            "mamba_num_heads",
            "n_groups",
            "num_attention_heads",
            "num_key_value_heads",
            "ssm_state_size",
            "time_step_limit",
        ],
        Allowed::Any,
        "it is about mixers of a kind that no layer has: their tensors would be left over",
    ),
    (
        &["partial_rotary_factor", "rope_parameters.partial_rotary_factor", "rope_parameters.rope_theta", "rope_theta"],
        Allowed::Any,
        "families that rotate heads read it, and the others have no positions",
    ),
    (
        &[
            "rope_parameters.mrope_interleaved",
            "rope_parameters.mrope_section",
            "rope_scaling.mrope_interleaved",
            "rope_scaling.mrope_section",
        ],
        Allowed::Any,
        "all axes of a position are equal in text",
    ),
    (
        &["rope_parameters.rope_type", "rope_parameters.type", "rope_scaling.rope_type", "rope_scaling.type"],
        Allowed::Word("default"),
        "scaled rotation is not supported",
    ),
    (&["normalization_function"], Allowed::Word("rmsnorm"), "all norms are RMS norms"),
    (&["hidden_act"], Allowed::Word("silu"), "other activations are not supported in this family"),
    (&["norm_topk_prob"], Allowed::Flag(true), "the weights of the chosen experts have a fixed sum"),
    (&["attn_output_gate"], Allowed::Flag(true), "attention has an output gate in this family"),
    (&["output_gate_type"], Allowed::Word("swish"), "other output gates are not supported"),
    (
        &["attention_bias", "mamba_proj_bias", "mlp_bias", "projectors_bias", "use_bias"],
        Allowed::Flag(false),
        "projections have no biases here",
    ),
    (&["mamba_use_mlp"], Allowed::Flag(true), "every layer has a feed-forward part"),
    (&["decoder_sparse_step"], Allowed::Number(1.0), "experts in every layer"),
    (&["mlp_only_layers"], Allowed::Empty, "experts in every layer"),
    (
        &["max_window_layers"],
        Allowed::Any,
        "it is about sliding windows, which are refused by the keys that ask for one",
    ),
    (&["use_sliding_window"], Allowed::Flag(false), "sliding windows are not supported"),
    (
        &[
            "add_cross_attention",
            "is_decoder",
            "is_encoder_decoder",
            "tie_encoder_decoder",
            "use_bidirectional_attention",
        ],
        Allowed::Flag(false),
        "a model reads one text, in one direction",
    ),
    (&["is_causal"], Allowed::Flag(true), "attention looks at earlier positions alone"),
    (&["pruned_heads"], Allowed::Empty, "heads are all there"),
];

/// Keys of config.json of an encoder of the BERT family, as [`HUGGING_FACE`] has those of other models.
pub(crate) const ENCODER: &[Harmless] = &[
    BOOKKEEPING,
    (
        &["bos_token_id", "cls_token_id", "eos_token_id", "mask_token_id", "pad_token_id", "sep_token_id"],
        Allowed::Any,
        "the tokenizer says which tokens stand around a text",
    ),
    (
        &[
            "attention_probs_dropout_prob",
            "classifier_dropout",
            "hidden_dropout_prob",
            "initializer_factor",
            "initializer_range",
        ],
        Allowed::Any,
        "training alone uses it",
    ),
    (&["chunk_size_feed_forward"], Allowed::Any, "it says how other programs go through a text"),
    (
        &[
            "directionality",
            "pooler_fc_size",
            "pooler_num_attention_heads",
            "pooler_num_fc_layers",
            "pooler_size_per_head",
            "pooler_type",
        ],
        Allowed::Any,
        "it is about the part behind `[CLS]` that training has, and no vector is made by",
    ),
    (&["position_embedding_type"], Allowed::Word("absolute"), "positions are vectors that are added to the tokens'"),
    (
        &["add_cross_attention", "is_decoder", "is_encoder_decoder", "tie_encoder_decoder"],
        Allowed::Flag(false),
        "an encoder reads one text, in both directions",
    ),
    (&["pruned_heads"], Allowed::Empty, "heads are all there"),
];
