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
    /// Words that somebody put on it, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
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
    /// A tool of a pipeline that looks at answers did not fail.
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
    /// All sets, from the one that trains to the one that is looked at least.
    pub const ALL: [Self; 3] = [Self::Train, Self::Gate, Self::Vault];

    /// The set of all that an account brings on one day: what was said in one sitting is not in two of them.
    pub fn of(account: KeyId, at: u64) -> Self {
        Self::drawn(&[&account.0.to_le_bytes(), &(at / DAY).to_le_bytes()])
    }

    /// The set of an example that was brought with many others, of which nobody knows when they were said.
    pub fn of_id(id: &str) -> Self {
        Self::drawn(&[id.as_bytes()])
    }

    fn drawn(parts: &[&[u8]]) -> Self {
        let hash = parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part)).finalize();
        match u16::from_le_bytes([hash[0], hash[1]]) % 10 {
            0..8 => Self::Train,
            8 => Self::Gate,
            _ => Self::Vault,
        }
    }

    /// Whether its examples train something.
    pub fn trains(self) -> bool {
        self == Self::Train
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
    /// The id of what it says: a hash of messages, tools and both answers. Whoever says it again, and how anybody
    /// knows, does not change it.
    pub fn id(&self) -> String {
        let said = serde_json::json!([self.messages, self.tools, self.answer, self.rejected]);
        let hash = Sha256::digest(said.to_string());
        hash[..16].iter().fold("ex_".to_owned(), |out, byte| out + &format!("{byte:02x}"))
    }

    /// Whether something may learn the answer: somebody knows that it is right, and nobody who saw it objects. A
    /// thumb alone never makes it so.
    pub fn is_evidence(&self) -> bool {
        let by_people = |truth: &TruthSource| matches!(truth, TruthSource::Correction | TruthSource::Operator);
        !self.truth.is_empty() && (self.rating != Some(-1) || self.truth.iter().any(by_people))
    }

    /// Texts of the messages before the answer, but for what an application says at the beginning of each conversation.
    pub(super) fn questions(&self) -> impl Iterator<Item = &str> {
        let asked = self.messages.iter().filter(|message| message["role"] != "system");
        asked.flat_map(|message| strings(&message["content"]))
    }

    /// All texts of it, names and arguments of tools included.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let more = [Some(&self.answer), self.rejected.as_ref(), self.reason.as_ref(), self.family.as_ref()];
        let more = more.into_iter().flatten().chain(&self.labels).map(String::as_str);
        self.messages.iter().chain(&self.tools).flat_map(strings).chain(more)
    }
}

/// The texts in a JSON value.
fn strings(value: &Json) -> Box<dyn Iterator<Item = &str> + '_> {
    match value {
        Json::String(text) => Box::new(std::iter::once(text.as_str())),
        Json::Array(parts) => Box::new(parts.iter().flat_map(strings)),
        Json::Object(members) => Box::new(members.values().flat_map(strings)),
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
            labels: Vec::new(),
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
    fn texts_are_those_of_parts_and_of_arguments_too_and_questions_are_not_an_application_s() {
        let mut parts = example("", "c");
        let call = json!({"type": "function", "function": {"name": "f", "arguments": {"key": "b"}}});
        parts.messages = vec![
            json!({"role": "system", "content": "s"}),
            json!({"role": "user", "content": [{"type": "text", "text": "a"}]}),
            json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        ];
        let texts: Vec<_> = parts.texts().collect();
        assert!(["s", "a", "b", "c"].iter().all(|text| texts.contains(text)), "{texts:?}");
        assert_eq!(parts.questions().filter(|text| text.len() == 1).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn a_thumb_never_makes_evidence_and_one_down_holds_back_what_only_a_program_has_checked() {
        let with = |truth: &[TruthSource], rating| Example { truth: truth.to_vec(), rating, ..example("a", "b") };
        assert!(!with(&[], Some(1)).is_evidence() && !with(&[], None).is_evidence());
        assert!(with(&[TruthSource::Schema], Some(1)).is_evidence());
        assert!(!with(&[TruthSource::Schema], Some(-1)).is_evidence());
        assert!(with(&[TruthSource::Schema, TruthSource::Correction], Some(-1)).is_evidence());
    }
}
