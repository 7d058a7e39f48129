//! Many sequences ask many tables at once. Memory is what lookups wait for, so a batch asks for everything it will read one stage
//! ahead: filter, index, record.

use super::ORDER_MAX;
use super::context::Context;
use super::filter::Filter;
use super::prior::JointPrior;
use super::table::{Continuations, Ngrams, Table};
use crate::ids::TokenId;

/// Most continuations of one context and table that are looked at: the most frequent ones.
pub const CONTINUATIONS_MAX: usize = 64;

/// One sequence's question.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    /// Its last ids.
    pub context: Context,
    /// Tables that the filter speaks for, as many as the request names.
    pub tables: &'a [&'a dyn Ngrams],
    /// The prior of all of `tables`, if there is one; else each is asked for its own.
    pub prior: Option<&'a JointPrior>,
    /// Tables that the filter does not know: those of the request alone.
    pub own: &'a [&'a dyn Ngrams],
}

/// One table's answer for one order.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Context length.
    pub order: usize,
    /// What followed.
    pub list: Continuations<'a>,
}

/// What a batch found, query by query, and what it did for that.
#[derive(Debug, Default)]
pub struct Lookup<'a> {
    /// (query, answer), in the order of the queries, then rising orders, then tables.
    found: Vec<(u32, Found<'a>)>,
    /// Contexts asked for: one for each query, order and table.
    pub asked: u64,
    /// Of these, the ones that the filter answered.
    pub filtered: u64,
}

impl<'a> Lookup<'a> {
    /// The answers for one query, shortest contexts first.
    pub fn of(&self, query: usize) -> impl Iterator<Item = Found<'a>> + Clone + use<'_, 'a> {
        let start = self.found.partition_point(|f| (f.0 as usize) < query);
        self.found[start..].iter().take_while(move |f| f.0 as usize == query).map(|f| f.1)
    }

    /// Contexts that a table knew.
    pub fn hits(&self) -> u64 {
        self.found.len() as u64
    }
}

/// A context that some table may know.
struct Probe<'a> {
    query: u32,
    order: usize,
    table: &'a dyn Ngrams,
    candidate: Option<usize>,
}

/// Answers a batch. `filter` knows at least the contexts of all tables under [`Query::tables`]. Contexts may be of any length, and
/// tables may have any orders.
pub fn lookup<'a>(filter: &Filter, queries: &[Query<'a>]) -> Lookup<'a> {
    let mut result = Lookup::default();
    let mut probes = Vec::with_capacity(queries.len() * 8);
    for query in queries {
        let counts = tables_by_order(query.tables);
        (1..=ORDER_MAX).filter(|&order| counts[order] > 0).for_each(|order| filter.prefetch(&query.context, order));
    }
    for (i, query) in queries.iter().enumerate() {
        push_probes(filter, i as u32, query, &mut probes, &mut result);
    }
    for probe in &mut probes {
        probe.candidate = probe.table.locate(&queries[probe.query as usize].context, probe.order);
    }
    for Probe { query, order, table, candidate } in probes {
        let list = candidate.and_then(|at| table.read(&queries[query as usize].context, order, at));
        result.found.extend(list.map(|list| (query, Found { order, list })));
    }
    result
}

/// How many of the tables have contexts of each order.
fn tables_by_order(tables: &[&dyn Ngrams]) -> [u32; ORDER_MAX + 1] {
    let mut counts = [0; ORDER_MAX + 1];
    for bits in tables.iter().map(|table| table.orders()) {
        counts.iter_mut().enumerate().for_each(|(order, count)| *count += bits >> order & 1);
    }
    counts
}

/// Asks memory for the places of a query's contexts, shortest first, in the tables that may know them.
fn push_probes<'a>(filter: &Filter, i: u32, query: &Query<'a>, probes: &mut Vec<Probe<'a>>, result: &mut Lookup<'a>) {
    let (shared, own) = (tables_by_order(query.tables), tables_by_order(query.own));
    for order in 1..=query.context.len() {
        let known = shared[order] > 0 && filter.may_know(&query.context, order);
        result.asked += u64::from(shared[order] + own[order]);
        result.filtered += if known { 0 } else { u64::from(shared[order]) };
        let tables = if known { query.tables } else { &[] };
        let own = if own[order] > 0 { query.own } else { &[] };
        for table in tables.iter().chain(own).filter(|table| table.orders() >> order & 1 == 1) {
            table.prefetch(&query.context, order);
            probes.push(Probe { query: i, order, table: *table, candidate: None });
        }
    }
}

impl Filter {
    /// The filter of some tables.
    pub fn of_tables<'a>(tables: impl Iterator<Item = &'a Table> + Clone) -> Self {
        let contexts = tables.clone().flat_map(|t| t.stats()).map(|s| s.contexts).sum();
        Filter::new(contexts, || tables.clone().flat_map(Table::hashes))
    }
}

impl<'a> Found<'a> {
    /// The continuations that predictions look at.
    pub(super) fn listed(&self) -> impl Iterator<Item = (TokenId, u32)> + use<'a> {
        self.list.iter().take(CONTINUATIONS_MAX)
    }
}
