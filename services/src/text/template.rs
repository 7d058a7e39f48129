//! The model's chat template, run as Hugging Face's tools run it: same whitespace rules, same JSON, same spelling of values.

mod python;
pub mod written;

use super::guard::Guard;
use crate::limits;
use minijinja::{Environment, Error, ErrorKind, Value};
use serde_json::Value as Json;
use std::collections::BTreeSet;
use written::Written;

/// Name of the only template in its environment.
const NAME: &str = "chat_template";
/// What the service itself gives to a template, so that no request can.
const OWN: [&str; 3] = ["messages", "tools", "add_generation_prompt"];

/// A conversation as templates expect it. Checked by whoever made it; a template may still object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// Objects with `role`, `content` and what else belongs to the role.
    pub messages: Vec<Json>,
    /// Tool declarations as the caller wrote them; none is the same as no tools at all.
    pub tools: Vec<Json>,
    /// More variables, from `chat_template_kwargs`.
    pub options: serde_json::Map<String, Json>,
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
}

impl ChatTemplate {
    /// Compiles a template. `guard` knows the tokens that conversations must not contain.
    pub fn new(source: &str, guard: Guard) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        let syntax = environment.syntax().to_builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(explain)?);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_unknown_method_callback(python::method);
        environment.set_formatter(|out, _, value| Ok(out.write_str(&python::text(value))?));
        environment.add_filter("tojson", python::tojson);
        environment.add_filter("trim", python::trim);
        environment.add_test("number", python::is_number);
        environment.add_filter("string", |value: &Value| python::text(value));
        environment.add_function("raise_exception", |message: String| Err::<Value, _>(objection(message)));
        environment.set_fuel(Some(limits::TEMPLATE_STEPS_MAX));
        environment.add_template_owned(NAME, source.to_owned()).map_err(explain)?;
        let options = options(&environment).map_err(explain)?;
        Ok(Self { environment, guard, options })
    }

    /// The prompt for the assistant's next turn. What users wrote is guarded; see [`super::guard`].
    pub fn render(&self, conversation: &Conversation) -> Result<String, TemplateError> {
        let list = |values: &[Json]| Value::from(values.iter().map(|v| self.value(v)).collect::<Vec<_>>());
        let tools = if conversation.tools.is_empty() { Value::from(()) } else { list(&conversation.tools) };
        let own = [list(&conversation.messages), tools, Value::from(true)];
        let options = conversation.options.iter().map(|(name, v)| (name.clone(), self.value(v)));
        let all = options.chain(OWN.map(str::to_owned).into_iter().zip(own));
        let template = self.environment.get_template(NAME).map_err(explain)?;
        template.render(Value::from_pairs(all)).map_err(explain)
    }

    /// Names that the template looks up beyond what it is given: those that `chat_template_kwargs` may set.
    pub fn options(&self) -> impl Iterator<Item = &str> {
        self.options.iter().map(String::as_str)
    }

    /// A JSON value as the template's, with every string and key guarded.
    fn value(&self, json: &Json) -> Value {
        match json {
            Json::Null => Value::from(()),
            Json::Bool(b) => Value::from(*b),
            Json::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(n), _) => Value::from(n),
                (None, Some(n)) => Value::from(n),
                (None, None) => Value::from(n.as_f64()),
            },
            Json::String(s) => Value::from(self.guard.guarded(s)),
            Json::Array(items) => Value::from(items.iter().map(|v| self.value(v)).collect::<Vec<_>>()),
            Json::Object(map) if let Some(number) = written::number(map) => Written::value(number),
            Json::Object(map) => Value::from_pairs(map.iter().map(|(k, v)| (self.guard.guarded(k).into_owned(), self.value(v)))),
        }
    }
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
        cause = this.source();
    }
    let message = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    TemplateError::Failed { line: error.line().unwrap_or(0), message }
}

#[cfg(test)]
mod tests;
