//! How the text of a chat's choices is read, with ids for their calls.

use crate::actors::request::cited::Cited;
use crate::actors::request::reader::{Answer, Reader};
use crate::citations::NumberedSources;
use crate::text::{OutputParser, Thinking, Tools};
use std::sync::Arc;

/// Makes the reader of a choice, given its number.
pub(super) type MakeReader = Box<dyn Fn(usize) -> Box<dyn Reader>>;

/// Readers of answers that begin so, in which these tools may be called, and which may cite these sources.
pub(super) fn of_answers(
    thinking: Thinking,
    tools: Option<Tools>,
    sources: Option<Arc<NumberedSources>>,
) -> MakeReader {
    let (tools, call_ids) = (tools.map(Arc::new), uuid::Uuid::new_v4().simple().to_string());
    Box::new(move |choice| {
        let parser = OutputParser::new(thinking, tools.clone(), call_id_prefix(&call_ids, choice));
        let answer = Box::new(Answer::new(parser));
        match &sources {
            Some(sources) => Box::new(Cited::new(answer, sources.clone())),
            None => answer,
        }
    })
}

/// The common part of the ids of one choice's calls. The choice's number takes two digits always, so that call 11 of
/// choice 1 and call 1 of choice 11 stay apart; the parser puts `call_` before it.
fn call_id_prefix(request: &str, choice: usize) -> String {
    format!("{}{choice:02}", &request[..16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CHOICES_MAX;

    #[test]
    fn no_two_calls_of_a_request_share_an_id() {
        let request = "0".repeat(32);
        let ids = (0..CHOICES_MAX as usize).flat_map(|choice| {
            let prefix = call_id_prefix(&request, choice);
            (0..200).map(move |call| format!("{prefix}{call}"))
        });
        let all: Vec<String> = ids.collect();
        let different: std::collections::HashSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }
}
