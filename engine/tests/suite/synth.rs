//! Synthetic models are whole files that load like any other.

use chimere_engine::format::synth::{Mix, SynthOptions, write, write_outline};
use chimere_engine::format::{BlockType, TokenizerSource};
use chimere_engine::model::{MlpConfig, MoeConfig, Op, Role, Router, SharedConfig, Summary, load};

fn small(mix: Mix) -> SynthOptions {
    SynthOptions {
        shape: "qwen3.5-35b-a3b".into(),
        mix,
        layers: Some(4),
        experts: Some(8),
        vocab: Some(512),
        draft_head: false,
        seed: 7,
    }
}

#[test]
fn a_synthetic_model_loads_with_the_shape_and_mix_that_were_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    for (mix, experts, shared) in [
        (Mix::Q8, BlockType::Q8_0, BlockType::Q8_0),
        (Mix::Q4, BlockType::Q4K, BlockType::Q8_0),
        (Mix::Iq3, BlockType::Iq3S, BlockType::Q5K),
    ] {
        let path = dir.path().join(mix.name());
        let (mut last, mut calls) = ((0, 0), 0);
        let size = write(&path, &small(mix), |done, total| {
            assert!(done >= last.0 && done <= total, "{done} of {total} after {last:?}");
            (last, calls) = ((done, total), calls + 1);
        })
        .unwrap();
        assert_eq!((std::fs::metadata(&path).unwrap().len(), last), (size, (size, size)));
        assert!(calls > 10, "{calls}");
        let m = load(&path).unwrap();
        let mixers: Vec<&str> = m.config.layers.iter().map(|layer| layer[0].op.name()).collect();
        assert_eq!(mixers, ["gated delta", "gated delta", "gated delta", "attention"]);
        let expert = MlpConfig::swiglu(512);
        let both = SharedConfig { expert, gated: true };
        let router = Router::Softmax;
        let want = MoeConfig { experts: 8, used: 8, router, expert, latent: None, shared: Some(both) };
        assert_eq!(m.config.each::<MoeConfig>().copied().collect::<Vec<_>>(), [want; 4]);
        let Op::Moe(moe) = &m.weights.layers[0][1].op else { panic!("a mixture of experts") };
        let gate = moe.experts.gate.as_ref().unwrap();
        assert_eq!((gate.ty, moe.shared.as_ref().unwrap().expert.up.ty), (experts, shared));
        assert_eq!(Summary::of(&m).roles[&Role::Experts].parameters, 4 * 8 * 3 * 512 * 2048);
        let spread = |x: &[f32]| (x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32).sqrt();
        let expert = spread(&gate.decode()) * 2048f32.sqrt();
        assert!((0.7..1.4).contains(&expert), "{mix:?}: {expert}");
        let Op::Gdn(gdn) = &m.weights.layers[1][0].op else { panic!("a GDN layer") };
        assert!(gdn.a_neg.iter().all(|a| (-6.0..=-0.02).contains(a)));
        let TokenizerSource::Gguf { tokens, .. } = m.text.tokenizer else { panic!("from a GGUF file") };
        assert_eq!((tokens.len(), m.text.end_ids.len()), (512, 2));
        assert!(m.text.chat_template.is_some());
    }
}

#[test]
fn the_same_options_make_the_same_bytes_whatever_the_threads() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = |name: &str, threads| {
        let path = dir.path().join(name);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| write(&path, &small(Mix::Q4), |_, _| ())).unwrap();
        std::fs::read(path).unwrap()
    };
    assert!(bytes("one", 1) == bytes("three", 3));
}

#[test]
fn an_outline_loads_like_the_model_and_takes_no_room() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("outline.gguf");
    let whole = SynthOptions {
        shape: "qwen3.5-35b-a3b".into(),
        mix: Mix::Iq3,
        layers: None,
        experts: None,
        vocab: None,
        draft_head: false,
        seed: 1,
    };
    let size = write_outline(&path, &whole).unwrap();
    let file = std::fs::metadata(&path).unwrap();
    assert_eq!(file.len(), size);
    assert!(size > 14 << 30 && file.blocks() * 512 < 64 << 20, "{size} bytes, {} blocks", file.blocks());
    let m = load(&path).unwrap();
    assert_eq!((m.config.layers.len(), m.config.vocab), (40, 248_320));
    let Op::Gdn(gdn) = &m.weights.layers[0][0].op else { panic!("a GDN layer") };
    assert!(gdn.a_neg.iter().all(|a| (-6.0..=-0.02).contains(a)));
}

#[test]
fn every_hybrid_shape_is_a_whole_file_of_its_family() {
    let dir = tempfile::tempdir().unwrap();
    let whole =
        |shape: &str| SynthOptions { shape: shape.into(), layers: None, experts: None, vocab: None, ..small(Mix::Q4) };
    for (shape, layers, parameters) in [
        ("nemotron-3-nano-30b-a3b", 52, 31.6e9),
        ("nemotron-3-super-120b-a12b", 88, 120.7e9),
        ("nemotron-h-8b", 52, 8.1e9),
        ("granite-4-h-small", 40, 32.2e9),
        ("granite-4-h-tiny", 40, 6.9e9),
        ("falcon-h1-7b", 44, 7.6e9),
        ("mamba2-2.7b", 64, 2.7e9),
        ("qwen3-8b", 36, 8.2e9),
        ("qwen3-30b-a3b", 48, 30.5e9),
        ("lfm2-8b-a1b", 24, 8.3e9),
        ("granite-4-micro", 40, 3.4e9),
    ] {
        let path = dir.path().join(shape);
        write_outline(&path, &whole(shape)).unwrap();
        let model = load(&path).unwrap();
        let counted = Summary::of(&model).parameters() as f64;
        println!("{shape}: {counted:e} parameters");
        assert_eq!(model.config.layers.len(), layers, "{shape}");
        assert!((counted / parameters - 1.0).abs() < 0.02, "{shape}: {counted:e} parameters");
        std::fs::remove_file(path).unwrap();
    }
    let path = dir.path().join("falcon");
    let experts = SynthOptions { experts: Some(4), ..whole("falcon-h1-7b") };
    let refused = write_outline(&path, &experts).unwrap_err().to_string();
    assert_eq!(refused, "experts: wanted none: the shape has no experts, got 4");
}

#[test]
fn a_draft_head_stands_behind_the_layers_and_changes_none_of_their_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let [plain, drafting] = [false, true].map(|draft_head| {
        let path = dir.path().join(draft_head.to_string());
        write(&path, &SynthOptions { draft_head, ..small(Mix::Q4) }, |_, _| ()).unwrap();
        load(&path).unwrap()
    });
    assert!(plain.weights.draft_head.is_none() && plain.config.draft.is_empty());
    let head = drafting.weights.draft_head.as_ref().unwrap();
    assert_eq!((head.fc.rows(), head.fc.cols(), drafting.config.draft.len()), (2048, 4096, 2));
    let last = |model: &chimere_engine::model::Model| {
        let block = model.weights.layers.last().unwrap().last().unwrap().norm.clone();
        (model.weights.embed.row(0, 7).to_vec(), block)
    };
    assert_eq!(last(&plain), last(&drafting));
    let falcon = SynthOptions { shape: "falcon-h1-7b".into(), experts: None, draft_head: true, ..small(Mix::Q4) };
    let why = write(&dir.path().join("none"), &falcon, |_, _| ()).unwrap_err().to_string();
    assert_eq!(why, "draft_head: wanted none: the shape has no draft head, got true");
}

#[test]
fn options_out_of_range_are_refused_and_leave_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let refusal = |options: SynthOptions| write(&path, &options, |_, _| ()).unwrap_err().to_string();
    assert_eq!(
        refusal(SynthOptions { shape: "giant".into(), ..small(Mix::Q8) }),
        "shape: wanted one of qwen3.5-35b-a3b, nemotron-3-nano-30b-a3b, nemotron-3-super-120b-a12b, nemotron-h-8b, granite-4-h-small, granite-4-h-tiny, \
         falcon-h1-7b, mamba2-2.7b, qwen3-8b, qwen3-30b-a3b, lfm2-8b-a1b, granite-4-micro, got giant"
    );
    assert_eq!(refusal(SynthOptions { experts: Some(7), ..small(Mix::Q8) }), "experts: wanted 8 to 4096, got 7");
    assert_eq!(refusal(SynthOptions { vocab: Some(100), ..small(Mix::Q8) }), "vocab: wanted 271 to 1048576, got 100");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
