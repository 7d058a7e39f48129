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
    /// It is one of several: only then it has series of its own.
    several: bool,
    /// The number as metrics label it.
    name: String,
}

impl ReplicaMeter {
    /// One for each of so many replicas.
    pub fn of_all(replicas: usize) -> Vec<Self> {
        let all = Arc::new(Mutex::new(vec![ReplicaFigures::default(); replicas]));
        let (several, one) = (replicas > 1, |number: usize| (number, number.to_string()));
        (0..replicas).map(one).map(|(number, name)| Self { all: all.clone(), number, several, name }).collect()
    }

    /// That of a service's only replica.
    pub fn alone() -> Self {
        Self::of_all(1).remove(0)
    }

    /// The number of the replica, from 0.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The replica stands so. `told` hears the sums over all, one at a time, so that the last told are the latest. Of
    /// a lost one only the counters count: its room is gone, whatever its scheduler says.
    pub fn stands(&self, now: &Stats, told: impl FnOnce(&Stats)) {
        let mut all = self.all.lock();
        let own = &mut all[self.number];
        own.stats = if own.lost { now.totals() } else { *now };
        let now = own.stats;
        if self.several {
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
        if rows > 0 && self.several {
            ::metrics::counter!(REPLICA_ROWS, "replica" => self.name.clone(), "form" => form).increment(rows);
        }
    }

    /// The engine has shown no progress for this long. The longest time of all replicas that live is told.
    pub fn ages(&self, waited: Duration) {
        let mut all = self.all.lock();
        all[self.number].age = waited.as_secs_f64();
        let living = all.iter().filter(|one| !one.lost).map(|one| one.age);
        ::metrics::gauge!(STEP_AGE).set(living.fold(0.0, f64::max));
    }

    /// Whether the replica computes.
    pub fn is_up(&self, up: bool) {
        if self.several {
            ::metrics::gauge!(REPLICA_UP, "replica" => self.name.clone()).set(f64::from(u8::from(up)));
        }
    }

    /// The replica is lost. What [`Self::stands`] has to say of that comes with its next telling.
    pub fn lost(&self) {
        self.is_up(false);
        let mut all = self.all.lock();
        all[self.number].lost = true;
        ::metrics::gauge!(ENGINE_LOST).set(all.iter().filter(|one| one.lost).count() as f64);
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
        all[1].lost();
        all[1].stands(&stats(3, 20, 50), |sum| assert_eq!(*sum, stats(2, 10, 150), "what it has done stays"));
        assert_eq!(all[0].each()[1].stats, stats(0, 0, 50));
        let kept = PrefixStats { entries: 2, pages: 7, ..PrefixStats::default() };
        all[0].keeps(&kept, |_| {});
        all[1].keeps(&kept, |sum| assert_eq!((sum.entries, sum.pages), (4, 14)));
    }
}
