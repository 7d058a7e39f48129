//! Traces: a scene in words, and what each step of it computes.
//!
//! A scene is clauses: bounds (`budget 65`, `slots 2`, `pages 4`, `lag 2`, `context 100`, `queue 1`, `queue-tokens
//! 100`, `passes 16 of 2` where recomputed positions take passes of their own, two at a time, `apart` where prompts
//! do), requests (`A prompt 150 max 3 n 2 priority 1 ends 2 scored pooled key 2 idle`; `decoding`: it has its first
//! token when the trace starts), and what happens right before a step (`@3 B prompt 10`, `@3 cancel A`, `@3 cancel
//! A.1`, `@3 drain`, `@3 fail`). A request without `max` goes on to the context's end; `ends 2` makes its second token
//! an end id, `thinks 2` bounds its thinking to two tokens and closes it with two more. With `checkpoints 2` there is a prefix
//! cache; prompts are alike (`like 7 until 128`) up to a position, `turn 100` is where the answer begins, `scope 1` is
//! another's. One step is in flight at a time unless `lag` says more.
//!
//! A step is what it computes, in order of rank: `A[0..64]` a prompt piece, `A[0..64]^64` one with a checkpoint, `A+1`
//! a row after the prompt, `A+?` one whose token is not committed, `A+5` five recomputed ones, `A.1` the request's
//! second choice, `fork A.1` and `fork A.1+page` what is copied first. Then `~A` was preempted, and what the commit
//! after it brought: `A=stop`, `A=length`, `A=failed`, `A#1..64` for scores, `A=pooled` for a hidden state, `A?2` for
//! two tokens of thinking. `A!why` was not admitted; `-` is a step with nothing to compute.
//!
//! After the last step shown the scene runs on to its end; every stream must be what it is alone, and everything be
//! free.

use super::device::{FakeDevice, end_of, next_token};
use super::undisturbed;
use crate::constraint::thinking::Thinking;
use crate::ids::{CacheScope, KeyId, Micros, RequestId, SeqId, TokenId};
use crate::sampling::SamplingParams;
use crate::scheduler::{
    Event, FinishReason, HostBlocks, Pace, Pooling, PrefixConfig, PromptScores, Recompute, Rejected, Request,
    Scheduler, SchedulerConfig, Spec, Terms,
};
use crate::step::{Form, Piece, PieceTokens, StateCopy, StepOutcome, StepPlan};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// That the steps of a scene are these.
#[track_caller]
pub(super) fn check(scene: &str, expected: &str) {
    let cells: Vec<_> = expected.split('|').map(str::trim).collect();
    let mut stage = Stage::new(scene);
    let skipped = stage.skipped;
    let got: Vec<_> = (1..=skipped + cells.len()).map(|step| stage.step(step)).skip(skipped).collect();
    assert_eq!(got.join(" | "), cells.join(" | "), "{scene}");
    stage.run_to_the_end();
}

/// A scene while it is played.
pub(super) struct Stage {
    pub(super) scheduler: Scheduler,
    device: FakeDevice,
    in_flight: VecDeque<StepOutcome>,
    config: SchedulerConfig,
    pace: Pace,
    /// Clauses by the step before which they happen.
    happenings: Vec<(usize, String)>,
    requests: BTreeMap<RequestId, Request>,
    outputs: BTreeMap<(RequestId, u32), Vec<TokenId>>,
    /// Choices that were cancelled, failed or refused: these need not reach their end.
    ended: Vec<(RequestId, u32)>,
    skipped: usize,
    names: BTreeMap<SeqId, String>,
    clock: u64,
}

impl Stage {
    pub(super) fn new(scene: &str) -> Self {
        let mut config = SchedulerConfig {
            slots: 4,
            pages: 100,
            step_tokens: 256,
            context: 300,
            queue_requests_max: 8,
            queue_prompt_tokens_max: 10_000,
            steps_in_flight_max: 1,
            adapter_slots: 8,
            prefix: PrefixConfig::OFF,
        };
        let mut pace = Pace::default();
        let mut happenings = Vec::new();
        let mut decoding = Vec::new();
        let mut skipped = 0;
        for clause in scene.split(';').map(str::trim) {
            if let Some(clause) = clause.strip_prefix('@') {
                let (step, what) = clause.split_once(' ').unwrap();
                happenings.push((step.parse().unwrap(), what.to_owned()));
            } else if let Some(passes) = clause.strip_prefix("passes ") {
                let (passes, rows) = passes.split_once(" of ").unwrap_or((passes, "1"));
                let (passes_max, rows) = (passes.parse().unwrap(), rows.parse().unwrap());
                pace.recompute = Some(Recompute { rows, passes_max });
            } else if clause == "apart" {
                (pace.apart, pace.target_us) = (true, 1_000_000);
            } else if let Some(steps) = clause.strip_prefix("after ") {
                skipped = steps.parse().unwrap();
            } else if let Some(request) = clause.strip_suffix("decoding") {
                decoding.push(request.to_owned());
            } else if !set_bound(&mut config, clause) {
                happenings.push((1, clause.to_owned()));
            }
        }
        let mut stage = Self {
            scheduler: Scheduler::new(config),
            device: FakeDevice::new(&config),
            in_flight: VecDeque::new(),
            config,
            pace,
            happenings,
            requests: BTreeMap::new(),
            outputs: BTreeMap::new(),
            ended: Vec::new(),
            skipped,
            names: BTreeMap::new(),
            clock: 0,
        };
        stage.start_decoding(&decoding);
        stage
    }

    fn start_decoding(&mut self, requests: &[String]) {
        for request in requests {
            assert_eq!(self.happen(request), "", "what decodes was admitted");
        }
        while self.outputs.len() < requests.len() {
            self.launch().expect("prompts are computed before the trace starts");
            self.commit();
        }
    }

    /// One step: what happens before it, the plan, and the commit after it.
    pub(super) fn step(&mut self, step: usize) -> String {
        let now: Vec<_> = self.happenings.iter().filter(|(at, _)| *at == step).map(|(_, what)| what.clone()).collect();
        let mut words: Vec<String> = now.iter().map(|what| self.happen(what)).collect();
        let before = self.preempted();
        words.push(self.launch().map_or("-".to_owned(), |plan| self.show(&plan)));
        let after = self.preempted().into_iter().filter(|(seq, times)| before.get(seq) != Some(times));
        words.extend(after.map(|(seq, _)| format!("~{}", self.names[&seq])));
        if words.contains(&"-".to_owned()) || self.in_flight.len() as u32 == self.config.steps_in_flight_max {
            words.extend(self.commit());
        }
        self.scheduler.audit();
        words.retain(|word| !word.is_empty());
        words.join(" ")
    }

    /// How often each sequence was preempted.
    fn preempted(&self) -> BTreeMap<SeqId, u32> {
        self.scheduler.all().map(|seq| (seq.rank.seq, seq.preemptions)).collect()
    }

    fn launch(&mut self) -> Option<StepPlan> {
        self.clock += 1;
        let plan = self.scheduler.plan_within(Micros(self.clock), &self.pace)?;
        self.in_flight.push_back(self.device.run(&plan));
        Some(plan)
    }

    fn commit(&mut self) -> Vec<String> {
        let Some(outcome) = self.in_flight.pop_front() else { return Vec::new() };
        let events = self.scheduler.commit(outcome, Micros(self.clock));
        events.into_iter().filter_map(|(id, event)| self.take(id, event)).collect()
    }

    fn take_all(&mut self, events: Vec<(RequestId, Event)>) -> String {
        events.into_iter().filter_map(|(id, event)| self.take(id, event)).collect::<Vec<_>>().join(" ")
    }

    fn take(&mut self, id: RequestId, event: Event) -> Option<String> {
        match event {
            Event::Token { choice, index, token, .. } => {
                let output = self.outputs.entry((id, choice)).or_default();
                assert_eq!(output.len() as u32, index, "outputs come in order");
                output.push(token);
                None
            }
            Event::Pooled(_) => Some(format!("{}=pooled", name(id))),
            Event::Scored(scores) => {
                Some(format!("{}#{}..{}", name(id), scores[0].position, scores.last().unwrap().position))
            }
            Event::Finished { choice, reason: FinishReason::Stop, .. } => {
                Some(format!("{}=stop", self.name(id, choice)))
            }
            Event::Finished { choice, reason: FinishReason::Length, .. } => {
                Some(format!("{}=length", self.name(id, choice)))
            }
            Event::Thought { choice, thought } => Some(format!("{}?{}", self.name(id, choice), thought.tokens)),
            Event::Failed(_) => {
                self.end(id);
                Some(format!("{}=failed", name(id)))
            }
        }
    }

    /// Something that the scene says. Returns what is worth showing.
    pub(super) fn happen(&mut self, what: &str) -> String {
        let words: Vec<_> = what.split_whitespace().collect();
        match words[..] {
            ["drain"] => {
                let events = self.scheduler.drain("draining");
                return self.take_all(events);
            }
            ["fail"] => {
                self.in_flight.clear();
                let events = self.scheduler.fail("lost");
                return self.take_all(events);
            }
            ["cancel", who] => {
                let (request, choice) = who.split_once('.').unwrap_or((who, ""));
                let id = id(request);
                let live = match choice.parse() {
                    Ok(choice) => {
                        self.ended.push((id, choice));
                        self.scheduler.cancel_choice(id, choice)
                    }
                    Err(_) => {
                        self.end(id);
                        self.scheduler.cancel(id)
                    }
                };
                assert!(live, "{who} is live");
            }
            _ => return self.admit(&words),
        }
        String::new()
    }

    fn admit(&mut self, words: &[&str]) -> String {
        let request = request(words, self.config.context);
        let (id, choices) = (request.id, request.spec.choices);
        self.requests.insert(id, request.clone());
        let first = self.scheduler.next_seq;
        let key = KeyId(number(words, "key").unwrap_or(0) as u64);
        let terms = Terms { key, idle: words.contains(&"idle"), ..Terms::default() };
        match self.scheduler.admit_under(request, &terms, Micros(self.clock), &Pace::default()) {
            Ok(()) => {
                for choice in 0..choices {
                    self.names.insert(SeqId(first + u64::from(choice)), self.name(id, choice));
                }
                String::new()
            }
            Err(why) => {
                self.end(id);
                format!("{}!{}", name(id), reason(why))
            }
        }
    }

    fn end(&mut self, id: RequestId) {
        self.ended.extend((0..self.requests[&id].spec.choices).map(|choice| (id, choice)));
    }

    fn show(&self, plan: &StepPlan) -> String {
        let mut words = Vec::new();
        for (at, copy) in plan.copies.iter().enumerate() {
            if let StateCopy::Slot { to, .. } = copy {
                let page = matches!(plan.copies.get(at + 1), Some(StateCopy::Page { .. }));
                let seq = self.scheduler.running.iter().find(|seq| seq.slot == Some(*to)).expect("a fork runs");
                words.push(format!("fork {}{}", self.names[&seq.rank.seq], if page { "+page" } else { "" }));
            }
        }
        words.extend(plan.pieces.iter().map(|piece| self.names[&piece.seq].clone() + &show_rows(piece)));
        words.join(" ")
    }

    /// `A`, or `A.1` for the second of several choices.
    fn name(&self, id: RequestId, choice: u32) -> String {
        if self.requests[&id].spec.choices == 1 { name(id) } else { format!("{}.{choice}", name(id)) }
    }

    pub(super) fn run_to_the_end(mut self) {
        for _ in 0..10_000 {
            if self.scheduler.is_idle() {
                break;
            }
            if self.launch().is_none() || self.in_flight.len() as u32 == self.config.steps_in_flight_max {
                self.commit();
            }
            self.scheduler.audit();
        }
        self.scheduler.assert_all_is_free();
        for (id, request) in &self.requests {
            let room = self.config.context.min(self.config.pages * 32 + 1).saturating_sub(request.prompt.len() as u32);
            let output_max = request.spec.max_tokens.unwrap_or(u32::MAX).min(room);
            for choice in (0..request.spec.choices).filter(|choice| !self.ended.contains(&(*id, *choice))) {
                let got = self.outputs.get(&(*id, choice)).cloned().unwrap_or_default();
                assert_eq!(
                    got,
                    undisturbed(request, choice, output_max),
                    "{} is what it is alone",
                    self.name(*id, choice)
                );
            }
        }
    }
}

fn show_rows(piece: &Piece) -> String {
    match (piece.form, &piece.tokens) {
        (Form::Chunked, _) => {
            let kept = piece.exports.iter().map(|export| format!("^{}", export.position)).collect::<String>();
            format!("[{}..{}]{kept}", piece.start, piece.start + piece.len())
        }
        (Form::Recurrent, PieceTokens::Sampled) => "+?".to_owned(),
        (Form::Recurrent, PieceTokens::Known(tokens)) => format!("+{}", tokens.len()),
    }
}

fn set_bound(config: &mut SchedulerConfig, clause: &str) -> bool {
    let Some((name, value)) = clause.split_once(' ') else { return false };
    let bound = match name {
        "budget" => &mut config.step_tokens,
        "slots" => &mut config.slots,
        "pages" => &mut config.pages,
        "lag" => &mut config.steps_in_flight_max,
        "context" => &mut config.context,
        "queue" => &mut config.queue_requests_max,
        "checkpoints" => {
            // Each as large as a page.
            let checkpoints = value.parse().unwrap();
            config.prefix = PrefixConfig { checkpoints, checkpoint_bytes: 1, page_bytes: 1, ..config.prefix };
            return true;
        }
        "host" => {
            // A checkpoint takes so many blocks.
            config.prefix.host = HostBlocks { bytes: 1, checkpoint: value.parse().unwrap(), unit: 1 };
            return true;
        }
        "queue-tokens" => {
            config.queue_prompt_tokens_max = value.parse().unwrap();
            return true;
        }
        _ => return false,
    };
    *bound = value.parse().unwrap();
    true
}

/// `from 100` scores the prompt from there on only, `behind 3` three tokens in the place behind it.
fn scores(number: &impl Fn(&str) -> Option<i64>) -> PromptScores {
    let from = number("from").unwrap_or(0) as u32;
    PromptScores { top: 1, from, behind: (0..number("behind").unwrap_or(0) as u32).collect() }
}

fn request(words: &[&str], context: u32) -> Request {
    let number = |name: &str| number(words, name);
    let id = id(words[0]);
    let prompt_len = number("prompt").unwrap_or(10) as u32;
    let spec = Spec {
        choices: number("n").unwrap_or(1) as u32,
        max_tokens: number("max").map(|max| max as u32),
        sampling: Arc::new(SamplingParams { seed: id.0, ..SamplingParams::default() }),
        priority: number("priority").unwrap_or(0) as i32,
        score_prompt: (words.contains(&"scored") || number("from").is_some()).then(|| scores(&number)),
        thinking: number("thinks").map(|tokens| Arc::new(thinking(tokens as u32))),
        pool: words.contains(&"pooled").then_some(Pooling::Mean),
        cache: Some(CacheScope(number("scope").unwrap_or(0) as u128)),
        ..Spec::default()
    };
    let (like, until) = (number("like").unwrap_or(0) as u32, number("until").unwrap_or(0) as u32);
    let token = |i: u32| (i * 3 + if i < until { like } else { 100 + id.0 as u32 }) % 50;
    let prompt: Vec<_> = (0..prompt_len).map(token).collect();
    let turns: Vec<u32> = number("turn").map(|at| at as u32).into_iter().collect();
    let mut request = Request::new(id, prompt, spec).with_turns(turns);
    if let Some(ends) = number("ends") {
        choose_seed(&mut request, ends as usize, context);
    }
    request
}

fn number(words: &[&str], name: &str) -> Option<i64> {
    let at = words.iter().position(|word| *word == name)?;
    Some(words[at + 1].parse().unwrap())
}

/// `thinks 4`: this many tokens, then 7 and 8.
fn thinking(tokens: u32) -> Thinking {
    Thinking { opens: None, ends: vec![8], closing: vec![7, 8], tokens_max: Some(tokens), adaptive: None }
}

/// Takes an end id, and a seed with which the first choice meets it at its `ends`-th token and the others never.
fn choose_seed(request: &mut Request, ends: usize, context: u32) {
    let most = context - request.prompt.len() as u32;
    for seed in 0.. {
        let spec = Arc::make_mut(&mut request.spec);
        spec.sampling = Arc::new(SamplingParams { seed, ..SamplingParams::default() });
        spec.end_ids = Arc::default();
        let end = undisturbed(request, 0, most.min(ends as u32))[ends - 1];
        Arc::make_mut(&mut request.spec).end_ids = [end].into();
        let meets = undisturbed(request, 0, most).len() == ends;
        let others = (1..request.spec.choices)
            .all(|choice| undisturbed(request, choice, 12.min(most)).len() as u32 == 12.min(most));
        if meets && others {
            return;
        }
    }
}

fn id(name: &str) -> RequestId {
    RequestId(u64::from(name.as_bytes()[0] - b'A'))
}

fn name(id: RequestId) -> String {
    char::from(b'A' + id.0 as u8).to_string()
}

fn reason(why: Rejected) -> &'static str {
    match why {
        Rejected::QueueFull { .. } => "queue",
        Rejected::QueueTokensFull { .. } => "queue-tokens",
        Rejected::PromptTooLong { .. } => "prompt",
        Rejected::TooManyChoices { .. } => "choices",
        Rejected::TooManyPages { .. } => "pages",
        Rejected::KeyBusy { .. } => "key-busy",
        Rejected::KeyRate { .. } => "key-rate",
        Rejected::WaitTooLong { .. } => "wait",
        Rejected::DeadlineUnreachable { .. } => "deadline",
        Rejected::Draining => "draining",
        Rejected::EmptyPrompt => "empty",
    }
}

#[test]
fn the_model_of_these_tests_depends_on_the_form_of_every_position() {
    let params = SamplingParams::default();
    let tokens: Vec<_> = (0..80).collect();
    let drawn = |prompt_len| {
        (0..8).map(|index| next_token(end_of(&tokens, prompt_len), &params, &[], (0, index))).collect::<Vec<_>>()
    };
    assert_ne!(drawn(70), drawn(71));
}
