//! What was drafted for a request, as its reply tells it.

use chimere_engine::drafts::{DraftKind, DraftReport};

/// Drafts of all choices of a request, by source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftAccount([SourceDrafts; DraftKind::ALL.len()]);

/// What one source drafted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceDrafts {
    /// Drafted tokens.
    pub drafted: u32,
    /// Of these, the ones that came.
    pub accepted: u32,
    /// Steps with drafts of it.
    pub steps: u32,
}

impl DraftAccount {
    /// Adds what was drafted in a step.
    pub fn add(&mut self, report: DraftReport) {
        let source = &mut self.0[report.kind as usize];
        source.drafted += report.drafted;
        source.accepted += report.accepted;
        source.steps += 1;
    }

    /// What this source drafted.
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
        let mut account = DraftAccount::default();
        assert_eq!(account.sources().count(), 0);
        for (drafted, accepted) in [(4, 1), (7, 7)] {
            account.add(DraftReport { kind: DraftKind::Prediction, drafted, accepted });
        }
        let want = SourceDrafts { drafted: 11, accepted: 8, steps: 2 };
        assert_eq!(account.sources().collect::<Vec<_>>(), [(DraftKind::Prediction, want)]);
    }
}
