//! `POST /v1/chat/completions`.

use super::answer::Chat;
use super::app::App;
use super::error::ApiError;
use super::generate::{Plan, generate};
use super::request::ChatRequest;
use super::text::prompt_of;
use crate::actors::reader::{Answer, Reader};
use crate::text::OutputParser;
use actix_web::{HttpRequest, HttpResponse, web};
use std::sync::Arc;

/// Answers a conversation.
pub(super) async fn chat(app: web::Data<App>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, ApiError> {
    let body = app.body(payload, super::announced(&request)).await?;
    let ChatRequest { generation, conversation, tools } = ChatRequest::parse(&body, &app.limits)?;
    let prompt = prompt_of(&app, conversation).await?;
    let (thinking, tools) = (prompt.thinking, tools.map(Arc::new));
    let call_ids = uuid::Uuid::new_v4().simple().to_string();
    let reader = move |choice: usize| {
        let parser = OutputParser::new(thinking, tools.clone(), format!("call_{}{choice}", &call_ids[..16]));
        Box::new(Answer::new(parser)) as Box<dyn Reader>
    };
    let plan = Plan {
        prompts: vec![prompt.ids.into()],
        prompt_field: "messages",
        score_prompt: None,
        reader: Box::new(reader),
        shape: Chat { logprobs: generation.sampling.logprobs.is_some() },
        id_prefix: "chatcmpl",
        generation,
    };
    generate(&app, &request, plan).await
}
