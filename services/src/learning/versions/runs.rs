//! Runs of a learner: one at a time, and what came of the last one.

use super::changed::ChangedAnswer;
use super::stage::VersionStage;
use crate::learning::facts::LeftOutFacts;
use crate::learning::gate::{VaultVerdict, Verdict};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// Seconds since 1970 when it began.
    pub at: u64,
    /// Seconds that it took.
    pub seconds: u64,
    /// Nothing of it was kept or served.
    pub dry: bool,
    /// What became of it, in a word: nothing, passed, needs_more, people, refused or failed.
    pub outcome: String,
    /// The version that it made.
    pub version: Option<u64>,
    /// Where that version stands.
    pub stage: Option<VersionStage>,
    /// Facts that it learned.
    pub facts: usize,
    /// Of these, those that the served version was not made from.
    pub new_facts: usize,
    /// Corrections that it did not learn.
    pub left_out: LeftOutFacts,
    /// Examples that contradict each other, for people to choose from.
    pub contradictions: Vec<Vec<String>>,
    /// What the gate said.
    pub verdict: Option<Verdict>,
    /// What the vault said, if it was asked.
    pub vault: Option<VaultVerdict>,
    /// The gate's questions that the candidate answers most differently; none of the vault's.
    #[serde(default)]
    pub changed: Vec<ChangedAnswer>,
    /// The reason why it failed.
    pub error: Option<String>,
}

/// See the file's head.
#[derive(Debug, Default)]
pub struct LearnerRuns {
    state: Arc<Mutex<RunState>>,
}

#[derive(Debug, Default)]
struct RunState {
    running: bool,
    last: Option<RunReport>,
    /// Somebody took back examples since the run began.
    withdrawn: bool,
}

/// A run that is on its way; another one may begin once this is dropped.
pub struct LearnerRun {
    state: Arc<Mutex<RunState>>,
}

impl LearnerRuns {
    /// Begins a run, unless one is on its way.
    pub fn begin(&self) -> Option<LearnerRun> {
        let mut state = self.state.lock();
        let is_free = !std::mem::replace(&mut state.running, true);
        state.withdrawn &= !is_free;
        is_free.then(|| LearnerRun { state: self.state.clone() })
    }

    /// Whether one is on its way.
    pub fn is_running(&self) -> bool {
        self.state.lock().running
    }

    /// What came of the last one since the service started.
    pub fn last(&self) -> Option<RunReport> {
        self.state.lock().last.clone()
    }

    /// Somebody takes back examples: answers to questions that may be theirs are shown no longer, nor those of a run
    /// that has begun.
    pub fn forget_answers(&self) {
        let mut state = self.state.lock();
        state.withdrawn = true;
        state.last.iter_mut().for_each(|last| last.changed.clear());
    }
}

impl LearnerRun {
    /// Keeps what came of it.
    pub fn end(self, mut report: RunReport) {
        let mut state = self.state.lock();
        if state.withdrawn {
            report.changed.clear();
        }
        state.last = Some(report);
    }
}

impl Drop for LearnerRun {
    fn drop(&mut self) {
        self.state.lock().running = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_at_a_time_is_on_its_way_and_the_last_one_s_report_is_kept() {
        let runs = LearnerRuns::default();
        let run = runs.begin().unwrap();
        assert!(runs.begin().is_none() && runs.is_running() && runs.last().is_none());
        run.end(RunReport { facts: 3, ..RunReport::default() });
        assert_eq!((runs.is_running(), runs.last().map(|last| last.facts)), (false, Some(3)));
        drop(runs.begin());
        assert!(runs.begin().is_some(), "one that broke off is over");
    }

    #[test]
    fn answers_are_shown_no_longer_once_somebody_took_examples_back_also_those_of_a_run_on_its_way() {
        let (text, runs) = (String::new, LearnerRuns::default());
        let (family, question, before, after) = (text(), text(), text(), text());
        let changed = vec![ChangedAnswer { family, question, before, after, was_right: true, is_right: true }];
        let report = RunReport { changed, ..RunReport::default() };
        let shown = || runs.last().map(|last| last.changed.len());
        runs.begin().unwrap().end(report.clone());
        assert_eq!(shown(), Some(1));
        runs.forget_answers();
        assert_eq!(shown(), Some(0));
        let run = runs.begin().unwrap();
        runs.forget_answers();
        run.end(report.clone());
        assert_eq!(shown(), Some(0));
        runs.begin().unwrap().end(report);
        assert_eq!(shown(), Some(1));
    }
}
