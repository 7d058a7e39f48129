//! The section `documents`.

use super::check::{InvalidKey, seconds, threads, within};
use crate::embedder::EmbedderSettings;
use crate::limits;
use serde::{Deserialize, Serialize};

/// Files that accounts upload, how they are read and cut to be searched, and who makes vectors of texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DocumentKeys {
    /// Directory of files, their texts and their database; empty takes no files.
    pub directory: String,
    /// Mebibytes of one file.
    pub files_mib: u64,
    /// Mebibytes of all files of one key.
    pub key_mib: u64,
    /// Seconds that reading one file may take.
    pub parse_seconds: u64,
    /// Mebibytes of memory that reading one file may take.
    pub parse_mib: u64,
    /// Tokens of a passage.
    pub chunk_tokens: u32,
    /// Maker of the vectors of collections.
    pub embedder: EmbedderSettings,
}

impl Default for DocumentKeys {
    fn default() -> Self {
        Self {
            directory: String::new(),
            files_mib: limits::DOCUMENT_FILE_MIB,
            key_mib: limits::DOCUMENT_KEY_MIB,
            parse_seconds: limits::DOCUMENT_PARSE_SECONDS,
            parse_mib: limits::DOCUMENT_PARSE_MIB,
            chunk_tokens: limits::CHUNK_TOKENS,
            embedder: EmbedderSettings::default(),
        }
    }
}

impl DocumentKeys {
    pub(super) fn check(&self) -> Result<(), InvalidKey> {
        within("files_mib", self.files_mib, 1..=limits::DOCUMENT_MIB_MAX)?;
        within("key_mib", self.key_mib, 1..=limits::DOCUMENT_MIB_MAX)?;
        seconds("parse_seconds", self.parse_seconds)?;
        within("parse_mib", self.parse_mib, limits::DOCUMENT_PARSE_MIB_MIN..=limits::DOCUMENT_MIB_MAX)?;
        within("chunk_tokens", self.chunk_tokens, limits::CHUNK_TOKENS_RANGE)?;
        check_embedder(&self.embedder)
    }
}

/// One maker at most, and of a server all that is needed to ask it.
fn check_embedder(embedder: &EmbedderSettings) -> Result<(), InvalidKey> {
    let EmbedderSettings { directory, url, name, dimensions, threads: asked, .. } = embedder;
    threads("embedder.threads", *asked)?;
    if !directory.is_empty() && !url.is_empty() {
        let why = format!("must be empty where documents.embedder.directory is set, got {url:?}");
        return Err(("embedder.url", why));
    }
    if url.is_empty() {
        return Ok(());
    }
    if !is_server(url) {
        let why = format!("wants an address such as http://10.0.0.7:8000/v1, unencrypted, got {url:?}");
        return Err(("embedder.url", why));
    }
    if name.is_empty() {
        return Err(("embedder.name", "wants the model that the server at documents.embedder.url has".into()));
    }
    within("embedder.dimensions", *dimensions, 1..=limits::EMBEDDER_DIMENSIONS_MAX)
}

/// `http://` and a host, perhaps a port and a path.
pub(super) fn is_server(address: &str) -> bool {
    let uri = address.parse::<actix_web::http::Uri>();
    uri.is_ok_and(|uri| {
        uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty()) && uri.query().is_none()
    })
}
