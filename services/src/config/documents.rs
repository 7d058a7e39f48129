//! The section `documents`.

use super::check::{InvalidKey, threads};
use crate::embedder::EmbedderSettings;
use crate::limits;
use serde::{Deserialize, Serialize};

/// How texts are found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DocumentSettings {
    /// Maker of the vectors of collections.
    pub embedder: EmbedderSettings,
}

impl DocumentSettings {
    pub(super) fn check(&self) -> Result<(), InvalidKey> {
        let EmbedderSettings { directory, url, name, dimensions, threads: asked, .. } = &self.embedder;
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
        let widths = 1..=limits::EMBEDDER_DIMENSIONS_MAX;
        super::check::within("embedder.dimensions", *dimensions, widths)
    }
}

/// `http://` and a host, perhaps a port and a path.
pub(super) fn is_server(address: &str) -> bool {
    let uri = address.parse::<actix_web::http::Uri>();
    uri.is_ok_and(|uri| {
        uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty()) && uri.query().is_none()
    })
}
