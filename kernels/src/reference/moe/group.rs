/// Rows by expert, for products that take rows together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpertGroups {
    /// Of each expert: `{expert, first, count, 0}`; its rows are `first..first + count` of the lists.
    pub slots: Vec<[i32; 4]>,
    /// Row of each pair.
    pub in_rows: Vec<i32>,
    /// The pairs `row * used + k`, by expert, then in order.
    pub out_rows: Vec<i32>,
}

/// Lists the pairs of `chosen`, `[rows, used]`, by expert. Pairs of -1 are nowhere.
pub fn group(chosen: &[i32], used: usize, experts: usize) -> ExpertGroups {
    let mut groups = ExpertGroups { slots: Vec::new(), in_rows: Vec::new(), out_rows: Vec::new() };
    for e in 0..experts as i32 {
        let first = groups.out_rows.len();
        for pair in (0..chosen.len()).filter(|p| chosen[*p] == e) {
            groups.in_rows.push((pair / used) as i32);
            groups.out_rows.push(pair as i32);
        }
        groups.slots.push([e, first as i32, (groups.out_rows.len() - first) as i32, 0]);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_go_by_expert_and_those_of_no_row_nowhere() {
        let groups = group(&[2, 0, -1, -1, 0, 2], 2, 4);
        assert_eq!(groups.slots, [[0, 0, 2, 0], [1, 2, 0, 0], [2, 2, 2, 0], [3, 4, 0, 0]]);
        assert_eq!((groups.out_rows, groups.in_rows), (vec![1, 4, 0, 5], vec![0, 2, 0, 2]));
    }
}
