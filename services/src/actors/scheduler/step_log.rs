//! What the scheduler did of late, for who looks. Kept only while somebody looks: without a watcher a step costs one
//! read of a number.

use chimere_engine::scheduler::{PrefixStats, Stats};
use chimere_engine::step::{Form, StateStart, StepPlan};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Steps kept for the slowest of those who look: at 0.3 ms a step more than the quarter of a second between two looks.
const STEPS_MAX: usize = 2048;
/// Rows of one step that are told one by one; a picture has no room for more.
const ROWS_MAX: usize = 64;

/// A step as it was computed.
#[derive(Clone, Debug, Serialize)]
pub struct StepSeen {
    /// Number of the step in the order of its replica's launches.
    pub id: u64,
    /// Number of the replica that computed it, from 0.
    pub replica: u32,
    /// Milliseconds from the end of the step before, or its own launch, to its end.
    pub ms: f64,
    /// What was predicted; 0 while nothing is known.
    pub predicted_ms: f64,
    /// Tokens that were generated: of drafted ones those that are right.
    pub tokens: u32,
    /// How many positions of prompts it computed.
    pub prompt_rows: u32,
    /// The sequences that had rows, at most [`ROWS_MAX`] of them.
    pub rows: Vec<RowSeen>,
}

/// A sequence's part of a step.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RowSeen {
    /// The sequence whose positions they are.
    pub seq: u64,
    /// Of its prompt, or after it.
    pub prompt: bool,
    /// How many positions there are.
    pub tokens: u32,
    /// How many positions before them came from the prefix cache; 0 for all but its first.
    pub cached: u32,
}

/// What the scheduler holds at this moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Standing {
    /// Sequences that have a slot.
    pub running: u32,
    /// How many requests wait.
    pub waiting: u32,
    /// KV pages in use.
    pub pages_used: u32,
    /// KV pages in all.
    pub pages: u32,
    /// State slots in use.
    pub slots_used: u32,
    /// State slots in all.
    pub slots: u32,
    /// Entries of the prefix cache on the device.
    pub entries: u32,
    /// Places for them; 0 without a cache.
    pub entries_max: u32,
    /// Entries of the prefix cache on the host.
    pub host_entries: u32,
    /// Each replica of a service with several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<Standing>,
}

impl Standing {
    fn of(stats: &Stats, kept: &PrefixStats) -> Self {
        Self {
            running: stats.requests_running,
            waiting: stats.requests_waiting,
            pages_used: stats.pages_used,
            pages: stats.pages_used + stats.pages_free,
            slots_used: stats.slots_used,
            slots: stats.slots_used + stats.slots_free,
            entries: kept.entries,
            entries_max: kept.checkpoints,
            host_entries: kept.host_entries,
            replicas: Vec::new(),
        }
    }
}

/// Shared by the scheduler actor, which writes, and by those who look.
#[derive(Debug, Default)]
pub struct StepLog {
    watchers: AtomicUsize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Steps that were ever kept.
    pushed: u64,
    steps: VecDeque<StepSeen>,
    standing: Standing,
}

impl StepLog {
    /// True while anybody looks at the log.
    pub fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) > 0
    }

    /// Keeps a step that is over.
    pub fn push(&self, step: StepSeen) {
        let mut kept = self.kept.lock();
        if kept.steps.len() == STEPS_MAX {
            kept.steps.pop_front();
        }
        kept.steps.push_back(step);
        kept.pushed += 1;
    }

    /// Keeps how things stand with each replica, and with all together.
    pub fn stands<'a>(&self, each: impl Iterator<Item = (&'a Stats, &'a PrefixStats)> + Clone) {
        let (stats, kept) = each.clone().fold((Stats::default(), PrefixStats::default()), |(stats, kept), one| {
            (stats.plus(one.0), kept.plus(one.1))
        });
        let replicas: Vec<_> = each.map(|(stats, kept)| Standing::of(stats, kept)).collect();
        let replicas = if replicas.len() > 1 { replicas } else { Vec::new() };
        self.kept.lock().standing = Standing { replicas, ..Standing::of(&stats, &kept) };
    }

    /// Begins to look; nothing that was before is seen.
    pub fn watch(self: &Arc<Self>) -> Watcher {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        let seen = self.kept.lock().pushed;
        Watcher { log: self.clone(), seen }
    }
}

/// Somebody who looks, until dropped.
#[derive(Debug)]
pub struct Watcher {
    log: Arc<StepLog>,
    /// How many steps had been kept at the last look.
    seen: u64,
}

impl Watcher {
    /// The steps since the last look, the latest `max` of them, and how things stand.
    pub fn look(&mut self, max: usize) -> (Vec<StepSeen>, Standing) {
        let kept = self.log.kept.lock();
        let unseen = usize::try_from(kept.pushed - self.seen).unwrap_or(usize::MAX).min(kept.steps.len());
        let mut new: Vec<_> = kept.steps.range(kept.steps.len() - unseen..).cloned().collect();
        let standing = kept.standing.clone();
        self.seen = kept.pushed;
        drop(kept);
        new.drain(..new.len().saturating_sub(max));
        (new, standing)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if self.log.watchers.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.log.kept.lock().steps.clear();
        }
    }
}

/// The sequences of a plan, each with what it has in it.
pub fn rows_of(plan: &StepPlan) -> Vec<RowSeen> {
    let row = |piece: &chimere_engine::step::Piece| RowSeen {
        seq: piece.seq.0,
        prompt: piece.form == Form::Chunked,
        tokens: piece.len(),
        cached: if matches!(piece.state, StateStart::Restore { .. }) { piece.start } else { 0 },
    };
    plan.pieces.iter().take(ROWS_MAX).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(id: u64) -> StepSeen {
        StepSeen { id, replica: 0, ms: 1.0, predicted_ms: 1.0, tokens: 1, prompt_rows: 0, rows: Vec::new() }
    }

    #[test]
    fn who_looks_sees_each_later_step_once_and_nobody_is_watched_after_the_last_has_gone() {
        let log = Arc::new(StepLog::default());
        assert!(!log.is_watched());
        log.push(step(1));
        let (mut one, mut other) = (log.watch(), log.watch());
        log.push(step(2));
        log.push(step(3));
        let ids = |watcher: &mut Watcher| watcher.look(10).0.iter().map(|s| s.id).collect::<Vec<_>>();
        assert_eq!(ids(&mut one), [2, 3]);
        log.push(step(4));
        assert_eq!(ids(&mut one), [4]);
        assert_eq!(ids(&mut one), [] as [u64; 0]);
        assert_eq!(ids(&mut other), [2, 3, 4]);
        drop(one);
        assert!(log.is_watched());
        drop(other);
        assert!(!log.is_watched() && log.kept.lock().steps.is_empty());
    }

    #[test]
    fn a_slow_watcher_gets_the_latest_and_the_log_stays_bounded() {
        let log = Arc::new(StepLog::default());
        let mut watcher = log.watch();
        (1..=2 * STEPS_MAX as u64).for_each(|id| log.push(step(id)));
        assert_eq!(log.kept.lock().steps.len(), STEPS_MAX);
        let (steps, _) = watcher.look(3);
        assert_eq!(
            steps.iter().map(|s| s.id).collect::<Vec<_>>(),
            (2 * STEPS_MAX as u64 - 2..=2 * STEPS_MAX as u64).collect::<Vec<_>>()
        );
        assert!(watcher.look(3).0.is_empty(), "what was passed over does not come later");
    }
}
