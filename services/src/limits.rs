//! What the service takes and holds at most: every bound that a client or an operator can run into, with its unit and,
//! where the configuration can change it, its default. `config/chimere.toml` shows those.
//!
//! Elsewhere stand bounds that belong to one mechanism and that nobody runs into from outside: sizes of a buffer or of
//! a cache beside the code that fills it, what a file may be in the engine's formats, defaults that are no bounds
//! beside their keys in `config/`.

mod learning;
mod tools;

pub use learning::*;
pub use tools::*;

/// Seconds without progress that every step of the engine may take before the watchdog declares the engine lost.
pub const WATCHDOG_SECONDS: u64 = 10;
/// The most of these seconds that the configuration may ask for: a day, for runs under a debugger.
pub const WATCHDOG_SECONDS_MAX: u64 = 86_400;
/// A step may take this many times its predicted duration, where that is longer.
pub const WATCHDOG_PREDICTIONS: f64 = 20.0;
/// Seconds that a step may take whose duration nothing predicts yet: the first steps read weights from a disk and
/// compile what was not compiled before.
pub const WATCHDOG_UNPREDICTED_SECONDS: u64 = 600;
/// Seconds from the loss of the engine to the end of the process, whatever holds it up.
pub const ENGINE_LOST_EXIT_SECONDS: u64 = 10;
/// Requests that may wait for a slot.
pub const QUEUE_REQUESTS_MAX: u32 = 256;
/// Prompt tokens that may wait, all requests together.
pub const QUEUE_PROMPT_TOKENS_MAX: u64 = 1 << 20;
/// Sequences that run at once on a CPU.
pub const SEQS_MAX_CPU: u32 = 16;
/// Sequences that run at once on a GPU.
pub const SEQS_MAX_GPU: u32 = 64;
/// Replicas of the engine: a dispatcher's index of prefixes has so many bits a word.
pub const REPLICAS_MAX: u32 = 32;
/// States that the prefix cache keeps on a device: to find which of them should go takes a look at each.
pub const CHECKPOINTS_MAX: u32 = 4096;
/// The most memory of the host that the prefix cache takes unless a budget says more.
pub const HOST_CACHE_BYTES: u64 = 16 << 30;
/// Batches of KV events that wait to be numbered and sent: one a step at most, so half a minute of them and more.
pub const EVENT_BATCHES_MAX: usize = 4096;
/// Subscribers to KV events, and as many who ask for those that they missed.
pub const EVENT_SUBSCRIBERS_MAX: usize = 64;
/// Topics that one of them subscribes to.
pub const EVENT_SUBSCRIPTIONS_MAX: usize = 16;
/// Messages that wait for one of them; of more, it gets none until there is room.
pub const EVENT_SUBSCRIBER_MESSAGES_MAX: usize = 1024;
/// Messages that are kept for those who missed some.
pub const EVENT_REPLAY_MESSAGES_MAX: usize = 10_000;
/// Bytes of these together.
pub const EVENT_REPLAY_BYTES_MAX: usize = 16 << 20;
/// Bytes of the topic of events.
pub const EVENT_TOPIC_BYTES_MAX: usize = 255;
/// Seconds for which a listener to events may leave a message unread.
pub const EVENT_UNREAD_SECONDS: u64 = 30;
/// Bytes of a request's `cache_salt`.
pub const CACHE_SALT_BYTES_MAX: usize = 256;
/// Characters of the name of a group of keys that share what their prompts leave in the prefix cache.
pub const CACHE_GROUP_CHARS_MAX: usize = 64;
/// Addresses that a start needs beside its plan: stacks of threads, and the 64 MiB that the C library keeps for the
/// allocations of each of the first ones.
pub const THREADS_BYTES: u64 = 512 << 20;
/// Positions one step may compute on a CPU, unless the configuration says otherwise.
pub const STEP_TOKENS_CPU: u32 = 512;
/// Positions one step may compute on a GPU, unless the configuration says otherwise: the most of these whose buffers
/// take no more than a part of the memory, or the last.
pub const STEP_TOKENS_GPU: [u32; 3] = [8192, 4096, 2048];
/// That part: one in so many.
pub const STEP_MEMORY_SHARE: u64 = 32;
/// Drafts on a GPU take no more than a part of the memory of keys and values: one in so many.
pub const DRAFTS_MEMORY_SHARE: u64 = 16;
/// Ids that a draft head guesses among where a model knows twice as many or more and nobody says otherwise.
pub const DRAFT_IDS: u32 = 65_536;
/// Threads of one kind, as a configuration may ask for them: more than the largest machines have cores. They wait for
/// each other in every step, so a slip of the finger would stop the service before its first token.
pub const THREADS_MAX: u32 = 1024;
/// Prompts that wait for a text thread; one key, or one address, has half of the places at most.
pub const TEXT_JOBS_MAX: usize = 2048;
/// Bytes above which a text has the lane of the long ones: rendering and cutting it takes tens of milliseconds and
/// more, and short prompts must not wait for that.
pub const LONG_TEXT_BYTES: usize = 64 << 10;
/// Long prompts that wait for their text thread, likewise.
pub const LONG_TEXT_JOBS_MAX: usize = 128;
/// Bytes of all request bodies that are arriving or being read, together.
pub const BODIES_BYTES_MAX: usize = 128 << 20;
/// Bytes of a request body.
pub const BODY_BYTES_MAX: usize = 8 << 20;
/// Bytes that one body may take when it is taken apart: as many ids as the largest prompts have, and a hundred times
/// what a conversation needs.
pub const PARSED_BYTES_MAX: usize = 64 << 20;
/// Bytes that all bodies which were taken apart may take together, until they are prompts.
pub const PARSED_TOTAL_BYTES_MAX: usize = 192 << 20;
/// Bytes above which a whole reply is given out piece by piece, and let go if it is not read.
pub const WHOLE_REPLY_BYTES: usize = 256 << 10;
/// Bytes of all such replies that are not read yet, together; one key, or one address, has half of them at most.
pub const WHOLE_REPLIES_BYTES_MAX: usize = 256 << 20;
/// Characters of a key that the key file has in plain text.
pub const KEY_CHARS_MIN: usize = 16;
/// Bytes of the key file.
pub const KEY_FILE_BYTES_MAX: u64 = 16 << 20;
/// Seconds between two looks at the key file and at the certificate.
pub const KEY_LOOK_SECONDS: u64 = 2;
/// Addresses whose wrong keys are counted.
pub const WRONG_KEY_ADDRESSES_MAX: usize = 4096;
/// Keys whose address is remembered when they are let in: what wrong keys from there do not hold up.
pub const KNOWN_KEYS_MAX: usize = 16_384;
/// Milliseconds that the answer to a wrong key waits at most, and that its address is ahead when no other is looked at.
pub const WRONG_KEY_DELAY_MS_MAX: u64 = 8_000;
/// Requests of an address without a known key that are each written down; later ones as often as their number doubles.
pub const WRONG_KEYS_TOLD: u32 = 16;
/// Seconds without a wrong key after which an address is as good as new.
pub const WRONG_KEY_REST_SECONDS: u64 = 60;
/// Seconds that a body may take to arrive.
pub const BODY_SECONDS: u64 = 60;
/// Bytes of a path, or of a field's name, for which the known one is looked for that may have been meant.
pub const HINT_BYTES_MAX: usize = 64;
/// Bytes of the name that a client may give its request (`x-request-id`); a request with a longer one gets a name of
/// ours.
pub const REQUEST_NAME_BYTES_MAX: usize = 128;
/// Connections open at once.
pub const CONNECTIONS_MAX: usize = 10_000;
/// Rendering the metrics is followed by a pause of so many times as long, however many ask for them.
pub const METRICS_TIME_SHARE: u32 = 20;
/// Connections open at once to the listener of probes; one address leaves as many to others as it has.
pub const PROBE_CONNECTIONS: usize = 64;
/// Bytes of an unfinished TLS handshake: several times what clients send.
pub const HANDSHAKE_BYTES_MAX: usize = 16 << 10;
/// Seconds between two lines of the log about one kind of fault of clients.
pub const FAULT_TOLD_SECONDS: u64 = 10;
/// Bytes that all heads which are arriving or whose requests are being answered may take together, beyond what each
/// connection has room for anyway.
pub const HEADS_BYTES_MAX: usize = 32 << 20;
/// Connections that wait to be accepted; the kernel may allow fewer (`net.core.somaxconn`).
pub const ACCEPTS_WAITING_MAX: i32 = 4096;
/// Messages an actor's mailbox holds: more than the connections, so that it is never the limit.
pub const MAILBOX_MESSAGES: usize = 16_384;
/// Launched steps that are not committed yet.
pub const STEPS_IN_FLIGHT_MAX: u32 = 2;
/// Choices of one request.
pub const CHOICES_MAX: u32 = 16;
/// Stop strings of one request.
pub const STOP_STRINGS_MAX: usize = 16;
/// Below this a temperature means greedy decoding: dividing by it would leave the range of f32, and nothing of chance.
pub const GREEDY_BELOW_TEMPERATURE: f32 = 1e-5;
/// Bytes of one stop string.
pub const STOP_STRING_BYTES_MAX: usize = 1024;
/// Stop token ids of one request.
pub const STOP_TOKEN_IDS_MAX: usize = 64;
/// Tokens with a bias in one request.
pub const LOGIT_BIAS_MAX: usize = 1024;
/// Bytes of text in a schema that an answer keeps to, of a grammar, and of all texts to choose from.
pub const GRAMMAR_BYTES_MAX: usize = 256 << 10;
/// Bytes of an expression that an answer matches, and of a schema's `pattern`.
pub const GRAMMAR_REGEX_BYTES_MAX: usize = 16 << 10;
/// Bytes of a grammar in Lark's notation: rules that refer to each other in a row take the stack's room.
pub const LARK_BYTES_MAX: usize = 64 << 10;
/// Levels of brackets in such a grammar.
pub const LARK_BRACKETS_MAX: usize = 64;
/// Rules within rules, and brackets around these, on the longest way down from the first one: each takes a few
/// kilobytes of the stack.
pub const LARK_LEVELS_MAX: usize = 2_000;
/// Bytes of the terminals of such a grammar, each written out in every place of its name.
pub const LARK_WRITTEN_MAX: usize = 256 << 10;
/// Parts of an expression that may be left out (`?`, `*`, `{..}`), of all expressions of a schema, and of the terminals
/// of a grammar, written out: what the lexer keeps for one byte grows with the square of those that follow each other.
pub const GRAMMAR_OPTIONAL_MAX: usize = 4_000;
/// Conditions that hold at once for one value of a schema (`pattern` in `allOf`, `multipleOf`) or in one grammar (`&`):
/// time and memory double with each.
pub const GRAMMAR_CONDITIONS_MAX: usize = 8;
/// Expressions for the names of an object's members, of which each is compared with every other.
pub const GRAMMAR_NAME_PATTERNS_MAX: usize = 32;
/// Comparisons of these with the names that the object lists.
pub const GRAMMAR_NAME_COMPARISONS_MAX: usize = 16_384;
/// The largest `multipleOf`, and one over the smallest.
pub const GRAMMAR_MULTIPLE_MAX: u32 = 1_000_000;
/// Remainders that all `multipleOf` of a schema leave. Each is a state of the lexer: a million take 20 s to
/// compile and a gigabyte.
pub const GRAMMAR_REMAINDERS_MAX: u128 = fewer(10_000) as u128;
/// The largest number of a schema, and the smallest without its sign: the double below 2^63. The library that makes
/// grammars turns the ends of ranges into `i64` and negates them, which has no end for `i64::MIN`.
pub const GRAMMAR_NUMBER_MAX: f64 = 9_223_372_036_854_774_784.0;
/// Characters, items or members that a schema may ask for at least; no answer has as many, so more are no bound from
/// above.
pub const GRAMMAR_COUNT_MAX: u64 = 1_000_000_000;
/// Values in a schema, each key's own among them.
pub const GRAMMAR_VALUES_MAX: usize = 20_000;
/// Levels of a schema.
pub const GRAMMAR_DEPTH_MAX: usize = 64;
/// Levels of a schema and of all that its references refer to, together: the library that makes grammars calls itself
/// for each, and a level takes up to five kilobytes of the stack.
pub const GRAMMAR_LEVELS_MAX: usize = 6_000;
/// Texts that an answer may be chosen from.
pub const GRAMMAR_CHOICES_MAX: usize = 4096;
/// Bytes of the grammar that is made of a request's tools.
pub const GRAMMAR_TOOLS_BYTES_MAX: usize = 1 << 20;
/// Symbols of a grammar, after all of it is written out.
pub const GRAMMAR_SYMBOLS_MAX: usize = 250_000;
/// States that the expressions of one grammar may have for one choice, a kilobyte or two each.
pub const GRAMMAR_STATES_MAX: usize = fewer(50_000) as usize;
/// Steps of the lexer that making a grammar may take: about a second.
pub const GRAMMAR_COMPILE_STEPS_MAX: u64 = fewer(1_000_000);
/// Steps of the lexer for one token. Counted, and not timed, so that the same answer comes on any machine; time alone
/// ends only what nobody could wait for.
pub const GRAMMAR_TOKEN_STEPS_MAX: u64 = fewer(200_000);
/// Items of the parser for one token.
pub const GRAMMAR_TOKEN_ITEMS_MAX: usize = fewer(20_000) as usize;
/// Of these, at one place of the text.
pub const GRAMMAR_PLACE_ITEMS_MAX: usize = 2000;
/// Earley items that a grammar in Lark's notation may take for one token. Such grammars may be ambiguous, and then the
/// steps grow with the cube of the items.
pub const LARK_TOKEN_ITEMS_MAX: usize = 5000;
/// Of the items of a grammar in Lark's notation, those at one place of the text.
pub const LARK_PLACE_ITEMS_MAX: usize = 300;
/// Hundredths of a second that a grammar may take for one token once it is seen at work, which may be four after it
/// began; longer where code is not optimised.
pub const GRAMMAR_LOOKS_MAX: u32 = if cfg!(debug_assertions) { 400 } else { 10 };
/// Under a fuzzer a grammar has a twentieth of what it may take, so that a run does not spend its time at these bounds.
const fn fewer(n: u64) -> u64 {
    if cfg!(fuzzing) { n / 20 } else { n }
}

/// Grammars that are kept for requests that ask for the same.
pub const GRAMMARS_KEPT_MAX: usize = 32;
/// Threads that make grammars. None of them does anything else, so a hard one holds up no prompt.
pub const GRAMMAR_THREADS: usize = 2;
/// Bytes of their stacks, which deep grammars need.
pub const GRAMMAR_STACK_BYTES: usize = 64 << 20;
/// Grammars that wait for a thread; one key, or one address, has half of the places at most.
pub const GRAMMAR_JOBS_MAX: usize = 128;
/// Bytes of a text without a choice whose tokens are looked for at each of its tokens. Longer than any token.
pub const GRAMMAR_FORCED_BYTES_MAX: usize = 4 << 10;
/// Characters of what is said about a form that cannot be followed.
pub const GRAMMAR_ERROR_CHARS_MAX: usize = 300;
/// Bytes of the name of a tool's argument: what the parser of calls reads.
pub const TOOL_ARGUMENT_BYTES_MAX: usize = 256;
/// Texts of one request that its answer may cite.
pub const CITED_SOURCES_MAX: usize = 200;
/// Tools of one request.
pub const TOOLS_MAX: usize = 128;
/// Tokens of the window over which a model's certainty is averaged.
pub const THINKING_WINDOW_TOKENS_MAX: u32 = 1024;
/// Tokens of an answer that is tried without a thought.
pub const PROBE_TOKENS_MAX: u32 = 256;
/// Words that are held back while a model is certain.
pub const HOLD_WORDS_MAX: usize = 64;
/// Bytes of a tool's name.
pub const TOOL_NAME_BYTES_MAX: usize = 64;
/// Bytes of a table's name.
pub const TABLE_NAME_BYTES_MAX: usize = 64;
/// Tables that one request may name.
pub const ENGRAM_TABLES_MAX: usize = 16;
/// Documents that one request may bring.
pub const ENGRAM_DOCUMENTS_MAX: usize = 256;
/// Texts that a table is taught in one request.
pub const ENGRAM_TEXTS_MAX: usize = 4096;
/// Tokens of all documents of one request.
pub const ENGRAM_DOCUMENT_TOKENS_MAX: usize = 65_536;
/// Bytes of a document's id, and of its title.
pub const ENGRAM_DOCUMENT_NAME_BYTES_MAX: usize = 1024;
/// Places of origin that a reply names.
pub const ENGRAM_SOURCES_MAX: usize = 1024;
/// Tokens that one table may have been taught and not forgotten.
pub const ENGRAM_LEARNED_TOKENS_MAX: u64 = 4 << 20;
/// Tokens that all tables may have been taught together; a key leaves as much to others as it has.
pub const ENGRAM_TAUGHT_TOKENS_MAX: u64 = 256 << 20;
/// Texts that were put in the place of each other and can be gone back to, for each table.
pub const ENGRAM_VERSIONS_MAX: usize = 8;
/// Bytes of the file of strengths, a few numbers a line.
pub const STRENGTHS_BYTES_MAX: u64 = 1 << 20;
/// Sets of tables that share a prior, 8 bytes a token of the vocabulary each; other sets ask their tables one by one.
pub const ENGRAM_PRIORS: usize = 8;
/// Texts of one request for embeddings, or that a collection is given in one request.
pub const EMBEDDING_INPUTS_MAX: usize = 2048;
/// Tokens of all texts of one request for embeddings.
pub const EMBEDDING_TOKENS_MAX: usize = 300_000;
/// Jobs that wait for a thread of the encoder, or for one that asks the server of `documents.embedder.url`.
pub const ENCODER_JOBS_MAX: usize = 1024;
/// Threads of the encoder, unless the configuration says otherwise.
pub const ENCODER_THREADS_MAX: usize = 8;
/// Requests at once to the server of `documents.embedder.url`.
pub const EMBEDDER_THREADS: usize = 4;
/// Seconds that it may be silent.
pub const EMBEDDER_SECONDS: u64 = 60;
/// Bytes of its answer: 64 vectors of the largest width in JSON, twice.
pub const EMBEDDER_ANSWER_BYTES_MAX: usize = 64 << 20;
/// Numbers of its vectors.
pub const EMBEDDER_DIMENSIONS_MAX: u32 = 16_384;
/// Redirects that a request out of the process follows.
pub const OUTBOUND_REDIRECTS_MAX: u32 = 3;
/// Seconds that a search of the web or reading one of its pages may take in all.
pub const OUTBOUND_SECONDS: u64 = 10;
/// Bytes of a page that are read, packed and unpacked.
pub const WEB_PAGE_BYTES: u64 = 2 << 20;
/// The most of these that the configuration may ask for.
pub const WEB_PAGE_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a list that SearXNG gives.
pub const WEB_SEARCH_BYTES_MAX: usize = 2 << 20;
/// Queries of the web in one turn.
pub const WEB_QUERIES_MAX: usize = 4;
/// Bytes of a query of the web.
pub const WEB_QUERY_BYTES_MAX: usize = 400;
/// Pages that one search reads.
pub const WEB_PAGES_MAX: usize = 5;
/// Pages of a search that count, whether they are read or only shown by SearXNG.
pub const WEB_RESULTS_MAX: usize = 10;
/// Pages that a model may open in one turn.
pub const WEB_FETCHES_MAX: u32 = 5;
/// Hosts that one search may be narrowed to.
pub const WEB_DOMAINS_MAX: usize = 100;
/// Threads that wait for children which read pages.
pub const WEB_THREADS: usize = 4;
/// Pages that wait for one of these.
pub const WEB_JOBS_MAX: usize = 64;
/// Seconds that reading a page's text may take.
pub const WEB_PARSE_SECONDS: u64 = 10;
/// Texts or options of one request that are in the scheduler's hands at a time.
pub const BATCH_IN_FLIGHT_MAX: usize = 64;
/// Questions of one request for decisions.
pub const DECISION_QUESTIONS_MAX: usize = 64;
/// Options of one question.
pub const DECISION_OPTIONS_MAX: usize = 256;
/// Bytes of an option, and of its description.
pub const DECISION_OPTION_BYTES_MAX: usize = 1024;
/// Bytes of a question's name.
pub const DECISION_NAME_BYTES_MAX: usize = 64;
/// Bytes of a question's instructions.
pub const DECISION_INSTRUCTIONS_BYTES_MAX: usize = 16 << 10;
/// Orders in which the options of a question are shown.
pub const DECISION_ORDERS_MAX: u32 = 2;
/// Tokens of all prompts of one request for decisions, common beginnings counted in each.
pub const DECISION_PROMPT_TOKENS_MAX: usize = 4 << 20;
/// Tokens that one request for decisions may have computed, common beginnings counted once.
pub const DECISION_TOKENS_MAX: usize = 2 << 20;
/// Documents of one request that ranks them.
pub const RERANK_DOCUMENTS_MAX: usize = 1000;
/// Bytes of the file of temperatures, a line a question.
pub const CALIBRATION_BYTES_MAX: u64 = 1 << 20;
/// Collections of one account.
pub const COLLECTIONS_MAX: usize = 64;
/// Items of one collection. A scan of all of them takes less time than reading the text that is looked for.
pub const COLLECTION_ITEMS_MAX: usize = 20_000;
/// Bytes of an item's text and answer together.
pub const COLLECTION_ITEM_BYTES_MAX: usize = 16_384;
/// Bytes of an item's id.
pub const ITEM_ID_BYTES_MAX: usize = 128;
/// Items that one search finds, and examples that one conversation gets.
pub const SEMANTIC_K_MAX: u32 = 16;
/// Mebibytes that all collections may take in memory, unless the configuration says otherwise.
pub const COLLECTIONS_MIB: u64 = 512;
/// Mebibytes that the configuration may say: a tebibyte.
pub const COLLECTIONS_MIB_MAX: u64 = 1 << 20;
/// Mebibytes of one uploaded file, unless the configuration says otherwise.
pub const DOCUMENT_FILE_MIB: u64 = 128;
/// Mebibytes of all files of one account, unless the configuration says otherwise.
pub const DOCUMENT_KEY_MIB: u64 = 4096;
/// Mebibytes that the configuration may say of files: a tebibyte.
pub const DOCUMENT_MIB_MAX: u64 = 1 << 20;
/// Seconds that the parser of a file may take, unless the configuration says otherwise.
pub const DOCUMENT_PARSE_SECONDS: u64 = 60;
/// Mebibytes of memory that the parser of a file may take, unless the configuration says otherwise.
pub const DOCUMENT_PARSE_MIB: u64 = 512;
/// The least of these that the configuration may say: the program itself has to fit.
pub const DOCUMENT_PARSE_MIB_MIN: u64 = 128;
/// Bytes of the text of one file.
pub const DOCUMENT_TEXT_BYTES_MAX: usize = 64 << 20;
/// Bytes that an office file may unpack to.
pub const DOCUMENT_UNPACKED_BYTES_MAX: u64 = 512 << 20;
/// Pages of one file.
pub const DOCUMENT_PAGES_MAX: usize = 20_000;
/// Sections of one file, each under one path of headings and on one page.
pub const DOCUMENT_SECTIONS_MAX: usize = 100_000;
/// Headings of a path that are kept, outermost first.
pub const DOCUMENT_HEADINGS_MAX: usize = 8;
/// Characters of a heading that are kept.
pub const DOCUMENT_HEADING_CHARS_MAX: usize = 200;
/// Characters of a file's name that are kept.
pub const DOCUMENT_NAME_CHARS_MAX: usize = 255;
/// Files of one account.
pub const DOCUMENT_FILES_MAX: usize = 20_000;
/// Uploads under way at once, of all accounts.
pub const DOCUMENT_UPLOADS_MAX: usize = 64;
/// Tokens of a passage, unless the configuration or the request says otherwise.
pub const CHUNK_TOKENS: u32 = 400;
/// Tokens that two passages of one long paragraph have in common.
pub const CHUNK_OVERLAP_TOKENS: u32 = 60;
/// Tokens of a passage that a request or the configuration may ask for.
pub const CHUNK_TOKENS_RANGE: std::ops::RangeInclusive<u32> = 100..=4096;
/// Vector stores of one account.
pub const STORES_MAX: usize = 256;
/// Files of one vector store.
pub const STORE_FILES_MAX: usize = 10_000;
/// Passages of one vector store.
pub const STORE_CHUNKS_MAX: usize = 200_000;
/// Bytes that the words and vectors of all vector stores take in memory, about: some 1,500 a passage of 400 tokens, and
/// a byte for each number of its vector.
pub const INDEX_BYTES_MAX: u64 = 4 << 30;
/// Batches of files that one vector store remembers.
pub const STORE_BATCHES_MAX: usize = 1000;
/// Files of one batch, and of one new store.
pub const STORE_BATCH_FILES_MAX: usize = 2000;
/// Passages that one search finds.
pub const STORE_RESULTS_MAX: usize = 50;
/// Stores that one `file_search` names.
pub const FILE_SEARCH_STORES_MAX: usize = 8;
/// The largest weight of embeddings and of words in a search: these are shares of their sum.
pub const SEARCH_WEIGHT_MAX: f64 = 1000.0;
/// Queries of one search.
pub const STORE_QUERIES_MAX: usize = 8;
/// Bytes of all queries of one search.
pub const STORE_QUERY_BYTES_MAX: usize = 16_384;
/// Attributes of a file in a store, and pairs of a store's metadata.
pub const ATTRIBUTES_MAX: usize = 16;
/// Characters of an attribute's key.
pub const ATTRIBUTE_KEY_CHARS_MAX: usize = 64;
/// Characters of an attribute's text.
pub const ATTRIBUTE_TEXT_CHARS_MAX: usize = 512;
/// Conditions of one filter.
pub const FILTER_CONDITIONS_MAX: usize = 128;
/// Levels of one filter.
pub const FILTER_LEVELS_MAX: usize = 8;
/// Characters of a store's name and description.
pub const STORE_NAME_CHARS_MAX: usize = 256;
/// Bytes of a whole store's text that are handed out at once.
pub const STORE_WHOLE_BYTES_MAX: u64 = 8 << 20;
/// Entries of a page of a list, where the request does not say, and at most.
pub const PAGE_ENTRIES: usize = 20;
/// The most entries of a page of stores, files of stores and batches.
pub const PAGE_ENTRIES_MAX: usize = 100;
/// The most entries of a page of files, and how many there are where the request does not say.
pub const FILE_PAGE_ENTRIES_MAX: usize = 10_000;
/// Mebibytes that the responses of all keys may take, unless the configuration says otherwise.
pub const RESPONSES_MIB: u64 = 64;
/// Mebibytes that the responses of one key may take, unless the configuration says otherwise.
pub const RESPONSES_KEY_MIB: u64 = 16;
/// Hours that a response is kept, unless the configuration says otherwise.
pub const RESPONSES_HOURS: u64 = 24;
/// What the configuration may say of each of these: a tebibyte, and a century.
pub const RESPONSES_NUMBER_MAX: u64 = 1 << 20;
/// Bytes of responses that wait to be written; one that comes while they are so many is not kept.
pub const RESPONSES_UNWRITTEN_BYTES: u64 = 64 << 20;
/// Seconds after which responses that could not be written are tried again.
pub const RESPONSE_RETRY_SECONDS: u64 = 1;
/// Seconds that the removal of a response waits for the disk.
pub const RESPONSE_REMOVE_SECONDS: u64 = 30;
/// Responses that one request may take items of by their ids.
pub const RESPONSE_REFERRED_MAX: usize = 64;
/// Bytes of all items that a request refers to.
pub const RESPONSE_REFERRED_BYTES_MAX: usize = 8 << 20;
/// Items that one page of a response's input has at most, and if nothing is said.
pub const RESPONSE_ITEMS_MAX: usize = 100;
/// Tokens of a compaction's summary where the request does not say.
pub const COMPACTION_TOKENS: u32 = 1024;
/// Items on one page of a response's input where the request does not say; at most [`RESPONSE_ITEMS_MAX`].
pub const RESPONSE_ITEMS: usize = 20;
/// The version of Ollama's API that is spoken: programs compare it with what they need.
pub const OLLAMA_VERSION: &str = "0.14.0";
/// The seed by which llama.cpp's programs say that one is to be drawn.
pub const LLAMA_RANDOM_SEED: u32 = u32::MAX;
/// Fields of a reply of llama.cpp's that one request may name.
pub const RESPONSE_FIELDS_MAX: usize = 64;
/// Prompts of one completion request.
pub const PROMPTS_MAX: usize = 32;
/// Steps of the template engine for one conversation: a second at worst, and tens of thousands of messages.
/// Fewer under a fuzzer, which looks at thousands of templates in a second.
pub const TEMPLATE_STEPS_MAX: u64 = if cfg!(fuzzing) { 10_000 } else { 20_000_000 };
/// Steps of the template engine for one of the few dozen short conversations in which a template's markers are looked for
/// when it is loaded.
pub const TEMPLATE_PROBE_STEPS_MAX: u64 = TEMPLATE_STEPS_MAX / 100;
/// Bytes that a template may make for one conversation, its output and all that it makes on the way together: as much
/// as thirty of the largest conversations. Less under a fuzzer too, or it would look for nothing but large outputs.
pub const TEMPLATE_BYTES_MAX: u64 = if cfg!(fuzzing) { 1 << 20 } else { 256 << 20 };
/// Bytes of a chat template; the largest that are around have some 30 thousand.
pub const TEMPLATE_SOURCE_BYTES_MAX: usize = 1 << 20;
/// Numbers in the tools and earlier calls of one request, and in the arguments of one call, whose digits are kept where
/// a double would lose some; those that come after so many are read as doubles.
pub const NUMBERS_KEPT_MAX: usize = 16_384;
/// Alternatives reported with each token.
pub const TOP_LOGPROBS_MAX: u8 = 20;
/// Seconds that the configuration may say of anything, a century: more would leave the range of clocks.
pub const SECONDS_MAX: u64 = 100 * 365 * 24 * 3600;
/// Seconds that running streams may take to finish after a signal.
pub const DRAIN_SECONDS: u64 = 15;
/// Seconds of silence after which a stream gets a comment, so that proxies and half-open peers show.
pub const KEEP_ALIVE_SECONDS: u64 = 10;
/// Milliseconds between two tokens of a stream that steps are planned to keep, unless the configuration says otherwise.
pub const ITL_TARGET_MS: u32 = 50;
/// Microseconds before the predicted end of a running step at which the next one is planned: a few times what planning,
/// messages and a launch take together. Who comes later than that waits for the next step too; a step that is launched
/// too late leaves the device idle.
pub const PLAN_AHEAD_US: u64 = 700;
/// Passes over the weights in which a step recomputes positions of a sequence after a preemption (on a GPU): others'
/// tokens wait for that many.
pub const RECOMPUTED_PASSES_MAX: std::num::NonZeroU32 = std::num::NonZeroU32::new(16).expect("16 is not 0");
/// Seconds that a request may be predicted to wait for its first step.
pub const PREDICTED_WAIT_SECONDS: u64 = 60;
/// Milliseconds of a request's own deadline, at most: a day.
pub const DEADLINE_MS_MAX: u64 = 86_400_000;
/// API keys whose figures have a label of their own; those that come later share one.
pub const KEY_LABELS_MAX: usize = 32;
/// Seconds that a client may take for its request's head.
pub const HEAD_SECONDS: u64 = 30;
/// Seconds that an idle connection is kept.
pub const IDLE_SECONDS: u64 = 75;
/// WebSockets open at once, of which one key, or one address, has half at most.
pub const SOCKETS_MAX: usize = 1024;
/// Seconds between two requests of a WebSocket after which it is closed: a client may run tools meanwhile.
pub const SOCKET_IDLE_SECONDS: u64 = 600;
/// Seconds after which a WebSocket takes no further request: an hour, as OpenAI's.
pub const SOCKET_LIFE_SECONDS: u64 = 3600;
/// Messages of one WebSocket that may wait while an earlier one is answered.
pub const SOCKET_MESSAGES_WAITING_MAX: usize = 8;
/// Bytes of the conversations that all WebSockets remember together, one key or one address half of them at most;
/// where there is no room a response cannot be gone on from unless it is kept.
pub const SOCKETS_BYTES_MAX: usize = 128 << 20;
/// Seconds that a client may leave its reply unread before its request is given up: until then its text is kept.
pub const UNREAD_SECONDS: u64 = 60;
/// Seconds that a connection is kept whose peer neither takes what was sent to it nor says that it is still there.
pub const PEER_SILENCE_SECONDS: u64 = 60;
/// Spans of traces that wait for their collector; those that come while they are so many are dropped.
pub const SPANS_WAITING_MAX: usize = 16_384;
/// Characters of a name that a client chose which one record of the audit has.
pub const AUDIT_NAME_CHARS: usize = 128;
/// Bytes of log records that wait to be written; what comes while they are full is dropped and counted.
pub const LOG_BYTES_MAX: usize = 1 << 20;
/// Range of `Retry-After`, in seconds: what a forecast says beyond it is cut.
pub const RETRY_AFTER_SECONDS: std::ops::RangeInclusive<u64> = 1..=60;
/// Bytes of the name of an adapter or a pipeline.
pub const SERVED_NAME_BYTES_MAX: usize = 64;
/// Adapters that may be loaded at a time.
pub const ADAPTERS_MAX: usize = chimere_engine::adapter::ADAPTERS_MAX;
/// Different adapters that the rows of one step may have, unless the configuration says otherwise.
pub const ADAPTER_SLOTS: usize = 8;
/// The largest rank of an adapter, unless the configuration says otherwise.
pub const ADAPTER_RANK_MAX: usize = 64;
/// Mebibytes of the host's memory that all loaded adapters may take, unless the configuration says otherwise.
pub const ADAPTER_HOST_MIB: u64 = 4096;
/// The most mebibytes that the configuration may ask for: 16 TiB.
pub const ADAPTER_HOST_MIB_MAX: u64 = 1 << 24;
/// Nats that an adapter may change what the model says by, on average over the prompts of its probe, unless the
/// configuration says otherwise.
pub const ADAPTER_KL_MAX: f64 = 2.0;
/// Seconds that the probe of an adapter may take.
pub const ADAPTER_PROBE_SECONDS_MAX: u64 = 120;
/// The largest factor that a request may give its adapter.
pub const ADAPTER_SCALE_MAX: f64 = 4.0;
/// Pipelines of one directory.
pub const PIPELINES_MAX: usize = 64;
/// Bytes of a pipeline's file.
pub const PIPELINE_FILE_BYTES_MAX: u64 = 64 << 10;
/// Steps of a pipeline, those of branches included.
pub const PIPELINE_STEPS_MAX: usize = 32;
/// Branches of a pipeline inside of each other.
pub const PIPELINE_DEPTH_MAX: usize = 4;
/// Choices among which a pipeline's step takes the most certain one.
pub const PIPELINE_BEST_OF_MAX: u32 = 8;
/// Generations that a pipeline's step runs at once.
pub const PIPELINE_PARALLEL_MAX: usize = 8;
/// The largest token budget of a pipeline, and of one of its steps.
pub const PIPELINE_TOKENS_MAX: u32 = 1 << 20;
/// The largest time budget of a pipeline: an hour.
pub const PIPELINE_MILLISECONDS_MAX: u64 = 3_600_000;

const _: () = assert!(MAILBOX_MESSAGES > CONNECTIONS_MAX, "a mailbox must never be the limit");
const _: () = assert!(PARSED_BYTES_MAX <= PARSED_TOTAL_BYTES_MAX, "one body must fit");
const _: () = assert!(BODY_BYTES_MAX <= BODIES_BYTES_MAX, "one body must fit");
const _: () = assert!(SOCKETS_MAX <= CONNECTIONS_MAX, "a socket is a connection");
const _: () =
    assert!(BATCH_IN_FLIGHT_MAX < QUEUE_REQUESTS_MAX as usize, "the texts of one request must not fill the queue");
const _: () = assert!(CHOICES_MAX <= SEQS_MAX_CPU, "the choices of one request run together");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded_below_what_the_connections_can_bring() {
        assert!((QUEUE_REQUESTS_MAX as usize) < CONNECTIONS_MAX);
        assert!(RETRY_AFTER_SECONDS.start() <= RETRY_AFTER_SECONDS.end());
    }
}
