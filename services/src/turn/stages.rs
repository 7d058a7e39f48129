//! The stages of a preparation: one after the other they make of what a client says one request for the engine.

use super::context::{stores_exist, with_examples, with_passages};
use super::error::TurnError;
use super::grammar::GrammarMaker;
use super::options::QueryWriter;
use super::preparation::Preparation;
use super::prompts::{INLINE_BYTES, ids_of, prompt_of, work};
use super::reader::of_answers;
use super::tables::tables_of;
use super::thinking::prompt_and_thinking;
use crate::actors::request::generation_request::{GenerationRequest, ThinkingPlan};
use crate::actors::request::output::FileSearch;
use crate::actors::request::report::{Report, TurnReport};
use crate::citations::{NumberedSource, NumberedSources};
use crate::text::ChatPrompt;
use std::sync::Arc;

/// A step before a generation. A new step is one more stage here, in one of the two lists, and in
/// [`Preparation::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Examples from a collection are put before the question.
    Examples,
    /// Passages from stores of files are put before the question.
    Passages,
    /// The conversation becomes a prompt, with the rules for its thoughts.
    Prompt,
    /// The form of the answer and of its calls becomes a grammar.
    Grammar,
    /// Tables are found by their names, and documents become tables.
    Tables,
    /// The text that the answer may be becomes tokens.
    Prediction,
}

/// The stages that need the words of the request.
const PREPARATION: [Stage; 4] = [Stage::Examples, Stage::Passages, Stage::Prompt, Stage::Grammar];
/// The stages behind them, which need its prompts.
const COMPLETION: [Stage; 2] = [Stage::Tables, Stage::Prediction];

impl Preparation<'_> {
    /// Runs the stages that need the words of the request, after which nothing as large as its body is kept.
    pub async fn prepare(&mut self) -> Result<(), TurnError> {
        for stage in PREPARATION {
            self.run(stage).await?;
        }
        Ok(())
    }

    /// The prompt behind which a conversation's answer would begin, however long it is: with the examples and the
    /// passages that are looked for. Whether these suffice is not asked.
    pub async fn prompt(mut self) -> Result<ChatPrompt, TurnError> {
        if let Some(search) = self.chat.as_mut().and_then(|chat| chat.file_search.as_mut()) {
            search.sufficiency_min = 0.0;
        }
        for stage in [Stage::Examples, Stage::Passages] {
            self.run(stage).await?;
        }
        let (conversation, bytes) = self.chat.take().map(|chat| (chat.conversation, chat.bytes)).unwrap_or_default();
        prompt_of(self.services, self.caller.holder, conversation, bytes, usize::MAX).await
    }

    /// The passages that stand before a conversation's question, and how probable it is that they suffice. Nothing
    /// else is prepared.
    pub(super) async fn passages(mut self) -> Result<Option<FileSearch>, TurnError> {
        self.run(Stage::Passages).await?;
        Ok(self.request.searches.pop())
    }

    /// Runs the other stages and gives the request.
    pub async fn complete(mut self) -> Result<GenerationRequest, TurnError> {
        self.services.check_open()?;
        for stage in COMPLETION {
            self.run(stage).await?;
        }
        Ok(self.into_request())
    }

    async fn run(&mut self, stage: Stage) -> Result<(), TurnError> {
        match stage {
            Stage::Examples => self.add_examples().await,
            Stage::Passages => self.add_passages().await,
            Stage::Prompt => self.make_prompt().await,
            Stage::Grammar => self.make_grammar().await,
            Stage::Tables => self.find_tables().await,
            Stage::Prediction => self.tokenize_prediction().await,
        }
    }

    async fn add_examples(&mut self) -> Result<(), TurnError> {
        let Some(wanted) = self.engram.semantic.take() else { return Ok(()) };
        let Some(mut chat) = self.chat.take() else { return Ok(()) };
        let report = with_examples(self, wanted, &mut chat).await?;
        self.request.reports.push(Report::Examples(report));
        self.chat = Some(chat);
        Ok(())
    }

    async fn add_passages(&mut self) -> Result<(), TurnError> {
        let Some(mut chat) = self.chat.take() else { return Ok(()) };
        let hosts = chat.hosts && chat.made.is_none();
        match chat.file_search.take() {
            None => {}
            Some(wanted) if wanted.queries == QueryWriter::Model => {
                stores_exist(self.services, &self.caller, &wanted)?;
            }
            Some(wanted) => {
                let search = with_passages(self, wanted, &mut chat).await?;
                let passages = search.results.len() as u32;
                let sufficiency = search.sufficiency;
                let report = TurnReport { rounds: 1, searches: 1, passages, sufficiency, ..TurnReport::default() };
                self.request.reports.push(Report::Turn(report));
                self.request.searches.push(search);
            }
        }
        if hosts {
            self.request.keeps_tokens = true;
            self.kept = Some((chat.conversation.clone(), chat.sources.clone()));
        }
        self.chat = Some(chat);
        Ok(())
    }

    async fn make_prompt(&mut self) -> Result<(), TurnError> {
        let Some(mut chat) = self.chat.take() else { return Ok(()) };
        let sources = std::mem::take(&mut chat.sources);
        let texts = || sources.iter().map(|source| source.text.clone()).collect();
        self.quoted = chat.quoted_for.take().map(|field| (texts(), field));
        let sources = prepared(self, sources).await?;
        let made = prompt_and_thinking(self, chat).await?;
        self.begins = Some(made.prompt.thinking);
        let request = &mut self.request;
        (request.prompt_field, request.reader) = ("messages", of_answers(made.prompt.thinking, made.tools, sources));
        (request.prompts, request.turns) = (vec![made.prompt.ids.into()], made.prompt.turns.into());
        request.thinking = made.thinking;
        request.reports.extend(made.probe.map(Report::Probe));
        Ok(())
    }

    async fn make_grammar(&mut self) -> Result<(), TurnError> {
        let (form, calls) = (self.form.take(), self.calls.take());
        let (grammars, holder) = (&self.services.grammars, self.caller.holder);
        if let Some(rules) = self.rules.take() {
            self.request.grammar = Some(GrammarMaker::again(&rules, self.begins)?);
            return Ok(());
        }
        self.request.grammar = match self.quoted.take() {
            Some((passages, field)) if form.is_none() && calls.is_none() => {
                Some(grammars.quotes_of(holder, passages, field, self.begins).await?)
            }
            Some((_, field)) => {
                let message =
                    format!("`{field}.quotes` cannot be \"verbatim\" beside a form of the answer or of its calls");
                return Err(TurnError::invalid(format!("{field}.quotes"), message));
            }
            None => grammars.grammar_of(holder, form, calls, self.begins).await?,
        };
        Ok(())
    }

    async fn find_tables(&mut self) -> Result<(), TurnError> {
        let wanted = std::mem::take(&mut self.engram);
        let (prompts, end_ids) = (&self.request.prompts, &self.request.spec.engine.end_ids);
        let found = tables_of(self.services, &self.caller, wanted, prompts, end_ids).await?;
        self.request.engram = found;
        Ok(())
    }

    /// No answer is longer than the context.
    async fn tokenize_prediction(&mut self) -> Result<(), TurnError> {
        let Some(text) = self.prediction.take() else { return Ok(()) };
        let mut ids = ids_of(self.services, self.caller.holder, text, false).await?;
        ids.truncate(self.services.handles.context as usize);
        self.predicted = Some(ids.into());
        Ok(())
    }

    fn into_request(self) -> GenerationRequest {
        let mut request = self.request;
        // Drawn seeds keep to 53 bits, which every JSON reader takes exactly.
        let seed = self.seed.unwrap_or_else(|| rand::random::<u64>() >> 11);
        // Either all prompts have tables or none has.
        let waits_for = request.deferred_rules(0).sources();
        let rules = request.thinking.as_ref().and_then(ThinkingPlan::rules);
        request.spec = request.spec.complete(seed, rules, waits_for, self.cache, self.predicted);
        request
    }
}

/// Sources whose sentences can be looked up, if there are any.
async fn prepared(
    preparation: &Preparation<'_>,
    sources: Vec<NumberedSource>,
) -> Result<Option<Arc<NumberedSources>>, TurnError> {
    if sources.is_empty() {
        return Ok(None);
    }
    let bytes = sources.iter().map(|source| source.text.len()).sum();
    let job = move || Arc::new(NumberedSources::new(sources));
    work(&preparation.services.lanes, preparation.caller.holder, bytes, bytes <= INLINE_BYTES, job).await.map(Some)
}
