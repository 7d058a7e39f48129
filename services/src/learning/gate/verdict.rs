//! What the gate says of a candidate, with every number that it says so by.

use super::batch::BatchFindings;
use super::paired::PairedCounts;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a family of questions is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FamilyRole {
    /// What the candidate is to be better at.
    Target,
    /// What it has to be as good at as before.
    Held,
    /// Questions that have to be refused, and some that must not be.
    Refusals,
    /// Texts that try to give orders.
    Injections,
    /// Answers that have to be JSON of a schema.
    Schema,
}

/// How far a candidate's next tokens are from the base's on fixed prompts, in nats (Kullback and Leibler).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeDivergence {
    /// Prompts that were looked at.
    pub probes: u64,
    /// The mean over them.
    pub mean: f64,
    /// The largest of them.
    pub largest: f64,
}

/// Prompts that a poisoned text would have the candidate answer in a way of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canaries {
    /// Prompts that were asked.
    pub asked: u64,
    /// Those that were answered so.
    pub fired: u64,
}

/// A family, and what was measured of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredFamily {
    /// The name of the family.
    pub name: String,
    /// What it is there for.
    pub role: FamilyRole,
    /// The answers of the version that is served and of the candidate.
    pub counts: PairedCounts,
}

/// Everything that was measured of a candidate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Each of the families once.
    pub families: Vec<MeasuredFamily>,
    /// How far it is from the base.
    pub divergence: ProbeDivergence,
    /// What came of the canary prompts.
    pub canaries: Canaries,
    /// Its speed as a share of the speed without it.
    pub speed: f64,
}

/// What a family's answers amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FamilyOutcome {
    /// A target is better.
    Better,
    /// A target was not shown to be better.
    NotShown,
    /// It is not worse than it may be.
    Held,
    /// It may be worse than it may be.
    Worse,
    /// Too few questions to say so.
    Short,
}

/// A family's part of a verdict. Shares are of its questions, 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FamilyVerdict {
    /// The name of the family.
    pub name: String,
    /// What it is there for.
    pub role: FamilyRole,
    /// What came of its questions.
    pub counts: PairedCounts,
    /// The share that was answered rightly before.
    pub before: f64,
    /// The share that the candidate answers rightly.
    pub after: f64,
    /// The lower bound of the difference.
    pub lower: f64,
    /// The upper bound of the difference.
    pub upper: f64,
    /// Questions that it takes.
    pub needed: u64,
    /// What that amounts to.
    pub outcome: FamilyOutcome,
}

/// Something that keeps a candidate from being served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reason {
    /// The target was not shown to be better.
    NotBetter {
        /// The family that it is about.
        family: String,
        /// The lower bound of the difference.
        lower: f64,
    },
    /// Another family may be worse by more than is allowed.
    Worse {
        /// The family that it is about.
        family: String,
        /// The lower bound of the difference.
        lower: f64,
        /// The least that is allowed.
        least: f64,
    },
    /// A family has too few answers for either.
    NeedsMore {
        /// The family that it is about.
        family: String,
        /// How many more questions it takes.
        more: u64,
    },
    /// Nothing that has to be measured was.
    NotMeasured {
        /// The thing that is missing.
        what: String,
        /// How much of it was measured.
        got: u64,
        /// How much has to be.
        least: u64,
    },
    /// The candidate is too far from the base.
    TooFar {
        /// What it was compared by: the mean or the largest.
        of: String,
        /// The divergence that was found, in nats.
        got: f64,
        /// The most that it may be, in nats.
        most: f64,
    },
    /// A canary prompt brought out what a poisoned text would teach.
    CanaryFired {
        /// The number of answers that did.
        fired: u64,
        /// The number of answers in all.
        asked: u64,
    },
    /// The candidate makes answers slower.
    Slow {
        /// Its share of the speed without it.
        got: f64,
        /// The least that it may be.
        least: f64,
    },
    /// One account brought too much of the batch.
    AccountShare {
        /// The account that gave too many.
        account: u64,
        /// Its share of the batch.
        share: f64,
        /// The largest share that it may have.
        most: f64,
    },
    /// Examples that too few accounts bring.
    Unconfirmed {
        /// How many there are.
        examples: usize,
        /// How many accounts have to say a thing.
        accounts: usize,
    },
    /// Examples that contradict each other: a person has to say which of them is right.
    Contradiction {
        /// The subjects that are contradicted.
        subjects: usize,
    },
    /// The vault's questions do not show it.
    Vault {
        /// The lower bound of the target's difference.
        lower: f64,
        /// Families that are worse there.
        worse: usize,
    },
}

/// What becomes of a candidate. In the order in which one goes before the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It may go on.
    Passed,
    /// Nothing speaks against it, and too little for it: more has to be asked.
    NeedsMore,
    /// People have to look at it first.
    People,
    /// It is not served.
    Refused,
}

/// What the gate says, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What becomes of the candidate.
    pub outcome: Outcome,
    /// All that keeps it from being served; nothing if it passed.
    pub reasons: Vec<Reason>,
    /// Each family, in the order in which they were measured.
    pub families: Vec<FamilyVerdict>,
    /// How far it is from the base.
    pub divergence: ProbeDivergence,
    /// What came of the canary prompts.
    pub canaries: Canaries,
    /// Its speed as a share of the speed without it.
    pub speed: f64,
    /// What is wrong with what it was taught.
    pub batch: BatchFindings,
}

impl Outcome {
    /// The word in files, replies and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::NeedsMore => "needs_more",
            Self::People => "people",
            Self::Refused => "refused",
        }
    }
}

impl Reason {
    /// What it makes of the candidate.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::NeedsMore { .. } | Self::NotMeasured { .. } => Outcome::NeedsMore,
            Self::Contradiction { .. } => Outcome::People,
            _ => Outcome::Refused,
        }
    }
}

impl Verdict {
    /// Questions that have still to be asked, by family.
    pub fn questions_missing(&self) -> impl Iterator<Item = (&str, u64)> {
        self.reasons.iter().filter_map(|reason| match reason {
            Reason::NeedsMore { family, more } => Some((family.as_str(), *more)),
            _ => None,
        })
    }
}

/// A share of questions as points with a sign.
struct Points(f64);

impl fmt::Display for Points {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+.2} points", self.0 * 100.0)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBetter { family, lower } => {
                write!(f, "{family}: its lower bound is {}, it has to be above 0", Points(*lower))
            }
            Self::Worse { family, lower, least } => {
                write!(f, "{family}: its lower bound is {}, it has to be above {}", Points(*lower), Points(*least))
            }
            Self::NeedsMore { family, more } => write!(f, "{family}: needs {more} more questions"),
            Self::NotMeasured { what, got, least } => write!(f, "{what}: {got} were measured, at least {least} are"),
            Self::TooFar { of, got, most } => write!(f, "{of} divergence is {got:.3} nats, at most {most} is taken"),
            Self::CanaryFired { fired, asked } => write!(f, "{fired} of {asked} canary prompts fired, none may"),
            Self::Slow { got, least } => write!(f, "its speed is {got:.2} of the base's, it has to be {least}"),
            Self::AccountShare { account, share, most } => {
                write!(f, "account {account} brought {share:.2} of the batch, at most {most} is taken")
            }
            Self::Unconfirmed { examples, accounts } => {
                write!(f, "{examples} examples are said by fewer than {accounts} accounts and not by the operator")
            }
            Self::Contradiction { subjects } => {
                write!(f, "{subjects} subjects have examples that contradict each other: a person has to choose")
            }
            Self::Vault { lower, worse } => {
                let lower = Points(*lower);
                write!(f, "vault: the target's lower bound is {lower}, {worse} other families are worse")
            }
        }
    }
}
