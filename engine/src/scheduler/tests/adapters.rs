//! More adapters than slots for them: everybody gets on, and rows without an adapter notice nothing.

use super::simulation::{CONFIG, Client, Seen, World, gpu, percentile};
use crate::adapter::{Adapter, ScaledAdapter};
use crate::ids::{Micros, RequestId};
use crate::scheduler::{Request, Scheduler, SchedulerConfig, Spec};
use crate::step::StepPlan;
use std::sync::Arc;

/// Microseconds that nobody's tokens may stay away for their adapter's sake.
const STARVATION_US: u64 = 2_000_000;

pub(super) fn adapters(count: usize) -> Vec<Option<ScaledAdapter>> {
    let one = |_| Some(ScaledAdapter { adapter: Arc::new(Adapter::new("a", Vec::new())), scale: 1.0 });
    (0..count).map(one).collect()
}

/// Sixteen seconds of streams with an adapter each, which never pause, beside four without one.
fn streams(count: usize, adapter_slots: usize) -> (Vec<Seen>, World) {
    let setting = gpu();
    let config = SchedulerConfig { adapter_slots, slots: 64, pages: 16_384, ..setting.config };
    let busy = |key| Client { key, prompt: 100, outputs: 300, pause_us: 0 };
    let clients: Vec<_> = (0..count as u64 + 4).map(busy).collect();
    let mut world = World::on(setting.costs, config, setting.pace, &clients);
    world.adapters = adapters(count);
    let seen = world.run(16_000_000);
    (seen, world)
}

/// The longest time between two tokens of a client, or before its first.
fn longest(seen: &[Seen], client: usize) -> u64 {
    let own = seen.iter().filter(|s| s.client == client);
    own.flat_map(|s| s.gaps().into_iter().chain(s.ttft())).max().unwrap_or(u64::MAX)
}

#[test]
fn nine_adapters_in_eight_slots_take_turns_and_none_starves() {
    let (seen, world) = streams(9, 8);
    let tokens = |client: usize| seen.iter().filter(|s| s.client == client).map(|s| s.tokens.len()).sum::<usize>();
    let all: Vec<_> = (0..9).map(tokens).collect();
    let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
    assert!(4 * least >= 3 * most, "all get on alike: {all:?}");
    for client in 0..9 {
        assert!(longest(&seen, client) <= 300_000, "client {client} waits for {} us", longest(&seen, client));
    }
    let swaps = world.pipeline.scheduler.stats().adapter_swaps_total;
    assert!((100..=320).contains(&swaps), "a swap in 50 ms at most, and they go on: {swaps}");
}

#[test]
fn forty_adapters_in_eight_slots_wait_for_two_seconds_at_most() {
    let (seen, _) = streams(40, 8);
    for client in 0..40 {
        assert!(longest(&seen, client) <= STARVATION_US, "client {client} waits for {} us", longest(&seen, client));
    }
}

#[test]
fn rows_without_an_adapter_have_the_gaps_that_they_have_where_no_adapter_waits() {
    let p99 = |(seen, _): (Vec<Seen>, World)| {
        percentile(seen.iter().filter(|s| s.client >= 9).flat_map(Seen::gaps).collect(), 99)
    };
    let (beside, free) = (p99(streams(9, 2)), p99(streams(9, 9)));
    assert!(10 * beside <= 11 * free, "{beside} us beside adapters that wait, {free} us beside none");
}

/// What a step computes, by sequence and slot of its adapter.
fn computed(plan: Option<StepPlan>) -> Vec<(u64, Option<u16>)> {
    let pieces = plan.map(|plan| plan.pieces).unwrap_or_default();
    pieces.iter().map(|piece| (piece.seq.0, piece.adapter.as_ref().map(|own| own.slot.0))).collect()
}

#[test]
fn an_idle_device_swaps_at_once_and_a_busy_one_keeps_the_time_between_two_swaps() {
    let config = SchedulerConfig { adapter_slots: 1, steps_in_flight_max: 1, ..CONFIG };
    let (mut scheduler, adapters) = (Scheduler::new(config), adapters(3));
    let mut device = super::device::FakeDevice::new(&config);
    let admit = |scheduler: &mut Scheduler, id: u64, adapter: Option<usize>| {
        let adapter = adapter.and_then(|at| adapters[at].clone());
        let spec = Spec { adapter, ..Spec::greedy(1_000) };
        scheduler.admit(Request::new(RequestId(id), vec![1; 10], spec), Micros(0)).unwrap();
    };
    let mut step = |scheduler: &mut Scheduler, ms: u64| {
        let plan = scheduler.plan(Micros(ms * 1_000));
        if let Some(plan) = &plan {
            scheduler.commit(device.run(plan), Micros(ms * 1_000 + 900));
        }
        computed(plan)
    };
    admit(&mut scheduler, 0, Some(0));
    assert_eq!(step(&mut scheduler, 0), [(0, Some(0))]);
    scheduler.cancel(RequestId(0));
    admit(&mut scheduler, 1, Some(1));
    assert_eq!(step(&mut scheduler, 1), [(1, Some(0))], "nothing else is to do, so nobody waits");
    admit(&mut scheduler, 2, Some(2));
    admit(&mut scheduler, 3, None);
    for ms in 2..51 {
        assert_eq!(step(&mut scheduler, ms), [(1, Some(0)), (3, None)], "at {ms} ms");
    }
    assert_eq!(step(&mut scheduler, 52), [(2, Some(0)), (3, None)]);
    scheduler.cancel(RequestId(2));
    scheduler.cancel(RequestId(3));
    assert_eq!(step(&mut scheduler, 53), [(1, Some(0))], "alone again");
}
