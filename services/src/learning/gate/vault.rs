//! The vault's questions, which only a candidate is asked that has passed, and seldom: each asking spends a part of
//! the chance that anything without merit passes in a year.

use super::paired::PairedCounts;
use serde::{Deserialize, Serialize};

/// Seconds of a year.
const YEAR: u64 = 365 * 86_400;
/// How often the vault may be asked in a year.
pub const VAULT_ASKS_A_YEAR: usize = 52;
/// The chance that all candidates without merit of a year have of passing, together.
const VAULT_ALPHA: f64 = 0.05;

/// When the vault was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VaultBudget {
    /// Seconds since 1970, in the order of the askings; those of more than a year ago are forgotten.
    asked: Vec<u64>,
}

/// The vault was asked as often as it may be in a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the vault was asked {VAULT_ASKS_A_YEAR} times in a year, as often as it may be; again in {seconds} s")]
pub struct VaultSpent {
    /// Seconds until it may be asked again.
    pub seconds: u64,
}

/// What the vault says of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VaultVerdict {
    /// The chance that was spent on this asking.
    pub alpha: f64,
    /// The answers to the target family's questions.
    pub target: PairedCounts,
    /// The lower bound of the target's difference at that chance.
    pub lower: f64,
    /// Families that are worse, with the upper bound of the difference at that chance.
    pub worse: Vec<(String, f64)>,
}

impl VaultBudget {
    /// How often it may still be asked, at a moment in seconds since 1970.
    pub fn left(&self, now: u64) -> usize {
        let recent = self.asked.iter().filter(|at| **at + YEAR > now).count();
        VAULT_ASKS_A_YEAR.saturating_sub(recent)
    }

    /// Spends one asking. What this returns has to be on the disk before the vault is asked, so that a crash does not
    /// give back what was spent.
    ///
    /// # Errors
    /// If it was asked as often as it may be in a year.
    pub fn spend(&self, now: u64) -> Result<Self, VaultSpent> {
        let mut asked: Vec<u64> = self.asked.iter().copied().filter(|at| at + YEAR > now).collect();
        if asked.len() >= VAULT_ASKS_A_YEAR {
            return Err(VaultSpent { seconds: asked[0] + YEAR - now });
        }
        asked.push(now);
        Ok(Self { asked })
    }
}

impl VaultVerdict {
    /// What one asking says: the target has to be better and no other family may be shown to be worse, each by bounds
    /// that hold over a year's askings.
    pub fn of(target: PairedCounts, others: &[(String, PairedCounts)]) -> Self {
        let alpha = VAULT_ALPHA / VAULT_ASKS_A_YEAR as f64;
        let bounds = others.iter().map(|(family, counts)| (family.clone(), counts.upper_bound(alpha)));
        let worse = bounds.filter(|(_, upper)| *upper < 0.0).collect();
        Self { alpha, target, lower: target.lower_bound(alpha), worse }
    }

    /// Whether the candidate may be served.
    pub fn holds(&self) -> bool {
        self.lower > 0.0 && self.worse.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_year_has_so_many_askings_and_what_is_a_year_old_is_there_again() {
        let mut budget = VaultBudget::default();
        for n in 0..VAULT_ASKS_A_YEAR as u64 {
            assert_eq!(budget.left(1_000 + n), VAULT_ASKS_A_YEAR - n as usize);
            budget = budget.spend(1_000 + n).unwrap();
        }
        let last = 1_000 + VAULT_ASKS_A_YEAR as u64 - 1;
        assert_eq!(budget.spend(last), Err(VaultSpent { seconds: 1_000 + YEAR - last }));
        assert_eq!((budget.left(last), budget.left(1_000 + YEAR)), (0, 1));
        budget = budget.spend(1_000 + YEAR).unwrap();
        assert!(budget.spend(1_000 + YEAR).is_err());
    }

    #[test]
    fn the_vault_asks_for_more_than_luck_and_for_no_family_that_is_worse() {
        let of = |gains, losses| PairedCounts { questions: 400, both: 0, gains, losses };
        let holds = |target, other| VaultVerdict::of(target, &[("sums".into(), other)]).holds();
        assert!(holds(of(60, 2), of(4, 5)));
        assert!(of(20, 7).lower_bound(0.05) > 0.0 && !holds(of(20, 7), of(4, 5)), "once in twenty is too often");
        assert!(!holds(of(60, 2), of(0, 40)));
    }
}
