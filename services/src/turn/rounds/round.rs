//! What comes of one generation of a turn: what the client is told of it, and what the turn goes on from. Calls that
//! the server answers itself are not told.

use super::machine::{Generated, ModelCall, Turn};
use crate::actors::request::output::{Delta, Finish, ToolCallDelta};
use crate::text::parser::TextPart;

/// A generation so far.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) text: String,
    pub(super) reasoning: String,
    /// Each with its number in the generation, and the number that the client knows it by.
    calls: Vec<(u32, Option<u32>, ModelCall)>,
    /// Characters of the turn's text before this round.
    characters: usize,
}

impl Round {
    /// Behind so many characters of the turn's text.
    pub(super) fn behind(characters: usize) -> Self {
        Self { characters, ..Self::default() }
    }

    /// Takes more of the generation and gives what the client is told.
    pub(super) fn take(&mut self, turn: &Turn, mut delta: Delta) -> Delta {
        self.text.push_str(&delta.content);
        self.reasoning.push_str(&delta.reasoning);
        let calls = std::mem::take(&mut delta.tool_calls);
        delta.tool_calls = calls.into_iter().filter_map(|call| self.call(turn, call)).collect();
        for citation in &mut delta.citations {
            citation.mark = citation.mark.start + self.characters..citation.mark.end + self.characters;
        }
        if self.clients() == 0 {
            delta.tokens.retain(|token| token.part != TextPart::Calls);
        }
        delta
    }

    /// What the generation was, when it has ended.
    pub(super) fn ended(self, finish: Finish, tokens: u32) -> Generated {
        Generated { calls: self.calls.into_iter().map(|(.., call)| call).collect(), finish, tokens }
    }

    /// Takes more of a call. Of one that is the client's it gives what the client is told.
    fn call(&mut self, turn: &Turn, more: ToolCallDelta) -> Option<ToolCallDelta> {
        if let Some((_, name)) = more.start.clone() {
            let shown = (!turn.hosts(&name)).then(|| self.clients());
            let call = ModelCall { name, arguments: String::new(), incomplete: false };
            self.calls.push((more.index, shown, call));
        }
        let (_, shown, call) = self.calls.iter_mut().rev().find(|(index, ..)| *index == more.index)?;
        call.arguments.push_str(&more.arguments);
        call.incomplete |= more.incomplete;
        shown.map(|index| ToolCallDelta { index, ..more })
    }

    /// How many calls are the client's.
    fn clients(&self) -> u32 {
        self.calls.iter().filter(|(_, shown, _)| shown.is_some()).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::hosted::Hosted;

    fn call(index: u32, name: Option<&str>, arguments: &str) -> ToolCallDelta {
        let start = name.map(|name| (format!("id{index}"), name.to_owned()));
        ToolCallDelta { index, start, arguments: arguments.into(), incomplete: false }
    }

    #[test]
    fn the_client_is_told_of_its_own_calls_alone_and_counts_them_from_0() {
        let (turn, mut round) = (Turn::new(vec![Hosted::FileSearch], None), Round::behind(0));
        let mut told = Vec::new();
        for (content, calls) in [
            ("a", vec![call(0, Some("file_search"), "{\"query\":"), call(0, None, "\"x\"}")]),
            ("b", vec![call(1, Some("add"), "{"), call(1, None, "}")]),
        ] {
            let delta = Delta { content: content.into(), tool_calls: calls, ..Delta::default() };
            let delta = round.take(&turn, delta);
            told.push((delta.content, delta.tool_calls));
        }
        let mine = vec![ToolCallDelta { index: 0, ..call(1, Some("add"), "{") }, call(0, None, "}")];
        assert_eq!(told, [("a".to_owned(), vec![]), ("b".to_owned(), mine)]);
        assert_eq!(round.text, "ab");
        let generated = round.ended(Finish::ToolCalls, 7);
        let calls: Vec<_> = generated.calls.iter().map(|call| (&*call.name, &*call.arguments)).collect();
        assert_eq!(calls, [("file_search", "{\"query\":\"x\"}"), ("add", "{}")]);
    }
}
