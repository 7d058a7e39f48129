//! The corpus of the request parser's fuzz target, replayed, and random damage to it.

use crate::limits::LIMITS;
use chimere::http::request::{
    AskedEmbedding, ChatRequest, CompletionRequest, DetokenizeRequest, SearchRequest, TokenizeRequest, parse_items,
};
use proptest::prelude::*;
use std::path::Path;
use std::sync::LazyLock;

/// Name and bytes of each file.
static CORPUS: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/request");
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|f| f.unwrap().path())
        .map(|p| (p.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&p).unwrap()))
        .collect();
    files.sort();
    files
});

/// Which endpoints take a body: chat, completions, tokenize, detokenize, embeddings, items of a collection and searches
/// in it.
fn taken(body: &[u8]) -> [bool; 7] {
    let limits = &*LIMITS;
    let results = [
        ChatRequest::parse(body, limits).err(),
        CompletionRequest::parse(body, limits).err(),
        TokenizeRequest::parse(body, limits).err(),
        DetokenizeRequest::parse(body, limits).err(),
        AskedEmbedding::parse(body, limits, Some(("encoder", 32))).err(),
        parse_items(body).err(),
        SearchRequest::parse(body).err(),
    ];
    for error in results.iter().flatten() {
        // Messages may quote the body, and their own words take up to 200 bytes: the parser's longest is 108 on a body
        // of 3.
        assert!(error.status.is_client_error() && error.message.len() < 200 + 2 * body.len(), "{error}");
    }
    results.map(|error| error.is_none())
}

#[test]
fn every_file_of_the_corpus_is_taken_where_it_belongs() {
    for (name, body) in CORPUS.iter() {
        let [chat, completions, tokenize, detokenize, embeddings, items, search] = taken(body);
        let good = ["chat_least", "chat_all", "chat_thinking", "chat_nulls", "schema_refers_to_itself"]
            .contains(&name.as_str());
        assert_eq!(chat, good, "{name}");
        assert_eq!(completions, name.starts_with("completion"), "{name}");
        assert_eq!(embeddings, name.starts_with("embedding"), "{name}");
        assert_eq!(items, name.starts_with("items"), "{name}");
        assert_eq!(search, name.starts_with("search"), "{name}");
        assert_eq!(detokenize, name.starts_with("detokenize"), "{name}");
        assert_eq!(
            tokenize,
            ["tokenize_text", "chat_least", "chat_nulls", "schema_refers_to_itself"].contains(&name.as_str()),
            "{name}"
        );
    }
    assert!(CORPUS.len() >= 12, "{} files", CORPUS.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_bodies_are_requests_or_errors(
        file in 0..100usize,
        damage in prop::collection::vec((0..1usize << 20, prop_oneof![prop::sample::select(&b"{}[]\":,0-9e.\\ntf "[..]), any::<u8>()]), 1..6),
        cut in prop::option::of(0..1usize << 20),
    ) {
        let mut bytes = CORPUS[file % CORPUS.len()].1.clone();
        for (at, value) in damage {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        bytes.truncate(cut.map_or(usize::MAX, |c| c % (bytes.len() + 1)));
        taken(&bytes);
    }
}
