//! Contexts of more tokens than eight, compared with the rule written down over everything that can be counted.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const VOCAB: u32 = 4;

/// Context to what followed it, token to count.
type Followers = BTreeMap<Vec<TokenId>, BTreeMap<TokenId, u32>>;

fn long_options(longest: usize, min_count: u32) -> BuildOptions {
    BuildOptions { longest, min_count, ..options(2, ORDER_MAX, VOCAB) }
}

/// All contexts of a length, in the text.
fn followers(texts: &[Vec<TokenId>], len: usize) -> Followers {
    let mut all = Followers::new();
    for window in texts.iter().flat_map(|text| text.windows(len + 1)) {
        *all.entry(window[..len].to_vec()).or_default().entry(window[len]).or_default() += 1;
    }
    all
}

/// The long contexts that are kept, by the rule: some token follows the longest kept end somewhere and never follows
/// the context, in the text and again in the lists.
fn naive(texts: &[Vec<TokenId>], longest: usize, min_count: u32) -> Followers {
    let tokens = |list: &BTreeMap<TokenId, u32>, min: u32| -> BTreeSet<TokenId> {
        list.iter().filter(|(_, n)| **n >= min).map(|(token, _)| *token).collect()
    };
    let mut kept = followers(texts, ORDER_MAX);
    kept.retain(|_, list| !tokens(list, min_count).is_empty());
    for len in ORDER_MAX + 1..=longest {
        for (context, list) in followers(texts, len) {
            let end = (1..=len - ORDER_MAX).find_map(|cut| kept.get(&context[cut..]));
            let says_more = |min: u32| end.is_some_and(|end| !tokens(end, min).is_subset(&tokens(&list, min)));
            if !tokens(&list, min_count).is_empty() && says_more(1) && says_more(min_count) {
                kept.insert(context, list);
            }
        }
    }
    kept.retain(|context, _| context.len() > ORDER_MAX);
    kept
}

/// The contexts of a table with their followers, without what is too rare to be listed.
fn held(table: &Table) -> Followers {
    let entries = (ORDER_MAX + 1..=MATCH_MAX).flat_map(|order| table.entries(order));
    entries.map(|e| (e.key, e.list.iter().map(|c| (c.token, c.count)).collect())).collect()
}

/// Texts that say the same again with something else before it.
fn texts() -> impl Strategy<Value = Vec<Vec<TokenId>>> {
    let part = prop::collection::vec(0..VOCAB, 0..20);
    (prop::collection::vec(part, 1..4), prop::collection::vec(prop::collection::vec(0usize..4, 0..12), 1..4)).prop_map(
        |(parts, texts)| {
            let text = |order: Vec<usize>| order.iter().flat_map(|at| parts[at % parts.len()].clone()).collect();
            texts.into_iter().map(text).collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_long_context_is_kept_where_it_says_more_than_its_longest_kept_end(
        texts in texts(), longest in ORDER_MAX..=MATCH_MAX, min_count in 1u32..3,
    ) {
        let table = table(&texts, &long_options(longest, min_count));
        let mut wanted = naive(&texts, longest, min_count);
        let held = held(&table);
        prop_assert_eq!(held.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
        wanted.values_mut().for_each(|list| list.retain(|_, n| *n >= min_count));
        prop_assert_eq!(held, wanted);
        // Beside them stands what would stand there without them.
        let dense = super::table(&texts, &long_options(ORDER_MAX, min_count));
        for order in 1..=ORDER_MAX {
            prop_assert!(table.entries(order).eq(dense.entries(order)));
        }
    }

    #[test]
    fn every_long_context_that_ends_what_was_said_is_found_and_no_other(
        texts in texts(), others in texts(), cut in any::<prop::sample::Index>(),
    ) {
        let tables = [table(&texts, &long_options(MATCH_MAX, 1)), table(&others, &long_options(20, 1))].map(Arc::new);
        let (filter, members) = (Filter::of_tables(tables.iter().map(|t| &**t)), Member::all(tables.iter().cloned()));
        let kept = [naive(&texts, MATCH_MAX, 1), naive(&others, 20, 1)];
        let said: Vec<_> = texts.iter().chain(&others).map(|text| &text[..cut.index(text.len() + 1)]).collect();
        let contexts: Vec<_> = said.iter().map(|said| Context::new(said)).collect();
        let query = |context| Query { context, tables: &members, prior: None, own: &[] };
        let queries: Vec<_> = contexts.iter().map(query).collect();
        let found = lookup(&filter, &queries);
        for (i, said) in said.iter().enumerate() {
            let ends = (ORDER_MAX + 1..=said.len().min(MATCH_MAX)).map(|len| &said[said.len() - len..]);
            let known = |end| kept.iter().filter_map(move |kept: &Followers| Some((<[_]>::len(end), kept.get(end)?.clone())));
            let wanted: Vec<_> = ends.flat_map(known).collect();
            let long = found.of(i).iter().filter(|f| f.order > ORDER_MAX);
            prop_assert_eq!(long.map(|f| (f.order, f.list.iter().collect())).collect::<Vec<_>>(), wanted);
            prop_assert!(found.of(i).is_sorted_by_key(|f| f.order));
        }
    }

    #[test]
    fn a_file_of_them_reads_back_and_no_forgery_of_it_makes_a_lookup_panic(
        texts in texts(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let texts: Vec<&[TokenId]> = texts.iter().map(Vec::as_slice).collect();
        let image = build(&texts, &long_options(MATCH_MAX, 1)).unwrap();
        let mut file = image.to_bytes();
        prop_assert_eq!(image.bytes(), file.len() as u64);
        let table = Table::from_bytes(file.clone()).unwrap();
        prop_assert_eq!(u32::from(file[4]), if table.is_long() { 3 } else { 2 });
        let first = damage::section(&file, 0);
        for (at, byte) in changes {
            let at = first + at.index(file.len() - first);
            file[at] = byte;
        }
        damage::seal(&mut file);
        if let Ok(table) = Table::from_bytes(file).map(Arc::new) {
            texts.iter().for_each(|text| drop(predict(&[&table], text, 1)));
        }
    }
}

/// Four texts of which two end otherwise: eight tokens before the end are alike in all, ten in pairs.
fn pairs() -> Vec<Vec<TokenId>> {
    let text = |first: TokenId, last| [&[first; 3][..], &[0, 1, 0, 1, 0, 0, 1, 1], &[last]].concat();
    vec![text(2, 2), text(3, 3), text(2, 2), text(3, 3)]
}

#[test]
fn what_nine_tokens_tell_apart_is_kept_at_nine_and_no_longer_context_says_more() {
    let table = table(&pairs(), &long_options(MATCH_MAX, 1));
    assert_eq!(held(&table).keys().map(Vec::len).collect::<Vec<_>>(), [9, 9]);
    let found = table.find(&Context::new(&pairs()[0][..11]), 9).unwrap();
    assert_eq!((found.total(), found.iter().collect::<Vec<_>>()), (2, vec![(2, 2)]));
}

#[test]
fn what_speaks_of_longer_contexts_that_are_not_there_is_refused() {
    let texts = pairs();
    let texts: Vec<&[TokenId]> = texts.iter().map(Vec::as_slice).collect();
    let file = build(&texts, &long_options(MATCH_MAX, 1)).unwrap().to_bytes();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut file = file.clone();
        change(&mut file);
        damage::seal(&mut file);
        Table::from_bytes(file).err().map(|e| e.to_string()).unwrap_or_default()
    };
    // The records of order 8 are section 14, as orders begin with 2; the lengths are the last three bytes of a total.
    let first = damage::section(&file, 14);
    let spoken = with(&|file| file[first + 9..first + 12].copy_from_slice(&[2, 0, 0]));
    assert!(spoken.contains("order 8: records: wanted the lengths of the longer contexts"), "{spoken}");
    // Read as version 2 it has too many orders.
    let dense = with(&|file| file[4] = 2);
    assert!(dense.contains("orders rising up to 8"), "{dense}");
    assert_eq!(with(&|_| ()), "");
}

#[test]
fn long_contexts_stand_beside_eight_tokens_and_reach_no_further_than_matches_do() {
    let refused = |longest, high| {
        let options = BuildOptions { longest, ..options(2, high, VOCAB) };
        build(&[&[0, 1]], &options).err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert_eq!(refused(33, 8), "longest: wanted 8, or up to 32 with orders up to 8, got 33 with orders up to 8");
    assert_eq!(refused(9, 7), "longest: wanted 8, or up to 32 with orders up to 8, got 9 with orders up to 7");
    assert_eq!((refused(32, 8), refused(8, 5)), (String::new(), String::new()));
}

#[test]
fn tables_with_them_are_not_merged() {
    let long = table(&pairs(), &long_options(MATCH_MAX, 1));
    let error = merge(&[&table(&pairs(), &long_options(ORDER_MAX, 1)), &long]).unwrap_err();
    assert_eq!(error, MergeError::Long { index: 1 });
}
