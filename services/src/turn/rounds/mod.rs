//! A turn of several generations. The machine says what comes next, and is data in, data out; the driver carries its
//! steps out: each generation is an ordinary request, and between two of them the server runs what the model called.

mod driver;
mod machine;
mod outputs;
mod round;
mod usage;
mod web;

pub use driver::LaterRounds;
pub use outputs::TurnOutputs;
