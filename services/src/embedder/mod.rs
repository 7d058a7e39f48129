//! Makers of the vectors by which collections and stores of documents find texts. Who asks for them, and in which turn,
//! is not here: see `turn/text_vectors/`.

mod digest;
mod encoder;
mod error;
mod settings;
mod url;

pub use encoder::{LocalEncoder, Overlong};
pub use error::{EmbedderError, OpenEmbedderError};
pub use settings::EmbedderSettings;
pub use url::RemoteEmbedder;

use crate::holder::Holder;
use futures_util::future::BoxFuture;
use std::path::Path;
use std::sync::Arc;

/// Maker of vectors of texts.
#[derive(Clone, Debug)]
pub enum Embedder {
    /// The served model: the mean of its hidden states.
    Model,
    /// An encoder that runs here, on the CPU.
    Encoder(Arc<LocalEncoder>),
    /// An OpenAI-compatible server elsewhere.
    Url(Arc<RemoteEmbedder>),
}

/// The use that a vector is made for. Some encoders read a prefix for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To look for texts.
    Query,
    /// To be found by queries.
    Passage,
}

/// Vectors of some texts.
#[derive(Clone, Debug, Default)]
pub struct EmbeddedTexts {
    /// A vector of length 1 for each text, in their order.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of all texts.
    pub tokens: usize,
}

/// The maker of some vectors, as what they are kept in records it: vectors of different makers cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorMaker {
    /// Name, width, and what else tells it from others.
    pub identity: String,
    /// Numbers of a vector.
    pub width: usize,
}

/// Vectors, once they are made.
pub type MadeVectors<'a> = BoxFuture<'a, Result<EmbeddedTexts, EmbedderError>>;

/// A maker of vectors beside the served model.
pub trait TextEmbedder: Send + Sync {
    /// What is recorded of vectors that it makes.
    fn maker(&self) -> VectorMaker;

    /// How many texts it reads at a time without making others wait for long.
    fn at_once(&self) -> usize;

    /// Vectors of length 1 for texts that are to be compared.
    fn compared(&self, holder: Holder, texts: Vec<String>, purpose: Purpose) -> MadeVectors<'_>;
}

impl Embedder {
    /// The one that the configuration asks for; the served model where it asks for none.
    pub fn open(settings: &EmbedderSettings) -> Result<Self, OpenEmbedderError> {
        if !settings.directory.is_empty() {
            return LocalEncoder::open(Path::new(&settings.directory), settings).map(|e| Self::Encoder(Arc::new(e)));
        }
        if !settings.url.is_empty() {
            return RemoteEmbedder::open(settings).map(|e| Self::Url(Arc::new(e)));
        }
        Ok(Self::Model)
    }

    /// What is recorded of vectors that it makes; `None` for the served model, which whoever loads it describes.
    pub fn maker(&self) -> Option<VectorMaker> {
        self.beside_model().map(TextEmbedder::maker)
    }

    /// The one that is not the served model, if it is another.
    pub fn beside_model(&self) -> Option<&dyn TextEmbedder> {
        match self {
            Self::Model => None,
            Self::Encoder(encoder) => Some(&**encoder),
            Self::Url(remote) => Some(&**remote),
        }
    }

    /// The encoder that runs here, if one does: it is also served under its own name.
    pub fn encoder(&self) -> Option<&Arc<LocalEncoder>> {
        match self {
            Self::Encoder(encoder) => Some(encoder),
            _ => None,
        }
    }
}

/// What stands before texts of each use.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Prefixes {
    query: String,
    passage: String,
}

impl Prefixes {
    fn of(&self, purpose: Purpose) -> &str {
        match purpose {
            Purpose::Query => &self.query,
            Purpose::Passage => &self.passage,
        }
    }

    fn before(&self, purpose: Purpose, texts: Vec<String>) -> Vec<String> {
        match self.of(purpose) {
            "" => texts,
            prefix => texts.into_iter().map(|text| format!("{prefix}{text}")).collect(),
        }
    }
}

/// A vector at length 1, and one of nothing but zeros as it is; none of a length that is not finite.
fn unit(mut vector: Vec<f32>) -> Option<Vec<f32>> {
    let square: f64 = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    if !square.is_finite() {
        return None;
    }
    if square > 0.0 {
        let scale = square.sqrt().recip();
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) * scale) as f32);
    }
    Some(vector)
}
