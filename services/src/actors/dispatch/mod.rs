//! Which of several replicas gets a request: the dispatcher before them, what it knows of each, and where requests run.

mod dispatcher;
mod load;
mod migration;
mod placement;
mod prefix_index;

pub use dispatcher::{Dispatcher, Placed, SchedulerLink};
pub use migration::Migration;
pub use placement::Placement;
