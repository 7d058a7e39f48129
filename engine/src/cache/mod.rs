//! Who holds which part of the device's memory: KV pages and state slots. Bookkeeping only; the memory itself is the backend's.

mod pages;
mod slots;

pub(crate) use pages::Pages;
pub(crate) use slots::Slots;

/// Pages that hold `positions` positions.
pub(crate) fn pages_for(positions: u32) -> u32 {
    positions.div_ceil(crate::PAGE_TOKENS)
}
