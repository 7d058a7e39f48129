//! Bytes and strangers: how connections are kept, who is let in, and within which bounds they are served. Nothing here
//! knows what is asked for.

pub(in crate::http) mod admission;
pub(in crate::http) mod arrival;
mod audited;
pub(in crate::http) mod connections;
pub(in crate::http) mod encoding;
pub(in crate::http) mod gate;
pub(in crate::http) mod gateway;
pub(in crate::http) mod keys;
mod origin;
mod paced;
mod settings;
pub(in crate::http) mod shares;
pub(in crate::http) mod sockets;
pub mod tls;

pub use arrival::Bodies;
pub use gate::Gatekeeper;
pub use keys::ring::KeyFile;
pub use origin::Origins;
pub use settings::{Edge, Patience};
pub use shares::Room;
pub use sockets::Sockets;
