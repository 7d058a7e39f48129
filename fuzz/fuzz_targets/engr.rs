//! A table of any bytes is an error or a table that answers, never a panic, in either version of the format.
#![no_main]

use chimere_engine::engram::{Context, Ngrams, ORDER_MAX, Table, V1Table};
use libfuzzer_sys::fuzz_target;

fn ask(table: &dyn Ngrams) {
    for id in 0..8 {
        let context = Context::new(&[id, id + 1, 1, 2, 3]);
        for order in 1..=ORDER_MAX {
            if let Some(found) = table.find(&context, order) {
                assert!(found.iter().all(|(_, count)| u64::from(count) <= found.total()));
            }
        }
        let _ = table.prior(id);
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(table) = Table::from_bytes(bytes.to_vec()) {
        ask(&table);
        assert!(table.stats().iter().all(|s| table.entries(s.order).count() as u64 == s.contexts));
    }
    if let Ok(table) = V1Table::from_bytes(bytes.to_vec(), 100) {
        ask(&table);
    }
});
