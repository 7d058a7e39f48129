//! Asks questions twice, as any caller's requests: with the tables that are served, and with the candidate among them.
//! Those of a nightly run are idle work as long as that gets them anywhere.

use super::RunOccasion;
use crate::actors::request::RequestActor;
use crate::actors::request::generation_request::GenerationRequest;
use crate::actors::request::output::Output;
use crate::engram::Asker;
use crate::holder::{Holder, ToolRights};
use crate::http::app::App;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::{engine_error, refused};
use crate::learning::gate::PairedCounts;
use crate::learning::questions::CheckedQuestion;
use crate::turn::options::ChatRequest;
use crate::turn::{Preparation, TurnCaller};
use actix_web::http::StatusCode;
use chimere_engine::ids::KeyId;
use chimere_engine::scheduler::Terms;
use futures_util::future::join_all;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Questions that are asked at once.
const AT_ONCE: usize = 8;
/// How long some questions wait for others' requests to be over, at most, and how long one is left to idle work.
const GIVE_WAY: Duration = Duration::from_secs(2);
/// How often it is looked whether they are.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The name of the work in the log.
const NAME: &str = "learning";

/// Two versions of what requests are answered with.
pub(super) struct Arms<'a> {
    app: &'a App,
    /// Tables of the version that is served.
    pub(super) served: Vec<String>,
    /// Tables with the candidate in its place.
    pub(super) candidate: Vec<String>,
    /// What answers took that were as long in both: those of the served version, and of the candidate.
    micros: [AtomicU64; 2],
    /// Questions are idle work first: their answers come later, and no user notices them.
    idle_first: bool,
}

/// What came of a question.
#[derive(Default)]
struct ArmAnswer {
    is_right: bool,
    tokens: u32,
    micros: u64,
}

impl<'a> Arms<'a> {
    pub(super) fn new(app: &'a App, served: Vec<String>, candidate: Vec<String>) -> Self {
        Self { app, served, candidate, micros: Default::default(), idle_first: false }
    }

    /// These arms for a run on this occasion: somebody waits for all but a nightly one.
    pub(super) fn for_run(self, occasion: RunOccasion) -> Self {
        Self { idle_first: occasion == RunOccasion::Nightly, ..self }
    }

    /// What came of some questions.
    pub(super) async fn ask(&self, questions: &[&CheckedQuestion]) -> Result<PairedCounts, ApiError> {
        let mut counts = PairedCounts::default();
        for some in questions.chunks(AT_ONCE) {
            self.give_way().await;
            let pairs = some.iter().enumerate().map(|(at, question)| self.pair(question, at % 2 == 0));
            for pair in join_all(pairs).await {
                let (served, candidate) = pair?;
                counts.count(served, candidate);
            }
        }
        Ok(counts)
    }

    /// How many of some questions the candidate answers rightly.
    pub(super) async fn ask_candidate(&self, questions: &[CheckedQuestion]) -> Result<u64, ApiError> {
        let mut right = 0;
        for some in questions.chunks(AT_ONCE) {
            self.give_way().await;
            for answer in join_all(some.iter().map(|question| self.answer(question, &self.candidate))).await {
                right += u64::from(answer?.is_right);
            }
        }
        Ok(right)
    }

    /// The candidate's speed as a share of that of the version which is served; 1 before any answers were alike.
    pub(super) fn speed(&self) -> f64 {
        let [served, candidate] = [0, 1].map(|arm| self.micros[arm].load(Ordering::Relaxed) as f64);
        if candidate > 0.0 { served / candidate } else { 1.0 }
    }

    /// Whether each arm answers a question rightly. Each is the first in half of the questions, so that a cache that
    /// the first one fills favours neither. Their times count where both say as much: a short answer is not a slow one.
    async fn pair(&self, question: &CheckedQuestion, served_first: bool) -> Result<(bool, bool), ApiError> {
        let (served, candidate) = if served_first {
            let served = self.answer(question, &self.served).await?;
            (served, self.answer(question, &self.candidate).await?)
        } else {
            let candidate = self.answer(question, &self.candidate).await?;
            (self.answer(question, &self.served).await?, candidate)
        };
        if served.tokens == candidate.tokens {
            self.micros[0].fetch_add(served.micros, Ordering::Relaxed);
            self.micros[1].fetch_add(candidate.micros, Ordering::Relaxed);
        }
        Ok((served.is_right, candidate.is_right))
    }

    /// What a version answers. As idle work a question with tables is computed while nobody else has a request, so one
    /// that is not answered in time, or is too long for idle work, is asked again behind all others.
    async fn answer(&self, question: &CheckedQuestion, tables: &[String]) -> Result<ArmAnswer, ApiError> {
        if self.idle_first {
            let idle = Terms { idle: true, ..Terms::default() };
            let answer = tokio::time::timeout(GIVE_WAY, self.answer_under(idle, question, tables)).await;
            if let Ok(Ok(answer)) = answer {
                return Ok(answer);
            }
        }
        self.answer_under(Terms { exempt: true, ..Terms::default() }, question, tables).await
    }

    async fn answer_under(
        &self,
        terms: Terms,
        question: &CheckedQuestion,
        tables: &[String],
    ) -> Result<ArmAnswer, ApiError> {
        let services = &self.app.turns;
        let request = match request(self.app, question, tables).await {
            Ok(request) => request,
            // What cannot be asked, because it is too long or no conversation, is answered rightly by neither.
            Err(error) if error.status == StatusCode::BAD_REQUEST => return Ok(ArmAnswer::default()),
            Err(error) => return Err(error),
        };
        let request = GenerationRequest { terms, ..request };
        let entry = services.live.enter(NAME.into());
        let begun = services.handles.clock.now();
        let outputs = RequestActor::submit(request, vec![entry], services.handles.clone()).await;
        let mut outputs = outputs.map_err(|refusal| refused(refusal, "messages"))?;
        let mut text = String::new();
        loop {
            match outputs.next().await {
                Some(Output::Delta { delta, .. }) => text.push_str(&delta.content),
                Some(Output::End(usage)) => {
                    let (tokens, micros) = (usage.completion_tokens, services.handles.clock.now().since(begun).0);
                    return Ok(ArmAnswer { is_right: question.check.holds(&text), tokens, micros });
                }
                Some(Output::Failed(why)) => return Err(engine_error(why)),
                Some(Output::Refused(refusal)) => return Err(refused(refusal, "messages")),
                Some(_) => {}
                None => return Err(engine_error("the stream broke off".to_owned())),
            }
        }
    }

    /// Waits until nobody else has a request, but not for long: who is always busy learns too, a little later.
    async fn give_way(&self) {
        let mut waited = Duration::ZERO;
        // The scheduler has idle work give way to each step.
        while !self.idle_first && !self.app.turns.live.is_empty() && waited < GIVE_WAY {
            tokio::time::sleep(LOOK_EVERY).await;
            waited += LOOK_EVERY;
        }
    }
}

/// The request of a question: greedy, behind all others, with these tables, and otherwise as the service answers
/// anybody.
pub(super) async fn request(
    app: &App,
    question: &CheckedQuestion,
    tables: &[String],
) -> Result<GenerationRequest, ApiError> {
    let body = json!({
        "messages": question.messages,
        "max_tokens": question.max_tokens,
        "temperature": 0,
        "seed": 0,
        "priority": i32::MIN,
        "engram": {"tables": tables},
    });
    let body = body.to_string();
    let chat = ChatRequest::parse(body.as_bytes(), &app.limits)?;
    let caller = TurnCaller {
        name: Arc::from(NAME),
        holder: Holder::Many,
        account: KeyId::default(),
        asker: Asker { admin: true, ..Asker::default() },
        tools: ToolRights::default(),
        terms: Terms { exempt: true, ..Terms::default() },
    };
    let mut preparation = Preparation::of_chat(&app.turns, caller, None, (chat, body.len()));
    preparation.prepare().await?;
    Ok(preparation.complete().await?)
}
