//! The model's chat template, run as Hugging Face's tools run it: same whitespace rules, same JSON, same spelling of
//! values.

mod bounds;
mod checked;
mod filters;
mod python;
pub mod written;

use super::guard::Guard;
use crate::limits;
use bounds::Overrun;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value, machinery};
use serde_json::Value as Json;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use written::Written;

/// Name of the only template in its environment.
const NAME: &str = "chat_template";
/// What the service itself gives to a template, so that no request can.
const OWN: [&str; 3] = ["messages", "tools", "add_generation_prompt"];

/// Stands at the end of a message that is not over, so that its place is found where the template put it. A
/// noncharacter, which interchanged text does not contain; where it does, the last one counts.
const END: char = '\u{fdd2}';
/// Why a message cannot be gone on with.
const NOT_SHOWN: &str = "this model's template leaves out the last message, so nothing can go on with it";

/// A conversation as templates expect it. Checked by whoever made it; a template may still object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// Objects with `role`, `content` and what else belongs to the role.
    pub messages: Vec<Json>,
    /// Tool declarations as the caller wrote them; none is the same as no tools at all.
    pub tools: Vec<Json>,
    /// More variables, from `chat_template_kwargs`.
    pub options: serde_json::Map<String, Json>,
    /// The last message is the assistant's and is not over: what comes goes on with it.
    pub continues: bool,
}

/// A compiled template. Rendering takes a while for long conversations, so the async threads leave it to the pool.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    guard: Guard,
    options: BTreeSet<String>,
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
    /// Compiles a template. `guard` knows the tokens that conversations must not contain.
    pub fn new(source: &str, guard: Guard) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        let syntax = environment.syntax().to_builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(explain)?);
        checked::check_source(source, environment.syntax())?;
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(python::method);
        environment.set_formatter(show);
        filters::add(&mut environment);
        environment.add_test("number", python::is_number);
        environment.add_function("raise_exception", |message: String| Err::<Value, _>(objection(message)));
        environment.set_fuel(Some(limits::TEMPLATE_STEPS_MAX));
        environment.add_template_owned(NAME, source.to_owned()).map_err(explain)?;
        let options = options(&environment).map_err(explain)?;
        let template = Self { environment, guard, options };
        template.checked(|_| Ok(()))?;
        Ok(template)
    }

    /// The template as it was written.
    pub fn source(&self) -> Option<String> {
        self.environment.get_template(NAME).ok().map(|template| template.source().to_owned())
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
        let mut marked = conversation.clone();
        let last = marked.messages.last_mut().and_then(|message| message.get_mut("content"));
        if let Some(Json::String(content)) = last {
            content.push(END);
        }
        let mut text = self.render_with(&marked, false)?;
        let end = text.rfind(END).ok_or_else(|| TemplateError::Objection(NOT_SHOWN.into()))?;
        text.truncate(end);
        Ok(text)
    }

    fn render_with(&self, conversation: &Conversation, open: bool) -> Result<String, TemplateError> {
        let user = |v: &Json| self.value(v, &|text| self.guard.guarded(text));
        let message = |v: &Json| match v["role"].as_str() {
            Some("tool") => self.value(v, &|text| self.guard.guarded_result(text)),
            _ => user(v),
        };
        let tools = conversation.tools.iter().map(user).collect::<Vec<_>>();
        let tools = if tools.is_empty() { Value::from(()) } else { Value::from(tools) };
        let messages = conversation.messages.iter().map(message).collect::<Vec<_>>();
        let own = [Value::from(messages), tools, Value::from(open)];
        let options = conversation.options.iter().map(|(name, v)| (name.clone(), user(v)));
        let all = options.chain(OWN.map(str::to_owned).into_iter().zip(own));
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

    /// A JSON value as the template's, with every string and key guarded.
    fn value(&self, json: &Json, guarded: &impl Fn(&str) -> Cow<'_, str>) -> Value {
        match json {
            Json::Null => Value::from(()),
            Json::Bool(b) => Value::from(*b),
            Json::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(n), _) => Value::from(n),
                (None, Some(n)) => Value::from(n),
                (None, None) => Value::from(n.as_f64()),
            },
            Json::String(s) => Value::from(guarded(s)),
            Json::Array(items) => Value::from(items.iter().map(|v| self.value(v, guarded)).collect::<Vec<_>>()),
            Json::Object(map) if let Some(number) = written::number(map) => Written::value(number),
            Json::Object(map) => {
                Value::from_pairs(map.iter().map(|(k, v)| (guarded(k).into_owned(), self.value(v, guarded))))
            }
        }
    }
}

/// Writes a value as Python would.
fn show(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    bounds::weigh(state, value)?;
    Ok(match value.as_str() {
        Some(text) => out.write_str(text),
        None => out.write_str(&python::text(value)),
    }?)
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
