//! The layers of a model, one after the other, and its head.

pub(crate) mod forward;
pub(crate) mod logits;
pub(crate) mod weights;
pub(crate) mod workspace;
