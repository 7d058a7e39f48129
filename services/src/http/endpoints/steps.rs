//! `GET /v1/console/steps`: what the scheduler does now, as server-sent events. An administrator's: it tells of
//! everybody's work.

use crate::actors::phase::Phase;
use crate::actors::scheduler::step_log::{Standing, StepSeen, Watcher};
use crate::http::app::App;
use crate::http::edge::keys::auth::require_admin;
use crate::http::wire::error::ApiError;
use crate::http::wire::routing::only;
use actix_web::http::header;
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, web};
use futures_util::stream::unfold;
use serde::Serialize;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

/// The live view of the console.
pub(super) fn routes(config: &mut web::ServiceConfig) {
    config.service(only("/v1/console/steps", "GET", web::get().to(steps)));
}

/// Time between two events: four a second is what an eye follows.
const PERIOD: Duration = Duration::from_millis(250);
/// Steps of one event; of more the latest are told.
const STEPS_MAX: usize = 120;

#[derive(Serialize)]
struct StepsEvent<'a> {
    steps: &'a [StepSeen],
    now: Now,
}

#[derive(Serialize)]
struct Now {
    #[serde(flatten)]
    standing: Standing,
    tokens_per_second: f64,
    prompt_tokens_per_second: f64,
    step_ms: f64,
    predicted_ms: f64,
}

/// Somebody who looks, and since when.
struct StepView {
    watcher: Watcher,
    ticks: Interval,
    last: Instant,
    phase: watch::Receiver<Phase>,
}

impl StepView {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        self.ticks.tick().await;
        // A stream without an end would hold the service's own end up.
        if !matches!(*self.phase.borrow(), Phase::Starting | Phase::Ready) {
            return None;
        }
        let (steps, standing) = self.watcher.look(usize::MAX);
        let seconds = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        let rate =
            |rows: fn(&StepSeen) -> u32| steps.iter().map(|s| f64::from(rows(s))).sum::<f64>() / seconds.max(1e-3);
        let now = Now {
            standing,
            tokens_per_second: rate(|s| s.tokens),
            prompt_tokens_per_second: rate(|s| s.prompt_rows),
            step_ms: steps.last().map_or(0.0, |s| s.ms),
            predicted_ms: steps.last().map_or(0.0, |s| s.predicted_ms),
        };
        let event = StepsEvent { steps: &steps[steps.len().saturating_sub(STEPS_MAX)..], now };
        let json = serde_json::to_string(&event).expect("JSON values have no keys but strings");
        Some((Ok(Bytes::from(format!("data: {json}\n\n"))), self))
    }
}

/// Steps and figures, four times a second, until the client goes away.
async fn steps(app: web::Data<App>, request: HttpRequest) -> Result<HttpResponse, ApiError> {
    require_admin(&request)?;
    app.turns.check_open()?;
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let look = StepView { watcher: app.step_log.watch(), ticks, last: Instant::now(), phase: app.turns.phase.clone() };
    let reply = HttpResponse::Ok()
        .content_type("text/event-stream")
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .streaming(unfold(look, StepView::next));
    Ok(reply)
}
