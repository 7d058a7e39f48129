//! The parts of the service that turns use.

use super::error::TurnError;
use super::grammar::GrammarMaker;
use crate::actors::live::LiveRequests;
use crate::actors::phase::Phase;
use crate::actors::request::ServiceHandles;
use crate::decide::DecideSettings;
use crate::documents::Documents;
use crate::embedder::Embedder;
use crate::engram::EngramParts;
use crate::hosted::Toolbox;
use crate::semantic::Collections;
use crate::text::{Lanes, TextModel, Thoughts};
use crate::web::Web;
use chimere_engine::scheduler::Spec;
use std::sync::Arc;
use tokio::sync::watch;

/// The parts of the service that turns use.
pub struct TurnServices {
    /// The model's tokenizer and its chat template.
    pub text: Arc<TextModel>,
    /// Threads for long texts.
    pub lanes: Lanes,
    /// The model's way to think, if it has one.
    pub thoughts: Option<Thoughts>,
    /// Maker of the grammars that answers have to keep to.
    pub grammars: GrammarMaker,
    /// Tables that requests can name.
    pub engram: EngramParts,
    /// Collections of the accounts, which are searched by meaning.
    pub collections: Arc<Collections>,
    /// Documents of the accounts, which are searched for passages.
    pub documents: Arc<Documents>,
    /// Tools of the MCP servers that the operator names.
    pub tools: Arc<Toolbox>,
    /// The web, as far as it is offered.
    pub web: Arc<Web>,
    /// Maker of the vectors of collections.
    pub embedder: Embedder,
    /// How questions with given options are decided.
    pub decide: DecideSettings,
    /// The scheduler, and what else a request actor needs.
    pub handles: ServiceHandles,
    /// Where the service stands in its life.
    pub phase: watch::Receiver<Phase>,
    /// Requests that are not answered yet.
    pub live: LiveRequests,
    /// True if the log is to have the prompts.
    pub log_prompts: bool,
}

impl TurnServices {
    /// An error once the service takes nothing new.
    pub fn check_open(&self) -> Result<(), TurnError> {
        match &*self.phase.borrow() {
            Phase::Starting | Phase::Ready => Ok(()),
            phase => Err(TurnError::Closed(phase.clone())),
        }
    }

    /// The most tokens of a prompt that leave room for the output that is asked for.
    pub fn room(&self, spec: &Spec) -> usize {
        let output = u32::from(spec.max_tokens != Some(0));
        self.handles.context.saturating_sub(output) as usize
    }
}
