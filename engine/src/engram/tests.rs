//! Tables against a naive map, damaged files, and the arithmetic of predictions.

mod auto;
mod damage;
mod files;
mod long;
mod mixing;
mod naive;
mod tracker;

use super::*;
use crate::ids::TokenId;
use std::sync::Arc;

const HASH: TokenizerHash = TokenizerHash([7; 32]);

fn options(low: usize, high: usize, vocab: u32) -> BuildOptions {
    BuildOptions {
        orders: Orders::new(low, high).unwrap(),
        longest: ORDER_MAX,
        min_count: 1,
        vocab,
        tokenizer: HASH,
        time: 1_000,
    }
}

fn table(texts: &[Vec<TokenId>], options: &BuildOptions) -> Table {
    let texts: Vec<&[TokenId]> = texts.iter().map(Vec::as_slice).collect();
    Table::in_memory(&build(&texts, options).unwrap())
}

/// The only sensible way to ask one sequence's question, for tests that are not about batches.
fn predict(tables: &[&Arc<Table>], ids: &[TokenId], min_count: u32) -> Prediction {
    let filter = Filter::of_tables(tables.iter().map(|t| &***t));
    let tables = Member::all(tables.iter().map(|t| (*t).clone()));
    let queries = [Query { context: &Context::new(ids), tables: &tables, prior: None, own: &[] }];
    let found = lookup(&filter, &queries);
    Prediction::new(&queries[0], found.of(0), PredictionRules { min_count })
}
