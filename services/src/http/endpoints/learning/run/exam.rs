//! The questions of a run: which ones, in which rounds, and what the gate says of the answers.

use super::Snapshot;
use super::arms::Arms;
use super::probes::divergence;
use crate::http::app::App;
use crate::http::wire::error::ApiError;
use crate::learning::gate::{
    Canaries, FamilyRole, GateRules, Measured, MeasuredFamily, Outcome, PairedCounts, Rotation, VaultVerdict, Verdict,
    judge,
};
use crate::learning::questions::CheckedQuestion;
use std::collections::BTreeSet;

/// Rounds of questions at most: the first, and as many more as the answers show to be needed.
const ROUNDS: usize = 4;
/// The name of the family of the facts themselves.
const FACTS: &str = "facts";
/// Seconds of a day: the questions of a family turn a little further each.
const DAY: u64 = 86_400;

/// A candidate, and what is asked about it.
pub(super) struct Exam<'a> {
    pub(super) app: &'a App,
    pub(super) arms: &'a Arms<'a>,
    pub(super) snapshot: &'a Snapshot,
    pub(super) rules: &'a GateRules,
}

/// A family's questions of the gate, and which of them this run has asked.
struct AskedFamily<'a> {
    name: &'a str,
    role: FamilyRole,
    questions: Vec<&'a CheckedQuestion>,
    ids: Vec<String>,
    rotation: Rotation,
}

impl<'a> AskedFamily<'a> {
    fn of(name: &'a str, role: FamilyRole, questions: Vec<&'a CheckedQuestion>, day: u64, first: u64) -> Self {
        let ids = questions.iter().map(|question| question.id.clone()).collect();
        Self { name, role, questions, ids, rotation: Rotation::on(day, first) }
    }

    fn next(&mut self, more: u64) -> Vec<&'a CheckedQuestion> {
        self.rotation.ask(self.name, &self.ids, more).into_iter().map(|at| self.questions[at]).collect()
    }
}

impl<'a> Exam<'a> {
    /// What the gate says, once it has heard enough or there is nothing more to ask.
    pub(super) async fn judge(&self, at: u64) -> Result<Verdict, ApiError> {
        let mut asked = self.families(at / DAY);
        let mut measured = Measured::default();
        for family in &mut asked {
            let is_target = family.role == FamilyRole::Target;
            let questions = family.next(if is_target { u64::MAX } else { self.rules.questions_first });
            let counts = self.arms.ask(&questions, Some(family.name)).await?;
            measured.families.push(MeasuredFamily { name: family.name.to_owned(), role: family.role, counts });
        }
        measured.divergence = divergence(self.app, self.arms, &self.snapshot.sets.probes).await?;
        let canaries = &self.snapshot.sets.canaries;
        let (fine, all) = (self.arms.ask_candidate(canaries).await?, canaries.len() as u64);
        measured.canaries = Canaries { asked: all, fired: all - fine };
        let claims = self.snapshot.batch.claims();
        for _ in 1..ROUNDS {
            measured.speed = self.arms.speed();
            let verdict = judge(&measured, &claims, self.rules);
            if verdict.outcome != Outcome::NeedsMore || !self.ask_more(&verdict, &mut asked, &mut measured).await? {
                return Ok(verdict);
            }
        }
        measured.speed = self.arms.speed();
        Ok(judge(&measured, &claims, self.rules))
    }

    /// Asks as many more questions as a verdict wants; false where no family has any left.
    async fn ask_more(
        &self,
        verdict: &Verdict,
        asked: &mut [AskedFamily<'a>],
        measured: &mut Measured,
    ) -> Result<bool, ApiError> {
        let mut any = false;
        for (name, more) in verdict.questions_missing() {
            let Some(at) = asked.iter().position(|family| family.name == name) else { continue };
            let questions = asked[at].next(more);
            any |= !questions.is_empty();
            let counts = self.arms.ask(&questions, Some(name)).await?;
            measured.families[at].counts = measured.families[at].counts.and(counts);
        }
        Ok(any)
    }

    /// What the vault's half of the questions says. Nobody is shown an answer to one of them.
    pub(super) async fn vault(&self) -> Result<VaultVerdict, ApiError> {
        let target = self.arms.ask(&self.facts(true), None).await?;
        let mut others: Vec<(String, PairedCounts)> = Vec::new();
        for family in &self.snapshot.sets.families {
            let questions: Vec<_> = family.questions.iter().filter(|question| question.is_of_vault()).collect();
            others.push((family.name.clone(), self.arms.ask(&questions, None).await?));
        }
        Ok(VaultVerdict::of(target, &others))
    }

    /// The gate's half of the questions: of the facts, and of each of the operator's families.
    fn families(&self, day: u64) -> Vec<AskedFamily<'a>> {
        let first = self.rules.questions_first;
        let mut all = vec![AskedFamily::of(FACTS, FamilyRole::Target, self.facts(false), day, first)];
        for family in &self.snapshot.sets.families {
            let questions = family.questions.iter().filter(|question| !question.is_of_vault()).collect();
            all.push(AskedFamily::of(&family.name, family.role, questions, day, first));
        }
        all
    }

    /// The questions that the facts answer: the vault's half, or the other one. What several examples ask is asked once:
    /// it would count as often.
    fn facts(&self, of_vault: bool) -> Vec<&'a CheckedQuestion> {
        let mut asked = BTreeSet::new();
        let questions = self.snapshot.batch.facts.iter().map(|fact| &fact.question);
        questions.filter(|question| question.is_of_vault() == of_vault && asked.insert(&question.id)).collect()
    }
}
