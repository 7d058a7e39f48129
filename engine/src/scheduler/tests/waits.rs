//! What forecasts of waiting promise, on machines that differ: nobody is refused who would have found room, hardly
//! anybody who would have waited less than the bound, and a wait is about as long as was said. Nobody is refused in
//! these worlds: whoever would be is admitted all the same, so that it shows how long the wait would have been.

use super::simulation::{Client, Seen, Setting, World, cpu, gpu};
use crate::ids::{KeyId, Micros, RequestId};
use crate::scheduler::{Rejected, Request, SchedulerConfig, Spec, Terms};

const SECOND: u64 = 1_000_000;
/// Shorter waits are not worth a forecast, microseconds.
const SHORT_US: u64 = 100_000;

/// What became of a load.
#[derive(Debug, Default)]
struct Tally {
    requests: usize,
    refused: usize,
    /// Of these, requests that waited less than the bound.
    wrongly: usize,
    /// Requests that waited for more than four times the bound.
    too_long: usize,
    /// Of these, those that were not refused.
    let_in: usize,
    /// Waits that are worth a forecast.
    waits: usize,
    /// Of these, those that had none.
    silent: usize,
    /// Of the others, those that were not between half and twice as long.
    off: usize,
}

impl Tally {
    fn of<'a>(seen: impl IntoIterator<Item = &'a Seen>, bound_us: u64) -> Self {
        let mut tally = Self::default();
        for request in seen {
            let Some(started) = request.started else { continue };
            let wait = started - request.admitted;
            tally.requests += 1;
            if request.refused.is_some() {
                assert!(!request.foreseen.unwrap().room, "refused with room");
                tally.refused += 1;
                tally.wrongly += usize::from(wait < bound_us);
            }
            if wait > 4 * bound_us {
                tally.too_long += 1;
                tally.let_in += usize::from(request.refused.is_none());
            }
            if wait > SHORT_US {
                tally.waits += 1;
                match request.foreseen {
                    None => tally.silent += 1,
                    Some(f) => tally.off += usize::from(f.start_us < wait / 2 || f.start_us > 2 * wait),
                }
            }
        }
        tally
    }

    #[track_caller]
    fn assert_right(&self, name: &str) {
        assert!(1_000 * self.wrongly <= self.requests, "{name}: one of a thousand may be refused wrongly: {self:?}");
        assert!(10 * self.off <= self.waits - self.silent, "{name}: nine of ten waits are as foretold: {self:?}");
    }
}

/// Runs a world that refuses nobody.
fn run(mut world: World, bound_us: u64, until_us: u64) -> Vec<Seen> {
    world.wait_us_max = bound_us;
    world.run(until_us)
}

const CLIENT: Client = Client { key: 1, prompt: 128, outputs: 96, pause_us: 0 };

fn many(setting: Setting, client: Client, n: usize) -> World {
    let config = SchedulerConfig { queue_requests_max: 10_000, queue_prompt_tokens_max: 1 << 30, ..setting.config };
    Setting { config, ..setting }.world(&vec![client; n])
}

fn slots(setting: Setting, slots: u32) -> Setting {
    Setting { config: SchedulerConfig { slots, ..setting.config }, ..setting }
}

/// Chats whose prompts and answers differ.
fn varied(mut world: World) -> World {
    world.varied = true;
    world
}

/// A machine that others use too: steps take up to three times as long.
fn noisy(mut world: World) -> World {
    (world.varied, world.scatter) = (true, 2.0);
    world
}

const TALK: Client = Client { key: 1, prompt: 30, outputs: 400, pause_us: 0 };
const LONG: Client = Client { prompt: 1_000, ..TALK };

#[test]
fn forecasts_are_right_on_machines_of_any_kind_and_refuse_who_would_wait_too_long() {
    let small = Setting { config: SchedulerConfig { pages: 200, ..gpu().config }, ..gpu() };
    let mut slower = noisy(many(cpu(), LONG, 40));
    slower.slowness = |now| if now > 60 * SECOND { 5.0 } else { 1.0 };
    let worlds = [
        ("a GPU that prompts keep busy", many(gpu(), CLIENT, 300), 7 * SECOND, 60),
        ("a GPU whose slots are taken", varied(many(gpu(), TALK, 300)), 2_800_000, 60),
        ("answers of one length", many(gpu(), TALK, 200), 5 * SECOND, 90),
        ("a GPU without memory", varied(many(small, TALK, 100)), 400_000, 60),
        ("a CPU", varied(many(cpu(), LONG, 40)), SECOND, 120),
        ("a noisy CPU", noisy(many(cpu(), LONG, 40)), 2 * SECOND, 120),
        ("a noisy CPU with short prompts", noisy(many(cpu(), TALK, 200)), 2 * SECOND, 60),
        ("a CPU that becomes slower", slower, 4 * SECOND, 300),
    ];
    for (name, world, bound_us, seconds) in worlds {
        let seen = run(world, bound_us, seconds * SECOND);
        let tally = Tally::of(&seen, bound_us);
        assert!(tally.waits > 500, "{name}: {tally:?}");
        tally.assert_right(name);
        // What was sent before anything was measured has no forecast.
        let late: Vec<_> = seen.iter().filter(|s| s.admitted > 20 * SECOND).cloned().collect();
        let tally = Tally::of(&late, bound_us);
        assert!(tally.silent == 0 && tally.refused > 0, "{name}: {tally:?}");
        assert!(
            10 * tally.let_in <= tally.too_long,
            "{name}: who waits for four times the bound is refused: {tally:?}"
        );
    }
}

#[test]
fn nobody_is_refused_while_there_is_room_whatever_the_bound() {
    // As many users as slots, or fewer; prompts wait for each other all the same.
    let worlds = [noisy(many(cpu(), LONG, 12)), noisy(many(cpu(), LONG, 16)), many(gpu(), CLIENT, 64)];
    for world in worlds {
        let seen = run(world, 1, 30 * SECOND);
        let tally = Tally::of(&seen, 1);
        assert!(tally.waits > 100 && tally.refused == 0, "{tally:?}");
        tally.assert_right("room");
    }
}

/// A service that is used for the first time: a prompt of one token was read when everything was cold.
fn fresh(users: usize) -> World {
    let warm_up = Client { prompt: 1, outputs: 2, pause_us: 1_000 * SECOND, ..CLIENT };
    let config = SchedulerConfig { queue_requests_max: 10_000, slots: 256, ..gpu().config };
    let mut world = Setting { config, ..gpu() }.world(&[vec![warm_up], vec![CLIENT; users]].concat());
    world.slowness = |now| if now < 2 * SECOND { 100.0 } else { 1.0 };
    world.due[1..].fill(Some(2 * SECOND));
    world
}

#[test]
fn a_burst_on_a_fresh_service_is_taken_in_and_forecasts_begin_when_something_was_measured() {
    for users in [256, 3_000] {
        let seen = run(fresh(users), SECOND, 60 * SECOND);
        let first: Vec<_> = seen.iter().filter(|s| s.admitted <= 2 * SECOND).collect();
        assert_eq!(first.len(), users + 1);
        assert!(first.iter().all(|s| s.refused.is_none() && s.foreseen.is_none()));
        Tally::of(&seen, SECOND).assert_right("a burst");
    }
}

#[test]
fn a_key_that_asks_for_little_is_not_refused_for_what_another_has_waiting() {
    let light = Client { key: 2, pause_us: 300_000, ..TALK };
    let clients = [vec![TALK; 40], vec![light; 2]].concat();
    let mut world = varied(cpu().world(&clients));
    world.wait_us_max = 50_000;
    let seen = world.run(60 * SECOND);
    let of = |key| Tally::of(seen.iter().filter(|s| s.key == key), 50_000);
    assert!(of(2).requests > 200 && of(2).refused == 0, "{:?}", of(2));
    assert!(2 * of(1).refused > of(1).requests, "{:?}", of(1));
    of(1).assert_right("a greedy key");
}

#[test]
fn a_full_queue_says_when_it_has_room() {
    let mut setting = slots(cpu(), 4);
    setting.config.queue_requests_max = 8;
    let client = Client { prompt: 64, outputs: 64, ..CLIENT };
    let mut world = setting.world(&[client; 64]);
    world.slowness = |_| 50.0;
    world.run(600 * SECOND);
    let told = world.turned_away.iter().filter_map(|t| Some((t.room_in_us?, t.room_at? - t.at)));
    let told: Vec<_> = told.filter(|(_, actual)| *actual > SECOND).collect();
    let right = told.iter().filter(|(said, actual)| 10 * said.abs_diff(*actual) <= 3 * actual).count();
    assert!(told.len() > 500 && 10 * right >= 9 * told.len(), "{right} of {} are right within 30 %", told.len());
}

#[test]
fn a_deadline_is_refused_that_even_a_short_answer_would_miss() {
    let mut world = varied(many(cpu(), LONG, 40));
    world.run(20 * SECOND);
    let now = Micros(world.now);
    let request = || Request::new(RequestId(1 << 40), vec![1; 500], Spec { max_tokens: Some(400), ..Spec::default() });
    let terms = |in_us: u64| Terms { key: KeyId(1), deadline: Some(Micros(now.0 + in_us)), ..Terms::default() };
    let foreseen = world.pipeline.scheduler.forecast(&request(), &terms(1), now, &world.pipeline.pace).unwrap();
    assert!(!foreseen.room && foreseen.end_us_min > SECOND, "{foreseen:?}");
    let mut admit = |in_us| world.pipeline.admit(request(), &terms(in_us), now);
    let unreachable = Rejected::DeadlineUnreachable { needs_us: foreseen.end_us_min, left_us: SECOND };
    assert_eq!(admit(SECOND), Err(unreachable));
    assert_eq!(admit(foreseen.end_us_min), Ok(()));
}
