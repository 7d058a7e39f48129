//! Opens the documents of accounts for the model that runs: its tokens are what passages are measured in.

use super::ServeError;
use crate::audit::Audit;
use crate::config::Config;
use crate::documents::{DocumentSettings, Documents, PageReader};
use crate::embedder::Embedder;
use crate::engram::DirectoryClaim;
use crate::learning::LearningService;
use crate::limits::WEB_PARSE_SECONDS;
use crate::text::TextModel;
use crate::web::{Web, WebSettings};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// The directories of tables, collections and documents, which no other service may have; they may be one.
pub(super) fn claims(config: &Config) -> Result<Vec<DirectoryClaim>, ServeError> {
    let (documents, mut taken, mut claims) = (&config.documents.directory, BTreeSet::new(), Vec::new());
    let failed = |key: &str, e: &dyn std::fmt::Display| ServeError::Start(format!("{key}: {e}"));
    if !documents.is_empty() {
        let made = std::fs::create_dir_all(documents);
        made.map_err(|e| failed("documents.directory", &format!("{documents}: {e}")))?;
    }
    for (key, directory) in [("engram.directory", &config.engram.directory), ("documents.directory", documents)] {
        let path = Path::new(directory);
        if directory.is_empty() || !taken.insert(path.canonicalize().unwrap_or_else(|_| path.to_owned())) {
            continue;
        }
        claims.push(DirectoryClaim::take(path).map_err(|e| failed(key, &e))?);
    }
    Ok(claims)
}

/// What is kept of answers that people rate and correct.
pub(super) fn learning(config: &Config) -> Result<LearningService, ServeError> {
    let directory = &config.learning.directory;
    if !directory.is_empty() {
        let made = std::fs::create_dir_all(directory);
        made.map_err(|e| ServeError::Start(format!("learning.directory: {directory}: {e}")))?;
    }
    let directory = (!directory.is_empty()).then(|| Path::new(directory));
    Ok(LearningService::open(directory, config.learning.settings()))
}

/// What the configuration allows of the web.
pub(super) fn web_settings(config: &Config) -> Result<WebSettings, ServeError> {
    config.web.settings().map_err(|(key, why)| ServeError::Start(format!("web: {key}: {why}")))
}

/// The web, as far as the configuration allows it.
pub(super) fn web(config: &Config, text: &TextModel, audit: Audit) -> Result<Web, ServeError> {
    let failed = |e: &dyn std::fmt::Display| ServeError::Start(format!("web: {e}"));
    let tokenizer = text.tokenizer().clone();
    let reader = PageReader {
        program: std::env::current_exe().map_err(|e| failed(&e))?,
        memory_bytes: config.documents.parse_mib << 20,
        seconds: WEB_PARSE_SECONDS,
        chunk_tokens: config.documents.chunk_tokens,
        count: Arc::new(move |text| tokenizer.encode_plain(text).len()),
    };
    Web::new(web_settings(config)?, reader, audit).map_err(|e| failed(&e))
}

/// What accounts keep of documents.
pub(super) fn documents(config: &Config, text: &TextModel, embedder: &Embedder) -> Result<Documents, ServeError> {
    let keys = &config.documents;
    let directory = (!keys.directory.is_empty()).then(|| Path::new(&keys.directory));
    let failed = |e: &dyn std::fmt::Display| ServeError::Start(format!("documents.directory: {e}"));
    let tokenizer = text.tokenizer().clone();
    let settings = DocumentSettings {
        file_bytes_max: keys.files_mib << 20,
        account_bytes_max: keys.key_mib << 20,
        program: std::env::current_exe().map_err(|e| failed(&e))?,
        parse_seconds: keys.parse_seconds,
        parse_bytes: keys.parse_mib << 20,
        chunk_tokens: keys.chunk_tokens,
        threads: std::thread::available_parallelism().map_or(1, usize::from).div_ceil(4).clamp(1, 4),
        count: Arc::new(move |text| tokenizer.encode_plain(text).len()),
        // Not the served model's: by those one in 25 questions finds its passage, by words more than half.
        vectors: embedder.maker(),
    };
    Documents::open(directory, settings).map_err(|e| failed(&e))
}
