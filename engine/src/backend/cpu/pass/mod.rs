//! The rows of one pass through the model, and what is noted of them on the way.

pub(crate) mod batch;
pub(crate) mod probe;
pub(crate) mod routes;
