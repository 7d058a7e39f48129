//! A computed strength, compared with the formula over everything that can be counted.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const VOCAB: u32 = 8;

fn begins(id: TokenId) -> bool {
    id.is_multiple_of(2)
}

/// Any numbers that differ from cell to cell.
fn strengths() -> Strengths {
    Strengths::new(|cell| (cell.index() * 37 % 101) as f32 / 101.0)
}

fn auto(documents: &[Vec<TokenId>]) -> Auto {
    let texts: Vec<&[TokenId]> = documents.iter().map(Vec::as_slice).collect();
    Auto {
        strengths: Arc::new(strengths()),
        words: Arc::new(WordStarts::new(VOCAB, begins)),
        documents: (!texts.is_empty()).then(|| Arc::new(Documents::new(&texts))),
        recollections: Vec::new(),
        opening: None,
    }
}

/// What `ask` asks of the levels that are known behind `said`.
fn asked<T>(auto: &Auto, table: &Arc<Table>, said: &[TokenId], ask: impl FnOnce(&mut Levels<'_>) -> T) -> T {
    let members = Member::all([table.clone()].into_iter());
    let (filter, context) = (Filter::of_tables([&**table].into_iter()), Context::new(said));
    let queries = [Query { context: &context, tables: &members, prior: None, own: &[] }];
    let (found, mut levels) = (lookup(&filter, &queries), Levels::default());
    levels.fill(auto, &Recent::new(said), found.of(0), PredictionRules { min_count: 1 });
    ask(&mut levels)
}

fn weights(auto: &Auto, table: &Arc<Table>, said: &[TokenId]) -> Vec<(TokenId, f32)> {
    asked(auto, table, said, |levels| levels.weights(&auto.strengths))
}

/// (document, place) behind every occurrence of a context.
fn behind(texts: &[Vec<TokenId>], context: &[TokenId]) -> Vec<(usize, usize)> {
    let places = |text: &Vec<TokenId>| {
        (context.len()..text.len()).filter(|&at| text[at - context.len()..at] == *context).collect::<Vec<_>>()
    };
    texts
        .iter()
        .enumerate()
        .flat_map(|(document, text)| places(text).into_iter().map(move |at| (document, at)))
        .collect()
}

/// What one match expects: lambda, and the share of each token.
fn level(
    witness: Witness,
    texts: &[Vec<TokenId>],
    context: &[TokenId],
    orders: (usize, usize),
) -> Option<(f64, BTreeMap<TokenId, f64>)> {
    let mut places = behind(texts, context);
    if places.is_empty() || !(orders.0..=orders.1).contains(&context.len()) {
        return None;
    }
    let mut words = context.iter().filter(|id| begins(**id)).count();
    if witness == Witness::Documents {
        words += usize::from(!begins(context[0]) && places.iter().any(|&(_, at)| at == context.len()));
        let last = *places.last().unwrap();
        let said = |p: &(usize, usize)| texts[p.0][p.1];
        let contradicted = places.iter().any(|p| p.0 != last.0 && said(p) != said(&last));
        if words >= 3 && context.len() > words && contradicted {
            places.retain(|p| p.0 == last.0);
        }
    }
    let mut counts = BTreeMap::<TokenId, f64>::new();
    places.iter().for_each(|p| *counts.entry(texts[p.0][p.1]).or_default() += 1.0);
    let (occurrences, continuations) = (places.len() as u64, counts.len() as u32);
    let most = counts.iter().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0))).unwrap().0;
    // All these ids are frequent ones.
    let joint = if begins(*most) { Joint::AfterCommon } else { Joint::Inside };
    let evidence =
        Evidence { witness, words: words as u32, occurrences, continuations, joint, rareness: rareness(context) };
    counts.values_mut().for_each(|n| *n /= places.len() as f64);
    Some((f64::from(strengths().of(evidence.cell())), counts))
}

fn naive(
    documents: &[Vec<TokenId>],
    texts: &[Vec<TokenId>],
    orders: (usize, usize),
    said: &[TokenId],
) -> BTreeMap<TokenId, f64> {
    let (mut rest, mut shares, mut longest) = (1.0, BTreeMap::<TokenId, f64>::new(), true);
    for len in (1..=said.len().min(MATCH_MAX)).rev() {
        let context = &said[said.len() - len..];
        let of_documents = level(Witness::Documents, documents, context, (1, MATCH_MAX)).filter(|_| longest);
        longest &= of_documents.is_none();
        for (lambda, expected) in of_documents.into_iter().chain(level(Witness::Tables, texts, context, orders)) {
            let share = (rest * lambda).min(rest - 0.02).max(0.0);
            rest -= share;
            expected.into_iter().for_each(|(token, p)| *shares.entry(token).or_default() += share * p);
        }
    }
    shares.values_mut().for_each(|share| *share /= rest);
    shares.retain(|_, weight| *weight > 1e-6);
    shares
}

fn texts(most: usize) -> impl Strategy<Value = Vec<Vec<TokenId>>> {
    prop::collection::vec(prop::collection::vec(0..VOCAB, 0..40), 1..most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn every_match_takes_its_lambda_of_what_longer_ones_leave(
        documents in texts(5), learned in texts(5), (low, high) in (1usize..4, 4usize..=ORDER_MAX), said in prop::collection::vec(0..VOCAB, 0..14), cut in any::<prop::sample::Index>(),
    ) {
        let table = Arc::new(table(&learned, &options(low, high, VOCAB)));
        // Random ids match shortly; what a document says matches long.
        let copied: Vec<_> = documents[0][..cut.index(documents[0].len() + 1)].to_vec();
        for said in [said, copied] {
            let got = weights(&auto(&documents), &table, &said);
            let wanted = naive(&documents, &learned, (low, high), &said);
            prop_assert_eq!(got.iter().map(|w| w.0).collect::<Vec<_>>(), wanted.keys().copied().collect::<Vec<_>>());
            for ((token, got), wanted) in got.iter().zip(wanted.values()) {
                prop_assert!((f64::from(*got) - wanted).abs() < 1e-5 * wanted.max(1.0), "token {}: {} instead of {}", token, got, wanted);
            }
        }
    }
}

#[test]
fn where_documents_contradict_each_other_the_later_one_is_believed_and_the_earlier_one_named() {
    let documents = [vec![0, 2, 3, 4, 6], vec![0, 2, 3, 4, 7], vec![2, 2]];
    let empty = Arc::new(table(&[], &options(1, 2, VOCAB)));
    let (auto, said) = (auto(&documents), [0, 2, 3, 4]);
    assert_eq!(weights(&auto, &empty, &said).iter().map(|w| w.0).collect::<Vec<_>>(), [7]);
    let place = |document, token| Place { document, token };
    let origin = |token| asked(&auto, &empty, &said, |levels| levels.origin(token));
    assert_eq!(origin(7), Some(Origin::Document(place(1, 4), Some(place(0, 4)))));
    assert_eq!(origin(6), None);
}

#[test]
fn what_is_recalled_yields_to_a_statement_that_stands_there_word_by_word() {
    let recollection = Recollection {
        shared: vec![vec![vec![0]], vec![vec![2, 3]]],
        value: vec![5, 5],
        place: Place { document: 9, token: 0 },
    };
    let auto = Auto { recollections: vec![recollection], ..auto(&[vec![0, 2, 3, 4, 6]]) };
    let filled = |output: &[TokenId]| {
        let mut recent = Recent::new(&[]);
        output.iter().for_each(|&id| recent.push(id));
        let mut levels = Levels::default();
        levels.fill(&auto, &recent, &[], PredictionRules { min_count: 1 });
        levels.iter().map(|(_, mut expected)| expected.next().unwrap().0).collect::<Vec<_>>()
    };
    assert_eq!(filled(&[0, 2, 3, 4]), [6, 5], "the statement first");
    assert_eq!(filled(&[2, 3, 0, 4]), [5, 6], "only the last word stands there");
}

#[test]
fn an_opening_is_said_from_an_answer_s_beginning_on_before_what_stands_there_word_by_word() {
    let place = Place { document: 0, token: 0 };
    let opening = Opening { lead: vec![7], tokens: vec![0, 2, 3, 4, 6], place };
    let auto = Auto { opening: Some(opening), ..auto(&[vec![1, 0, 2, 3, 4, 6]]) };
    let first = |prompt: &[TokenId], thought: &[TokenId], output: &[TokenId]| {
        let mut recent = Recent::new(prompt);
        for &id in thought {
            recent.push(id);
            recent.count_as_thought();
        }
        output.iter().for_each(|&id| recent.push(id));
        let mut levels = Levels::default();
        levels.fill(&auto, &recent, &[], PredictionRules { min_count: 1 });
        levels.iter().next().map(|(level, mut expected)| (level.cell == Cell::opening(), expected.next().unwrap().0))
    };
    assert_eq!(first(&[5, 5], &[], &[]), Some((true, 0)));
    assert_eq!(first(&[5, 5], &[], &[0]), Some((true, 2)));
    assert_eq!(first(&[5, 0], &[], &[]), Some((true, 0)), "what the prompt says is no answer");
    assert_eq!(first(&[5, 5], &[], &[0, 2, 3, 4]), Some((true, 6)), "before a statement");
    assert_eq!(first(&[5, 5], &[], &[5]), None, "another beginning");
    assert_eq!(first(&[5, 5], &[0, 2, 5], &[]), Some((true, 7)), "behind a thought");
    assert_eq!(first(&[5, 5], &[0, 2, 5], &[7, 0]), Some((true, 2)));
    assert_eq!(first(&[], &[], &[5; 40]), None, "an answer of more tokens than are kept");
}
