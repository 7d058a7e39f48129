//! One step's questions, shared among the thread that asks and those that come to help.
//!
//! The asking thread begins at once and goes on until nothing is left: to wake another thread can take longer than to
//! answer, so nobody waits for one that has not come yet.

use super::request_tables::TableQuestion;
use crate::constraint::RowRule;
use rayon::ThreadPool;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Questions that are taken at a time: so many ask memory together, and whoever waits for the last ones waits no longer
/// than for these.
const PART: usize = 8;
/// Looks at what others still do before the asking thread offers its core to them.
const LOOKS_MAX: u32 = 2_000;

type Answers = Vec<(RowRule, bool)>;

/// Questions and the answers so far, both in parts.
struct ShareJob {
    asks: Vec<TableQuestion>,
    parts: Vec<Mutex<Answers>>,
    /// The first part that nobody has taken.
    next: AtomicUsize,
    done: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// The answers in the order of the questions. As many threads of `helpers` are asked for as could find something to do.
pub(super) fn answer_together(asks: Vec<TableQuestion>, helpers: &ThreadPool) -> Answers {
    let parts = asks.len().div_ceil(PART);
    let job = Arc::new(ShareJob {
        asks,
        parts: (0..parts).map(|_| Mutex::default()).collect(),
        next: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        panic: Mutex::default(),
    });
    for _ in 1..parts.min(helpers.current_num_threads() + 1) {
        let job = job.clone();
        helpers.spawn(move || job.work());
    }
    job.work();
    job.wait();
    if let Some(panic) = take(&job.panic) {
        resume_unwind(panic);
    }
    job.parts.iter().flat_map(take).collect()
}

impl ShareJob {
    /// Answers part after part, as long as there is one.
    fn work(&self) {
        loop {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(answers) = self.parts.get(i) else { return };
            let asks = &self.asks[PART * i..self.asks.len().min(PART * (i + 1))];
            // A panic here is the asking thread's: it alone is waited for, and its end is noticed.
            match catch_unwind(AssertUnwindSafe(|| TableQuestion::answer_all(asks))) {
                Ok(found) => *lock(answers) = found,
                Err(panic) => *lock(&self.panic) = Some(panic),
            }
            self.done.fetch_add(1, Ordering::Release);
        }
    }

    /// Until all parts are done that somebody has taken, which is all of them when nothing is left to take.
    fn wait(&self) {
        let mut looks = 0;
        while self.done.load(Ordering::Acquire) < self.parts.len() {
            looks += 1;
            if looks < LOOKS_MAX { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

fn lock<T>(cell: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // What is in it was put there whole.
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take<T: Default>(cell: &Mutex<T>) -> T {
    std::mem::take(&mut *lock(cell))
}
