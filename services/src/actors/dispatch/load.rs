//! What a dispatcher knows of each replica, and which one would have answered a request first.

use chimere_engine::scheduler::ReplicaLoad;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// What was given to a replica and is not among the things that it has told: it has not been answered.
#[derive(Clone, Copy, Debug, Default)]
struct Unanswered {
    prompt_tokens: u64,
    sequences: u32,
}

/// What a dispatcher knows of a replica.
#[derive(Debug, Default)]
pub(super) struct ReplicaState {
    load: Mutex<ReplicaLoad>,
    unanswered: Mutex<Unanswered>,
    lost: AtomicBool,
}

impl ReplicaState {
    /// What the replica told.
    pub(super) fn tell(&self, load: ReplicaLoad) {
        *self.load.lock() = load;
    }

    /// The replica takes nothing any more.
    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// True once the replica takes nothing any more.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// A request is on its way there, until [`Self::answered`].
    pub(super) fn given(&self, prompt_tokens: u64, sequences: u32) {
        let mut unanswered = self.unanswered.lock();
        unanswered.prompt_tokens += prompt_tokens;
        unanswered.sequences += sequences;
    }

    /// The replica has taken or refused such a request.
    pub(super) fn answered(&self, prompt_tokens: u64, sequences: u32) {
        let mut unanswered = self.unanswered.lock();
        unanswered.prompt_tokens -= prompt_tokens;
        unanswered.sequences -= sequences;
    }

    /// The load, with what is on its way.
    pub(super) fn load(&self) -> ReplicaLoad {
        let (load, unanswered) = (*self.load.lock(), *self.unanswered.lock());
        ReplicaLoad {
            prompt_tokens: load.prompt_tokens + unanswered.prompt_tokens,
            sequences_waiting: load.sequences_waiting + unanswered.sequences,
            ..load
        }
    }
}

/// What a prompt would find at a replica.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) replica: usize,
    pub(super) load: ReplicaLoad,
    /// Tokens of the prompt that it keeps.
    pub(super) kept: u32,
}

/// Why a replica was chosen, in the word that the metric has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChoiceReason {
    /// It keeps more of the prompt than the one with the fewest sequences.
    Prefix,
    /// The one with the fewest sequences would begin later.
    Wait,
    /// It has the fewest sequences.
    Load,
}

impl ChoiceReason {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Prefix => "prefix",
            Self::Wait => "wait",
            Self::Load => "load",
        }
    }
}

/// The offer whose answer would be there first: behind the prompts before it, its own as far as it is not kept, and
/// then a step for each of its tokens, which is as long as there are sequences. Of equal ones that with the fewest
/// sequences. `prompt` and `output_max` are tokens of the request.
///
/// Times are means over all replicas, so that only what there is to do tells them apart, and not how well each has
/// measured itself. Where nobody has measured anything, a token stands for its time, and an answer is as long as it may
/// be.
pub(super) fn best(prompt: u32, output_max: u32, offers: &[Offer]) -> Option<(usize, ChoiceReason)> {
    let mean = |of: fn(&ReplicaLoad) -> (f64, f64), otherwise: f64| {
        let known = offers.iter().map(|offer| of(&offer.load)).filter(|(sum, _)| *sum > 0.0);
        let (sum, number) = known.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
        if number > 0.0 { sum / number } else { otherwise }
    };
    let token_us = mean(|load| (load.prompt_token_us, 1.0), 1.0);
    let row_us = mean(|load| (load.step_us, f64::from(load.sequences_running + 1)), token_us);
    let answer = mean(|load| (load.output_tokens, 1.0), f64::from(output_max));
    let cost = |offer: &&Offer| {
        let load = &offer.load;
        let before = load.prompt_tokens + load.recomputed_tokens;
        let prompts = before as f64 + f64::from(prompt.saturating_sub(offer.kept));
        let rows = f64::from(load.sequences_running + load.sequences_waiting + 1);
        // The slots come free one after another within the time of an answer.
        let slots = f64::from(load.slots_free + load.sequences_running).max(1.0);
        let ends = f64::from((load.sequences_waiting + 1).saturating_sub(load.slots_free));
        prompts * token_us + answer * row_us * rows * (1.0 + ends / slots)
    };
    let sequences = |offer: &Offer| (offer.load.sequences_running + offer.load.sequences_waiting, offer.replica);
    let fewest = offers.iter().min_by_key(|offer| sequences(offer))?;
    let least =
        offers.iter().min_by(|a, b| cost(a).total_cmp(&cost(b)).then_with(|| sequences(a).cmp(&sequences(b))))?;
    let reason = match least.replica == fewest.replica {
        true => ChoiceReason::Load,
        false if least.kept > fewest.kept => ChoiceReason::Prefix,
        false => ChoiceReason::Wait,
    };
    Some((least.replica, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A GPU's: 20 us a prompt token, a step of 1 ms and 50 us more for each sequence, answers of 200 tokens.
    fn offer(replica: usize, sequences: u32, prompt_tokens: u64, kept: u32) -> Offer {
        let step_us = 1_000.0 + 50.0 * f64::from(sequences + 1);
        let (sequences_running, prompt_token_us, output_tokens) = (sequences, 20.0, 200.0);
        let load = ReplicaLoad {
            prompt_tokens,
            sequences_running,
            slots_free: 64,
            prompt_token_us,
            step_us,
            output_tokens,
            ..ReplicaLoad::default()
        };
        Offer { replica, load, kept }
    }

    fn chosen(prompt: u32, offers: &[Offer]) -> (usize, &'static str) {
        let (replica, why) = best(prompt, 400, offers).unwrap();
        (replica, why.name())
    }

    #[test]
    fn a_conversation_stays_where_its_prompt_is_kept_until_others_would_answer_sooner() {
        // One sequence more makes 200 steps 46 ms longer; the prompt takes 80 ms, and 4 where it is kept.
        assert_eq!(chosen(4_000, &[offer(0, 4, 0, 0), offer(1, 5, 0, 3_800)]), (1, "prefix"));
        assert_eq!(chosen(4_000, &[offer(0, 4, 0, 0), offer(1, 16, 0, 3_800)]), (0, "load"));
        // 8,000 tokens of others stand before it.
        assert_eq!(chosen(4_000, &[offer(0, 5, 0, 0), offer(1, 4, 8_000, 3_800)]), (0, "wait"));
    }

    #[test]
    fn what_is_equal_everywhere_goes_to_the_one_with_the_fewest_sequences() {
        assert_eq!(chosen(100, &[offer(0, 3, 0, 0), offer(1, 2, 0, 0)]), (1, "load"));
        let unknown = |replica, sequences| Offer {
            replica,
            load: ReplicaLoad { sequences_running: sequences, ..ReplicaLoad::default() },
            kept: 0,
        };
        assert_eq!(chosen(100, &[unknown(0, 3), unknown(1, 2)]), (1, "load"));
        // The first requests of a service: tokens are all that is known.
        let waiting = Offer { load: ReplicaLoad { prompt_tokens: 900, ..unknown(1, 1).load }, ..unknown(1, 1) };
        assert_eq!(chosen(100, &[unknown(0, 2), waiting]), (0, "wait"));
    }

    #[test]
    fn a_replica_that_has_measured_nothing_is_taken_to_be_like_the_others() {
        let fresh = |sequences_running| {
            let load = ReplicaLoad { sequences_running, slots_free: 64, ..ReplicaLoad::default() };
            Offer { replica: 1, load, kept: 0 }
        };
        assert_eq!(chosen(100, &[offer(0, 1, 0, 0), fresh(0)]), (1, "load"));
        assert_eq!(chosen(100, &[offer(0, 1, 0, 0), fresh(2)]), (0, "load"));
    }

    #[test]
    fn who_waits_counts_as_who_runs() {
        let waits = |replica, sequences_waiting| Offer {
            replica,
            load: ReplicaLoad { sequences_waiting, slots_free: 4, ..ReplicaLoad::default() },
            kept: 0,
        };
        let runs = |replica, sequences_running| Offer {
            replica,
            load: ReplicaLoad { sequences_running, slots_free: 4, ..ReplicaLoad::default() },
            kept: 0,
        };
        assert_eq!(chosen(100, &[runs(0, 1), waits(1, 2)]), (0, "load"));
        assert_eq!(chosen(100, &[runs(0, 2), waits(1, 1)]), (1, "load"));
    }

    #[test]
    fn who_has_no_slot_free_is_chosen_last() {
        let full = |replica, sequences_running| Offer {
            replica,
            load: ReplicaLoad { sequences_running, slots_free: 0, ..offer(replica, sequences_running, 0, 0).load },
            kept: 0,
        };
        let free = |replica, sequences_running, slots_free| Offer {
            load: ReplicaLoad { slots_free, ..full(replica, sequences_running).load },
            ..full(replica, sequences_running)
        };
        assert_eq!(chosen(2_000, &[full(0, 4), free(1, 4, 1)]), (1, "wait"));
        let keeps = Offer { kept: 1_900, ..full(0, 4) };
        assert_eq!(chosen(2_000, &[keeps, free(1, 4, 1)]), (1, "wait"), "a slot comes free only after 50 steps");
        assert_eq!(best(100, 10, &[]), None);
    }

    #[test]
    fn what_is_on_its_way_counts_until_it_was_answered() {
        let state = ReplicaState::default();
        state.tell(ReplicaLoad { prompt_tokens: 10, sequences_running: 1, ..ReplicaLoad::default() });
        state.given(100, 2);
        let now = || (state.load().prompt_tokens, state.load().sequences_running, state.load().sequences_waiting);
        assert_eq!(now(), (110, 1, 2));
        state.answered(100, 2);
        assert_eq!(now(), (10, 1, 0));
        state.lose();
        assert!(state.is_lost());
    }
}
