//! Model files: GGUF and Hugging Face directories, read into one shape.
//!
//! What is here reads bytes and names; what the tensors mean is in [`crate::model`]. Text is handed over as the bytes
//! that the file carries ([`TextAssets`]): the tokenizer and the template engine live elsewhere.

pub mod blocks;
mod error;
mod fault;
pub mod gguf;
pub mod hf;
mod mapped;
mod record;
pub mod synth;
mod tensor;
mod text;

pub use blocks::BlockType;
pub use error::{LoadError, NotFinite, Problem};
pub use gguf::Gguf;
pub use hf::HfDir;
pub use mapped::Files;
pub(crate) use record::{KeyValue, ReadNames};
pub use tensor::Tensor;

use crate::ids::TokenId;

/// Bytes of a file that says something in text, such as tokenizer.json: many times the largest vocabulary.
const TEXT_FILE_BYTES_MAX: u64 = 1 << 30;

/// What a model file says about text, as it says it.
#[derive(Clone, Debug)]
pub struct TextAssets {
    /// Where the tokenizer comes from.
    pub tokenizer: TokenizerSource,
    /// The Jinja source of the chat template, if the file has one.
    pub chat_template: Option<String>,
    /// The template of conversations with tools, where the file has one of its own for them.
    pub tool_template: Option<String>,
    /// Text of the token that begins a sequence, if the file names one. Templates write it.
    pub bos_token: Option<String>,
    /// Text of the token that ends a sequence, if the file names one.
    pub eos_token: Option<String>,
    /// Ids that end a generation: the file's own, and `<|im_end|>` and `<|endoftext|>` where the vocabulary has them.
    pub end_ids: Vec<TokenId>,
    /// Sampling defaults of the release.
    pub defaults: GenerationDefaults,
}

/// A tokenizer in one of the two shapes that files carry.
#[derive(Clone, Debug)]
pub enum TokenizerSource {
    /// The bytes of a `tokenizer.json`.
    Json(Vec<u8>),
    /// The `tokenizer.ggml.*` arrays of a GGUF file with model `gpt2`.
    Gguf {
        /// Name of the pre-tokenizer: `qwen35` or `qwen2`.
        pre: String,
        /// Token strings in the byte-level alphabet, by id.
        tokens: Vec<String>,
        /// 1 normal, 3 control, 4 user-defined, 5 unused, 6 byte.
        types: Vec<i32>,
        /// `"a b"`, best rank first.
        merges: Vec<String>,
    },
}

/// Sampling defaults from `generation_config.json` or `general.sampling.*`; `None` where the file is silent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// See [`crate::sampling::SamplingParams`] for each.
    pub temperature: Option<f32>,
    /// Tokens that make up this probability are kept.
    pub top_p: Option<f32>,
    /// As many of the most probable tokens are kept.
    pub top_k: Option<u32>,
    /// Tokens of less than this share of the best one's probability are dropped.
    pub min_p: Option<f32>,
    /// What logits of tokens that were there are divided by.
    pub repetition_penalty: Option<f32>,
    /// What is taken from logits of tokens that were generated.
    pub presence_penalty: Option<f32>,
}
