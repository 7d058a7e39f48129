//! A request to the scheduler that no actor answers for: whoever asks waits for its events, and cancels it by not waiting any more.

use super::live::Entry;
use super::messages::{Refusal, RequestEvent, Submit};
use super::phase::ENGINE_LOST;
use super::request::{Around, Hangup};
use chimere_engine::scheduler::{Event, Request, Terms};
use tokio::sync::mpsc;

/// Why it has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LoneError {
    /// The scheduler did not take it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The engine failed, or the service is going down.
    #[error("{0}")]
    Failed(String),
}

impl LoneError {
    fn lost() -> Self {
        Self::Failed(ENGINE_LOST.into())
    }
}

/// One that the scheduler has taken.
pub(super) struct Lone {
    // Dropped in this order: the scheduler hears that nobody waits before its messages have nowhere to go.
    _hangup: Hangup,
    heard: mpsc::Receiver<RequestEvent>,
    _entry: Entry,
}

impl Lone {
    /// Submits `request`, whose id is that of `entry`.
    pub(super) async fn start(around: &Around, entry: Entry, request: Request, terms: Terms) -> Result<Self, LoneError> {
        let (events, heard) = mpsc::channel(Submit::events_max(&request, around.context));
        let hangup = Hangup { scheduler: around.scheduler.clone(), clock: around.clock.clone(), ids: vec![entry.id] };
        let submit = Submit { request, terms, events, tables: None, warm_up: false };
        around.scheduler.send(submit).await.map_err(|_| LoneError::lost())??;
        Ok(Self { heard, _hangup: hangup, _entry: entry })
    }

    /// What the scheduler says next; a failure is an error.
    pub(super) async fn event(&mut self) -> Result<Event, LoneError> {
        loop {
            match self.heard.recv().await.ok_or_else(LoneError::lost)? {
                RequestEvent::Event(Event::Failed(why)) => return Err(LoneError::Failed(why)),
                RequestEvent::Event(event) => return Ok(event),
                RequestEvent::Started(_) => {}
            }
        }
    }
}
