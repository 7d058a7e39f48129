//! The outputs of a turn, remembered where the account consents, so that feedback can name the answer; and what checks
//! have proved of it.

use super::proofs::AnswerProofs;
use crate::actors::request::output::{Finish, Output};
use crate::http::app::App;
use crate::http::edge::keys::auth::Caller;
use crate::http::intake::caller::consent;
use crate::http::wire::error::ApiError;
use crate::learning::{Consent, GivenAnswer, Learning};
use crate::limits::LEARNING_EXAMPLE_BYTES_MAX;
use crate::turn::TurnOutputs;
use crate::turn::options::ChatRequest;
use actix_web::HttpRequest;
use chimere_engine::ids::KeyId;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// An answer that is to be remembered once it is whole.
pub(super) struct RememberedAnswer {
    learning: Arc<Learning>,
    account: KeyId,
    consent: Consent,
    answer: GivenAnswer,
    proofs: AnswerProofs,
    finish: Option<Finish>,
    /// The name that the reply gives it.
    id: String,
}

impl RememberedAnswer {
    /// Of a request whose account, header and body allow it. Only an answer of one choice has a name of its own, and
    /// what is large is not worth its room.
    pub(super) fn of(
        app: &App,
        request: &HttpRequest,
        (chat, bytes): (&ChatRequest, usize),
    ) -> Result<Option<Box<Self>>, ApiError> {
        let consent = consent(app, request)?;
        let wanted = chat.remembered && consent != Consent::Off && bytes <= LEARNING_EXAMPLE_BYTES_MAX;
        let Some(learning) = app.learning.get().filter(|_| wanted && chat.generation.spec.engine.choices == 1) else {
            return Ok(None);
        };
        let mut messages = chat.conversation.messages.clone();
        // What goes on with a message is one answer with it.
        let begun = if chat.conversation.continues { messages.pop() } else { None };
        let answer = GivenAnswer {
            messages,
            tools: chat.conversation.tools.clone(),
            text: begun.and_then(|message| message.content).unwrap_or_default(),
            calls: false,
            model: String::new(),
            request_bytes: bytes,
        };
        let (account, proofs) = (Caller::of(request).key, AnswerProofs::of(chat));
        let (learning, finish, id) = (learning.clone(), None, String::new());
        Ok(Some(Box::new(Self { learning, account, consent, answer, proofs, finish, id })))
    }

    fn see(&mut self, output: &Output) {
        self.proofs.see(output);
        match output {
            Output::Delta { delta, .. } => {
                self.answer.text.push_str(&delta.content);
                self.answer.calls |= !delta.tool_calls.is_empty();
            }
            Output::Finished { reason, .. } => self.finish = Some(*reason),
            _ => {}
        }
    }

    /// The answer is whole.
    fn keep(self) {
        let Self { learning, account, consent, answer, proofs, finish, id } = self;
        if answer.request_bytes + answer.text.len() > LEARNING_EXAMPLE_BYTES_MAX {
            return;
        }
        let whole = matches!(finish, Some(Finish::Stop)) && !answer.calls && consent == Consent::All;
        let truth = if whole { proofs.of_answer(&answer.text) } else { Vec::new() };
        let answer = Arc::new(answer);
        learning.remember(account, &id, answer.clone());
        if !truth.is_empty() {
            learning.keep_checked(account, answer, truth);
        }
    }
}

/// Outputs that are looked at on their way out.
pub(super) struct RememberedOutputs {
    outputs: TurnOutputs,
    remembered: Option<Box<RememberedAnswer>>,
}

impl RememberedOutputs {
    /// Those of a reply with this name, by a model of that one.
    pub(super) fn new(outputs: TurnOutputs, remembered: Option<Box<RememberedAnswer>>, id: &str, model: &str) -> Self {
        let named = |mut remembered: Box<RememberedAnswer>| {
            remembered.id = id.to_owned();
            remembered.answer.model = model.to_owned();
            remembered
        };
        Self { outputs, remembered: remembered.map(named) }
    }

    /// The next output, or `None` when no more come.
    pub(super) async fn next(&mut self) -> Option<Output> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next output, for who polls a stream of them.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Output>> {
        let polled = Pin::new(&mut self.outputs).poll_next(cx);
        if let (Poll::Ready(Some(output)), Some(remembered)) = (&polled, &mut self.remembered) {
            remembered.see(output);
            if matches!(output, Output::End(_)) {
                self.remembered.take().into_iter().for_each(|remembered| remembered.keep());
            }
        }
        polled
    }
}
