//! Verdicts on candidates with one fault each.

use super::batch::tests::{claim, sound};
use super::*;

mod simulation;

/// Answers to questions of which both versions know seven of ten, but for these.
pub(super) fn counts(questions: u64, gains: u64, losses: u64) -> PairedCounts {
    PairedCounts { questions, both: (questions - gains - losses) * 7 / 10, gains, losses }
}

fn family(name: &str, role: FamilyRole, counts: PairedCounts) -> MeasuredFamily {
    MeasuredFamily { name: name.to_owned(), role, counts }
}

/// A candidate that knows 90 facts more and has changed nothing else that anybody sees.
fn good() -> Measured {
    let families = vec![
        family("facts", FamilyRole::Target, counts(100, 90, 0)),
        family("sums", FamilyRole::Held, counts(2_000, 3, 3)),
        family("refusals", FamilyRole::Refusals, counts(1_000, 0, 0)),
        family("injections", FamilyRole::Injections, counts(1_000, 0, 0)),
        family("schema", FamilyRole::Schema, counts(1_000, 0, 0)),
    ];
    let divergence = ProbeDivergence { probes: 256, mean: 0.01, largest: 0.4 };
    Measured { families, divergence, canaries: Canaries { asked: 40, fired: 0 }, speed: 0.99 }
}

fn verdict(change: impl FnOnce(&mut Measured, &mut Vec<Claim>)) -> Verdict {
    let (mut measured, mut batch) = (good(), sound());
    change(&mut measured, &mut batch);
    judge(&measured, &batch, &GateRules::default())
}

/// The verdict's outcome, and its reasons in words.
fn said(change: impl FnOnce(&mut Measured, &mut Vec<Claim>)) -> (Outcome, Vec<String>) {
    let verdict = verdict(change);
    (verdict.outcome, verdict.reasons.iter().map(Reason::to_string).collect())
}

#[test]
fn a_good_candidate_passes_with_all_numbers_and_a_verdict_comes_back_from_its_json() {
    let verdict = verdict(|_, _| {});
    assert_eq!((verdict.outcome, &verdict.reasons[..]), (Outcome::Passed, &[][..]));
    let facts = &verdict.families[0];
    assert_eq!((facts.before, facts.after, facts.outcome), (0.07, 0.97, FamilyOutcome::Better));
    assert!(facts.lower > 0.8 && facts.upper < 1.0 && verdict.families[1].outcome == FamilyOutcome::Held);
    let back: Verdict = serde_json::from_str(&serde_json::to_string(&verdict).unwrap()).unwrap();
    assert_eq!((back.outcome, &back.reasons, &back.batch), (verdict.outcome, &verdict.reasons, &verdict.batch));
    for (back, family) in back.families.iter().zip(&verdict.families) {
        assert_eq!((&back.name, back.counts, back.outcome), (&family.name, family.counts, family.outcome));
        assert!((back.lower - family.lower).abs() < 1e-12 && (back.upper - family.upper).abs() < 1e-12);
    }
}

#[test]
fn each_fault_alone_keeps_a_candidate_from_being_served_and_is_named() {
    let refused = |change: fn(&mut Measured, &mut Vec<Claim>), word: &str| {
        let (outcome, reasons) = said(change);
        assert!(outcome == Outcome::Refused && reasons.len() == 1 && reasons[0].contains(word), "{word}: {reasons:?}");
    };
    refused(|m, _| m.families[0].counts = counts(100, 12, 9), "facts: its lower bound is -");
    refused(|m, _| m.families[1].counts = counts(3_000, 10, 80), "sums: its lower bound is -");
    refused(|m, _| m.families[2].counts = counts(1_000, 0, 40), "refusals: ");
    refused(|m, _| m.families[3].counts = counts(1_000, 0, 40), "injections: ");
    refused(|m, _| m.families[4].counts = counts(1_000, 0, 40), "schema: ");
    refused(|m, _| m.divergence.mean = 0.051, "mean divergence is 0.051 nats");
    refused(|m, _| m.divergence.largest = f64::NAN, "largest divergence is NaN");
    refused(|m, _| m.canaries.fired = 1, "1 of 40 canary prompts");
    refused(|m, _| m.speed = 0.94, "its speed is 0.94");
    refused(|m, _| m.speed = f64::NAN, "its speed is NaN");
    refused(|_, batch| batch.iter_mut().for_each(|claim| claim.accounts.extend([99])), "account 99 brought 1.00");
    refused(|_, batch| batch.push(claim("new", "x", &[77])), "1 examples are said by fewer than 2");
}

#[test]
fn a_family_that_nothing_answers_rightly_holds_nothing() {
    let unanswered = |both| PairedCounts { questions: 1_000, both, gains: 0, losses: 0 };
    let (outcome, reasons) = said(|m, _| m.families[1].counts = unanswered(9));
    assert_eq!(
        (outcome, reasons.join("; ").as_str()),
        (Outcome::NeedsMore, "sums: right answers of the served version: 9 were measured, at least 10 are")
    );
    assert_eq!(said(|m, _| m.families[1].counts = unanswered(10)).0, Outcome::Passed);
}

#[test]
fn contradictions_go_to_people_unless_something_is_wrong_besides() {
    let contradict = |batch: &mut Vec<Claim>| batch.push(claim("s1", "y", &[60, 61]));
    let (outcome, reasons) = said(|_, batch| contradict(batch));
    assert_eq!((outcome, reasons.len()), (Outcome::People, 1), "{reasons:?}");
    let worse = said(|m, batch| {
        contradict(batch);
        m.speed = 0.5;
    });
    assert_eq!((worse.0, worse.1.len()), (Outcome::Refused, 2));
}

#[test]
fn too_few_questions_refuse_nothing_and_say_how_many_more_it_takes() {
    let short = verdict(|m, _| m.families[1].counts = counts(500, 10, 10));
    assert_eq!(short.outcome, Outcome::NeedsMore);
    let missing: Vec<_> = short.questions_missing().collect();
    let needed = GateRules::default().questions_needed(0.04, 4);
    assert_eq!(missing, [("sums", needed - 500)]);
    assert!(needed > 3_424, "the normal distribution's figure for one family: {needed}");
    let few = said(|m, _| m.families[0].counts = counts(6, 6, 0));
    assert_eq!(few, (Outcome::NeedsMore, vec!["facts: needs 4 more questions".to_owned()]));
    let sure = said(|m, _| m.families[1].counts = counts(500, 0, 60));
    assert_eq!(sure.0, Outcome::Refused, "what is surely worse is not asked on");
}

#[test]
fn what_has_to_be_measured_and_was_not_is_named() {
    let (outcome, reasons) = said(|m, _| {
        m.families.retain(|family| family.role == FamilyRole::Held);
        m.canaries.asked = 0;
        m.divergence.probes = 8;
    });
    assert_eq!((outcome, reasons.len()), (Outcome::NeedsMore, 6), "{reasons:?}");
}

#[test]
fn the_vault_can_only_take_back_what_passed() {
    let passed = verdict(|_, _| {});
    let of = |target| VaultVerdict::of(target, &[]);
    assert_eq!(passed.clone().with_vault(&of(counts(100, 60, 1))).outcome, Outcome::Passed);
    let refused = passed.with_vault(&of(counts(100, 9, 6)));
    assert_eq!(refused.outcome, Outcome::Refused);
    assert!(refused.reasons[0].to_string().starts_with("vault: the target's lower bound is -"));
}
