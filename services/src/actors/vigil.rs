//! Keeps an actor's thread from sleeping for a moment. Where each step is planned by what the one before it said, what
//! two sleeping threads take to wake up is time in which a GPU has nothing to do: as long as a step of a small model.

use actix::prelude::*;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// How long after the last step that is waited for so: longer ones do not feel who wakes up.
const VIGIL: Duration = Duration::from_millis(3);
/// On machines with fewer cores the threads have better things to do.
const CORES_LEAST: usize = 6;

/// Until when a thread stays awake.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Vigil {
    /// Whether it ever does.
    allowed: bool,
    until: Option<Instant>,
}

/// An actor whose thread can be kept awake.
pub(super) trait Watchful: Actor<Context = Context<Self>> {
    /// Its own.
    fn vigil(&mut self) -> &mut Vigil;

    /// Stays awake from now on for a moment.
    fn stay_awake(&mut self, ctx: &mut Context<Self>) {
        let vigil = self.vigil();
        if vigil.allowed && vigil.until.replace(Instant::now() + VIGIL).is_none() {
            ctx.spawn(Waking);
        }
    }
}

impl Vigil {
    /// For an engine on this device.
    pub(super) fn beside(device: &str) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { allowed: device == "cuda" && cores >= CORES_LEAST, until: None }
    }

    /// Is it over? Then another one may begin.
    fn is_over(&mut self) -> bool {
        let over = self.until.is_none_or(|until| Instant::now() >= until);
        self.until = self.until.filter(|_| !over);
        over
    }
}

/// Wakes its own thread until the vigil is over; whoever sends a message meanwhile finds it awake.
struct Waking;

impl<A: Watchful> ActorFuture<A> for Waking {
    type Output = ();

    fn poll(self: Pin<&mut Self>, actor: &mut A, _: &mut Context<A>, task: &mut std::task::Context<'_>) -> Poll<()> {
        if actor.vigil().is_over() {
            return Poll::Ready(());
        }
        task.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vigil_ends_and_another_one_begins_and_beside_a_cpu_there_is_none() {
        assert!(!Vigil::beside("cpu").allowed);
        let mut vigil = Vigil { allowed: true, until: Some(Instant::now() + Duration::from_secs(100)) };
        assert!(!vigil.is_over() && vigil.until.is_some());
        vigil.until = Some(Instant::now());
        assert!(vigil.is_over() && vigil.until.is_none());
    }
}
