//! What is taken from which layer, and what is refused in which words.

use super::layers::defaults;
use super::*;
use crate::limits;
use toml::Table;

const SHOWN: &str = include_str!("../../../config/chimere.toml");

fn load(file: &str, env: &[(&str, &str)], args: ServeArgs) -> Result<Config, ConfigError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.toml");
    std::fs::write(&path, file).unwrap();
    let args = ServeArgs { config: Some(path), ..args };
    Config::load(&args, env.iter().map(|(k, v)| (k.to_string(), v.to_string()))).map_err(|e| match e {
        ConfigError::UnknownKey { key, nearest, .. } => ConfigError::UnknownKey { origin: "c".into(), key, nearest },
        ConfigError::BadValue { key, why, .. } => ConfigError::BadValue { origin: "c".into(), key, why },
        other => other,
    })
}

#[test]
fn the_shown_file_has_every_key_with_its_default_and_says_what_it_is() {
    let shown: Table = SHOWN.parse().unwrap();
    assert_eq!(shown, defaults());
    let mut comment = false;
    for line in SHOWN.lines() {
        if line.contains('=') && !line.starts_with('#') {
            assert!(comment || line.contains('#'), "no comment at: {line}");
        }
        comment = line.starts_with('#');
    }
}

#[test]
fn the_shown_file_names_the_fixed_limits_with_their_values() {
    for (name, value) in [
        ("choices of one request", limits::CHOICES_MAX.to_string()),
        ("prompts of one completion request", limits::PROMPTS_MAX.to_string()),
        ("stop strings of one request", limits::STOP_STRINGS_MAX.to_string()),
        ("bytes of a stop string", limits::STOP_STRING_BYTES_MAX.to_string()),
        ("stop token ids of one request", limits::STOP_TOKEN_IDS_MAX.to_string()),
        ("tokens with a bias in one request", limits::LOGIT_BIAS_MAX.to_string()),
        ("tools of one request", limits::TOOLS_MAX.to_string()),
        ("tokens of a window of certainty", limits::THINKING_WINDOW_TOKENS_MAX.to_string()),
        ("tokens of an answer that is tried", limits::PROBE_TOKENS_MAX.to_string()),
        ("words that are held back", limits::HOLD_WORDS_MAX.to_string()),
        ("bytes of a tool's name", limits::TOOL_NAME_BYTES_MAX.to_string()),
        ("texts of one request for embeddings", limits::EMBEDDING_INPUTS_MAX.to_string()),
        ("tokens of all texts of one request for embeddings", limits::EMBEDDING_TOKENS_MAX.to_string()),
        ("texts or options of one request that are read at a time", limits::BATCH_IN_FLIGHT_MAX.to_string()),
        ("questions of one request for decisions", limits::DECISION_QUESTIONS_MAX.to_string()),
        ("options of one question", limits::DECISION_OPTIONS_MAX.to_string()),
        ("bytes of an option, and of its description", limits::DECISION_OPTION_BYTES_MAX.to_string()),
        ("bytes of a question's name", limits::DECISION_NAME_BYTES_MAX.to_string()),
        ("bytes of a question's instructions", limits::DECISION_INSTRUCTIONS_BYTES_MAX.to_string()),
        ("tokens of all prompts of one request for decisions", limits::DECISION_PROMPT_TOKENS_MAX.to_string()),
        ("tokens that one request for decisions has computed", limits::DECISION_TOKENS_MAX.to_string()),
        ("documents of one request that ranks them", limits::RERANK_DOCUMENTS_MAX.to_string()),
        ("tables that one request may name", limits::ENGRAM_TABLES_MAX.to_string()),
        ("documents that one request may bring", limits::ENGRAM_DOCUMENTS_MAX.to_string()),
        ("tokens of all documents of one request", limits::ENGRAM_DOCUMENT_TOKENS_MAX.to_string()),
        ("texts that a table is taught in one request", limits::ENGRAM_TEXTS_MAX.to_string()),
        ("tokens that one table may have been taught and not forgotten", limits::ENGRAM_LEARNED_TOKENS_MAX.to_string()),
        ("versions of a table that can be gone back to", limits::ENGRAM_VERSIONS_MAX.to_string()),
        ("collections of one key", limits::COLLECTIONS_MAX.to_string()),
        ("items of a collection", limits::COLLECTION_ITEMS_MAX.to_string()),
        ("bytes of an item's text and answer", limits::COLLECTION_ITEM_BYTES_MAX.to_string()),
        ("bytes of an item's id", limits::ITEM_ID_BYTES_MAX.to_string()),
        ("items that one search finds", limits::SEMANTIC_K_MAX.to_string()),
        ("files of one key", limits::DOCUMENT_FILES_MAX.to_string()),
        ("bytes of the text of one file", limits::DOCUMENT_TEXT_BYTES_MAX.to_string()),
        ("pages of one file", limits::DOCUMENT_PAGES_MAX.to_string()),
        ("vector stores of one key", limits::STORES_MAX.to_string()),
        ("files of one vector store", limits::STORE_FILES_MAX.to_string()),
        ("passages of one vector store", limits::STORE_CHUNKS_MAX.to_string()),
        ("files of one batch", limits::STORE_BATCH_FILES_MAX.to_string()),
        ("passages that one search finds", limits::STORE_RESULTS_MAX.to_string()),
        ("queries of one search", limits::STORE_QUERIES_MAX.to_string()),
        ("bytes of a text that one call of read_passage reads", limits::MCP_READ_BYTES_MAX.to_string()),
        ("seconds that the call of a tool over MCP may take", limits::MCP_CALL_SECONDS.to_string()),
        ("bytes of a request's `cache_salt`", limits::CACHE_SALT_BYTES_MAX.to_string()),
        ("characters of a group of keys that share a prefix cache", limits::CACHE_GROUP_CHARS_MAX.to_string()),
        ("states that the prefix cache keeps on a device", limits::CHECKPOINTS_MAX.to_string()),
        ("top_logprobs", limits::TOP_LOGPROBS_MAX.to_string()),
        ("prompts that wait for a text thread", limits::TEXT_JOBS_MAX.to_string()),
        ("bytes above which a text has the thread of the long ones", limits::LONG_TEXT_BYTES.to_string()),
        ("long prompts that wait for their text thread", limits::LONG_TEXT_JOBS_MAX.to_string()),
        ("milliseconds of a request's own deadline, at most", limits::DEADLINE_MS_MAX.to_string()),
        (
            "recomputed positions of a sequence in a step, where each is a pass of its own",
            limits::RECOMPUTED_PASSES_MAX.to_string(),
        ),
        ("bytes that one body may take when it is taken apart", limits::PARSED_BYTES_MAX.to_string()),
        ("bytes that all bodies take when they are taken apart", limits::PARSED_TOTAL_BYTES_MAX.to_string()),
        ("bytes above which a whole reply is given out piece by piece", limits::WHOLE_REPLY_BYTES.to_string()),
        ("characters of a key in the key file", limits::KEY_CHARS_MIN.to_string()),
        ("seconds between two looks at keys and certificates", limits::KEY_LOOK_SECONDS.to_string()),
        ("addresses whose wrong keys are counted", limits::WRONG_KEY_ADDRESSES_MAX.to_string()),
        ("milliseconds that the answer to a wrong key waits, at most", limits::WRONG_KEY_DELAY_MS_MAX.to_string()),
        ("seconds after which an address is as good as new", limits::WRONG_KEY_REST_SECONDS.to_string()),
        ("requests of an address without a known key that are each written down", limits::WRONG_KEYS_TOLD.to_string()),
        ("keys whose address is remembered when they are let in", limits::KNOWN_KEYS_MAX.to_string()),
        ("connections to the listener of probes", limits::PROBE_CONNECTIONS.to_string()),
        ("bytes of an unfinished TLS handshake", limits::HANDSHAKE_BYTES_MAX.to_string()),
        (
            "bytes that all heads take until their requests are answered, beyond 8 KiB each",
            limits::HEADS_BYTES_MAX.to_string(),
        ),
        (
            "seconds between two lines of the log about one kind of fault of clients",
            limits::FAULT_TOLD_SECONDS.to_string(),
        ),
        (
            "bytes of a path or a field's name for which the nearest known one is looked for",
            limits::HINT_BYTES_MAX.to_string(),
        ),
        (
            "pauses, each as long as rendering the metrics took, before they are rendered again",
            limits::METRICS_TIME_SHARE.to_string(),
        ),
        ("API keys with a label of their own in the metrics", limits::KEY_LABELS_MAX.to_string()),
        ("steps of the template engine for one conversation", limits::TEMPLATE_STEPS_MAX.to_string()),
        ("connections that wait to be accepted", limits::ACCEPTS_WAITING_MAX.to_string()),
        ("bytes of log records that wait to be written", limits::LOG_BYTES_MAX.to_string()),
        ("spans of traces that wait for their collector", limits::SPANS_WAITING_MAX.to_string()),
        ("steps in flight", limits::STEPS_IN_FLIGHT_MAX.to_string()),
        ("messages of a mailbox", limits::MAILBOX_MESSAGES.to_string()),
        ("seconds of Retry-After, at most", limits::RETRY_AFTER_SECONDS.end().to_string()),
    ] {
        assert!(SHOWN.contains(&format!("# {name}: {value}\n")), "{name}: {value}");
    }
}

#[test]
fn flags_win_over_environment_over_file_over_defaults() {
    let file = "[server]\nport = 1\nhost = \"::1\"\ndrain_seconds = 3\n";
    let env = [("CHIMERE_SERVER__PORT", "2"), ("CHIMERE_SERVER__HOST", "127.0.0.2"), ("CHIMERE_MODEL", "elsewhere")];
    let args = ServeArgs { port: Some(4), ..Default::default() };
    let got = load(file, &env, args).unwrap();
    assert_eq!((got.server.port, got.server.host.as_str(), got.server.drain_seconds), (4, "127.0.0.2", 3));
    assert_eq!(got.limits, Limits::default());
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_name() {
    let err = load("[server]\nprot = 1\n", &[], ServeArgs::default()).unwrap_err();
    assert_eq!(err.to_string(), "c: no key server.prot, did you mean server.port?");
    let err = load("", &[("CHIMERE_ENGINE__THREAD", "2")], ServeArgs::default()).unwrap_err();
    assert_eq!(err.to_string(), "c: no key engine.thread, did you mean engine.threads?");
    let err = load("[sever]\nport = 1\n", &[], ServeArgs::default()).unwrap_err();
    assert_eq!(err.to_string(), "c: no key sever.port, did you mean server.port?");
    let err = load("port = 1\n", &[], ServeArgs::default()).unwrap_err();
    assert!(err.to_string().starts_with("c: no key port"), "{err}");
}

#[test]
fn a_value_of_the_wrong_type_or_range_names_its_key() {
    let err = load("[server]\nport = \"x\"\n", &[], ServeArgs::default()).unwrap_err();
    assert_eq!(err.to_string(), "c: server.port wants an integer, got a string \"x\"");
    let err = load("[server]\nport = 70000\n", &[], ServeArgs::default()).unwrap_err();
    assert!(err.to_string().starts_with("c: server.port is out of range"), "{err}");
    let err = load("[engine]\nthreads = 1025\n", &[], ServeArgs::default()).unwrap_err();
    assert_eq!(err.to_string(), "c: engine.threads must be at most 1024, got 1025");
    let err = load("[engine]\nkv_type = \"q9\"\n", &[], ServeArgs::default()).unwrap_err();
    assert!(err.to_string().starts_with("c: engine.kv_type is not accepted"), "{err}");
    let err = load("", &[("CHIMERE_SERVER__ALLOW_OPEN", "yes")], ServeArgs::default()).unwrap_err();
    assert!(err.to_string().starts_with("c: server.allow_open wants a boolean"), "{err}");
}

#[test]
fn drafts_are_a_word_or_a_number_and_come_from_sources_that_are_known() {
    let got = load("[engine]\ndrafts = \"3\"\n", &[("CHIMERE_ENGINE__DRAFT_SOURCES", "ngram")], ServeArgs::default());
    let got = got.unwrap().engine;
    assert_eq!((String::from(got.drafts), String::from(got.draft_sources)), ("3".into(), "ngram".into()));
    let args = ServeArgs { drafts: "off".parse().ok(), ..Default::default() };
    assert_eq!(load("[engine]\ndrafts = \"3\"\n", &[], args).unwrap().engine.drafts.0.drafts_max(), 0);
    let err = load("[engine]\ndrafts = \"9\"\n", &[], ServeArgs::default()).unwrap_err().to_string();
    assert!(err.contains("engine.drafts") && err.contains("a number from 1 to 7, got \"9\""), "{err}");
}

#[test]
fn a_type_of_the_cache_reads_as_it_is_written_and_one_word_means_both() {
    for (text, want) in
        [("f16", KvType::F16), ("q8_0:q4_0", KvType::Q8_0Q4_0), ("q8_0:q8_0", KvType::Q8_0), ("q8_0", KvType::Q8_0)]
    {
        let got = load(&format!("[engine]\nkv_type = \"{text}\"\n"), &[], ServeArgs::default()).unwrap();
        assert_eq!(got.engine.kv_type, want);
    }
    for (text, want) in [("auto", Activations::Auto), ("int8", Activations::Int8), ("int16", Activations::Int16)] {
        let got = load(&format!("[engine]\nactivations = \"{text}\"\n"), &[], ServeArgs::default()).unwrap();
        assert_eq!(got.engine.activations, want);
    }
    let args = ServeArgs { activations: Some(Activations::Int8), ..Default::default() };
    assert_eq!(load("[engine]\nactivations = \"int16\"\n", &[], args).unwrap().engine.activations, Activations::Int8);
    let args = ServeArgs { embedding: Some(Embedding::Host), kv_type: Some(KvType::Q8_0), ..Default::default() };
    let got = load("", &[], args).unwrap();
    assert_eq!((got.engine.embedding, got.engine.kv_type), (Embedding::Host, KvType::Q8_0));
}

#[test]
fn a_certificate_comes_with_its_key_and_an_origin_has_no_path() {
    let err = load("[server]\ntls_key = \"k.pem\"\n", &[], ServeArgs::default()).unwrap_err();
    assert_eq!(err.to_string(), "c: server.tls_certificate must be given with server.tls_key, got nothing");
    let good =
        load("[server]\ncors_origins = \"https://a.example, http://localhost:3000\"\n", &[], ServeArgs::default())
            .unwrap();
    assert_eq!(items(&good.server.cors_origins).count(), 2);
    for bad in ["a.example", "https://a.example/", "https://", "https://*.example"] {
        let err = load(&format!("[server]\ncors_origins = \"{bad}\"\n"), &[], ServeArgs::default()).unwrap_err();
        assert!(err.to_string().starts_with("c: server.cors_origins wants"), "{err}");
    }
    let err = load("[limits]\nbodies_bytes = 1\n", &[], ServeArgs::default()).unwrap_err();
    assert_eq!(err.to_string(), "c: limits.bodies_bytes must be at least limits.body_bytes, 8388608, got 1");
    let err = load("[limits]\nhead_seconds = 0\n", &[], ServeArgs::default()).unwrap_err();
    assert_eq!(err.to_string(), "c: limits.head_seconds must lie between 1 and 3153600000, got 0");
    // As a way to say never it would leave the range of every clock that it is added to.
    let err = load("[server]\nkeep_alive_seconds = 9223372036854775807\n", &[], ServeArgs::default()).unwrap_err();
    assert!(err.to_string().starts_with("c: server.keep_alive_seconds must lie between 1 and 3153600000"), "{err}");
}

#[test]
fn a_collector_of_traces_is_an_address_without_encryption() {
    for bad in ["127.0.0.1:4318", "https://collector:4318", "http://", "http://a/?b", "collector"] {
        let err = load(&format!("[trace]\nendpoint = \"{bad}\"\n"), &[], ServeArgs::default()).unwrap_err();
        assert!(err.to_string().starts_with("c: trace.endpoint wants an address such as"), "{err}");
    }
    for good in ["http://127.0.0.1:4318", "http://collector", "http://[::1]:4318/prefix/"] {
        let args = ServeArgs { trace_endpoint: Some(good.into()), ..Default::default() };
        assert_eq!(load("", &[], args).unwrap().trace, Trace { endpoint: good.into(), share: 1.0 });
    }
    let err = load("[trace]\nshare = 2\n", &[], ServeArgs::default()).unwrap_err();
    assert_eq!(err.to_string(), "c: trace.share must lie between 0 and 1, got 2");
}

#[test]
fn the_shown_file_names_the_limits_of_embedders() {
    let jobs = format!("# jobs that wait for a thread of the encoder: {}\n", limits::ENCODER_JOBS_MAX);
    let seconds = limits::EMBEDDER_SECONDS;
    let seconds = format!("# seconds that the server of documents.embedder.url may be silent: {seconds}\n");
    assert!(SHOWN.contains(&jobs) && SHOWN.contains(&seconds));
}

#[test]
fn an_embedder_is_a_directory_or_a_server_of_which_all_is_said() {
    let env = [("CHIMERE_DOCUMENTS__EMBEDDER__THREADS", "3")];
    let got = load("[documents.embedder]\ndirectory = \"e5\"\n", &env, ServeArgs::default()).unwrap();
    assert_eq!((got.documents.embedder.directory.as_str(), got.documents.embedder.threads), ("e5", 3));
    for (keys, why) in [
        ("drectory = ''", "c: no key documents.embedder.drectory, did you mean documents.embedder.directory?"),
        ("threads = '2'", "c: documents.embedder.threads wants an integer, got a string \"2\""),
        ("threads = 1025", "c: documents.embedder.threads must be at most 1024, got 1025"),
        (
            "directory = 'a'\nurl = 'http://a'",
            "c: documents.embedder.url must be empty where documents.embedder.directory is set, got \"http://a\"",
        ),
        (
            "url = 'https://a'",
            "c: documents.embedder.url wants an address such as http://10.0.0.7:8000/v1, unencrypted, \
             got \"https://a\"",
        ),
        (
            "url = 'http://a'",
            "c: documents.embedder.name wants the model that the server at documents.embedder.url has",
        ),
        ("url = 'http://a'\nname = 'm'", "c: documents.embedder.dimensions must lie between 1 and 16384, got 0"),
    ] {
        let err = load(&format!("[documents.embedder]\n{keys}\n"), &[], ServeArgs::default()).unwrap_err();
        assert_eq!(err.to_string(), why);
    }
    assert!(load("documents = 1\n", &[], ServeArgs::default()).is_err());
}

#[test]
fn a_step_has_room_for_a_chunk_or_takes_the_device_s_own() {
    let err = load("[engine]\nstep_tokens = 63\n", &[], ServeArgs::default()).unwrap_err();
    assert_eq!(err.to_string(), "c: engine.step_tokens must be 0 or at least 64, got 63");
    assert!(load("[engine]\nstep_tokens = 0\n", &[], ServeArgs::default()).is_ok());
}

#[test]
fn shares_are_numbers_of_any_kind_between_0_and_1() {
    let env = [("CHIMERE_THINKING__PROBE_ENTROPY", "0.25"), ("CHIMERE_THINKING__HOLD_ENTROPY", "1")];
    let got = load("[thinking]\nstop_top_prob = 1\n", &env, ServeArgs::default()).unwrap().thinking;
    assert_eq!((got.probe_entropy, got.hold_entropy, got.stop_top_prob), (0.25, 1.0, 1.0));
    for (file, why) in [
        ("hold_entropy = 1.5", "c: thinking.hold_entropy must lie between 0 and 1, got 1.5"),
        ("hold_words = [\"Wait\", \" \"]", "c: thinking.hold_words must not have an empty word"),
        ("window_tokens = 0", "c: thinking.window_tokens must lie between 1 and 1024, got 0"),
        ("probe_tokens = 300", "c: thinking.probe_tokens must lie between 1 and 256, got 300"),
    ] {
        assert_eq!(load(&format!("[thinking]\n{file}\n"), &[], ServeArgs::default()).unwrap_err().to_string(), why);
    }
    let err = load("[thinking]\nhold_words = \"Wait\"\n", &[], ServeArgs::default()).unwrap_err();
    assert!(err.to_string().starts_with("c: thinking.hold_words wants an array"), "{err}");
}
