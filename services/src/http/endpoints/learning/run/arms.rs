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
use crate::learning::{ChangedAnswer, ChangedAnswers};
use crate::turn::options::ChatRequest;
use crate::turn::{Preparation, TurnCaller};
use actix_web::http::StatusCode;
use chimere_engine::ids::KeyId;
use chimere_engine::scheduler::Terms;
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use std::sync::Arc;
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
    /// Of each question that both answer with as many tokens: the time of the served version as a share of the
    /// candidate's.
    speeds: Mutex<Vec<f32>>,
    changed: Mutex<ChangedAnswers>,
    /// Questions are idle work first: their answers come later, and no user notices them.
    idle_first: bool,
}

/// What came of a question.
#[derive(Default)]
struct ArmAnswer {
    text: String,
    is_right: bool,
    tokens: u32,
    micros: u64,
}

impl<'a> Arms<'a> {
    pub(super) fn new(app: &'a App, served: Vec<String>, candidate: Vec<String>) -> Self {
        let idle_first = false;
        Self { app, served, candidate, speeds: Mutex::default(), changed: Mutex::default(), idle_first }
    }

    /// These arms for a run on this occasion: somebody waits for all but a nightly one.
    pub(super) fn for_run(self, occasion: RunOccasion) -> Self {
        Self { idle_first: occasion == RunOccasion::Nightly, ..self }
    }

    /// What came of some questions. Answers that differ are noted under the name of the family, if one is given.
    pub(super) async fn ask(
        &self,
        questions: &[&CheckedQuestion],
        family: Option<&str>,
    ) -> Result<PairedCounts, ApiError> {
        let mut counts = PairedCounts::default();
        for some in questions.chunks(AT_ONCE) {
            self.give_way().await;
            let pairs = some.iter().enumerate().map(|(at, question)| self.pair(question, at % 2 == 0));
            for (pair, question) in join_all(pairs).await.into_iter().zip(some) {
                let (served, candidate) = pair?;
                counts.count(served.is_right, candidate.is_right);
                if let Some(family) = family {
                    self.changed.lock().note(changed(family, question, served, candidate));
                }
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

    /// The candidate's speed as a share of that of the version which is served; 1 before any answers were alike. The
    /// median over questions: what else a machine does makes some answers many times slower, of either version.
    pub(super) fn speed(&self) -> f64 {
        median(&mut self.speeds.lock()).map_or(1.0, f64::from)
    }

    /// The answers that differ most, of those that were noted since this was last asked for.
    pub(super) fn changed(&self) -> Vec<ChangedAnswer> {
        std::mem::take(&mut *self.changed.lock()).into_answers()
    }

    /// What either arm answers. Each is the first in half of the questions, so that a cache that the first one fills
    /// favours neither. Their times count where both say as much: a short answer is not a slow one.
    async fn pair(&self, question: &CheckedQuestion, served_first: bool) -> Result<(ArmAnswer, ArmAnswer), ApiError> {
        let (served, candidate) = if served_first {
            let served = self.answer(question, &self.served).await?;
            (served, self.answer(question, &self.candidate).await?)
        } else {
            let candidate = self.answer(question, &self.candidate).await?;
            (self.answer(question, &self.served).await?, candidate)
        };
        if served.tokens == candidate.tokens && candidate.micros > 0 {
            self.speeds.lock().push(served.micros as f32 / candidate.micros as f32);
        }
        Ok((served, candidate))
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
                    let is_right = question.check.holds(&text);
                    return Ok(ArmAnswer { text, is_right, tokens, micros });
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

/// The middle one of some numbers; none of none.
fn median(numbers: &mut [f32]) -> Option<f32> {
    let middle = numbers.len().checked_sub(1)? / 2;
    Some(*numbers.select_nth_unstable_by(middle, f32::total_cmp).1)
}

fn changed(family: &str, question: &CheckedQuestion, served: ArmAnswer, candidate: ArmAnswer) -> ChangedAnswer {
    ChangedAnswer {
        family: family.to_owned(),
        question: last_text(&question.messages),
        before: served.text,
        after: candidate.text,
        was_right: served.is_right,
        is_right: candidate.is_right,
    }
}

/// The text of the last message: a string, or parts that have some.
fn last_text(messages: &[Json]) -> String {
    match messages.last().map(|message| &message["content"]) {
        Some(Json::String(text)) => text.clone(),
        Some(Json::Array(parts)) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// The request of a question: greedy, behind all others, with these tables, and otherwise as the service answers
/// anybody.
pub(super) async fn request(
    app: &App,
    question: &CheckedQuestion,
    tables: &[String],
) -> Result<GenerationRequest, ApiError> {
    let mut body = json!({
        "messages": question.messages,
        "max_tokens": question.max_tokens,
        "temperature": 0,
        "seed": 0,
        "priority": i32::MIN,
        "engram": {"tables": tables},
    });
    if !question.thinks {
        body["reasoning_effort"] = "none".into();
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_that_of_most_questions_and_not_of_the_one_that_the_machine_held_up() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [0.9]), Some(0.9));
        assert_eq!(median(&mut [1.0, 0.01, 1.1, 0.99, 90.0]), Some(1.0));
    }

    #[test]
    fn a_question_is_shown_by_what_was_said_last() {
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        assert_eq!(last_text(&[json!({"content": "x"}), json!({"content": parts})]), "a\nb");
        assert_eq!(last_text(&[json!({"content": "x"})]), "x");
        assert_eq!(last_text(&[]), "");
    }
}
