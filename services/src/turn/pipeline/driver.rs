//! Carries out the steps of a pipeline, within the time of its budget.

use super::asking::Asking;
use super::calls::call_of;
use super::checks::{failure, holds};
use super::conversation::{last_text, with_words};
use super::heard::{EarlyEnd, HeardChoice, Hearing};
use super::searches::{StepSearch, search, search_of};
use crate::actors::live::LiveEntry;
use crate::actors::messages::Refusal;
use crate::actors::request::RequestActor;
use crate::actors::request::output::{Delta, Output, RequestUsage, ToolRun};
use crate::actors::request::report::{PipelineReport, PipelineStepReport, Report, TurnReport};
use crate::limits::PIPELINE_STEPS_MAX;
use crate::metrics;
use crate::pipelines::{
    AnswerPlace, CallPlan, CheckPlan, GenerationPlan, NamedPipeline, PipelineAction, PipelineEnd, PipelineEvent,
    PipelineRun, RetrieveStep, Said,
};
use crate::text::thinking::{Reasoning, ThinkingMode};
use crate::traces::Trace;
use crate::turn::caller::TurnCaller;
use crate::turn::error::TurnError;
use crate::turn::options::{AskedForm, ChatRequest};
use crate::turn::preparation::{FoundPassages, Preparation};
use crate::turn::rounds::{TurnOutputs, add};
use crate::turn::services::TurnServices;
use chimere_engine::format::blocks::SplitMix;
use chimere_engine::ids::{CacheScope, Micros};
use futures_util::future::try_join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Outputs that wait for a slow client before the driver does.
const OUTPUTS_MAX: usize = 128;
/// A step tells of itself and perhaps of a search, or of a call's beginning and end; steps before the first generation
/// are told to nobody yet.
const _: () = assert!(3 * PIPELINE_STEPS_MAX < OUTPUTS_MAX, "what waits before the first generation has places");
/// The variable by which templates are told whether to think.
const THINKING: &str = "enable_thinking";

/// A turn that a pipeline answers.
pub struct PipelineTurn {
    services: Arc<TurnServices>,
    caller: TurnCaller,
    cache: Option<CacheScope>,
    pipeline: Arc<NamedPipeline>,
    run: PipelineRun,
    /// What the client asks for.
    asked: ChatRequest,
    /// Bytes of the body that it came in.
    bytes: usize,
    /// Seed of the first generation, from which the others have theirs.
    seed: u64,
    /// The trace, until the first generation has it.
    trace: Option<Trace>,
    /// Passages that the generations read.
    found: Option<FoundPassages>,
    /// Below so much generations are told to say what is missing.
    sufficiency_min: f64,
    /// Generations that run, and their plans.
    hearing: Vec<(GenerationPlan, Hearing)>,
    /// The last text that may become the answer and was not shown.
    held: Option<HeardChoice>,
    /// The choice that checks look at.
    last_cited: usize,
    out: mpsc::Sender<Output>,
    usage: RequestUsage,
    report: TurnReport,
    steps: Vec<PipelineStepReport>,
    begun: Micros,
    prompt_tokens: usize,
    /// The turn is live between its generations too.
    _live: LiveEntry,
}

/// A turn whose first generation was accepted.
pub struct StartedTurn {
    /// What it says from now on.
    pub outputs: TurnOutputs,
    /// Tokens of the first prompt.
    pub prompt_tokens: usize,
    /// The seed from which its generations draw.
    pub seed: u64,
}

/// Why a turn has not begun.
pub enum RefusedTurn {
    /// A stage before a generation failed.
    Turn(TurnError),
    /// The scheduler takes no generation now.
    Scheduler(Refusal),
    /// The engine failed before anything was said.
    Engine(String),
}

/// Why a step was not carried out.
enum StepError {
    Turn(TurnError),
    Scheduler(Refusal),
    EarlyEnd(EarlyEnd),
}

impl From<TurnError> for StepError {
    fn from(error: TurnError) -> Self {
        Self::Turn(error)
    }
}

impl From<EarlyEnd> for StepError {
    fn from(broken: EarlyEnd) -> Self {
        Self::EarlyEnd(broken)
    }
}

impl PipelineTurn {
    /// Goes through the steps up to the first generation, and on when its outputs are polled.
    ///
    /// # Errors
    /// If a stage before the first generation fails, or the generation is refused.
    pub async fn start(
        services: &Arc<TurnServices>,
        (caller, cache): (TurnCaller, Option<CacheScope>),
        (pipeline, asked, bytes): (Arc<NamedPipeline>, ChatRequest, usize),
        trace: Option<Trace>,
    ) -> Result<StartedTurn, RefusedTurn> {
        services.check_open().map_err(RefusedTurn::Turn)?;
        let (out, told) = mpsc::channel(OUTPUTS_MAX);
        // Drawn seeds keep to 53 bits, which every JSON reader takes exactly.
        let seed = asked.generation.seed.unwrap_or_else(|| rand::random::<u64>() >> 11);
        let mut turn = Self {
            run: PipelineRun::new(
                &pipeline,
                last_text(&asked.conversation.messages),
                asked.generation.spec.engine.max_tokens,
            ),
            begun: services.handles.clock.now(),
            _live: services.live.enter(caller.name.clone()),
            services: services.clone(),
            caller,
            cache,
            pipeline,
            asked,
            bytes,
            seed,
            trace,
            found: None,
            sufficiency_min: 0.0,
            hearing: Vec::new(),
            held: None,
            last_cited: 0,
            out,
            usage: RequestUsage::default(),
            report: TurnReport::default(),
            steps: Vec::new(),
            prompt_tokens: 0,
        };
        let action = turn.up_to_the_first_generation().await.map_err(|error| match error {
            StepError::Turn(error) => RefusedTurn::Turn(error),
            StepError::Scheduler(refusal) | StepError::EarlyEnd(EarlyEnd::Told(Output::Refused(refusal))) => {
                RefusedTurn::Scheduler(refusal)
            }
            StepError::EarlyEnd(EarlyEnd::Told(Output::Failed(why))) => RefusedTurn::Engine(why),
            StepError::EarlyEnd(_) => RefusedTurn::Engine("nobody hears the turn".into()),
        })?;
        let prompt_tokens = turn.prompt_tokens;
        Ok(StartedTurn { outputs: TurnOutputs::driven(told, turn.go_on(action)), prompt_tokens, seed })
    }

    /// The first action that is not done when this returns: a generation that was accepted, or the end.
    async fn up_to_the_first_generation(&mut self) -> Result<PipelineAction, StepError> {
        let mut action = self.run.next(PipelineEvent::Begin, Duration::ZERO);
        loop {
            match action {
                PipelineAction::Done(_) => return Ok(action),
                PipelineAction::Generate(plans) => match self.within_time(Self::submit_all, plans).await? {
                    Some(()) => return Ok(PipelineAction::Generate(Vec::new())),
                    None => action = self.next(PipelineEvent::Expired(0)),
                },
                other => {
                    let event = self.carry_out(other).await?;
                    action = self.next(event);
                }
            }
        }
    }

    async fn go_on(mut self, mut action: PipelineAction) {
        let told = loop {
            match action {
                PipelineAction::Done(ending) => break self.end(ending).await,
                other => match self.carry_out(other).await {
                    Ok(event) => action = self.next(event),
                    Err(StepError::Turn(error)) => break Err(error.into()),
                    Err(StepError::Scheduler(refusal)) => break Err(EarlyEnd::Told(Output::Refused(refusal))),
                    Err(StepError::EarlyEnd(broken)) => break Err(broken),
                },
            }
        };
        if let Err(EarlyEnd::Told(output)) = told {
            // A client that is gone needs no reason.
            self.out.send(output).await.ok();
        }
    }

    fn next(&mut self, event: PipelineEvent) -> PipelineAction {
        let elapsed = self.elapsed();
        self.run.next(event, elapsed)
    }

    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.services.handles.clock.now().since(self.begun).0)
    }

    fn asking(&self) -> Asking<'_> {
        Asking { services: &self.services, caller: &self.caller, cache: self.cache }
    }

    /// Does something unless the time is over before, and then gives `None`.
    async fn within_time<A, T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Self, A) -> Result<T, StepError>,
        argument: A,
    ) -> Result<Option<T>, StepError> {
        match self.run.time_left(self.elapsed()) {
            None => work(self, argument).await.map(Some),
            Some(left) => match tokio::time::timeout(left, work(self, argument)).await {
                Ok(done) => done.map(Some),
                Err(_) => Ok(None),
            },
        }
    }

    /// Carries a step out and reports on it.
    async fn carry_out(&mut self, action: PipelineAction) -> Result<PipelineEvent, StepError> {
        let begun = self.services.handles.clock.now();
        let names: Vec<Arc<str>> = match &action {
            PipelineAction::Test(name, _)
            | PipelineAction::Retrieve(name, _)
            | PipelineAction::Judge(name, _)
            | PipelineAction::Call(CallPlan { name, .. })
            | PipelineAction::Check(CheckPlan { name, .. }) => {
                vec![name.clone()]
            }
            PipelineAction::Generate(plans) if plans.is_empty() => {
                self.hearing.iter().map(|(plan, _)| plan.step.name.clone()).collect()
            }
            PipelineAction::Generate(plans) => plans.iter().map(|plan| plan.step.name.clone()).collect(),
            PipelineAction::Done(_) => Vec::new(),
        };
        let done = self.within_time(Self::act, action).await?;
        let took = Duration::from_micros(self.services.handles.clock.now().since(begun).0);
        let (event, outcomes) = done.unwrap_or_else(|| self.expired());
        for (at, name) in names.iter().enumerate() {
            let (outcome, tokens) = outcomes.get(at).copied().unwrap_or(("expired", 0));
            self.step_done(name, outcome, took, tokens).await?;
        }
        Ok(event)
    }

    async fn step_done(
        &mut self,
        name: &str,
        outcome: &'static str,
        took: Duration,
        tokens: u32,
    ) -> Result<(), EarlyEnd> {
        let (pipeline, step) = (self.pipeline.name.to_string(), name.to_owned());
        let labels = [("pipeline", pipeline.clone()), ("step", step.clone()), ("outcome", outcome.to_owned())];
        ::metrics::counter!(metrics::PIPELINE_STEPS, &labels).increment(1);
        ::metrics::histogram!(metrics::PIPELINE_STEP_SECONDS, "pipeline" => pipeline, "step" => step)
            .record(took.as_secs_f64());
        let report = PipelineStepReport { name: name.to_owned(), outcome, took, tokens };
        self.steps.push(report.clone());
        self.tell(Output::PipelineStep(report)).await
    }

    /// What came of a step, and for each of its parts the outcome and its tokens.
    async fn act(&mut self, action: PipelineAction) -> Result<(PipelineEvent, Vec<(&'static str, u32)>), StepError> {
        match action {
            PipelineAction::Test(_, test) => {
                let holds = holds(self.asking(), &test, &self.asked).await?;
                Ok((PipelineEvent::Tested(holds), vec![(if holds { "yes" } else { "no" }, 0)]))
            }
            PipelineAction::Retrieve(_, step) => Ok((PipelineEvent::Looked, vec![(self.retrieve(&step).await?, 0)])),
            PipelineAction::Call(plan) => {
                let (text, outcome) = self.call(plan).await?;
                Ok((PipelineEvent::Called(text), vec![(outcome, 0)]))
            }
            PipelineAction::Judge(_, min) => Ok((PipelineEvent::Looked, vec![(self.judge(min).await?, 0)])),
            PipelineAction::Generate(plans) => {
                if !plans.is_empty() {
                    self.submit_all(plans).await?;
                }
                self.hear().await
            }
            PipelineAction::Check(plan) => {
                let place = (&*self.pipeline.name, self.last_cited);
                let failed = failure(self.asking(), &plan, place, &self.asked).await?;
                let outcome = if failed.is_some() { "failed" } else { "passed" };
                Ok((PipelineEvent::Checked(failed), vec![(outcome, 0)]))
            }
            PipelineAction::Done(_) => unreachable!("an end is no step"),
        }
    }

    async fn tell(&self, output: Output) -> Result<(), EarlyEnd> {
        self.out.send(output).await.map_err(|_| EarlyEnd::Unheard)
    }

    /// Searches for passages, and tells of it. Nobody hears before the first generation: the channel has places for all
    /// that a pipeline's steps say.
    async fn retrieve(&mut self, step: &RetrieveStep) -> Result<&'static str, StepError> {
        let question = last_text(&self.asked.conversation.messages).to_owned();
        let StepSearch { found, told, failed } = search(self.asking(), (&self.pipeline.name, step), question).await?;
        self.report.searches += 1;
        for output in told {
            self.tell(output).await?;
        }
        let outcome = if found.is_empty() { "none" } else { "found" };
        self.found.get_or_insert_default().sources.extend(found);
        Ok(if failed { "failed" } else { outcome })
    }

    /// Runs a tool, and gives what later steps read of it and the outcome.
    async fn call(&mut self, plan: CallPlan) -> Result<(String, &'static str), StepError> {
        let result = match call_of(self.asking(), &self.pipeline.name, plan.tool).await? {
            Err(why) => Err(why),
            Ok(call) => {
                self.tell(Output::Calling(call.told())).await?;
                let (result, report) = call.run(&self.services, &self.caller).await;
                self.report.calls.push(report);
                self.tell(Output::Called(ToolRun { result: Some(result.clone()), ..call.told() })).await?;
                result
            }
        };
        Ok(match result {
            Ok(text) => (text, "answered"),
            Err(why) => (plan.otherwise.unwrap_or(why), "failed"),
        })
    }

    /// Asks whether the passages suffice.
    async fn judge(&mut self, min: f64) -> Result<&'static str, TurnError> {
        self.sufficiency_min = min;
        let Some(preparation) = self.prepared_with(self.asked.clone(), 0) else { return Ok("none") };
        let sufficiency = preparation.passages().await?.and_then(|search| search.sufficiency);
        if let Some(found) = &mut self.found {
            found.sufficiency = sufficiency;
        }
        self.report.sufficiency = sufficiency;
        Ok(match sufficiency {
            Some(p) if p >= min => "enough",
            Some(_) => "missing",
            None => "none",
        })
    }

    /// A preparation that puts the passages before the question, if there was a search.
    fn prepared_with(&self, mut chat: ChatRequest, behind: usize) -> Option<Preparation<'_>> {
        let found = FoundPassages { behind, ..self.found.clone()? };
        let mut wanted = search_of(String::new(), 1);
        wanted.sufficiency_min = self.sufficiency_min;
        chat.file_search = Some(wanted);
        let preparation = Preparation::of_chat(&self.services, self.caller.clone(), self.cache, (chat, self.bytes));
        Some(preparation.with_found(found))
    }

    async fn submit_all(&mut self, plans: Vec<GenerationPlan>) -> Result<(), StepError> {
        for plan in plans {
            let hearing = self.submit(&plan).await?;
            self.hearing.push((plan, hearing));
        }
        Ok(())
    }

    async fn submit(&mut self, plan: &GenerationPlan) -> Result<Hearing, StepError> {
        let logprobs = plan.answers && self.asked.generation.spec.engine.sampling.logprobs.is_some();
        let (chat, behind) = self.chat_of(plan);
        let services = self.services.clone();
        let mut preparation = match self.prepared_with(chat.clone(), behind) {
            Some(preparation) => preparation,
            None => Preparation::of_chat(&services, self.caller.clone(), self.cache, (chat, self.bytes)),
        };
        preparation.prepare().await?;
        let mut request = preparation.complete().await?;
        request.searches.clear();
        request.reports.retain(|report| !matches!(report, Report::Turn(_)));
        request.trace = self.trace.take();
        self.prompt_tokens = if plan.number == 0 { request.prompt_tokens() } else { self.prompt_tokens };
        for prompt in request.prompts.iter().filter(|_| services.log_prompts) {
            tracing::info!(
                request = &*self.caller.name,
                prompt = services.text.tokenizer().decode(prompt, true),
                "asked"
            );
        }
        let entry = services.live.enter(self.caller.name.clone());
        let submitted = RequestActor::submit(request, vec![entry], services.handles.clone()).await;
        let outputs = submitted.map_err(StepError::Scheduler)?;
        self.caller.taken();
        Ok(Hearing::of(outputs, plan.step.best_of, logprobs))
    }

    /// The request of one generation, and how many of its messages stand behind the question.
    fn chat_of(&self, plan: &GenerationPlan) -> (ChatRequest, usize) {
        let (mut chat, step) = (self.asked.clone(), &plan.step);
        let (messages, behind) = with_words(std::mem::take(&mut chat.conversation.messages), plan);
        chat.conversation.messages = messages;
        let generation = &mut chat.generation;
        if !plan.answers {
            (chat.tools, chat.calls) = (None, None);
            chat.conversation.tools.clear();
            (generation.form, generation.prediction) = (None, None);
            generation.spec.stop.clear();
        }
        if let Some(form) = &step.form {
            generation.form = Some(AskedForm { field: "model", form: form.clone() });
        }
        // Each generation draws for itself, as each prompt of a request does; the first one has the seed itself.
        let seed = if plan.number == 0 { self.seed } else { SplitMix::nth(self.seed, u64::from(plan.number)) };
        generation.seed = Some(seed);
        let engine = Arc::make_mut(&mut generation.spec.engine);
        engine.choices = step.best_of;
        engine.max_tokens = plan.tokens;
        engine.min_tokens =
            if plan.answers { plan.tokens.map_or(engine.min_tokens, |n| n.min(engine.min_tokens)) } else { 0 };
        let sampling = Arc::make_mut(&mut engine.sampling);
        if !plan.answers {
            (sampling.logprobs, sampling.report) = (None, false);
        }
        // Certainty is read from log-probabilities, and what came before the time was over is counted by them.
        if step.best_of > 1 || self.pipeline.budget.time.is_some() {
            sampling.logprobs = sampling.logprobs.or(Some(0));
        }
        sampling.temperature = step.temperature.unwrap_or(sampling.temperature);
        if let Some(thinks) = step.thinking.filter(|_| self.services.thoughts.is_some()) {
            let mode = if thinks { ThinkingMode::On } else { ThinkingMode::Off };
            chat.reasoning = Some(Reasoning { mode, tokens_max: None, adaptive: false });
            if self.services.text.template().is_some_and(|template| template.options().any(|name| name == THINKING)) {
                chat.conversation.options.insert(THINKING.to_owned(), thinks.into());
            }
        }
        (chat, behind)
    }

    /// Listens to what runs, and keeps what it says.
    async fn hear(&mut self) -> Result<(PipelineEvent, Vec<(&'static str, u32)>), StepError> {
        let out = self.out.clone();
        let all = self.hearing.iter_mut().map(|(plan, hearing)| hearing.listen(plan.shown.then_some(&out)));
        try_join_all(all).await?;
        let (mut said, mut outcomes) = (Vec::new(), Vec::new());
        for (plan, hearing) in std::mem::take(&mut self.hearing) {
            let (best, words, usage) = hearing.best();
            self.keep(&plan, best);
            if let Some(usage) = usage {
                self.add(usage);
            }
            self.report.rounds += 1;
            outcomes.push((words.finish.name(), words.tokens));
            said.push(words);
        }
        Ok((PipelineEvent::Generated(said), outcomes))
    }

    fn keep(&mut self, plan: &GenerationPlan, best: Option<HeardChoice>) {
        self.last_cited = best.as_ref().map_or(0, |best| best.cited);
        if plan.answers && !plan.shown {
            self.held = best;
        }
    }

    fn add(&mut self, usage: RequestUsage) {
        if self.report.rounds == 0 { self.usage = usage } else { add(&mut self.usage, usage) }
    }

    /// The time was over: what runs is cancelled, and what it said so far is the answer if there is no other.
    fn expired(&mut self) -> (PipelineEvent, Vec<(&'static str, u32)>) {
        let (mut tokens, mut outcomes) = (0, Vec::new());
        for (plan, hearing) in std::mem::take(&mut self.hearing) {
            let (best, Said { tokens: came, .. }, _) = hearing.best();
            tokens += came;
            self.usage.completion_tokens += came;
            self.report.rounds += 1;
            outcomes.push(("expired", came));
            if self.held.is_none() {
                self.keep(&plan, best);
            }
        }
        (PipelineEvent::Expired(tokens), outcomes)
    }

    async fn end(&mut self, ending: PipelineEnd) -> Result<(), EarlyEnd> {
        let PipelineEnd { answer, finish, early } = ending;
        match answer {
            AnswerPlace::None | AnswerPlace::Shown => {}
            AnswerPlace::Held => {
                for delta in self.held.take().map_or_else(Vec::new, HeardChoice::into_deltas) {
                    self.tell(Output::Delta { choice: 0, delta }).await?;
                }
            }
            AnswerPlace::Words(content) => {
                self.tell(Output::Delta { choice: 0, delta: Delta { content, ..Delta::default() } }).await?;
            }
        }
        self.tell(Output::Finished { choice: 0, reason: finish }).await?;
        let mut usage = std::mem::take(&mut self.usage);
        usage.timings.total = usage.timings.total.max(self.elapsed());
        let steps = std::mem::take(&mut self.steps);
        let told: Vec<String> = steps.iter().map(|step| format!("{} {}", step.name, step.outcome)).collect();
        let (name, tokens) = (self.pipeline.name.to_string(), usage.completion_tokens);
        let ms = usage.timings.total.as_millis() as u64;
        tracing::info!(
            request = &*self.caller.name,
            pipeline = name,
            steps = told.join(", "),
            tokens,
            ms,
            out_of = early,
            "piped"
        );
        self.report.passages = self.found.as_ref().map_or(0, |found| found.sources.len() as u32);
        usage.reports.push(Report::Turn(std::mem::take(&mut self.report)));
        usage.reports.push(Report::Pipeline(Box::new(PipelineReport { name, steps, early })));
        self.tell(Output::End(usage)).await
    }
}
