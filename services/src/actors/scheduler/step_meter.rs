//! What the metrics hear of steps and of how the scheduler stands. It sees everything that the scheduler actor does and
//! decides nothing.

use super::step_log::{RowSeen, StepLog, StepSeen, rows_of};
use crate::metrics;
use crate::metrics::gateway::{AdaptersAtWork, Gateway};
use crate::metrics::keys::WaitingByKey;
use crate::metrics::replicas::ReplicaMeter;
use ::metrics::Counter;
use chimere_engine::constraint::Source;
use chimere_engine::drafts::DraftKind;
use chimere_engine::ids::{KeyId, Micros, StepId};
use chimere_engine::scheduler::{
    DraftTotals, FinishedStep, Pace, PrefixConfig, PrefixStats, RequestTimes, SchedulerConfig, Stats, StepInFlight,
    StepShape,
};
use chimere_engine::step::{ExpertReads, ExpertUse, FinishedTransfer, StepOutcome, StepPlan, StepTiming};
use std::collections::VecDeque;
use std::sync::Arc;

/// A prediction of a wait is compared with waits that are longer than this: shorter ones than a step or two are chance.
const WAIT_COMPARED_US: u64 = 100_000;

/// Figures of an outcome that metrics keep; the scheduler takes the rest of it.
pub(super) struct OutcomeFigures {
    tokens: usize,
    timing: StepTiming,
    graph_replays: u32,
    experts: ExpertUse,
    expert_reads: ExpertReads,
    copies: Vec<FinishedTransfer>,
}

impl OutcomeFigures {
    /// The figures of this outcome.
    pub(super) fn of(outcome: &StepOutcome) -> Self {
        Self {
            tokens: outcome.samples.len(),
            timing: outcome.timing,
            graph_replays: outcome.graph_replays,
            experts: outcome.experts,
            expert_reads: outcome.expert_reads,
            copies: outcome.host.finished.clone(),
        }
    }
}

/// What a step mostly is, for the label of its time.
fn kind(shape: &StepShape) -> &'static str {
    match (shape.prompt_rows, shape.rows) {
        (0, _) => "decode",
        (_, 0) => "prefill",
        _ => "mixed",
    }
}

/// Tells the metrics. Counters hear what was added since they were told last.
pub(super) struct StepMeter {
    /// Positions that one step may compute.
    step_tokens: u32,
    waiting: WaitingByKey,
    told: Stats,
    drafts: DraftTotals,
    prefix: PrefixConfig,
    /// What was told of the prefix cache last.
    kept: Option<PrefixStats>,
    /// Told the figures of this replica; knows those of all.
    figures: ReplicaMeter,
    gateway: Arc<Gateway>,
    /// What it was told last.
    adapters: AdaptersAtWork,
    /// Prompt tokens of the warm-up, which nobody asked for.
    uncounted: u64,
    /// For those who look at single steps.
    log: Arc<StepLog>,
    /// Who has rows in steps in flight, for those.
    watched: VecDeque<(StepId, Vec<RowSeen>)>,
}

impl StepMeter {
    /// For a scheduler within these bounds.
    pub(super) fn new(
        config: &SchedulerConfig,
        figures: ReplicaMeter,
        gateway: Arc<Gateway>,
        log: Arc<StepLog>,
    ) -> Self {
        figures.is_up(true);
        Self {
            figures,
            step_tokens: config.step_tokens,
            waiting: WaitingByKey::default(),
            told: Stats::default(),
            drafts: DraftTotals::default(),
            prefix: config.prefix,
            kept: None,
            gateway,
            adapters: AdaptersAtWork::default(),
            uncounted: 0,
            log,
            watched: VecDeque::new(),
        }
    }

    /// Prompt tokens that are not to be counted among those that were asked for.
    pub(super) fn leave_out(&mut self, prompt_tokens: u64) {
        self.uncounted += prompt_tokens;
    }

    /// A step is about to be launched.
    pub(super) fn launched(&mut self, plan: &StepPlan, step: &StepInFlight) {
        for (own, rows) in plan.pieces.iter().filter_map(|piece| Some((piece.adapter.as_ref()?, piece.len()))) {
            let name = own.adapter.name.clone();
            ::metrics::counter!(metrics::ADAPTER_ROWS, "adapter" => name).increment(rows.into());
        }
        add(step.paused_rows, || ::metrics::counter!(metrics::ROWS_SAT_OUT));
        if self.log.is_watched() {
            self.watched.push_back((plan.id, rows_of(plan)));
        }
    }

    /// Shows a step that gave so many tokens to those who look.
    fn show(&mut self, FinishedStep { step, took, .. }: &FinishedStep, tokens: usize) {
        while let Some((id, rows)) = self.watched.pop_front_if(|(id, _)| *id <= step.id) {
            if id == step.id {
                self.log.push(StepSeen {
                    id: step.id.0,
                    replica: self.figures.number() as u32,
                    ms: took.0 as f64 / 1e3,
                    predicted_ms: step.predicted_us.unwrap_or(0.0) / 1e3,
                    tokens: tokens as u32,
                    prompt_rows: step.shape.prompt_rows,
                    rows,
                });
            }
        }
    }

    /// A step came back. `pace` is what is known by now.
    pub(super) fn ended(&mut self, finished: &FinishedStep, figures: &OutcomeFigures, pace: &Pace) {
        let (step, timing) = (&finished.step, figures.timing);
        let took = timing.forward_us + timing.sample_us + timing.guess_us;
        ::metrics::histogram!(metrics::STEP_SECONDS, "kind" => kind(&step.shape)).record(seconds(took));
        ::metrics::histogram!(metrics::BATCH_ROWS).record(f64::from(step.shape.rows + step.shape.prompt_rows));
        let rows = [("prompt", step.shape.prompt_rows), ("decode", step.shape.rows)];
        for (form, n) in rows {
            add(n.into(), || ::metrics::counter!(metrics::STEP_ROWS, "form" => form));
            self.figures.computed(form, n.into());
        }
        let reads = figures.expert_reads;
        for (place, experts) in [(metrics::DEVICE_TIER, reads.hits), (metrics::HOST_TIER, reads.misses)] {
            add(experts, || ::metrics::counter!(metrics::EXPERT_READS, "place" => place));
        }
        for (name, n) in [
            (metrics::GRAPH_REPLAYS, figures.graph_replays.into()),
            (metrics::MOE_ROWS, figures.experts.rows),
            (metrics::MOE_EXPERTS, figures.experts.experts),
            (metrics::EXPERT_HOST_BYTES, reads.missed_bytes),
            (metrics::EXPERT_SWAPS, reads.promoted),
        ] {
            add(n, || ::metrics::counter!(name));
        }
        for copy in &figures.copies {
            let direction = metrics::TRANSFERS[copy.direction as usize];
            ::metrics::histogram!(metrics::PREFIX_TRANSFER, "direction" => direction).record(seconds(copy.micros));
        }
        self.budget(step, pace);
        count_late(step, Micros(finished.began.0 + timing.forward_us));
        self.compare(finished, figures.tokens, pace);
    }

    /// How much of what a step may take was used.
    fn budget(&self, step: &StepInFlight, pace: &Pace) {
        let positions = step.shape.rows + step.shape.prompt_rows;
        let share = f64::from(positions) / f64::from(self.step_tokens);
        ::metrics::histogram!(metrics::STEP_BUDGET, "of" => "positions").record(share);
        // Without somebody who waits for a token there is no target to keep.
        if let Some(predicted) = step.predicted_us.filter(|_| step.shape.rows > 0 && pace.target_us > 0) {
            ::metrics::histogram!(metrics::STEP_BUDGET, "of" => "time").record(predicted / pace.target_us as f64);
        }
    }

    /// Compares what a step that gave so many tokens took with what was predicted; tells what decode rows waited for
    /// others' prompts. Its time is that between commits, because that is what a stream sees.
    fn compare(&mut self, finished: &FinishedStep, tokens: usize, pace: &Pace) {
        self.show(finished, tokens);
        let (step, took_us) = (&finished.step, finished.took.0 as f64);
        if let Some(predicted) = step.predicted_us {
            let kind = kind(&step.shape);
            ::metrics::histogram!(metrics::STEP_PREDICTED, "kind" => kind).record(predicted / 1e6);
            ::metrics::histogram!(metrics::STEP_RATIO, "kind" => kind).record(predicted / took_us.max(1.0));
        }
        let (prompts, decodes) = (step.shape.prompt_rows > 0, step.shape.rows > 0);
        if step.paused_rows > 0 {
            ::metrics::histogram!(metrics::DECODE_STALL).record(took_us / 1e6);
        } else if let Some(without) = pace.cost.predict(&step.shape.without_prompts()).filter(|_| prompts && decodes) {
            ::metrics::histogram!(metrics::DECODE_STALL).record((took_us - without).max(0.0) / 1e6);
        }
    }

    /// A request has to wait, so long as far as one can tell.
    pub(super) fn foreseen(&self, wait_us: u64) {
        ::metrics::histogram!(metrics::PREDICTED_WAIT).record(seconds(wait_us));
    }

    /// A request has started; tells how good the prediction of its wait was, if there was one.
    pub(super) fn started(&self, foreseen_us: Option<u64>, times: &RequestTimes) {
        let actual_us = times.started.map_or(0, |started| started.since(times.admitted).0);
        if let Some(foreseen_us) = foreseen_us.filter(|_| actual_us > WAIT_COMPARED_US) {
            ::metrics::histogram!(metrics::WAIT_RATIO).record(foreseen_us as f64 / actual_us as f64);
        }
    }

    /// A request was refused, and there is room for it after this time.
    pub(super) fn refused(&self, room_in_us: u64) {
        ::metrics::histogram!(metrics::REFUSED_WAIT).record(seconds(room_in_us));
    }

    /// A request that ran or waited was cancelled this long after its client's end was seen.
    pub(super) fn cancelled(&self, after: Micros) {
        ::metrics::histogram!(metrics::CANCEL_SECONDS).record(seconds(after.0));
    }

    /// The engine is lost, and all that it could hold.
    pub(super) fn engine_lost(&self) {
        self.figures.lost();
    }

    /// A request of a lost replica goes on here.
    pub(super) fn migrated(&self) {
        ::metrics::counter!(metrics::MIGRATED, "outcome" => "moved").increment(1);
    }

    /// A request failed whose numbers were none.
    pub(super) fn not_finite(&self) {
        ::metrics::counter!(metrics::NOT_FINITE).increment(1);
    }

    /// Counts that the actor of a deferred source died and another one was started.
    pub(super) fn source_restarted(&self, source: Source) {
        let name = if source == Source::Tables { metrics::ENGRAM_RESTARTS } else { metrics::GRAMMAR_RESTARTS };
        ::metrics::counter!(name).increment(1);
    }

    /// What the prefix cache keeps, and what it did since the last time.
    pub(super) fn keeps(&mut self, now: PrefixStats) {
        if self.kept == Some(now) {
            return;
        }
        let old = self.kept.replace(now).unwrap_or_default().totals;
        let new = now.totals;
        let (tokens, hit_tokens) = (new.query_tokens - old.query_tokens, new.hit_tokens - old.hit_tokens);
        for (name, added) in [
            (metrics::PREFIX_QUERIES, new.queries - old.queries),
            (metrics::PREFIX_QUERY_TOKENS, tokens),
            (metrics::PREFIX_KNOWN_TOKENS, new.known_tokens - old.known_tokens),
            (metrics::PREFIX_HITS, new.hits - old.hits),
            (metrics::PREFIX_TAKEN, new.taken - old.taken),
            (metrics::PREFIX_SKIPPED, new.skipped - old.skipped),
        ] {
            ::metrics::counter!(name).increment(added);
        }
        let from_host = new.host_hit_tokens - old.host_hit_tokens;
        for (tier, hit_tokens, evicted) in [
            (metrics::DEVICE_TIER, hit_tokens - from_host, new.evicted - old.evicted),
            (metrics::HOST_TIER, from_host, new.host_evicted - old.host_evicted),
        ] {
            ::metrics::counter!(metrics::PREFIX_HIT_TOKENS, "tier" => tier).increment(hit_tokens);
            ::metrics::counter!(metrics::PREFIX_EVICTIONS, "tier" => tier).increment(evicted);
        }
        self.figures.keeps(&now, |all| self.export_kept(all));
        self.gateway.looked_up(tokens, hit_tokens);
    }

    /// Sets the gauges of what the prefix caches of all replicas keep.
    fn export_kept(&self, all: &PrefixStats) {
        let PrefixConfig { checkpoint_bytes, page_bytes, host, .. } = self.prefix;
        let device_bytes = u64::from(all.entries) * checkpoint_bytes + u64::from(all.pages) * page_bytes;
        let host_bytes = u64::from(all.host_blocks) * host.bytes;
        for (tier, entries, bytes) in
            [(metrics::DEVICE_TIER, all.entries, device_bytes), (metrics::HOST_TIER, all.host_entries, host_bytes)]
        {
            ::metrics::gauge!(metrics::PREFIX_ENTRIES, "tier" => tier).set(f64::from(entries));
            ::metrics::gauge!(metrics::PREFIX_BYTES, "tier" => tier).set(bytes as f64);
        }
        ::metrics::gauge!(metrics::PREFIX_PAGES).set(f64::from(all.pages));
    }

    /// What was drafted since the last time.
    pub(super) fn drafted(&mut self, now: DraftTotals) {
        if self.drafts == now {
            return;
        }
        let old = std::mem::replace(&mut self.drafts, now);
        for kind in DraftKind::ALL {
            let (at, source) = (kind as usize, kind.name());
            let (drafted, pieces) = (now.drafted[at] - old.drafted[at], now.pieces[at] - old.pieces[at]);
            if pieces == 0 {
                continue;
            }
            add(drafted, || ::metrics::counter!(metrics::DRAFTED, "source" => source));
            self.gateway.drafted(pieces, drafted);
            for (place, position) in metrics::DRAFT_POSITIONS.iter().enumerate() {
                let accepted = now.accepted[at][place] - old.accepted[at][place];
                add(accepted, || ::metrics::counter!(metrics::ACCEPTED, "source" => source, "position" => *position));
                self.gateway.accepted(place, accepted);
            }
        }
        for ((drafts, now), old) in metrics::DRAFT_NUMBERS.iter().zip(now.rows).zip(old.rows) {
            add(now - old, || ::metrics::counter!(metrics::DRAFT_ROWS, "drafts" => *drafts));
        }
        add(now.lost - old.lost, || ::metrics::counter!(metrics::DRAFT_LOST));
    }

    /// Which adapters sequences have, by name; of each whether it runs.
    pub(super) fn has_adapters<'a>(&mut self, named: impl Iterator<Item = (&'a str, bool)>) {
        let mut now = AdaptersAtWork::default();
        for (name, runs) in named {
            let names = if runs { &mut now.running } else { &mut now.waiting };
            if !names.contains(name) {
                names.insert(name.to_owned());
            }
        }
        if now != self.adapters {
            self.gateway.has_adapters(now.clone());
            self.adapters = now;
        }
    }

    /// How things stand: gauges as they are, counters by what was added since the last time.
    pub(super) fn stands(&mut self, mut now: Stats, waiting_by_key: impl Iterator<Item = (KeyId, u32)>) {
        // A request that started before the warm-up was admitted has been told in full; what is told never falls.
        now.prompt_tokens_total =
            now.prompt_tokens_total.saturating_sub(self.uncounted).max(self.told.prompt_tokens_total);
        let preemptions = now.preemptions_total - self.told.preemptions_total;
        let prompt_tokens = now.prompt_tokens_total - self.told.prompt_tokens_total;
        let swaps = now.adapter_swaps_total - self.told.adapter_swaps_total;
        add(swaps, || ::metrics::counter!(metrics::ADAPTER_SWAPS));
        let (idle, idle_before) = (now.idle.totals, self.told.idle.totals);
        add(idle.rows - idle_before.rows, || ::metrics::counter!(metrics::IDLE_ROWS));
        add(idle.parked - idle_before.parked, || ::metrics::counter!(metrics::IDLE_PARKED));
        add(preemptions, || ::metrics::counter!(metrics::PREEMPTIONS));
        add(prompt_tokens, || ::metrics::counter!(metrics::PROMPT_TOKENS));
        self.waiting.tell(&now, waiting_by_key);
        self.figures.stands(&now, |all| {
            export(all);
            self.gateway.stands(all, preemptions, prompt_tokens);
        });
        if self.log.is_watched() {
            let each = self.figures.each();
            self.log.stands(each.iter().map(|one| (&one.stats, &one.kept)));
        }
        self.told = now;
    }
}

/// Sets the gauges of how all schedulers stand together.
fn export(all: &Stats) {
    ::metrics::gauge!(metrics::REQUESTS_RUNNING).set(f64::from(all.requests_running));
    ::metrics::gauge!(metrics::REQUESTS_WAITING).set(f64::from(all.requests_waiting));
    ::metrics::gauge!(metrics::KV_PAGES, "state" => "used").set(f64::from(all.pages_used));
    ::metrics::gauge!(metrics::KV_PAGES, "state" => "free").set(f64::from(all.pages_free));
    ::metrics::gauge!(metrics::STATE_SLOTS, "state" => "used").set(f64::from(all.slots_used));
    ::metrics::gauge!(metrics::STATE_SLOTS, "state" => "free").set(f64::from(all.slots_free));
    ::metrics::gauge!(metrics::IDLE_REQUESTS, "state" => "running").set(f64::from(all.idle.running));
    ::metrics::gauge!(metrics::IDLE_REQUESTS, "state" => "waiting").set(f64::from(all.idle.waiting));
}

/// Counts rules that came after the forward of their step was over.
fn count_late(step: &StepInFlight, forward_end: Micros) {
    if let Some(late) = step.tables_at.map(|at| at.since(forward_end)).filter(|late| late.0 > 0) {
        ::metrics::counter!(metrics::ENGRAM_LATE).increment(1);
        ::metrics::histogram!(metrics::ENGRAM_LATE_SECONDS).record(seconds(late.0));
    }
}

/// Adds to a counter which was at 0 from the start, so that it need not be looked up where nothing is added: that takes as
/// long as a good part of planning a step.
fn add(n: u64, counter: impl FnOnce() -> Counter) {
    if n > 0 {
        counter().increment(n);
    }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::request::stopwatch::tests::config_of_one;
    use chimere_engine::scheduler::{DraftSettings, Pipeline};

    #[test]
    fn who_looks_is_told_of_tokens_and_not_of_rows_that_were_drafted_in_vain() {
        let config = config_of_one();
        let log = Arc::<StepLog>::default();
        let mut watcher = log.watch();
        let mut meter = StepMeter::new(&config, ReplicaMeter::alone(), Arc::new(Gateway::new("a meter", &config)), log);
        let (plan, pace) = (StepPlan::new(StepId(0), Vec::new()), Pace::default());
        let mut pipeline = Pipeline::new(config, DraftSettings::default(), pace);
        let mut step = pipeline.launched(&plan, Micros(0)).clone();
        meter.launched(&plan, &step);
        step.shape.rows = 8;
        meter.compare(&FinishedStep { step, began: Micros(0), took: Micros(1_000) }, 3, &pace);
        assert_eq!(watcher.look(1).0[0].tokens, 3);
    }
}
