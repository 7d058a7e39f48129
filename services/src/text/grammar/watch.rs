//! Ends what takes too long for one token. Steps are counted as well, and mostly that is enough; but what one step
//! costs depends on the grammar, and every request of the service waits for the slowest mask.

use crate::limits;
use llguidance::CancellationHandle;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Time between two looks. Looks are counted, and not the clock read: a process that was held up as a whole has not
/// taken long.
const LOOK: Duration = Duration::from_millis(10);
/// Time between two looks while no matcher works: masks take microseconds, and every look takes a core from the forward
/// pass.
const GLANCE: Duration = Duration::from_millis(40);
/// How often the thread looks whether there is still somebody to watch for.
const REST: Duration = Duration::from_secs(1);

/// A thread that looks at those who may take too long. It ends with the value.
pub(super) struct Watch(Arc<WatchList>);

#[derive(Default)]
struct WatchList {
    watched: Mutex<Vec<Weak<WatchedMatcher>>>,
    added: Condvar,
}

/// Somebody who may take too long.
pub(super) struct WatchedMatcher {
    /// Looks since it began, from 1; 0 while it does nothing.
    looks: AtomicU32,
    cancel: Mutex<CancellationHandle>,
}

impl Watch {
    /// Starts the thread that looks.
    pub(super) fn start() -> std::io::Result<Self> {
        let shared = Arc::<WatchList>::default();
        let watched = Arc::downgrade(&shared);
        std::thread::Builder::new().name("grammar-watch".into()).spawn(move || {
            while let Some(shared) = watched.upgrade() {
                shared.look();
            }
        })?;
        Ok(Self(shared))
    }

    /// Watches what is done under [`WatchedMatcher::run`], which `cancel` ends.
    pub(super) fn over(&self, cancel: CancellationHandle) -> Arc<WatchedMatcher> {
        let watched = Arc::new(WatchedMatcher { looks: AtomicU32::new(0), cancel: Mutex::new(cancel) });
        self.0.watched.lock().push(Arc::downgrade(&watched));
        self.0.added.notify_one();
        watched
    }
}

impl WatchList {
    fn look(&self) {
        let mut watched = self.watched.lock();
        if watched.is_empty() {
            self.added.wait_for(&mut watched, REST);
            return;
        }
        let mut busy = false;
        watched.retain(|one| one.upgrade().map(|one| busy |= one.look()).is_some());
        drop(watched);
        std::thread::sleep(if busy { LOOK } else { GLANCE });
    }
}

impl WatchedMatcher {
    /// Does something that may be ended.
    pub(super) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        self.looks.store(1, Ordering::Release);
        let done = work();
        self.looks.store(0, Ordering::Release);
        done
    }

    /// Runs `work` under the watch, which ends it through `cancel` instead of the handle of this matcher.
    pub(super) fn run_other<T>(&self, cancel: CancellationHandle, work: impl FnOnce() -> T) -> T {
        let own = std::mem::replace(&mut *self.cancel.lock(), cancel);
        let done = self.run(work);
        *self.cancel.lock() = own;
        done
    }

    /// Whether it does something.
    fn look(&self) -> bool {
        let one_more = |looks: u32| (looks > 0).then(|| looks + 1);
        let before = self.looks.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        if before.is_ok_and(|looks| looks >= limits::GRAMMAR_LOOKS_MAX) {
            self.cancel.lock().cancel();
        }
        before.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_for_too_many_looks_is_ended_and_what_is_done_is_left_alone() {
        let watch = Watch::start().unwrap();
        let [quick, slow] = [(), ()].map(|()| watch.over(CancellationHandle::default()));
        quick.run(|| ());
        slow.run(|| {
            while !slow.cancel.lock().is_cancelled() {
                std::thread::yield_now();
            }
        });
        assert!(!quick.cancel.lock().is_cancelled());
    }
}
