//! When the next step is planned, whatever the clock of the test says.

use super::device::FakeDevice;
use super::drafts::request;
use crate::constraint::{Source, Sources};
use crate::drafts::{DraftKinds, DraftMode};
use crate::ids::Micros;
use crate::scheduler::{DraftSettings, NextStep, Pace, Pipeline, PrefixConfig, Request, SchedulerConfig, Spec, Terms};
use crate::step::{DraftRoom, StepOutcome, StepPlan};

const CONFIG: SchedulerConfig = SchedulerConfig {
    slots: 4,
    pages: 200,
    step_tokens: 200,
    context: 1_000,
    queue_requests_max: 64,
    queue_prompt_tokens_max: 60_000,
    steps_in_flight_max: 2,
    adapter_slots: 8,
    prefix: PrefixConfig::OFF,
};

/// A pipeline with one request, and a device that the test ends the steps of.
struct Line {
    pipeline: Pipeline,
    device: FakeDevice,
    now: u64,
}

impl Line {
    fn new(drafts: DraftSettings, pace: Pace, request: Request) -> Self {
        let mut pipeline = Pipeline::new(CONFIG, drafts, pace);
        pipeline.admit(request, &Terms::default(), Micros(0)).unwrap();
        Self { pipeline, device: FakeDevice::new(&CONFIG), now: 0 }
    }

    fn next(&mut self) -> NextStep {
        self.pipeline.next(Micros(self.now))
    }

    /// Launches the next step, which there is.
    fn launch(&mut self) -> (StepPlan, StepOutcome) {
        let NextStep::Launch(plan) = self.next() else { panic!("there is a step to launch") };
        self.pipeline.launched(&plan, Micros(self.now));
        let outcome = self.device.run(&plan);
        (plan, outcome)
    }

    /// Launches so many steps of 10 ms, each when the one before has ended.
    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            let (_, outcome) = self.launch();
            self.now += 10_000;
            assert!(self.pipeline.done(outcome, Micros(self.now)).is_some());
        }
    }
}

#[test]
fn the_step_behind_the_only_one_in_flight_is_planned_shortly_before_that_ends() {
    let pace = Pace { ahead_us: 100, ..Pace::default() };
    let mut line = Line::new(DraftSettings::default(), pace, request(0, 40, 400));
    line.run(10);
    let (plan, _) = line.launch();
    let NextStep::Later { behind, after } = line.next() else { panic!("it is too early") };
    assert_eq!(behind, plan.id);
    assert!((9_000..9_900).contains(&after.0), "{after:?}");
    line.now += after.0 - 1;
    assert!(matches!(line.next(), NextStep::Later { after: Micros(1), .. }));
    line.now += 1;
    line.launch();
    assert!(matches!(line.next(), NextStep::Nothing), "two are in flight");
}

#[test]
fn each_step_is_planned_at_once_where_nothing_can_ring() {
    let pace = Pace { ahead_us: 100, ..Pace::default() };
    let mut line = Line::new(DraftSettings::default(), pace, request(0, 40, 400));
    line.pipeline.plan_at_once();
    line.run(10);
    line.launch();
    line.launch();
}

#[test]
fn a_step_is_planned_when_the_grammars_of_the_one_before_have_answered() {
    let room = DraftRoom { piece_max: 7, step_max: 16, rows_max: 64, ..DraftRoom::default() };
    let drafts = DraftSettings { mode: DraftMode::Auto, kinds: DraftKinds::all(), room };
    let spec = Spec { max_tokens: Some(40), waits_for: Sources::only(Source::Grammar), ..Spec::default() };
    let mut line = Line::new(drafts, Pace::default(), Request { spec: spec.into(), ..request(0, 40, 40) });
    let (plan, outcome) = line.launch();
    assert!(matches!(line.next(), NextStep::Nothing));
    line.pipeline.answered(plan.id, Source::Grammar, Micros(5));
    assert!(line.pipeline.oldest().is_some_and(|step| step.awaits == Sources::NONE));
    line.launch();
    assert_eq!(line.pipeline.give_up(Source::Grammar).len(), 1, "the second one has no answer");
    assert!(line.pipeline.done(outcome, Micros(10)).is_some());
}

#[test]
fn the_duration_of_a_step_counts_from_its_launch_or_from_the_end_of_the_one_before() {
    let mut line = Line::new(DraftSettings::default(), Pace::default(), request(0, 40, 400));
    line.now = 1_000;
    let (_, first) = line.launch();
    let (_, second) = line.launch();
    let (_, finished) = line.pipeline.done(first, Micros(3_000)).unwrap();
    assert_eq!((finished.began, finished.took), (Micros(1_000), Micros(2_000)));
    let (_, finished) = line.pipeline.done(second, Micros(3_500)).unwrap();
    assert_eq!((finished.began, finished.took), (Micros(3_000), Micros(500)));
}

#[test]
fn an_outcome_that_comes_after_all_requests_failed_means_nothing() {
    let mut line = Line::new(DraftSettings::default(), Pace::default(), request(0, 40, 400));
    let (_, outcome) = line.launch();
    assert_eq!(line.pipeline.fail("the device fell off the bus").len(), 1);
    assert!(line.pipeline.done(outcome, Micros(10)).is_none());
    assert!(line.pipeline.oldest().is_none() && matches!(line.next(), NextStep::Nothing));
}
