//! The multiple-choice knapsack: one encoding for each group, so that the costs add up to as little as can be within a
//! number of bytes. Exact dynamic programming over bytes in units, which are single bytes where the numbers are small.

/// Units that the budget is cut into at most. Choices are rounded up to whole ones, so nothing is ever above the
/// budget, and below it by a group's unit at most.
const UNITS_MAX: u64 = 1 << 16;

/// An encoding of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EncodingChoice {
    /// Bytes of the group in this encoding.
    pub bytes: u64,
    /// What it costs, such as the expected divergence.
    pub cost: f64,
}

/// The number of a choice for each group; `None` if even the smallest do not fit. Of equal costs the smaller choice is
/// taken.
///
/// # Panics
/// If a group has no choice, or more than 256.
pub fn allocate(groups: &[Vec<EncodingChoice>], budget: u64) -> Option<Vec<usize>> {
    assert!(groups.iter().all(|g| (1..=256).contains(&g.len())), "a group has 1 to 256 choices");
    let least = |group: &Vec<EncodingChoice>| group.iter().map(|c| c.bytes).min().expect("a group has a choice");
    // Only what goes beyond the smallest choice is rounded.
    let room = budget.checked_sub(groups.iter().map(least).sum())?;
    let unit = room.div_ceil(UNITS_MAX).max(1);
    let units = (room / unit) as usize;
    let mut costs = vec![0.0; units + 1];
    let mut taken = Vec::with_capacity(groups.len());
    for group in groups {
        let least = least(group);
        let (mut next, mut choice) = (vec![f64::INFINITY; units + 1], vec![0u8; units + 1]);
        let mut order: Vec<usize> = (0..group.len()).collect();
        order.sort_by_key(|i| group[*i].bytes);
        for i in order {
            let step = (group[i].bytes - least).div_ceil(unit) as usize;
            for at in step..=units {
                let cost = costs[at - step] + group[i].cost;
                if cost < next[at] {
                    (next[at], choice[at]) = (cost, i as u8);
                }
            }
        }
        costs = next;
        taken.push(choice);
    }
    // Costs fall with the room, so the last place is the best one.
    let mut at = units;
    let mut picks: Vec<usize> = groups
        .iter()
        .zip(&taken)
        .rev()
        .map(|(group, choice)| {
            let pick = usize::from(choice[at]);
            at -= (group[pick].bytes - least(group)).div_ceil(unit) as usize;
            pick
        })
        .collect();
    picks.reverse();
    Some(picks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::blocks::SplitMix;

    /// Least cost within the budget, by trying all combinations.
    fn brute(groups: &[Vec<EncodingChoice>], budget: u64) -> Option<f64> {
        let mut best: Option<f64> = None;
        let all: usize = groups.iter().map(Vec::len).product();
        for mut n in 0..all {
            let (mut bytes, mut cost) = (0, 0.0);
            for group in groups {
                let c = group[n % group.len()];
                (bytes, cost) = (bytes + c.bytes, cost + c.cost);
                n /= group.len();
            }
            if bytes <= budget && best.is_none_or(|b| cost < b) {
                best = Some(cost);
            }
        }
        best
    }

    fn random(rng: &mut SplitMix) -> Vec<Vec<EncodingChoice>> {
        let groups = 1 + rng.next_u64() % 5;
        let choice = |rng: &mut SplitMix| EncodingChoice {
            bytes: 10 + rng.next_u64() % 90,
            cost: (rng.next_u64() % 1000) as f64 / 100.0,
        };
        (0..groups).map(|_| (0..1 + rng.next_u64() % 4).map(|_| choice(rng)).collect()).collect()
    }

    #[test]
    fn small_cases_are_solved_as_by_trying_everything() {
        let mut rng = SplitMix::new(1, 1);
        for case in 0..500 {
            let groups = random(&mut rng);
            let budget = rng.next_u64() % 400;
            let picks = allocate(&groups, budget);
            let sum = picks.as_ref().map(|picks| {
                let chosen = groups.iter().zip(picks).map(|(g, p)| g[*p]);
                assert!(chosen.clone().map(|c| c.bytes).sum::<u64>() <= budget, "case {case}");
                chosen.map(|c| c.cost).sum::<f64>()
            });
            match (sum, brute(&groups, budget)) {
                (Some(got), Some(want)) => assert!((got - want).abs() < 1e-9, "case {case}: {got} instead of {want}"),
                (got, want) => assert_eq!(got.is_some(), want.is_some(), "case {case}"),
            }
        }
    }

    #[test]
    fn large_budgets_are_met_to_within_half_a_percent() {
        let mut rng = SplitMix::new(2, 1);
        let groups: Vec<Vec<EncodingChoice>> = (0..400)
            .map(|_| {
                let size = 1_000_000 + rng.next_u64() % 50_000_000;
                let alpha = (rng.next_u64() % 1000 + 1) as f64;
                let at = |bits: u64| EncodingChoice { bytes: size * bits / 8, cost: alpha * 4f64.powi(-(bits as i32)) };
                (3..9).map(at).collect()
            })
            .collect();
        let all: u64 = groups.iter().map(|g| g[0].bytes).sum();
        let budget = all * 3 / 2;
        let picks = allocate(&groups, budget).unwrap();
        let used: u64 = groups.iter().zip(&picks).map(|(g, p)| g[*p].bytes).sum();
        assert!(used <= budget && used as f64 > 0.995 * budget as f64, "{used} of {budget}");
        assert_eq!(allocate(&groups, all - 1), None);
    }
}
