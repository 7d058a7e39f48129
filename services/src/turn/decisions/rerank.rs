//! Documents in the order in which they answer a query: of each it is asked whether it does.

use super::{Case, Cost, Run, probabilities};
use crate::decide::DecisionQuestion;
use crate::metrics;
use crate::text::{Message, Role};
use crate::turn::{TurnCaller, TurnError, TurnServices};
use chimere_engine::ids::CacheScope;

/// The question's name and what it says; measured in `docs/using/decisions.md`.
const NAME: &str = "relevant";
const STATEMENT: &str = "Does the text answer the query?";

/// Documents to rank, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct RerankRequest {
    /// What is looked for.
    pub query: String,
    /// The texts, of which there is at least one.
    pub documents: Vec<String>,
    /// The most to name; all if nothing is said.
    pub top_n: Option<usize>,
    /// Whether its prompts are looked up and kept, and among whose.
    pub cache: Option<CacheScope>,
}

/// A document's place in the ranking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// Its number in the request.
    pub index: usize,
    /// How probable it is that it answers the query.
    pub relevance: f64,
}

/// The documents, the most relevant first and of equals the first one, and what that cost.
pub async fn rerank(
    services: &TurnServices,
    caller: &TurnCaller,
    asked: &RerankRequest,
) -> Result<(Vec<Ranked>, Cost), TurnError> {
    let question = DecisionQuestion::predicate(Some(NAME.into()), STATEMENT.into());
    // The query first: all prompts begin with it.
    let input =
        |document: &String| vec![Message::new(Role::User, format!("Query: {}\n\nText: {document}", asked.query))];
    let inputs: Vec<Vec<Message>> = asked.documents.iter().map(input).collect();
    let cases: Vec<Case> =
        inputs.iter().enumerate().map(|(at, input)| Case { input, question: &question, at }).collect();
    let run = Run { field: "documents", option_field: "documents", orders: 1, cache: asked.cache };
    let (all, cost) = probabilities(services, caller, &cases, run).await?;
    ::metrics::counter!(metrics::DECISIONS, "type" => "rerank").increment(asked.documents.len() as u64);
    let mut ranked: Vec<Ranked> = all.iter().enumerate().map(|(index, p)| Ranked { index, relevance: p[0] }).collect();
    ranked.sort_by(|a, b| b.relevance.total_cmp(&a.relevance));
    ranked.truncate(asked.top_n.unwrap_or(usize::MAX));
    Ok((ranked, cost))
}
