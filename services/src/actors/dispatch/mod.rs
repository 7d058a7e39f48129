//! Which of several replicas gets a request: the dispatcher before them, what it knows of each, and where requests run.

mod dispatcher;
mod load;
mod migration;
mod prefix_index;
mod route;

pub use dispatcher::{Dispatcher, Routed, SchedulerLink};
pub use migration::Migration;
pub use route::Route;
