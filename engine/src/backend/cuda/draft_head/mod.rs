//! Draft heads on the device.

pub(crate) mod backfill;
pub(crate) mod mtp;
