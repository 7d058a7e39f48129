//! The scheduler actor's side of one deferred source: which requests use it, and what its actor is told of them.

use super::actor::{Reports, Starter};
use super::link::DeferredLink;
use super::source::DeferredSource;
use crate::actors::messages::{Awaits, Follow, Forget};
use chimere_engine::constraint::StepRules;
use chimere_engine::ids::{RequestId, SeqId, StepId};
use chimere_engine::step::StepPlan;
use std::collections::HashMap;

/// Requests that use a source, from their admission to their end.
pub struct DeferredUsers<S: DeferredSource> {
    starter: Starter<S>,
    link: DeferredLink<S>,
    requests: HashMap<RequestId, Sequences>,
}

#[derive(Clone, Copy)]
struct Sequences {
    first: SeqId,
    choices: u32,
}

impl<S: DeferredSource> DeferredUsers<S> {
    /// A source that no request uses yet. Its actor runs from [`DeferredUsers::start`] on.
    pub fn new(starter: Starter<S>, link: DeferredLink<S>) -> Self {
        Self { starter, link, requests: HashMap::new() }
    }

    /// Starts an actor, in the place of one that died or as the first.
    pub fn start(&self, scheduler: Reports) {
        self.link.set(self.starter.start(scheduler));
    }

    /// Begins to track a request that was admitted, or that came from another engine.
    pub fn follow(&mut self, id: RequestId, follow: Follow<S::Rules>) {
        let Follow { first, choices, .. } = follow;
        self.requests.insert(id, Sequences { first, choices });
        self.link.set_users(self.requests.len());
        if let Some(actor) = self.link.actor() {
            actor.do_send(follow);
        }
    }

    /// Ends the tracking of a request, whether it used the source or not.
    pub fn forget(&mut self, id: RequestId) {
        let Some(Sequences { first, choices }) = self.requests.remove(&id) else { return };
        self.link.set_users(self.requests.len());
        if let Some(actor) = self.link.actor() {
            actor.do_send(Forget { first, choices });
        }
    }

    /// The request of a sequence, if it uses the source.
    pub fn request_of(&self, seq: SeqId) -> Option<RequestId> {
        let of = |(_, s): &(&RequestId, &Sequences)| (s.first.0..s.first.0 + u64::from(s.choices)).contains(&seq.0);
        self.requests.iter().find(of).map(|(id, _)| *id)
    }

    /// The message to the actor when this plan has been launched; `None` if no row waits for the source.
    pub fn awaiting(&self, plan: &StepPlan) -> Option<Awaits> {
        plan.awaiting(S::SOURCE).map(Awaits)
    }

    /// Tells the actor of a step in which rows wait for the source. It was launched right behind the step `before`, if
    /// that is in flight.
    pub fn launched(&self, step: Awaits, before: Option<StepId>) {
        self.link.launched(step, before);
    }

    /// Answers a step in the stead of an actor that is gone: the step goes on without the rules of the source.
    pub fn answer_for(&self, step: StepId) {
        self.starter.rules.send(StepRules::silent(step, S::SOURCE));
    }

    /// Takes the requests whose sequences the actor knew when it died.
    pub fn take_all(&mut self) -> Vec<RequestId> {
        self.link.set_users(0);
        let mut ids: Vec<_> = std::mem::take(&mut self.requests).into_keys().collect();
        ids.sort_unstable();
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::deferred::{EngramSource, GrammarSource, RulesLink};
    use crate::actors::deferred_rules::DeferredRules;
    use crate::actors::engine::EngineActor;
    use crate::actors::engine::outcomes::{DeferredLinks, outcomes, wait_for_steps};
    use crate::actors::live::LiveRequests;
    use crate::actors::messages::{DeferredLost, Open, RequestEvent, RulesReady, RulesSent, Submit};
    use crate::actors::scheduler::{ReplicaPlace, SchedulerActor, SchedulerSettings};
    use crate::actors::threads;
    use crate::clock::Clock;
    use crate::metrics::gateway::Gateway;
    use actix::prelude::*;
    use chimere_engine::backend::cpu::{CpuBackend, CpuConfig, KvType};
    use chimere_engine::constraint::Awaiting;
    use chimere_engine::engram::{Context, Continuations, Filter, Mode, Ngrams, PredictionRules, RequestTables, Tally};
    use chimere_engine::ids::TokenId;
    use chimere_engine::scheduler::{DraftSettings, Event, Pace, PrefixConfig, Request, SchedulerConfig, Spec, Terms};
    use parking_lot::Mutex;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;
    use tokio::sync::mpsc;

    /// A table that knows nothing, and panics when it is asked for the last time.
    struct Fragile {
        lookups: AtomicU32,
        /// The tokens behind which it was asked.
        asked: Mutex<Vec<Vec<TokenId>>>,
    }

    impl Ngrams for Fragile {
        fn orders(&self) -> u32 {
            1 << 2
        }

        fn vocab(&self) -> u32 {
            512
        }

        fn prior(&self, _: TokenId) -> u64 {
            0
        }

        fn prior_total(&self) -> u64 {
            0
        }

        fn prefetch(&self, _: &Context, _: usize) {}

        fn locate(&self, context: &Context, _: usize) -> Option<usize> {
            assert!(self.lookups.fetch_sub(1, Ordering::Relaxed) > 1, "a table breaks on purpose");
            self.asked.lock().push(context.ids().to_vec());
            None
        }

        fn read(&self, _: &Context, _: usize, _: usize) -> Option<Continuations<'_>> {
            None
        }
    }

    fn fragile(lookups: u32) -> Arc<Fragile> {
        Arc::new(Fragile { lookups: AtomicU32::new(lookups), asked: Mutex::default() })
    }

    fn tables(lookups: u32) -> Arc<RequestTables> {
        tables_of(fragile(lookups))
    }

    fn tables_of(table: Arc<Fragile>) -> Arc<RequestTables> {
        Arc::new(RequestTables {
            filter: Arc::new(Filter::of_tables(std::iter::empty())),
            tables: Vec::new(),
            prior: None,
            own: vec![table],
            mode: Mode::mixture(0.5).unwrap(),
            auto: None,
            rules: PredictionRules { min_count: 1 },
            silent_in: None,
            end_ids: Vec::new(),
            tally: Tally::default(),
        })
    }

    fn backend() -> CpuBackend {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden/moe/model.gguf");
        let model = chimere_engine::model::load(&golden).unwrap();
        let config = CpuConfig {
            threads: 1,
            slots: 4,
            pages: 16,
            checkpoints: 0,
            kv_type: KvType::F16,
            exact: false,
            step_rows_max: 128,
            context: 128,
            drafts: 0,
            draft_head: false,
        };
        CpuBackend::new(&model, &config, &mut |_| {}).unwrap()
    }

    async fn scheduler(arbiters: &[Arbiter; 3]) -> Addr<SchedulerActor> {
        let config = SchedulerConfig {
            slots: 4,
            pages: 16,
            step_tokens: 64,
            context: 128,
            queue_requests_max: 8,
            queue_prompt_tokens_max: 1024,
            steps_in_flight_max: 2,
            adapter_slots: 0,
            prefix: PrefixConfig::OFF,
        };
        let (outcomes, launched) = outcomes();
        let build = Box::new(|| Ok(Box::new(backend()) as Box<dyn chimere_engine::backend::Backend>));
        let started = EngineActor::start_on(&arbiters[0].handle(), build, outcomes).await.unwrap();
        let (engine, rules) = (started.engine, started.rules);
        let (clock, links) = (Clock::start(), DeferredLinks::default());
        let (arbiter, again) = (arbiters[2].handle(), (rules.clone(), clock.clone()));
        let make = Arc::new(|| EngramSource::new(2));
        let engram = Starter { arbiter: arbiter.clone(), make, rules, clock: clock.clone() };
        let make = Arc::new(|| GrammarSource::new(1));
        let grammar = Starter { arbiter, make, rules: again.0, clock: again.1 };
        let late =
            (DeferredUsers::new(engram, links.tables.clone()), DeferredUsers::new(grammar, links.grammars.clone()));
        let gateway = Arc::new(Gateway::new("tables that break", &config));
        let scheduler = SchedulerActor::start_in_arbiter(&arbiters[1].handle(), move |_| {
            let settings = SchedulerSettings {
                config,
                drafts: DraftSettings::default(),
                pace: Pace::default(),
                live: LiveRequests::default(),
                clock,
                gateway,
                step_log: Arc::default(),
            };
            SchedulerActor::new(settings, ReplicaPlace::alone(), engine, late)
        });
        wait_for_steps(launched, links, scheduler.clone().recipient()).unwrap();
        scheduler.send(Open).await.unwrap();
        scheduler
    }

    /// The tokens of a request of 20, or why it failed.
    async fn ask(
        scheduler: Addr<SchedulerActor>,
        id: u64,
        tables: Option<Arc<RequestTables>>,
    ) -> Result<Vec<TokenId>, String> {
        let rules = DeferredRules { tables, grammar: None };
        let request =
            Request::new(RequestId(id), [7, 300, 41], Spec { waits_for: rules.sources(), ..Spec::greedy(20) });
        let (events, mut heard) = mpsc::channel(Submit::events_max(&request, 128));
        scheduler
            .send(Submit { request, terms: Terms::default(), events, rules, warm_up: false })
            .await
            .unwrap()
            .unwrap();
        let mut tokens = Vec::new();
        while let Some(event) =
            actix_rt::time::timeout(Duration::from_secs(20), heard.recv()).await.expect("an event in time")
        {
            match event {
                RequestEvent::Event(Event::Token { token, .. }) => tokens.push(token),
                RequestEvent::Event(Event::Failed(why)) => return Err(why),
                _ => {}
            }
        }
        Ok(tokens)
    }

    #[test]
    fn a_table_that_breaks_ends_the_requests_that_use_tables_and_no_others() {
        actix_rt::System::new().block_on(async {
            let arbiters = ["t-engine", "t-sched", "t-engram"].map(|name| threads::arbiter(name, None).unwrap());
            let scheduler = scheduler(&arbiters).await;
            let plain = ask(scheduler.clone(), 0, None).await.unwrap();
            assert_eq!(plain.len(), 20);
            assert_eq!(
                ask(scheduler.clone(), 1, Some(tables(u32::MAX))).await.as_ref(),
                Ok(&plain),
                "a table without an opinion"
            );
            for round in 0..3u32 {
                let id = |i: u64| 10 + 10 * u64::from(round) + i;
                let all = tokio::join!(
                    ask(scheduler.clone(), id(0), None),
                    ask(scheduler.clone(), id(1), Some(tables(u32::MAX))),
                    ask(scheduler.clone(), id(2), Some(tables(7 + round))),
                );
                assert_eq!(all.0.as_ref(), Ok(&plain));
                // The other one that uses tables may have had its last token before.
                assert!(all.1.is_err() || all.1.as_ref() == Ok(&plain), "{:?}", all.1);
                assert!(all.2.as_ref().is_err_and(|why| why.contains("tables")), "{:?}", all.2);
                assert_eq!(
                    ask(scheduler.clone(), id(3), Some(tables(u32::MAX))).await.as_ref(),
                    Ok(&plain),
                    "the next one works"
                );
            }
            arbiters.iter().for_each(|a| assert!(a.stop()));
        });
    }

    /// In the place of an engine and of a scheduler: passes on which steps have their rules.
    struct Listener(mpsc::UnboundedSender<StepId>);

    impl Actor for Listener {
        type Context = actix::Context<Self>;
    }

    impl Handler<RulesReady> for Listener {
        type Result = ();

        fn handle(&mut self, RulesReady(step): RulesReady, _: &mut Self::Context) {
            self.0.send(step).unwrap();
        }
    }

    impl Handler<RulesSent> for Listener {
        type Result = ();

        fn handle(&mut self, _: RulesSent, _: &mut Self::Context) {}
    }

    impl Handler<DeferredLost> for Listener {
        type Result = ();

        fn handle(&mut self, _: DeferredLost, _: &mut Self::Context) {}
    }

    #[test]
    fn a_request_from_another_engine_is_answered_behind_the_tokens_that_it_has_had() {
        actix_rt::System::new().block_on(async {
            let (told, mut ready) = mpsc::unbounded_channel();
            let listener = Listener(told).start();
            let rules = RulesLink::new(listener.clone().recipient(), Arc::default());
            let (arbiter, make) = (Arbiter::current(), Arc::new(|| EngramSource::new(1)));
            let mut users =
                DeferredUsers::new(Starter { arbiter, make, rules, clock: Clock::start() }, DeferredLink::default());
            let (sent, lost) = (listener.clone().recipient(), listener.recipient());
            users.start(Reports { sent, polled: Default::default(), lost });
            let table = fragile(u32::MAX);
            let (first, prompt, outputs) = (SeqId(6), Arc::from([1, 2]), vec![vec![3], vec![], vec![4, 5]]);
            let rules = tables_of(table.clone());
            users.follow(RequestId(1), Follow { first, choices: 3, prompt, outputs, rules });
            let rows = vec![(SeqId(6), 1), (SeqId(8), 2)];
            users.launched(Awaits(Awaiting { step: StepId(0), rows, drafts: HashMap::new() }), None);
            let step = actix_rt::time::timeout(Duration::from_secs(20), ready.recv()).await;
            assert_eq!(step.expect("an answer in time"), Some(StepId(0)));
            assert_eq!(*table.asked.lock(), [vec![1, 2, 3], vec![1, 2, 4, 5]]);
        });
    }
}
