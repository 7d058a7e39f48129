//! What a batch of facts is made of, looked at before anything is asked: how much of it is one account's, whether
//! enough people say each thing, and what contradicts what.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Something that a candidate was taught, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The example that it comes from.
    pub example: String,
    /// What it is about: claims about one thing have one subject.
    pub subject: String,
    /// What it says of that; two claims of one subject that say something else contradict each other.
    pub says: String,
    /// The accounts that brought it.
    pub accounts: BTreeSet<u64>,
    /// The operator brought it: then nobody else has to, and nobody's share counts it.
    pub by_operator: bool,
}

/// How a batch may be made up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchRules {
    /// The most of a batch that one account may have brought, 0 to 1.
    pub account_share_max: f64,
    /// How many accounts have to say a thing that the operator does not say.
    pub accounts_min: usize,
}

impl Default for BatchRules {
    fn default() -> Self {
        Self { account_share_max: 0.1, accounts_min: 2 }
    }
}

/// An account that brought more of a batch than one may.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LargeShare {
    /// The account that gave them.
    pub account: u64,
    /// Its share of the batch, 0 to 1.
    pub share: f64,
}

/// What is wrong with a batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchFindings {
    /// Accounts that brought too much of it, by account.
    pub large_shares: Vec<LargeShare>,
    /// Examples that too few accounts bring, in the order of the batch.
    pub unconfirmed: Vec<String>,
    /// Examples of one subject that say different things, a list for each subject.
    pub contradictions: Vec<Vec<String>>,
}

impl BatchFindings {
    /// Looks at a batch.
    pub fn of(batch: &[Claim], rules: &BatchRules) -> Self {
        Self {
            large_shares: large_shares(batch, rules.account_share_max),
            unconfirmed: unconfirmed(batch, rules.accounts_min),
            contradictions: contradictions(batch),
        }
    }
}

fn large_shares(batch: &[Claim], most: f64) -> Vec<LargeShare> {
    let mut brought: BTreeMap<u64, u64> = BTreeMap::new();
    for claim in batch.iter().filter(|claim| !claim.by_operator) {
        claim.accounts.iter().for_each(|account| *brought.entry(*account).or_default() += 1);
    }
    let share = |(account, claims)| LargeShare { account, share: claims as f64 / batch.len() as f64 };
    brought.into_iter().map(share).filter(|large| large.share > most).collect()
}

/// Whoever says the same of the same subject in another example confirms it too.
fn unconfirmed(batch: &[Claim], least: usize) -> Vec<String> {
    let mut saying: BTreeMap<(&str, &str), (BTreeSet<u64>, bool)> = BTreeMap::new();
    for claim in batch {
        let (accounts, by_operator) = saying.entry((&claim.subject, &claim.says)).or_default();
        accounts.extend(&claim.accounts);
        *by_operator |= claim.by_operator;
    }
    let is_alone = |claim: &&Claim| {
        let (accounts, by_operator) = &saying[&(claim.subject.as_str(), claim.says.as_str())];
        !by_operator && accounts.len() < least
    };
    batch.iter().filter(is_alone).map(|claim| claim.example.clone()).collect()
}

fn contradictions(batch: &[Claim]) -> Vec<Vec<String>> {
    let mut subjects: BTreeMap<&str, Vec<&Claim>> = BTreeMap::new();
    batch.iter().for_each(|claim| subjects.entry(&claim.subject).or_default().push(claim));
    let disagree = |claims: &Vec<&Claim>| claims.iter().any(|claim| claim.says != claims[0].says);
    let examples = |claims: Vec<&Claim>| claims.into_iter().map(|claim| claim.example.clone()).collect();
    subjects.into_values().filter(disagree).map(examples).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::learning::gate) const RULES: BatchRules = BatchRules { account_share_max: 0.1, accounts_min: 2 };

    pub(in crate::learning::gate) fn claim(subject: &str, says: &str, accounts: &[u64]) -> Claim {
        let accounts = accounts.iter().copied().collect();
        let example = format!("ex_{subject}_{says}");
        Claim { example, subject: subject.into(), says: says.into(), accounts, by_operator: false }
    }

    /// Facts that two accounts say each, of twenty accounts.
    pub(in crate::learning::gate) fn sound() -> Vec<Claim> {
        (0..40).map(|n| claim(&format!("s{n}"), "x", &[n % 20, (n + 7) % 20])).collect()
    }

    #[test]
    fn a_batch_of_many_people_is_sound_and_one_of_an_account_that_brings_a_fifth_is_not() {
        assert_eq!(BatchFindings::of(&sound(), &RULES), BatchFindings::default());
        let mut flooded = sound();
        (0..10).for_each(|n| flooded.push(claim(&format!("f{n}"), "x", &[99, n])));
        let found = BatchFindings::of(&flooded, &RULES);
        assert_eq!(found.large_shares, [LargeShare { account: 99, share: 0.2 }]);
        assert_eq!((found.unconfirmed.len(), found.contradictions.len()), (0, 0));
        flooded.iter_mut().for_each(|claim| claim.by_operator = true);
        assert_eq!(BatchFindings::of(&flooded, &RULES), BatchFindings::default(), "the operator answers for it");
    }

    #[test]
    fn what_one_account_says_is_confirmed_by_whoever_says_it_too_and_contradicted_by_whoever_says_something_else() {
        let mut batch = sound();
        batch.push(claim("port", "1871", &[50]));
        assert_eq!(BatchFindings::of(&batch, &RULES).unconfirmed, ["ex_port_1871"]);
        batch.push(claim("port", "1871", &[51]));
        assert!(BatchFindings::of(&batch, &RULES).unconfirmed.is_empty());
        batch.push(claim("port", "1872", &[52, 53]));
        let found = BatchFindings::of(&batch, &RULES);
        assert_eq!(found.contradictions, [["ex_port_1871", "ex_port_1871", "ex_port_1872"]]);
    }
}
