//! A queue that wakes nobody: messages lie there until their reader comes by for another reason.

use parking_lot::Mutex;
use std::sync::Arc;

/// Messages that are read when their reader is awake anyway. Clones share it.
pub struct PolledQueue<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for PolledQueue<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for PolledQueue<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> PolledQueue<T> {
    /// Appends a message. The reader comes by once a step at least, so the queue stays short.
    pub fn put(&self, message: T) {
        self.0.lock().push(message);
    }

    /// Takes all messages that have come, in their order.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_once_and_in_its_order() {
        let queue = PolledQueue::default();
        queue.put(1);
        queue.clone().put(2);
        assert_eq!((queue.take(), queue.take()), (vec![1, 2], vec![]));
    }
}
