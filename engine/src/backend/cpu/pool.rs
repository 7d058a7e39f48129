//! The threads of a step: all of them run the same sequence of phases, with a barrier between two of them.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Rounds of waiting before a thread offers its core to others.
const SPINS_MAX: u32 = 2_000;

/// A thread pool whose caller is its first thread.
pub(super) struct Pool {
    workers: Option<rayon::ThreadPool>,
    threads: usize,
}

impl Pool {
    /// `threads` in all, the caller's included; at least one.
    pub(super) fn new(threads: usize) -> Result<Self, rayon::ThreadPoolBuildError> {
        let workers = match threads {
            0 | 1 => None,
            n => Some(
                rayon::ThreadPoolBuilder::new().num_threads(n - 1).thread_name(|i| format!("cpu-{}", i + 1)).build()?,
            ),
        };
        Ok(Self { workers, threads: threads.max(1) })
    }

    /// Threads that [`Pool::run`] uses.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `work` once on every thread, at the same time, and returns when all are done. A panic on one of them ends
    /// the others at their next barrier, and goes on in the caller.
    pub(super) fn run(&self, work: impl Fn(Team) + Sync) {
        let barrier = Barrier::new(self.threads);
        let run = |index| {
            let team = Team { index, threads: self.threads, barrier: &barrier };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(team))) {
                barrier.broken.store(true, Ordering::Release);
                resume_unwind(panic);
            }
        };
        match &self.workers {
            None => run(0),
            Some(pool) => pool.in_place_scope(|scope| {
                scope.spawn_broadcast(|_, ctx| run(ctx.index() + 1));
                run(0);
            }),
        }
    }
}

/// One thread's place among those of a step.
#[derive(Clone, Copy)]
pub(super) struct Team<'a> {
    /// 0 to `threads - 1`.
    pub(super) index: usize,
    /// How many there are.
    pub(super) threads: usize,
    barrier: &'a Barrier,
}

impl Team<'_> {
    /// Waits for all others; what any of them wrote before is visible after.
    pub(super) fn wait(&self) {
        self.barrier.wait();
    }

    /// The same team counted from its last thread: shares that are not equal are larger at the first.
    pub(super) fn reversed(self) -> Self {
        Self { index: self.threads - 1 - self.index, ..self }
    }

    /// This thread's share of `n` equal pieces of work, contiguous.
    pub(super) fn share(&self, n: usize) -> Range<usize> {
        n * self.index / self.threads..n * (self.index + 1) / self.threads
    }

    /// Hands this thread its share of all items' units, weighed by their cost: `work(item, units)`, in order.
    pub(super) fn share_costs(&self, items: &[(usize, u64)], mut work: impl FnMut(usize, Range<usize>)) {
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

/// A barrier that spins for a moment, because phases take microseconds, and then yields, because a core may be shared.
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
        let mut spins = 0;
        while self.round.load(Ordering::Acquire) == round {
            assert!(!self.broken.load(Ordering::Acquire), "another thread of this step panicked");
            if spins < SPINS_MAX {
                spins += 1;
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_thread_sees_what_all_wrote_in_the_phase_before() {
        for threads in 1..=4 {
            let pool = Pool::new(threads).unwrap();
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
            let pool = Pool::new(threads).unwrap();
            for culprit in 0..threads {
                let step = || {
                    pool.run(|team| {
                        assert!(team.index != culprit, "deliberate");
                        team.wait();
                    });
                };
                assert!(catch_unwind(AssertUnwindSafe(step)).is_err());
            }
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
