//! Which experts rows were given to, for requests that ask: see [`crate::step::RowReport`].

use std::sync::Mutex;

/// Rows that are asked about. In a step where none is, a look-up finds an empty list.
#[derive(Default)]
pub(crate) struct Routes {
    /// Each row with the experts of its layers so far, by rising row.
    rows: Vec<(usize, Mutex<Vec<Vec<u32>>>)>,
}

impl Routes {
    /// Before the first layer.
    pub(crate) fn of(rows: impl Iterator<Item = usize>) -> Self {
        let mut rows: Vec<_> = rows.collect();
        rows.sort_unstable();
        rows.dedup();
        Self { rows: rows.into_iter().map(|row| (row, Mutex::default())).collect() }
    }

    /// A layer gave a row to these experts. Layers come one after the other.
    pub(crate) fn note(&self, row: usize, experts: &[u32]) {
        if let Some(layers) = self.find(row) {
            layers.lock().expect("no thread panics while it reports").push(experts.to_vec());
        }
    }

    /// The experts of a row, a list a layer that has some; `None` of a model that has none.
    pub(crate) fn experts(&self, row: usize) -> Option<Vec<Vec<u32>>> {
        let layers = self.find(row)?.lock().expect("no thread panics while it reports").clone();
        (!layers.is_empty()).then_some(layers)
    }

    fn find(&self, row: usize) -> Option<&Mutex<Vec<Vec<u32>>>> {
        let at = self.rows.binary_search_by_key(&row, |(row, _)| *row).ok()?;
        Some(&self.rows[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_kept_of_the_rows_that_are_asked_about_and_of_no_others() {
        let routes = Routes::of([7, 2, 7].into_iter());
        routes.note(2, &[4, 1]);
        routes.note(3, &[9]);
        routes.note(2, &[0]);
        assert_eq!(routes.experts(2), Some(vec![vec![4, 1], vec![0]]));
        assert_eq!((routes.experts(3), routes.experts(7)), (None, None));
    }
}
