//! A turn of several generations. The machine says what comes next, and is data in, data out; the driver carries its
//! steps out: each generation is an ordinary request, and between two of them the server runs what the model called.

mod approved;
mod driver;
mod hosting;
mod machine;
mod outputs;
mod round;
mod rules;
mod tools;
mod usage;
mod web;

pub use approved::DENIED;
pub use driver::{LaterRounds, ToldTools};
pub use hosting::host_tools;
pub use outputs::TurnOutputs;
pub(super) use tools::ReadCall;
pub(super) use usage::add;
