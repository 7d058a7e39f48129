//! `/v1/feedback` and `/v1/learning`: what people say of answers, what is kept of it, and how it goes in and out.

mod described;
mod examples;
pub(in crate::http::endpoints) mod request;
mod routes;
mod run;
mod versions;

pub(in crate::http::endpoints) use described::{ENDPOINTS, schemas};
pub use run::keep_learning;
pub use versions::restore;

use crate::database::DatabaseError;
use crate::http::app::App;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::{database_error, unavailable};
use crate::learning::{Learning, LearningBusy, LearningReply, LearningService, VersionError};
use crate::limits::LEARNING_WRITE_SECONDS;
use actix_web::http::StatusCode;
use actix_web::web;
use std::sync::Arc;
use std::time::Duration;

/// What accounts and administrators do with examples.
pub(in crate::http::endpoints) fn routes(config: &mut web::ServiceConfig) {
    config.configure(routes::routes).configure(examples::routes).configure(versions::routes);
}

/// What is kept for learning, or why nothing is.
fn learning(app: &App) -> Result<&Arc<Learning>, ApiError> {
    match &app.learning {
        LearningService::Open(learning) => Ok(learning),
        LearningService::Off => {
            let message = "nothing is kept for learning: set learning.directory";
            Err(ApiError::new(StatusCode::CONFLICT, "invalid_request_error", message).with_code("learning_off"))
        }
        LearningService::Failed(_) => {
            let message = "nothing is kept for learning: its database cannot be opened; the service's log says why";
            Err(unavailable(message, "learning_failed"))
        }
    }
}

/// What the disk says, within a time.
async fn written<T>(reply: Result<LearningReply<T>, LearningBusy>) -> Result<T, ApiError> {
    let busy = |why: &dyn std::fmt::Display| {
        let error = unavailable(&format!("{why}; try it again"), "learning_busy");
        error.with_retry_after(Duration::from_secs(1))
    };
    let reply = reply.map_err(|e| busy(&e))?;
    let within = Duration::from_secs(LEARNING_WRITE_SECONDS);
    let late = |_| busy(&format!("the disk has not taken it within {} s", within.as_secs()));
    let said = actix_rt::time::timeout(within, reply).await.map_err(late)?;
    said.map_err(|_| busy(&"the service ends"))?.map_err(|e| store_error(&e))
}

fn store_error(error: &DatabaseError) -> ApiError {
    database_error("examples", error)
}

fn version_error(error: VersionError) -> ApiError {
    match error {
        VersionError::Database(error) => store_error(&error),
        VersionError::Lineage(error) => {
            let message = error.to_string();
            ApiError::new(StatusCode::CONFLICT, "invalid_request_error", message).with_code("version_not_served")
        }
        other => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", other.to_string()),
    }
}
