//! A prefix cache changes no byte: conversations with and without it, with much and little room, with neighbours and
//! with clients that leave.

use crate::support;
use crate::support::conversations::{Held, Setting, TURNS, hold};
use chimere_engine::backend::cpu::{CpuBackend, CpuConfig, KvType};
use chimere_engine::model::Model;
use chimere_engine::scheduler::HostBlocks;

const CONVERSATIONS: usize = 5;

/// Conversations on a backend whose memory holds nothing but NaN before.
fn run(model: &Model, (slots, pages, threads): (u32, u32, usize), setting: Setting) -> Held {
    let config = CpuConfig {
        threads,
        slots,
        pages,
        checkpoints: setting.checkpoints,
        kv_type: KvType::F16,
        exact: false,
        step_rows_max: setting.step_tokens.max(slots + 64),
        context: 2048,
        drafts: 0,
        draft_head: false,
    };
    let mut backend = CpuBackend::new(model, &config, &mut |_| {}).unwrap();
    backend.poison();
    hold(&mut backend, CONVERSATIONS, setting)
}

fn check(preset: &str) {
    let model = support::gguf(preset);
    let off = Setting { step_tokens: 256, checkpoints: 0, together: 1, host: HostBlocks::NONE, cancel_after: 0 };
    let want = run(&model, (2, 100, 1), off);
    assert_eq!((want.answers.len(), want.cached.0), (CONVERSATIONS * TURNS, 0));
    let on = Setting { checkpoints: 64, ..off };
    let crowd = Setting { together: 4, step_tokens: 150, ..on };
    // Much room; a crowd; few checkpoints; few pages, so that entries go and sequences are preempted; clients that
    // leave between a checkpoint and its use.
    for (sizes, setting) in [
        ((2, 400, 1), on),
        ((6, 400, 2), crowd),
        ((6, 400, 2), Setting { checkpoints: 2, ..crowd }),
        ((6, 45, 2), crowd),
        ((6, 300, 2), Setting { cancel_after: 2, ..crowd }),
    ] {
        let got = run(&model, sizes, setting);
        let differing: Vec<_> =
            want.answers.keys().filter(|turn| got.answers.get(turn) != want.answers.get(turn)).collect();
        assert_eq!(differing, [&(0, 0); 0], "{sizes:?} {setting:?}");
        let (cached, all) = got.cached;
        println!("{preset} {sizes:?} {setting:?}: {cached} of {all} cached, {:?}", got.stats);
        assert!(cached > 0, "nothing was found, and the test does not cover it");
        assert!(setting.checkpoints < 64 || sizes.1 < 400 || 2 * cached > all, "{cached} of {all}");
    }
}

#[test]
fn a_prefix_cache_changes_no_byte() {
    check("quant");
}

#[test]
fn a_prefix_cache_changes_no_byte_of_models_with_mamba_2() {
    check("nemotron_h");
    check("falcon_h1");
}

#[test]
fn a_prefix_cache_changes_no_byte_of_a_dense_model() {
    check("dense");
}

#[test]
fn a_prefix_cache_changes_no_byte_of_a_model_without_recurrent_state() {
    check("qwen3");
}

#[test]
fn a_prefix_cache_changes_no_byte_of_models_with_short_convolutions() {
    check("lfm2");
}
