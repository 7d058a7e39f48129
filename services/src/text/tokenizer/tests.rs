use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

const FILE: &[u8] = include_bytes!("../../../../engine/tests/golden/moe/tokenizer.json");

static TOKENIZER: LazyLock<Arc<Tokenizer>> =
    LazyLock::new(|| Arc::new(Tokenizer::new(&TokenizerSource::Json(FILE.to_vec())).unwrap()));
/// The crate's whole pipeline on the same file: another way to the same ids.
static ORACLE: LazyLock<tokenizers::Tokenizer> = LazyLock::new(|| tokenizers::Tokenizer::from_bytes(FILE).unwrap());
static FROM_GGUF: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::new(&as_gguf("qwen35")).unwrap());

pub(super) fn golden() -> Arc<Tokenizer> {
    Arc::clone(&TOKENIZER)
}

/// The file as the converter to GGUF would write it.
fn as_gguf(pre: &str) -> TokenizerSource {
    let file: Value = serde_json::from_slice(FILE).unwrap();
    let mut tokens: Vec<(u64, String, i32)> = Vec::new();
    for (token, id) in file["model"]["vocab"].as_object().unwrap() {
        tokens.push((id.as_u64().unwrap(), token.clone(), 1));
    }
    for added in file["added_tokens"].as_array().unwrap() {
        let kind = if added["special"] == json!(true) { 3 } else { 4 };
        tokens.push((added["id"].as_u64().unwrap(), added["content"].as_str().unwrap().to_owned(), kind));
    }
    tokens.push((tokens.len() as u64, "[PAD]".to_owned(), 5));
    tokens.sort();
    let merges = file["model"]["merges"].as_array().unwrap().iter();
    TokenizerSource::Gguf {
        pre: pre.to_owned(),
        types: tokens.iter().map(|t| t.2).collect(),
        tokens: tokens.into_iter().map(|t| t.1).collect(),
        merges: merges.map(|m| format!("{} {}", m[0].as_str().unwrap(), m[1].as_str().unwrap())).collect(),
    }
}

/// The file after an edit.
fn edited(edit: impl FnOnce(&mut Value)) -> Result<Tokenizer, TokenizerError> {
    let mut file: Value = serde_json::from_slice(FILE).unwrap();
    edit(&mut file);
    Tokenizer::new(&TokenizerSource::Json(serde_json::to_vec(&file).unwrap()))
}

/// A vocabulary with the merges of the first one in another order, so that what a merge makes is often merged before
/// it.
static SHUFFLED: LazyLock<Tokenizer> = LazyLock::new(|| {
    let by_hash = |merge: &Value| {
        let text = merge.to_string();
        text.bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    };
    edited(|file| file["model"]["merges"].as_array_mut().unwrap().sort_by_key(by_hash)).unwrap()
});

/// Words as who wants to hold a thread would have them: runs of blanks, of line breaks, of letters, one after the
/// other.
fn runs() -> impl Strategy<Value = String> {
    let piece =
        prop::sample::select(vec![" ", "  ", "\n", "\t", " \n", "a", "e", "the", " the", "=", "\u{4e2d}", "\u{a0}"]);
    let run = (piece, 1_usize..600).prop_map(|(piece, times)| piece.repeat(times));
    prop::collection::vec(run, 1..12).prop_map(|runs| runs.concat())
}

/// One word has the ids that the crate gives it, by both orders.
fn check_word(word: &str) {
    let mut written = String::new();
    alphabet::write(word.as_bytes(), &mut written);
    for tokenizer in [&**TOKENIZER, &*SHUFFLED] {
        let mut ids = Vec::new();
        tokenizer.merges.encode(word.as_bytes(), &mut ids);
        let slowly = tokenizer.bpe.tokenize(&written).unwrap();
        assert_eq!(ids, slowly.iter().map(|token| token.id).collect::<Vec<_>>());
    }
}

fn composed(text: &str) -> String {
    NormalizedString::from(text).nfc().get().to_owned()
}

/// Text with everything that pre-tokenizers and normalisers trip over.
fn nasty() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<char>().prop_map(String::from),
        "[a-zA-Z' ]{1,12}",
        "[ \t\r\n\u{a0}\u{3000}\u{2028}]{1,5}",
        "[\u{300}-\u{36f}\u{1100}-\u{11ff}e한नम\u{94d}\u{fb01}]{1,4}",
        "[0-9]{1,5}",
        "[\u{1f300}-\u{1f64f}\u{200d}\u{fe0f}]{1,4}",
        Just("<|im_end|>".to_owned()),
        Just("<think>\n".to_owned()),
        Just("<|im_start".to_owned()),
    ];
    prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

#[test]
fn golden_texts_have_the_reference_s_ids() {
    let cases: Value =
        serde_json::from_slice(include_bytes!("../../../../engine/tests/golden/moe/tokenizer_golden.json")).unwrap();
    for case in cases.as_array().unwrap() {
        let (text, ids) = (case["text"].as_str().unwrap(), &case["ids"]);
        assert_eq!(json!(TOKENIZER.encode(text)), *ids, "{text:?}");
        assert_eq!(json!(FROM_GGUF.encode(text)), *ids, "{text:?}");
    }
}

#[test]
fn plain_text_never_becomes_an_added_token() {
    for (content, id) in TOKENIZER.added() {
        assert_eq!(TOKENIZER.encode(content), [id]);
        let plain = TOKENIZER.encode_plain(content);
        assert!(plain.iter().all(|&id| TOKENIZER.kind(id) == TokenKind::Text), "{content}");
        assert_eq!(TOKENIZER.decode(&plain, true), content);
    }
}

#[test]
fn control_tokens_are_hidden_and_markup_is_shown() {
    let ids = TOKENIZER.encode("<think>a</think>b<|im_end|>");
    assert_eq!(TOKENIZER.decode(&ids, false), "<think>a</think>b");
    assert_eq!(TOKENIZER.decode(&ids, true), "<think>a</think>b<|im_end|>");
    assert_eq!(TOKENIZER.kind(TOKENIZER.id("<think>").unwrap()), TokenKind::Added);
    assert_eq!(TOKENIZER.kind(TOKENIZER.id("<|im_end|>").unwrap()), TokenKind::Special);
}

#[test]
fn ids_beyond_the_vocabulary_have_no_bytes() {
    assert_eq!(TOKENIZER.bytes(TOKENIZER.len()), b"");
    assert_eq!(TOKENIZER.bytes(u32::MAX), b"");
    assert_eq!(TOKENIZER.kind(u32::MAX), TokenKind::Unused);
    assert_eq!(FROM_GGUF.bytes(FROM_GGUF.len() - 1), b"", "an unused id has a name in the file, but no text");
    assert_eq!(TOKENIZER.decode(&[u32::MAX], true), "");
}

#[test]
fn a_token_is_found_by_its_text() {
    assert_eq!(TOKENIZER.id(" "), Some(220));
    assert_eq!(TOKENIZER.bytes(220), b" ");
    assert_eq!(TOKENIZER.id("no such token"), None);
    for id in 0..TOKENIZER.len() {
        if let Ok(text) = std::str::from_utf8(TOKENIZER.bytes(id)) {
            assert_eq!(TOKENIZER.id(text), Some(id), "{text:?}");
        }
    }
}

#[test]
fn words_of_many_thousands_of_bytes_have_the_ids_of_the_crate_s_pipeline() {
    for piece in [" ", "a", "\n", "hello", "\u{4e2d}\u{6587}", "=", "aab"] {
        let text = format!("x {}.", piece.repeat(3 * LONG_WORD_BYTES));
        assert_eq!(TOKENIZER.encode(&text), ORACLE.encode(text.as_str(), false).unwrap().get_ids(), "{piece:?}");
    }
}

#[test]
fn an_unknown_pre_tokenizer_is_named() {
    let error = Tokenizer::new(&as_gguf("of-another-world")).unwrap_err();
    assert_eq!(error.to_string(), "tokenizer: tokenizer.ggml.pre is of-another-world, which is not supported");
    let error =
        edited(|f| f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = json!("\\p{N}{1,3}")).unwrap_err();
    assert!(
        error.to_string().contains("pre_tokenizer.pretokenizers[0]") && error.to_string().contains("{1,3}"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_done_exactly_is_named() {
    type Edit = fn(&mut Value);
    let cases: [(Edit, &str); 10] = [
        (|f| f["normalizer"]["type"] = json!("NFKC"), "normalizer is NFKC"),
        (|f| f["model"]["type"] = json!("Unigram"), "model is Unigram"),
        (|f| f["model"]["dropout"] = json!(0.1), "model.dropout"),
        (|f| f["model"]["unk_token"] = json!("<unk>"), "model.unk_token"),
        (|f| f["model"]["byte_fallback"] = json!(true), "model.byte_fallback"),
        (|f| f["model"]["end_of_word_suffix"] = json!("</w>"), "model.end_of_word_suffix"),
        (|f| f["added_tokens"][0]["lstrip"] = json!(true), "added_tokens[\"<|endoftext|>\"].lstrip"),
        (|f| f["decoder"]["type"] = json!("WordPiece"), "decoder is WordPiece"),
        (|f| f["post_processor"]["single"][0] = json!({"SpecialToken": {"id": "<s>", "type_id": 0}}), "post_processor"),
        (
            |f| f["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = json!(true),
            "pre_tokenizer.pretokenizers[1]",
        ),
    ];
    for (edit, name) in cases {
        let error = edited(edit).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

/// A file after an edit, by both ways to ids.
fn both(edit: impl FnOnce(&mut Value)) -> (Tokenizer, tokenizers::Tokenizer) {
    let mut file: Value = serde_json::from_slice(FILE).unwrap();
    edit(&mut file);
    let bytes = serde_json::to_vec(&file).unwrap();
    let own = Tokenizer::new(&TokenizerSource::Json(bytes.clone())).unwrap();
    (own, tokenizers::Tokenizer::from_bytes(bytes).unwrap())
}

fn check_both((own, oracle): &(Tokenizer, tokenizers::Tokenizer), texts: &[&str]) {
    for text in texts {
        assert_eq!(own.encode(text), oracle.encode(*text, false).unwrap().get_ids(), "{text:?}");
    }
}

/// Adds tokens as `add_tokens` does.
fn add(file: &mut Value, contents: &[&str]) {
    let added = file["added_tokens"].as_array_mut().unwrap();
    let mut next = added.iter().map(|token| token["id"].as_u64().unwrap()).max().unwrap();
    for content in contents {
        next += 1;
        added.push(json!({
            "id": next, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": true, "special": false,
        }));
    }
}

#[test]
fn tokens_of_add_tokens_are_found_where_the_crate_finds_them() {
    let texts = [
        "a<tool>b <tool> c",
        "<tool>\u{338} is no token once it is composed",
        "e\u{301}<tool>e\u{301}",
        "word end endless  ende\u{301} en end\u{323} end\u{315}\u{323} end\u{4e2d}",
        "<|im_start|>user\n<tool><|im_end|>   x    y",
    ];
    let composed = both(|file| add(file, &["<tool>", "end", "    "]));
    let raw = both(|file| {
        add(file, &["<tool>", "Kelvin", "\u{e9}t\u{e9}", "end", "endless"]);
        file["normalizer"] = Value::Null;
    });
    check_both(&composed, &texts);
    check_both(&raw, &texts);
    check_both(&raw, &["Kelvin \u{212a}elvin \u{e9}t\u{e9} e\u{301}te\u{301}"]);
    for content in ["Kelvin", "\u{e9}t\u{e9}", "<|im_start|>user", "d|>x"] {
        let error = edited(|file| add(file, &[content])).unwrap_err().to_string();
        assert!(error.contains(&format!("added_tokens[{content:?}].normalized")), "{error}");
    }
    assert!(edited(|file| add(file, &["endless", "end"])).is_err(), "`end` comes out where `endless` vanishes");
}

#[test]
fn a_sequence_of_steps_means_what_its_steps_mean() {
    let wrapped = both(|file| {
        let step = |file: &Value, name: &str| file[name].clone();
        file["normalizer"] = json!({"type": "Sequence", "normalizers": [step(file, "normalizer")]});
        file["post_processor"] = json!({"type": "Sequence", "processors": [step(file, "post_processor")]});
        file["decoder"] = json!({"type": "Sequence", "decoders": [step(file, "decoder")]});
        file["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [step(file, "pre_tokenizer")]});
    });
    let texts = ["<|im_start|>user\n\u{c0} l'e\u{301}te\u{301} 12 <think>", "  a b\n\n"];
    check_both(&wrapped, &texts);
    texts.iter().for_each(|text| assert_eq!(wrapped.0.encode(text), TOKENIZER.encode(text)));
    let empty = both(|file| file["normalizer"] = json!({"type": "Sequence", "normalizers": []}));
    check_both(&empty, &texts);
    let error = edited(|file| {
        file["normalizer"] = json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]});
    });
    assert!(error.unwrap_err().to_string().contains("normalizer is Lowercase"));
}

#[test]
fn bytes_that_text_cannot_have_need_no_token() {
    let never = || (0xc0..=0xc1).chain(0xf5..=0xff_u8);
    let without = both(|file| {
        let vocab = file["model"]["vocab"].as_object_mut().unwrap();
        for byte in never() {
            let mut token = String::new();
            alphabet::write(&[byte], &mut token);
            vocab.shift_remove(&token).unwrap();
        }
    });
    assert_eq!(never().count(), 13);
    check_both(&without, &["\u{c0}\u{10ffff}\u{7ff} caf\u{e9} \u{1f600}", "plain"]);
}

#[test]
fn a_vocabulary_that_contradicts_itself_is_an_error() {
    type Edit = fn(&mut Value);
    let cases: [(Edit, &str); 5] = [
        (|f| drop(f["model"]["vocab"].as_object_mut().unwrap().shift_remove("Ġ")), "no token for the byte written 'Ġ'"),
        (|f| f["model"]["merges"][0] = json!(["zz", "zz"]), "\"zz\" + \"zz\""),
        (|f| f["model"]["merges"][0] = json!("onlyone"), "model.merges[0]"),
        (|f| f["model"]["vocab"]["字"] = json!(5), "which is no byte"),
        (|f| f["model"]["vocab"]["!"] = json!(4_294_967_295u32), "4294967296 tokens"),
    ];
    for (edit, name) in cases {
        let error = edited(edit).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
    let TokenizerSource::Gguf { pre, tokens, mut types, merges } = as_gguf("qwen35") else { unreachable!() };
    types.pop();
    let error = Tokenizer::new(&TokenizerSource::Gguf { pre, tokens, types, merges }).unwrap_err();
    assert!(error.to_string().starts_with("tokenizer: tokenizer.ggml.token_type has"), "{error}");
}

#[test]
fn a_tokenizer_in_the_form_of_gguf_files_gives_the_same_ids() {
    let json = TokenizerSource::Json(FILE.to_vec());
    let TokenizerSource::Gguf { pre, tokens, types, merges } = super::as_gguf(&json).unwrap() else { unreachable!() };
    let TokenizerSource::Gguf { tokens: want, types: want_types, merges: want_merges, .. } = as_gguf("qwen35") else {
        unreachable!()
    };
    // The reference has an unused id more.
    assert_eq!((pre.as_str(), &tokens[..], &types[..]), ("qwen35", &want[..tokens.len()], &want_types[..types.len()]));
    assert_eq!(merges, want_merges);
    let own = Tokenizer::new(&TokenizerSource::Gguf { pre, tokens, types, merges }).unwrap();
    let text = "<|im_start|>user\nÀ l'été 12 <think>";
    assert_eq!(own.encode(text), TOKENIZER.encode(text));
    let mut file: Value = serde_json::from_slice(FILE).unwrap();
    file["normalizer"] = Value::Null;
    let error = super::as_gguf(&TokenizerSource::Json(serde_json::to_vec(&file).unwrap())).unwrap_err().to_string();
    assert!(error.contains("nfc false") && error.contains("no name for that"), "{error}");
}

#[test]
fn a_file_that_is_no_json_is_an_error() {
    assert!(matches!(Tokenizer::new(&TokenizerSource::Json(b"{".to_vec())), Err(TokenizerError::Json(_))));
}

#[test]
fn merges_may_be_written_as_lines() {
    let lines = edited(|f| {
        for merge in f["model"]["merges"].as_array_mut().unwrap() {
            *merge = json!(format!("{} {}", merge[0].as_str().unwrap(), merge[1].as_str().unwrap()));
        }
    });
    assert_eq!(lines.unwrap().encode("hello world"), TOKENIZER.encode("hello world"));
}

proptest! {
    #[test]
    fn ids_are_those_of_the_crate_s_own_pipeline(text in nasty()) {
        let ids = TOKENIZER.encode(&text);
        let oracle = ORACLE.encode(text.as_str(), false).unwrap();
        prop_assert_eq!(&ids[..], oracle.get_ids());
        prop_assert_eq!(&ids, &FROM_GGUF.encode(&text));
    }

    #[test]
    fn a_word_has_the_same_ids_however_long_it_may_be_before_it_is_merged_here(text in nasty(), times in 1_usize..20) {
        check_word(&text.repeat(times));
    }

    #[test]
    fn so_have_runs_of_blanks_line_breaks_and_letters_whatever_the_order_of_merges(word in runs()) {
        check_word(&word);
    }

    #[test]
    fn texts_of_long_runs_have_the_ids_of_the_crate_s_pipeline(runs in prop::collection::vec(runs(), 1..6)) {
        let text = runs.concat();
        let oracle = ORACLE.encode(text.as_str(), false).unwrap();
        prop_assert_eq!(&TOKENIZER.encode(&text)[..], oracle.get_ids());
    }

    #[test]
    fn no_text_has_fewer_tokens_than_its_length_says(text in nasty(), times in 1_usize..20) {
        for text in [text.repeat(times), "\u{212a}".repeat(times), "\u{1112}\u{1161}\u{11ab}".repeat(times)] {
            let least = TOKENIZER.tokens_min(&text);
            prop_assert!(TOKENIZER.encode(&text).len() >= least && TOKENIZER.encode_guarded(&text).len() >= least);
        }
    }

    #[test]
    fn decoding_gives_the_text_back_composed(text in nasty()) {
        // Added tokens cut a text before it is composed, so a plain encoding is what composes as a whole.
        prop_assert_eq!(TOKENIZER.decode(&TOKENIZER.encode_plain(&text), true), composed(&text));
    }

    #[test]
    fn any_ids_decode(ids in prop::collection::vec(any::<u32>().prop_map(|id| id % 600), 0..50)) {
        prop_assert_eq!(TOKENIZER.decode(&ids, true), ORACLE.decode(&ids, false).unwrap());
        prop_assert_eq!(TOKENIZER.decode(&ids, false), ORACLE.decode(&ids, true).unwrap());
    }
}
