//! Who holds which part of the device's memory: KV pages, state slots, checkpoints and slots of adapters. Bookkeeping
//! only; the memory itself is the backend's.

mod adapter_slots;
mod config;
mod experts;
mod host;
mod order;
mod pages;
mod prefix;
mod prompts;
mod slots;

pub(crate) use adapter_slots::AdapterSlots;
pub use config::PrefixConfig;
pub use experts::{ExpertPlace, ExpertPlaces, ExpertUses, Going, reserves as expert_reserves};
pub(crate) use experts::{GOING_MAX as EXPERTS_GOING_MAX, RESERVES_MAX as EXPERT_RESERVES_MAX};
pub use host::HostBlocks;
pub(crate) use pages::Pages;
pub use prefix::{CacheTier, FlushedEntries, PrefixChange, PrefixStats, PrefixTotals, StoredUnit};
pub(crate) use prefix::{Hit, HostHit, PrefixCache};
pub use prompts::unit_hash;
pub(crate) use slots::Slots;

/// Pages that hold `positions` positions.
pub(crate) fn pages_for(positions: u32) -> u32 {
    positions.div_ceil(crate::PAGE_TOKENS)
}
