//! What each message to the scheduler actor does: a call to the pipeline, and then its events and steps go out.

use super::SchedulerActor;
use crate::actors::dispatch::{Migration, Routed};
use crate::actors::messages::{
    Cancel, DeferredLost, Drain, EngineOverdue, FlushCache, Open, PlanDue, Refusal, RulesSent, StepDone, Submit,
};
use crate::actors::phase::{Phase, SHUTTING_DOWN};
use actix::prelude::*;
use chimere_engine::constraint::{Source, Sources};

impl Handler<Submit> for SchedulerActor {
    type Result = Result<(), Refusal>;

    fn handle(&mut self, msg: Submit, ctx: &mut Context<Self>) -> Self::Result {
        self.admit(msg, None, ctx)
    }
}

impl Handler<Routed> for SchedulerActor {
    type Result = Result<(), Refusal>;

    fn handle(&mut self, Routed { submit, route }: Routed, ctx: &mut Context<Self>) -> Self::Result {
        self.admit(submit, Some(route), ctx)
    }
}

impl Handler<Migration> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, msg: Migration, ctx: &mut Context<Self>) {
        self.adopt(msg, ctx);
    }
}

impl Handler<Cancel> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, msg: Cancel, _: &mut Context<Self>) {
        match msg {
            Cancel::Request(id, seen) => {
                self.pipeline.cancel(id);
                // A request that has ended has no stream left, and nothing to free.
                if self.streams.contains(id) {
                    self.forget(id);
                    self.meter.cancelled(self.clock.now().since(seen));
                }
            }
            Cancel::Choice(id, choice) => {
                if self.pipeline.cancel_choice(id, choice) && self.streams.end_choice(id) {
                    self.forget(id);
                }
            }
        }
        self.pump();
    }
}

impl Handler<StepDone> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, StepDone(outcome): StepDone, ctx: &mut Context<Self>) {
        match outcome {
            Ok(outcome) => self.end_step(outcome, ctx),
            Err(e) => self.lose(&e.to_string()),
        }
    }
}

impl Handler<EngineOverdue> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, EngineOverdue(why): EngineOverdue, _: &mut Context<Self>) {
        let awaits = self.pipeline.oldest().map_or(Sources::NONE, |step| step.awaits);
        let sources: Vec<_> = awaits.iter().map(Source::name).collect();
        let why = if sources.is_empty() { why } else { format!("{why}; it waits for {}", sources.join(" and ")) };
        self.lose(&why);
    }
}

impl Handler<PlanDue> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, _: PlanDue, _: &mut Context<Self>) {
        self.pump();
    }
}

impl Handler<RulesSent> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, msg: RulesSent, _: &mut Context<Self>) {
        if self.note_rules(msg) {
            self.pump();
        }
    }
}

impl Handler<DeferredLost> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, DeferredLost(source): DeferredLost, ctx: &mut Context<Self>) {
        self.replace(source, &ctx.address());
    }
}

impl Handler<Open> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, _: Open, _: &mut Context<Self>) {
        self.go(Phase::Ready);
    }
}

impl Handler<FlushCache> for SchedulerActor {
    type Result = MessageResult<FlushCache>;

    fn handle(&mut self, _: FlushCache, _: &mut Context<Self>) -> Self::Result {
        let flushed = self.pipeline.flush_prefix();
        tracing::info!(flushed = flushed.flushed, kept = flushed.kept, "the prefix cache was flushed");
        self.pump();
        MessageResult(flushed)
    }
}

impl Handler<Drain> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, msg: Drain, ctx: &mut Context<Self>) {
        let ended = self.pipeline.drain(SHUTTING_DOWN);
        self.go(Phase::Draining);
        self.deliver(ended);
        ctx.run_later(msg.within, |this, _| {
            if this.phase.is_draining() {
                this.end_all(SHUTTING_DOWN);
                this.go(Phase::Drained);
            }
        });
        self.pump();
    }
}
