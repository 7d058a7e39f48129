//! Carries out the steps of a turn: it forwards what each generation says, runs the calls between two of them, and
//! makes the next generation's prompt. Nothing of it holds a place in the engine between generations.

use super::machine::{CallOutcome, CallResult, ModelCall, PlannedCall, Turn, TurnEvent, TurnStep};
use super::outputs::TurnOutputs;
use super::round::Round;
use super::rules::LaterRules;
use super::usage::add;
use super::web::WebTurn;
use crate::actors::live::LiveEntry;
use crate::actors::request::generation_request::GenerationRequest;
use crate::actors::request::output::{Delta, FileSearch, Finish, Output, RequestUsage, ToolRun};
use crate::actors::request::report::{Report, TurnReport};
use crate::actors::request::{Outputs, RequestActor};
use crate::citations::NumberedSource;
use crate::metrics;
use crate::text::grammar::Calls;
use crate::text::{ChatPrompt, Conversation, IdPlace, Message, RawJson, Role, ToolCall};
use crate::traces::Moments;
use crate::turn::caller::TurnCaller;
use crate::turn::context::{BETWEEN, best_passages, numbered_passages, room};
use crate::turn::error::{EarlyEnd, TurnError};
use crate::turn::hosted::{Hosted, HostedCall, ToolList, WebCall};
use crate::turn::options::{ChatRequest, FileSearchRequest, Generation, QueryWriter};
use crate::turn::preparation::Preparation;
use crate::turn::prompts::{INLINE_BYTES, prompt_of, work};
use crate::turn::services::TurnServices;
use chimere_engine::format::blocks::SplitMix;
use chimere_engine::ids::{CacheScope, Micros, TokenId};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Outputs that wait for a slow client before the driver does.
const OUTPUTS_MAX: usize = 32;
/// What the model reads where a search finds nothing.
const NOTHING: &str = "No passage was found.";
/// What it reads where the context has room for none of those that were found.
const NO_ROOM: &str = "There is no room for more passages; answer from what was found.";

/// All that the later rounds of a turn are made of.
pub struct LaterRounds {
    pub(super) services: Arc<TurnServices>,
    pub(super) caller: TurnCaller,
    cache: Option<CacheScope>,
    /// The stores that `file_search` searches.
    search: Option<FileSearchRequest>,
    /// What goes to the web and has gone there.
    web: WebTurn,
    /// What each round asks for; its conversation is empty, and the rules for its calls stand beside it.
    pub(super) asked: ChatRequest,
    rules: LaterRules,
    /// The conversation so far, for templates behind whose answers no prompt can go on.
    conversation: Conversation,
    /// Bytes of the body that it came in.
    bytes: usize,
    /// The last prompt, and behind it the tokens of its answer as soon as that is there.
    pub(super) tokens: Vec<TokenId>,
    /// Where in it turns begin.
    turns: Vec<u32>,
    pub(super) turn: Turn,
    pub(super) report: TurnReport,
    /// What the reply says of tools before anything else.
    told: ToldTools,
}

/// What a reply says of tools before its first generation.
#[derive(Clone, Debug, Default)]
pub struct ToldTools {
    /// Servers that the request names, and the tools of each that the model may call.
    pub lists: Vec<ToolList>,
    /// Calls that were approved and run before the prompt was made.
    pub runs: Vec<ToolRun>,
}

impl LaterRounds {
    /// Of a request that has the server run calls between generations. Other requests have no later rounds.
    pub fn of(
        services: &Arc<TurnServices>,
        caller: &TurnCaller,
        cache: Option<CacheScope>,
        (chat, bytes): (&ChatRequest, usize),
        lists: Vec<ToolList>,
    ) -> Option<Box<Self>> {
        if chat.hosted.is_empty() && lists.is_empty() {
            return None;
        }
        let turn = Turn::new(chat.hosted.clone(), chat.generation.spec.engine.max_tokens);
        let asked = ChatRequest {
            generation: Generation { form: None, ..chat.generation.clone() },
            conversation: Conversation::default(),
            tools: chat.tools.clone(),
            calls: None,
            reasoning: chat.reasoning,
            sources: chat.sources.clone(),
            file_search: None,
            pipeline: None,
            web: None,
            hosted: chat.hosted.clone(),
            mcp: Vec::new(),
            remembered: false,
        };
        // A call that must be made was made in the first round.
        let calls = chat.calls.clone().map(|calls| Calls { must: false, ..calls });
        let mut later = Box::new(Self {
            services: services.clone(),
            caller: caller.clone(),
            cache,
            search: chat.file_search.clone(),
            web: WebTurn::of(chat.web.clone()),
            asked,
            rules: LaterRules::of(services, caller.holder, calls),
            conversation: Conversation::default(),
            bytes,
            tokens: Vec::new(),
            turns: Vec::new(),
            turn,
            report: TurnReport::default(),
            told: ToldTools { lists, runs: Vec::new() },
        });
        // Earlier results stand in the conversation.
        let results = chat.conversation.messages.iter().any(|message| message.role == Role::Tool);
        let found = later.search.as_ref().is_some_and(|search| search.queries == QueryWriter::User);
        let tainted = results || found && later.reads_of_others();
        later.turn.taint(tainted);
        Some(later)
    }

    /// Whether a store that is searched belongs to another account.
    fn reads_of_others(&self) -> bool {
        let stores = self.search.iter().flat_map(|search| &search.stores);
        let store = |id: &String| self.services.documents.store(self.caller.account, id);
        stores.map(store).any(|store| store.is_ok_and(|store| store.read_only))
    }

    /// What the reply says of tools before anything else.
    pub fn take_told(&mut self) -> ToldTools {
        std::mem::take(&mut self.told)
    }

    /// Has the reply say that a call which was approved was run.
    pub(super) fn tell_run(&mut self, run: ToolRun) {
        self.told.runs.push(run);
    }

    /// Takes over what the first round was prepared with.
    pub fn remember(&mut self, (conversation, sources): (Conversation, Vec<NumberedSource>)) {
        self.web.begin(&conversation);
        self.conversation = conversation;
        self.asked.sources = sources;
        // Its examples stand in the conversation now.
        self.asked.generation.engram.semantic = None;
    }

    /// Takes over the prompt of the first round, before it is submitted.
    pub fn begin(&mut self, first: &GenerationRequest) {
        self.tokens = first.prompts.first().map_or_else(Vec::new, |prompt| prompt.to_vec());
        self.turns = first.turns.to_vec();
        self.asked.generation.seed = Some(first.spec.engine.sampling.seed);
    }

    /// The outputs of the whole turn, whose first generation was accepted.
    pub fn outputs(mut self: Box<Self>, first: Outputs) -> TurnOutputs {
        self.caller.taken();
        let (out, told) = mpsc::channel(OUTPUTS_MAX);
        TurnOutputs::driven(told, TurnDriver::new(*self, first, out).run())
    }

    fn ends(&self) -> &[TokenId] {
        &self.asked.generation.spec.engine.end_ids
    }
}

/// A turn that is carried out.
pub(super) struct TurnDriver {
    pub(super) later: LaterRounds,
    /// The first generation, until it is heard.
    first: Option<Outputs>,
    out: mpsc::Sender<Output>,
    /// What the last generation said and thought.
    said: (String, String),
    /// Calls that were answered in the rounds before.
    answered: usize,
    /// Characters of the answer's text so far.
    characters: usize,
    usage: RequestUsage,
    begun: Micros,
    /// When the last token of the generation before came.
    last: Option<Micros>,
    /// What was searched for and run since then took so long.
    pub(super) helped: Duration,
    /// The turn is live between its generations too.
    _live: LiveEntry,
}

impl TurnDriver {
    fn new(later: LaterRounds, first: Outputs, out: mpsc::Sender<Output>) -> Self {
        Self {
            first: Some(first),
            out,
            said: Default::default(),
            answered: 0,
            characters: 0,
            usage: RequestUsage::default(),
            begun: later.services.handles.clock.now(),
            last: None,
            helped: Duration::ZERO,
            _live: later.services.live.enter(later.caller.name.clone()),
            later,
        }
    }

    async fn run(mut self) {
        let told = match self.steps().await {
            Ok(()) | Err(EarlyEnd::Unheard) => Ok(()),
            Err(EarlyEnd::Told(output)) => self.tell(output).await,
        };
        // A client that is gone needs no reason.
        drop(told);
        ::metrics::histogram!(metrics::TURN_ROUNDS).record(f64::from(self.later.turn.rounds()));
    }

    async fn steps(&mut self) -> Result<(), EarlyEnd> {
        self.later.rules.begin();
        // A turn that began with calls which were approved has its first generation behind these.
        let begins = self.later.turn.rounds() > 0;
        let mut step = if begins { TurnStep::Generate(Vec::new()) } else { self.later.turn.next(TurnEvent::Begin) };
        loop {
            let event = match step {
                TurnStep::Generate(results) => self.generate(results).await?,
                TurnStep::Call(calls) => self.call(calls).await?,
                TurnStep::AskApproval(calls) => self.ask(&calls).await?,
                TurnStep::Done(finish) => return self.end(finish).await,
            };
            step = self.later.turn.next(event);
        }
    }

    pub(super) async fn tell(&self, output: Output) -> Result<(), EarlyEnd> {
        self.out.send(output).await.map_err(|_| EarlyEnd::Unheard)
    }

    pub(super) async fn tell_delta(&self, delta: Delta) -> Result<(), EarlyEnd> {
        if delta.is_empty() { Ok(()) } else { self.tell(Output::Delta { choice: 0, delta }).await }
    }

    /// Has the model go on, and forwards what it says.
    async fn generate(&mut self, results: Vec<CallResult>) -> Result<TurnEvent, EarlyEnd> {
        let outputs = match self.first.take() {
            Some(first) => Some(first),
            None => self.submit(results).await?,
        };
        let Some(mut outputs) = outputs else { return Ok(TurnEvent::Full) };
        let (mut round, mut finish) = (Round::behind(self.characters), Finish::Stop);
        loop {
            match outputs.next().await {
                Some(Output::Delta { delta, .. }) => {
                    self.characters += delta.content.chars().count();
                    self.tell_delta(round.take(&self.later.turn, delta)).await?;
                }
                Some(Output::Finished { reason, .. }) => finish = reason,
                Some(Output::End(mut usage)) => {
                    self.later.tokens.append(&mut usage.kept);
                    let tokens = usage.completion_tokens;
                    self.count_own_time(&usage.moments);
                    if self.later.turn.rounds() == 1 {
                        self.usage = usage
                    } else {
                        add(&mut self.usage, usage)
                    }
                    self.said = (std::mem::take(&mut round.text), std::mem::take(&mut round.reasoning));
                    return Ok(TurnEvent::Generated(round.ended(finish, tokens)));
                }
                Some(failed @ Output::Failed(_)) => return Err(EarlyEnd::Told(failed)),
                Some(other) => self.tell(other).await?,
                None => return Err(EarlyEnd::failed("the stream broke off")),
            }
        }
    }

    /// Adds the time between two generations that neither took, nor what ran between them.
    fn count_own_time(&mut self, moments: &Moments) {
        if let (Some(last), Some(taken)) = (self.last, moments.taken) {
            let between = Duration::from_micros(taken.since(last).0);
            self.later.report.own += between.saturating_sub(self.helped);
        }
        (self.last, self.helped) = (moments.last, Duration::ZERO);
    }

    /// Submits the next generation. `None` if the context has no room for it.
    async fn submit(&mut self, results: Vec<CallResult>) -> Result<Option<Outputs>, EarlyEnd> {
        let services = self.later.services.clone();
        let prompt = self.prompt(&results).await?;
        if prompt.ids.len() > services.room(&self.later.asked.generation.spec.engine) {
            return Ok(None);
        }
        self.later.tokens.clone_from(&prompt.ids);
        self.later.turns.clone_from(&prompt.turns);
        self.keep(results);
        let rules = self.later.rules.made().await?;
        let mut asked = self.later.asked.clone();
        // Each round draws for itself, as each prompt of a request does.
        let draws = |seed| SplitMix::nth(seed, u64::from(self.later.turn.rounds() - 1));
        asked.generation.seed = asked.generation.seed.map(draws);
        let engine = Arc::make_mut(&mut asked.generation.spec.engine);
        // Before turns of its key that have not begun: behind all of these its prompt would be in no cache any more.
        engine.priority = engine.priority.saturating_sub(1);
        engine.max_tokens = self.later.turn.tokens_left();
        engine.min_tokens = engine.min_tokens.saturating_sub(self.usage.completion_tokens);
        let (caller, cache) = (self.later.caller.clone(), self.later.cache);
        let mut preparation = Preparation::of_round(&services, caller, cache, (asked, prompt, rules));
        preparation.prepare().await?;
        let request = preparation.complete().await?;
        let entry = services.live.enter(self.later.caller.name.clone());
        let submitted = RequestActor::submit(request, vec![entry], services.handles.clone()).await;
        submitted.map(Some).map_err(|refusal| EarlyEnd::Told(Output::Refused(refusal)))
    }

    /// The prompt behind these answers: behind the model's own tokens wherever its template allows it, so that the
    /// prefix cache knows all that came before.
    pub(super) async fn prompt(&self, results: &[CallResult]) -> Result<ChatPrompt, TurnError> {
        let (later, services) = (&self.later, &self.later.services);
        let mut whole = Vec::with_capacity(results.len() + 2);
        whole.push(Message::new(Role::User, "."));
        whole.extend(self.exchange(results));
        let bytes: usize = results.iter().map(|result| result.text.len() + result.call.arguments.len()).sum();
        let said = self.said.0.len() + self.said.1.len();
        let (tools, is_few) = services.text.tools_behind(&later.conversation.tools);
        let options = later.conversation.options.clone();
        let conversation = Conversation { messages: whole, tools, options, continues: false };
        let (text, ends, here) = (services.text.clone(), later.ends().to_vec(), is_few && bytes + said <= INLINE_BYTES);
        let job = move || text.continuation(&conversation, &ends);
        if let Some(next) = work(&services.lanes, later.caller.holder, bytes, here, job).await? {
            return Ok(next.behind(&later.tokens, &later.turns, later.ends()));
        }
        let before = later.conversation.messages.iter().cloned();
        let messages = before.chain(self.exchange(results)).collect();
        let Conversation { tools, options, .. } = &later.conversation;
        let conversation = Conversation { messages, tools: tools.clone(), options: options.clone(), continues: false };
        prompt_of(services, later.caller.holder, conversation, later.bytes + bytes, usize::MAX).await
    }

    /// What the model said last, with the calls that these answer, and the answers.
    fn exchange(&self, results: &[CallResult]) -> Vec<Message> {
        let (text, reasoning) = &self.said;
        let numbered = || results.iter().enumerate().map(|(at, result)| (call_id(self.answered + at), result));
        let said = Message {
            reasoning: Some(reasoning.clone()).filter(|reasoning| !reasoning.is_empty()),
            tool_calls: numbered().map(|(id, result)| tool_call(id, &result.call)).collect(),
            ..Message::new(Role::Assistant, text.as_str())
        };
        let answer = |(id, result): (String, &CallResult)| Message {
            tool_call_id: Some(id),
            ..Message::new(Role::Tool, result.text.as_str())
        };
        std::iter::once(said).chain(numbered().map(answer)).collect()
    }

    /// Keeps what was said and answered for the rounds to come.
    fn keep(&mut self, results: Vec<CallResult>) {
        let messages = self.exchange(&results);
        self.later.conversation.messages.extend(messages);
        self.answered += results.len();
        self.later.asked.sources.extend(results.into_iter().flat_map(|result| result.passages));
    }

    /// Answers calls, one after the other: each takes of the context what those before it left. Those that only read
    /// run at once.
    async fn call(&mut self, calls: Vec<PlannedCall>) -> Result<TurnEvent, EarlyEnd> {
        if self.characters > 0 && !self.said.0.is_empty() {
            // What follows is another paragraph of the answer.
            self.characters += BETWEEN.len();
            self.tell_delta(Delta { content: BETWEEN.to_owned(), ..Delta::default() }).await?;
        }
        let mut results: Vec<CallResult> = Vec::with_capacity(calls.len());
        for group in calls.chunk_by(|one, next| one.is_read_of_mcp() && next.is_read_of_mcp()) {
            let before = results.len();
            match &group[0] {
                PlannedCall { call, plan: Err(why), .. } => {
                    results.push(without_answer(call.clone(), CallOutcome::Refused, why));
                }
                PlannedCall { call, plan: Ok(HostedCall::FileSearch { query }), .. } => {
                    let result = self.search(call, query.clone(), &results).await?;
                    results.push(result);
                }
                PlannedCall { call, plan: Ok(HostedCall::Web(asked)), .. } => {
                    let result = self.browse(call.clone(), asked.clone(), &results).await?;
                    results.push(result);
                }
                PlannedCall { plan: Ok(HostedCall::Mcp { .. }), .. } => self.run_tools(group, &mut results).await?,
            }
            for (PlannedCall { tool, .. }, result) in group.iter().zip(&results[before..]) {
                count(tool, result.outcome.name());
            }
        }
        Ok(TurnEvent::Called(results))
    }

    /// Searches, or says in words for the model why that cannot be. `before` are the answers of this round so far.
    async fn search(&mut self, call: &ModelCall, query: String, before: &[CallResult]) -> Result<CallResult, EarlyEnd> {
        self.tell(Output::Searching { query: query.clone() }).await?;
        let (services, caller) = (&self.later.services, &self.later.caller);
        let wanted = self.later.search.as_ref().expect("file_search is hosted where stores are named");
        let begun = Instant::now();
        let searched = best_passages(services, caller, wanted, &query).await;
        self.helped += begun.elapsed();
        let (found, failed) = match searched {
            Ok(found) => (found, None),
            // The store may have been removed meanwhile.
            Err(TurnError::FileSearch { error, .. }) => (Vec::new(), Some(error.to_string())),
            Err(TurnError::TextThreads(busy)) => (Vec::new(), Some(busy.to_string())),
            Err(other) => return Err(other.into()),
        };
        let result = self.fitted(call, found, before).await?;
        self.later.report.searches += 1;
        self.later.report.passages += result.passages.len() as u32;
        let results = result.passages.clone();
        self.tell(Output::Searched(FileSearch { queries: vec![query], results, sufficiency: None })).await?;
        Ok(failed.map_or(result, |why| without_answer(call.clone(), CallOutcome::Failed, &why)))
    }

    /// Searches the web or reads a page of it, or says in words for the model why that cannot be.
    async fn browse(&mut self, call: ModelCall, asked: WebCall, before: &[CallResult]) -> Result<CallResult, EarlyEnd> {
        if let Some(why) = self.later.web.refusal(&asked) {
            return Ok(without_answer(call, CallOutcome::Refused, &why));
        }
        self.tell(Output::Browsing(asked.begun())).await?;
        let LaterRounds { services, caller, web, .. } = &mut self.later;
        let begun = Instant::now();
        let ran = web.run(&services.web, caller, &asked).await;
        self.helped += begun.elapsed();
        let (mut result, pages) = match ran {
            Ok(found) => (self.fitted(&call, found.passages, before).await?, found.pages),
            Err(why) => (without_answer(call, CallOutcome::Failed, &why.to_string()), Vec::new()),
        };
        // What went wrong is told in a stranger's words too.
        result.taints = true;
        self.later.report.searches += u32::from(matches!(asked, WebCall::Search { .. }));
        self.later.report.passages += result.passages.len() as u32;
        let failed = result.outcome == CallOutcome::Failed;
        self.tell(Output::Browsed(asked.ended(pages, &result.passages, failed))).await?;
        Ok(result)
    }

    /// The answer with as many of the best passages as leave room for the model's own words.
    async fn fitted(
        &self,
        call: &ModelCall,
        mut found: Vec<NumberedSource>,
        before: &[CallResult],
    ) -> Result<CallResult, TurnError> {
        let known = self.later.asked.sources.len() + before.iter().map(|result| result.passages.len()).sum::<usize>();
        let room = room(self.later.services.handles.context, self.later.turn.tokens_left());
        let none = if found.is_empty() { NOTHING } else { NO_ROOM };
        let (mut fitting, mut too_many, mut tried) = (0, found.len() + 1, found.len());
        let taints = self.later.reads_of_others();
        let answer = |found: &[NumberedSource]| CallResult {
            call: call.clone(),
            outcome: CallOutcome::Answered,
            taints,
            text: if found.is_empty() { none.to_owned() } else { numbered_passages(found, known) },
            passages: found.to_vec(),
        };
        while fitting + 1 < too_many {
            let mut results = before.to_vec();
            results.push(answer(&found[..tried]));
            if self.prompt(&results).await?.ids.len() <= room {
                fitting = tried
            } else {
                too_many = tried
            }
            tried = fitting.midpoint(too_many);
        }
        found.truncate(fitting);
        Ok(answer(&found))
    }

    async fn end(&mut self, finish: Finish) -> Result<(), EarlyEnd> {
        self.tell(Output::Finished { choice: 0, reason: finish }).await?;
        let mut usage = std::mem::take(&mut self.usage);
        let now = self.later.services.handles.clock.now();
        usage.timings.total = usage.timings.total.max(Duration::from_micros(now.since(self.begun).0));
        let mut report = std::mem::take(&mut self.later.report);
        report.rounds = self.later.turn.rounds();
        // A search that was made before the first generation has a report of its own.
        let before = usage.reports.iter().position(|report| matches!(report, Report::Turn(_)));
        if let Some(Report::Turn(before)) = before.map(|at| usage.reports.remove(at)) {
            report.searches += before.searches;
            report.passages += before.passages;
            report.sufficiency = before.sufficiency;
        }
        usage.reports.push(Report::Turn(report));
        self.tell(Output::End(usage)).await
    }
}

/// An answer that says why there is none.
pub(super) fn without_answer(call: ModelCall, outcome: CallOutcome, why: &str) -> CallResult {
    CallResult { call, outcome, text: format!("Error: {why}"), passages: Vec::new(), taints: false }
}

/// Counts a call for the metrics.
pub(super) fn count(tool: &Hosted, outcome: &'static str) {
    let [server, name] = tool.labels().map(str::to_owned);
    ::metrics::counter!(metrics::TOOL_CALLS, "server" => server, "tool" => name, "outcome" => outcome).increment(1);
}

/// The id of a call of the turn in its prompts: the same in every turn that goes the same way, and of the form that
/// those templates want which look at it.
fn call_id(number: usize) -> String {
    format!("call{number:05}")
}

/// A call as templates read it. Arguments that are no object are none.
fn tool_call(id: String, call: &ModelCall) -> ToolCall {
    let arguments = serde_json::from_str(&call.arguments).ok().filter(serde_json::Value::is_object);
    ToolCall {
        id: Some(id),
        name: call.name.clone(),
        arguments: RawJson(arguments.unwrap_or_else(|| serde_json::json!({}))),
        id_place: IdPlace::BeforeFunction,
    }
}
