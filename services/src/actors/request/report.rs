//! Reports: what a reply tells about its request beside text and usage. One list of them goes from where they arise to
//! where a dialect writes its reply, so a new report is one variant here and one writer in each dialect that tells it.

use super::speculation_report::{SourceDrafts, SpeculationReport};
use super::token_report::DocumentName;
use chimere_engine::constraint::Sources;
use chimere_engine::engram::Origin;
use std::time::Duration;

/// A report about one request, over all of its choices. A reply tells them in the order of their list: a report that
/// adds to another one comes after it.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// How thinking went, for a request that says something about it.
    Thinking(ThinkingReport),
    /// The answer without a thought that was tried; adds to the report on thinking.
    Probe(ProbeReport),
    /// Sources of rules that yielded for at least one token, because their rule would have left no token.
    Yielded(Sources),
    /// Drafted tokens, where there were some.
    Speculation(SpeculationReport),
    /// Drafts from the answer that the request predicted.
    Prediction(SourceDrafts),
    /// Effect of tables and documents, for a request that uses some.
    Engram(Box<EngramReport>),
    /// Examples that were put before the question; adds to the report on Engram.
    Examples(ExamplesReport),
    /// What the server did for a turn in which it searched.
    Turn(TurnReport),
    /// Steps of a pipeline; adds to the report on the turn.
    Pipeline(Box<PipelineReport>),
}

/// The steps of a pipeline that gave an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PipelineReport {
    /// Name of the pipeline.
    pub name: String,
    /// Each step that was done, in order.
    pub steps: Vec<PipelineStepReport>,
    /// The budget that was used up, if one was.
    pub early: Option<&'static str>,
}

/// A step of a pipeline that was done.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineStepReport {
    /// Its name in the file, or its kind.
    pub name: String,
    /// What came of it.
    pub outcome: &'static str,
    /// How long it took.
    pub took: Duration,
    /// Tokens that were generated.
    pub tokens: u32,
}

/// What the server did for a turn in which it searched, or ran tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnReport {
    /// Generations that it took.
    pub rounds: u32,
    /// Searches of files within it.
    pub searches: u32,
    /// Passages that the model read.
    pub passages: u32,
    /// How probable it is that they have the answer, if that was asked.
    pub sufficiency: Option<f64>,
    /// Calls of tools beside these searches.
    pub calls: Vec<CallReport>,
    /// Time of the service's own between generations: from the last token of one to the admission of the next, without
    /// what was searched for and run there.
    pub own: Duration,
}

/// A call that the server ran within a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallReport {
    /// The name that the model called the tool by.
    pub tool: String,
    /// How long it took.
    pub took: Duration,
    /// Bytes of what the tool said.
    pub bytes: usize,
    /// It could not do it.
    pub failed: bool,
}

/// Examples that a conversation got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExamplesReport {
    /// Name of the collection that the examples are from.
    pub collection: String,
    /// Ids of its items, the one most like the question first.
    pub ids: Vec<String>,
    /// Tokens of the question, which were read once more to find them.
    pub query_tokens: u32,
}

/// How long the choices thought, and why each thought ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThinkingReport {
    /// Thinking tokens of all choices: those that the model chose, not those that closed it.
    pub tokens: u32,
    /// Why it ended, by choice: `model`, `budget`, `certain`, `off` (not to think was asked for), `sure` (the answer
    /// was sure without), `cut off` (the choice ended first), `none` (the model did not think).
    pub ended: Vec<&'static str>,
}

/// Result of trying an answer without a thought.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProbeReport {
    /// Tokens of the answer that were generated for it.
    pub tokens: u32,
    /// The most entropy that one of them had up to the first that had too much, as a share of the greatest that the
    /// vocabulary allows.
    pub entropy: f32,
    /// True if the entropy was low enough to answer without a thought.
    pub sure: bool,
}

/// Effect of tables and documents on a request, over all its choices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngramReport {
    /// Positions that the tables were asked about.
    pub lookups: u32,
    /// Of these, the ones where a table knew what might follow.
    pub hits: u32,
    /// Tokens that became others than they would have been; `None` where the device cannot tell.
    pub changed_tokens: Option<u32>,
    /// Where changed tokens come from, if that was asked for.
    pub sources: Option<Vec<ChangedToken>>,
    /// Documents that said otherwise, each with the later one that was followed.
    pub contradicted: Vec<(u32, u32)>,
    /// Ids and titles of the documents, as far as they have some.
    pub names: Vec<DocumentName>,
}

impl EngramReport {
    /// With that of a later generation of the same answer, whose documents are the same. Places of changed tokens are
    /// those within their generation.
    pub fn with(&self, later: Self) -> Self {
        let sources = self.sources.iter().flatten().cloned().chain(later.sources.into_iter().flatten());
        let sources: Vec<ChangedToken> = sources.collect();
        Self {
            lookups: self.lookups + later.lookups,
            hits: self.hits + later.hits,
            changed_tokens: self.changed_tokens.zip(later.changed_tokens).map(|(a, b)| a + b),
            sources: self.sources.as_ref().map(|_| sources),
            ..later
        }
    }
}

/// A token that Engram may have changed, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedToken {
    /// Number of the choice among all of the request.
    pub choice: u32,
    /// Number of the token within the choice.
    pub index: u32,
    /// The token by itself.
    pub text: String,
    /// Which document, and where in it; or the tables.
    pub origin: Origin,
}
