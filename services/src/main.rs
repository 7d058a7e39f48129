//! The `chimere` binary.

fn main() {}
