//! What numbers of rows take against a linear function of them.

/// Numbers of recurrent rows that are told apart, because kernels change from one to the next: each up to 16, then eight
/// for each doubling, up to 256. One by one, larger numbers would come too seldom, and whoever looks for the best of
/// them would find the luckiest.
const ROWS_APART: usize = 17 + 4 * 8;
/// The last that is told apart from the next.
pub(super) const APART_MAX: u32 = 16;
/// A ratio counts as at most this, and at least as that part of one.
const RATIO_MAX: f32 = 16.0;
/// A number of rows that was seen so often is believed whatever its neighbours say; without drafts it tells what drafts
/// spare.
pub(super) const SURE: f32 = 4.0;
/// Part of how often a number was seen that each step with drafts takes away: what was held up for a while is tried again.
const AGING: f32 = 1.0 / 128.0;
/// Part of what is kept that one observation replaces, once there were some.
pub(super) const RATIO_PART: f32 = 0.1;
/// Part of the ratio that one observation replaces where a step with drafts was faster than expected.
pub(super) const FASTER_PART: f32 = 0.3;

/// By the number of a step's recurrent rows, what such steps took over what the linear part says, and how often that was
/// seen, as far as it counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RowRatios([(f32, f32); ROWS_APART]);

impl Default for RowRatios {
    fn default() -> Self {
        Self([(0.0, 0.0); ROWS_APART])
    }
}

impl RowRatios {
    /// Where a number's entry is.
    fn place(rows: u32) -> usize {
        let rows = (rows as usize).min(256);
        if rows <= APART_MAX as usize {
            return rows;
        }
        let doublings = (rows - 1).ilog2() as usize - 4;
        17 + 8 * doublings + (rows - 1 - (16 << doublings)) / (2 << doublings)
    }

    /// `part`: at least as much of what is kept it replaces.
    pub(super) fn observe(&mut self, rows: u32, ratio: f32, part: f32) {
        let (kept, seen) = &mut self.0[Self::place(rows)];
        let ratio = ratio.clamp(1.0 / RATIO_MAX, RATIO_MAX);
        *seen = (*seen + 1.0).min(1.0 / RATIO_PART);
        *kept += (ratio - *kept) * part.max(1.0 / *seen);
    }

    /// A step of any number was seen: of the others one knows a little less, but never that they were not seen.
    pub(super) fn age(&mut self) {
        self.0.iter_mut().for_each(|(_, seen)| *seen = seen.min((*seen * (1.0 - AGING)).max(1.0)));
    }

    /// Is a number told apart from its neighbours, and seen often enough?
    pub(super) fn is_sure(&self, rows: u32) -> bool {
        rows <= APART_MAX && self.seen(rows) >= SURE
    }

    /// How often steps of so many rows were seen, as far as it counts.
    pub(super) fn seen(&self, rows: u32) -> f32 {
        self.0[Self::place(rows)].1
    }

    /// Of a number that was never seen, what lies between those of its neighbours that were, of no rows one: the linear
    /// part alone may be off where these are, and then nobody would try the number.
    pub(super) fn of(&self, rows: u32) -> f64 {
        let at = Self::place(rows);
        let seen = |i: &usize| self.0[*i].1 > 0.0;
        let ratio = |i: usize| f64::from(self.0[i].0);
        let below = (0..=at).rev().find(seen);
        let Some(high) = (at..ROWS_APART).find(seen) else { return below.map_or(1.0, ratio) };
        let (low, low_ratio) = below.map_or((0, 1.0), |low| (low, ratio(low)));
        let share = (at - low) as f64 / (high - low).max(1) as f64;
        low_ratio * (1.0 - share) + ratio(high) * share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_rows_has_its_place_and_those_of_a_place_are_neighbours() {
        let places: Vec<usize> = (0..=300).map(RowRatios::place).collect();
        assert!(places.is_sorted() && places[..17].iter().copied().eq(0..17));
        assert!((1..300).all(|rows| places[rows + 1] - places[rows] <= 1));
        assert_eq!(
            [18, 19, 32, 33, 36, 37, 64, 65, 256, 300].map(|n| places[n]),
            [17, 18, 24, 25, 25, 26, 32, 33, 48, 48]
        );
        assert_eq!(places[300] + 1, ROWS_APART);
    }
}
