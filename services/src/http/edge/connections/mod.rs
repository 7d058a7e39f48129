//! One connection: counted by where it comes from, its requests one after the other, each phase within its time.

mod connection;
mod door;
mod exchange;
pub(in crate::http::edge) mod faults;
pub(in crate::http) mod followed;
mod framing;
pub(in crate::http) mod listener;
mod socket;
