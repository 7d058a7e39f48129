//! Mixture of experts: which experts rows go to, their products for a few rows in one launch, and their sum.
//!
//! Products of many rows are those of [`super::wide`], with the lists that [`router`] makes.

pub mod addresses;
pub mod combine;
pub mod experts;
pub mod router;
pub mod uses;
