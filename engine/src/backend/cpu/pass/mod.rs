//! The rows of one pass through blocks, the phases that operators share, and notes that are taken on the way.

pub(crate) mod adapted;
pub(crate) mod batch;
pub(crate) mod experts;
pub(crate) mod forward;
pub(crate) mod probe;
pub(crate) mod room;
pub(crate) mod routes;
pub(crate) mod stream;
