//! The model's chat template, run as Hugging Face's tools run it: same whitespace rules, same JSON, same spelling of
//! values.

mod bounds;
mod checked;
mod clock;
mod filters;
mod generation;
mod jinja;
mod json;
mod markers;
mod methods;
mod python;
pub mod written;

use super::conversation::{Conversation, IdPlace, Message, MessageMember, Role, ToolCall};
use super::guard::{END, Guard, REMINDER};
use crate::limits;
use bounds::Overrun;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value, machinery};
use serde_json::Value as Json;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;
use written::WrittenNumber;

/// Name of the only template in its environment.
const NAME: &str = "chat_template";
/// What the service itself gives to a template, so that no request can.
const OWN: [&str; 3] = ["messages", "tools", "add_generation_prompt"];
/// Why a message cannot be gone on with.
const NOT_SHOWN: &str = "this model's template leaves out the last message, so nothing can go on with it";

/// A compiled template. Rendering takes a while for long conversations, so the async threads leave it to the pool.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    guard: Guard,
    options: BTreeSet<String>,
    source: String,
    /// The template of conversations with tools, where a model has one of its own for them.
    of_tools: Option<Box<ChatTemplate>>,
}

/// The function that tells a template the time.
const NOW: &str = "strftime_now";

/// What a template is given beside conversations.
#[derive(Clone, Debug)]
pub struct TemplateGlobals {
    /// Text of the token that begins a sequence, where a model has one. Templates write it themselves, and no tokenizer
    /// here adds one, so that it stands once.
    pub bos_token: Option<String>,
    /// Text of the token that ends a sequence.
    pub eos_token: Option<String>,
    /// The clock of `strftime_now`.
    pub clock: fn() -> SystemTime,
}

impl Default for TemplateGlobals {
    fn default() -> Self {
        Self { bos_token: None, eos_token: None, clock: SystemTime::now }
    }
}

/// Why a conversation could not be rendered, or a template not compiled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TemplateError {
    /// The template itself objects to the conversation.
    #[error("{0}")]
    Objection(String),
    /// The template does not do with this conversation, or is no template.
    #[error("chat template, line {line}: {message}")]
    Failed {
        /// Where in the template.
        line: usize,
        /// What went wrong there.
        message: String,
    },
    /// The template takes too long.
    #[error("chat template needs more than {} steps for this conversation", limits::TEMPLATE_STEPS_MAX)]
    TooLong,
    /// The template makes too much.
    #[error("chat template makes more than {} bytes for this conversation", limits::TEMPLATE_BYTES_MAX)]
    TooLarge,
}

impl ChatTemplate {
    /// Compiles a template and finds its markers, which takes some milliseconds. `guard` knows the tokens that
    /// conversations must not contain.
    pub fn new(source: &str, guard: Guard) -> Result<Self, TemplateError> {
        Self::with_globals(source, guard, &TemplateGlobals::default())
    }

    /// Compiles a template of a model whose tokens that begin and end a sequence are known.
    pub fn with_globals(source: &str, guard: Guard, globals: &TemplateGlobals) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        let syntax = environment.syntax().to_builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(explain)?);
        checked::check_source(source, environment.syntax())?;
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(methods::method);
        environment.set_formatter(show);
        filters::add(&mut environment);
        environment.add_function("raise_exception", |message: String| Err::<Value, _>(objection(message)));
        add_globals(&mut environment, globals);
        environment.set_fuel(Some(limits::TEMPLATE_PROBE_STEPS_MAX));
        let unmarked = generation::without_marks(source, environment.syntax());
        environment.add_template_owned(NAME, unmarked).map_err(explain)?;
        let options = options(&environment).map_err(explain)?;
        let mut template = Self { environment, guard, options, source: source.to_owned(), of_tools: None };
        template.checked(|_| Ok(()))?;
        let markers = markers::markers(&template);
        template.guard = template.guard.with(markers);
        template.environment.set_fuel(Some(limits::TEMPLATE_STEPS_MAX));
        Ok(template)
    }

    /// The template with another one for conversations with tools.
    #[must_use]
    pub fn with_tool_template(mut self, of_tools: Self) -> Self {
        self.options.extend(of_tools.options.iter().cloned());
        self.of_tools = Some(Box::new(of_tools));
        self
    }

    /// The guard of conversations with tools, or of those without.
    pub(super) fn guard(&self, with_tools: bool) -> &Guard {
        self.of_tools.as_ref().filter(|_| with_tools).map_or(&self.guard, |of_tools| &of_tools.guard)
    }

    /// Whether a conversation may have other words at another time.
    pub(super) fn tells_time(&self) -> bool {
        self.source.contains(NOW) || self.of_tools.as_ref().is_some_and(|of_tools| of_tools.tells_time())
    }

    /// The template as it was written.
    pub fn source(&self) -> Option<String> {
        Some(self.source.clone())
    }

    /// The prompt for the assistant's next turn. What users wrote is guarded; see [`super::guard`].
    pub fn render(&self, conversation: &Conversation) -> Result<String, TemplateError> {
        self.render_with(conversation, true)
    }

    /// What was said, without the opening of the assistant's next turn.
    pub fn render_closed(&self, conversation: &Conversation) -> Result<String, TemplateError> {
        self.render_with(conversation, false)
    }

    /// What was said, up to where the last message ends, which is not over.
    pub fn render_unfinished(&self, conversation: &Conversation) -> Result<String, TemplateError> {
        let last = conversation.messages.len().checked_sub(1);
        let mut text = self.render_messages(conversation, false, last)?;
        let end = text.rfind(&[END; 2].iter().collect::<String>());
        let end = end.ok_or_else(|| TemplateError::Objection(NOT_SHOWN.into()))?;
        text.truncate(end);
        Ok(text)
    }

    fn render_with(&self, conversation: &Conversation, open: bool) -> Result<String, TemplateError> {
        self.render_messages(conversation, open, None)
    }

    /// `unfinished` is the place of the message at whose end [`END`] is to stand twice.
    fn render_messages(
        &self,
        conversation: &Conversation,
        open: bool,
        unfinished: Option<usize>,
    ) -> Result<String, TemplateError> {
        if let Some(of_tools) = self.of_tools.as_ref().filter(|_| !conversation.tools.is_empty()) {
            return of_tools.render_messages(conversation, open, unfinished);
        }
        let user = |v: &Json| self.value(v, Voice::Other);
        let tools = conversation.tools.iter().map(|tool| user(&tool.0)).collect::<Vec<_>>();
        let tools = if tools.is_empty() { Value::from(()) } else { Value::from(tools) };
        let messages = conversation.messages.iter().enumerate();
        let messages = messages.map(|(i, v)| self.message(v, i, unfinished == Some(i))).collect::<Vec<_>>();
        let own = [Value::from(messages), tools, Value::from(open)];
        let options = conversation.options.iter().map(|(name, v)| (name.clone(), user(v)));
        // Hugging Face's tools give documents always, or `None`.
        let all = [("documents".to_owned(), Value::from(()))]
            .into_iter()
            .chain(options)
            .chain(OWN.map(str::to_owned).into_iter().zip(own));
        let (root, mut text) = (Value::from_pairs(all), String::new());
        self.checked(|steps| {
            let mut out = machinery::make_string_output(&mut text);
            machinery::eval(&self.environment, steps, root, &BTreeMap::new(), &mut out, AutoEscape::None).map(drop)
        })?;
        Ok(text)
    }

    /// Does something with the template's instructions and the checks between them. They borrow from the environment,
    /// so they are made each time: that takes a few microseconds.
    fn checked(
        &self,
        run: impl FnOnce(&machinery::Instructions<'_>) -> Result<(), Error>,
    ) -> Result<(), TemplateError> {
        let template = self.environment.get_template(NAME).map_err(explain)?;
        run(&checked::checked(&machinery::get_compiled_template(&template).instructions)?).map_err(explain)
    }

    /// Names that the template looks up beyond what it is given: those that `chat_template_kwargs` may set.
    pub fn options(&self) -> impl Iterator<Item = &str> {
        self.options.iter().map(String::as_str)
    }

    /// A message as the template's value.
    fn message(&self, message: &Message, place: usize, unfinished: bool) -> Value {
        let reminds = message.role == Role::System && place > 0;
        let voice = if matches!(message.role, Role::Assistant | Role::System) { Voice::Model } else { Voice::Other };
        let member = |(name, member): (&'static str, MessageMember<'_>)| {
            let shown = match member {
                MessageMember::Role(_) if reminds => Value::from(Role::User.name()),
                MessageMember::Role(role) => Value::from(self.guarded(role.name(), voice)),
                MessageMember::Content(None) => Value::from(()),
                MessageMember::Content(Some(text)) if reminds => {
                    let [begin, end] = REMINDER;
                    Value::from(format!("{begin}\n{}\n{end}", self.guard.all(text)))
                }
                MessageMember::Content(Some(text)) if unfinished => {
                    Value::from(format!("{}{END}{END}", self.guarded(text, voice)))
                }
                MessageMember::Content(Some(text)) | MessageMember::Text(text) => {
                    Value::from(self.guarded(text, voice))
                }
                MessageMember::Calls(calls) => {
                    Value::from(calls.iter().map(|call| self.call(call)).collect::<Vec<_>>())
                }
            };
            (name, shown)
        };
        Value::from_pairs(message.members().map(member))
    }

    /// A call as the template's value. Its words are a client's, whatever model made it.
    fn call(&self, call: &ToolCall) -> Value {
        let text = |text: &str| Value::from(self.guarded(text, Voice::Other));
        let arguments = self.value(&call.arguments.0, Voice::Other);
        let function = Value::from_pairs([("name", text(&call.name)), ("arguments", arguments)]);
        let id = call.id.as_deref().map(|id| ("id", text(id)));
        let (before, after) = match call.id_place {
            IdPlace::BeforeFunction => (id, None),
            IdPlace::AfterFunction => (None, id),
        };
        let kind = [("type", text("function"))].into_iter();
        Value::from_pairs(kind.chain(before).chain([("function", function)]).chain(after))
    }

    fn guarded<'a>(&self, text: &'a str, voice: Voice) -> Cow<'a, str> {
        match voice {
            Voice::Model => self.guard.control(text),
            Voice::Other => self.guard.all(text),
        }
    }

    /// A JSON value as the template's, with every string and key guarded.
    fn value(&self, json: &Json, voice: Voice) -> Value {
        match json {
            Json::Null => Value::from(()),
            Json::Bool(b) => Value::from(*b),
            Json::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(n), _) => Value::from(n),
                (None, Some(n)) => Value::from(n),
                (None, None) => Value::from(n.as_f64()),
            },
            Json::String(s) => Value::from(self.guarded(s, voice)),
            Json::Array(items) => Value::from(items.iter().map(|v| self.value(v, voice)).collect::<Vec<_>>()),
            Json::Object(map) if let Some(number) = written::number(map) => WrittenNumber::value(number),
            Json::Object(map) => {
                Value::from_pairs(map.iter().map(|(k, v)| (self.guarded(k, voice).into_owned(), self.value(v, voice))))
            }
        }
    }
}

/// The speaker of a text, which decides whether control tokens in it are guarded.
#[derive(Clone, Copy, Debug)]
enum Voice {
    /// The model's own and the system's, whose markup templates look for: no control tokens.
    Model,
    /// Anybody else's: no marker of the template's.
    Other,
}

/// Writes a value as Python would.
fn show(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    bounds::weigh(state, value)?;
    Ok(match value.as_str() {
        Some(text) => out.write_str(text),
        None => out.write_str(&python::text(value)),
    }?)
}

/// The model's tokens, and the present time in the form that a format asks for.
fn add_globals(environment: &mut Environment<'_>, globals: &TemplateGlobals) {
    for (name, token) in [("bos_token", &globals.bos_token), ("eos_token", &globals.eos_token)] {
        if let Some(token) = token {
            environment.add_global(name, token.as_str());
        }
    }
    let clock = globals.clock;
    environment.add_function(NOW, move |format: &str| {
        if format.len() > clock::FORMAT_BYTES_MAX {
            let message = format!("strftime_now takes a format of at most {} bytes", clock::FORMAT_BYTES_MAX);
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        Ok(clock::strftime(clock(), format))
    });
}

/// Undeclared variables that are neither the service's own nor functions of the engine.
fn options(environment: &Environment<'_>) -> Result<BTreeSet<String>, Error> {
    let globals: BTreeSet<&str> = environment.globals().map(|(name, _)| name).collect();
    let names = environment.get_template(NAME)?.undeclared_variables(false).into_iter();
    Ok(names.filter(|n| !OWN.contains(&n.as_str()) && !globals.contains(n.as_str())).collect())
}

/// Marks an error as the template's own objection, among the engine's errors of the same kind.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Objection(String);

fn objection(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, "raised by the template").with_source(Objection(message))
}

fn explain(error: Error) -> TemplateError {
    if error.kind() == ErrorKind::OutOfFuel {
        return TemplateError::TooLong;
    }
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(this) = cause {
        if let Some(Objection(message)) = this.downcast_ref() {
            return TemplateError::Objection(message.clone());
        }
        if this.is::<Overrun>() {
            return TemplateError::TooLarge;
        }
        cause = this.source();
    }
    let message = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    TemplateError::Failed { line: error.line().unwrap_or(0), message }
}

#[cfg(test)]
mod tests;
