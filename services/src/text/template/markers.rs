//! The markers of a template: the markup that it writes around what others say. They are found in conversations that it
//! renders, whose contents are words that stand nowhere else, and in the texts that its source spells out, for branches
//! that none of these conversations takes.

use super::{ChatTemplate, Conversation, TemplateError};
use crate::text::conversation::{IdPlace, Message, RawJson, Role, ToolCall};
use crate::text::tokenizer::Tokenizer;
use minijinja::machinery::{Token, tokenize};
use regex::Regex;
use serde_json::{Map, json};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Bytes of the longest text that is taken for a marker.
const MARKER_BYTES_MAX: usize = 64;
/// Markers of one template; those that are around have some twenty.
const MARKERS_MAX: usize = 512;
/// Bytes of a rendered conversation that are looked at: what templates say by themselves has a few thousand.
const LITERALS_BYTES_MAX: usize = 256 << 10;

/// What the conversations say. It has nine letters and digits because templates check that of a call's id.
static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new("(?i)qzxv[0-9]{3}yy").expect("a valid pattern"));
/// Markup by its form: `<tag>`, `</tag>`, `<|tag|>`, `[TAG]`, `[/TAG]`.
static TAG: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"<[^<>\s=\-0-9][^<>\s]*>|\[/?[A-Z][A-Z0-9_ ]*\]").expect("a valid pattern"));
/// What stands before a name in a tag: `<function=`.
static OPEN_TAG: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"<[^<>\s=\-0-9][^<>\s]+$").expect("a valid pattern"));

fn word(n: u32) -> String {
    format!("qzxv{n:03}yy")
}

/// The markers of a template.
pub(super) fn markers(template: &ChatTemplate) -> BTreeSet<String> {
    let mut markers = Markers { tokenizer: template.guard.tokenizer(), found: BTreeSet::new() };
    for text in texts(template.source().as_deref().unwrap_or_default()) {
        markers.add_markup(&text);
    }
    for (conversation, open) in conversations() {
        match template.render_with(&conversation, open) {
            Ok(text) if text.len() <= LITERALS_BYTES_MAX => {
                markers.add_rendered(&text, conversation.tools.is_empty() && conversation.options.is_empty());
            }
            // It takes too much for anything, so that each conversation would take as long.
            Err(TemplateError::TooLong | TemplateError::TooLarge) | Ok(_) => break,
            Err(_) => {}
        }
    }
    markers.found
}

/// Markers that were found so far.
struct Markers<'a> {
    tokenizer: &'a Tokenizer,
    found: BTreeSet<String>,
}

impl Markers<'_> {
    fn add(&mut self, text: &str) {
        if text.len() <= MARKER_BYTES_MAX && self.found.len() < MARKERS_MAX {
            self.found.insert(text.to_owned());
        }
    }

    /// Added tokens and tags of a text. Whether there are any.
    fn add_markup(&mut self, text: &str) -> bool {
        let (tokens, between) = self.tokenizer.cut(text);
        let tags: Vec<&str> = between.iter().flat_map(|text| TAG.find_iter(text)).map(|tag| tag.as_str()).collect();
        tokens.iter().chain(&tags).for_each(|marker| self.add(marker));
        !tokens.is_empty() || !tags.is_empty()
    }

    /// What stands around the words of a rendered conversation. Where `turns` alone divide them and one has no markup
    /// to do so, the lines beside the words do it: `### Response:`.
    fn add_rendered(&mut self, text: &str, turns: bool) {
        let literals: Vec<&str> = WORD.split(text).collect();
        for (i, literal) in literals.iter().enumerate() {
            let (first, last) = (i == 0, i + 1 == literals.len());
            if let Some(open) = OPEN_TAG.find(literal).filter(|_| !last) {
                self.add(open.as_str());
            }
            if !self.add_markup(literal) && turns {
                let mut lines = lines(literal);
                let (begins, ends) = (lines.next(), lines.next_back());
                // What stands before all words is a preamble but for its last line.
                let begins = begins.filter(|_| !first || ends.is_none());
                begins.into_iter().chain(ends).for_each(|line| self.add(line));
            }
        }
    }
}

/// Lines that are more than punctuation or a bare word: trimmed, but for the line break before them.
fn lines(text: &str) -> impl DoubleEndedIterator<Item = &str> {
    let mut starts: Vec<usize> = vec![0];
    starts.extend(text.match_indices('\n').map(|(at, _)| at));
    let ends: Vec<usize> = starts[1..].iter().copied().chain([text.len()]).collect();
    let lines = starts.into_iter().zip(ends).map(|(start, end)| text[start..end].trim_end());
    let lines = lines.map(|line| if line.starts_with('\n') { line } else { line.trim_start() });
    let marks = |line: &&str| {
        let word = line.chars().any(char::is_alphanumeric);
        word && !line.chars().all(char::is_alphanumeric)
    };
    lines.filter(marks).collect::<Vec<_>>().into_iter()
}

/// The texts that a template's source spells out.
fn texts(source: &str) -> Vec<String> {
    let mut texts = Vec::new();
    for token in tokenize(source, false, Default::default()) {
        match token {
            Ok((Token::TemplateData(text) | Token::Str(text), _)) => texts.push(text.to_owned()),
            Ok((Token::String(text), _)) => texts.push(text.into()),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    texts
}

/// Conversations that take what templates have of branches: with and without a system prompt, thoughts, tools, one call
/// or two, results in the middle and at the end, documents. Each with whether the assistant's turn is opened.
fn conversations() -> impl Iterator<Item = (Conversation, bool)> {
    let thought = Message { reasoning: Some(word(3)), ..said(Role::Assistant, 2) };
    let plain = vec![said(Role::User, 1), said(Role::Assistant, 2), said(Role::User, 4)];
    let thoughtful = vec![said(Role::User, 1), thought.clone(), said(Role::User, 4), thought];
    let contents = [Some(String::new()), Some(word(2)), None];
    let calls: Vec<_> = contents.iter().flat_map(|c| [1, 2].map(|count| called(c.clone(), count))).collect();
    let tools = vec![declared()];
    // Results without the calls before them, whose names and ids would stand between the contents.
    let results = [(Role::User, 1), (Role::Assistant, 2), (Role::Tool, 40), (Role::Tool, 41)];
    let results = results.map(|(role, n)| said(role, n)).to_vec();
    let results = [results.clone(), ended(results)];
    let mut all = vec![(plain.clone(), vec![]), (thoughtful, vec![]), (plain, tools.clone())];
    all.extend(results.map(|messages| (messages, vec![])));
    all.extend(calls.iter().cloned().chain(calls.iter().cloned().map(ended)).map(|messages| (messages, tools.clone())));
    let with_system = all.clone().into_iter().map(move |(mut messages, tools)| {
        messages.insert(0, said(Role::System, 0));
        (messages, tools)
    });
    let document = json!({"title": word(50), "text": word(51), "content": word(51)});
    let options = Map::from_iter([("documents".to_owned(), json!([document.clone(), document]))]);
    let made = move |(messages, tools)| Conversation { messages, tools, ..Default::default() };
    let conversations = all.into_iter().chain(with_system).map(made).flat_map(move |conversation| {
        let documents = Conversation { options: options.clone(), ..conversation.clone() };
        [(documents, true), (conversation, true)]
    });
    let closed = Conversation { messages: vec![said(Role::User, 1)], ..Default::default() };
    conversations.chain([(closed, false)])
}

fn said(role: Role, n: u32) -> Message {
    Message::new(role, word(n))
}

/// A question, as many calls after it, and their results.
fn called(content: Option<String>, count: u32) -> Vec<Message> {
    let call = |n| ToolCall {
        id: Some(word(10 + n)),
        name: word(20),
        arguments: RawJson(json!({word(30): word(31), word(32): [word(33)]})),
        id_place: IdPlace::BeforeFunction,
    };
    let calls = Message { content, tool_calls: (0..count).map(call).collect(), ..said(Role::Assistant, 0) };
    let result = |n| Message { tool_call_id: Some(word(10 + n)), name: Some(word(20)), ..said(Role::Tool, 40 + n) };
    [said(Role::User, 1), calls].into_iter().chain((0..count).map(result)).collect()
}

/// A conversation that goes on with an answer and another question.
fn ended(mut all: Vec<Message>) -> Vec<Message> {
    all.extend([said(Role::Assistant, 5), said(Role::User, 6)]);
    all
}

/// The declaration of a tool.
fn declared() -> RawJson {
    let properties = json!({word(30): {"type": "string", "description": word(22)}});
    let parameters = json!({"type": "object", "properties": properties, "required": [word(30)]});
    RawJson(json!({"type": "function",
        "function": {"name": word(20), "description": word(21), "parameters": parameters}}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::guard::Guard;
    use crate::text::tokenizer::golden;

    fn found(source: &str) -> Vec<String> {
        let template = ChatTemplate::new(source, Guard::new(&golden())).unwrap();
        markers(&template).into_iter().collect()
    }

    #[test]
    fn tags_are_markers_wherever_the_template_spells_them_out() {
        let source = "{% for m in messages %}{% if m.role == 'tool' %}<TOOL_RESPONSE>[{{ m.content }}]</TOOL_RESPONSE>\
                      {% elif m.role == 'judge' %}{{ '[VERDICT]' + m.content + '[/VERDICT]' }}\
                      {% else %}{{ '<|' + m.role + '|>' }} a < b and c > d {{ m.content }}{% endif %}{% endfor %}";
        let wanted = [
            "</TOOL_RESPONSE>",
            "<TOOL_RESPONSE>",
            "<|assistant|>",
            "<|system|>",
            "<|user|>",
            "[/VERDICT]",
            "[VERDICT]",
        ];
        assert_eq!(found(source), wanted);
    }

    #[test]
    fn a_tag_around_a_name_is_a_marker_up_to_the_name() {
        let source = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}<function={{ c.function.name }}>\
                      {% endfor %}{% endfor %}";
        assert_eq!(found(source), ["<function="]);
    }

    #[test]
    fn lines_are_markers_where_nothing_else_divides_turns() {
        let source = "{% for m in messages %}{% if m.role == 'user' %}Be kind.\n\n### Instruction:\n{{ m.content }}\
                      {% else %}\n\n### Response:\n{{ m.content }}\n\n{% endif %}{% endfor %}\
                      {% if add_generation_prompt %}\n\n### Response:\n{% endif %}";
        assert_eq!(found(source), ["\n### Instruction:", "\n### Response:", "\nBe kind."]);
        let source = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
        assert_eq!(found(source), ["\nassistant:", "\ntool:", "\nuser:", "system:", "user:"]);
        assert!(found("{% for m in messages %}{{ m.content }}, {% endfor %}").is_empty());
    }

    #[test]
    fn the_markup_of_the_golden_template_is_found() {
        let found = found(include_str!("../../../../engine/tests/golden/moe/chat_template.jinja"));
        for marker in ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_response>", "</tool_response>"] {
            assert!(found.iter().any(|text| text == marker), "{marker}: {found:?}");
        }
        assert!(found.len() < 40, "{found:?}");
    }
}
