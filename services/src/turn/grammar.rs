//! From the form that a request wants of its answer and its calls to a grammar. Grammars are made on threads of
//! their own: a hard one takes a second, and neither a prompt nor the network may wait for it.

use super::error::TurnError;
use super::options::AskedForm;
use crate::holder::Holder;
use crate::limits;
use crate::text::grammar::{Calls, FormError, GrammarStart, Grammars, Structure};
use crate::text::tools::CallForm;
use crate::text::{TextPool, Thinking, Tokenizer};
use chimere_engine::ids::TokenId;
use serde_json::Value as Json;
use std::sync::Arc;

/// What grammars are made with, and the threads that make them.
pub struct GrammarMaker {
    grammars: Arc<Grammars>,
    pool: TextPool,
}

impl GrammarMaker {
    /// For a model with this tokenizer, whose answers end with one of `end_ids` and which writes `calls` so.
    pub fn new(tokenizer: Arc<Tokenizer>, end_ids: Vec<TokenId>, calls: CallForm) -> Result<Self, String> {
        let pool =
            TextPool::aside("grammars", limits::GRAMMAR_THREADS, limits::GRAMMAR_JOBS_MAX, limits::GRAMMAR_STACK_BYTES);
        let pool = pool.map_err(|e| format!("threads of grammars: {e}"))?;
        Ok(Self { grammars: Arc::new(Grammars::new(tokenizer, end_ids).with_calls(calls)), pool })
    }

    /// The grammar that the choices of a request keep to; `None` where nothing is asked for. `thinking` says how an
    /// answer begins, and is `None` where there are no thoughts.
    pub(super) async fn grammar_of(
        &self,
        holder: Holder,
        form: Option<AskedForm>,
        calls: Option<Calls>,
        thinking: Option<Thinking>,
    ) -> Result<Option<GrammarStart>, TurnError> {
        if form.is_none() && calls.is_none() {
            return Ok(None);
        }
        let field = form.as_ref().map_or("tools", |asked| asked.field);
        let structure = Structure { form: form.map(|asked| asked.form), calls };
        let grammars = self.grammars.clone();
        let made = self
            .pool
            .run(holder, move || grammars.compile(&structure)?.after(thinking))
            .await
            .map_err(TurnError::GrammarThreads)?;
        made.map(Some).map_err(|error| refused(field, &error))
    }

    /// The grammar of a generation that keeps to the rules of another one before it, whose prompt began its answer so.
    pub(super) fn again(rules: &GrammarStart, thinking: Option<Thinking>) -> Result<GrammarStart, TurnError> {
        rules.again(thinking).map_err(|error| refused("tools", &error))
    }

    /// Why a text is not JSON that a schema allows; `None` if it is.
    pub(super) async fn misfit(
        &self,
        holder: Holder,
        (schema, text): (Json, String),
    ) -> Result<Option<String>, TurnError> {
        let grammars = self.grammars.clone();
        let looked = self.pool.run(holder, move || grammars.misfit(&schema, &text)).await;
        looked.map_err(TurnError::GrammarThreads)?.map_err(|error| refused("model", &error))
    }

    /// The rule that an answer's quotes are of some passages, for a tool that asks for it.
    pub(super) async fn quotes_of(
        &self,
        holder: Holder,
        passages: Vec<Arc<str>>,
        field: String,
        thinking: Option<Thinking>,
    ) -> Result<GrammarStart, TurnError> {
        let grammars = self.grammars.clone();
        let job = move || grammars.quotes(passages.iter().map(|text| &**text));
        let made = self.pool.run(holder, job).await.map_err(TurnError::GrammarThreads)?;
        let quotes = made.map_err(|why| TurnError::invalid(&field, format!("`{field}.quotes`: {why}")))?;
        Ok(GrammarStart::of_quotes(quotes, thinking))
    }
}

fn refused(field: &str, error: &FormError) -> TurnError {
    let code = if error.too_large { "grammar_too_large" } else { "invalid_grammar" };
    TurnError::coded(field, format!("`{field}` cannot be followed: {error}"), code).counted_as("grammar")
}
