//! Ids are types, so that a page never passes for a slot.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

/// A token of the model's vocabulary. Plain, because slices of it travel everywhere.
pub type TokenId = u32;

id! {
    /// One request as the caller knows it; it has one sequence a choice.
    RequestId(u64)
}
id! {
    /// Owner of requests: a user, a tenant or a program, between whom the scheduler is fair.
    KeyId(u64)
}
id! {
    /// One sequence: a prompt and what one choice has generated after it. Never reused.
    SeqId(u64)
}
id! {
    /// One step of the engine, counted from 0.
    StepId(u64)
}
id! {
    /// A place for one live sequence's recurrent state (GDN state, conv tail, token history).
    SlotId(u32)
}
id! {
    /// A place for a copy of a recurrent state as it was at some position of a prompt. Counted from 0, apart from
    /// slots.
    CheckpointId(u32)
}
id! {
    /// A block of the host's memory that belongs to the prefix cache.
    HostBlockId(u32)
}
id! {
    /// A place of the device's memory for the matrices of one adapter.
    AdapterSlotId(u16)
}
id! {
    /// A copy between the device's memory and the host's, counted from 0. Never reused.
    TransferId(u64)
}
id! {
    /// A page of [`crate::PAGE_TOKENS`] positions in every attention layer's KV cache.
    PageId(u32)
}

/// Who may find what a prompt left in the cache: only requests of the same scope. Made from a key, or from a name that
/// an operator lets several keys share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CacheScope(pub u128);

impl Default for KeyId {
    /// Of requests without a key.
    fn default() -> Self {
        Self(0)
    }
}

/// Microseconds since the process started. The scheduler is told the time; it never asks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// Time since `earlier`, 0 if that lies in the future.
    pub fn since(self, earlier: Micros) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }

    /// The time in milliseconds.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }
}
