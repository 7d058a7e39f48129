//! One of the two services that are compared: its actors around a backend that says a stated text, and sequences that
//! decode there.

use super::stated::{Stated, StatedText};
use super::{BenchDraftsArgs, DraftCase};
use crate::CliError;
use crate::bench::step::MeasuredBackend;
use chimere::actors::deferred_rules::DeferredRules;
use chimere::actors::messages::{Cancel, Open, RequestEvent, Submit};
use chimere::actors::watchdog::StepLimits;
use chimere::clock::Clock;
use chimere::config::{Config, Engine};
use chimere::device::{self, Built, DeviceError, DeviceRequest, EarlyLook, Setup};
use chimere::limits;
use chimere::memory::MemoryPlan;
use chimere::metrics::gateway::Gateway;
use chimere::replicas::{Replica, ReplicaParts, ReplicaPlace, ReplicaSettings, SchedulerSettings};
use chimere::serve::{end_process_now, pace};
use chimere_engine::PAGE_TOKENS;
use chimere_engine::backend::Backend;
use chimere_engine::drafts::{DraftKinds, DraftMode};
use chimere_engine::ids::{PageId, RequestId, SlotId};
use chimere_engine::model;
use chimere_engine::sampling::SamplingParams;
use chimere_engine::scheduler::{DraftSettings, Event, PrefixConfig, Request, SchedulerConfig, Spec, Terms};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;

/// Tokens of each sequence before those that count, all of them decoding.
const BEFORE: u32 = 16;
/// A sequence may have so many times the tokens of the average one.
const AHEAD_MAX: u32 = 4;

/// Tokens and drafts of the sequences while they were measured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DecodeTally {
    pub(super) tokens: u64,
    pub(super) seconds: f64,
    pub(super) drafted: u64,
    pub(super) accepted: u64,
}

impl DecodeTally {
    /// Tokens a second over all sequences.
    pub(super) fn rate(&self) -> f64 {
        self.tokens as f64 / self.seconds
    }
}

/// One service of the comparison.
pub(super) struct Side {
    replica: Replica,
    text: Arc<StatedText>,
    clock: Clock,
    /// Requests that were submitted so far; the next one has this number.
    asked: u64,
}

impl Side {
    /// Loads the model and starts the actors.
    pub(super) async fn start(args: &BenchDraftsArgs, path: &Path, drafts: bool) -> Result<Self, CliError> {
        let model = model::load(path).map_err(|e| CliError::Failed(e.to_string()))?;
        let positions = args.context.iter().max().expect("there is a context") + output_max(args.tokens);
        if positions > model.config.context {
            let most = model.config.context;
            return Err(CliError::Usage(format!("the longest case has {positions} positions, the model takes {most}")));
        }
        let users = *args.users.iter().max().expect("there is a number of users");
        let setup = set_up(args, &model, (users, positions), drafts)?;
        let text = Arc::new(StatedText::new(model.config.vocab as u32));
        let (said, step_tokens, clock) = (text.clone(), setup.step_tokens(), Clock::start());
        let scheduler = SchedulerConfig {
            slots: users,
            pages: setup.pages(),
            step_tokens,
            context: positions,
            queue_requests_max: users,
            queue_prompt_tokens_max: u64::from(users) * u64::from(positions),
            steps_in_flight_max: limits::STEPS_IN_FLIGHT_MAX,
            adapter_slots: setup.adapter_slots(),
            prefix: PrefixConfig::OFF,
        };
        let mode = if drafts { DraftMode::Auto } else { DraftMode::Off };
        let of_scheduler = SchedulerSettings {
            config: scheduler,
            drafts: DraftSettings { mode, kinds: DraftKinds::all(), ..DraftSettings::default() },
            pace: pace(&Config::default(), &setup),
            clock: clock.clone(),
            live: Default::default(),
            gateway: Arc::new(Gateway::new("bench", &scheduler)),
            step_log: Default::default(),
        };
        let watchdog = (StepLimits::default(), end_process_now as fn());
        let settings = ReplicaSettings { scheduler: of_scheduler, lookup_threads: 1, watchdog };
        let build = Box::new(move || -> Result<Box<dyn Backend>, String> {
            let built = setup.build(&model, &mut |_| {})?;
            Ok(Box::new(Stated::new(filled(built), said)))
        });
        let parts = ReplicaParts { build, core: None, settings, place: ReplicaPlace::alone() };
        let replica = Replica::start(parts).await.map_err(CliError::Failed)?;
        replica.scheduler.send(Open).await.map_err(|e| CliError::Failed(format!("scheduler: {e}")))?;
        Ok(Self { replica, text, clock, asked: 0 })
    }

    /// Lets a case's users decode `tokens` each on average, all of them from a moment on when all do.
    pub(super) async fn answer(&mut self, case: DraftCase, tokens: u32) -> Result<DecodeTally, CliError> {
        self.text.state(case.source, case.right);
        let (ids, mut heard) = self.ask(case, tokens).await?;
        let answered = counted(&mut heard, case.users, tokens).await;
        for id in ids {
            self.replica.scheduler.do_send(Cancel::Request(id, self.clock.now()));
        }
        // The scheduler drops its ends when it has heard of that.
        while heard.recv().await.is_some() {}
        answered
    }

    /// Submits a request for each user; all report to one channel.
    async fn ask(
        &mut self,
        case: DraftCase,
        tokens: u32,
    ) -> Result<(Vec<RequestId>, mpsc::Receiver<RequestEvent>), CliError> {
        let (prompt, most) = (self.text.prompt(case.context), output_max(tokens));
        let requests: Vec<_> = (self.asked..).take(case.users as usize).map(|n| request(n, &prompt, most)).collect();
        self.asked += u64::from(case.users);
        let room: usize = requests.iter().map(|request| Submit::events_max(request, case.context + most)).sum();
        let (events, heard) = mpsc::channel(room);
        let ids = requests.iter().map(|request| request.id).collect();
        for request in requests {
            let terms = Terms { exempt: true, ..Terms::default() };
            let (events, warm_up) = (events.clone(), false);
            let submit = Submit { request, terms, events, rules: DeferredRules::default(), warm_up };
            let taken = self.replica.scheduler.send(submit).await;
            taken
                .map_err(|e| CliError::Failed(format!("scheduler: {e}")))?
                .map_err(|e| CliError::Failed(e.to_string()))?;
        }
        Ok((ids, heard))
    }

    /// Ends its threads, and waits for what its backend holds to be free.
    pub(super) fn end(self) {
        self.replica.end();
    }
}

/// Tokens that a sequence may have when its turn asks for so many.
fn output_max(tokens: u32) -> u32 {
    AHEAD_MAX * (BEFORE + tokens)
}

fn request(n: u64, prompt: &Arc<[u32]>, max_tokens: u32) -> Request {
    let sampling = Arc::new(SamplingParams { seed: n + 1, ..SamplingParams::default() });
    let spec = Spec { max_tokens: Some(max_tokens), sampling, ..Spec::default() };
    Request::new(RequestId(n), prompt.clone(), spec)
}

/// Hears `users` sequences until they have said enough.
async fn counted(heard: &mut mpsc::Receiver<RequestEvent>, users: u32, tokens: u32) -> Result<DecodeTally, CliError> {
    let (mut begun, mut before, mut since, mut answered) = (0, 0, None, DecodeTally::default());
    let enough = u64::from(users) * u64::from(tokens);
    while answered.tokens < enough {
        let event = heard.recv().await.ok_or_else(|| CliError::Failed("the service is gone".into()))?;
        let (index, drafts) = match event {
            RequestEvent::Event(Event::Token { index, drafts, .. }) => (index, drafts),
            RequestEvent::Started { .. } => continue,
            RequestEvent::Event(other) => {
                return Err(CliError::Failed(format!("a sequence ended before it was measured: {other:?}")));
            }
        };
        begun += u32::from(index == 0);
        before += u32::from(begun == users);
        if before <= users * BEFORE {
            since = Some(Instant::now());
            continue;
        }
        answered.tokens += 1;
        let (drafted, accepted) = drafts.map_or((0, 0), |report| (report.drafted, report.accepted));
        (answered.drafted, answered.accepted) =
            (answered.drafted + u64::from(drafted), answered.accepted + u64::from(accepted));
    }
    answered.seconds = since.expect("tokens came before those that count").elapsed().as_secs_f64();
    Ok(answered)
}

/// Where to compute, with room for so many users and positions of each.
fn set_up(
    args: &BenchDraftsArgs,
    model: &model::Model,
    (users, positions): (u32, u32),
    drafts: bool,
) -> Result<Setup, CliError> {
    let wanted = DeviceRequest {
        device: args.device,
        threads: args.threads,
        seqs: users,
        drafts: if drafts { DraftMode::Auto } else { DraftMode::Off }.drafts_max(),
        draft_head: drafts,
        budget: args.vram_budget,
        ..DeviceRequest::of(&Engine::default(), positions)
    };
    let (mut setup, said) = device::choose(&wanted, model, EarlyLook::later()).map_err(|e| match e {
        DeviceError::Usage(why) => CliError::Usage(why),
        DeviceError::Unusable(why) => CliError::Failed(why),
    })?;
    let plan = setup.plan(args.vram_budget, model, false).map_err(CliError::Failed)?;
    let pages = users * positions.div_ceil(PAGE_TOKENS);
    if pages > plan.pages {
        let fit = plan.pages;
        return Err(CliError::Failed(format!("{users} users of {positions} positions want {pages} pages, {fit} fit")));
    }
    eprintln!("{said}");
    setup.set_room(&MemoryPlan { pages, ..plan });
    Ok(setup)
}

/// With made-up values in all slots and pages.
fn filled(built: Built) -> Box<dyn Backend> {
    fn filled(mut backend: impl MeasuredBackend + 'static) -> Box<dyn Backend> {
        let (slots, pages) = (backend.info().slots, backend.info().pages);
        let pages: Vec<_> = (0..pages).map(PageId).collect();
        let each = pages.len().div_ceil(slots as usize).max(1);
        (0..slots).map(SlotId).zip(pages.chunks(each)).for_each(|(slot, pages)| backend.fill(slot, pages));
        Box::new(backend)
    }
    match built {
        Built::Cpu(backend) => filled(backend),
        Built::Cuda(backend) => filled(backend),
    }
}
