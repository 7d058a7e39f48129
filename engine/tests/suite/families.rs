//! The families beside Qwen's hybrids against `transformers` on tiny models, from both formats; and what is refused of
//! them.

use crate::support::{
    Driver, GgufParts, Golden, argmax_agreement, config, data_dir, deviation, gguf, golden_dir, hugging_face, max_abs,
    relative, relative_rms,
};
use chimere_engine::backend::{cpu, cuda};
use chimere_engine::format::gguf::MetaValue;
use chimere_engine::format::synth::{Mix, SynthOptions, write};
use chimere_engine::model::{self, AttentionConfig, BlockConfig, MlpConfig, Model, Rope};
use chimere_engine::step::Form;

/// Presets with their architecture and how far the default path may be from the reference, as other presets of experts
/// and dense ones.
const PRESETS: [(&str, &str, f64); 10] = [
    ("mamba2", "mamba2", 3e-2),
    ("granitehybrid", "granitehybrid", 6e-2),
    ("falcon_h1", "falcon-h1", 3e-2),
    ("nemotron_h", "nemotron_h_moe", 6e-2),
    ("nemotron_super", "nemotron_h_moe", 6e-2),
    ("qwen3", "qwen3", 3e-2),
    ("qwen3_moe", "qwen3moe", 6e-2),
    ("lfm2", "lfm2", 3e-2),
    ("lfm2_moe", "lfm2moe", 6e-2),
    ("granite", "granite", 3e-2),
];
/// What a directory's family is called where a file's has another name, because directories do not tell them apart.
const DIRECTORY_NAMES: [(&str, &str); 1] = [("granite", "granitehybrid")];
/// Of the standard deviation of the logits.
const LOGITS: f32 = 2e-4;
const HIDDEN: f32 = 1e-4;

/// Prompt, hidden states after each layer, and a continuation token by token, in `--exact`.
fn check_exact(preset: &str, model: &Model) {
    let golden = Golden::of(preset);
    let (ids, want) = (golden.ids("input_ids"), golden.array("logits").1);
    let bound = LOGITS * deviation(&want);
    let mut driver = Driver::recording(model, &config(true, 2));
    let recording = driver.run(Form::Chunked, 0, &ids);
    let mut block = 0;
    for (i, layer) in model.config.layers.iter().enumerate() {
        block += layer.len();
        let error = relative(&recording.hidden[block - 1], &golden.array(&format!("layer.{i}.out")).1);
        assert!(error < HIDDEN, "{preset}: hidden after layer {i} off by {error:e}");
    }
    let error = max_abs(&recording.logits, &want);
    println!("{preset}: logits off by {error:e}, {:e} of their deviation", error / deviation(&want));
    assert!(error < bound, "{preset}: logits off by {error:e}, bound {bound:e}");
    let (shape, want) = golden.array("decode_logits");
    for (n, id) in golden.ids("decode_ids").iter().enumerate() {
        let got = driver.run(Form::Recurrent, ids.len() + n, &[*id]).logits;
        let error = max_abs(&got, &want[n * shape[1]..][..shape[1]]);
        assert!(error < bound, "{preset}: logits of decoded token {n} off by {error:e}, bound {bound:e}");
    }
}

#[test]
fn files_of_every_family_are_exact() {
    for (preset, architecture, _) in PRESETS {
        let model = gguf(preset);
        assert_eq!(model.config.architecture, architecture);
        check_exact(preset, &model);
    }
}

#[test]
fn release_directories_of_every_family_are_exact() {
    for (preset, architecture, _) in PRESETS {
        let model = hugging_face(preset);
        let own = DIRECTORY_NAMES.into_iter().find(|(name, _)| *name == architecture);
        assert_eq!(model.config.architecture, own.map_or(architecture, |(_, own)| own));
        check_exact(preset, &model);
    }
}

#[test]
fn both_formats_describe_one_shape() {
    for (preset, ..) in PRESETS {
        let (file, dir) = (gguf(preset).config, hugging_face(preset).config);
        let shapes = |blocks: Vec<&BlockConfig>| blocks.into_iter().cloned().collect::<Vec<_>>();
        assert_eq!(shapes(file.blocks().collect()), shapes(dir.blocks().collect()), "{preset}");
        // Falcon's factors are in the weights of the one and beside those of the other.
        if preset != "falcon_h1" {
            assert_eq!((file.embedding_scale, file.logit_scale), (dir.embedding_scale, dir.logit_scale), "{preset}");
        }
    }
}

#[test]
fn the_default_path_of_every_family_stays_within_its_tolerance() {
    for (preset, _, bound) in PRESETS {
        let (model, golden) = (gguf(preset), Golden::of(preset));
        let (shape, want) = golden.array("logits");
        let ids = golden.ids("input_ids");
        let got = Driver::recording(&model, &config(false, 2)).prompt(&ids, ids.len());
        let (error, agreement) = (relative_rms(&got, &want), argmax_agreement(&got, &want, shape[1]));
        println!("{preset}: relative error {error:e}, best tokens agree in {agreement}");
        assert!(error < bound, "{preset}: relative error {error:e}");
        assert!(agreement >= 0.9, "{preset}: the best token agrees in {agreement} of rows");
    }
}

#[test]
fn no_split_of_a_prompt_and_no_number_of_threads_changes_a_byte() {
    for (preset, ..) in PRESETS {
        let (model, ids) = (gguf(preset), Golden::of(preset).ids("input_ids"));
        for exact in [true, false] {
            let whole = Driver::recording(&model, &config(exact, 1)).prompt(&ids, ids.len());
            for (size, threads) in [(1, 1), (7, 2), (64, 3)] {
                let got = Driver::recording(&model, &config(exact, threads)).prompt(&ids, size);
                let same = whole.iter().zip(&got).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{preset} in pieces of {size}, exact {exact}");
            }
        }
    }
}

#[test]
fn a_position_gives_the_same_bytes_as_prompt_and_as_continuation() {
    // Attention aside, there is one form; and attention's depends on the position alone.
    for (preset, ..) in PRESETS {
        let (model, ids) = (gguf(preset), Golden::of(preset).ids("input_ids"));
        let whole = Driver::recording(&model, &config(false, 2)).prompt(&ids, ids.len());
        let mut driver = Driver::recording(&model, &config(false, 2));
        let stepped: Vec<f32> =
            ids.iter().enumerate().flat_map(|(i, id)| driver.run(Form::Recurrent, i, &[*id]).logits).collect();
        assert!(whole.iter().zip(&stepped).all(|(a, b)| a.to_bits() == b.to_bits()), "{preset}");
    }
}

#[test]
fn quantised_weights_give_the_same_in_any_split_and_stay_near_the_exact_ones() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("granite.gguf");
    let (layers, experts, vocab) = (Some(2), Some(8), Some(512));
    let options = SynthOptions {
        shape: "granite-4-h-tiny".into(),
        mix: Mix::Q4,
        layers,
        experts,
        vocab,
        draft_head: false,
        seed: 3,
    };
    write(&path, &options, |_, _| ()).unwrap();
    let model = model::load(&path).unwrap();
    let ids: Vec<_> = (0..40).map(|i| i * 97 % 512).collect();
    let prompt = |exact, threads, size| Driver::recording(&model, &config(exact, threads)).prompt(&ids, size);
    let (exact, whole) = (prompt(true, 2, 40), prompt(false, 1, 40));
    let error = relative_rms(&whole, &exact);
    println!("granite-4-h-tiny in four bits: relative error {error:e}");
    assert!(error < 6e-2, "relative error {error:e}");
    for (threads, size) in [(2, 7), (3, 1)] {
        let got = prompt(false, threads, size);
        assert!(whole.iter().zip(&got).all(|(a, b)| a.to_bits() == b.to_bits()), "pieces of {size}");
    }
}

/// The preset's file with other names of keys and tensors, where `None` leaves one out, and one more key.
fn rewritten(
    preset: &str,
    key: impl Fn(&str) -> Option<String>,
    tensor: impl Fn(&str) -> Option<String>,
    more: Option<(&str, MetaValue)>,
) -> Result<Model, String> {
    let mut parts = GgufParts::of(preset);
    let renamed = |(name, value): (String, MetaValue)| Some((key(&name)?, value));
    parts.keys = parts.keys.into_iter().filter_map(renamed).collect();
    more.into_iter().for_each(|(name, value)| parts.set(name, value));
    parts.tensors = parts.tensors.into_iter().filter_map(|(name, t)| Some((tensor(&name)?, t))).collect();
    parts.load()
}

fn same(name: &str) -> Option<String> {
    Some(name.to_owned())
}

/// Why the preset's file is refused with one more key, or with one tensor under another name.
fn changed(preset: &str, key: Option<(&str, MetaValue)>, rename: Option<(&str, &str)>) -> String {
    let tensor = |own: &str| match rename {
        Some((from, to)) if own == from => same(to),
        _ => same(own),
    };
    rewritten(preset, same, tensor, key).map(|m| m.config.name).expect_err("a member that nobody knows")
}

#[test]
fn a_granite_without_experts_has_a_dense_part() {
    let tensor = |name: &str| match name {
        _ if name.contains("_exps") || name.contains("ffn_gate_inp") => None,
        _ => same(&name.replace("_shexp", "")),
    };
    let key = |name: &str| if name.contains(".expert_") || name.contains("feed_forward") { None } else { same(name) };
    let width = ("granitehybrid.feed_forward_length", MetaValue::U32(64));
    let model = rewritten("granitehybrid", key, tensor, Some(width)).unwrap();
    assert_eq!(model.config.each::<MlpConfig>().copied().collect::<Vec<_>>(), [MlpConfig::swiglu(64); 3]);
    let ids = Golden::of("granitehybrid").ids("input_ids");
    let logits = Driver::recording(&model, &config(true, 2)).prompt(&ids, ids.len());
    assert!(logits.iter().all(|logit| logit.is_finite()) && deviation(&logits) > 0.1);
}

/// How the heads of a model are rotated, and for how many positions it is meant.
fn rotation(model: Result<Model, String>) -> Result<(Rope, u32), String> {
    let config = model?.config;
    let rope = config.each::<AttentionConfig>().next().unwrap().rope.unwrap();
    Ok((rope, config.context))
}

#[test]
fn yarn_is_read_from_the_keys_of_a_file() {
    let changed = |changes: &[(&str, MetaValue)]| {
        let mut parts = GgufParts::of("qwen3_moe");
        changes.iter().for_each(|(name, value)| parts.set(&format!("qwen3moe.rope.scaling.{name}"), value.clone()));
        rotation(parts.load())
    };
    let (rope, context) = changed(&[]).unwrap();
    let yarn = rope.yarn.unwrap();
    assert_eq!((yarn.factor, yarn.positions, yarn.beta_fast, yarn.beta_slow), (4.0, 16.0, 32.0, 1.0));
    assert_eq!((rope.magnitude(), context), (0.1 * 4f64.ln() + 1.0, 64));
    let number = MetaValue::F32;
    let longer = changed(&[("original_context_length", MetaValue::U32(32)), ("yarn_beta_fast", number(16.0))]).unwrap();
    assert_eq!((longer.0.yarn.unwrap().positions, longer.0.yarn.unwrap().beta_fast, longer.1), (32.0, 16.0, 128));
    // llama.cpp multiplies with the one key; converters write the whole magnitude of config.json under the other one.
    assert_eq!(changed(&[("attn_factor", number(0.5))]).unwrap().0.magnitude(), 0.5 * rope.magnitude());
    assert_eq!(changed(&[("yarn_attn_factor", number(1.25))]).unwrap().0.magnitude(), 1.25);
    assert_eq!(changed(&[("type", MetaValue::Str("none".into())), ("factor", number(1.0))]).unwrap().0.yarn, None);
    assert_eq!(
        changed(&[("type", MetaValue::Str("linear".into()))]).unwrap_err(),
        "m.gguf: key `qwen3moe.rope.scaling.type`: wanted `none` or `yarn`: other scaled rotations are not supported, \
         got `linear`"
    );
    assert_eq!(
        changed(&[("factor", number(0.5))]).unwrap_err(),
        "m.gguf: key `qwen3moe.rope.scaling.factor`: wanted a number of at least 1, by which YaRN slows down, got 0.5"
    );
    let other = changed(&[("yarn_ext_factor", number(0.5))]).unwrap_err();
    assert!(other.contains("yarn_ext_factor`: wanted 1"), "{other}");
}

#[test]
fn a_granite_without_mamba_is_read_under_every_name_that_converters_have() {
    for architecture in ["granitemoe", "granitehybrid"] {
        let key = |name: &str| same(&name.replace("granite.", &format!("{architecture}.")));
        let name = ("general.architecture", MetaValue::Str(architecture.into()));
        let model = rewritten("granite", key, same, Some(name)).unwrap();
        assert_eq!(model.config.architecture, architecture);
        check_exact("granite", &model);
    }
}

#[test]
fn a_granite_without_mamba_may_do_without_positions() {
    let mut parts = GgufParts::of("granite");
    parts.set("granite.rope.scaling.finetuned", MetaValue::Bool(false));
    let model = parts.load().unwrap();
    assert!(model.config.each::<AttentionConfig>().all(|attention| attention.rope.is_none()));
    let mut partly = GgufParts::of("granite");
    partly.set("granite.rope.dimension_count", MetaValue::U32(16));
    assert_eq!(
        partly.load().map(|m| m.config.name).unwrap_err(),
        "m.gguf: key `granite.rope.dimension_count`: wanted 32, the whole head, got 16"
    );
}

#[test]
fn the_dense_name_of_nemotron_is_the_same_family() {
    let key = |name: &str| same(&name.replace("nemotron_h_moe.", "nemotron_h."));
    let name = ("general.architecture", MetaValue::Str("nemotron_h".into()));
    let model = rewritten("nemotron_h", key, same, Some(name)).unwrap();
    assert_eq!(model.config.architecture, "nemotron_h");
    check_exact("nemotron_h", &model);
}

#[test]
fn what_is_unknown_in_a_family_is_refused_by_name() {
    let key = |preset: &str, name: &str, value| changed(preset, Some((name, value)), None);
    assert_eq!(
        key("nemotron_h", "nemotron_h_moe.moe_latent_size", MetaValue::U32(64)),
        "m.gguf: tensor `blk.2.ffn_up_exps.weight`: wanted shape [8, 32, 64], got shape [8, 32, 32]"
    );
    assert_eq!(
        key("mamba2", "mamba2.ssm.dt_b_c_rms", MetaValue::Bool(true)),
        "m.gguf: key `mamba2.ssm.dt_b_c_rms`: wanted false: B, C and the step sizes of a mixer have no norms, got true"
    );
    assert_eq!(
        key("nemotron_h", "nemotron_h_moe.expert_gating_func", MetaValue::U32(1)),
        "m.gguf: key `nemotron_h_moe.expert_gating_func`: wanted 2, got 1"
    );
    assert_eq!(
        key("nemotron_h", "nemotron_h_moe.expert_group_count", MetaValue::U32(4)),
        "m.gguf: key `nemotron_h_moe.expert_group_count`: wanted 1, got 4"
    );
    assert_eq!(
        key("nemotron_h", "nemotron_h_moe.expert_weights_norm", MetaValue::Bool(false)),
        "m.gguf: key `nemotron_h_moe.expert_weights_norm`: wanted true, got false"
    );
    assert_eq!(
        key("granitehybrid", "granitehybrid.rope.scaling.finetuned", MetaValue::Bool(true)),
        "m.gguf: key `granitehybrid.rope.scaling.finetuned`: wanted false: rotated positions are not supported, got true"
    );
    assert_eq!(
        key("falcon_h1", "falcon-h1.ssm.group_count", MetaValue::U32(3)),
        "m.gguf: key `falcon-h1.ssm.time_step_rank`: wanted a multiple of 3, the value of ssm.group_count, got 4"
    );
    assert_eq!(
        changed("falcon_h1", None, Some(("blk.1.ffn_up.weight", "blk.1.ffn_up.bias"))),
        "m.gguf: tensor `blk.1.ffn_up.weight`: wanted shape [96, 32], got no such tensor"
    );
    let mut parts = GgufParts::of("falcon_h1");
    parts.add_like("blk.1.ffn_up.weight", "blk.1.ffn_up.bias");
    assert_eq!(
        parts.load().map(|m| m.config.name).unwrap_err(),
        "m.gguf: tensor `blk.1.ffn_up.bias`: wanted no such tensor: it is not known in this family, got one"
    );
}

/// Why the preset's directory is refused with this change of config.json.
fn directory_refusal(preset: &str, from: &str, to: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    for (of, file) in [(preset, "model.safetensors"), ("moe", "tokenizer.json")] {
        std::fs::copy(golden_dir(of).join(file), dir.path().join(file)).unwrap();
    }
    let text = std::fs::read_to_string(golden_dir(preset).join("config.json")).unwrap();
    assert!(text.contains(from), "{preset} has no {from}");
    std::fs::write(dir.path().join("config.json"), text.replacen(from, to, 1)).unwrap();
    let error = model::load(dir.path()).map(|m| m.config.name).expect_err("a member that nobody knows");
    let place = dir.path().display().to_string();
    error.to_string().replace(&format!("{place}/"), "").replace(&format!("{place}: "), "")
}

#[test]
fn what_is_unknown_in_a_directory_is_refused_by_name() {
    let refusal = directory_refusal;
    assert_eq!(
        refusal("mamba2", "\"time_step_limit\": [\n  0.0,", "\"time_step_limit\": [\n  0.1,"),
        "config.json: key `time_step_limit`: wanted 0 and infinity: bounded step sizes are not supported, got 0.1 and None"
    );
    assert_eq!(
        refusal("granitehybrid", "\"mamba_proj_bias\": false", "\"mamba_proj_bias\": true"),
        "config.json: key `mamba_proj_bias`: wanted false, got true"
    );
    assert_eq!(
        refusal("granitehybrid", "\"mamba_proj_bias\"", "\"position_embedding_type\": \"rope\", \"mamba_proj_bias\""),
        "config.json: key `position_embedding_type`: wanted \"nope\", got \"rope\""
    );
    assert_eq!(
        refusal("falcon_h1", "\"mamba_norm_before_gate\": false", "\"mamba_norm_before_gate\": true"),
        "config.json: key `mamba_norm_before_gate`: wanted false: a norm before the gate is not supported, got true"
    );
    assert_eq!(
        refusal("nemotron_h", "\"mlp_hidden_act\": \"relu2\"", "\"mlp_hidden_act\": \"silu\""),
        "config.json: key `mlp_hidden_act`: wanted \"relu2\", got \"silu\""
    );
    assert_eq!(
        refusal("nemotron_h", "\"n_group\": 1", "\"n_group\": 4"),
        "config.json: key `n_group`: wanted 1, got 4"
    );
    assert_eq!(
        refusal("nemotron_h", "\"use_bias\": false", "\"moe_latent_size\": 16, \"use_bias\": false"),
        "tensor `backbone.layers.2.mixer.experts.{}.up_proj.weight`: wanted shape [8, 32, 16], got shape [8, 32, 32]"
    );
}

#[test]
fn what_is_unknown_in_a_directory_without_mamba_is_refused_by_name() {
    let refusal = directory_refusal;
    assert_eq!(
        refusal("qwen3", "\"attention_bias\": false", "\"use_qk_norm\": false"),
        "config.json: key `use_qk_norm`: wanted true, got false"
    );
    assert_eq!(
        refusal("qwen3_moe", "\"norm_topk_prob\": true", "\"norm_topk_prob\": false"),
        "config.json: key `norm_topk_prob`: wanted true: the weights of the chosen experts have a sum of 1, got false"
    );
    assert_eq!(
        refusal("qwen3_moe", "\"norm_topk_prob\": true,", ""),
        "config.json: key `norm_topk_prob`: wanted true: the weights of the chosen experts have a sum of 1, got no \
         such key"
    );
    assert_eq!(
        refusal("qwen3_moe", "\"rope_type\": \"yarn\"", "\"rope_type\": \"linear\""),
        "config.json: key `rope_parameters.rope_type`: wanted `default` or `yarn`: other scaled rotations are not \
         supported, got `linear`"
    );
    assert_eq!(
        refusal("qwen3_moe", "\"factor\": 4.0", "\"factor\": 4.0, \"mscale\": 0.7"),
        "config.json: key `rope_parameters.mscale`: wanted no such key: it is not known in this family, got 0.7"
    );
    assert_eq!(
        refusal("qwen3_moe", "\"factor\": 4.0", "\"factor\": 4.0, \"truncate\": false"),
        "config.json: key `rope_parameters.truncate`: wanted true, got false"
    );
    assert!(
        refusal("qwen3", "\"full_attention\"", "\"sliding_attention\"").contains("`full_attention` in every layer")
    );
    assert_eq!(
        refusal("lfm2", "\"conv_bias\": false", "\"conv_bias\": true"),
        "config.json: key `conv_bias`: wanted false, got true"
    );
    assert_eq!(
        refusal("lfm2", "\"conv_bias\": false", "\"conv_bias\": false, \"block_ff_dim\": 192"),
        "tensor `model.layers.0.feed_forward.w1.weight`: wanted shape [128, 32], got shape [64, 32]"
    );
    assert_eq!(
        refusal("lfm2_moe", "\"use_expert_bias\": true", "\"use_expert_bias\": false"),
        "config.json: key `use_expert_bias`: wanted true, got false"
    );
    assert_eq!(
        refusal("lfm2", "\"conv\"", "\"sliding\""),
        "config.json: key `layer_types`: wanted `conv` or `full_attention`, got `sliding`"
    );
    assert_eq!(
        refusal("granite", "\"position_embedding_type\": \"rope\"", "\"position_embedding_type\": \"alibi\""),
        "config.json: key `position_embedding_type`: wanted `rope` or `nope`, got `alibi`"
    );
}

/// The first table of `docs/reference/architectures.md` has a row of each family, which says whether a GPU computes it.
#[test]
fn the_table_of_families_says_what_the_code_does() {
    let page = std::fs::read_to_string(data_dir().join("docs/reference/architectures.md")).unwrap();
    let presets = ["moe", "dense", "next"].into_iter().chain(PRESETS.iter().map(|(preset, ..)| *preset));
    for preset in presets {
        let config = gguf(preset).config;
        let name = format!("`{}`", config.architecture);
        let mut rows = page.lines().filter(|line| line.split('|').nth(1).is_some_and(|cell| cell.contains(&name)));
        let row = rows.next().unwrap_or_else(|| panic!("the table has no row of {name}"));
        let yes = |is: bool| if is { "yes" } else { "no" };
        let (cpu, gpu) = (yes(cpu::check(&config).is_ok()), yes(cuda::check(&config).is_ok()));
        assert!(row.ends_with(&format!("| {cpu} | {gpu} |")), "{preset}: a CPU {cpu}, a GPU {gpu}: {row}");
    }
}
