//! The request actor: one HTTP request, on the HTTP thread that accepted it.
//!
//! It submits, hears the request's events, makes text of tokens, and passes [`Output`]s to the response. The response's
//! channel is short: when the client reads slowly the actor waits, and the events pile up as plain tokens in a channel
//! that has room for all.

pub mod choice;
pub mod cited;
pub mod direct;
pub mod embed;
pub mod generation_request;
pub mod output;
pub mod probe;
pub mod reader;
pub mod report;
mod report_builder;
pub mod score;
pub mod spec;
pub mod speculation_report;
pub mod stopwatch;
pub mod token_report;

use crate::actors::dispatch::{Dispatcher, Route};
use crate::actors::live::LiveEntry;
use crate::actors::messages::{Refusal, RequestEvent, Submit};
use crate::actors::phase::{DEADLINE_PASSED, ENGINE_LOST};
use crate::clock::Clock;
use crate::metrics;
use crate::metrics::gateway::Gateway;
use crate::text::Tokenizer;
use crate::traces::Ended;
use actix::prelude::*;
use chimere_engine::constraint::thinking::ThoughtEnd;
use chimere_engine::format::blocks::SplitMix;
use chimere_engine::ids::TokenId;
use chimere_engine::sampling::SamplingParams;
use chimere_engine::scheduler::{Event, Request, Spec};
use chimere_engine::step::TokenLogprobs;
use choice::{Choice, scored};
use generation_request::{GenerationRequest, ThinkingPlan};
use output::{Delta, Finish, Output, RawToken, RequestUsage};
use report::{ChangedToken, Report, ThinkingReport};
use report_builder::ReportBuilder;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;
use stopwatch::Stopwatch;
use token_report::TokenReport;
use tokio::sync::{mpsc, oneshot};

/// Outputs that wait for a slow client before the actor does.
const OUTPUTS_MAX: usize = 32;

/// What a request actor needs from the service.
#[derive(Clone)]
pub struct ServiceHandles {
    /// Gives it to the scheduler of a replica.
    pub dispatcher: Dispatcher,
    /// Positions a sequence may have.
    pub context: u32,
    /// What the tokens mean.
    pub tokenizer: Arc<Tokenizer>,
    /// What time it is.
    pub clock: Clock,
    /// How long a client may leave its stream unread.
    pub unread: Duration,
    /// Series under other engines' names.
    pub gateway: Arc<Gateway>,
}

/// Owns all of a request's text state.
pub struct RequestActor {
    handles: ServiceHandles,
    generation: GenerationRequest,
    /// One a prompt, and where each runs.
    entries: Vec<LiveEntry>,
    routes: Vec<Route>,
    /// Choices of the first prompt, then of the next.
    choices: Vec<Choice>,
    watch: Stopwatch,
    cached_tokens: u32,
    reports: ReportBuilder,
    /// Tokens of the first choice, if they are kept.
    kept: Vec<TokenId>,
    reply: Option<oneshot::Sender<Result<(), Refusal>>>,
    out: mpsc::Sender<Output>,
    /// What `out` had no room for yet.
    backlog: VecDeque<Output>,
    /// The client was told how it ended.
    over: bool,
    outcome: &'static str,
}

/// The receiving end of a request. Dropping it cancels the request at once, whatever it is doing.
#[derive(Debug)]
pub struct Outputs {
    rx: mpsc::Receiver<Output>,
    _hangup: Hangup,
}

impl Outputs {
    /// The next output, or `None` when no more come.
    pub async fn next(&mut self) -> Option<Output> {
        self.rx.recv().await
    }

    /// What [`Self::next`] does, for whoever polls as a stream.
    pub fn poll_next(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Output>> {
        self.get_mut().rx.poll_recv(cx)
    }
}

/// Cancels requests when it is dropped. It lives in the handler's future and then in the response, both of which the
/// server drops while it handles the socket's EOF, so the scheduler hears of it before it plans anything that it is
/// told later. To a request that has ended a Cancel means nothing.
#[derive(Debug)]
pub(super) struct Hangup {
    pub(super) clock: Clock,
    pub(super) routes: Vec<Route>,
}

impl Drop for Hangup {
    fn drop(&mut self) {
        self.routes.iter().for_each(|route| route.cancel(self.clock.now()));
    }
}

/// As the reply and the metric call it.
fn thinking_end(end: ThoughtEnd) -> &'static str {
    match end {
        ThoughtEnd::Model => "model",
        ThoughtEnd::Budget => "budget",
        ThoughtEnd::Certain => "certain",
    }
}

impl RequestActor {
    /// Starts an actor on this thread and returns when the scheduler has said yes or no. `entries` has one id a prompt.
    pub async fn submit(
        generation: GenerationRequest,
        entries: Vec<LiveEntry>,
        handles: ServiceHandles,
    ) -> Result<Outputs, Refusal> {
        assert_eq!(generation.prompts.len(), entries.len(), "one id a prompt");
        let (tx, rx) = mpsc::channel(OUTPUTS_MAX);
        let (reply, answer) = oneshot::channel();
        let routes: Vec<_> = entries.iter().map(|e| handles.dispatcher.route(e.id)).collect();
        let hangup = Hangup { clock: handles.clock.clone(), routes: routes.clone() };
        let n = generation.choices();
        let choices = (0..n)
            .map(|i| Choice::new(handles.tokenizer.clone(), &generation.spec.stop, (generation.reader)(i)))
            .collect();
        let actor = RequestActor {
            watch: Stopwatch::new(n, handles.gateway.clone()),
            handles,
            generation,
            entries,
            routes,
            choices,
            cached_tokens: 0,
            reports: ReportBuilder::new(),
            kept: Vec::new(),
            reply: Some(reply),
            out: tx,
            backlog: VecDeque::new(),
            over: false,
            outcome: "cancelled",
        };
        actor.start();
        match answer.await {
            Ok(Ok(())) => Ok(Outputs { rx, _hangup: hangup }),
            Ok(Err(refusal)) => Err(refusal),
            Err(_) => Err(Refusal::unheard()),
        }
    }

    fn request(&self, prompt: usize) -> Request {
        let request = Request::new(self.entries[prompt].id, self.generation.prompts[prompt].clone(), self.spec(prompt));
        request.with_turns(self.generation.turns.clone())
    }

    /// How tokens of this prompt are chosen. Each prompt draws for itself, or equal ones would get equal samples; the
    /// first one draws as it would alone.
    fn spec(&self, prompt: usize) -> Arc<Spec> {
        let spec = &self.generation.spec.engine;
        if prompt == 0 {
            return spec.clone();
        }
        let seed = SplitMix::nth(spec.sampling.seed, prompt as u64);
        let sampling = Arc::new(SamplingParams { seed, ..(*spec.sampling).clone() });
        Arc::new(Spec { sampling, ..(**spec).clone() })
    }

    /// Puts an event into words.
    fn hear(&mut self, prompt: usize, event: RequestEvent) {
        match event {
            RequestEvent::Started { times, cached_tokens } => {
                // Once for each prompt: its choices share it.
                self.cached_tokens += cached_tokens;
                self.watch.started(times);
            }
            RequestEvent::Event(Event::Scored(scores)) => {
                let tokens = scores.iter().map(|s| scored(&self.handles.tokenizer, s.token, &s.logprobs)).collect();
                self.backlog.push_back(Output::Scored { prompt: prompt as u32, tokens });
            }
            RequestEvent::Event(event @ Event::Token { .. }) => self.token(prompt, event),
            RequestEvent::Event(Event::Thought { choice, thought }) => {
                let at = self.at(prompt, choice);
                ::metrics::counter!(metrics::THINKING_ENDED, "reason" => thinking_end(thought.end)).increment(1);
                self.choices[at].thought = Some(thought);
            }
            RequestEvent::Event(Event::Finished { choice, reason, .. }) => {
                let at = self.at(prompt, choice);
                if !self.choices[at].ended {
                    let mut delta = Delta::default();
                    let finish = self.choices[at].finish(reason, &mut delta);
                    self.tell(at, delta);
                    self.finished(at, finish);
                }
            }
            RequestEvent::Event(Event::Pooled(_)) => {
                debug_assert!(false, "a request for text does not ask for hidden states")
            }
            RequestEvent::Event(Event::Failed(why)) => self.failed(why),
        }
    }

    /// Puts a token into words.
    fn token(&mut self, prompt: usize, event: Event) {
        let Event::Token { choice, index, token, logprobs, certainty, changed, yielded, drafts, report } = event else {
            return;
        };
        let at = self.at(prompt, choice);
        if self.choices[at].ended {
            return; // found a stop string; the scheduler will hear of it
        }
        if self.generation.keeps_tokens && at == 0 {
            self.kept.push(token);
        }
        self.watch.token(at, self.handles.clock.now());
        ::metrics::counter!(metrics::GENERATED_TOKENS).increment(1);
        self.handles.gateway.token();
        self.reports.count_changed(changed);
        if changed != Some(false) {
            self.account_for(prompt, choice, index, token);
        }
        self.reports.add(yielded, drafts);
        let report = report.map(|row| {
            Box::new(TokenReport {
                certainty,
                row: *row,
                engram: self.generation.engram.token((prompt, choice, index), token, changed),
                draft: self.choices[at].drafts.next(drafts),
                thought_left: self.thought_left(at),
            })
        });
        let mut delta = Delta::default();
        let is_end = self.generation.spec.engine.end_ids.contains(&token);
        let before = self.choices[at].reasoning_tokens;
        let logprobs = self.raw_token(token, logprobs, &mut delta);
        let stopped = self.choices[at].push(token, (logprobs.as_ref(), report), is_end, &mut delta);
        ::metrics::counter!(metrics::THINKING_TOKENS).increment(u64::from(self.choices[at].reasoning_tokens - before));
        self.tell(at, delta);
        if stopped {
            self.routes[prompt].cancel_choice(choice);
            self.finished(at, self.choices[at].stopped());
        }
    }

    /// Tells a token by its id, if the request wants ids; gives its log-probabilities back where they go with its text.
    fn raw_token(&self, id: TokenId, logprobs: Option<TokenLogprobs>, delta: &mut Delta) -> Option<TokenLogprobs> {
        if !self.generation.spec.token_ids {
            return logprobs;
        }
        delta.ids.push(RawToken { id, logprobs });
        None
    }

    fn at(&self, prompt: usize, choice: u32) -> usize {
        prompt * self.generation.spec.engine.choices as usize + choice as usize
    }

    /// Remembers where a token that Engram may have changed comes from, if it is the one that was wanted there.
    fn account_for(&mut self, prompt: usize, choice: u32, index: u32, token: TokenId) {
        let Some(origin) = self.generation.engram.origin((prompt, choice, index), token) else { return };
        let (choice, tokenizer) = (self.at(prompt, choice) as u32, &self.handles.tokenizer);
        self.reports.add_origin(origin, self.generation.engram.sources, || ChangedToken {
            choice,
            index,
            text: tokenizer.text(token).into_owned(),
            origin,
        });
    }

    /// What the budget of a thought leaves behind the next token, if that belongs to one that has a budget.
    fn thought_left(&self, at: usize) -> Option<u32> {
        let tokens_max = self.generation.spec.engine.thinking.as_ref()?.tokens_max?;
        let choice = &self.choices[at];
        choice.is_reasoning().then(|| tokens_max.saturating_sub(choice.reasoning_tokens + 1))
    }

    fn tell(&mut self, at: usize, delta: Delta) {
        if !delta.is_empty() {
            self.backlog.push_back(Output::Delta { choice: at as u32, delta });
        }
    }

    fn finished(&mut self, at: usize, reason: Finish) {
        self.backlog.push_back(Output::Finished { choice: at as u32, reason });
        self.outcome = reason.name();
        if self.choices.iter().all(|c| c.ended) {
            let account = self.account();
            self.backlog.push_back(Output::End(account));
            self.over = true;
        }
    }

    fn failed(&mut self, why: String) {
        if !self.over {
            self.outcome = if why == DEADLINE_PASSED { "deadline" } else { "failed" };
            self.backlog.push_back(Output::Failed(why));
            self.over = true;
        }
    }

    fn account(&mut self) -> RequestUsage {
        let account = RequestUsage {
            prompt_tokens: self.generation.prompt_tokens() as u32,
            cached_tokens: self.cached_tokens,
            completion_tokens: self.choices.iter().map(|c| c.tokens).sum(),
            reasoning_tokens: self.choices.iter().map(|c| c.reasoning_tokens).sum(),
            timings: self.watch.end(self.handles.clock.now()),
            moments: Box::new(*self.watch.moments()),
            room: self.room(),
            reports: self.all_reports(),
            kept: std::mem::take(&mut self.kept),
        };
        self.handles.gateway.completed(&account.completion());
        account
    }

    /// How many tokens the longest prompt leaves, where that is less than what was asked for.
    fn room(&self) -> Option<u32> {
        let longest = self.generation.prompts.iter().map(|p| p.len() as u32).max()?;
        let room = self.handles.context.saturating_sub(longest);
        self.generation.spec.engine.max_tokens.filter(|&asked| asked > room).map(|_| room)
    }

    /// All reports of the reply: those on its output, then those on its prompt, which may add to them.
    fn all_reports(&mut self) -> Vec<Report> {
        let thinking = self.generation.thinking.as_ref().map(|plan| Report::Thinking(self.thinking(plan)));
        let tokens = self.reports.reports(&self.generation.engram, self.generation.spec.engine.prediction.is_some());
        thinking.into_iter().chain(tokens).chain(std::mem::take(&mut self.generation.reports)).collect()
    }

    fn thinking(&self, plan: &ThinkingPlan) -> ThinkingReport {
        let ended = |choice: &Choice| match (plan, choice.thought) {
            (ThinkingPlan::Skipped(why), _) => *why,
            (_, Some(thought)) => thinking_end(thought.end),
            // The end of its thought was not read any more, or it never thought.
            (_, None) if choice.reasoning_tokens > 0 => "cut off",
            (_, None) => "none",
        };
        // A thought that was cut off has as many tokens as were told.
        let tokens = |choice: &Choice| choice.thought.map_or(choice.reasoning_tokens, |thought| thought.tokens);
        ThinkingReport {
            tokens: self.choices.iter().map(tokens).sum(),
            ended: self.choices.iter().map(ended).collect(),
        }
    }

    /// Passes on what there is room for. Without room the actor hears nothing more until there is some.
    fn flush(&mut self, ctx: &mut Context<Self>) {
        while let Some(output) = self.backlog.pop_front() {
            match self.out.try_send(output) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(output)) => {
                    self.backlog.push_front(output);
                    let room = actix_rt::time::timeout(self.handles.unread, self.out.clone().reserve_owned());
                    ctx.wait(room.into_actor(self).map(|waited, this, ctx| match waited {
                        Ok(permit) => {
                            drop(permit);
                            this.flush(ctx);
                        }
                        Err(_) => this.give_up(ctx),
                    }));
                    return;
                }
                Err(mpsc::error::TrySendError::Closed(_)) => {
                    self.outcome = "cancelled";
                    ctx.stop();
                    return;
                }
            }
        }
        if self.over {
            ctx.stop();
        }
    }

    /// The client has read nothing for too long: its events, its backlog and its place in the engine are let go. The
    /// response ends with an error if it is ever read on.
    fn give_up(&mut self, ctx: &mut Context<Self>) {
        self.outcome = "slow_client";
        self.cancel();
        ctx.stop();
    }

    fn cancel(&self) {
        self.routes.iter().for_each(|route| route.cancel(self.handles.clock.now()));
    }

    fn answer(&mut self, ctx: &mut Context<Self>, answers: Vec<Result<(), Refusal>>) {
        let refused = answers.into_iter().find_map(Result::err);
        if refused.is_some() {
            self.outcome = "rejected";
            ctx.stop();
        } else {
            self.watch.taken(self.handles.clock.now());
            ::metrics::counter!(metrics::REQUESTS_STARTED).increment(1);
        }
        let told = self.reply.take().map(|reply| reply.send(refused.map_or(Ok(()), Err)));
        if let Some(Err(_)) = told {
            // The client left while the scheduler's mailbox was so full that its Cancel may have overtaken a Submit.
            self.cancel();
            ctx.stop();
        }
    }
}

impl Actor for RequestActor {
    type Context = Context<Self>;

    /// Submits every prompt. The messages are in the scheduler's mailbox when this returns, so a Cancel cannot overtake
    /// them.
    fn started(&mut self, ctx: &mut Context<Self>) {
        if self.reply.as_ref().is_none_or(oneshot::Sender::is_closed) {
            // The client left before this actor ran, and its Cancel has gone out. It ends as one that was taken.
            ::metrics::counter!(metrics::REQUESTS_STARTED).increment(1);
            ctx.stop();
            return;
        }
        let mut answers = Vec::with_capacity(self.entries.len());
        for prompt in 0..self.entries.len() {
            let request = self.request(prompt);
            let (events, told) = mpsc::channel(Submit::events_max(&request, self.handles.context));
            let route = &self.routes[prompt];
            let submit = Submit {
                request,
                terms: self.generation.terms,
                events,
                rules: self.generation.deferred_rules(prompt),
                warm_up: false,
            };
            answers.push(self.handles.dispatcher.submit(route, submit));
            ctx.add_stream(Numbered { prompt, told });
        }
        let answers = futures_util::future::join_all(answers);
        ctx.wait(answers.into_actor(self).map(|answers, this, ctx| {
            this.answer(ctx, answers);
        }));
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        if self.outcome != "rejected" {
            ::metrics::counter!(metrics::REQUESTS_TOTAL, "outcome" => self.outcome).increment(1);
            self.handles.gateway.ended(self.outcome);
        }
        let tokens: u32 = self.choices.iter().map(|c| c.tokens).sum();
        tracing::info!(request = self.entries.first().map(|e| e.name()), outcome = self.outcome, tokens, "ended");
        if let Some(trace) = self.generation.trace.take() {
            let prompt_tokens = self.generation.prompt_tokens();
            let at = self.handles.clock.now();
            trace.end(self.watch.moments(), Ended { outcome: self.outcome, prompt_tokens, output_tokens: tokens, at });
        }
    }
}

/// Events of one prompt.
struct Numbered {
    prompt: usize,
    told: mpsc::Receiver<RequestEvent>,
}

impl futures_util::Stream for Numbered {
    type Item = (usize, RequestEvent);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        let prompt = self.prompt;
        self.told.poll_recv(cx).map(|told| told.map(|t| (prompt, t)))
    }
}

impl StreamHandler<(usize, RequestEvent)> for RequestActor {
    fn handle(&mut self, (prompt, told): (usize, RequestEvent), ctx: &mut Context<Self>) {
        if !self.over {
            self.hear(prompt, told);
            self.flush(ctx);
        }
    }

    /// The scheduler let go of a prompt: its choices have ended, it was cancelled, or the scheduler itself is gone.
    fn finished(&mut self, ctx: &mut Context<Self>) {
        if self.over || self.routes.iter().all(Route::is_connected) && !self.out.is_closed() {
            return;
        }
        self.failed(ENGINE_LOST.into());
        self.flush(ctx);
    }
}
