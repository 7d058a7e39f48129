//! A value that is replaced while it is in use, such as the set of tables that a service offers.

use std::sync::{Arc, PoisonError, RwLock};

/// Hands out snapshots. Whoever has one keeps it for as long as it likes; a replacement is seen by the next snapshot.
///
/// The lock is held for the copy of one pointer, once a batch of lookups: the lookups themselves run on the snapshot
/// and take none.
#[derive(Debug, Default)]
pub struct Latest<T>(RwLock<Arc<T>>);

impl<T> Latest<T> {
    /// Starts with this value.
    pub fn new(value: T) -> Self {
        Self(RwLock::new(Arc::new(value)))
    }

    /// The value of now.
    pub fn snapshot(&self) -> Arc<T> {
        // A pointer is whole whatever thread panicked while it held the lock.
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another value in, and returns the one before, which lives until its last snapshot is dropped.
    pub fn replace(&self, value: T) -> Arc<T> {
        let value = Arc::new(value);
        std::mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), value)
    }
}
