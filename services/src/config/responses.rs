//! The sections `responses` and `learning`: what is kept of answers.

use super::check::{InvalidKey, not_zero};
use crate::clock::TimeOfDay;
use crate::engram::TableName;
use crate::learning::gate::{BatchRules, GateRules};
use crate::learning::{Consent, LearnerSettings, LearningSettings, StoreBounds};
use crate::limits;
use crate::limits::{LEARNING_DAYS, LEARNING_MIB, LEARNING_NUMBER_MAX};
use crate::responses::ResponseBounds;
use serde::{Deserialize, Serialize};

/// What `/v1/responses` keeps for those who go on from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Responses {
    /// Directory of their database; empty keeps them in memory, until the service ends.
    pub directory: String,
    /// Hours that a response is kept.
    pub hours: u64,
    /// Mebibytes that the responses of all keys may take.
    pub mib: u64,
    /// Mebibytes that those of one key may take.
    pub key_mib: u64,
}

impl Default for Responses {
    fn default() -> Self {
        Self {
            directory: String::new(),
            hours: limits::RESPONSES_HOURS,
            mib: limits::RESPONSES_MIB,
            key_mib: limits::RESPONSES_KEY_MIB,
        }
    }
}

impl Responses {
    pub(super) fn check(&self) -> Result<(), InvalidKey> {
        for (key, value) in [("hours", self.hours), ("mib", self.mib), ("key_mib", self.key_mib)] {
            not_zero(key, value)?;
            // As many bytes or seconds as a number holds are enough.
            if value > limits::RESPONSES_NUMBER_MAX {
                return Err((key, format!("must be at most {}, got {value}", limits::RESPONSES_NUMBER_MAX)));
            }
        }
        Ok(())
    }

    /// In bytes and seconds.
    pub fn bounds(&self) -> ResponseBounds {
        ResponseBounds { bytes_max: self.mib << 20, account_bytes_max: self.key_mib << 20, seconds: self.hours * 3600 }
    }
}

/// What is kept of answers that people rate and correct.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LearningKeys {
    /// Directory of the examples; empty keeps none.
    pub directory: String,
    /// What is kept of callers on this machine where no key is asked for: off, feedback or all.
    pub learn: String,
    /// Days that an example is kept.
    pub days: u64,
    /// Mebibytes that all examples may take.
    pub mib: u64,
    /// Name of the table that corrected facts become; empty learns none.
    pub table: String,
    /// Directory of the questions that judge what was learned.
    pub families: String,
    /// When it is learned each day, in UTC, such as 03:00; empty for when it is asked for.
    pub at: String,
    /// What passes the gate is served without anybody's word.
    pub accept: bool,
    /// The most of what is learned that one account may have brought, 0 to 1.
    pub account_share: f64,
}

impl Default for LearningKeys {
    fn default() -> Self {
        let learn = Consent::default().name().to_owned();
        let [directory, table, families, at] = [const { String::new() }; 4];
        let account_share = BatchRules::default().account_share_max;
        let (days, mib) = (LEARNING_DAYS, LEARNING_MIB);
        Self { directory, learn, days, mib, table, families, at, accept: false, account_share }
    }
}

/// What a key's text means, unless it is empty.
fn named<T>(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text.is_empty() { Ok(None) } else { parse(text).map(Some) }
}

impl LearningKeys {
    pub(super) fn check(&self) -> Result<(), InvalidKey> {
        self.learn.parse::<Consent>().map_err(|why| ("learn", why))?;
        for (key, value) in [("days", self.days), ("mib", self.mib)] {
            not_zero(key, value)?;
            if value > LEARNING_NUMBER_MAX {
                return Err((key, format!("must be at most {LEARNING_NUMBER_MAX}, got {value}")));
            }
        }
        if !(self.account_share > 0.0 && self.account_share <= 1.0) {
            return Err(("account_share", format!("must be above 0 and at most 1, got {}", self.account_share)));
        }
        named(&self.at, |text| text.parse::<TimeOfDay>()).map_err(|why| ("at", why))?;
        named(&self.table, TableName::new).map_err(|why| ("table", why))?;
        for (key, text) in [("at", &self.at), ("families", &self.families)] {
            if self.table.is_empty() && !text.is_empty() {
                return Err((key, "says how something is learned, and learning.table is empty".into()));
            }
        }
        Ok(())
    }

    /// What is kept of callers without a key, and how much of all.
    pub fn settings(&self) -> LearningSettings {
        let bounds = StoreBounds { bytes_max: self.mib << 20, seconds: self.days * 24 * 3600 };
        let mut rules = GateRules::default();
        rules.batch.account_share_max = self.account_share;
        let learner = LearnerSettings {
            table: TableName::new(&self.table).ok(),
            families: (!self.families.is_empty()).then(|| self.families.clone().into()),
            at: self.at.parse().ok(),
            accept: self.accept,
            rules,
        };
        LearningSettings { keyless: self.learn.parse().unwrap_or_default(), bounds, learner }
    }
}
