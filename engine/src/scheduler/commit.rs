//! What follows from a finished step: token events, ends, freed memory.

use super::launched::{LaunchedPiece, LaunchedStep};
use super::policy::throughput::ComputedWork;
use super::sequence::{NextRows, Rank, Sequence};
use super::speculation::Proposal;
use super::{Door, Event, FinishReason, NOT_FINITE, Pooled, Scheduler};
use crate::cache::pages_for;
use crate::drafts::DraftReport;
use crate::ids::{Micros, RequestId};
use crate::step::{PooledUnit, Sample, Score, StepOutcome};

impl Scheduler {
    /// Takes the outcome of the oldest step in flight. Events are in the order of the plan; a choice's `Finished`
    /// follows its last token. Samples and scores of sequences that have ended meanwhile are dropped; those of
    /// preempted ones count, because a token sampled from valid rows stays valid when its memory is gone.
    pub fn commit(&mut self, outcome: StepOutcome, now: Micros) -> Vec<(RequestId, Event)> {
        if self.door == Door::Failed {
            return Vec::new();
        }
        let step = self.in_flight.pop_front().expect("an outcome belongs to a launched step");
        assert_eq!(outcome.id, Some(step.id), "outcomes come in the order of the steps");
        self.prefix.transferred(&outcome.host);
        let took = now.since(self.committed.max(step.launched));
        self.committed = now;
        let mut work = self.work_of(&step, took);
        let output_before = self.totals.later_tokens;
        let mut events = Vec::new();
        let tokens = outcome.samples.len();
        let mut samples = outcome.samples.into_iter();
        let mut scores = outcome.scores.into_iter();
        let mut pooled = outcome.pooled.into_iter();
        let mut accepted = outcome.accepted.into_iter();
        let mut guesses = outcome.guesses.into_iter();
        for piece in step.pieces {
            self.commit_scores(&piece, scores.by_ref().take(piece.scores as usize).collect(), &mut events);
            self.commit_pooled(&piece, pooled.by_ref().take(piece.pooled as usize));
            if let Some(offer) = &piece.drafted {
                let right = accepted.next().expect("a count for each piece with drafts") as usize;
                let own: Vec<_> = samples.by_ref().take(right + 1).collect();
                assert!(right <= offer.tokens.len() && own.len() == right + 1, "one sample for each row that counts");
                self.commit_drafted(piece.rank, offer, own, now, &mut events);
            } else {
                for &rank in &piece.samples {
                    let sample = samples.next().expect("one sample for each row that asked for one");
                    self.commit_sample(rank, sample, None, now, &mut events);
                }
            }
            if piece.guesses {
                let guesses = guesses.next().expect("an entry for each piece that asked");
                self.commit_guesses(piece.rank, guesses.clone());
                self.settle_follow_up(piece.rank, &guesses);
            }
            if piece.completes {
                self.complete(&piece, &mut events);
            }
        }
        let rest = samples.next().is_some()
            || accepted.next().is_some()
            || guesses.next().is_some()
            || scores.next().is_some()
            || pooled.next().is_some();
        assert!(!rest, "step {} brought more than it was asked for", step.id);
        if !step.is_idle {
            self.pay(step.expected, tokens, now);
        }
        work.tokens = self.totals.later_tokens - output_before;
        if step.left_waiting {
            self.throughput.note(now, &work);
        }
        events
    }

    /// What a step did that took so long, but for the tokens that it brought.
    fn work_of(&self, step: &LaunchedStep, took: Micros) -> ComputedWork {
        let streams = self.running.iter().filter(|seq| !seq.output.is_empty()).count() as u64;
        let reads = step.prompt_rows > 0 || self.running.iter().any(|seq| seq.next() == NextRows::Prompt);
        ComputedWork {
            us: took.0,
            reading_us: if reads { took.0 } else { 0 },
            prompt_tokens: u64::from(step.prompt_rows),
            stream_us: took.0.saturating_mul(streams),
            tokens: 0,
        }
    }

    /// Delivers each score once, also when a preemption has the prompt computed twice.
    fn commit_scores(&mut self, piece: &LaunchedPiece, mut scores: Vec<Score>, events: &mut Vec<(RequestId, Event)>) {
        assert_eq!(scores.len(), piece.scores as usize, "one score for each row that asked for one");
        let Some(live) = self.live.get_mut(&piece.request).filter(|live| live.first == piece.rank.seq) else { return };
        scores.retain(|score| score.position > live.scored);
        if scores.iter().any(|score| !score.finite) {
            return self.fail_one(piece.request, events);
        }
        let Some(last) = scores.last() else { return };
        live.scored = last.position;
        events.push((piece.request, Event::Scored(scores)));
    }

    /// Adds each unit once, also when a preemption has the prompt computed twice.
    fn commit_pooled(&mut self, piece: &LaunchedPiece, units: impl Iterator<Item = PooledUnit>) {
        let mut live = self.live.get_mut(&piece.request).filter(|live| live.first == piece.rank.seq);
        let mut count = 0;
        for unit in units {
            count += 1;
            if let Some(live) = &mut live {
                live.pooled.add(unit);
            }
        }
        assert_eq!(count, piece.pooled, "one sum for each unit that asked for one");
    }

    /// Takes the samples of a piece with drafts: one, and one behind each draft that is right. What comes behind the
    /// sequence's end is dropped.
    fn commit_drafted(
        &mut self,
        rank: Rank,
        offer: &Proposal,
        samples: Vec<Sample>,
        now: Micros,
        events: &mut Vec<(RequestId, Event)>,
    ) {
        let right = samples.len() - 1;
        let ends = self.find_mut(rank).map(|seq| seq.request.spec.end_ids.clone()).unwrap_or_default();
        let accepted = samples.iter().position(|sample| ends.contains(&sample.token)).unwrap_or(right).min(right);
        let report = DraftReport { kind: offer.kind, drafted: offer.tokens.len() as u32, accepted: accepted as u32 };
        self.note_outcome(rank, offer, right);
        for (i, sample) in samples.into_iter().take(accepted + 1).enumerate() {
            if i > 0 {
                let Some(seq) = self.find_mut(rank) else { return };
                seq.draft_counts();
                let key = seq.key;
                self.accounts.output_served(key);
            }
            self.commit_sample(rank, sample, (i == 0).then_some(report), now, events);
        }
        self.forget_drafts(rank);
    }

    /// Learns from drafts of which the first `right` are right.
    fn note_outcome(&mut self, rank: Rank, offer: &Proposal, right: usize) {
        let Some(seq) = self.find_mut(rank) else { return self.speculation.note(offer, right, None) };
        let mut drafter = std::mem::take(&mut seq.drafter);
        self.speculation.note(offer, right, Some(&mut drafter));
        self.find_mut(rank).expect("it was found just now").drafter = drafter;
    }

    /// Nothing drafted is in flight any more: gives back the pages of what did not count.
    pub(super) fn forget_drafts(&mut self, rank: Rank) {
        let Some(seq) = self.find_mut(rank) else { return };
        seq.drafted = 0;
        if seq.follow_up.is_none() {
            self.give_back_pages(rank, 0);
        }
    }

    /// Gives back the pages of a sequence that begin more than so many positions behind those computed.
    pub(super) fn give_back_pages(&mut self, rank: Rank, positions: u32) {
        let Some(seq) = self.find_mut(rank) else { return };
        let surplus = seq.pages.split_off((seq.pages.len()).min(pages_for(seq.computed + positions) as usize));
        surplus.into_iter().for_each(|page| self.pages.release(page));
    }

    fn commit_sample(
        &mut self,
        rank: Rank,
        sample: Sample,
        drafts: Option<DraftReport>,
        now: Micros,
        events: &mut Vec<(RequestId, Event)>,
    ) {
        assert_eq!(sample.seq, rank.seq, "samples come in the order of the plan");
        let Some(seq) = self.find_mut(rank) else { return };
        if !sample.finite {
            let id = seq.request.id;
            return self.fail_one(id, events);
        }
        let (id, choice, index) = (seq.request.id, seq.choice, seq.output.len() as u32);
        let mut drafter = std::mem::take(&mut seq.drafter);
        let reason = seq.commit(&sample);
        let thought = seq.rules.thought();
        self.speculation.record_token(&mut drafter, sample.token, index);
        let seq = self.find_mut(rank).expect("it was found just now");
        seq.drafter = drafter;
        seq.run.record_token(index, sample.token);
        let Sample { token, logprobs, certainty, changed, yielded, report, .. } = sample;
        events.push((id, Event::Token { choice, index, token, logprobs, certainty, changed, yielded, drafts, report }));
        events.extend(thought.map(|thought| (id, Event::Thought { choice, thought })));
        let live = self.live.get_mut(&id).expect("its sequence lives");
        live.times.first_token.get_or_insert(now);
        if !live.terms.idle {
            self.totals.output_tokens += 1;
            self.totals.later_tokens += u64::from(index > 0);
        }
        if let Some(reason) = reason {
            self.finish(rank, reason, events);
        }
    }

    /// Ends a request whose numbers are none.
    fn fail_one(&mut self, id: RequestId, events: &mut Vec<(RequestId, Event)>) {
        if self.cancel(id) {
            events.push((id, Event::Failed(NOT_FINITE.to_owned())));
        }
    }

    /// Ends a request that wanted no output once its prompt is computed.
    fn complete(&mut self, piece: &LaunchedPiece, events: &mut Vec<(RequestId, Event)>) {
        let Some(seq) = self.find_mut(piece.rank) else { return };
        if let Some(pool) = seq.request.spec.pool {
            let rows = seq.prompt_len() - pool.from(seq.prompt_len());
            let live = self.live.get_mut(&piece.request).expect("its sequence lives");
            let mean = std::mem::take(&mut live.pooled).mean(rows);
            if !mean.iter().all(|x| x.is_finite()) {
                return self.fail_one(piece.request, events);
            }
            events.push((piece.request, Event::Pooled(mean)));
        }
        let mine = |seq: &&Sequence| seq.request.id == piece.request;
        let mut ranks: Vec<_> = self.running.iter().filter(mine).map(|seq| seq.rank).collect();
        ranks.extend(self.queue.ranks_of(piece.request));
        ranks.extend(self.idle.ranks_of(piece.request));
        for rank in ranks {
            self.finish(rank, FinishReason::Length, events);
        }
    }

    fn finish(&mut self, rank: Rank, reason: FinishReason, events: &mut Vec<(RequestId, Event)>) {
        let seq = self.remove(rank).expect("it was found just now");
        let id = seq.request.id;
        let (times, idle) = (self.live[&id].times, self.live[&id].terms.idle);
        if !idle {
            self.lengths.note(seq.output_max, seq.output.len() as u32);
        }
        events.push((id, Event::Finished { choice: seq.choice, reason, usage: seq.usage(), times }));
        self.choice_ended(id);
    }

    pub(super) fn find_mut(&mut self, rank: Rank) -> Option<&mut Sequence> {
        match self.place_of(rank) {
            Some(at) => Some(&mut self.running[at]),
            None => self.queue.get_mut(rank).or_else(|| self.idle.get_mut(rank)),
        }
    }
}

impl Pooled {
    /// A unit that was added before, in another computation of the same positions, has the same bytes and is left out.
    fn add(&mut self, unit: PooledUnit) {
        if unit.positions.end <= self.end {
            return;
        }
        self.end = unit.positions.end;
        self.sum.resize(unit.sum.len(), 0.0);
        self.sum.iter_mut().zip(&unit.sum).for_each(|(sum, x)| *sum += x);
    }

    fn mean(mut self, rows: u32) -> Vec<f32> {
        self.sum.iter_mut().for_each(|x| *x /= rows as f32);
        self.sum
    }
}
