//! Replicas: each is one backend with the scheduler and the threads that serve it. A service has one or several.

mod replica;
mod set;

pub use crate::actors::scheduler::{ReplicaPlace, SchedulerSettings};
pub use replica::{Replica, ReplicaParts, ReplicaSettings};
pub use set::{ReplicaBuild, Replicas, ReplicasParts};
