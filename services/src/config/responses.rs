//! The section `responses`.

use super::check::{InvalidKey, not_zero};
use crate::limits;
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
