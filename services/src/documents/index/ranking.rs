//! One order of the passages of all stores of a search: BM25 over each store, vectors as far as each store has found
//! that they help, and one scale for both.

use super::StoreIndex;
use crate::documents::passage::LegScores;
use crate::metrics::{STORE_LEG_SECONDS, STORE_LEGS};
use crate::semantic::{Nearest, best, blend, share};
use std::collections::HashSet;
use std::ops::Range;
use std::time::Instant;

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub struct PassageQuery<'a> {
    /// The words that it has.
    pub text: &'a str,
    /// Its vector of length 1; none where words alone count.
    pub vector: Option<&'a [f32]>,
}

/// A store that is searched.
pub(in crate::documents) struct SearchedStore<'a> {
    pub(in crate::documents) index: &'a StoreIndex,
    /// How much vectors count here; words have the rest.
    pub(in crate::documents) weight: f32,
    /// Which files may be found.
    pub(in crate::documents) wanted: &'a dyn Fn(&str) -> bool,
}

/// A passage that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct PassageHit {
    /// The file that it comes from.
    pub file_id: String,
    /// Where it begins in the file's text.
    pub start: usize,
    /// Where it ends there.
    pub end: usize,
    /// Its page, where there are pages.
    pub page: Option<u32>,
    /// Titles above it, outermost first.
    pub headings: Vec<String>,
    /// How well it answers the query: by words alone a share of the best one's, else at most 1.
    pub score: f32,
    /// What each leg says of it.
    pub legs: LegScores,
}

/// What each leg says of the passages of a store.
struct StoreLegs {
    /// Places of the passages that may be found.
    places: Vec<Range<usize>>,
    words: Vec<f32>,
    cosines: Option<Vec<Option<f32>>>,
}

/// What scores are measured by, over all stores of a search.
#[derive(Clone, Copy)]
struct LegScale {
    /// The best score of words of all passages.
    words: f32,
    /// The best cosine of all passages.
    cosine: f32,
    /// The largest weight of vectors.
    weight: f32,
}

impl StoreLegs {
    fn of(store: &SearchedStore<'_>, query: &PassageQuery<'_>) -> Self {
        let begin = Instant::now();
        let words = store.index.words.scores(query.text).of_items;
        let seconds = |leg: usize| ::metrics::histogram!(STORE_LEG_SECONDS, "leg" => STORE_LEGS[leg]);
        seconds(0).record(begin.elapsed().as_secs_f64());
        let vector = query.vector.filter(|_| store.weight > 0.0);
        let cosines = vector.zip(store.index.vectors.as_ref()).map(|(vector, rows)| {
            let begin = Instant::now();
            let cosines = rows.cosines(vector);
            seconds(1).record(begin.elapsed().as_secs_f64());
            cosines
        });
        let files = store.index.files.iter().filter(|file| (store.wanted)(&file.file_id));
        Self { places: files.map(|file| file.first..file.first + file.spans.len()).collect(), words, cosines }
    }

    fn places(&self) -> impl Iterator<Item = usize> {
        self.places.iter().cloned().flatten()
    }

    fn cosine(&self, at: usize) -> Option<f32> {
        self.cosines.as_ref().and_then(|cosines| cosines[at])
    }

    /// The score of a passage. Where vectors count and it has none, because its file is new or its store goes by words,
    /// its words stand for its meaning: the best words have the best cosine. So it is neither hidden behind passages
    /// whose vectors are there nor put before those that are better by both.
    fn score(&self, at: usize, weight: f32, scale: LegScale) -> f32 {
        let words = share(self.words[at], scale.words);
        match self.cosine(at) {
            Some(cosine) => blend(weight, words, cosine),
            None if scale.weight > 0.0 => blend(scale.weight, words, words * scale.cosine),
            None => words,
        }
    }
}

/// The `k` best passages of all stores, best first; ties in the order in which they came. What neither leg says
/// anything of is not found.
pub(in crate::documents) fn ranked(
    stores: &[SearchedStore<'_>],
    query: &PassageQuery<'_>,
    k: usize,
) -> Vec<PassageHit> {
    let legs: Vec<StoreLegs> = stores.iter().map(|store| StoreLegs::of(store, query)).collect();
    let most = |all: &dyn Fn(&StoreLegs) -> f32| legs.iter().map(all).fold(0.0, f32::max);
    let weights = stores.iter().zip(&legs).filter(|(_, legs)| legs.cosines.is_some()).map(|(store, _)| store.weight);
    let scale = LegScale {
        words: most(&|legs| legs.places().map(|at| legs.words[at]).fold(0.0, f32::max)),
        cosine: most(&|legs| legs.places().filter_map(|at| legs.cosine(at)).fold(0.0, f32::max)),
        weight: weights.fold(0.0, f32::max),
    };
    let of_store = |(store, legs): (&SearchedStore<'_>, &StoreLegs)| {
        let scored = legs.places().map(|at| Nearest { score: legs.score(at, store.weight, scale), at });
        let found = best(k, scored.filter(|found| found.score > 0.0)).into_iter();
        let hit = |found: Nearest| {
            let said = LegScores { words: share(legs.words[found.at], scale.words), vectors: legs.cosine(found.at) };
            store.index.hit(found, said)
        };
        found.map(hit).collect::<Vec<_>>()
    };
    let mut found: Vec<PassageHit> = stores.iter().zip(&legs).flat_map(of_store).collect();
    // One list over all stores; a file may be in several of them.
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut seen = HashSet::new();
    found.retain(|hit| seen.insert((hit.file_id.clone(), hit.start, hit.end)));
    found.truncate(k);
    found
}

#[cfg(test)]
mod tests {
    use super::super::{FileSegment, coded};
    use super::*;

    /// A store of files with one passage each, and with a vector where there is one.
    fn store(files: &[(&str, &str, Option<[f32; 2]>)]) -> StoreIndex {
        let mut index = StoreIndex::of_width(Some(2));
        for (id, text, vector) in files {
            index.append(FileSegment::of_texts(id, "", &[(*text).to_owned()]));
            vector.iter().for_each(|vector| index.set_vectors(id, &coded(vector).collect::<Vec<u8>>()));
        }
        index
    }

    fn found(stores: &[(&StoreIndex, f32)], text: &str, vector: [f32; 2]) -> Vec<(String, f32)> {
        let wanted = |_: &str| true;
        let stores: Vec<SearchedStore<'_>> =
            stores.iter().map(|(index, weight)| SearchedStore { index, weight: *weight, wanted: &wanted }).collect();
        let hits = ranked(&stores, &PassageQuery { text, vector: Some(&vector) }, 9);
        hits.into_iter().map(|hit| (hit.file_id, hit.score)).collect()
    }

    fn ids(found: &[(String, f32)]) -> Vec<&str> {
        found.iter().map(|(id, _)| id.as_str()).collect()
    }

    const NEAR: Option<[f32; 2]> = Some([0.0, 1.0]);
    const FAR: Option<[f32; 2]> = Some([0.0, -1.0]);
    const ASIDE: Option<[f32; 2]> = Some([1.0, 0.0]);

    #[test]
    fn words_come_first_or_vectors_do_as_the_weight_says() {
        let index = store(&[("words", "the port of Kelm", ASIDE), ("near", "a song", NEAR), ("far", "a tale", FAR)]);
        let of = |weight| found(&[(&index, weight)], "port Kelm", [0.0, 1.0]);
        assert_eq!(ids(&of(0.0)), ["words"], "with no weight no vector counts");
        assert_eq!(of(0.0)[0].1, 1.0);
        assert_eq!(ids(&of(0.15)), ["words", "near"]);
        assert_eq!(ids(&of(0.9)), ["near", "words"]);
        assert!(of(0.9).iter().all(|(_, score)| *score <= 1.0));
    }

    #[test]
    fn a_passage_without_its_vector_keeps_the_place_that_its_words_give_it() {
        let files = |late: Option<[f32; 2]>| {
            store(&[
                ("both", "the port of Kelm", NEAR),
                ("late", "the port of Kelm and more", late),
                ("weak", "a port", ASIDE),
                ("far", "a tale", FAR),
            ])
        };
        let (missing, there) = (files(None), files(NEAR));
        let of = |index| found(&[(index, 0.8)], "the port of Kelm", [0.0, 1.0]);
        assert_eq!(ids(&of(&there))[..3], ["both", "late", "weak"]);
        assert_eq!(
            ids(&of(&missing))[..3],
            ["both", "late", "weak"],
            "neither behind the weaker nor before the better"
        );
        let none = store(&[("a", "the port", None), ("b", "the port of Kelm", None)]);
        assert_eq!(ids(&of(&none)), ["b", "a"], "without vectors the order is that of words");
    }

    #[test]
    fn a_store_that_goes_by_words_is_searched_beside_one_that_goes_by_vectors() {
        let (words, vectors) = (
            store(&[
                ("w", "the port of Kelm", FAR),
                ("w2", "a port", NEAR),
                ("w3", "a tale", FAR),
                ("w4", "a song", FAR),
            ]),
            store(&[("v", "the harbour", NEAR), ("v2", "a tale", FAR), ("v3", "a song", ASIDE)]),
        );
        let found = found(&[(&words, 0.0), (&vectors, 0.8)], "the port of Kelm", [0.0, 1.0]);
        assert_eq!(ids(&found)[..2], ["w", "v"], "the best words are as good as the best meaning: {found:?}");
        assert!(found.iter().all(|(_, score)| *score <= 1.0), "{found:?}");
    }
}
