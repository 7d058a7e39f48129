//! The answer to a message in a stream of events: as much of the stream as has come, and where it goes on if it ends
//! before the answer, as servers of 2025-11-25 end the streams of calls that take long.

use rmcp::model::{RequestId, ServerJsonRpcMessage};
use std::time::Duration;

/// How long to wait before a stream is gone on with, where its server does not say.
const PAUSE: Duration = Duration::from_secs(1);

/// See the file's head.
pub(super) struct AnswerEvents {
    /// The request that is answered.
    request: RequestId,
    /// Bytes behind the last whole event.
    text: Vec<u8>,
    /// How many of them were looked through for an event's end.
    searched: usize,
    /// Id of the last event that has one.
    last: Option<String>,
    pause: Duration,
}

impl AnswerEvents {
    /// Of the answer to a request.
    pub(super) fn to(request: RequestId) -> Self {
        Self { request, text: Vec::new(), searched: 0, last: None, pause: PAUSE }
    }

    /// Takes bytes of the stream. Gives the answer if it is among them; other messages may come before it.
    pub(super) fn take(&mut self, piece: &[u8]) -> Option<ServerJsonRpcMessage> {
        self.text.extend(piece.iter().filter(|byte| **byte != b'\r'));
        while let Some(end) = self.text[self.searched..].windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = self.text.drain(..self.searched + end + 2).collect();
            self.searched = 0;
            let event = String::from_utf8_lossy(&event);
            self.note(&event);
            let message = serde_json::from_str(&data_of(&event)).ok().filter(|message| self.is_answer(message));
            if message.is_some() {
                return message;
            }
        }
        // An event's end may be cut in two by the pieces.
        self.searched = self.text.len().saturating_sub(1);
        None
    }

    /// The stream ended before the answer: behind which event it goes on, and when. None if it does not.
    pub(super) fn broken_off(&mut self) -> Option<(String, Duration)> {
        self.text.clear();
        self.searched = 0;
        Some((self.last.clone()?, self.pause))
    }

    /// What an event says of the stream.
    fn note(&mut self, event: &str) {
        if let Some(id) = values(event, "id:").last().filter(|id| !id.is_empty()) {
            self.last = Some(id.to_owned());
        }
        if let Some(pause) = values(event, "retry:").last().and_then(|pause| pause.parse().ok()) {
            self.pause = Duration::from_millis(pause);
        }
    }

    fn is_answer(&self, message: &ServerJsonRpcMessage) -> bool {
        match message {
            ServerJsonRpcMessage::Response(response) => response.id == self.request,
            ServerJsonRpcMessage::Error(error) => error.id.as_ref().is_none_or(|id| *id == self.request),
            _ => false,
        }
    }
}

/// The data of an event.
fn data_of(event: &str) -> String {
    values(event, "data:").collect::<Vec<_>>().join("\n")
}

/// What stands in the lines of an event that begin like this.
fn values<'a>(event: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = event.lines().filter_map(move |line| line.strip_prefix(name));
    lines.map(|line| line.strip_prefix(' ').unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_an_event_is_its_lines_without_their_names() {
        assert_eq!(data_of("event: message\ndata: {\"a\":\ndata:1}\nid: 7\n\n"), "{\"a\":\n1}");
        assert_eq!(data_of(": still here\n\n"), "");
    }

    #[test]
    fn an_answer_is_heard_in_pieces_behind_other_messages_and_by_its_own_id() {
        let mut events = AnswerEvents::to(RequestId::Number(7));
        let other = r#"data: {"jsonrpc":"2.0","id":6,"result":{}}"#;
        let note = r#"data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#;
        assert!(events.take(format!("{note}\n\n{other}\r\n\r\ndata: {{\"jsonrpc\":\"2.0\",").as_bytes()).is_none());
        assert!(events.take(b"\"id\":7,\"result\":{}}\n").is_none());
        let answer = events.take(b"\n");
        assert!(matches!(answer, Some(ServerJsonRpcMessage::Response(ref r)) if r.id == RequestId::Number(7)));
    }

    #[test]
    fn a_stream_that_breaks_off_goes_on_behind_its_last_event_if_that_has_a_name() {
        let mut events = AnswerEvents::to(RequestId::Number(7));
        assert_eq!(events.broken_off(), None);
        assert!(events.take(b"id: a\ndata: \n\nid: b\nretry: 30\ndata:\n\ndata: half").is_none());
        assert_eq!(events.broken_off(), Some(("b".to_owned(), Duration::from_millis(30))));
        // What was cut off comes again.
        assert!(events.take(b"data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n").is_some());
    }
}
