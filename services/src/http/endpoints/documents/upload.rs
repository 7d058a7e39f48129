//! A file as it arrives in the parts of a form: written to the disk piece by piece, never whole in memory.

use super::{aside, objects};
use crate::clock::unix_seconds;
use crate::documents::{DocumentError, FileInfo, FilePurpose, Upload};
use crate::http::app::App;
use crate::http::edge::shares::Share;
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::document_error;
use actix_multipart::{Field, Multipart};
use actix_rt::time::timeout;
use actix_web::http::StatusCode;
use actix_web::web::{self, Bytes, BytesMut};
use actix_web::{HttpRequest, error::PayloadError};
use chimere_engine::ids::KeyId;
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that are written at a time, each on a thread that may wait for the disk.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes of a field beside the file.
const FIELD_BYTES_MAX: usize = 1024;
/// The least bytes a second of an upload that takes longer than a body may.
const BYTES_PER_SECOND_MIN: u64 = 16 << 10;

/// Takes the form of a request to its end and keeps its file.
pub(super) async fn take(
    app: &web::Data<App>,
    request: &HttpRequest,
    owner: KeyId,
    payload: web::Payload,
) -> Result<Arc<FileInfo>, ApiError> {
    let _place: Share = app.uploads.take(app.holder(request), 1).ok_or_else(no_place)?;
    let mut form = UploadForm { app, owner, begin: Instant::now(), bytes: 0, file: None, purpose: None };
    let mut parts = Multipart::new(request.headers(), payload);
    while let Some(part) = form.next(parts.next()).await? {
        form.part(part.map_err(broken_form)?).await?;
    }
    let missing = |name: &str, what: &str| {
        ApiError::invalid(name, format!("`{name}` is missing: it must be {what}")).with_code("missing_field")
    };
    let (upload, filename) = form.file.ok_or_else(|| missing("file", "a part of the form with a file"))?;
    let purpose = form.purpose.ok_or_else(|| missing("purpose", "\"assistants\" or \"user_data\""))?;
    aside(app, move |_| upload.keep(&filename, purpose, unix_seconds())).await
}

struct UploadForm<'a> {
    app: &'a web::Data<App>,
    owner: KeyId,
    begin: Instant,
    /// Bytes of all parts until now.
    bytes: u64,
    file: Option<(Upload, String)>,
    purpose: Option<FilePurpose>,
}

impl UploadForm<'_> {
    /// What comes next, if it comes in time: no pause is longer than a body may take, and what takes longer all in all
    /// has a least speed.
    async fn next<T>(&self, next: impl Future<Output = Option<T>>) -> Result<Option<T>, ApiError> {
        let time = self.app.bodies.time;
        let next = timeout(time, next).await;
        let slowest = time + Duration::from_secs(self.bytes / BYTES_PER_SECOND_MIN);
        match next {
            Ok(next) if self.begin.elapsed() <= slowest => Ok(next),
            _ => {
                let message = format!("the body came too slowly: {} bytes in {:?}", self.bytes, self.begin.elapsed());
                let error = ApiError::new(StatusCode::REQUEST_TIMEOUT, "invalid_request_error", message);
                Err(error.with_code("body_too_slow").rejected_as("body_too_slow"))
            }
        }
    }

    async fn part(&mut self, mut part: Field) -> Result<(), ApiError> {
        let name = part.name().unwrap_or_default().to_owned();
        match name.as_str() {
            "file" if self.file.is_some() => {
                Err(ApiError::invalid("file", "`file` came twice: one file is taken at a time"))
            }
            "file" => {
                let filename = part.content_disposition().and_then(|d| d.get_filename()).unwrap_or_default().to_owned();
                let owner = self.owner;
                let upload = aside(self.app, move |documents| documents.upload(owner)).await?;
                self.file = Some((self.written(upload, &mut part).await?, filename));
                Ok(())
            }
            "purpose" => {
                let text = self.field(&mut part).await?;
                let known = objects::PURPOSES.iter().find(|(name, _)| *name == text).map(|(_, purpose)| *purpose);
                let wrong = || {
                    let shown: String = text.chars().take(40).collect();
                    let message = format!("`purpose` must be \"assistants\" or \"user_data\", got {shown:?}");
                    ApiError::invalid("purpose", message)
                };
                self.purpose = Some(known.ok_or_else(wrong)?);
                Ok(())
            }
            other => {
                let shown: String = other.chars().take(64).collect();
                let message = format!("the form has a field {shown:?}; `file` and `purpose` are taken");
                Err(ApiError::unsupported(&shown, message))
            }
        }
    }

    /// The text of a field.
    async fn field(&mut self, part: &mut Field) -> Result<String, ApiError> {
        let mut text = Vec::new();
        while let Some(piece) = self.next(part.next()).await? {
            text.extend_from_slice(&piece.map_err(broken_form)?);
            if text.len() > FIELD_BYTES_MAX {
                return Err(ApiError::invalid("purpose", format!("`purpose` has more than {FIELD_BYTES_MAX} bytes")));
            }
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Writes a part to the disk as it comes.
    async fn written(&mut self, mut upload: Upload, part: &mut Field) -> Result<Upload, ApiError> {
        let mut waiting = BytesMut::new();
        while let Some(piece) = self.next(part.next()).await? {
            let piece = piece.map_err(broken_form)?;
            self.bytes += piece.len() as u64;
            waiting.extend_from_slice(&piece);
            if waiting.len() >= PIECE_BYTES {
                upload = write(self.app, upload, waiting.split().freeze()).await?;
            }
        }
        write(self.app, upload, waiting.freeze()).await
    }
}

async fn write(app: &App, mut upload: Upload, bytes: Bytes) -> Result<Upload, ApiError> {
    aside(app, move |_| upload.write(&bytes).map(|()| upload)).await
}

fn broken_form(error: actix_multipart::MultipartError) -> ApiError {
    if let actix_multipart::MultipartError::Payload(PayloadError::Overflow) = error {
        return document_error(&DocumentError::FileTooLarge { max: 0 });
    }
    let message = format!("the body must be a form of multipart/form-data with `file` and `purpose`: {error}");
    ApiError::invalid_body(message).with_code("invalid_form")
}

fn no_place() -> ApiError {
    let message = "too many files are arriving at once";
    let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message).with_code("uploads_full");
    error.with_retry_after(Duration::from_secs(1)).rejected_as("bodies_full")
}
