//! Scheduler, cost model and forecast on a clock of the test's own, against a device whose steps take what a formula
//! says and a little more or less. What is held here are promises over time: gaps between tokens, predicted waits, what
//! one key can do to another.

use super::device::FakeDevice;
use crate::adapter::ScaledAdapter;
use crate::ids::{KeyId, Micros, RequestId};
use crate::sampling::SamplingParams;
use crate::scheduler::forecast::Extent;
use crate::scheduler::plan::pause::PAUSE_US_MAX;
use crate::scheduler::{
    Event, Forecast, NextStep, Pace, Pipeline, PrefixConfig, Rejected, Request, Scheduler, SchedulerConfig, Spec,
    StepShape, Terms,
};
use crate::step::StepOutcome;
use std::collections::{BTreeMap, VecDeque};

/// A kind of request that is sent again as soon as the one before it has ended, after a pause.
#[derive(Clone, Copy)]
pub(super) struct Client {
    pub(super) key: u64,
    pub(super) prompt: u32,
    pub(super) outputs: u32,
    pub(super) pause_us: u64,
}

/// What one request saw.
#[derive(Clone, Default)]
pub(super) struct Seen {
    pub(super) client: usize,
    pub(super) key: u64,
    pub(super) admitted: u64,
    pub(super) foreseen: Option<Forecast>,
    /// With this it would have been refused for its wait; nobody is.
    pub(super) refused: Option<Rejected>,
    pub(super) started: Option<u64>,
    pub(super) tokens: Vec<u64>,
}

/// A request that a full queue refused; its client comes back when it was told to.
#[derive(Clone, Copy)]
pub(super) struct TurnedAway {
    pub(super) at: u64,
    /// When there was to be room, from then on.
    pub(super) room_in_us: Option<u64>,
    /// When there was room for the request, if ever.
    pub(super) room_at: Option<u64>,
}

/// What steps take on a device, microseconds; a tenth more or less.
#[derive(Clone, Copy)]
pub(super) struct Costs {
    /// Passes over the weights for decode rows, and each row.
    pass: f64,
    row: f64,
    /// A thousand positions that a decode row attends to.
    attended: f64,
    /// A pass over the weights for prompts, each row, and a thousand pairs.
    prompts: f64,
    prompt_row: f64,
    pairs: f64,
    /// Between planning a step for an idle device and its beginning.
    launch: u64,
}

impl Costs {
    fn of(&self, shape: &StepShape) -> f64 {
        let decode = self.pass * f64::from(shape.passes)
            + self.row * f64::from(shape.rows)
            + self.attended * shape.attended as f64 / 1e3;
        let any = if shape.prompt_rows > 0 { self.prompts } else { 0.0 };
        decode + any + self.prompt_row * f64::from(shape.prompt_rows) + self.pairs * shape.prompt_pairs as f64 / 1e3
    }
}

struct InFlight {
    outcome: StepOutcome,
    done: u64,
}

pub(super) struct World {
    pub(super) pipeline: Pipeline,
    costs: Costs,
    device: FakeDevice,
    in_flight: VecDeque<InFlight>,
    clients: Vec<Client>,
    /// The clients from this one on send idle work.
    pub(super) idle_from: usize,
    /// Those of the first clients, if they have some.
    pub(super) adapters: Vec<Option<ScaledAdapter>>,
    /// When each client sends its next request.
    pub(super) due: Vec<Option<u64>>,
    pub(super) turned_away: Vec<TurnedAway>,
    seen: BTreeMap<RequestId, Seen>,
    pub(super) now: u64,
    noise: u64,
    /// Steps take up to this part more than the formula says; a tenth less at least.
    pub(super) scatter: f64,
    /// How many times as long steps take at this time.
    pub(super) slowness: fn(u64) -> f64,
    /// Prompts are up to twice as long as their client's or shorter, and an output ends with one chance in fifty after
    /// each token.
    pub(super) varied: bool,
    /// Who would wait longer counts as refused, microseconds.
    pub(super) wait_us_max: u64,
}

pub(super) const CONFIG: SchedulerConfig = SchedulerConfig {
    slots: 16,
    pages: 4_096,
    step_tokens: 512,
    context: 4_096,
    queue_requests_max: 256,
    queue_prompt_tokens_max: 1 << 20,
    steps_in_flight_max: 2,
    adapter_slots: 8,
    prefix: PrefixConfig::OFF,
};

/// Steps in which everything shares one pass over the weights.
const COSTS: Costs =
    Costs { pass: 3_000.0, row: 200.0, attended: 0.04, prompts: 3_000.0, prompt_row: 100.0, pairs: 5.0, launch: 0 };

impl World {
    fn new(config: SchedulerConfig, target_us: u64, clients: &[Client]) -> Self {
        Self::on(COSTS, config, Pace { target_us, ..Pace::default() }, clients)
    }

    pub(super) fn on(costs: Costs, config: SchedulerConfig, pace: Pace, clients: &[Client]) -> Self {
        Self {
            pipeline: Pipeline::around(Scheduler::new(config), pace),
            costs,
            device: FakeDevice::new(&config),
            in_flight: VecDeque::new(),
            due: clients.iter().enumerate().map(|(i, _)| Some(i as u64 * 1_000)).collect(),
            clients: clients.to_vec(),
            idle_from: clients.len(),
            adapters: Vec::new(),
            turned_away: Vec::new(),
            seen: BTreeMap::new(),
            now: 0,
            noise: 1,
            scatter: 0.1,
            slowness: |_| 1.0,
            varied: false,
            wait_us_max: 0,
        }
    }

    /// The next of numbers between 0 and 1 that look random.
    fn draw(&mut self) -> f64 {
        self.noise = self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.noise >> 40) as f64 / f64::from(1 << 24)
    }

    fn takes(&mut self, shape: &StepShape) -> u64 {
        let scatter = 0.9 + (0.1 + self.scatter) * self.draw();
        (scatter * (self.slowness)(self.now) * self.costs.of(shape)) as u64
    }

    pub(super) fn run(&mut self, until_us: u64) -> Vec<Seen> {
        while self.now < until_us {
            self.send();
            let later = self.launch();
            let arrival = self.due.iter().flatten().min().copied().unwrap_or(u64::MAX);
            let done = self.in_flight.front().map_or(u64::MAX, |step| step.done);
            self.now = arrival.min(done).min(later.unwrap_or(u64::MAX)).max(self.now);
            if done <= self.now {
                self.commit();
            }
        }
        std::mem::take(&mut self.seen).into_values().collect()
    }

    /// Launches what may be launched. When the next step is planned, if that is not at once.
    fn launch(&mut self) -> Option<u64> {
        let later = loop {
            let plan = match self.pipeline.next(Micros(self.now)) {
                NextStep::Launch(plan) => plan,
                NextStep::Later { after, .. } => break Some(self.now + after.0),
                NextStep::Nothing => break None,
            };
            let shape = self.pipeline.launched(&plan, Micros(self.now)).shape;
            let begins = self.in_flight.back().map_or(0, |step| step.done).max(self.now + self.costs.launch);
            let done = begins + self.takes(&shape);
            self.in_flight.push_back(InFlight { outcome: self.device.run(&plan), done });
        };
        if self.pipeline.scheduler.stats().requests_new < self.pipeline.scheduler.config.queue_requests_max {
            let now = self.now;
            self.turned_away
                .iter_mut()
                .rev()
                .map_while(|t| t.room_at.is_none().then_some(t))
                .for_each(|t| t.room_at = Some(now));
        }
        later
    }

    fn send(&mut self) {
        for client in 0..self.clients.len() {
            if self.due[client].is_none_or(|due| due > self.now) {
                continue;
            }
            self.due[client] = None;
            let Client { key, .. } = self.clients[client];
            let id = RequestId(self.seen.len() as u64);
            let request = self.request(id, client);
            let terms = Terms { key: KeyId(key), idle: client >= self.idle_from, ..Terms::default() };
            let now = Micros(self.now);
            let Pipeline { scheduler, pace, .. } = &self.pipeline;
            let foreseen = scheduler.forecast(&request, &terms, now, pace).filter(|_| !terms.idle);
            let bounded = Pace { wait_us_max: self.wait_us_max, ..*pace };
            let extent = Extent { output_max: scheduler.output_max(&request).unwrap(), cached: 0 };
            let refused = scheduler.check_times(&request, extent, &terms, now, &bounded).err();
            if let Err(full) = self.pipeline.admit(request, &terms, now) {
                self.turn_away(client, full);
                continue;
            }
            let seen = Seen { client, key, admitted: self.now, foreseen, refused, ..Seen::default() };
            self.seen.insert(id, seen);
        }
    }

    fn turn_away(&mut self, client: usize, full: Rejected) {
        let room_in_us = self.pipeline.scheduler.room_in_us(&full, Micros(self.now));
        self.turned_away.push(TurnedAway { at: self.now, room_in_us, room_at: None });
        self.due[client] = Some(self.now + room_in_us.unwrap_or(0).max(1_000_000));
    }

    fn request(&mut self, id: RequestId, client: usize) -> Request {
        let Client { prompt, outputs, .. } = self.clients[client];
        let prompt = if self.varied { 1 + (2.0 * self.draw() * f64::from(prompt)) as u32 } else { prompt };
        let tokens: Vec<_> = (0..prompt).map(|i| (i + client as u32) % 50).collect();
        let end_ids = if self.varied { vec![id.0 as u32 % 50] } else { Vec::new() };
        let sampling = SamplingParams { seed: id.0, ..SamplingParams::default() };
        let (end_ids, sampling) = (end_ids.into(), sampling.into());
        let adapter = self.adapters.get(client).cloned().flatten();
        Request::new(id, tokens, Spec { max_tokens: Some(outputs), end_ids, sampling, adapter, ..Spec::default() })
    }

    fn commit(&mut self) {
        let InFlight { outcome, done } = self.in_flight.pop_front().unwrap();
        let (events, _) = self.pipeline.done(outcome, Micros(done)).expect("the step is in flight");
        for (id, event) in events {
            let seen = self.seen.get_mut(&id).unwrap();
            match event {
                Event::Token { .. } => seen.tokens.push(done),
                Event::Finished { times, .. } => {
                    seen.started = times.started.map(|at| at.0);
                    // Not in step with the device.
                    let (client, pause_us) = (seen.client, self.clients[seen.client].pause_us as f64);
                    self.due[client] = Some(done + (pause_us * (0.5 + self.draw())) as u64);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

impl Seen {
    pub(super) fn ttft(&self) -> Option<u64> {
        self.tokens.first().map(|first| first - self.admitted)
    }

    /// Times between its tokens.
    pub(super) fn gaps(&self) -> Vec<u64> {
        self.tokens.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

/// The percentile of the values, by the nearest rank.
pub(super) fn percentile(mut values: Vec<u64>, percent: usize) -> u64 {
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
        percentile(
            chats.flat_map(|s| s.tokens.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>()).collect(),
            95,
        )
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
                let gaps = seen
                    .iter()
                    .filter(|s| s.client < chats)
                    .flat_map(|s| s.tokens.windows(2).map(|pair| pair[1] - pair[0]));
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

/// A device with what suits it: slots, positions and time of a step.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) costs: Costs,
    pub(super) config: SchedulerConfig,
    pub(super) pace: Pace,
}

/// The 35B's shape on one H200.
pub(super) fn gpu() -> Setting {
    Setting {
        costs: Costs {
            pass: 2_500.0,
            row: 120.0,
            attended: 1.0,
            prompts: 8_300.0,
            prompt_row: 29.0,
            pairs: 0.1,
            launch: 200,
        },
        config: SchedulerConfig { slots: 64, step_tokens: 2_048, pages: 65_536, context: 8_192, ..CONFIG },
        pace: Pace { target_us: 20_000, apart: true, ahead_us: 700, ..Pace::default() },
    }
}

/// The shipped model on eight cores.
pub(super) fn cpu() -> Setting {
    Setting {
        costs: Costs {
            pass: 400.0,
            row: 90.0,
            attended: 8.0,
            prompts: 300.0,
            prompt_row: 52.0,
            pairs: 1.0,
            launch: 100,
        },
        config: SchedulerConfig { pages: 65_536, context: 8_192, ..CONFIG },
        pace: Pace { target_us: 5_000, ahead_us: 700, ..Pace::default() },
    }
}

impl Setting {
    pub(super) fn world(&self, clients: &[Client]) -> World {
        World::on(self.costs, self.config, self.pace, clients)
    }

    /// p95 of the time to the first token of key 2, which asks, reads the answer and asks again.
    fn ttft_p95(&self, clients: &[Client]) -> u64 {
        let seen = self.world(clients).run(20_000_000);
        percentile(seen.iter().filter(|s| s.key == 2).skip(5).filter_map(Seen::ttft).collect(), 95)
    }

    /// By how much that grows beside a key with 64 requests, in hundredths.
    fn growth(&self, prompt: u32) -> u64 {
        let modest = Client { key: 2, prompt, outputs: 20, pause_us: 50_000 };
        let greedy = Client { key: 1, prompt: 200, outputs: 80, pause_us: 0 };
        100 * self.ttft_p95(&[vec![modest], vec![greedy; 64]].concat()) / self.ttft_p95(&[modest])
    }
}

#[test]
fn a_greedy_key_adds_little_to_anothers_first_token_on_a_cpu_and_on_a_gpu() {
    let growth = [cpu().growth(300), cpu().growth(3_000), gpu().growth(300), gpu().growth(3_000)];
    // A prompt of 300 tokens takes a GPU as long as two passes over the weights, and waits for one that is under way.
    assert!(growth.iter().zip([150, 150, 160, 150]).all(|(growth, most)| *growth <= most), "{growth:?} hundredths");
    let at_once = Setting { pace: Pace { ahead_us: 0, ..gpu().pace }, ..gpu() }.growth(300);
    let together = Setting { pace: Pace { apart: false, ..gpu().pace }, ..gpu() }.growth(300);
    assert!(
        at_once > growth[2] && together > growth[2],
        "planning late and rows apart help: {growth:?}, {at_once}, {together}"
    );
}

#[test]
fn a_stream_of_a_greedy_key_stands_still_for_a_quarter_of_a_second_at_most_however_many_ask() {
    for setting in [cpu(), gpu()] {
        let config = SchedulerConfig { slots: 64, ..setting.config };
        let greedy = Client { key: 1, prompt: 100, outputs: 2_000, pause_us: 0 };
        let others = (2..22).map(|key| Client { key, prompt: 4_000, outputs: 4, pause_us: 2_000_000 });
        let mut world = Setting { config, ..setting }.world(&[vec![greedy; 24], others.collect()].concat());
        let seen = world.run(10_000_000);
        let gaps: Vec<_> = seen.iter().filter(|s| s.key == 1).flat_map(Seen::gaps).collect();
        let step = setting.costs.of(&StepShape { prompt_rows: config.step_tokens, ..StepShape::default() }) as u64;
        let longest = percentile(gaps, 100);
        assert!(longest > 150_000, "rows do sit out: {longest} us");
        assert!(longest < PAUSE_US_MAX + 3 * step, "{longest} us, a step takes {step} us");
    }
}

#[test]
fn nobody_sits_out_where_all_use_alike_nor_within_a_key() {
    let long = |key| Client { key, prompt: 2_000, outputs: 8, pause_us: 300_000 };
    let alike: Vec<_> = (1..12).map(|key| Client { key, ..CHAT }).chain([long(20)]).collect();
    let one_key = [vec![CHAT; 12], vec![long(1); 2]].concat();
    for clients in [alike, one_key] {
        let mut world = cpu().world(&clients);
        let seen = world.run(5_000_000);
        assert_eq!(world.pipeline.scheduler.paused_rows(), 0);
        let gaps = seen.iter().filter(|s| s.tokens.len() > 8).flat_map(Seen::gaps).collect();
        let p95 = percentile(gaps, 95);
        assert!(2 * p95 <= 3 * cpu().pace.target_us, "the target between tokens holds: {p95} us");
    }
}

#[test]
fn planning_late_brings_first_tokens_sooner_and_costs_hardly_a_token() {
    let streams = Client { key: 1, prompt: 100, outputs: 2_000, pause_us: 0 };
    let asks = Client { key: 1, prompt: 60, outputs: 1, pause_us: 100_000 };
    let run = |ahead_us| {
        let mut setting = gpu();
        setting.pace.ahead_us = ahead_us;
        let seen = setting.world(&[vec![streams; 48], vec![asks; 2]].concat()).run(20_000_000);
        let waits = seen.iter().filter(|s| s.client >= 48).skip(5).filter_map(Seen::ttft).collect();
        (percentile(waits, 50), seen.iter().map(|s| s.tokens.len()).sum::<usize>())
    };
    let ((at_once, tokens_at_once), (late, tokens_late)) = (run(0), run(700));
    assert!(late * 5 < at_once * 4, "{late} us, {at_once} us where steps are planned at once");
    // Where a step ends a tenth before its time the device waits for the next one.
    assert!(
        tokens_late * 100 > tokens_at_once * 98,
        "{tokens_late} tokens, {tokens_at_once} where steps are planned at once"
    );
}
