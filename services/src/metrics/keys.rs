//! Who waits, by key, under labels that say nothing of the key and are bounded in number.

use super::{WAITING_BY_KEY, WAITING_BY_REASON};
use crate::limits::KEY_LABELS_MAX;
use ::metrics::Gauge;
use chimere_engine::ids::KeyId;
use chimere_engine::scheduler::{Stats, WaitReason};
use std::collections::{BTreeMap, HashMap};

/// The label of requests without a key.
const NOBODY: &str = "none";
/// The label of keys that came after the first [`KEY_LABELS_MAX`].
const OTHERS: &str = "other";

/// Gauges of what waits, and what they were last set to.
#[derive(Debug)]
pub struct WaitingByKey {
    labels: HashMap<KeyId, String>,
    shown: BTreeMap<String, u32>,
    by_reason: [u32; REASONS],
}

/// Reasons to wait, and having been preempted.
const REASONS: usize = WaitReason::ALL.len() + 1;

impl Default for WaitingByKey {
    fn default() -> Self {
        Self {
            labels: HashMap::from([(KeyId::default(), NOBODY.to_owned())]),
            shown: BTreeMap::from([(NOBODY.to_owned(), 0)]),
            by_reason: [0; REASONS],
        }
    }
}

impl WaitingByKey {
    /// Changes the gauges by what has changed: other replicas do so too, and so the gauges are sums. A key that was
    /// seen once keeps its series, at 0.
    pub fn tell(&mut self, stats: &Stats, by_key: impl Iterator<Item = (KeyId, u32)>) {
        let mut now: BTreeMap<String, u32> = self.shown.keys().map(|label| (label.clone(), 0)).collect();
        for (key, waiting) in by_key {
            *now.entry(self.label(key)).or_default() += waiting;
        }
        for (label, waiting) in &now {
            let shown = self.shown.get(label).copied();
            if shown != Some(*waiting) {
                change(::metrics::gauge!(WAITING_BY_KEY, "key" => label.clone()), shown.unwrap_or(0), *waiting);
            }
        }
        self.shown = now;
        let new = |reason| if stats.waits_for == reason { stats.requests_new } else { 0 };
        let preempted = stats.requests_waiting.saturating_sub(stats.requests_new);
        let by_reason = WaitReason::ALL.map(|reason| (reason.name(), new(reason)));
        let all = by_reason.into_iter().chain([("preempted", preempted)]);
        for ((reason, waiting), shown) in all.zip(&mut self.by_reason) {
            change(::metrics::gauge!(WAITING_BY_REASON, "reason" => reason), *shown, waiting);
            *shown = waiting;
        }
    }

    fn label(&mut self, key: KeyId) -> String {
        let full = self.labels.len() > KEY_LABELS_MAX;
        match self.labels.get(&key) {
            Some(label) => label.clone(),
            None if full => OTHERS.to_owned(),
            // Half of the id, which is itself the hash of a hash.
            None => self.labels.entry(key).or_insert_with(|| format!("{:08x}", key.0 >> 32)).clone(),
        }
    }
}

fn change(gauge: Gauge, from: u32, to: u32) {
    gauge.increment(f64::from(to) - f64::from(from));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_keys_have_labels_of_their_own_and_all_later_ones_share_one() {
        let mut waiting = WaitingByKey::default();
        let labels: Vec<_> = (0..100u64).map(|i| waiting.label(KeyId(i << 32))).collect();
        assert_eq!((labels[0].as_str(), labels[1].as_str(), labels[99].as_str()), (NOBODY, "00000001", OTHERS));
        assert_eq!(labels.iter().filter(|label| *label != OTHERS).count(), 1 + KEY_LABELS_MAX);
        assert_eq!(waiting.label(KeyId(5 << 32)), "00000005", "a label stays");
    }
}
