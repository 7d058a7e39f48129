//! What a template writes around the results of calls, found once for all conversations that it writes alike. A round
//! of a turn then renders nothing: in the moment after a generation all of a template's interpreter is far from the
//! caches, and rendering takes longer than the rest of a round.

use crate::text::conversation::{Conversation, IdPlace, Message, RawJson, Role, ToolCall};
use crate::text::guard::Guard;
use chimere_engine::ids::TokenId;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::VecDeque;
use std::sync::Arc;

/// Frames that are kept, of the conversations that came last.
const KEPT_MAX: usize = 32;
/// Results of one round that have a frame; more are rendered.
const RESULTS_MAX: usize = 4;
/// Of the options of a conversation that has a frame, as JSON.
const OPTIONS_BYTES_MAX: usize = 256;
/// What a template would change if it wrote results in another way than as they are.
const PROBE: &str = "\"q\" \\ é <p> & {{ y }}\n z";

/// The frames of a template.
#[derive(Debug, Default)]
pub(super) struct ResultFrames(Mutex<VecDeque<(FrameKey, Option<Arc<ResultFrame>>)>>);

/// All that a frame depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FrameKey {
    results: usize,
    options: String,
    tools: usize,
    ends: Vec<TokenId>,
}

/// A template's words before, between and behind results, and whether it leaves out white space around each.
#[derive(Debug, PartialEq, Eq)]
struct ResultFrame {
    parts: Vec<String>,
    trims: bool,
}

impl ResultFrames {
    /// How many are kept.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// What a template writes behind the answer of a conversation whose last messages are the results of its calls.
    /// `None` where that depends on more than the results. `tail` renders it behind one of `ends`; it is asked for
    /// made-up ones.
    pub(super) fn tail(
        &self,
        conversation: &Conversation,
        (ends, guard): (&[TokenId], &Guard),
        tail: impl Fn(&Conversation) -> Option<String>,
    ) -> Option<String> {
        let said = conversation.messages.iter().rposition(|message| message.role == Role::Assistant)? + 1;
        let results = &conversation.messages[said..];
        let is_result = |message: &Message| message.role == Role::Tool && message.name.is_none();
        if !(1..=RESULTS_MAX).contains(&results.len()) || !results.iter().all(is_result) {
            return None;
        }
        let frame = self.frame(conversation, (results.len(), ends), tail)?;
        frame.around(results.iter().map(|result| result.content.as_deref()), guard)
    }

    fn frame(
        &self,
        conversation: &Conversation,
        (results, ends): (usize, &[TokenId]),
        tail: impl Fn(&Conversation) -> Option<String>,
    ) -> Option<Arc<ResultFrame>> {
        let options = serde_json::to_string(&conversation.options).ok().filter(|o| o.len() <= OPTIONS_BYTES_MAX)?;
        let key = FrameKey { results, options, tools: conversation.tools.len(), ends: ends.to_vec() };
        if let Some((_, frame)) = self.0.lock().iter().find(|(of, _)| *of == key) {
            return frame.clone();
        }
        let frame = ResultFrame::probed(conversation, results, tail).map(Arc::new);
        let mut kept = self.0.lock();
        kept.push_front((key, frame.clone()));
        kept.truncate(KEPT_MAX);
        frame
    }
}

impl ResultFrame {
    /// Of two conversations that have little but the results in common, one of them with white space around these.
    fn probed(
        conversation: &Conversation,
        results: usize,
        tail: impl Fn(&Conversation) -> Option<String>,
    ) -> Option<Self> {
        let probes: Vec<String> = (0..results).map(|at| format!("{at}{PROBE}{at}")).collect();
        let spaced: Vec<String> = probes.iter().map(|probe| format!("\n {probe} \n")).collect();
        let plain = tail(&made_up(conversation, ["a", "", "f", "call00000"], &probes))?;
        let other = tail(&made_up(conversation, ["", "b", "g", "call90000"], &spaced))?;
        let trims = plain == other;
        let with_space = probes.iter().zip(&spaced).fold(plain.clone(), |text, (probe, to)| text.replace(probe, to));
        if !trims && with_space != other {
            return None;
        }
        let (mut parts, mut rest) = (Vec::with_capacity(results + 1), plain.as_str());
        for probe in &probes {
            let (part, behind) = rest.split_once(probe.as_str())?;
            parts.push(part.to_owned());
            rest = behind;
        }
        parts.push(rest.to_owned());
        let once = parts.iter().all(|part| !part.contains(PROBE));
        once.then_some(Self { parts, trims })
    }

    /// The text with these results. `None` for one that a template could take for nothing, or trim in another way.
    fn around<'a>(&self, results: impl Iterator<Item = Option<&'a str>>, guard: &Guard) -> Option<String> {
        let mut text = self.parts[0].clone();
        for (result, part) in results.zip(&self.parts[1..]) {
            let shown = guard.all(result?);
            let trimmed = shown.trim_matches([' ', '\n', '\r', '\t']);
            let is_plain = |c: char| !c.is_whitespace() && !c.is_control();
            if !trimmed.starts_with(is_plain) || !trimmed.ends_with(is_plain) {
                return None;
            }
            text.push_str(if self.trims { trimmed } else { &shown });
            text.push_str(part);
        }
        Some(text)
    }
}

/// A conversation of this kind with the results of calls, behind an answer with this text, this thought, and calls of
/// this name and id.
fn made_up(conversation: &Conversation, [text, thought, name, id]: [&str; 4], results: &[String]) -> Conversation {
    let call = |at: usize| ToolCall {
        id: Some(format!("{id}{at}")),
        name: name.to_owned(),
        arguments: RawJson(json!({name: text})),
        id_place: IdPlace::BeforeFunction,
    };
    let said = Message {
        reasoning: Some(thought.to_owned()).filter(|thought| !thought.is_empty()),
        tool_calls: (0..results.len()).map(call).collect(),
        ..Message::new(Role::Assistant, text)
    };
    let answer = |(at, result): (usize, &String)| Message {
        tool_call_id: Some(format!("{id}{at}")),
        ..Message::new(Role::Tool, result.as_str())
    };
    let answers = results.iter().enumerate().map(answer);
    let messages = [Message::new(Role::User, "."), said].into_iter().chain(answers).collect();
    Conversation { messages, ..conversation.clone() }
}
