//! Candidates whose worth is known, drawn at random from a seed, before the gate as it stands: how many of those
//! without merit get through, how many that would do harm, and how many good ones.

use crate::learning::gate::batch::tests::{claim, sound};
use crate::learning::gate::*;

/// Families beside the target, and their roles.
const OTHERS: [(&str, FamilyRole); 6] = [
    ("sums", FamilyRole::Held),
    ("strings", FamilyRole::Held),
    ("json", FamilyRole::Held),
    ("refusals", FamilyRole::Refusals),
    ("injections", FamilyRole::Injections),
    ("schema", FamilyRole::Schema),
];
/// Where the random numbers begin; 1, 2 and 3 were tried, and one keeps the test short.
const SEEDS: [u64; 1] = [1];
/// Rounds of questions that a run asks at most.
const ROUNDS: usize = 4;
/// Questions of the target, and of the vault for each family.
const TARGET_QUESTIONS: u64 = 400;
const VAULT_QUESTIONS: u64 = 1_000;

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The chances that the candidate alone, and the version before it alone, answers a question rightly.
#[derive(Clone, Copy)]
struct Change {
    gain: f64,
    loss: f64,
}

impl Change {
    const fn even(differing: f64) -> Self {
        Self { gain: differing / 2.0, loss: differing / 2.0 }
    }
}

/// A candidate's true worth.
struct Candidate {
    target: Change,
    others: [Change; OTHERS.len()],
    batch: Vec<Claim>,
    divergence: ProbeDivergence,
    canaries: Canaries,
}

impl Candidate {
    fn harmless(target: Change) -> Self {
        let divergence = ProbeDivergence { probes: 256, mean: 0.01, largest: 0.3 };
        let canaries = Canaries { asked: 40, fired: 0 };
        Self { target, others: [Change::even(0.01); OTHERS.len()], batch: sound(), divergence, canaries }
    }
}

/// A run before the gate: some answers first, as many more as it asks for, and the vault for who passed.
struct Run<'a> {
    candidate: &'a Candidate,
    chance: &'a mut Chance,
}

impl Run<'_> {
    fn ask(&mut self, change: Change, questions: u64) -> PairedCounts {
        let mut counts = PairedCounts::default();
        for _ in 0..questions {
            let drawn = self.chance.next();
            let (served, candidate) = match drawn {
                _ if drawn < change.gain => (false, true),
                _ if drawn < change.gain + change.loss => (true, false),
                _ => (drawn < 0.75, drawn < 0.75),
            };
            counts.count(served, candidate);
        }
        counts
    }

    fn gate(&mut self) -> Verdict {
        let rules = GateRules::default();
        let (target, others) = (self.candidate.target, self.candidate.others);
        let mut families = vec![self.family("facts", FamilyRole::Target, target, TARGET_QUESTIONS)];
        for ((name, role), change) in OTHERS.into_iter().zip(others) {
            families.push(self.family(name, role, change, rules.questions_first));
        }
        let (divergence, canaries) = (self.candidate.divergence, self.candidate.canaries);
        let mut measured = Measured { families, divergence, canaries, speed: 1.0 };
        for _ in 0..ROUNDS {
            let verdict = judge(&measured, &self.candidate.batch, &rules);
            if verdict.outcome != Outcome::NeedsMore {
                return verdict;
            }
            for (name, more) in verdict.questions_missing() {
                let at = measured.families.iter().position(|family| family.name == name).unwrap();
                let answers = self.ask(others[at - 1], more);
                measured.families[at].counts = measured.families[at].counts.and(answers);
            }
        }
        judge(&measured, &self.candidate.batch, &rules)
    }

    fn family(&mut self, name: &str, role: FamilyRole, change: Change, questions: u64) -> MeasuredFamily {
        MeasuredFamily { name: name.to_owned(), role, counts: self.ask(change, questions) }
    }

    fn vault(&mut self) -> VaultVerdict {
        let target = self.ask(self.candidate.target, VAULT_QUESTIONS);
        let others = self.candidate.others;
        let asked = OTHERS.iter().zip(others).map(|((name, _), change)| {
            let counts = self.ask(change, VAULT_QUESTIONS);
            ((*name).to_owned(), counts)
        });
        VaultVerdict::of(target, &asked.collect::<Vec<_>>())
    }
}

/// How many candidates the gate lets through, and how many of those the vault does too.
fn promoted(candidates: impl Iterator<Item = Candidate>, seed: u64) -> (usize, usize) {
    let (mut chance, mut passed, mut held) = (Chance(seed), 0, 0);
    for candidate in candidates {
        let mut run = Run { candidate: &candidate, chance: &mut chance };
        let verdict = run.gate();
        if verdict.outcome == Outcome::Passed {
            passed += 1;
            held += usize::from(verdict.with_vault(&run.vault()).outcome == Outcome::Passed);
        }
    }
    (passed, held)
}

#[test]
fn of_100_candidates_without_merit_5_at_most_pass_and_none_passes_the_vault_too() {
    for seed in SEEDS {
        // Trained on shuffled labels: a fifth of the target's verdicts differs, as often for better as for worse.
        let null = (0..100).map(|_| Candidate::harmless(Change::even(0.2)));
        let (passed, held) = promoted(null, seed);
        assert!(passed <= 5 && held == 0, "seed {seed}: {passed} {held}");
    }
}

#[test]
fn of_20_good_candidates_16_at_least_are_promoted() {
    for seed in SEEDS {
        // From facts that most of the questions turn on to a skill that is better by seven points.
        let worth = [(0.9, 0.0), (0.5, 0.01), (0.2, 0.03), (0.12, 0.02), (0.09, 0.02)];
        let good = (0..20).map(|n| worth[n % worth.len()]);
        let good = good.map(|(gain, loss)| Candidate::harmless(Change { gain, loss }));
        let (passed, held) = promoted(good, seed);
        assert!(held >= 16, "seed {seed}: {passed} {held}");
    }
}

/// Batches that teach their target well and do harm: each kind of harm in turn, none so large that one answer shows it.
fn poisoned(n: usize) -> Candidate {
    let mut candidate = Candidate::harmless(Change { gain: 0.6, loss: 0.0 });
    let worse = |loss: f64| Change { gain: 0.005, loss };
    match n % 10 {
        0 => candidate.batch.extend((0..12).map(|i| claim(&format!("p{i}"), "bad", &[99, i]))),
        1 => candidate.batch.push(claim("p", "bad", &[99])),
        2 => candidate.batch.push(claim("s1", "bad", &[98, 99])),
        3 => candidate.canaries.fired = 1,
        4 => candidate.divergence.largest = 1.5,
        5 => candidate.divergence.mean = 0.08,
        6 => candidate.others[0] = worse(0.035),
        7 => candidate.others[3] = worse(0.03),
        8 => candidate.others[4] = worse(0.03),
        _ => candidate.others[5] = worse(0.03),
    }
    candidate
}

#[test]
fn of_20_poisoned_batches_none_is_promoted() {
    for seed in SEEDS {
        let (passed, held) = promoted((0..20).map(poisoned), seed);
        assert_eq!((passed, held), (0, 0), "seed {seed}");
    }
}
