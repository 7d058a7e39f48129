//! The section `decide`.

use super::check::{InvalidKey, within};
use crate::limits::DECISION_ORDERS_MAX;
use serde::{Deserialize, Serialize};

/// How questions with given options are decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decide {
    /// In how many orders the options of a choice are shown, where a request does not say.
    pub orders: u32,
    /// File of temperatures, as `chimere eval decisions` writes it; empty takes the model's probabilities.
    pub calibration: String,
}

impl Default for Decide {
    fn default() -> Self {
        Self { orders: 1, calibration: String::new() }
    }
}

impl Decide {
    pub(super) fn check(&self) -> Result<(), InvalidKey> {
        within("orders", self.orders, 1..=DECISION_ORDERS_MAX)
    }
}
