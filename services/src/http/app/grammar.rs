//! From what a request says of its answer and its calls to what they are followed by. Grammars are made on threads of
//! their own: a hard one takes a second, and neither a prompt nor the network may wait for it.

use crate::holder::Holder;
use crate::http::body::structured::AskedForm;
use crate::http::wire::error::ApiError;
use crate::limits;
use crate::text::grammar::{Calls, FormError, GrammarStart, Grammars, Structure};
use crate::text::pool::PoolError;
use crate::text::tools::CallForm;
use crate::text::{TextPool, Thinking, Tokenizer};
use actix_web::http::StatusCode;
use chimere_engine::ids::TokenId;
use std::sync::Arc;
use std::time::Duration;

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
    /// What the choices of a request are followed by; `None` where nothing is asked for. `thinking` says how an answer
    /// begins, and is `None` where there are no thoughts.
    pub(in crate::http) async fn grammar_of(
        &self,
        holder: Holder,
        form: Option<AskedForm>,
        calls: Option<Calls>,
        thinking: Option<Thinking>,
    ) -> Result<Option<GrammarStart>, ApiError> {
        if form.is_none() && calls.is_none() {
            return Ok(None);
        }
        let field = form.as_ref().map_or("tools", |asked| asked.field);
        let structure = Structure { form: form.map(|asked| asked.form), calls };
        let grammars = self.grammars.clone();
        let made = self.pool.run(holder, move || grammars.compile(&structure)?.after(thinking)).await.map_err(busy)?;
        made.map(Some).map_err(|error| refused(field, &error))
    }
}

fn refused(field: &str, error: &FormError) -> ApiError {
    let code = if error.too_large { "grammar_too_large" } else { "invalid_grammar" };
    ApiError::invalid(field, format!("`{field}` cannot be followed: {error}")).with_code(code).rejected_as("grammar")
}

fn busy(error: PoolError) -> ApiError {
    match error {
        PoolError::Full { max } => {
            let message =
                format!("there is no room for this grammar to wait for a thread now: all requests share {max} places");
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message);
            error.with_code("queue_full").with_retry_after(Duration::from_secs(1)).rejected_as("text_threads_busy")
        }
        PoolError::Panicked => {
            let message = "making the grammar failed, which is a fault of the server";
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
        }
    }
}
