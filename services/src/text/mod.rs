//! Text in, token ids out, and back. Knows nothing of HTTP and nothing of the engine but the bytes that a model file says about
//! text.

pub mod tokenizer;

pub use tokenizer::Tokenizer;
