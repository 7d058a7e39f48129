//! Text in, token ids out, and back. Knows nothing of HTTP and nothing of the engine but the bytes that a model file
//! says about text.

pub mod call_arguments;
pub mod conversation;
pub mod detokenizer;
pub mod fingerprint;
pub mod grammar;
pub mod guard;
pub mod parser;
pub mod pool;
pub mod prompt;
pub mod sentences;
pub mod stop;
pub mod template;
pub mod thinking;
pub mod tokenizer;
pub mod tools;
pub mod wordpiece;

pub use conversation::{Conversation, IdPlace, Message, RawJson, Role, ToolCall};
pub use detokenizer::Detokenizer;
pub use fingerprint::Fingerprint;
pub use parser::{OutputDelta, OutputParser};
pub use pool::{Lanes, TextPool};
pub use prompt::{ChatPrompt, PromptError, PromptTail, TextModel, Thinking, TooLong};
pub use stop::StopScanner;
pub use template::ChatTemplate;
pub use thinking::Thoughts;
pub use tokenizer::{TokenKind, Tokenizer};
pub use tools::{Tool, Tools};
