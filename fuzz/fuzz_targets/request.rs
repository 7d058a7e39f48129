//! A request body of any bytes is an error that names its field or a request inside of the model's limits, never a panic.
#![no_main]

use chimere::http::request::{
    ChatRequest, CompletionRequest, DetokenizeRequest, EmbeddingRequest, Generation, ModelLimits, Prompt, SearchRequest,
    TokenizeRequest, parse_items,
};
use chimere::text::{Thoughts, Tokenizer};
use chimere_engine::format::{GenerationDefaults, TokenizerSource};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static THOUGHTS: LazyLock<Thoughts> = LazyLock::new(|| {
    let file = include_bytes!("../../engine/tests/golden/moe/tokenizer.json");
    let tokenizer = Tokenizer::new(&TokenizerSource::Json(file.to_vec())).expect("a good tokenizer");
    Thoughts::new(&tokenizer, 500, &Default::default()).expect("good settings").expect("it thinks")
});

fn check(generation: &Generation, limits: &ModelLimits) {
    let s = &generation.sampling;
    assert!((1..=limits.choices_max).contains(&generation.choices));
    assert!(s.temperature >= 0.0 && s.top_p > 0.0 && s.top_p <= 1.0 && s.repetition_penalty > 0.0);
    assert!(s.logit_bias.iter().all(|(id, _)| *id < limits.vocab) && generation.end_ids.iter().all(|id| *id < limits.vocab));
    assert!(generation.stop.iter().all(|s| !s.is_empty()));
}

fuzz_target!(|bytes: &[u8]| {
    let limits = ModelLimits {
        name: "nano".into(),
        aliases: vec!["gpt-4o-mini".into()],
        vocab: 500,
        width: 64,
        choices_max: 16,
        end_ids: vec![470, 468],
        defaults: GenerationDefaults::default(),
        template_options: vec!["enable_thinking".into()],
        experts: Some(8),
        thinking: Some(THOUGHTS.clone()),
    };
    if let Ok(request) = ChatRequest::parse(bytes, &limits) {
        check(&request.generation, &limits);
        assert!(request.conversation.messages.iter().all(|m| m["role"].is_string() && m["content"].is_string()));
    }
    if let Ok(request) = CompletionRequest::parse(bytes, &limits) {
        check(&request.generation, &limits);
        let within = |ids: &Vec<u32>| !ids.is_empty() && ids.iter().all(|id| *id < limits.vocab);
        assert!(
            request
                .prompts
                .iter()
                .all(|p| matches!(p, Prompt::Text(t) if !t.is_empty()) || matches!(p, Prompt::Tokens(ids) if within(ids)))
        );
    }
    let _ = TokenizeRequest::parse(bytes, &limits);
    let _ = DetokenizeRequest::parse(bytes, &limits);
    if let Ok(request) = EmbeddingRequest::parse(bytes, &limits) {
        assert!(!request.inputs.is_empty());
    }
    if let Ok(items) = parse_items(bytes) {
        assert!(!items.is_empty() && items.iter().all(|item| !item.id.is_empty() && !item.text.is_empty()));
    }
    if let Ok(request) = SearchRequest::parse(bytes) {
        assert!(!request.query.is_empty() && request.k >= 1);
    }
});
