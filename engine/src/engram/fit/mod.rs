//! How far matches are believed where a request names no strength: the evidence of each match, the share that is fitted
//! for such evidence, and the mixture of all matches of one position.

mod auto;
mod calibration;
mod strength;

pub use auto::{Auto, Level, Levels, Origin};
pub use calibration::Fit;
pub use strength::{CELLS_ALL, Cell, Evidence, Joint, SHARE_MAX, Strengths, StrengthsError, Witness, rareness};
