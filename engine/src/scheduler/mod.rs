//! Decides what runs next. Data in, data out: no clock, no device, no channel.

mod config;
mod request;

pub use config::SchedulerConfig;
pub use request::{Event, FinishReason, Rejected, Request, RequestTimes, Usage};
