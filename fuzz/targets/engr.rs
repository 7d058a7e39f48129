//! A table of any bytes is an error or a table that answers, never a panic; and what is made of tables that answer is
//! one again.

use chimere_engine::engram::{
    BuildOptions, Context, Filter, Image, MATCH_MAX, Member, Ngrams, ORDER_MAX, Orders, Prediction, PredictionRules,
    Query, Table, TokenizerHash, build, fade, lookup, merge, xxh64,
};
use std::sync::Arc;

/// Ids of the tables that are built here.
const VOCAB: u32 = 8;
/// Bytes of the input that one change of a built table takes: the place, and how often what is put there.
const CHANGE_BYTES: usize = 4;

pub fn run(bytes: &[u8]) {
    any_table(bytes.to_vec());
    let mut forged = bytes.to_vec();
    seal(&mut forged);
    any_table(forged);
    let Some((count, rest)) = bytes.split_first() else { return };
    let Some((changes, ids)) = rest.split_at_checked(CHANGE_BYTES * usize::from(count % 8)) else { return };
    changed_table(changes, ids);
}

/// A good table of these ids with some of its bytes changed: no other way do the indexes of most inputs agree with what
/// is in them.
fn changed_table(changes: &[u8], ids: &[u8]) {
    let ids: Vec<u32> = ids.iter().take(64).map(|id| u32::from(*id) % VOCAB).collect();
    // Long contexts stand beside those of eight tokens.
    let (high, longest) = if ids.len().is_multiple_of(2) { (3, ORDER_MAX) } else { (ORDER_MAX, MATCH_MAX) };
    let orders = Orders::new(1, high).expect("a range that tables have");
    let tokenizer = TokenizerHash([7; 32]);
    let options = BuildOptions { orders, longest, min_count: 1, vocab: VOCAB, tokenizer, time: 1_000 };
    let good = build(&[&ids], &options).expect("ids of the vocabulary");
    let mut forged = good.to_bytes();
    let len = forged.len();
    change(&mut forged[24..len], changes);
    seal(&mut forged);
    any_table(forged);
}

fn change(file: &mut [u8], changes: &[u8]) {
    for &[low, high, value, times] in changes.as_chunks::<CHANGE_BYTES>().0 {
        let at = usize::from(u16::from_le_bytes([low, high])) % file.len();
        file[at..].iter_mut().take(1 + usize::from(times % 8)).for_each(|byte| *byte = value);
    }
}

fn any_table(file: Vec<u8>) {
    let Ok(table) = Table::from_bytes(file) else { return };
    ask(&table);
    assert!(table.stats().iter().all(|s| table.entries(s.order).count() as u64 == s.contexts));
    let again = |image: Image| Table::from_bytes(image.to_bytes()).expect("what is made of a good table is one");
    if !table.is_long() {
        let merged = again(merge(&[&table, &table]).expect("it is of the same tokenizer as itself"));
        again(fade(&table, 2_000_000_000, 86_400, 1 << 30));
        predict(Arc::new(merged));
    }
    predict(Arc::new(table));
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

fn predict(table: Arc<Table>) {
    let filter = Filter::of_tables([&*table].into_iter());
    let longest = table.stats().last().map_or(1, |s| s.order);
    let known = table.entries(longest).take(8).map(|entry| entry.key);
    let asked: Vec<Context> = (0..8).map(|id| vec![1, 2, id]).chain(known).map(|ids| Context::new(&ids)).collect();
    let members = Member::all([table.clone()].into_iter());
    for context in &asked {
        let queries = [Query { context, tables: &members, prior: None, own: &[] }];
        let found = lookup(&filter, &queries);
        let prediction = Prediction::new(&queries[0], found.of(0), PredictionRules { min_count: 1 });
        assert!(prediction.listed.iter().all(|t| t.p >= 0.0 && t.p <= 1.0));
    }
}

/// Makes the lengths, the places and the checksums agree with the contents, as a forger would: without this no input
/// gets beyond them. What has too many sections, or longer ones than there is, stays as it is.
fn seal(file: &mut Vec<u8>) -> Option<()> {
    let count = number(file, 60, 4).filter(|count| (1..=1 + 2 * MATCH_MAX).contains(count))?;
    let mut at = (72 + 40 * count).next_multiple_of(64);
    let first = at;
    for entry in (0..count).map(|i| 72 + 40 * i) {
        let len = number(file, entry + 16, 8).filter(|len| *len <= file.len())?;
        let end = (at + len).next_multiple_of(64);
        if end > file.len() + 64 {
            return None;
        }
        file.resize(file.len().max(end), 0);
        file[at + len..end].fill(0);
        file[entry + 8..entry + 16].copy_from_slice(&(at as u64).to_le_bytes());
        let sum = xxh64(&file[at..at + len]);
        file[entry + 24..entry + 32].copy_from_slice(&sum.to_le_bytes());
        at = end;
    }
    file.truncate(at);
    file[8..16].copy_from_slice(&(at as u64).to_le_bytes());
    let sum = xxh64(&file[24..first]);
    file[16..24].copy_from_slice(&sum.to_le_bytes());
    Some(())
}

/// A number of so many bytes at a place, if it is there.
fn number(file: &[u8], at: usize, len: usize) -> Option<usize> {
    let mut word = [0; 8];
    word[..len].copy_from_slice(file.get(at..at + len)?);
    usize::try_from(u64::from_le_bytes(word)).ok()
}
