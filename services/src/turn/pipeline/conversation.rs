//! The conversation that a generation of a pipeline reads: the client's own, with the operator's words around it.

use crate::pipelines::GenerationPlan;
use crate::text::{Message, Role};
use crate::turn::context::BETWEEN;

/// Stands behind the reason for which an answer failed a check.
const ONCE_MORE: &str = "Answer the request once more, without this mistake.";

/// The messages of a generation, and how many of them stand behind the question.
pub(super) fn with_words(mut messages: Vec<Message>, plan: &GenerationPlan) -> (Vec<Message>, usize) {
    if let Some(system) = &plan.system {
        match messages.first_mut().filter(|first| first.role == Role::System) {
            Some(first) => first.content = Some(joined(system, first.content.as_deref())),
            None => messages.insert(0, Message::new(Role::System, system.as_str())),
        }
    }
    if let Some(suffix) = &plan.suffix {
        match messages.iter_mut().rev().find(|message| message.role == Role::User) {
            Some(last) => {
                let text = last.content.take().unwrap_or_default();
                last.content = Some(joined(&text, Some(suffix)));
            }
            None => messages.push(Message::new(Role::User, suffix.as_str())),
        }
    }
    let Some(again) = &plan.again else { return (messages, 0) };
    messages.push(Message::new(Role::Assistant, again.text.as_str()));
    messages.push(Message::new(Role::User, [&again.why, BETWEEN, ONCE_MORE].concat()));
    (messages, 2)
}

fn joined(first: &str, second: Option<&str>) -> String {
    match second.filter(|second| !second.is_empty()) {
        Some(second) if !first.is_empty() => [first, BETWEEN, second].concat(),
        Some(second) => second.to_owned(),
        None => first.to_owned(),
    }
}

/// The last text of the user, for tests and searches.
pub(super) fn last_text(messages: &[Message]) -> &str {
    let last = messages.iter().rev().find(|message| message.role == Role::User);
    last.and_then(|message| message.content.as_deref()).unwrap_or_default()
}

/// Whether a text names a file with one of these endings, which are in small letters.
pub(super) fn names_file(text: &str, endings: &[String]) -> bool {
    let apart = |c: char| c.is_whitespace() || "()[]{}<>\"'`,;:!?".contains(c);
    text.split(apart).any(|word| {
        let ending = word.trim_end_matches('.').rsplit_once('.').filter(|(name, _)| !name.is_empty());
        ending.is_some_and(|(_, ending)| endings.iter().any(|known| known.eq_ignore_ascii_case(ending)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipelines::{Again, GenerateStep};
    use std::sync::Arc;

    fn plan(system: Option<&str>, suffix: Option<&str>, again: bool) -> GenerationPlan {
        let step = GenerateStep {
            name: "a".into(),
            system: None,
            suffix: None,
            thinking: None,
            temperature: None,
            tokens: None,
            form: None,
            best_of: 1,
        };
        let again = again.then(|| Again { text: "4.".into(), why: "It has a point.".into() });
        let (system, suffix) = (system.map(str::to_owned), suffix.map(str::to_owned));
        GenerationPlan {
            number: 0,
            step: Arc::new(step),
            system,
            suffix,
            tokens: None,
            answers: true,
            shown: true,
            again,
        }
    }

    fn told(messages: &[Message]) -> String {
        let one = |message: &Message| format!("{}: {}", message.role.name(), message.content.as_deref().unwrap());
        messages.iter().map(one).collect::<Vec<_>>().join(" | ").replace(BETWEEN, "/")
    }

    #[test]
    fn the_operator_s_words_stand_around_the_client_s_and_a_failure_behind_them() {
        let asked = || vec![Message::new(Role::System, "Be kind."), Message::new(Role::User, "2+2?")];
        let (messages, behind) = with_words(asked(), &plan(Some("Add."), Some("Briefly."), true));
        let want = "system: Add./Be kind. | user: 2+2?/Briefly. | assistant: 4. | user: It has a point./Answer the \
                    request once more, without this mistake.";
        assert_eq!((told(&messages).as_str(), behind), (want, 2));
        let (messages, behind) = with_words(asked().split_off(1), &plan(Some("Add."), None, false));
        assert_eq!((told(&messages).as_str(), behind), ("system: Add. | user: 2+2?", 0));
    }

    #[test]
    fn a_file_is_known_by_the_ending_of_a_word() {
        let endings = ["py".to_owned(), "rs".to_owned()];
        for (text, want) in [
            ("Look at src/main.RS, please", true),
            ("in `a.py`.", true),
            ("happy rs", false),
            ("see .py", false),
            ("a.pyc", false),
        ] {
            assert_eq!(names_file(text, &endings), want, "{text}");
        }
    }
}
