//! How much idle work may add to the steps of others.
//!
//! Two bounds hold together. Of the time of others' decode steps idle work adds at most one part in [`TIME_PARTS`], by
//! what rows are predicted to take. And what it adds to one step is no more than that part of the step, or else that
//! step is one in [`STEPS_APART`]: a prompt's smallest piece often takes longer than the decode rows beside it, so it
//! comes rarely instead of never. The 95th and the 99th percentile of the time between tokens then are those without
//! idle work, or larger by the small part.

/// Idle work adds one of so many parts of the time of others' steps: 3 %, where 5 % are allowed.
const TIME_PARTS: f64 = 32.0;
/// Steps from one that idle work makes longer by more than its part to the next: fewer than one in a hundred.
const STEPS_APART: u32 = 128;
/// The most time that is saved up for one step, microseconds: a stream that stands still for so long is hardly seen to.
const SAVED_US_MAX: f64 = 50_000.0;
/// What a step of idle work alone may take beyond its decode rows, microseconds. Whoever comes waits for its end.
pub(in crate::scheduler) const ALONE_US: f64 = 10_000.0;

/// What idle work may still add to others' steps.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::scheduler) struct IdleBudget {
    /// Time that it has not used, microseconds.
    saved_us: f64,
    /// Others' steps since the last one that it made longer by more than its part.
    steps: u32,
}

impl IdleBudget {
    /// A step with decode rows of others is planned, which should take so long: microseconds that idle work may add.
    pub(in crate::scheduler) fn beside(&mut self, step_us: f64) -> f64 {
        self.steps = self.steps.saturating_add(1);
        self.saved_us = (self.saved_us + step_us / TIME_PARTS).min(SAVED_US_MAX);
        if self.steps >= STEPS_APART { self.saved_us } else { self.saved_us.min(step_us / TIME_PARTS) }
    }

    /// Idle work adds `us` to a step that should take `step_us` without it.
    pub(in crate::scheduler) fn spend(&mut self, step_us: f64, us: f64) {
        self.saved_us -= us;
        if us > step_us / TIME_PARTS {
            self.steps = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs steps of 1 ms beside idle work whose pieces take so long; says how many of the steps had one.
    fn pieces(steps: u32, piece_us: f64) -> Vec<u32> {
        let mut budget = IdleBudget::default();
        let mut add = |step: u32| {
            let fits = budget.beside(1_000.0) >= piece_us;
            if fits {
                budget.spend(1_000.0, piece_us);
            }
            fits.then_some(step)
        };
        (1..=steps).filter_map(&mut add).collect()
    }

    #[test]
    fn what_is_no_more_than_its_part_joins_every_step() {
        assert_eq!(pieces(1_000, 31.0).len(), 1_000);
    }

    #[test]
    fn what_is_more_comes_once_in_so_many_steps_and_never_takes_more_than_its_part_of_the_time() {
        assert_eq!(pieces(1_280, 200.0).len(), 10, "few steps are longer, however little it adds");
        for piece_us in [100.0, 4_000.0, 9_000.0, 40_000.0] {
            let at = pieces(100_000, piece_us);
            assert!(
                at.len() as f64 * piece_us <= 100_000.0 * 1_000.0 / TIME_PARTS,
                "{} pieces of {piece_us} us",
                at.len()
            );
            assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= STEPS_APART), "pieces of {piece_us} us lie apart");
            assert!(at.len() > 70, "and there are some of {piece_us} us");
        }
    }

    #[test]
    fn what_would_make_a_stream_stand_still_for_long_never_comes() {
        assert!(pieces(100_000, SAVED_US_MAX + 1.0).is_empty());
    }
}
