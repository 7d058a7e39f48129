//! The preparation of one generation: what it has to say, and the request that its stages make of it.

use super::caller::TurnCaller;
use super::options::{AskedForm, ChatRequest, EngramRequest, FileSearchRequest, Generation};
use super::services::TurnServices;
use crate::actors::request::generation_request::GenerationRequest;
use crate::citations::NumberedSource;
use crate::text::grammar::{Calls, GrammarStart};
use crate::text::thinking::Reasoning;
use crate::text::{ChatPrompt, Conversation, Thinking, Tools};
use chimere_engine::ids::{CacheScope, TokenId};
use std::sync::Arc;

/// A generation that is prepared: what its stages have not taken yet, and what they have made.
pub struct Preparation<'a> {
    pub(super) services: &'a TurnServices,
    pub(super) caller: TurnCaller,
    /// Among whose prompts its own is looked up, if it is.
    pub(super) cache: Option<CacheScope>,
    pub(super) chat: Option<ChatTurn>,
    pub(super) calls: Option<Calls>,
    /// The rules that the round before kept to, which are its own too.
    pub(super) rules: Option<GrammarStart>,
    /// The passages that the answer's quotes are of, and the tool that asks for it.
    pub(super) quoted: Option<(Vec<Arc<str>>, String)>,
    pub(super) form: Option<AskedForm>,
    pub(super) engram: EngramRequest,
    pub(super) prediction: Option<String>,
    /// Tokens of the prediction.
    pub(super) predicted: Option<Arc<[TokenId]>>,
    pub(super) seed: Option<u64>,
    /// The conversation that became the prompt, and the texts in it that may be cited, for a turn whose later rounds go
    /// on from it.
    pub(super) kept: Option<(Conversation, Vec<NumberedSource>)>,
    /// How a chat's answer begins.
    pub(super) begins: Option<Thinking>,
    pub(super) request: GenerationRequest,
}

/// A conversation that has no prompt yet.
pub(super) struct ChatTurn {
    pub(super) conversation: Conversation,
    /// Bytes of the body that it came in.
    pub(super) bytes: usize,
    pub(super) reasoning: Option<Reasoning>,
    /// The tools that may be called.
    pub(super) tools: Option<Tools>,
    /// The texts in the conversation that may be cited.
    pub(super) sources: Vec<NumberedSource>,
    /// Stores that are searched, before the answer or within it.
    pub(super) file_search: Option<FileSearchRequest>,
    /// The server runs calls within the answer.
    pub(super) hosts: bool,
    /// Its prompt, where that goes on from the one of an earlier round.
    pub(super) made: Option<ChatPrompt>,
    /// The tool that wants quotes to be verbatim, if one does.
    pub(super) quoted_for: Option<String>,
    /// Passages that were found before, which take the place of the search's.
    pub(super) found: Option<FoundPassages>,
}

/// Passages that a pipeline found for a conversation, in whose generations they stand.
#[derive(Clone, Debug, Default)]
pub(super) struct FoundPassages {
    /// The passages, the best first.
    pub(super) sources: Vec<NumberedSource>,
    /// How probable it is that they suffice, once that was asked.
    pub(super) sufficiency: Option<f64>,
    /// Messages at the end of the conversation that stand behind the question which they answer.
    pub(super) behind: usize,
}

impl<'a> Preparation<'a> {
    /// The first generation of a conversation that came in a body of this many bytes.
    pub fn of_chat(
        services: &'a TurnServices,
        caller: TurnCaller,
        cache: Option<CacheScope>,
        (chat, bytes): (ChatRequest, usize),
    ) -> Self {
        let ChatRequest { generation, conversation, tools, calls, reasoning, sources, file_search, hosted, .. } = chat;
        let mut preparation = Self::of_texts(services, caller, cache, (Vec::new(), generation));
        let (made, quoted_for, found, hosts) = (None, None, None, !hosted.is_empty());
        let of_chat =
            ChatTurn { conversation, bytes, reasoning, tools, sources, file_search, hosts, made, quoted_for, found };
        preparation.chat = Some(of_chat);
        preparation.calls = calls;
        preparation
    }

    /// A later generation of a turn, whose prompt was made behind the one before, and whose rules were made before it
    /// if it has some.
    pub(super) fn of_round(
        services: &'a TurnServices,
        caller: TurnCaller,
        cache: Option<CacheScope>,
        (chat, prompt, rules): (ChatRequest, ChatPrompt, Option<GrammarStart>),
    ) -> Self {
        let mut preparation = Self::of_chat(services, caller, cache, (chat, 0));
        preparation.request.keeps_tokens = true;
        preparation.rules = rules;
        if let Some(chat) = &mut preparation.chat {
            chat.made = Some(prompt);
        }
        preparation
    }

    /// Takes passages that were found before, for the search that the request asks for.
    pub(super) fn with_found(mut self, found: FoundPassages) -> Self {
        if let Some(chat) = &mut self.chat {
            chat.found = Some(found);
        }
        self
    }

    /// The conversation that became the prompt, and the texts in it that may be cited, where the server may run calls
    /// in the turn.
    pub fn take_conversation(&mut self) -> Option<(Conversation, Vec<NumberedSource>)> {
        self.kept.take()
    }

    /// The generation of prompts that no template is laid around.
    pub fn of_texts(
        services: &'a TurnServices,
        caller: TurnCaller,
        cache: Option<CacheScope>,
        (prompts, generation): (Vec<Arc<[TokenId]>>, Generation),
    ) -> Self {
        let Generation { spec, seed, engram, form, prediction, .. } = generation;
        let request = GenerationRequest { prompts, ..GenerationRequest::new(spec, caller.terms) };
        let (chat, calls, rules, quoted, kept, begins, predicted) = (None, None, None, None, None, None, None);
        Self {
            services,
            caller,
            cache,
            chat,
            calls,
            rules,
            quoted,
            form,
            engram,
            prediction,
            predicted,
            seed,
            kept,
            begins,
            request,
        }
    }
}
