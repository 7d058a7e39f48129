//! From the field `engram` to what tables do for a request: names become tables, documents become a table of the
//! request's own.

use super::caller::TurnCaller;
use super::error::TurnError;
use super::options::{DocumentRequest, EngramRequest};
use super::services::TurnServices;
use crate::actors::request::generation_request::EngramPlan;
use crate::engram::{Asker, Defaults, DocumentText, ModeName, PhaseName, Question, TableSet, opening, recollections};
use crate::holder::Holder;
use crate::limits;
use crate::text::{Fingerprint, Tokenizer};
use chimere_engine::engram::{
    Auto, BuildOptions, Documents, Member, Mode, Ngrams, ORDER_MAX, Opening, Orders, PredictionRules, Recollection,
    RequestTables, Table, Tally, ThinkIds, build,
};
use chimere_engine::ids::TokenId;
use std::sync::Arc;

/// Context lengths of a request's own table.
const ORDERS: (usize, usize) = (2, 5);

/// What tables do for each prompt of a request: as many as there are prompts, or none where nothing is asked for.
pub(super) async fn tables_of(
    services: &TurnServices,
    caller: &TurnCaller,
    asked: EngramRequest,
    prompts: &[Arc<[TokenId]>],
    end_ids: &[TokenId],
) -> Result<EngramPlan, TurnError> {
    let (set, asker, holder) = (services.engram.tables.snapshot(), &caller.asker, caller.holder);
    let settings = asked.settings.over(&services.engram.tables.defaults(&set, asker.key.as_ref()));
    let tables = find_tables(&set, &settings.tables, asked.settings.tables.is_some(), asker)?;
    if tables.is_empty() && asked.documents.is_empty() {
        return Ok(EngramPlan::default());
    }
    let mode = mode(&settings)?;
    let documents: Arc<[DocumentRequest]> = asked.documents.into();
    let own = match mode {
        Some(_) => Own { table: own_table(services, holder, documents.clone()).await?, ..Own::default() },
        None => own_documents(services, holder, documents.clone(), prompts.to_vec(), end_ids.first().copied()).await?,
    };
    let tokenizer = services.text.tokenizer();
    let prior = set.prior(&tables);
    let auto = |recalled: DocumentAnswers, thinks: Option<ThinkIds>| Auto {
        strengths: services.engram.strengths.clone(),
        words: services.engram.words.clone(),
        documents: own.documents.clone(),
        recollections: recalled.recollections,
        // A thought is no answer, and where tables speak in thoughts nobody sees where they end.
        opening: recalled.opening.filter(|_| settings.phase != PhaseName::All || thinks.is_none_or(|t| !t.opened)),
    };
    let of_prompt = |(i, prompt): (usize, &Arc<[TokenId]>)| {
        let thinks = thinking(tokenizer, prompt);
        Arc::new(RequestTables {
            filter: set.filter().clone(),
            tables: tables.clone(),
            prior: prior.clone(),
            own: own.table.iter().cloned().collect(),
            mode: mode.unwrap_or(Mode::SILENT),
            auto: mode.is_none().then(|| auto(own.recalled.get(i).cloned().unwrap_or_default(), thinks)),
            rules: PredictionRules { min_count: settings.min_count },
            silent_in: thinks.filter(|_| settings.phase != PhaseName::All),
            end_ids: end_ids.to_vec(),
            tally: Tally::default(),
        })
    };
    let tables = prompts.iter().enumerate().map(of_prompt).collect();
    let names = documents.iter().map(|d| (d.id.clone(), d.title.clone())).collect();
    Ok(EngramPlan { tables, names, sources: asked.sources })
}

/// What becomes of a request's documents: a table where a strength was given, else what the longest matches are looked
/// for in.
#[derive(Default)]
struct Own {
    table: Option<Arc<dyn Ngrams>>,
    documents: Option<Arc<Documents>>,
    /// What the documents say of each prompt's question.
    recalled: Vec<DocumentAnswers>,
}

/// What documents say of a question.
#[derive(Clone, Default)]
struct DocumentAnswers {
    recollections: Vec<Recollection>,
    opening: Option<Opening>,
}

/// The layers of all tables. One that the caller did not name may be gone: the log says so.
fn find_tables(set: &TableSet, names: &[String], named: bool, asker: &Asker) -> Result<Vec<Member>, TurnError> {
    let mut tables = Vec::new();
    for (i, name) in names.iter().enumerate() {
        if names[..i].contains(name) {
            return Err(TurnError::invalid("engram.tables", format!("`engram.tables` names {name:?} twice")));
        }
        match set.find(name, asker) {
            Ok(layers) => tables.extend(layers),
            Err(e) if named => {
                let message = format!("`engram.tables[{i}]`: {e}");
                return Err(TurnError::coded("engram.tables", message, "table_not_found"));
            }
            Err(_) => {}
        }
    }
    Ok(tables)
}

/// `None` computes the strength.
fn mode(settings: &Defaults) -> Result<Option<Mode>, TurnError> {
    let (field, mode) = match settings.mode {
        ModeName::Auto => return Ok(None),
        ModeName::Bias => ("engram.alpha", Mode::bias(settings.alpha)),
        ModeName::Mixture => ("engram.lambda", Mode::mixture(settings.lambda)),
    };
    mode.map(Some).map_err(|e| TurnError::invalid(field, format!("`{field}`: {e}")))
}

/// A table of the request's documents, made on a text thread.
async fn own_table(
    services: &TurnServices,
    holder: Holder,
    documents: Arc<[DocumentRequest]>,
) -> Result<Option<Arc<dyn Ngrams>>, TurnError> {
    if documents.is_empty() {
        return Ok(None);
    }
    let (tokenizer, ids) = (services.text.tokenizer().clone(), services.engram.ids);
    let lane = services.lanes.for_bytes(bytes_of(services, &documents)?);
    let job = move || table_of(&tokenizer, ids, &documents);
    let built = lane.run(holder, job).await.map_err(TurnError::TextThreads)??;
    Ok(Some(Arc::new(built)))
}

/// What a computed strength looks at, made on a text thread.
async fn own_documents(
    services: &TurnServices,
    holder: Holder,
    documents: Arc<[DocumentRequest]>,
    prompts: Vec<Arc<[TokenId]>>,
    end: Option<TokenId>,
) -> Result<Own, TurnError> {
    if documents.is_empty() {
        return Ok(Own::default());
    }
    let tokenizer = services.text.tokenizer().clone();
    let lane = services.lanes.for_bytes(bytes_of(services, &documents)?);
    let job = move || {
        let texts = encode(&tokenizer, &documents)?;
        let texts: Vec<&[TokenId]> = texts.iter().map(Vec::as_slice).collect();
        let told: Vec<DocumentText<'_>> =
            documents.iter().map(|d| DocumentText { title: d.title.as_deref().unwrap_or(""), text: &d.text }).collect();
        let recall = |prompt: &Arc<[TokenId]>| {
            let question = Question::of_prompt(&tokenizer, prompt);
            let opening = opening(&tokenizer, &told, &question, end);
            DocumentAnswers { recollections: recollections(&tokenizer, &told, &question), opening }
        };
        let recalled = prompts.iter().map(recall).collect();
        Ok(Own { table: None, documents: Some(Arc::new(Documents::new(&texts))), recalled })
    };
    lane.run(holder, job).await.map_err(TurnError::TextThreads)?
}

/// Bytes of all documents, unless they have too many tokens in any case.
fn bytes_of(services: &TurnServices, documents: &[DocumentRequest]) -> Result<usize, TurnError> {
    let least: usize = documents.iter().map(|d| services.text.tokenizer().tokens_min(&d.text)).sum();
    if least > limits::ENGRAM_DOCUMENT_TOKENS_MAX {
        return Err(too_many(format!("at least {least}")));
    }
    Ok(documents.iter().map(|d| d.text.len()).sum())
}

/// What looks like a control token is text: documents come from anywhere.
fn encode(tokenizer: &Tokenizer, documents: &[DocumentRequest]) -> Result<Vec<Vec<TokenId>>, TurnError> {
    let texts: Vec<Vec<TokenId>> = documents.iter().map(|d| tokenizer.encode_plain(&d.text)).collect();
    let tokens: usize = texts.iter().map(Vec::len).sum();
    if tokens > limits::ENGRAM_DOCUMENT_TOKENS_MAX {
        return Err(too_many(tokens.to_string()));
    }
    Ok(texts)
}

fn table_of(tokenizer: &Tokenizer, ids: Fingerprint, documents: &[DocumentRequest]) -> Result<Table, TurnError> {
    let texts = encode(tokenizer, documents)?;
    let orders = Orders::new(ORDERS.0, ORDERS.1).expect("constants within range");
    // Nobody asks such a table how old it is.
    let options =
        BuildOptions { orders, longest: ORDER_MAX, min_count: 1, vocab: ids.vocab, tokenizer: ids.hash, time: 0 };
    let texts: Vec<&[TokenId]> = texts.iter().map(Vec::as_slice).collect();
    let failed = |e| TurnError::Internal(format!("`engram.documents`: {e}"));
    let image = build(&texts, &options).map_err(failed)?;
    Ok(Table::in_memory(&image))
}

fn too_many(got: String) -> TurnError {
    let max = limits::ENGRAM_DOCUMENT_TOKENS_MAX;
    let message = format!("`engram.documents` has {got} tokens, at most {max} are taken");
    TurnError::coded("engram.documents", message, "too_many_tokens")
}

/// Where thinking begins and ends for this tokenizer, and whether the prompt has left it open.
fn thinking(tokenizer: &Tokenizer, prompt: &[TokenId]) -> Option<ThinkIds> {
    let (open, close) = (tokenizer.id("<think>")?, tokenizer.id("</think>")?);
    let last = prompt.iter().rev().find(|id| [open, close].contains(id));
    Some(ThinkIds { open, close, opened: last == Some(&open) })
}
