//! Scheduler, cost model and forecast on a clock of the test's own, against a device whose steps take what a formula says and a little
//! more or less. What is held here are promises over time: gaps between tokens, predicted waits, what one key can do to another.

use super::device::FakeDevice;
use crate::ids::{KeyId, Micros, RequestId};
use crate::sampling::SamplingParams;
use crate::scheduler::{Event, Forecast, Pace, Request, Scheduler, SchedulerConfig, StepShape, Terms};
use crate::step::StepOutcome;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A kind of request that is sent again as soon as the one before it has ended, after a pause.
#[derive(Clone, Copy)]
struct Client {
    key: u64,
    prompt: u32,
    outputs: u32,
    pause_us: u64,
}

/// What one request saw.
#[derive(Clone, Default)]
struct Seen {
    client: usize,
    key: u64,
    admitted: u64,
    foreseen: Option<Forecast>,
    started: Option<u64>,
    tokens: Vec<u64>,
}

struct World {
    scheduler: Scheduler,
    pace: Pace,
    device: FakeDevice,
    in_flight: VecDeque<(StepOutcome, StepShape, u64, u64)>,
    clients: Vec<Client>,
    /// When each client sends its next request.
    due: Vec<Option<u64>>,
    seen: BTreeMap<RequestId, Seen>,
    now: u64,
    committed: u64,
    noise: u64,
}

const CONFIG: SchedulerConfig = SchedulerConfig {
    slots: 16,
    pages: 4_096,
    step_tokens: 512,
    context: 4_096,
    queue_requests_max: 256,
    queue_prompt_tokens_max: 1 << 20,
    steps_in_flight_max: 2,
};

impl World {
    fn new(config: SchedulerConfig, target_us: u64, clients: &[Client]) -> Self {
        Self {
            scheduler: Scheduler::new(config),
            pace: Pace { target_us, ..Pace::default() },
            device: FakeDevice::new(&config),
            in_flight: VecDeque::new(),
            due: clients.iter().enumerate().map(|(i, _)| Some(i as u64 * 1_000)).collect(),
            clients: clients.to_vec(),
            seen: BTreeMap::new(),
            now: 0,
            committed: 0,
            noise: 1,
        }
    }

    /// 3 ms a step, 200 us a recurrent row, 40 us a thousand positions, 100 us a prompt row, 5 us a thousand pairs; a tenth more or less.
    fn takes(&mut self, shape: &StepShape) -> u64 {
        self.noise = self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let factor = 0.9 + 0.2 * (self.noise >> 40) as f64 / f64::from(1 << 24);
        let rows = 200.0 * f64::from(shape.rows) + 0.04 * shape.attended as f64;
        let prompts = 100.0 * f64::from(shape.prompt_rows) + 0.005 * shape.prompt_pairs as f64;
        (factor * (3_000.0 + rows + prompts)) as u64
    }

    fn run(mut self, until_us: u64) -> Vec<Seen> {
        while self.now < until_us {
            self.send();
            while let Some(plan) = self.scheduler.plan_within(Micros(self.now), &self.pace) {
                let shape = self.pace.shape(&plan);
                let begins = self.in_flight.back().map_or(self.now, |step| step.3.max(self.now));
                let done = begins + self.takes(&shape);
                self.in_flight.push_back((self.device.run(&plan), shape, self.now, done));
            }
            let arrival = self.due.iter().flatten().min().copied().unwrap_or(u64::MAX);
            let done = self.in_flight.front().map_or(u64::MAX, |step| step.3);
            self.now = arrival.min(done).max(self.now);
            if done <= self.now {
                self.commit();
            }
        }
        self.seen.into_values().collect()
    }

    fn send(&mut self) {
        for client in 0..self.clients.len() {
            if self.due[client].is_none_or(|due| due > self.now) {
                continue;
            }
            self.due[client] = None;
            let Client { key, prompt, outputs, .. } = self.clients[client];
            let id = RequestId(self.seen.len() as u64);
            let request = Request {
                id,
                prompt: (0..prompt).map(|i| (i + client as u32) % 50).collect(),
                choices: 1,
                max_tokens: Some(outputs),
                sampling: Arc::new(SamplingParams::default()),
                end_ids: Vec::new(),
                priority: 0,
                score_prompt: None,
                thinking: None,
                experts: None,
                awaits_edits: false,
                pool: None,
            };
            let terms = Terms { key: KeyId(key), ..Terms::default() };
            let foreseen = self.scheduler.forecast(&request, &terms, &self.pace);
            self.scheduler.admit_under(request, &terms, Micros(self.now), &self.pace).unwrap();
            self.seen.insert(id, Seen { client, key, admitted: self.now, foreseen, ..Seen::default() });
        }
    }

    fn commit(&mut self) {
        let (outcome, shape, launched, done) = self.in_flight.pop_front().unwrap();
        self.pace.cost.observe(&shape, Micros(done - self.committed.max(launched)));
        self.committed = done;
        for (id, event) in self.scheduler.commit(outcome, Micros(done)) {
            let seen = self.seen.get_mut(&id).unwrap();
            match event {
                Event::Token { .. } => seen.tokens.push(done),
                Event::Finished { times, .. } => {
                    seen.started = times.started.map(|at| at.0);
                    self.due[seen.client] = Some(done + self.clients[seen.client].pause_us);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

impl Seen {
    fn ttft(&self) -> Option<u64> {
        self.tokens.first().map(|first| first - self.admitted)
    }
}

/// Nearest rank.
fn percentile(mut values: Vec<u64>, percent: usize) -> u64 {
    values.sort();
    values[(values.len() * percent).div_ceil(100) - 1]
}

const CHAT: Client = Client { key: 1, prompt: 100, outputs: 300, pause_us: 0 };

#[test]
fn tokens_keep_coming_in_time_while_long_prompts_arrive_and_would_not_without_a_target() {
    let long = Client { key: 1, prompt: 3_000, outputs: 8, pause_us: 300_000 };
    let clients = [CHAT, CHAT, CHAT, CHAT, CHAT, CHAT, long, long];
    let p95 = |target_us| {
        let seen = World::new(CONFIG, target_us, &clients).run(30_000_000);
        assert!(
            seen.iter().filter(|s| s.client >= 6 && s.tokens.len() == 8).count() > 15,
            "long prompts are computed all the while"
        );
        let chats = seen.iter().filter(|s| s.client < 6);
        percentile(chats.flat_map(|s| s.tokens.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>()).collect(), 95)
    };
    let (paced, free) = (p95(20_000), p95(0));
    assert!(paced <= 30_000, "95 of 100 gaps are at most {paced} us");
    assert!(free > 30_000, "the target is what does it: {free} us");
}

#[test]
fn the_target_holds_for_prompts_of_any_length_and_any_number_of_them_where_one_unit_of_them_fits() {
    let chats = 6;
    for target_us in [15_000, 30_000] {
        for prompt in [200, 700, 1_500, 3_000] {
            for (prompts, pause_us) in [(1, 1_000_000), (2, 300_000), (2, 50_000), (8, 0)] {
                let long = Client { key: 1, prompt, outputs: 8, pause_us };
                let clients = [vec![CHAT; chats], vec![long; prompts]].concat();
                let seen = World::new(CONFIG, target_us, &clients).run(5_000_000);
                let gaps = seen.iter().filter(|s| s.client < chats).flat_map(|s| s.tokens.windows(2).map(|pair| pair[1] - pair[0]));
                let p95 = percentile(gaps.collect(), 95);
                assert!(
                    2 * p95 <= 3 * target_us,
                    "target {target_us} us, {prompts} x {prompt} tokens every {pause_us} us: {p95} us"
                );
            }
        }
    }
}

#[test]
fn the_predicted_wait_is_near_the_actual_one_when_the_load_is_steady() {
    let config = SchedulerConfig { slots: 4, ..CONFIG };
    let clients = [Client { prompt: 200, outputs: 60, ..CHAT }; 14];
    for target_us in [0, 20_000] {
        let seen = World::new(config, target_us, &clients).run(60_000_000);
        let errors = seen.iter().skip(40).filter_map(|s| {
            let (foreseen, actual) = (s.foreseen?.start_us, s.started? - s.admitted);
            assert!(actual > 100_000, "there is a queue");
            Some(foreseen.abs_diff(actual) * 1_000 / actual)
        });
        let median = percentile(errors.collect(), 50);
        assert!(median <= 300, "half of the predictions are within {median} of a thousand parts, target {target_us} us");
    }
}

#[test]
fn a_greedy_key_does_not_hold_up_another_s_first_token() {
    let modest = Client { key: 2, prompt: 3_000, outputs: 30, pause_us: 200_000 };
    let greedy = Client { key: 1, prompt: 400, outputs: 120, pause_us: 0 };
    let p95 = |clients: &[Client]| {
        let seen = World::new(CONFIG, 35_000, clients).run(60_000_000);
        percentile(seen.iter().filter(|s| s.key == 2).skip(5).filter_map(Seen::ttft).collect(), 95)
    };
    let alone = p95(&[modest]);
    let beside = p95(&[vec![modest], vec![greedy; 64]].concat());
    assert!(beside * 2 <= alone * 3, "{beside} us beside a greedy key, {alone} us alone");
    let same_key = p95(&[vec![modest], vec![Client { key: 2, ..greedy }; 64]].concat());
    assert!(same_key > 2 * alone, "the keys are what does it: {same_key} us");
}
