//! Several rankings as one.

use std::collections::HashMap;
use std::hash::Hash;

/// How little the first places differ (Cormack, Clarke and Büttcher, 2009).
const CONSTANT: f32 = 60.0;

/// Several lists as one by reciprocal rank fusion: what has one key counts by its places in all of them, ties in the
/// order in which they came. A score of 1 is the first place in each list. `merge` hears of each further place.
pub(crate) fn fused<T, K: Eq + Hash>(
    lists: Vec<Vec<T>>,
    key: impl Fn(&T) -> K,
    merge: impl Fn(&mut T, T),
) -> Vec<(f32, T)> {
    let best = lists.len() as f32 / (CONSTANT + 1.0);
    let (mut fused, mut places) = (Vec::<(f32, T)>::new(), HashMap::<K, usize>::new());
    for list in lists {
        for (rank, item) in list.into_iter().enumerate() {
            let share = 1.0 / (CONSTANT + 1.0 + rank as f32) / best;
            let key = key(&item);
            match places.get(&key).copied() {
                Some(at) => {
                    fused[at].0 += share;
                    merge(&mut fused[at].1, item);
                }
                None => {
                    places.insert(key, fused.len());
                    fused.push((share, item));
                }
            }
        }
    }
    fused.sort_by(|a, b| b.0.total_cmp(&a.0));
    fused
}
