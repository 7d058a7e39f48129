//! What follows from a finished step: token events, ends, freed memory.

use super::sequence::{Rank, Sequence};
use super::{Door, Event, FinishReason, LaunchedPiece, Pooled, Scheduler};
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
        let mut events = Vec::new();
        let mut samples = outcome.samples.into_iter();
        let mut scores = outcome.scores.into_iter();
        let mut pooled = outcome.pooled.into_iter();
        for piece in step.pieces {
            self.commit_scores(&piece, scores.by_ref().take(piece.scores as usize).collect(), &mut events);
            self.commit_pooled(&piece, pooled.by_ref().take(piece.pooled as usize));
            for &rank in &piece.samples {
                let sample = samples.next().expect("one sample for each row that asked for one");
                self.commit_sample(rank, sample, now, &mut events);
            }
            if piece.completes {
                self.complete(&piece, &mut events);
            }
        }
        let rest = samples.next().is_some() || scores.next().is_some() || pooled.next().is_some();
        assert!(!rest, "step {} brought more than it was asked for", step.id);
        events
    }

    /// Delivers each score once, also when a preemption has the prompt computed twice.
    fn commit_scores(&mut self, piece: &LaunchedPiece, mut scores: Vec<Score>, events: &mut Vec<(RequestId, Event)>) {
        assert_eq!(scores.len(), piece.scores as usize, "one score for each row that asked for one");
        let Some(live) = self.live.get_mut(&piece.request).filter(|live| live.first == piece.rank.seq) else { return };
        scores.retain(|score| score.position > live.scored);
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

    fn commit_sample(&mut self, rank: Rank, sample: Sample, now: Micros, events: &mut Vec<(RequestId, Event)>) {
        assert_eq!(sample.seq, rank.seq, "samples come in the order of the plan");
        let Some(seq) = self.find_mut(rank) else { return };
        let (id, choice, index) = (seq.request.id, seq.choice, seq.output.len() as u32);
        let reason = seq.commit(&sample);
        let thought = seq.rules.thought();
        let Sample { token, logprobs, certainty, changed, yielded, .. } = sample;
        events.push((id, Event::Token { choice, index, token, logprobs, certainty, changed, yielded }));
        events.extend(thought.map(|thought| (id, Event::Thought { choice, thought })));
        self.totals.output_tokens += 1;
        self.live.get_mut(&id).expect("its sequence lives").times.first_token.get_or_insert(now);
        if let Some(reason) = reason {
            self.finish(rank, reason, events);
        }
    }

    /// Ends a request that wanted no output once its prompt is computed.
    fn complete(&mut self, piece: &LaunchedPiece, events: &mut Vec<(RequestId, Event)>) {
        let Some(seq) = self.find_mut(piece.rank) else { return };
        if let Some(pool) = seq.request.spec.pool {
            let rows = seq.prompt_len() - pool.from(seq.prompt_len());
            let live = self.live.get_mut(&piece.request).expect("its sequence lives");
            events.push((piece.request, Event::Pooled(std::mem::take(&mut live.pooled).mean(rows))));
        }
        let mine = |seq: &&Sequence| seq.request.id == piece.request;
        let mut ranks: Vec<_> = self.running.iter().filter(mine).map(|seq| seq.rank).collect();
        ranks.extend(self.queue.ranks_of(piece.request));
        for rank in ranks {
            self.finish(rank, FinishReason::Length, events);
        }
    }

    fn finish(&mut self, rank: Rank, reason: FinishReason, events: &mut Vec<(RequestId, Event)>) {
        let seq = self.remove(rank).expect("it was found just now");
        self.lengths.ended(seq.output_max, seq.output.len() as u32);
        let id = seq.request.id;
        let times = self.live[&id].times;
        events.push((id, Event::Finished { choice: seq.choice, reason, usage: seq.usage(), times }));
        self.choice_ended(id);
    }

    fn find_mut(&mut self, rank: Rank) -> Option<&mut Sequence> {
        match self.place_of(rank) {
            Some(at) => Some(&mut self.running[at]),
            None => self.queue.get_mut(rank),
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
