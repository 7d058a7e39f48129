//! Keeps an actor's thread from sleeping for a moment. Where each step is planned by what the one before it said, what
//! two sleeping threads take to wake up is time in which nothing is computed: on a GPU as long as a step of a small model,
//! on two processors of a virtual machine up to a sixth of one with seven drafts.

use actix::prelude::*;
use chimere_engine::backend::BackendInfo;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// How long a thread stays awake after the last step that is waited for in this way. Longer steps do not feel the time
/// in which threads wake up.
const SPIN_WAIT: Duration = Duration::from_millis(3);
/// Beside a GPU, threads of machines with fewer cores have better things to do.
const CORES_LEAST: usize = 6;
/// Number of cores beyond those that compute that is enough for threads that wait.
const CORES_BESIDE: usize = 3;

/// How a thread stays awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// It spins, because there are cores enough.
    Spins,
    /// It offers its core to others again and again.
    Offers,
}

/// Until when a thread stays awake.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpinWait {
    /// `None` if it never does.
    manner: Option<Manner>,
    until: Option<Instant>,
}

/// An actor whose thread can be kept awake.
pub(super) trait Watchful: Actor<Context = Context<Self>> {
    /// The spin-wait of this actor.
    fn spin_wait(&mut self) -> &mut SpinWait;

    /// Stays awake from now on for a moment.
    fn stay_awake(&mut self, ctx: &mut Context<Self>) {
        let wait = self.spin_wait();
        if wait.manner.is_some() && wait.until.replace(Instant::now() + SPIN_WAIT).is_none() {
            ctx.spawn(Waking);
        }
    }
}

impl SpinWait {
    /// The spin-wait of the engine's thread. Where that is one of those that compute, it has a core anyway.
    pub(crate) fn of_engine(info: &BackendInfo) -> Self {
        let spins = Self::of_scheduler(info);
        let offers = (info.threads > 0).then_some(Manner::Offers);
        Self { manner: spins.manner.or(offers), ..spins }
    }

    /// The spin-wait of the scheduler's thread.
    pub(crate) fn of_scheduler(info: &BackendInfo) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { manner: has_room(info.threads as usize, cores).then_some(Manner::Spins), until: None }
    }

    /// Whether it is over, so that another one may begin.
    fn is_over(&mut self) -> bool {
        let over = self.until.is_none_or(|until| Instant::now() >= until);
        self.until = self.until.filter(|_| !over);
        over
    }
}

/// Whether a machine with this number of cores has some for threads that wait beside its `threads` that compute.
fn has_room(threads: usize, cores: usize) -> bool {
    if threads == 0 { cores >= CORES_LEAST } else { cores >= threads + CORES_BESIDE }
}

/// Wakes its own thread until the spin-wait is over; whoever sends a message meanwhile finds it awake.
struct Waking;

impl<A: Watchful> ActorFuture<A> for Waking {
    type Output = ();

    fn poll(self: Pin<&mut Self>, actor: &mut A, _: &mut Context<A>, task: &mut std::task::Context<'_>) -> Poll<()> {
        if actor.spin_wait().is_over() {
            return Poll::Ready(());
        }
        if actor.spin_wait().manner == Some(Manner::Offers) {
            std::thread::yield_now();
        }
        task.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_spin_where_there_are_cores_beside_those_that_compute() {
        assert_eq!(
            [(0, 5), (0, 6), (2, 4), (2, 5), (16, 16)].map(|(threads, cores)| has_room(threads, cores)),
            [false, true, false, true, false]
        );
    }

    #[test]
    fn a_spin_wait_ends_and_another_one_begins() {
        let mut wait = SpinWait { manner: Some(Manner::Spins), until: Some(Instant::now() + Duration::from_secs(100)) };
        assert!(!wait.is_over() && wait.until.is_some());
        wait.until = Some(Instant::now());
        assert!(wait.is_over() && wait.until.is_none());
    }
}
