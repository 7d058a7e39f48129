//! A request body of any bytes is an error that names its field or a request inside of the model's limits, never a
//! panic, at every endpoint that takes one.

use crate::limits::LIMITS;
use chimere::http::request::{
    AskedEmbedding, ChatRequest, CompletionRequest, DetokenizeRequest, Generation, ModelLimits, Prompt, SearchRequest,
    TeachRequest, TokenizeRequest, parse_items, parse_nothing,
};

pub fn run(bytes: &[u8]) {
    let limits = &*LIMITS;
    if let Ok(request) = ChatRequest::parse(bytes, limits) {
        check(&request.generation, limits);
        assert!(request.conversation.messages.iter().all(|message| message.content.is_some()));
    }
    if let Ok(request) = CompletionRequest::parse(bytes, limits) {
        check(&request.generation, limits);
        assert!(request.prompts.iter().all(|prompt| within(prompt, limits)));
    }
    let _ = TokenizeRequest::parse(bytes, limits);
    let _ = DetokenizeRequest::parse(bytes, limits);
    match AskedEmbedding::parse(bytes, limits, Some(("encoder", 32))) {
        Ok(AskedEmbedding::Model(request)) => assert!(!request.inputs.is_empty()),
        Ok(AskedEmbedding::Encoder(request)) => {
            assert!(!request.texts.is_empty() && request.texts.iter().all(|text| !text.is_empty()));
        }
        Err(_) => {}
    }
    if let Ok(items) = parse_items(bytes) {
        assert!(!items.is_empty() && items.iter().all(|item| !item.id.is_empty() && !item.text.is_empty()));
    }
    if let Ok(request) = SearchRequest::parse(bytes) {
        assert!(!request.query.is_empty() && request.k >= 1);
    }
    let _ = parse_nothing(bytes);
    if let Ok(request) = TeachRequest::parse_put(bytes) {
        assert!(!request.texts.is_empty() && request.texts.iter().all(|text| !text.is_empty()));
    }
    if let Ok((request, quality)) = TeachRequest::parse_learn(bytes) {
        assert!(!request.texts.is_empty() && (0.0..=1.0).contains(&quality));
    }
}

fn check(generation: &Generation, limits: &ModelLimits) {
    let (spec, s) = (&generation.spec.engine, &generation.spec.engine.sampling);
    assert!((1..=limits.choices_max).contains(&spec.choices));
    assert!(s.temperature >= 0.0 && s.top_p > 0.0 && s.top_p <= 1.0 && s.repetition_penalty > 0.0);
    let ids = s.logit_bias.iter().map(|(id, _)| id).chain(spec.end_ids.iter());
    assert!(ids.copied().all(|id| id < limits.vocab));
    assert!(generation.spec.stop.iter().all(|text| !text.is_empty()));
}

fn within(prompt: &Prompt, limits: &ModelLimits) -> bool {
    match prompt {
        Prompt::Text(text) => !text.is_empty(),
        Prompt::Tokens(ids) => !ids.is_empty() && ids.iter().all(|id| *id < limits.vocab),
        Prompt::Mixed(parts) => !parts.is_empty() && parts.iter().all(|part| within(part, limits)),
    }
}
