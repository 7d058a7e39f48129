//! A table of any bytes is an error or a table that answers, never a panic, in either version of the format.

use chimere_engine::engram::{Context, Ngrams, ORDER_MAX, Table, V1Table, xxh64};

pub fn run(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    seal(&mut sealed);
    for file in [bytes.to_vec(), sealed] {
        if let Ok(table) = Table::from_bytes(file) {
            ask(&table);
            assert!(table.stats().iter().all(|s| table.entries(s.order).count() as u64 == s.contexts));
        }
    }
    if let Ok(table) = V1Table::from_bytes(bytes.to_vec(), 100) {
        ask(&table);
    }
}

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

/// Makes the checksums agree with the contents, as a forger would: without this no input gets beyond them.
fn seal(file: &mut [u8]) -> Option<()> {
    let at = |file: &[u8], at: usize, len: usize| -> Option<usize> {
        let mut word = [0; 8];
        word[..len].copy_from_slice(file.get(at..at + len)?);
        usize::try_from(u64::from_le_bytes(word)).ok()
    };
    let count = at(file, 60, 4)?.min(64);
    for entry in (0..count).map(|i| 72 + 40 * i) {
        let (begin, len) = (at(file, entry + 8, 8)?, at(file, entry + 16, 8)?);
        let sum = xxh64(file.get(begin..begin.checked_add(len)?)?);
        file.get_mut(entry + 24..entry + 32)?.copy_from_slice(&sum.to_le_bytes());
    }
    let first = at(file, 72 + 8, 8)?;
    let sum = xxh64(file.get(24..first)?);
    file[16..24].copy_from_slice(&sum.to_le_bytes());
    Some(())
}
