//! The sections `cache` and `events`: what prompts leave behind, and who is told of it.

use super::Budget;
use super::check::InvalidKey;
use crate::events::{Endpoint, EventEncoding, EventSettings, check_topic};
use serde::{Deserialize, Serialize};

/// What prompts leave behind for others that begin alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cache {
    /// Keep it on the device that computes.
    pub prefix: PrefixCacheMode,
    /// Memory of the host for what a GPU has no room for; 0 for none.
    pub host_budget: Budget,
}

impl Default for Cache {
    fn default() -> Self {
        Self { prefix: PrefixCacheMode::default(), host_budget: Budget::Auto }
    }
}

/// Whether there is a prefix cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum PrefixCacheMode {
    /// Where the memory has room for it.
    #[default]
    Auto,
    /// Or there is no service.
    On,
    /// Every prompt is read whole.
    Off,
}

/// KV events, for routers that choose an engine by the prompts that it keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventKeys {
    /// Where subscribers connect; empty publishes nothing.
    pub listen: String,
    /// Where those connect who missed some; empty says nothing again.
    pub replay: String,
    /// The first part of each message; vLLM's is empty, and its router takes no other.
    pub topic: String,
    /// How an event is written.
    pub encoding: EventEncoding,
}

impl Default for EventKeys {
    fn default() -> Self {
        let (listen, replay, topic) = Default::default();
        Self { listen, replay, topic, encoding: EventEncoding::default() }
    }
}

impl EventKeys {
    /// What a publisher is started with, if there is to be one.
    pub fn settings(&self) -> Result<Option<EventSettings>, (&'static str, String)> {
        check_topic(&self.topic).map_err(|why| ("topic", why))?;
        let endpoint = |key, text: &str| match text {
            "" => Ok(None),
            text => Endpoint::parse(text).map(Some).map_err(|why| (key, why)),
        };
        let (listen, replay) = (endpoint("listen", &self.listen)?, endpoint("replay", &self.replay)?);
        match listen {
            None if replay.is_some() => Err(("replay", "is of no use without `events.listen`".into())),
            listen => {
                let (topic, encoding) = (self.topic.clone(), self.encoding);
                Ok(listen.map(|listen| EventSettings { listen, replay, topic, encoding }))
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), InvalidKey> {
        self.settings().map(drop)
    }
}
