//! What an answer has to look like: JSON of a schema, an expression, one of several texts, a grammar, or calls of
//! tools. From what a request asks for to what the engine follows token by token
//! ([`chimere_engine::constraint::grammar`]). Parsing grammars and saying which tokens they allow is `llguidance`'s;
//! the order of thought and answer, the limits and the form of calls are ours.

mod calls;
mod check;
mod endless;
mod gbnf;
mod keys;
mod lark;
mod lexers;
mod misfit;
mod numbers;
mod quotes;
mod references;
mod schema;
mod sequence;
#[cfg(test)]
mod tests;
mod tokens;
mod watch;

pub use calls::Calls;
pub use check::FormError;
pub use quotes::Quotes;

use super::prompt::Thinking;
use super::tokenizer::Tokenizer;
use super::tools::CallForm;
use crate::limits;
use chimere_engine::constraint::grammar::Grammar;
use chimere_engine::ids::TokenId;
use keys::{KeyTracker, open_keys};
use lexers::Lexers;
use llguidance::api::{GrammarInit, GrammarWithLexer, ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{Logger, Matcher, ParserFactory};
use numbers::ExactNumbers;
use parking_lot::Mutex;
use quotes::QuoteSequence;
use sequence::{GrammarSequence, OutputStage};
use serde_json::{Value as Json, json};
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use tokens::GrammarTokens;
use watch::{Watch, WatchedMatcher};

/// What every reason begins with for which a grammar cannot go on.
pub const CANNOT_GO_ON: &str = "the grammar ";
/// Between two tokens of JSON: bounded, so that no answer is lost in white space.
const WHITE_SPACE: &str = "[ \\n]{1,8}";
/// Why a form that leaves no answer is refused.
const NOTHING: &str = "nothing matches it";
/// What an answer is called beside calls that may come in its place.
const ANSWER: &str = "answer";

/// What an answer may be.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerForm {
    /// JSON that a schema allows, without white space if it is to be compact.
    Json {
        /// As the caller wrote it.
        schema: Json,
        /// Without any white space between its tokens.
        compact: bool,
        /// Objects that name their fields and say nothing of others have no others.
        closed: bool,
    },
    /// A text that this expression matches as a whole.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// What a grammar in Lark's notation says.
    Lark(String),
    /// What a grammar in llama.cpp's notation says.
    Gbnf(String),
}

/// What a request's output has to keep to. Something is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Structure {
    /// What an answer is to be.
    pub form: Option<AnswerForm>,
    /// Which calls there may be, and how they look.
    pub calls: Option<Calls>,
}

/// Makes grammars for one model. Nothing is made before the first one is wanted.
pub struct Grammars {
    tokenizer: Arc<Tokenizer>,
    end_ids: Vec<TokenId>,
    calls: CallForm,
    made: OnceLock<Result<GrammarFactory, String>>,
    /// The ones that were made last, newest first, by what they were made of.
    kept: Mutex<VecDeque<(String, Arc<CompiledGrammar>)>>,
}

struct GrammarFactory {
    vocabulary: Arc<GrammarTokens>,
    factory: ParserFactory,
    watch: Arc<Watch>,
}

/// A grammar before any token. Choices share it.
pub struct CompiledGrammar {
    vocabulary: Arc<GrammarTokens>,
    lexers: Lexers,
    watch: Arc<Watch>,
    /// Free text may come, and the grammar is about the calls in it.
    in_calls_only: bool,
    /// Where an answer begins whose objects leave their keys open.
    keys: Option<KeyTracker>,
}

/// What a request's choices begin with.
#[derive(Clone)]
pub struct GrammarStart {
    rules: AnswerRules,
    stage: OutputStage,
}

/// What the outputs of a request keep to.
#[derive(Clone)]
enum AnswerRules {
    /// The rules of a grammar.
    Grammar(Arc<CompiledGrammar>),
    /// What some passages say, between quotation marks.
    Quotes(Arc<Quotes>),
}

impl Grammars {
    /// For a model with this tokenizer, whose answers end with one of `end_ids`.
    pub fn new(tokenizer: Arc<Tokenizer>, end_ids: Vec<TokenId>) -> Self {
        Self { tokenizer, end_ids, calls: CallForm::default(), made: OnceLock::new(), kept: Mutex::default() }
    }

    /// These grammars for a model that writes its calls of tools in the form of `calls`.
    pub fn with_calls(self, calls: CallForm) -> Self {
        Self { calls, ..self }
    }

    /// The grammar of a structure. May take a second, and looks at nothing larger than the limits say.
    pub fn compile(&self, structure: &Structure) -> Result<Arc<CompiledGrammar>, FormError> {
        let TopLevel { grammar, key, keys, numbers } = top_level(structure, &self.tokenizer, self.calls)?;
        if let Some(found) = self.find(&key) {
            return Ok(found);
        }
        let made = self.made.get_or_init(|| self.make()).as_ref().map_err(|e| FormError::unusable(e.clone()))?;
        let limits = parser_limits(matches!(structure.form, Some(AnswerForm::Lark(_) | AnswerForm::Gbnf(_))));
        let text = grammar.grammars[0].lark_grammar.clone().unwrap_or_default();
        let located = |error| match &structure.calls {
            Some(calls) => calls.located(&text, error),
            None => error,
        };
        let lexers = Lexers::new(made.matcher(grammar, &numbers, limits).map_err(located)?);
        // The first mask tells a grammar that allows nothing at all, or that takes too long.
        let mut first = lexers.own();
        let watched = watch_over(&first, &made.watch);
        let first = watched.run(|| first.compute_mask()).map_err(|e| FormError::of_library(&e))?;
        if first.is_zero() {
            return Err(FormError::unusable(NOTHING.into()));
        }
        let in_calls_only = structure.form.is_none() && structure.calls.as_ref().is_some_and(|c| !c.must);
        let (vocabulary, watch) = (made.vocabulary.clone(), made.watch.clone());
        let compiled = Arc::new(CompiledGrammar { vocabulary, lexers, watch, in_calls_only, keys });
        self.keep(key, compiled.clone());
        Ok(compiled)
    }

    fn make(&self) -> Result<GrammarFactory, String> {
        if self.end_ids.iter().all(|id| *id >= self.tokenizer.len()) {
            return Err("the model has no token that ends an answer".into());
        }
        let vocabulary = Arc::new(GrammarTokens::new(self.tokenizer.clone(), &self.end_ids));
        let slices = SlicedBiasComputer::general_slices();
        let factory = ParserFactory::new(&vocabulary.env, InferenceCapabilities::default(), &slices);
        let mut factory = factory.map_err(|e| format!("no grammars for this vocabulary: {e}"))?;
        factory.quiet();
        let watch = Arc::new(Watch::start().map_err(|e| format!("no thread for grammars: {e}"))?);
        Ok(GrammarFactory { vocabulary, factory, watch })
    }

    fn find(&self, key: &str) -> Option<Arc<CompiledGrammar>> {
        let mut kept = self.kept.lock();
        let at = kept.iter().position(|(of, _)| of == key)?;
        let found = kept.remove(at)?;
        let compiled = found.1.clone();
        kept.push_front(found);
        Some(compiled)
    }

    fn keep(&self, key: String, compiled: Arc<CompiledGrammar>) {
        let mut kept = self.kept.lock();
        kept.push_front((key, compiled));
        kept.truncate(limits::GRAMMARS_KEPT_MAX);
    }
}

impl CompiledGrammar {
    /// For outputs that begin as the prompt left them; `None` for a text that has no thoughts. An error says why the
    /// end of a thought could not be told.
    pub fn after(self: &Arc<Self>, thinking: Option<Thinking>) -> Result<GrammarStart, FormError> {
        let stage = match thinking {
            Some(Thinking::Open) if self.vocabulary.closes.is_none() => {
                return Err(FormError::unusable(
                    "the prompt opens a thought, for whose end the model has no token".into(),
                ));
            }
            Some(Thinking::Open) => OutputStage::Thought,
            _ if self.in_calls_only => OutputStage::BeforeCall,
            Some(Thinking::Free) if self.vocabulary.opens.is_some() && self.vocabulary.closes.is_some() => {
                OutputStage::MayThink
            }
            _ => OutputStage::Answer,
        };
        Ok(GrammarStart { rules: AnswerRules::Grammar(self.clone()), stage })
    }
}

impl GrammarStart {
    /// For outputs that begin as the prompt left them, and whose quotes are those of passages.
    pub fn of_quotes(quotes: Arc<Quotes>, thinking: Option<Thinking>) -> Self {
        let stage = quotes.begin(thinking);
        Self { rules: AnswerRules::Quotes(quotes), stage }
    }

    /// These rules for outputs that begin as another prompt left them.
    pub fn again(&self, thinking: Option<Thinking>) -> Result<Self, FormError> {
        match &self.rules {
            AnswerRules::Grammar(grammar) => grammar.after(thinking),
            AnswerRules::Quotes(quotes) => Ok(Self::of_quotes(quotes.clone(), thinking)),
        }
    }

    /// What one choice is followed by. Choices of one lane share what takes time to work out, and should be asked by
    /// one thread at a time; which lane it is changes nothing that they say.
    pub fn begin(&self, lane: usize) -> Box<dyn Grammar> {
        match &self.rules {
            AnswerRules::Grammar(grammar) => Box::new(GrammarSequence::new(grammar.clone(), lane, self.stage)),
            AnswerRules::Quotes(quotes) => Box::new(QuoteSequence::new(quotes.clone(), self.stage)),
        }
    }
}

impl std::fmt::Debug for GrammarStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GrammarStart({:?})", self.stage)
    }
}

impl GrammarFactory {
    fn matcher(
        &self,
        grammar: TopLevelGrammar,
        numbers: &ExactNumbers,
        limits: ParserLimits,
    ) -> Result<Matcher, FormError> {
        let (mut init, quiet) = (GrammarInit::Serialized(grammar), Logger::new(0, 0));
        if !numbers.is_empty() {
            let env = Some(self.vocabulary.env.clone());
            let read = AssertUnwindSafe(|| init.to_internal(env, limits.clone()));
            let (rules, mut lexer) = catch_unwind(read).map_err(|e| FormError::of_library(&e))?;
            numbers.put_into(&mut lexer).map_err(FormError::unusable)?;
            init = GrammarInit::Internal(rules, lexer);
        }
        let parser = self.factory.create_parser_from_init_ext(init, quiet, InferenceCapabilities::default(), limits);
        let parser = parser.map_err(|e| FormError::of_library(&e))?;
        Ok(Matcher::new(Ok(parser)).into_cancellable())
    }
}

/// Ends what a matcher does when that takes too long.
fn watch_over(matcher: &Matcher, watch: &Watch) -> Arc<WatchedMatcher> {
    watch.over(matcher.cancellation_handle().unwrap_or_default())
}

fn parser_limits(lark: bool) -> ParserLimits {
    let (items, place) = match lark {
        true => (limits::LARK_TOKEN_ITEMS_MAX, limits::LARK_PLACE_ITEMS_MAX),
        false => (limits::GRAMMAR_TOKEN_ITEMS_MAX, limits::GRAMMAR_PLACE_ITEMS_MAX),
    };
    ParserLimits {
        initial_lexer_fuel: limits::GRAMMAR_COMPILE_STEPS_MAX,
        step_lexer_fuel: limits::GRAMMAR_TOKEN_STEPS_MAX,
        step_max_items: items,
        max_items_in_row: place,
        max_grammar_size: limits::GRAMMAR_SYMBOLS_MAX,
        max_lexer_states: limits::GRAMMAR_STATES_MAX,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// What the library reads of a structure.
struct TopLevel {
    grammar: TopLevelGrammar,
    /// A text that is the same for equal grammars.
    key: String,
    keys: Option<KeyTracker>,
    numbers: ExactNumbers,
}

fn top_level(structure: &Structure, tokenizer: &Tokenizer, written: CallForm) -> Result<TopLevel, FormError> {
    let mut numbers = ExactNumbers::default();
    let form = structure.form.as_ref().map(|form| form_grammar(form, &mut numbers)).transpose()?;
    let mut calls = structure.calls.as_ref().map(|calls| calls.rules(tokenizer, written)).transpose()?;
    if let Some(calls) = &mut calls {
        numbers.extend(std::mem::take(&mut calls.numbers));
    }
    let open = form.as_ref().and_then(|form| open_keys(form.json_schema.as_ref()?));
    let open = open.max(calls.as_ref().and_then(|calls| calls.open_keys));
    let in_json = calls.as_ref().filter(|_| written == CallForm::Tags).map(|calls| calls.in_json.clone());
    let keys = open.map(KeyTracker::new).map(|keys| match in_json {
        Some(arguments) => keys.with_tags(arguments),
        None => keys,
    });
    let grammars = match (form, calls.map(|calls| calls.text)) {
        (Some(form), None) => vec![form],
        (None, Some(calls)) => vec![GrammarWithLexer::from_lark(format!("start: calls\n{calls}"))],
        (Some(form), Some(calls)) => {
            let main = GrammarWithLexer::from_lark(format!("start: @{ANSWER} | calls\n{calls}"));
            vec![main, GrammarWithLexer { name: Some(ANSWER.into()), ..form }]
        }
        (None, None) => return Err(FormError::unusable("it says nothing".into())),
    };
    let must = structure.calls.as_ref().is_some_and(|calls| calls.must);
    let parts = grammars.iter().map(|g| json!([g.json_schema, g.lark_grammar]));
    let key = json!([must, parts.collect::<Vec<_>>()]).to_string();
    Ok(TopLevel { grammar: TopLevelGrammar { grammars, max_tokens: None }, key, keys, numbers })
}

fn form_grammar(form: &AnswerForm, numbers: &mut ExactNumbers) -> Result<GrammarWithLexer, FormError> {
    check::within_limits(form)?;
    Ok(match form {
        AnswerForm::Json { schema, compact, closed } => {
            let schema = numbers::held(schema);
            let schema = references::decoded(&schema);
            check::schema_within_limits(&schema)?;
            GrammarWithLexer::from_json_schema(with_options(&schema, *compact, *closed, numbers)?)
        }
        AnswerForm::Regex(regex) => GrammarWithLexer::from_regex(regex),
        AnswerForm::Choice(texts) => GrammarWithLexer::from_lark(choice(texts)),
        AnswerForm::Lark(lark) => GrammarWithLexer::from_lark(lark.clone()),
        AnswerForm::Gbnf(text) => {
            let lark = gbnf::as_lark(text)?;
            lark::within_limits(&lark)?;
            GrammarWithLexer::from_lark(lark)
        }
    })
}

/// A schema with how its JSON is written beside it.
fn with_options(schema: &Json, compact: bool, closed: bool, numbers: &mut ExactNumbers) -> Result<Json, FormError> {
    let known = |numbers: &mut ExactNumbers| {
        let followed = endless::left_out(numbers::followed(schema, numbers)?)?;
        Ok::<_, FormError>(schema::in_known_words(&followed, closed))
    };
    let mut own = ExactNumbers::default();
    let mut schema = known(&mut own)?;
    if own.define(&mut schema) {
        numbers.extend(own);
    } else {
        schema = known(&mut ExactNumbers::unwanted())?;
    }
    let mut object = match schema {
        Json::Object(object) => object,
        Json::Bool(true) => Default::default(),
        Json::Bool(false) => return Err(FormError::unusable(NOTHING.into())),
        _ => return Err(FormError::unusable("it must be an object or `true`".into())),
    };
    if object.contains_key("x-guidance") {
        return Err(FormError::unusable("`x-guidance` is not supported".into()));
    }
    let white_space = if compact { Json::Null } else { WHITE_SPACE.into() };
    let options = json!({"whitespace_flexible": !compact, "whitespace_pattern": white_space, "coerce_one_of": true});
    object.insert("x-guidance".into(), options);
    Ok(Json::Object(object))
}

fn choice(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| Json::from(text.as_str()).to_string()).collect();
    // One expression, or each text would be a place of its own for the parser.
    format!("start: CHOICE\nCHOICE: {}", quoted.join(" | "))
}
