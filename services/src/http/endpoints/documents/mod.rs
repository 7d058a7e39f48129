//! Files and vector stores in OpenAI's words: `/v1/files`, `/v1/vector_stores`.

mod described;
mod files;
mod members;
mod objects;
mod page;
mod request;
mod stores;
mod upload;

pub(in crate::http::endpoints) use described::{ENDPOINTS, schemas};

use crate::documents::{DocumentError, Documents};
use crate::http::app::App;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::document_error;
use actix_web::http::StatusCode;
use actix_web::web;

/// What an account does with its documents.
pub(in crate::http::endpoints) fn routes(config: &mut web::ServiceConfig) {
    config.configure(files::routes).configure(stores::routes).configure(members::routes);
}

/// Does what waits for the disk on a thread that may.
pub(in crate::http::endpoints) async fn aside<T: Send + 'static>(
    app: &App,
    job: impl FnOnce(&Documents) -> Result<T, DocumentError> + Send + 'static,
) -> Result<T, ApiError> {
    let documents = app.turns.documents.clone();
    let done = web::block(move || job(&documents)).await.map_err(|_| ended())?;
    done.map_err(|e| document_error(&e))
}

/// The threads that wait for disks are gone, or one of them broke.
fn ended() -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "the work on a document was broken off")
}
