//! From a request as it came to what a turn reads: bodies taken apart, the caller, replies that take long to write.

pub(in crate::http) mod bodies;
pub(in crate::http) mod caller;
pub(in crate::http) mod page;
pub(in crate::http) mod written;
