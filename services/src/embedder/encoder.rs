//! An encoder that runs here. Its threads give way to the engine's where cores are short; a text is computed by one of
//! them, so that a vector has the same bytes alone and among others, under any number of threads.

use super::error::{EmbedderError, OpenEmbedderError};
use super::settings::EmbedderSettings;
use super::{EmbeddedTexts, MadeVectors, Prefixes, Purpose, TextEmbedder, VectorMaker, digest, unit};
use crate::holder::Holder;
use crate::limits::{EMBEDDING_TOKENS_MAX, ENCODER_JOBS_MAX, ENCODER_THREADS_MAX};
use crate::metrics;
use crate::text::TextPool;
use crate::text::wordpiece::{CutText, WordPieceTokenizer};
use chimere_engine::encoder::TextEncoder;
use chimere_engine::ids::TokenId;
use futures_util::{StreamExt, TryStreamExt, stream};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Texts that a thread reads before it looks for others' again.
const BATCH_TEXTS: usize = 4;

/// An encoder with its tokenizer and its threads.
#[derive(Debug)]
pub struct LocalEncoder {
    name: String,
    digest: String,
    prefixes: Prefixes,
    reader: Arc<TextReader>,
    pool: TextPool,
    threads: usize,
}

/// What becomes of texts that have more tokens than the encoder reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlong {
    /// Their first tokens are read.
    Cut,
    /// All texts are refused.
    Refuse,
}

/// What a job on a thread needs.
#[derive(Debug)]
struct TextReader {
    encoder: TextEncoder,
    tokenizer: WordPieceTokenizer,
}

impl LocalEncoder {
    /// Reads a directory and starts the threads.
    pub(super) fn open(dir: &Path, settings: &EmbedderSettings) -> Result<Self, OpenEmbedderError> {
        let wrong = |why: &dyn std::fmt::Display| OpenEmbedderError::new("directory", why);
        let encoder = TextEncoder::open(dir).map_err(|e| wrong(&e))?;
        let modules = encoder.modules();
        let tokenizer = WordPieceTokenizer::open(dir, encoder.config().vocab, modules.lower_case);
        let tokenizer = tokenizer.map_err(|e| wrong(&e))?;
        if encoder.tokens_max() <= tokenizer.around() {
            let (max, around) = (encoder.tokens_max(), tokenizer.around());
            return Err(wrong(&format_args!("{max} tokens leave no room for a text between {around} of its own")));
        }
        let own = |set: &str, said: &str| if set.is_empty() { said.to_owned() } else { set.to_owned() };
        let prefixes = Prefixes {
            query: own(&settings.query_prefix, &modules.query_prompt),
            passage: own(&settings.passage_prefix, &modules.passage_prompt),
        };
        let digest = digest::of_directory(dir, &[&prefixes.query, &prefixes.passage]).map_err(|e| wrong(&e))?;
        let threads = threads(settings.threads);
        let pool = TextPool::in_the_background("encoder", threads, ENCODER_JOBS_MAX).map_err(|e| wrong(&e))?;
        let reader = Arc::new(TextReader { encoder, tokenizer });
        Ok(Self { name: name(dir, settings), digest, prefixes, reader, pool, threads })
    }

    /// The name under which it is served.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Numbers of a vector.
    pub fn width(&self) -> usize {
        self.reader.encoder.width()
    }

    /// The most tokens that it reads of a text, those around it included.
    pub fn tokens_max(&self) -> usize {
        self.reader.encoder.tokens_max()
    }

    /// Name, sizes and threads, for the log.
    pub fn about(&self) -> String {
        format!(
            "encoder {} ({} layers, vectors of {}, {} tokens a text, {:.1} MiB) on {} threads of the CPU",
            self.name,
            self.reader.encoder.config().layers,
            self.width(),
            self.tokens_max(),
            self.reader.encoder.bytes() as f64 / f64::from(1 << 20),
            self.threads
        )
    }

    /// The encoder's own vectors of texts as they stand.
    pub async fn vectors(
        &self,
        holder: Holder,
        texts: Vec<String>,
        overlong: Overlong,
    ) -> Result<EmbeddedTexts, EmbedderError> {
        let begin = Instant::now();
        let all = self.tokens(holder, texts, overlong).await?;
        let (texts, tokens) = (all.len(), all.iter().map(Vec::len).sum::<usize>());
        // A few texts are read by as many threads.
        let batch = texts.div_ceil(self.threads).clamp(1, BATCH_TEXTS);
        let batches: Vec<Vec<Vec<TokenId>>> = all.chunks(batch).map(<[_]>::to_vec).collect();
        let read = stream::iter(batches).map(|batch| {
            let reader = self.reader.clone();
            let job = move || batch.iter().map(|ids| reader.encoder.vector(ids)).collect::<Vec<_>>();
            self.pool.run(holder, job)
        });
        let vectors: Vec<Vec<Vec<f32>>> = read.buffered(self.threads).try_collect().await?;
        ::metrics::counter!(metrics::EMBEDDING_INPUTS).increment(texts as u64);
        ::metrics::counter!(metrics::ENCODER_TOKENS).increment(tokens as u64);
        ::metrics::histogram!(metrics::ENCODER_SECONDS).record(begin.elapsed().as_secs_f64());
        Ok(EmbeddedTexts { vectors: vectors.into_iter().flatten().collect(), tokens })
    }

    /// The ids of all texts, each of at most as many as the encoder reads.
    async fn tokens(
        &self,
        holder: Holder,
        texts: Vec<String>,
        overlong: Overlong,
    ) -> Result<Vec<Vec<TokenId>>, EmbedderError> {
        let (reader, max) = (self.reader.clone(), self.tokens_max());
        let cut = move || texts.iter().map(|text| reader.tokenizer.cut(text, max)).collect::<Vec<CutText>>();
        let all = self.pool.run(holder, cut).await?;
        if overlong == Overlong::Refuse
            && let Some((index, text)) = all.iter().enumerate().find(|(_, text)| text.whole > max)
        {
            return Err(EmbedderError::TooLong { index, got: text.whole, max });
        }
        let got = all.iter().map(|text| text.ids.len()).sum();
        if got > EMBEDDING_TOKENS_MAX {
            return Err(EmbedderError::TooManyTokens { got, max: EMBEDDING_TOKENS_MAX });
        }
        Ok(all.into_iter().map(|text| text.ids).collect())
    }
}

impl TextEmbedder for LocalEncoder {
    fn maker(&self) -> VectorMaker {
        VectorMaker { identity: format!("{} {} {}", self.name, self.width(), self.digest), width: self.width() }
    }

    fn at_once(&self) -> usize {
        self.threads
    }

    /// Long texts are cut: words find the rest.
    fn compared(&self, holder: Holder, texts: Vec<String>, purpose: Purpose) -> MadeVectors<'_> {
        Box::pin(async move {
            let mut embedded = self.vectors(holder, self.prefixes.before(purpose, texts), Overlong::Cut).await?;
            for (index, vector) in embedded.vectors.iter_mut().enumerate() {
                *vector = unit(std::mem::take(vector)).ok_or(EmbedderError::NotFinite(index))?;
            }
            Ok(embedded)
        })
    }
}

/// The one that was asked for, else that of the directory.
fn name(dir: &Path, settings: &EmbedderSettings) -> String {
    if !settings.name.is_empty() {
        return settings.name.clone();
    }
    let whole = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let own = whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let plain: String = own.chars().map(|c| if c.is_ascii_graphic() { c } else { '-' }).collect();
    if plain.is_empty() { "encoder".to_owned() } else { plain }
}

/// Half of the cores, unless a number was asked for: the engine has the others to itself.
fn threads(asked: u32) -> usize {
    match asked {
        0 => (std::thread::available_parallelism().map_or(1, usize::from) / 2).clamp(1, ENCODER_THREADS_MAX),
        n => n as usize,
    }
}
