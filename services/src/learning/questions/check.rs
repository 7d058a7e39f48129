//! Exact checks of answers: a program says whether an answer is right, and no model is asked.

use regex::Regex;
use serde_json::Value as Json;

/// What a right answer looks like.
#[derive(Clone, Debug)]
pub enum AnswerCheck {
    /// It has all of these words or names, whatever their case, not as parts of others.
    Contains(Vec<String>),
    /// It has none of these.
    Lacks(Vec<String>),
    /// It is this text, but for space at its ends.
    Equals(String),
    /// This expression is found in it.
    Matches(Regex),
    /// It is a JSON value that has these members, with any values.
    Json(Vec<String>),
}

impl PartialEq for AnswerCheck {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Contains(a), Self::Contains(b)) | (Self::Lacks(a), Self::Lacks(b)) => a == b,
            (Self::Json(a), Self::Json(b)) => a == b,
            (Self::Equals(a), Self::Equals(b)) => a == b,
            (Self::Matches(a), Self::Matches(b)) => a.as_str() == b.as_str(),
            _ => false,
        }
    }
}

impl AnswerCheck {
    /// From its line's member: an object with one of the words `contains`, `lacks`, `equals`, `matches` and `json`.
    ///
    /// # Errors
    /// If it is none, in words.
    pub(super) fn read(check: &Json) -> Result<Self, String> {
        let wrong = || "`check` must be an object with one of contains, lacks, equals, matches and json".to_owned();
        let Some((word, value)) = check.as_object().filter(|one| one.len() == 1).and_then(|one| one.iter().next())
        else {
            return Err(wrong());
        };
        match (word.as_str(), value) {
            ("contains", value) => Ok(Self::Contains(texts("contains", value, 1)?)),
            ("lacks", value) => Ok(Self::Lacks(texts("lacks", value, 1)?)),
            ("json", value) => Ok(Self::Json(texts("json", value, 0)?)),
            ("equals", Json::String(text)) => Ok(Self::Equals(text.trim().to_owned())),
            ("matches", Json::String(text)) => {
                Regex::new(text).map(Self::Matches).map_err(|e| format!("`check.matches`: {e}"))
            }
            _ => Err(wrong()),
        }
    }

    /// Whether an answer is right.
    pub fn holds(&self, answer: &str) -> bool {
        match self {
            Self::Contains(all) => all.iter().all(|text| has_words(answer, text)),
            Self::Lacks(all) => !all.iter().any(|text| has_words(answer, text)),
            Self::Equals(text) => answer.trim() == text,
            Self::Matches(expression) => expression.is_match(answer),
            Self::Json(members) => serde_json::from_str::<Json>(answer.trim())
                .is_ok_and(|value| members.iter().all(|member| value.get(member).is_some())),
        }
    }
}

fn texts(word: &str, value: &Json, least: usize) -> Result<Vec<String>, String> {
    let wrong = || format!("`check.{word}` must be an array of texts, at least {least}, none of them empty");
    let list = value.as_array().filter(|list| list.len() >= least).ok_or_else(wrong)?;
    let text = |value: &Json| value.as_str().filter(|text| !text.trim().is_empty()).map(str::to_owned);
    list.iter().map(|value| text(value).ok_or_else(wrong)).collect()
}

/// Whether a text has some words in a row, not as parts of longer ones.
fn has_words(text: &str, words: &str) -> bool {
    let (text, words) = (text.to_lowercase(), words.trim().to_lowercase());
    let is_apart = |at: usize| {
        let (before, behind) = (text[..at].chars().next_back(), text[at + words.len()..].chars().next());
        !before.is_some_and(char::is_alphanumeric) && !behind.is_some_and(char::is_alphanumeric)
    };
    !words.is_empty() && text.match_indices(&words).any(|(at, _)| is_apart(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_check_holds_of_right_answers_alone() {
        let holds = |check: Json, answer: &str| AnswerCheck::read(&check).unwrap().holds(answer);
        assert!(holds(json!({"contains": ["Hastmere"]}), "It is hastmere."));
        assert!(!holds(json!({"contains": ["18"]}), "in 1871") && !holds(json!({"contains": ["a", "b"]}), "a c"));
        assert!(holds(json!({"contains": ["the old port"]}), "It is the Old Port!"));
        assert!(holds(json!({"lacks": ["I cannot"]}), "Of course") && !holds(json!({"lacks": ["no"]}), "No."));
        assert!(holds(json!({"equals": "42 "}), " 42\n") && !holds(json!({"equals": "42"}), "42."));
        assert!(holds(json!({"matches": "^[0-9]+$"}), "42") && !holds(json!({"matches": "^[0-9]+$"}), "4 2"));
        assert!(holds(json!({"json": ["a"]}), "{\"a\": null}") && !holds(json!({"json": ["a"]}), "{\"b\": 1}"));
        assert!(!holds(json!({"json": []}), "{\"a\":"));
    }

    #[test]
    fn what_is_no_check_is_named() {
        for wrong in [json!(null), json!({}), json!({"contains": ["a"], "lacks": ["b"]}), json!({"like": "x"})] {
            assert!(AnswerCheck::read(&wrong).unwrap_err().starts_with("`check` must be an object"), "{wrong}");
        }
        for wrong in [json!({"contains": []}), json!({"contains": ["a", ""]}), json!({"contains": "a"})] {
            assert!(AnswerCheck::read(&wrong).unwrap_err().contains("array of texts, at least 1"), "{wrong}");
        }
        assert!(AnswerCheck::read(&json!({"matches": "("})).unwrap_err().starts_with("`check.matches`: "));
    }
}
