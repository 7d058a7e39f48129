//! Brings together the rules about a step's rows: those that come with the plan, and those of deferred sources as they
//! answer.

use crate::constraint::{Constraint, Rule, Sources, StepRules};
use crate::ids::SeqId;
use crate::step::{SampleRow, StepPlan};

/// The answers of a step's deferred sources so far.
#[derive(Debug)]
pub(super) struct Gathering {
    missing: Sources,
    answers: Vec<StepRules>,
}

impl Gathering {
    /// What the plan waits for, before anybody has answered.
    pub(super) fn of(plan: &StepPlan) -> Self {
        Self { missing: plan.waits_for(), answers: Vec::new() }
    }

    /// Sources that have not answered and for which a row waits.
    pub(super) fn missing(&self) -> Sources {
        self.missing
    }

    /// Takes what one of them says; gives it back if nobody waits for it.
    pub(super) fn take(&mut self, rules: StepRules) -> Result<(), StepRules> {
        if !self.missing.contains(rules.source) {
            return Err(rules);
        }
        self.missing = self.missing.without(Sources::only(rules.source));
        self.answers.push(rules);
        Ok(())
    }

    /// The constraint of each sampled row of the plan, in the order of its samples. What a source says about a row that
    /// does not wait for it counts for nothing.
    pub(super) fn compose(&mut self, plan: &StepPlan, vocab: u32) -> Vec<Constraint> {
        assert!(self.missing.is_empty(), "step {} still waits for {:?}", plan.id, self.missing);
        let mut late: Vec<_> = self.answers.drain(..).flat_map(rules_by_row).collect();
        late.sort_by_key(|(row, _)| *row);
        plan.sample_rows().map(|row| Constraint::of(rules_of(row, &mut late), vocab)).collect()
    }
}

/// A sampled row among those of a step.
type RowKey = (SeqId, u32);

fn rules_by_row(answer: StepRules) -> impl Iterator<Item = (RowKey, Option<Rule>)> {
    let source = answer.source;
    answer.rows.into_iter().map(move |row| ((row.seq, row.output), Some(Rule { source, effect: row.effect })))
}

/// What came with the plan, and what is found in the sorted list.
fn rules_of(row: &SampleRow, late: &mut [(RowKey, Option<Rule>)]) -> Vec<Rule> {
    let mut rules = row.rules.clone();
    if !row.waits_for.is_empty() {
        let key = (row.seq, row.output_index);
        let first = late.partition_point(|(of, _)| *of < key);
        let found = late[first..].iter_mut().take_while(|(of, _)| *of == key).filter_map(|(_, rule)| rule.take());
        rules.extend(found.filter(|rule| row.waits_for.contains(rule.source)));
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::super::steps::tests::{plan, row};
    use super::*;
    use crate::constraint::{Effect, RowRule, Source};
    use crate::ids::StepId;

    fn answer(source: Source, rows: &[(u64, u32, Effect)]) -> StepRules {
        let rows = rows.iter().map(|(seq, output, effect)| RowRule {
            seq: SeqId(*seq),
            output: *output,
            effect: effect.clone(),
        });
        StepRules { step: StepId(1), source, rows: rows.collect() }
    }

    fn bias(id: u32) -> Effect {
        Effect::Bias(vec![(id, 1.0)])
    }

    #[test]
    fn each_row_gets_what_was_planned_and_what_came_for_it_whatever_their_order() {
        let (grammar, tables) = (Sources::only(Source::Grammar), Sources::only(Source::Tables));
        let held = Rule { source: Source::HeldWords, effect: Effect::Forbid([3].into()) };
        let rows =
            [row(4, tables.with(grammar)), SampleRow { rules: vec![held], ..row(2, tables) }, row(9, Sources::NONE)];
        // A sequence may have several rows in a step; the number of the output tells them apart.
        let second = SampleRow { output_index: 1, ..row(4, tables) };
        let plan = plan(1, rows.into_iter().chain([second]).collect());
        let mut gathering = Gathering::of(&plan);
        assert_eq!(gathering.missing(), grammar.with(tables));
        let stranger = (9, 0, bias(90));
        let said = [(4, 1, bias(41)), (2, 0, bias(20)), stranger, (7, 0, bias(70)), (4, 0, bias(40))];
        gathering.take(answer(Source::Tables, &said)).unwrap();
        assert_eq!(gathering.missing(), grammar);
        gathering.take(answer(Source::Grammar, &[(2, 0, Effect::Force(5)), (4, 0, Effect::Force(6))])).unwrap();
        let got = gathering.compose(&plan, 100);
        let ids = |c: &Constraint| c.bias.iter().map(|b| b.0).collect::<Vec<_>>();
        assert_eq!(got.iter().map(ids).collect::<Vec<_>>(), [vec![40], vec![20], vec![], vec![41]]);
        assert_eq!(
            got.iter().map(|c| c.forced).collect::<Vec<_>>(),
            [Some(6), None, None, None],
            "row 2 has no grammar"
        );
        assert_eq!(got[1].forbidden, [3]);
    }

    #[test]
    fn a_source_that_nobody_waits_for_or_that_has_answered_is_refused() {
        let mut gathering = Gathering::of(&plan(1, vec![row(1, Sources::only(Source::Tables))]));
        assert!(gathering.take(answer(Source::Grammar, &[])).is_err());
        assert!(gathering.take(answer(Source::Tables, &[])).is_ok());
        assert!(gathering.take(answer(Source::Tables, &[])).is_err() && gathering.missing().is_empty());
    }
}
