//! Which questions a run asks. Whoever is asked the same ones each night is chosen for them in the end, so half of a
//! run's questions are ones that the run before did not ask.

use sha2::{Digest, Sha256};

/// Where a run stands in a family's questions, which lie in a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The place of its first question.
    start: u64,
    /// How many questions it has asked.
    asked: u64,
}

impl Rotation {
    /// The run of a day, whose questions begin where that day's do: half of what a day asks first is asked on the day
    /// before too.
    pub fn on(day: u64, first: u64) -> Self {
        Self { start: day * first.div_ceil(2), asked: 0 }
    }

    /// Asks so many more in this run, of a family with these questions by id, and gives their places in `ids`. Fewer if
    /// the family has no more that this run has not asked.
    pub fn ask(&mut self, family: &str, ids: &[String], more: u64) -> Vec<usize> {
        let ring = ring(family, ids);
        let left = (ids.len() as u64).saturating_sub(self.asked);
        let from = self.start + self.asked;
        let places = from..from + more.min(left);
        self.asked += more.min(left);
        places.map(|place| ring[(place % ring.len() as u64) as usize]).collect()
    }
}

/// The places of a family's questions in an order that has nothing to do with how they were written, and that is kept
/// by the others when one comes or goes.
fn ring(family: &str, ids: &[String]) -> Vec<usize> {
    let hash = |id: &String| Sha256::new().chain_update(family).chain_update([0]).chain_update(id).finalize();
    let mut places: Vec<usize> = (0..ids.len()).collect();
    places.sort_by_cached_key(|place| (hash(&ids[*place]), *place));
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn ids(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("q{n}")).collect()
    }

    #[test]
    fn half_of_a_day_s_questions_are_new_and_after_some_days_all_were_asked() {
        let ids = ids(1_000);
        let (mut before, mut seen) = (BTreeSet::new(), BTreeSet::<usize>::new());
        for day in 20_000..20_007 {
            // In two parts, as when the first answers show that more are needed.
            let mut rotation = Rotation::on(day, 300);
            let mut asked: BTreeSet<usize> = rotation.ask("sums", &ids, 100).into_iter().collect();
            asked.extend(rotation.ask("sums", &ids, 200));
            assert_eq!(asked.len(), 300, "none twice");
            let again = asked.intersection(&before).count();
            assert_eq!(again, if day == 20_000 { 0 } else { 150 });
            seen.extend(&asked);
            before = asked;
        }
        assert_eq!(seen.len(), 1_000);
    }

    #[test]
    fn no_question_is_asked_twice_in_a_run_and_an_order_is_a_family_s_own() {
        let ids = ids(50);
        let mut rotation = Rotation::default();
        assert_eq!(rotation.ask("a", &ids, 40).len() + rotation.ask("a", &ids, 40).len(), 50);
        assert!(rotation.ask("a", &ids, 1).is_empty() && Rotation::default().ask("a", &[], 5).is_empty());
        let first = |family: &str| Rotation::default().ask(family, &ids, 50);
        assert_ne!(first("a"), first("b"));
        let mut other = ids.clone();
        other.reverse();
        let named = |ids: &[String]| {
            Rotation::default().ask("a", ids, 50).into_iter().map(|at| ids[at].clone()).collect::<Vec<_>>()
        };
        assert_eq!(named(&ids), named(&other), "how they were listed does not matter");
    }
}
