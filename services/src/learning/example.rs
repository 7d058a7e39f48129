//! An example: a conversation, the answer that should be given, and how anybody knows.

use chimere_engine::ids::KeyId;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

/// Seconds of a day.
const DAY: u64 = 86_400;

/// A conversation, an answer, and how anybody knows that it is right or wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// The messages before the answer, as chat has them.
    pub messages: Vec<Json>,
    /// The functions that were declared, as chat has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Json>,
    /// The answer that should be given.
    pub answer: String,
    /// The answer that was given in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<String>,
    /// The name that was asked: the model's, an adapter's or a pipeline's.
    pub model: String,
    /// How anybody knows that the answer is right; nobody does where there is none, and nothing is trained on it.
    #[serde(default)]
    pub truth: Vec<TruthSource>,
    /// What somebody thought of the answer that was given: -1, 0 or 1. It orders what people look at, and no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rating: Option<i8>,
    /// The reason in somebody's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it is an example of, in the operator's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// What it is used for.
    pub set: ExampleSet,
    /// Seconds since 1970 when it came.
    pub at: u64,
}

/// How anybody knows that an answer is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TruthSource {
    /// Somebody wrote the answer that should be given.
    Correction,
    /// An exact check of the answer.
    ExactCheck,
    /// The answer is JSON of a schema.
    Schema,
    /// A tool that looks at answers did not fail.
    ToolTest,
    /// Each of its citations was found in the passage.
    VerifiedCitation,
    /// The operator brought it.
    Operator,
}

/// What an example is used for. One of the gate or the vault never trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExampleSet {
    /// Training: eight of ten.
    Train,
    /// The questions that each candidate is asked: one of ten.
    Gate,
    /// The questions that only a candidate is asked which has passed: one of ten.
    Vault,
}

impl ExampleSet {
    /// The set of all that an account brings on one day: what was said in one sitting is not in two of them.
    pub fn of(account: KeyId, at: u64) -> Self {
        let mut hash = Sha256::new();
        hash.update(account.0.to_le_bytes());
        hash.update((at / DAY).to_le_bytes());
        match hash.finalize()[0] % 10 {
            0..8 => Self::Train,
            8 => Self::Gate,
            _ => Self::Vault,
        }
    }

    /// The word in files and replies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Gate => "gate",
            Self::Vault => "vault",
        }
    }
}

impl Example {
    /// The id of what it says: a hash of messages, tools and both answers. Whoever says it again, and how anybody knows,
    /// does not change it.
    pub fn id(&self) -> String {
        let said = serde_json::json!([self.messages, self.tools, self.answer, self.rejected]);
        let hash = Sha256::digest(said.to_string());
        hash[..16].iter().fold("ex_".to_owned(), |out, byte| out + &format!("{byte:02x}"))
    }

    /// Texts of the messages before the answer.
    pub fn questions(&self) -> impl Iterator<Item = &str> {
        self.messages.iter().flat_map(|message| texts_of(&message["content"]))
    }

    /// All texts of it.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let more = [Some(&self.answer), self.rejected.as_ref(), self.reason.as_ref()];
        self.questions().chain(more.into_iter().flatten().map(String::as_str))
    }
}

/// The texts of a message's content: one, or those of its parts.
fn texts_of(content: &Json) -> Box<dyn Iterator<Item = &str> + '_> {
    match content {
        Json::String(text) => Box::new(std::iter::once(text.as_str())),
        Json::Array(parts) => Box::new(parts.iter().filter_map(|part| part["text"].as_str())),
        _ => Box::new(std::iter::empty()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    pub(in crate::learning) fn example(question: &str, answer: &str) -> Example {
        Example {
            messages: vec![json!({"role": "user", "content": question})],
            tools: Vec::new(),
            answer: answer.to_owned(),
            rejected: None,
            model: "m".to_owned(),
            truth: vec![TruthSource::Correction],
            rating: None,
            reason: None,
            family: None,
            set: ExampleSet::Train,
            at: 0,
        }
    }

    #[test]
    fn one_account_s_day_is_in_one_set_and_sets_have_their_shares() {
        let account = KeyId(7);
        assert_eq!(ExampleSet::of(account, 5 * DAY), ExampleSet::of(account, 6 * DAY - 1));
        let of = |set| (0..10_000).filter(|n| ExampleSet::of(KeyId(*n), DAY * (n / 100)) == set).count();
        let (train, gate, vault) = (of(ExampleSet::Train), of(ExampleSet::Gate), of(ExampleSet::Vault));
        assert!((7_800..8_300).contains(&train) && (850..1_150).contains(&gate), "{train} {gate} {vault}");
        assert_eq!(train + gate + vault, 10_000);
    }

    #[test]
    fn an_id_is_of_what_is_said_and_not_of_who_knows() {
        let one = example("a", "b");
        let more = Example { truth: Vec::new(), rating: Some(1), at: 9, ..one.clone() };
        assert_eq!(one.id(), more.id());
        assert_ne!(one.id(), example("a", "c").id());
        assert_ne!(one.id(), Example { rejected: Some("x".into()), ..one.clone() }.id());
    }

    #[test]
    fn texts_are_those_of_parts_too() {
        let mut parts = example("", "c");
        parts.messages = vec![json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]})];
        assert_eq!(parts.texts().collect::<Vec<_>>(), ["a", "c"]);
    }
}
