//! Declares the engine lost when a step does not end, and ends the process when nothing else can.
//!
//! The scheduler actor names the step that the engine computes. A thread of the watchdog's own adds up how long that step
//! has shown no progress. It waits for no device, and for no lock that anybody holds while a device is asked, so it runs
//! whatever else stands still. When the time is over it tells the scheduler actor, which ends all streams; if that
//! actor does not answer, the watchdog itself marks the service as lost. From then on the process has a bounded time to
//! end in order. A driver that does not answer can hold up destructors and exit handlers, so after that time the
//! watchdog ends the process without them.

use crate::actors::messages::EngineOverdue;
use crate::actors::phase::{Phase, ReplicaPhase};
use crate::limits;
use crate::metrics::replicas::ReplicaMeter;
use actix::Recipient;
use chimere_engine::backend::Progress;
use chimere_engine::ids::StepId;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two looks at the step. A look counts for at most twice this time, so that a step does not age while the
/// machine sleeps or the process is stopped.
const TICK: Duration = Duration::from_millis(250);
/// Time in which the scheduler actor has to answer; it needs microseconds unless its thread stands still too.
const ANSWER: Duration = Duration::from_secs(2);

/// How long the engine may go without progress, and how long the process may take to end afterwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepLimits {
    /// Time that every step may take.
    pub least: Duration,
    /// A step may take this many times its predicted duration, where that is longer.
    pub predictions: f64,
    /// Time that a step may take whose duration nothing predicts: one of the first after the start.
    pub unpredicted: Duration,
    /// Time from the loss of the engine to the end of the process.
    pub exit: Duration,
}

impl Default for StepLimits {
    fn default() -> Self {
        Self {
            least: Duration::from_secs(limits::WATCHDOG_SECONDS),
            predictions: limits::WATCHDOG_PREDICTIONS,
            unpredicted: Duration::from_secs(limits::WATCHDOG_UNPREDICTED_SECONDS),
            exit: Duration::from_secs(limits::ENGINE_LOST_EXIT_SECONDS),
        }
    }
}

impl StepLimits {
    /// Time without progress after which this is overdue.
    fn allowed(&self, awaited: Awaited) -> Duration {
        match awaited {
            Awaited::Plan => self.least,
            Awaited::Step { predicted_us: None, .. } => self.unpredicted.max(self.least),
            Awaited::Step { predicted_us: Some(us), .. } => {
                // A prediction that is not a number, or too large for a duration, allows no more than nothing does.
                let scaled = Duration::try_from_secs_f64(us * 1e-6 * self.predictions).unwrap_or_default();
                scaled.max(self.least)
            }
        }
    }
}

/// What has to happen next if the service is not to stand still.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Awaited {
    /// The oldest step in flight ends.
    Step {
        /// Number of the step that is awaited.
        id: StepId,
        /// Its predicted duration in microseconds; `None` while nothing predicts it.
        predicted_us: Option<f64>,
    },
    /// Requests are there and no step is in flight, so a step has to be planned.
    Plan,
}

/// The scheduler actor's end of the watchdog.
#[derive(Clone, Debug, Default)]
pub struct EngineWatch(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Option<Waiting>>,
    /// The service has ended in order.
    over: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    awaited: Awaited,
    /// The backend's progress at the last look.
    progress: u64,
    /// Time in which nothing has made progress.
    waited: Duration,
}

impl EngineWatch {
    /// Names what has to happen next; `None` if there is nothing to do.
    pub(super) fn expect(&self, awaited: Option<Awaited>) {
        let mut waiting = self.0.waiting.lock();
        if waiting.map(|now| now.awaited) != awaited {
            *waiting = awaited.map(|awaited| Waiting { awaited, progress: 0, waited: Duration::ZERO });
        }
    }

    /// Adds `time` to what has been waited for, unless the backend has made progress since the last look.
    fn age(&self, time: Duration, progress: u64) -> Option<Waiting> {
        let mut waiting = self.0.waiting.lock();
        let now = waiting.as_mut()?;
        if now.progress != progress {
            (now.progress, now.waited) = (progress, Duration::ZERO);
        }
        now.waited += time;
        Some(*now)
    }
}

/// Keeps the watchdog's thread; the thread ends after it unless the engine was lost: then it ends the process, whose
/// destructors may wait for a device that does not answer.
pub(crate) struct Watchdog(EngineWatch);

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.0.over.store(true, Ordering::Relaxed);
    }
}

/// What the watchdog's thread works with.
pub(crate) struct WatchdogParts {
    /// What the scheduler actor names steps through.
    pub(crate) watch: EngineWatch,
    /// When a step is overdue.
    pub(crate) limits: StepLimits,
    /// Told how long the engine has shown no progress.
    pub(crate) figures: ReplicaMeter,
    /// The backend's own count of its progress.
    pub(crate) progress: Progress,
    /// Where the replica stands.
    pub(crate) phase: ReplicaPhase,
    /// The actor that ends all streams.
    pub(crate) scheduler: Recipient<EngineOverdue>,
    /// Ends the process without destructors and exit handlers.
    pub(crate) end_process: fn(),
}

impl Watchdog {
    /// Starts the thread that watches the engine.
    pub(crate) fn start(parts: WatchdogParts) -> std::io::Result<Self> {
        let watch = parts.watch.clone();
        std::thread::Builder::new().name("chimere-watch".into()).spawn(move || parts.run())?;
        Ok(Self(watch))
    }
}

impl WatchdogParts {
    fn run(self) {
        let mut last = Instant::now();
        loop {
            std::thread::sleep(TICK);
            let elapsed = last.elapsed().min(2 * TICK);
            last = Instant::now();
            if self.phase.is_lost() {
                return self.see_the_process_end();
            }
            if self.is_over() {
                return;
            }
            let waiting = self.watch.age(elapsed, self.progress.count());
            let waited = waiting.map_or(Duration::ZERO, |waiting| waiting.waited);
            self.figures.ages(waited);
            if let Some(waiting) = waiting.filter(|w| w.waited > self.limits.allowed(w.awaited)) {
                self.give_up(waiting);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.watch.0.over.load(Ordering::Relaxed)
    }

    /// Has the scheduler actor end everything, or marks the service as lost itself.
    fn give_up(&self, waiting: Waiting) {
        let why = reason(waiting, self.limits.allowed(waiting.awaited));
        self.scheduler.do_send(EngineOverdue(why.clone()));
        let end = Instant::now() + ANSWER;
        while !self.phase.is_lost() && Instant::now() < end {
            std::thread::sleep(TICK / 10);
        }
        if self.phase.advance(Phase::Lost(why.clone())) {
            tracing::error!(why, "the engine is lost, and the scheduler does not answer");
        }
    }

    /// The engine is lost. The process goes on as long as other replicas do; then it has a bounded time to end.
    fn see_the_process_end(&self) {
        while !self.phase.service_is_lost() && !self.is_over() {
            std::thread::sleep(TICK);
        }
        std::thread::sleep(self.limits.exit);
        tracing::error!(seconds = self.limits.exit.as_secs_f64(), "the process did not end by itself in this time");
        (self.end_process)();
    }
}

/// What an operator reads.
fn reason(waiting: Waiting, allowed: Duration) -> String {
    let (waited, allowed) = (waiting.waited.as_secs_f64(), allowed.as_secs_f64());
    match waiting.awaited {
        Awaited::Plan => format!("requests wait and no step was planned for {waited:.1} s, {allowed:.1} s are allowed"),
        Awaited::Step { id, predicted_us } => {
            let predicted =
                predicted_us.map_or("nothing predicted".to_owned(), |us| format!("{:.4} s predicted", us / 1e6));
            format!("step {id} made no progress for {waited:.1} s, {allowed:.1} s are allowed ({predicted})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: StepLimits = StepLimits {
        least: Duration::from_secs(10),
        predictions: 20.0,
        unpredicted: Duration::from_secs(600),
        exit: Duration::from_secs(10),
    };

    fn step(id: u64, predicted_us: Option<f64>) -> Awaited {
        Awaited::Step { id: StepId(id), predicted_us }
    }

    #[test]
    fn a_step_may_take_twenty_times_its_prediction_and_at_least_ten_seconds() {
        let seconds = |awaited| LIMITS.allowed(awaited).as_secs_f64();
        assert_eq!(seconds(step(0, Some(1_000.0))), 10.0);
        assert_eq!(seconds(step(0, Some(2e6))), 40.0);
        assert_eq!(seconds(step(0, None)), 600.0);
        assert_eq!(seconds(step(0, Some(f64::NAN))), 10.0);
        assert_eq!(seconds(Awaited::Plan), 10.0);
    }

    #[test]
    fn a_step_ages_until_it_ends_or_the_backend_makes_progress() {
        let (watch, tick) = (EngineWatch::default(), Duration::from_secs(1));
        let waited = |progress| watch.age(tick, progress).map(|waiting| waiting.waited.as_secs());
        assert_eq!(waited(0), None, "nothing is computed");
        watch.expect(Some(step(1, None)));
        assert_eq!([waited(0), waited(0)], [Some(1), Some(2)]);
        watch.expect(Some(step(1, None)));
        assert_eq!(waited(0), Some(3), "naming the same step again changes nothing");
        assert_eq!([waited(7), waited(7), waited(8)], [Some(1), Some(2), Some(1)], "each progress begins anew");
        watch.expect(Some(step(2, None)));
        assert_eq!(waited(8), Some(1), "another step begins anew");
        watch.expect(None);
        assert_eq!(waited(8), None);
    }

    /// A scheduler actor that does nothing with what it is told.
    struct Deaf;

    impl actix::Actor for Deaf {
        type Context = actix::Context<Self>;
    }

    impl actix::Handler<EngineOverdue> for Deaf {
        type Result = ();

        fn handle(&mut self, _: EngineOverdue, _: &mut actix::Context<Self>) {}
    }

    static ENDED: AtomicBool = AtomicBool::new(false);

    #[test]
    fn a_scheduler_that_does_not_answer_cannot_hide_the_loss_or_hold_up_the_end() {
        let (replica, mut phase) = ReplicaPhase::alone();
        actix_rt::System::new().block_on(async move {
            let watch = EngineWatch::default();
            let parts = WatchdogParts {
                watch: watch.clone(),
                limits: StepLimits { least: TICK, exit: TICK, ..LIMITS },
                progress: Progress::default(),
                phase: replica,
                figures: ReplicaMeter::alone(),
                scheduler: actix::Actor::start(Deaf).recipient(),
                end_process: || ENDED.store(true, Ordering::Relaxed),
            };
            let watchdog = Watchdog::start(parts).unwrap();
            watch.expect(Some(Awaited::Plan));
            let lost = phase.wait_for(|phase| matches!(phase, Phase::Lost(_)));
            let lost = tokio::time::timeout(Duration::from_secs(60), lost).await.expect("it is lost").unwrap().clone();
            assert!(matches!(lost, Phase::Lost(why) if why.starts_with("requests wait and no step was planned")));
            // A service that stops only now does not stop the watchdog.
            drop(watchdog);
            while !ENDED.load(Ordering::Relaxed) {
                tokio::time::sleep(TICK).await;
            }
        });
    }
}
