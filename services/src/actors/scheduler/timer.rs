//! A timer that wakes the scheduler actor at a certain time. The actor's own timers count in milliseconds and come up
//! to two of them late, which is a good part of a step; this thread sleeps until the time itself, and the system wakes
//! it within a tenth of that.

use crate::actors::messages::PlanDue;
use actix::prelude::*;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// A timer for one time at once: a later setting replaces the one before. Its thread ends when it is dropped.
pub struct Timer(Sender<Instant>);

impl Timer {
    /// Starts the thread, which sends to `sleeper`.
    pub fn start(sleeper: Recipient<PlanDue>) -> std::io::Result<Self> {
        // Unbounded, and never longer than the actor's calls since the thread last ran.
        let (set, times) = crossbeam::channel::unbounded();
        std::thread::Builder::new().name("chimere-timer".into()).spawn(move || ring(&times, &sleeper))?;
        Ok(Self(set))
    }

    /// Sets the timer to ring once, after this time.
    pub fn set(&self, after: Duration) {
        // Fails only when the thread is gone, which it never is before its sender.
        self.0.send(Instant::now() + after).ok();
    }
}

fn ring(times: &Receiver<Instant>, sleeper: &Recipient<PlanDue>) {
    let mut next = None;
    loop {
        let set =
            next.map_or_else(|| times.recv().map_err(|_| RecvTimeoutError::Disconnected), |at| times.recv_deadline(at));
        next = match set {
            Ok(at) => Some(at),
            Err(RecvTimeoutError::Timeout) => {
                sleeper.do_send(PlanDue);
                None
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    struct Sleeper(mpsc::Sender<Instant>);

    impl Actor for Sleeper {
        type Context = Context<Self>;
    }

    impl Handler<PlanDue> for Sleeper {
        type Result = ();

        fn handle(&mut self, _: PlanDue, _: &mut Context<Self>) {
            self.0.send(Instant::now()).unwrap();
        }
    }

    #[test]
    fn it_rings_once_for_the_last_time_that_was_set_and_not_before() {
        let (rang, times) = mpsc::channel();
        actix_rt::System::new().block_on(async move {
            let timer = Timer::start(Sleeper(rang).start().recipient()).unwrap();
            let begin = Instant::now();
            timer.set(Duration::from_secs(3_600));
            timer.set(Duration::from_millis(20));
            while times.try_recv().map(|at| assert!(at - begin >= Duration::from_millis(20))).is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            timer.set(Duration::from_millis(1));
            tokio::time::timeout(Duration::from_secs(60), async {
                while times.try_recv().is_err() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
            .await
            .expect("it can be set again");
            assert!(times.try_recv().is_err(), "once each");
        });
    }
}
