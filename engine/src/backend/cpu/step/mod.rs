//! From a plan to what a step has to report.

pub(crate) mod head;
pub(crate) mod outputs;
