//! Gives each request to one of the replicas, before it is admitted anywhere: to the one whose answer would be there
//! first ([`super::load`]), by what their schedulers told last. Nobody is asked, so a replica that stands still holds
//! nobody up. A replica that refuses for a reason that another one need not have hands the request to the next.
//!
//! With one replica there is nothing to choose, and nothing is kept for it.

use super::load::{Offer, ReplicaState, best};
use super::prefix_index::PrefixIndex;
use super::{Migration, Route};
use crate::actors::messages::{Cancel, FlushCache, Refusal, Submit};
use crate::events::EventSink;
use crate::metrics;
use actix::{Message, Recipient};
use chimere_engine::ids::RequestId;
use chimere_engine::scheduler::{FlushedEntries, PrefixChange, Rejected, ReplicaLoad, Request};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, OnceLock};

/// Dispatcher to scheduler actor: please run this; whoever cancels it goes by its place.
#[derive(Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct Routed {
    /// What is to be run.
    pub submit: Submit,
    /// Where it runs, now and later.
    pub route: Route,
}

/// The ways to the scheduler of a replica.
#[derive(Clone, Debug)]
pub struct SchedulerLink {
    /// Takes requests that are to run.
    pub routed: Recipient<Routed>,
    /// Hears that a request is not wanted any more.
    pub cancel: Recipient<Cancel>,
    /// Goes on with requests of others.
    pub migrations: Recipient<Migration>,
    /// Gives up its prefix cache.
    pub flush: Recipient<FlushCache>,
}

/// The replicas of a service, for whoever has a request for one. Clones are one.
#[derive(Clone)]
pub struct Dispatcher(Arc<DispatchedReplicas>);

struct DispatchedReplicas {
    states: Vec<ReplicaState>,
    /// Positions that a sequence may have.
    context: u32,
    /// Their schedulers, once all run.
    schedulers: OnceLock<Vec<SchedulerLink>>,
    prefixes: PrefixIndex,
    /// Told what changes in the prefix caches, where somebody wants to know.
    events: Option<Mutex<EventSink>>,
}

impl Dispatcher {
    /// For so many replicas, which are not there yet, with sequences of at most `context` positions. `events` is told
    /// what changes in their prefix caches, as if they were one.
    pub fn new(replicas: usize, context: u32, events: Option<EventSink>) -> Self {
        Self(Arc::new(DispatchedReplicas {
            states: (0..replicas).map(|_| ReplicaState::default()).collect(),
            context,
            schedulers: OnceLock::new(),
            prefixes: PrefixIndex::default(),
            events: events.map(Mutex::new),
        }))
    }

    /// The schedulers of the replicas run, in the order of their numbers.
    pub fn open(&self, schedulers: Vec<SchedulerLink>) {
        assert_eq!(schedulers.len(), self.0.states.len(), "one scheduler a replica");
        assert!(self.0.schedulers.set(schedulers).is_ok(), "replicas start once");
    }

    /// How many replicas there are, the lost ones too.
    pub fn replicas(&self) -> usize {
        self.0.states.len()
    }

    /// True where there is something to choose.
    pub fn has_several(&self) -> bool {
        self.replicas() > 1
    }

    pub(super) fn scheduler(&self, replica: usize) -> Option<&SchedulerLink> {
        self.0.schedulers.get()?.get(replica)
    }

    /// A request that will be given to a replica.
    pub fn route(&self, id: RequestId) -> Route {
        Route::new(id, self.clone())
    }

    /// Gives a request to a replica. When this returns, the message is in the mailbox of that replica's scheduler; what
    /// it says is the future's.
    pub fn submit(&self, route: &Route, submit: Submit) -> impl Future<Output = Result<(), Refusal>> + 'static {
        let (this, route) = (self.clone(), route.clone());
        let again = self.has_several().then(|| submit.clone());
        let mut tried = BTreeSet::new();
        let first = this.give(&route, submit, &mut tried);
        async move {
            let first = match first {
                Some(given) => given.answer().await,
                None => Err(Refusal::unheard()),
            };
            let (Err(refusal), Some(submit)) = (&first, again) else { return first };
            if !another_may_take_it(&refusal.reason) {
                return first;
            }
            while let Some(given) = this.give(&route, submit.clone(), &mut tried) {
                match given.answer().await {
                    Err(refusal) if another_may_take_it(&refusal.reason) => {}
                    answer => return answer,
                }
            }
            first
        }
    }

    /// Gives a request to the best of the replicas that were not tried; `None` if there is none, or if the request was
    /// cancelled.
    fn give(&self, route: &Route, submit: Submit, tried: &mut BTreeSet<usize>) -> Option<Given> {
        let replica = self.choose(&submit.request, tried)?;
        tried.insert(replica);
        // Idle work is no load, there as here.
        let counts = !submit.terms.idle;
        let size = (submit.request.prompt.len() as u64, submit.request.spec.choices);
        let way = (counts && self.has_several()).then(|| OnItsWay::to(self.clone(), replica, size));
        let routed = Routed { submit, route: route.clone() };
        let sent = route.put(replica, |scheduler| scheduler.routed.send(routed))?;
        Some(Given { sent, way })
    }

    /// The best replica for a request among those that were not tried.
    fn choose(&self, request: &Request, tried: &BTreeSet<usize>) -> Option<usize> {
        if !self.has_several() {
            return tried.is_empty().then_some(0);
        }
        let kept = self.0.prefixes.kept(request, self.replicas());
        let open = (0..self.replicas()).filter(|replica| !tried.contains(replica));
        let offers: Vec<Offer> = open
            .filter(|replica| !self.0.states[*replica].is_lost())
            .map(|replica| Offer { replica, load: self.0.states[replica].load(), kept: kept[replica] })
            .collect();
        let output_max = request.spec.max_tokens.unwrap_or(u32::MAX).min(self.0.context);
        let (replica, why) = best(request.prompt.len() as u32, output_max, &offers)?;
        let why = if tried.is_empty() { why.name() } else { "next" };
        ::metrics::counter!(metrics::DISPATCHED, "replica" => replica.to_string(), "why" => why).increment(1);
        Some(replica)
    }

    /// Gives a request of a lost replica to another one. It fails if none is left.
    pub(crate) fn migrate(&self, migration: Migration) {
        let Some(replica) = self.choose(&migration.migrated.request, &BTreeSet::new()) else {
            return migration.fail();
        };
        // One that was cancelled meanwhile ends here.
        migration.route.clone().put(replica, |scheduler| scheduler.migrations.do_send(migration));
    }

    /// What a replica has to do.
    pub fn tell(&self, replica: usize, load: ReplicaLoad) {
        self.0.states[replica].tell(load);
    }

    /// True if [`Self::note`] wants to hear of changes.
    pub(crate) fn wants_changes(&self) -> bool {
        self.has_several() || self.0.events.is_some()
    }

    /// The prefix cache of a replica has changed.
    pub fn note(&self, replica: usize, changes: Vec<PrefixChange>) {
        // Held meanwhile, so that changes by several replicas are told in the order in which they are noted.
        let events = self.0.events.as_ref().map(Mutex::lock);
        let changes = if self.has_several() { self.0.prefixes.note(replica, changes) } else { changes };
        if let Some(mut events) = events.filter(|_| !changes.is_empty()) {
            events.tell(changes);
        }
    }

    /// A replica is lost: it gets nothing any more.
    pub(crate) fn lose(&self, replica: usize) {
        self.0.states[replica].lose();
        self.0.prefixes.forget(replica);
    }

    /// Has all replicas give up what they keep of prompts; what they gave up together. `None` if no replica is there.
    pub async fn flush(&self) -> Option<FlushedEntries> {
        let schedulers = self.0.schedulers.get()?;
        let all =
            futures_util::future::join_all(schedulers.iter().map(|scheduler| scheduler.flush.send(FlushCache))).await;
        all.into_iter()
            .flatten()
            .reduce(|sum, one| FlushedEntries { flushed: sum.flushed + one.flushed, kept: sum.kept + one.kept })
    }
}

/// Whether a replica's reason to refuse a request may not be another one's. What a key may have is counted over all of
/// them, and what can never run on one runs on none.
fn another_may_take_it(reason: &Rejected) -> bool {
    matches!(
        reason,
        Rejected::QueueFull { .. }
            | Rejected::QueueTokensFull { .. }
            | Rejected::WaitTooLong { .. }
            | Rejected::DeadlineUnreachable { .. }
            | Rejected::Draining
    )
}

/// A request in a scheduler's mailbox.
struct Given {
    sent: actix::dev::RecipientRequest<Routed>,
    way: Option<OnItsWay>,
}

impl Given {
    async fn answer(self) -> Result<(), Refusal> {
        let answer = self.sent.await;
        drop(self.way);
        answer.unwrap_or_else(|_| Err(Refusal::unheard()))
    }
}

/// Counts a request against its replica until the scheduler counts it itself.
struct OnItsWay {
    dispatcher: Dispatcher,
    replica: usize,
    /// Prompt tokens and sequences.
    size: (u64, u32),
}

impl OnItsWay {
    fn to(dispatcher: Dispatcher, replica: usize, size: (u64, u32)) -> Self {
        dispatcher.0.states[replica].given(size.0, size.1);
        Self { dispatcher, replica, size }
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.dispatcher.0.states[self.replica].answered(self.size.0, self.size.1);
    }
}
