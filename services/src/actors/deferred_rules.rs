//! What one request brings for the deferred sources, and so which of them its rows wait for.

use crate::text::grammar::GrammarStart;
use chimere_engine::constraint::{Source, Sources};
use chimere_engine::engram::RequestTables;
use std::sync::Arc;

/// The rules of deferred sources that one request brings.
#[derive(Clone, Default)]
pub struct DeferredRules {
    /// The tables that its sequences use.
    pub tables: Option<Arc<RequestTables>>,
    /// The grammar that its choices have to keep to.
    pub grammar: Option<GrammarStart>,
}

impl DeferredRules {
    /// The sources that have rules here, for which each row of the request waits.
    pub fn sources(&self) -> Sources {
        let tables = self.tables.as_ref().map(|_| Source::Tables);
        tables.into_iter().chain(self.grammar.as_ref().map(|_| Source::Grammar)).collect()
    }
}
