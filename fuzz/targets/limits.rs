//! What requests are held against in the targets that read them.

use chimere::http::request::ModelLimits;
use chimere::text::{Thoughts, Tokenizer};
use chimere_engine::format::{GenerationDefaults, TokenizerSource};
use std::sync::LazyLock;

pub static LIMITS: LazyLock<ModelLimits> = LazyLock::new(|| {
    let file = include_bytes!("../../engine/tests/golden/moe/tokenizer.json");
    let tokenizer = Tokenizer::new(&TokenizerSource::Json(file.to_vec())).expect("a good tokenizer");
    ModelLimits {
        name: "nano".into(),
        aliases: vec!["gpt-4o-mini".into(), "claude-nano".into()],
        vocab: 500,
        width: 64,
        choices_max: 16,
        end_ids: vec![470, 468],
        defaults: GenerationDefaults::default(),
        template_options: vec!["enable_thinking".into()],
        experts: Some(8),
        thinking: Thoughts::new(&tokenizer, 500, &Default::default()).expect("good settings"),
        pipelines: Default::default(),
        adapters: Default::default(),
        web: Default::default(),
    }
});
