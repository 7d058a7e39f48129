//! Requests that go from one scheduler to another, as when the first one's engine is lost.
//!
//! A request takes its prompt and the tokens that were committed along, and nothing that a device holds. The other
//! scheduler treats it as one that was preempted there: it computes the prompt in chunks and the outputs in recurrent
//! rows again, and the next token is the one that would have come. Rows in flight are dropped with the engine; their
//! tokens, which nobody has seen, come once more. Idle work goes on as idle work, as if it had been parked.

use super::policy::cost::Pace;
use super::policy::ledger::KeyPlace;
use super::request::{Rejected, Request, RequestTimes};
use super::sequence::{ChoiceRole, Sequence};
use super::{Door, LiveRequest, Pooled, Scheduler, Terms};
use crate::constraint::SequenceRules;
use crate::ids::{Micros, RequestId, TokenId};
use std::collections::BTreeMap;

/// A live request between two schedulers. It keeps its place among the requests that its key may have; dropping it
/// frees that place, and then the request is over.
#[derive(Debug)]
pub struct MigratedRequest {
    /// The prompt, and what is asked for it.
    pub request: Request,
    /// On whose account it runs, and by when it has to be done.
    pub terms: Terms,
    /// When things happened to it so far.
    pub times: RequestTimes,
    /// Its choices that have not ended, in ascending order; at least one.
    pub choices: Vec<MigratedChoice>,
    /// Prompt tokens that a cache spared, of a request that has started.
    cached: u32,
    /// Prompt positions that its key was charged for.
    charged: u32,
    /// Position of the last prompt token whose score was delivered.
    scored: u32,
    pooled: Pooled,
    /// None of idle work.
    place: Option<KeyPlace>,
}

/// A choice of a [`MigratedRequest`].
#[derive(Debug)]
pub struct MigratedChoice {
    /// Its number among the request's choices, from 0.
    pub choice: u32,
    /// The tokens that were committed, so all that the caller was told of.
    pub tokens: Vec<TokenId>,
    /// The most tokens that it may have.
    output_max: u32,
    preemptions: u32,
    rules: SequenceRules,
}

impl MigratedRequest {
    /// The tokens that each choice has had, by the choice's number; none of a choice that has ended.
    pub fn tokens_by_choice(&self) -> Vec<Vec<TokenId>> {
        let mut all = vec![Vec::new(); self.request.spec.choices as usize];
        self.choices.iter().for_each(|of| all[of.choice as usize].clone_from(&of.tokens));
        all
    }

    /// Positions that the next scheduler has to compute before each choice has its next token, if its prefix cache
    /// spares none.
    pub fn positions(&self) -> u64 {
        let prompt = self.request.prompt.len() as u64;
        let outputs = self.choices.iter().map(|of| of.tokens.len() as u64).sum::<u64>();
        if self.shares_prompt() { prompt } else { prompt * self.choices.len() as u64 + outputs }
    }

    /// Is the prompt still to be computed once for all choices? Not after they have parted.
    fn shares_prompt(&self) -> bool {
        let all = self.choices.len() as u32 == self.request.spec.choices;
        all && self.choices.iter().all(|of| of.tokens.is_empty())
    }
}

impl Scheduler {
    /// The engine is lost: gives all live requests, in the order of their admission, for other schedulers to go on
    /// with. Afterwards nothing is live, planned or admitted here any more, and outcomes that still come mean nothing.
    pub fn hand_over(&mut self) -> Vec<MigratedRequest> {
        let mut sequences = BTreeMap::<RequestId, Vec<Sequence>>::new();
        for seq in self.close() {
            sequences.entry(seq.request.id).or_default().push(seq);
        }
        let mut live: Vec<_> = std::mem::take(&mut self.live).into_iter().collect();
        live.sort_by_key(|(_, live)| (live.times.admitted, live.first));
        let take = |(id, live): (RequestId, LiveRequest)| {
            live.place.iter().for_each(|place| self.accounts.part(place));
            MigratedRequest::of(live, sequences.remove(&id).expect("a request lives as long as a choice of it"))
        };
        live.into_iter().map(take).collect()
    }

    /// Goes on with a request that another scheduler has handed over. Its next events are those that would have come
    /// there. It was admitted before, so neither the bounds of what may wait nor its key's limits keep it out, and
    /// within its key it goes before what was admitted later.
    ///
    /// Refused where [`Self::may_adopt`] says so; then the request is over.
    pub fn adopt(&mut self, migrated: MigratedRequest, now: Micros, pace: &Pace) -> Result<(), Rejected> {
        self.may_adopt(&migrated)?;
        self.assert_sound(&migrated.request, &migrated.terms);
        let fits = self.output_room(&migrated)?;
        let shares_prompt = migrated.shares_prompt();
        let MigratedRequest { request, terms, times, choices, cached, charged, scored, pooled, place } = migrated;
        let resumes = times.started.is_some();
        let cached = if resumes || terms.idle { cached } else { self.cached(&request, pace) };
        let place = place.map(|place| self.accounts.take_over(place, &terms));
        if !terms.idle {
            self.accounts.visited(terms.key, now);
        }
        let first = self.enter(&request, &terms, place, times.admitted);
        let unfinished = choices.len() as u32;
        let live = self.live.get_mut(&request.id).expect("it has entered just now");
        (live.unfinished, live.times, live.scored, live.pooled) = (unfinished, times, scored, pooled);
        for MigratedChoice { choice, tokens, output_max, preemptions, rules } in choices {
            let new = Sequence::new(request.clone(), terms.key, (times.admitted, first), choice, output_max.min(fits));
            let role = if shares_prompt { new.role } else { ChoiceRole::Alone };
            let seq = Sequence { role, exempt: true, cached, charged, output: tokens, ..new };
            let seq = Sequence { preemptions, resumes, rules, ..seq };
            if terms.idle { self.idle.push(seq) } else { self.queue.push(seq) }
        }
        Ok(())
    }

    /// May this request go on here? Not where nothing is admitted any more, nor where it does not fit, alone or with
    /// one more token of each choice.
    pub fn may_adopt(&self, migrated: &MigratedRequest) -> Result<(), Rejected> {
        if self.door != Door::Open {
            return Err(Rejected::Draining);
        }
        let fits = self.output_room(migrated)?;
        let longest = migrated.choices.iter().map(|of| of.tokens.len() as u32).max().unwrap_or(0);
        if longest > 0 && longest >= fits {
            let prompt = migrated.request.prompt.len() as u32;
            return Err(Rejected::PromptTooLong { got: prompt + longest, max: prompt + fits - 1 });
        }
        Ok(())
    }

    /// The most tokens that each choice may have here.
    fn output_room(&self, migrated: &MigratedRequest) -> Result<u32, Rejected> {
        let request = &migrated.request;
        if migrated.terms.idle { self.idle_output_max(request) } else { self.output_max(request) }
    }
}

impl MigratedRequest {
    /// A request with the sequences of its unfinished choices, in any order.
    fn of(live: LiveRequest, mut sequences: Vec<Sequence>) -> Self {
        sequences.sort_by_key(|seq| seq.choice);
        let request = sequences[0].request.clone();
        // The first choice computed the prompt for those that wait for it.
        let cached = sequences[0].cached;
        let charged = sequences.iter().map(|seq| seq.charged).max().unwrap_or(0);
        let choices = sequences.into_iter().map(MigratedChoice::of).collect();
        let LiveRequest { terms, place, times, scored, pooled, .. } = live;
        Self { request, terms, times, choices, cached, charged, scored, pooled, place }
    }
}

impl MigratedChoice {
    fn of(seq: Sequence) -> Self {
        let Sequence { choice, output: tokens, output_max, preemptions, mut rules, .. } = seq;
        rules.rewind(&tokens);
        Self { choice, tokens, output_max, preemptions, rules }
    }
}
