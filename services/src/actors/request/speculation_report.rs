//! The drafted tokens of a request, by source.

use chimere_engine::drafts::{DraftKind, DraftReport};

/// Drafts of all choices of a request, by source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpeculationReport([SourceDrafts; DraftKind::ALL.len()]);

/// The drafts of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceDrafts {
    /// How many tokens the source drafted.
    pub drafted: u32,
    /// How many of these the model chose too.
    pub accepted: u32,
    /// Steps in which the source drafted.
    pub steps: u32,
}

impl SourceDrafts {
    /// With those of a later generation.
    pub fn with(self, later: Self) -> Self {
        let Self { drafted, accepted, steps } = later;
        Self { drafted: self.drafted + drafted, accepted: self.accepted + accepted, steps: self.steps + steps }
    }
}

impl SpeculationReport {
    /// Adds the drafts of a step.
    pub fn add(&mut self, report: DraftReport) {
        let source = &mut self.0[report.kind as usize];
        source.drafted += report.drafted;
        source.accepted += report.accepted;
        source.steps += 1;
    }

    /// Together with those of another generation.
    pub fn with(mut self, other: &Self) -> Self {
        for (sum, more) in self.0.iter_mut().zip(&other.0) {
            *sum = sum.with(*more);
        }
        self
    }

    /// The drafts of this source.
    pub fn of(&self, kind: DraftKind) -> SourceDrafts {
        self.0[kind as usize]
    }

    /// The sources that drafted something.
    pub fn sources(&self) -> impl Iterator<Item = (DraftKind, SourceDrafts)> {
        DraftKind::ALL.into_iter().map(|kind| (kind, self.of(kind))).filter(|(_, drafts)| drafts.steps > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_are_added_up_by_source() {
        let mut report = SpeculationReport::default();
        assert_eq!(report.sources().count(), 0);
        for (drafted, accepted) in [(4, 1), (7, 7)] {
            report.add(DraftReport { kind: DraftKind::Prediction, drafted, accepted });
        }
        let want = SourceDrafts { drafted: 11, accepted: 8, steps: 2 };
        assert_eq!(report.sources().collect::<Vec<_>>(), [(DraftKind::Prediction, want)]);
    }
}
