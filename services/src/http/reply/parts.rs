//! The parts of an answer in the order in which they came: thoughts, text, calls. Dialects whose answers are lists of
//! such parts write a stream as parts begin, go on and end, and a whole reply from those that have ended, so both say
//! the same.

use crate::actors::request::output::{
    Delta, FileSearch, Finish, Output, RequestUsage, Scored, ToolCallDelta, ToolRun, WebAction,
};
use crate::citations::Citation;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::{engine_error, refused};
use crate::text::parser::TextPart;
use crate::turn::ToolList;
use std::mem::discriminant;

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::http) enum Part {
    /// What the model thought.
    Thought(String),
    /// What the model said.
    Text(PartText),
    /// A call of a tool.
    Call(PartCall),
    /// A search of files that the service made, whose results are there when it ends.
    Search(FileSearch),
    /// Tools of a server that the service may run.
    Tools(ToolList),
    /// A call of such a tool, whose result is there when it ends.
    Run(ToolRun),
    /// Something that the service did on the web.
    Web(WebAction),
}

/// A text among the parts of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::http) struct PartText {
    pub(in crate::http) text: String,
    /// Its tokens, if log-probabilities were asked for.
    pub(in crate::http) tokens: Vec<Scored>,
    /// Places in it that a source supports.
    pub(in crate::http) citations: Vec<Citation>,
    /// Characters of the answer's text before it.
    begin: usize,
}

/// A call among the parts of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::http) struct PartCall {
    pub(in crate::http) index: u32,
    pub(in crate::http) id: String,
    pub(in crate::http) name: String,
    /// JSON, whole unless it is said to be incomplete.
    pub(in crate::http) arguments: String,
    pub(in crate::http) incomplete: bool,
}

/// What becomes of the part of this number.
#[derive(Debug, PartialEq)]
pub(in crate::http) enum PartStep<'a> {
    /// It begins, and is empty.
    Begin(usize, &'a Part),
    /// It goes on with this text, in which these tokens are new.
    More(usize, &'a Part, &'a str, &'a [Scored]),
    /// A source supports a place in it; the number counts the citations of the part.
    Cited(usize, &'a Part, usize, &'a Citation),
    /// The part has ended.
    End(usize, &'a Part),
}

/// The parts so far.
#[derive(Clone, Debug, Default)]
pub(in crate::http) struct Parts {
    all: Vec<Part>,
    /// The last one has not ended.
    open: bool,
    /// Tokens of the answer whose text has not come.
    waiting: Vec<Scored>,
    /// Characters of the answer's text so far.
    characters: usize,
    /// A text ends with its citation, and what follows is a text of its own.
    split_at_citations: bool,
    /// Why the answer ended.
    finish: Option<Finish>,
}

impl Parts {
    /// Parts of which a text ends with its first citation.
    pub(in crate::http) fn split_at_citations() -> Self {
        Self { split_at_citations: true, ..Self::default() }
    }

    /// Takes an output and tells each step. The last one gives what the answer took.
    pub(in crate::http) fn take(
        &mut self,
        output: Output,
        mut tell: impl FnMut(PartStep<'_>),
    ) -> Result<Option<RequestUsage>, ApiError> {
        match output {
            Output::Scored { .. } | Output::PipelineStep(_) => {}
            Output::Delta { delta, .. } => self.push(delta, tell),
            Output::Searching { query } => {
                self.begin(
                    Part::Search(FileSearch { queries: vec![query], results: Vec::new(), sufficiency: None }),
                    &mut tell,
                );
            }
            Output::Searched(search) => self.searched(search, &mut tell),
            Output::Calling(run) => self.begin(Part::Run(run), &mut tell),
            Output::Called(run) => self.ended(Part::Run(run), &mut tell),
            Output::Browsing(action) => self.begin(Part::Web(action), &mut tell),
            Output::Browsed(action) => self.ended(Part::Web(action), &mut tell),
            Output::Finished { reason, .. } => {
                self.finish = Some(reason);
                self.close(&mut tell);
            }
            Output::End(account) => return Ok(Some(account)),
            Output::Failed(why) => return Err(engine_error(why)),
            Output::Refused(refusal) => return Err(refused(refusal, "messages")),
        }
        Ok(None)
    }

    /// Why the answer ended, when it has.
    pub(in crate::http) fn finish(&self) -> Option<Finish> {
        self.finish
    }

    /// The call of a tool that has no end, if there is one.
    pub(in crate::http) fn incomplete_call(&self) -> Option<&PartCall> {
        self.all.iter().find_map(|part| match part {
            Part::Call(call) if call.incomplete => Some(call),
            _ => None,
        })
    }

    /// Takes more of an answer.
    fn push(&mut self, delta: Delta, mut tell: impl FnMut(PartStep<'_>)) {
        // The rest of the call that is open belongs before all that is new.
        let (rest, new): (Vec<_>, Vec<_>) = delta.tool_calls.into_iter().partition(|call| self.is_open(call));
        rest.into_iter().for_each(|call| self.call(call, &mut tell));
        self.text(Part::Thought(String::new()), &delta.reasoning, &mut tell);
        self.waiting.extend(delta.tokens.into_iter().filter(|token| token.part == TextPart::Content));
        self.text(Part::Text(PartText { begin: self.characters, ..PartText::default() }), &delta.content, &mut tell);
        self.characters += delta.content.chars().count();
        let cited = !delta.citations.is_empty();
        delta.citations.into_iter().for_each(|citation| self.cite(citation, &mut tell));
        if cited && self.split_at_citations && matches!(self.all.last(), Some(Part::Text(_))) {
            self.close(&mut tell);
        }
        new.into_iter().for_each(|call| self.call(call, &mut tell));
    }

    /// Tells of something that was there before the answer began.
    pub(in crate::http) fn was_there(&mut self, part: Part, tell: &mut impl FnMut(PartStep<'_>)) {
        self.begin(part, tell);
        self.close(tell);
    }

    /// Ends a search with what it found; one whose beginning nobody was told of begins first.
    pub(in crate::http) fn searched(&mut self, search: FileSearch, tell: &mut impl FnMut(PartStep<'_>)) {
        if !self.open || !matches!(self.all.last(), Some(Part::Search(_))) {
            let begun = FileSearch { queries: search.queries.clone(), results: Vec::new(), sufficiency: None };
            self.begin(Part::Search(begun), tell);
        }
        self.ended(Part::Search(search), tell);
    }

    /// Ends the part that is open, in whose place this one comes if both are of one kind.
    fn ended(&mut self, part: Part, tell: &mut impl FnMut(PartStep<'_>)) {
        if let Some(open) = self.all.last_mut().filter(|open| discriminant(*open) == discriminant(&part)) {
            *open = part;
        }
        self.close(tell);
    }

    /// Ends what is open.
    fn close(&mut self, tell: &mut impl FnMut(PartStep<'_>)) {
        // Tokens that stand for no text, at the end.
        if self.finish.is_some()
            && let Some(Part::Text(open)) = self.all.last_mut()
        {
            open.tokens.append(&mut self.waiting);
        }
        if let Some(last) = self.all.last().filter(|_| std::mem::take(&mut self.open)) {
            tell(PartStep::End(self.all.len() - 1, last));
        }
    }

    /// All parts so far, the last of which may be open.
    pub(in crate::http) fn all(&self) -> &[Part] {
        &self.all
    }

    /// Adds a citation to the text that is open. One that became certain behind its text's end is not told.
    fn cite(&mut self, mut citation: Citation, tell: &mut impl FnMut(PartStep<'_>)) {
        let at = self.all.len().saturating_sub(1);
        let Some(Part::Text(text)) = self.all.last_mut().filter(|_| self.open) else { return };
        let mark = &citation.mark;
        citation.mark = mark.start.saturating_sub(text.begin)..mark.end.saturating_sub(text.begin);
        text.citations.push(citation);
        let count = text.citations.len() - 1;
        if let part @ Part::Text(PartText { citations, .. }) = &self.all[at] {
            tell(PartStep::Cited(at, part, count, &citations[count]));
        }
    }

    fn is_open(&self, call: &ToolCallDelta) -> bool {
        self.open && matches!(self.all.last(), Some(Part::Call(open)) if open.index == call.index)
    }

    fn text(&mut self, empty: Part, more: &str, tell: &mut impl FnMut(PartStep<'_>)) {
        if more.is_empty() {
            return;
        }
        let goes_on = |last: &Part| std::mem::discriminant(last) == std::mem::discriminant(&empty);
        if !self.open || !self.all.last().is_some_and(goes_on) {
            self.begin(empty, tell);
        }
        self.more(more, tell);
    }

    fn call(&mut self, call: ToolCallDelta, tell: &mut impl FnMut(PartStep<'_>)) {
        let ToolCallDelta { index, start, arguments, incomplete } = call;
        if let Some((id, name)) = start {
            self.begin(Part::Call(PartCall { index, id, name, arguments: String::new(), incomplete: false }), tell);
        }
        if let Some(Part::Call(open)) = self.all.last_mut() {
            open.incomplete |= incomplete;
        }
        if !arguments.is_empty() {
            self.more(&arguments, tell);
        }
    }

    fn begin(&mut self, part: Part, tell: &mut impl FnMut(PartStep<'_>)) {
        self.close(tell);
        self.all.push(part);
        self.open = true;
        if let Some(part) = self.all.last() {
            tell(PartStep::Begin(self.all.len() - 1, part));
        }
    }

    fn more(&mut self, more: &str, tell: &mut impl FnMut(PartStep<'_>)) {
        let at = self.all.len() - 1;
        let mut tokens = Vec::new();
        match &mut self.all[at] {
            Part::Thought(text) => text.push_str(more),
            Part::Text(open) => {
                open.text.push_str(more);
                tokens = std::mem::take(&mut self.waiting);
                open.tokens.extend_from_slice(&tokens);
            }
            Part::Call(call) => call.arguments.push_str(more),
            Part::Search(_) | Part::Tools(_) | Part::Run(_) | Part::Web(_) => {}
        }
        tell(PartStep::More(at, &self.all[at], more, &tokens));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::citations::{NumberedSource, NumberedSources, SourcePlace};
    use std::sync::Arc;

    fn call(index: u32, begins: bool, arguments: &str) -> ToolCallDelta {
        let start = begins.then(|| (format!("id{index}"), "f".to_owned()));
        ToolCallDelta { index, start, arguments: arguments.into(), incomplete: false }
    }

    fn steps(deltas: Vec<Delta>) -> String {
        steps_of(Parts::default(), deltas)
    }

    fn steps_of(mut parts: Parts, deltas: Vec<Delta>) -> String {
        let mut told = Vec::new();
        let mut tell = |step: PartStep<'_>| {
            told.push(match step {
                PartStep::Begin(at, Part::Thought(_)) => format!("{at}:thought"),
                PartStep::Begin(at, Part::Text(_)) => format!("{at}:text"),
                PartStep::Begin(at, Part::Call(call)) => format!("{at}:{}", call.id),
                PartStep::Begin(at, Part::Search(search)) => format!("{at}:{}", search.queries[0]),
                PartStep::Begin(at, Part::Tools(list)) => format!("{at}:{}", list.server),
                PartStep::Begin(at, Part::Run(run)) => format!("{at}:{}", run.tool),
                PartStep::Begin(at, Part::Web(_)) => format!("{at}:web"),
                PartStep::More(at, _, more, _) => format!("{at}+{more}"),
                PartStep::Cited(at, _, count, citation) => format!("{at}@{count}:{:?}", citation.mark),
                PartStep::End(at, _) => format!("{at}."),
            })
        };
        deltas.into_iter().for_each(|delta| parts.push(delta, &mut tell));
        parts.close(&mut tell);
        parts.close(&mut tell);
        told.join(" ")
    }

    #[test]
    fn a_part_ends_where_another_begins_and_each_ends_once() {
        let told = steps(vec![
            Delta { reasoning: "hm".into(), ..Delta::default() },
            Delta { reasoning: "!".into(), content: "so".into(), ..Delta::default() },
            Delta { content: "on".into(), tool_calls: vec![call(0, true, "{")], ..Delta::default() },
            Delta { tool_calls: vec![call(0, false, "}"), call(1, true, "{}")], ..Delta::default() },
        ]);
        assert_eq!(told, "0:thought 0+hm 0+! 0. 1:text 1+so 1+on 1. 2:id0 2+{ 2+} 2. 3:id1 3+{} 3.");
    }

    #[test]
    fn the_end_of_a_call_comes_before_the_text_after_it() {
        let told = steps(vec![
            Delta { tool_calls: vec![call(0, true, "{")], ..Delta::default() },
            Delta { content: "x".into(), tool_calls: vec![call(0, false, "}")], ..Delta::default() },
        ]);
        assert_eq!(told, "0:id0 0+{ 0+} 0. 1:text 1+x 1.");
    }

    fn cited(content: &str, mark: std::ops::Range<usize>) -> Delta {
        let place = SourcePlace::Document { index: 0, blocks: None };
        let source = NumberedSource { text: "So it is.".into(), title: None, place };
        let citation = Citation { mark, sources: Arc::new(NumberedSources::new(vec![source])), source: 0, span: 0..2 };
        Delta { content: content.into(), citations: vec![citation], ..Delta::default() }
    }

    #[test]
    fn a_citation_is_told_of_the_open_text_with_its_place_there() {
        let deltas = || vec![cited("so [1]", 3..6), cited(" on [1]", 10..13)];
        assert_eq!(steps(deltas()), "0:text 0+so [1] 0@0:3..6 0+ on [1] 0@1:10..13 0.");
        let split = steps_of(Parts::split_at_citations(), deltas());
        assert_eq!(split, "0:text 0+so [1] 0@0:3..6 0. 1:text 1+ on [1] 1@0:4..7 1.");
        let call = Delta { tool_calls: vec![call(0, true, "{}")], ..Delta::default() };
        assert_eq!(steps(vec![call, cited("", 0..1)]), "0:id0 0+{} 0.", "its text has ended");
    }
}
