//! A request for a generation: what a request actor runs, checked against the model's limits.

use super::output::FileSearch;
use super::reader::{Plain, Reader};
use super::report::Report;
use super::spec::RequestSpec;
use super::token_report::{DocumentName, TokenEngram};
use crate::actors::deferred_rules::DeferredRules;
use crate::text::grammar::GrammarStart;
use crate::traces::Trace;
use chimere_engine::constraint::thinking::Thinking;
use chimere_engine::engram::{Origin, RequestTables};
use chimere_engine::ids::TokenId;
use chimere_engine::scheduler::Terms;
use std::sync::Arc;

/// A request for a generation, checked against the model's limits. The stages of a turn fill it in.
pub struct GenerationRequest {
    /// Each becomes a request of its own to the scheduler.
    pub prompts: Vec<Arc<[TokenId]>>,
    /// The field that the prompts came from, for errors.
    pub prompt_field: &'static str,
    /// Where turns begin in the only prompt of a conversation.
    pub turns: Arc<[u32]>,
    /// The options of each prompt's generation.
    pub spec: RequestSpec,
    /// Account, limits and deadline of the request.
    pub terms: Terms,
    /// The plan for thinking, if the request says anything about it.
    pub thinking: Option<ThinkingPlan>,
    /// Tables and documents of each prompt, if there are some.
    pub engram: EngramPlan,
    /// What the output of each choice has to keep to.
    pub grammar: Option<GrammarStart>,
    /// The ids of the first choice's tokens are kept for whoever goes on from them.
    pub keeps_tokens: bool,
    /// Searches that were made for its prompt, in their order.
    pub searches: Vec<FileSearch>,
    /// The trace that is sent when the request has ended, if traces are wanted.
    pub trace: Option<Trace>,
    /// Reports on what was done for its prompt, which come behind those on its output.
    pub reports: Vec<Report>,
    /// How the text of a choice, given its number, is understood.
    pub reader: Box<dyn Fn(usize) -> Box<dyn Reader>>,
}

impl GenerationRequest {
    /// A request without prompts and without rules, whose output is plain text.
    pub fn new(spec: RequestSpec, terms: Terms) -> Self {
        Self {
            prompts: Vec::new(),
            prompt_field: "prompt",
            turns: Arc::new([]),
            spec,
            terms,
            thinking: None,
            engram: EngramPlan::default(),
            grammar: None,
            keeps_tokens: false,
            searches: Vec::new(),
            trace: None,
            reports: Vec::new(),
            reader: Box::new(|_| Box::new(Plain)),
        }
    }

    /// The rules of deferred sources for the request that is made of this prompt.
    pub fn deferred_rules(&self, prompt: usize) -> DeferredRules {
        DeferredRules { tables: self.engram.tables.get(prompt).cloned(), grammar: self.grammar.clone() }
    }

    /// Number of tokens of all prompts.
    pub fn prompt_tokens(&self) -> usize {
        self.prompts.iter().map(|prompt| prompt.len()).sum()
    }

    /// Number of choices of all prompts.
    pub fn choices(&self) -> usize {
        self.prompts.len() * self.spec.engine.choices as usize
    }
}

/// Tables and documents of a request.
#[derive(Default)]
pub struct EngramPlan {
    /// As many as there are prompts, or none.
    pub tables: Vec<Arc<RequestTables>>,
    /// The documents' ids and titles, as far as they have some.
    pub names: Vec<DocumentName>,
    /// True if the reply is to tell where each changed token comes from.
    pub sources: bool,
}

impl EngramPlan {
    /// Where a token comes from, if it is the one that Engram wanted most at this output of a prompt's choice.
    pub fn origin(&self, (prompt, choice, index): (usize, u32, u32), token: TokenId) -> Option<Origin> {
        let source = self.tables.get(prompt)?.tally.source(choice, index)?;
        (source.token == token).then_some(source.origin)
    }

    /// The report on one token, for a prompt that has tables or documents.
    pub fn token(&self, at: (usize, u32, u32), token: TokenId, changed: Option<bool>) -> Option<TokenEngram> {
        self.tables.get(at.0)?;
        let source = self.origin(at, token).map(|origin| {
            let name = match origin {
                Origin::Document(place, _) => self.names.get(place.document as usize).cloned(),
                Origin::Tables(_) => None,
            };
            (origin, name.unwrap_or_default())
        });
        Some(TokenEngram { changed, source })
    }
}

/// The plan for thinking of a request that says something about it.
#[derive(Clone, Debug)]
pub enum ThinkingPlan {
    /// It thinks, by these rules.
    Bounded(Arc<Thinking>),
    /// It answers at once, for this reason.
    Skipped(&'static str),
}

impl ThinkingPlan {
    /// The rules that it thinks by.
    pub fn rules(&self) -> Option<Arc<Thinking>> {
        match self {
            Self::Bounded(rules) => Some(rules.clone()),
            Self::Skipped(_) => None,
        }
    }
}
