//! What a model knows about text, in one place: its tokenizer, its template, and what they say about a prompt.

use super::guard::Guard;
use super::template::{ChatTemplate, Conversation, TemplateError};
use super::tokenizer::{Tokenizer, TokenizerError};
use chimere_engine::format::TextAssets;
use chimere_engine::ids::TokenId;
use std::sync::Arc;

/// Tokenizer and template of the served model.
#[derive(Debug)]
pub struct TextModel {
    tokenizer: Arc<Tokenizer>,
    template: Option<ChatTemplate>,
}

/// A conversation as token ids.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatPrompt {
    /// Ends where the assistant begins to speak.
    pub ids: Vec<TokenId>,
    /// How the assistant's turn begins.
    pub thinking: Thinking,
}

/// Where the output stands with respect to `<think>` when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
    /// The prompt opened it: the output begins with reasoning.
    Open,
    /// The prompt closed it: the output is the answer.
    Closed,
    /// The prompt says nothing: the output may open it.
    Free,
}

/// Why a model's text part cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TextError {
    /// The tokenizer is not supported or damaged.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The template does not compile.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

/// Why a conversation has no prompt.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PromptError {
    /// It cannot be rendered.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// What it is rendered to cannot fit, whatever its tokens are.
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

/// A text that is known not to fit before it was tokenized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("prompt has at least {least} tokens ({bytes} bytes), the context has room for {max}")]
pub struct TooLong {
    /// Bytes of the text.
    pub bytes: usize,
    /// The fewest tokens that so many bytes can be.
    pub least: usize,
    /// The most tokens that fit.
    pub max: usize,
}

impl TextModel {
    /// From what a model file says about text.
    pub fn new(assets: &TextAssets) -> Result<Self, TextError> {
        let tokenizer = Arc::new(Tokenizer::new(&assets.tokenizer)?);
        let compile = |source: &String| ChatTemplate::new(source, Guard::new(&tokenizer));
        let template = assets.chat_template.as_ref().map(compile).transpose()?;
        Ok(Self { tokenizer, template })
    }

    /// Shared with the detokenizers of running requests.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Models that were not made for conversations have none.
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// Whether a text may have at most `tokens_max` tokens, as far as its length tells.
    pub fn may_fit(&self, text: &str, tokens_max: usize) -> Result<(), TooLong> {
        let least = self.tokenizer.tokens_min(text);
        if least > tokens_max { Err(TooLong { bytes: text.len(), least, max: tokens_max }) } else { Ok(()) }
    }

    /// The prompt of a conversation. Takes milliseconds for long ones, unless their length alone says that they have more than
    /// `tokens_max` tokens.
    pub fn chat_prompt(&self, conversation: &Conversation, tokens_max: usize) -> Result<ChatPrompt, PromptError> {
        let template = self.template.as_ref().ok_or_else(|| TemplateError::Objection("this model has no chat template".into()))?;
        let text = template.render(conversation)?;
        self.may_fit(&text, tokens_max)?;
        Ok(ChatPrompt { ids: self.tokenizer.encode_guarded(&text), thinking: Thinking::after(&text) })
    }
}

impl Thinking {
    /// What a prompt's end says.
    pub fn after(prompt: &str) -> Self {
        let end = prompt.trim_end();
        if end.ends_with("<think>") {
            Self::Open
        } else if end.ends_with("</think>") {
            Self::Closed
        } else {
            Self::Free
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_engine::format::{GenerationDefaults, TokenizerSource};
    use serde_json::json;

    fn model(template: Option<&str>) -> TextModel {
        let file = include_bytes!("../../../engine/tests/golden/moe/tokenizer.json");
        let assets = TextAssets {
            tokenizer: TokenizerSource::Json(file.to_vec()),
            chat_template: template.map(str::to_owned),
            end_ids: vec![],
            defaults: GenerationDefaults::default(),
        };
        TextModel::new(&assets).unwrap()
    }

    fn ask(enable_thinking: bool) -> Conversation {
        Conversation {
            messages: vec![json!({"role": "user", "content": "hi"})],
            options: serde_json::Map::from_iter([("enable_thinking".to_owned(), json!(enable_thinking))]),
            ..Default::default()
        }
    }

    #[test]
    fn the_prompt_s_end_says_whether_the_output_begins_with_reasoning() {
        let model = model(Some(include_str!("../../../engine/tests/golden/moe/chat_template.jinja")));
        assert_eq!(model.chat_prompt(&ask(true), usize::MAX).unwrap().thinking, Thinking::Open);
        assert_eq!(model.chat_prompt(&ask(false), usize::MAX).unwrap().thinking, Thinking::Closed);
        assert_eq!(Thinking::after("<think>a</think>\nuser: <think> is a tag"), Thinking::Free);
    }

    #[test]
    fn a_prompt_s_markup_is_single_tokens() {
        let model = model(Some(include_str!("../../../engine/tests/golden/moe/chat_template.jinja")));
        let prompt = model.chat_prompt(&ask(true), usize::MAX).unwrap();
        assert_eq!(model.tokenizer().decode(&prompt.ids, true), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n");
        assert_eq!(prompt.ids[prompt.ids.len() - 2], model.tokenizer().id("<think>").unwrap());
    }

    #[test]
    fn a_model_without_a_template_has_no_conversations() {
        let error = model(None).chat_prompt(&ask(true), usize::MAX).unwrap_err();
        assert_eq!(error.to_string(), "this model has no chat template");
    }
}
