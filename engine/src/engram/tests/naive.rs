//! Every answer of a table compared with a map that counts the obvious way.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const VOCAB: u32 = 12;

/// Context to (occurrences, continuation to count).
type Counts = BTreeMap<Vec<TokenId>, (u64, BTreeMap<TokenId, u32>)>;

fn count(texts: &[Vec<TokenId>], orders: impl Iterator<Item = usize>, min_count: u32) -> Counts {
    let mut counts = Counts::new();
    for order in orders {
        for window in texts.iter().flat_map(|t| t.windows(order + 1)) {
            let (key, next) = window.split_at(order);
            let (total, list) = counts.entry(key.to_vec()).or_default();
            *total += 1;
            *list.entry(next[0]).or_default() += 1;
        }
    }
    counts.values_mut().for_each(|(_, list)| list.retain(|_, n| *n >= min_count));
    counts.retain(|_, (_, list)| !list.is_empty());
    counts
}

fn counts_of(table: &Table) -> Counts {
    let entries = (1..=ORDER_MAX).flat_map(|order| table.entries(order));
    entries.map(|e| (e.key, (e.total, e.list.iter().map(|c| (c.token, c.count)).collect()))).collect()
}

fn corpus() -> impl Strategy<Value = Vec<Vec<TokenId>>> {
    prop::collection::vec(prop::collection::vec(0..VOCAB, 0..60), 0..6)
}

fn orders() -> impl Strategy<Value = (usize, usize)> {
    (1..=ORDER_MAX).prop_flat_map(|high| (1..=high, Just(high)))
}

/// Interpolated back-off, written down as the formula has it.
fn naive_p(counts: &Counts, unigrams: &[u64], ids: &[TokenId], token: TokenId) -> f64 {
    let total: u64 = unigrams.iter().sum();
    let mut p = (unigrams[token as usize] + 1) as f64 / (total + unigrams.len() as u64) as f64;
    for order in 1..=ids.len().min(ORDER_MAX) {
        if let Some((n, list)) = counts.get(&ids[ids.len() - order..]) {
            let w = *n as f64 / (*n as f64 + 4.0);
            p = w * f64::from(*list.get(&token).unwrap_or(&0)) / *n as f64 + (1.0 - w) * p;
        }
    }
    p
}

fn unigrams(texts: &[Vec<TokenId>]) -> Vec<u64> {
    let mut counts = vec![0; VOCAB as usize];
    texts.iter().flatten().for_each(|&id| counts[id as usize] += 1);
    counts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_table_holds_exactly_what_a_naive_map_counts(texts in corpus(), (low, high) in orders(), min_count in 1u32..4) {
        let table = table(&texts, &BuildOptions { min_count, ..options(low, high, VOCAB) });
        let counts = count(&texts, low..=high, min_count);
        prop_assert_eq!(&counts_of(&table), &counts);
        prop_assert_eq!(table.stats().iter().map(|s| s.contexts).sum::<u64>(), counts.len() as u64);
        let unigrams = unigrams(&texts);
        prop_assert_eq!((0..VOCAB).map(|t| table.prior(t)).collect::<Vec<_>>(), unigrams);
        prop_assert_eq!(table.tokens(), texts.iter().map(|t| t.len() as u64).sum::<u64>());
    }

    #[test]
    fn every_context_is_found_and_no_other(texts in corpus(), (low, high) in orders(), asked in prop::collection::vec(0..VOCAB, 0..12)) {
        let table = table(&texts, &options(low, high, VOCAB));
        let counts = count(&texts, low..=high, 1);
        let known = counts.keys().map(Vec::as_slice);
        for ids in known.chain((0..=asked.len()).map(|n| &asked[..n])) {
            let context = Context::new(ids);
            for order in 1..=context.len() {
                let found = table.find(&context, order).map(|c| (c.total(), c.iter().collect::<BTreeMap<_, _>>()));
                prop_assert_eq!(found.as_ref(), counts.get(context.key(order).unwrap()));
            }
        }
    }

    #[test]
    fn predictions_are_the_formula_over_naive_counts(texts in corpus(), (low, high) in orders(), ids in prop::collection::vec(0..VOCAB, 0..12)) {
        let table = Arc::new(table(&texts, &options(low, high, VOCAB)));
        let (counts, unigrams) = (count(&texts, low..=high, 1), unigrams(&texts));
        let prediction = predict(&[&table], &ids, 1);
        let known: Vec<_> = (1..=ids.len().min(ORDER_MAX)).filter_map(|k| Some((k, counts.get(&ids[ids.len() - k..])?))).collect();
        let wanted: BTreeSet<TokenId> = known.iter().flat_map(|(_, (_, list))| list.keys().copied()).collect();
        prop_assert_eq!(prediction.listed.iter().map(|t| t.token).collect::<Vec<_>>(), wanted.into_iter().collect::<Vec<_>>());
        prop_assert_eq!((prediction.order, prediction.seen), known.last().map_or((0, 0), |(k, (n, _))| (*k, *n)));
        for t in &prediction.listed {
            prop_assert!((t.p - naive_p(&counts, &unigrams, &ids, t.token)).abs() < 1e-12);
        }
        prop_assert!(prediction.listed.iter().map(|t| t.p).sum::<f64>() <= 1.0 + 1e-9);
    }

    #[test]
    fn merging_is_building_from_all_texts(a in corpus(), b in corpus(), c in corpus(), (low, high) in orders()) {
        let options = options(low, high, VOCAB);
        let tables = [table(&a, &options), table(&b, &options), table(&c, &options)];
        let merged = merge(&[&tables[0], &tables[1], &tables[2]]).unwrap().to_bytes();
        let all: Vec<_> = [a, b, c].concat();
        let texts: Vec<&[TokenId]> = all.iter().map(Vec::as_slice).collect();
        prop_assert_eq!(merged, build(&texts, &options).unwrap().to_bytes());
    }

    #[test]
    fn several_tables_predict_as_their_merge(a in corpus(), b in corpus(), (low, high) in orders(), ids in prop::collection::vec(0..VOCAB, 0..12), min_count in 1u32..4) {
        let tables = [table(&a, &options(low, high, VOCAB)), table(&b, &options(1, 3, VOCAB))].map(Arc::new);
        let merged = Arc::new(Table::in_memory(&merge(&[&tables[0], &tables[1]]).unwrap()));
        let apart = predict(&[&tables[0], &tables[1]], &ids, min_count);
        let together = predict(&[&merged], &ids, min_count);
        prop_assert_eq!((apart.order, apart.seen, apart.listed.len()), (together.order, together.seen, together.listed.len()));
        for (a, b) in apart.listed.iter().zip(&together.listed) {
            // The priors differ: each table adds nothing, and the vocabulary is counted once in both.
            prop_assert!(a.token == b.token && (a.p - b.p).abs() < 1e-12 && (a.prior - b.prior).abs() < 1e-12);
        }
    }

    #[test]
    fn pruning_by_count_is_building_with_that_count(texts in corpus(), (low, high) in orders(), min_count in 1u32..5) {
        let full = table(&texts, &options(low, high, VOCAB));
        let rules = PruneRules { now: 5_000, half_life_s: None, age_s_max: None, min_count };
        let texts: Vec<&[TokenId]> = texts.iter().map(Vec::as_slice).collect();
        let rare = build(&texts, &BuildOptions { min_count, ..options(low, high, VOCAB) }).unwrap();
        prop_assert_eq!(prune(&full, &rules).to_bytes(), rare.to_bytes());
    }

    #[test]
    fn pruning_by_age_leaves_what_the_young_texts_said(old in corpus(), young in corpus(), (low, high) in orders()) {
        let at = |time| BuildOptions { time, ..options(low, high, VOCAB) };
        let both = Table::in_memory(&merge(&[&table(&old, &at(100)), &table(&young, &at(900))]).unwrap());
        let rules = PruneRules { now: 1_000, half_life_s: None, age_s_max: Some(500), min_count: 1 };
        let pruned = Table::in_memory(&prune(&both, &rules));
        // What both said was reinforced by the young text, so it stays with both counts; what only the old said is
        // forgotten.
        let (all, young) = (count(&[old, young.clone()].concat(), low..=high, 1), count(&young, low..=high, 1));
        let mut wanted = Counts::new();
        for (key, (_, list)) in &young {
            let list: BTreeMap<_, _> = list.keys().map(|t| (*t, all[key].1[t])).collect();
            wanted.insert(key.clone(), (list.values().map(|n| u64::from(*n)).sum(), list));
        }
        prop_assert_eq!(counts_of(&pruned), wanted);
        prop_assert_eq!(prune(&pruned, &rules).to_bytes(), prune(&both, &rules).to_bytes());
    }

    #[test]
    fn a_batch_answers_as_each_sequence_alone(a in corpus(), b in corpus(), own in corpus(), asked in prop::collection::vec(prop::collection::vec(0..VOCAB, 0..12), 0..9)) {
        let tables = [table(&a, &options(2, 5, VOCAB)), table(&b, &options(1, 2, VOCAB))].map(Arc::new);
        let own = [Arc::new(table(&own, &options(2, 3, VOCAB))) as Arc<dyn Ngrams>];
        // Every second sequence uses one table only: what others use must not show.
        let both = Member::all(tables.iter().cloned());
        let one = [both[1].clone()];
        let contexts: Vec<_> = asked.iter().map(|ids| Context::new(ids)).collect();
        let query = |(i, context)| Query {
            context, tables: if i % 2 == 0 { &both } else { &one }, prior: None, own: if i % 3 == 0 { &own } else { &[] },
        };
        let queries: Vec<Query<'_>> = contexts.iter().enumerate().map(query).collect();
        let batch = lookup(&Filter::of_tables(tables.iter().map(|t| &**t)), &queries);
        let mut hits = 0;
        for (i, q) in queries.iter().enumerate() {
            let orders = 1..=q.context.len();
            let tables = || q.tables.iter().map(Member::table).chain(q.own);
            let wanted: Vec<_> = orders.flat_map(|k| tables().filter_map(move |t| Some((k, t.find(q.context, k)?)))).collect();
            let got: Vec<_> = batch.of(i).iter().map(|f| (f.order, f.list)).collect();
            let plain = |found: &[(usize, Continuations<'_>)]| found.iter().map(|(k, c)| (*k, c.total(), c.iter().collect::<Vec<_>>())).collect::<Vec<_>>();
            prop_assert_eq!(plain(&got), plain(&wanted));
            hits += wanted.len() as u64;
        }
        prop_assert_eq!(batch.hits(), hits);
        prop_assert!(batch.asked - batch.filtered >= hits);
    }

    #[test]
    fn any_tables_in_any_order_answer_through_a_filter_of_more(
        texts in prop::collection::vec((corpus(), orders()), 1..24), chosen in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
        asked in prop::collection::vec(prop::collection::vec(0..VOCAB, 0..12), 1..9),
    ) {
        let tables: Vec<_> = texts.iter().map(|(texts, (low, high))| Arc::new(table(texts, &options(*low, *high, VOCAB)))).collect();
        let filter = Filter::of_tables(tables.iter().map(|t| &**t));
        for (i, table) in tables.iter().enumerate() {
            let keys = (1..=ORDER_MAX).flat_map(|order| table.entries(order)).map(|entry| entry.key);
            for key in keys {
                prop_assert!(filter.may_know(&Context::new(&key), key.len()).meets(TableBits::of(i)), "table {i} of {} knows {key:?}", tables.len());
            }
        }
        // A request may name no table twice, but for the batch that would be no matter.
        let all = Member::all(tables.iter().cloned());
        let chosen: Vec<_> = chosen.iter().map(|at| at.get(&all).clone()).collect();
        let contexts: Vec<_> = asked.iter().map(|ids| Context::new(ids)).collect();
        let queries: Vec<_> = contexts.iter().map(|context| Query { context, tables: &chosen, prior: None, own: &[] }).collect();
        let batch = lookup(&filter, &queries);
        for (i, q) in queries.iter().enumerate() {
            let wanted = (1..=q.context.len()).flat_map(|k| chosen.iter().filter_map(move |t| Some((k, t.table().find(q.context, k)?.total()))));
            prop_assert!(batch.of(i).iter().map(|f| (f.order, f.list.total())).eq(wanted));
        }
        let has = |table: &Member, order: usize| u64::from(table.table().orders() >> order & 1);
        let contexts = queries.iter().flat_map(|q| (1..=q.context.len()).flat_map(|k| chosen.iter().map(move |t| (t, k))));
        prop_assert_eq!(batch.asked, contexts.map(|(t, k)| has(t, k)).sum::<u64>());
        prop_assert!(batch.asked - batch.filtered >= batch.hits());
    }

    #[test]
    fn a_joint_prior_says_what_its_tables_say(a in corpus(), b in corpus(), own in corpus(), ids in prop::collection::vec(0..VOCAB, 0..12)) {
        let tables = [table(&a, &options(1, 3, VOCAB)), table(&b, &options(1, 2, VOCAB + 3))].map(|t| Member::new(Arc::new(t), TableBits::default()));
        let own = [Arc::new(table(&own, &options(1, 3, VOCAB))) as Arc<dyn Ngrams>];
        let (joint, filter) = (JointPrior::of(tables.iter().map(Member::table)), Filter::of_tables(std::iter::empty()));
        let predict = |prior| {
            // No filter stands before what is a request's own.
            let all: Vec<_> = tables.iter().map(Member::table).chain(&own).cloned().collect();
            let context = &Context::new(&ids);
            let queries = [Query { context, tables: &[], prior: None, own: &all }];
            let (found, query) = (lookup(&filter, &queries), Query { context, tables: &tables, prior, own: &own });
            Prediction::new(&query, found.of(0), PredictionRules { min_count: 1 })
        };
        prop_assert_eq!(predict(Some(&joint)), predict(None));
    }
}

#[test]
fn contexts_with_one_fingerprint_are_told_apart_by_their_keys() {
    let fingerprint = |id: TokenId| Context::new(&[id]).hash(1).unwrap() as u32;
    let mut ids: Vec<TokenId> = (0..400_000).collect();
    ids.sort_by_key(|&id| fingerprint(id));
    let twins: Vec<_> =
        ids.windows(2).filter(|w| fingerprint(w[0]) == fingerprint(w[1])).map(|w| [w[0], w[1]]).collect();
    assert!(twins.len() > 3, "{} pairs among 400,000 ids, about 18 are to be expected", twins.len());
    for [a, b] in twins {
        let table = table(&[vec![a, 1], vec![b, 2]], &options(1, 1, 400_000));
        let next = |id| table.find(&Context::new(&[id]), 1).map(|c| c.iter().collect::<Vec<_>>());
        assert_eq!((next(a), next(b)), (Some(vec![(1, 1)]), Some(vec![(2, 1)])), "{a} and {b}");
        let alone = super::table(&[vec![a, 1]], &options(1, 1, 400_000));
        assert!(alone.find(&Context::new(&[b]), 1).is_none(), "{b} passes for {a}");
    }
}

#[test]
fn an_id_outside_the_vocabulary_is_refused_with_its_place() {
    let error = build(&[&[1, 2], &[3, 12]], &options(1, 2, VOCAB)).unwrap_err();
    assert_eq!(error.to_string(), "text 1, token 1: wanted an id below 12, got 12");
}

#[test]
fn tables_for_different_tokenizers_do_not_merge() {
    let other = BuildOptions { tokenizer: TokenizerHash([8; 32]), ..options(1, 2, VOCAB) };
    let (a, b) = (table(&[vec![1, 2, 3]], &options(1, 2, VOCAB)), table(&[vec![1, 2, 3]], &other));
    assert!(matches!(merge(&[&a, &b]), Err(MergeError::Tokenizer { index: 1, .. })));
    assert_eq!(merge(&[]).unwrap_err(), MergeError::None);
}

#[test]
fn half_of_a_count_is_worth_half_after_a_half_life() {
    let aged = |now, min_count| PruneRules { now, half_life_s: Some(100), age_s_max: None, min_count };
    let four = table(&vec![vec![1, 2]; 4], &options(1, 1, VOCAB));
    let left = |rules| prune(&four, &rules).ngrams();
    assert_eq!([left(aged(1_000, 4)), left(aged(1_100, 2)), left(aged(1_100, 3)), left(aged(1_301, 1))], [1, 1, 0, 0]);
    assert_eq!(left(aged(1_200, 1)), 1, "4 is worth 1 after two half-lives");
}

#[test]
fn counts_fade_to_their_weight_and_the_last_of_them_stays_until_it_is_too_old() {
    let texts = [vec![vec![1, 2]; 8], vec![vec![1, 3]]].concat();
    let learned = table(&texts, &options(1, 1, VOCAB));
    let after = |s: u32| {
        Table::in_memory(&fade(&learned, 1_000 + s, 100, 300))
            .find(&Context::new(&[1]), 1)
            .map(|c| (c.total(), c.iter().collect::<Vec<_>>()))
    };
    assert_eq!(after(0), Some((9, vec![(2, 8), (3, 1)])));
    assert_eq!(after(100), Some((5, vec![(2, 4), (3, 1)])));
    assert_eq!(after(300), Some((2, vec![(2, 1), (3, 1)])));
    assert_eq!(after(301), None);
}

#[test]
fn orders_are_a_rising_range_up_to_8() {
    assert_eq!("2-5".parse(), Orders::new(2, 5));
    assert_eq!("3".parse(), Orders::new(3, 3));
    for wrong in ["0-3", "5-2", "1-9", "", "a-b", "2-"] {
        assert!(wrong.parse::<Orders>().unwrap_err().to_string().contains("within 1-8"), "{wrong:?}");
    }
}
