//! Figures of each replica, and of all of them together: routers and alerts read the sums, which have the names that a
//! service with one replica gives them; those of each have names of their own, so that no sum counts anything twice.

use super::{ENGINE_LOST, REPLICA_REQUESTS, REPLICA_ROWS, REPLICA_UP, STEP_AGE};
use chimere_engine::scheduler::{PrefixStats, Stats};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// What one replica told last.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplicaFigures {
    /// How the scheduler of the replica stood.
    pub stats: Stats,
    /// What the prefix cache of the replica kept.
    pub kept: PrefixStats,
    /// Time without progress, in seconds.
    age: f64,
    lost: bool,
}

/// Takes the figures of one replica, and knows those of the others.
#[derive(Clone, Debug)]
pub struct ReplicaMeter {
    all: Arc<Mutex<Vec<ReplicaFigures>>>,
    number: usize,
    /// The number as metrics label it.
    name: String,
}

impl ReplicaMeter {
    /// One for each of so many replicas.
    pub fn of_all(replicas: usize) -> Vec<Self> {
        let all = Arc::new(Mutex::new(vec![ReplicaFigures::default(); replicas]));
        (0..replicas).map(|number| Self { all: all.clone(), number, name: number.to_string() }).collect()
    }

    /// That of a service's only replica.
    pub fn alone() -> Self {
        Self { all: Arc::new(Mutex::new(vec![ReplicaFigures::default()])), number: 0, name: "0".into() }
    }

    /// The number of the replica, from 0.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Is it one of several? Only then it has series of its own.
    fn of_several(&self, all: &[ReplicaFigures]) -> bool {
        all.len() > 1
    }

    /// The replica stands so. `told` hears the sums over all, one at a time, so that the last told are the latest.
    pub fn stands(&self, now: &Stats, told: impl FnOnce(&Stats)) {
        let mut all = self.all.lock();
        all[self.number].stats = *now;
        if self.of_several(&all) {
            for (state, requests) in [("running", now.requests_running), ("waiting", now.requests_waiting)] {
                ::metrics::gauge!(REPLICA_REQUESTS, "replica" => self.name.clone(), "state" => state)
                    .set(f64::from(requests));
            }
        }
        told(&all.iter().fold(Stats::default(), |sum, one| sum.plus(&one.stats)));
    }

    /// The prefix cache of the replica is so. `told` hears the sums, as [`Self::stands`] has it.
    pub fn keeps(&self, now: &PrefixStats, told: impl FnOnce(&PrefixStats)) {
        let mut all = self.all.lock();
        all[self.number].kept = *now;
        told(&all.iter().fold(PrefixStats::default(), |sum, one| sum.plus(&one.kept)));
    }

    /// So many more positions were computed, by form.
    pub fn computed(&self, form: &'static str, rows: u64) {
        if rows > 0 && self.of_several(&self.all.lock()) {
            ::metrics::counter!(REPLICA_ROWS, "replica" => self.name.clone(), "form" => form).increment(rows);
        }
    }

    /// The engine has shown no progress for this long. The longest time of all replicas is told.
    pub fn ages(&self, waited: Duration) {
        let mut all = self.all.lock();
        all[self.number].age = waited.as_secs_f64();
        ::metrics::gauge!(STEP_AGE).set(all.iter().map(|one| one.age).fold(0.0, f64::max));
    }

    /// Whether the replica computes.
    pub fn is_up(&self, up: bool) {
        if self.of_several(&self.all.lock()) {
            ::metrics::gauge!(REPLICA_UP, "replica" => self.name.clone()).set(f64::from(u8::from(up)));
        }
    }

    /// The replica is lost: what it could hold counts no longer.
    pub fn lost(&self, told: impl FnOnce(&Stats)) {
        self.is_up(false);
        let totals = {
            let mut all = self.all.lock();
            all[self.number].lost = true;
            ::metrics::gauge!(ENGINE_LOST).set(all.iter().filter(|one| one.lost).count() as f64);
            all[self.number].stats.totals()
        };
        self.stands(&totals, told);
    }

    /// What each replica told last, by number.
    pub fn each(&self) -> Vec<ReplicaFigures> {
        self.all.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_of_all_and_what_a_lost_one_could_hold_counts_no_longer() {
        let all = ReplicaMeter::of_all(2);
        let stats = |running, pages_free, output_tokens_total| Stats {
            requests_running: running,
            pages_free,
            output_tokens_total,
            ..Stats::default()
        };
        all[0].stands(&stats(2, 10, 100), |_| {});
        all[1].stands(&stats(3, 20, 50), |sum| assert_eq!(*sum, stats(5, 30, 150)));
        all[1].lost(|sum| assert_eq!(*sum, stats(2, 10, 150), "what it has done stays"));
        assert_eq!(all[0].each()[1].stats, stats(0, 0, 50));
        let kept = PrefixStats { entries: 2, pages: 7, ..PrefixStats::default() };
        all[0].keeps(&kept, |_| {});
        all[1].keeps(&kept, |sum| assert_eq!((sum.entries, sum.pages), (4, 14)));
    }
}
