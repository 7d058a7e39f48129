//! The threads of a step: all of them run the same sequence of phases, with a barrier between two of them.
//!
//! They are threads of our own: a step takes a hundred microseconds, and to wait for one of a general pool's jobs, or
//! for its next one, is to sleep, and to be woken takes tens of them.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{JoinHandle, available_parallelism};

/// Rounds of waiting before a thread offers its core to others, while every thread of the process' pools has a core.
const SPINS_MAX: u32 = 2_000;
/// Rounds of waiting before a thread without work offers its core: others have some.
const IDLE_SPINS: u32 = 200;
/// Times that it offers its core before it sleeps: some tenths of a millisecond, in which the next step comes where
/// that could not be planned ahead.
const IDLE_OFFERS: u32 = 1_000;

/// Threads of all pools of the process, callers included.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Whether all pools together have more threads than the process has cores. A thread that spins then holds the core of
/// one that computes.
fn are_crowded() -> bool {
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = *CORES.get_or_init(|| available_parallelism().map_or(usize::MAX, usize::from));
    THREADS.load(Ordering::Relaxed) > cores
}

/// Threads whose caller is the first of them.
pub(crate) struct ThreadPool {
    desk: Arc<Desk>,
    workers: Vec<JoinHandle<()>>,
}

impl ThreadPool {
    /// `threads` in all, the caller's included; at least one.
    pub(crate) fn new(threads: usize) -> std::io::Result<Self> {
        let desk = Arc::new(Desk::default());
        let mut pool = Self { desk, workers: Vec::new() };
        THREADS.fetch_add(1, Ordering::Relaxed);
        for index in 1..threads {
            let desk = pool.desk.clone();
            let worker = std::thread::Builder::new().name(format!("cpu-{index}"));
            pool.workers.push(worker.spawn(move || desk.serve(index))?);
            THREADS.fetch_add(1, Ordering::Relaxed);
        }
        Ok(pool)
    }

    /// Threads that [`ThreadPool::run`] uses.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `work` once on every thread, at the same time, and returns when all are done. A panic on one of them ends
    /// the others at their next barrier, and goes on in the caller.
    pub(crate) fn run(&mut self, work: impl Fn(Team) + Sync) {
        let (threads, panicked) = (self.threads(), Mutex::new(None));
        let barrier = Barrier::new(threads);
        let run = |index| {
            let team = Team { index, threads, barrier: &barrier };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(team))) {
                // First the panic that breaks the barrier, and not those that follow from it.
                panicked.lock().expect("nobody panics with it").get_or_insert(panic);
                barrier.broken.store(true, Ordering::Release);
            }
        };
        self.desk.give(&run, &self.workers);
        run(0);
        self.desk.wait();
        if let Some(panic) = panicked.into_inner().expect("nobody panicked with it") {
            resume_unwind(panic);
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        THREADS.fetch_sub(self.threads(), Ordering::Relaxed);
        self.desk.closed.store(true, Ordering::SeqCst);
        self.workers.iter().for_each(|worker| worker.thread().unpark());
        // None of them panics: what they run is caught.
        self.workers.drain(..).for_each(|worker| drop(worker.join()));
    }
}

/// What a step's threads run, as its workers see it.
type StepWork<'a> = dyn Fn(usize) + Sync + 'a;

/// Where workers find work.
#[derive(Default)]
struct Desk {
    /// Written while nobody is `busy`, read by workers from the new `round` on until they are not.
    work: UnsafeCell<Option<*const StepWork<'static>>>,
    /// Counts what was given out.
    round: AtomicUsize,
    /// Workers that are not done with it.
    busy: AtomicUsize,
    /// Workers that sleep, or are about to.
    asleep: AtomicUsize,
    closed: AtomicBool,
}

// SAFETY: `work` is guarded by `round` and `busy` as its comment says, and what it points to is `Sync`.
unsafe impl Sync for Desk {}
// SAFETY: as above.
unsafe impl Send for Desk {}

impl Desk {
    /// Has each of the workers run `work` with its index. Who calls waits for them before `work` ends.
    fn give(&self, work: &StepWork<'_>, workers: &[JoinHandle<()>]) {
        assert_eq!(self.busy.load(Ordering::Relaxed), 0, "one step after another");
        // SAFETY: nobody is busy, so nobody reads it. The pointer outlives its use: `ThreadPool::run`, the only caller,
        // which has the pool to itself, cannot unwind before `wait`, behind which no worker touches it.
        unsafe { *self.work.get() = Some(std::mem::transmute::<*const StepWork<'_>, *const StepWork<'static>>(work)) };
        self.busy.store(workers.len(), Ordering::Relaxed);
        // In one order with what a worker does before it sleeps: either it sees the round, or it is seen asleep.
        self.round.fetch_add(1, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) > 0 {
            workers.iter().for_each(|worker| worker.thread().unpark());
        }
    }

    /// Waits until all workers are done.
    fn wait(&self) {
        wait_while(|| self.busy.load(Ordering::Acquire) > 0);
    }

    /// What a worker does all its life.
    fn serve(&self, index: usize) {
        let mut done = 0;
        while self.next(done) {
            done = done.wrapping_add(1);
            // SAFETY: it was written before the round was, and stays until this worker is no longer busy.
            let work = unsafe { &*(*self.work.get()).expect("a round has work") };
            work(index);
            self.busy.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for what comes behind round `done`: a moment awake, because steps follow each other, and then asleep.
    /// `false` if nothing will.
    fn next(&self, done: usize) -> bool {
        let nothing = || self.round.load(Ordering::SeqCst) == done && !self.closed.load(Ordering::SeqCst);
        let (mut turns, idle_spins) = (0, if are_crowded() { 0 } else { IDLE_SPINS });
        while nothing() && turns < IDLE_SPINS + IDLE_OFFERS {
            turns += 1;
            if turns < idle_spins { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        if nothing() {
            self.asleep.fetch_add(1, Ordering::SeqCst);
            while nothing() {
                std::thread::park();
            }
            self.asleep.fetch_sub(1, Ordering::SeqCst);
        }
        self.round.load(Ordering::SeqCst) != done
    }
}

/// Spins for a moment, because phases take microseconds, and then yields, because a core may be shared.
fn wait_while(waits: impl Fn() -> bool) {
    let (mut spins, spins_max) = (0, if are_crowded() { 0 } else { SPINS_MAX });
    while waits() {
        if spins < spins_max {
            spins += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// One thread's place among those of a step.
#[derive(Clone, Copy)]
pub(crate) struct Team<'a> {
    /// 0 to `threads - 1`.
    pub(crate) index: usize,
    /// How many there are.
    pub(crate) threads: usize,
    barrier: &'a Barrier,
}

impl Team<'_> {
    /// Waits for all others; what any of them wrote before is visible after.
    pub(crate) fn wait(&self) {
        self.barrier.wait();
    }

    /// This team counted from its last thread: shares that are not equal are larger at the first.
    pub(crate) fn reversed(self) -> Self {
        Self { index: self.threads - 1 - self.index, ..self }
    }

    /// This thread's share of `n` equal pieces of work, contiguous.
    pub(crate) fn share(&self, n: usize) -> Range<usize> {
        n * self.index / self.threads..n * (self.index + 1) / self.threads
    }

    /// Hands this thread its share of all items' units, weighed by their cost: `work(item, units)`, in order.
    pub(crate) fn share_costs(&self, items: &[(usize, u64)], mut work: impl FnMut(usize, Range<usize>)) {
        let total: u64 = items.iter().map(|(units, cost)| *units as u64 * cost).sum();
        let (index, threads) = (self.index as u64, self.threads as u64);
        let (low, high) = (total * index / threads, total * (index + 1) / threads);
        let mut at = 0;
        for (i, (units, cost)) in items.iter().enumerate() {
            // A unit belongs to the thread in whose share it starts.
            let unit = |bound: u64| (bound.saturating_sub(at).div_ceil((*cost).max(1)) as usize).min(*units);
            if unit(low) < unit(high) {
                work(i, unit(low)..unit(high));
            }
            at += *units as u64 * cost;
        }
    }
}

/// Where the threads of a step wait for each other.
struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
    round: AtomicUsize,
    /// A thread panicked and will never arrive.
    broken: AtomicBool,
}

impl Barrier {
    fn new(threads: usize) -> Self {
        Self { threads, arrived: AtomicUsize::new(0), round: AtomicUsize::new(0), broken: AtomicBool::new(false) }
    }

    fn wait(&self) {
        if self.threads == 1 {
            return;
        }
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.store(round.wrapping_add(1), Ordering::Release);
            return;
        }
        wait_while(|| {
            assert!(!self.broken.load(Ordering::Acquire), "another thread of this step panicked");
            self.round.load(Ordering::Acquire) == round
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_thread_sees_what_all_wrote_in_the_phase_before() {
        for threads in 1..=4 {
            let mut pool = ThreadPool::new(threads).unwrap();
            let cells: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
            pool.run(|team| {
                for phase in 1..200 {
                    cells[team.index].store(phase, Ordering::Relaxed);
                    team.wait();
                    assert!(cells.iter().all(|c| c.load(Ordering::Relaxed) == phase));
                    team.wait();
                }
            });
        }
    }

    #[test]
    fn a_panic_on_one_thread_ends_the_step_on_all() {
        for threads in 1..=3 {
            let mut pool = ThreadPool::new(threads).unwrap();
            for culprit in 0..threads {
                let mut step = || {
                    pool.run(|team| {
                        assert!(team.index != culprit, "deliberate");
                        team.wait();
                    });
                };
                assert!(catch_unwind(AssertUnwindSafe(&mut step)).is_err());
            }
        }
    }

    #[test]
    fn a_thread_that_fell_asleep_is_woken_for_the_next_step() {
        let mut pool = ThreadPool::new(3).unwrap();
        let runs = AtomicU64::new(0);
        for round in 1..=30 {
            pool.run(|_| {
                runs.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(runs.load(Ordering::Relaxed), 3 * round, "all are done when it returns");
            std::thread::sleep(std::time::Duration::from_micros(100 * (round % 5)));
        }
    }

    #[test]
    fn shares_cover_everything_once_and_a_single_one_can_be_the_first_thread_s() {
        let barrier = Barrier::new(3);
        let shares: Vec<_> = (0..3).map(|index| Team { index, threads: 3, barrier: &barrier }.share(10)).collect();
        assert_eq!(shares, [0..3, 3..6, 6..10]);
        let one: Vec<_> =
            (0..3).map(|index| Team { index, threads: 3, barrier: &barrier }.reversed().share(1).len()).collect();
        assert_eq!(one, [1, 0, 0]);
    }

    #[test]
    fn units_of_any_cost_are_done_once() {
        for threads in 1..6 {
            let barrier = Barrier::new(threads);
            let items = [(3, 5), (0, 9), (10, 1), (1, 100), (7, 2)];
            let mut done = items.map(|(units, _)| vec![0; units]);
            for index in 0..threads {
                Team { index, threads, barrier: &barrier }.share_costs(&items, |item, units| {
                    units.for_each(|u| done[item][u] += 1);
                });
            }
            assert!(done.iter().flatten().all(|n| *n == 1), "{threads} threads: {done:?}");
        }
    }
}
