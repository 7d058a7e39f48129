//! A body of any bytes, at an endpoint that speaks another dialect than OpenAI's first, is an error that names its
//! field or the chat request that it means, inside of the model's limits, never a panic.

use crate::limits::LIMITS;
use chimere::http::request::{
    ChatRequest, LlamaRequest, MessagesRequest, ModelLimits, OllamaRequest, ResponsesBody, parse_embed,
    parse_embedding, parse_name,
};
use chimere::text::Role;

pub fn run(bytes: &[u8]) {
    let limits = &*LIMITS;
    if let Ok(request) = MessagesRequest::parse(bytes, limits) {
        check(&request.chat, limits);
        begins_with_one_system(&request.chat);
    }
    let responses = ResponsesBody::read(bytes).and_then(|body| body.checked(Vec::new(), limits));
    if let Ok(request) = responses {
        check(&request.chat, limits);
        begins_with_one_system(&request.chat);
        assert!(!request.items.is_empty());
        // What was said is what is said before the next one.
        let next = br#"{"input": "and then?"}"#;
        let next = ResponsesBody::read(next).and_then(|body| body.checked(request.items, limits));
        let next = next.expect("items that were taken are taken again").chat;
        check(&next, limits);
        begins_with_one_system(&next);
    }
    for parse in [OllamaRequest::parse_chat, OllamaRequest::parse_generate] {
        match parse(bytes, limits) {
            Ok(OllamaRequest::Chat(request)) => {
                check(&request, limits);
                begins_with_one_system(&request);
            }
            Ok(OllamaRequest::Raw { prompt, .. }) => assert!(!prompt.is_empty()),
            Ok(OllamaRequest::Load) | Err(_) => {}
        }
    }
    if let Ok(request) = LlamaRequest::parse(bytes, limits) {
        let spec = &request.generation.spec.engine;
        assert!(spec.choices == 1 && spec.sampling.logit_bias.iter().all(|(id, _)| *id < limits.vocab));
        assert!(!request.prompts.is_empty() && request.prompts.iter().all(|prompt| !prompt.texts().contains(&"")));
    }
    for parse in [parse_embed, parse_embedding] {
        if let Ok(request) = parse(bytes, limits) {
            assert!(!request.inputs.is_empty());
        }
    }
    let _ = parse_name(bytes, limits);
}

fn check(request: &ChatRequest, limits: &ModelLimits) {
    let (spec, s) = (&request.generation.spec.engine, &request.generation.spec.engine.sampling);
    assert_eq!(spec.choices, 1, "only chat has choices");
    assert!(s.temperature >= 0.0 && s.top_p > 0.0 && s.top_p <= 1.0 && s.repetition_penalty > 0.0);
    assert!(spec.end_ids.iter().all(|&id| id < limits.vocab));
    assert!(request.generation.spec.stop.iter().all(|text| !text.is_empty()));
    let messages = &request.conversation.messages;
    assert!(!messages.is_empty() && messages.iter().all(|message| message.content.is_some()));
}

/// A conversation begins with one system message at most, in all dialects; later ones are reminders.
fn begins_with_one_system(request: &ChatRequest) {
    let messages = &request.conversation.messages;
    let leading = messages.iter().take_while(|message| message.role == Role::System).count();
    assert!(leading <= 1, "what a conversation begins with is one message");
    let mut later = messages[leading..].iter();
    assert!(
        later.all(|message| message.role != Role::System || message.name.is_none()),
        "no template shows a reminder's name"
    );
}
