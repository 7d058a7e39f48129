//! What operators look at: dashboards, alert rules, load scenarios, tried on the programs that read them. Apart from
//! the tests in `http`, because the load here would make those slow.

#![allow(clippy::unwrap_used, reason = "a test")]

mod dashboards;
mod panels;
mod prometheus;
#[path = "../http/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "made for more tests than these")]
mod support;
