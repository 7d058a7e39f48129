//! A text of an operator in which `{name}` stands for the text of an earlier step.

use std::collections::HashMap;
use std::sync::Arc;

/// The name of the user's last text, which every step can read.
pub(super) const QUESTION: &str = "question";

/// A text with places for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<TemplatePiece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePiece {
    Text(String),
    Said(String),
}

impl Template {
    /// Reads a text. `{{` and `}}` are braces; `{name}` is one of `known`.
    ///
    /// # Errors
    /// Names what stands between braces and is none of the names, or says that a brace has no partner.
    pub(super) fn parse(text: &str, known: &[Arc<str>]) -> Result<Self, String> {
        let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(behind) = rest.strip_prefix(brace) {
                plain.push_str(brace);
                rest = behind;
                continue;
            }
            let end = rest.find('}').filter(|_| brace == "{");
            let end = end.ok_or_else(|| format!("has a `{brace}` alone; write `{brace}{brace}` for the character"))?;
            let name = &rest[..end];
            if !known.iter().any(|known| **known == *name) {
                return Err(unknown(name, known));
            }
            pieces.push(TemplatePiece::Text(std::mem::take(&mut plain)));
            pieces.push(TemplatePiece::Said(name.to_owned()));
            rest = &rest[end + 1..];
        }
        plain.push_str(rest);
        pieces.push(TemplatePiece::Text(plain));
        Ok(Self(pieces))
    }

    /// The text, given what the steps said.
    pub(super) fn fill(&self, said: &HashMap<Arc<str>, String>) -> String {
        let text = |piece: &TemplatePiece| match piece {
            TemplatePiece::Text(text) => text.clone(),
            TemplatePiece::Said(name) => said.get(name.as_str()).cloned().unwrap_or_default(),
        };
        self.0.iter().map(text).collect()
    }
}

fn unknown(name: &str, known: &[Arc<str>]) -> String {
    let shown: String = name.chars().take(40).collect();
    let all: Vec<&str> = known.iter().map(|name| &**name).collect();
    let known = all.join(", ");
    format!("reads `{{{shown}}}`, which no earlier step is called ({known}); write `{{{{` for a brace")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_texts_and_doubled_braces_are_braces() {
        let known = [Arc::from("plan")];
        let said = HashMap::from([(Arc::from("plan"), "1. {x}".to_owned())]);
        let filled = |text| Template::parse(text, &known).map(|template| template.fill(&said));
        assert_eq!(filled("Plan: {plan}! {{a}}"), Ok("Plan: 1. {x}! {a}".into()));
        for (text, want) in [
            ("{code}", "reads `{code}`, which no earlier step is called (plan)"),
            ("a { b", "has a `{` alone"),
            ("a } b", "has a `}` alone"),
        ] {
            let error = filled(text).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }
}
