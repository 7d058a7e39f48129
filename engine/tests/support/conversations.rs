//! Conversations that grow turn by turn, on any backend: what a prefix cache is for, and what it must not change.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test file uses its part")]

use super::Random;
use chimere_engine::backend::{Backend, Pending};
use chimere_engine::ids::{CacheScope, KeyId, Micros, RequestId, TokenId};
use chimere_engine::sampling::SamplingParams;
use chimere_engine::scheduler::{
    Event, HostBlocks, Pace, PrefixConfig, PrefixStats, Request, Scheduler, SchedulerConfig, Spec, Terms,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How conversations are held; none of it may show in an answer.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Positions of a step.
    pub step_tokens: u32,
    /// Places for checkpoints that the scheduler may use; 0 has no cache.
    pub checkpoints: u32,
    /// Conversations that go on at the same time.
    pub together: usize,
    /// How the host's memory is cut, where the backend has a second tier there.
    pub host: HostBlocks,
    /// Each turn is cancelled once, so many steps after it was asked, and asked again; 0: none.
    pub cancel_after: u64,
}

/// Tokens and log-probabilities, as bits, of each choice of a turn.
type Answer = BTreeMap<u32, Vec<(TokenId, u32)>>;

/// What came of it.
#[derive(Default)]
pub struct Held {
    /// By conversation and turn.
    pub answers: BTreeMap<(usize, usize), Answer>,
    /// Prompt tokens that the cache spared, and all of them.
    pub cached: (u64, u64),
    pub preemptions: u32,
    pub stats: PrefixStats,
}

struct Conversation {
    number: usize,
    turn: usize,
    tokens: Vec<TokenId>,
    turns: Vec<u32>,
    answer: Answer,
    choices: u32,
    unfinished: u32,
    /// When it is cancelled.
    leaves: Option<u64>,
}

/// Turns of each conversation.
pub const TURNS: usize = 5;

impl Conversation {
    fn new(number: usize, vocab: u64) -> Self {
        // Two system prompts, as long as no multiple of anything.
        let mut system = Random(number as u64 % 2 + 900);
        let tokens = (0..150 + 60 * (number % 2)).map(|_| system.below(vocab) as TokenId).collect();
        Self {
            number,
            turn: 0,
            tokens,
            turns: Vec::new(),
            answer: Answer::new(),
            choices: 1,
            unfinished: 0,
            leaves: None,
        }
    }

    /// The next question. Prompts end 0, 1 and 63 positions behind a whole chunk now and then.
    fn ask(&mut self, vocab: u64) {
        let mut random = Random((self.number * TURNS + self.turn) as u64 * 31 + 7);
        self.turns.push(self.tokens.len() as u32);
        let mut len = 3 + random.below(110) as usize;
        if let Some(rest) = [Some(0), Some(1), Some(63), None, None][(self.number + self.turn) % 5] {
            let end = self.tokens.len() + len + 5;
            len += (64 + rest - end % 64) % 64;
        }
        self.tokens.extend((0..len).map(|_| random.below(vocab) as TokenId));
        self.turns.push(self.tokens.len() as u32);
        // What a template writes before an answer.
        self.tokens.extend([1, 2, 3, 4, 5]);
    }

    fn request(&mut self, id: u64) -> Request {
        let number = (self.number * TURNS + self.turn) as u64;
        let sampling = if number.is_multiple_of(2) {
            SamplingParams { logprobs: Some(2), ..SamplingParams::greedy() }
        } else {
            // Everything that looks at earlier tokens: a prompt that was not read again counts all the same.
            SamplingParams {
                temperature: 0.9,
                top_p: 0.95,
                repetition_penalty: 1.2,
                presence_penalty: 0.3,
                frequency_penalty: 0.2,
                seed: number,
                logprobs: Some(2),
                ..SamplingParams::default()
            }
        };
        self.choices = if number % 7 == 3 { 2 } else { 1 };
        self.unfinished = self.choices;
        self.answer.clear();
        let spec = Spec {
            choices: self.choices,
            max_tokens: Some(3 + number as u32 * 13 % 70),
            sampling: Arc::new(sampling),
            cache: Some(CacheScope(0)),
            ..Spec::default()
        };
        Request::new(RequestId(id), self.tokens.clone(), spec).with_turns(self.turns.clone())
    }

    /// The first choice is what the conversation goes on with.
    fn answered(&mut self) {
        self.tokens.extend(self.answer[&0].iter().map(|(token, _)| *token));
        self.turn += 1;
    }
}

/// The scheduler's configuration for a backend.
fn config(backend: &dyn Backend, setting: Setting) -> SchedulerConfig {
    let info = backend.info();
    assert!(setting.checkpoints <= info.checkpoints);
    SchedulerConfig {
        slots: info.slots,
        pages: info.pages,
        step_tokens: setting.step_tokens,
        context: info.context,
        queue_requests_max: 1 << 16,
        queue_prompt_tokens_max: 1 << 30,
        steps_in_flight_max: 2,
        adapter_slots: info.adapter_slots,
        prefix: PrefixConfig {
            checkpoints: setting.checkpoints,
            checkpoint_bytes: 4,
            page_bytes: 1,
            host: setting.host,
        },
    }
}

/// Holds so many conversations of [`TURNS`] turns each.
pub fn hold(backend: &mut dyn Backend, conversations: usize, setting: Setting) -> Held {
    let vocab = u64::from(backend.info().vocab);
    let mut scheduler = Scheduler::new(config(backend, setting));
    let mut waiting: VecDeque<Conversation> = (0..conversations).map(|n| Conversation::new(n, vocab)).collect();
    let mut open: BTreeMap<u64, Conversation> = BTreeMap::new();
    let (mut held, mut launched) = (Held::default(), VecDeque::<Pending>::new());
    let (mut next, mut now) = (0, Micros(0));
    while !(waiting.is_empty() && open.is_empty()) {
        now.0 += 1;
        while open.len() < setting.together
            && let Some(mut conversation) = waiting.pop_front()
        {
            conversation.ask(vocab);
            conversation.leaves = Some(now.0 + setting.cancel_after).filter(|_| setting.cancel_after > 0);
            admit(&mut scheduler, &mut open, conversation, &mut next, now);
        }
        while let Some(plan) = scheduler.plan(now) {
            launched.push_back(backend.launch(plan).unwrap());
        }
        let leaves = open.iter().find(|(_, conversation)| conversation.leaves.is_some_and(|at| at <= now.0));
        if let Some(id) = leaves.map(|(id, _)| *id) {
            let conversation = Conversation { leaves: None, ..open.remove(&id).unwrap() };
            assert!(scheduler.cancel(RequestId(id)));
            admit(&mut scheduler, &mut open, conversation, &mut next, now);
        }
        let Some(pending) = launched.pop_front() else { continue };
        for (id, event) in scheduler.commit(pending.wait().unwrap(), now) {
            if take(&mut held, open.get_mut(&id.0).unwrap(), event) {
                let mut conversation = open.remove(&id.0).unwrap();
                held.answers.insert((conversation.number, conversation.turn), conversation.answer.clone());
                conversation.answered();
                if conversation.turn < TURNS {
                    waiting.push_back(conversation);
                }
            }
        }
    }
    while let Some(pending) = launched.pop_front() {
        scheduler.commit(pending.wait().unwrap(), now);
    }
    let stats = scheduler.stats();
    assert_eq!((stats.pages_used, stats.slots_used), (0, 0), "every page is free or kept");
    held.stats = scheduler.prefix_stats();
    held
}

fn admit(
    scheduler: &mut Scheduler,
    open: &mut BTreeMap<u64, Conversation>,
    mut conversation: Conversation,
    next: &mut u64,
    now: Micros,
) {
    *next += 1;
    let terms = Terms { key: KeyId(conversation.number as u64 % 3), ..Terms::default() };
    scheduler.admit_under(conversation.request(*next), &terms, now, &Pace::default()).unwrap();
    open.insert(*next, conversation);
}

/// Whether that was the end of the turn.
fn take(held: &mut Held, conversation: &mut Conversation, event: Event) -> bool {
    match event {
        Event::Token { choice, token, logprobs, .. } => {
            let bits = logprobs.unwrap().logprob.to_bits();
            conversation.answer.entry(choice).or_default().push((token, bits));
            false
        }
        Event::Finished { choice, usage, .. } => {
            if choice == 0 {
                held.cached.0 += u64::from(usage.cached_tokens);
                held.cached.1 += u64::from(usage.prompt_tokens);
            }
            held.preemptions += usage.preemptions;
            conversation.unfinished -= 1;
            conversation.unfinished == 0
        }
        other => panic!("{other:?}"),
    }
}
