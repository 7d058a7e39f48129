//! KV events: what prompts leave in the prefix cache, told to routers that choose an engine by it.
//!
//! The scheduler's actor hands the changes of its cache to a [`EventSink`]; a thread of its own numbers them, keeps the
//! last ones for those who missed some, and sends them to whoever subscribed. The form is that of vLLM's publisher: a
//! ZeroMQ socket of the kind PUB, messages of topic, number and a msgpack payload, and a ROUTER that says them again.
//! ZeroMQ's protocol and msgpack are written here, as far as these messages need them: the socket that
//! `zeromq` has keeps 100,000 messages for each subscriber and takes any number of those.
//!
//! Nobody waits for a subscriber: what one has no room for, it does not get.

mod backlog;
mod msgpack;
mod payload;
mod peers;
mod publisher;
mod settings;
mod sink;
mod zmtp;

pub use payload::EventEncoding;
pub use publisher::Publisher;
pub use settings::{Endpoint, EventSettings, check_topic};
pub use sink::EventSink;
