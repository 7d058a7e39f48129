//! Conversations as templates read them: messages of a role, each with the members that belong to it.

mod spelled;

use serde_json::{Map, Value as Json};

/// A conversation as templates expect it. Checked by whoever made it; a template may still object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// The messages so far. Templates take a system message at the beginning alone: one that stands later is shown to
    /// them as a user's, between tags that no user can write.
    pub messages: Vec<Message>,
    /// Tool declarations as the caller wrote them; none is the same as no tools at all.
    pub tools: Vec<RawJson>,
    /// More variables, from `chat_template_kwargs`.
    pub options: Map<String, Json>,
    /// The last message is the assistant's and is not over: what comes goes on with it.
    pub continues: bool,
}

/// One message of a conversation. A member that is not there is not shown to the template, but for the content.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The speaker of the message.
    pub role: Role,
    /// The text of all its parts, joined, so that no two of them can make a control token together.
    pub content: Option<String>,
    /// The thought before an assistant's answer.
    pub reasoning: Option<String>,
    /// Calls of tools that an assistant made.
    pub tool_calls: Vec<ToolCall>,
    /// Id of the call that a tool's result answers.
    pub tool_call_id: Option<String>,
    /// Name of the speaker.
    pub name: Option<String>,
}

/// The speaker of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The operator of an application.
    System,
    /// The user of an application.
    User,
    /// The model that answers.
    Assistant,
    /// A tool that gives its result.
    Tool,
}

/// A call of a tool that an assistant made.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Id that the tool's result refers to.
    pub id: Option<String>,
    /// Name of the tool.
    pub name: String,
    /// The arguments, which are an object.
    pub arguments: RawJson,
    /// Place of the id among the call's members.
    pub id_place: IdPlace,
}

/// Where a call's id stands. Templates that write a call as JSON show its members in their order, and a client's
/// prompts must not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdPlace {
    /// Between the type and the function.
    BeforeFunction,
    /// After all other members.
    AfterFunction,
}

/// JSON of a caller that only the template reads: schemas and arguments, in the order of their members and with the
/// digits of their numbers; see [`super::template::written`].
#[derive(Clone, Debug, PartialEq)]
pub struct RawJson(pub Json);

/// A member of a message, as a template reads it under the member's name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MessageMember<'a> {
    /// The speaker of the message.
    Role(Role),
    /// The text of the message, if it has one.
    Content(Option<&'a str>),
    /// Text of any other member.
    Text(&'a str),
    /// The calls of tools that an assistant made.
    Calls(&'a [ToolCall]),
}

impl Role {
    /// The word for it in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

impl Message {
    /// A message that has nothing but a text.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        let content = Some(content.into());
        Self { role, content, reasoning: None, tool_calls: Vec::new(), tool_call_id: None, name: None }
    }

    /// Names and values of its members, in the order in which templates see them.
    pub fn members(&self) -> impl Iterator<Item = (&'static str, MessageMember<'_>)> {
        let text = |name| move |text| (name, MessageMember::Text(text));
        let calls = (!self.tool_calls.is_empty()).then_some(("tool_calls", MessageMember::Calls(&self.tool_calls)));
        [
            Some(("role", MessageMember::Role(self.role))),
            Some(("content", MessageMember::Content(self.content.as_deref()))),
            self.reasoning.as_deref().map(text("reasoning_content")),
            calls,
            self.tool_call_id.as_deref().map(text("tool_call_id")),
            self.name.as_deref().map(text("name")),
        ]
        .into_iter()
        .flatten()
    }
}
