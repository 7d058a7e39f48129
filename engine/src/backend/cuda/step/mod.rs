//! One step of the plan: its rows as the device reads them, and what comes back of it.

pub(crate) mod history;
pub(crate) mod host;
pub(crate) mod leader;
pub(crate) mod pooling;
pub(crate) mod rows;
pub(crate) mod sampling;
pub(crate) mod stored;
