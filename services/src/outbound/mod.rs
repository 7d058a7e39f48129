//! The one way out of the process: every connection that the service itself makes is made here. A destination is a
//! server that the operator named, taken at whatever address it has, or a page of the public internet: every address of
//! its host is looked at before a connection goes to exactly that one. No cookies, no proxies, in public no other ports
//! than 80 and 443 (docs/decisions/0033-one-way-out.md).

mod address;
mod client;
mod destination;
mod error;
mod network;
mod reply;
mod target;
mod unpacked;

pub use client::{Method, Outbound, OutboundBounds, OutboundReply, OutboundRequest};
pub use destination::{Destination, OperatorsServer, PublicReach};
pub use error::{OutboundError, Refused};

#[cfg(test)]
mod tests;
