//! A request to the scheduler that no actor answers for: whoever asks waits for its events, and cancels it by not
//! waiting any more.

pub(super) mod batch;

use super::{Hangup, ServiceHandles};
use crate::actors::deferred_rules::DeferredRules;
use crate::actors::live::LiveEntry;
use crate::actors::messages::{Refusal, RequestEvent, Submit};
use crate::actors::phase::ENGINE_LOST;
use chimere_engine::scheduler::{Event, Request, Terms};
use tokio::sync::mpsc;

/// Why it has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DirectError {
    /// The scheduler did not take it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The engine failed, or the service is going down.
    #[error("{0}")]
    Failed(String),
}

impl DirectError {
    fn lost() -> Self {
        Self::Failed(ENGINE_LOST.into())
    }
}

/// One that the scheduler has taken.
pub(in crate::actors::request) struct DirectRequest {
    // Dropped in this order: the scheduler hears that nobody waits before its messages have nowhere to go.
    _hangup: Hangup,
    heard: mpsc::Receiver<RequestEvent>,
    _entry: LiveEntry,
}

impl DirectRequest {
    /// Submits `request`, whose id is that of `entry`.
    pub(in crate::actors::request) async fn start(
        handles: &ServiceHandles,
        entry: LiveEntry,
        request: Request,
        terms: Terms,
    ) -> Result<Self, DirectError> {
        let (events, heard) = mpsc::channel(Submit::events_max(&request, handles.context));
        let route = handles.dispatcher.route(entry.id);
        let hangup = Hangup { clock: handles.clock.clone(), routes: vec![route.clone()] };
        let submit = Submit { request, terms, events, rules: DeferredRules::default(), warm_up: false };
        handles.dispatcher.submit(&route, submit).await?;
        Ok(Self { heard, _hangup: hangup, _entry: entry })
    }

    /// What the scheduler says next; a failure is an error.
    pub(in crate::actors::request) async fn event(&mut self) -> Result<Event, DirectError> {
        loop {
            match self.heard.recv().await.ok_or_else(DirectError::lost)? {
                RequestEvent::Event(Event::Failed(why)) => return Err(DirectError::Failed(why)),
                RequestEvent::Event(event) => return Ok(event),
                RequestEvent::Started { .. } => {}
            }
        }
    }
}
