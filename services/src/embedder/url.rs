//! An OpenAI-compatible server elsewhere that makes vectors. The operator named it, so that any address is taken.

use super::error::{EmbedderError, OpenEmbedderError};
use super::settings::EmbedderSettings;
use super::{EmbeddedTexts, MadeVectors, Prefixes, Purpose, TextEmbedder, VectorMaker, digest, unit};
use crate::holder::Holder;
use crate::limits::{EMBEDDER_ANSWER_BYTES_MAX, EMBEDDER_SECONDS, EMBEDDER_THREADS, ENCODER_JOBS_MAX};
use crate::metrics;
use crate::outbound::{Destination, Method, OperatorsServer, Outbound, OutboundBounds, OutboundRequest};
use crate::text::TextPool;
use bytes::Bytes;
use chimere_engine::files::read_regular_text;
use serde::Deserialize;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Texts of one request to the server.
const BATCH_TEXTS: usize = 64;
/// Texts of a request that nobody waits for.
const IDLE_TEXTS: usize = 16;
/// Bytes of the file of its key.
const KEY_BYTES_MAX: u64 = 4 << 10;
/// Characters of what the server said that an error repeats.
const SAID_CHARS: usize = 200;

/// What went wrong, in words.
type AskError = Box<dyn std::error::Error + Send + Sync>;

/// The way to a server.
#[derive(Debug)]
pub struct RemoteEmbedder {
    server: Arc<EmbeddingServer>,
    prefixes: Prefixes,
    pool: TextPool,
}

struct EmbeddingServer {
    server: OperatorsServer,
    out: Outbound,
    url: String,
    model: String,
    dimensions: usize,
    key: Option<String>,
}

impl std::fmt::Debug for EmbeddingServer {
    /// The key stays out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddingServer").field("url", &self.url).field("model", &self.model).finish_non_exhaustive()
    }
}

impl RemoteEmbedder {
    /// Reads the key. The server is not asked: it may start later than this service.
    pub(super) fn open(settings: &EmbedderSettings) -> Result<Self, OpenEmbedderError> {
        let base = settings.url.trim_end_matches('/');
        let url = if base.ends_with("/embeddings") { base.to_owned() } else { format!("{base}/embeddings") };
        let prefixes = Prefixes { query: settings.query_prefix.clone(), passage: settings.passage_prefix.clone() };
        let server = OperatorsServer::configured(&url).map_err(|e| OpenEmbedderError::new("url", e))?;
        let server = EmbeddingServer {
            server,
            out: Outbound::default(),
            url,
            model: settings.name.clone(),
            dimensions: settings.dimensions as usize,
            key: key(&settings.api_key_file)?,
        };
        let pool = TextPool::in_the_background("embedder", EMBEDDER_THREADS, ENCODER_JOBS_MAX);
        let pool = pool.map_err(|e| OpenEmbedderError::new("url", e))?;
        Ok(Self { server: Arc::new(server), prefixes, pool })
    }
}

impl TextEmbedder for RemoteEmbedder {
    fn maker(&self) -> VectorMaker {
        let EmbeddingServer { url, model, dimensions, .. } = &*self.server;
        let digest = digest::of_words(&[url, &self.prefixes.query, &self.prefixes.passage]);
        VectorMaker { identity: format!("{model} {dimensions} {digest}"), width: *dimensions }
    }

    fn at_once(&self) -> usize {
        IDLE_TEXTS
    }

    fn compared(&self, holder: Holder, texts: Vec<String>, purpose: Purpose) -> MadeVectors<'_> {
        let texts = self.prefixes.before(purpose, texts);
        Box::pin(async move {
            let mut all = EmbeddedTexts::default();
            for batch in texts.chunks(BATCH_TEXTS).map(<[String]>::to_vec) {
                let server = self.server.clone();
                let read = self.pool.run(holder, move || server.ask(&batch)).await?;
                let read =
                    read.map_err(|why| EmbedderError::Remote { url: self.server.url.clone(), why: why.to_string() })?;
                all.vectors.extend(read.vectors);
                all.tokens += read.tokens;
            }
            ::metrics::counter!(metrics::EMBEDDING_INPUTS).increment(all.vectors.len() as u64);
            Ok(all)
        })
    }
}

impl EmbeddingServer {
    /// One request and its answer.
    fn ask(&self, texts: &[String]) -> Result<EmbeddedTexts, AskError> {
        let bounds = OutboundBounds { time: Duration::from_secs(EMBEDDER_SECONDS), bytes: EMBEDDER_ANSWER_BYTES_MAX };
        let body = json!({"model": self.model, "input": texts, "encoding_format": "float"}).to_string();
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        headers.extend(self.key.iter().map(|key| ("authorization".to_owned(), format!("Bearer {key}"))));
        let request = OutboundRequest { method: Method::Post, headers, body: Bytes::from(body) };
        let destination = Destination::operators(&self.server, "")?;
        let (status, body) = self.out.wait(destination, &request, bounds)?;
        if !(200..300).contains(&status) {
            let said: String = String::from_utf8_lossy(&body).chars().take(SAID_CHARS).collect();
            return Err(format!("{status}: {said:?}").into());
        }
        self.vectors(serde_json::from_slice(&body)?, texts.len())
    }

    fn vectors(&self, answer: EmbeddingAnswer, texts: usize) -> Result<EmbeddedTexts, AskError> {
        let mut vectors = vec![Vec::new(); texts];
        for row in answer.data {
            let got = row.embedding.len();
            if got != self.dimensions {
                return Err(
                    format!("wanted {} numbers (documents.embedder.dimensions), got {got}", self.dimensions).into()
                );
            }
            let place = vectors.get_mut(row.index).filter(|vector| vector.is_empty());
            let place =
                place.ok_or_else(|| format!("wanted {texts} vectors, one each, got one of number {}", row.index))?;
            *place = unit(row.embedding).ok_or("wanted finite numbers, got others")?;
        }
        match vectors.iter().position(Vec::is_empty) {
            None => Ok(EmbeddedTexts { vectors, tokens: answer.usage.prompt_tokens }),
            Some(missing) => Err(format!("wanted {texts} vectors, got none of number {missing}").into()),
        }
    }
}

#[derive(Deserialize)]
struct EmbeddingAnswer {
    data: Vec<RemoteRow>,
    #[serde(default)]
    usage: RemoteUsage,
}

#[derive(Deserialize)]
struct RemoteRow {
    #[serde(default)]
    index: usize,
    embedding: Vec<f32>,
}

#[derive(Default, Deserialize)]
struct RemoteUsage {
    #[serde(default)]
    prompt_tokens: usize,
}

/// The first line of a file.
fn key(file: &str) -> Result<Option<String>, OpenEmbedderError> {
    if file.is_empty() {
        return Ok(None);
    }
    let wrong = |why: &dyn std::fmt::Display| OpenEmbedderError::new("api_key_file", format_args!("{file}: {why}"));
    let text = read_regular_text(Path::new(file), KEY_BYTES_MAX).map_err(|e| wrong(&e))?;
    match text.lines().next().map(str::trim) {
        Some(key) if !key.is_empty() && key.chars().all(|c| c.is_ascii_graphic()) => Ok(Some(key.to_owned())),
        _ => Err(wrong(&"wanted a key of ASCII characters in the first line, got none")),
    }
}
