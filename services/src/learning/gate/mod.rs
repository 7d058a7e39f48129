//! Whether something that was learned may be served: exact statistics of paired answers, rules about what it was
//! learned from, and a verdict with its reasons. Data in, data out: who asks the questions, and when, is not here.

mod batch;
mod binomial;
mod judge;
mod paired;
mod rotation;
mod rules;
mod vault;
mod verdict;

pub use batch::{BatchFindings, BatchRules, Claim, LargeShare};
pub use judge::judge;
pub use paired::PairedCounts;
pub use rotation::Rotation;
pub use rules::GateRules;
pub use vault::{VAULT_ASKS_A_YEAR, VaultBudget, VaultSpent, VaultVerdict};
pub use verdict::{
    Canaries, FamilyOutcome, FamilyRole, FamilyVerdict, Measured, MeasuredFamily, Outcome, ProbeDivergence, Reason,
    Verdict,
};

#[cfg(test)]
mod tests;
