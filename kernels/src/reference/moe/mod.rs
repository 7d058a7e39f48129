//! Mixture of experts: the choice of a row's experts, rows by expert, and the sum of their outputs.

mod combine;
mod group;
mod router;

pub use combine::combine;
pub use group::{ExpertGroups, group};
pub use router::{ExpertCut, route, route_cut, route_sigmoid};
