//! The scalar definition of every operation. Backends are tested against these.

pub mod reference;
