//! From a remembered answer to an example: what somebody says of it, or what a program has checked of it.

use super::example::{Example, ExampleSet, TruthSource};
use super::recent::GivenAnswer;
use crate::text::conversation::MessageMember;
use crate::text::{Message, RawJson, ToolCall};
use chimere_engine::ids::KeyId;
use serde_json::{Map, Value as Json, json};

/// What somebody says of an answer, checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Feedback {
    /// -1, 0 or 1.
    pub rating: Option<i8>,
    /// The answer that should have been given.
    pub correction: Option<String>,
    /// The reason in somebody's words.
    pub reason: Option<String>,
    /// Words that somebody puts on it.
    pub labels: Vec<String>,
}

impl GivenAnswer {
    /// The example that somebody's feedback makes of it. With a correction that is what should be answered; without
    /// one, an answer with a thumb, from which nothing is learned.
    pub fn with_feedback(&self, account: KeyId, feedback: Feedback, now: u64) -> Example {
        let Feedback { rating, correction, reason, labels } = feedback;
        let given = self.example(account, Vec::new(), now);
        let Some(correction) = correction else {
            return Example { rating, reason, labels, ..given };
        };
        // Of an answer with calls the text is not what was answered, and who confirms an answer rejects none.
        let is_other = !self.calls && !self.text.trim().is_empty() && self.text.trim() != correction.trim();
        let rejected = is_other.then(|| self.text.clone());
        // The rating is of the answer that was given, and this example's answer is another one.
        Example { answer: correction, rejected, reason, labels, truth: vec![TruthSource::Correction], ..given }
    }

    /// The example that checks make of it.
    pub fn with_checks(&self, account: KeyId, truth: Vec<TruthSource>, now: u64) -> Example {
        self.example(account, truth, now)
    }

    fn example(&self, account: KeyId, truth: Vec<TruthSource>, now: u64) -> Example {
        Example {
            messages: self.messages.iter().map(message).collect(),
            tools: self.tools.iter().map(|RawJson(tool)| tool.clone()).collect(),
            answer: self.text.clone(),
            rejected: None,
            model: self.model.clone(),
            truth,
            rating: None,
            reason: None,
            labels: Vec::new(),
            family: None,
            set: ExampleSet::of(account, now),
            at: now,
        }
    }
}

/// A message as chat has it, without the thought before it. Arguments of calls are objects, as templates read them.
fn message(message: &Message) -> Json {
    let members = message.members().filter(|(name, _)| *name != "reasoning_content");
    let value = |member: MessageMember<'_>| match member {
        MessageMember::Role(role) => role.name().into(),
        MessageMember::Content(text) => text.into(),
        MessageMember::Text(text) => text.into(),
        MessageMember::Calls(calls) => calls.iter().map(call).collect(),
    };
    Json::Object(members.map(|(name, member)| (name.to_owned(), value(member))).collect::<Map<_, _>>())
}

fn call(call: &ToolCall) -> Json {
    let mut json = json!({"type": "function", "function": {"name": call.name, "arguments": call.arguments.0}});
    if let Some(id) = &call.id {
        json["id"] = id.clone().into();
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Role;

    fn given(text: &str, calls: bool) -> GivenAnswer {
        let thought = Message { reasoning: Some("hm".into()), ..Message::new(Role::Assistant, "one") };
        let messages = vec![thought, Message::new(Role::User, "two?")];
        GivenAnswer { messages, tools: Vec::new(), text: text.into(), calls, model: "m".into(), request_bytes: 0 }
    }

    #[test]
    fn a_correction_is_evidence_and_a_thumb_is_none() {
        let with = |given: GivenAnswer, feedback| given.with_feedback(KeyId(1), feedback, 0);
        let thumb = with(given("2", false), Feedback { rating: Some(1), ..Default::default() });
        assert_eq!((thumb.answer.as_str(), thumb.rating, thumb.is_evidence()), ("2", Some(1), false));
        let right = || Feedback { rating: Some(-1), correction: Some("3".into()), ..Default::default() };
        let corrected = with(given("2", false), right());
        assert_eq!((corrected.answer.as_str(), corrected.rejected.as_deref()), ("3", Some("2")));
        assert!(corrected.is_evidence() && corrected.rating.is_none());
        assert_eq!(with(given(" 3 ", false), right()).rejected, None, "it was right");
        assert_eq!(with(given("2", true), right()).rejected, None, "it called a tool");
        let said: Vec<Json> =
            vec![json!({"role": "assistant", "content": "one"}), json!({"role": "user", "content": "two?"})];
        assert_eq!(corrected.messages, said, "a thought is not kept");
    }
}
