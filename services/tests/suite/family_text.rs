//! Tokenizers and templates of real files: the model that ships, and the family's release where `CHIMERE_FAMILY_DIR`
//! has it (`qwen35-vocab.gguf`, `qwen3.5-chat-template.jinja`).

use chimere::text::guard::Guard;
use chimere::text::{ChatTemplate, Conversation, Message, RawJson, Role, TextModel, Thinking, Tokenizer};
use chimere_engine::format::{Gguf, TextAssets, TokenizerSource};
use proptest::test_runner::{Config, TestRunner};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use std::sync::Arc;

/// Text of many scripts and habits, one piece a line.
const CORPUS: &[&str] = &[
    "",
    " ",
    "Hello, world! I'll say: DON'T, we've, they'Re.",
    "fn main() {\n    println!(\"{}\", 1_000_000.5e-3);\n}\n\n\n\t\tx",
    "trailing   \n   leading\r\n\r\n \t mixed\u{a0}\u{3000}blanks\u{2028}",
    "नमस्ते हिन्दी ภาษาไทย 안녕하세요 \u{1112}\u{1161}\u{11ab} e\u{301}\u{327} ﬁ Å Å",
    "你好，世界！私は日本語を話します。١٢٣ ②③ ½",
    "🙂🚀👩‍👩‍👧 🏳️‍🌈 𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "1234567890 3.14 0xFF 1,000",
    "<|im_start|>user\n<think>\nx\n</think>\n\n<tool_call><|im_end|><|im_start",
    "        deep\n                deeper\n",
    "http://example.com/a_b?c=d&e=%20#f -- ... ,,,, ==>> \\\\ \"''\"",
    "\u{0}\u{1}\u{7f}\u{fdd0}\u{10ffff}",
];

/// The files of the family, if they are there. If `CHIMERE_REQUIRE` lists the variable they must be.
fn family() -> Option<(TextAssets, String)> {
    let Some(dir) = std::env::var_os("CHIMERE_FAMILY_DIR").map(PathBuf::from) else {
        let required = std::env::var("CHIMERE_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|v| v == "CHIMERE_FAMILY_DIR"), "CHIMERE_FAMILY_DIR is required and not set");
        eprintln!("skipped: CHIMERE_FAMILY_DIR does not name the family's files");
        return None;
    };
    let file = Gguf::open(&dir.join("qwen35-vocab.gguf")).unwrap();
    let template = std::fs::read_to_string(dir.join("qwen3.5-chat-template.jinja")).unwrap();
    Some((TextAssets::from_gguf(&file).unwrap(), template))
}

fn nano(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../models/nano").join(file)
}

/// The crate's whole pipeline over the arrays of a GGUF file: another way to the same ids.
fn oracle(source: &TokenizerSource) -> tokenizers::Tokenizer {
    let TokenizerSource::Gguf { tokens, types, merges, .. } = source else { panic!("from a GGUF file") };
    let of =
        |kinds: &'static [i32]| (0usize..).zip(tokens.iter().zip(types)).filter(|(_, (_, kind))| kinds.contains(kind));
    let vocab: serde_json::Map<String, Json> = of(&[1]).map(|(id, (token, _))| (token.clone(), id.into())).collect();
    let added = of(&[3, 4]).map(|(id, (token, kind))| {
        json!({"id": id, "content": token, "special": *kind == 3, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
    });
    let pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added.collect::<Vec<_>>(), "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        ]},
        "post_processor": null, "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": merges},
    });
    tokenizers::Tokenizer::from_bytes(serde_json::to_vec(&file).unwrap()).unwrap()
}

#[test]
fn the_shipped_model_s_two_tokenizers_agree() {
    let gguf = TextAssets::from_gguf(&Gguf::open(&nano("nano-q8_0.gguf")).unwrap()).unwrap();
    let by_gguf = Tokenizer::new(&gguf.tokenizer).unwrap();
    let by_json = Tokenizer::new(&TokenizerSource::Json(std::fs::read(nano("tokenizer.json")).unwrap())).unwrap();
    for text in CORPUS {
        assert_eq!(by_gguf.encode(text), by_json.encode(text), "{text:?}");
    }
    assert_eq!(
        gguf.chat_template.as_deref().map(str::trim_end),
        Some(std::fs::read_to_string(nano("chat_template.jinja")).unwrap().trim_end())
    );
}

#[test]
fn the_shipped_model_s_template_takes_every_kind_of_message() {
    let assets = TextAssets::from_gguf(&Gguf::open(&nano("nano-q8_0.gguf")).unwrap()).unwrap();
    let model = TextModel::new(&assets).unwrap();
    assert_eq!(model.template().unwrap().options().collect::<Vec<_>>(), ["enable_thinking"]);
    let prompt = model.chat_prompt(&tool_loop(), usize::MAX).unwrap();
    assert_eq!(prompt.thinking, Thinking::Open);
    let text = model.tokenizer().decode(&prompt.ids, true);
    assert!(text.contains("<tool_call>\n<function=lookup>\n<parameter=id>\n7\n</parameter>\n"), "{text}");
    assert!(
        text.ends_with("<tool_response>\nr2\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n"),
        "{text}"
    );
}

#[test]
fn the_family_s_vocabulary_gives_the_crate_s_ids() {
    let Some((assets, _)) = family() else { return };
    let (tokenizer, oracle) = (Tokenizer::new(&assets.tokenizer).unwrap(), oracle(&assets.tokenizer));
    for text in CORPUS {
        assert_eq!(tokenizer.encode(text), oracle.encode(*text, false).unwrap().get_ids(), "{text:?}");
    }
    // The published vocabulary file is of the generation before, with the pre-tokenizer of this one.
    let tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
    assert_eq!(tokens.map(|t| tokenizer.id(t)), [Some(151643), Some(151644), Some(151645)]);
}

/// Seconds that this thread has computed: what else runs on the machine has no part in that.
fn computed() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[test]
fn a_text_ten_times_as_long_takes_about_ten_times_as_long_to_encode() {
    let Some((assets, _)) = family() else { return };
    let tokenizer = Tokenizer::new(&assets.tokenizer).unwrap();
    // Half prose and half words that no cache has seen.
    let words = (0..8_000u32)
        .map(|i| format!("{}x{:x} the quick brown fox, ", i.wrapping_mul(2_654_435_761), i.wrapping_mul(97)));
    let text: String = words.collect::<String>().chars().take(100_000).collect();
    let time = |text: &str| {
        let start = computed();
        assert!(!tokenizer.encode(text).is_empty());
        computed() - start
    };
    let best = |text: &str| (0..5).map(|_| time(text)).fold(f64::INFINITY, f64::min);
    // Unusual texts may take longer, but in proportion to their length: what is quadratic takes a hundred times as
    // long.
    let cases = [
        ("prose", text),
        ("one word", "x".repeat(100_000)),
        ("blanks", " ".repeat(99_999) + "x"),
        ("marks", "e\u{301}".repeat(33_333)),
    ];
    for (name, long) in cases {
        let short: String = long.chars().skip(long.chars().count() * 9 / 10).collect();
        let (short, long) = (best(&short), best(&long));
        println!("{name}: {:.2} ms, and {:.2} ms for ten times as much", 1e3 * short, 1e3 * long);
        assert!(long < 35.0 * short, "{name}: {short} s, and {long} s for ten times as much");
    }
}

fn render(template: &ChatTemplate, messages: Json, tools: Json, options: Json) -> String {
    let conversation = Conversation {
        messages: messages_of(&messages),
        tools: tools_of(&tools),
        options: options.as_object().cloned().unwrap_or_default(),
        continues: false,
    };
    template.render(&conversation).unwrap_or_else(|e| format!("error: {e}"))
}

fn tool_loop() -> Conversation {
    let call = json!({"type": "function", "function": {"name": "lookup", "arguments": {"id": 7, "tags": ["a", "é"], "on": true, "none": null}}});
    let messages = json!([
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "let me see", "reasoning_content": "need data", "tool_calls": [call.clone(), call]},
        {"role": "tool", "content": "r1"},
        {"role": "tool", "content": "r2"},
    ]);
    Conversation { messages: messages_of(&messages), ..Default::default() }
}

fn messages_of(list: &Json) -> Vec<Message> {
    list.as_array().unwrap().iter().map(|message| Message::of_json(message).expect("a message")).collect()
}

fn tools_of(list: &Json) -> Vec<RawJson> {
    list.as_array().unwrap().iter().cloned().map(RawJson).collect()
}

fn family_template() -> Option<ChatTemplate> {
    let (assets, template) = family()?;
    Some(ChatTemplate::new(&template, Guard::new(&Arc::new(Tokenizer::new(&assets.tokenizer).unwrap()))).unwrap())
}

#[test]
fn the_family_s_template_opens_and_closes_thinking() {
    let Some(template) = family_template() else { return };
    let hi = || json!([{"role": "user", "content": " hi\n"}]);
    let open = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n";
    assert_eq!(render(&template, hi(), json!([]), json!({})), open);
    assert_eq!(render(&template, hi(), json!([]), json!({"enable_thinking": true})), open);
    let closed = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    assert_eq!(render(&template, hi(), json!([]), json!({"enable_thinking": false})), closed);
    assert_eq!(template.options().collect::<Vec<_>>(), ["add_vision_id", "enable_thinking"]);
}

#[test]
fn the_family_s_template_drops_reasoning_before_the_last_question() {
    let Some(template) = family_template() else { return };
    let messages = json!([
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "<think>\nold\n</think>\n\none"},
        {"role": "assistant", "content": "uno", "reasoning_content": "older"},
        {"role": "user", "content": "2"},
        {"role": "assistant", "content": "two", "reasoning_content": " new "},
    ]);
    let expected = "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\none<|im_end|>\n\
        <|im_start|>assistant\nuno<|im_end|>\n<|im_start|>user\n2<|im_end|>\n\
        <|im_start|>assistant\n<think>\nnew\n</think>\n\ntwo<|im_end|>\n<|im_start|>assistant\n<think>\n";
    assert_eq!(render(&template, messages, json!([]), json!({})), expected);
}

#[test]
fn the_family_s_template_writes_tools_calls_and_results() {
    let Some(template) = family_template() else { return };
    let tool = json!({"type": "function", "function": {"name": "lookup", "description": "fïnd <it>", "parameters": {"type": "object"}}});
    let messages = json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "q"}]);
    let text = render(&template, messages, json!([tool]), json!({}));
    let line = r#"{"type": "function", "function": {"name": "lookup", "description": "fïnd <it>", "parameters": {"type": "object"}}}"#;
    assert!(
        text.starts_with(&format!(
            "<|im_start|>system\n# Tools\n\nYou have access to the following functions:\n\n<tools>\n{line}\n</tools>"
        )),
        "{text}"
    );
    assert!(text.contains("</IMPORTANT>\n\nbe brief<|im_end|>\n<|im_start|>user\nq<|im_end|>\n"), "{text}");

    let call = "<tool_call>\n<function=lookup>\n<parameter=id>\n7\n</parameter>\n<parameter=tags>\n[\"a\", \"é\"]\n</parameter>\n\
        <parameter=on>\nTrue\n</parameter>\n<parameter=none>\nNone\n</parameter>\n</function>\n</tool_call>";
    let expected = format!(
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\nneed data\n</think>\n\nlet me see\n\n{call}\n{call}<|im_end|>\n\
         <|im_start|>user\n<tool_response>\nr1\n</tool_response>\n<tool_response>\nr2\n</tool_response><|im_end|>\n\
         <|im_start|>assistant\n<think>\n"
    );
    assert_eq!(template.render(&tool_loop()).unwrap(), expected);
}

#[test]
fn the_family_s_template_objects_in_its_own_words() {
    let Some(template) = family_template() else { return };
    let cases = [
        (json!([]), "No messages provided."),
        (json!([{"role": "system", "content": "a"}]), "No user query found in messages."),
    ];
    for (messages, expected) in cases {
        assert_eq!(render(&template, messages, json!([]), json!({})), format!("error: {expected}"));
    }
}

/// A template whose markers are text to every vocabulary here, as Nemotron Nano 2 has them.
const PLAIN_MARKERS: &str = "{%- for m in messages %}\
{%- if m.role == 'system' and loop.first %}{{ '<SPECIAL_10>System\n' + m.content + '\n' }}\
{%- if tools %}{{ '<AVAILABLE_TOOLS>' + tools | tojson + '</AVAILABLE_TOOLS>\n' }}{% endif %}\
{%- elif m.role == 'user' %}{{ '<SPECIAL_11>User\n' + m.content + '\n' }}\
{%- elif m.role == 'assistant' %}{{ '<SPECIAL_11>Assistant\n' + m.content + '\n' }}\
{%- for c in m.tool_calls %}{{ '<TOOLCALL>\n' + c.function.arguments | tojson + '\n</TOOLCALL>\n' }}{% endfor %}\
{%- elif m.role == 'tool' %}{{ '<TOOL_RESPONSE>\n' + m.content + '\n</TOOL_RESPONSE>\n' }}{% endif %}\
{%- endfor %}{% if add_generation_prompt %}{{ '<SPECIAL_11>Assistant\n' }}{% endif %}";
/// A template whose turns are parted by lines.
const LINES: &str = "{%- for m in messages %}\
{%- if m.role == 'user' %}{{ '### Instruction:\n' + m.content + '\n\n' }}\
{%- elif m.role == 'tool' %}{{ '### Result:\n' + m.content + '\n\n' }}\
{%- elif m.role == 'assistant' %}{{ '### Response:\n' + m.content + '\n\n' }}{% endif %}\
{%- endfor %}{% if add_generation_prompt %}{{ '### Response:\n' }}{% endif %}";

/// Models with templates of each kind, and the markers that these write.
fn marked() -> Vec<(String, TextModel, Vec<&'static str>)> {
    let chat =
        ["<|im_start|>", "<|im_end|>", "<tool_response>", "</tool_response>", "<tool_call>", "</tool_call>", "<think>"];
    let chat =
        [&chat[..], &["<function=", "<parameter=", "</parameter>", "</function>", "<tools>", "</tools>"]].concat();
    let plain = ["<SPECIAL_10>", "<SPECIAL_11>", "<TOOL_RESPONSE>", "</TOOL_RESPONSE>", "<TOOLCALL>", "</TOOLCALL>"];
    let plain = [&plain[..], &["<AVAILABLE_TOOLS>", "</AVAILABLE_TOOLS>"]].concat();
    let lines = vec!["\n### Instruction:", "\n### Response:", "\n### Result:"];
    let mut sources = vec![("shipped", TextAssets::from_gguf(&Gguf::open(&nano("nano-q8_0.gguf")).unwrap()).unwrap())];
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden/moe");
    let assets = TextAssets::from_gguf(&Gguf::open(&golden.join("model.gguf")).unwrap()).unwrap();
    let template = std::fs::read_to_string(golden.join("chat_template.jinja")).unwrap();
    sources.push(("golden", TextAssets { chat_template: Some(template), ..assets }));
    sources
        .extend(family().map(|(assets, template)| ("family", TextAssets { chat_template: Some(template), ..assets })));
    let mut all = Vec::new();
    for (name, assets) in sources {
        let with = |template: &str| TextAssets { chat_template: Some(template.to_owned()), ..assets.clone() };
        all.push((format!("{name}, its own"), TextModel::new(&assets).unwrap(), chat.clone()));
        all.push((format!("{name}, plain markers"), TextModel::new(&with(PLAIN_MARKERS)).unwrap(), plain.clone()));
        all.push((format!("{name}, lines"), TextModel::new(&with(LINES)).unwrap(), lines.clone()));
    }
    all.iter_mut().for_each(|(_, _, markers)| markers.extend(["<system-reminder>", "</system-reminder>"]));
    all
}

/// A conversation in which users, tools, calls and schemas say this text.
fn told(text: &str) -> Conversation {
    let call =
        json!({"type": "function", "id": "c", "function": {"name": "lookup", "arguments": {text: text, "b": [text]}}});
    let messages = json!([
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": text},
        {"role": "assistant", "content": "I see", "reasoning_content": "hm", "tool_calls": [call.clone(), call]},
        {"role": "tool", "content": text, "tool_call_id": "c"},
        {"role": "tool", "content": text, "tool_call_id": "c"},
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": text},
    ]);
    let tools = json!([{"type": "function", "function": {"name": "lookup", "description": text,
        "parameters": {"type": "object", "properties": {text: {"type": "string", "description": text}}}}}]);
    Conversation { messages: messages_of(&messages), tools: tools_of(&tools), ..Default::default() }
}

/// A prompt's text, and where its tokens end in it.
struct Shown {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Shown {
    fn new(model: &TextModel, text: &str) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for id in model.chat_prompt(&told(text), usize::MAX).unwrap().ids {
            bytes.extend_from_slice(model.tokenizer().bytes(id));
            ends.push(bytes.len());
        }
        Self { bytes, ends }
    }

    /// Where tokens end within a marker, for each time that it stands there.
    fn forms(&self, marker: &str) -> Vec<Vec<usize>> {
        let starts = (0..self.bytes.len()).filter(|at| self.bytes[*at..].starts_with(marker.as_bytes()));
        let form = |start: usize| {
            let within = self.ends.iter().filter(move |end| **end > start && **end < start + marker.len());
            within.map(|end| end - start).collect()
        };
        starts.map(form).collect()
    }
}

/// No marker stands in a prompt with the template's own tokens more or less often than where nobody writes any.
fn check_forged(name: &str, model: &TextModel, (own, markers): (&Shown, &[&str]), text: &str) {
    let shown = Shown::new(model, text);
    for marker in markers {
        let own = own.forms(marker);
        // What a vocabulary spells letter by letter has no other tokens.
        if own.iter().any(|form| form.len() + 1 == marker.chars().count()) {
            assert!(name.starts_with("golden"), "{name}: {marker}");
            continue;
        }
        let found = shown.forms(marker).iter().filter(|form| own.contains(form)).count();
        assert_eq!(found, own.len(), "{name}: {marker:?} where users and tools say {text:?}");
    }
}

#[test]
fn the_markers_that_the_forgery_is_tried_with_are_those_of_the_templates() {
    for (name, model, markers) in marked() {
        let own = Shown::new(&model, "word");
        let missing: Vec<_> = markers.iter().filter(|marker| own.forms(marker).is_empty()).collect();
        assert!(missing.is_empty(), "{name}: {missing:?}");
    }
}

#[test]
fn no_marker_of_a_template_can_be_written_by_users_tools_calls_or_schemas() {
    for (name, model, markers) in marked() {
        let own = Shown::new(&model, "word");
        for marker in &markers {
            for text in [format!("a{marker}b"), (*marker).to_owned(), format!("a\n{marker}\nb"), marker.repeat(3)] {
                check_forged(&name, &model, (&own, &markers), &text);
            }
        }
    }
}

/// Whole markers, their parts, and what surrounds and breaks them.
fn pieces(markers: &[&str]) -> Vec<String> {
    let mut pieces: Vec<String> =
        ["x", " ", "\n", "<", ">", "\"", "\u{fdd0}", "\u{fdd2}", "\u{fdd3}"].map(String::from).to_vec();
    for marker in markers {
        pieces.extend([(*marker).to_owned(), marker.to_uppercase(), marker.to_lowercase()]);
        pieces.extend((1..marker.len()).flat_map(|at| [marker[..at].to_owned(), marker[at..].to_owned()]));
    }
    pieces
}

#[test]
fn nor_by_any_text_that_is_made_of_pieces_of_markers() {
    for (name, model, markers) in marked() {
        let own = Shown::new(&model, "word");
        let text = proptest::collection::vec(proptest::sample::select(pieces(&markers)), 1..8);
        let mut runner = TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
        let run = runner.run(&text, |pieces| {
            let text = pieces.concat();
            // A text of blanks alone takes other branches of a template.
            proptest::prop_assume!(!text.trim().is_empty());
            check_forged(&name, &model, (&own, &markers), &text);
            Ok(())
        });
        assert!(run.is_ok(), "{name}: {}", run.unwrap_err());
    }
}

#[test]
fn ordinary_texts_have_the_tokens_that_they_have_by_themselves() {
    for (name, model, _) in marked() {
        for text in CORPUS.iter().filter(|text| !text.trim().is_empty() && !text.contains("<|im_end|>")) {
            let said = Message::new(Role::User, *text);
            let conversation = Conversation { messages: vec![said], ..Default::default() };
            let ids = model.chat_prompt(&conversation, usize::MAX).unwrap().ids;
            let text = model.tokenizer().decode(&ids, true);
            assert_eq!(ids, model.tokenizer().encode(&text), "{name}: {text:?}");
        }
    }
}
