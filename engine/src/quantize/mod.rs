//! Choosing and writing quantised weights: how much each input of a matrix counts ([`Importance`]), what an encoding
//! costs ([`distortion`]), which encodings fit a number of bytes ([`allocate`]), the file ([`write()`]), and how far
//! two models' next-token distributions are apart ([`Divergence`]).
//!
//! What a model is fed to learn all this is the caller's business: nothing here knows text or a backend.

mod allocate;
mod distortion;
mod divergence;
mod encoder;
mod error;
mod groups;
mod importance;
mod moments;
mod rounding;
mod sensitivity;
mod types;
mod write;

pub use allocate::{EncodingChoice, allocate};
pub(crate) use distortion::values_into;
pub use distortion::{Distortion, distortion};
pub use divergence::Divergence;
pub use encoder::{Encoder, Threads};
pub use error::QuantizeError;
pub use groups::{Group, MatrixRole, groups, kept_because};
pub use importance::Importance;
pub use moments::InputMoments;
pub use sensitivity::weight_shape;
pub use types::{MENU, fitting};
pub use write::{Output, encoded_bytes, write, write_outline};
