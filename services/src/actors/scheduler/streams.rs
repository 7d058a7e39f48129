//! Where the events of requests go: the sending ends of their channels, from admission to the last event.

use super::step_meter::StepMeter;
use crate::actors::deferred_rules::DeferredRules;
use crate::actors::dispatch::Route;
use crate::actors::messages::RequestEvent;
use chimere_engine::ids::RequestId;
use chimere_engine::scheduler::{Event, RequestTimes, Scheduler};
use std::collections::HashMap;
use tokio::sync::mpsc;

/// The streams of all requests that have not ended.
#[derive(Default)]
pub(super) struct Streams(HashMap<RequestId, Stream>);

/// What a request takes along that goes on elsewhere.
pub(super) struct Luggage {
    /// Where it runs, for whoever cancels it.
    pub(super) route: Route,
    /// Its rules of deferred sources.
    pub(super) rules: DeferredRules,
}

/// Where one request's events go.
struct Stream {
    events: mpsc::Sender<RequestEvent>,
    started: bool,
    /// Choices without their last event; the stream is closed with the last one.
    unfinished: u32,
    /// Time to its first step as it was predicted, microseconds; `None` if it had not to wait or nobody knew.
    foreseen_us: Option<u64>,
    /// Of a request that another replica may go on with.
    luggage: Option<Luggage>,
}

/// What became of a stream with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It goes on, or nobody listens any more.
    Open,
    /// The event was the last one.
    Over,
    /// The actor of the request is gone.
    Broken,
}

impl Streams {
    /// A request was admitted, with so many choices; its first step was foreseen in this time.
    pub(super) fn open(
        &mut self,
        id: RequestId,
        events: mpsc::Sender<RequestEvent>,
        choices: u32,
        foreseen_us: Option<u64>,
        luggage: Option<Luggage>,
    ) {
        self.0.insert(id, Stream { events, started: false, unfinished: choices, foreseen_us, luggage });
    }

    /// A request came from another replica, with so many choices that have not ended.
    pub(super) fn go_on(
        &mut self,
        id: RequestId,
        (events, started): (mpsc::Sender<RequestEvent>, bool),
        choices: u32,
        luggage: Luggage,
    ) {
        let luggage = Some(luggage);
        self.0.insert(id, Stream { events, started, unfinished: choices, foreseen_us: None, luggage });
    }

    /// The way of a request's events, whether its start was told, and what it takes along; `None` if it is not to go on
    /// elsewhere.
    pub(super) fn leave(&mut self, id: RequestId) -> Option<(mpsc::Sender<RequestEvent>, bool, Luggage)> {
        let stream = self.0.get_mut(&id)?;
        let luggage = stream.luggage.take()?;
        let left = (stream.events.clone(), stream.started, luggage);
        self.0.remove(&id);
        Some(left)
    }

    /// Has the request not ended?
    pub(super) fn contains(&self, id: RequestId) -> bool {
        self.0.contains_key(&id)
    }

    /// A request has ended.
    pub(super) fn close(&mut self, id: RequestId) {
        self.0.remove(&id);
    }

    /// A choice gets no further events. Was it the last one of its request?
    pub(super) fn end_choice(&mut self, id: RequestId) -> bool {
        let Some(stream) = self.0.get_mut(&id) else { return false };
        stream.unfinished -= 1;
        stream.unfinished == 0
    }

    /// Hands an event to its request. A channel never is full, because it was sized at admission; a closed one means
    /// that the request's actor is gone, which its Cancel says too, only later.
    pub(super) fn send(&mut self, id: RequestId, event: Event, scheduler: &Scheduler, meter: &StepMeter) -> Sent {
        let Some(stream) = self.0.get_mut(&id) else { return Sent::Open };
        let mut times = None;
        match &event {
            Event::Finished { times: last, usage, .. } => {
                stream.unfinished -= 1;
                times = Some((*last, usage.cached_tokens));
            }
            Event::Failed(_) => stream.unfinished = 0,
            _ if !stream.started => times = scheduler.times(id).zip(scheduler.cached_tokens(id)),
            _ => {}
        }
        let sent = stream.send(event, times, meter);
        debug_assert!(
            !matches!(sent, Err(mpsc::error::TrySendError::Full(_))),
            "request {id} caused more events than it may"
        );
        match sent {
            Err(_) => Sent::Broken,
            Ok(()) if stream.unfinished == 0 => Sent::Over,
            Ok(()) => Sent::Open,
        }
    }
}

impl Stream {
    /// Sends an event, before the first one also the times and what the prefix cache spared. A request that ended
    /// within its first commit has them in its last event alone: then the start is told with that.
    fn send(
        &mut self,
        event: Event,
        times: Option<(RequestTimes, u32)>,
        meter: &StepMeter,
    ) -> Result<(), mpsc::error::TrySendError<RequestEvent>> {
        if let Some((times, cached_tokens)) = times.filter(|(t, _)| t.started.is_some() && !self.started) {
            self.started = true;
            meter.started(self.foreseen_us, &times);
            self.events.try_send(RequestEvent::Started { times, cached_tokens })?;
        }
        self.events.try_send(RequestEvent::Event(event))
    }
}
