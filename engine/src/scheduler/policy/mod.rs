//! What the scheduler goes by: measured times, rates and lengths, and the accounts of keys. Plain numbers, which know
//! neither sequences nor plans.

pub(super) mod cost;
pub(super) mod fair;
pub(super) mod idle;
pub(super) mod ledger;
pub(super) mod lengths;
pub(super) mod throughput;
