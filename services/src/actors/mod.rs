//! Thin shells around plain structs: who owns what, and who hears from whom.

pub mod messages;
