//! Builds the reports of a request while its tokens come.

use super::generation_request::EngramPlan;
use super::report::{ChangedToken, EngramReport, Report};
use super::speculation_report::SpeculationReport;
use crate::limits;
use crate::metrics;
use chimere_engine::constraint::Sources;
use chimere_engine::drafts::{DraftKind, DraftReport};
use chimere_engine::engram::{Origin, Tally};
use std::collections::BTreeSet;

/// What the tokens so far say for the reports of their request.
pub(super) struct ReportBuilder {
    /// Tokens that tables made others than they would have been; `None` once the backend could not tell.
    changed_tokens: Option<u32>,
    /// Where they come from, the first [`limits::ENGRAM_SOURCES_MAX`] of them.
    sources: Vec<ChangedToken>,
    /// Documents that said otherwise, with those that were followed.
    contradicted: BTreeSet<(u32, u32)>,
    /// Sources of rules that were not followed for some token.
    yielded: Sources,
    drafts: SpeculationReport,
}

impl ReportBuilder {
    /// Before the first token.
    pub(super) fn new() -> Self {
        Self {
            changed_tokens: Some(0),
            sources: Vec::new(),
            contradicted: BTreeSet::new(),
            yielded: Sources::NONE,
            drafts: SpeculationReport::default(),
        }
    }

    /// Adds the sources of rules that yielded for a token, and the drafts of its step.
    pub(super) fn add(&mut self, yielded: Sources, drafts: Option<DraftReport>) {
        self.yielded = self.yielded.with(yielded);
        drafts.into_iter().for_each(|report| self.drafts.add(report));
    }

    /// Counts a token as changed by tables or not.
    pub(super) fn count_changed(&mut self, changed: Option<bool>) {
        self.changed_tokens = self.changed_tokens.zip(changed).map(|(n, changed)| n + u32::from(changed));
        ::metrics::counter!(metrics::ENGRAM_CHANGED_TOKENS).increment(u64::from(changed == Some(true)));
    }

    /// Remembers where a token comes from; `listed` has it told in the reply.
    pub(super) fn add_origin(&mut self, origin: Origin, listed: bool, token: impl FnOnce() -> ChangedToken) {
        if let Origin::Document(place, Some(against)) = origin {
            self.contradicted.insert((against.document, place.document));
        }
        if listed && self.sources.len() < limits::ENGRAM_SOURCES_MAX {
            self.sources.push(token());
        }
    }

    /// The reports on all tokens, of which a reply tells each where there is something to tell. `predicted` says that
    /// the request said what its answer may be.
    pub(super) fn reports(&mut self, engram: &EngramPlan, predicted: bool) -> Vec<Report> {
        let yielded = (!self.yielded.is_empty()).then_some(Report::Yielded(self.yielded));
        let speculation = self.drafts.sources().next().is_some().then_some(Report::Speculation(self.drafts));
        let prediction = predicted.then(|| Report::Prediction(self.drafts.of(DraftKind::Prediction)));
        let engram = self.engram(engram).map(|report| Report::Engram(Box::new(report)));
        [yielded, speculation, prediction, engram].into_iter().flatten().collect()
    }

    fn engram(&mut self, engram: &EngramPlan) -> Option<EngramReport> {
        let EngramPlan { tables, names, sources } = engram;
        let sum = |of: fn(&Tally) -> u32| tables.iter().map(|tables| of(&tables.tally)).sum();
        (!tables.is_empty()).then(|| EngramReport {
            lookups: sum(Tally::lookups),
            hits: sum(Tally::hits),
            changed_tokens: self.changed_tokens,
            sources: sources.then(|| std::mem::take(&mut self.sources)),
            contradicted: std::mem::take(&mut self.contradicted).into_iter().collect(),
            names: names.clone(),
        })
    }
}
