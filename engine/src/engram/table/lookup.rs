//! Many sequences ask many tables at once. Memory is what lookups wait for, so a batch asks for everything it will read
//! one stage ahead: filter, index, record.

use super::filter::{Filter, TableBits};
use super::ngrams::{Continuations, Ngrams};
use super::prior::JointPrior;
use crate::engram::context::Context;
use crate::ids::TokenId;
use std::sync::Arc;

/// Most continuations of one context and table that are looked at: the most frequent ones.
pub const CONTINUATIONS_MAX: usize = 64;

/// Which of the tables' answers count for what is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictionRules {
    /// Continuations with fewer occurrences over all tables are passed over.
    pub min_count: u32,
}

/// What one sequence asks the tables.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    /// The last ids of the sequence.
    pub context: &'a Context,
    /// Tables that the filter speaks for, those that the request names, in any order.
    pub tables: &'a [Member],
    /// The prior of all of `tables`, if there is one; else each is asked for its own.
    pub prior: Option<&'a JointPrior>,
    /// Tables that the filter does not know: those of the request alone.
    pub own: &'a [Arc<dyn Ngrams>],
}

/// A table that a filter speaks for.
#[derive(Clone)]
pub struct Member {
    table: Arc<dyn Ngrams>,
    bit: TableBits,
    /// Of the table, beside its bit: most of the time nothing else of it is read.
    orders: u32,
}

/// One table's answer for one order.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Length of the context that was found.
    pub order: usize,
    /// The tokens that followed it, with how often.
    pub list: Continuations<'a>,
}

/// What a batch found, query by query, and what it did for that.
#[derive(Debug, Default)]
pub struct Lookup<'a> {
    /// In the order of the queries, then rising orders, then tables.
    found: Vec<Found<'a>>,
    /// Where the answers for each query end.
    ends: Vec<u32>,
    /// Contexts asked for: one for each query, order and table.
    pub asked: u64,
    /// Of these, the ones that the filter answered: it said that the table does not know the context.
    pub filtered: u64,
}

impl<'a> Lookup<'a> {
    /// The answers for one query, shortest contexts first.
    pub fn of(&self, query: usize) -> &[Found<'a>] {
        let start = query.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.found[start as usize..self.ends[query] as usize]
    }

    /// Contexts that a table knew.
    pub fn hits(&self) -> u64 {
        self.found.len() as u64
    }
}

/// A context that some table may know.
struct TableProbe<'a> {
    query: u32,
    order: usize,
    table: &'a dyn Ngrams,
    candidate: Option<usize>,
}

impl Member {
    /// A table with the bit that the filter has for it.
    pub fn new(table: Arc<dyn Ngrams>, bit: TableBits) -> Self {
        Self { orders: table.orders(), table, bit }
    }

    /// The tables of [`Filter::of_tables`], in the order in which it was given them.
    pub fn all<T: Ngrams + 'static>(tables: impl Iterator<Item = Arc<T>>) -> Vec<Self> {
        tables.enumerate().map(|(i, table)| Self::new(table, TableBits::of(i))).collect()
    }

    /// The table that is asked.
    pub fn table(&self) -> &Arc<dyn Ngrams> {
        &self.table
    }
}

/// Answers a batch. `filter` knows at least the contexts of all tables under [`Query::tables`], by the bits that they
/// have there. Contexts may be of any length, and tables may have any orders.
pub fn lookup<'a>(filter: &Filter, queries: &[Query<'a>]) -> Lookup<'a> {
    let mut result = Lookup::default();
    let mut probes = Vec::with_capacity(queries.len() * 8);
    for query in queries {
        query.each(query.shared_orders()).for_each(|order| filter.prefetch(query.context, order));
    }
    for (i, query) in queries.iter().enumerate() {
        push_probes(filter, i as u32, query, &mut probes, &mut result);
    }
    for probe in &mut probes {
        probe.candidate = probe.table.locate(queries[probe.query as usize].context, probe.order);
    }
    result.found.reserve(probes.len());
    let (mut probes, mut long) = (probes.into_iter().peekable(), Vec::new());
    for (i, query) in queries.iter().enumerate() {
        while let Some(TableProbe { order, table, candidate, .. }) = probes.next_if(|probe| probe.query as usize == i) {
            let list = candidate.and_then(|at| table.read(query.context, order, at));
            result.found.extend(list.map(|list| Found { order, list }));
            let longer = list.iter().flat_map(Continuations::longer).filter(|&order| order <= query.context.len());
            long.extend(longer.map(|order| TableProbe { query: i as u32, order, table, candidate: None }));
        }
        result.ends.push(result.found.len() as u32);
    }
    if !long.is_empty() {
        result.add_long(queries, long);
    }
    result
}

impl<'a> Lookup<'a> {
    /// Puts behind each query's answers those of the longer contexts that these speak of.
    fn add_long(&mut self, queries: &[Query<'a>], mut probes: Vec<TableProbe<'a>>) {
        probes.sort_by_key(|probe| (probe.query, probe.order));
        let context = |probe: &TableProbe<'a>| queries[probe.query as usize].context;
        probes.iter().for_each(|probe| probe.table.prefetch(context(probe), probe.order));
        probes.iter_mut().for_each(|probe| probe.candidate = probe.table.locate(context(probe), probe.order));
        self.asked += probes.len() as u64;
        let (dense, ends) = (std::mem::take(&mut self.found), std::mem::take(&mut self.ends));
        let (mut start, mut probes) = (0, probes.iter().peekable());
        for (i, end) in ends.into_iter().enumerate() {
            self.found.extend_from_slice(&dense[start..end as usize]);
            while let Some(probe) = probes.next_if(|probe| probe.query as usize == i) {
                let list = probe.candidate.and_then(|at| probe.table.read(context(probe), probe.order, at));
                self.found.extend(list.map(|list| Found { order: probe.order, list }));
            }
            self.ends.push(self.found.len() as u32);
            start = end as usize;
        }
    }
}

impl Query<'_> {
    /// Those of a set of orders that the context can fill, rising.
    fn each(&self, orders: u32) -> impl Iterator<Item = usize> + use<> {
        // Bit 0 is no order.
        let mut left = orders & (u64::MAX >> (63 - self.context.len())) as u32 & !1;
        std::iter::from_fn(move || {
            let order = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(order)
        })
    }

    /// Orders that the filter is asked about, as [`Ngrams::orders`] has them.
    fn shared_orders(&self) -> u32 {
        self.tables.iter().fold(0, |orders, member| orders | member.orders)
    }
}

/// Whether a set of orders has this one.
fn has(orders: u32, order: usize) -> bool {
    orders >> order & 1 == 1
}

/// Asks memory for the places of a query's contexts, shortest first, in the tables that may know them.
fn push_probes<'a>(
    filter: &Filter,
    i: u32,
    query: &Query<'a>,
    probes: &mut Vec<TableProbe<'a>>,
    result: &mut Lookup<'a>,
) {
    let mut push = |order, table: &'a dyn Ngrams| {
        table.prefetch(query.context, order);
        probes.push(TableProbe { query: i, order, table, candidate: None });
    };
    let shared = query.shared_orders();
    let own = query.own.iter().fold(0, |orders, table| orders | table.orders());
    for order in query.each(shared | own) {
        // Of other orders nothing was asked for ahead.
        let known = if has(shared, order) { filter.may_know(query.context, order) } else { TableBits::default() };
        for member in query.tables.iter().filter(|member| has(member.orders, order)) {
            result.asked += 1;
            if member.bit.meets(known) { push(order, &*member.table) } else { result.filtered += 1 }
        }
        for table in query.own.iter().filter(|table| has(table.orders(), order)) {
            result.asked += 1;
            push(order, &**table);
        }
    }
}

impl<'a> Found<'a> {
    /// The continuations that predictions look at.
    pub(in crate::engram) fn listed(&self) -> impl Iterator<Item = (TokenId, u32)> + use<'a> {
        self.list.iter().take(CONTINUATIONS_MAX)
    }
}
