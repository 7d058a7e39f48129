//! Replicas: each is one backend with the scheduler and the threads that serve it. A service holds one.

mod replica;

pub use replica::{Replica, ReplicaParts};
