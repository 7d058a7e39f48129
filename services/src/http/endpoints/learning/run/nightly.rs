//! Runs at the time of day that the operator sets.

use super::{RunOccasion, begin, run};
use crate::clock::unix_seconds;
use crate::http::app::App;
use actix_web::web;
use std::time::Duration;

/// How often the clock is looked at: a machine that slept through the time runs when it wakes.
const LOOK_EVERY: Duration = Duration::from_secs(20);

/// Runs the learner each day at its time, as long as the service lives; ends at once where there is none.
pub async fn keep_learning(app: &web::Data<App>) {
    let Some(learning) = app.learning.get() else { return };
    let Some(at) = learning.settings().learner.at else { return };
    let mut before = unix_seconds();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = unix_seconds();
        if at.came(before, now) {
            match begin(app, learning) {
                Ok(begun) => run(app, learning, begun, RunOccasion::Nightly).await,
                Err(error) => tracing::error!(error = %error.worded(), "the learner did not run today"),
            }
        }
        before = now;
    }
}
