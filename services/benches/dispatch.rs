//! What the dispatcher costs a request: from the call to the message in the mailbox of the replica that it chose.
//!
//! `cargo bench -p chimere --bench dispatch` measures it by the number of replicas, all of which keep the whole prompt:
//! the longest look-up. With one replica there is nothing to choose, and the rest is the mailbox's.

#![allow(clippy::unwrap_used, reason = "a measurement")]

use actix::prelude::*;
use chimere::actors::deferred_rules::DeferredRules;
use chimere::actors::dispatch::{Dispatcher, Migration, Routed, SchedulerLink};
use chimere::actors::messages::{Cancel, FlushCache, Refusal, Submit};
use chimere_engine::CHUNK_TOKENS;
use chimere_engine::ids::{CacheScope, RequestId, TokenId};
use chimere_engine::scheduler::{
    CacheTier, FlushedEntries, PrefixChange, ReplicaLoad, Request, Spec, StoredUnit, Terms, unit_hash,
};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const REQUESTS: usize = 2_000;

/// Takes every request and does nothing.
struct Sink;

impl Actor for Sink {
    type Context = Context<Self>;
}

macro_rules! takes {
    ($($message:ty => $result:ty, $answer:expr;)*) => {$(
        impl Handler<$message> for Sink {
            type Result = $result;

            fn handle(&mut self, _: $message, _: &mut Context<Self>) -> Self::Result {
                $answer
            }
        }
    )*};
}
takes! {
    Routed => Result<(), Refusal>, Ok(());
    Cancel => (), ();
    Migration => (), ();
    FlushCache => MessageResult<FlushCache>, MessageResult(FlushedEntries { flushed: 0, kept: 0 });
}

fn link() -> SchedulerLink {
    let sink = Sink.start();
    SchedulerLink {
        routed: sink.clone().recipient(),
        cancel: sink.clone().recipient(),
        migrations: sink.clone().recipient(),
        flush: sink.recipient(),
    }
}

fn request(id: u64, tokens: u32) -> Request {
    let spec = Spec { cache: Some(CacheScope(7)), ..Spec::greedy(200) };
    Request::new(RequestId(id), (0..tokens).collect::<Vec<TokenId>>(), spec)
}

/// The units of a prompt, as a prefix cache tells of them.
fn stored(request: &Request) -> PrefixChange {
    let (scope, mut before) = (request.spec.cache_scope().unwrap(), None);
    let unit = |tokens: &[TokenId]| {
        let hash = unit_hash(scope, before, tokens);
        before = Some(hash);
        StoredUnit { hash, tokens: tokens.into() }
    };
    let units = request.prompt.chunks_exact(CHUNK_TOKENS as usize).map(unit).collect();
    PrefixChange::Stored { tier: CacheTier::Device, parent: None, units }
}

/// Time until a request is in a mailbox, for each of some requests in order of their times.
async fn times(replicas: usize, tokens: u32) -> Vec<Duration> {
    let dispatcher = Dispatcher::new(replicas, 1 << 16, None);
    dispatcher.open((0..replicas).map(|_| link()).collect());
    for replica in 0..replicas {
        dispatcher.note(replica, vec![stored(&request(0, tokens))]);
        let load = ReplicaLoad { sequences_running: 8, slots_free: 8, step_us: 2e3, ..ReplicaLoad::default() };
        dispatcher.tell(replica, load);
    }
    let mut all = Vec::with_capacity(REQUESTS);
    for id in 1..=REQUESTS as u64 {
        let request = request(id, tokens);
        let (events, _heard) = mpsc::channel(1);
        let (terms, rules) = (Terms::default(), DeferredRules::default());
        let (route, submit) = (dispatcher.route(request.id), Submit { request, terms, events, rules, warm_up: false });
        let begin = Instant::now();
        let given = dispatcher.submit(&route, submit);
        all.push(begin.elapsed());
        given.await.unwrap();
    }
    all.sort();
    all
}

fn main() {
    println!("{:>8} {:>8} {:>12} {:>12}", "replicas", "prompt", "median", "99 of 100");
    for replicas in [1, 2, 4, 8, 32] {
        for tokens in [256, 2_048, 8_192] {
            let all = System::new().block_on(times(replicas, tokens));
            let (median, late) = (all[REQUESTS / 2], all[REQUESTS * 99 / 100]);
            println!("{replicas:>8} {tokens:>8} {median:>12.1?} {late:>12.1?}");
        }
    }
}
